"""The arena: one anonymous memory file per worker pool, and the leases on its slots.

Imports reader.errors alone. The trainer creates an arena and releases slots; each worker attaches
and allocates in its own heap, which is heap.pyx's (see layout.h for what lies where and who writes
which field).
"""
cimport cython
from libc.errno cimport ENOMEM, errno
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.mman cimport (MADV_DONTDUMP, MAP_ANONYMOUS, MAP_FAILED, MAP_NORESERVE, MAP_PRIVATE,
                         MAP_SHARED, PROT_READ, PROT_WRITE, madvise, mmap as mmap_c)

from reader._core.memory.wait cimport (add_u64, load_relaxed_i64, load_relaxed_u64, load_u8, load_u32, load_u64,
                                       rd_fence, store_relaxed_int, store_relaxed_u64, store_u32)

import fcntl
import mmap
import os
import resource

from reader.errors import ConfigError, ReaderError, refusal

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*)() noexcept nogil, void (*)() noexcept nogil,
                       void (*)() noexcept nogil) noexcept

cdef extern from *:
    """
    #include <sys/syscall.h>
    #include <unistd.h>

    static int rd_memory_node(void *address) { /* -1: unknown */
        int node = -1;
        const long failed = syscall(SYS_move_pages, 0, 1UL, &address, NULL, &node, 0);
        return failed ? -1 : node;
    }
    """
    int rd_memory_node(void* address) nogil

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
    return {"arenas": load_relaxed_i64(&the_ledger.arenas),
            "held_slots": load_relaxed_i64(&the_ledger.leases)}


def fork_generation():
    """Return how many forks there were between the import of reader and this process."""
    return the_ledger.fork_generation


cdef uint64_t round_up(uint64_t value, uint64_t multiple) noexcept nogil:
    return (value + multiple - 1) // multiple * multiple


def shared_huge_pages():
    """Return the kernel's policy on huge pages for memory files, such as "never" or "advise"; None:
    unknown."""
    try:
        with open("/sys/kernel/mm/transparent_hugepage/shmem_enabled") as file:
            return file.read().partition("[")[2].partition("]")[0] or None
    except OSError:
        return None


