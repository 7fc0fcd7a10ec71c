"""The process that brings the batches of remote workers into the trainer's arena.

Imports the lines to workers, and Ray where it runs. It is a process beside the trainer, whose
interpreter Ray's client then does not slow: it takes tasks off the rings as a worker does, sends
them to actors, and lands their answers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from reader._core.wire.wake_words import WakeWords
from reader.cluster.actors import Actor, OwnActor, PoolActor
from reader.cluster.line import Line, NotStarted, Start, lender
from reader.cluster.pool_worker import BEAT_S
from reader.cluster.ray_backend import Ray
from reader.cluster.watches import Watches
from reader.errors import ReaderError
from reader.processes.process import InheritedFd, read_file
from reader.processes.shared_process import Stop, received

__all__ = ["Kill", "LanderJob"]

_log = logging.getLogger("reader")
_CONNECT_S = 3.0
_LOOK_S = 1.0  # between two looks at what takes long
_LONG_S = 2.0  # a batch
_LEAVE_S = 2.0  # for workers that others use to hear that this program leaves


@dataclasses.dataclass(frozen=True)
class Kill:
    """End a remote worker at once."""

    worker: int


@dataclasses.dataclass(frozen=True)
class LanderJob:
    """Brings the batches of all remote workers of a pool.

    `control`: messages of the trainer; `words`: see WakeWords; `config`: a memory file with the
    pickled config; `may_move`: any worker may make any batch; `makes_stale`: see TaskRelay.
    """

    control: InheritedFd
    words: InheritedFd
    config: InheritedFd
    backend: Ray
    may_move: bool
    makes_stale: bool

    def work(self, worker_id: int) -> None:
        """Land batches until it is told to stop."""
        words = WakeWords(self.words.fd, 1)
        threading.Thread(
            target=_wake_often, args=(words, worker_id), daemon=True, name="reader-beat"
        ).start()
        cluster = _Cluster(self.backend, bytes(read_file(self.config.fd)))
        lander = _Lander(
            cluster,
            self.backend,
            self.may_move,
            self.makes_stale,
            lambda _: words.wake(worker_id),
        )
        with socket.socket(fileno=self.control.fd) as control:
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
    """

    def __init__(self, backend: Ray, config: bytes) -> None:
        self.error: BaseException | None = None
        self._ray: Any = None
        self._backend = backend
        self._user = uuid.uuid4().hex
        try:
            self._connect(backend, config)
        except BaseException as error:  # told at each worker
            self.error = error

    def _connect(self, backend: Ray, config: bytes) -> None:
        import ray

        self._ray = ray
        _check_address(backend.address)
        options: dict[str, Any] = {"address": backend.address, "runtime_env": backend.runtime_env}
        if backend.address is None and backend.pool is None:
            options["include_dashboard"] = False
        elif backend.address is None:
            options["address"] = "auto"
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **options)
        except ConnectionError as error:
            if backend.pool is None:
                raise
            raise ReaderError(
                f"pool={backend.pool!r} is shared by programs, and no cluster runs that outlives"
                " each of them: pass address=, or start one (ray start --head)"
            ) from error
        _check_resources(ray.nodes(), backend.resources)
        self._config = ray.put(config)

    def start(self, order: Start) -> Actor:
        """Return the actor of a worker, which starts, or works for others already."""
        found = self._ray, self._backend, self._config, order.worker, order.in_flight
        return OwnActor(*found) if self._backend.pool is None else PoolActor(*found, self._user)

    def watches(self, wake: Callable[[Any], None]) -> Watches:
        """Return what looks at workers on their nodes."""
        return Watches(self._ray, wake)

    def free(self) -> dict[str, float]:
        """Return what is free in the cluster."""
        found: dict[str, float] = self._ray.available_resources()
        return found

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
    """Sends the tasks of all lines, and lands what comes back."""

    def __init__(
        self,
        cluster: _Cluster,
        backend: Ray,
        may_move: bool,
        makes_stale: bool,
        wake: Callable[[Any], None],
    ) -> None:
        self._cluster = cluster
        self._backend = backend
        self._may_move = may_move
        self._makes_stale = makes_stale
        self._schemas: dict[tuple[str, int], bytes] = {}
        self._suspects: set[tuple[int, int]] = set()
        self._watches: Watches | None = None
        self._look_at = 0.0
        self._leaving: list[Any] = []
        self._beat_at = 0.0
        self._wake = wake
        self._lines: list[Line] = []
        self._begun = time.monotonic()
        self._is_told = False  # that there is no room

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
        is_shared = self._backend.pool is not None
        line = Line(
            order, fds, self._makes_stale, is_shared, self._schemas, self._suspects, self._wake
        )
        if self._cluster.error is not None:
            error = self._cluster.error
            kind = "" if isinstance(error, ReaderError) else f"{type(error).__name__}: "
            line.fail(ReaderError(f"workers on Ray cannot be started: {kind}{error}"))
            return
        line.start(self._cluster.start(order))
        self._lines.append(line)
        self._begun, self._is_told = time.monotonic(), False

    def kill(self, worker: int) -> None:
        """End the actor of a worker."""
        for line in self._lines:
            if line.worker == worker and line.actor is not None:
                line.actor.kill()

    def close(self) -> None:
        """Leave the workers, and the cluster."""
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
        self._beat()
        self._look()
        self._lines = [line for line in self._lines if not line.is_ended]
        self._send()
        self._tell_room()

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
        for line in self._lines:
            is_due = line.is_started and not line.is_ended and line.busy_s >= limit
            if is_due and line.watch is None and line.place.node:
                self._watches = self._watches or self._cluster.watches(self._wake)
                line.watch = self._watches.watch(line.worker, line.place)
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

    def _may_send(self, line: Line) -> bool:
        """Whether a worker is looked at, where it may die at what it is sent."""
        is_watched = line.watch is not None and line.watch.is_settled
        return is_watched or not self._suspects or not line.place.node

    def _lender(self) -> Line | None:
        """Return the line whose actor does the tasks of one that waits for room for its own."""
        ready = (line for line in self._lines if line.is_started and self._may_send(line))
        return lender(ready) if self._may_move else None

    def _in_flight_nbytes(self) -> int:
        return sum(line.in_flight_nbytes for line in self._lines)

    def _has_room(self, nbytes: int) -> bool:
        """Whether more batches may be made: they lie in the cluster's store until they land."""
        return nbytes == 0 or nbytes < self._backend.max_in_flight_bytes

    def _tell_room(self) -> None:
        """Say once that workers wait for room in the cluster."""
        if self._is_told or time.monotonic() - self._begun < self._backend.start_timeout:
            return
        self._is_told = True
        waiting = [line.worker for line in self._lines if not line.is_started]
        if waiting:
            _log.warning(
                "%d of %d remote workers wait for room in the cluster: each takes %s, and %s is"
                " free. The loader goes on with those there are",
                len(waiting),
                len(self._lines),
                self._backend.resources,
                {name: each for name, each in self._cluster.free().items() if ":" not in name},
            )


def _check_address(address: str | None) -> None:
    """Refuse an address at which nothing answers, in seconds: Ray tries for a minute."""
    if address is None or address in ("auto", "local"):
        return
    found = re.fullmatch(r"(?P<host>[^:/]+|\[[^]]+\]):(?P<port>\d+)", address)
    if found is None:
        raise ReaderError(
            f'address={address!r} is no address of a cluster: pass "host:6379", that of its head,'
            ' or "auto". Clients of ray:// cannot land batches: run this program on a node'
        )
    try:
        place = found["host"].strip("[]"), int(found["port"])
        socket.create_connection(place, timeout=_CONNECT_S).close()
    except OSError as error:
        raise ReaderError(
            f"nothing answers at address={address!r}: {error}. Is the cluster up (ray status), and"
            " is that the port of its head?"
        ) from error


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
