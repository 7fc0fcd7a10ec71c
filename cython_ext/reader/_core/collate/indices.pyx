"""The indices of batches as tasks carry them, without a Python integer for each.

Imports permutation. An Indices never changes; an IndexBatches belongs to one order.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t

from reader._core.random.permutation cimport Permutation, rd_permutation_take


cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*)


cdef int64_t number_of(object key) noexcept:
    """Return a key as an index of the dataset; -1: it is none."""
    cdef int overflow = 0
    return PyLong_AsLongLongAndOverflow(key, &overflow) if type(key) is int else -1


@cython.final
cdef class Indices:
    """The dataset indices of one batch: ``payload`` has them as int64, one after the other."""

    def __init__(self, bytes payload not None):
        self.payload = payload

    @staticmethod
    cdef Indices of(const char* data, Py_ssize_t nbytes):
        """Return a copy of ``nbytes`` bytes of indices."""
        cdef Indices made = Indices.__new__(Indices)
        made.payload = PyBytes_FromStringAndSize(data, nbytes)
        return made

    def __len__(self):
        return len(self.payload) // 8

    cdef int64_t* outside(self, int64_t count) noexcept:
        """Return the first index that is outside of ``count`` items; NULL: none is."""
        cdef int64_t* numbers = <int64_t*>PyBytes_AS_STRING(self.payload)
        cdef Py_ssize_t i
        for i in range(len(self.payload) // 8):
            if not -count <= numbers[i] < count:
                return &numbers[i]
        return NULL

    def first_outside(self, int64_t count):
        """Return the first index that is outside of ``count`` items, or None."""
        cdef int64_t* found = self.outside(count)
        return None if found is NULL else found[0]

    def tolist(self):
        """Return the indices as a list of Python integers."""
        return memoryview(self.payload).cast("q").tolist()


@cython.final
cdef class IndexBatches:
    """Iterates over the indices at a range of places of an order: one Indices for each batch.

    ``order``: a Permutation, or None where each place is its own index; ``places``: a range with step 1
    within the order; ``drop_last``: leave out a last batch that is short. It runs no Python code, and so no
    handler of a signal.
    """

    def __init__(self, Permutation order, places, int64_t batch_size, bint drop_last):
        self.order = order
        self.at = places.start
        self.stop = places.stop
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self):
        return self

    def __next__(self):
        cdef Indices made = self.draw()
        if made is None:
            raise StopIteration
        return made

    cdef Indices draw(self):
        """Return the indices of the next batch; None at the end."""
        cdef int64_t i, count = min(self.batch_size, self.stop - self.at)
        cdef Indices made
        cdef int64_t* numbers
        if count <= 0 or (self.drop_last and count < self.batch_size):
            return None
        made = Indices.of(NULL, 8 * count)
        numbers = <int64_t*>PyBytes_AS_STRING(made.payload)
        if self.order is not None:
            rd_permutation_take(&self.order.order, self.at, 1, count, numbers)
        else:
            for i in range(count):
                numbers[i] = self.at + i
        self.at += count
        return made