cdef class Arena:
    """Shared memory of one worker pool.

    ``Arena.create(nworkers, ...)`` in the trainer, ``Arena.attach(fd)`` in a worker process. The
    memory is freed when the last batch in it is dropped. Not a public class.
    """

    def __dealloc__(self):
        if self.c is not NULL:
            rd_arena_unref(self.c)
            self.c = NULL

    def share_budget(self, list others not None, uint64_t nbytes, uint32_t idle=0):
        """Limit the memory of this and other arenas together to ``nbytes`` from now on.

        Each may always use a quarter of an even share, whatever the others use. ``idle``: how many others
        will have an arena and do not have it yet.
        """
        self.others = others
        self.budget_nbytes = nbytes
        self.idle = idle

    cdef uint64_t limit(self):
        """Return how many bytes of memory the slots may own now."""
        cdef uint64_t left, sure
        cdef Arena other
        if self.others is None:
            return self.c.limit_nbytes
        rd_fence()  # if two take memory at once, one of them sees the other's
        left = self.budget_nbytes
        sure = left // (4 * (len(self.others) + 1 + self.idle))
        left -= self.idle * sure
        for each in self.others:
            other = each
            if other.c is not NULL:
                left -= min(left, max(sure, load_u64(&rd_head(other.c).backed_bytes)))
        return min(left, self.c.limit_nbytes)

    @property
    def uncached_from(self):
        """Batches of this many bytes or more are copied past the cache."""
        self.check_open()
        return load_relaxed_u64(&rd_head(self.c).uncached_from)

    @uncached_from.setter
    def uncached_from(self, uint64_t nbytes):
        self.check_open()
        store_relaxed_u64(&rd_head(self.c).uncached_from, nbytes)

    @staticmethod
    def create(uint32_t nworkers, uint32_t in_flight, limit_nbytes=None, reserve_nbytes=None,
               bint has_file=True, uint64_t uncached_from=<uint64_t>-1):
        """Make an arena with ``nworkers`` heaps, and one for the trainer.

        ``in_flight``: how many tasks may wait for one worker; sizes the rings.
        ``limit_nbytes``: limit of the memory for batches; None: what the machine has.
        ``reserve_nbytes``: address space; None: four times the machine's memory, or an eighth of
        the limit on virtual memory.
        ``has_file``: False: private memory without a descriptor; a forked process gets a copy of it.
        ``uncached_from``: batches of this many bytes or more are copied past the cache.
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
            raise ConfigError(f"num_workers must be at most 65534, got {nworkers}")
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
            fd = -1 if not has_file else os.memfd_create("reader-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
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
                    if fd >= 0:
                        os.ftruncate(fd, reserve)
                    self = Arena.attach(fd, reserve)
                    break
                except (OSError, ReaderError) as error:
                    if reserve // 4 < 2 * at + (<uint64_t>64 << 20) or reserve_nbytes is not None:
                        raise ReaderError(
                            f"cannot reserve {reserve} bytes of address space for batches: {error}; "
                            f"raise the limit on virtual memory (ulimit -v) or file size (ulimit -f)"
                        ) from error
                    # under a limit, leave more than half of the address space to the process
                    reserve //= 2 if is_tight else 4
                    is_tight = True
            try:
                # F_ADD_SEALS: no seals, no shrinking, no growing
                if fd >= 0:
                    fcntl.fcntl(fd, 1033, 1 | 2 | 4)
            except OSError:
                pass  # a sandbox forbids it; the file is private, and nobody else shrinks it
        except BaseException:
            if self is None and fd >= 0:
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
        head.uncached_from = uncached_from
        head.advises_huge = not has_file or shared_huge_pages() == "advise"
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
        """Map the arena behind ``fd``, and own the descriptor from now on; -1: anonymous memory.

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
        base = mmap_c(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_NORESERVE | (MAP_PRIVATE | MAP_ANONYMOUS if fd < 0 else MAP_SHARED), fd, 0)
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
        c.own_fd = c.bell = c.own_bell = -1
        c.users = 1
        c.refs = 2  # one is never released: the handle does not own the mapping and the file
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

    cdef int close_damaged(self) except -1:
        """Give a damaged arena up: its memory is freed with its last batch.

        The arena that replaces it takes over the bell.
        """
        self.check_open()
        store_relaxed_int(&self.c.bell, -1)
        store_relaxed_int(&self.c.own_bell, -1)
        store_u32(&self.c.closed, 1)
        return 0

    def release(self):
        """Release the memory file: its descriptors are closed, and it is unmapped once no batch is held.

        No other object may use this Arena any more. Idempotent; afterwards its methods raise
        ReaderError.
        """
        cdef rd_arena* c = self.c
        self.c = NULL
        if c is not NULL:
            rd_arena_close_files(c)
            rd_arena_unref(c)

    cdef int check_open(self) except -1:
        if self.c is NULL:
            raise ReaderError("the shared memory was closed; iterate over the loader again")
        return 0

    def stop(self):
        """Ask the workers to end after their current task."""
        self.check_open()
        rd_stop_workers(self.c)

    def stats(self):
        """Return counts: ``owned_bytes`` and ``limit_bytes`` of memory, ``uncached_from_bytes`` from which
        batches are copied past the cache, ``huge_pages`` of large slots ("advised", or the kernel's own
        policy), ``promised_bytes`` that workers may still write or allocate, slots by their state, and
        ``locked_slots`` and ``locked_bytes`` of slots with locked pages, in any state."""
        cdef rd_header* head
        cdef rd_slot* table
        cdef uint32_t state
        cdef uint64_t n, k, locked_slots = 0, locked_bytes = 0, promised = 0
        cdef uint32_t i
        cdef uint64_t[6] counts
        self.check_open()
        head = rd_head(self.c)
        memset(counts, 0, sizeof(counts))
        for i in range(self.c.nheaps):
            table = rd_slot_table(self.c, i)
            promised += rd_bounded(self.c, load_u64(&rd_heap_at(self.c, i).promised))
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
            "uncached_from_bytes": self.uncached_from,
            "huge_pages": "advised" if head.advises_huge else shared_huge_pages(),
            "promised_bytes": promised,
            "free_slots": counts[RD_FREE] + counts[RD_RELEASED],
            "writing_slots": counts[RD_WRITING],
            "ready_slots": counts[RD_READY],
            "held_slots": counts[RD_HELD],
            "locked_slots": locked_slots,
            "locked_bytes": locked_bytes,
        }


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

    @property
    def is_closed(self):
        """Whether no worker writes batches into the slot any more."""
        return self.c is NULL or load_u32(&rd_head(self.c).stop) != 0

    @property
    def node(self):
        """The NUMA node of the slot's first page; None: unknown."""
        cdef int node = -1 if self.c is NULL else rd_memory_node(<void*>self.address)
        return node if node >= 0 else None

    def unlock(self):
        """Allow the slot's memory to be freed again. The caller has unlocked the pages before. Idempotent."""
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
