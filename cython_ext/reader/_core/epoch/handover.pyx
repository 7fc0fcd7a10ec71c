"""Handing batches over: the last step of an iterator, which Ctrl-C cannot come between.

Imports the arena's clock, tasks and `signals`. Python runs signal handlers between two instructions of
Python code, and what one raises leaves the frame it came in. Here there are no such instructions: what an
iterator made is counted and returned at one go, or it is kept for the next call.
"""
cimport cython
from reader._core.epoch.tasks cimport Task
from reader._core.interpreter.signals cimport Finalized
from reader._core.memory.wait cimport rd_now_ns
from _thread import RLock


@cython.final
cdef class WaitStats:
    """What the consumer saw: how many batches it got, and how long it waited for them.

    Attributes:
        batches: how many.
        wait_s: seconds of all waits.
        last_wait_s: seconds of the last one.
    """

    def __init__(self, long long batches=0):
        self.batches = batches

    def times(self):
        """Return the seconds of all waits and of the last one, with one that still lasts."""
        cdef double last
        if not self.is_waiting:
            return self.wait_s, self.last_wait_s
        last = rd_now_ns() * 1e-9 - self.since
        return self.wait_s + last, last

    def start(self):
        """Note the start of a wait; return the time, by the clock of `time.monotonic`."""
        self.since = rd_now_ns() * 1e-9
        self.is_waiting = True
        return self.since

    def stop(self, double paused_s=0):
        """Count the wait that began last, without a pause of this process; return its seconds."""
        self.is_waiting = False
        self.last_wait_s = max(0.0, rd_now_ns() * 1e-9 - self.since - paused_s)
        self.wait_s += self.last_wait_s
        return self.last_wait_s


@cython.final
cdef class Made:
    """What an iterator hands over with its next step.

    Args:
        value: the batch; or the exception that is raised in its place.
        task: of an epoch, the task that is handed over with it; None: there is none, or `tasks` are.
        is_batch: `value` is counted as a batch.
        is_error: `value` is raised.
        step: called, without arguments, when it is handed over; it must be written in C.
        tasks: of an epoch, those of a group of batches, which `value` is.
    """

    def __init__(self, value, Task task=None, bint is_batch=False, bint is_error=False, step=None,
                 list tasks=None):
        self.value = value
        self.task = task
        self.is_batch = is_batch
        self.is_error = is_error
        self.step = step
        self.tasks = tasks


cdef class Handover(Finalized):
    """Base class of iterators that hand over what `prepare` made.

    `prepare` sets `made`, or raises. An exception may interrupt it anywhere; it is called again. What it
    has put into `made` is not lost.

    Attributes:
        made: what comes next; None: `prepare` is called for it.
        stats: its `batches` counts what was made and is no error.
        source: the inner iterator. Its batches are returned unchanged; `reword` changes what it raises, and
            `prepare` handles its errors in the place of batches. None: `prepare` makes everything.
        is_watched: with `source`, a function; while it returns True, `prepare` makes everything.
    """

    def __cinit__(self, *args, **options):
        self.lock = RLock()  # threads that share the iterator take turns
        self.enter, self.leave = self.lock.acquire, self.lock.release

    def __iter__(self):
        return self

    def __next__(self):
        cdef Made made
        self.enter()
        self.steps += 1
        try:
            made = self.made
            if made is None and self.source is not None and not self.is_watched():
                made = self.pass_on()
            else:
                made = None
            if made is None:
                if self.made is None:
                    self.make()
                made = self.made
                self.pass_over()
        finally:
            self.steps -= 1
            self.leave()
        if made.is_error:
            raise made.value
        return made.value

    cdef int make(self) except -1:
        """Make what is handed over next; subclasses in C may do it without `prepare`."""
        self.prepare()
        return 0

    def made_by(self, Handover source not None):
        """Return what `source` hands over next. An exception of it is reworded by `reword`, which returns
        None to have it raised unchanged."""
        if source.made is None:
            try:
                source.make()
            except StopIteration:
                raise
            except Exception as error:
                reworded = self.reword(error)
                if reworded is None:
                    raise
                raise reworded from None
        return source.made

    cdef Made pass_on(self):
        """Hand over what `source` made, and return it; None: it is an error, which `prepare` handles."""
        cdef Handover source = self.source
        cdef Made made = self.made_by(source)
        if made.is_error:
            return None
        source.pass_over()
        if self.stats is not None:
            self.stats.batches += 1
        return made

    def alone(self, call):
        """Call a function while no thread takes a step. Within a step of this thread, as in a signal's
        handler, it is not called."""
        self.enter()
        try:
            if self.steps == 0:
                call()
        finally:
            self.leave()

    def drop(self):
        """Drop what was made and not handed over."""
        self.made = None

    def hand_over(self):
        """Count `made` as handed over; an iterator that wraps this one calls it."""
        self.pass_over()

    cdef int pass_over(self) except -1:
        cdef Made made = self.made
        if made.step is not None:
            made.step()
        if made.is_batch and self.stats is not None:
            self.stats.batches += 1
        self.made = None
        return 0
