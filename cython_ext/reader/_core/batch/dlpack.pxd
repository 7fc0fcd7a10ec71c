# The structs of the DLPack exchange protocol (see dlpack.h), and capsules exported and imported.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from reader._core.batch.dtype cimport FieldType
from reader._core.memory.arena cimport Lease

cdef extern from "reader/_core/batch/dlpack.h":
    ctypedef struct rd_dl_tensor:
        void* data
        int32_t device_type, device_id, ndim
        uint8_t code, bits
        uint16_t lanes
        int64_t* shape
        int64_t* strides
        uint64_t byte_offset

    ctypedef struct rd_dl_managed:
        rd_dl_tensor tensor
        void* context
        void (*deleter)(rd_dl_managed*) noexcept nogil

    ctypedef struct rd_dl_versioned:
        uint32_t major, minor
        void* context
        void (*deleter)(rd_dl_versioned*) noexcept nogil
        uint64_t flags
        rd_dl_tensor tensor

    ctypedef struct rd_dl_exchange:
        uint32_t major, minor
        int (*view)(void* value, rd_dl_tensor* out) noexcept  # fills out, borrowed; else an exception is set


cdef class Imported:
    cdef rd_dl_managed* managed        # one of the two is set
    cdef rd_dl_versioned* versioned
    cdef rd_dl_tensor* tensor          # of the one that is set
    cdef bint readonly

    @staticmethod
    cdef Imported take(object capsule)
    cdef FieldType field_type(self)
    cdef bint is_dense(self) noexcept
    cdef object dense_copy(self, FieldType type)


cdef object make_capsule(const rd_dl_tensor* tensor, Lease lease, object owner, bint is_versioned,
                         bint readonly)
