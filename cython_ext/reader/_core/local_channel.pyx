"""The channel of a worker that is the consumer itself: it keeps the answer, and sends nothing.

Imports the arena, the batch writer and leaves. Both objects belong to one iterator: the thread that
iterates uses them, and any may close. No signal comes between the making of an answer and its
taking: both are written in C.
"""
import collections

cimport cython
from libc.string cimport memset

from reader._core.arena cimport RD_BATCH, rd_is_foreign, rd_trim_malloc
from reader._core.channel cimport TASK_AGAIN, TASK_EPOCH
from reader._core.records cimport open_batch

from reader._core.feeder import Failure, FailureKind, LostTasks, WorkerProgress
from reader._core.stack import SideTable
from reader.errors import ReaderError

cdef enum:
    KEEP_SLOTS = 4  # as of a worker with one batch in flight


@cython.final
cdef class UserBatch:
    """A batch as the user gets it: there is nothing left to convert."""

    def __init__(self, seq, value, attached=None):
        self.seq = seq
        self.value = value
        self.attached = attached


@cython.final
cdef class LocalChannel:
    """The channel of a worker that runs in the consumer's thread; see WorkerChannel.

    ``convert``: a LeafMaker or a function, which makes the user's batch of what `write` gets; None:
    that is packed into the arena. ``rules``: of the face. ``max_bytes``, ``available_bytes``: of the
    arena, which is made when the first batch is stacked or packed.
    """

    drew_all = True  # samples are drawn before they are stacked: see StreamFetcher
    ran_out = False

    def __init__(self, convert=None, rules=None, max_bytes=None, available_bytes=None):
        self.convert = convert
        self.rules = rules
        self.max_bytes = max_bytes
        self.available_bytes = available_bytes

    cdef int open_arena(self) except -1:
        if self.writer is not None:
            return 0
        arena = Arena.create(1, 2, self.max_bytes)
        self.side = SideTable()
        self.heap = Heap(arena, 0, KEEP_SLOTS, self.available_bytes)
        writer = BatchWriter(self.heap, self.side)
        writer.set_rules(self.rules)
        writer.attach = self.attach
        self.its_arena = arena
        self.writer = writer
        return 0

    @property
    def arena(self):
        """The arena; None where no batch was put into one, or the channel is closed."""
        return self.its_arena

    @property
    def packs(self):
        """Whether `write` needs room in the arena, and may raise ArenaFull."""
        return self.convert is None

    @property
    def position(self):
        """See WorkerChannel."""
        return -1 if self.writer is None else self.writer.position

    @property
    def is_stale(self):
        """Whether the channel was closed meanwhile, by another thread."""
        return self.is_closed

    def skip(self):
        """Leave the task without an answer: nobody waits for it."""

    def set_attachment(self, make):
        """See WorkerChannel."""
        self.attach = make
        if self.writer is not None:
            self.writer.attach = make

    def stack(self, source, list keys not None, list names):
        """See WorkerChannel."""
        cdef rd_record record
        self.open_arena()
        record = self.record()
        self.writer.stack(source, keys, names, &record)
        self.keep(&record)

    def write(self, batch):
        """Keep a ready-made batch. Whoever holds it no longer spares it a copy: see LeafMaker."""
        cdef rd_record record
        if self.convert is not None:
            if type(self.convert) is LeafMaker:
                made = (<LeafMaker>self.convert).make(batch, 1)
            else:
                made = self.convert(batch)
            attached = None if self.attach is None else self.attach()
            self.answer = UserBatch(self.seq, made, attached)
            return
        self.open_arena()
        record = self.record()
        self.writer.write(batch, &record)
        self.keep(&record)

    def end(self, state=None):
        """See WorkerChannel."""
        self.answer = Failure(FailureKind.END, self.seq, self.epoch, 0, state)

    def refuse(self, failure):
        """Keep an exception in the place of the batch."""
        self.answer = Failure(FailureKind.ERROR, self.seq, self.epoch, 0, failure)

    def refuse_full(self, need_bytes, have_bytes, limit_bytes, knob):
        """Keep that there is no memory for the batch."""
        self.answer = Failure(FailureKind.FULL, self.seq, self.epoch, 0, None, need_bytes,
                              have_bytes, limit_bytes, knob)

    cdef rd_record record(self) noexcept:
        cdef rd_record made
        memset(&made, 0, sizeof(made))  # its run is that of an arena without a feeder
        made.seq = self.seq
        return made

    cdef int keep(self, rd_record* record) except -1:
        """Keep the batch that was written, unless the channel was closed meanwhile."""
        if record.kind == RD_BATCH:
            self.answer = open_batch(self.its_arena.c, record, self.side, {}, self.epoch)
        return 0

    def close(self):
        """Let the arena go, at the latest when the batch in hand is made. Idempotent.

        Batches stay valid. In a forked child nothing of the parent's is freed.
        """
        self.is_closed = True
        if self.its_arena is not None and self.its_arena.c is not NULL:
            if self.is_making and not rd_is_foreign(self.its_arena.c):
                self.its_arena.stop()
        if not self.is_making:
            self.let_go()

    cdef int let_go(self) except -1:
        arena, self.its_arena = self.its_arena, None
        self.attach = self.writer = self.heap = self.side = self.answer = None
        if arena is not None:
            if not rd_is_foreign((<Arena>arena).c):
                arena.close()
            arena.release()
        return 0


@cython.final
cdef class LocalFeeder:
    """Has each task done when its answer is asked for; it has the methods of a TaskFeeder.

    ``channel``: gets the answers. ``step(kind, keys)`` does one task; what it raises, such as
    Ctrl-C, passes through `take`, and the next call does the task again.
    """

    queued = 0

    def __init__(self, LocalChannel channel not None, step):
        self.channel = channel
        self.step = step
        self.tasks = collections.deque()

    def begin_run(self, uint64_t epoch, uint64_t next_seq=0, bint in_order=True):
        """See Feeder."""
        self.current = self.channel.answer = None
        self.tasks.clear()
        self.channel.run += 1
        self.channel.epoch = epoch
        self.accepted = self.sent = next_seq

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

    def take(self, timeout=None):
        """Do the next task and return its answer, the same one until `accept`.

        None: there is no task, or the channel was closed.
        """
        cdef LocalChannel channel = self.channel
        if self.current is not None:
            return self.current
        if channel.answer is None:  # else Ctrl-C came after it was made
            if channel.is_closed or not self.tasks:
                return None
            if channel.is_making:
                raise ReaderError("the dataset asks for the next batch of the iterator that is just "
                                  "making one of it; give the dataset a loader of its own")
            seq, kind, payload = self.tasks[0]
            channel.seq = seq
            if channel.heap is not None:
                channel.heap.expect_samples(False)
            channel.is_making = True
            try:
                self.step(kind, payload)
            finally:
                channel.is_making = False
                if channel.heap is not None:
                    channel.heap.end_task()
                if channel.is_closed:
                    channel.let_go()
        self.current, channel.answer = channel.answer, None
        if self.current is not None:
            self.tasks.popleft()
        return self.current

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

    def give_up(self, seq, worker, is_end=False):
        """Do nothing: each task is answered."""

    def worker_progress(self, worker):
        """Return that it is idle: whoever asks is the worker."""
        return WorkerProgress(0, None, -1, 0.0)

    def is_busy(self):
        """Return False: whoever asks is the worker."""
        return False

    def trim(self):
        """Free the memory of released batches."""
        cdef Heap heap = self.channel.heap
        if heap is not None:
            heap.collect()
            heap.trim_own()
            heap.end_grant()
            rd_trim_malloc()
