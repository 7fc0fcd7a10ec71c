"""Batches that several workers make: while the trainer waits for one, idle workers make rows of it.

Imports heap, payload and plan. A Sharing belongs to one worker and is used in its main thread. It is
both the maker, which has the slot and publishes it, and a guest in another's batch. The protocol is
in share.h and docs/concurrency.md.
"""
import hashlib
import pickle

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT32_MAX
from libc.string cimport memcpy, memset

from reader._core.batch.payload cimport pickle_schema
from reader._core.batch.tensor cimport Schema
from reader._core.collate.plan cimport SampleLeaf
from reader._core.memory.arena cimport (rd_arena, rd_arena_damage, rd_head, rd_slot_at, rd_slot_known,
                                        rd_slot_offset, rd_slot_read, rd_table_nbytes)
from reader._core.memory.wait cimport (load_relaxed_u32, load_relaxed_u64, load_u32, rd_now_ns,
                                       store_relaxed_i64, store_relaxed_u32, store_relaxed_u64)

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1

cdef extern from "reader/_core/collate/share.h" nogil:
    void store_made "rd_store_release"(uint8_t*, uint8_t) noexcept
    uint8_t load_made "rd_load_acquire"(const uint8_t*) noexcept

cdef enum:
    PAYS_NS = 4_000_000   # a batch whose missing rows take less is not worth sharing
    LOOK_NS = 1_000_000   # how often to check for that, but at least once in LOOK_ROWS rows
    LOOK_ROWS = 16
    WAIT_NS = 1_000_000


