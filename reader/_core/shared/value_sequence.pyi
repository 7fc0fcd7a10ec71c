# Types of reader._core.shared.value_sequence. Holds no code.

from collections.abc import Iterator
from typing import Any

from reader._core.shared.values import Values

class ValueSequence:
    is_tuple: bool
    kind: str
    def __init__(self, values: Values, is_tuple: bool) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: Any) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
