"""Collate functions that write a batch in place: stacked, padded, packed, and by field.

Imports the core, `reader.checks` and the errors. They run in workers, and keep no state. Pass one
as `collate_fn=` of any loader; called with a list of samples it returns NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from reader._core.batch.dtype import field_type
from reader._core.batch.structure import flatten, is_named_tuple
from reader._core.collate.rows import Rows, is_numeric
from reader.checks import as_bool, as_int
from reader.errors import CollateError, ConfigError, ConfigTypeError, got

__all__ = ["AsList", "Collate", "Dict", "Pack", "Pad", "Stack", "Tuple"]

Function = Callable[[list[Any]], Any]


class Collate:
    """Base of collate functions whose arrays are written where the batch lies, with one copy."""

    def lay_out(self, samples: Sequence[Any]) -> Any:
        """Return the batch with a `Rows` for each array that is still to be written.

        A loader calls it in place of the function, and writes the arrays into shared memory.
        """
        raise NotImplementedError

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Return the batch of one or more samples.

        Raises:
            CollateError: samples that do not fit together; the text names sample and field.
        """
        flat = flatten(self.lay_out(samples))
        fields = [self.make(each) if isinstance(each, Rows) else each for each in flat.fields]
        return flat.structure.restore(fields, flat.objects)

    def make(self, rows: Rows) -> Any:
        """Return the array of a field, when no loader writes it."""
        return rows.numpy()


class Stack(Collate):
    """Stack samples of one shape, field by field; strings and other objects become lists.

    Args:
        dtype: of the arrays; None: that of the samples.

    >>> Stack()([(1, "one"), (2, "two")])
    (array([1, 2]), ['one', 'two'])
    """

    def __init__(self, dtype: Any = None) -> None:
        self.dtype = _as_dtype(dtype)

    def lay_out(self, samples: Sequence[Any]) -> Any:
        """See Collate."""
        return by_field(samples, lambda values: Rows.stacked(values, self.dtype))


class Pad(Collate):
    """Pad samples of different lengths to the longest of the batch, field by field.

    Numbers are stacked, and strings and other objects become lists. A sample, or a field of one, is
    an array, a tensor, or a list of numbers; each is copied once, into its row.

    Args:
        axis: of a sample, along which lengths differ; or several, such as (1, 2) of pictures with
            channels first; None: all axes.
        value: what stands behind a sample; the element type must hold it.
        round_to: each padded length is a multiple of it.
        lengths: with each padded field give the lengths of its samples: (array, lengths), as int64,
            with several axes samples x axes; not with `axis=None`.
        dtype: of the arrays; None: that of the samples.

    >>> pictures = [np.ones((3, 20, 30)), np.ones((3, 40, 10))]
    >>> Pad((1, 2), round_to=32)(pictures).shape
    (2, 3, 64, 32)
    >>> Pad(value=-1)([[1, 2, 3], [4]])
    array([[ 1,  2,  3],
           [ 4, -1, -1]])
    """

    def __init__(
        self,
        axis: int | Sequence[int] | None = 0,
        value: Any = 0,
        round_to: int | None = None,
        lengths: bool = False,
        dtype: Any = None,
    ) -> None:
        self.axis = _as_axes(axis)
        self.value = _as_value(value)
        self.round_to = _as_multiple(round_to)
        self.lengths = as_bool("lengths", lengths)
        self.dtype = _as_dtype(dtype)
        if self.lengths and axis is None:
            raise ConfigError(
                "lengths=True gives the lengths along one axis, and axis=None pads all of them."
                " Pass an axis"
            )

    def lay_out(self, samples: Sequence[Any]) -> Any:
        """See Collate."""
        return by_field(samples, self.pad)

    def pad(self, values: Sequence[Any]) -> Any:
        """Return the rows of one field; numbers are stacked."""
        if _is_number(values[0]):
            return Rows.stacked(values, self.dtype)
        rows = Rows.padded(values, self.axis, self.value, self.round_to, self.dtype)
        if self.lengths and self.axis is not None:
            return rows, Rows.joined([rows.lengths(self.axis)])
        return rows


