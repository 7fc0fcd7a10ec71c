"""Read memory, shape and type of a tensor of torch or Paddle, in about ten nanoseconds.

Imports dtype and dlpack, and finds the libraries in `sys.modules`. Tensors are read through the C exchange
of DLPack 1.3, those of older torch through capsules, and those of older Paddle by `tensor_converters`.
Sample 0 of a batch tells whether Paddle's tensors are ragged (have LoD). A view is valid while the GIL is
held and the tensor lives.
"""
import math
import sys

cimport cython
cimport numpy as cnp
from cpython.exc cimport PyErr_Clear, PyErr_SetObject
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memcpy

from reader._core.batch.dlpack cimport rd_dl_exchange, rd_dl_managed
from reader._core.batch.dtype cimport dl_type_at
from reader._core.batch.ndarray cimport rd_make_strided
from reader._core.memory.extents cimport RD_NO_SPAN, rd_extents_nbytes, rd_extents_span

import numpy as np

from reader.errors import CollateError

cnp.import_array()

MOST_DIMENSIONS = 64 if int(np.__version__.split(".")[0]) > 1 else 32

cdef extern from "Python.h":
    ctypedef object (*rd_descr_get)(object, object, PyObject*)
    ctypedef struct PyTypeObject:
        rd_descr_get tp_descr_get
    PyTypeObject* Py_TYPE(object)

cdef enum:
    DL_CPU = 1
    DL_UINT = 1
    DL_FLOAT = 2
    DL_COMPLEX = 5
    DL_BOOL = 6

# A stacked tensor may span this many bytes, so that its batch spans less than 2**63. No memory is that
# large. An empty tensor needs no memory: its limit lets 2**32 of them fit into a batch.
cdef uint64_t MOST_SPAN = <uint64_t>1 << 47
cdef uint64_t MOST_EMPTY_SPAN = <uint64_t>1 << 31

cdef bint HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
cdef object tensor_class = None  # torch.Tensor, once seen
cdef object strided = None       # torch.strided
cdef object is_conj = None       # methods of torch.Tensor: a look-up takes
cdef object is_neg = None        # longer than the call
cdef object base = None          # and this one
cdef object untyped_storage = None
cdef object storage_uses = None  # None: this torch lacks it
cdef object requires_grad = None # torch.Tensor's descriptor
cdef tuple byte_types = ()       # torch.int8 and torch.uint8: those of fewer bits look the same
cdef rd_view its_view = NULL
cdef object paddle_class = None  # paddle.Tensor, once seen
cdef rd_view paddle_view = NULL
cdef object to_capsule = None    # without a C exchange
cdef object last_capsule = None  # owns the shape of the last view with more dimensions than fit below
cdef int64_t[64] last_shape      # copies of other shapes: a kept capsule would keep its tensor
cdef int64_t[64] last_strides


cdef int view_by_capsule(void* value, rd_dl_tensor* out) noexcept:
    """View a tensor through a capsule, a quarter of a microsecond slower than the C exchange."""
    global last_capsule
    try:
        capsule = to_capsule(<object>value)
        out[0] = (<rd_dl_managed*>PyCapsule_GetPointer(capsule, "dltensor")).tensor
        if out.ndim > 64:
            last_capsule = capsule
            return 0
        memcpy(last_shape, out.shape, out.ndim * sizeof(int64_t))
        out.shape = last_shape
        if out.strides is not NULL:
            memcpy(last_strides, out.strides, out.ndim * sizeof(int64_t))
            out.strides = last_strides
        return 0
    except BaseException as error:
        # the caller expects the exception to be set
        PyErr_SetObject(RuntimeError, str(error))
        return -1


cdef rd_view exported_view(object cls) except? NULL:
    """Return the view function that a class of tensors exports; NULL: it exports none."""
    capsule = getattr(cls, "__dlpack_c_exchange_api__", None)
    if capsule is None or not PyCapsule_IsValid(capsule, "dlpack_exchange_api"):
        return NULL
    return (<rd_dl_exchange*>PyCapsule_GetPointer(capsule, "dlpack_exchange_api")).view


