# Types of reader._core.payload, which is built from cython_ext/reader/_core/payload.pyx; the
# contract is in payload.pxd. Holds no code.

from collections.abc import Callable
from typing import Any

def find_culprit(
    value: Any, where: str, dumps: Callable[[Any], Any], depth: int = 0
) -> tuple[Any, Exception | None, str]: ...
