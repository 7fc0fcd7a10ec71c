"""One task of a worker on an iterable dataset: the next batch of its own copy.

Imports the channel's task kinds and worker states. A StreamFetcher belongs to one worker and is
used in its main thread; the dataset and the functions in it are the user's.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import Any

from reader._core.interpreter.signals import is_interrupt
from reader._core.wire.channel import TaskKind, WorkerChannel
from reader.data.iterable import is_dead
from reader.errors import ArenaFull, DatasetError, StateError
from reader.worker.bad_sample import BadSample, Tolerance
from reader.worker.drawn_batch import DrawnBatch, SnapshotTaker
from reader.worker.shard_tracker import ShardTracker, track_shards
from reader.worker.tolerant_iterator import TolerantIterator
from reader.worker.worker_state import WorkerSnapshot, WorkerState, put_rng

__all__ = ["Stream", "StreamFetcher"]

_END = object()


@dataclasses.dataclass(frozen=True)
class Stream:
    """How the samples of an iterable dataset become batches."""

    batch_size: int | None  # None: each item is a batch by itself
    drop_last: bool  # leave out each worker's last batch when it is short


class _Phase(enum.Enum):
    """The state of the dataset's iterator in an epoch."""

    NEW = "not made yet"
    OPEN = "made; exhausted if `_samples` is None"
    BROKEN = "ended by an exception of the user's generator; an error must say so"
    END_SENT = "exhausted, and the trainer knows"


class _Restored(enum.Enum):
    """Whether a state was loaded into the dataset, and what happened since."""

    NO = "no state, or it has yielded samples"
    LOADED = "not iterated over since"
    STALE = "iterated over; the state may be that of the end of the previous epoch"
    ITERATED_AGAIN = "iterated over a second time, because the first yielded nothing"


