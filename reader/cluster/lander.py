"""The lander: the process that brings batches of remote workers into the trainer's arena.

Imports the lines to workers, and Ray in the lander's process. That process runs beside the trainer,
so that Ray's client does not slow the trainer's interpreter. It takes tasks off the rings as a
worker does, sends them to actors, and lands their answers.
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
from reader.cluster.free_resources import FreeResources
from reader.cluster.line import Capacity, InFlight, LaunchRequest, Line, NotStarted, lender
from reader.cluster.node_clock import NodeClock
from reader.cluster.node_files import give_files
from reader.cluster.pool_worker import BEAT_S, PoolWorker
from reader.cluster.ray_backend import Ray
from reader.cluster.remote_worker import RemoteWorker
from reader.cluster.sent_config import put_config
from reader.cluster.watches import Watches
from reader.cluster.worker_calls import WorkerCall, WorkerCalls
from reader.errors import ReaderError
from reader.log import log as _log
from reader.processes.process import InheritedFd, read_file
from reader.processes.shared_process import Stop, received

__all__ = ["Kill", "LanderJob"]

_LOOK_S = 1.0  # interval of checks for slow batches
_LONG_S = 2.0  # a batch is slow after that
_TELL_NS = 20_000_000  # between two messages of the wanted number of tasks
_LEAVE_S = 2.0  # for shared workers to hear that this program leaves


@dataclasses.dataclass(frozen=True)
class Kill:
    """Kill a remote worker."""

    worker_id: int


@dataclasses.dataclass(frozen=True)
class LanderJob:
    """Brings the batches of all remote workers of a pool.

    `control`: messages of the trainer; `words`: see WakeWords; `config`: a memory file with the
    pickle of a RemoteConfig, with its `files` and `sizes`; `has_parts`: whether each worker has its
    part of a stream; `takes_turns`: whether worker n modulo their number makes batch n;
    `makes_stale`: see TaskRelay.
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
        """Land batches until a message says stop."""
        words = WakeWords(self.words.fd, 1)
        threading.Thread(
            target=_wake_often, args=(words, worker_id), daemon=True, name="reader-beat"
        ).start()
        cluster = _Cluster(self.backend, self)
        with socket.socket(fileno=self.control.fd) as control:
            tell = functools.partial(_try_send, control)
            lander = _Lander(cluster, self, lambda: words.wake(worker_id), tell)
            while True:
                if words.take(worker_id):
                    for order, fds in received(control):
                        if isinstance(order, Stop):
                            lander.close()
                            return
                        if isinstance(order, Kill):
                            lander.kill(order.worker_id)
                        elif isinstance(order, WorkerCall):
                            lander.request(order, bytes(read_file(*fds)))
                        else:
                            lander.open(order, fds)
                lander.step()
                words.wait(worker_id, lander.channels, is_idle=False)


def _wake_often(words: WakeWords, worker_id: int) -> None:
    pause = threading.Event()
    while not pause.wait(_LOOK_S):
        words.wake(worker_id)


class _Cluster:
    """The connection to the cluster, and the config of its workers.

    Attributes:
        error: why the connection failed; None: it did not.
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
        except BaseException as error:  # reported for each worker
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
        self._sent = put_config(data, files, job.sizes)  # this process owns its objects
        if files:
            give_files(self._sent.name, files)  # workers on this machine make no copy
        self._config = ray.put(self._sent)
        # made once: Ray sends each actor class to the cluster
        if backend.pool is None:
            self._kind = ray.remote(RemoteWorker).options(**backend.actor_options())
        else:
            self._kind = ray.remote(PoolWorker)

    def start(self, order: LaunchRequest) -> Actor:
        """Return the actor of a worker; it is starting, or works for other programs already."""
        found = self._ray, self._kind, self._config, order.worker_id, order.in_flight
        if self._backend.pool is None:
            return OwnActor(*found)
        return PoolActor(*found, self._backend, self._user)

    def put(self, value: Any) -> Any:
        """Put a value into the cluster's store; returns its reference."""
        return self._ray.put(value)

    def watches(self, wake: Callable[[], None]) -> Watches:
        """Return the watches of workers on their nodes."""
        return Watches(self._ray, wake)

    def free(self) -> list[dict[str, float]]:
        """Return the free resources of each node, or of the whole cluster if Ray tells no more."""
        ask = getattr(self._ray._private.state, "available_resources_per_node", None)
        return [self._ray.available_resources()] if ask is None else list(ask().values())

    def close(self, leaving: list[Any]) -> None:
        """Leave the cluster; own actors end, and so does a cluster that was started for them.

        `leaving`: references to calls to wait for.
        """
        if leaving:
            with contextlib.suppress(Exception):
                self._ray.wait(leaving, num_returns=len(leaving), timeout=_LEAVE_S)
        if self._ray is not None:
            with contextlib.suppress(Exception):
                self._ray.shutdown()


