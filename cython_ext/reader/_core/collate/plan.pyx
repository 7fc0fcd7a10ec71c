"""The form of a batch: what sample 0 looks like, and how the others are copied to their rows.

Imports copying, dtype, exchange and structure. A Plan is made from sample 0 and kept, since most batches are
alike; it belongs to one BatchWriter, which sets where the rows lie.
"""
import sys

import numpy as np

cimport cython
cimport numpy as cnp
from cpython.bool cimport PyBool_Check
from cpython.complex cimport PyComplex_CheckExact
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from libcpp.vector cimport vector
from libc.stdint cimport INT64_MAX, uint8_t
from libc.string cimport memcpy

from reader._core.batch.dtype cimport dl_field_type, dl_type_at
from reader._core.batch.exchange cimport (MOST_DIMENSIONS, array_on, holder, is_dense, look, needs_gradient,
                                          row_view, settled, tensor_view)
from reader._core.batch.ndarray cimport as_ndarray, copy_array, rd_make_ndarray
from reader._core.batch.structure cimport (CUSTOM, DATACLASS, DICT, FIELD, MAX_DEPTH, OBJECT, TUPLE,
                                           container_children, container_kind, foreign_converter, is_masked,
                                           make_container, node)
from reader._core.memory.copying cimport NOGIL_NBYTES, copy_bytes, copy_with_gil
from reader._core.memory.extents cimport rd_extents_nbytes, rd_extents_span

from reader._core.batch.dtype import field_type
from reader._core.batch.exchange import no_array
from reader.errors import CollateError

cnp.import_array()

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object, object) except? NULL
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1

cdef extern from *:
    """
    #include <stddef.h>
    #include <numpy/arrayscalars.h>
    #define RD_NUMBER_AT offsetof(PyLongLongScalarObject, obval)
    static_assert(RD_NUMBER_AT == offsetof(PyBoolScalarObject, obval) &&
                  RD_NUMBER_AT == offsetof(PyHalfScalarObject, obval) &&
                  RD_NUMBER_AT == offsetof(PyCDoubleScalarObject, obval), "numbers lie elsewhere");
    """
    Py_ssize_t RD_NUMBER_AT  # where NumPy's own numbers of up to 16 bytes have their value

cdef extern from "numpy/arrayobject.h":
    void PyArray_ScalarAsCtype(object scalar, void* ctypeptr)

cdef enum:
    LEAF_ARRAY = 0     # ndarray or tensor
    LEAF_FLOAT = 1
    LEAF_INT = 2
    LEAF_BOOL = 3
    LEAF_COMPLEX = 4
    LEAF_SCALAR = 5    # NumPy number or bool
    LEAF_OBJECT = 6
    LEAF_CONTAINER = 7
    DIFFERS = 1        # what put() returns for a sample unlike sample 0

cdef object NUMBERS = frozenset(np.dtype(code).type for code in "?bhilqBHILQefdFD")
cdef object FLOAT64 = field_type(np.dtype("f8"))
cdef object INT64 = field_type(np.dtype("i8"))
cdef object BOOL8 = field_type(np.dtype("?"))
cdef object COMPLEX128 = field_type(np.dtype("c16"))
cdef object ABSENT = object()


@cython.final
cdef class SampleLeaf:
    pass


cdef int classify(object sample) except -1:
    """Return the LEAF_* of a value: how stacking treats it."""
    if PyFloat_CheckExact(sample):
        return LEAF_FLOAT
    if PyBool_Check(sample):
        return LEAF_BOOL
    if PyLong_CheckExact(sample):
        return LEAF_INT
    if isinstance(sample, np.ndarray):
        if type(sample) is not np.ndarray and is_masked(sample):
            raise CollateError(
                "a masked array cannot be stacked: its mask would be lost; return array.filled(value) "
                "from the dataset, or array and mask as two fields, or pass a collate_fn, such as "
                "numpy.ma.stack")
        return LEAF_OBJECT if sample.dtype.hasobject else LEAF_ARRAY
    if isinstance(sample, (str, bytes)) or sample is None:
        return LEAF_OBJECT
    if isinstance(sample, np.generic):
        if isinstance(sample, (np.number, np.bool_)) and not isinstance(sample, np.timedelta64):
            return LEAF_SCALAR
        return LEAF_OBJECT if sample.dtype.hasobject else LEAF_ARRAY
    if isinstance(sample, float):
        return LEAF_FLOAT
    if isinstance(sample, int):
        return LEAF_INT
    if PyComplex_CheckExact(sample):
        return LEAF_COMPLEX
    if container_kind(sample) != OBJECT:
        return LEAF_CONTAINER
    return LEAF_OBJECT if converted(sample) is None else LEAF_ARRAY


