# Types of reader._core.shared.key_table. Holds no code.

from typing import Any

def slots_for(count: int) -> int: ...

class KeyTable:
    def __init__(self, slots: Any, content: Any, ends: Any = None, width: int = 0) -> None: ...
    @staticmethod
    def fill(slots: Any, content: Any, ends: Any = None, width: int = 0) -> None: ...
