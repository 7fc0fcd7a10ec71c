"""The arena: one anonymous memory file per worker pool, its heaps and the leases on its slots.

Imports reader.errors alone. The trainer creates an arena and releases slots; each worker attaches
and allocates in its own heap (see layout.h for what lies where and who writes which field).
"""
cimport cython
from libc.errno cimport ENOMEM, errno
from libc.stdlib cimport calloc, free
from libc.string cimport memset

import fcntl
import mmap
import os
import resource

from reader.errors import ArenaFull, ConfigError, ReaderError, refusal

cdef extern from "<sys/mman.h>" nogil:
    void* mmap_c "mmap"(void*, size_t, int, int, int, long) noexcept
    int madvise(void*, size_t, int) noexcept
    int PROT_READ, PROT_WRITE, MAP_SHARED, MAP_NORESERVE, MADV_DONTDUMP
    void* MAP_FAILED

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*)() noexcept nogil, void (*)() noexcept nogil,
                       void (*)() noexcept nogil) noexcept

cdef enum:
    SLACK = 1 << 16  # bytes of a slot that may stay unwritten and count as written

cdef rd_ledger the_ledger
the_ledger.arenas = 0
the_ledger.leases = 0
the_ledger.fork_generation = 0


cdef void after_fork_in_child() noexcept nogil:
    # the counts are the parent's; every handle made before the fork is foreign from now on
    the_ledger.fork_generation += 1
    the_ledger.arenas = 0
    the_ledger.leases = 0


pthread_atfork(NULL, NULL, after_fork_in_child)


cdef rd_ledger* process_ledger() noexcept:
    return &the_ledger


def ledger():
    """Return what this process has open: ``{"arenas": int, "held_slots": int}``.

    An arena counts until its last batch is dropped. Safe in any thread.
    """
    return {"arenas": the_ledger.arenas, "held_slots": the_ledger.leases}


def fork_generation():
    """Return how many forks there were between the import of reader and this process."""
    return the_ledger.fork_generation


cdef uint64_t round_up(uint64_t value, uint64_t multiple) noexcept nogil:
    return (value + multiple - 1) // multiple * multiple


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


