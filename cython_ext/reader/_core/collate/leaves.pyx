"""The leaves of a batch that stays in its process: a collate_fn's result, in the user's framework.

Imports dtype, exchange, plan and structure. A LeafMaker keeps the containers, as flattening and restoring
would, and copies an array only if something else may hold its memory.
"""
import numpy as np

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject

from reader._core.batch.dlpack cimport rd_dl_tensor
from reader._core.batch.dtype cimport FieldType, dl_field_type
from reader._core.batch.exchange cimport (can_be_array, array_on, is_canonical, is_dense, is_view, look,
                                          needs_gradient, owns_storage, rd_view, tensor_view)
from reader._core.batch.ndarray cimport as_ndarray, copy_array
from reader._core.batch.structure cimport (CUSTOM, FIELD, MAX_DEPTH, OBJECT, container_children,
                                           container_kind, foreign_converter, is_masked, make_container, node,
                                           rd_met)
from reader._core.collate.rows cimport Rows

from reader._core.batch.dtype import field_type
from reader._core.batch.structure import Ragged, flatten, refuse_loop

cnp.import_array()

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)

cdef extern from "numpy/arrayobject.h":
    bint PyArray_ISCARRAY(cnp.ndarray)
    PyObject* PyArray_BASE(cnp.ndarray)


cdef object OPEN = object()  # stands for the copy of a container that is not complete yet


