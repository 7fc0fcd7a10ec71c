# Types of reader._core.collate.stack; the contract of each field is in stack.pxd. Holds no code.

from typing import final

from reader._core.batch.side_table import SideTable
from reader._core.memory.heap import Heap

@final
class BatchWriter:
    def __init__(self, heap: Heap, side: SideTable | None = None) -> None: ...
    @property
    def heap(self) -> Heap: ...
    @property
    def row(self) -> int: ...
