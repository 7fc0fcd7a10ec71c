"""Values with the indices and slices of a list or tuple.

Imports Values. A ValueSequence never changes, and any thread may read it; `reader.sharing` adds the
methods that need no speed.
"""
cimport cython
from cpython.object cimport PyObject

from reader._core.shared.values cimport Values

cdef extern from "Python.h":
    Py_ssize_t PyNumber_AsSsize_t(object index, PyObject* overflow) except? -1
    PyObject* PyExc_IndexError


cdef class ValueSequence:
    """A list or tuple that makes an item anew each time it is asked for.

    Args:
        values: the items.
        is_tuple: whether slices are tuples.
    """

    cdef Values values
    cdef readonly bint is_tuple

    def __init__(self, Values values not None, bint is_tuple):
        self.values = values
        self.is_tuple = is_tuple

    def __len__(self):
        return self.values.count

    def __getitem__(self, index):
        cdef Py_ssize_t i, k, count, start, stop, step
        if isinstance(index, slice):
            start, stop, step = index.indices(self.values.count)
            count = len(range(start, stop, step))
            found = [None] * count
            for k in range(count):
                found[k] = self.values.get(start + k * step)
            return tuple(found) if self.is_tuple else found
        if type(index) is not int and not hasattr(index, "__index__"):
            raise TypeError(f"{self.kind} indices must be integers or slices, not {type(index).__name__}")
        i = PyNumber_AsSsize_t(index, PyExc_IndexError)
        if i < 0:
            i += self.values.count
        if i < 0 or i >= self.values.count:
            raise IndexError(f"{self.kind} index out of range: got {index} of {self.values.count} items")
        return self.values.get(i)

    @property
    def kind(self):
        """The original type: "list" or "tuple"."""
        return "tuple" if self.is_tuple else "list"

    def __iter__(self):
        return Walk(self.values)


@cython.final
cdef class Walk:
    """An iterator over values."""

    cdef Values values
    cdef Py_ssize_t next

    def __cinit__(self, Values values not None):
        self.values = values

    def __iter__(self):
        return self

    def __next__(self):
        if self.next >= self.values.count:
            raise StopIteration
        self.next += 1
        return self.values.get(self.next - 1)

    def __length_hint__(self):
        return self.values.count - self.next
