"""A variable of a feed_list, and how the user's data becomes the field that is fed to it.

Imports paddle, NumPy, LoDTensor and the errors. A slot is immutable and refers to no program; the
thread or process that runs the user's generator uses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from paddle.base import core
from paddle.base.data_feeder import convert_dtype

from reader._core.batch.tensor import LoDTensor
from reader.errors import CollateError, ConfigError, ConfigTypeError, got
from reader.frameworks.paddle_version import DenseTensor, is_on_cpu

__all__ = ["FeedSlot", "Field", "FieldTypeError", "as_array", "is_tensor"]

# A LoDTensor if there is a LoD; a DenseTensor if the user gave one, or if no other has the element
# type; else an array.
Field = Any
_Array = np.ndarray[Any, Any]

_RAGGED = (
    "\n\tFailed to convert input data to a regular ndarray :\n\t* Usually this means the input data"
    " contains nested lists with different lengths. "
)


class FieldTypeError(CollateError, TypeError):
    """A field that is no regular array; also a TypeError, as Paddle raises."""


@dataclasses.dataclass(frozen=True)
class FeedSlot:
    """One variable of a feed_list: what it requires of a field.

    Attributes:
        name: of the variable.
        shape: as declared; a negative number is a dimension of any size. () is any shape at all.
        dtype: to which the field is converted; uint16 for bfloat16, whose bits it holds.
        is_bfloat16: whether the variable is one of bfloat16.
        lod_level: how many levels of sequences a sample has; 0 in PIR mode, which has no LoD.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_bfloat16: bool = False
    lod_level: int = 0

    @classmethod
    def of_variable(cls, variable: Any) -> FeedSlot:
        """Return the slot of a Variable or Value. ConfigTypeError for what is neither."""
        try:
            name = str(variable.name)
            shape = tuple(int(size) for size in variable.shape)
            kind = str(convert_dtype(variable.dtype))
        except (AttributeError, TypeError, ValueError) as error:
            raise ConfigTypeError(
                "feed_list must hold variables of the program, which have a name, a shape and a"
                f" dtype, and one of its entries is {got(variable)}; pass what paddle.static.data"
                " returned"
            ) from error
        try:
            # paddle has no uint16: that name stands for the bits of a bfloat16
            is_bfloat16 = kind in ("bfloat16", "uint16")
            dtype = np.dtype("uint16" if is_bfloat16 else kind)
        except TypeError as error:
            raise ConfigError(
                f"variable '{name}' of feed_list has dtype {kind}, which NumPy does not have."
                " Declare it with a dtype of NumPy or bfloat16, and cast it in the program"
            ) from error
        lod_level = int(getattr(variable, "lod_level", 0) or 0)
        return cls(name, shape, dtype, is_bfloat16, lod_level)

    def stack(self, values: Sequence[Any]) -> Field:
        """Return the field of a batch from the value of each sample for this variable.

        It shares no memory with them. CollateError if they do not fit together, or the variable.
        """
        if self.lod_level > 0:
            return self._concatenate(values)
        try:
            array = self._convert(values)
        except (ValueError, TypeError, OverflowError) as error:
            raise self._misfit(values, error) from error
        return self._complete(array)

    def _concatenate(self, values: Sequence[Any]) -> Field:
        """Return the sequences of all samples, one after the other, with their lengths as LoD."""
        lengths: list[list[int]] = [[] for _ in range(self.lod_level)]
        rows: list[Any] = []
        try:
            for value in values:
                self._gather(value, lengths, 0, rows)
            whole = [self._convert(items) for items in rows if len(items)]
            array = np.concatenate(whole) if whole else self._no_rows()
        except (ValueError, TypeError, OverflowError) as error:
            raise CollateError(
                f"the samples of variable '{self.name}' (lod_level={self.lod_level}) cannot be"
                f" concatenated: {error}. Each must be a sequence"
                f"{' of sequences' * (self.lod_level - 1)} of items of one shape"
            ) from error
        array = self._fit(array)
        lod = [[0, *np.cumsum(level).tolist()] for level in lengths]
        if self.is_bfloat16:
            dense = _bfloat16_tensor(array)
            dense.set_lod(lod)
            return dense
        return LoDTensor(array, lod)

    def _gather(self, value: Any, lengths: list[list[int]], level: int, rows: list[Any]) -> None:
        lengths[level].append(len(value))
        if level + 1 == self.lod_level:
            rows.append(value)
        else:
            for item in value:
                self._gather(item, lengths, level + 1, rows)

    def _no_rows(self) -> _Array:
        return np.empty((0, *(max(size, 0) for size in self.shape[1:])), self.dtype)

    def _misfit(self, values: Sequence[Any], error: Exception) -> CollateError:
        """Return the error for samples that NumPy cannot stack."""
        shapes = [_shape_of(value) for value in values]
        odd = next((n for n, shape in enumerate(shapes) if shape != shapes[0]), None)
        if odd is None and shapes[0] is not None:
            return CollateError(
                f"the samples of variable '{self.name}' cannot be converted to {self._kind}:"
                f" {error}. Yield numbers, or arrays of them"
            )
        where = 0 if odd is None else odd
        shape = "is ragged in itself" if shapes[where] is None else f"has shape {shapes[where]}"
        first = "" if where == 0 else f", and sample 0 has shape {shapes[0]}"
        return CollateError(
            f"the samples of variable '{self.name}' are ragged: sample {where} of the batch"
            f" {shape}{first}. Pad them to one length; or declare the variable with lod_level=1 or"
            " more, which needs paddle.pir_utils.OldIrGuard() or FLAGS_enable_pir_api=0, since PIR"
            " mode has no LoD"
        )

    def take(self, value: Any) -> Field:
        """Return the field for a ready-made batch of this variable.

        A DenseTensor is checked and returned as it is. A LoDTensor keeps its LoD. Anything else
        becomes an array of the declared type, which may share the memory of `value`.
        """
        if isinstance(value, DenseTensor):
            return self._check_dense(value)
        if isinstance(value, LoDTensor):
            array = self._fit(self._convert(self._checked(value.storage())))
            return LoDTensor(array, value.lod) if value.lod else array
        if isinstance(value, core.eager.Tensor):
            value = value.numpy()
        return self._complete(self._convert(self._checked(as_array(value, self.name))))

    def _checked(self, array: _Array) -> _Array:
        """Return the array itself; refuse one that cannot be converted without loss of meaning."""
        is_bits = self.is_bfloat16 and (array.dtype == np.uint16 or array.dtype.name == "bfloat16")
        wanted = np.dtype(np.float32) if self.is_bfloat16 else self.dtype
        if not is_bits and not np.can_cast(array.dtype, wanted, "same_kind"):
            raise FieldTypeError(
                f"The data type of fed Variable '{self.name}' must be '{self._kind}', but received"
                f" '{array.dtype}', which cannot be converted without loss; convert it in the"
                " generator, or declare the variable with that type"
            )
        return array

    def _check_dense(self, tensor: Any) -> Any:
        have = str(convert_dtype(tensor._dtype()))
        if have != self.dtype.name:
            raise FieldTypeError(
                f"The data type of fed Variable '{self.name}' must be '{self._kind}', but received"
                f" '{have}' in a DenseTensor, which is passed on as it is; make it of the declared"
                " type, or yield an array, which is converted"
            )
        self._check_shape(tuple(tensor.shape()))
        return tensor

    @property
    def _kind(self) -> str:
        return "bfloat16" if self.is_bfloat16 else self.dtype.name

    def _convert(self, value: Any) -> _Array:
        """Return an array of the declared type; the same one if it is of that type."""
        if isinstance(value, (list, tuple)) and value and is_tensor(value[0]):
            value = [np.asarray(item) for item in value]
        if not self.is_bfloat16:
            return np.asarray(value, dtype=self.dtype)
        array = np.asarray(value)
        if array.dtype == np.uint16:
            return array
        if array.dtype.name == "bfloat16":
            return array.view(np.uint16)
        return _round_to_bfloat16(array.astype(np.float32))

    def _complete(self, array: _Array) -> Field:
        array = self._fit(array)
        return _bfloat16_tensor(array) if self.is_bfloat16 else array

    def _fit(self, array: _Array) -> _Array:
        """Reshape to the declared shape as Paddle does: when the number of dimensions differs."""
        if not self.shape or array.ndim == len(self.shape):
            self._check_shape(array.shape)
            return array
        try:
            if sum(size < 0 for size in self.shape) > 1:
                raise ValueError("more than one of the declared dimensions is of any size")
            return array.reshape(self.shape)
        except ValueError as error:
            raise CollateError(
                f"Reshape error. What is defined in data layer is {self.shape}, but receive"
                f" {array.shape} for variable '{self.name}': {error}. Yield data of the declared"
                " shape, or declare the shape of the data"
            ) from error

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        fits = len(shape) == len(self.shape) and all(
            want < 0 or want == have for want, have in zip(self.shape, shape)
        )
        if self.shape and not fits:
            raise CollateError(
                f"Shape not match. What is defined in data layer is {self.shape}, but receive"
                f" {shape} for variable '{self.name}'. Yield data of the declared shape, or declare"
                " dimensions that change, such as that of a short last batch, as None"
            )


