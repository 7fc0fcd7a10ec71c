# Types of reader._core.tokens.gather. Holds no code.

from typing import Any

class TokenArrays:
    def __init__(self, arrays: list[Any], firsts: Any, starts: Any, lengths: Any) -> None: ...
    def gather(self, documents: Any, begins: Any, counts: Any, places: Any, out: Any) -> int: ...
