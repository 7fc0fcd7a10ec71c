# Types of reader._core.pixels.render. Holds no code.

from typing import Any

Span = tuple[float, float, int, int]

class Libjpeg:
    def __init__(self, path: str) -> None: ...
    def render(
        self,
        content: Any,
        size: tuple[int, int],
        factor: int,
        rows: Span,
        columns: Span,
        out: Any,
        table: Any = None,
        flips: tuple[bool, bool] = (False, False),
        channels_first: bool = False,
        is_turned: bool = False,
        reads_all: bool = False,
    ) -> str | None: ...

def jpeg_end(content: Any) -> int: ...
def render(
    image: Any,
    rows: Span,
    columns: Span,
    out: Any,
    table: Any = None,
    flips: tuple[bool, bool] = (False, False),
    channels_first: bool = False,
    is_turned: bool = False,
) -> None: ...
