"""Split what a generator yields into fields: by feed_list in static mode, else by position.

Imports the slots and the errors. The two classes here are immutable and have the same two methods;
the thread or process that runs the user's generator uses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from reader.compat.paddle.slots import FeedSlot, Field, as_array, is_tensor
from reader.errors import CollateError, got, shown

__all__ = ["DynamicFields", "Fields", "StaticFields"]

_COUNTS = "The number of fields in data (%d) does not match len(feed_list) (%d)"
_UNEQUAL = (
    "The sample number of reader's input data and the input number of feed list are not equal."
)


class Fields(Protocol):
    """How samples and batches become fields."""

    def stack(self, samples: Sequence[Any]) -> list[Field]:
        """Return the fields of a batch of samples."""

    def take(self, batch: Any) -> list[Field]:
        """Return the fields of a ready-made batch."""


class StaticFields:
    """Turns what a generator yields into the fields of a feed_list, in its order.

    Args:
        feed_list: the variables.
    """

    def __init__(self, feed_list: Sequence[Any]) -> None:
        self.slots = tuple(FeedSlot.of_variable(variable) for variable in feed_list)
        self.names = tuple(slot.name for slot in self.slots)

    def stack(self, samples: Sequence[Any]) -> list[Field]:
        """Return the fields of a batch of samples. CollateError when they do not fit."""
        _refuse_empty(samples)
        rows = [self._values(sample, row) for row, sample in enumerate(samples)]
        return [slot.stack(values) for slot, values in zip(self.slots, zip(*rows))]

    def take(self, batch: Any) -> list[Field]:
        """Return the fields of a ready-made batch. CollateError when it does not fit."""
        if isinstance(batch, Mapping):
            values = self._by_name(batch)
        elif len(self.slots) == 1 and is_tensor(batch):
            values = [batch]
        else:
            values = _items_of(batch)
            if len(values) != len(self.slots):
                raise CollateError(
                    f"{_UNEQUAL} feed_list has {len(self.slots)} variables, {list(self.names)}, and"
                    f" the batch has {len(values)} fields. Yield one field for each variable, in"
                    " order, or a dict by name; a generator of lists of samples (paddle.batch)"
                    " belongs to set_sample_list_generator"
                )
        return [slot.take(value) for slot, value in zip(self.slots, values)]

    def _values(self, sample: Any, row: int) -> Sequence[Any]:
        if isinstance(sample, Mapping):
            return self._by_name(sample)
        if isinstance(sample, (str, bytes)) or not hasattr(sample, "__len__"):
            raise CollateError(
                f"sample {row} of the batch is {got(sample)}, and it must be a tuple or list with"
                f" one value for each of the {len(self.slots)} variables of feed_list,"
                f" {list(self.names)}, or a dict by name"
            )
        if len(sample) != len(self.slots):
            raise CollateError(
                f"{_COUNTS % (len(sample), len(self.slots))}: sample {row} of the batch is"
                f" {shown(sample)}, and feed_list names {list(self.names)}. Yield a tuple with one"
                " value for each variable, or a dict by name"
            )
        return list(sample) if isinstance(sample, np.ndarray) else sample

    def _by_name(self, given: Mapping[str, Any]) -> list[Any]:
        if set(given) != set(self.names):
            raise CollateError(
                f"feed_list names {sorted(self.names)} and the generator yields a dict with keys"
                f" {sorted(map(str, given))}; make them the same: dicts are matched by name"
            )
        return [given[name] for name in self.names]


class DynamicFields:
    """Turns what a generator yields into a list of arrays, in dynamic mode."""

    def stack(self, samples: Sequence[Any]) -> list[Field]:
        """Return the fields of a batch of samples. CollateError: they do not fit together."""
        _refuse_empty(samples)
        rows = [_items_of(sample) for sample in samples]
        odd = next((n for n, row in enumerate(rows) if len(row) != len(rows[0])), None)
        if odd is not None:
            raise CollateError(
                f"sample {odd} of the batch has {len(rows[odd])} fields and sample 0 has"
                f" {len(rows[0])}; yield equally many in each sample"
            )
        return [as_array(values, f"field {n}") for n, values in enumerate(zip(*rows))]

    def take(self, batch: Any) -> list[Field]:
        """Return the fields of a ready-made batch."""
        values = enumerate(_items_of(batch))
        return [as_array(value, f"field {n}") for n, value in values]


def _refuse_empty(samples: Any) -> None:
    if not isinstance(samples, Sequence):
        raise CollateError(
            f"a generator of sample lists yielded {got(samples)}; it must yield lists of samples,"
            " and a generator of single samples belongs to set_sample_generator"
        )
    if not samples:
        raise CollateError(
            "a generator of sample lists yielded an empty list, which is no batch; leave it out"
        )


def _items_of(value: Any) -> list[Any]:
    """Return the fields of a sample or batch by position."""
    if isinstance(value, (str, bytes, Mapping)) or not (
        hasattr(value, "__iter__") or hasattr(value, "__getitem__")
    ):
        raise CollateError(
            f"the generator yielded {got(value)}, and a sample or batch must be a tuple or list"
            " with one value for each field"
        )
    return list(value)
