# Types of reader._core.random.permutation; the contract of each field is in permutation.pxd.
# Holds no code.

from typing import Any, final, overload

import numpy as np
import numpy.typing as npt

@final
class Permutation:
    count: int
    key: int
    def __init__(self, count: int, key: int) -> None: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> npt.NDArray[np.int64]: ...
    def take(self, start: int, stop: int, step: int = 1) -> npt.NDArray[np.int64]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
