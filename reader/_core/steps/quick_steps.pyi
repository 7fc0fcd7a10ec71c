# Types of reader._core.steps.quick_steps. Holds no code.

from collections.abc import Callable
from typing import Any

from reader._core.steps.handover import Handover
from reader._core.steps.window import Window

class QuickSteps(Handover):
    is_quick: bool
    looks_for_end: bool
    window: Window
    convert: Callable[[Any], Any]
    settle: Callable[[], None]
    def give_way(self) -> None: ...
    def wait_for_item(self) -> Any: ...
    def leave_with_program(self) -> None: ...