@cython.final
cdef class Sharing:
    """A worker's part in shared batches: it opens its own, and makes rows of others'.

    ``source[key]``: fetches a sample. ``watch``: a RandomWatch, or None. ``is_strict``: see Plan.
    """

    def __init__(self, Heap heap not None, source, watch, bint is_strict):
        self.heap = heap
        self.source = source
        self.watch = watch
        self.is_strict = is_strict
        self.is_on = True
        self.guest.index = heap.index
        self.c = rd_share_at(heap.arena.c, heap.index)

    cdef void note_task(self, uint32_t run, uint64_t epoch) noexcept nogil:
        """Note that a task of a run was taken."""
        if run != self.guest.run:
            self.is_first = True
            self.guest.from_seq = 0
        self.guest.run = run
        self.guest.epoch = epoch
        store_relaxed_u32(&self.c.may_join, self.is_first and self.is_on)

    cdef void note_answer(self) noexcept nogil:
        """Note that the task was answered with a batch."""
        self.is_first = False
        store_relaxed_u32(&self.c.may_join, 0)

    cdef uint64_t extra_nbytes(self, Py_ssize_t count) noexcept nogil:
        """Return the bytes that a slot needs behind its fields, so that it can be opened."""
        return <uint64_t>(8 + 9 * count) if self.is_on else 0

    # ---- the maker ----

    cdef void begin(self) noexcept nogil:
        """Note that a batch is begun."""
        self.is_shared = False
        self.waited_row = -1
        self.looks_at = 0
        if self.was_fresh:  # each_ns contains the cost of new memory, which may not recur
            self.each_ns = 0
            self.was_fresh = False
        self.began_ns = rd_now_ns()

    cdef bint is_due(self, Py_ssize_t row, Py_ssize_t count, Plan plan, uint64_t seq) noexcept:
        """Whether to open the batch before a row is fetched. Asked before each row; before row 0 only if the
        form of the batch is known."""
        if row < self.looks_at or self.is_shared or not self.is_on:
            return False
        if row:
            self.each_ns = (rd_now_ns() - self.began_ns) // row
            self.copy_ns = plan.row_nbytes
            self.looks_at = row + max(<int64_t>1, min(LOOK_ROWS, LOOK_NS // (self.each_ns + 1)))
        return (self.is_slow(count - row)
                and rd_share_pays(self.heap.arena.c, self.heap.index, seq, self.is_first))

    cdef bint is_slow(self, Py_ssize_t rows) noexcept nogil:
        """Whether this many rows take long enough to share them. A row must take longer than its copy at 1
        GB/s: several workers copy hardly faster than one, and have to map the memory of each other's
        slots."""
        return self.each_ns * rows > PAYS_NS and self.each_ns > self.copy_ns

    cdef int help_first(self, Py_ssize_t count, uint64_t seq) except -1:
        """Before the first batch of a run, help with an earlier one that may be opened soon. Waits for it
        for a quarter of a sample's time, and 1 ms at most."""
        cdef rd_arena* arena = self.heap.arena.c
        cdef int64_t until_ns = rd_now_ns() + min(self.each_ns // 4, <int64_t>WAIT_NS)
        if (self.is_on and self.is_first and self.is_slow(count)
                and load_relaxed_u64(&rd_head(arena).wanted_seq) < seq):
            with nogil:
                rd_share_await_open(arena, &self.guest, seq, until_ns)
            self.help(seq)
        return 0

    cdef bint open(self, rd_slot* slot, uint64_t at, Plan plan, list keys, Py_ssize_t row,
                   rd_record* record) except -1:
        """Let others make the rows after ``row``; ``at``: where the fields end. False: they cannot."""
        cdef Py_ssize_t i, count = len(keys)
        cdef char* start = <char*>self.heap.arena.c.base + slot.start
        cdef int64_t* numbers
        cdef int overflow
        at = (at + 7) // 8 * 8
        if plan.objects or not plan.fields or at + 9 * count > slot.backed or count > INT32_MAX:
            return False
        numbers = <int64_t*>(start + at)
        for i in range(count):
            if type(keys[i]) is not int:
                return False
            numbers[i] = PyLong_AsLongLongAndOverflow(keys[i], &overflow)
            if overflow:
                return False
        if self.watch is not None and not self.watch.begins_untouched():
            self.is_on = False  # other workers would draw other random numbers for the rows
            return False
        memset(start + at + 8 * count, 0, count)
        self.theirs = <const uint8_t*>(start + at + 8 * count)
        self.count = <uint32_t>count
        self.mine.assign(count, <uint8_t>0)
        for i in range(row):
            self.mine[i] = 1
        self.left_at = 0
        self.has_drawn = False
        store_relaxed_u64(&self.c.seq, record.seq)  # others read these four before they enter
        store_relaxed_u64(&self.c.epoch, self.guest.epoch)
        store_relaxed_u32(&self.c.run, record.run)
        store_relaxed_u32(&self.c.count, <uint32_t>count)
        self.c.nfields = <uint32_t>len(plan.fields)
        self.c.form = form_of(plan)
        self.c.slot = rd_slot_offset(self.heap.arena.c, slot)
        self.c.keys = at
        self.is_shared = self.is_open = True
        with nogil:
            rd_share_open(self.heap.arena.c, self.heap.index, <uint64_t>row + 1)
        return True

    cdef int close(self) except -1:
        """Let nobody make rows any more, wait until all have left, and note what rows are left."""
        cdef rd_arena* arena = self.heap.arena.c
        cdef int rc = 1
        if not self.is_open:
            return 0
        rd_share_close(arena, self.heap.index)
        self.note_left()
        if self.left.size():  # for messages about a batch that is late
            store_relaxed_i64(&self.heap.c.at_row, self.left[0])
        self.waited_ns = rd_now_ns()
        while rc:  # also after a signal: its handler may raise only when all have left
            with nogil:
                rc = rd_share_await(arena, self.heap.index)
        self.waited_ns = rd_now_ns() - self.waited_ns
        self.waited_row = self.left[0] if self.left.size() else -1
        self.is_open = False
        self.note_left()
        if self.watch is not None and (load_u32(&self.c.has_drawn) or not self.watch.is_untouched()):
            self.has_drawn = True
            self.is_on = False
            self.watch.restart()
        PyErr_CheckSignals()
        return 0

    cdef void note_left(self) noexcept:
        """Note which rows nobody has made yet."""
        cdef size_t i
        self.left.clear()
        for i in range(self.count):
            if not self.mine[i] and load_made(self.theirs + i) != 1:
                self.left.push_back(<Py_ssize_t>i)

    cdef Py_ssize_t next_row(self, Py_ssize_t row) except -2:
        """Return the row to make after ``row`` of a shared batch; the row count after the last."""
        cdef int64_t taken
        self.mine[row] = 1
        if self.is_open:
            taken = rd_share_take(self.c, self.count)
            if taken >= 0:
                return <Py_ssize_t>taken
            self.close()
        return self.next_left()

    cdef Py_ssize_t next_left(self) noexcept:
        """Return the next row that nobody has made."""
        if self.has_drawn:
            return AGAIN
        if self.left_at == self.left.size():
            return <Py_ssize_t>self.count
        self.left_at += 1
        return self.left[self.left_at - 1]

    cdef Py_ssize_t row_before(self, Py_ssize_t row) except -2:
        """Return the first missing row, after ``row`` of a shared batch could not be made: ``row`` itself
        if all before it are there."""
        if not self.is_open:
            return row
        self.close()
        return self.next_left()

    # ---- the guest ----

    cdef bint help(self, uint64_t before) except -1:
        """Make rows of another worker's batch; False: there is none that this one can make.

        ``before``: the number of the batch in hand, or RD_ANY_SEQ: see rd_share_find.
        """
        cdef rd_arena* arena = self.heap.arena.c
        cdef rd_share share
        cdef uint32_t heap
        if not self.is_on or not load_relaxed_u32(rd_open_shares(arena)):
            return False
        heap = rd_share_find(arena, &self.guest, before)
        if heap == arena.nheaps:
            return False
        if rd_share_enter(arena, self.heap.index, heap, &share):
            try:
                self.make_rows(&share, heap)
            finally:
                rd_share_leave(arena, self.heap.index)
        return True

    cdef int make_rows(self, const rd_share* share, uint32_t heap) except -1:
        """Make rows until none is left. A row that fails here is left to the maker, which raises."""
        cdef rd_arena* arena = self.heap.arena.c
        cdef rd_slot slot
        cdef const int64_t* keys
        cdef uint8_t* made
        cdef char* start
        cdef int64_t row
        cdef object key
        if share.run != self.guest.run or share.epoch != self.guest.epoch:
            return 0
        if (not rd_slot_known(arena, heap, share.slot)
                or rd_slot_read(arena, rd_slot_at(arena, share.slot), &slot)
                or share.keys > slot.capacity or 9 * <uint64_t>share.count > slot.capacity - share.keys
                or rd_table_nbytes(arena.base + slot.start, share.nfields, share.keys) > share.keys):
            rd_arena_damage(arena, heap)
            return 0
        start = <char*>arena.base + slot.start
        keys = <const int64_t*>(start + share.keys)
        made = <uint8_t*>(start + share.keys + 8 * <uint64_t>share.count)
        state = None if self.watch is None else self.watch.capture()
        try:
            while load_u32(&rd_head(arena).run) == share.run and not load_u32(&rd_head(arena).stop):
                row = rd_share_take(rd_share_at(arena, heap), share.count)
                if row < 0:
                    break
                try:
                    key = keys[row]
                    sample = self.source[key]
                    if not self.suits(share, sample, start):
                        self.guest.from_seq = share.seq + 1
                        break
                    if not self.plan.put(self.plan.structure, sample, row):
                        store_made(made + row, 1)
                except BaseException:
                    continue
        finally:
            if state is not None and self.watch.capture() != state:
                self.is_on = False
                store_relaxed_u32(&rd_share_at(arena, heap).has_drawn, 1)
                state.put_back()
        return 0

    cdef bint suits(self, const rd_share* share, object sample, char* start) except -1:
        """Point the plan at the rows of a batch; False: its samples have another form."""
        cdef const int64_t* entry = <const int64_t*>start
        cdef SampleLeaf leaf
        if self.plan is None or self.form != share.form:
            self.plan = None
            self.plan = Plan.of(sample, self.is_strict)
            if self.plan.objects or not self.plan.fields:
                return False
            self.form = form_of(self.plan)
        if self.form != share.form or len(self.plan.fields) != share.nfields:
            return False
        for leaf in self.plan.fields:
            if (entry[2] != leaf.ndim + 1 or entry[1] != share.count * leaf.nbytes or entry[0] < 0
                    or <uint64_t>entry[0] + <uint64_t>entry[1] > share.keys):
                return False
            leaf.rows = start + entry[0]
            entry += 3 + entry[2]
        self.plan.is_uncached = self.heap.goes_past_cache(share.keys)
        return True


cdef uint64_t form_of(Plan plan) except? 0:
    """Return a digest of what makes the rows of two plans alike, in any process."""
    cdef uint64_t digest
    cdef bytes made
    cdef SampleLeaf leaf
    if plan.its_schema is None:
        plan.its_schema = Schema(plan.its_batch, [(<SampleLeaf>each).type for each in plan.fields])
    parts = [pickle_schema(plan.its_schema)]
    for leaf in plan.fields:
        parts.append((leaf.kind, leaf.python_type.__module__, leaf.python_type.__qualname__,
                      [leaf.extents[i] for i in range(leaf.ndim)]))
    made = hashlib.blake2b(pickle.dumps(parts, 5), digest_size=8).digest()
    memcpy(&digest, <const char*>made, 8)
    return digest
