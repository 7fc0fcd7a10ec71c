# Types of reader._core.side_table, which is built from cython_ext/reader/_core/side_table.pyx; the
# contract of each field is in side_table.pxd. Holds no code.

from typing import Any, final

@final
class SideTable:
    def put(self, run: int | None, value: Any) -> int: ...
    def take(self, token: int) -> Any: ...
    def purge(self, run: int) -> None: ...
