"""The channel of a worker that is the consumer itself: it keeps its answer instead of sending it.

Imports the arena, the batch writer and leaves. Both objects belong to one iterator: the thread that
iterates uses them, and any thread may close. No signal is handled between making an answer and taking it:
both are in C.
"""
import collections

cimport cython
from libc.stdint cimport int64_t
from libc.string cimport memset
from posix.time cimport clock_gettime, timespec

from reader._core.collate.columns cimport Columns
from reader._core.collate.indices cimport number_of
from reader._core.memory.arena cimport RD_BATCH, rd_head, rd_is_foreign, rd_trim_malloc
from reader._core.memory.stage_times cimport (rd_made_begin, rd_made_end, rd_made_fetched, rd_made_note,
                                                rd_times)
from reader._core.memory.wait cimport load_u32, load_u64, rd_now_ns
from reader._core.wire.channel cimport TASK_AGAIN, TASK_EPOCH, take_item, take_next
from reader._core.wire.records cimport open_batch

from reader._core.batch.side_table import SideTable
from reader._core.wire.failure import Failure, FailureKind
from reader._core.wire.worker_reports import LostTasks, WorkerProgress
from reader.errors import ReaderError

cdef extern from "<time.h>" nogil:
    const int CLOCK_THREAD_CPUTIME_ID

cdef enum:
    KEEP_SLOTS = 4  # as for a worker with one batch in flight
    CLOCKED = 16    # one batch in this many is clocked, if reading the clock would take a part of its time
    SLOW_NS = 200_000


@cython.final
cdef class UserBatch:
    """A batch as the user gets it: there is nothing left to convert."""

    def __init__(self, seq, value, attached=None):
        self.seq = seq
        self.value = value
        self.attached = attached


@cython.final
cdef class LocalMemory:
    """An arena without a descriptor, in which one consumer stacks its own batches.

    ``rules``: of the face; ``max_bytes``, ``available_bytes``, ``uncached_from``: of the arena. Batches
    outlive it. One channel uses it at a time; between iterators it is spare.
    """

    def __init__(self, rules=None, max_bytes=None, available_bytes=None,
                 uint64_t uncached_from=<uint64_t>-1):
        self.arena = Arena.create(1, 2, max_bytes, has_file=False, uncached_from=uncached_from)
        self.heap = Heap(self.arena, 0, KEEP_SLOTS, available_bytes)
        self.side = SideTable()
        self.writer = BatchWriter(self.heap, self.side)
        self.writer.set_rules(rules)

    cdef bint is_foreign(self) noexcept:
        """Whether the parent made it before a fork, or it is closed."""
        return self.arena is None or rd_is_foreign(self.arena.c)

    cdef int prepare(self) except -1:
        """Trim before the samples of a batch are fetched, if released batches have much memory."""
        if load_u64(&self.heap.c.hot_bytes) > load_u64(&self.heap.c.hot_limit):
            self.heap.collect()
            self.heap.trim_own()
        self.heap.reserve_samples(False)
        return 0

    cdef int release(self, list spare) except -1:
        """Put it into ``spare``; or close it, if ``spare`` has one already or a batch is unfinished."""
        self.writer.attach = None
        if spare or self.is_foreign() or load_u32(&rd_head(self.arena.c).stop):
            self.close()
        else:
            spare.append(self)
        return 0

    def close(self):
        """Free the memory that no batch has. Idempotent; does nothing in a forked child."""
        arena, self.arena = self.arena, None
        if arena is not None and not rd_is_foreign((<Arena>arena).c):
            arena.close()
            arena.release()