cdef object converted(object sample):
    """Return what another library's converter reads from a sample; None: it is no tensor."""
    converter = foreign_converter(sample)
    found = None if converter is None else converter(sample)
    if found is not None and found[2]:
        raise CollateError(f"a ragged tensor with LoD {found[2]} cannot be stacked with others; pass "
                           f"a collate_fn that concatenates them")
    return found


@cython.final
cdef class Plan:
    """The form of a batch. Set the leaves' ``rows`` before `put`."""

    @staticmethod
    cdef Plan of(object sample, bint is_strict):
        """Return the plan of batches whose samples are like this one."""
        cdef Plan self = Plan.__new__(Plan)
        self.leaves = []
        self.fields = []
        self.objects = []
        self.to_reread = []
        self.is_strict = is_strict
        self.most_rows = INT64_MAX
        self.structure = self.its_batch = self.plan_node(sample, 0, False)
        if is_strict:
            self.its_batch = self.structure.listed()
        return self

    cdef Structure plan_node(self, object sample, int depth, bint in_sequence):
        """Return the node of a value in sample 0; adds its leaves to the plan."""
        cdef SampleLeaf leaf
        cdef int i, what = classify(sample)
        if what == LEAF_CONTAINER:
            if depth == MAX_DEPTH:
                raise CollateError(
                    f"the sample is nested deeper than {MAX_DEPTH} levels, or a "
                    f"{type(sample).__name__} in it contains itself; flatten it, or pass a collate_fn")
            kind = container_kind(sample)
            children = [self.plan_node(child, depth + 1, kind != DICT)
                        for child in container_children(kind, sample)]
            return make_container(kind, sample, children)
        leaf = SampleLeaf.__new__(SampleLeaf)
        leaf.kind = what
        leaf.python_type = type(sample)
        leaf.view = (tensor_view if self.is_strict else row_view)(leaf.python_type)
        leaf.in_sequence = in_sequence
        leaf.ndim = 0
        self.leaves.append(leaf)
        if what == LEAF_OBJECT:
            leaf.values = []
            leaf.place = len(self.objects)
            self.objects.append(leaf)
            return node(OBJECT, leaf.place, None, None, None, None)
        leaf.place = len(self.fields)
        self.fields.append(leaf)
        if what == LEAF_ARRAY:
            name = [None]
            array = as_ndarray(sample, name)
            leaf.type = field_type(name[0] if name[0] is not None else array.dtype)
            leaf.ndim = array.ndim
            if leaf.ndim >= MOST_DIMENSIONS:
                raise CollateError(
                    f"a sample has {leaf.ndim} dimensions, and a batch of it would have "
                    f"{leaf.ndim + 1}, which NumPy does not know; reshape it, or pass a collate_fn")
            for i in range(leaf.ndim):
                leaf.extents[i] = array.shape[i]
        elif what == LEAF_SCALAR:
            leaf.type = field_type(sample.dtype)
            leaf.is_number = leaf.python_type in NUMBERS
        else:
            leaf.type = (FLOAT64 if what == LEAF_FLOAT else INT64 if what == LEAF_INT
                         else BOOL8 if what == LEAF_BOOL else COMPLEX128)
        leaf.copies_as_bytes = leaf.type.storage.names is None and not leaf.type.extended
        leaf.nbytes = <Py_ssize_t>rd_extents_nbytes(leaf.type.itemsize, leaf.extents, leaf.ndim)
        # a field may span half of INT64_MAX: the rest is for the other fields
        self.most_rows = min(self.most_rows, <int64_t>(
            (INT64_MAX // 2) // rd_extents_span(leaf.type.itemsize, leaf.extents, leaf.ndim)))
        self.row_nbytes += leaf.nbytes
        return node(FIELD, leaf.place, None, None, None, None)

    cdef int refuse_rows(self, Py_ssize_t count) except -1:
        """Refuse a batch of more rows than an array can have."""
        cdef SampleLeaf leaf
        for leaf in self.fields:
            if rd_extents_span(leaf.type.itemsize, leaf.extents, leaf.ndim) > <uint64_t>(
                    INT64_MAX // 2) // <uint64_t>count:
                raise CollateError(no_array("batch", leaf.type.name, (count, *leaf_shape(leaf))))
        return 0

    cdef int differ(self, str difference) except -1:
        self.difference = difference
        self.path = []
        return DIFFERS

    cdef int differ_in_keys(self, Structure at, object sample) except -1:
        return self.differ(f"has keys {list(sample)} and in sample 0 it has {list(at.keys)}")

    cdef int put(self, Structure at, object sample, Py_ssize_t row) except -1:
        """Copy a sample, or a value in one, to its row. DIFFERS when it is unlike sample 0."""
        cdef SampleLeaf leaf
        cdef Py_ssize_t i, n
        cdef list children
        cdef PyObject* found
        cdef int kind = at.kind
        if kind == FIELD:
            return self.put_leaf(<SampleLeaf>self.fields[at.index], sample, row)
        if kind == OBJECT:
            leaf = <SampleLeaf>self.objects[at.index]
            if self.is_strict:
                if type(sample) is not leaf.python_type:
                    return self.differ(f"is {describe(sample)} and in sample 0 it is a "
                                       f"{leaf.python_type.__name__}")
            elif not (isinstance(sample, str) or sample is None) and classify(sample) != LEAF_OBJECT:
                return self.differ(f"is {describe(sample)} and in sample 0 it is "
                                   f"{describe(leaf.values[0]) if leaf.values else 'an object'}")
            leaf.values.append(sample)
            return 0
        children = at.children
        n = len(children)
        if kind == TUPLE and type(sample) is tuple and at.cls is tuple and len(<tuple>sample) == n:
            for i in range(n):
                if self.put(<Structure>children[i], <object>(<tuple>sample)[i], row):
                    self.path.append(at.child_names()[i])
                    return DIFFERS
            return 0
        if type(sample) is not at.cls:
            return self.differ(f"is {describe(sample)} and in sample 0 it is a {at.cls.__name__}")
        if kind == DICT:
            # row 0: the keys of a batch are in the order of its own first sample
            if len(sample) != n or (row == 0 and tuple(sample) != at.keys):
                return self.differ_in_keys(at, sample)
            for i in range(n):
                key = (<tuple>at.keys)[i]
                if at.cls is dict:
                    found = PyDict_GetItemWithError(sample, key)
                    part = ABSENT if found is NULL else <object>found
                else:
                    part = sample[key] if key in sample else ABSENT
                if part is ABSENT:
                    return self.differ_in_keys(at, sample)
                if self.put(<Structure>children[i], part, row):
                    self.path.append(f"[{key!r}]")
                    return DIFFERS
            return 0
        if kind == DATACLASS or kind == CUSTOM:
            parts = container_children(kind, sample)
        else:
            parts = sample
        if len(parts) != n:
            return self.differ(f"has {len(parts)} entries and in sample 0 it has {n}")
        for i in range(n):
            if self.put(<Structure>children[i], parts[i], row):
                self.path.append(at.child_names()[i])
                return DIFFERS
        return 0

    cdef int put_leaf(self, SampleLeaf leaf, object sample, Py_ssize_t row) except -1:
        cdef int overflow, kind = leaf.kind
        cdef long long integer
        cdef double complex number
        cdef char* target = leaf.rows + row * leaf.nbytes
        cdef rd_dl_tensor tensor
        cdef bint found
        if self.is_strict and type(sample) is not leaf.python_type:
            return self.differ(f"is {describe(sample)} and in sample 0 it is {describe_leaf(leaf)}")
        if kind == LEAF_ARRAY:
            if has_view(leaf, sample):
                memory = holder(leaf.view, sample) if leaf.nbytes > NOGIL_NBYTES else sample
                found = look(leaf.view, memory, &tensor)
                if not found and self.is_strict:
                    sample = memory = settled(sample)
                    found = look(leaf.view, memory, &tensor)
                if found:
                    if self.is_strict and needs_gradient(sample, &tensor):
                        return self.differ("requires a gradient")
                    if is_dense(&tensor):
                        return self.put_tensor(leaf, sample, &tensor, row)
                elif self.is_strict:
                    return self.differ("is a tensor of another kind than in sample 0")
            return self.put_array(leaf, sample, row)
        if kind == LEAF_SCALAR:
            if type(sample) is leaf.python_type:
                if leaf.is_number:
                    memcpy(target, <char*><PyObject*>sample + RD_NUMBER_AT, leaf.nbytes)
                else:
                    PyArray_ScalarAsCtype(sample, target)
                return 0
        elif kind == LEAF_FLOAT:
            if PyFloat_CheckExact(sample) or classify(sample) == LEAF_FLOAT:
                (<double*>target)[0] = PyFloat_AS_DOUBLE(sample)
                return 0
        elif kind == LEAF_BOOL:
            if PyBool_Check(sample):
                (<uint8_t*>target)[0] = sample is True
                return 0
        elif kind == LEAF_INT:
            if PyLong_CheckExact(sample) or classify(sample) == LEAF_INT:
                integer = PyLong_AsLongLongAndOverflow(sample, &overflow)
                if overflow and self.is_strict:
                    return self.differ(f"is {sample}, which does not fit into int64")
                if overflow:
                    raise CollateError(
                        f"the integer {sample} does not fit into int64; return a NumPy scalar or "
                        f"array of a wider type, or a string")
                (<long long*>target)[0] = integer
                return 0
        elif kind == LEAF_COMPLEX:
            if PyComplex_CheckExact(sample):
                number = sample
                (<double complex*>target)[0] = number
                return 0
        return self.differ(f"is {describe(sample)} and in sample 0 it is {describe_leaf(leaf)}")

    cdef int note(self, SampleLeaf leaf, object value, char* at, Py_ssize_t row) except -1:
        """Note where the value of a row lies, before it is copied.

        If the row before had the same object or memory, the dataset may be reusing one array: the row
        before is read again when all samples are there.
        """
        if leaf.last_at is not NULL and (leaf.last is value or (
                at < leaf.last_at + leaf.nbytes and leaf.last_at < at + leaf.nbytes)):
            self.to_reread.append((leaf, leaf.last, leaf.last_row))
        leaf.last, leaf.last_at, leaf.last_row = value, at, row
        return 0

    cdef int reread(self) except -1:
        """Copy the arrays that later rows reused again, as they are now."""
        cdef SampleLeaf leaf
        cdef list noted
        if not self.to_reread:
            return 0
        noted, self.to_reread, self.rereads = self.to_reread, [], False
        for leaf, value, row in noted:
            if self.put_leaf(leaf, value, row):
                raise CollateError(f"the array of sample {row} changed while the batch was made: it "
                                   f"{self.difference}; return a copy of it from the dataset")
        return 0

    cdef int put_tensor(self, SampleLeaf leaf, object sample, rd_dl_tensor* tensor,
                        Py_ssize_t row) except -1:
        """Copy a dense tensor to its row."""
        cdef PyObject* type = dl_type_at(tensor.code, tensor.bits, tensor.lanes)
        cdef char* target = leaf.rows + row * leaf.nbytes
        cdef int i
        if type is not <PyObject*>leaf.type:
            return self.differ(f"has dtype {(<FieldType>type).name} and in sample 0 it has "
                               f"{leaf.type.name}")
        for i in range(tensor.ndim):
            if tensor.ndim != leaf.ndim or tensor.shape[i] != leaf.extents[i]:
                break
        else:
            if tensor.ndim == leaf.ndim:
                if self.rereads:
                    self.note(leaf, sample, <char*>tensor.data, row)
                copy_with_gil(target, <const char*>tensor.data, leaf.nbytes, self.is_uncached)
                return 0
        shape = tuple([tensor.shape[i] for i in range(tensor.ndim)])
        return self.differ(f"has shape {shape} and in sample 0 it has {leaf_shape(leaf)}")

    cdef int put_array(self, SampleLeaf leaf, object sample, Py_ssize_t row) except -1:
        cdef cnp.ndarray array
        cdef FieldType type
        cdef int i
        cdef cnp.npy_intp* dims
        if cnp.PyArray_Check(sample):
            array = <cnp.ndarray>sample
            type = leaf.type
            if (leaf.copies_as_bytes and <PyObject*>cnp.PyArray_DESCR(array) == <PyObject*>type.storage
                    and cnp.PyArray_NDIM(array) == leaf.ndim
                    and cnp.PyArray_IS_C_CONTIGUOUS(array) and leaf.nbytes <= NOGIL_NBYTES):
                dims = cnp.PyArray_DIMS(array)
                for i in range(leaf.ndim):
                    if dims[i] != leaf.extents[i]:
                        break
                else:  # the usual case: one memcpy
                    if self.rereads:
                        self.note(leaf, sample, <char*>cnp.PyArray_DATA(array), row)
                    copy_bytes(leaf.rows + row * leaf.nbytes, <const char*>cnp.PyArray_DATA(array),
                               leaf.nbytes, self.is_uncached)
                    return 0
            if <PyObject*>cnp.PyArray_DESCR(array) != <PyObject*>type.storage or type.extended:
                if array.dtype.hasobject:
                    return self.differ(f"is {describe(sample)} and in sample 0 it is "
                                       f"{describe_leaf(leaf)}")
                type = field_type(array.dtype)
        elif leaf.view is NULL and (found := converted(sample)) is not None:
            array = found[0]
            type = field_type(found[1] if found[1] is not None else array.dtype)
        elif has_view(leaf, sample) or classify(sample) == LEAF_ARRAY:
            name = [None]
            array = as_ndarray(sample, name)
            type = field_type(name[0] if name[0] is not None else array.dtype)
        else:
            return self.differ(f"is {describe(sample)} and in sample 0 it is {describe_leaf(leaf)}")
        if type is not leaf.type:
            return self.differ(f"has dtype {type.name} and in sample 0 it has {leaf.type.name}")
        if cnp.PyArray_NDIM(array) != leaf.ndim:
            return self.differ(f"has shape {(<object>array).shape} and in sample 0 it has "
                               f"{leaf_shape(leaf)}")
        for i in range(leaf.ndim):
            if cnp.PyArray_DIM(array, i) != leaf.extents[i]:
                return self.differ(f"has shape {(<object>array).shape} and in sample 0 it has "
                                   f"{leaf_shape(leaf)}")
        if self.is_strict and not has_torch_strides(array):
            return self.differ("has strides that torch does not know")
        if self.rereads:
            self.note(leaf, sample, <char*>cnp.PyArray_DATA(array), row)
        copy_array(array, type, leaf.rows + row * leaf.nbytes, self.is_uncached)
        return 0

    cdef str where(self):
        """Return where in the sample put() found the difference."""
        where = "".join(reversed(self.path))
        return f"its field {where}" if where else "it"

    cdef list row_views(self, Py_ssize_t row, object owner):
        """Return an array on each field of a row; None for a leaf that NumPy has no array for.

        ``owner``: keeps the memory alive.
        """
        cdef SampleLeaf leaf
        views = []
        for leaf in self.fields:
            view = None
            if leaf.kind == LEAF_ARRAY and not leaf.type.extended:
                view = rd_make_ndarray(leaf.type.storage, leaf.ndim, leaf.extents,
                                       leaf.rows + row * leaf.nbytes, False, <PyObject*>owner)
            views.append(view)
        return views

    cdef bint can_lend(self) except -1:
        """Whether samples are arrays and numbers alone, of types that NumPy has."""
        cdef SampleLeaf leaf
        if self.objects:
            return False
        for leaf in self.fields:
            if leaf.type.extended:
                return False
        return True

    cdef list batch_views(self, Py_ssize_t count, object owner):
        """Return an array on each field of all rows; for a plan that `can_lend`.

        ``owner``: keeps the memory alive.
        """
        cdef SampleLeaf leaf
        cdef vector[int64_t] extents
        cdef int i
        views = []
        for leaf in self.fields:
            extents.clear()
            extents.push_back(count)
            for i in range(leaf.ndim):
                extents.push_back(leaf.extents[i])
            views.append(rd_make_ndarray(leaf.type.storage, leaf.ndim + 1, extents.data(), leaf.rows, False,
                                         <PyObject*>owner))
        return views

    cdef object out_of(self, list views):
        """Return ``views`` in the containers of a sample; tensors where sample 0 has tensors."""
        cdef SampleLeaf leaf
        cdef Py_ssize_t i
        fields = list(views)
        for i in range(len(fields)):
            leaf = self.fields[i]
            if fields[i] is not None and not issubclass(leaf.python_type, np.ndarray):
                fields[i] = as_tensor(fields[i], leaf.python_type)
        return self.structure.build(fields, [None] * len(self.objects), None)

    cdef list object_lists(self):
        """Return the values of each object so far, in the container that the batch has for it."""
        cdef SampleLeaf leaf
        return [tuple(leaf.values) if self.is_strict and leaf.in_sequence else leaf.values
                for leaf in self.objects]

    cdef list take_back(self, Py_ssize_t count, object revive):
        """Return copies of the samples in the first rows. ``revive(array, name of an extended
        type)`` makes tensors again; None leaves them arrays."""
        cdef SampleLeaf leaf
        samples = []
        for row in range(count):
            fields = [row_value(leaf, row, revive) for leaf in self.fields]
            objects = [leaf.values[row] for leaf in self.objects]
            samples.append(self.structure.build(fields, objects, None))
        return samples

    cdef int drop_objects(self) except -1:
        """Drop the objects of the last batch, whether it was made or not."""
        cdef SampleLeaf leaf
        for leaf in self.objects:
            leaf.values = []
        for leaf in self.fields:
            leaf.last = None
            leaf.last_at = NULL
        if self.to_reread:
            self.to_reread = []
        return 0


cdef object as_tensor(object array, object python_type):
    """Return a tensor of sample 0's library on an array's memory; None: it has no such tensors."""
    torch = sys.modules.get("torch")
    if torch is None or python_type is not torch.Tensor:
        return None
    try:
        return torch.from_numpy(array)
    except TypeError:  # torch makes no tensor of an array of this type
        return None


cdef inline bint has_view(SampleLeaf leaf, object sample):
    """Whether the leaf's view reads the sample's memory."""
    return leaf.view is not NULL and type(sample) is leaf.python_type


cdef bint has_torch_strides(cnp.ndarray array):
    """Whether torch accepts the strides: whole elements, and none negative."""
    cdef int i
    for i in range(cnp.PyArray_NDIM(array)):
        if cnp.PyArray_STRIDE(array, i) < 0 or (
                cnp.PyArray_STRIDE(array, i) % cnp.PyArray_ITEMSIZE(array)):
            return False
    return True


cdef object row_value(SampleLeaf leaf, Py_ssize_t row, object revive):
    """Return a stacked value as it was, close enough to collate it in another way."""
    cdef object array = rd_make_ndarray(leaf.type.storage, leaf.ndim, leaf.extents,
                                        leaf.rows + row * leaf.nbytes, False, NULL).copy()
    if leaf.kind == LEAF_ARRAY and revive is not None and not issubclass(leaf.python_type, np.ndarray):
        return revive(array, leaf.type.name if leaf.type.extended else None)
    if leaf.type.extended:
        array = array.view(leaf.type.numpy_dtype())
    if leaf.kind == LEAF_ARRAY:
        return array
    return array[()] if leaf.kind == LEAF_SCALAR else array.item()


cdef tuple leaf_shape(SampleLeaf leaf):
    return tuple([leaf.extents[i] for i in range(leaf.ndim)])


cdef str describe_leaf(SampleLeaf leaf):
    if leaf.kind == LEAF_ARRAY:
        return f"an array of dtype {leaf.type.name} and shape {leaf_shape(leaf)}"
    if leaf.kind == LEAF_SCALAR:
        return f"a NumPy {leaf.type.name}"
    return {LEAF_FLOAT: "a float", LEAF_INT: "an int", LEAF_BOOL: "a bool",
            LEAF_COMPLEX: "a complex"}[leaf.kind]


cdef str describe(object sample):
    if isinstance(sample, np.ndarray):
        return f"an array of dtype {sample.dtype} and shape {sample.shape}"
    if isinstance(sample, np.generic):
        return f"a NumPy {sample.dtype}"
    if sample is None:
        return "None"
    return f"a {type(sample).__name__}"
