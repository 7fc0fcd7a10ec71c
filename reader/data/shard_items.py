"""Divide a stream or a sequence into shards: each item is in exactly one of them.

Imports `reader.data.iterable` and `reader.errors`. Nothing here knows of workers or ranks: the
caller says how many shards there are and which one it wants, and may split that one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import Any

from reader.data.iterable import is_iterable_dataset
from reader.errors import ConfigError, ConfigTypeError, got

__all__ = ["check_items", "is_indexed", "items_at", "shard_items", "shard_positions"]


def shard_positions(positions: range, num_shards: int, index: int, contiguous: bool) -> range:
    """Return the `index`-th of `num_shards` shards of `positions`.

    The shards differ in length by one at most, the first ones are the longer ones, and some are
    empty where there are fewer positions than shards.

    Args:
        positions: the positions to divide.
        num_shards: how many shards, 1 or more.
        index: which of them, from 0.
        contiguous: divide into runs; else round robin.

    >>> [list(shard_positions(range(5), 2, index, contiguous=False)) for index in range(2)]
    [[0, 2, 4], [1, 3]]
    >>> [list(shard_positions(range(5), 2, index, contiguous=True)) for index in range(2)]
    [[0, 1, 2], [3, 4]]
    """
    if not contiguous:
        return positions[index::num_shards]
    least, longer = divmod(len(positions), num_shards)
    start = index * least + min(index, longer)
    return positions[start : start + least + (index < longer)]


def shard_items(items: Any, splits: Iterable[tuple[int, int]], contiguous: bool) -> Iterator[Any]:
    """Yield the items of one shard, in their order.

    What has a length and `__getitem__` is indexed, so that the items of other shards are not even
    read; anything else, mappings included, is iterated over, and the others' items are skipped.

    Args:
        items: a sequence, a map-style dataset or an iterable.
        splits: (num_shards, index) of each split, applied one after the other: a split into 3, and
            of the resulting shard into 2, makes 6 shards.
        contiguous: divide into runs of items; needs a length.
    """
    if is_indexed(items):
        positions = range(len(items))
        for num_shards, index in splits:
            positions = shard_positions(positions, num_shards, index, contiguous)
        for position in positions:
            yield items[position]
        return
    chosen = iter(items)
    if not contiguous:
        for num_shards, index in splits:
            chosen = islice(chosen, index, None, num_shards)
        yield from chosen
        return
    positions = range(len(items))
    for num_shards, index in splits:
        positions = shard_positions(positions, num_shards, index, contiguous)
    yield from islice(chosen, positions.start, positions.stop)


def items_at(items: Any, positions: Iterable[range]) -> Iterator[Any]:
    """Yield the items at some ascending positions; positions past the end are ignored.

    Args:
        items: a sequence, a map-style dataset or an iterable.
        positions: ranges in ascending order, each past the end of the one before.
    """
    if is_indexed(items):
        count = len(items)
        for each in positions:
            for position in range(each.start, min(each.stop, count), each.step):
                yield items[position]
        return
    chosen, at = iter(items), 0
    for each in positions:
        stop = each[-1] + 1
        yield from islice(chosen, each.start - at, stop - at, each.step)
        at = stop


def check_items(items: Any, contiguous: bool) -> None:
    """Refuse what `shard_items` cannot divide into shards."""
    if isinstance(items, type) or not (is_indexed(items) or hasattr(type(items), "__iter__")):
        raise ConfigTypeError(
            f"shard() takes a sequence or an iterable, got {got(items)}. Pass what holds or yields"
            " the items."
        )
    if contiguous and not isinstance(items, Sized):
        raise ConfigError(
            f"contiguous=True divides the items into runs and needs their number, got"
            f" {got(items)} without __len__. Pass a sequence, or contiguous=False."
        )


def is_indexed(items: Any) -> bool:
    """Say whether the items have positions; those of a mapping have keys instead."""
    if is_iterable_dataset(items):
        return False
    kind = type(items)
    by_index = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    return by_index and not hasattr(kind, "keys")