class Pack(Collate):
    """Put samples of different lengths end to end, field by field, with where each begins.

    A field becomes (array, offsets): sample k is `array[offsets[k]:offsets[k + 1]]`; offsets are
    int32, one more than samples. Numbers are stacked; strings and other objects become lists.

    Args:
        budget: the length of the array; what no sample fills holds `value`. None: the sum of the
            samples' lengths. Make the batches so that they fit: `BucketBatchSampler` takes
            `max_tokens`.
        value: what stands behind the last sample.
        round_to: without `budget`, the length is a multiple of it.
        dtype: of the arrays; None: that of the samples.

    >>> Pack(budget=6)([[1, 2, 3], [4]])
    (array([1, 2, 3, 4, 0, 0]), array([0, 3, 4], dtype=int32))
    """

    def __init__(
        self,
        budget: int | None = None,
        value: Any = 0,
        round_to: int | None = None,
        dtype: Any = None,
    ) -> None:
        remedy = "None takes what the samples need."
        self.budget = None if budget is None else as_int("budget", budget, low=1, remedy=remedy)
        self.value = _as_value(value)
        self.round_to = _as_multiple(round_to)
        self.dtype = _as_dtype(dtype)

    def lay_out(self, samples: Sequence[Any]) -> Any:
        """See Collate."""
        return by_field(samples, self.pack)

    def pack(self, values: Sequence[Any]) -> Any:
        """Return the rows and offsets of one field; numbers are stacked."""
        if _is_number(values[0]):
            return Rows.stacked(values, self.dtype)
        rows = Rows.joined(values, self.budget, self.value, self.round_to, self.dtype)
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum(rows.lengths(), out=offsets[1:])
        return rows, Rows.joined([offsets])


class AsList(Collate):
    """Give the samples as a list.

    >>> AsList()(["a", "b"])
    ['a', 'b']
    """

    def lay_out(self, samples: Sequence[Any]) -> list[Any]:
        """See Collate."""
        return list(samples)


class Tuple(Collate):
    """Collate each field of samples that are tuples or lists by a function of its own.

    Args:
        functions: one for each field; any function of a list of values.

    >>> Tuple(Pad(), Stack())([([1, 2], 0), ([3], 1)])
    (array([[1, 2],
           [3, 0]]), array([0, 1]))
    """

    def __init__(self, *functions: Function) -> None:
        self.functions = tuple(_as_function(place, each) for place, each in enumerate(functions))
        if not functions:
            raise ConfigError("Tuple needs a collate function for each field, got none")

    def lay_out(self, samples: Sequence[Any]) -> Any:
        """See Collate."""
        count = len(self.functions)
        for row, sample in enumerate(samples):
            if not isinstance(sample, (tuple, list)) or len(sample) != count:
                raise CollateError(
                    f"sample {row} must be a tuple of {count} fields, one for each function, got"
                    f" {got(sample)}"
                )
        return tuple(columns(self.functions, samples))


class Dict(Collate):
    """Collate fields of samples that are dicts, each by a function of its own.

    Args:
        functions: by key; any functions of a list of values. Fields of other keys are left out.

    >>> Dict({"x": Pad()})([{"x": [1, 2], "y": 0}, {"x": [3], "y": 1}])
    {'x': array([[1, 2],
           [3, 0]])}
    """

    def __init__(self, functions: Mapping[Any, Function]) -> None:
        if not isinstance(functions, Mapping) or not functions:
            raise ConfigTypeError(
                f"Dict needs a dict of collate functions by key, got {got(functions)}"
            )
        self.functions = {key: _as_function(key, each) for key, each in functions.items()}

    def lay_out(self, samples: Sequence[Any]) -> Any:
        """See Collate."""
        for row, sample in enumerate(samples):
            missing = [key for key in self.functions if key not in sample]
            if missing:
                raise CollateError(f"sample {row} lacks the keys {missing}; it is {got(sample)}")
        return {
            key: collate_field(f"[{key!r}]", each, [sample[key] for sample in samples])
            for key, each in self.functions.items()
        }


