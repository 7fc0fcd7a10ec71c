"""An array of NumPy whose numbers lie in shared memory.

Imports the file in memory. A SharedArray refers to its memory; so do arrays that are views of it.
"""

from __future__ import annotations

from multiprocessing import reduction
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.sharing.memory_file import MemoryFile, part_of

__all__ = ["SharedArray", "share_array"]


class SharedArray(np.ndarray[Any, Any]):
    """An array that cannot be written to; made by `reader.share`.

    Only the whole array is passed to another process by reference. Results of computations and
    slices are plain arrays.
    """

    _memory: MemoryFile | None = None

    def __array_finalize__(self, made_of: Any) -> None:
        """Do not copy the memory attribute: this may be a part of the array."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Return a function's result as a plain array."""
        plain = np.asarray(array).view(np.ndarray)
        return plain[()] if return_scalar or plain.ndim == 0 else plain

    def __getitem__(self, key: Any) -> Any:
        return self.view(np.ndarray)[key]

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        return self.view(np.ndarray).__deepcopy__(memo)


def share_array(array: npt.NDArray[Any]) -> SharedArray:
    """Return a shared copy of an array that holds no objects of Python."""
    memory = MemoryFile.made_of([part_of(array)])
    return _array_in(memory, array.dtype, array.shape)


def _array_in(memory: MemoryFile, dtype: np.dtype[Any], shape: tuple[int, ...]) -> SharedArray:
    found: SharedArray = np.ndarray(shape, dtype, memory.parts[0]).view(SharedArray)
    found._memory = memory
    return found


def _sent(array: SharedArray) -> Any:
    if array._memory is None:
        return array.__reduce_ex__(5)
    return _array_in, (array._memory, array.dtype, array.shape)


# another process gets its memory, plain pickle a plain array
reduction.ForkingPickler.register(SharedArray, _sent)