cdef class Arena:
    """Shared memory of one worker pool.

    ``Arena.create(nworkers, ...)`` in the trainer, ``Arena.attach(fd)`` in a worker process. The
    memory is freed when the last batch in it is dropped. Not a public class.
    """

    def __dealloc__(self):
        if self.c is not NULL:
            rd_arena_unref(self.c)
            self.c = NULL

    @staticmethod
    def create(uint32_t nworkers, uint32_t in_flight, limit_nbytes=None, reserve_nbytes=None):
        """Make an arena with ``nworkers`` heaps, and one for the trainer.

        ``in_flight``: most tasks that may wait for one worker; sizes the rings.
        ``limit_nbytes``: limit of the memory for batches; None: what the machine has.
        ``reserve_nbytes``: address space; None: four times the machine's memory, or an eighth of
        the limit on virtual memory.
        Raises ReaderError when the system refuses a memory file or address space.
        """
        cdef uint64_t page = mmap.PAGESIZE
        cdef uint32_t nheaps = min(nworkers, <uint32_t>0xffff) + 1
        cdef uint64_t physical = os.sysconf("SC_PHYS_PAGES") * page
        cdef uint64_t limit = physical if limit_nbytes is None else limit_nbytes
        cdef uint64_t reserve = 4 * max(physical, limit)
        cdef uint64_t task_nbytes = 1 << 14, result_count = 64, slots, at, i
        cdef rd_header* head
        cdef rd_heap* heap
        cdef Arena self
        cdef bint is_tight = False
        if nheaps > 0xffff:
            raise ConfigError(f"an arena has room for 65534 workers, not for {nworkers}")
        space = resource.getrlimit(resource.RLIMIT_AS)[0]
        if space != resource.RLIM_INFINITY:  # other loaders and the program must fit, too
            reserve = min(reserve, <uint64_t>space // 8)
        if reserve_nbytes is not None:
            reserve = reserve_nbytes
        while task_nbytes < 1024 * <uint64_t>in_flight:
            task_nbytes *= 2
        while result_count < 2 * <uint64_t>in_flight + 16:
            result_count *= 2
        try:
            fd = os.memfd_create("reader-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except (AttributeError, OSError) as error:
            raise refusal("a memory file for batches (memfd_create)", "cannot be made", error,
                          "reader needs Linux 5.9 or later") from error
        self = None
        try:
            while True:
                slots = min(<uint64_t>1 << 22, max(<uint64_t>4096, reserve // (4 * page * nheaps)))
                at = page * (1 + nheaps)
                at += nheaps * (round_up(task_nbytes, page) + round_up(result_count * 64, page))
                at += nheaps * round_up(slots * sizeof(rd_slot), page)
                reserve = max(round_up(reserve, page), 2 * at)
                try:
                    os.ftruncate(fd, reserve)
                    self = Arena.attach(fd, reserve)
                    break
                except (OSError, ReaderError) as error:
                    if reserve // 4 < 2 * at + (<uint64_t>64 << 20) or reserve_nbytes is not None:
                        raise ReaderError(
                            f"cannot reserve {reserve} bytes of address space for batches: {error}; "
                            f"raise the limit on virtual memory (ulimit -v) or file size (ulimit -f)"
                        ) from error
                    # under a limit, leave the process more than half of what there is
                    reserve //= 2 if is_tight else 4
                    is_tight = True
            try:
                # F_ADD_SEALS: no seals, no shrinking, no growing
                fcntl.fcntl(fd, 1033, 1 | 2 | 4)
            except OSError:
                pass  # a sandbox forbids it; the file is private, and nobody else shrinks it
        except BaseException:
            if self is None:
                os.close(fd)
            raise
        head = rd_head(self.c)
        head.magic = RD_MAGIC
        head.nheaps = nheaps
        head.page_nbytes = <uint32_t>page
        head.reserved_nbytes = reserve
        head.limit_nbytes = limit
        head.heaps = page
        at = page * (1 + nheaps)
        for i in range(nheaps):
            heap = rd_heap_at(self.c, <uint32_t>i)
            heap.task_ring = at
            heap.task_ring_nbytes = task_nbytes
            at += round_up(task_nbytes, page)
            heap.result_ring = at
            heap.result_ring_count = result_count
            at += round_up(result_count * sizeof(rd_record), page)
            heap.slot_table = at
            heap.slot_table_count = slots
            at += round_up(slots * sizeof(rd_slot), page)
            heap.hot_limit = 1 << 20
        head.data_at = at
        return self

    @staticmethod
    def attach(int fd, nbytes=None):
        """Map the arena behind ``fd``, which the Arena owns from now on."""
        cdef uint64_t size = os.fstat(fd).st_size if nbytes is None else nbytes
        cdef Arena self = Arena.__new__(Arena)
        cdef void* base
        cdef rd_arena* c = <rd_arena*>calloc(1, sizeof(rd_arena))
        if c is NULL:
            raise MemoryError()
        base = mmap_c(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0)
        if base == MAP_FAILED:
            free(c)
            raise ReaderError(f"cannot map {size} bytes of shared memory: {os.strerror(errno)}")
        madvise(base, size, MADV_DONTDUMP)
        c.base = <uint8_t*>base
        c.nbytes = size
        c.fd = c.own_fd = fd
        c.bell = c.own_bell = -1
        c.users = 1
        c.refs = 1
        c.fork_generation = the_ledger.fork_generation
        c.ledger = &the_ledger
        add_u64(<uint64_t*>&the_ledger.arenas, 1)
        self.c = c
        return self

    def adopt(self):
        """Return a handle on the same mapping, for a process that was forked with this Arena.

        This object must live as long as the handle.
        """
        cdef Arena other = Arena.__new__(Arena)
        cdef rd_arena* c
        self.check_open()
        c = <rd_arena*>calloc(1, sizeof(rd_arena))
        if c is NULL:
            raise MemoryError()
        c.base = self.c.base
        c.nbytes = self.c.nbytes
        c.fd = self.c.fd
        c.own_fd = c.bell = c.own_bell = -1
        c.users = 1
        c.refs = 2  # one is never given back: the handle does not own the mapping and the file
        c.fork_generation = the_ledger.fork_generation
        c.ledger = &the_ledger
        other.c = c
        return other

    @property
    def fd(self):
        """The memory file's descriptor; owned by the arena."""
        self.check_open()
        return self.c.fd

    def close(self):
        """Free the memory of every slot that nobody holds. The workers must have ended."""
        self.check_open()
        store_relaxed_int(&self.c.bell, -1)
        rd_arena_close(self.c)
        while rd_arena_trim(self.c, 1 << 20):
            pass

    def release(self):
        """Release the memory file: its descriptors are closed, and it is unmapped once no batch is held.

        No other object may use this Arena any more. Idempotent; afterwards its methods raise
        ReaderError.
        """
        cdef rd_arena* c = self.c
        self.c = NULL
        if c is not NULL:
            rd_arena_let_go(c)
            rd_arena_unref(c)

    cdef int check_open(self) except -1:
        if self.c is NULL:
            raise ReaderError("the arena was closed")
        return 0

    def stop(self):
        """Have the workers end after their current task."""
        self.check_open()
        rd_stop_workers(self.c)

    def stats(self):
        """Return counts: ``owned_bytes`` and ``limit_bytes`` of memory, ``promised_bytes`` that workers
        may still write or allocate, slots by their state, and ``locked_slots`` and ``locked_bytes`` of
        those with locked pages, in any state."""
        cdef rd_header* head
        cdef rd_heap* heap
        cdef rd_slot* table
        cdef uint64_t n, k, locked_slots = 0, locked_bytes = 0, promised = 0
        cdef uint32_t i
        cdef uint64_t[6] counts
        self.check_open()
        head = rd_head(self.c)
        memset(counts, 0, sizeof(counts))
        for i in range(head.nheaps):
            heap = rd_heap_at(self.c, i)
            table = <rd_slot*>(self.c.base + heap.slot_table)
            promised += load_u64(&heap.promised)
            n = load_u64(&heap.nslots)
            for k in range(n):
                counts[load_u32(&table[k].state)] += 1
                if load_u8(&table[k].locks):
                    locked_slots += 1
                    locked_bytes += table[k].capacity
        return {
            "owned_bytes": load_u64(&head.backed_bytes),
            "limit_bytes": head.limit_nbytes,
            "promised_bytes": promised,
            "free_slots": counts[RD_FREE] + counts[RD_RELEASED],
            "writing_slots": counts[RD_WRITING],
            "ready_slots": counts[RD_READY],
            "held_slots": counts[RD_HELD],
            "locked_slots": locked_slots,
            "locked_bytes": locked_bytes,
        }


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
        self.hot.resize(8 + 4 * 40)
        self.cold.resize(8 + 4 * 40)
        self.publish()  # the promises of a dead owner end
        self.collect()
        for k in range(self.c.nslots):
            slot = <rd_slot*>(arena.c.base + self.c.slot_table) + k
            if slot.state == RD_WRITING:
                self.abandon(slot)
            elif slot.state == RD_FREE and not self.knows(slot):
                self.give_back(slot)

    cdef bint knows(self, rd_slot* slot) noexcept nogil:
        cdef uint64_t offset = rd_slot_offset(self.arena.c, slot)
        cdef size_t number = size_class(slot.capacity // rd_head(self.arena.c).page_nbytes)
        cdef uint64_t known
        for known in self.hot[number]:
            if known == offset:
                return True
        for known in self.cold[number]:
            if known == offset:
                return True
        return False

    cdef void give_back(self, rd_slot* slot) noexcept nogil:
        """Put a slot of this heap into its private lists, after rd_slot_heat."""
        cdef size_t number = size_class(slot.capacity // rd_head(self.arena.c).page_nbytes)
        store_u32(&slot.state, RD_FREE)
        if slot.backed:
            self.hot[number].push_back(rd_slot_offset(self.arena.c, slot))
        else:
            self.cold[number].push_back(rd_slot_offset(self.arena.c, slot))

    cdef void collect(self) noexcept nogil:
        """Take back the slots that the trainer has released since the last call."""
        cdef uint64_t at = exchange_u64(&self.c.released, 0)
        cdef rd_slot* slot
        while at:
            slot = rd_slot_at(self.arena.c, at)
            at = slot.next
            self.give_back(slot)

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

    cdef rd_slot* carve(self, uint64_t capacity) except? NULL:
        """Make a new slot, in the current chunk or in a new one."""
        cdef rd_header* head = rd_head(self.arena.c)
        cdef uint64_t chunk
        cdef rd_slot* slot
        if self.c.nslots == self.c.slot_table_count:
            raise ArenaFull(
                f"{self.c.nslots} batches of one worker are kept, and there is room for no more; "
                f"drop batches that are no longer needed, or set max_bytes higher: it scales the table",
                need_bytes=capacity, have_bytes=0, limit_bytes=head.limit_nbytes, knob="max_bytes",
            )
        if self.c.chunk_end - self.c.chunk_at < capacity:
            chunk = max(capacity, min(<uint64_t>64 << 20, 16 * capacity))
            self.c.chunk_end = 0
            self.c.chunk_at = add_u64(&head.data_at, chunk)
            if self.c.chunk_at + chunk > head.reserved_nbytes:
                sub_u64(&head.data_at, chunk)
                self.c.chunk_at = 0
                raise ArenaFull(
                    f"a batch needs {capacity} bytes, and the {head.reserved_nbytes} bytes of address "
                    f"space reserved for batches are used up; drop batches that are no longer needed",
                    need_bytes=capacity, have_bytes=0, limit_bytes=head.reserved_nbytes,
                    knob="max_bytes",
                )
            self.c.chunk_end = self.c.chunk_at + chunk
        slot = <rd_slot*>(self.arena.c.base + self.c.slot_table) + self.c.nslots
        slot.start = self.c.chunk_at
        slot.capacity = capacity
        slot.backed = 0
        slot.heap = <uint16_t>self.index
        slot.state = RD_WRITING
        self.c.chunk_at += capacity
        store_u64(&self.c.nslots, self.c.nslots + 1)
        return slot

    cdef int back(self, rd_slot* slot, uint64_t nbytes) except -1:
        """Reserve the memory that the slot will own. ArenaFull if there is too little."""
        cdef rd_header* head = rd_head(self.arena.c)
        cdef uint64_t need, owned
        cdef bint fits
        nbytes = round_up(nbytes, head.page_nbytes)
        if nbytes <= slot.backed:
            return 0
        need = nbytes - slot.backed
        owned = add_u64(&head.backed_bytes, need)
        if owned + need > head.limit_nbytes and self.trim_own():
            owned = load_u64(&head.backed_bytes) - need
        if owned + need > head.limit_nbytes:
            sub_u64(&head.backed_bytes, need)
            raise ArenaFull(
                f"a batch needs {nbytes} bytes of shared memory, {owned} are in use and the limit is "
                f"{head.limit_nbytes}; make batches smaller, lower num_workers or prefetch_factor, "
                f"drop kept batches, or raise max_bytes",
                need_bytes=nbytes, have_bytes=max(0, <int64_t>(head.limit_nbytes - owned)),
                limit_bytes=head.limit_nbytes, knob="max_bytes",
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
                        knob="prefetch_factor",
                    )
            except BaseException:
                sub_u64(&head.backed_bytes, need)
                raise
            self.pending += need
            slot.next = need
            self.publish()
        slot.backed = nbytes
        return 0

    cdef void publish(self) noexcept nogil:
        """Show the other owners what this one may still write or allocate."""
        store_seq_cst_u64(&self.c.promised, self.granted + self.pending + self.reserved)

    cdef bint promise(self, uint64_t need) except -1:
        """Take need bytes of what the machine has left. False: it has less, and `left` says how much.

        The system counts a page when it is first written. What is promised and not written yet is
        therefore subtracted, of this owner and of all others: each shows its own need first, and
        then reads theirs, so of two that ask at once at least one sees the other. The caller adds
        the bytes to `pending` or `reserved`, and publishes that.
        """
        cdef rd_header* head = rd_head(self.arena.c)
        cdef uint64_t before = self.granted, share
        cdef int64_t left
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
        left -= <int64_t>(self.pending + self.reserved + rd_promised_to_others(self.arena.c, self.index))
        share = (self.keep_slots + 1) * self.recent_largest + 2 * self.c.expected
        self.is_tight = left < <int64_t>(head.nheaps * share)
        if left < <int64_t>need:
            self.granted = before
            self.publish()
            self.left = max(<int64_t>0, left)
            return False
        # ask again after an owner's part of an eighth of that, or 16 MiB: the others grow, too
        self.granted = min((<uint64_t>left - need) // (8 * head.nheaps), <uint64_t>16 << 20)
        return True

    cdef bint expect_samples(self, bint is_firm) except -1:
        """Reserve memory for the samples of a task before they are fetched, where memory is short.

        False, if ``is_firm``: there is none while other workers are busy, and the task should wait
        until fewer are. A worker alone always fetches: its samples may be smaller than the last.
        """
        cdef uint64_t need = self.c.expected
        if not self.is_tight or need == 0 or self.available_bytes is None:
            return True
        if not self.promise(need) and is_firm and rd_has_busy_neighbour(self.arena.c, self.index):
            return False
        self.reserved = need
        self.publish()
        return True

    cdef void end_task(self) noexcept nogil:
        """The samples of the task are gone."""
        if self.reserved:
            self.reserved = 0
            self.publish()

    cdef void end_grant(self) noexcept nogil:
        """Leave what was granted in advance to the others."""
        self.granted = 0
        self.publish()

    cdef void settle(self, rd_slot* slot, uint64_t used) noexcept nogil:
        """The first ``used`` bytes of a slot are written: the system counts them from now on.

        Memory that the slot got for more than that goes back, so that it counts when it is written.
        """
        cdef rd_header* head = rd_head(self.arena.c)
        cdef uint64_t fresh = slot.next, unused = 0
        if fresh == 0:
            return
        used = round_up(max(used, slot.backed - fresh), head.page_nbytes)
        if used + SLACK < slot.backed:
            unused = slot.backed - used
            slot.backed = used
            sub_u64(&head.backed_bytes, unused)
            self.granted += unused
        slot.next = 0
        self.pending -= fresh
        self.publish()

    cdef rd_slot* alloc(self, uint64_t nbytes) except NULL:
        """Return a slot of at least nbytes, WRITING, with a new generation. Raises ArenaFull."""
        cdef uint64_t page = rd_head(self.arena.c).page_nbytes
        cdef uint64_t pages = max(<uint64_t>1, (nbytes + page - 1) // page)
        cdef int number = size_class(pages)
        cdef uint64_t capacity = class_pages(number) * page
        cdef rd_slot* slot
        self.recent_count += 1
        if nbytes > self.recent_largest or self.recent_count >= 256:
            # the working set follows the largest batch of the last 256
            self.recent_count = 0
            self.recent_largest = nbytes
            store_u64(&self.c.hot_limit, max(<uint64_t>1 << 20, self.keep_slots * capacity))
        self.end_task()  # the samples are there, and counted
        self.collect()
        slot = self.take_free(number)
        if slot is NULL:
            if load_u64(&self.c.hot_bytes) > self.c.hot_limit:
                self.trim_own()
            slot = self.carve(capacity)
        else:
            rd_slot_cool(self.c, slot)
            store_relaxed_u32(&slot.state, RD_WRITING)
        slot.next = 0
        try:
            self.back(slot, nbytes)
        except BaseException:
            self.abandon(slot)
            raise
        slot.generation += 1
        slot.nfields = 0
        slot.objects = 0
        slot.objects_nbytes = 0
        return slot

    cdef void abandon(self, rd_slot* slot) noexcept nogil:
        """Undo alloc: nothing of the slot was published.

        Memory that it got for this is freed: nobody knows how much of that was written.
        """
        if slot.next:
            self.pending -= min(self.pending, slot.next)  # more: of an owner that died
            slot.next = 0
            rd_slot_punch(self.arena.c, slot)
            self.publish()
        rd_slot_heat(self.c, slot)
        self.give_back(slot)


cdef class Lease:
    """The trainer's hold on one slot: base object of every NumPy view of a batch.

    When the last view dies, in any thread, the slot goes back to its worker.
    """

    @staticmethod
    cdef Lease take(rd_arena* arena, uint64_t slot):
        cdef Lease self = Lease.__new__(Lease)
        self.c = rd_lease_take(arena, slot)
        if self.c is NULL:
            raise MemoryError()
        return self

    def __dealloc__(self):
        if self.c is not NULL:
            rd_lease_unref(self.c)
            self.c = NULL


@cython.final
cdef class PageLock:
    """Keeps the pages of one slot in place while the caller has them locked.

    Made by `LoDTensorArray.lock_pages`. While it lives the slot's memory is never returned to the
    system, however often the slot is reused, and the arena stays mapped. It locks no page itself:
    the caller locks ``nbytes`` bytes at ``address`` afterwards (mlock, cudaHostRegister), and
    unlocks them before it calls `unlock` or drops the last reference. A slot may have several. In a
    forked child it does nothing.
    """

    def __init__(self):
        raise TypeError("use LoDTensorArray.lock_pages()")

    @staticmethod
    cdef PageLock take(Lease lease):
        cdef PageLock self = PageLock.__new__(PageLock)
        cdef rd_slot* slot = rd_slot_at(lease.c.arena, lease.c.slot)
        if rd_slot_lock(lease.c.arena, slot):
            return None
        rd_arena_ref(lease.c.arena)
        self.c = lease.c.arena
        self.slot = slot
        self.address = <size_t>(self.c.base + slot.start)
        self.nbytes = slot.capacity
        return self

    @property
    def is_locked(self):
        """Whether `unlock` has not been called."""
        return self.c is not NULL

    def unlock(self):
        """Let the slot's memory be freed again. The pages must be unlocked by now. Idempotent."""
        cdef rd_arena* c = self.c
        self.c = NULL
        if c is not NULL:
            if not rd_is_foreign(c):
                rd_slot_unlock(c, self.slot)
            rd_arena_unref(c)

    def __dealloc__(self):
        if self.c is not NULL:
            if not rd_is_foreign(self.c):
                rd_slot_unlock(self.c, self.slot)
            rd_arena_unref(self.c)


@cython.final
cdef class Hold:
    """Keeps an arena mapped while this object lives."""

    @staticmethod
    cdef Hold on(rd_arena* arena):
        cdef Hold self = Hold.__new__(Hold)
        rd_arena_ref(arena)
        self.c = arena
        return self

    def __dealloc__(self):
        if self.c is not NULL:
            rd_arena_unref(self.c)