def in_place(function: Function) -> Function:
    """Return what a loader calls for a collate function: its `lay_out`, if it has one.

    A subclass with a `__call__` of its own is called as it is.
    """
    if isinstance(function, Collate) and type(function).__call__ is Collate.__call__:
        return function.lay_out
    return function


def by_field(samples: Sequence[Any], make: Callable[[Sequence[Any]], Any]) -> Any:
    """Return a batch with the containers of the samples, and in each field what `make` makes.

    Args:
        samples: one or more; the first one decides. A list of numbers is a field.
        make: called with the values of a field that are arrays, tensors or numbers.
    """
    if not samples:
        raise CollateError("cannot make a batch of no samples; leave empty batches out")
    first = samples[0]
    if is_numeric(first):
        return make(samples)
    if isinstance(first, Mapping):
        keys = list(first)
        for row, sample in enumerate(samples):
            if not isinstance(sample, Mapping) or sample.keys() != first.keys():
                raise CollateError(
                    f"sample {row} must be a dict with the keys {keys} of sample 0, got"
                    f" {got(sample)}"
                )
        return {key: _field(f"[{key!r}]", [each[key] for each in samples], make) for key in keys}
    if isinstance(first, (tuple, list)):
        for row, sample in enumerate(samples):
            if not isinstance(sample, (tuple, list)) or len(sample) != len(first):
                raise CollateError(
                    f"sample {row} must have the {len(first)} fields of sample 0, got {got(sample)}"
                )
        made = [
            _field(f"[{place}]", [each[place] for each in samples], make)
            for place in range(len(first))
        ]
        if isinstance(first, list):
            return made
        return type(first)(*made) if is_named_tuple(type(first)) else tuple(made)
    return list(samples)


def _field(where: str, values: list[Any], make: Callable[[Sequence[Any]], Any]) -> Any:
    try:
        return by_field(values, make)
    except CollateError as error:
        raise _located(where, error) from error.__cause__


def columns(functions: Sequence[Function], samples: Sequence[Any]) -> list[Any]:
    """Return what each function makes of the field at its place."""
    return [
        collate_field(f"[{place}]", each, [sample[place] for sample in samples])
        for place, each in enumerate(functions)
    ]


def collate_field(where: str, function: Function, values: list[Any]) -> Any:
    """Return what a function makes of a field; a CollateError then says which field, `where`."""
    try:
        return in_place(function)(values)
    except CollateError as error:
        raise _located(where, error) from error.__cause__


def _located(where: str, error: CollateError) -> CollateError:
    text = str(error)
    inner = text.removeprefix("field ") if text.startswith("field [") else f": {text}"
    return CollateError(f"field {where}{inner}")


def _is_number(value: Any) -> bool:
    return not isinstance(value, list) and np.ndim(value) == 0


def _as_dtype(dtype: Any) -> Any:
    if dtype is None:
        return None
    try:
        field_type(dtype)
    except TypeError as error:
        raise ConfigTypeError(
            f"dtype must be an element type of numbers or its name, got {got(dtype)}: {error}"
        ) from None
    return dtype


def _as_value(value: Any) -> Any:
    if not isinstance(value, (int, float, complex, np.generic)):
        raise ConfigTypeError(f"value must be a number, got {got(value)}")
    return value


def _as_multiple(round_to: Any) -> int:
    remedy = "None rounds no length up."
    return 1 if round_to is None else as_int("round_to", round_to, low=1, remedy=remedy)


def _as_axes(axis: Any) -> int | tuple[int, ...] | None:
    remedy = "None pads all axes, (1, 2) those two."
    if axis is None:
        return None
    if not isinstance(axis, (tuple, list)):
        return as_int("axis", axis, low=-64, high=63, remedy=remedy)
    found = tuple(as_int("axis", each, low=-64, high=63, remedy=remedy) for each in axis)
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"axis must name one axis or several, each once, got {axis!r}. {remedy}")
    return found


def _as_function(key: Any, function: Any) -> Function:
    if not callable(function):
        raise ConfigTypeError(
            f"the collate function of field {key!r} must be callable, got {got(function)}"
        )
    made: Function = function
    return made