cdef rd_view tensor_view(object cls) except? NULL:
    """Return the view function for a class; NULL unless it is torch.Tensor itself."""
    global tensor_class, its_view, strided, byte_types, to_capsule, is_conj, is_neg, requires_grad, base
    global untyped_storage, storage_uses
    if tensor_class is None:
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "Tensor"):
            return NULL
        its_view = exported_view(torch.Tensor)
        if its_view is NULL and HAS_GIL:  # on a build without the GIL, Python converters read the tensors
            to_capsule = torch.utils.dlpack.to_dlpack
            its_view = view_by_capsule
        strided = torch.strided
        byte_types = (torch.int8, torch.uint8)
        is_conj, is_neg = torch.Tensor.is_conj, torch.Tensor.is_neg
        requires_grad = torch.Tensor.requires_grad
        base = torch.Tensor._base
        untyped_storage = torch.Tensor.untyped_storage
        storage_uses = getattr(torch._C, "_storage_Use_Count", None)
        tensor_class = torch.Tensor  # last: other threads read it
    return its_view if cls is tensor_class else NULL


cdef rd_view row_view(object cls) except? NULL:
    """As `tensor_view`, for paddle.Tensor too: for tensors that are only copied into rows."""
    global paddle_class, paddle_view
    if paddle_class is None:
        tensor = getattr(sys.modules.get("paddle"), "Tensor", None)
        if tensor is not None:
            paddle_view = exported_view(tensor)
            paddle_class = tensor  # last: other threads read it
    return paddle_view if cls is paddle_class else tensor_view(cls)


cdef bint look(rd_view view, object value, rd_dl_tensor* out) except -1:
    """Describe a tensor in ``out``, valid until the tensor changes. False unless its values lie in strided
    memory of the CPU, in a type that fields can have.

    torch takes a millisecond to refuse an unusual kind: ask is_usual first.
    """
    if view(<void*>value, out):
        PyErr_Clear()
        return False
    if out.device_type != DL_CPU or (out.data is NULL and not is_empty(out)):
        return False
    if dl_type_at(out.code, out.bits, out.lanes) is NULL:
        return False
    if view is its_view:
        if out.bits == 8 and out.code <= DL_UINT and value.dtype not in byte_types:
            return False
        if out.code == DL_COMPLEX and is_conj(value):
            return False  # its memory holds the conjugate
        if (out.code == DL_COMPLEX or out.code == DL_FLOAT) and is_neg(value):
            return False
    out.data = <char*>out.data + out.byte_offset
    out.byte_offset = 0
    return True


cdef object holder(rd_view view, object value):
    """Return the object that holds a tensor's memory. Read that, and keep it while the GIL is released or
    an array uses the memory: Paddle may give the tensor other memory meanwhile."""
    return value.detach() if view is paddle_view else value


cdef bint is_usual(object value) except -1:
    """Whether a tensor is of a kind for which torch raises nothing within `look`."""
    return (value.layout is strided and value.is_cpu and not value.is_quantized
            and not value.is_nested)


cdef bint needs_gradient(object value, const rd_dl_tensor* tensor) except -1:
    """Whether a tensor that `look` has read requires a gradient; integers and bools never do."""
    if tensor.code <= DL_UINT or tensor.code == DL_BOOL:
        return False
    return Py_TYPE(requires_grad).tp_descr_get(requires_grad, value, NULL)


cdef bint is_view(object value) except -1:
    """Whether a torch tensor is a view of another one."""
    return Py_TYPE(base).tp_descr_get(base, value, NULL) is not None


cdef bint owns_storage(object value) except -1:
    """Whether torch allocated a tensor's memory, and no other tensor shares it."""
    if storage_uses is None:
        return False
    storage = untyped_storage(value)
    # torch cannot resize memory that NumPy, say, allocated; `value` and `storage` are the two uses
    return storage.resizable() and storage_uses(storage._cdata) == 2


cdef object settled(object value):
    """Return a tensor whose memory holds its values, with lazy conjugation and negation done."""
    return value.resolve_conj().resolve_neg()


cdef bint is_empty(const rd_dl_tensor* tensor) noexcept:
    cdef int i
    for i in range(tensor.ndim):
        if tensor.shape[i] == 0:
            return True
    return False


cdef bint is_dense(const rd_dl_tensor* tensor) noexcept:
    """Whether the elements lie in C order without gaps."""
    cdef int64_t step = 1
    cdef int i
    if tensor.strides is NULL or is_empty(tensor):
        return True
    for i in range(tensor.ndim - 1, -1, -1):
        if tensor.shape[i] != 1 and tensor.strides[i] != step:
            return False
        step *= tensor.shape[i]
    return True


