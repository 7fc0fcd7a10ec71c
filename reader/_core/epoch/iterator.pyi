# Types of reader._core.epoch.iterator. Holds no code.

from collections.abc import Callable
from typing import Any, final

from reader._core.epoch.dispatcher import Dispatcher
from reader._core.epoch.handover import Handover, WaitStats

@final
class EpochIterator(Handover):
    convert: Callable[[Any], Any]
    @property
    def epoch(self) -> Any: ...
    @property
    def dispatcher(self) -> Dispatcher: ...
    def __init__(
        self,
        epoch: Any,
        dispatcher: Dispatcher,
        convert: Callable[[Any], Any],
        stats: WaitStats,
        is_usual: bool,
        begins_next: bool,
        slow_s: float | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def close(self) -> None: ...
    def give_way(self) -> None: ...
