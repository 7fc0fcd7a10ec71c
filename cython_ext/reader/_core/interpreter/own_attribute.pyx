"""Read an attribute of a user's object without making its `__dict__`.

Imports nothing of this package. Reading `__dict__` of an object, as `vars` does, makes a dict: from then on
CPython 3.11 and 3.12 look up each attribute of that object in it, which slows a dataset's `__getitem__` for
good.
"""
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        Py_ssize_t tp_dictoffset
    PyTypeObject* Py_TYPE(object)
    PyObject* _PyType_Lookup(PyTypeObject* type, object name) noexcept  # borrowed
    # as object.__getattribute__; with `suppress`, a missing attribute gives NULL without an error
    PyObject* _PyObject_GenericGetAttrWithDict(object value, object name, PyObject* dict,
                                               int suppress) except? NULL

MISSING = object()


def own_attribute(value, str name not None, default=None):
    """Return an entry of an object's `__dict__`, or the default. No code of the user runs.

    The dict itself is read only if the class has the name too.
    """
    if Py_TYPE(value).tp_dictoffset == 0:
        return default  # an object without a dict, such as a list
    if _PyType_Lookup(Py_TYPE(value), name) is NULL:
        return attribute_of(value, name, default)
    own = attribute_of(value, "__dict__", None)
    return own.get(name, default) if type(own) is dict else default


def note_owned(list found not None, value, tuple path not None, tuple one not None, tuple many not None,
               int depth, str having=None):
    """Append (path, object) for an object and those in its own attributes, outermost first.

    Args:
        path: to the object.
        one: names of attributes that hold an object.
        many: names of attributes that hold a list or tuple of objects.
        depth: of objects in objects; deeper ones are left out.
        having: append only objects with a callable attribute of this name; None: all.
    """
    cdef Py_ssize_t place
    if having is None or callable(getattr(value, having, None)):
        found.append((path, value))
    if depth == 0 or Py_TYPE(value).tp_dictoffset == 0:
        return
    for name in one:
        inner = own_attribute(value, name)
        if inner is not None:
            note_owned(found, inner, (*path, name), one, many, depth - 1, having)
    for name in many:
        inner = own_attribute(value, name)
        if isinstance(inner, (list, tuple)):
            for place in range(len(inner)):
                note_owned(found, inner[place], (*path, name, place), one, many, depth - 1, having)


cdef object attribute_of(object value, str name, object default):
    """Return what object.__getattribute__ gives, or the default."""
    cdef PyObject* owned = _PyObject_GenericGetAttrWithDict(value, name, NULL, 1)
    if owned is NULL:
        return default
    found = <object>owned
    Py_DECREF(found)
    return found
