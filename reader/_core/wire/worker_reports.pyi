# Types of reader._core.wire.worker_reports, which says what each field means. Holds no code.

from typing import NamedTuple

class LostTasks(NamedTuple):
    seqs: list[int]
    current_seq: int | None
    said_hello: bool
    is_used_up: bool

class Damage(NamedTuple):
    worker: int | None
    check: str
    seen: str

class WorkerProgress(NamedTuple):
    pid: int
    seq: int | None
    row: int
    seconds: float
    is_ready: bool = True

class WorkerCounts(NamedTuple):
    batches: int
    busy_s: float
    computed_s: float
    runnable_s: float
    stored_s: float
    bounded_s: float
    clock_error_s: float
