# Types of reader._core.feeder, which is built from cython_ext/reader/_core/feeder.pyx; which thread
# touches what is in results.pxd. Holds no code.

from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, NamedTuple, TypedDict, final

from reader._core.arena import Arena
from reader._core.side_table import SideTable
from reader._core.tensor_array import LoDTensorArray

class _FeederStats(TypedDict):
    dispatched: int
    received: int
    reordered: int
    trimmed: int
    in_flight: int
    queued: int

class FailureKind(str, Enum):
    END = "end"
    ERROR = "error"
    FULL = "full"
    LOST = "lost"
    OPEN = "open"
    START = "start"

class Failure:
    kind: FailureKind
    seq: int
    epoch: int
    worker: int
    payload: Any
    need_bytes: int
    have_bytes: int
    limit_bytes: int
    knob: str
    def __init__(
        self,
        kind: FailureKind,
        seq: int,
        epoch: int,
        worker: int,
        payload: Any = None,
        need_bytes: int = 0,
        have_bytes: int = 0,
        limit_bytes: int = 0,
        knob: str = "max_bytes",
    ) -> None: ...

class LostTasks(NamedTuple):
    seqs: list[int]
    busy: int | None
    said_hello: bool
    said_end: bool

class Damage(NamedTuple):
    worker: int | None
    check: str

class WorkerProgress(NamedTuple):
    pid: int
    seq: int | None
    row: int
    seconds: float

class WorkerCounts(NamedTuple):
    batches: int
    busy_s: float

@final
class Feeder:
    def __init__(
        self,
        arena: Arena,
        nworkers: int,
        window: int,
        flights_limit: int,
        available_bytes: Callable[[], int] | None = None,
        side: SideTable | None = None,
    ) -> None: ...
    @property
    def arena(self) -> Arena: ...
    @property
    def bell(self) -> int: ...
    def is_busy(self) -> bool: ...
    def notify(self) -> None: ...
    def trim(self) -> None: ...
    def accept(self) -> None: ...
    @property
    def accepted(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def sends(self) -> int: ...
    @property
    def queued(self) -> int: ...
    def start(self) -> None: ...
    def end_thread(self) -> None: ...
    def let_go(self) -> None: ...
    def examine(self, workers: list[int]) -> Damage | None: ...
    def detach_all(self) -> list[LostTasks]: ...
    def renew(self, arena: Arena) -> None: ...
    def close(self) -> None: ...
    def attach(self, worker: int, pidfd: int = -1) -> None: ...
    def detach(self, worker: int) -> LostTasks: ...
    def ended_workers(self) -> list[int]: ...
    def failed_worker(self) -> Failure | None: ...
    @property
    def has_initial_states(self) -> bool: ...
    def initial_state(self, worker: int) -> Any: ...
    def worker_progress(self, worker: int) -> WorkerProgress: ...
    def worker_counts(self, worker: int) -> WorkerCounts: ...
    def begin_run(self, epoch: int, next_seq: int = 0, in_order: bool = True) -> None: ...
    def dispatch(self, seq: int, kind: int, payload: bytes, worker: int = -1) -> bool: ...
    def give_up(self, seq: int, worker: int, is_end: bool = False) -> None: ...
    def take(
        self, timeout: float | None = None
    ) -> LoDTensorArray | Failure | Literal[False] | None: ...
    def stats(self) -> _FeederStats: ...
