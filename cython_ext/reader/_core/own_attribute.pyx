"""An attribute of a user's object, read without a trace.

Imports nothing of this package. Reading `__dict__` of an object, as `vars` does, would leave one: from
then on CPython 3.11 and 3.12 look up each attribute of that object in its dict, which makes a
dataset's `__getitem__` slower for good.
"""
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

cdef extern from "Python.h":
    ctypedef PyObject* (*rd_descr_get)(PyObject*, PyObject*, PyObject*) except NULL
    ctypedef struct PyTypeObject:
        rd_descr_get tp_descr_get
        Py_ssize_t tp_dictoffset
    PyTypeObject* Py_TYPE(object)
    PyObject* _PyType_Lookup(PyTypeObject* type, object name) noexcept  # borrowed
    # what object.__getattribute__ gives; where there is nothing, and `suppress`, NULL without an error
    PyObject* _PyObject_GenericGetAttrWithDict(object value, object name, PyObject* dict,
                                               int suppress) except? NULL

MISSING = object()


def own_attribute(value, str name not None, default=None):
    """Return an attribute that an object itself has, as its `__dict__` would; else the default.

    No code of the user runs, neither a property nor `__getattr__`: what the class has with `__get__`
    counts as the class's, also where the object has an attribute of that name.
    """
    cdef PyObject* of_class
    cdef PyObject* owned
    if Py_TYPE(value).tp_dictoffset == 0:
        return default  # its attributes are all of its class, as those of a list
    of_class = _PyType_Lookup(Py_TYPE(value), name)
    if of_class is not NULL and Py_TYPE(<object>of_class).tp_descr_get is not NULL:
        return default
    owned = _PyObject_GenericGetAttrWithDict(value, name, NULL, 1)
    if owned is NULL:
        return default
    found = <object>owned
    Py_DECREF(found)
    return default if owned is of_class else found
