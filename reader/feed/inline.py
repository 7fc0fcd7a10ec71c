"""The iterator over one epoch that makes each batch in the caller's thread, when it is asked for.

Imports the worker's fetchers and this room's progress. It is what a facade promises for
`num_workers=0`: no thread, no arena, and a batch is the very object that `collate_fn` returned.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from reader._core.channel import TaskKind, encode_task
from reader.data.failure import as_user_error, with_context
from reader.data.order import Order
from reader.data.seeds import captured_random_state
from reader.errors import shown
from reader.feed.parts import Parts
from reader.feed.progress import Progress
from reader.feed.trouble import EpochOptions
from reader.feed.wait_stats import WaitStats
from reader.workers import context, loop
from reader.workers.random_turns import RandomTurns
from reader.workers.stream import StreamFetcher
from reader.workers.told import open_told

__all__ = ["InlineIterator", "LocalChannel"]

_RUN = 1


class LocalChannel:
    """What a fetcher has for a channel where nothing is sent: it keeps what it is given."""

    def __init__(self) -> None:
        self.run = _RUN
        self.seq = 0
        self.position = -1
        self.is_stale = False
        self.drew_all = False
        self._attachment: Callable[[], Any] | None = None
        self.forget()

    def forget(self) -> None:
        """Be ready for the next batch."""
        self.batch: Any = None
        self.attached: Any = None
        self.is_end = False

    def set_attachment(self, make: Callable[[], Any] | None) -> None:
        """See WorkerChannel."""
        self._attachment = make

    def write(self, batch: Any) -> None:
        """Keep a batch."""
        self.attached = None if self._attachment is None else self._attachment()
        self.batch = batch

    def end(self, attached: Any = None) -> None:
        """There are no more."""
        self.attached = attached
        self.is_end = True


class InlineIterator(Iterator[Any]):
    """Yields the batches of one epoch, made by the thread that calls `next`.

    An exception takes the place of its batch, and iterating goes on behind it. Ctrl-C loses
    nothing: the batch it came in is made again.

    Args:
        config: what a worker would be given; with a `collate_fn`.
        begin_order: begins the order of a map-style dataset: returns lists of keys, and the Order;
            None for an iterable dataset.
        options: see EpochOptions.
        stats: counted up while iterating.
        progress: told what was delivered.
        is_batched: False when each list of keys holds one that is a batch by itself.
    """

    def __init__(
        self,
        config: loop.WorkerConfig,
        begin_order: Callable[[], tuple[Iterator[Any], Order]] | None,
        options: EpochOptions,
        stats: WaitStats,
        progress: Progress,
        is_batched: bool,
    ) -> None:
        self.progress = progress
        self.is_usable = True
        self._config = config
        self._options = options
        self._stats = stats
        self._is_batched = is_batched
        self._channel: Any = LocalChannel()
        self._turns = RandomTurns()
        self._fetcher = loop.make_fetcher(config, 0)
        self._base_seed = config.base_seed
        self._drawn: Iterator[Any] = iter(())
        self._note: Any = None
        self._order: Order | None = None
        if begin_order is not None:
            self._drawn, self._order = begin_order()
            self._note = self._order.note
        self._keys: list[Any] | None = None  # of the batch that is next, once drawn
        self._refusal: BaseException | None = None  # what the sampler raised when it was settled
        progress.ask_first(self.settle)
        self._trouble: BaseException | None = None  # of load_state_dict, told in the first place
        parts = progress.parts
        self._is_used_up = config.stream is not None and parts is not None and parts.all[0].is_ended
        if options.told is not None:
            self._tell()
        if parts is not None and not parts.all[0].made and not self._is_used_up:
            self._enter(parts)

    def _tell(self) -> None:
        told = self._options.told(0) if self._options.told is not None else None
        if told is None:
            return
        self._base_seed = told.base_seed
        put_own_back = captured_random_state() if self._seeds_globals else None
        try:
            self._fetcher.tell(_RUN, open_told(told, self._config.dataset))
            if self._is_used_up and isinstance(self._fetcher, StreamFetcher):
                self._fetcher.pass_end()
        except Exception as error:
            self._trouble = error
        finally:
            if put_own_back is not None:  # a state may set the random state: each batch has its own
                put_own_back()

    def _enter(self, parts: Parts) -> None:
        """Begin the epoch of the dataset, and keep the state that it has then."""
        if self._trouble is not None or (self._config.stream is not None and self._seeds_globals):
            return  # seeded: `__iter__` is called in the turn of the first batch
        try:
            found = self._fetcher.enter(_RUN)
        except Exception as error:
            self._trouble = error
            return
        if found is not None:
            parts.note(found)

    @property
    def _seeds_globals(self) -> bool:
        return self._config.seed is not None and self._config.seed_globals

    def __len__(self) -> int:
        """The number of batches of the whole epoch."""
        return 0 if self._options.length is None else self._options.length()

    def close(self) -> None:
        """End the epoch here. Idempotent."""
        self.is_usable = False

    def __next__(self) -> Any:
        if not self.is_usable:
            raise StopIteration
        stream = self._fetcher if isinstance(self._fetcher, StreamFetcher) else None
        if stream is None and self._keys is None:
            self._draw()
        if self._is_used_up:
            self._finish(None)
        channel = self._channel
        channel.forget()
        number = self.progress.batches if stream is None else stream.number(_RUN)
        channel.seq = number
        try:
            context.enter_task(self._base_seed, self._options.epoch)
            self._raise_trouble()
            self._turns.ask()
            if stream is not None:
                stream.reseed = loop.reseeding(self._config, self._options.epoch, None)
            with loop.seeded(self._config, self._options.epoch, number, None, self._turns):
                self._fetcher.make(channel, *self._task())
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            drawn = 0 if stream is None else stream.drawn_by_failure(channel)
            where = self._where(number)
            self._count(None, drawn)
            told = as_user_error(with_context(error, where=where, traceback_text=""))
            try:
                if told is error:
                    raise
                raise told from error
            finally:
                del told  # a local of a frame in its traceback would keep it, and this iterator
        if channel.is_end:
            self._finish(channel.attached)
        self._count(channel.attached)
        self._stats.batches += 1
        return channel.batch

    def settle(self) -> None:
        """Draw the first batch's keys, so that a state can tell the order.

        What the sampler raises waits for `next`.
        """
        if self._order is None or self.progress.log is not None or self._refusal is not None:
            return
        try:
            self._draw_keys()
        except BaseException as error:
            self._refusal = error
            if not isinstance(error, Exception):
                raise

    def _draw(self) -> None:
        refusal, self._refusal = self._refusal, None
        try:
            if refusal is not None:
                raise refusal
            self._draw_keys()
        except StopIteration:
            self._finish(None)

    def _draw_keys(self) -> None:
        try:
            keys = next(self._drawn)
        except StopIteration:
            self._note_log()
            raise
        self._keys = keys if type(keys) is list else list(keys)
        self._note_log()
        if self._note is not None:
            kind, payload = int(TaskKind.TASK_KEYS), b""
            with suppress(pickle.PicklingError, TypeError, AttributeError, ValueError):
                key = self._keys if self._is_batched else self._keys[0]
                kind, payload = encode_task(key, self._is_batched, True)
            self._note = self._note(kind, payload)

    def _note_log(self) -> None:
        if self._order is not None:
            self.progress.log = self._order.log  # not before: nothing of it may be drawn

    def _task(self) -> tuple[int, Any]:
        if self._keys is None:
            return TaskKind.TASK_NEXT, None
        if self._is_batched:
            return TaskKind.TASK_KEYS, self._keys
        return TaskKind.TASK_KEY, self._keys[0]

    def _raise_trouble(self) -> None:
        trouble, self._trouble = self._trouble, None
        try:
            if trouble is not None:
                raise trouble
        finally:
            del trouble

    def _where(self, number: int) -> str:
        place = f"batch {number} of epoch {self._options.epoch}"
        keys = "" if self._keys is None else f", dataset indices {shown(self._keys)}"
        return f"{place}{keys}, by the thread that iterates (num_workers=0)"

    def _count(self, snapshot: Any, drawn: int | None = None) -> None:
        """A batch was delivered, or an exception for which so many samples were drawn."""
        parts = self.progress.parts
        if self._keys is not None:
            self._keys = None
            self.progress.advance()
            if parts is not None and snapshot is not None:
                parts.note(snapshot)
        elif parts is not None and drawn is not None:
            parts.count_failure(0, drawn)
        elif parts is not None:
            parts.count(0, snapshot)

    def _finish(self, snapshot: Any) -> None:
        self.is_usable = False
        if self.progress.parts is not None and self._config.stream is not None:
            self.progress.parts.end(0, snapshot)
        self.progress.is_finished = True
        raise StopIteration
