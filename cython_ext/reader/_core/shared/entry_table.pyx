"""Where entries lie in a file that processes share: claimed, written, published; and the sums kept.

Imports Mapping and the hash. The words lie in the mapped file, and change by single atomic steps
alone: whichever process is killed in between, each word says what is true. What the entries are is
decided in `reader/caching/entry_file.py`, and which bytes are free in `free_space.py` beside it.
"""
cimport cython
from libc.errno cimport EINTR, ENOSYS, EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t

import os

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
    static void rd_read_before(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
    static int rd_swap(uint64_t *at, uint64_t before, uint64_t after) {
        return __atomic_compare_exchange_n(at, &before, after, 0, __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE);
    }
    """
    uint64_t rd_load(uint64_t*)
    uint64_t rd_add(uint64_t*, uint64_t)
    bint rd_swap(uint64_t*, uint64_t, uint64_t)
    void rd_read_before()

cdef extern from "<fcntl.h>" nogil:
    int fallocate(int fd, int mode, int64_t at, int64_t nbytes)

SUMS = 64  # words before the entries: sums, of which the first says where the free bytes begin
WORDS = 2  # of each entry: its own, and how many lines it takes
PLACES = (1 << 44) - 1  # the bits of an entry's word that say where it lies, from 1 on; 0: nowhere
TURNS = (1 << 19) - 1  # and of those above: they distinguish it from what lay there before
cdef uint64_t CLAIMED = 1 << 63
cdef Py_ssize_t WORD = 8


@cython.final
cdef class EntryTable:
    """A word for each entry: 0, or the process that writes it, or where it lies; and its length.

    A word is never the same again: it has the turn of what was written there. So whoever read the
    bytes of an entry knows by `is_same` that they were its own all the time.

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
        if mapping.nbytes < start + (SUMS + WORDS * count) * WORD:
            raise ValueError(f"{mapping.nbytes} bytes are too few for {count} entries from {start} on")
        self.mapping = mapping
        self.sums = <uint64_t*>(mapping.start + start)
        self.entries = self.sums + <Py_ssize_t>SUMS
        self.count = count

    cdef uint64_t* entry(self, Py_ssize_t i) except NULL:
        if not 0 <= i < self.count:
            raise IndexError(f"entry {i} of {self.count}")
        return &self.entries[<Py_ssize_t>WORDS * i]

    def word(self, Py_ssize_t i):
        """Return what says where an entry lies; 0: it is not there, or is being written."""
        cdef uint64_t word = rd_load(self.entry(i))
        return 0 if word & CLAIMED else word

    def is_same(self, Py_ssize_t i, uint64_t word):
        """Whether an entry lies where it did, so that what was read of it is its own."""
        rd_read_before()
        return rd_load(self.entry(i)) == word

    def lines(self, Py_ssize_t i):
        """Return how many lines an entry takes that lies somewhere."""
        return rd_load(self.entry(i) + 1)

    def set_lines(self, Py_ssize_t i, uint64_t lines):
        """Say how many lines an entry takes, which this process writes."""
        cdef uint64_t* at = self.entry(i) + 1
        rd_swap(at, rd_load(at), lines)

    def claim(self, Py_ssize_t i, uint64_t before, uint64_t pid):
        """Begin to write an entry, in the place of one whose word was `before`; 0: of none.

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

    def publish(self, Py_ssize_t i, uint64_t pid, uint64_t word):
        """Say where a claimed entry lies; 0: nowhere. False: the claim was taken over."""
        return rd_swap(self.entry(i), CLAIMED | pid, word)

    def forget(self, Py_ssize_t i, uint64_t word):
        """Have an entry of that word lie nowhere. False: it has changed."""
        return rd_swap(self.entry(i), word, 0)

    def forget_claims(self):
        """Have entries that ended processes were writing lie nowhere: nobody else uses the table."""
        cdef Py_ssize_t i
        cdef uint64_t word
        for i in range(self.count):
            word = rd_load(self.entry(i))
            if word & CLAIMED:
                rd_swap(self.entry(i), word, 0)

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
        """Have bytes be free again. False: others were taken behind them, and they are not."""
        return rd_swap(self.sums, at + nbytes, at)

    cdef uint64_t* at(self, Py_ssize_t number) except NULL:
        if not 0 <= number < <Py_ssize_t>SUMS:
            raise IndexError(f"sum {number}")
        return &self.sums[number]

    def add(self, Py_ssize_t number, int64_t n=1):
        """Add to a sum; returns what it was."""
        return rd_add(self.at(number), <uint64_t>n)

    def sum(self, Py_ssize_t number):
        """Return a sum."""
        return rd_load(self.at(number))

    def swap(self, Py_ssize_t number, uint64_t before, uint64_t after):
        """Set a sum that is `before`. False: it is another."""
        return rd_swap(self.at(number), before, after)


def allocate(int fd, int64_t at, int64_t nbytes):
    """Have a file system give bytes of a file, which keeps what it holds.

    Returns:
        Whether it knows how to: no C library's imitation overwrites what others write meanwhile.

    Raises:
        OSError: the disk is full, or fails.
    """
    while fallocate(fd, 0, at, nbytes):
        if errno in (EOPNOTSUPP, ENOSYS):
            return False
        if errno != EINTR:
            raise OSError(errno, os.strerror(errno))
    return True


def checksum(parts not None):
    """Return a number of 64 bits that says whether parts of bytes are as they were."""
    cdef const uint8_t[::1] part
    cdef uint64_t found = 0
    for part in parts:
        with nogil:
            found = rd_mixed(found ^ rd_hash(&part[0] if part.shape[0] else NULL, part.shape[0]))
    return found
