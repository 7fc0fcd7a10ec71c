"""Divide the items of an iterable dataset among ranks and workers.

Imports `reader.checks`, `reader.data` for the ranks and the arithmetic, and `reader.worker.context`
to find the calling worker. Keeps no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import Any, Literal, Protocol, TypeVar

from reader.checks import as_bool
from reader.data.distributed_env import world_and_rank
from reader.data.remaining_ranges import RemainingRanges
from reader.data.shard_items import check_items, items_at, shard_items
from reader.errors import ConfigError, ConfigTypeError, got
from reader.worker.context import get_worker_info
from reader.worker.shard_tracker import begin_share

__all__ = ["shard"]

T_co = TypeVar("T_co", covariant=True)


class _Indexed(Protocol[T_co]):
    def __getitem__(self, index: int, /) -> T_co: ...
    def __len__(self) -> int: ...


def shard(
    items: Iterable[T_co] | _Indexed[T_co],
    *,
    rank: int | None = None,
    world_size: int | None = None,
    contiguous: bool = False,
    even: Literal["drop"] | None = None,
) -> Iterator[T_co]:
    """Yield this worker's share of `items`: each item goes to one worker of one rank.

    Call it in `IterableDataset.__iter__`, where the loader tells it the worker; in the trainer, and
    with `num_workers=0`, it yields the whole share of the rank. The shares of a rank's workers
    differ in length by at most one item and may be empty. So do the shares of ranks, which may have
    different numbers of workers. Ranks that take their steps together need equally many batches:
    see `even`.

    A loader may resume with another number of workers, or of ranks that ran in lockstep, if each
    item makes one sample, in order: then the remaining items are divided again.

    Args:
        items: a sequence or a map-style dataset, of which only this worker's items are read; or any
            other iterable, which each worker reads whole, skipping the items of others. All workers
            must see the same items in the same order.
        rank: the number of this process among those that train together, from 0. None: as the first
            of these says: Ray Train's context; torch.distributed, paddle.distributed or
            jax.distributed, where it is initialised; the environment, that is PADDLE_TRAINERS_NUM
            and PADDLE_TRAINER_ID, WORLD_SIZE and RANK, or those of MPI; otherwise 0 of 1. A loader
            asks in the trainer, and tells its workers. A warning names sources that contradict each
            other.
        world_size: how many processes train together, 1 or more. None: as for `rank`. If `items`
            are only this rank's already, or each rank should have all, pass rank 0 and world_size
            1.
        contiguous: False divides the items round robin: with `batch_size=None` the loader then
            delivers them in their order. True divides them into runs of neighbours, which may be
            cheaper to read together; `items` then needs a length.
        even: "drop": leave out the items that are over, fewer than there are workers in all ranks,
            so that all workers have equally many, and all ranks with as many workers equally many
            batches; `items` needs a length. None: leave out none. Ranks of streams of unknown
            length end together by `reader.EvenSteps`; without it a warning tells, once, that
            this rank has ended and others may have more.

    Raises:
        ConfigError: at once, for an invalid argument; if a launcher gives only one of the two
            numbers; and under srun, if nothing else says whether its tasks train together.

    >>> from reader import DataLoader, IterableDataset
    >>> class Letters(IterableDataset):
    ...     def __iter__(self):
    ...         return shard("abcde")
    >>> list(DataLoader(Letters(), batch_size=None, num_workers=2))
    ['a', 'b', 'c', 'd', 'e']
    >>> list(shard("abcde", rank=1, world_size=2))
    ['b', 'd']
    """
    contiguous = as_bool("contiguous", contiguous)
    of_rank = world_and_rank(world_size, rank, ("world_size", "rank"), may_be_alone=True)
    check_items(items, contiguous)
    if even is not None:
        _check_even(even, items)
    return _of_worker(items, of_rank, contiguous, even is not None)


def _check_even(even: object, items: Any) -> None:
    if even != "drop":
        kind = ConfigError if isinstance(even, str) else ConfigTypeError
        raise kind(
            f"even must be 'drop' or None, got {got(even)}. Samples that come twice, or are marked"
            " as padding, need a dataset with an index: see reader.Padded"
        )
    if not isinstance(items, Sized):
        raise ConfigError(
            f"even='drop' needs the number of items, got {got(items)} without __len__. Iterate over"
            " reader.EvenSteps(loader), whose ranks ask each other before each step"
        )


def _of_worker(
    items: Any, of_rank: tuple[int, int], contiguous: bool, is_even: bool
) -> Iterator[Any]:
    # Runs at the first item, in the worker, wherever shard() was called.
    worker = get_worker_info()
    of_worker = (1, 0) if worker is None else (worker.num_workers, worker.id)
    length = len(items) if isinstance(items, Sized) else None
    share = begin_share((of_rank, of_worker), contiguous, length)
    if share is not None and share.positions is not None:
        own = items_at(items, share.positions)
    else:
        own = shard_items(items, (of_rank, of_worker), contiguous)
    if length is not None:
        divided = RemainingRanges.whole() if share is None else share.divided
        each, over = divmod(divided.count(length), of_rank[0] * of_worker[0])
        if share is not None:
            share.is_even = is_even or not over
        if is_even:
            own = islice(own, each)
    yield from own if share is None else share.counted(own)
