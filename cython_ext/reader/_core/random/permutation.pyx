"""A keyed order of a range of integers, which computes any value without the others.

Imports errors and checks; the arithmetic is in permutation.h. A Permutation never changes once it
is made, so any thread may read it.
"""
import math

cimport cython
cimport numpy as cnp
from libc.stdint cimport int64_t

from reader.checks import as_int

cnp.import_array()

cdef int64_t NOGIL_COUNT = 8192  # values, 64 KiB: above it the GIL is released around the work
cdef object KEY_LIMIT = 1 << 128
cdef object WORD = (1 << 64) - 1


@cython.final
cdef class Permutation:
    """Each of 0 .. count - 1 once, in an order that depends on (count, key) and on nothing else.

    It takes 2 KiB for any count, is made in a microsecond or two, and computes the value at any
    place in about ten nanoseconds. The order is the same on every machine and in every version with
    the same `reader.random.permutation.ALGORITHM`. It is for shuffling, not for cryptography.

    Args:
        count: how many values, from 0 to 2**63 - 1.
        key: an int in [0, 2**128).

    Raises:
        ConfigError: a count or key out of its range.
        ConfigTypeError: a count or key that is no int.

    >>> order = Permutation(5, key=1)
    >>> sorted(order[i] for i in range(5)), order.take(1, 3).tolist() == [order[1], order[2]]
    ([0, 1, 2, 3, 4], True)
    """

    def __cinit__(self, count, key):
        count = as_int("count", count, low=0, remedy="It is a number of values.")
        key = as_int("key", key, low=0, high=KEY_LIMIT - 1, remedy="It has 128 bits.")
        self.count = count
        self.key = key
        root = math.isqrt(count - 1) + 1 if count else 0
        rd_permutation_init(&self.order, count, root, key & WORD, key >> 64)

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        """Return the value at `place`, from 0; for a slice with a step from 1, an array of values.

        Raises:
            IndexError: a place below 0, or not below `count`.
        """
        cdef int64_t at, value
        if isinstance(place, slice):
            start, stop, step = place.indices(self.count)
            return self.take_values(start, stop, step)
        try:
            at = place
        except OverflowError:
            at = -1
        if not 0 <= at < self.count:
            raise IndexError(f"a permutation of {self.count} values has no place {place!r}:"
                             f" places go from 0 to {self.count - 1}")
        rd_permutation_take(&self.order, at, 1, 1, &value)
        return value

    def take(self, int64_t start, int64_t stop, int64_t step=1):
        """Return the values at places start, start + step, ... below stop.

        Releases the GIL for more than 8192 values. Any thread may call it.

        Args:
            start: first place, 0 or more.
            stop: up to `count`; start or less takes nothing.
            step: 1 or more.

        Returns:
            A new array, *dtype* int64, *shape* (n,).

        Raises:
            IndexError: start below 0, stop above `count`, or step below 1.
        """
        if start < 0 or stop > self.count or step < 1:
            raise IndexError(f"cannot take places {start} to {stop} by {step} of a permutation of"
                             f" {self.count} values: places go from 0 to {self.count - 1}, and"
                             " steps from 1")
        return self.take_values(start, stop, step)

    cdef object take_values(self, int64_t start, int64_t stop, int64_t step):
        cdef cnp.npy_intp length
        cdef cnp.ndarray values
        cdef int64_t* target
        if step < 1:
            raise IndexError(f"a permutation is read forwards: the step of a slice must be 1 or"
                             f" more, got {step}")
        length = (stop - start - 1) // step + 1 if start < stop else 0
        values = cnp.PyArray_EMPTY(1, &length, cnp.NPY_INT64, 0)
        target = <int64_t*>cnp.PyArray_DATA(values)
        if length > NOGIL_COUNT:
            with nogil:
                rd_permutation_take(&self.order, start, step, length, target)
        else:
            rd_permutation_take(&self.order, start, step, length, target)
        return values

    def __reduce__(self):
        return Permutation, (self.count, self.key)

    def __repr__(self):
        return f"Permutation({self.count}, key={self.key:#x})"
