"""Collate samples in plain containers, each place of them by a function for its type.

Imports nothing of this package. PyTorch's `default_collate` does so: it asks of each container which of the
abstract classes of Python it is one of, and of each sample how long it is. What is asked here of samples that
are tuples, lists and dicts themselves, and no subclasses, costs a third of that.
"""
cimport cython
from cpython.object cimport PyObject

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object, object) except? NULL

cdef enum:
    MAX_DEPTH = 90  # of nested containers; deeper ones are left to the library


def collate_alike(batch, dict functions not None, library):
    """Return what `library(batch, collate_fn_map=functions)` returns.

    Args:
        batch: the samples, in a list or tuple.
        functions: by the type of a sample, the function that collates those that are no containers.
        library: PyTorch's `collate`; it makes the batch of samples of any other type.
    """
    return collated(batch, functions, library, 0)


cdef object collated(object batch, dict functions, object library, int depth):
    cdef object first = batch[0]
    cdef object kind = type(first)
    cdef PyObject* function = PyDict_GetItemWithError(functions, kind)
    if function is not NULL:
        return (<object>function)(batch, collate_fn_map=functions)
    if depth < MAX_DEPTH:
        if (kind is tuple or kind is list) and are_alike(batch, kind, len(first)):
            return [collated(each, functions, library, depth + 1) for each in zip(*batch)]
        if kind is dict and are_alike(batch, dict, len(first)) and have_keys(batch, <dict>first):
            return {key: collated([(<dict>each)[key] for each in batch], functions, library, depth + 1)
                    for key in <dict>first}
    return library(batch, collate_fn_map=functions)


cdef bint are_alike(object batch, object kind, Py_ssize_t size) except -1:
    """Whether all samples are of this very type and size."""
    for each in batch:
        if type(each) is not kind or len(each) != size:
            return False
    return True


cdef bint have_keys(object batch, dict first) except -1:
    for key in first:
        for each in batch:
            if PyDict_GetItemWithError(<dict>each, key) is NULL:
                return False
    return True