def is_tensor(value: Any) -> bool:
    """Say whether a value is an array or a tensor, and so one field rather than several."""
    return isinstance(value, (np.ndarray, DenseTensor, core.eager.Tensor, LoDTensor))


def as_array(value: Any, what: str) -> Any:
    """An array, or the tensor itself if it is one on the CPU. FieldTypeError for other things."""
    if isinstance(value, core.eager.Tensor):
        return value if is_on_cpu(value.place) else value.cpu()
    if isinstance(value, (DenseTensor, LoDTensor)):
        return value
    try:
        if isinstance(value, (list, tuple)) and value and is_tensor(value[0]):
            value = [np.asarray(item) for item in value]
        array = np.asarray(value)
    except ValueError as error:
        raise FieldTypeError(f"{_RAGGED}({what}: {error}; {_RAGGED_REMEDY})") from error
    if array.dtype == np.object_:
        raise FieldTypeError(f"{_RAGGED}({what} is {got(value)}; {_RAGGED_REMEDY})")
    return array


_RAGGED_REMEDY = "pad it, or yield a reader.LoDTensor or DenseTensor with its LoD"


def _shape_of(value: Any) -> tuple[int, ...] | None:
    try:
        return tuple(np.shape(value))
    except ValueError:
        return None


def _round_to_bfloat16(array: _Array) -> _Array:
    """Return the upper halves of float32, rounded to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)


def _bfloat16_tensor(bits: _Array) -> Any:
    """Return a DenseTensor with a copy of the bits: paddle reads uint16 as bfloat16."""
    dense = DenseTensor()
    dense.set(bits, core.CPUPlace())
    return dense
