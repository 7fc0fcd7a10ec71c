"""A worker process of several loaders: what it is told, and how it works for them.

Imports the loops, the core and the pickled configs. The trainer tells it by messages, with the
descriptors of a loader's arena; each is followed by a wake. The process ends when it is told to, or
with its trainer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from reader._core.memory.arena import Arena
from reader._core.wire.channel import WorkerChannel
from reader._core.wire.wake_words import WakeWords
from reader.available_memory import available_bytes
from reader.errors import ConfigError, InternalError
from reader.policy import Prepare
from reader.processes.pickling import PickledConfig, unpickle_config
from reader.processes.process import InheritedFd, read_file
from reader.processes.template import memory_file
from reader.processes.template_process import MAX_FDS, recv_fds
from reader.worker import loop
from reader.worker.shared_loops import SharedLoops

__all__ = ["Control", "Forget", "Open", "SharedJob", "Stop", "received"]

_MOST_FDS = MAX_FDS - 3  # of a config: arena, bell and the config itself are beside them
_MOST_NBYTES = 1 << 16


@dataclasses.dataclass(frozen=True)
class Open:
    """Work for a loader from now on.

    `key`: of its config; `keep_slots`: see WorkerChannel; `budget`: bytes of memory for the batches
    of all loaders, None: what the machine has; `has_config`: the config comes with this message,
    pickled; else the worker has it; `prepare`: of this start.
    """

    key: int
    keep_slots: int
    budget: int | None
    has_config: bool
    prepare: Prepare | None


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
        self._words = words
        self._worker = worker

    def send(self, order: Any, fds: Sequence[int] = ()) -> None:
        """Tell the worker; one that has ended hears nothing, and is noticed elsewhere."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._ours, [pickle.dumps(order, 5)], list(fds))
        self._words.wake(self._worker)

    def send_open(self, order: Open, arena: int, bell: int, pickled: PickledConfig | None) -> None:
        """Send an `Open`, with the descriptors of the arena and the bell, and a pickled config."""
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
        loops = SharedLoops(worker_id)
        budget: int | None = None
        configs = dict(self.configs)
        bells: dict[WorkerChannel, int] = {}  # of the loaders it works for
        with socket.socket(fileno=self.control.fd) as control:
            while True:
                if words.take(worker_id):
                    for order, fds in received(control):
                        if isinstance(order, Stop):
                            loops.close()
                            return
                        if isinstance(order, Forget):
                            configs.pop(order.key, None)
                        else:
                            budget = order.budget
                            _open(loops, worker_id, configs, order, fds, bells)
                            _share_budget(loops.channels, budget)
                has_worked = loops.work()
                channels = loops.channels
                if len(channels) < len(bells):
                    _share_budget(channels, budget)
                    for channel in bells.keys() - set(channels):
                        os.close(bells.pop(channel))
                if not has_worked:
                    words.wait(worker_id, channels)


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


def _open(
    loops: SharedLoops,
    worker_id: int,
    configs: dict[int, loop.WorkerConfig],
    order: Open,
    fds: list[int],
    bells: dict[WorkerChannel, int],
) -> None:
    arena, bell, *config_fds = fds
    channel = WorkerChannel(Arena.attach(arena), worker_id, bell, order.keep_slots, available_bytes)
    bells[channel] = bell  # it is closed when the channel is not open, or no more
    try:
        if order.has_config:
            data, *held = config_fds
            configs[order.key] = unpickle_config(read_file(data), held)
        if order.key not in configs:
            raise InternalError("a shared worker has no config of a loader that it is to work for")
        config = dataclasses.replace(configs[order.key], prepare=order.prepare)
    except BaseException as error:
        channel.fail(loop.carried(error))
    else:
        loops.open(channel, config)


def _share_budget(channels: list[WorkerChannel], budget: int | None) -> None:
    """Have the arenas of channels own no more than so many bytes together."""
    if budget is None:
        return
    arenas = [channel.arena for channel in channels]
    for arena in arenas:
        others = [other for other in arenas if other is not arena]
        arena.share_budget(others or None, budget)