@cython.final
cdef class LocalChannel:
    """The channel of a worker that runs in the consumer's thread; see WorkerChannel.

    ``make_memory`` makes a LocalMemory when the first batch is stacked, unless ``spare`` has one; in the
    end it goes back into ``spare``. ``convert``: a LeafMaker or a function that makes the user's batch of
    the argument of `write`; None: that is packed as in a worker.
    """

    drew_all = True  # samples are drawn before they are stacked: see StreamFetcher
    ran_out = False

    def __init__(self, make_memory, list spare not None, convert=None):
        self.make_memory = make_memory
        self.spare = spare
        self.convert = convert

    cdef BatchWriter open_writer(self):
        cdef LocalMemory memory = self.memory
        if memory is None:
            while self.spare and memory is None:
                memory = self.spare.pop()
                if memory.is_foreign():  # the fork's parent uses it
                    memory = None
            self.memory = memory = self.make_memory() if memory is None else memory
            memory.writer.attach = self.attach
        return memory.writer

    @property
    def is_idle(self):
        """Whether it is usable, and no thread makes a batch."""
        return self.is_here() and not self.is_making

    @property
    def is_usable(self):
        """Whether it is open, and shares no memory with the parent of a fork."""
        return self.is_here()

    cdef bint is_here(self) noexcept:
        """See `is_usable`."""
        return not self.is_closed and (self.memory is None or not self.memory.is_foreign())

    @property
    def arena(self):
        """The arena; None if no batch was put into one, or the channel is closed."""
        return None if self.memory is None else self.memory.arena

    @property
    def packs(self):
        """Whether `write` takes memory of the arena, and may raise ArenaFull."""
        return self.convert is None

    @property
    def row(self):
        """See WorkerChannel."""
        return -1 if self.memory is None else self.memory.writer.row

    @property
    def is_stale(self):
        """Whether another thread has closed the channel."""
        return self.is_closed

    def note_row(self, Py_ssize_t row):
        """See WorkerChannel."""
        return self.is_closed

    def fetch(self, source, keys, list samples not None):
        """See WorkerChannel."""
        for key in keys:
            take_item(samples, source, key, &self.made, &self.timer)

    def draw(self, source, Py_ssize_t count, list samples not None):
        """See WorkerChannel."""
        while len(samples) < count and take_next(samples, source, &self.made, &self.timer):
            pass

    @property
    def times_each(self):
        """Whether samples take so long that each is to be noted by `note_sample`."""
        return self.timer.untimed == 0

    def note_sample(self, Py_ssize_t row, key, int64_t ns):
        """Note how long a sample took that was fetched outside of this module."""
        if rd_made_note(&self.made, row, ns):
            self.made.slowest_key = number_of(key)

    def note_fetched(self, Py_ssize_t rows):
        """See WorkerChannel."""
        rd_made_fetched(&self.made, <uint32_t>rows, rd_now_ns())

    def skip(self):
        """Leave the task without an answer: nobody waits for it."""

    def set_attachment(self, make):
        """See WorkerChannel."""
        self.attach = make
        if self.memory is not None:
            self.memory.writer.attach = make

    def stack(self, source, list keys not None, list names, fill=None):
        """See WorkerChannel."""
        cdef BatchWriter writer = self.open_writer()
        cdef rd_record record = self.record()
        writer.stack(source, keys, names, &record, fill)
        self.keep(&record)

    def gather(self, Columns columns not None, list keys not None):
        """See WorkerChannel."""
        cdef BatchWriter writer = self.open_writer()
        cdef rd_record record = self.record()
        if not writer.gather(columns, keys, &record):
            return False
        self.keep(&record)
        return True

    def write(self, batch):
        """Keep a ready-made batch, or a copy."""
        cdef BatchWriter writer
        cdef rd_record record
        if self.convert is None:
            writer = self.open_writer()
            record = self.record()
            writer.write(batch, &record)
            self.keep(&record)
        else:
            self.write_from([batch])

    def write_from(self, list made not None):
        """Keep a ready-made batch, the only object in a list, and remove it from the list.

        Values without other references are not copied: see LeafMaker. After an exception the list has it
        again.
        """
        if self.convert is None:
            self.write(made[0])
            made.clear()
            return
        batch = made.pop()
        try:
            if type(self.convert) is LeafMaker:
                value = (<LeafMaker>self.convert).make(batch, 1)
            else:
                value = self.convert(batch)
            attached = None if self.attach is None else self.attach()
        except BaseException:
            made.append(batch)
            raise
        self.answer = UserBatch(self.seq, value, attached)

    def send_end(self, state=None):
        """See WorkerChannel."""
        self.answer = Failure(FailureKind.END, self.seq, self.epoch, 0, state)

    def send_error(self, failure):
        """Keep an exception in the place of the batch."""
        self.answer = Failure(FailureKind.ERROR, self.seq, self.epoch, 0, failure)

    def send_full(self, need_bytes, have_bytes, limit_bytes, knob):
        """Keep a Failure: there is no memory for the batch."""
        self.answer = Failure(FailureKind.FULL, self.seq, self.epoch, 0, None, need_bytes,
                              have_bytes, limit_bytes, knob)

    cdef rd_record record(self) noexcept:
        cdef rd_record made
        memset(&made, 0, sizeof(made))  # run 0, that of an arena without a feeder
        made.seq = self.seq
        return made

    cdef int keep(self, rd_record* record) except -1:
        """Keep the batch that was written, unless the channel was closed meanwhile."""
        if record.kind == RD_BATCH:
            self.answer = open_batch(self.memory.arena.c, record, self.memory.side, {},
                                     self.epoch)
        return 0

    def close(self):
        """Release the memory, now or when the current batch is made. Idempotent."""
        self.is_closed = True
        if not self.is_making:
            self.release_memory()
        elif self.memory is not None and not self.memory.is_foreign():
            self.memory.arena.stop()  # the current batch is not finished

    cdef int release_memory(self) except -1:
        cdef LocalMemory memory = self.memory
        cdef list spare = self.spare
        self.memory = None
        self.spare = []  # drop the loader's list: this object may outlive the loader
        self.attach = self.answer = None
        if memory is not None:
            memory.release(spare)
        return 0


