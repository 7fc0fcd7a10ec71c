"""Gluon's BatchSampler: lists of indices, and its rules for those that fill no batch.

Imports `reader.data`. A batch sampler runs in the trainer alone, and owns the carry of rollover;
the order of an epoch belongs to its iterator, which a loader saves and resumes.
"""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from reader._core.wire.channel import encode_task
from reader.checks import as_int, as_reiterable
from reader.compat.gluon.samplers import Sampler
from reader.data.batch_sampler import NoBatching, batched, count_of
from reader.data.epochs import set_epochs
from reader.data.sampler import SeededSampler, state_number
from reader.data.seekable import as_position, iterate_from
from reader.errors import ConfigError, StateError, got
from reader.orders.base_sampler import has_state, is_seekable, is_sharding_sampler, state_of
from reader.orders.order import Order, check_order_state, open_order
from reader.orders.order_origin import Position

__all__ = ["BatchSampler", "SeekableBatchSampler"]


class BatchSampler(Sampler[list[Any]]):
    """Group the indices of a sampler into lists of `batch_size`.

    With 'rollover', indices that fill no batch are carried into the next epoch. An epoch takes them
    when it begins, and carries its own when it runs to its end. If the loop leaves it before, both
    are lost. `len` differs from epoch to epoch. This is Gluon's rule. A seeded sampler,
    `RandomSampler(length, seed=1)`, has another rule: all epochs are one sequence that is cut into
    batches. An epoch is then a function of (seed, epoch), however earlier ones ended. The loader
    sets the epoch, or `set_epoch` does.

    A loader saves and resumes it, within an epoch or between two.

    Args:
        sampler: an iterable of indices, iterated over again for each epoch.
        batch_size: how many indices make a batch, 1 or more.
        last_batch: of the indices at the end that fill no batch: 'keep' yields a short batch,
            'discard' drops them, and 'rollover' begins the next epoch with them. As in Gluon, other
            words are refused only by `len`, and when an epoch ends with such indices.

    An instance is a SeekableBatchSampler if the sampler and `last_batch` allow it.

    >>> batches = BatchSampler(range(5), 2, "rollover")
    >>> list(batches), list(batches)
    ([[0, 1], [2, 3]], [[4, 0], [1, 2], [3, 4]])
    """

    def __new__(
        cls,
        sampler: Any = None,  # unpickling passes no arguments
        batch_size: int = 0,  # noqa: ARG004
        last_batch: str = "keep",
    ) -> BatchSampler:
        """Choose the class: a loader asks the class whether an order is seekable."""
        is_able = cls is BatchSampler and _is_seekable(sampler, last_batch)
        return super().__new__(SeekableBatchSampler if is_able else cls)

    def __init__(self, sampler: Iterable[Any], batch_size: int, last_batch: str = "keep") -> None:
        self.sampler: Any = as_reiterable("sampler", sampler)
        remedy = "It is how many indices make a batch."
        self.batch_size = as_int("batch_size", batch_size, low=1, remedy=remedy)
        self.last_batch = last_batch
        self._carry: list[Any] = []  # the first indices of the next epoch

    def __iter__(self) -> Iterator[list[Any]]:
        return BatchIterator(self)

    def __len__(self) -> int:
        """Return the number of batches of the epoch that would begin now."""
        count, size = count_of(self.sampler), self.batch_size
        if self.last_batch == "keep":
            return (count + size - 1) // size
        if self.last_batch == "discard":
            return count // size
        if self.last_batch == "rollover":
            return (self._carried(count) + count) // size
        raise _unknown(self.last_batch)

    def _carried(self, count: int) -> int:  # noqa: ARG002
        """How many carried indices begin the next epoch, which has `count` of its own."""
        return len(self._carry)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, from 0, of later iterations' order, if the sampler has epochs."""
        set_epochs(epoch, self.sampler)

    def begin_epoch(self) -> list[Any]:
        """Return the carried indices for the epoch that begins now, and clear them."""
        carry, self._carry = self._carry, []
        return carry

    def end_epoch(self, rest: list[Any]) -> bool:
        """Return whether the rest is a short batch; otherwise carry or drop it.

        Raises:
            ConfigError: `last_batch` is none of the three words.
        """
        if self.last_batch == "keep":
            return True
        if self.last_batch == "rollover":
            self._carry = rest
        elif self.last_batch != "discard":
            raise _unknown(self.last_batch)
        return False

    def state_dict(self) -> dict[str, Any]:
        """Return the carry: the indices that the next epoch begins with."""
        return {"carry": _plain(self._carry)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next epoch with the carry of a state.

        Raises:
            StateError: it is no state of such a batch sampler. Nothing has changed then.
        """
        self._carry = self.carry_of(state)

    def carry_of(self, state: Any) -> list[Any]:
        """Return the carry in a state. StateError: there is none."""
        carry = state.get("carry") if isinstance(state, dict) else None
        if not isinstance(carry, list) or len(carry) >= self.batch_size:
            raise StateError(
                "the state of a BatchSampler is a dict with 'carry', a list of fewer indices than"
                f" batch_size={self.batch_size}, got {got(state)}. Load a state that was saved with"
                " the same batch size"
            )
        return list(carry)


class SeekableBatchSampler(BatchSampler):
    """A batch sampler whose epochs begin at any batch at once, and depend on no epoch before them.

    BatchSampler makes it of a seekable sampler; with 'rollover' the sampler must also be seeded.
    """

    _loaded: tuple[int, int] | None = None  # the seed and epoch of the next iteration

    def __iter__(self) -> Iterator[list[Any]]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[list[Any]]:
        """Iterate over the batches from `position` on, in constant time."""
        carry = self._carry_now() if self.last_batch == "rollover" else []
        skipped = as_position(position) * self.batch_size - len(carry)
        indices = iterate_from(self.sampler, max(0, skipped))
        if skipped < 0:
            indices = chain(carry, indices)
        return batched(indices, self.batch_size, self.last_batch != "keep")

    def _carry_now(self) -> list[Any]:
        """Return the last indices of earlier epochs, which begin the first batch."""
        key, self._loaded = self._loaded, None
        seed, epoch = key or (self.sampler.seed, self.sampler.epoch)
        count = len(self.sampler)
        carry: list[Any] = []
        missing = epoch * count % self.batch_size
        while missing > 0:
            epoch -= 1
            earlier = copy.copy(self.sampler)
            earlier.load_state_dict({"seed": seed, "epoch": epoch})
            carry = [*iterate_from(earlier, max(0, count - missing)), *carry]
            missing -= count
        return carry

    def _carried(self, count: int) -> int:
        return int(self.sampler.epoch * count % self.batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the sampler at the last begun iteration, if it has one.

        The state has no position: the consumer counts batches, and passes the count to `iter_from`.
        """
        return {"sampler": state_of(self.sampler)} if has_state(self.sampler) else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Repeat the state's iteration in the next iteration only.

        Raises:
            StateError: it is no state of such a batch sampler. Nothing has changed then.
        """
        self.check_state(state)
        if has_state(self.sampler):
            self.sampler.load_state_dict(copy.deepcopy(state["sampler"]))
        if self.last_batch == "rollover":
            self._loaded = SeededSampler.check_state(state["sampler"])

    def check_state(self, state: dict[str, Any]) -> None:
        """Check a state. StateError: it is no state of such a batch sampler."""
        if isinstance(state, dict) and ("sampler" in state) == has_state(self.sampler):
            check = getattr(self.sampler, "check_state", None)
            if check is not None:
                check(state["sampler"])
            return
        raise StateError(
            f"the state of a SeekableBatchSampler is a dict with that of its sampler,"
            f" {type(self.sampler).__name__}, if it has one: got {got(state)}. Load a state that"
            " was saved with the same sampler"
        )


class BatchIterator(Iterator[list[Any]]):
    """The batches of one epoch, which begins with the first batch or the first `state_dict`.

    Args:
        batches: the batch sampler.
    """

    def __init__(self, batches: BatchSampler) -> None:
        self._batches = batches
        self._loaded: dict[str, Any] | None = None
        self._order: Order | None = None  # of the sampler's indices, one by one; None: not begun
        self._mark: Any = None  # mark of that order after the taken indices
        self._indices: Iterator[Any] = iter(())
        self._taken = 0  # indices of that order
        self._carry: list[Any] = []  # the first indices of the next batch
        self._is_over = False

    def __next__(self) -> list[Any]:
        if self._order is None:
            self._begin()
        if self._is_over:
            raise StopIteration
        size, carry = self._batches.batch_size, self._carry
        self._is_over = True  # unless the sampler gives a whole batch
        indices = list(islice(self._indices, size - len(carry)))
        self._take(indices)
        batch = [*carry, *indices] if carry else indices
        self._carry = []
        if len(batch) == size:
            self._is_over = False
        elif not batch or not self._batches.end_epoch(batch):
            raise StopIteration
        return batch

    def _begin(self) -> Order:
        loaded, at = self._loaded, Position()
        if loaded is None:
            self._carry = self._batches.begin_epoch()
        else:
            self._carry, self._taken = list(loaded["carry"]), loaded["taken"]
            at = Position(self._taken, self._taken)
        one_by_one = NoBatching(self._batches.sampler)
        order, made = open_order(one_by_one, None if loaded is None else loaded["order"], at)
        self._order, self._mark = order, order.start
        self._indices = chain.from_iterable(made)
        first = list(islice(self._indices, 1))  # many samplers draw their order only here
        if first:
            order.note_first(*encode_task(first, True))
        self._indices = chain(first, self._indices)
        return order

    def _take(self, indices: list[Any]) -> None:
        """Count indices as taken."""
        self._taken += len(indices)
        mark = None if self._order is None else self._order.mark
        if mark is not None and indices:
            self._mark = mark(*encode_task(indices, True), self._taken - 1, self._mark)

    def state_dict(self) -> dict[str, Any]:
        """Return the position: an iterator that loads it yields the batches after it."""
        order = self._begin() if self._order is None else self._order
        return {
            "carry": _plain(self._carry),
            "taken": self._taken,
            "order": order.origin.state(self._taken, self._mark),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where another iterator was; only before the first batch.

        Raises:
            StateError: it is no state of such an iterator. Nothing has changed then.
        """
        if self._order is not None:
            raise StateError(
                "this iterator has begun, and cannot go to another position. Load the state into a"
                " fresh one"
            )
        carry, taken = self._batches.carry_of(state), state_number(state, "taken", sys.maxsize)
        one_by_one = NoBatching(self._batches.sampler)
        check_order_state(one_by_one, state.get("order"), 1, taken > 0)
        self._loaded = {"carry": carry, "taken": taken, "order": state["order"]}


def _is_seekable(sampler: Any, last_batch: str) -> bool:
    """Whether a BatchSampler with these arguments is seekable."""
    if not is_seekable(sampler, None) or is_sharding_sampler(sampler):
        return False
    if last_batch != "rollover":
        return last_batch in ("keep", "discard")
    is_set = isinstance(sampler, SeededSampler) and not sampler.counts_epochs
    return is_set and sampler.seed is not None


def _plain(indices: list[Any]) -> list[Any]:
    """Return indices as Python integers where they were NumPy's, for JSON."""
    return [operator.index(each) if hasattr(each, "__index__") else each for each in indices]


def _unknown(last_batch: object) -> ConfigError:
    return ConfigError(
        "last_batch must be one of 'keep', 'discard', or 'rollover', but got"
        f" {last_batch}. Pass one of them"
    )
