"""The heaps of an arena: each owner allocates slots in its own, within the memory that the machine has left.

Imports the arena and reader.errors. A worker allocates its batches, the trainer its long tasks; memory that
is granted and not written yet counts for the owners of all heaps. See layout.h for what lies where.
"""
from libc.stdint cimport uint16_t
from posix.mman cimport MADV_HUGEPAGE, madvise

from reader._core.memory.arena cimport (rd_arena_damage, rd_bounded, RD_FREE, rd_has_busy_neighbour, rd_head,
                                        rd_header, rd_heap_at, rd_most_expected, rd_promised_to_others,
                                        rd_slot, rd_slot_at, rd_slot_cool, rd_slot_heat, rd_slot_known,
                                        rd_slot_offset, rd_slot_punch, rd_slot_read, rd_slot_table,
                                        rd_stack_next, rd_trim_malloc, RD_WRITING, round_up)
from reader._core.memory.wait cimport (add_u64, exchange_u64, load_relaxed_u64, load_u64, load_u8, rd_fence,
                                       store_relaxed_u32, store_relaxed_u64, store_seq_cst_u64, store_u32,
                                       store_u64, sub_u64)

from reader.errors import ArenaFull, InternalError

cdef enum:
    HUGE = 4 << 20   # slots of this many bytes or more are advised to have huge pages
    SLACK = 1 << 16  # bytes of a slot that may stay unwritten and count as written
    UNASKED = 1 << 20  # bytes that an owner takes before it asks the hook, which leaves a headroom of 16


cdef int size_class(uint64_t pages) noexcept nogil:
    """Number the size classes: every page count up to 8, then four classes per doubling."""
    cdef int shift = 0
    if pages <= 8:
        return <int>pages - 1
    while (pages - 1) >> (shift + 3):
        shift += 1
    # 2**(shift+2) < pages <= 2**(shift+3), in steps of 2**shift, which is a quarter of the half
    return 8 + (shift - 1) * 4 + <int>(((pages - 1) >> shift) - 4)


cdef uint64_t class_pages(int number) noexcept nogil:
    """Return the page count of a size class: the inverse of size_class, rounded up."""
    if number < 8:
        return number + 1
    cdef int shift = (number - 8) // 4 + 1
    return <uint64_t>((number - 8) % 4 + 5) << shift


cdef str heap_words(rd_arena* arena, uint32_t index):
    """Return the values that rd_heap_holds checks, for a message."""
    cdef rd_heap* heap = rd_heap_at(arena, index)
    return (f"heap {index}: {load_relaxed_u64(&heap.nslots)} slots of {arena.slot_table_count}, its chunk "
            f"ends at {load_relaxed_u64(&heap.chunk_end)} and is used up to "
            f"{load_relaxed_u64(&heap.chunk_at)}, of {arena.nbytes} bytes")


