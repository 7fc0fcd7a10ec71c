"""Stacking in place: a worker writes each sample once, straight into its place in a slot.

Imports the arena's heap, dtype, structure and the Schema of tensor. A BatchWriter belongs to one
worker and one thread; a Plan remembers the form of the last batch, since most batches are alike.
"""
import pickle

import numpy as np

cimport cython
cimport numpy as cnp
from cpython.bool cimport PyBool_Check
from cpython.complex cimport PyComplex_CheckExact
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from reader._core.arena cimport (RD_ALIGN, RD_BATCH, RD_KEPT, RD_SKIPPED, load_u32, rd_head,
                                 rd_header, rd_slot_offset, store_u32)
from reader._core.structure cimport (CUSTOM, DATACLASS, DICT, FIELD, MAX_DEPTH, OBJECT, TUPLE, Flat,
                                     container_children, container_kind, foreign_converter,
                                     make_container, node)

from reader._core.dtype import field_type
from reader._core.structure import flatten
from reader._core.tensor import Schema
from reader.errors import CollateError, DatasetError

cnp.import_array()

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1

cdef extern from "numpy/arrayobject.h":
    bint PyArray_ISNOTSWAPPED(cnp.ndarray)
    void PyArray_ScalarAsCtype(object scalar, void* ctypeptr)

cdef extern from "reader/_core/ndarray.h":
    object rd_make_ndarray(object type, int ndim, const int64_t* shape, void* data, int readonly,
                           PyObject* base)

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
    NOGIL_NBYTES = 65536
    KEPT_SCHEMAS = 64  # more forms of batches than that carry their schema with each batch

cdef object FLOAT64 = field_type(np.dtype("f8"))
cdef object INT64 = field_type(np.dtype("i8"))
cdef object BOOL8 = field_type(np.dtype("?"))
cdef object COMPLEX128 = field_type(np.dtype("c16"))


@cython.final
cdef class SideTable:
    """Objects that a worker thread of the trainer hands over by reference instead of pickled."""

    def __init__(self):
        self.entries = {}
        self.last = 0

    def put(self, run, value):
        """Keep a value; returns the token that take() wants. Any thread (the GIL serializes)."""
        self.last += 1
        self.entries[self.last] = (run, value)
        return self.last

    def take(self, token):
        """Hand a value over, once."""
        return self.entries.pop(token)[1]

    def purge(self, run):
        """Forget what runs before this one left behind."""
        for token in [t for t, (its, _) in list(self.entries.items()) if its != run]:
            self.entries.pop(token, None)


@cython.final
cdef class SampleLeaf:
    pass


@cython.final
cdef class Plan:
    pass


cdef int classify(object sample) except -1:
    """What stacking makes of a value."""
    if PyFloat_CheckExact(sample):
        return LEAF_FLOAT
    if PyBool_Check(sample):
        return LEAF_BOOL
    if PyLong_CheckExact(sample):
        return LEAF_INT
    if isinstance(sample, np.ndarray):
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
    converter = foreign_converter(sample)
    if converter is not None and converter(sample) is not None:
        return LEAF_ARRAY
    return LEAF_OBJECT


cdef object as_ndarray(object value, list name):
    """The array behind a value; name[0] becomes the extended type's name or None."""
    name[0] = None
    if isinstance(value, np.ndarray):
        return value
    converter = foreign_converter(value)
    if converter is not None:
        found = converter(value)
        if found is not None:
            name[0] = found[1]
            return found[0]
    return np.asarray(value)


cdef int copy_array(cnp.ndarray source, FieldType type, char* target) except -1:
    """Copy a whole array to target, in C order and native byte order."""
    cdef size_t nbytes
    cdef void* data
    cdef object view
    if (cnp.PyArray_IS_C_CONTIGUOUS(source) and PyArray_ISNOTSWAPPED(source)
            and source.dtype.names is None):
        nbytes = <size_t>cnp.PyArray_NBYTES(source)
        data = cnp.PyArray_DATA(source)
        if nbytes > NOGIL_NBYTES:
            with nogil:
                memcpy(target, data, nbytes)
        else:
            memcpy(target, data, nbytes)
        return 0
    view = rd_make_ndarray(type.storage, cnp.PyArray_NDIM(source),
                           <int64_t*>cnp.PyArray_DIMS(source), target, False, NULL)
    np.copyto(view, source.view(type.storage) if type.extended else source, casting="equiv")
    return 0


