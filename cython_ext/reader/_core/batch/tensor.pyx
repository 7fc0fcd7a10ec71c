"""LoDTensor and LoDTensorArray: the fields of one batch, and how other libraries view them.

Imports leases, dlpack, dtype and structure. A tensor either holds a lease on a slot or the
object that owns its bytes; views of it (NumPy, buffer, DLPack) hold the same, so bytes live as
long as anything views them. Objects are immutable but for `append` and `set_lod`.
"""
cimport cython
cimport numpy as cnp
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT64_MAX, uint8_t

import numpy as np

from reader._core.batch.structure import Ragged, register_array_converter, register_container
from reader.errors import CollateError, ConfigError, ConfigTypeError

from reader._core.batch.dlpack cimport Imported, make_capsule, rd_dl_tensor
from reader._core.batch.dtype cimport FieldType
from reader._core.batch.ndarray cimport rd_make_ndarray
from reader._core.batch.structure cimport Structure, foreign_converter
from reader._core.memory.extents cimport RD_NO_SPAN, rd_extents_nbytes, rd_extents_span

from reader._core.batch.dtype import field_type

cnp.import_array()

@cython.final
cdef class Schema:
    """What batches of one form share: their structure, and the types and origins of their fields.

    ``origins``: a byte for each field, ORIGIN_*; None: each becomes a tensor of the batch's
    framework. ``adapted``: a framework's adapter may keep a value here.
    """

    def __init__(self, Structure structure not None, list types not None, bytes origins=None):
        self.structure = structure
        self.types = types
        self.origins = origins

    cdef Schema plain(self):
        """Return the schema with plain dicts and lists: see Structure.plain. Made once."""
        if self.its_plain is None:
            structure = self.structure.plain()
            made = self if structure is self.structure else Schema(
                structure, self.types, self.origins)
            with cython.critical_section(self):  # written once, as Structure.its_plain
                if self.its_plain is None:
                    self.its_plain = made
        return self.its_plain

    def __reduce__(self):
        return Schema, (self.structure, self.types, self.origins)


