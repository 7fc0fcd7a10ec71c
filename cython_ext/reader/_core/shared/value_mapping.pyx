"""Values that are found by keys, as in a dict.

Imports Values and KeyTable. A ValueMapping never changes, and any thread may read it;
`reader.sharing` adds the methods that need no speed.
"""
cimport cython
from libc.stdint cimport int64_t

from reader._core.shared.key_table cimport KeyTable
from reader._core.shared.values cimport Values

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void* PyUnicode_DATA(object text)
    const char* PyBytes_AS_STRING(object content)
    Py_ssize_t PyBytes_GET_SIZE(object content)
    int64_t PyLong_AsLongLongAndOverflow(object, int*) except? -1

cdef enum:
    TEXT
    INTS
    ANY


cdef class ValueMapping:
    """A dict that makes a value anew each time it is asked for.

    Args:
        key_kind: "text": keys are strings, as UTF-8; "ints": they are ints, of 8 bytes each; "any":
            `stands_for` returns their bytes.
        table: finds the number of a key.
        values: the value of each key.
        stands_for: returns the bytes of a key; None for a key that cannot be in the dict.
    """

    cdef int key_kind
    cdef KeyTable table
    cdef Values values
    cdef object stands_for

    def __init__(self, str key_kind not None, KeyTable table not None, Values values not None,
                 stands_for):
        self.key_kind = ("text", "ints", "any").index(key_kind)
        if table.count != values.count:
            raise ValueError(f"{table.count} keys and {values.count} values")
        self.table = table
        self.values = values
        self.stands_for = stands_for

    cdef Py_ssize_t place_of(self, object key) except -2:
        cdef int64_t number
        cdef int overflow
        if self.key_kind == TEXT and type(key) is str and PyUnicode_IS_ASCII(key):
            return self.table.find(PyUnicode_DATA(key), PyUnicode_GET_LENGTH(key))
        if self.key_kind == INTS and type(key) is int:
            number = PyLong_AsLongLongAndOverflow(key, &overflow)
            return -1 if overflow else self.table.find(&number, sizeof(number))
        hash(key)  # raises the same error as a dict
        content = self.stands_for(key)
        if content is None:
            return -1
        return self.table.find(PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))

    def __len__(self):
        return self.values.count

    def __getitem__(self, key):
        cdef Py_ssize_t place = self.place_of(key)
        if place < 0:
            raise KeyError(key)
        return self.values.get(place)

    def __contains__(self, key):
        return self.place_of(key) >= 0

    def get(self, key, default=None):
        """Return the value of a key, or `default` where there is none."""
        cdef Py_ssize_t place = self.place_of(key)
        return default if place < 0 else self.values.get(place)
