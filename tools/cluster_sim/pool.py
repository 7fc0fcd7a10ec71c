"""The pool of a simulated trainer, as the engine sees it: a Backend, and its TaskFeeder.

Imports the engine's protocols and the lander. A pool belongs to one trainer; the engine makes it,
by the table of backends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, ClassVar

from reader._core.wire.channel import TaskKind, decode_task
from reader._core.wire.failure import Failure, FailureKind
from reader._core.wire.local_channel import UserBatch
from reader._core.wire.times_log import TimesLog
from reader._core.wire.worker_reports import LostTasks, WorkerProgress
from reader.engine.backends.backend import Backend, Death, TaskFeeder, Watch, WorkerStatus
from reader.worker.loop import WorkerConfig, WorkerError
from tools.cluster_sim.clock import Program
from tools.cluster_sim.cluster import Cluster, Node
from tools.cluster_sim.lander import Lander

__all__ = ["SimulatedFeeder", "SimulatedPool"]

_NO_BATCH = (TaskKind.TASK_EPOCH, TaskKind.TASK_ENTER, TaskKind.TASK_TRIM)


class SimulatedFeeder:
    """Sends tasks to the lander, and orders its answers; see TaskFeeder.

    Args:
        workers: how many.
        limit: the most tasks that one may have.
        program: of the trainer, which waits here.

    Attributes:
        nbytes, most_nbytes: of batches that have landed and were not handed over.
        resent: tasks that were sent again.
    """

    def __init__(self, workers: int, limit: int, program: Program, nbytes: int) -> None:
        self.times = TimesLog()
        self.accepted = self.sent = self.sends = self.resent = 0
        self.lander: Lander | None = None
        self.nbytes = self.most_nbytes = 0
        self._batch_nbytes = nbytes
        self._limit, self._program = limit, program
        self._flights: list[dict[int, int]] = [{} for _ in range(workers)]  # seq -> run
        self._is_alive = [True] * workers
        self._ended: list[int] = []
        self._loads = [(0, worker_id) for worker_id in range(workers)]  # a heap; some are outdated
        self._ready: dict[int, Any] = {}
        self._current: Any = None
        self._run, self._in_order, self._has_notice, self._is_starving = 0, True, False, False

    # -- tasks -----------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """See TaskFeeder."""
        return len(self._ready)

    def begin_run(
        self,
        epoch: int,  # noqa: ARG002
        next_seq: int = 0,
        in_order: bool = True,
        times: TimesLog | None = None,
    ) -> None:
        """See TaskFeeder."""
        self.times = self.times if times is None else times
        self._run += 1
        self._ready.clear()
        self._current, self.nbytes = None, 0
        self.accepted = self.sent = next_seq
        self._in_order = in_order

    def dispatch(self, seq: int, kind: int, payload: Any, worker_id: int = -1) -> bool:
        """See TaskFeeder."""
        if kind in _NO_BATCH:
            return worker_id < 0 or self._is_alive[worker_id]
        chosen = self._least_busy() if worker_id < 0 else worker_id
        if chosen < 0 or not self._is_alive[chosen] or len(self._flights[chosen]) >= self._limit:
            self._is_starving = True
            return False
        self._flights[chosen][seq] = self._run
        self._note_load(chosen)
        self.resent += seq < self.sent
        self.sent = max(self.sent, seq + 1)
        self.sends += 1
        if self.lander is not None:
            self.lander.send(chosen, (seq, self._run, decode_task(kind, payload)))
        return True

    def _note_load(self, worker_id: int) -> None:
        heapq.heappush(self._loads, (len(self._flights[worker_id]), worker_id))

    def _least_busy(self) -> int:
        """Return the worker with the fewest tasks, the lowest number first; -1: all are full."""
        while self._loads:
            load, worker_id = self._loads[0]
            if self._is_alive[worker_id] and load == len(self._flights[worker_id]):
                return worker_id if load < self._limit else -1
            heapq.heappop(self._loads)
        return -1

    def landed(self, worker_id: int, tasks: list[Any]) -> None:
        """Batches lie in the trainer's memory."""
        for seq, run, keys in tasks:
            self._flights[worker_id].pop(seq, None)
            if run == self._run and seq >= self.accepted and seq not in self._ready:
                self._ready[seq] = UserBatch(seq, keys)
                self.nbytes += self._batch_nbytes
                self.most_nbytes = max(self.most_nbytes, self.nbytes)
        self._note_load(worker_id)
        if self._is_starving:
            self._is_starving, self._has_notice = False, True
        self._program.wake()

    # -- answers ---------------------------------------------------------------------------------

    def take(self, timeout: float | None = None) -> Any:
        """See TaskFeeder."""
        while True:
            if self._current is None and self._ready:
                seq = self.accepted if self._in_order else next(iter(self._ready))
                self._current = self._ready.pop(seq, None)
            if self._current is not None:
                return self._current
            if self._has_notice or self._ended:
                self._has_notice = False
                return None
            if timeout == 0 or not self._program.wait(timeout):
                return False

    def accept(self) -> None:
        """See TaskFeeder."""
        if type(self._current) is UserBatch:
            self.nbytes -= self._batch_nbytes
        self._current = None
        self.accepted += 1

    def drop_task(self, seq: int, worker_id: int, is_end: bool = False) -> None:
        """See TaskFeeder."""
        kind = FailureKind.END if is_end else FailureKind.LOST
        self._ready[seq] = Failure(kind, seq, 0, worker_id)

    @property
    def paused_s(self) -> float:
        """See TaskFeeder: a simulated trainer is never stopped."""
        return 0.0

    def clock_s(self) -> float:
        """See TaskFeeder: the virtual clock."""
        return self._program.clock.now

    def watch_pauses(self, tick_s: float) -> None:
        """See TaskFeeder."""

    # -- workers ---------------------------------------------------------------------------------

    def died(self, worker_id: int) -> None:
        """Note that a worker has ended."""
        self._is_alive[worker_id] = False
        self._ended.append(worker_id)
        self._program.wake()

    def revived(self, worker_id: int) -> None:
        """Note that another worker has taken its place."""
        self._is_alive[worker_id] = True
        self._note_load(worker_id)

    def ended_workers(self) -> list[int]:
        """See TaskFeeder."""
        return sorted(self._ended)

    def failed_worker(self) -> Failure | None:
        """Return None: each worker can start."""
        return None

    def detach(self, worker_id: int) -> LostTasks:
        """See TaskFeeder."""
        self._ended.remove(worker_id)
        lost = [seq for seq, run in self._flights[worker_id].items() if run == self._run]
        self._flights[worker_id].clear()
        return LostTasks(lost, min(lost, default=None), True, False)

    @property
    def has_initial_states(self) -> bool:
        """Return True: nobody is asked."""
        return True

    def initial_state(self, worker_id: int) -> Any:  # noqa: ARG002
        """Return None: nobody is asked."""
        return None

    def worker_progress(self, worker_id: int) -> WorkerProgress:  # noqa: ARG002
        """Return that nothing is known of it."""
        return WorkerProgress(0, None, -1, 0.0)

    def is_busy(self) -> bool:
        """See TaskFeeder."""
        return any(self._flights)

    def trim(self) -> None:
        """Do nothing: there is no memory."""

    def notify(self) -> None:
        """Let `take` return None."""
        self._has_notice = True


