"""The members of a tar file: those of a sample are read at once where they lie close together.

Imports nothing of ours. What a sample has is said by an index, of which every number is compared with the
ends of its array and of the file: the index may be of somebody else.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t pread(int fd, void* block, size_t nbytes, int64_t place)

cdef enum:
    BLOCK = 16384  # bytes that are read at once: more is read member by member, and not copied


@cython.final
@cython.boundscheck(True)
@cython.wraparound(False)
cdef class TarMembers:
    """The members of a file. Nothing changes after it is made, and each read names its place.

    Args:
        stored: the file's bytes; its `read` raises the error of what cannot be read.
        fd: of the file, which `stored` keeps open; -1: its bytes lie in memory.
        arrays: the index: see `scan_tar`.
        names: of the fields, by their numbers in the index; None: not wanted.
        key: the name of a field for the key of a sample; None: it is not wanted.
    """

    cdef object stored, name_of_key
    cdef int fd
    cdef int64_t end
    cdef list names
    cdef const int64_t[::1] starts, places, nbytes, key_ends
    cdef const int32_t[::1] kinds
    cdef const uint8_t[::1] keys

    def __init__(self, stored, int fd, arrays, list names not None, key):
        self.stored, self.fd, self.end, self.names = stored, fd, stored.nbytes, names
        self.name_of_key = key
        self.starts, self.places, self.nbytes = arrays["starts"], arrays["places"], arrays["nbytes"]
        self.kinds, self.keys, self.key_ends = arrays["extensions"], arrays["keys"], arrays["key_ends"]

    def samples(self, positions):
        """Return the members of samples that are wanted, as dicts of bytes."""
        cdef list found = []
        for position in positions:
            found.append(self._sample(position))
        return found

    def key(self, Py_ssize_t position):
        """Return the key of a sample."""
        cdef int64_t begin = self.key_ends[position], end = self.key_ends[position + 1]
        if not 0 <= begin <= end <= self.keys.shape[0]:
            raise IndexError("the place of a key lies outside of its array")
        if begin == end:
            return ""
        return PyUnicode_DecodeUTF8(<const char*>&self.keys[begin], end - begin, b"surrogateescape")

    cdef dict _sample(self, Py_ssize_t position):
        cdef char block[BLOCK]
        cdef int64_t place, size, begin = self.end, end = 0
        cdef Py_ssize_t kind, member
        cdef Py_ssize_t first = self.starts[position], last = self.starts[position + 1]
        cdef bint together = self.fd >= 0
        cdef dict found = {}
        if self.name_of_key is not None:
            found[self.name_of_key] = self.key(position)
        for member in range(first, last):
            kind, place, size = self.kinds[member], self.places[member], self.nbytes[member]
            if together and self.names[kind] is not None:
                together = 0 <= size <= BLOCK and 0 <= place <= self.end - size
                if together:
                    begin, end = min(begin, place), max(end, place + size)
        if together and begin < end and end - begin <= BLOCK:
            with nogil:
                together = pread(self.fd, block, end - begin, begin) == end - begin
        else:
            together = False
        for member in range(first, last):
            kind, place, size = self.kinds[member], self.places[member], self.nbytes[member]
            name = self.names[kind]
            if name is not None:
                if together:
                    found[name] = PyBytes_FromStringAndSize(block + (place - begin), size)
                else:
                    found[name] = self._read(place, size)
        return found

    cdef bytes _read(self, int64_t place, int64_t size):
        """Return the bytes of a member; `stored` reads what one call does not give."""
        cdef bytes found
        cdef char* at
        cdef bint whole
        if self.fd >= 0 and 0 < size <= self.end and 0 <= place <= self.end - size:
            found = PyBytes_FromStringAndSize(NULL, size)
            at = PyBytes_AS_STRING(found)
            with nogil:
                whole = pread(self.fd, at, size, place) == size
            if whole:
                return found
        return self.stored.read(place, size)
