"""QuickSteps: the step that most batches of an epoch take, with no code of Python but the user's.

Imports the window, both feeders and the handover. After a training step the processor's caches hold
nothing of the loader: what a step costs is how much code and data it touches.
"""
from libc.math cimport INFINITY
from reader._core.batch.tensor_array cimport LoDTensorArray
from reader._core.steps.handover cimport Handover, Made, Task, WaitStats
from reader._core.steps.window cimport Window
from reader._core.wire.feeder cimport Feeder
from reader._core.wire.local_channel cimport LocalFeeder, UserBatch

from reader._core.interpreter.signals import is_interrupt
from reader.errors import ReaderError


cdef class QuickSteps(Handover):
    """Base class of the iterator over an epoch. `prepare` of a subclass makes what is no usual step.

    A subclass has `wait_for_item`, which returns the feeder's next item, or None where `prepare` must
    decide, and `leave_with_program`, which is called before a ReaderError is raised.

    A usual step is one batch, in its turn, for one place that is no device, from workers that work
    ahead; or one that this thread makes, where there are no workers. Anything else is left, unchanged,
    to `prepare`.

    Args:
        window: the tasks in flight.
        schedule: draws them.
        convert: makes the user's batch, in a usual step.
        cursor: counts what was handed over.
        stats: counted up.
        looks_for_end: once there are no more tasks to send, `prepare` makes all.

    Attributes:
        is_quick: usual steps may be taken here.
        convert: as passed.
        slow_s: a batch that this thread makes in more seconds is told by `tell_slow` of a subclass.
    """

    def __init__(self, Window window not None, schedule, convert, cursor, WaitStats stats not None,
                 bint looks_for_end):
        self.window = window
        self.schedule = schedule
        self.convert = convert
        self.count_handed = cursor.count_handed
        self.looks_for_end = looks_for_end
        self.slow_s = INFINITY
        self.feeder, self.tasks = window.feeder, window.tasks
        self.handed, self.stats = cursor.handed, stats

    cdef int make(self) except -1:
        if not (self.is_quick and self.is_made()):
            self.prepare()
            self.stats.last_wait_s += self.waited_s
            self.waited_s = 0
        return 0

    def give_way(self):
        """Let a consumer that waits for the GIL have it first; for methods that other threads call often."""
        if type(self.feeder) is Feeder:
            (<Feeder>self.feeder).give_way()

    cdef bint is_made(self) except -1:
        """Make the next batch, if that is a usual step. Returns whether it was."""
        try:
            if type(self.feeder) is Feeder:
                return self.take_step(self.window, self.feeder)
            return type(self.feeder) is LocalFeeder and self.make_step(self.window, self.feeder)
        except ReaderError:
            self.leave_with_program()
            raise

    cdef bint take_step(self, Window window, Feeder feeder) except -1:
        """See `is_made`. If it was no usual step, nothing has changed, except that tasks may have been sent.
        Like `prepare`, it may be left by an exception anywhere."""
        cdef LoDTensorArray item
        if self.due():
            self.count_handed()
        if self.ahead or window.is_closed or not window.tasks or not feeder.is_here():
            return False
        found = feeder.ready()
        if found is not None:
            self.stats.last_wait_s = 0.0
        else:
            found = self.wait_for_item()
        if type(found) is not LoDTensorArray:
            return False
        item = found
        window.leaving = item.seq
        window.fill(self.schedule, 1)  # runs the user's sampler; Ctrl-C there loses no batch
        if self.looks_for_end and window.is_drained:
            return False
        self.land(window.tasks[item.seq], item, None)
        return True

    cdef bint make_step(self, Window window, LocalFeeder feeder) except -1:
        """Have this thread make the next batch; else as `take_step`."""
        if self.due():
            self.count_handed()
        if self.ahead or window.is_closed or not feeder.channel.is_here():
            return False
        window.fill(self.schedule)
        if window.is_drained:
            return False
        self.stats.begin()
        try:
            found = feeder.take()
        finally:
            self.stats.end()
        if self.stats.last_wait_s > self.slow_s:
            self.tell_slow()
        if type(found) is UserBatch:
            self.land(window.tasks[(<UserBatch>found).seq], found, None)
        elif type(found) is LoDTensorArray:
            self.land(window.tasks[(<LoDTensorArray>found).seq], found, None)
        else:
            self.waited_s = self.stats.last_wait_s
            return False
        return True

    cdef int land(self, Task task, object item, object step) except -1:
        """Make the user's batch of an item, unless it is one, and have it handed over next. `step`:
        accepts the task; None: the feeder does."""
        cdef Made made = Made.__new__(Made)
        cdef bint is_users = type(item) is UserBatch
        self.window.leaving = task.seq
        made.task = task
        made.step = step
        task.snapshot = (<UserBatch>item).attached if is_users else (<LoDTensorArray>item).attached
        made.number = (<UserBatch>item).number if is_users else (<LoDTensorArray>item).number
        try:
            made.value = (<UserBatch>item).value if is_users else self.convert(item)
        except Exception as error:
            if not is_interrupt(error):
                self.skip(made)
            raise
        made.is_batch = True
        self.made = made
        return 0

    cdef int note_handed(self, Made made) noexcept:
        if self.window.times is not None:
            self.window.times.note_handed(made.number)
        return 0

    def land_plain(self, Task task not None, item, step):
        """As a usual step does: have a batch handed over next. `step`: see Made."""
        if type(item) is not UserBatch and type(item) is not LoDTensorArray:
            raise TypeError(f"a batch is a UserBatch or a LoDTensorArray, got {type(item).__name__}")
        self.land(task, item, step)
