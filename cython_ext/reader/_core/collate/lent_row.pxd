# What is lent to a sample that may write itself to its row.
from reader._core.collate.plan cimport Plan


cdef class LentRow:
    cdef list views               # the arrays of the row; None: nothing is lent

    cdef object fetch(self, object fill, object key, Plan plan, Py_ssize_t row, object owner,
                      list names)
    cdef int take_back(self, Py_ssize_t row, list names) except -1


cdef bint is_kept(list views) noexcept
cdef object detached(object sample, object fill)
cdef str index_of(list names, Py_ssize_t row)
