# LoDTensor, LoDTensorArray and what restores a batch from its slot.
from libc.stdint cimport int64_t, uint64_t
from reader._core.arena cimport Lease, rd_arena, rd_record
from reader._core.dtype cimport FieldType
from reader._core.structure cimport Structure



cdef class Schema:
    cdef readonly Structure structure
    cdef readonly list types       # FieldType per field


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
    cdef object owner              # else: whatever keeps the bytes alive
    cdef tuple offsets             # LoD: row offsets by level, outermost first

    cdef int view_ndarray(self, made, FieldType type) except -1
    cdef void take(self, Lease lease, object owner, void* data, bint readonly)
    cdef object storage_array(self)
    cdef object storage_copy(self)
    cdef object make_capsule(self, bint is_versioned)
    cdef int take_capsule(self, object capsule, object source) except -1
    cdef int lay_out(self, FieldType type, int ndim, const int64_t* extents) except -1


cdef class LoDTensorArray:
    cdef readonly Schema schema    # None: a plain list of tensors
    cdef Lease lease               # None when made in Python
    cdef char* table               # field table in the slot; NULL when made in Python
    cdef char* bytes_at            # start of the slot
    cdef list tensors              # LoDTensor by field, made on demand from the slot
    cdef readonly list objects     # leaves that are no arrays
    cdef readonly object seq       # batch number, None when made in Python
    cdef readonly object epoch

    @staticmethod
    cdef LoDTensorArray from_slot(Lease lease, Schema schema, list objects, const rd_record* record,
                                  uint64_t epoch)
    cdef list make_arrays(self)
    cdef list make_tensors(self)
    cdef list list_tensors(self)
    cpdef object place_fields(self, list fields)