class _Lander:
    """Sends the tasks of all lines, and lands their answers.

    Args:
        cluster: the cluster of the workers.
        job: describes the workers.
        wake: ends the wait for the next step; other threads call it.
        tell: sends the trainer a message; False: the trainer does not read.
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
        self._bounded: list[Line] = []  # lines held back by the limit on bytes since the last step
        self._bounded_ns = 0
        self._wake = wake
        self._tell = tell
        self._lines: list[Line] = []
        self._calls = WorkerCalls(cluster.put, tell, wake)
        self._begun = time.monotonic()
        self._is_warned = False  # of a full cluster
        self._is_short = False  # workers have waited for space for long
        self._told_capacity = Capacity(-1)
        self._told_in_flight = InFlight(0)
        self._tell_ns = 0
        self._free: FreeResources | None = None
        if cluster.error is None:
            self._free = FreeResources(cluster.free, self._backend.resources, wake)

    @property
    def channels(self) -> list[Any]:
        """The channels that tasks can be taken from now."""
        if not self._has_space(self._in_flight_nbytes()):
            return []
        lines, can_lend = self._lines, self._lender() is not None
        return [
            line.channel
            for line in lines
            if not line.is_full and (self._may_send(line) if line.is_started else can_lend)
        ]

    def open(self, order: LaunchRequest, fds: list[int]) -> None:
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

    def request(self, order: WorkerCall, call: bytes) -> None:
        """Pass on what workers are to do beside batches."""
        if self._cluster.error is None:
            self._calls.take(order, call, self._lines)

    def kill(self, worker_id: int) -> None:
        """Kill the actor of a worker."""
        for line in self._lines:
            if line.worker == worker_id and line.actor is not None:
                line.actor.kill()

    def close(self) -> None:
        """Leave the workers, and the cluster."""
        if self._free is not None:
            self._free.close()
        for line in self._lines:
            self._release(line)
        self._cluster.close(self._leaving)

    def _release(self, line: Line) -> None:
        found = None if line.actor is None else line.actor.release()
        if found is not None:
            self._leaving.append(found)

    def step(self) -> None:
        """Land the answers that have come, and send the tasks that may be sent."""
        for line in self._lines:
            if line.channel.is_stopped:
                self._release(line)
                line.close(None)
                continue
            try:
                line.land()
            except NotStarted as error:
                self._ask_again(line, error)
            except Exception as error:  # the actor is gone, alone or with its node
                line.close(error)
        self._count_bounded()
        self._beat()
        self._look()
        self._lines = [line for line in self._lines if not line.is_ended]
        self._count_capacity()
        self._count_in_flight()
        self._calls.step(self._lines)
        self._send()

    def _ask_again(self, line: Line, error: NotStarted) -> None:
        """Ask again for a shared actor that was ending when this program came."""
        is_soon = time.monotonic() - line.begun < self._backend.start_timeout
        if self._backend.pool is not None and is_soon:
            line.start(self._cluster.start(line.order))
        else:
            line.close(error)

    def _beat(self) -> None:
        """Show shared workers that this program is alive."""
        if self._backend.pool is None or time.monotonic() - self._beat_at < BEAT_S / 2:
            return
        self._beat_at = time.monotonic()
        for line in self._lines:
            if line.is_started and line.actor is not None:
                line.actor.beat()

    def _look(self) -> None:
        """Look at workers with a slow batch, or with a task at which a worker may have died."""
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
        """Send the tasks that may be sent, line after line."""
        nbytes, can_lend = self._in_flight_nbytes(), True
        for line in self._lines:
            if line.is_started and not self._may_send(line):
                continue
            while self._has_space(nbytes):
                maker = line if line.is_started else self._lender() if can_lend else None
                can_lend = maker is not None or line.is_started
                before = line.in_flight_nbytes
                if maker is None or not line.send(maker):
                    break
                nbytes += line.in_flight_nbytes - before

        is_bound = not self._has_space(nbytes)
        self._bounded = [line for line in self._lines if line.is_held_back] if is_bound else []

    def _count_bounded(self) -> None:
        now_ns = time.monotonic_ns()
        for line in self._bounded:
            if not line.is_ended:
                line.count_bounded(now_ns - self._bounded_ns)
        self._bounded_ns = now_ns

    def _may_send(self, line: Line) -> bool:
        """Whether tasks may be sent to a worker: it is watched if it may die at one."""
        is_watched = line.watch is not None and line.watch.is_settled
        return is_watched or not self._suspects or not line.place.node

    def _lender(self) -> Line | None:
        """Return a line whose actor can do tasks for lines without an actor yet."""
        if self._job.has_parts or (self._job.takes_turns and not self._is_short):
            return None
        return lender(
            line
            for line in self._lines
            if line.is_started and line.gone is None and self._may_send(line)
        )

    def _in_flight_nbytes(self) -> int:
        return sum(line.in_flight_nbytes for line in self._lines)

    def _has_space(self, nbytes: int) -> bool:
        """Whether more batches may be made: until they land they take memory of the store."""
        return nbytes == 0 or nbytes < self._cluster.max_in_flight_bytes

    def _count_capacity(self) -> None:
        """Count how many workers the cluster has space for, and report changes to the trainer."""
        more = None if self._free is None else self._free.more
        started = [line for line in self._lines if line.is_started]
        waiting = len(self._lines) - len(started)
        is_late = time.monotonic() - self._begun >= self._backend.start_timeout
        self._is_short = waiting > 0 and is_late and more == 0
        if self._is_short and not self._is_warned:
            self._is_warned = True
            self._warn(waiting)
        if more is not None:
            capacity = Capacity(len(started) + more + (0 if self._is_short else waiting))
            if capacity != self._told_capacity and self._tell(capacity):
                self._told_capacity = capacity
        for line in started:
            line.tell_start(self._tell)

    def _count_in_flight(self) -> None:
        """Report to the trainer how many tasks keep the workers busy, if that has changed."""
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


def _try_send(control: socket.socket, message: Any) -> bool:
    """Send the trainer a message without waiting; False: too many are unread."""
    try:
        control.send(pickle.dumps(message), socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:  # the trainer is gone
        return True
    return True


def _show_program() -> None:
    """Let Ray give workers the folder of the program, for modules beside it.

    Ray omits it if the main module has no file; this process did not import the trainer's.
    """
    if sys.argv and Path(sys.argv[0]).is_file():
        sys.modules["__main__"].__file__ = sys.argv[0]


def _check_resources(nodes: list[dict[str, Any]], wanted: dict[str, float]) -> None:
    """Refuse resources that no node of the cluster has."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    if any(all(has.get(name, 0) >= each for name, each in wanted.items()) for has in alive):
        return
    names = sorted(wanted)
    there = [{name: has.get(name, 0) for name in names} for has in alive]
    raise ReaderError(
        f"no node of the cluster has resources={wanted}, which each worker takes: its"
        f" {len(alive)} nodes have {there}. Lower resources, or add such a node"
    )
