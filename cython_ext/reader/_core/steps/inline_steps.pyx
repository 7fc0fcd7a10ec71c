"""InlineSteps: the usual steps of an epoch whose batches the thread that iterates makes.

Imports the handover, the local feeder and the indices of batches. It is what an epoch is opened with
where nothing was asked for that takes more; whatever is no usual step is left, unchanged, to `prepare`.
"""
from libc.math cimport INFINITY
from reader._core.batch.tensor_array cimport LoDTensorArray
from reader._core.collate.indices cimport Indices
from reader._core.memory.wait cimport rd_now_ns
from reader._core.steps.handover cimport Handover, Made, Task, WaitStats
from reader._core.wire.channel cimport TASK_KEYS
from reader._core.wire.local_channel cimport LocalFeeder, UserBatch

from reader._core.interpreter.signals import draw_into, is_interrupt
from reader.errors import ReaderError


cdef class InlineSteps(Handover):
    """Base class of an iterator over such an epoch. `prepare` of a subclass makes what is no usual step.

    A usual step is one batch that the sampler gave keys for and the feeder made. The keys are indices,
    or a list that the face passes on. A subclass has `note_first`, which is called once the first batch
    was drawn, and `leave_with_program`, which is called before a ReaderError is raised.

    Args:
        feeder: makes the batches; its run has begun.
        batches: yields the keys of each.
        sized: the dataset, whose length bounds the indices; None: nothing does.
        takes_any: a list of keys is passed on as it is, whatever is in it.
        convert: makes the user's batch of a LoDTensorArray.
        cursor: counts what was handed over.
        stats: counted up.
    """

    def __init__(self, LocalFeeder feeder not None, batches, sized, bint takes_any, convert, cursor,
                 WaitStats stats not None):
        self.feeder, self.local = feeder, feeder
        self.tasks = {}
        self.batches = batches
        self.sized = sized
        self.takes_any = takes_any
        self.convert = convert
        self.count_handed, self.handed = cursor.count_handed, cursor.handed
        self.stats = self.waits = stats
        self.keys, self.torn = [], []
        self.length = -1
        self.slow_s = INFINITY
        self.is_first = self.is_usual = True
        self.is_ended = True  # nothing to finalize

    cdef int make(self) except -1:
        if not (self.is_usual and self.is_made()):
            self.prepare()
            self.waits.last_wait_s += self.waited_s
            self.waited_s = 0
        return 0

    cdef bint is_made(self) except -1:
        """Make the next batch, if that is a usual step. Returns whether it was.

        Like `prepare`, it may be left by an exception anywhere."""
        cdef Task task
        cdef Made made
        if self.due():
            self.count_handed()
        if not self.local.channel.is_here() or not (self.task is not None or self.begin_task()):
            return False
        self.waits.begin()
        try:
            found = self.local.take()
        except ReaderError:
            self.leave_with_program()
            raise
        finally:
            self.waits.end()
        self.is_slow = self.waits.last_wait_s > self.slow_s
        if self.is_slow or (type(found) is not UserBatch and type(found) is not LoDTensorArray):
            self.waited_s = self.waits.last_wait_s
            return False
        made = Made.__new__(Made)
        made.task = task = self.task
        if type(found) is UserBatch:
            made.value, made.number = (<UserBatch>found).value, (<UserBatch>found).number
        else:
            made.number = (<LoDTensorArray>found).number
            try:
                made.value = self.convert(found)
            except Exception as error:
                if not is_interrupt(error):
                    self.leave_task()
                    self.skip(made)
                raise
        made.is_batch = True
        self.leave_task()
        self.made = made
        return True

    cdef int note_handed(self, Made made) noexcept:
        self.local.times.note_handed(made.number)
        return 0

    cdef void leave_task(self) noexcept:
        self.task = None
        self.keys = []

    cdef bint begin_task(self) except -1:
        """Give the feeder the next task; False: there is none, or it is no usual one."""
        cdef list keys
        cdef int64_t begun_ns
        if self.torn or self.error is not None:
            return False
        if not self.keys:
            begun_ns = rd_now_ns()
            try:
                draw_into(self.keys, self.batches, 1, self.torn)
            except BaseException as error:
                if not is_interrupt(error):
                    self.error = error  # it is raised where such are reworded
                    return False
                raise
            self.local.times.drawn_ns += rd_now_ns() - begun_ns
            if not self.keys:
                self.is_drained = True
                return False
        keys = self.usual_keys()
        if keys is None:
            return False
        if self.is_first:
            self.begin_order()
        self.local.dispatch(self.seq, TASK_KEYS, keys)
        self.task = Task(TASK_KEYS, keys, -1, None, self.seq)
        self.seq += 1
        return True

    cdef list usual_keys(self):
        """Return the keys of a usual task; None: they are none."""
        cdef object drawn = self.keys[0]
        cdef list keys
        if type(drawn) is Indices:
            keys = drawn.tolist()
        elif type(drawn) is list and drawn:
            keys = drawn
        else:
            return None
        if self.takes_any:
            return keys
        if not self.is_within(keys):
            if self.sized is None:
                return None
            self.length = len(self.sized)  # it is asked first here, and it may have grown
            if not self.is_within(keys):
                return None
        return keys.copy() if keys is drawn else keys

    cdef bint is_within(self, list keys) except -1:
        """Whether keys are integers of Python, and indices of the dataset."""
        cdef int64_t number
        cdef bint is_bounded = self.sized is not None
        if is_bounded and self.length < 0:
            return False
        for key in keys:
            if type(key) is not int:
                return False
            try:
                number = key
            except OverflowError:
                return False
            if is_bounded and not -self.length <= number < self.length:
                return False
        return True

    cdef int begin_order(self) except -1:
        self.note_first()
        self.is_first = False
        return 0