class StreamFetcher:
    """Draws samples, collates them and hands the batch to the channel.

    Args:
        dataset: anything with `__iter__`, called when an epoch's first batch is due.
        collate_fn: called with the list of samples of a batch, or with one sample without batching;
            None stacks the samples in place.
        stream: see Stream.
        is_shared: other threads iterate over the same dataset.
        worker: (this worker, how many workers there are).
        snapshots: takes the states that are sent with batches; None: no states are sent.
        is_inline: whether Ctrl-C may come anywhere, and the same task is done again then: samples
            are drawn first, and kept.
        tolerance: treatment of draws that fail; None: their exceptions are answers.
    """

    is_stateless = False

    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[Any], Any] | None,
        stream: Stream,
        is_shared: bool = False,
        worker: tuple[int, int] = (0, 1),
        snapshots: WorkerState | None = None,
        is_inline: bool = False,
        tolerance: Tolerance | None = None,
    ) -> None:
        self.dataset = dataset
        self.collate_fn = collate_fn
        self.stream = stream
        self._tolerance = tolerance
        self._tolerant: TolerantIterator | None = None  # around the dataset's iterator
        self._is_shared = is_shared
        self._worker = worker
        self._snapshots = snapshots or WorkerState(worker[0], dataset, 0, False, is_shared)
        self.reseed: Callable[[int], None] | None = None  # called with the number of a batch
        self.row = -1  # the current sample; -1: none in particular
        self.is_stacking = False  # whether the channel knows the current sample
        self.one_by_one = True
        self._run: int | None = None  # the attempt at an epoch that the iterator belongs to
        self._phase = _Phase.NEW
        self._restored = _Restored.NO
        self._samples: Iterator[Any] | None = None  # None when exhausted
        self._made = 0  # batches of this epoch, errors too
        self._cursor: dict[str, Any] = {}  # where to resume; empty once the iterator is made
        self._given: tuple[int, dict[str, Any]] = (-1, {})  # (run, its cursor)
        self._is_drawing = False  # samples are being drawn for the current batch
        self._is_short = False  # the current batch is the last one
        self._drawn = 0  # samples in all batches before the current one
        self._drawn_now = 0  # samples in the current one
        self._tracker = ShardTracker(None)
        # the shares last sent to the trainer; {}: none yet; None: unknown
        self._sent_shares: dict[str, Any] | None = {}
        self._no_memory: dict[int, DrawnBatch] = {}  # batch number -> the samples drawn for it
        self._is_inline = is_inline
        self._newest = DrawnBatch([])  # inline: of the current task

    def resume(self, run: int, cursor: dict[str, Any]) -> None:
        """Resume at `cursor` in `run`. Raises what the user's code raises."""
        self._given = (run, cursor)
        self._snapshots.restore(cursor)
        if "dataset" in cursor:
            self._restored = _Restored.LOADED

    def begin_epoch(self, run: int) -> WorkerSnapshot | None:
        """Make the iterator now; returns the state before the first batch, if states are kept."""
        self._begin(run)
        before = track_shards(None)
        try:
            self._open()
        finally:
            if self._is_inline:
                track_shards(before)
        return self._snapshots.first()

    def fetch_one_by_one(self) -> None:
        """Do nothing: samples are always drawn one by one."""

    def leave_sample(self) -> None:
        """Be at no sample in particular."""
        self.row = -1
        self.is_stacking = False

    def pass_end(self) -> None:
        """Exhaust a dataset that was restored at its end; otherwise its next epoch may be empty."""
        if self._restored is _Restored.LOADED and next(iter(self.dataset), _END) is not _END:
            self._snapshots.restore(self._given[1])  # the state was that of a fresh start

    def stop(self, run: int) -> None:
        """Yield nothing more in this attempt at an epoch."""
        self._begin(run)
        self._phase = _Phase.OPEN
        self._samples = None

    def number(self, run: int, seq: int = -1) -> int:
        """Return the next batch's number, unique in the epoch whichever workers have ended.

        `seq`: the number of its task. Each step may be done twice.
        """
        self._begin(run)
        if self._is_inline:
            # a task begins, or is done again: keep only the samples drawn for it
            newest = self._newest
            if newest.task == (run, seq):
                self._made, self._drawn, self._drawn_now, self._sent_shares = newest.counts
            else:
                counts = (self._made, self._drawn, self._drawn_now, self._sent_shares)
                self._newest = DrawnBatch([], task=(run, seq), counts=counts)
        worker_id, workers = self._worker
        return self._made * workers + worker_id

    def _begin(self, run: int) -> None:
        if self._run == run:
            return
        self._run = run
        self._no_memory.clear()
        self._samples = None  # free an unfinished iterator before the next one is made
        self._snapshots.follow(None)
        self._cursor = self._given[1] if self._given[0] == run else {}
        self._made = self._cursor.get("made", 0)
        self._phase = _Phase.NEW
        self._drawn = self._drawn_now = 0
        self._sent_shares = {}

    def make(self, channel: WorkerChannel, kind: int, keys: Any) -> None:
        """Make the next batch and send it, or the end. Raises whatever the user's code raises."""
        self.row = -1
        self.is_stacking = self._is_drawing = False
        self._begin(channel.run)
        number = channel.seq
        if kind == TaskKind.TASK_AGAIN:
            number = keys
            drawn = self._no_memory[keys]
        else:
            drawn = self._newest if self._is_inline else DrawnBatch([])
        # without workers, other iterators may work in this thread
        before = track_shards(self._tracker) if self._is_inline else None
        try:
            if kind == TaskKind.TASK_AGAIN:
                self._send(channel, drawn)
            else:
                self._next(channel, drawn)
        except ArenaFull:
            self._no_memory[number] = drawn
            if drawn.snapshot is not None and not drawn.is_end:
                drawn.snapshot()  # taken now: later the dataset has moved on
            raise
        finally:
            if self._is_inline:
                track_shards(before)
        if kind == TaskKind.TASK_AGAIN:
            self._no_memory.pop(keys, None)

    def take_bad(self) -> tuple[BadSample, ...]:
        """Return the draws that failed since the last batch, if failures are tolerated."""
        return () if self._tolerant is None else self._tolerant.take_bad()

    def _follow(self, samples: Iterator[Any]) -> None:
        """Draw from an iterator of the dataset from now on."""
        if self._tolerance is None:
            self._samples = samples
        else:
            replaces = self._tolerance.replaces
            self._samples = self._tolerant = TolerantIterator(samples, replaces, self._is_inline)

    def _is_dead(self) -> bool:
        """Whether the dataset's iterator is a generator that has ended."""
        return is_dead(self._samples if self._tolerant is None else self._tolerant.source)

    def drawn_by_failure(self, channel: WorkerChannel) -> int:
        """How many samples were drawn for the batch that has just failed."""
        size = self.stream.batch_size or 1
        if not self._is_drawing:
            return 0
        if self.is_stacking:
            return size if channel.drew_all else channel.row + 1
        return size if self.row < 0 else self.row + 1

    def _next(self, channel: WorkerChannel, drawn: DrawnBatch) -> None:
        if self._phase is _Phase.NEW:
            self._open()
        if self._phase is _Phase.BROKEN:
            self._raise_broken()
        made, self._made = self._made, self._made + 1
        is_due = self._snapshots.is_due(made)
        self._is_short = False
        self._drawn += self._drawn_now
        self._drawn_now = 0
        is_asked = is_due or self._sent_shares is not None or self._tolerance is not None
        drawn.snapshot = SnapshotTaker(self.snapshot, channel, is_due) if is_asked else None
        channel.set_attachment(drawn.snapshot)
        if self._samples is None and not drawn.samples and not drawn.made:
            self._send_end(channel, drawn)
            return
        self._is_drawing = True
        try:
            is_stacked = self.collate_fn is None and self.stream.batch_size is not None
            if is_stacked and not self._is_inline:
                self._stack(channel, drawn)
            else:
                self._collate(channel, drawn)
        except ArenaFull:
            raise
        except BaseException:
            is_drawing = not (self.is_stacking and channel.drew_all)
            self._drawn_now = self.drawn_by_failure(channel)
            if is_drawing and self._is_dead():
                self._phase = _Phase.BROKEN
            raise

    def _raise_broken(self) -> None:
        """Raise once that the user's generator cannot continue; the next answer is the end."""
        self._phase = _Phase.OPEN
        self._samples = None
        self._made += 1
        raise DatasetError(
            f"the exception raised before has ended the generator of {type(self.dataset).__name__},"
            " which cannot continue: the remaining samples of worker"
            f" {self._worker[0]} in this epoch are lost. Catch exceptions inside the generator, or"
            " let __iter__ return an object whose __next__ can be called again after an exception"
        )

    def snapshot(self, channel: WorkerChannel, is_due: bool) -> WorkerSnapshot | None:
        """Return the snapshot to send with a batch, once all its samples are drawn."""
        is_used_up = self._is_short or (self.is_stacking and channel.ran_out)
        self._drawn_now = self.stream.batch_size or 1
        is_news, shares = self._share_news(is_used_up)
        bad = self.take_bad()
        news = (is_news, shares, bad, self._tracker.division if is_news else None)
        if not is_due:
            if not is_news and not bad:
                return None
            return WorkerSnapshot(self._worker[0], is_used_up, False, None, *news)
        return WorkerSnapshot(*self._snapshots.take(is_used_up)[:4], *news)

    def _share_news(self, is_used_up: bool) -> tuple[bool, dict[str, Any] | None]:
        """Return whether `_sent_shares` has changed, and its current value."""
        if self._tracker.left is not None:
            raise StateError(
                f"the state was saved while reader.shard divided the items of"
                f" {type(self.dataset).__name__} over another number of workers, and its __iter__"
                " does not call reader.shard now: load the state with the dataset it was saved with"
            )
        found: dict[str, Any] | None = None
        share = None if self._snapshots.has_state else self._tracker.only_share
        # otherwise __iter__ buffers, drops or multiplies items: their count is no position
        if share and (is_used_up or share.taken == self._drawn + self._drawn_now):
            found = share.to_json() if self._sent_shares == {} else self._sent_shares
        is_news = found != self._sent_shares
        self._sent_shares = found
        return is_news, found

    def _send_end(self, channel: WorkerChannel, drawn: DrawnBatch) -> None:
        """Report that this copy is exhausted; the first time with its last state."""
        drawn.is_end = True
        self._samples = None
        bad = self.take_bad()
        if self._snapshots.is_wanted and self._phase is not _Phase.END_SENT:
            channel.send_end(self._snapshots.take(True)._replace(bad=bad))
        elif bad:
            channel.send_end(WorkerSnapshot(self._worker[0], True, False, None, bad=bad))
        else:
            channel.send_end()
        self._phase = _Phase.END_SENT

    def _stack(self, channel: WorkerChannel, drawn: DrawnBatch) -> None:
        """Draw samples straight into the slot."""
        source, size = self._samples, self.stream.batch_size
        if source is None or size is None:
            return
        self.is_stacking = True
        try:
            is_sent = channel.stream(source, size, self.stream.drop_last)
            is_empty = not is_sent and self._restored is not _Restored.NO and channel.row == 0
            if is_empty and self._iterate_again():
                self._stack(channel, drawn)
            elif not is_sent:
                self._send_end(channel, drawn)
        except ArenaFull:
            if not drawn.is_end:
                drawn.samples = channel.take_drawn()
                if not channel.ran_out:
                    self._draw(channel, drawn.samples, size)
                if len(drawn.samples) < size:
                    self._samples = None
                    self._is_short = True
            raise
        finally:
            if channel.ran_out:  # an iterator called again may start over
                self._samples = None

    def _collate(self, channel: WorkerChannel, drawn: DrawnBatch) -> None:
        if drawn.made:  # a signal came after it was made
            self._is_short = self._samples is None
        else:
            self._make_of_samples(channel, drawn)
        if drawn.made:
            channel.write_from(drawn.made)

    def _make_of_samples(self, channel: WorkerChannel, drawn: DrawnBatch) -> None:
        """Draw samples and make the batch of them, unless the channel has an answer already."""
        size, samples = self.stream.batch_size, drawn.samples
        most = 1 if size is None else size
        self._draw(channel, samples, most)
        while not samples and not channel.is_stale and self._iterate_again():
            self._draw(channel, samples, most)
        if channel.is_stale:
            channel.skip()
            return
        short = len(samples) < most
        if not samples or (short and self.stream.drop_last):
            self._send_end(channel, drawn)
            return
        if short:
            self._is_short = True
            self._samples = None
        channel.note_fetched(len(samples))
        if self.collate_fn is None and size is not None:
            self.is_stacking = True
            channel.stack(samples, list(range(len(samples))), None)
            return
        if self.collate_fn is not None:
            drawn.made = [self.collate_fn(samples[0] if size is None else samples)]
        else:
            drawn.made = samples
        drawn.samples = []  # values that only the batch refers to are not copied: see LeafMaker

    def _draw(self, channel: WorkerChannel, samples: list[Any], count: int) -> None:
        if self._samples is None:
            return
        try:
            channel.draw(self._samples, count, samples)
        except BaseException:
            self.row = len(samples)
            raise

    def _send(self, channel: WorkerChannel, drawn: DrawnBatch) -> None:
        """Send a batch that the arena had no memory for before."""
        channel.set_attachment(drawn.snapshot)
        if drawn.made:
            channel.write_from(drawn.made)
        elif drawn.is_end or (
            self.stream.drop_last and len(drawn.samples) < (self.stream.batch_size or 1)
        ):
            self._send_end(channel, drawn)
        else:
            rows = list(range(len(drawn.samples)))
            channel.stack(drawn.samples, rows, None)

    def _open(self) -> None:
        """Make the iterator, and advance it to the cursor."""
        cursor = self._cursor
        try:
            self._make_samples(cursor)
        except BaseException as error:
            if self._is_inline and is_interrupt(error):
                self._phase, self._cursor = _Phase.NEW, cursor
            raise

    def _make_samples(self, cursor: dict[str, Any]) -> None:
        self._phase = _Phase.OPEN  # also if the user's code raises: then there are no samples
        self._cursor = {}
        is_stale = self._restored is _Restored.LOADED and not cursor.get("made")
        is_stale = is_stale and "iterator" not in cursor
        self._restored = _Restored.STALE if is_stale else _Restored.NO
        self._tracker = ShardTracker(cursor.get("left"), cursor.get("ranks"))
        track_shards(self._tracker)
        samples: Any = iter(self.dataset)
        if self._is_shared and samples is self.dataset:
            raise DatasetError(
                f"__iter__ of {type(self.dataset).__name__} returns the dataset itself, and the"
                " worker threads would draw from one iterator; make __iter__ a generator"
                " function, or pass worker_type='process' or num_workers=0"
            )
        self._snapshots.restore_iterator(samples, cursor)
        self._follow(samples)
        before, after = cursor.get("before", []), cursor.get("draws", [])
        number = self._made - sum(count for count, _ in [*before, *after])
        self._drawn = sum(count * size for count, size in [*before, *after])
        number = self._draw_delivered(before, number)
        put_rng(cursor)
        self._draw_delivered(after, number)
        if self.reseed is not None and (before or after or "iterator" in cursor):
            worker_id, workers = self._worker
            self.reseed(self._made * workers + worker_id)
        self.take_bad()  # they were reported with delivered batches

    def _iterate_again(self) -> bool:
        """Iterate again if nothing came and the state may be that of an epoch's end.

        Some datasets start every epoch at the loaded state: restore their initial state.
        """
        if self._made > 1:
            return False
        if self._restored is _Restored.STALE:
            self._restored = _Restored.ITERATED_AGAIN
        elif self._restored is _Restored.ITERATED_AGAIN:
            self._restored = _Restored.NO
            if not self._snapshots.refresh():
                return False
        else:
            return False
        if self.reseed is not None:
            self.reseed(self._worker[0])
        samples = iter(self.dataset)
        self._follow(samples)
        self._snapshots.follow(samples)
        return True

    def _draw_delivered(self, draws: list[list[int]], number: int) -> int:
        """Draw the delivered samples again. `draws`: [how many batches, samples drawn for each]."""
        worker_id, workers = self._worker
        for count, size in draws:
            for _ in range(count):
                if self._samples is None:
                    break
                if self.reseed is not None:
                    self.reseed(number * workers + worker_id)
                number += 1
                if size == 0:  # that was the error of a generator that cannot continue
                    self._phase = _Phase.OPEN
                    self._samples = None
                self._draw_again(size)
        return number

    def _draw_again(self, remaining: int) -> None:
        samples = self._samples
        while samples is not None and remaining > 0:
            try:
                while remaining > 0:
                    remaining -= 1
                    # not islice: it would call iter(), which may start over
                    if next(samples, _END) is _END:
                        self._samples = None
                        return
            except StateError:
                raise
            except Exception:  # it was raised before in place of its batch
                self._phase = _Phase.BROKEN if self._is_dead() else _Phase.OPEN
