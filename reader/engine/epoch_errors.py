"""The errors of an epoch: which sample, batch, epoch and worker, and why.

Imports failures and the types of a backend. Pure functions: they change nothing; the iterator and
the supervisor decide when to raise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from reader._core.wire.failure import Failure, FailureKind
from reader.available_memory import meminfo_bytes, tightest_limit
from reader.engine.backends.backend import Backend, Death
from reader.engine.backends.pool import Pool
from reader.engine.epoch_options import EpochOptions
from reader.engine.watchdog import Hung
from reader.errors import (
    ArenaFull,
    DatasetError,
    InternalError,
    LoadTimeout,
    ReaderError,
    WorkerDied,
    shown,
    workers_option,
)
from reader.exceptions.exception_codec import add_note
from reader.exceptions.user_error import as_user_error, traceback_text, with_context
from reader.worker.loop import WorkerError

__all__ = [
    "closed_error",
    "death_error",
    "failure_error",
    "fork_error",
    "late_error",
    "start_error",
]


def late_error(
    backend: Backend,
    task_keys: Callable[[int], list[Any]],
    delivered: int,
    options: EpochOptions,
    took_s: float | None = None,
) -> LoadTimeout:
    """Return the error of a batch that did not come in time; the next call waits for it again.

    `took_s`: the seconds that this thread took, where it made the batch itself.
    """
    at = [] if took_s is None else [f"{backend.name_of(0)} made it in {took_s:.1f} s"]
    for worker_id in range(backend.num_workers) if took_s is None else ():
        _, seq, row, seconds, is_ready = backend.feeder.worker_progress(worker_id)
        if seq is None:
            is_at = "is idle" if is_ready else "is starting (worker_init_fn, imports)"
            at.append(f"{backend.name_of(worker_id)} {is_at}")
        else:
            keys = task_keys(seq)
            sample = f" (dataset index {keys[row]!r})" if 0 <= row < len(keys) else ""
            place = f"batch {seq}, sample {row}{sample}"
            at.append(f"{backend.name_of(worker_id)} has been at {place} for {seconds:.1f} s")
    return LoadTimeout(
        f"batch {delivered} of epoch {options.epoch} did not come within"
        f" timeout={options.timeout_s:g} s: {'; '.join(at)}. Call next() again to wait"
        " longer, or raise timeout",
        timeout_s=options.timeout_s,
        batch=delivered,
        epoch=options.epoch,
    )


def start_error(backend: Backend, item: Failure, options: EpochOptions) -> BaseException:
    """Return why a worker could not start: the exception of its dataset or `worker_init_fn`."""
    found = backend.open_error(item.payload)
    exc, text = found.error, found.traceback
    where = f"the start of {backend.name_of(item.worker)}, before epoch {item.epoch}"
    return _worded(exc, item.worker, where, text, options)


def _worded(
    exc: BaseException, worker_id: int, where: str, text: str, options: EpochOptions, note: str = ""
) -> BaseException:
    """Return the exception that the user gets for one of a worker."""
    if options.error_policy.passes(exc):
        return exc
    error = as_user_error(exc)
    if options.error_policy.reword is not None:
        error = options.error_policy.reword(error, worker_id, text or traceback_text(exc))
        exc, text = error, ""  # the new text has the traceback
    if note:
        add_note(exc, note)
    with_context(exc, where=where, traceback_text=text)
    return error


def failure_error(
    backend: Backend,
    item: Failure,
    carried: WorkerError | None,
    indices: list[Any],
    deaths: list[Death],
    options: EpochOptions,
    number: int,
) -> BaseException:
    """Return the exception to raise in the place of a batch.

    Args:
        backend: of the epoch.
        item: the Failure in the batch's place.
        carried: the exception that the worker sent, if it sent one.
        indices: the batch's dataset indices; [] for an iterable dataset.
        deaths: the workers that died at the batch.
        options: of the epoch.
        number: of the batch in its epoch.
    """
    epoch = options.epoch
    if item.kind is FailureKind.FULL:
        return _full_error(backend, item, f"batch {number} of epoch {epoch}")
    if item.kind is FailureKind.OPEN:
        error = DatasetError(
            f"batch {number} of epoch {epoch} cannot be unpickled in this process:"
            f" {item.payload!r}; return objects that can be pickled and unpickled"
        )
        error.__cause__ = item.payload
        return error
    if item.kind is FailureKind.REFUSED:
        return InternalError(
            f"batch {number} of epoch {epoch}{_of(indices)} came from"
            f" {backend.name_of(item.worker)}, and a check refuses it: {item.payload}. Its sums"
            " agree, so nothing overwrote it in shared memory: its worker wrote it like that, or"
            " the check is wrong"
        )
    if item.kind is FailureKind.LOST:
        return _lost_batch_error(deaths, indices, epoch, number)
    if carried is None:
        raise InternalError(f"a failure of kind {item.kind!r} arrived without its exception")
    exc, text, row = carried.error, carried.traceback, carried.row
    sample = ""
    if 0 <= row < len(indices):
        sample = f"dataset index {indices[row]!r} (sample {row} of the batch), "
    elif row >= 0 and not indices:
        sample = f"sample {row} of "
    where = f"{sample}batch {number} of epoch {epoch}, "
    where += f"dataset indices {shown(indices)}, by " if indices else "by "
    where += backend.name_of(item.worker)
    note = options.error_policy.error_text.format(worker=item.worker, type=type(exc).__name__)
    return _worded(exc, item.worker, where, text, options, note)


def hung_error(
    backend: Backend,
    item: Failure,
    indices: list[Any],
    hung: Hung,
    options: EpochOptions,
    number: int,
) -> DatasetError:
    """Return the exception for a batch whose worker hung and was killed."""
    at = f"batch {number} of epoch {options.epoch}"
    if 0 <= hung.row < len(indices):
        at = f"the sample at index {shown(indices[hung.row])} of {at}"
    stack = f" It was here:\n{hung.stack}" if hung.stack else ""
    remedy = "mend the dataset, pass a larger hang_after=, or have such samples left out by"
    remedy += " on_error='skip' or replaced by on_error='replace'"
    if options.tolerates or not indices:
        why = "it hung outside of a sample"
        if not indices:
            why = f"what worker {item.worker} would have yielded after it is lost"
        remedy = f"mend the dataset, or pass a larger hang_after=. on_error cannot help: {why}"
    return DatasetError(
        f"{at} hung: it took {hung.seconds:.1f} s, and hang_after={hung.limit_s:g}. Its"
        f" {backend.name_of(item.worker).partition(' (')[0]} was ended and replaced;"
        f" {remedy}.{stack}"
    )


def _full_error(backend: Backend, item: Failure, batch: str) -> ArenaFull:
    """Return the error that there is no memory for a batch, with the limit that was reached."""
    has_workers = isinstance(backend, Pool) and backend.has_workers
    fewer = f"batch_size, prefetch_factor or {workers_option()}" if has_workers else "batch_size"
    hosts = {each.worker_id: each.host for each in backend.statuses()}
    host, total = hosts.get(item.worker), meminfo_bytes("MemTotal")
    if item.knob == "max_bytes" and total is not None and item.limit_bytes >= total:
        limit = f"{item.limit_bytes:,}, which is all memory of the machine"
        more = "use a machine with more"
    elif item.knob == "max_bytes":
        limit, more = f"{item.limit_bytes:,}, which max_bytes says", "raise max_bytes"
    elif host is not None:
        limit, more = f"what {host} has, or lets a container have", "give that node more memory"
    else:
        found = tightest_limit()
        limit = f"{found.limit_bytes:,}, which is all memory of the machine"
        more = "use a machine with more"
        if found.file is not None:
            limit = f"{found.limit_bytes:,}, which this container, or control group, may have"
            limit += f" ({found.file})"
            more = "raise it (docker run --memory, resources.limits.memory of a pod, MemoryMax)"
    return ArenaFull(
        f"no memory for {batch}: it needs {item.need_bytes:,} bytes of shared memory, and"
        f" {item.have_bytes:,} are left. The limit is {limit}: lower {fewer}, keep fewer batches"
        f" alive, or {more}",
        need_bytes=item.need_bytes,
        have_bytes=item.have_bytes,
        limit_bytes=item.limit_bytes,
        knob=item.knob,
    )


def _of(indices: list[Any]) -> str:
    return f" (dataset indices {shown(indices)})" if indices else ""


def _lost_batch_error(
    deaths: list[Death], indices: list[Any], epoch: int, number: int
) -> WorkerDied:
    last = deaths[-1]
    error = death_error(dataclasses.replace(last, current_seq=number), epoch, indices or None)
    if not indices:
        rest = f"The rest of what worker {last.worker_id} would have yielded in this epoch is lost"
        error.args = (f"{error} {rest} with it; the other workers go on.",)
    if len(deaths) > 1:
        pids = ", ".join(str(death.pid) for death in deaths)
        add_note(error, f"reader: {len(deaths)} workers died at this batch: pids {pids}")
        if last.damage is not None and len({_check_of(death) for death in deaths}) == 1:
            add_note(
                error,
                "reader: the same check failed each time, each time in new shared memory"
                f" ({last.damage.check}). Either native code writes out of bounds whenever it makes"
                " this batch, or the check in reader is wrong: then please report this text",
            )
    return error


def _check_of(death: Death) -> str | None:
    return None if death.damage is None else death.damage.check


def death_error(death: Death, epoch: int | None, indices: list[int] | None) -> WorkerDied:
    """Return the exception that reports a death."""
    return WorkerDied(
        pid=death.pid or None,  # 0: it had no process
        exitcode=death.exitcode,
        worker_id=death.worker_id,
        batch=death.current_seq,
        epoch=epoch,
        indices=indices,
        damage=None if death.damage is None else str(death.damage),
        was_ready=death.started,
        cause=death.cause,
    )


def fork_error() -> ReaderError:
    """Return the error of an iterator in a process that was forked after the iterator was made."""
    return ReaderError(
        "this iterator belongs to the parent process, and its workers do not exist in this forked"
        " process: make a new iterator, iter(loader), after the fork"
    )


def closed_error(place: int, options: EpochOptions) -> ReaderError:
    """Return the error of an iterator whose loader was closed after `place` batches."""
    return ReaderError(
        f"the loader was closed after {place} batches of epoch {options.epoch}; iterate over the"
        " loader again to start anew"
    )