@cython.final
cdef class LeafMaker:
    """Makes the user's batch of what a ``collate_fn`` or a dataset returned, without an arena.

    ``make_leaf(FieldType)`` returns the function that makes a leaf of an array of its storage type, or None
    where the array is the leaf. ``keeps_tensors``: a torch tensor is a leaf as it is. ``is_collated``: a
    ``collate_fn`` made the batch, and not the dataset.

    Containers, types and values are those of a batch from a worker thread. An array or tensor is copied
    if something else refers to it, if its layout is unusual, or if it is a view of another one, so that a
    loop that writes into a batch changes nothing else. Only a collated tensor that shares memory without
    being a view (`torch.from_numpy`, `detach`) goes on sharing it, as in PyTorch. A value at two places of
    the batch is copied once, and so is a list or dict within itself.
    """

    def __init__(self, make_leaf, bint keeps_tensors=False, bint is_collated=True):
        self.make_leaf = make_leaf
        self.makers = {}
        self.keeps_tensors = keeps_tensors
        self.is_collated = is_collated

    def __call__(self, batch):
        """Return the user's batch. CollateError for one that is nested too deep or contains itself."""
        return self.make(batch, 1)

    cdef object make(self, object batch, Py_ssize_t holders):
        """As a call. ``holders``: how many references to the batch the caller and its callers hold."""
        cdef rd_met met
        cdef bint found = False
        made = self.walk(batch, batch, 0, holders, None, &met, &found)
        if found:
            made = None  # its references must not count as other holders
            made = self.walk(batch, batch, 0, holders, {}, NULL, NULL)
        return made

    cdef object walk(self, object value, object root, int depth, Py_ssize_t holders, dict again,
                     rd_met* met, bint* found):
        """Return a value with leaves for its arrays; the value itself if there are none.

        ``again``: {id: (value, its copy)} of values that may be at two places, because something else
        refers to them. None: this is the first walk, which finds by ``met`` whether any is.
        """
        cdef object cls = type(value)
        cdef rd_view view
        cdef int kind
        cdef bint is_shared
        if is_simple(value):
            return value
        is_shared = Py_REFCNT(<PyObject*>value) > holders
        if is_shared and again is None:
            if met.add(<PyObject*>value):
                found[0] = True
                return value
        elif is_shared:
            made = again.get(id(value))
            if made is not None:
                return made[1] if made[1] is not OPEN else refuse_loop()
        if cls is not tuple and cls is not dict and cls is not list:
            if cls is Rows:
                return self.leaf_of_storage((<Rows>value).array(), (<Rows>value).type)
            view = tensor_view(cls)
            if view is not NULL:
                return noted(again, is_shared, value, self.leaf_of_tensor(view, value, holders))
            if isinstance(value, np.generic):
                return value
            if isinstance(value, np.ndarray):
                if value.dtype.hasobject or (
                        cls is not np.ndarray and is_masked(value)):
                    return value
                return noted(again, is_shared, value, self.leaf_of_array(value, holders))
        kind = container_kind(value)
        if kind == OBJECT:
            return noted(again, is_shared, value, self.leaf_of_other(value))
        if depth == MAX_DEPTH:
            flatten(root)  # raises the error
        return noted(again, is_shared, value,
                     self.walk_container(kind, value, root, depth + 1, holders, again, met, found))

    cdef object walk_container(self, int kind, object value, object root, int depth,
                               Py_ssize_t holders, dict again, rd_met* met, bint* found):
        cdef object cls = type(value), key, child, leaf
        cdef Py_ssize_t i = 0
        cdef list children, leaves
        cdef dict made = None
        # references to a child that only the batch holds: the container's and the loop's; 0: something else
        # refers to the container, and so to its children
        cdef Py_ssize_t each = 2 if Py_REFCNT(<PyObject*>value) <= holders else 0
        if each == 0 and again is not None:
            # a list or dict is begun before its children, which may hold it
            again[id(value)] = value, value.copy() if cls is dict or cls is list else OPEN
        if cls is dict:
            for key, child in (<dict>value).items():
                if is_simple(child):
                    continue
                leaf = self.walk(child, root, depth, each, again, met, found)
                if leaf is not child:
                    if made is None:
                        made = begun(again, value)
                        each += each > 0  # the copy refers to the children, too
                    made[key] = leaf
            return value if made is None else made
        if cls is list or cls is tuple:
            leaves = None
            for child in (<list>value if cls is list else <tuple>value):
                if not is_simple(child):
                    leaf = self.walk(child, root, depth, each, again, met, found)
                    if leaf is not child:
                        if leaves is None:
                            leaves = list(value) if cls is tuple else begun(again, value)
                            each += each > 0
                        leaves[i] = leaf
                i += 1
            if leaves is None:
                return value
            return leaves if cls is list else tuple(leaves)
        children = container_children(kind, value)
        leaves = [self.walk(child, root, depth, each and 3, again, met, found) for child in children]
        for i in range(len(children)):
            if leaves[i] is not children[i]:
                break
        else:
            return value
        places = [node(FIELD, i, None, None, None, None) for i in range(len(children))]
        return make_container(kind, value, places).build(leaves, [], None)

    cdef object leaf_of_array(self, object value, Py_ssize_t holders):
        cdef cnp.ndarray array
        cdef FieldType type
        if not cnp.PyArray_CheckExact(value) or Py_REFCNT(<PyObject*>value) > holders:
            return self.leaf_of_copy(value)
        array = <cnp.ndarray>value
        if not PyArray_ISCARRAY(array) or not owns_alone(array):
            return self.leaf_of_copy(value)
        type = field_type(array.dtype)
        if type.extended:
            return self.leaf_of_storage(array.view(type.storage), type)
        if <PyObject*>cnp.PyArray_DESCR(array) != <PyObject*>type.storage:
            return self.leaf_of_copy(value)
        return self.leaf_of_storage(array, type)

    cdef object leaf_of_tensor(self, rd_view view, object value, Py_ssize_t holders):
        cdef rd_dl_tensor tensor
        cdef FieldType type
        if not look(view, value, &tensor) or not is_dense(&tensor):
            return self.leaf_of_other(value)
        if not can_be_array(&tensor) and self.keeps_tensors:
            return value.detach().clone()
        if (self.keeps_tensors and Py_REFCNT(<PyObject*>value) <= holders
                and is_canonical(&tensor) and not needs_gradient(value, &tensor)
                and (not is_view(value) if self.is_collated else owns_storage(value))):
            return value
        type = dl_field_type(tensor.code, tensor.bits, tensor.lanes)
        return self.leaf_of_storage(array_on(value, type, &tensor).copy(), type)

    cdef object leaf_of_other(self, object value):
        """Return a leaf for a tensor of another library; a value that is no tensor as it is."""
        converter = foreign_converter(value)
        found = None if converter is None else converter(value)
        if found is None:
            return value
        leaf = self.leaf_of_copy(value)
        if not found[2]:
            return leaf
        places = [node(FIELD, 0, None, None, None, None), node(FIELD, 1, None, None, None, None)]
        return node(CUSTOM, -1, Ragged, None, None, places).build([leaf, found[2]], [], None)

    cdef object leaf_of_copy(self, object value):
        """Return a leaf of a copy, in C order and native byte order."""
        cdef cnp.ndarray array, made
        cdef FieldType type
        name = [None]
        array = as_ndarray(value, name)
        type = field_type(name[0] if name[0] is not None else array.dtype)
        made = np.empty((<object>array).shape, type.storage)
        copy_array(array, type, <char*>cnp.PyArray_DATA(made), False)
        return self.leaf_of_storage(made, type)

    cdef object leaf_of_storage(self, object array, object type):
        """Return the leaf of an array of a type's storage."""
        try:
            make = self.makers[type]
        except KeyError:
            make = self.makers[type] = self.make_leaf(type)
        return array if make is None else make(array)


cdef inline object noted(dict again, bint is_shared, object value, object made):
    """Return a value's copy, and keep it for the value's other places."""
    if is_shared and again is not None:
        again[id(value)] = value, made
    return made


cdef inline object begun(dict again, object value):
    """Return the copy of a list or dict, which another place may have already."""
    found = None if again is None else again.get(id(value))
    return value.copy() if found is None else found[1]


cdef inline bint is_simple(object value) noexcept:
    cdef object cls = type(value)
    return (cls is str or cls is int or cls is float or cls is bool or cls is bytes
            or value is None)


cdef bint owns_alone(cnp.ndarray array) noexcept:
    """Whether NumPy allocated an array's memory, and no other array refers to it."""
    cdef PyObject* base
    while not cnp.PyArray_CHKFLAGS(array, cnp.NPY_ARRAY_OWNDATA):
        base = PyArray_BASE(array)
        if base is NULL or not cnp.PyArray_CheckExact(<object>base) or Py_REFCNT(base) > 1:
            return False
        array = <cnp.ndarray>base  # its reference would count
    return True
