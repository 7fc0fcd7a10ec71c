"""A worker process of several loaders: what it is told, and how it works for them.

Imports the loops, the core and the pickled configs. The trainer tells it by messages, with the
descriptors of a loader's arena; each is followed by a wake. The process ends when it is told to, or
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

__all__ = ["Control", "Forget", "Open", "SharedJob", "Stop", "received"]

_MOST_FDS = MAX_FDS - 3  # of a config: arena, bell and the config itself are beside them
_MOST_NBYTES = 1 << 16
_PATIENCE_S = 5.0  # for a worker to read messages that fill its socket: some hundred of them


@dataclasses.dataclass(frozen=True)
class Open:
    """Work for a loader from now on.

    `key`: of its config; `part`: see WakeWords; `keep_slots`: see WorkerChannel; `budget`: bytes of
    memory for the batches of all loaders, None: what the machine has; `loaders`: how many there
    are; `config_fds`: descriptors of the config, which comes with this message, pickled; 0: the
    worker has it; `prepare`, `ranks`: of this start.
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
class Forget:
    """Let go of the config of a loader, which is gone."""

    key: int


@dataclasses.dataclass(frozen=True)
class Stop:
    """End, after the batch in hand."""


class Control:
    """The trainer's end of a worker's messages.

    Args:
        words: wakes it.
        worker: its number.

    Attributes:
        theirs: the worker's end, which is closed when the worker has it.

    Raises:
        OSError: the system refuses descriptors.
    """

    def __init__(self, words: WakeWords, worker: int) -> None:
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._words = words
        self._worker = worker

    def tell(self, order: Any) -> bool:
        """Tell the worker, without waiting; False: it has too many messages to read.

        One that has ended hears nothing, and is noticed elsewhere.
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
        """Yield what the other side has sent since this was called last, without waiting."""
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while data := self._ours.recv(_MOST_NBYTES):
                yield pickle.loads(data)

    def send(self, order: Any, fds: Sequence[int]) -> None:
        """Tell the worker, with descriptors; waits for a time where it has too many messages.

        Raises:
            ReaderError: the worker does not read its messages, or the system refuses one.
        """
        try:
            try:
                self._send(order, fds)
            except BlockingIOError:
                room = select.poll()
                room.register(self._ours, select.POLLOUT)
                room.poll(_PATIENCE_S * 1000)
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
    """Makes the batches of the loaders that it is told of.

    `control`: its end of the messages; `words`: a memory file, see WakeWords; `count`: of workers;
    `configs`: by key, of the loaders that there are; those of a forked worker.
    """

    control: InheritedFd
    words: InheritedFd
    count: int
    configs: dict[int, loop.WorkerConfig] = dataclasses.field(repr=False)

    def work(self, worker_id: int) -> None:
        """Make batches until it is told to stop."""
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
                        if isinstance(order, Forget):
                            worker.configs.pop(order.key, None)
                        else:
                            worker.open(order, fds)
                has_worked = worker.loops.work()
                worker.leave_stopped()
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
    """What a worker has of the loaders: configs, loops, and the memory that they share.

    Args:
        worker_id: from 0.
        words: say for which loader it works.
        configs: by key, of the loaders that it knows.
    """

    def __init__(
        self, worker_id: int, words: WakeWords, configs: dict[int, loop.WorkerConfig]
    ) -> None:
        self.configs = dict(configs)
        self.loops = SharedLoops(worker_id, functools.partial(words.enter, worker_id))
        self._worker_id = worker_id
        self._open: dict[WorkerChannel, tuple[int, int]] = {}  # its bell, and the loader's key
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
            for fd in config_fds:  # of a loader that has stopped already
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

    def leave_stopped(self) -> None:
        """Let go of the arenas of loaders that have stopped."""
        if len(self._open) == len(self.loops.channels):
            return
        for channel in self._open.keys() - set(self.loops.channels):
            os.close(self._open.pop(channel)[0])
            channel.beside = []  # two that stop at once would keep each other, and their arenas
        self._share_budget()

    def _share_budget(self) -> None:
        """Have the arenas own no more memory together than the pool may."""
        channels = self.loops.channels
        idle = max(0, self._loaders - len({self._open[channel][1] for channel in channels}))
        for channel in channels:
            channel.beside = [other for other in channels if other is not channel]
            if self._budget is not None:
                others = [other.arena for other in channel.beside]
                channel.arena.share_budget(others, self._budget, idle)
