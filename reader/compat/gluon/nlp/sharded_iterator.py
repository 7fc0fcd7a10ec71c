"""GluonNLP's iterator over one process's share of the batches of a sampler.

Imports the parts of this face and `reader.data`. It runs in the trainer alone; the sampler inside
is the user's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from reader.compat.gluon.nlp.parts import as_part, part_of
from reader.data.sampler import SeededSampler
from reader.data.seekable import as_position, iterate_from
from reader.errors import StateError, got
from reader.orders.base_sampler import has_state
from reader.random.permutation import Permutation
from reader.random.seeds import order_key

__all__ = ["ShardedIterator"]


class ShardedIterator(SeededSampler[Any]):
    """Yield one of several contiguous parts of what a sampler, or batch sampler, yields.

    Args:
        sampler: has a length, and in each epoch the same order in every process: give it a seed.
        num_parts: into how many parts its items are divided; of each process one.
        part_index: the number of this part, from 0.
        even_size: parts that are shorter by one item have an item of another part added, so that
            all have equally many.
        seed: an int in [0, 2**64) that chooses which one, together with the epoch. None: another
            one in each iteration.

    Raises:
        ArgumentError: (an AssertionError) an argument that cannot work.

    `set_epoch` passes the epoch on to the sampler.

    >>> list(ShardedIterator([[0, 1], [2, 3], [4]], num_parts=2, part_index=0))
    [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        sampler: Any,
        num_parts: int = 1,
        part_index: int = 0,
        even_size: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        self.sampler = sampler
        self._parts, self._index = as_part(num_parts, part_index)
        self._is_even = bool(even_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, from 0, whose order later iterations take, also for the sampler."""
        super().set_epoch(epoch)
        if callable(getattr(self.sampler, "set_epoch", None)):
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[Any]:
        """Iterate over the part from `position` on; where the sampler can seek, at once."""
        count = len(self.sampler)
        part = part_of(count, self._parts, self._index)
        places = part[as_position(position) :]
        has_added = self._is_even and len(part) * self._parts < count and position <= len(part)
        key = self._begin()
        if not has_added:
            return itertools.islice(iterate_from(self.sampler, places.start), len(places))
        order = Permutation(count - len(part), order_key(*key, part=self._index))
        added = order[0] if order[0] < part.start else order[0] + len(part)
        return self._with_added(places, added)

    def _with_added(self, places: range, added: int) -> Iterator[Any]:
        """Yield the items at `places`, and at the end the one at `added`. Iterates once."""
        first, last = min(places.start, added), max([added, *places[-1:]])
        kept: list[Any] = []
        for place, item in enumerate(iterate_from(self.sampler, first), first):
            if place == added:
                kept.append(item)
            if place in places:
                yield item
            if place >= last:
                break
        yield from kept

    def __len__(self) -> int:
        count = len(self.sampler)
        part = part_of(count, self._parts, self._index)
        return -(-count // self._parts) if self._is_even else len(part)

    def state_dict(self) -> dict[str, Any]:
        """Return what repeats the order of the last begun iteration, the sampler's included."""
        state: dict[str, Any] = super().state_dict()
        return {**state, "sampler": self.sampler.state_dict()} if self._has_inner_state else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration, and it alone, take the order that the state describes.

        Raises:
            StateError: it is no state of such a sampler. Nothing has changed then.
        """
        self.check_state(state)
        if self._has_inner_state:
            self.sampler.load_state_dict(state["sampler"])
        super().load_state_dict(state)

    def check_state(self, state: dict[str, Any]) -> Any:  # type: ignore[override]
        """Check a state. StateError: it is no state of such a sampler."""
        found = super().check_state(state)
        if self._has_inner_state:
            if "sampler" not in state:
                raise StateError(
                    "the state of a ShardedIterator must have 'sampler', the state of its sampler,"
                    f" got {got(state)}."
                    " Load a state that was saved with the same sampler."
                )
            check_state = getattr(self.sampler, "check_state", None)
            if check_state is not None:
                check_state(state["sampler"])
        return found

    @property
    def _has_inner_state(self) -> bool:
        return has_state(self.sampler)
