"""Rows that are lent to samples: `__getitem__(index, out)` writes a sample into its row.

Imports plan and structure. A LentRow belongs to one BatchWriter; it takes each row back before the next
sample.
"""
import gc

import numpy as np

cimport cython

from reader._core.batch.structure cimport OBJECT, Flat
from reader._core.collate.plan cimport Plan

from reader._core.batch.structure import flatten
from reader.errors import CollateError

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object)


@cython.final
cdef class LentRow:
    """Arrays on the row of the current sample, in the batch's memory."""

    cdef object fetch(self, object fill, object key, Plan plan, Py_ssize_t row, object owner,
                      list names):
        """Fetch a sample that may write itself to its row of a plan; ``owner`` keeps its memory."""
        self.views = plan.row_views(row, owner)
        sample = fill(key, plan.out_of(self.views))
        if sample is None and plan.structure.kind != OBJECT:
            raise CollateError(
                f"__getitem__ of the dataset returned None for sample {row}{index_of(names, row)} when "
                f"it was given `out`; return the sample, with `out`'s arrays where it wrote them")
        return sample

    cdef int take_back(self, Py_ssize_t row, list names) except -1:
        """Take back the row lent for a sample that is written and no longer referenced."""
        if self.views is None or not is_kept(self.views):
            return 0
        gc.collect()  # frames of an exception that the dataset caught may still refer to it
        if is_kept(self.views):
            raise CollateError(
                f"the dataset keeps a reference to `out` of sample {row}{index_of(names, row)}, whose "
                f"memory is the batch's; keep a copy of it (numpy.copy)")
        return 0


cdef bint is_kept(list views) noexcept:
    """Whether anything but the list refers to an array in it, or to its memory."""
    for array in views:
        if array is not None and Py_REFCNT(array) > 2:  # the list, and this loop
            return True
    return False


cdef object detached(object sample, object fill):
    """Return a sample; a copy of it if it may lie in a slot that is about to be released."""
    cdef Flat flat
    if fill is None:
        return sample
    flat = flatten(sample)
    return flat.structure.restore(
        [value.copy() if isinstance(value, np.ndarray) else
         value.clone() if hasattr(value, "clone") else value for value in flat.fields],
        flat.objects)


cdef str index_of(list names, Py_ssize_t row):
    return "" if names is None else f" (dataset index {names[row]!r})"
