"""The exceptions of `reader`, each raised for one kind of error.

This module imports the standard library alone, and every other package may import it. An exception
here owns its fields; it survives pickle and copy with its text, its fields and its notes.

    ReaderError(Exception)
    |-- ConfigError(ValueError)           you passed something that cannot work
    |   |-- ConfigTypeError(TypeError)    ... because it is of the wrong type
    |   |-- SamplerError                  your sampler yielded something that is no index
    |   |   `-- SampleIndexError(IndexError)    ... or an index the dataset does not have
    |   `-- StateError                    a saved state that does not fit what it is loaded into
    |-- DatasetError(RuntimeError)        your code raised; the original is __cause__
    |   |-- CollateError(ValueError)      ... samples of one batch do not fit together
    |   `-- ImageError                    ... an image file is damaged, or of another kind
    |-- WorkerDied(RuntimeError)          a worker process ended before its batch was made
    |-- ArenaFull(MemoryError)            the shared memory for batches is used up
    |-- QueueClosed                       push or pop on a queue that was closed
    |-- QueueKilled                       push or pop on a queue that was killed, with the reason
    |-- LoadTimeout(TimeoutError)         a batch did not come within timeout=
    `-- InternalError(RuntimeError)       ours: please report it
"""

from __future__ import annotations

import errno
import reprlib
import signal
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

__all__ = [
    "ArenaFull",
    "CollateError",
    "ConfigError",
    "ConfigTypeError",
    "DatasetError",
    "ImageError",
    "InternalError",
    "LoadTimeout",
    "QueueClosed",
    "QueueKilled",
    "ReaderError",
    "SampleIndexError",
    "SamplerError",
    "StateError",
    "WorkerDied",
]

_E = TypeVar("_E", bound="ReaderError")

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 100
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxarray = 8


def shown(value: object) -> str:
    """Return a short `repr` of `value` for a message; never raises an `Exception`."""
    try:
        return _short.repr(value)
    except Exception:
        return f"<{type(value).__name__} object>"


def printable(text: str, keep: str = "") -> str:
    r"""Return a text of others, safe to print: characters that cannot be seen are escaped.

    What a terminal acts on (escape sequences), what makes another line, and what turns the order
    of letters (bidi overrides) comes as `\x1b`, `\n`, `\u202e`. Letters of any language stay.

    Args:
        text: such as a program's arguments, or the name of a file.
        keep: characters that stay as they are, too.
    """
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or each in keep
        else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def got(value: object) -> str:
    """Return how a refused `value` reads in a message: its short `repr` and its type."""
    return f"{shown(value)} ({type(value).__name__})"


def workers_option(count: int | None = None) -> str:
    """Name what says how many workers a loader has: its argument, or the pool of the workers.

    `count`: a number to pass; None: no certain one.
    """
    if count is None:
        return "num_workers (of a pool: WorkerPool(n))"
    return f"num_workers={count} (of a pool: WorkerPool({count}))"


_ALONE = "with num_workers=0, and without pool=,"  # how this process makes the batches by itself
_LIMITS = {
    errno.EMFILE: "this process has reached its limit of open files: raise it (ulimit -n), or"
    " close loaders and drop batches that are not needed",
    errno.ENFILE: "the system has reached its limit of open files: raise fs.file-max (sysctl)",
    errno.ENOSYS: "this system lacks a system call, or a sandbox hides it: reader needs Linux 5.9"
    " or later, with memfd_create, eventfd2 and pidfd_open (worker threads need no pidfd_open)",
    errno.EPERM: "a sandbox forbids a system call: allow memfd_create, eventfd2, pidfd_open and"
    " pidfd_send_signal in its seccomp profile, or pass worker_type='thread', which needs only"
    " the first two",
    errno.EAGAIN: "raise the limit on processes (ulimit -u, or pids.max of the cgroup), or lower"
    f" {workers_option()}",
    errno.ENOMEM: f"there is no memory: raise the limit on memory, or lower {workers_option()}",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
}
_LIMITS[errno.EACCES] = _LIMITS[errno.EPERM]


def remedy_for(error: Exception, hint: str = "") -> str:
    """Return what to do about a limit of the system that `error` names.

    `hint` is the remedy where `_LIMITS` has none for the error number.
    """
    return _LIMITS.get(getattr(error, "errno", None) or 0, hint)


def remedy_for_file(error: OSError, hint: str) -> str:
    """Return what to do about a file that cannot be opened: `hint`, but for a limit on files."""
    is_limit = error.errno in (errno.EMFILE, errno.ENFILE)
    return remedy_for(error) if is_limit else hint


