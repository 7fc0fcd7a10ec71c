# Types of reader._core.resample, which is built from cython_ext/reader/_core/resample.pyx. Holds no
# code.

from typing import Any

def resample(image: Any, box: tuple[float, float, float, float], out: Any) -> None: ...
