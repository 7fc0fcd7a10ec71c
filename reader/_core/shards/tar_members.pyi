# Types of reader._core.shards.tar_members. Holds no code.

from collections.abc import Sequence
from typing import Any

class TarMembers:
    def __init__(
        self, stored: Any, fd: int, arrays: Any, names: list[str | None], key: str | None
    ) -> None: ...
    def samples(self, positions: Sequence[int]) -> list[dict[str, Any]]: ...
    def key(self, position: int) -> str: ...