def refusal(what: str, how: str, error: Exception, hint: str = "") -> ReaderError:
    """Return the error for what the system refused: `what` `how`, the cause, and the remedy.

    `hint` is that of `remedy_for`.
    """
    remedy = remedy_for(error, hint)
    return ReaderError(f"{what} {how}: {error}" + (f"; {remedy}" if remedy else ""))


def start_thread(thread: threading.Thread, what: str) -> None:
    """Start a thread that is `what`, as "the worker thread 3".

    Raises:
        ReaderError: the system refuses it.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise ReaderError(
            f"cannot start {what}: {error}; raise the limit on threads (ulimit -u) or on virtual"
            " memory (ulimit -v)"
        ) from error


def _revive(cls: type[_E], args: tuple[Any, ...], state: dict[str, Any]) -> _E:
    """Rebuild an exception without its `__init__`, whose arguments are not kept in `args`."""
    exc = cls.__new__(cls)
    exc.args = args
    exc.__dict__.update(state)
    return exc


class ReaderError(Exception):
    """Base of every exception that `reader` itself raises."""

    def __str__(self) -> str:
        # names of files and texts of others are in it, and a traceback goes to a terminal
        return printable(super().__str__(), keep="\n\t")

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.args, dict(self.__dict__))


class ConfigError(ReaderError, ValueError):
    """An argument, or a combination of arguments, that cannot work."""


class ConfigTypeError(ConfigError, TypeError):
    """An argument of the wrong type; also a `TypeError`, so either family catches it."""


class SamplerError(ConfigError):
    """A sampler or batch sampler yielded something that is no index or no list of indices."""


class SampleIndexError(SamplerError, IndexError):
    """A sampler yielded an index that the dataset does not have."""


class StateError(ConfigError):
    """A saved state is damaged, or was saved by something else; loading it changed nothing."""


class DatasetError(ReaderError, RuntimeError):
    """The dataset or a function of the user failed; the original is `__cause__`."""


class CollateError(DatasetError, ValueError):
    """Samples of one batch cannot be stacked; the text names the two and how they differ."""


class ImageError(DatasetError):
    """An image file cannot be read, is damaged, or is of another kind; the text names it."""


class WorkerDied(ReaderError, RuntimeError):
    """A worker process ended before it delivered its batch.

    The text is composed from the fields unless `message` is given.

    Args:
        message: text to use in place of the composed one.
        pid: process id of the dead worker.
        exitcode: as `multiprocessing.Process.exitcode`: negative for a signal, None if unknown.
        signal_name: such as "SIGKILL"; found from a negative `exitcode` when not given.
        worker_id: its number in the pool, from 0.
        batch: the batch it was making, or None if it was idle.
        epoch: the epoch of that batch.
        indices: the dataset indices of that batch.
        damage: which check of shared memory failed, and the values it saw, if the loader ended all
            workers because of it.
        was_ready: whether the worker had reported that it runs; used only if it was idle.
        cause: what is known of the end of a worker on another machine.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        pid: int | None = None,
        exitcode: int | None = None,
        signal_name: str | None = None,
        worker_id: int | None = None,
        batch: int | None = None,
        epoch: int | None = None,
        indices: Sequence[int] | None = None,
        damage: str | None = None,
        was_ready: bool = True,
        cause: str | None = None,
    ) -> None:
        if signal_name is None and exitcode is not None and exitcode < 0:
            signal_name = _signal_name(-exitcode)
        self.pid = pid
        self.exitcode = exitcode
        self.signal_name = signal_name
        self.worker_id = worker_id
        self.batch = batch
        self.epoch = epoch
        self.indices = None if indices is None else list(indices)
        self.damage = damage
        self.was_ready = was_ready or batch is not None
        self.cause = cause
        super().__init__(message if message is not None else self._compose())

    def _compose(self) -> str:
        worker = "a worker" if self.worker_id is None else f"worker {self.worker_id}"
        if self.pid is not None and self.cause is None:
            worker += f" (pid {self.pid})"
        if self.cause is not None:
            end = "ended"
        elif self.signal_name is not None:
            end = f"was killed by {self.signal_name}"
        elif self.exitcode is not None:
            end = f"ended by itself with exit code {self.exitcode}"
        else:
            end = "ended, and its exit code is not known"
        if not self.was_ready:
            work = "before it was ready"
        elif self.batch is None:
            work = "while it was idle"
        else:
            work = f"while it was making batch {self.batch}"
            if self.epoch is not None:
                work += f" of epoch {self.epoch}"
            if self.indices is not None:
                work += f" (dataset indices {shown(self.indices)})"
        return f"{worker} {end} {work}. {self._remedy()}"

    def _remedy(self) -> str:
        if self.cause is not None:
            return f"It was on a cluster: {self.cause}"
        if self.damage is not None:
            return (
                "Workers were ended, because a check of their shared memory failed:"
                f" {self.damage}. The usual cause is native code under the dataset, in any of the"
                " workers, that writes out of bounds. Where none does, please report it with this"
                " text."
            )
        if self.signal_name == "SIGKILL":
            return (
                "The kernel sends SIGKILL when memory runs out: see dmesg, and use less memory per"
                f" worker, a smaller batch_size or a lower {workers_option()}."
            )
        if self.signal_name in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE"):
            return (
                f"Native code used by the dataset crashed: repeat these indices {_ALONE} under"
                " `python -X faulthandler` to see where."
            )
        if self.signal_name is not None:
            return "Something outside the loader sent that signal to the worker."
        if not self.was_ready:
            return (
                "See what it printed. With start_method='spawn' and 'forkserver' each worker"
                " imports the main script: make and iterate loaders below"
                ' `if __name__ == "__main__":`, otherwise this import starts workers, too, and'
                " fails."
            )
        return (
            "Code in the dataset, or a library under it, ended the process (os._exit): repeat"
            f" these indices {_ALONE} to see which."
        )


