# Types of reader._core.failure, which is built from cython_ext/reader/_core/failure.pyx. Holds no
# code.

from typing import Any, Literal

_Kind = Literal["end", "error", "full", "lost", "open", "start"]

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
