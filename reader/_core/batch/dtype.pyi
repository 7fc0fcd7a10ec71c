# Types of reader._core.batch.dtype. Holds no code.

from typing import Any, final

import numpy as np

EXTENDED: dict[str, tuple[int, int]]

@final
class FieldType:
    @property
    def storage(self) -> np.dtype[Any]: ...
    @property
    def name(self) -> str: ...
    @property
    def extended(self) -> bool: ...
    @property
    def itemsize(self) -> int: ...
    def numpy_dtype(self) -> np.dtype[Any]: ...

def field_type(dtype: np.dtype[Any] | str) -> FieldType: ...
