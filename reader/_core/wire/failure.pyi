# Types of reader._core.wire.failure. Holds no code.

from enum import Enum
from typing import Any

class FailureKind(str, Enum):
    END = "end"
    ERROR = "error"
    FULL = "full"
    LOST = "lost"
    OPEN = "open"
    REFUSED = "refused"
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
    def as_kind(self, kind: FailureKind) -> Failure: ...
