# LoDTensor, and the schema that batches of one form share.
from libc.stdint cimport int64_t, uint64_t
from reader._core.batch.dtype cimport FieldType
from reader._core.batch.structure cimport Structure
from reader._core.memory.arena cimport Lease


cpdef enum Origin:
    ORIGIN_TENSOR = 0    # a tensor, or made by stacking
    ORIGIN_ARRAY = 1     # a NumPy array, which is restored as one


cdef class Schema:
    cdef readonly Structure structure
    cdef readonly list types       # FieldType per field
    cdef readonly bytes origins    # Origin per field; None: all are ORIGIN_TENSOR
    cdef public object adapted     # a framework's, for all batches of this form; None at first
    cdef Schema its_plain          # what plain() returned; None = not called yet

    cdef Schema plain(self)


cdef class LoDTensor:
    cdef void* data                # first byte; NULL only when empty
    cdef readonly FieldType type
    cdef readonly int ndim
    cdef int64_t[64] extents       # shape
    cdef int64_t[64] steps         # strides in elements (C order), for DLPack
    cdef Py_ssize_t[64] byte_steps # strides in bytes, for the buffer protocol
    cdef readonly Py_ssize_t nbytes
    cdef readonly bint readonly
    cdef readonly str place
    cdef Lease lease               # set when the bytes lie in a slot
    cdef object owner              # else: keeps the bytes alive
    cdef tuple offsets             # LoD: row offsets by level, outermost first

    cdef int view_ndarray(self, made, FieldType type) except -1
    cdef void take(self, Lease lease, object owner, void* data, bint readonly)
    cdef object storage_array(self)
    cdef object storage_copy(self)
    cdef object make_capsule(self, bint is_versioned)
    cdef int take_capsule(self, object capsule) except -1
    cdef int lay_out(self, FieldType type, int ndim, const int64_t* extents) except -1
