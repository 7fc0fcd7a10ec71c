# Types of reader._core.feeder, which is built from cython_ext/reader/_core/feeder.pyx; which thread
# touches what is in feeder.pxd. Holds no code.

from collections.abc import Callable
from typing import Any, Literal, TypedDict, final

from reader._core.arena import Arena
from reader._core.stack import SideTable
from reader._core.tensor_array import LoDTensorArray

_Kind = Literal["end", "error", "full", "lost", "open", "start"]

class _FeederStats(TypedDict):
    received: int
    reordered: int
    trimmed: int
    queued: int

class Failure:
    kind: _Kind
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
        kind: _Kind,
        seq: int,
        epoch: int,
        worker: int,
        payload: Any = None,
        need_bytes: int = 0,
        have_bytes: int = 0,
        limit_bytes: int = 0,
        knob: str = "max_bytes",
    ) -> None: ...

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
    def is_foreign(self) -> bool: ...
    @property
    def queued(self) -> int: ...
    def start(self) -> None: ...
    def close(self) -> None: ...
    def attach(self, worker: int, pidfd: int = -1) -> None: ...
    def detach(self, worker: int) -> tuple[list[int], int | None, bool, bool]: ...
    def ended_workers(self) -> list[int]: ...
    def failed_worker(self) -> Failure | None: ...
    def worker_progress(self, worker: int) -> tuple[int, int | None, int, float]: ...
    def begin_run(self, epoch: int, next_seq: int = 0) -> None: ...
    def dispatch(self, seq: int, kind: int, payload: bytes, worker: int = -1) -> bool: ...
    def give_up(self, seq: int, worker: int, is_end: bool = False) -> None: ...
    def take(
        self, timeout: float | None = None
    ) -> LoDTensorArray | Failure | Literal[False] | None: ...
    def stats(self) -> _FeederStats: ...
