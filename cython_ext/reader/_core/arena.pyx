"""The arena: one anonymous memory file per worker pool, its heaps and the leases on its slots.

Imports reader.errors alone. The trainer creates an arena and releases slots; each worker attaches
and allocates in its own heap (see layout.h for what lies where and who writes which field).
"""
cimport cython
from libc.errno cimport ENOMEM, errno
from libc.stdlib cimport calloc, free
from libc.string cimport memset

import mmap
import os
import resource

from reader.errors import ArenaFull, ConfigError, InternalError, ReaderError

cdef extern from "<sys/mman.h>" nogil:
    void* mmap_c "mmap"(void*, size_t, int, int, int, long) noexcept
    int madvise(void*, size_t, int) noexcept
    int PROT_READ, PROT_WRITE, MAP_SHARED, MAP_NORESERVE, MADV_DONTDUMP
    void* MAP_FAILED

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*)() noexcept nogil, void (*)() noexcept nogil,
                       void (*)() noexcept nogil) noexcept

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
            raise ReaderError(
                f"cannot make a memory file (memfd_create): {error}; reader needs Linux 5.9 or later"
            ) from error
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
            import fcntl
            fcntl.fcntl(fd, 1033, 1 | 2 | 4)  # F_ADD_SEALS: no seals, no shrinking, no growing
        except BaseException:
            if self is None:
                os.close(fd)
            raise
        self.c.is_worker = 0
        rd_lay_out(self.c, page, nheaps, task_nbytes, result_count, slots, limit)
        head = rd_head(self.c)
        head.magic = RD_MAGIC
        head.nheaps = nheaps
        head.page_nbytes = <uint32_t>page
        head.reserved_nbytes = reserve
        head.limit_nbytes = limit
        head.heaps = page
        for i in range(nheaps):
            heap = rd_heap_at(self.c, <uint32_t>i)
            heap.task_ring_nbytes = task_nbytes
            heap.result_ring_count = result_count
            heap.slot_table_count = slots
            heap.hot_limit = 1 << 20
        head.data_at = self.c.data
        return self

    @staticmethod
    def attach(int fd, nbytes=None):
        """Map the arena behind ``fd``, which the Arena owns from now on.

        ReaderError if it cannot be mapped, or its header was damaged.
        """
        cdef rd_header* head
        cdef rd_heap* first
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
        c.fd = fd
        c.bell = c.own_bell = -1
        c.refs = 1
        c.is_worker = 1
        c.fork_generation = the_ledger.fork_generation
        c.ledger = &the_ledger
        add_u64(<uint64_t*>&the_ledger.arenas, 1)
        self.c = c
        if nbytes is None:
            head = rd_head(c)
            first = <rd_heap*>(c.base + <uint64_t>mmap.PAGESIZE)
            if head.magic != RD_MAGIC or rd_lay_out(
                    c, mmap.PAGESIZE, head.nheaps, first.task_ring_nbytes, first.result_ring_count,
                    first.slot_table_count, head.limit_nbytes):
                raise ReaderError("the header of the arena is damaged")
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
        c[0] = self.c[0]
        c.is_worker = 1
        c.closed = 0
        c.trim = c.trimming = 0
        c.trims = 0
        c.bell = c.own_bell = -1
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

    cdef int retire(self) except -1:
        """Give an arena up that was damaged: its memory goes when its last batch is dropped.

        The bell goes on to the arena that replaces it.
        """
        self.check_open()
        store_relaxed_int(&self.c.bell, -1)
        self.c.own_bell = -1
        store_u32(&self.c.closed, 1)
        return 0

    def release(self):
        """Release the memory file, which is unmapped and closed once no batch is held.

        No other object may use this Arena any more. Idempotent; afterwards its methods raise
        ReaderError.
        """
        cdef rd_arena* c = self.c
        self.c = NULL
        if c is not NULL:
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
        """Return counts: ``owned_bytes`` and ``limit_bytes`` of memory, slots by their state, and
        ``locked_slots`` and ``locked_bytes`` of those with locked pages, in any state."""
        cdef rd_header* head
        cdef rd_slot* table
        cdef uint32_t state
        cdef uint64_t n, k, locked_slots = 0, locked_bytes = 0
        cdef uint32_t i
        cdef uint64_t[6] counts
        self.check_open()
        head = rd_head(self.c)
        memset(counts, 0, sizeof(counts))
        for i in range(self.c.nheaps):
            table = rd_slot_table(self.c, i)
            n = min(load_u64(&rd_heap_at(self.c, i).nslots), self.c.slot_table_count)
            for k in range(n):
                state = load_u32(&table[k].state)
                if state <= RD_KEPT:
                    counts[state] += 1
                if load_u8(&table[k].locks):
                    locked_slots += 1
                    locked_bytes += table[k].capacity
        return {
            "owned_bytes": load_u64(&head.backed_bytes),
            "limit_bytes": self.c.limit_nbytes,
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
        self.collect()
        if self.c.nslots > arena.c.slot_table_count:
            rd_arena_damage(arena.c, index)
            return
        for k in range(self.c.nslots):
            slot = rd_slot_table(arena.c, index) + k
            if slot.state == RD_WRITING:
                rd_slot_heat(self.c, slot)
                self.give_back(slot)
            elif slot.state == RD_FREE and not self.knows(slot):
                self.give_back(slot)

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

    cdef void give_back(self, rd_slot* slot) noexcept nogil:
        """Put a slot of this heap into its private lists, after rd_slot_heat."""
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
            self.give_back(slot)
            left -= 1
            if left == 0:  # more than there are: the links form a ring
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

    cdef rd_slot* carve(self, uint64_t capacity) except? NULL:
        """Make a new slot, in the current chunk or in a new one."""
        cdef rd_header* head = rd_head(self.arena.c)
        cdef uint64_t chunk
        cdef rd_slot* slot
        if self.c.nslots > self.arena.c.slot_table_count:
            self.refuse_damaged()
        if self.c.nslots == self.arena.c.slot_table_count:
            raise ArenaFull(
                f"{self.c.nslots} batches of one worker are kept, and there is room for no more; "
                f"drop batches that are no longer needed, or set max_bytes higher: it scales the table",
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
        store_u64(&self.c.nslots, self.c.nslots + 1)
        return slot

    cdef int back(self, rd_slot* slot, uint64_t nbytes) except -1:
        """Reserve the memory that the slot will own. ArenaFull if there is too little."""
        cdef rd_header* head = rd_head(self.arena.c)
        cdef uint64_t need, owned
        nbytes = round_up(nbytes, self.arena.c.page)
        if nbytes <= slot.backed:
            return 0
        need = nbytes - slot.backed
        owned = add_u64(&head.backed_bytes, need)
        if owned + need > self.arena.c.limit_nbytes and self.trim_own():
            owned = load_u64(&head.backed_bytes) - need
        if owned + need > self.arena.c.limit_nbytes:
            sub_u64(&head.backed_bytes, need)
            raise ArenaFull(
                f"a batch needs {nbytes} bytes of shared memory, {owned} are in use and the limit is "
                f"{self.arena.c.limit_nbytes}; make batches smaller, lower num_workers or prefetch_factor, "
                f"drop kept batches, or raise max_bytes",
                need_bytes=nbytes, have_bytes=max(0, <int64_t>(self.arena.c.limit_nbytes - owned)),
                limit_bytes=self.arena.c.limit_nbytes, knob="max_bytes",
            )
        if self.available_bytes is not None and need > self.granted:
            available = self.available_bytes()
            if need > available:
                if self.trim_own():
                    available = self.available_bytes()
                if need > available:
                    sub_u64(&head.backed_bytes, need)
                    raise ArenaFull(
                        f"a batch needs {nbytes} bytes of shared memory and the machine (or its "
                        f"memory cgroup) has {available} bytes left; make batches smaller, lower "
                        f"num_workers or prefetch_factor, drop kept batches, or give more memory",
                        need_bytes=nbytes, have_bytes=available, limit_bytes=available,
                        knob="prefetch_factor",
                    )
            # call it again after an eighth of that, or 16 MiB: other workers grow, too
            self.granted = min(<uint64_t>(available - need) // 8, <uint64_t>16 << 20)
        elif self.available_bytes is not None:
            self.granted -= need
        slot.backed = nbytes
        return 0

    cdef rd_slot* alloc(self, uint64_t nbytes) except NULL:
        """Return a slot of at least nbytes, WRITING, with a new generation. Raises ArenaFull."""
        cdef uint64_t page = self.arena.c.page
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
            self.abandon(slot)
            raise
        slot.generation += 1
        slot.nfields = 0
        slot.objects = 0
        slot.objects_nbytes = 0
        return slot

    cdef int check(self, rd_slot* slot, uint64_t nbytes) except -1:
        """Check where a slot lies before its owner writes into it."""
        cdef rd_slot copy
        if rd_slot_read(self.arena.c, slot, &copy) or copy.capacity < nbytes:
            self.refuse_damaged()
        return 0

    cdef int refuse_damaged(self) except -1:
        """Note that this heap is damaged: a worker process ends, for the trainer it is an error."""
        rd_arena_damage(self.arena.c, self.index)
        raise InternalError("the shared memory of a worker was overwritten")

    cdef void abandon(self, rd_slot* slot) noexcept nogil:
        """Undo alloc: nothing of the slot was published."""
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
        cdef rd_slot copy
        if rd_slot_read(lease.c.arena, slot, &copy) or rd_slot_lock(lease.c.arena, slot):
            return None
        rd_arena_ref(lease.c.arena)
        self.c = lease.c.arena
        self.slot = slot
        self.address = <size_t>(self.c.base + copy.start)
        self.nbytes = copy.capacity
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
