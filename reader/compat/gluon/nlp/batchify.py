"""The batchify functions of GluonNLP 0.10, which write batches in place.

Imports `reader.collate` and Gluon's functions. They run in workers, and keep no state except that
Pad has warned. Pad pads one axis here, and all axes in `reader.compat.gluon.batchify`: each as in
its library.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from reader import collate
from reader._core.collate.rows import Rows
from reader.collate import collate_field
from reader.compat.gluon.batchify import Batchify, Group, padded, readable, warns_of_nd
from reader.errors import CollateError, ConfigError, got

__all__ = ["Dict", "List", "NamedTuple", "Pad", "Stack", "Tuple"]

Function = Callable[[list[Any]], Any]


class Stack(Batchify):
    """Stack samples of one shape to one array.

    Args:
        dtype: of the array; None: that of the samples.
    """

    def __init__(self, dtype: Any = None) -> None:
        self._stack = collate.Stack(dtype)

    def lay_out(self, samples: Sequence[Any]) -> Rows:
        """See Collate."""
        return Rows.stacked(readable(samples), self._stack.dtype)


class Pad(Batchify):
    """Pad samples along one axis, to the longest of the batch; the others must agree.

    Of NDArrays it warns once.

    Args:
        axis: of a sample, from the end if negative.
        pad_val: the padding value, cast to the element type as by NumPy; None: 0, with a warning.
        ret_length: return (array, lengths), the lengths as int32.
        dtype: of the array; None: that of the samples, and float32 for lists, as in MXNet 1.x.
        round_to: the length is a multiple of it.
    """

    def __init__(
        self,
        axis: int = 0,
        pad_val: Any = None,
        ret_length: bool = False,
        dtype: Any = None,
        round_to: int | None = None,
    ) -> None:
        if axis is None:
            raise ConfigError("axis must be an int, got None; batchify.Pad of Gluon pads all axes")
        if pad_val is None:
            warnings.warn(
                "Padding value is not given and will be set automatically to 0. Pass pad_val: the"
                " index of the padding token, or 0",
                stacklevel=2,
            )
        self._pad = collate.Pad(axis, 0 if pad_val is None else pad_val, round_to, dtype=dtype)
        self._ret_length = ret_length
        self._warned = False

    def lay_out(self, samples: Sequence[Any]) -> Any:
        """See Collate."""
        pad, dtype = self._pad, self._pad.dtype
        if dtype is None and len(samples) and isinstance(samples[0], list):
            dtype = np.float32
        self._warned = self._warned or warns_of_nd(samples)
        rows = padded(samples, pad, dtype)
        if not self._ret_length or pad.axis is None:
            return rows
        return rows, Rows.joined([rows.lengths(pad.axis)], dtype=np.int32)


class List(collate.AsList):
    """Give the samples as a list."""


class Tuple(Group):
    """Collate each field of samples that are tuples by a function of its own; see Gluon's Group."""


class Dict(Batchify):
    """Collate fields of samples that are dicts, each by a function of its own; a dict of these.

    Args:
        fn_dict: functions by key; fields of other keys are left out.
    """

    def __init__(self, fn_dict: Mapping[Any, Function]) -> None:
        if not isinstance(fn_dict, Mapping):
            raise ConfigError(f"fn_dict must be a dict of functions by key, got {got(fn_dict)}")
        self._functions = _checked(fn_dict)

    def lay_out(self, samples: Sequence[Any]) -> dict[Any, Any]:
        """See Collate."""
        for row, sample in enumerate(samples):
            missing = [key for key in self._functions if not _has(sample, key)]
            if missing:
                raise CollateError(
                    f"sample {row} must be a dict with the keys {list(self._functions)}, got"
                    f" {got(sample)}, which lacks {missing}"
                )
        return {
            key: collate_field(f"[{key!r}]", each, [sample[key] for sample in samples])
            for key, each in self._functions.items()
        }


class NamedTuple(Batchify):
    """Collate each field of samples that are named tuples by a function of its own.

    Args:
        container: the class of the named tuples, and of the batch.
        fn_info: functions by field, or a list of them in the order of the fields.
    """

    def __init__(self, container: Any, fn_info: Any) -> None:
        fields = getattr(container, "_fields", None)
        if fields is None:
            raise ConfigError(f"container must be a class of named tuples, got {got(container)}")
        if isinstance(fn_info, Mapping):
            if set(fn_info) != set(fields):
                raise ConfigError(
                    f"fn_info must have a function for each field of {container.__name__},"
                    f" {list(fields)}, got those of {list(fn_info)}"
                )
            functions = {name: fn_info[name] for name in fields}
        elif isinstance(fn_info, (list, tuple)):
            if len(fn_info) != len(fields):
                raise ConfigError(
                    f"fn_info must have a function for each field of {container.__name__},"
                    f" {list(fields)}, got {len(fn_info)} functions"
                )
            functions = dict(zip(fields, fn_info, strict=True))
        else:
            raise ConfigError(f"fn_info must be a dict, a list or a tuple, got {got(fn_info)}")
        self._container = container
        self._functions = _checked(functions)

    def lay_out(self, samples: Sequence[Any]) -> Any:
        """See Collate."""
        for row, sample in enumerate(samples):
            if not isinstance(sample, self._container):
                raise CollateError(
                    f"sample {row} must be a {self._container.__name__}, got {got(sample)}"
                )
        return self._container(
            *(
                collate_field(f".{name}", each, [getattr(sample, name) for sample in samples])
                for name, each in self._functions.items()
            )
        )


def _checked(functions: Mapping[Any, Any]) -> dict[Any, Function]:
    for key, each in functions.items():
        if not callable(each):
            raise ConfigError(f"the function of field {key!r} must be callable, got {got(each)}")
    return dict(functions)


def _has(sample: Any, key: Any) -> bool:
    return isinstance(sample, Mapping) and key in sample
