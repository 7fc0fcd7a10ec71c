"""What an iterator raises in the place of a batch: which sample, batch, epoch and worker, and why.

Imports failures and the pool's word on deaths. Pure functions: they look at the pool and change
nothing; the iterator decides when to raise.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

from reader._core.feeder import Failure
from reader.data.exception_codec import add_note
from reader.data.failure import as_user_error, decode, traceback_text, with_context
from reader.errors import ArenaFull, DatasetError, LoadTimeout, ReaderError, WorkerDied, shown
from reader.workers.pool import Death, Pool, died
from reader.workers.told import Told

__all__ = ["EpochOptions", "closed", "drawn_by", "failed_start", "failure", "in_fork", "late"]


@dataclasses.dataclass(frozen=True)
class EpochOptions:
    """How one epoch is run."""

    epoch: int
    timeout_s: float | None
    worker_retries: int
    is_eager: bool  # False: a batch is asked for only while the consumer waits for it
    # what a worker is told before its first task, by its number; None: nothing
    told: Callable[[int], Told] | None = None
    on_end: Callable[[], None] | None = None  # called when the last batch was delivered
    length: Callable[[], int] | None = None  # how many batches there will be
    error_text: str = ""  # a facade's words for an exception: with {worker} and {type}
    # changes the text of a worker's exception: (exception, worker, traceback there) -> the new one
    reword: Callable[[BaseException, int, str], BaseException] | None = None
    in_order: bool = True  # False: batches are delivered as they come
    tells_deaths: bool = False  # a worker's death is raised even where it costs no batch


def late(
    pool: Pool, task_keys: Callable[[int], list[Any]], delivered: int, options: EpochOptions
) -> LoadTimeout:
    """A batch did not come in time. It still may: iterating on waits for it again."""
    at = []
    for worker in range(pool.workers):
        _, seq, row, seconds = pool.feeder.worker_progress(worker)
        if seq is None:
            at.append(f"{_name(pool, worker)} is idle")
        else:
            keys = task_keys(seq)
            sample = f" (dataset index {keys[row]!r})" if 0 <= row < len(keys) else ""
            at.append(
                f"{_name(pool, worker)} is at batch {seq}, sample {row}{sample} for {seconds:.1f} s"
            )
    return LoadTimeout(
        f"batch {delivered} of epoch {options.epoch} did not come within"
        f" timeout={options.timeout_s:g} s: {'; '.join(at)}. Iterate on to wait for it"
        " again, or raise timeout",
        timeout_s=options.timeout_s,
        batch=delivered,
        epoch=options.epoch,
    )


def failed_start(pool: Pool, item: Failure, options: EpochOptions) -> BaseException:
    """A worker could not start: the exception of its dataset or `worker_init_fn`."""
    exc, text, _ = _carried(pool, item.payload)
    where = f"the start of {_name(pool, item.worker)}, before epoch {options.epoch}"
    return _told(exc, item.worker, where, text, options)


def _told(
    exc: BaseException, worker: int, where: str, text: str, options: EpochOptions
) -> BaseException:
    """An exception of a worker as the user gets it."""
    error = as_user_error(exc)
    if options.reword is None:
        with_context(exc, where=where, traceback_text=text)
        return error
    error = options.reword(error, worker, text or traceback_text(exc))  # has the traceback
    return with_context(error, where=where, traceback_text="")


def failure(
    pool: Pool,
    item: Failure,
    indices: list[Any],
    deaths: list[Death],
    options: EpochOptions,
    number: int,
) -> BaseException:
    """The exception to raise in the place of a batch.

    `indices`: the dataset's, [] for an iterable one; `deaths`: the workers that died at it, for a
    batch that was given up; `number`: of the batch in its epoch.
    """
    epoch = options.epoch
    if item.kind == "full":
        return ArenaFull(
            f"no memory for batch {number} of epoch {epoch}: it needs {item.need_bytes:,}"
            f" bytes of shared memory, {item.have_bytes:,} are left and the limit is"
            f" {item.limit_bytes:,}. Lower batch_size, prefetch_factor or num_workers, keep"
            f" fewer batches alive, or raise {item.knob}",
            need_bytes=item.need_bytes,
            have_bytes=item.have_bytes,
            limit_bytes=item.limit_bytes,
            knob=item.knob,
        )
    if item.kind == "open":
        error = DatasetError(
            f"batch {number} of epoch {epoch} arrived and cannot be opened: {item.payload!r};"
            " an object in it does not survive pickling"
        )
        error.__cause__ = item.payload
        return error
    if item.kind == "lost":
        return _death(deaths, indices, epoch, number)
    exc, text, row = _carried(pool, item.payload)
    sample = ""
    if 0 <= row < len(indices):
        sample = f"dataset index {indices[row]!r} (sample {row} of the batch), "
    elif row >= 0 and not indices:
        sample = f"sample {row} of "
    where = f"{sample}batch {number} of epoch {epoch}, "
    where += f"dataset indices {shown(indices)}, by " if indices else "by "
    where += _name(pool, item.worker)
    if options.error_text:
        add_note(exc, options.error_text.format(worker=item.worker, type=type(exc).__name__))
    return _told(exc, item.worker, where, text, options)


def _name(pool: Pool, worker: int) -> str:
    if pool.num_workers == 0:
        return "the worker thread (num_workers=0)"
    if pool.is_thread:
        return f"worker thread {worker}"
    return f"worker {worker} (pid {pool.feeder.worker_progress(worker)[0]})"


def _death(deaths: list[Death], indices: list[Any], epoch: int, number: int) -> WorkerDied:
    last = deaths[-1]
    error = died(dataclasses.replace(last, busy=number), epoch, indices or None)
    if not indices:
        rest = f"The rest of what worker {last.worker_id} would have yielded in this epoch is lost"
        error.args = (f"{error} {rest} with it; the other workers go on.",)
    if len(deaths) > 1:
        pids = ", ".join(str(death.pid) for death in deaths)
        add_note(error, f"reader: {len(deaths)} workers died at this batch: pids {pids}")
    return error


def drawn_by(pool: Pool, item: Failure) -> int | None:
    """How many samples of an iterable dataset were drawn for a batch that failed; None: all."""
    if item.kind != "error":
        return None
    payload = item.payload if pool.is_thread else pickle.loads(item.payload)
    drawn: int = payload[3]
    return drawn


def _carried(pool: Pool, payload: Any) -> tuple[BaseException, str, int]:
    """Open what a worker sent: (exception, its traceback there, row of the sample or -1)."""
    if pool.is_thread:
        exc, text, row = payload[:3]
        return exc, text, row
    encoded, text, row = pickle.loads(payload)[:3]
    return decode(encoded), text, row


def in_fork() -> ReaderError:
    """Return what an iterator raises in a process that was forked after it was made."""
    return ReaderError(
        "this iterator belongs to the process that forked this one; its workers do not exist here:"
        " make a new iterator, iter(loader), after the fork"
    )


def closed(place: int, options: EpochOptions) -> ReaderError:
    """Return what an iterator raises after `place` batches when its loader was closed."""
    return ReaderError(
        f"the loader was closed after {place} batches of epoch {options.epoch}; iterate over the"
        " loader again to start anew"
    )
