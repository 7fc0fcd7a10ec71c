# Types of reader._core.collate.resample. Holds no code.

from typing import Any

def resample(image: Any, box: tuple[float, float, float, float], out: Any) -> None: ...
