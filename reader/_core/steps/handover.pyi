# Types of reader._core.steps.handover. Holds no code.

from collections.abc import Callable, Iterator
from typing import Any, final

from reader._core.interpreter.signals import Finalized

@final
class Task:
    kind: int
    payload: Any
    worker: int
    mark: Any
    seq: int
    snapshot: Any
    drawn: int | None
    is_error: bool
    is_end: bool
    part: int
    parts: int
    def __init__(
        self, kind: int, payload: Any, worker: int = -1, mark: Any = None, seq: int = -1
    ) -> None: ...

@final
class WaitStats:
    batches: int
    wait_s: float
    last_wait_s: float
    def __init__(self, batches: int = 0) -> None: ...
    def times(self) -> tuple[float, float]: ...
    def begin(self) -> float: ...
    def end(self, paused_s: float = 0) -> float: ...

@final
class Made:
    value: Any
    task: Task | None
    is_batch: bool
    is_error: bool
    step: Callable[[], Any] | None
    parts: list[Made] | None
    number: int
    def __init__(
        self,
        value: Any,
        task: Task | None = None,
        is_batch: bool = False,
        is_error: bool = False,
        step: Callable[[], Any] | None = None,
        parts: list[Made] | None = None,
        number: int = 0,
    ) -> None: ...

class Handover(Finalized):
    made: Made | None
    ahead: list[Made]
    handed: list[Task]
    feeder: Any
    tasks: dict[int, Any]
    stats: WaitStats | None
    source: Handover | None
    is_watched: Callable[[], bool]
    @property
    def is_due(self) -> bool: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def alone(self, call: Callable[[], Any]) -> None: ...
    def made_by(self, source: Handover) -> Made: ...
    def hand_over(self) -> None: ...
    def prepare(self) -> None: ...
    def keep(self, made: Made) -> None: ...
    def skip(self, made: Made) -> None: ...
    def pass_ahead(self) -> None: ...
    def drop(self) -> None: ...
