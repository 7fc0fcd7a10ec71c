"""DLPack capsules: export tensors to other libraries, and import theirs.

Imports the arena's leases, dtype and NumPy. An exported capsule holds a lease on the slot of its
bytes, or the object that owns them. An `Imported` owns an imported tensor, and calls the producer's
deleter when it dies.
"""
cimport cython
from cpython.object cimport PyObject
from cpython.pycapsule cimport (PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New,
                                PyCapsule_SetName)
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import numpy as np

from reader.errors import ConfigError, ConfigTypeError

from reader._core.batch.dtype cimport FieldType, dl_field_type
from reader._core.memory.arena cimport Lease, rd_lease, rd_lease_ref, rd_lease_unref

cdef extern from "reader/_core/batch/deferred_decref.h":
    void rd_drop_object(PyObject*) noexcept nogil
    int rd_run_deferred(void*) noexcept

# What a DLPack consumer keeps: the shape, and a hold on the bytes. No GIL is needed to release the hold if
# the bytes lie in a slot.
cdef struct dl_hold:
    rd_lease* lease
    PyObject* owner
    int64_t extents[64]
    int64_t steps[64]


cdef void release_hold(dl_hold* hold) noexcept nogil:
    if hold.lease is not NULL:
        rd_lease_unref(hold.lease)
    else:
        rd_drop_object(hold.owner)
    free(hold)


cdef void delete_managed(rd_dl_managed* managed) noexcept nogil:
    release_hold(<dl_hold*>managed.context)
    free(managed)


cdef void delete_versioned(rd_dl_versioned* managed) noexcept nogil:
    release_hold(<dl_hold*>managed.context)
    free(managed)


cdef void release_capsule(object capsule) noexcept:
    # an unused capsule still owns its tensor; a used one was renamed by its consumer
    cdef rd_dl_managed* managed
    cdef rd_dl_versioned* versioned
    if PyCapsule_IsValid(capsule, "dltensor"):
        managed = <rd_dl_managed*>PyCapsule_GetPointer(capsule, "dltensor")
        managed.deleter(managed)
    elif PyCapsule_IsValid(capsule, "dltensor_versioned"):
        versioned = <rd_dl_versioned*>PyCapsule_GetPointer(capsule, "dltensor_versioned")
        versioned.deleter(versioned)


cdef object make_capsule(const rd_dl_tensor* tensor, Lease lease, object owner, bint is_versioned,
                         bint readonly):
    """Return a capsule of a tensor on the CPU in C order; its shape and strides are copied.

    ``lease``: on the slot of its bytes; None: ``owner`` has them. ``is_versioned``: make one of
    DLPack 1.1; older ones cannot express ``readonly``.
    """
    cdef rd_dl_managed* managed = NULL
    cdef rd_dl_versioned* versioned = NULL
    cdef rd_dl_tensor* made
    cdef dl_hold* hold = <dl_hold*>malloc(sizeof(dl_hold))
    if hold is NULL:
        raise MemoryError()
    rd_run_deferred(NULL)
    if is_versioned:
        versioned = <rd_dl_versioned*>malloc(sizeof(rd_dl_versioned))
    else:
        managed = <rd_dl_managed*>malloc(sizeof(rd_dl_managed))
    if versioned is NULL and managed is NULL:
        free(hold)
        raise MemoryError()
    if is_versioned:
        versioned.major, versioned.minor = 1, 1
        versioned.context = hold
        versioned.deleter = delete_versioned
        versioned.flags = 1 if readonly else 0
        made = &versioned.tensor
    else:
        managed.context = hold
        managed.deleter = delete_managed
        made = &managed.tensor
    hold.owner = NULL
    hold.lease = NULL
    if lease is not None:
        hold.lease = lease.c
        rd_lease_ref(hold.lease)
    else:
        hold.owner = <PyObject*>owner
        Py_INCREF(owner)  # given back in release_hold
    made[0] = tensor[0]
    if tensor.ndim:  # else it may have no shape
        memcpy(hold.extents, tensor.shape, tensor.ndim * sizeof(int64_t))
        memcpy(hold.steps, tensor.strides, tensor.ndim * sizeof(int64_t))
    made.shape = hold.extents
    made.strides = hold.steps
    if is_versioned:
        return PyCapsule_New(versioned, "dltensor_versioned", release_capsule)
    return PyCapsule_New(managed, "dltensor", release_capsule)


