"""Collate for programs that declare inputs with a LoD.

Imports the slots of a feed_list and the default collate function. A RaggedCollate is immutable and
runs in workers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from reader.compat.paddle.collate import default_collate_fn
from reader.compat.paddle.slots import FeedSlot
from reader.errors import CollateError

__all__ = ["RaggedCollate"]


@dataclasses.dataclass(frozen=True)
class RaggedCollate:
    """Concatenates the samples of inputs with lod_level > 0, and collates the others by default.

    Samples are dicts by the inputs' names, or sequences in the order of the inputs.
    """

    slots: tuple[FeedSlot, ...]

    @classmethod
    def of(cls, feed_list: Any) -> RaggedCollate | None:
        """Return the function for a feed_list, or None where no input has a LoD."""
        # a single variable is no list: iterating over it adds ops to its program without end
        if not isinstance(feed_list, (list, tuple)) or not any(
            getattr(item, "lod_level", 0) for item in feed_list
        ):
            return None
        return cls(tuple(FeedSlot.of_variable(item) for item in feed_list))

    def __call__(self, samples: list[Any]) -> Any:
        """Return the batch: a dict for dicts, else a list."""
        first = samples[0]
        if isinstance(first, Mapping):
            names = sorted(slot.name for slot in self.slots)
            if sorted(map(str, first)) != names:
                raise CollateError(
                    f"feed_list names {names} and the samples have keys {sorted(map(str, first))};"
                    " make them the same"
                )
            return {
                s.name: self._field(s, [sample[s.name] for sample in samples]) for s in self.slots
            }
        if not isinstance(first, (list, tuple)):
            first, samples = (first,), [(sample,) for sample in samples]
        if len(first) != len(self.slots):
            raise CollateError(
                f"feed_list names {len(self.slots)} inputs and the samples have {len(first)}"
                " fields; make the dataset return one field for each input, in order"
            )
        fields = zip(self.slots, zip(*samples, strict=True), strict=True)
        return [self._field(slot, list(values)) for slot, values in fields]

    def _field(self, slot: FeedSlot, values: list[Any]) -> Any:
        return slot.stack(values) if slot.lod_level else default_collate_fn(values)
