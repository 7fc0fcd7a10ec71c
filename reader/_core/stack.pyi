# Types of reader._core.stack, which is built from cython_ext/reader/_core/stack.pyx; the contract
# of each field is in stack.pxd. Holds no code.

from typing import final

from reader._core.heap import Heap
from reader._core.side_table import SideTable

@final
class BatchWriter:
    def __init__(self, heap: Heap, side: SideTable | None = None) -> None: ...
    @property
    def heap(self) -> Heap: ...
    @property
    def position(self) -> int: ...
