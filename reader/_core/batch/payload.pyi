# Types of reader._core.batch.payload; the contract is in payload.pxd. Holds no code.

from collections.abc import Callable
from typing import Any

def find_culprit(
    value: Any, where: str, dumps: Callable[[Any], Any], depth: int = 0
) -> tuple[Any, Exception | None, str]: ...
