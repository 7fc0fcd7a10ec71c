"""Where keys are in a list of keys, by a hash table in shared memory.

Imports the hash. A KeyTable never changes once it is filled, and any thread may search it. Keys are bytes;
`reader/sharing/shared_dict.py` encodes other keys as bytes.
"""
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

cdef extern from "reader/_core/shared/hash.h" nogil:
    uint64_t rd_hash(const void* bytes, size_t nbytes)

cdef uint32_t EMPTY = 0xffffffff


def slots_for(Py_ssize_t count):
    """Return how many slots of 4 bytes the table of `count` keys takes: half of them stay empty.

    Raises:
        ValueError: there are too many keys.
    """
    if count >= EMPTY:
        raise ValueError(f"at most {EMPTY:,} keys, got {count:,}")
    slots = 8
    while slots < 2 * count:
        slots *= 2
    return slots


@cython.final
cdef class KeyTable:
    """A hash table of distinct keys whose bytes lie one after the other.

    Args:
        slots: memory of a power of two of numbers, see `slots_for`.
        content: the bytes of all keys.
        ends: where each key ends, in bytes; None: each has `width` bytes.
        width: bytes of each key, if all have one length.
    """

    def __init__(self, const uint32_t[::1] slots, const uint8_t[::1] content,
                 const uint64_t[::1] ends=None, Py_ssize_t width=0):
        cdef Py_ssize_t count = content.shape[0] // width if width else ends.shape[0]
        if slots.shape[0] & (slots.shape[0] - 1) or slots.shape[0] < 2 * count:
            raise ValueError(f"{slots.shape[0]} slots for {count} keys")
        self.slots = slots
        self.ends = ends
        self.content = content
        self.width = width
        self.count = count

    @staticmethod
    def fill(uint32_t[::1] slots not None, const uint8_t[::1] content,
             const uint64_t[::1] ends=None, Py_ssize_t width=0):
        """Write the slots of a table."""
        cdef KeyTable table = KeyTable(slots, content, ends, width)
        cdef Py_ssize_t i, count = content.shape[0] // width if width else ends.shape[0]
        cdef uint64_t place, mask = slots.shape[0] - 1
        memset(&slots[0], 0xff, slots.shape[0] * sizeof(uint32_t))
        for i in range(count):
            place = rd_hash(table.key(i), table.length(i)) & mask
            while slots[place] != EMPTY:
                place = (place + 1) & mask
            slots[place] = <uint32_t>i

    cdef inline const uint8_t* key(self, Py_ssize_t i) noexcept:
        cdef uint64_t begin
        if self.width:
            return &self.content[i * self.width]
        begin = self.ends[i - 1] if i else 0
        return &self.content[begin] if begin < <uint64_t>self.content.shape[0] else NULL

    cdef inline size_t length(self, Py_ssize_t i) noexcept:
        return self.width if self.width else self.ends[i] - (self.ends[i - 1] if i else 0)

    cdef Py_ssize_t find(self, const void* key, size_t nbytes) noexcept:
        """Return the number of a key; -1: it is absent."""
        cdef uint64_t mask = self.slots.shape[0] - 1, place = rd_hash(key, nbytes) & mask
        cdef uint32_t i
        while True:
            i = self.slots[place]
            if i == EMPTY:
                return -1
            if self.length(i) == nbytes and (nbytes == 0 or memcmp(self.key(i), key, nbytes) == 0):
                return i
            place = (place + 1) & mask
