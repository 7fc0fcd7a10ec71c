"""Datasets that are arrays: their rows are gathered without Python code for each sample.

Imports copying, exchange and plan. A Columns belongs to one worker, and is used in its main thread.
The arrays are looked up for each batch: the user may replace them, or change their values.
"""
import numpy as np

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX
from libc.string cimport memcpy

from reader._core.batch.dlpack cimport rd_dl_tensor
from reader._core.batch.exchange cimport look, needs_gradient, rd_view, tensor_view
from reader._core.batch.ndarray cimport as_ndarray
from reader._core.batch.structure cimport DICT, FIELD, TUPLE, Structure
from reader._core.collate.indices cimport Indices
from reader._core.collate.lent_row cimport is_kept
from reader._core.collate.plan cimport SampleLeaf
from reader._core.memory.copying cimport gather_rows

from reader.errors import CollateError

cnp.import_array()

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1


@cython.final
cdef class Columns:
    """The rows of arrays, as the samples of a dataset.

    Args:
        source: the dataset. Its sample k is row k of each array: a tuple, a dict whose values are in the
            order of the arrays, or with one array perhaps the row itself.
        arrays: returns the arrays, a sequence; called for each batch.
        indices: lists or ranges that map a key to its row, applied one after the other.
        fill: in the place of arrays: called with the rows of a batch, int64, and a dict of arrays in its
            memory by the fields of a sample, each with one more axis, for the rows. It writes all of them.
    """

    def __init__(self, source, arrays=None, indices=(), fill=None):
        self.source = source
        self.arrays = arrays
        self.indices = tuple(indices)
        self.fill = fill

    cdef bint suit(self, Plan plan) except -1:
        """Whether batches of a plan can be gathered: each array has rows of its field, without gaps."""
        cdef Structure structure = plan.structure, child
        cdef Py_ssize_t i, n = len(plan.fields)
        if plan.objects or n == 0:
            return False
        if structure.kind != FIELD:
            if structure.kind != TUPLE and (structure.kind != DICT or structure.cls is not dict):
                return False
            for child in structure.children:
                if child.kind != FIELD:
                    return False
        if self.fill is not None:
            self.count = INT64_MAX
            return structure.kind == DICT and plan.can_lend()
        arrays = self.arrays()
        if len(arrays) != n:
            return False
        self.starts.clear()
        self.strides.clear()
        self.held = []
        self.count = INT64_MAX
        for i in range(n):
            if not self.suit_one(arrays[i], plan, i):
                return False
        return True

    cdef bint suit_one(self, object array, Plan plan, Py_ssize_t number) except -1:
        cdef SampleLeaf leaf = plan.fields[number]
        cdef rd_dl_tensor tensor
        cdef rd_view view
        cdef cnp.ndarray made
        cdef int64_t step = leaf.type.itemsize
        cdef int i
        name = [None]
        if type(array) is np.ndarray or type(array) is np.memmap:
            made = <cnp.ndarray>array
        else:
            view = tensor_view(type(array))
            if view is not NULL and (not look(view, array, &tensor)
                                     or (plan.is_strict and needs_gradient(array, &tensor))):
                return False
            made = as_ndarray(array, name)
        self.held.append(made)  # the user may replace it while rows are copied, without the GIL
        if (leaf.type.storage.names is not None or not is_type(made, leaf.type.storage)
                or name[0] != (leaf.type.name if leaf.type.extended else None)
                or cnp.PyArray_NDIM(made) != leaf.ndim + 1):
            return False
        for i in range(leaf.ndim, 0, -1):
            if cnp.PyArray_DIM(made, i) != leaf.extents[i - 1]:
                return False
            if cnp.PyArray_DIM(made, i) != 1 and cnp.PyArray_STRIDE(made, i) != step:
                return False
            step *= cnp.PyArray_DIM(made, i)
        self.starts.push_back(<const char*>cnp.PyArray_DATA(made))
        self.strides.push_back(cnp.PyArray_STRIDE(made, 0))
        self.count = min(self.count, <int64_t>cnp.PyArray_DIM(made, 0))
        return True

    cdef bint take_indices(self, Indices keys) except -1:
        """As `take`, where the indices are the rows."""
        cdef size_t i, n = len(keys)
        cdef const int64_t* numbers = <const int64_t*><const char*>keys.payload
        self.rows.assign(numbers, numbers + n)
        for i in range(n):
            if not 0 <= numbers[i] < self.count:
                return False
        return True

    cdef bint take(self, object keys) except -1:
        """Note the rows of the keys. False unless each is an integer from 0 within the arrays."""
        cdef Py_ssize_t i, n = len(keys)
        cdef int64_t row
        cdef int overflow
        if type(keys) is Indices:
            if not self.indices:
                return self.take_indices(keys)
            keys = keys.tolist()
        self.rows.resize(n)
        for indices in self.indices:
            count = len(indices)
            for key in keys:
                if type(key) is not int or not 0 <= key < count:
                    return False
            keys = [indices[key] for key in keys]
        for i in range(n):
            key = keys[i]
            if type(key) is not int:
                if not isinstance(key, np.integer):
                    return False
                key = int(key)
            row = PyLong_AsLongLongAndOverflow(key, &overflow)
            if overflow or row < 0 or row >= self.count:
                return False
            self.rows[i] = row
        return True

    cdef int aim(self, Plan plan) except -1:
        """Note where the rows go, once the batch has a slot."""
        cdef SampleLeaf leaf
        self.targets.clear()
        self.sizes.clear()
        for leaf in plan.fields:
            self.targets.push_back(leaf.rows)
            self.sizes.push_back(<size_t>leaf.nbytes)
        return 0

    cdef int write(self, Plan plan, Py_ssize_t count, object owner) except -1:
        """Have the dataset write the rows of the batch; ``owner`` keeps their memory."""
        cdef cnp.npy_intp n = <cnp.npy_intp>self.rows.size()
        cdef cnp.ndarray rows = cnp.PyArray_EMPTY(1, &n, cnp.NPY_INT64, 0)
        cdef list views = plan.batch_views(count, owner)
        if n:
            memcpy(cnp.PyArray_DATA(rows), self.rows.data(), n * sizeof(int64_t))
        self.fill(rows, plan.structure.build(views, [], None))
        if is_kept(views):
            raise CollateError(
                f"{type(self.source).__name__} keeps a reference to the arrays that it wrote a batch to, "
                f"whose memory is the batch's; keep a copy of it (numpy.copy)")
        return 0

    cdef void copy(self, size_t first, size_t count, bint is_uncached) noexcept nogil:
        """Copy ``count`` rows of the batch, from one on."""
        cdef size_t i
        for i in range(self.starts.size()):
            if self.sizes[i]:
                gather_rows(self.targets[i] + first * self.sizes[i], self.starts[i], self.strides[i],
                            self.rows.data() + first, count, self.sizes[i], is_uncached)


cdef inline bint is_type(cnp.ndarray array, cnp.dtype kind) except -1:
    """Whether an array has an element type. An unpickled dtype is another object, but equal."""
    return (<PyObject*>cnp.PyArray_DESCR(array) == <PyObject*>kind
            or cnp.PyArray_EquivTypes(<cnp.dtype>cnp.PyArray_DESCR(array), kind))
