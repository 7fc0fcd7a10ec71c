# Types of reader._core.collate.share; the contract of each field is in share.pxd. Holds no code.

from typing import Any, final

from reader._core.memory.heap import Heap

@final
class Sharing:
    def __init__(self, heap: Heap, source: Any, watch: Any, is_strict: bool) -> None: ...
    @property
    def is_on(self) -> bool: ...
