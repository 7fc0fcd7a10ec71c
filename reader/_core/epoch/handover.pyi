# Types of reader._core.epoch.handover. Holds no code.

from collections.abc import Callable, Iterator
from typing import Any, final

from reader._core.epoch.tasks import Task
from reader._core.interpreter.signals import Finalized

@final
class WaitStats:
    batches: int
    wait_s: float
    last_wait_s: float
    def __init__(self, batches: int = 0) -> None: ...
    def times(self) -> tuple[float, float]: ...
    def start(self) -> float: ...
    def stop(self, paused_s: float = 0) -> float: ...

@final
class Made:
    value: Any
    task: Task | None
    is_batch: bool
    is_error: bool
    step: Callable[[], Any] | None
    tasks: list[Task] | None
    def __init__(
        self,
        value: Any,
        task: Task | None = None,
        is_batch: bool = False,
        is_error: bool = False,
        step: Callable[[], Any] | None = None,
        tasks: list[Task] | None = None,
    ) -> None: ...

class Handover(Finalized):
    made: Made | None
    stats: WaitStats | None
    source: Handover | None
    is_watched: Callable[[], bool]
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def alone(self, call: Callable[[], Any]) -> None: ...
    def made_by(self, source: Handover) -> Made: ...
    def drop(self) -> None: ...
    def hand_over(self) -> None: ...
    def prepare(self) -> None: ...