@cython.final
cdef class BatchWriter:
    """Writes batches into slots of one heap.

    Used by one worker in its main thread. `write_batch` moves a ready-made batch with one copy;
    `stack_batch` fetches samples and stacks them in place.
    """

    def __init__(self, Heap heap not None, SideTable side=None):
        self.heap = heap
        self.side = side
        self.schemas = {}
        self.plan = None
        self.position = 0

    # -- plans -----------------------------------------------------------------------------------

    cdef Plan make_plan(self, object sample):
        cdef Plan plan = Plan.__new__(Plan)
        plan.leaves = []
        plan.fields = []
        plan.objects = []
        plan.structure = self.plan_node(plan, sample, 0)
        return plan

    def plan_node(self, Plan plan, sample, int depth):
        """The node of a part of sample 0; adds its leaves to the plan."""
        cdef SampleLeaf leaf
        cdef int i, what = classify(sample)
        if what == LEAF_CONTAINER:
            if depth == MAX_DEPTH:
                raise CollateError(
                    f"the sample is nested deeper than {MAX_DEPTH} levels, or a "
                    f"{type(sample).__name__} in it contains itself; flatten it, or pass a collate_fn")
            kind = container_kind(sample)
            children = [self.plan_node(plan, child, depth + 1)
                        for child in container_children(kind, sample)]
            return make_container(kind, sample, children)
        leaf = SampleLeaf.__new__(SampleLeaf)
        leaf.kind = what
        leaf.ndim = 0
        plan.leaves.append(leaf)
        if what == LEAF_OBJECT:
            leaf.values = []
            leaf.place = len(plan.objects)
            plan.objects.append(leaf)
            return node(OBJECT, leaf.place, None, None, None, None)
        leaf.place = len(plan.fields)
        plan.fields.append(leaf)
        if what == LEAF_ARRAY:
            name = [None]
            array = as_ndarray(sample, name)
            leaf.type = field_type(name[0] if name[0] is not None else array.dtype)
            leaf.ndim = array.ndim
            if leaf.ndim > 63:
                raise CollateError("a sample has 64 dimensions, and a batch of it would have 65, "
                                   "which NumPy does not know; reshape it, or pass a collate_fn")
            for i in range(leaf.ndim):
                leaf.extents[i] = array.shape[i]
        elif what == LEAF_SCALAR:
            leaf.type = field_type(sample.dtype)
            leaf.python_type = type(sample)
        else:
            leaf.type = (FLOAT64 if what == LEAF_FLOAT else INT64 if what == LEAF_INT
                         else BOOL8 if what == LEAF_BOOL else COMPLEX128)
        leaf.is_plain = leaf.type.storage.names is None and not leaf.type.extended
        leaf.nbytes = leaf.type.itemsize
        for i in range(leaf.ndim):
            leaf.nbytes *= leaf.extents[i]
        return node(FIELD, leaf.place, None, None, None, None)

    cdef rd_slot* begin(self, Plan plan, Py_ssize_t count) except? NULL:
        """Take a slot for count samples, write its field table and aim the leaves at it."""
        cdef SampleLeaf leaf
        cdef uint64_t at = 0
        cdef int64_t* entry
        cdef rd_slot* slot
        cdef char* start
        cdef int i
        for leaf in plan.objects:
            leaf.values = []
        if not plan.fields and self.side is not None:
            return NULL
        for leaf in plan.fields:
            at += (4 + leaf.ndim) * 8
        for leaf in plan.fields:
            at = (at + RD_ALIGN - 1) // RD_ALIGN * RD_ALIGN + <uint64_t>(count * leaf.nbytes)
        slot = self.heap.alloc(at + plan.objects_room)
        start = <char*>self.heap.arena.c.base + slot.start
        entry = <int64_t*>start
        at = 0
        for leaf in plan.fields:
            at += (4 + leaf.ndim) * 8
        for leaf in plan.fields:
            at = (at + RD_ALIGN - 1) // RD_ALIGN * RD_ALIGN
            leaf.rows = start + at
            entry[0] = <int64_t>at
            entry[1] = count * leaf.nbytes
            entry[2] = leaf.ndim + 1
            entry[3] = count
            for i in range(leaf.ndim):
                entry[4 + i] = leaf.extents[i]
            entry += 4 + leaf.ndim
            at += <uint64_t>(count * leaf.nbytes)
        slot.nfields = <uint32_t>len(plan.fields)
        slot.objects = at  # where objects would begin
        return slot

    # -- one sample ------------------------------------------------------------------------------

    cdef int differ(self, str difference) except -1:
        self.difference = difference
        self.path = []
        return DIFFERS

    cdef int put(self, Structure at, Plan plan, object sample, Py_ssize_t row) except -1:
        """Copy a sample (or a part of one) to its row. DIFFERS when it is unlike sample 0."""
        cdef SampleLeaf leaf
        cdef Py_ssize_t i, n
        cdef list children
        cdef int kind = at.kind
        if kind == FIELD:
            return self.put_leaf(<SampleLeaf>plan.fields[at.index], sample, row)
        if kind == OBJECT:
            leaf = <SampleLeaf>plan.objects[at.index]
            if not (isinstance(sample, str) or sample is None) and classify(sample) != LEAF_OBJECT:
                return self.differ(f"is {describe(sample)} and in sample 0 it is "
                                   f"{describe(leaf.values[0]) if leaf.values else 'an object'}")
            leaf.values.append(sample)
            return 0
        children = at.children
        n = len(children)
        if kind == TUPLE and type(sample) is tuple and at.cls is tuple and len(<tuple>sample) == n:
            for i in range(n):
                if self.put(<Structure>children[i], plan, <object>(<tuple>sample)[i], row):
                    self.path.append(at.child_names()[i])
                    return DIFFERS
            return 0
        if type(sample) is not at.cls:
            return self.differ(f"is {describe(sample)} and in sample 0 it is a {at.cls.__name__}")
        if kind == DICT:
            if len(sample) != n:
                return self.differ(f"has keys {list(sample)} and in sample 0 it has {list(at.keys)}")
            if row == 0 and tuple(sample) != at.keys:
                return self.differ(  # the batch has the order of its own first sample
                    f"has keys {list(sample)} and in sample 0 it has {list(at.keys)}")
            for i in range(n):
                key = (<tuple>at.keys)[i]
                if key not in sample:
                    return self.differ(
                        f"has keys {list(sample)} and in sample 0 it has {list(at.keys)}")
                if self.put(<Structure>children[i], plan, sample[key], row):
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
            if self.put(<Structure>children[i], plan, parts[i], row):
                self.path.append(at.child_names()[i])
                return DIFFERS
        return 0

    cdef int put_leaf(self, SampleLeaf leaf, object sample, Py_ssize_t row) except -1:
        cdef int overflow, kind = leaf.kind
        cdef long long integer
        cdef double complex number
        cdef char* target = leaf.rows + row * leaf.nbytes
        if kind == LEAF_ARRAY:
            return self.put_array(leaf, sample, row)
        if kind == LEAF_SCALAR:
            if type(sample) is leaf.python_type:
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

    cdef int put_array(self, SampleLeaf leaf, object sample, Py_ssize_t row) except -1:
        cdef cnp.ndarray array
        cdef FieldType type
        cdef int i
        cdef cnp.npy_intp* dims
        if cnp.PyArray_Check(sample):
            array = <cnp.ndarray>sample
            type = leaf.type
            if (leaf.is_plain and <PyObject*>cnp.PyArray_DESCR(array) == <PyObject*>type.storage
                    and cnp.PyArray_NDIM(array) == leaf.ndim
                    and cnp.PyArray_IS_C_CONTIGUOUS(array) and leaf.nbytes <= NOGIL_NBYTES):
                dims = cnp.PyArray_DIMS(array)
                for i in range(leaf.ndim):
                    if dims[i] != leaf.extents[i]:
                        break
                else:  # the usual case, and all there is to it
                    memcpy(leaf.rows + row * leaf.nbytes, cnp.PyArray_DATA(array), leaf.nbytes)
                    return 0
            if <PyObject*>cnp.PyArray_DESCR(array) != <PyObject*>type.storage or type.extended:
                if array.dtype.hasobject:
                    return self.differ(f"is {describe(sample)} and in sample 0 it is "
                                       f"{describe_leaf(leaf)}")
                type = field_type(array.dtype)
        elif classify(sample) == LEAF_ARRAY:
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
        copy_array(array, type, leaf.rows + row * leaf.nbytes)
        return 0

    # -- whole batches ---------------------------------------------------------------------------

    cdef int stack(self, object source, list keys, list names, rd_record* record) except -1:
        cdef Py_ssize_t row, count = len(keys)
        cdef Plan plan = self.plan
        cdef rd_slot* slot = NULL
        cdef object sample
        cdef int differs
        cdef rd_header* head = rd_head(self.heap.arena.c)
        self.position = 0
        if count == 0:
            raise CollateError("cannot make a batch of no samples; the sampler yielded an empty one")
        try:
            for row in range(count):
                if (load_u32(&head.run) != record.run or load_u32(&head.stop)) and (
                        slot is not NULL):
                    # nobody waits for this batch any more: a new epoch began, or the pool closes
                    self.heap.abandon(slot)
                    record.kind = RD_SKIPPED
                    return 0
                self.position = row
                self.heap.c.at_index = row
                sample = source[keys[row]]
                if row == 0:
                    differs = 1
                    if plan is not None:
                        slot = self.begin(plan, count)
                        differs = self.put(plan.structure, plan, sample, 0)
                        if differs and slot is not NULL:
                            self.heap.abandon(slot)
                            slot = NULL
                    if differs:
                        self.plan = None
                        plan = self.make_plan(sample)
                        slot = self.begin(plan, count)
                        if self.put(plan.structure, plan, sample, 0):
                            raise CollateError(
                                f"sample {names[0]!r} changed while it was read: {self.place_text()} "
                                f"{self.difference}")
                        self.plan = plan
                elif self.put(plan.structure, plan, sample, row):
                    raise CollateError(
                        f"cannot stack sample {row} (dataset index {names[row]!r}) with sample 0 "
                        f"(dataset index {names[0]!r}): {self.place_text()} {self.difference}; make "
                        f"them alike in the dataset (pad, resize, convert), or pass a collate_fn")
            self.position = -1  # from here on it is no sample in particular
            objects = [(<SampleLeaf>leaf).values for leaf in plan.objects]
            types = None
            if self.side is not None or plan.schema == 0:
                types = [(<SampleLeaf>leaf).type for leaf in plan.fields]
            if self.side is None and plan.schema == 0:
                plan.schema = self.publish_schema(plan.structure, types)
            record.schema = plan.schema
            slot = self.add_objects(slot, plan, objects, types, plan.structure, record)
        except BaseException:
            if slot is not NULL:
                self.heap.abandon(slot)
            raise
        finally:
            for leaf in plan.objects if plan is not None else ():
                (<SampleLeaf>leaf).values = []
        record.kind = RD_BATCH
        record.slot = 0 if slot is NULL else rd_slot_offset(self.heap.arena.c, slot)
        record.generation = 0 if slot is NULL else slot.generation
        return 0

    cdef str place_text(self):
        where = "".join(reversed(self.path))
        return f"its field {where}" if where else "it"

    cdef rd_slot* add_objects(self, rd_slot* slot, Plan plan, list objects, list types,
                              Structure structure, rd_record* record) except? NULL:
        """Put what is no array behind the arrays of the slot, or into the side table."""
        cdef bytes pickled
        cdef uint64_t at, size
        cdef rd_slot* larger
        cdef char* base = <char*>self.heap.arena.c.base
        cdef const char* data
        if self.side is not None:
            record.a = self.side.put(record.run, (Schema(structure, types), objects))
            return slot
        if not objects and record.schema:
            slot.objects = 0
            return slot
        if record.schema:
            pickled = pickle_objects(objects, structure)
        else:
            pickled = pickle.dumps((pickle_schema(structure, types),
                                    pickle_objects(objects, structure)), 5)
        at = slot.objects
        size = len(pickled)
        if at + size > slot.backed:
            # rare: the objects outgrew the room that the last batch needed
            larger = self.heap.alloc(at + size)
            memcpy(base + larger.start, base + slot.start, at)
            larger.nfields = slot.nfields
            self.heap.abandon(slot)
            slot = larger
            slot.objects = at
        data = pickled
        memcpy(base + slot.start + at, data, size)
        slot.objects_nbytes = size
        if plan is not None:
            plan.objects_room = size + size // 4 + 64
        return slot

    cdef int write(self, object batch, rd_record* record) except -1:
        """Move a ready-made batch: one copy of each array."""
        cdef Flat flat = flatten(batch)
        cdef list arrays = [], types = []
        cdef uint64_t at = 0, table
        cdef int64_t* entry
        cdef rd_slot* slot = NULL
        cdef char* start
        cdef cnp.ndarray array
        cdef FieldType type
        cdef int i
        name = [None]
        for value in flat.fields:
            made = as_ndarray(value, name)
            type = field_type(name[0] if name[0] is not None else made.dtype)
            arrays.append(made)
            types.append(type)
            at += (3 + made.ndim) * 8
        table = at
        for array in arrays:
            at = (at + RD_ALIGN - 1) // RD_ALIGN * RD_ALIGN + cnp.PyArray_NBYTES(array)
        record.schema = 0
        if self.side is None:
            record.schema = self.publish_schema(flat.structure, types)
        try:
            if arrays or self.side is None:
                slot = self.heap.alloc(at)
                slot.objects = at
                start = <char*>self.heap.arena.c.base + slot.start
                entry = <int64_t*>start
                at = table
                for array, type in zip(arrays, types):
                    at = (at + RD_ALIGN - 1) // RD_ALIGN * RD_ALIGN
                    entry[0] = <int64_t>at
                    entry[1] = cnp.PyArray_NBYTES(array)
                    entry[2] = cnp.PyArray_NDIM(array)
                    for i in range(cnp.PyArray_NDIM(array)):
                        entry[3 + i] = cnp.PyArray_DIM(array, i)
                    copy_array(array, type, start + at)
                    at += cnp.PyArray_NBYTES(array)
                    entry += 3 + cnp.PyArray_NDIM(array)
                slot.nfields = <uint32_t>len(arrays)
            slot = self.add_objects(slot, None, flat.objects, types, flat.structure, record)
        except BaseException:
            if slot is not NULL:
                self.heap.abandon(slot)
            raise
        record.kind = RD_BATCH
        record.slot = 0 if slot is NULL else rd_slot_offset(self.heap.arena.c, slot)
        record.generation = 0 if slot is NULL else slot.generation
        return 0

    cdef uint64_t publish_schema(self, Structure structure, list types) except? 0:
        """Offset of the KEPT slot with the schema; 0 = it travels with each batch instead."""
        cdef rd_slot* slot
        cdef bytes pickled
        cdef const char* data
        key = (structure, tuple(types))
        found = self.schemas.get(key)
        if found is not None:
            return found
        if len(self.schemas) >= KEPT_SCHEMAS:
            return 0
        pickled = pickle_schema(structure, types)
        slot = self.heap.alloc(len(pickled))
        data = pickled
        memcpy(<char*>self.heap.arena.c.base + slot.start, data, len(pickled))
        slot.objects_nbytes = len(pickled)
        store_u32(&slot.state, RD_KEPT)
        self.schemas[key] = rd_slot_offset(self.heap.arena.c, slot)
        return self.schemas[key]


