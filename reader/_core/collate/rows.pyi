# Types of reader._core.collate.rows. Holds no code.

from collections.abc import Iterable
from typing import Any, final

import numpy as np
import numpy.typing as npt

from reader._core.batch.dtype import FieldType

@final
class Rows:
    @staticmethod
    def stacked(samples: Iterable[Any], dtype: Any = None) -> Rows: ...
    @staticmethod
    def padded(
        samples: Iterable[Any],
        axis: int | tuple[int, ...] | None = 0,
        value: Any = 0,
        round_to: int = 1,
        dtype: Any = None,
    ) -> Rows: ...
    @staticmethod
    def joined(
        samples: Iterable[Any],
        size: int | None = None,
        value: Any = 0,
        round_to: int = 1,
        dtype: Any = None,
    ) -> Rows: ...
    @property
    def is_joined(self) -> bool: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> FieldType: ...
    def lengths(self, axis: int | tuple[int, ...] = 0) -> npt.NDArray[np.int64]: ...
    def array(self) -> npt.NDArray[Any]: ...
    def numpy(self) -> npt.NDArray[Any]: ...

def is_numeric(value: Any) -> bool: ...