cdef inline int64_t thread_ns() noexcept nogil:
    """Return the CPU time of this thread."""
    cdef timespec now
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


@cython.final
cdef class LocalFeeder:
    """Does each task when its answer is asked for; has the methods of a TaskFeeder.

    ``channel``: gets the answers. ``step(kind, keys)`` does one task; its exceptions, such as Ctrl-C, pass
    through `take`, and the next call does the task again.
    """

    queued = 0

    def __init__(self, LocalChannel channel not None, step):
        self.channel = channel
        self.step = step
        self.tasks = collections.deque()
        self.times = TimesLog()

    paused_s = 0.0

    def clock_s(self):
        """See Feeder. A pause is part of the batch that is made meanwhile."""
        return rd_now_ns() * 1e-9

    def watch_pauses(self, tick_s):
        """Do nothing: no thread waits."""

    def begin_run(self, uint64_t epoch, uint64_t next_seq=0, bint in_order=True, TimesLog times=None):
        """See Feeder."""
        self.current = self.channel.answer = None
        self.tasks.clear()
        self.channel.run += 1
        self.channel.epoch = epoch
        self.accepted = self.sent = next_seq
        if times is not None:
            self.times = times

    def dispatch(self, uint64_t seq, int kind, payload, int worker=-1):
        """Note a task. A TASK_EPOCH is done at once."""
        if kind == TASK_EPOCH:
            self.step(kind, payload)
            return True
        if kind == TASK_AGAIN:
            payload = int.from_bytes(payload, "little")
        self.tasks.append((seq, kind, payload))
        self.sends += 1
        self.sent = max(self.sent, seq + 1)
        return True

    cpdef object take(self, timeout=None):
        """Do the next task and return its answer, the same one until `accept`.

        None: there is no task, or the channel was closed.
        """
        cdef LocalChannel channel = self.channel
        if self.current is not None:
            return self.current
        if channel.answer is None:  # otherwise Ctrl-C came after it was made
            if channel.is_closed or not self.tasks:
                return None
            if channel.is_making:
                raise ReaderError("the dataset iterates over the loader that is just fetching from "
                                  "it; give the dataset a loader of its own")
            seq, kind, payload = self.tasks[0]
            channel.seq = seq
            rd_made_begin(&channel.made, rd_now_ns())
            channel.timer.glance_ns = 0
            self.is_clocked = self.is_slow or self.sent % CLOCKED == 0
            if self.is_clocked:
                self.computed_before = thread_ns()
            if channel.memory is not None:
                channel.memory.prepare()
                channel.memory.writer.made, channel.memory.writer.timer = channel.made, channel.timer
            channel.is_making = True
            try:
                self.step(kind, payload)
            finally:
                channel.is_making = False
                if channel.memory is not None:
                    channel.memory.heap.release_samples()
                if channel.is_closed:
                    channel.release_memory()
                    self.step = None
        self.current, channel.answer = channel.answer, None
        if self.current is not None:
            self.tasks.popleft()
            if type(self.current) is not Failure:
                self.note_taken(channel.seq)
        return self.current

    cdef void note_taken(self, uint64_t seq) noexcept:
        """Log the times of a batch that is made."""
        cdef LocalChannel channel = self.channel
        cdef rd_made* made = &channel.made
        cdef rd_times times
        if made.fetch_ns == 0 and channel.memory is not None:
            made = &channel.memory.writer.made
        memset(&times, 0, sizeof(times))
        times.begun_ns = made.begun_ns = channel.made.begun_ns
        times.dispatched_ns = times.asked_ns = times.begun_ns
        times.delivered_ns = rd_now_ns()
        times.sent_ns = times.arrived_ns = times.ordered_ns = times.delivered_ns
        channel.timer.untimed = rd_made_end(made, times.sent_ns)
        times.fetch_ns, times.rows = made.fetch_ns, made.rows
        times.slowest_ns, times.slowest_key = made.slowest_ns, made.slowest_key
        times.slowest_row = made.slowest_row
        times.seq, times.epoch, times.run = seq, channel.epoch, channel.run
        if self.is_clocked:
            computed = thread_ns() - self.computed_before
            self.times.computed_ns += computed if self.is_slow else CLOCKED * computed
        self.is_slow = times.sent_ns - times.begun_ns > SLOW_NS
        self.times.add(&times)
        if type(self.current) is not UserBatch:
            self.times.follow(self.current)
        elif self.times.notes is not NULL:
            (<UserBatch>self.current).number = self.times.count

    def close(self):
        """Close the channel, and do no more tasks. Idempotent.

        Drops `step`: others may still refer to this object, and the user's generator must close when its
        iterator is dropped.
        """
        self.channel.close()
        if not self.channel.is_making:
            self.step = self.current = None
            self.tasks.clear()

    def accept(self):
        """See Feeder."""
        self.current = None
        self.accepted += 1

    def ended_workers(self):
        """Return nothing: no worker ends."""
        return []

    def failed_worker(self):
        """Return nothing: no worker starts."""

    def detach(self, worker):
        """Return that nothing was lost: no worker ends."""
        return LostTasks([], None, True, False)

    @property
    def has_initial_states(self):
        """Return True: the initial state is noted at once."""
        return True

    def initial_state(self, worker):
        """Return None: no worker is asked."""
        return None

    def drop_task(self, seq, worker, is_end=False):
        """Do nothing: each task is answered."""

    def worker_progress(self, worker):
        """Return that it is idle: the caller is the worker."""
        return WorkerProgress(0, None, -1, 0.0)

    def is_busy(self):
        """Return False: the caller is the worker."""
        return False

    def trim(self):
        """Free the memory of released batches."""
        cdef Heap heap
        if self.channel.memory is not None:
            heap = self.channel.memory.heap
            heap.collect()
            heap.trim_own()
            heap.release_grant()
            rd_trim_malloc()
