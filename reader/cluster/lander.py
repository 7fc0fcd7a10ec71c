"""The process that brings the batches of remote workers into the trainer's arena.

Imports the lines to workers, and Ray where it runs. It is a process beside the trainer, whose
interpreter Ray's client then does not slow: it takes tasks off the rings as a worker does, sends
them to actors, and lands their answers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pickle
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reader._core.wire.wake_words import WakeWords
from reader.cluster.actors import Actor, OwnActor, PoolActor
from reader.cluster.address import connect
from reader.cluster.line import HasRoom, InFlight, Line, NotStarted, Start, lender
from reader.cluster.node_clock import NodeClock
from reader.cluster.node_files import give_files
from reader.cluster.pool_worker import BEAT_S, PoolWorker
from reader.cluster.ray_backend import Ray
from reader.cluster.remote_worker import RemoteWorker
from reader.cluster.room import Room
from reader.cluster.sent_config import put_config
from reader.cluster.watches import Watches
from reader.errors import ReaderError
from reader.log import log as _log
from reader.processes.process import InheritedFd, read_file
from reader.processes.shared_process import Stop, received

__all__ = ["Kill", "LanderJob"]

_LOOK_S = 1.0  # between two looks at what takes long
_LONG_S = 2.0  # a batch
_TELL_NS = 20_000_000  # between two messages of how many tasks are wanted
_LEAVE_S = 2.0  # for workers that others use to hear that this program leaves


@dataclasses.dataclass(frozen=True)
class Kill:
    """End a remote worker at once."""

    worker: int


@dataclasses.dataclass(frozen=True)
class LanderJob:
    """Brings the batches of all remote workers of a pool.

    `control`: messages of the trainer; `words`: see WakeWords; `config`: a memory file with the
    pickle of a RemoteConfig, whose `files` and `sizes` these are; `has_parts`: each worker has its
    part of a stream; `takes_turns`: batch n is made by worker n modulo their number; `makes_stale`:
    see TaskRelay.
    """

    control: InheritedFd
    words: InheritedFd
    config: InheritedFd
    files: Sequence[InheritedFd]
    sizes: Sequence[int]
    backend: Ray
    has_parts: bool
    takes_turns: bool
    makes_stale: bool

    def work(self, worker_id: int) -> None:
        """Land batches until it is told to stop."""
        words = WakeWords(self.words.fd, 1)
        threading.Thread(
            target=_wake_often, args=(words, worker_id), daemon=True, name="reader-beat"
        ).start()
        cluster = _Cluster(self.backend, self)
        with socket.socket(fileno=self.control.fd) as control:
            tell = functools.partial(_told, control)
            lander = _Lander(cluster, self, lambda: words.wake(worker_id), tell)
            while True:
                if words.take(worker_id):
                    for order, fds in received(control):
                        if isinstance(order, Stop):
                            lander.close()
                            return
                        if isinstance(order, Kill):
                            lander.kill(order.worker)
                        else:
                            lander.open(order, fds)
                lander.step()
                words.wait(worker_id, lander.channels, is_idle=False)


def _wake_often(words: WakeWords, worker_id: int) -> None:
    pause = threading.Event()
    while not pause.wait(_LOOK_S):
        words.wake(worker_id)


class _Cluster:
    """The connection to the cluster, and what its workers are given.

    Attributes:
        error: why there is none; None: there is one.
        max_in_flight_bytes: of batches.
    """

    max_in_flight_bytes: int

    def __init__(self, backend: Ray, job: LanderJob) -> None:
        self.error: BaseException | None = None
        self._ray: Any = None
        self._backend = backend
        self._user = uuid.uuid4().hex
        try:
            self._connect(backend, job)
        except BaseException as error:  # told at each worker
            self.error = error

    def _connect(self, backend: Ray, job: LanderJob) -> None:
        import ray

        self._ray = ray
        address = backend.address
        options: dict[str, Any] = {"runtime_env": backend.runtime_env}
        if backend.address is None and backend.pool is None:
            options["include_dashboard"] = False
        elif backend.address is None:
            address = "auto"
        _show_program()
        try:
            connect(ray, address, **options)
        except ConnectionError as error:
            if backend.pool is None:
                raise
            raise ReaderError(
                f"pool={backend.pool!r} is shared by programs, and no cluster runs that outlives"
                " each of them: pass address=, or start one (ray start --head)"
            ) from error
        nodes = ray.nodes()
        _check_resources(nodes, backend.resources)
        self.max_in_flight_bytes = backend.most_in_flight(nodes)
        data, files = bytes(read_file(job.config.fd)), [file.fd for file in job.files]
        self._sent = put_config(data, files, job.sizes)  # this process owns what it refers to
        if files:
            give_files(self._sent.name, files)  # workers of this machine make no copy
        self._config = ray.put(self._sent)
        # once: Ray sends each actor class to the cluster
        if backend.pool is None:
            self._kind = ray.remote(RemoteWorker).options(**backend.actor_options())
        else:
            self._kind = ray.remote(PoolWorker)

    def start(self, order: Start) -> Actor:
        """Return the actor of a worker, which starts, or works for others already."""
        found = self._ray, self._kind, self._config, order.worker, order.in_flight
        if self._backend.pool is None:
            return OwnActor(*found)
        return PoolActor(*found, self._backend, self._user)

    def watches(self, wake: Callable[[], None]) -> Watches:
        """Return what looks at workers on their nodes."""
        return Watches(self._ray, wake)

    def free(self) -> list[dict[str, float]]:
        """Return what is free on each node, or what there is in all where Ray tells no more."""
        ask = getattr(self._ray._private.state, "available_resources_per_node", None)
        return [self._ray.available_resources()] if ask is None else list(ask().values())

    def close(self, leaving: list[Any]) -> None:
        """Leave the cluster; own actors end, and with them a cluster that was started for this.

        `leaving`: references to what is waited for.
        """
        if leaving:
            with contextlib.suppress(Exception):
                self._ray.wait(leaving, num_returns=len(leaving), timeout=_LEAVE_S)
        if self._ray is not None:
            with contextlib.suppress(Exception):
                self._ray.shutdown()


class _Lander:
    """Sends the tasks of all lines, and lands what comes back.

    Args:
        cluster: where the workers are.
        job: says what they are like.
        wake: ends the wait for the next step; called in other threads.
        tell: sends the trainer a message, or returns that it does not read.
    """

    def __init__(
        self,
        cluster: _Cluster,
        job: LanderJob,
        wake: Callable[[], None],
        tell: Callable[[Any], bool],
    ) -> None:
        self._cluster = cluster
        self._backend = job.backend
        self._job = job
        self._schemas: dict[tuple[str, int], bytes] = {}
        self._suspects: set[tuple[int, int]] = set()
        self._clocks: dict[str, NodeClock] = {}
        self._watches: Watches | None = None
        self._look_at = 0.0
        self._leaving: list[Any] = []
        self._beat_at = 0.0
        self._bounded: list[Line] = []  # by the limit on bytes, since the last step
        self._bounded_ns = 0
        self._wake = wake
        self._tell = tell
        self._lines: list[Line] = []
        self._begun = time.monotonic()
        self._is_warned = False  # that there is no room
        self._is_short = False  # there is none for workers that have waited for long
        self._told_room = HasRoom(-1)
        self._told_in_flight = InFlight(0)
        self._tell_ns = 0
        self._room: Room | None = None
        if cluster.error is None:
            self._room = Room(cluster.free, self._backend.resources, wake)

    @property
    def channels(self) -> list[Any]:
        """From which tasks can be taken now."""
        if not self._has_room(self._in_flight_nbytes()):
            return []
        lines, can_lend = self._lines, self._lender() is not None
        return [
            line.channel
            for line in lines
            if not line.is_full and (self._may_send(line) if line.is_started else can_lend)
        ]

    def open(self, order: Start, fds: list[int]) -> None:
        """Start a worker."""
        line = Line(
            order,
            fds,
            self._job.makes_stale,
            self._backend.pool is not None,
            self._schemas,
            self._suspects,
            self._clocks,
            self._wake,
        )
        if self._cluster.error is not None:
            error = self._cluster.error
            kind = "" if isinstance(error, ReaderError) else f"{type(error).__name__}: "
            remedy = ""
            if "ersion mismatch" in str(error):
                remedy = ". Have the same Python and Ray here and on all nodes"
            why = f"{kind}{error}".strip() + remedy
            line.fail(ReaderError(f"workers on Ray cannot be started: {why}"))
            return
        line.start(self._cluster.start(order))
        self._lines.append(line)
        self._begun, self._is_warned = time.monotonic(), False

    def kill(self, worker: int) -> None:
        """End the actor of a worker."""
        for line in self._lines:
            if line.worker == worker and line.actor is not None:
                line.actor.kill()

    def close(self) -> None:
        """Leave the workers, and the cluster."""
        if self._room is not None:
            self._room.close()
        for line in self._lines:
            self._leave(line)
        self._cluster.close(self._leaving)

    def _leave(self, line: Line) -> None:
        found = None if line.actor is None else line.actor.leave()
        if found is not None:
            self._leaving.append(found)

    def step(self) -> None:
        """Land what has come, and send what may be sent."""
        for line in self._lines:
            if line.channel.is_stopped:
                self._leave(line)
                line.end(None)
                continue
            try:
                line.land()
            except NotStarted as error:
                self._ask_again(line, error)
            except Exception as error:  # the actor is gone, alone or with its node
                line.end(error)
        self._count_bounded()
        self._beat()
        self._look()
        self._lines = [line for line in self._lines if not line.is_ended]
        self._count_room()
        self._count_in_flight()
        self._send()

    def _ask_again(self, line: Line, error: NotStarted) -> None:
        """Ask anew for an actor that others use and that was ending as we came."""
        is_soon = time.monotonic() - line.begun < self._backend.start_timeout
        if self._backend.pool is not None and is_soon:
            line.start(self._cluster.start(line.order))
        else:
            line.end(error)

    def _beat(self) -> None:
        """Show workers that others use, too, that this program lives."""
        if self._backend.pool is None or time.monotonic() - self._beat_at < BEAT_S / 2:
            return
        self._beat_at = time.monotonic()
        for line in self._lines:
            if line.is_started and line.actor is not None:
                line.actor.beat()

    def _look(self) -> None:
        """Look at workers that are at a batch for long, or may meet one at which a worker died."""
        now = time.monotonic()
        is_time, limit = now - self._look_at >= _LOOK_S, 0.0 if self._suspects else _LONG_S
        if is_time:
            self._look_at = now
        for line in self._lines if is_time else ():
            if line.is_started and not line.is_ended and line.clock.is_due(time.monotonic_ns()):
                line.sound()
        for line in self._lines:
            is_due = line.is_started and not line.is_ended and line.busy_s >= limit
            if is_due and line.watch is None and line.place.node:
                self._watches = self._watches or self._cluster.watches(self._wake)
                line.have_watched(self._watches)
            elif is_due and is_time and line.watch is not None:
                line.see(line.watch.look())

    def _send(self) -> None:
        """Send what may be sent, line after line."""
        nbytes, can_lend = self._in_flight_nbytes(), True
        for line in self._lines:
            if line.is_started and not self._may_send(line):
                continue
            while self._has_room(nbytes):
                maker = line if line.is_started else self._lender() if can_lend else None
                can_lend = maker is not None or line.is_started
                before = line.in_flight_nbytes
                if maker is None or not line.send(maker):
                    break
                nbytes += line.in_flight_nbytes - before

        is_bound = not self._has_room(nbytes)
        self._bounded = [line for line in self._lines if line.is_held_back] if is_bound else []

    def _count_bounded(self) -> None:
        now_ns = time.monotonic_ns()
        for line in self._bounded:
            if not line.is_ended:
                line.count_bounded(now_ns - self._bounded_ns)
        self._bounded_ns = now_ns

    def _may_send(self, line: Line) -> bool:
        """Whether a worker is looked at, where it may die at what it is sent."""
        is_watched = line.watch is not None and line.watch.is_settled
        return is_watched or not self._suspects or not line.place.node

    def _lender(self) -> Line | None:
        """Return the line whose actor does the tasks of one that waits for room for its own."""
        if self._job.has_parts or (self._job.takes_turns and not self._is_short):
            return None
        return lender(line for line in self._lines if line.is_started and self._may_send(line))

    def _in_flight_nbytes(self) -> int:
        return sum(line.in_flight_nbytes for line in self._lines)

    def _has_room(self, nbytes: int) -> bool:
        """Whether more batches may be made: they lie in the cluster's store until they land."""
        return nbytes == 0 or nbytes < self._cluster.max_in_flight_bytes

    def _count_room(self) -> None:
        """See how many workers there is room for, and tell the trainer what is new."""
        more = None if self._room is None else self._room.more
        started = [line for line in self._lines if line.is_started]
        waiting = len(self._lines) - len(started)
        is_late = time.monotonic() - self._begun >= self._backend.start_timeout
        self._is_short = waiting > 0 and is_late and more == 0
        if self._is_short and not self._is_warned:
            self._is_warned = True
            self._warn(waiting)
        if more is not None:
            room = HasRoom(len(started) + more + (0 if self._is_short else waiting))
            if room != self._told_room and self._tell(room):
                self._told_room = room
        for line in started:
            line.is_told = line.is_told or self._tell(line.started)

    def _count_in_flight(self) -> None:
        """Tell the trainer how many tasks keep the workers busy, where that is new."""
        paced, now_ns = [line for line in self._lines if line.order.is_paced], time.monotonic_ns()
        if not paced or now_ns < self._tell_ns:
            return
        most_nbytes = self._cluster.max_in_flight_bytes // len(paced)
        found = InFlight(sum(line.wanted(most_nbytes) for line in paced))
        if found != self._told_in_flight and self._tell(found):
            self._told_in_flight, self._tell_ns = found, now_ns + _TELL_NS

    def _warn(self, waiting: int) -> None:
        free = [
            {name: each for name, each in node.items() if ":" not in name}
            for node in self._cluster.free()
        ]
        _log.warning(
            "%d of %d remote workers wait for room in the cluster: each takes %s, and its nodes"
            " have free: %s. The loader goes on with those there are",
            waiting,
            len(self._lines),
            self._backend.resources,
            free,
        )


def _told(control: socket.socket, message: Any) -> bool:
    """Send the trainer a message, without waiting; False: it has too many to read."""
    try:
        control.send(pickle.dumps(message), socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:  # it is gone
        return True
    return True


def _show_program() -> None:
    """Have Ray give workers the folder of the program, for modules beside it.

    Ray leaves it out where the main module has no file; this process did not import the trainer's.
    """
    if sys.argv and Path(sys.argv[0]).is_file():
        sys.modules["__main__"].__file__ = sys.argv[0]


def _check_resources(nodes: list[dict[str, Any]], wanted: dict[str, float]) -> None:
    """Refuse what no node of the cluster has."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    if any(all(has.get(name, 0) >= each for name, each in wanted.items()) for has in alive):
        return
    names = sorted(wanted)
    there = [{name: has.get(name, 0) for name in names} for has in alive]
    raise ReaderError(
        f"no node of the cluster has resources={wanted}, which each worker takes: its"
        f" {len(alive)} nodes have {there}. Lower resources, or add such a node"
    )
