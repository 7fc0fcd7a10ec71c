# Types of reader._core.shared.value_mapping. Holds no code.

from collections.abc import Callable
from typing import Any

from reader._core.shared.key_table import KeyTable
from reader._core.shared.values import Values

class ValueMapping:
    def __init__(
        self,
        key_kind: str,
        table: KeyTable,
        values: Values,
        stands_for: Callable[[Any], bytes | None],
    ) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __contains__(self, key: Any) -> bool: ...
    def get(self, key: Any, default: Any = None) -> Any: ...
