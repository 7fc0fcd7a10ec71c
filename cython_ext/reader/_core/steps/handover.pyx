"""Handing batches over: the last step of an iterator, which Ctrl-C cannot come between.

Imports the arena's clock and `signals`. Python runs signal handlers between two instructions of
Python code, and what one raises leaves the frame it came in. Here there are no such instructions: what an
iterator made is accepted, counted and returned at one go, or it is kept for the next call.
"""
cimport cython
from reader._core.interpreter.signals cimport Finalized
from reader._core.memory.wait cimport rd_now_ns
import threading


@cython.final
cdef class Task:
    """A task: what a worker is to make a batch of, and what came of it.

    Attributes:
        kind: of the channel: what `payload` is.
        payload: the dataset keys as they are sent.
        worker: the one that must take it; -1: any.
        mark: what a saved state needs, beside the number of the batch, to open the order after it;
            see `reader.orders.order.Order`.
        seq: its number in the epoch, set by the window.
        snapshot: once it is answered, the state that its worker sent with it, or None.
        drawn: how many samples of an iterable dataset were drawn for it; None: a full batch's.
        is_error: an exception was delivered in the batch's place.
        is_end: the worker's copy of the dataset is exhausted; nothing was delivered.
        part: its number among the shards of a step; 0: the first, or no shard.
        parts: how many shards the step has; 0: it is no shard.
    """

    def __init__(self, int kind, payload, int worker=-1, mark=None, seq=-1):
        self.kind = kind
        self.payload = payload
        self.worker = worker
        self.mark = mark
        self.seq = seq

    def __repr__(self):
        return f"Task(seq={self.seq}, kind={self.kind}, worker={self.worker})"


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

    def begin(self):
        """Note that a wait begins; return the time, by the clock of `time.monotonic`."""
        self.since = rd_now_ns() * 1e-9
        self.is_waiting = True
        return self.since

    def end(self, double paused_s=0):
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
        task: its task, which is accepted and counted with it; None: there is none.
        is_batch: `value` is counted as a batch.
        is_error: `value` is raised.
        step: called, without arguments, in place of accepting the task; it must be written in C.
        parts: the first of `ahead`, of which `value` was made; they are counted with it.
        number: that of the LoDTensorArray or UserBatch; 0: nobody asks when it was handed over.
    """

    def __init__(self, value, Task task=None, bint is_batch=False, bint is_error=False, step=None,
                 list parts=None, unsigned long long number=0):
        self.number = number
        self.value = value
        self.task = task
        self.is_batch = is_batch
        self.is_error = is_error
        self.step = step
        self.parts = parts


cdef class Handover(Finalized):
    """Base class of iterators that hand over what `prepare` made.

    `prepare` sets `made`, or raises. It may be left by an exception anywhere, and is called again
    then; what it has put into `made` or `ahead` is not lost.

    Attributes:
        made: what comes next; None: `prepare` is called for it.
        ahead: what was made of batches that are handed over later, each a Made: accepted, and not
            counted.
        handed: tasks of what was handed over, in their order; whoever counts them removes them.
        feeder: has the tasks accepted.
        tasks: those in flight, by number.
        stats: its `batches` counts what was made and is no error.
        source: its batches are handed over as they are; what it raises, and its errors in the place
            of batches, are left to `reword` and `prepare`. None: `prepare` makes all.
        is_watched: with `source`, a function; while it returns True, `prepare` makes all.
    """

    def __cinit__(self, *args, **options):
        self.lock = threading.RLock()  # threads that share the iterator take turns
        self.enter, self.leave = self.lock.acquire, self.lock.release
        self.ahead = []
        self.handed = []

    cdef bint due(self) except -1:
        """Whether to count now what was handed over: it is 16 tasks, or the last has a snapshot."""
        cdef Py_ssize_t count = len(self.handed)
        return count and (count >= 16 or (<Task>self.handed[count - 1]).snapshot is not None)

    @property
    def is_due(self):
        """Whether what was handed over is to be counted now."""
        return self.due()

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
        """Hand over what `source` made; None: it is an error."""
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

    def hand_over(self):
        """Accept and count `made` as handed over; an iterator that wraps this one calls it."""
        self.pass_over()

    cdef int pass_over(self) except -1:
        cdef Made made = self.made, part
        if made.parts is None:
            self.accept(made)
        else:
            for part in made.parts:
                self.count(part, self.handed)
                if part.behind is not None:
                    self.handed.extend(part.behind)
            del self.ahead[:len(made.parts)]
        self.made = None
        return 0

    cdef int end_task(self, Made made) except -1:
        if made.is_accepted:
            return 0
        if made.step is not None:
            made.step()
        elif made.task is not None:
            self.feeder.accept()
            self.tasks.pop(made.task.seq, None)
        made.is_accepted = True
        return 0

    cdef int accept(self, Made made) except -1:
        """Accept a task, and count it after the tasks of `ahead`."""
        cdef Made last
        cdef list tasks
        self.end_task(made)
        tasks = self.handed
        if self.ahead:
            last = self.ahead[len(self.ahead) - 1]
            if last.behind is None:
                last.behind = []
            tasks = last.behind
        self.count(made, tasks)
        return 0

    cdef int count(self, Made made, list tasks) except -1:
        if made.task is not None:
            tasks.append(made.task)
        if made.is_batch and self.stats is not None:
            self.stats.batches += 1
        if made.number:
            self.note_handed(made)
        return 0

    cdef int note_handed(self, Made made) noexcept:
        """Note that the user has a batch; subclasses that have a log do."""
        return 0

    def keep(self, Made made not None):
        """Accept a task, and keep what was made of it in `ahead`."""
        self.end_task(made)
        self.ahead.append(made)

    def skip(self, Made made not None):
        """Accept a task and count it; there is nothing to hand over."""
        self.accept(made)

    def pass_ahead(self):
        """Count the batches in `ahead` and drop them."""
        cdef Made part
        for part in self.ahead:
            self.handed.append(part.task)
            if part.behind is not None:
                self.handed.extend(part.behind)
        self.ahead = []

    def drop(self):
        """Drop what was made and not handed over; none of it counts."""
        self.made = None
        self.ahead = []
