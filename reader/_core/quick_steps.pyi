# Types of reader._core.quick_steps, which is built from cython_ext/reader/_core/quick_steps.pyx.
# Holds no code.

from collections.abc import Callable
from typing import Any

from reader._core.handover import Handover
from reader._core.window import Window

class QuickSteps(Handover):
    is_quick: bool
    looks_for_end: bool
    window: Window
    convert: Callable[[Any], Any]
    settle: Callable[[], None]
    def give_way(self) -> None: ...
    def wait_for_item(self) -> Any: ...
    def leave_with_program(self) -> None: ...
