"""The table of entries in a file that processes share: claimed, written, published; and counters.

Imports Mapping and the hash. The words lie in the mapped file, and each change is one atomic step: if a
process is killed in between, each word is still true. `reader/caching/entry_file.py` decides what the
entries are, `free_space.py` beside it which bytes are free.
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

SUMS = 64  # words before the entries: counters; the first says where the free bytes begin
WORDS = 2  # of each entry: its own, and how many lines it takes
PLACES = (1 << 44) - 1  # bits of an entry's word: where it lies, from 1 on; 0: nowhere
GENERATIONS = (1 << 19) - 1  # the bits above: they distinguish it from earlier entries at the same place
cdef uint64_t CLAIMED = 1 << 63
cdef Py_ssize_t WORD = 8


@cython.final
cdef class EntryTable:
    """One word for each entry: 0, the process that writes it, or where it lies; and another for its length.

    A word never comes back: it holds the generation of what was written. So a process that read an entry's
    bytes asks `is_same` whether the entry lay there all the time.

    Args:
        mapping: writable memory that processes share.
        start: where the words begin in it, a multiple of 8: `SUMS` counters, and then the entries.
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
        """Return the word of an entry; 0: it is absent, or being written."""
        cdef uint64_t word = rd_load(self.entry(i))
        return 0 if word & CLAIMED else word

    def is_same(self, Py_ssize_t i, uint64_t word):
        """Whether an entry still lies where it did, so that the bytes that were read are its own."""
        rd_read_before()
        return rd_load(self.entry(i)) == word

    def lines(self, Py_ssize_t i):
        """Return how many lines a published entry takes."""
        return rd_load(self.entry(i) + 1)

    def set_lines(self, Py_ssize_t i, uint64_t lines):
        """Set how many lines an entry takes that this process writes."""
        cdef uint64_t* at = self.entry(i) + 1
        rd_swap(at, rd_load(at), lines)

    def claim(self, Py_ssize_t i, uint64_t before, uint64_t pid):
        """Claim an entry to write it, if its word is still `before`; 0: it was absent.

        Returns:
            0: this process has claimed it; else the process that writes it, or -1: it has changed.
        """
        cdef uint64_t* entry = self.entry(i)
        cdef uint64_t word
        if rd_swap(entry, before, CLAIMED | pid):
            return 0
        word = rd_load(entry)
        return <int64_t>(word & ~CLAIMED) if word & CLAIMED else -1

    def take_over(self, Py_ssize_t i, uint64_t from_pid, uint64_t pid):
        """Claim an entry that an ended process had claimed. False: another process was faster."""
        return rd_swap(self.entry(i), CLAIMED | from_pid, CLAIMED | pid)

    def publish(self, Py_ssize_t i, uint64_t pid, uint64_t word):
        """Publish where a claimed entry lies; 0: nowhere. False: the claim was taken over."""
        return rd_swap(self.entry(i), CLAIMED | pid, word)

    def drop(self, Py_ssize_t i, uint64_t word):
        """Drop an entry whose word is still `word`. False: it has changed."""
        return rd_swap(self.entry(i), word, 0)

    def drop_claims(self):
        """Drop entries that ended processes were writing. No other process may use the table."""
        cdef Py_ssize_t i
        cdef uint64_t word
        for i in range(self.count):
            word = rd_load(self.entry(i))
            if word & CLAIMED:
                rd_swap(self.entry(i), word, 0)

    def take(self, uint64_t nbytes, uint64_t limit):
        """Take free bytes at the end; returns where they begin, or -1: `limit` is reached."""
        cdef uint64_t used
        while True:
            used = rd_load(self.sums)
            if used + nbytes > limit:
                return -1
            if rd_swap(self.sums, used, used + nbytes):
                return <int64_t>used

    def release(self, uint64_t at, uint64_t nbytes):
        """Release bytes at the end. False: others were taken behind them, so they stay taken."""
        return rd_swap(self.sums, at + nbytes, at)

    cdef uint64_t* at(self, Py_ssize_t number) except NULL:
        if not 0 <= number < <Py_ssize_t>SUMS:
            raise IndexError(f"sum {number}")
        return &self.sums[number]

    def add(self, Py_ssize_t number, int64_t n=1):
        """Add to a counter; returns its value before."""
        return rd_add(self.at(number), <uint64_t>n)

    def sum(self, Py_ssize_t number):
        """Return a counter."""
        return rd_load(self.at(number))

    def swap(self, Py_ssize_t number, uint64_t before, uint64_t after):
        """Set a counter if it is still `before`. False: it has changed."""
        return rd_swap(self.at(number), before, after)


def allocate(int fd, int64_t at, int64_t nbytes):
    """Allocate bytes of a file on its file system; its content stays.

    Returns:
        Whether the file system can: the C library's emulation, which may overwrite what others write, is
        not used.

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
    """Return a checksum of 64 bits of parts of bytes."""
    cdef const uint8_t[::1] part
    cdef uint64_t found = 0
    for part in parts:
        with nogil:
            found = rd_mixed(found ^ rd_hash(&part[0] if part.shape[0] else NULL, part.shape[0]))
    return found
