"""The batchify functions of `mx.gluon.data.batchify` (2.x), which write batches in place.

Imports `reader.collate`. They run in workers, and keep no state except that Pad has warned. Called
directly they return arrays of MXNet if it is installed, otherwise of NumPy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reader import collate
from reader._core.batch.dtype import field_type
from reader._core.collate.rows import Rows
from reader.collate import Collate, columns
from reader.compat.gluon.arrays import as_nd, is_nd
from reader.errors import CollateError, ConfigTypeError, got

__all__ = ["Append", "AsList", "Batchify", "Group", "Pad", "Stack"]

Function = Callable[[list[Any]], Any]


class FieldCountError(CollateError, AssertionError):
    """Samples have another number of fields than there are functions; Gluon asserts that."""


class NoArrayError(CollateError, NotImplementedError):
    """Samples are tuples, and Pad pads arrays; Gluon raises NotImplementedError."""


class PadValueError(CollateError, OverflowError):
    """The padding value cannot be cast to the element type; NumPy and Gluon raise OverflowError."""


class Batchify(Collate):
    """Base of the functions here: makes arrays of MXNet if it is installed."""

    def make(self, rows: Rows) -> Any:
        """Return the array of a field that no loader writes."""
        return as_nd(rows.numpy())


class Stack(Batchify):
    """Stack samples of one shape; samples that are lists or tuples give a list, field by field.

    As in Gluon 2.x; `default_batchify_fn`, of 1.x, makes one array of a list.

    Args:
        use_shared_mem: taken, and has no effect: loaders write into shared memory.
    """

    def __init__(self, use_shared_mem: bool = False) -> None:
        pass

    def lay_out(self, samples: Sequence[Any]) -> Any:
        """See Collate."""
        first = samples[0] if len(samples) else None
        if not isinstance(first, (list, tuple)):
            return Rows.stacked(readable(samples))
        check_count(samples, len(first))
        return columns([self.lay_out] * len(first), samples)


class Pad(Batchify):
    """Pad samples along all axes, to the longest of the batch.

    GluonNLP's Pad, in `reader.compat.gluon.nlp.batchify`, pads one axis. Of NDArrays it warns once.

    Args:
        val: the padding value, cast to the element type as by NumPy; None: 0.
        dtype: of the arrays; None: that of the samples, int64 for lists of ints.
        round_to: each length is a multiple of it.
        use_shared_mem: taken, and has no effect.
    """

    def __init__(
        self,
        val: Any = None,
        dtype: Any = None,
        round_to: int | None = None,
        use_shared_mem: bool = False,  # noqa: ARG002
    ) -> None:
        self._pad = collate.Pad(None, 0 if val is None else val, round_to, dtype=dtype)
        self._warned = False

    def lay_out(self, samples: Sequence[Any]) -> Any:
        """See Collate."""
        if len(samples) and isinstance(samples[0], tuple):
            raise NoArrayError(
                f"Pad pads arrays, and the samples are tuples of {len(samples[0])} fields: use"
                " Group(Pad(), Stack(), ...), with a function for each field"
            )
        pad = self._pad
        self._warned = self._warned or warns_of_nd(samples)
        dtype = pad.dtype
        if dtype is None and len(samples) and isinstance(samples[0], list) and not samples[0]:
            dtype = np.float64  # as np.asarray([]) has
        return padded(samples, pad, dtype)


class Append(Batchify):
    """Give the samples as a list of arrays, each with a batch axis of length 1.

    Args:
        expand: False: the samples have the batch axis.
        batch_axis: where it is put.
        use_shared_mem: taken, and has no effect.
    """

    def __init__(
        self,
        expand: bool = True,
        batch_axis: int = 0,
        use_shared_mem: bool = False,  # noqa: ARG002
    ) -> None:
        self._expand = expand
        self._batch_axis = batch_axis

    def lay_out(self, samples: Sequence[Any]) -> list[Rows]:
        """See Collate."""
        arrays = [each.asnumpy() if is_nd(each) else np.asarray(each) for each in samples]
        if self._expand:
            arrays = [np.expand_dims(each, self._batch_axis) for each in arrays]
        return [Rows.joined([each]) for each in arrays]


class AsList(collate.AsList):
    """Give the samples as a list."""


class Group(Batchify):
    """Collate each field of the samples by a function of its own; the batch is a tuple.

    Args:
        fn: the functions, or a list of them.
        args: more functions.

    Raises, when called:
        FieldCountError: an AssertionError, for a sample with another number of fields.
    """

    def __init__(self, fn: Function | Sequence[Function], *args: Function) -> None:
        self._functions = functions_of(fn, args)

    def lay_out(self, samples: Sequence[Any]) -> tuple[Any, ...]:
        """See Collate."""
        check_count(samples, len(self._functions))
        return tuple(columns(self._functions, samples))


def functions_of(fn: Any, args: tuple[Any, ...]) -> list[Function]:
    """Return functions that were given one by one, or as a list."""
    if isinstance(fn, (list, tuple)):
        if args:
            raise ConfigTypeError(
                f"pass the functions one by one, or one list of them: got a list and {len(args)}"
                " more"
            )
        found = list(fn)
    else:
        found = [fn, *args]
    for place, each in enumerate(found):
        if not callable(each):
            raise ConfigTypeError(f"batchify function {place} must be callable, got {got(each)}")
    return found


def check_count(samples: Sequence[Any], count: int) -> None:
    """Refuse samples that have not `count` fields."""
    for row, sample in enumerate(samples):
        if not isinstance(sample, (list, tuple)) or len(sample) != count:
            raise FieldCountError(
                f"The number of attributes in each data sample should contains {count} elements;"
                f" sample {row} is {got(sample)}"
            )


def readable(samples: Sequence[Any]) -> Sequence[Any]:
    """Return samples with NDArrays of bool, which DLPack lacks, as NumPy arrays."""
    if not len(samples) or not is_nd(samples[0]) or np.dtype(samples[0].dtype) != bool:
        return samples
    return [each.asnumpy() if is_nd(each) else each for each in samples]


def padded(samples: Sequence[Any], pad: collate.Pad, dtype: Any) -> Rows:
    """Return the rows of `pad` in an element type, with its value cast to the type."""
    value = cast_value(pad.value, dtype, samples)
    return Rows.padded(readable(samples), pad.axis, value, pad.round_to, dtype)


def warns_of_nd(samples: Sequence[Any]) -> bool:
    """Warn if a Pad is given NDArrays, and return whether it did."""
    if not len(samples) or not is_nd(samples[0]):
        return False
    warnings.warn(
        "Using Pad with NDArrays is discouraged for speed reasons: each is waited for. Give it"
        " lists or NumPy arrays",
        stacklevel=3,
    )
    return True


def cast_value(value: Any, dtype: Any, samples: Sequence[Any]) -> Any:
    """Return a padding value as NumPy 1 casts it to the element type of a batch.

    `reader.collate.Pad` refuses a value that the type does not hold. Gluon and GluonNLP pad with
    the cast value, and so do the functions here: 255 for -1 in uint8. NumPy warns where it discards
    an imaginary part.

    Args:
        value: the number.
        dtype: of the batch; None: that of the samples.
        samples: the first decides.

    Raises:
        PadValueError: an OverflowError, for an int of more than 64 bits.
    """
    if type(value) is int and value == 0:
        return value
    if dtype is None:
        kind = _element_type(samples[0]) if len(samples) else None
    else:
        kind = field_type(dtype)
    if kind is None or kind.extended:
        return value
    try:
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(kind.storage)[()]
    except OverflowError as error:
        raise PadValueError(f"cannot pad with {got(value)} in {kind.name}: {error}") from None


def _element_type(sample: Any) -> Any:
    """Return the FieldType of a sample; None: `Rows` finds the type of the batch, or refuses it."""
    array = sample
    if isinstance(sample, (list, tuple)):
        try:
            array = np.asarray(sample)
        except ValueError:
            return None
        if not array.size:
            return None  # it takes the type of the others
    elif not isinstance(sample, np.ndarray) and not is_nd(sample):
        return None
    kind = np.dtype(array.dtype)
    return field_type(kind) if kind.kind in "biufc" else None
