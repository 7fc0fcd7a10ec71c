"""Opens epochs: puts tasks, pool, adapters and places together into the iterator that a user gets.

Imports config, promises, frameworks and the parts of this room. An opener belongs to one loader; it
keeps no state of its own between epochs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from reader._core.tensor_array import LoDTensorArray
from reader.config import LoaderConfig
from reader.data import NoBatching
from reader.data.batch_sampler import count_of
from reader.data.epochs import Mark, carried_epochs, epoch_marks
from reader.data.order import Order
from reader.data.order_log import Position
from reader.data.sampler import SeededSampler
from reader.feed.dispatcher import Circle, Dispatcher
from reader.feed.groups import Group, PlaceGroups
from reader.feed.inline import InlineIterator
from reader.feed.iterator import EpochIterator, EpochOptions
from reader.feed.keeper import PoolKeeper, worker_config
from reader.feed.parts import Parts
from reader.feed.progress import Progress
from reader.feed.stream import StreamIterator
from reader.feed.wait_stats import WaitStats
from reader.feed.window import MAX_LAG
from reader.frameworks import make_adapters
from reader.promises import Promises
from reader.workers.told import Told

__all__ = ["EpochOpener", "Start"]

Convert = Callable[[LoDTensorArray], Any]


@dataclasses.dataclass(frozen=True)
class Start:
    """Where in an epoch an iterator begins.

    `at`: what was delivered before; `order`: the state of the order, None to begin it; `parts`: of
    the workers, None where nothing is known of them; `turn`: whose turn it is; `passed`: batches
    beyond `at` that were delivered as well.
    """

    base_seed: int
    at: Position = Position(0, 0)  # noqa: RUF009
    order: dict[str, Any] | None = None
    parts: Parts | None = None
    turn: int | None = None
    passed: tuple[int, ...] = ()
    is_resumed: bool = False  # workers are to be told of their parts


class EpochOpener:
    """Makes the iterators of a loader.

    Args:
        config: the loader's options.
        promises: its facade's ways.
        keeper: lends the pools.
        stats: counted up by every iterator.
        base_seed: what workers are given to key `sample_rng` by.
    """

    def __init__(
        self,
        config: LoaderConfig,
        promises: Promises,
        keeper: PoolKeeper,
        stats: WaitStats,
        base_seed: int,
    ) -> None:
        self._base_seed = base_seed
        self._config = config
        self._promises = promises
        self._keeper = keeper
        self._stats = stats
        self._workers = max(1, config.num_workers)
        self._circle = self._make_circle(0)

    def open(
        self,
        epoch: int,
        dataset: Any,
        sampler: Any,
        batch_sampler: Any,
        on_end: Callable[[], None] | None,
        start: Start,
    ) -> EpochIterator | PlaceGroups | InlineIterator:
        """Begin an epoch: its first batches are being made when this returns.

        Args:
            epoch: its number.
            dataset: the loader's.
            sampler: the loader's, None with a batch sampler of the user.
            batch_sampler: the loader's, None without batching and for an iterable dataset.
            on_end: called when the last batch was delivered.
            start: where in the epoch.
        """
        config = self._config
        batches = NoBatching(sampler) if batch_sampler is None and sampler is not None else None
        batches = batch_sampler if batches is None else batches
        is_told = config.persistent_workers and not config.uses_threads  # who has a copy
        options = EpochOptions(
            epoch=epoch,
            timeout_s=config.timeout_s,
            worker_retries=config.worker_retries,
            # the global random state is swapped in while the consumer waits, and only then
            is_eager=not config.swaps_random_state,
            told=self._telling(epoch_marks(dataset, epoch) if is_told else [], start),
            on_end=on_end,
            length=None if config.is_iterable else functools.partial(count_of, batch_sampler),
            error_text=self._promises.error_text if config.num_workers else "",
            reword=self._promises.reword,
            in_order=config.in_order,
            tells_deaths=self._promises.tells_deaths and config.worker_retries == 0,
        )
        converts = [self._in_steps(adapter) for adapter in self._adapters()]
        progress = self._progress(epoch, start, dataset, sampler, batch_sampler)
        for each in (sampler, getattr(batch_sampler, "sampler", None)):
            if isinstance(each, SeededSampler) and not each.counts_epochs:
                each.set_epoch(epoch)
        if self._promises.is_inline and config.num_workers == 0:
            return self._open_inline(batches, dataset, options, start, progress)
        group = Group(converts, progress)
        convert = converts[0] if len(converts) == 1 else group.add
        if config.is_iterable:
            made: EpochIterator = StreamIterator(
                self._keeper, self._workers, convert, options, self._stats, progress
            )
        else:
            make_source = functools.partial(
                self._make_source, batches, dataset, start, progress, not options.is_eager
            )
            made = EpochIterator(self._keeper, make_source, convert, options, self._stats, progress)
        if len(converts) == 1:
            return made
        return PlaceGroups(made, group, config.drop_last_group)

    def _open_inline(
        self, batches: Any, dataset: Any, options: EpochOptions, start: Start, progress: Progress
    ) -> InlineIterator:
        config = self._config
        made = worker_config(config, self._promises, dataset, self._base_seed)

        def begin() -> tuple[Any, Order]:
            order = Order(batches, config.snapshot_every_n_steps or 0, 1, True)
            return order.begin(start.order, start.at), order

        is_batched = config.batch_size is not None
        order = None if config.is_iterable else begin
        return InlineIterator(made, order, options, self._stats, progress, is_batched)

    def _progress(
        self, epoch: int, start: Start, dataset: Any, sampler: Any, batch_sampler: Any
    ) -> Progress:
        carriers = carried_epochs(dataset=dataset, batch_sampler=batch_sampler, sampler=sampler)
        turn = None
        if self._promises.is_round_robin and not self._config.is_iterable:
            # a circle that goes on deals to where the last epoch left off, as in Paddle: the random
            # numbers of workers that stay go on as well
            if start.turn is not None:
                self._circle = self._make_circle(start.turn % self._workers)
            elif self._promises.restarts_circle or not self._config.persistent_workers:
                self._circle = self._make_circle(0)
            turn = self._circle.turn
        made = Progress(epoch, start.at, start.parts, carriers, turn)
        made.passed = start.passed
        return made

    def _make_circle(self, turn: int) -> Circle:
        return Circle(self._workers, turn, self._config.prefetch_factor)

    def _telling(self, marks: list[Mark], start: Start) -> Callable[[int], Told] | None:
        """What tells a worker how to begin; None when it knows."""
        parts, base_seed = start.parts, start.base_seed
        if not start.is_resumed:
            if not marks and base_seed == self._base_seed:
                return None
            return lambda _: Told(marks, base_seed)
        return lambda worker: Told(marks, base_seed, None if parts is None else parts.told(worker))

    def _make_source(
        self, batches: Any, dataset: Any, start: Start, progress: Progress, is_lazy: bool
    ) -> Dispatcher:
        config = self._config
        depth = config.window + 2 + len(config.places) if config.in_order else MAX_LAG + 2
        order = Order(batches, config.snapshot_every_n_steps or 0, depth, is_lazy)
        drawn = order.begin(start.order, start.at)
        progress.log = order.log
        dispatcher = Dispatcher(
            drawn,
            dataset,
            config.batch_size is not None,
            self._circle if self._promises.is_round_robin else None,
            self._promises.takes_any_key,
            order.note,
            start.at.batches,
        )
        if is_lazy:
            progress.ask_first(dispatcher.settle)
        return dispatcher

    def _adapters(self) -> list[Convert]:
        config = self._config
        if self._promises.adapter is not None:
            return [self._promises.adapter] * len(config.places)
        return make_adapters(config.framework, config.feed_list, config.return_list, config.places)

    def _in_steps(self, convert: Convert) -> Convert:
        """An adapter with what comes before it."""
        is_private = self._config.num_workers > 0 and not self._config.use_shared_memory
        if self._promises.is_plain and is_private:
            return lambda batch: convert(batch.private_copy().plain_containers())
        if self._promises.is_plain:
            return lambda batch: convert(batch.plain_containers())
        if is_private:
            return lambda batch: convert(batch.private_copy())
        return convert