@cython.final
cdef class Imported:
    """Owns a tensor imported from a DLPack capsule."""

    def __dealloc__(self):
        if self.managed is not NULL and self.managed.deleter is not NULL:
            self.managed.deleter(self.managed)
        if self.versioned is not NULL and self.versioned.deleter is not NULL:
            self.versioned.deleter(self.versioned)

    @staticmethod
    cdef Imported take(object capsule):
        """Take over a capsule's tensor. ConfigError for memory that the CPU cannot read."""
        cdef Imported self = Imported.__new__(Imported)
        if PyCapsule_IsValid(capsule, "dltensor"):
            self.managed = <rd_dl_managed*>PyCapsule_GetPointer(capsule, "dltensor")
            PyCapsule_SetName(capsule, "used_dltensor")
            self.tensor = &self.managed.tensor
        elif PyCapsule_IsValid(capsule, "dltensor_versioned"):
            self.versioned = <rd_dl_versioned*>PyCapsule_GetPointer(capsule, "dltensor_versioned")
            PyCapsule_SetName(capsule, "used_dltensor_versioned")
            if self.versioned.major != 1:
                raise ConfigError(f"a DLPack capsule of version {self.versioned.major} is newer "
                                  f"than this reader, which knows versions 0 and 1")
            self.tensor = &self.versioned.tensor
            self.readonly = self.versioned.flags & 1
        else:
            raise ConfigTypeError(f"{capsule!r} is no DLPack capsule, or it was used before")
        if self.tensor.device_type not in (1, 3):
            raise ConfigError(f"the tensor lies on DLPack device type {self.tensor.device_type}; only "
                              f"memory of the CPU (1) or pinned memory (3) can be shared: copy it")
        if self.tensor.ndim > 64:
            raise ConfigError(
                f"the tensor has {self.tensor.ndim} dimensions; at most 64 are supported")
        return self

    cdef FieldType field_type(self):
        """Return the type of its elements. ConfigTypeError if fields cannot have it."""
        cdef rd_dl_tensor* tensor = self.tensor
        cdef FieldType found = dl_field_type(tensor.code, tensor.bits, tensor.lanes)
        if found is not None:
            return found
        raise ConfigTypeError(
            f"a DLPack tensor with type code {tensor.code}, {tensor.bits} bits and {tensor.lanes} "
            f"lanes has no element type here; convert it before"
        )

    cdef bint is_dense(self) noexcept:
        """Whether its elements lie in C order without gaps."""
        cdef rd_dl_tensor* tensor = self.tensor
        cdef int64_t step = 1
        cdef int i
        if tensor.strides is NULL:
            return True
        for i in range(tensor.ndim - 1, -1, -1):
            if tensor.shape[i] > 1 and tensor.strides[i] != step:
                return False
            step *= tensor.shape[i]
        return True

    cdef object dense_copy(self, FieldType type):
        """Copy a tensor that has strides and is not empty into an array in C order."""
        cdef rd_dl_tensor* tensor = self.tensor
        cdef int i
        shape = tuple([tensor.shape[i] for i in range(tensor.ndim)])
        strides = tuple([tensor.strides[i] * type.itemsize for i in range(tensor.ndim)])
        first = _Span.make(<char*>tensor.data + tensor.byte_offset, self)
        span = np.lib.stride_tricks.as_strided(
            np.frombuffer(first, type.storage, 1), shape=shape, strides=strides)
        return span.copy(order="C")


@cython.final
cdef class _Span:
    """A buffer that begins at an address; the caller must know its end."""
    cdef void* data
    cdef object owner
    cdef Py_ssize_t extent

    @staticmethod
    cdef _Span make(void* data, object owner):
        cdef _Span self = _Span.__new__(_Span)
        self.data = data
        self.owner = owner
        self.extent = 16
        return self

    def __getbuffer__(self, Py_buffer* view, int flags):
        view.buf = self.data
        view.len = self.extent
        view.itemsize = 1
        view.readonly = True
        view.ndim = 1
        view.format = NULL
        view.shape = &self.extent
        view.strides = NULL
        view.suboffsets = NULL
        view.internal = NULL
        view.obj = self
