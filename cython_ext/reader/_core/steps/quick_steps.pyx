"""QuickSteps: the step that most batches of an epoch take, with no code of Python but the user's.

Imports the window, both feeders and the handover. After a training step the processor's caches hold
nothing of the loader: what a step costs is how much code and data it touches.
"""
from libc.stdint cimport uint64_t

from reader._core.batch.tensor_array cimport LoDTensorArray
from reader._core.steps.handover cimport Handover, Made, Task
from reader._core.steps.window cimport Window
from reader._core.wire.feeder cimport Feeder
from reader._core.wire.local_channel cimport LocalFeeder, UserBatch

from reader._core.interpreter.signals import is_interrupt
from reader.errors import ReaderError


cdef class QuickSteps(Handover):
    """Base class of the iterator over an epoch. `prepare` of a subclass makes what is no usual step.

    Its `wait_for_item` waits for the feeder's next item, and returns that or None: `prepare` knows
    more. Its `leave_with_program` is called before a ReaderError is raised. Its `refuse_freed` is called
    where a ReferenceError came, and may raise another error.

    A usual step is one batch, in its turn, for one place that is no device, from workers that work
    ahead; or one that this thread makes, where there are no workers. Whatever else is found is left to
    `prepare`, which finds it as it was.

    Attributes:
        is_quick: usual steps may be taken here.
        looks_for_end: once there are no more tasks to send, `prepare` makes all.
        window: the tasks in flight.
        convert: makes the user's batch.
        settle: a function that counts what was handed over.
    """

    cdef int make(self) except -1:
        try:
            if not (self.is_quick and self.is_made()):
                self.prepare()
                self.stats.last_wait_s += self.waited_s
                self.waited_s = 0
        except ReferenceError as error:
            self.refuse_freed(error)
            raise
        return 0

    def give_way(self):
        """Let a consumer that waits for the GIL have it first: for what other threads ask often."""
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
        """See `is_made`. Where it was no usual step nothing has changed, but that tasks may have been
        sent. An exception may leave it anywhere, as it may `prepare`."""
        cdef LoDTensorArray item
        if self.due():
            self.settle()
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
        window.fill(1)  # runs the user's sampler; Ctrl-C there loses no batch
        if self.looks_for_end and window.is_drained:
            return False
        self.land(item.seq, item.attached, item, False)
        return True

    cdef bint make_step(self, Window window, LocalFeeder feeder) except -1:
        """Have this thread make the next batch; else as `take_step`."""
        if self.due():
            self.settle()
        if self.ahead or window.is_closed or not feeder.channel.is_here():
            return False
        window.fill()
        if window.is_drained:
            return False
        self.stats.begin()
        try:
            found = feeder.take()
        finally:
            self.stats.end()
        if type(found) is UserBatch:
            self.land((<UserBatch>found).seq, (<UserBatch>found).attached, (<UserBatch>found).value, True)
        elif type(found) is LoDTensorArray:
            self.land((<LoDTensorArray>found).seq, (<LoDTensorArray>found).attached, found, False)
        else:
            self.waited_s = self.stats.last_wait_s
            return False
        return True

    cdef int land(self, uint64_t seq, object attached, object item, bint is_users) except -1:
        """Make the user's batch of an item, unless it is one, and have it handed over next."""
        cdef Task task = self.window.tasks[seq]
        cdef Made made = Made.__new__(Made)
        self.window.leaving = seq
        task.snapshot = attached
        made.task = task
        try:
            made.value = item if is_users else self.convert(item)
        except Exception as error:
            if not is_interrupt(error):
                self.skip(made)
            raise
        made.is_batch = True
        self.made = made
        return 0
