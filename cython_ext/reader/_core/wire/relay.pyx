"""Relays tasks and answers between the trainer and a worker on another machine.

Imports the channels. On the trainer's machine a TaskRelay takes the tasks of a channel as bytes, and lands
answers in its arena with one copy. On the worker's machine an AnswerRelay gives tasks to the worker's
channel, and takes its answers out of the worker's arena without a copy.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from reader._core.memory.arena cimport (Arena, RD_BATCH, RD_ERROR, RD_FAILED, RD_FULL, RD_HELLO, RD_SKIPPED, RD_STATE,
                                        rd_head, rd_heap, rd_heap_at, rd_record, rd_slot, rd_slot_at,
                                        rd_slot_offset, rd_slot_release)
from reader._core.memory.stage_times cimport rd_landed, rd_made, rd_noted_at
from reader._core.memory.wait cimport (load_relaxed_i64, load_relaxed_u32, load_relaxed_u64, load_u32, rd_now_ns,
                                       store_relaxed_i64, store_relaxed_u32, store_relaxed_u64, store_u32)
from reader._core.wire.channel cimport TASK_ENTER, TASK_EPOCH, TASK_NEXT, TASK_AGAIN, TASK_TRIM, WorkerChannel
from reader._core.wire.ring cimport rd_result_pop, rd_task, rd_task_peek, rd_task_pop

import collections

import numpy as np

from reader.errors import ArenaFull, InternalError


class RelayedTask(collections.namedtuple("RelayedTask", "seq epoch run kind payload")):
    """A task, with its encoded keys as ``payload``."""

    __slots__ = ()


class Answer(collections.namedtuple("Answer", "kind fields objects nbytes attached within sum schema full made",
                                    defaults=[b""])):
    """A worker's answer, without the bytes of its slot.

    ``fields``: how many; ``objects``: where they begin; ``nbytes``: their bytes; ``attached``: how many of
    these are the attachment; ``within``: whether they are pickled around fields; ``sum``: of field table
    and objects; ``schema``: its number at that worker, 0: the objects carry it, or there is none; ``full``:
    for FULL, the bytes needed, left and allowed, and whether the arena's own limit is reached; ``made``:
    the times of a batch, an rd_made by that machine's clock.
    """

    __slots__ = ()


class Arrival(collections.namedtuple("Arrival", "at_ns ahead_ns others_ns")):
    """How an answer came: when; how far its machine's clock is ahead of this one's; how long its worker
    made batches of other programs before it.
    """

    __slots__ = ()


@cython.final
cdef class AnswerRelay:
    """Acts as the trainer towards a worker, on the worker's machine. ``channel``: the worker's."""

    cdef WorkerChannel channel
    cdef uint64_t head            # results taken from the ring
    cdef list held                # offsets of slots whose bytes were handed out

    def __init__(self, WorkerChannel channel not None):
        self.channel = channel
        self.held = []

    def begin(self, task):
        """Give the worker a task: return (kind, keys) as `WorkerChannel.next_task` does; None: there is no
        memory for its samples, and it is answered so."""
        cdef WorkerChannel channel = self.channel
        cdef bytes payload = task.payload
        cdef int kind = task.kind
        cdef int64_t lacks
        channel.seq, channel.epoch, channel.run = task.seq, task.epoch, task.run
        store_u32(&rd_head(channel.arena.c).run, channel.run)
        keys = channel.keys_of(&kind, payload, len(payload))
        if kind == TASK_EPOCH:
            return kind, keys
        channel.note_begun()
        if kind != TASK_ENTER:
            lacks = channel.heap.reserve_samples(kind != TASK_NEXT and kind != TASK_AGAIN)
            if lacks:
                channel.send_full(lacks, channel.heap.left, channel.heap.left, "memory")
                return None
        return kind, keys

    def take(self):
        """Return the next answer and the bytes of its slot, an array of uint8 or None; None: there is no
        answer. The bytes stay valid until `release`."""
        cdef rd_record record
        cdef rd_slot* slot
        cdef uint64_t used
        cdef char* start
        cdef bytes made = b""
        if rd_result_pop(self.channel.arena.c, self.channel.worker_id, &self.head, &record) != 1:
            return None
        if record.kind == RD_FULL:
            full = record.need_bytes, record.have_bytes, record.limit_bytes, bool(record.is_at_limit)
            return Answer(record.kind, 0, 0, 0, 0, 0, 0, 0, full), None
        if record.slot == 0:
            return Answer(record.kind, 0, 0, 0, 0, 0, 0, 0, None), None
        slot = rd_slot_at(self.channel.arena.c, record.slot)
        used = used_of(self.channel.arena.c.base + slot.start, slot)
        self.held.append(record.slot)
        if record.kind == RD_BATCH:
            made = (<const char*>&rd_noted_at(self.channel.arena.c, 0, self.head - 1).made)[:sizeof(rd_made)]
        start = <char*>self.channel.arena.c.base + slot.start
        data = np.frombuffer(PyMemoryView_FromMemory(start, max(<Py_ssize_t>used, 1), PyBUF_WRITE), np.uint8)[:used]
        return Answer(record.kind, slot.nfields, slot.objects, slot.objects_nbytes, record.attached_nbytes,
                      record.has_fields_within, record.payload_sum, record.schema, None, made), data

    def schema(self, uint64_t number):
        """Return a schema, pickled."""
        cdef rd_slot* slot = rd_slot_at(self.channel.arena.c, number)
        return (<const char*>self.channel.arena.c.base + slot.start)[:slot.objects_nbytes]

    def release(self):
        """Release the slots whose bytes were handed out: they have been copied."""
        while self.held:
            rd_slot_release(self.channel.arena.c, <uint64_t>self.held.pop())


@cython.final
cdef class TaskRelay:
    """Acts as a worker towards the trainer, on the trainer's machine.

    ``channel``: of the worker; ``makes_stale``: tasks of an epoch that the loop left are sent too;
    ``is_shared``: the worker may make batches of other programs, so only `note` shows which it makes.
    """

    cdef readonly WorkerChannel channel
    cdef bint makes_stale
    cdef bint is_shared
    cdef dict schemas             # key -> offset of the KEPT slot
    cdef object sent              # (task, whether it asks for no batch) without an answer, in order

    def __init__(self, WorkerChannel channel not None, bint makes_stale=False, bint is_shared=False):
        self.channel = channel
        self.makes_stale = makes_stale
        self.is_shared = is_shared
        self.schemas = {}
        self.sent = collections.deque()

    def next_task(self):
        """Return a RelayedTask, or None: there is none now. A TASK_EPOCH is answered already."""
        cdef WorkerChannel channel = self.channel
        cdef rd_task task
        cdef const uint8_t* payload = NULL
        while not load_u32(&rd_head(channel.arena.c).stop):
            if not rd_task_peek(channel.arena.c, channel.worker_id, &task, &payload):
                return None
            channel.seq, channel.epoch, channel.run = task.seq, task.epoch, task.run
            if task.kind == TASK_TRIM:
                channel.heap.collect()
                channel.heap.trim_own()
                channel.heap.release_grant()
            is_stale = not self.makes_stale and task.run != load_u32(&rd_head(channel.arena.c).run)
            is_skipped = task.kind == TASK_TRIM or (task.kind != TASK_EPOCH and is_stale)
            found = RelayedTask(task.seq, task.epoch, task.run, task.kind,
                                (<const char*>payload)[:task.nbytes])
            self.sent.append((found, is_skipped or task.kind == TASK_EPOCH))
            if len(self.sent) == 1:
                self.show_current()
            rd_task_pop(channel.c, &task)
            self.skip()
            if not is_skipped:
                return found
        return None

    cdef int skip(self) except -1:
        """Answer tasks that ask for no batch once they are the oldest: answers keep the tasks' order."""
        cdef rd_record skipped
        while self.sent:
            task, is_skipped = self.sent[0]
            self.at(task)
            if not is_skipped:
                return 0
            self.sent.popleft()
            store_relaxed_i64(&self.channel.c.at_since_ns, 0)
            skipped = self.channel.record(RD_SKIPPED)
            self.channel.send(&skipped)
        return 0

    cdef int at(self, task) except -1:
        """Make a task the current one: the next record answers it."""
        self.channel.seq, self.channel.epoch, self.channel.run = task.seq, task.epoch, task.run
        return 0

    def knows(self, key):
        """Whether the schema of a key is kept here."""
        return key in self.schemas

    def keep(self, key, bytes pickled not None):
        """Keep a schema of a worker under a key. ArenaFull."""
        self.schemas[key] = self.channel.writer.keep_schema(pickled)

    def land(self, answer, data, key=None, arrival=Arrival(0, 0, 0)):
        """Answer the oldest task that was taken, or pass on the worker's report of its start.

        ``data``: the bytes of its slot, or None; ``key``: of its schema; ``arrival``: an Arrival. Copies
        the bytes once, without the GIL. Answers FULL if there is no memory for them.
        """
        is_own = answer.kind == RD_HELLO or answer.kind == RD_FAILED
        if not is_own:
            self.at(self.sent.popleft()[0])
        self.answer(answer, data, key, arrival)
        self.skip()
        if self.sent:  # the worker makes the next one now
            self.show_current()

    cdef void show_current(self) noexcept:
        """Show the worker's current task: the oldest, or none of this trainer's."""
        self.channel.note_begun()
        if self.is_shared:
            self.note_idle()

    def note_idle(self):
        """Show that the worker makes no known task of this trainer's."""
        store_relaxed_u64(&self.channel.c.at_seq, <uint64_t>-1)

    def note(self, uint64_t seq, uint32_t run, int64_t row, double seconds):
        """Show the batch that the worker was seen to make, and since when; False: no such task was sent."""
        if not any(task.seq == seq and task.run == run for task, _ in self.sent):
            return False
        store_relaxed_u32(&self.channel.c.at_run, run)
        store_relaxed_i64(&self.channel.c.at_row, row)
        store_relaxed_i64(&self.channel.c.at_since_ns, rd_now_ns() - <int64_t>(seconds * 1e9))
        store_relaxed_u64(&self.channel.c.at_seq, seq)
        return True

    cdef int answer(self, answer, data, key, arrival) except -1:
        cdef WorkerChannel channel = self.channel
        cdef rd_record record
        cdef rd_slot* slot = NULL
        cdef uint64_t nbytes = 0
        cdef Py_buffer view
        record = channel.record(answer.kind)
        if answer.full is not None:
            record.need_bytes, record.have_bytes, record.limit_bytes, is_at_limit = answer.full
            record.is_at_limit = 1 if is_at_limit else 0
        elif data is not None:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                nbytes = <uint64_t>view.len
                slot = channel.heap.alloc(max(nbytes, <uint64_t>1))
                copy_bytes(channel.arena.c.base + slot.start, view.buf, nbytes)
            except ArenaFull as full:
                channel.send_full(full.need_bytes, full.have_bytes, full.limit_bytes, full.knob)
                return 0
            finally:
                PyBuffer_Release(&view)
            slot.nfields = answer.fields
            slot.objects = answer.objects
            slot.objects_nbytes = answer.nbytes
            channel.heap.note_written(slot, nbytes)
            record.slot = rd_slot_offset(channel.arena.c, slot)
            record.generation = slot.generation
            record.schema = self.schemas[key] if answer.schema else 0
            record.attached_nbytes = answer.attached
            record.has_fields_within = answer.within
            record.payload_sum = answer.sum
        if answer.kind == RD_BATCH:
            self.note_made(answer.made, arrival)
            channel.show(&record)
        else:
            store_relaxed_i64(&channel.c.at_since_ns, 0)
            channel.send(&record)
        return 0

    cdef int note_made(self, bytes made, arrival) except -1:
        """Note the times of a batch that is in its slot now, if its worker noted any."""
        cdef WorkerChannel channel = self.channel
        cdef rd_made* own = &channel.writer.made
        cdef rd_landed* landed = &rd_noted_at(channel.arena.c, channel.worker_id, channel.c.result_tail).landed
        memset(own, 0, sizeof(rd_made))
        if len(made) != sizeof(rd_made):
            return 0
        memcpy(own, <const char*>made, sizeof(rd_made))
        if own.sent_ns < own.begun_ns:  # no worker writes that
            memset(own, 0, sizeof(rd_made))
            return 0
        own.begun_ns -= <int64_t>arrival.ahead_ns
        own.sent_ns -= <int64_t>arrival.ahead_ns
        landed.came_ns, landed.others_ns = arrival.at_ns, arrival.others_ns
        landed.landed_ns = rd_now_ns()
        return 0

    def count(self, uint64_t computed_ns, uint64_t runnable_ns, uint64_t stored_ns, uint64_t clock_error_ns):
        """Add to the worker's times in WorkerCounts; show how far its clock may be off."""
        cdef rd_heap* heap = self.channel.c
        self.channel.note_computed(computed_ns)
        store_relaxed_u64(&heap.runnable_ns, heap.runnable_ns + runnable_ns)
        store_relaxed_u64(&heap.stored_ns, heap.stored_ns + stored_ns)
        store_relaxed_u64(&heap.clock_error_ns, clock_error_ns)

    def count_bounded(self, uint64_t ns):
        """Add to the time in which tasks were held back though the worker was idle."""
        store_relaxed_u64(&self.channel.c.bounded_ns, self.channel.c.bounded_ns + ns)


