"""Samples of one field that are not stacked yet: written straight to the field's place.

Imports copying, dtype, plan and structure. A Rows belongs to the collate function that made it and to the
writer of its batch; the samples are the user's, and are read when the field is written.
"""
import numpy as np

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset

from reader._core.batch.exchange cimport MOST_DIMENSIONS, tensor_view
from reader._core.batch.ndarray cimport as_ndarray, copy_array, rd_make_ndarray
from reader._core.batch.structure cimport foreign_converter
from reader._core.memory.extents cimport RD_NO_SPAN, rd_extents_nbytes, rd_extents_span

from reader._core.batch.dtype import field_type
from reader._core.batch.exchange import no_array
from reader.errors import CollateError

cnp.import_array()

cdef uint64_t ALL_AXES = ~<uint64_t>0


@cython.final
cdef class Rows(Unwritten):
    """The samples of one field, to be written one after the other.

    Use `stacked`, `padded` or `joined`. Samples are arrays, tensors on the CPU, numbers, or nested
    lists of numbers; each is copied once.
    """

    def __init__(self):
        raise TypeError("use Rows.stacked, Rows.padded or Rows.joined")

    @staticmethod
    def stacked(samples, dtype=None):
        """Return rows of samples that have one shape. CollateError where they differ."""
        cdef Rows self = Rows.__new__(Rows)
        self.read(samples, dtype)
        self.measure(0, 1)
        return self

    @staticmethod
    def padded(samples, axis=0, value=0, Py_ssize_t round_to=1, dtype=None):
        """Return rows of one shape, the largest; ``value`` pads shorter samples.

        ``axis``: the axis of a sample along which they may differ, or a tuple of axes; None: any. ``round_to``:
        the length of a padded axis is a multiple of it.
        """
        cdef Rows self = Rows.__new__(Rows)
        self.read(samples, dtype)
        self.measure(self.axes_of(axis), round_to)
        self.set_filling(value)
        return self

    @staticmethod
    def joined(samples, size=None, value=0, Py_ssize_t round_to=1, dtype=None):
        """Return samples end to end along their first axis, and ``value`` behind them.

        ``size``: the length of the field; None: what they need, up to a multiple of ``round_to``.
        """
        cdef Rows self = Rows.__new__(Rows)
        cdef Py_ssize_t row, total = 0
        cdef cnp.ndarray array, first
        cdef int i
        self.read(samples, dtype)
        first = self.arrays[0]
        for row in range(len(self.arrays)):
            array = self.arrays[row]
            if cnp.PyArray_NDIM(array) == 0:
                self.refuse(row, "has no first axis; give each sample as an array of rows")
            if cnp.PyArray_NDIM(array) != cnp.PyArray_NDIM(first) or (
                    (<object>array).shape[1:] != (<object>first).shape[1:]):
                self.refuse(row, f"has shape {(<object>array).shape} and sample 0 has "
                                 f"{(<object>first).shape}: all but the first axis must agree")
            total += cnp.PyArray_DIM(array, 0)
        if size is None:
            size = (total + round_to - 1) // round_to * round_to
        elif total > size:
            raise CollateError(
                f"cannot pack {len(self.arrays)} samples with {total} rows in all into {size}; "
                f"make smaller batches (BucketBatchSampler takes max_tokens), or raise budget")
        self.is_joined = True
        self.ndim = cnp.PyArray_NDIM(first)
        self.extents[0] = size
        for i in range(1, self.ndim):
            self.extents[i] = cnp.PyArray_DIM(first, i)
        self.count_bytes()
        self.set_filling(value)
        return self

    @property
    def shape(self):
        """The shape of the field."""
        cdef int i
        return tuple([self.extents[i] for i in range(self.ndim)])

    @property
    def dtype(self):
        """The FieldType of the field."""
        return self.type

    def lengths(self, axis=0):
        """Return the length of each sample along an axis, as int64; along a tuple of axes, samples x axes."""
        if isinstance(axis, tuple):
            return np.stack([self.lengths(each) for each in axis], axis=1)
        if not self.is_joined:
            axis = self.axis_of(axis)
        return np.array([array.shape[axis] for array in self.arrays], np.int64)

    def array(self):
        """Return the field as a new array, an extended type in its storage type."""
        cdef cnp.ndarray made = np.empty(self.shape, self.type.storage)
        self.write(<char*>cnp.PyArray_DATA(made))
        return made

    def numpy(self):
        """Return the field as a new array; ConfigError for an extended type without ml_dtypes."""
        made = self.array()
        return made.view(self.type.numpy_dtype()) if self.type.extended else made

    cdef int axis_of(self, int axis) except -1:
        """Return the number of an axis of the samples, which may count from the last."""
        cdef int ndim = cnp.PyArray_NDIM(<cnp.ndarray>self.arrays[0])
        if not -ndim <= axis < ndim:
            raise CollateError(
                f"cannot pad axis {axis} of a sample of shape {self.arrays[0].shape}: its axes are "
                f"{-ndim} to {ndim - 1}" if ndim else
                f"cannot pad a sample that is a number, {self.arrays[0]!r}: it has no axis; stack it")
        return axis + ndim if axis < 0 else axis

    cdef uint64_t axes_of(self, object axis) except? 0:
        """Return axes of the samples, each a bit: one, those of a tuple, or all for None."""
        cdef uint64_t axes = 0, found
        if axis is None:
            return ALL_AXES
        if not isinstance(axis, tuple):
            return <uint64_t>1 << self.axis_of(axis)
        for each in axis:
            found = <uint64_t>1 << self.axis_of(each)
            if axes & found:
                raise CollateError(f"cannot pad the axes {axis} of a sample of shape "
                                   f"{self.arrays[0].shape}: {each} names one that another names, too")
            axes |= found
        return axes

    cdef int refuse(self, Py_ssize_t row, object reason) except -1:
        raise CollateError(f"cannot collate sample {row}: it {reason}")

    cdef int read(self, object samples, object dtype) except -1:
        """Take the samples, and choose the element type."""
        cdef FieldType found
        cdef Py_ssize_t row = 0
        cdef bint is_chosen = dtype is not None
        name = [None]
        self.arrays = []
        self.types = []
        if is_chosen:
            self.type = field_type(dtype)
        for sample in samples:
            try:
                array = as_ndarray(sample, name)
            except ValueError as error:
                raise CollateError(
                    f"cannot collate sample {row}: it is no array of numbers: {error}") from error
            if array.dtype.kind in "OUSV":
                self.refuse(row, f"is a {type(sample).__name__} of {array.dtype} with {array.ndim} "
                                 f"axes, and only arrays of numbers can be put together; collate "
                                 f"the fields of a sample one by one (Tuple, Dict), or keep it in a "
                                 f"list (AsList)")
            found = field_type(name[0] if name[0] is not None else array.dtype)
            if not is_chosen and (array.size or isinstance(sample, np.ndarray)
                                  or name[0] is not None):  # the type of an empty list means nothing
                if self.type is None:
                    self.type = found
                elif found is not self.type:
                    self.refuse(row, f"has dtype {found.name} and others have {self.type.name}; give "
                                     f"them one type in the dataset, or pass dtype=")
            self.arrays.append(array)
            self.types.append(found)
            row += 1
        if not self.arrays:
            raise CollateError("cannot make a batch of no samples; leave empty batches out")
        if self.type is None:
            self.type = self.types[0]
        return 0

    cdef int measure(self, uint64_t axes, Py_ssize_t round_to) except -1:
        """Find the shape of a row: that of the samples, with the largest extent along padded axes, as bits."""
        cdef cnp.ndarray array, first = self.arrays[0]
        cdef Py_ssize_t row, count = len(self.arrays)
        cdef int i, ndim = cnp.PyArray_NDIM(first)
        if ndim >= MOST_DIMENSIONS:
            self.refuse(0, f"has {ndim} dimensions, and a field of it would have {ndim + 1}: NumPy has "
                           f"at most {MOST_DIMENSIONS}; reshape it in the dataset")
        self.ndim = ndim + 1
        self.extents[0] = count
        for i in range(ndim):
            self.extents[i + 1] = cnp.PyArray_DIM(first, i)
        for row in range(1, count):
            array = self.arrays[row]
            if cnp.PyArray_NDIM(array) != ndim:
                self.refuse(row, f"has shape {(<object>array).shape} and sample 0 has "
                                 f"{(<object>first).shape}")
            for i in range(ndim):
                if axes >> i & 1:
                    self.extents[i + 1] = max(self.extents[i + 1], cnp.PyArray_DIM(array, i))
                elif cnp.PyArray_DIM(array, i) != self.extents[i + 1]:
                    self.refuse_shape(row, axes)
        for i in range(ndim):
            if axes >> i & 1:
                self.extents[i + 1] = (self.extents[i + 1] + round_to - 1) // round_to * round_to
        self.count_bytes()
        return 0

    cdef int refuse_shape(self, Py_ssize_t row, uint64_t axes) except -1:
        """Raise CollateError for a sample that differs from the first along axes that are not padded."""
        first, found = (<object>self.arrays[0]).shape, (<object>self.arrays[row]).shape
        where, way = "", "pad or resize them"
        if axes:
            padded = [str(i) for i in range(len(first)) if axes >> i & 1]
            named = f"axes {', '.join(padded)}" if padded[1:] else f"axis {padded[0]}"
            shapes = [each.shape for each in self.arrays if each.ndim == len(first)]
            differ = tuple([i for i in range(len(first)) if len({shape[i] for shape in shapes}) > 1])
            where = f"; they may differ along {named} alone"
            way = f"pass axis={differ if differ[1:] else differ[0]}, or resize them"
        self.refuse(row, f"has shape {found} and sample 0 has {first}{where}; {way}")

    cdef int count_bytes(self) except -1:
        if rd_extents_span(self.type.itemsize, self.extents, self.ndim) == RD_NO_SPAN:
            raise CollateError(no_array("batch", self.type.name, self.shape))
        self.nbytes = <Py_ssize_t>rd_extents_nbytes(self.type.itemsize, self.extents, self.ndim)
        return 0

    cdef int set_filling(self, object value) except -1:
        """Convert the padding value to the element type."""
        if type(value) is int and value == 0:
            self.filling = bytes(self.type.itemsize)
            return 0
        kind = self.type.numpy_dtype()
        try:
            with np.errstate(all="ignore"):
                made = np.asarray(value).astype(kind).reshape(())
            fits = kind.kind not in "biu" or made.item() == value
        except (TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            raise CollateError(f"cannot pad with {value!r}: the samples have dtype {self.type.name}, "
                               f"which does not hold it; pass another value, or dtype=")
        self.filling = made.tobytes()
        return 0

    cdef int fill(self, char* target, Py_ssize_t nbytes) except -1:
        """Write the padding value."""
        cdef const char* item
        cdef Py_ssize_t size = self.type.itemsize, done = size, i
        if nbytes == 0:
            return 0
        item = self.filling
        for i in range(1, size):
            if item[i] != item[0]:
                break
        else:
            memset(target, item[0], nbytes)
            return 0
        memcpy(target, item, size)
        while done < nbytes:
            memcpy(target + done, target, min(done, nbytes - done))
            done += min(done, nbytes - done)
        return 0

    cdef int write(self, char* target) except -1:
        """Write the field, ``nbytes`` in C order."""
        cdef Py_ssize_t row, each, at = 0
        cdef cnp.ndarray array
        each = 0 if self.is_joined else self.nbytes // self.extents[0]
        for row in range(len(self.arrays)):
            array = self.arrays[row]
            if self.is_joined:
                each = self.type.itemsize * cnp.PyArray_SIZE(array)
                self.write_whole(array, self.types[row], target + at)
            else:
                self.write_row(array, self.types[row], target + at)
            at += each
        if self.is_joined:
            self.fill(target + at, self.nbytes - at)
        return 0

    cdef int write_whole(self, cnp.ndarray array, FieldType type, char* target) except -1:
        """Write a sample without padding."""
        if type is self.type:
            return copy_array(array, type, target, self.is_uncached)
        view = rd_make_ndarray(self.type.storage, cnp.PyArray_NDIM(array),
                               <int64_t*>cnp.PyArray_DIMS(array), target, False, NULL)
        self.convert(array, type, view)
        return 0

    cdef int convert(self, object array, FieldType type, object view) except -1:
        """Write a sample to a view of the field's storage type."""
        if type is not self.type:
            array = array.view(type.numpy_dtype()) if type.extended else array
            view = view.view(self.type.numpy_dtype()) if self.type.extended else view
        elif type.extended:
            array = array.view(type.storage)
        np.copyto(view, array, casting="unsafe")
        return 0

    cdef int write_row(self, cnp.ndarray array, FieldType type, char* target) except -1:
        """Write a sample at the beginning of its row, and the padding value beside it."""
        cdef Py_ssize_t own, each = self.nbytes // self.extents[0]
        cdef int i, ndim = self.ndim - 1
        cdef bint is_tail = True
        for i in range(1, ndim):
            is_tail = is_tail and cnp.PyArray_DIM(array, i) == self.extents[i + 1]
        if is_tail:  # the sample lies in one piece
            own = self.type.itemsize * cnp.PyArray_SIZE(array)
            self.write_whole(array, type, target)
            return self.fill(target + own, each - own)
        self.fill(target, each)
        view = rd_make_ndarray(self.type.storage, ndim, self.extents + 1, target, False, NULL)
        self.convert(array, type, view[tuple([slice(0, size) for size in (<object>array).shape])])
        return 0


def is_numeric(value):
    """Whether a value can be joined with others into an array: an array, a tensor, a number, or a list of
    these. The first entries of nested lists decide; an empty list can."""
    while type(value) is list:
        if not value:
            return True
        value = value[0]
        if type(value) is not list and not isinstance(value, NUMBERS):
            return False  # a list of arrays holds fields
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject and value.dtype.kind not in "US"
    if isinstance(value, NUMBERS):
        return True
    return tensor_view(value.__class__) is not NULL or foreign_converter(value) is not None


cdef object NUMBERS = (int, float, complex, np.number, np.bool_)