# MemoryError comes first: it has a constructor of its own, which must agree with the layout.
class ArenaFull(MemoryError, ReaderError):
    """The arena has no space for a batch.

    Args:
        message: text to use in place of the composed one.
        need_bytes: how much the batch needs.
        have_bytes: how much is free now.
        limit_bytes: how large the arena may grow.
        knob: "max_bytes": the argument; "memory": what the machine, or the container, has.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        need_bytes: int = 0,
        have_bytes: int = 0,
        limit_bytes: int = 0,
        knob: str = "max_bytes",
    ) -> None:
        self.need_bytes = need_bytes
        self.have_bytes = have_bytes
        self.limit_bytes = limit_bytes
        self.knob = knob
        if message is None:
            more = "Give the program more memory" if knob == "memory" else f"Raise {knob}"
            message = (
                f"a batch needs {need_bytes:,} bytes of shared memory, and {have_bytes:,} bytes of"
                f" the limit of {limit_bytes:,} are free. {more}, lower batch_size or"
                " prefetch_factor, or keep fewer batches alive."
            )
        super().__init__(message)


class QueueClosed(ReaderError):
    """Push or pop on a blocking queue that was closed, with nothing left in it to pop."""


class QueueKilled(ReaderError):
    """Push or pop on a blocking queue that was killed.

    Args:
        message: text to use in place of the composed one; also the reason if none is given.
        reason: what was passed to `kill`: a text or an exception.
    """

    def __init__(self, message: str | None = None, *, reason: Any = None) -> None:
        self.reason = message if reason is None else reason
        if message is None:
            if isinstance(reason, str):
                text = reason
            elif reason is None:
                text = "no reason was given"
            else:
                text = shown(reason)
            message = f"the queue was killed: {text}"
        super().__init__(message)


class LoadTimeout(ReaderError, TimeoutError):
    """A batch did not arrive before its deadline.

    Args:
        message: text to use in place of the composed one.
        timeout_s: the deadline that passed, in seconds.
        batch: the number of the batch that was waited for.
        epoch: its epoch.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        timeout_s: float | None = None,
        batch: int | None = None,
        epoch: int | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.batch = batch
        self.epoch = epoch
        if message is None:
            what = "the next batch" if batch is None else f"batch {batch}"
            if epoch is not None:
                what += f" of epoch {epoch}"
            limit = "its deadline" if timeout_s is None else f"timeout={timeout_s:g} s"
            message = (
                f"{what} did not arrive within {limit}. Raise timeout= (0 waits without a"
                f" deadline), raise {workers_option()}, or find what blocks in the dataset."
            )
        super().__init__(message)


class InternalError(ReaderError, RuntimeError):
    """A promise inside `reader` was broken: a bug of ours."""

    def __init__(self, message: str = "something impossible happened") -> None:
        super().__init__(f"{message}. This is a bug in reader: please report it with this text.")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
