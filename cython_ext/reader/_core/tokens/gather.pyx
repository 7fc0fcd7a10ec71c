"""Pieces of documents copied from arrays into rows, without the GIL.

Imports nothing of ours. Each piece is compared with the ends of its document, of its array and of
its row before anything is copied: the index of a file may be of somebody else.
"""
cimport cython
from libc.stdint cimport (int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
                          uint64_t)
from libc.string cimport memcpy
from libcpp.vector cimport vector

import numpy as np

ctypedef fused number:
    uint8_t
    int8_t
    uint16_t
    int16_t
    uint32_t
    int32_t
    uint64_t
    int64_t

cdef enum:
    OTHER = 64  # kinds of numbers that are not converted begin here


@cython.final
cdef class TokenArrays:
    """Arrays of numbers, and where each document lies in them. Nothing changes after it is made.

    Args:
        arrays: of one axis each, contiguous, in the byte order of the machine.
        firsts: the first document of each array, and how many documents there are.
        starts: where each document begins in its array.
        lengths: how many numbers each has.
    """

    cdef list arrays  # which keep the memory below
    cdef vector[const char*] begins
    cdef vector[int64_t] sizes  # of each array, in numbers
    cdef vector[int] kinds  # see _kind_of
    cdef vector[int] widths  # of a number, in bytes
    cdef const int64_t[::1] firsts, starts, lengths

    def __init__(self, list arrays not None, firsts, starts, lengths):
        cdef const uint8_t[::1] content
        cdef const char* begin
        self.arrays, self.firsts, self.starts, self.lengths = arrays, firsts, starts, lengths
        for array in arrays:
            content = array.view(np.uint8)
            begin = NULL
            if content.shape[0]:
                begin = <const char*>&content[0]
            self.begins.push_back(begin)
            self.sizes.push_back(array.size)
            self.kinds.push_back(_kind_of(array.dtype))
            self.widths.push_back(array.itemsize)

    def gather(self, const int64_t[::1] documents, const int64_t[::1] begins,
               const int64_t[::1] counts, const int64_t[::1] places, out):
        """Copy pieces of documents to their places; see `Documents.gather`.

        Returns -1, or the number of the first piece that does not fit; then nothing was copied.

        Raises:
            ValueError: numbers of an array cannot become those of `out`.
        """
        cdef uint8_t[::1] content = out.view(np.uint8)
        cdef char* target = NULL
        cdef int64_t room = out.size, m = documents.shape[0], k
        cdef int kind = _kind_of(out.dtype), width = out.itemsize
        if not m == begins.shape[0] == counts.shape[0] == places.shape[0]:
            raise ValueError("documents, begins, counts and places must be of one length")
        if content.shape[0]:
            target = <char*>&content[0]
        with nogil:
            k = self._checked(documents, begins, counts, places, room, kind)
            if k == -1:
                self._copy(documents, begins, counts, places, target, kind, width)
        if k == -2:
            raise ValueError(f"numbers of these arrays cannot become {out.dtype}")
        return k

    cdef int64_t _checked(self, const int64_t[::1] documents, const int64_t[::1] begins,
                          const int64_t[::1] counts, const int64_t[::1] places, int64_t room,
                          int kind) noexcept nogil:
        cdef int64_t k, document, size, begin, count, place, start
        cdef size_t part
        for part in range(self.kinds.size()):
            if self.kinds[part] != kind and (self.kinds[part] >= OTHER or kind >= OTHER):
                return -2
        for k in range(documents.shape[0]):
            document, begin, count, place = documents[k], begins[k], counts[k], places[k]
            if not 0 <= document < self.starts.shape[0] or count < 0 or begin < 0:
                return k
            if begin > self.lengths[document] - count or not 0 <= place <= room - count:
                return k
            size, start = self.sizes[self._part(document)], self.starts[document]
            if not 0 <= start <= size - count or begin > size - count - start:
                return k
        return -1

    cdef void _copy(self, const int64_t[::1] documents, const int64_t[::1] begins,
                    const int64_t[::1] counts, const int64_t[::1] places, char* target, int kind,
                    int width) noexcept nogil:
        cdef int64_t k
        cdef Py_ssize_t part
        cdef const char* source
        cdef char* to
        for k in range(documents.shape[0]):
            if not counts[k]:
                continue
            part = self._part(documents[k])
            source = self.begins[part] + (self.starts[documents[k]] + begins[k]) * self.widths[part]
            to = target + places[k] * width
            if self.kinds[part] == kind:
                memcpy(to, source, counts[k] * width)
            else:
                _convert(source, self.kinds[part], to, width, counts[k])

    cdef Py_ssize_t _part(self, int64_t document) noexcept nogil:
        """Return which array has a document."""
        cdef Py_ssize_t low = 0, high = self.firsts.shape[0] - 1, middle
        while high - low > 1:
            middle = (low + high) // 2
            if self.firsts[middle] <= document:
                low = middle
            else:
                high = middle
        return low


cdef int _kind_of(dtype) except -1:
    """Return the number of a type: integers are below OTHER."""
    cdef int size = dtype.itemsize
    if dtype.kind not in "iu":
        return OTHER + dtype.num
    return 2 * (0 if size == 1 else 1 if size == 2 else 2 if size == 4 else 3) + (dtype.kind == "i")


cdef void _convert(const char* source, int kind, char* to, int width, int64_t count) noexcept nogil:
    """Copy numbers as others of `width` bytes, of which the sign is that of the source."""
    if kind == 0:
        _widen[uint8_t](0, source, to, width, count)
    elif kind == 1:
        _widen[int8_t](0, source, to, width, count)
    elif kind == 2:
        _widen[uint16_t](0, source, to, width, count)
    elif kind == 3:
        _widen[int16_t](0, source, to, width, count)
    elif kind == 4:
        _widen[uint32_t](0, source, to, width, count)
    elif kind == 5:
        _widen[int32_t](0, source, to, width, count)
    elif kind == 6:
        _widen[uint64_t](0, source, to, width, count)
    else:
        _widen[int64_t](0, source, to, width, count)


cdef void _widen(number value, const char* source, char* to, int width,
                 int64_t count) noexcept nogil:
    """Copy numbers of the type of `value`; they may lie at any address, as a file has them."""
    cdef int64_t k
    for k in range(count):
        memcpy(&value, source + k * sizeof(number), sizeof(number))
        if width == 1:
            (<uint8_t*>to)[k] = <uint8_t>value
        elif width == 2:
            (<uint16_t*>to)[k] = <uint16_t>value
        elif width == 4:
            (<uint32_t*>to)[k] = <uint32_t>value
        else:
            (<uint64_t*>to)[k] = <uint64_t><int64_t>value
