# Types of reader._core.memory.heap; the contract of each field is in heap.pxd. Holds no code.

from collections.abc import Callable

from reader._core.memory.arena import Arena

class Heap:
    def __init__(
        self,
        arena: Arena,
        index: int,
        keep_slots: int = 4,
        available_bytes: Callable[[], int] | None = None,
    ) -> None: ...
