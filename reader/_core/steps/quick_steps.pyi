# Types of reader._core.steps.quick_steps. Holds no code.

from collections.abc import Callable
from typing import Any

from reader._core.steps.handover import Handover, Task, WaitStats
from reader._core.steps.window import Window

class QuickSteps(Handover):
    is_quick: bool
    slow_s: float
    convert: Callable[[Any], Any]
    @property
    def window(self) -> Window: ...
    def __init__(
        self,
        window: Window,
        schedule: Any,
        convert: Callable[[Any], Any],
        cursor: Any,
        stats: WaitStats,
        looks_for_end: bool,
    ) -> None: ...
    def land_plain(self, task: Task, item: Any, step: Callable[[], Any] | None) -> None: ...
    def give_way(self) -> None: ...
    def tell_slow(self) -> None: ...
    def wait_for_item(self) -> Any: ...
    def leave_with_program(self) -> None: ...