@cython.final
cdef class LoDTensor:
    """A dense array in C order with a level of detail: the row offsets of a ragged batch.

    ``LoDTensor(value, lod=None)``: ``value`` is an array, a tensor on the CPU, anything with the
    buffer protocol, ``__array_interface__`` or DLPack, or nested lists of numbers. Its bytes are
    shared where they lie in C order and native byte order, and copied otherwise; the source stays
    alive with the tensor. ``lod``: offsets by level, outermost first, such as ``[[0, 2, 5]]`` for
    two sequences of 2 and 3 rows.

    NumPy (``numpy()``, ``np.asarray``), ``memoryview`` and ``__dlpack__`` view the same bytes.
    Raises ConfigTypeError for a value that is no array, ConfigError for a wrong ``lod``.
    May be used in any thread. Paddle calls it DenseTensor since version 2.5.
    """

    def __init__(self, value, lod=None, place="cpu"):
        cdef LoDTensor other
        if place != "cpu":
            raise ConfigError(f"place is {place!r}; a LoDTensor lies on 'cpu'")
        if isinstance(value, LoDTensor):
            other = value
            self.take(other.lease, other.owner, other.data, other.readonly)
            self.lay_out(other.type, other.ndim, other.extents)
            self.place = "cpu"
            self.offsets = other.offsets
        else:
            offsets = self.view_array(value)
            lod = offsets if lod is None else lod
        if lod is not None:
            self.set_lod(lod)

    def view_array(self, value):
        """Share or copy the bytes of an array-like (for __init__); returns its own LoD, if any."""
        cdef cnp.ndarray array
        name = offsets = None
        converter = foreign_converter(value)
        found = converter(value) if converter is not None else None
        if found is not None:
            value, name, offsets = found
        elif not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
            self.take_capsule(value.__dlpack__())
            return
        try:
            made = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise ConfigTypeError(
                f"cannot make a LoDTensor of a {type(value).__name__}: {error}; give an array or a "
                f"regular nested list of numbers, and pad ragged rows or describe them with lod"
            ) from error
        if made.dtype.hasobject:
            raise ConfigTypeError(
                f"cannot make a LoDTensor of a {type(value).__name__}: NumPy reads it as dtype "
                f"object; give an array of numbers, and pad ragged rows or describe them with lod"
            )
        self.view_ndarray(made, field_type(name if name is not None else made.dtype))
        return offsets

    cdef int view_ndarray(self, made, FieldType type) except -1:
        cdef int64_t extents[64]
        cdef int i
        if made.dtype != type.storage and not type.extended:
            made = made.astype(type.storage)  # the other byte order
        elif not made.flags.c_contiguous:
            made = made.copy(order="C")
        for i in range(made.ndim):
            extents[i] = made.shape[i]
        self.lay_out(type, made.ndim, extents)
        self.take(None, made, cnp.PyArray_DATA(made), not made.flags.writeable)
        self.place = "cpu"
        self.offsets = ()
        return 0

    cdef void take(self, Lease lease, object owner, void* data, bint readonly):
        self.lease = lease
        self.owner = owner
        self.data = data
        self.readonly = readonly

    cdef int lay_out(self, FieldType type, int ndim, const int64_t* extents) except -1:
        cdef int i
        cdef int64_t step = 1
        self.type = type
        self.ndim = ndim
        if rd_extents_span(type.itemsize, extents, ndim) == RD_NO_SPAN:  # a stride would overflow
            raise ConfigError(
                f"cannot make a LoDTensor of {type.name} with shape {tuple([extents[i] for i in range(ndim)])}"
                f": it spans more than {INT64_MAX} bytes, where extents of 0 count as 1, as in NumPy; "
                f"reshape it, to one extent of 0 where it is empty")
        for i in range(ndim - 1, -1, -1):
            self.extents[i] = extents[i]
            self.steps[i] = step
            self.byte_steps[i] = step * type.itemsize
            step *= max(extents[i], <int64_t>1)
        self.nbytes = <Py_ssize_t>rd_extents_nbytes(type.itemsize, extents, ndim)
        return 0

    @property
    def shape(self):
        """Extents, a tuple of ints."""
        return tuple([self.extents[i] for i in range(self.ndim)])

    @property
    def dtype(self):
        """Element type as a name, such as "float32" or "bfloat16"."""
        return self.type.name

    @property
    def lod(self):
        """Row offsets by level, outermost first: a list of lists; empty without any."""
        return [list(level) for level in self.offsets]

    def reshape(self, shape):
        """Return a LoDTensor without LoD on the same bytes, with another shape of equal size.

        ``shape``: integers, one of which may be -1. ConfigError when the sizes differ.
        """
        cdef LoDTensor made = LoDTensor.__new__(LoDTensor)
        cdef int64_t extents[64]
        cdef int i
        count = 1
        for size in self.shape:
            count *= size
        sizes = [size.__index__() for size in shape]
        known = 1
        for size in sizes:
            known *= size if size != -1 else 1
        if sizes.count(-1) == 1 and known:
            sizes[sizes.index(-1)] = count // known
            known *= count // known
        if known != count or len(sizes) > 64 or min(sizes, default=0) < 0:
            raise ConfigError(f"cannot give a tensor of shape {self.shape} the shape {tuple(shape)}: "
                              f"it has {count} elements")
        for i in range(len(sizes)):
            extents[i] = sizes[i]
        made.lay_out(self.type, len(sizes), extents)
        made.take(self.lease, self.owner, self.data, self.readonly)
        made.place = self.place
        made.offsets = ()
        return made

    def set_lod(self, lod):
        """Set the row offsets. Each level begins with 0 and never falls; its last entry is the
        number of sequences of the next level, or for the last level of rows. Else ConfigError."""
        levels = []
        for number, level in enumerate(lod):
            level = tuple(int(entry) for entry in level)
            if not level or level[0] != 0 or any(b < a for a, b in zip(level, level[1:])):
                raise ConfigError(
                    f"the offsets of lod level {number} must begin with 0 and never decrease, got "
                    f"{list(level)}"
                )
            levels.append(level)
        for number, level in enumerate(levels):
            if number + 1 < len(levels):
                wanted, what = len(levels[number + 1]) - 1, f"sequences of level {number + 1}"
            else:
                wanted, what = (self.extents[0] if self.ndim else 0), "rows of the tensor"
            last = level[len(level) - 1]
            if last != wanted:
                raise ConfigError(
                    f"the last offset of lod level {number} must be {wanted}, the number of "
                    f"{what}, got {last}"
                )
        self.offsets = tuple(levels)

    @property
    def recursive_sequence_lengths(self):
        """The same detail as lengths instead of offsets."""
        return [[b - a for a, b in zip(level, level[1:])] for level in self.offsets]

    def __len__(self):
        if self.ndim == 0:
            raise TypeError("len() of a 0-d LoDTensor")
        return self.extents[0]

    def __repr__(self):
        lod = f", lod={self.lod}" if self.offsets else ""
        return f"LoDTensor(shape={self.shape}, dtype={self.type.name}, place={self.place}{lod})"

    def __reduce__(self):
        return _unpickle_tensor, (self.storage_array().copy(), self.type, self.lod)

    cdef object storage_array(self):
        base = self.lease if self.lease is not None else self
        return rd_make_ndarray(self.type.storage, self.ndim, self.extents, self.data, self.readonly,
                               <PyObject*>base)

    def storage(self):
        """A NumPy view of the stored bytes: extended types show as unsigned integers."""
        return self.storage_array()

    def numpy(self):
        """A NumPy view, no copy. Extended types need ml_dtypes (ConfigError)."""
        array = self.storage_array()
        return array.view(self.type.numpy_dtype()) if self.type.extended else array

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"a copy is needed to turn {array.dtype} into {np.dtype(dtype)}")
            return array.astype(dtype)
        return array.copy() if copy else array

    @property
    def __array_interface__(self):
        return self.storage_array().__array_interface__

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE and self.readonly:
            raise BufferError("the LoDTensor is read-only")
        # PEP 3118 letters, by way of NumPy; extended types show as unsigned integers
        letters = self.storage_array()
        if self.type.storage.kind == "V" and self.type.storage.names is None:
            raise BufferError(f"the buffer protocol has no letters for {self.type.name}")
        text = memoryview(letters).format.encode()
        view.internal = NULL
        view.buf = self.data
        view.len = self.nbytes
        view.itemsize = self.type.itemsize
        view.readonly = self.readonly
        view.ndim = self.ndim
        view.shape = <Py_ssize_t*>self.extents
        view.strides = NULL
        if flags & PyBUF_STRIDES == PyBUF_STRIDES:
            view.strides = self.byte_steps
        view.suboffsets = NULL
        view.obj = self
        if flags & PyBUF_FORMAT:
            Py_INCREF(text)  # released in __releasebuffer__
            view.internal = <void*>text
            view.format = <char*>text
        else:
            view.format = NULL

    def __releasebuffer__(self, Py_buffer* view):
        if view.internal is not NULL:
            Py_DECREF(<object>view.internal)
            view.internal = NULL

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A DLPack capsule on the same bytes: versioned when the caller knows version 1.

        BufferError for a stream or device other than the CPU's, for a type that DLPack lacks, and
        for read-only bytes towards a caller that knows only version 0.
        """
        cdef bint versioned = max_version is not None and max_version[0] >= 1
        if stream is not None or (dl_device is not None and tuple(dl_device)[0] != 1):
            raise BufferError(f"the tensor is on the CPU: pass stream=None and dl_device=None or "
                              f"(1, 0), got stream={stream} and dl_device={dl_device}")
        if self.type.dl_code < 0:
            raise BufferError(f"DLPack has no element type for {self.type.name}")
        if copy:
            return LoDTensor(self.storage_copy()).__dlpack__(max_version=max_version)
        if self.readonly and not versioned:
            raise BufferError("the tensor is read-only, and DLPack supports that from version 1.0 "
                              "on: pass max_version=(1, 0) or copy=True")
        return self.make_capsule(versioned)

    cdef object storage_copy(self):
        cdef LoDTensor made = LoDTensor.__new__(LoDTensor)
        made.view_ndarray(self.storage_array().copy(), self.type)
        return made

    cdef object make_capsule(self, bint is_versioned):
        cdef rd_dl_tensor tensor
        tensor.data = self.data
        tensor.device_type, tensor.device_id = 1, 0
        tensor.ndim = self.ndim
        tensor.code = <uint8_t>self.type.dl_code
        tensor.bits = <uint8_t>(self.type.itemsize * 8)
        tensor.lanes = 1
        tensor.shape = self.extents
        tensor.strides = self.steps
        tensor.byte_offset = 0
        return make_capsule(&tensor, self.lease, self, is_versioned, self.readonly)

    @staticmethod
    def from_dlpack(source):
        """A LoDTensor on the bytes of ``source``: an object with ``__dlpack__``, or a capsule.

        Bytes in C order are shared, others copied. ConfigError for memory that the CPU cannot read.
        """
        cdef LoDTensor self = LoDTensor.__new__(LoDTensor)
        if hasattr(source, "__dlpack__"):
            try:
                capsule = source.__dlpack__(max_version=(1, 1))
            except TypeError:  # a producer that knows version 0 only
                capsule = source.__dlpack__()
            self.take_capsule(capsule)
        else:
            self.take_capsule(source)
        return self

    cdef int take_capsule(self, object capsule) except -1:
        cdef Imported imported = Imported.take(capsule)
        cdef FieldType type = imported.field_type()
        self.lay_out(type, imported.tensor.ndim, imported.tensor.shape)
        self.take(None, imported, <char*>imported.tensor.data + imported.tensor.byte_offset,
                  imported.readonly)
        self.place = "cpu"
        self.offsets = ()
        if self.nbytes and not imported.is_dense():
            self.view_ndarray(imported.dense_copy(type), type)
        return 0


def _unpickle_tensor(array, type, lod):
    cdef LoDTensor self = LoDTensor.__new__(LoDTensor)
    self.view_ndarray(array, type)
    self.set_lod(lod)
    return self


def _convert_core_tensor(value):
    """Array converter of our own tensors: see register_array_converter."""
    if isinstance(value, LoDTensor):
        tensor = <LoDTensor>value
        extended = (<LoDTensor>tensor).type.name if (<LoDTensor>tensor).type.extended else None
        return (<LoDTensor>tensor).storage_array(), extended, (<LoDTensor>tensor).lod
    return None


register_array_converter("reader", _convert_core_tensor)


def _restore_ragged(children, _):
    """Return the field with its LoD. CollateError if its type has none. See structure.Ragged."""
    rows, lod = children
    if isinstance(rows, np.ndarray):
        return LoDTensor(rows, lod)
    tensor = rows.get_tensor() if hasattr(rows, "get_tensor") else rows  # paddle's, dynamic mode
    if not hasattr(tensor, "set_lod"):
        raise CollateError(
            f"a ragged field cannot be given as {type(rows).__name__}, which has no LoD; use "
            f"framework='numpy' or 'paddle', or pad the samples")
    tensor.set_lod(lod)
    return rows


register_container(Ragged, list, _restore_ragged)
