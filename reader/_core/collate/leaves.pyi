# Types of reader._core.collate.leaves; the contract of each field is in leaves.pxd. Holds no
# code.

from collections.abc import Callable
from typing import Any, final

from reader._core.batch.dtype import FieldType

@final
class LeafMaker:
    def __init__(
        self,
        make_leaf: Callable[[FieldType], Callable[[Any], Any] | None],
        keeps_tensors: bool = False,
        is_collated: bool = True,
    ) -> None: ...
    def __call__(self, batch: Any) -> Any: ...