def progress_of(Arena arena not None):
    """Return the batch that an arena's first worker makes: (number, run, row, seconds); None: it is idle."""
    cdef rd_heap* heap = rd_heap_at(arena.c, 0)
    cdef int64_t since_ns = load_relaxed_i64(&heap.at_since_ns)
    if since_ns == 0:
        return None
    return (load_relaxed_u64(&heap.at_seq), load_relaxed_u32(&heap.at_run),
            load_relaxed_i64(&heap.at_row), (rd_now_ns() - since_ns) * 1e-9)


cdef uint64_t used_of(const uint8_t* start, const rd_slot* slot) noexcept:
    """Return how many bytes of a slot its worker wrote: up to the end of the last field or object."""
    cdef uint64_t used = slot.objects + slot.objects_nbytes
    cdef const int64_t* entry = <const int64_t*>start
    cdef uint32_t i
    for i in range(slot.nfields):
        used = max(used, <uint64_t>(entry[0] + max(entry[1], 1)))
        entry += 3 + entry[2]
    return max(used, <uint64_t>(<const uint8_t*>entry - start))


cdef int copy_bytes(uint8_t* out, const void* data, uint64_t nbytes) except -1:
    if nbytes >= 1 << 15:
        with nogil:
            memcpy(out, data, nbytes)
    else:
        memcpy(out, data, nbytes)
    return 0