class SimulatedPool:
    """See Backend. A subclass for each simulation has what `here` returns.

    Args:
        config, window, max_bytes, start_method, active: see Backend.
    """

    works_ahead: ClassVar[bool] = True
    takes_keys: ClassVar[bool] = False
    here: ClassVar[Callable[[], tuple[Program, Cluster, Node, list[int]]]]
    rng_lock = None
    arena = None

    def __init__(
        self,
        config: WorkerConfig,
        window: int,
        max_bytes: int | None = None,  # noqa: ARG002
        active: int | None = None,  # noqa: ARG002
    ) -> None:
        program, cluster, node, numbers = type(self).here()
        self.window, self.num_workers = window, config.num_workers
        self.started = self.num_workers
        limit = 2 * -(-window // self.num_workers) + 2
        self.feeder = SimulatedFeeder(self.num_workers, limit, program, cluster.setting.nbytes)
        self.lander = Lander(cluster, node, numbers, self.feeder.landed, self.feeder.died)
        self.feeder.lander = self.lander
        self.is_open = True
        for line in self.lander.lines:
            line.open()

    @property
    def is_usable(self) -> bool:
        """See Backend."""
        return self.is_open

    def open_epoch(self, send_starts: Callable[[], bool], progress: Any) -> None:
        """Do nothing: workers begin an epoch with its first task."""

    def replace_ended(self) -> list[Death]:
        """See Backend."""
        deaths = []
        for worker_id in self.feeder.ended_workers():
            lost = self.feeder.detach(worker_id)
            deaths.append(Death(worker_id, 0, None, *lost, cause="it was killed"))
            self.feeder.revived(worker_id)
            self.lander.lines[worker_id].open()
        return deaths

    def name_of(self, worker_id: int) -> str:
        """Name a worker in a message."""
        return f"worker {worker_id}"

    def open_error(self, payload: Any) -> WorkerError:
        """Return the exception in the place of a batch."""
        found: WorkerError = payload
        return found

    def kill_worker(self, worker_id: int) -> bool:  # noqa: ARG002
        """Return False: none hangs."""
        return False

    def cancel_epoch(self) -> None:
        """See Backend."""
        self.feeder.begin_run(0)

    def close_soon(self, grace_s: float | None = None) -> None:  # noqa: ARG002
        """End the workers."""
        if self.is_open:
            self.is_open = False
            for line in self.lander.lines:
                line.end()

    def close(self, grace_s: float | None = None) -> None:
        """As `close_soon`."""
        self.close_soon(grace_s)

    @property
    def handles(self) -> list[Any]:
        """Return nothing: these are no processes."""
        return []

    def add_watch(self, watch: Watch) -> Callable[[], list[Watch]]:  # noqa: ARG002
        """Find none: no other loader has these workers."""
        return list

    def statuses(self) -> list[WorkerStatus]:
        """Return nothing: nobody hangs."""
        return []


# What the engine asks of both is checked with the types: no test of each day runs them.
_CHECKED: tuple[type[TaskFeeder], type[Backend]] = (SimulatedFeeder, SimulatedPool)