cdef bytes pickle_schema(Structure structure, list types):
    try:
        return pickle.dumps(Schema(structure, types), 5)
    except Exception as error:
        raise DatasetError(
            f"cannot send the structure of the batch ({structure!r}) to the trainer: {error}; use "
            f"containers whose types and keys can be pickled") from error


cdef bytes pickle_objects(list objects, Structure structure):
    try:
        return pickle.dumps(objects, 5)
    except Exception as error:
        for value, where in zip(objects, structure.paths()[1]):
            culprit, its_error, where = find_culprit(value, where)
            if its_error is not None:
                raise DatasetError(
                    f"cannot send {'field ' + where if where else 'the value'} of the batch to the "
                    f"trainer: a {type(culprit).__name__} cannot be pickled: {its_error}; return "
                    f"arrays, numbers, strings or objects that pickle accepts") from its_error
        raise DatasetError(f"cannot send the batch to the trainer: {error}") from error


def find_culprit(value, where, depth=0):
    """The innermost part of a value that cannot be pickled: (part, exception or None, its path)."""
    try:
        pickle.dumps(value, 5)
        return value, None, where
    except Exception as error:
        parts = ()
        if type(value) in (list, tuple):
            parts = [(f"{where}[{i}]", part) for i, part in enumerate(value)]
        elif type(value) is dict:
            parts = [(f"{where}[{key!r}]", part) for key, part in value.items()]
        for its_where, part in parts if depth < 8 else ():
            culprit, its_error, its_where = find_culprit(part, its_where, depth + 1)
            if its_error is not None:
                return culprit, its_error, its_where
        return value, error, where


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
