# Types of reader._core.steps.inline_steps. Holds no code.

from collections.abc import Callable, Iterator
from typing import Any

from reader._core.steps.handover import Handover, Task, WaitStats

class InlineSteps(Handover):
    is_usual: bool
    slow_s: float
    convert: Callable[[Any], Any]
    @property
    def keys(self) -> list[Any]: ...
    @property
    def torn(self) -> list[bool]: ...
    @property
    def task(self) -> Task | None: ...
    @property
    def error(self) -> BaseException | None: ...
    @property
    def is_first(self) -> bool: ...
    @property
    def is_drained(self) -> bool: ...
    @property
    def is_slow(self) -> bool: ...
    @property
    def batches(self) -> Iterator[Any]: ...
    def __init__(
        self,
        feeder: Any,
        batches: Iterator[Any],
        sized: Any,
        takes_any: bool,
        convert: Callable[[Any], Any],
        cursor: Any,
        stats: WaitStats,
    ) -> None: ...
    def note_first(self) -> None: ...
    def leave_with_program(self) -> None: ...
