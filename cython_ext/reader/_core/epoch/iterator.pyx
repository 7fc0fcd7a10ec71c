"""EpochIterator: the iterator over an epoch; most batches take its compiled step, with no code of Python.

Imports the tasks, the dispatcher, both feeders and the handover. After a training step the processor's caches
hold nothing of the loader: what a step costs is how much code and data it touches.
"""
from libc.math cimport INFINITY
cimport cython
from cpython.object cimport PyObject
from reader._core.batch.tensor_array cimport LoDTensorArray
from reader._core.epoch.dispatcher cimport Dispatcher
from reader._core.epoch.handover cimport Handover, Made, WaitStats
from reader._core.epoch.tasks cimport Task, TaskTable
from reader._core.wire.feeder cimport Feeder
from reader._core.wire.local_channel cimport LocalFeeder, UserBatch

from reader._core.interpreter.signals import is_interrupt
from reader.errors import ReaderError


@cython.final
cdef class EpochIterator(Handover):
    """Yields the batches of one epoch; with several places, lists of one batch for each.

    An exception in the place of a batch is raised, and the next call continues after it. Batches of
    its group that came before it are kept; the next call completes the group.

    A usual step is one batch, in its turn, for one place that is no device, from workers that work
    ahead; or one that this thread makes, where there are no workers. It is taken here while the table
    says that none was kept before it (`TaskTable.is_plain`). Any other is left, unchanged, to the epoch.

    Args:
        epoch: a `reader.engine.epoch.Epoch`: takes all other steps.
        dispatcher: draws and sends the tasks.
        convert: makes the user's batch, in a usual step.
        stats: counted up.
        is_usual: steps may be usual ones.
        begins_next: with prefetch_next_epoch: when the source has no more tasks, the epoch takes every step,
            because it must begin the next epoch.
        slow_s: log each batch that this thread took longer than this to make; None: log none.
    """

    def __init__(self, epoch, Dispatcher dispatcher not None, convert, WaitStats stats not None, bint is_usual,
                 bint begins_next, slow_s=None):
        self.is_ended = True  # nothing to finalize: dropping the epoch does it
        self.epoch = epoch
        self.dispatcher = dispatcher
        self.table = dispatcher.table
        self.convert = convert
        self.stats = stats
        self.is_usual = is_usual
        self.awaits_states = epoch.awaits_initial_states
        self.begins_next = begins_next
        self.slow_s = INFINITY if slow_s is None else slow_s
        feeder = dispatcher.feeder
        self.rings = feeder if type(feeder) is Feeder else None
        self.local = feeder if type(feeder) is LocalFeeder else None

    def __dealloc__(self):
        # NULL: a signal's handler raised while the base class was made
        if <PyObject*>self.table is not NULL and self.table is not None:
            self.table.drop()  # a saved state may keep the table

    def __len__(self):
        """The number of batches of the whole epoch, not of groups. ConfigTypeError if not known."""
        return self.epoch.length()

    def close(self):
        """End the epoch here, so that its workers can serve another one. Idempotent."""
        self.made = None
        self.epoch.close()
        if self.lock.acquire(blocking=False):  # else a thread takes a step, which ends soon
            try:
                if self.steps == 0:
                    self.table.drop()
            finally:
                self.lock.release()

    def prepare(self):
        """Make what is handed over next, unless it is made."""
        if self.made is None:
            self.make()

    def give_way(self):
        """Let a consumer that waits for the GIL have it first; for methods that other threads call often."""
        if self.rings is not None:
            self.rings.give_way()

    cdef int make(self) except -1:
        if self.awaits_states:
            self.awaits_states = self.epoch.awaits_initial_states
        elif self.is_usual and self.try_usual_step():
            return 0
        self.made = self.epoch.next_made()
        self.stats.last_wait_s += self.waited_s
        self.waited_s = 0
        return 0

    cdef bint try_usual_step(self) except -1:
        """Take the next step, if it is a usual one. Returns whether it was."""
        if self.table.has_news:
            self.epoch.count()
        if not self.table.is_plain():
            return False
        try:
            if self.rings is not None:
                return self.take_step()
            return self.local is not None and self.make_step()
        except ReaderError:
            self.epoch.stop_with_program()
            raise

    cdef bint take_step(self) except -1:
        """See `try_usual_step`. If it was no usual step, nothing has changed, except that tasks may have been
        sent. An exception may interrupt it anywhere; it is then taken again."""
        cdef LoDTensorArray item
        cdef Task task
        if not self.table.awaits() or not self.rings.is_here():
            return False
        found = self.rings.ready()
        if found is not None:
            self.stats.last_wait_s = 0.0
        else:
            found = self.epoch.wait_for_item()
        if type(found) is not LoDTensorArray:
            return False
        item = found
        task = self.table.arrive(item.seq)
        self.dispatcher.fill()  # runs the user's sampler; Ctrl-C there loses no batch
        if (self.begins_next and self.table.is_drained) or not self.table.is_plain():
            return False
        self.set_made(task, item)
        return True

    cdef bint make_step(self) except -1:
        """As `take_step`, where this thread makes the batch."""
        if not self.local.channel.is_here():
            return False
        self.dispatcher.fill()
        if self.table.is_drained:
            return False
        self.stats.start()
        try:
            found = self.local.take()
        finally:
            self.stats.stop()
        if self.stats.last_wait_s > self.slow_s:
            self.epoch.tell_slow()
        if type(found) is UserBatch:
            self.set_made(self.table.arrive((<UserBatch>found).seq), found)
        elif type(found) is LoDTensorArray:
            self.set_made(self.table.arrive((<LoDTensorArray>found).seq), found)
        else:
            self.waited_s = self.stats.last_wait_s
            return False
        return True

    cdef int set_made(self, Task task, object item) except -1:
        """Make the user's batch of an item, unless it is one, and set `made`: it is handed over next."""
        cdef Made made = Made.__new__(Made)
        cdef bint is_users = type(item) is UserBatch
        made.task = task
        task.snapshot = (<UserBatch>item).attached if is_users else (<LoDTensorArray>item).attached
        task.log_number = (<UserBatch>item).number if is_users else (<LoDTensorArray>item).number
        try:
            made.value = (<UserBatch>item).value if is_users else self.convert(item)
        except Exception as error:
            if not is_interrupt(error):
                self.dispatcher.hand(task)
            raise
        made.is_batch = True
        self.made = made
        return 0

    cdef int pass_over(self) except -1:
        cdef Made made = self.made
        cdef Task task
        if made.task is not None:
            self.hand(made.task, made.is_batch)
            self.table.steps += 1
        elif made.tasks is not None:
            for task in made.tasks:
                self.hand(task, True)
            self.table.steps += 1
        elif made.step is not None:
            made.step()
        self.made = None
        return 0

    cdef int hand(self, Task task, bint is_batch) except -1:
        self.dispatcher.hand(task)
        self.stats.batches += is_batch
        if task.log_number and self.dispatcher.times is not None:
            self.dispatcher.times.note_handed(task.log_number)
        return 0