cdef class Heap:
    """The allocator of one owner (a worker, or the trainer for long tasks) in the arena.

    One thread of one process uses it. A replacement of a dead owner takes over its slots; those
    that were being written become free.
    """

    def __init__(self, Arena arena not None, uint32_t index, uint32_t keep_slots=4,
                 available_bytes=None):
        cdef uint64_t k
        cdef rd_slot* slot
        self.arena = arena
        self.index = index
        self.c = rd_heap_at(arena.c, index)
        self.keep_slots = keep_slots
        self.available_bytes = available_bytes
        self.is_tight = True  # until the hook is asked: others may have filled the memory
        self.unasked = UNASKED
        self.hot.resize(8 + 4 * 40)
        self.cold.resize(8 + 4 * 40)
        self.publish()  # the promises of a dead owner end
        self.expect(load_relaxed_u64(&self.c.expected))  # its samples are like the last ones
        self.collect()
        if self.c.nslots > arena.c.slot_table_count:
            rd_arena_damage(arena.c, index)
            return
        for k in range(self.c.nslots):
            slot = rd_slot_table(arena.c, index) + k
            if slot.state == RD_WRITING:
                rd_slot_punch(arena.c, slot)  # it is unknown how much was written
                self.drop(slot)
            elif slot.state == RD_FREE and not self.knows(slot):
                self.put_free(slot)

    cdef bint knows(self, rd_slot* slot) noexcept nogil:
        cdef uint64_t offset = rd_slot_offset(self.arena.c, slot)
        cdef size_t number
        cdef uint64_t known
        cdef rd_slot copy
        if rd_slot_read(self.arena.c, slot, &copy):
            return False
        number = size_class(copy.capacity // self.arena.c.page)
        for known in self.hot[number]:
            if known == offset:
                return True
        for known in self.cold[number]:
            if known == offset:
                return True
        return False

    cdef void put_free(self, rd_slot* slot) noexcept nogil:
        """Put a free slot of this heap into its private lists, after rd_slot_heat."""
        cdef size_t number
        cdef rd_slot copy
        if rd_slot_read(self.arena.c, slot, &copy):
            rd_arena_damage(self.arena.c, self.index)
            return
        number = size_class(copy.capacity // self.arena.c.page)
        if number >= self.hot.size():
            rd_arena_damage(self.arena.c, self.index)
            return
        store_u32(&slot.state, RD_FREE)
        if slot.backed:
            self.hot[number].push_back(rd_slot_offset(self.arena.c, slot))
        else:
            self.cold[number].push_back(rd_slot_offset(self.arena.c, slot))

    cdef void collect(self) noexcept nogil:
        """Take back the slots that the trainer has released since the last call."""
        cdef uint64_t at = exchange_u64(&self.c.released, 0)
        cdef uint64_t left = self.arena.c.slot_table_count
        cdef rd_slot* slot
        if at == 0:
            return
        if not rd_slot_known(self.arena.c, self.index, at):
            rd_arena_damage(self.arena.c, self.index)
            return
        while at:
            slot = rd_slot_at(self.arena.c, at)
            at = rd_stack_next(self.arena.c, self.index, slot)
            self.put_free(slot)
            left -= 1
            if left == 0:  # more links than slots: they form a ring
                rd_arena_damage(self.arena.c, self.index)
                return

    cdef rd_slot* take_free(self, size_t number) noexcept nogil:
        """Return a free slot of the class, or of one up to twice as large; hot ones first."""
        cdef size_t k
        cdef rd_slot* slot = NULL
        for k in range(number, min(number + 5, self.hot.size())):
            if not self.hot[k].empty():
                slot = rd_slot_at(self.arena.c, self.hot[k].back())
                self.hot[k].pop_back()
                return slot
        if not self.cold[number].empty():
            slot = rd_slot_at(self.arena.c, self.cold[number].back())
            self.cold[number].pop_back()
        return slot

    cdef int trim_own(self) noexcept nogil:
        """Free the memory of all free slots except locked ones. Return how many there were."""
        cdef size_t k, i, kept
        cdef int count = 0
        cdef rd_slot* slot
        for k in range(self.hot.size()):
            kept = 0
            for i in range(self.hot[k].size()):
                slot = rd_slot_at(self.arena.c, self.hot[k][i])
                if load_u8(&slot.locks):
                    self.hot[k][kept] = self.hot[k][i]
                    kept += 1
                    continue
                rd_slot_cool(self.c, slot)
                rd_slot_punch(self.arena.c, slot)
                self.cold[k].push_back(rd_slot_offset(self.arena.c, slot))
                count += 1
            self.hot[k].resize(kept)
        return count

    cdef void release_spare(self) noexcept nogil:
        """Free all memory that is not in use, and release the grant."""
        self.collect()
        self.trim_own()
        self.release_grant()

    cdef rd_slot* carve(self, uint64_t capacity) except? NULL:
        """Make a new slot, in the current chunk or in a new one."""
        cdef rd_header* head = rd_head(self.arena.c)
        cdef uint64_t chunk
        cdef rd_slot* slot
        if self.c.nslots > self.arena.c.slot_table_count:
            self.refuse_damaged()
        if self.c.nslots == self.arena.c.slot_table_count:
            raise ArenaFull(
                f"{self.c.nslots} batches of one worker are kept alive, which is the limit; drop "
                f"batches that are no longer needed, or raise max_bytes above the memory of the "
                f"machine, which raises this limit",
                need_bytes=capacity, have_bytes=0, limit_bytes=self.arena.c.limit_nbytes, knob="max_bytes",
            )
        if self.c.chunk_end - self.c.chunk_at < capacity:
            chunk = max(capacity, min(<uint64_t>64 << 20, 16 * capacity))
            self.c.chunk_end = 0
            self.c.chunk_at = add_u64(&head.data_at, chunk)
            if self.c.chunk_at < self.arena.c.data or self.c.chunk_at % self.arena.c.page:
                self.refuse_damaged()
            if self.c.chunk_at > self.arena.c.nbytes or chunk > self.arena.c.nbytes - self.c.chunk_at:
                sub_u64(&head.data_at, chunk)
                self.c.chunk_at = 0
                raise ArenaFull(
                    f"a batch needs {capacity} bytes, and the {self.arena.c.nbytes} bytes of address "
                    f"space reserved for batches are used up; drop batches that are no longer needed",
                    need_bytes=capacity, have_bytes=0, limit_bytes=self.arena.c.nbytes,
                    knob="max_bytes",
                )
            self.c.chunk_end = self.c.chunk_at + chunk
        slot = rd_slot_table(self.arena.c, self.index) + self.c.nslots
        slot.start = self.c.chunk_at
        slot.capacity = capacity
        slot.backed = 0
        slot.heap = <uint16_t>self.index
        slot.state = RD_WRITING
        self.c.chunk_at += capacity
        if capacity >= HUGE and head.advises_huge:
            madvise(self.arena.c.base + slot.start, capacity, MADV_HUGEPAGE)
        store_u64(&self.c.nslots, self.c.nslots + 1)
        return slot

    cdef int back(self, rd_slot* slot, uint64_t nbytes) except -1:
        """Reserve the memory that the slot will own. ArenaFull if there is too little."""
        cdef rd_header* head = rd_head(self.arena.c)
        cdef uint64_t need, owned, limit
        cdef bint fits
        nbytes = round_up(nbytes, self.arena.c.page)
        if nbytes <= slot.backed:
            return 0
        need = nbytes - slot.backed
        owned = add_u64(&head.backed_bytes, need)
        limit = self.arena.limit()
        if owned + need > limit and self.trim_own():
            owned = load_u64(&head.backed_bytes) - need
        if owned + need > limit:
            sub_u64(&head.backed_bytes, need)
            raise ArenaFull(
                f"a batch needs {nbytes} bytes of shared memory, {owned} are in use and the limit is "
                f"{limit}; make batches smaller, lower num_workers or prefetch_factor, "
                f"drop kept batches, or raise max_bytes",
                need_bytes=nbytes, have_bytes=max(0, <int64_t>(limit - owned)),
                limit_bytes=limit, knob="max_bytes",
            )
        if self.available_bytes is not None:
            try:
                fits = self.promise(need)
                if not fits:
                    self.trim_own()
                    rd_trim_malloc()
                    fits = self.promise(need)
                if not fits:
                    raise ArenaFull(
                        f"a batch needs {nbytes} bytes of shared memory and the machine (or its "
                        f"memory cgroup) has {self.left} bytes left; make batches smaller, lower "
                        f"num_workers or prefetch_factor, drop kept batches, or give more memory",
                        need_bytes=nbytes, have_bytes=self.left, limit_bytes=self.left,
                        knob="memory",
                    )
            except BaseException:
                sub_u64(&head.backed_bytes, need)
                raise
            self.pending += need
            self.fresh_slots.push_back(rd_slot_offset(self.arena.c, slot))
            self.fresh_nbytes.push_back(need)
            self.publish()
        slot.backed = nbytes
        return 0

    cdef void publish(self) noexcept nogil:
        """Show the other owners how much this one may still write or allocate. At most the limit: more
        would count as damage, see rd_promises_hold."""
        store_seq_cst_u64(&self.c.promised,
                          rd_bounded(self.arena.c, self.granted + self.pending + self.reserved))

    cdef void expect(self, uint64_t nbytes) noexcept nogil:
        """Note how many bytes the samples of a batch took outside of the arena, for the next batch."""
        self.expected = rd_bounded(self.arena.c, nbytes)
        store_relaxed_u64(&self.c.expected, self.expected)

    cdef bint is_fresh(self, rd_slot* slot) noexcept nogil:
        """Whether a slot has memory that nobody has written yet."""
        cdef uint64_t offset = rd_slot_offset(self.arena.c, slot), known
        for known in self.fresh_slots:
            if known == offset:
                return True
        return False

    cdef uint64_t take_fresh(self, rd_slot* slot) noexcept nogil:
        """Return how many bytes of a slot counted as not written yet, and count them no more."""
        cdef uint64_t offset = rd_slot_offset(self.arena.c, slot), nbytes = 0
        cdef size_t i
        for i in range(self.fresh_slots.size()):
            if self.fresh_slots[i] == offset:
                nbytes = self.fresh_nbytes[i]
                self.fresh_slots[i] = self.fresh_slots.back()
                self.fresh_nbytes[i] = self.fresh_nbytes.back()
                self.fresh_slots.pop_back()
                self.fresh_nbytes.pop_back()
                self.pending = self.pending - nbytes  # written `-=`, Cython would need the GIL in a debug build
                break
        return nbytes

    cdef bint promise(self, uint64_t need) except -1:
        """Promise this owner ``need`` bytes of the memory that is left. False: less is; `left` has the number.

        The system counts a page when it is first written. So all promises that are not written yet, of this
        owner and the others, are subtracted. Each owner publishes its need first and then reads the
        others': if two ask at once, at least one sees the other. The caller adds the bytes to `pending` or
        `reserved`, and publishes that.
        """
        cdef uint64_t before = self.granted, share
        cdef int64_t left
        if need <= self.unasked:
            self.unasked -= need
            return True
        if need <= before:
            self.granted -= need
            return True
        self.granted = need
        self.publish()
        rd_fence()
        try:
            left = self.available_bytes()
        except BaseException:
            self.granted = before
            self.publish()
            raise
        left -= <int64_t>(self.pending + self.reserved + rd_promised_to_others(self.arena.c, self.index, self.expected))
        share = (self.keep_slots + 1) * self.recent_largest + 2 * self.expected
        self.is_tight = left < <int64_t>(self.arena.c.nheaps * share)
        if left < <int64_t>need:
            self.granted = before
            self.publish()
            self.left = max(<int64_t>0, left)
            return False
        # grant a share of an eighth of the rest in advance, at most 16 MiB: the others grow too
        self.granted = min((<uint64_t>left - need) // (8 * self.arena.c.nheaps), <uint64_t>16 << 20)
        return True

    cdef int64_t reserve_samples(self, bint is_firm) except -1:
        """Reserve memory for the samples of a task before they are fetched, where memory is short.

        Return 0: fetch now. If ``is_firm``, return the bytes needed where they are not free while other
        workers are busy: wait until fewer are. A lone busy worker always fetches: its samples may be
        smaller than the last. The owner must already show that it is busy: if two ask at once, at least one
        sees the other.
        """
        cdef uint64_t need = self.expected or rd_most_expected(self.arena.c)
        if not self.is_tight or need == 0 or self.available_bytes is None:
            return 0
        if not self.promise(need) and is_firm and rd_has_busy_neighbour(self.arena.c, self.index):
            return need
        self.reserved = need
        self.publish()
        return 0

    cdef void release_samples(self) noexcept nogil:
        """Release the memory reserved for the task's samples: they are gone."""
        if self.reserved:
            self.reserved = 0
            self.publish()

    cdef void release_grant(self) noexcept nogil:
        """Release the memory granted in advance: others may have it."""
        self.granted = 0
        self.publish()

    cdef void note_written(self, rd_slot* slot, uint64_t used) noexcept nogil:
        """Note that the first ``used`` bytes of a slot are written: the system counts them from now on.

        Reserved memory beyond that may be used for other slots, and is counted when it is written.
        """
        cdef uint64_t fresh = self.take_fresh(slot), unused
        cdef rd_slot copy
        if fresh == 0:
            return
        if rd_slot_read(self.arena.c, slot, &copy) or copy.backed > copy.capacity or copy.backed < fresh:
            rd_arena_damage(self.arena.c, self.index)
            return
        used = round_up(max(used, copy.backed - fresh), self.arena.c.page)
        if used + SLACK < copy.backed:
            unused = copy.backed - used
            slot.backed = used
            sub_u64(&rd_head(self.arena.c).backed_bytes, unused)
            self.granted = self.granted + unused
        self.publish()

    cdef rd_slot* alloc(self, uint64_t nbytes) except NULL:
        """Return a slot of at least nbytes, WRITING, with a new generation. Raises ArenaFull."""
        cdef uint64_t page = self.arena.c.page
        cdef uint64_t pages = max(<uint64_t>1, (nbytes + page - 1) // page)
        cdef int number = size_class(pages)
        cdef uint64_t capacity = class_pages(number) * page
        cdef rd_slot* slot
        if nbytes > self.arena.c.nbytes:  # larger than any size class or the arena
            self.refuse_size(nbytes)
        self.recent_count += 1
        if nbytes > self.recent_largest or self.recent_count >= 256:
            # the working set follows the largest batch of the last 256
            self.recent_count = 0
            self.recent_largest = nbytes
            store_u64(&self.c.hot_limit, max(<uint64_t>1 << 20, self.keep_slots * capacity))
        self.release_samples()  # the system counts the samples by now
        self.collect()
        slot = self.take_free(number)
        if slot is NULL:
            if load_u64(&self.c.hot_bytes) > self.c.hot_limit:
                self.trim_own()
            slot = self.carve(capacity)
        else:
            rd_slot_cool(self.c, slot)
            store_relaxed_u32(&slot.state, RD_WRITING)
        self.check(slot, nbytes)
        try:
            self.back(slot, nbytes)
        except BaseException:
            self.drop(slot)
            raise
        slot.generation += 1
        slot.nfields = 0
        slot.objects = 0
        slot.objects_nbytes = 0
        return slot

    cdef int refuse_size(self, uint64_t nbytes) except -1:
        raise ArenaFull(
            f"a batch needs {nbytes} bytes or more, and {self.arena.c.nbytes} bytes of address space are "
            f"reserved for all batches; make batches smaller, or raise max_bytes",
            need_bytes=nbytes, have_bytes=0, limit_bytes=self.arena.c.nbytes, knob="max_bytes",
        )

    cdef bint goes_past_cache(self, uint64_t nbytes) noexcept nogil:
        """Whether a batch of this many bytes is copied past the cache."""
        return nbytes >= load_relaxed_u64(&rd_head(self.arena.c).uncached_from)

    cdef int check(self, rd_slot* slot, uint64_t nbytes) except -1:
        """Check where a slot lies before its owner writes into it."""
        cdef rd_slot copy
        if rd_slot_read(self.arena.c, slot, &copy) or copy.capacity < nbytes:
            self.refuse_damaged()
        return 0

    cdef int refuse_damaged(self) except -1:
        """Note that this heap is damaged: a worker process ends, the trainer raises."""
        rd_arena_damage(self.arena.c, self.index)
        raise InternalError(f"a check of shared memory failed: {heap_words(self.arena.c, self.index)}")

    cdef void drop(self, rd_slot* slot) noexcept nogil:
        """Undo alloc: nothing of the slot was published.

        Memory that it got for this is freed: it is unknown how much was written.
        """
        if self.take_fresh(slot):
            rd_slot_punch(self.arena.c, slot)
            self.publish()
        rd_slot_heat(self.c, slot)
        self.put_free(slot)
