"""A worker process of several loaders: the messages to it, and its work for each loader.

Imports the loops, the core and the pickled configs. The trainer sends it messages, with the
descriptors of a loader's arena, and wakes it after each. The process ends on a Stop message, or
with its trainer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import os
import pickle
import select
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from reader._core.memory.arena import Arena
from reader._core.wire.channel import WorkerChannel
from reader._core.wire.wake_words import WakeWords
from reader.available_memory import available_bytes
from reader.data.distributed_env import Ranks
from reader.errors import ConfigError, InternalError, ReaderError, refusal
from reader.policy import Prepare
from reader.processes.pickling import PickledConfig, unpickle_config
from reader.processes.process import InheritedFd, read_file
from reader.processes.template import memory_file
from reader.processes.template_process import MAX_FDS, recv_fds
from reader.worker import loop
from reader.worker.interruption import interrupt_when
from reader.worker.shared_loops import SharedLoops

__all__ = ["Control", "DropConfig", "Open", "SharedJob", "Stop", "received"]

_MOST_FDS = MAX_FDS - 3  # of a config; three more: the arena, the bell, the config
_MOST_NBYTES = 1 << 16
_PATIENCE_S = 5.0  # time for a worker to read the messages that fill its socket, some hundred


@dataclasses.dataclass(frozen=True)
class Open:
    """Work for a loader from now on.

    `key`: of its config; `part`: see WakeWords; `keep_slots`: see WorkerChannel; `budget`: bytes of
    memory for the batches of all loaders, None: the machine's memory; `loaders`: how many there
    are; `config_fds`: descriptors of the config, which comes with this message, pickled; 0: the
    worker has it; `prepare`, `ranks`: see WorkerConfig.
    """

    key: int
    part: int
    keep_slots: int
    budget: int | None
    loaders: int
    config_fds: int
    prepare: Prepare | None
    ranks: Ranks | ConfigError | None


@dataclasses.dataclass(frozen=True)
class DropConfig:
    """Drop the config of a loader that is gone."""

    key: int


@dataclasses.dataclass(frozen=True)
class Stop:
    """Stop after the current batch."""


class Control:
    """The trainer's end of a worker's messages.

    Args:
        words: to wake it.
        worker_id: its number.

    Attributes:
        theirs: the worker's end, which is closed when the worker has it.

    Raises:
        OSError: the system refuses descriptors.
    """

    def __init__(self, words: WakeWords, worker_id: int) -> None:
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._words = words
        self._worker = worker_id

    def tell(self, order: Any) -> bool:
        """Send a message without waiting; False: too many are unread.

        A worker that has ended is noticed elsewhere.
        """
        try:
            self._send(order, ())
        except BlockingIOError:
            return False
        return True

    def _send(self, order: Any, fds: Sequence[int]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._ours, [pickle.dumps(order, 5)], fds)
        self._words.wake(self._worker)

    def heard(self) -> Iterator[Any]:
        """Yield the messages that the other side has sent since the last call, without waiting."""
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while data := self._ours.recv(_MOST_NBYTES):
                yield pickle.loads(data)

    def send(self, order: Any, fds: Sequence[int]) -> None:
        """Send a message with descriptors; waits for a limited time while too many are unread.

        Raises:
            ReaderError: the worker does not read its messages, or the system refuses one.
        """
        try:
            try:
                self._send(order, fds)
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._ours, select.POLLOUT)
                poll.poll(_PATIENCE_S * 1000)
                self._send(order, fds)
        except BlockingIOError:
            raise ReaderError(
                f"worker {self._worker} of a WorkerPool has been at a batch for {_PATIENCE_S:g} s,"
                " and cannot be told of one more loader: it has not read of some hundred before."
                " Take the batches of fewer loaders at a time, or pass hang_after to the slow one"
            ) from None
        except OSError as error:
            what = f"worker {self._worker} of a WorkerPool"
            raise refusal(what, "cannot be told of a loader", error) from error

    def send_open(self, order: Open, arena: int, bell: int, pickled: PickledConfig | None) -> None:
        """Send an `Open`, with the descriptors of the arena and the bell, and a pickled config.

        Raises:
            ConfigError: the config has too many descriptors.
            ReaderError: the worker does not read its messages, or the system refuses one.
        """
        fds = [arena, bell]
        if pickled is None:
            self.send(order, fds)
            return
        if len(pickled.fds) > _MOST_FDS:
            raise ConfigError(
                f"the dataset holds {len(pickled.fds)} descriptors, and a WorkerPool that runs"
                f" already can be sent {_MOST_FDS}. Make the loader before the first one of the"
                " pool is iterated over"
            )
        data = memory_file("reader-config", pickled.data)
        try:
            self.send(order, [*fds, data, *pickled.fds])
        finally:
            os.close(data)

    def close(self) -> None:
        """Close both ends."""
        self._ours.close()
        self.theirs.close()


@dataclasses.dataclass(frozen=True)
class SharedJob:
    """Makes the batches of the loaders that messages open.

    `control`: its end of the messages; `words`: a memory file, see WakeWords; `count`: how many
    workers there are; `configs`: a forked worker's configs of the existing loaders, by key.
    """

    control: InheritedFd
    words: InheritedFd
    count: int
    configs: dict[int, loop.WorkerConfig] = dataclasses.field(repr=False)

    def work(self, worker_id: int) -> None:
        """Make batches until a Stop message comes."""
        words = WakeWords(self.words.fd, self.count)
        worker = _SharedWorker(worker_id, words, self.configs)
        interrupt_when(lambda: worker.loops.is_interruptible)
        with socket.socket(fileno=self.control.fd) as control:
            while True:
                if words.take(worker_id):
                    for order, fds in received(control):
                        if isinstance(order, Stop):
                            worker.loops.close()
                            return
                        if isinstance(order, DropConfig):
                            worker.configs.pop(order.key, None)
                        else:
                            worker.open(order, fds)
                has_worked = worker.loops.work()
                worker.release_stopped()
                if not has_worked:
                    worker.loops.rest()
                    words.wait(worker_id, worker.loops.channels)


def received(control: socket.socket) -> Iterator[tuple[Any, list[int]]]:
    """Yield the messages that have come, with their descriptors."""
    while True:
        try:
            data, fds = recv_fds(control, _MOST_NBYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not data:  # the trainer has closed its end
            yield Stop(), []
            return
        yield pickle.loads(data), fds


class _SharedWorker:
    """A worker's state of all loaders: configs, loops, and the memory that they share.

    Args:
        worker_id: from 0.
        words: show for which loader it works.
        configs: of the known loaders, by key.
    """

    def __init__(
        self, worker_id: int, words: WakeWords, configs: dict[int, loop.WorkerConfig]
    ) -> None:
        self.configs = dict(configs)
        self.loops = SharedLoops(worker_id, functools.partial(words.enter, worker_id))
        self._worker_id = worker_id
        self._open: dict[WorkerChannel, tuple[int, int]] = {}  # the bell, and the loader's key
        self._budget: int | None = None
        self._loaders = 0

    def open(self, order: Open, fds: list[int]) -> None:
        """Begin to work for a loader."""
        arena, bell, *config_fds = fds
        channel = WorkerChannel(
            Arena.attach(arena), self._worker_id, bell, order.keep_slots, available_bytes
        )
        self._open[channel] = bell, order.key  # the bell is closed when the channel is not open
        self._budget, self._loaders = order.budget, order.loaders
        try:
            self.loops.open(channel, order.part, lambda: self._config(order, config_fds))
        finally:
            for fd in config_fds:  # the loader has stopped already
                os.close(fd)
        self._share_budget()

    def _config(self, order: Open, fds: list[int]) -> loop.WorkerConfig:
        if len(fds) < order.config_fds:
            raise OSError(
                errno.EMFILE,
                "a worker that several loaders share cannot take over the"
                " descriptors of a dataset: it has too many open files (ulimit -n)",
            )
        if fds:
            data, *held = fds
            fds.clear()
            self.configs[order.key] = unpickle_config(read_file(data), held)
        if order.key not in self.configs:
            raise InternalError("a shared worker has no config of a loader that it is to work for")
        found = self.configs[order.key]
        return dataclasses.replace(found, prepare=order.prepare, ranks=order.ranks)

    def release_stopped(self) -> None:
        """Release the arenas of loaders that have stopped."""
        if len(self._open) == len(self.loops.channels):
            return
        for channel in self._open.keys() - set(self.loops.channels):
            os.close(self._open.pop(channel)[0])
            channel.share_memory([])  # two would keep each other and their arenas alive
        self._share_budget()

    def _share_budget(self) -> None:
        """Limit the memory of all arenas together to the pool's."""
        channels = self.loops.channels
        idle = max(0, self._loaders - len({self._open[channel][1] for channel in channels}))
        for channel in channels:
            others = [other for other in channels if other is not channel]
            channel.share_memory(others, self._budget, idle)
