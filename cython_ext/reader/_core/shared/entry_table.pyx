"""Where entries lie in a file that processes share: claimed, written, published; and the sums kept.

Imports Mapping and the hash. The words lie in the mapped file, and change by single atomic steps
alone: whichever process is killed in between, each word says what is true. What the entries are is
decided in `reader/caching/entry_file.py`.
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from reader._core.shared.mapping cimport Mapping

cdef extern from "reader/_core/shared/hash.h" nogil:
    uint64_t rd_hash(const void* bytes, size_t nbytes)
    uint64_t rd_mixed(uint64_t value)

cdef extern from * nogil:
    """
    static uint64_t rd_load(uint64_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
    static uint64_t rd_add(uint64_t *at, uint64_t n) {
        return __atomic_fetch_add(at, n, __ATOMIC_RELAXED);
    }
    static int rd_swap(uint64_t *at, uint64_t before, uint64_t after) {
        return __atomic_compare_exchange_n(at, &before, after, 0, __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE);
    }
    """
    uint64_t rd_load(uint64_t*)
    uint64_t rd_add(uint64_t*, uint64_t)
    bint rd_swap(uint64_t*, uint64_t, uint64_t)

SUMS = 64  # words before the entries: sums, of which the first says where the free bytes begin
cdef uint64_t CLAIMED = 1 << 63
cdef Py_ssize_t WORD = 8


@cython.final
cdef class EntryTable:
    """One word for each entry: 0, or the process that writes it, or where it lies.

    Args:
        mapping: writable memory that processes share.
        start: where the words begin in it, a multiple of 8: `SUMS` sums, and then the entries.
        count: how many entries there are.
    """

    cdef Mapping mapping
    cdef uint64_t* sums
    cdef uint64_t* entries
    cdef readonly Py_ssize_t count

    def __init__(self, Mapping mapping not None, Py_ssize_t start, Py_ssize_t count):
        if not mapping.is_writable or start % WORD or start < 0 or count < 0:
            raise ValueError("a table takes writable memory, from a multiple of 8 on")
        if mapping.nbytes < start + (SUMS + count) * WORD:
            raise ValueError(f"{mapping.nbytes} bytes are too few for {count} entries from {start} on")
        self.mapping = mapping
        self.sums = <uint64_t*>(mapping.start + start)
        self.entries = self.sums + <Py_ssize_t>SUMS
        self.count = count

    cdef uint64_t* entry(self, Py_ssize_t i) except NULL:
        if not 0 <= i < self.count:
            raise IndexError(f"entry {i} of {self.count}")
        return &self.entries[i]

    def place(self, Py_ssize_t i):
        """Return where an entry lies, from 1 on; 0: it is not there, or is being written."""
        cdef uint64_t word = rd_load(self.entry(i))
        return 0 if word & CLAIMED else word

    def claim(self, Py_ssize_t i, Py_ssize_t before, uint64_t pid):
        """Begin to write an entry, in the place of what lay at `before`; 0: of nothing.

        Returns:
            0: it is this process's to write; else the process that writes it, or -1: it has changed.
        """
        cdef uint64_t* entry = self.entry(i)
        cdef uint64_t word
        if rd_swap(entry, before, CLAIMED | pid):
            return 0
        word = rd_load(entry)
        return <int64_t>(word & ~CLAIMED) if word & CLAIMED else -1

    def take_over(self, Py_ssize_t i, uint64_t from_pid, uint64_t pid):
        """Claim an entry that an ended process had claimed. False: another was sooner."""
        return rd_swap(self.entry(i), CLAIMED | from_pid, CLAIMED | pid)

    def publish(self, Py_ssize_t i, uint64_t pid, uint64_t place):
        """Say where a claimed entry lies; 0: nowhere. False: the claim was taken over."""
        return rd_swap(self.entry(i), CLAIMED | pid, place)

    def forget(self, Py_ssize_t i, uint64_t place):
        """Have an entry that lies at a place lie nowhere. False: it has changed."""
        return rd_swap(self.entry(i), place, 0)

    def forget_claims(self):
        """Have entries that ended processes were writing lie nowhere: nobody else uses the table."""
        cdef Py_ssize_t i
        cdef uint64_t word
        for i in range(self.count):
            word = rd_load(&self.entries[i])
            if word & CLAIMED:
                rd_swap(&self.entries[i], word, 0)

    def take(self, uint64_t nbytes, uint64_t limit):
        """Take free bytes; returns where they begin, or -1: that would be more than `limit`."""
        cdef uint64_t used
        while True:
            used = rd_load(self.sums)
            if used + nbytes > limit:
                return -1
            if rd_swap(self.sums, used, used + nbytes):
                return <int64_t>used

    def give_back(self, uint64_t at, uint64_t nbytes):
        """Have bytes be free again, unless others were taken behind them."""
        rd_swap(self.sums, at + nbytes, at)

    def add(self, Py_ssize_t number, uint64_t n=1):
        """Add to a sum; returns what it was."""
        if not 0 <= number < <Py_ssize_t>SUMS:
            raise IndexError(f"sum {number}")
        return rd_add(&self.sums[number], n)

    def sum(self, Py_ssize_t number):
        """Return a sum."""
        if not 0 <= number < <Py_ssize_t>SUMS:
            raise IndexError(f"sum {number}")
        return rd_load(&self.sums[number])


def checksum(parts not None):
    """Return a number of 64 bits that says whether parts of bytes are as they were."""
    cdef const uint8_t[::1] part
    cdef uint64_t found = 0
    for part in parts:
        with nogil:
            found = rd_mixed(found ^ rd_hash(&part[0] if part.shape[0] else NULL, part.shape[0]))
    return found
