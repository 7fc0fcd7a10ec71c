# Types of reader._core.collate.columns; the contract of each field is in columns.pxd. Holds no
# code.

from collections.abc import Callable, Sequence
from typing import Any, final

@final
class Columns:
    source: Any
    def __init__(
        self,
        source: Any,
        arrays: Callable[[], Sequence[Any]] | None = None,
        indices: Sequence[Sequence[int]] = (),
        fill: Callable[[Any, Any], None] | None = None,
    ) -> None: ...
