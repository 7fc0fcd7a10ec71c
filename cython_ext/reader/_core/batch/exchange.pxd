# Read memory, shape and type of a tensor of torch or Paddle, without a copy and without a Python object.
from libc.stdint cimport int64_t, uint64_t
from reader._core.batch.dlpack cimport rd_dl_tensor
from reader._core.batch.dtype cimport FieldType

cdef extern from "reader/_core/batch/aliases.h":
    cppclass rd_spans:
        void add(const void* begin, uint64_t nbytes) except +
        bint overlap() except +

ctypedef int (*rd_view)(void* value, rd_dl_tensor* out) noexcept

cdef int MOST_DIMENSIONS  # of an array of NumPy

cdef bint can_be_array(const rd_dl_tensor* tensor) noexcept
cdef rd_view tensor_view(object cls) except? NULL
cdef rd_view row_view(object cls) except? NULL
cdef object holder(rd_view view, object value)
cdef bint look(rd_view view, object value, rd_dl_tensor* out) except -1
cdef bint is_usual(object value) except -1
cdef bint needs_gradient(object value, const rd_dl_tensor* tensor) except -1
cdef object settled(object value)
cdef bint is_dense(const rd_dl_tensor* tensor) noexcept
cdef bint is_canonical(const rd_dl_tensor* tensor) noexcept
cdef bint is_view(object value) except -1
cdef bint owns_storage(object value) except -1
cdef bint is_plain(rd_view view, object value, rd_dl_tensor* out) except -1
cdef uint64_t span_of(const rd_dl_tensor* tensor) noexcept
cdef object array_on(object value, FieldType type, const rd_dl_tensor* tensor)
