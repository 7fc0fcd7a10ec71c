# Types of reader._core.batch.side_table; the contract of each field is in side_table.pxd. Holds
# no code.

from typing import Any, final

@final
class SideTable:
    def put(self, run: int | None, value: Any) -> int: ...
    def take(self, token: int) -> Any: ...
    def drop_stale(self, run: int) -> None: ...
