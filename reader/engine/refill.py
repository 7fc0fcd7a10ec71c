"""Batches that lack samples which failed, filled up from the next one: they keep their size.

Imports the core's batches and the options. A Refill belongs to the iterator of one epoch.

The first batch that lacks samples takes the first rows of the batch behind it, which is then no
batch of its own any more: batches that lack samples later take its other rows, and what is left of
it at the end of the epoch is the last batch. So the samples stay in order but for those rows, none
is lost, and which go where follows from the order and from what failed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from reader._core.batch.tensor_array import LoDTensorArray
from reader.config import LoaderConfig

__all__ = ["Refill", "Spare", "is_spare", "refill_of", "rows_of"]


class Spare(NamedTuple):
    """What a saved state says of the batch whose rows are used up: enough to make it again.

    Attributes:
        batch: its number.
        keys: of the dataset, all that it was made of.
        used: how many of its rows are in other batches.
    """

    batch: int
    keys: list[Any]
    used: int

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return self._asdict()


class Refill:
    """The rows that are left of a batch, and the batch that is being filled with them.

    Args:
        drop_last: what is left at the end of the epoch is dropped.

    Attributes:
        is_short: a batch waits for more rows.
    """

    def __init__(self, drop_last: bool) -> None:
        self.drop_last = drop_last
        self.is_short = False
        self._parts: list[tuple[LoDTensorArray, int, int]] = []  # of the batch that is short
        self._needs = 0
        self._spare: LoDTensorArray | None = None
        self._about: Spare | None = None

    def put_spare(self, batch: LoDTensorArray, number: int, keys: list[Any], used: int = 0) -> None:
        """Take rows from a batch from now on."""
        self._spare, self._about = batch, Spare(number, keys, used)

    @property
    def spare(self) -> Spare | None:
        """What rows are taken from; None: nothing."""
        return self._about

    def begin(self, batch: LoDTensorArray, needs: int) -> None:
        """Fill up a batch that lacks so many samples."""
        self._parts, self._needs = [(batch, 0, rows_of(batch))], needs
        self.is_short = True

    def filled(self, is_end: bool = False) -> LoDTensorArray | None:
        """Return the batch with what it lacked; None: there are not enough rows yet.

        Args:
            is_end: no more rows come: it is returned with those there are.
        """
        spare, about = self._spare, self._about
        if spare is not None and about is not None:
            rows = rows_of(spare)
            count = min(self._needs, rows - about.used)
            self._parts.append((spare, about.used, about.used + count))
            self._needs -= count
            used = about.used + count
            is_left = used < rows
            self._spare = spare if is_left else None
            self._about = about._replace(used=used) if is_left else None
        if self._needs and not is_end:
            return None
        parts, self._parts, self.is_short = self._parts, [], False
        if len(parts) == 1:
            return parts[0][0]
        return LoDTensorArray.joined(parts) or parts[0][0]

    def fits(self, batch: Any) -> bool:
        """Whether rows of a batch could be put behind those of the one that is filled."""
        first = self._parts[0][0]
        if type(batch) is not LoDTensorArray:
            return False
        one = LoDTensorArray.joined([(first, 0, 1), (batch, 0, 1)])
        return one is not None

    def rest(self) -> LoDTensorArray | None:
        """Return what is left, as a batch; None: nothing is."""
        spare, about = self._spare, self._about
        self._spare = self._about = None
        if spare is None or about is None or self.drop_last:
            return None
        return LoDTensorArray.joined([(spare, about.used, rows_of(spare))])


def refill_of(config: LoaderConfig) -> Refill | None:
    """Return what fills up batches that lack samples; None: they stay short.

    Rows can be moved where the loader itself cuts the batches, and stacks their samples.
    """
    is_own = config.batch_sampler is None and config.batch_size is not None
    is_stacked = config.collate_fn is None and not config.is_iterable and config.in_order
    if config.on_error != "skip" or not is_own or not is_stacked or config.prefetch_next_epoch:
        return None
    return Refill(config.drop_last)


def is_spare(saved: Any) -> bool:
    """Whether a part of a state is what `to_json` returned, or None."""
    if saved is None:
        return True
    if not isinstance(saved, dict) or saved.keys() != set(Spare._fields):
        return False
    keys, numbers = saved["keys"], (saved["batch"], saved["used"])
    are_counts = all(type(number) is int and number >= 0 for number in numbers)
    return are_counts and isinstance(keys, list) and all(type(key) is int for key in keys)


def rows_of(batch: LoDTensorArray) -> int:
    """Return how many samples a stacked batch has."""
    fields: list[Any] = batch.storage_fields()
    return len(fields[0] if fields else batch.objects[0])