cdef bint is_canonical(const rd_dl_tensor* tensor) noexcept:
    """Whether the strides are those of a new tensor. Those of extents 0 and 1, which only show the memory
    format, count too."""
    cdef int64_t step = 1
    cdef int i
    if tensor.strides is NULL:
        return True
    for i in range(tensor.ndim - 1, -1, -1):
        if tensor.strides[i] != step:
            return False
        step *= max(tensor.shape[i], <int64_t>1)
    return True


def no_array(what, dtype, shape):
    """Return the message for a tensor or a batch of a shape that NumPy does not know."""
    form = f"{len(shape)} dimensions" if len(shape) > MOST_DIMENSIONS else f"shape {shape}"
    return (f"a {what} of {dtype} with {form} cannot be given as an array: NumPy has at most "
            f"{MOST_DIMENSIONS} dimensions, and arrays that span less than 2**63 bytes, where an extent of "
            f"0 counts as 1; reshape it in the dataset, or pass a collate_fn that does")


def is_array_shape(shape, itemsize):
    """Whether NumPy can have an array of a shape and an element size in bytes."""
    return len(shape) <= MOST_DIMENSIONS and math.prod(
        [max(extent, 1) for extent in shape], start=max(itemsize, 1)) <= INT64_MAX


cdef bint can_be_array(const rd_dl_tensor* tensor) noexcept:
    """Whether NumPy can have an array of a tensor's shape: torch allows more dimensions, and empty tensors
    that span more."""
    return (tensor.ndim <= MOST_DIMENSIONS
            and rd_extents_span((tensor.bits + 7) // 8, tensor.shape, tensor.ndim) != RD_NO_SPAN)


cdef bint is_plain(rd_view view, object value, rd_dl_tensor* out) except -1:
    """Whether its bytes, shape and element type restore a tensor exactly."""
    return (is_usual(value) and look(view, value, out) and can_be_array(out) and is_canonical(out)
            and not needs_gradient(value, out))


cdef object array_on(object value, FieldType type, const rd_dl_tensor* tensor):
    """Return an array on a tensor's memory; keeps it alive; extended types as integers. CollateError
    where NumPy has no arrays of its shape."""
    cdef int64_t[64] strides
    cdef const int64_t* given = NULL
    cdef int i
    if not can_be_array(tensor):
        raise CollateError(no_array("tensor", type.name,
                                    tuple([tensor.shape[i] for i in range(tensor.ndim)])))
    if not is_dense(tensor):
        for i in range(tensor.ndim):
            strides[i] = tensor.strides[i] * type.itemsize
        given = strides
    return rd_make_strided(type.storage, tensor.ndim, tensor.shape, given, tensor.data, False,
                           <PyObject*>value)


def can_stack_tensor(value):
    """Whether stacking can copy a value: exactly a torch.Tensor of strided CPU memory, without gradient, of
    a type that fields can have."""
    cdef rd_dl_tensor tensor
    cdef rd_view view = tensor_view(type(value))
    if view is NULL or value.requires_grad or not is_usual(value):
        return False
    if not look(view, value, &tensor) and not look(view, settled(value), &tensor):
        return False
    # the batch has one dimension more
    return (tensor.ndim < MOST_DIMENSIONS
            and rd_extents_span((tensor.bits + 7) // 8, tensor.shape, tensor.ndim)
            <= (MOST_EMPTY_SPAN if is_empty(&tensor) else MOST_SPAN))


cdef uint64_t span_of(const rd_dl_tensor* tensor) noexcept:
    """Return how many bytes a tensor spans, from its first to its last."""
    cdef uint64_t last = 0
    cdef int i
    if tensor.strides is NULL:
        return rd_extents_nbytes((tensor.bits + 7) // 8, tensor.shape, tensor.ndim)
    for i in range(tensor.ndim):
        if tensor.shape[i] == 0:
            return 0
        last += <uint64_t>(tensor.shape[i] - 1) * <uint64_t>tensor.strides[i]
    return (last + 1) * ((tensor.bits + 7) // 8)


def may_share_memory(list tensors not None):
    """Whether some of these torch tensors, in strided CPU memory, share bytes. True where that is unknown."""
    cdef rd_dl_tensor tensor
    cdef rd_spans spans
    for value in tensors:
        if its_view is NULL or not look(its_view, value, &tensor):
            return True
        spans.add(tensor.data, span_of(&tensor))
    return spans.overlap()


def is_plain_tensor(value):
    """Whether its bytes, shape and element type restore a torch.Tensor exactly."""
    cdef rd_dl_tensor tensor
    cdef rd_view view = tensor_view(type(value))
    return view is not NULL and is_plain(view, value, &tensor)
