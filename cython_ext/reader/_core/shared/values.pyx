"""Python values that lie in memory as bytes: the i-th is made when it is asked for.

Imports nothing of this package. Values never change once they are made, and any thread may read
them. Each refers to the memory that it reads. `reader/sharing/layout.py` decides how they lie.
"""
import pickle

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 highest)
    void* PyUnicode_DATA(object text)
    bint PyUnicode_IS_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    object PyUnicode_DecodeUTF8(const char* utf8, Py_ssize_t size, const char* errors)
    object PyUnicode_AsEncodedString(object text, const char* encoding, const char* errors)
    object PyMemoryView_FromMemory(char* memory, Py_ssize_t size, int flags)
    const char* PyBytes_AS_STRING(object content)
    Py_ssize_t PyBytes_GET_SIZE(object content)
    const int PyBUF_READ

cdef const char* LONE = "surrogatepass"  # names of files may hold half a surrogate
cdef const char* EMPTY = ""
cdef enum:
    DOUBLE = 4  # the numbers of kinds, see Numbers
    BOOL = 5


cdef class Values:
    """A sequence of values.

    Attributes:
        count: how many there are.
    """

    cdef object get(self, Py_ssize_t i):
        """Return value `i`, which is from 0 to count - 1."""
        raise NotImplementedError

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t i):
        if i < 0 or i >= self.count:
            raise IndexError(f"value {i} of {self.count}")
        return self.get(i)


@cython.final
cdef class Numbers(Values):
    """Ints or floats.

    Args:
        kind: of each: "i1", "i2", "i4" or "i8" for ints, "f8" for floats, "b1" for bools.
        content: their bytes.
    """

    cdef const uint8_t[::1] content
    cdef int kind

    def __init__(self, str kind, const uint8_t[::1] content):
        kinds = ("i1", "i2", "i4", "i8", "f8", "b1")
        self.kind = kinds.index(kind)
        self.count = content.shape[0] // int(kind[1])
        self.content = content

    cdef inline int64_t number(self, Py_ssize_t i) noexcept:
        """Return an int."""
        cdef const uint8_t* at = &self.content[0]
        if self.kind == 0:
            return (<const int8_t*>at)[i]
        if self.kind == 1:
            return (<const int16_t*>at)[i]
        if self.kind == 2:
            return (<const int32_t*>at)[i]
        return (<const int64_t*>at)[i]

    cdef object get(self, Py_ssize_t i):
        if self.kind == DOUBLE:
            return (<const double*>&self.content[0])[i]
        if self.kind == BOOL:
            return self.content[i] != 0
        return self.number(i)


@cython.final
cdef class Constant(Values):
    """The same value again and again."""

    cdef object value

    def __init__(self, value, Py_ssize_t count):
        self.value = value
        self.count = count

    cdef object get(self, Py_ssize_t i):
        return self.value


@cython.final
cdef class Places:
    """Where values of different lengths begin and end, which lie one after the other.

    Args:
        content: the bytes of each value's end, a number of 4 or 8 bytes.
        width: 4 or 8.
    """

    cdef const uint8_t[::1] content
    cdef readonly Py_ssize_t count
    cdef bint is_wide

    def __init__(self, const uint8_t[::1] content, int width):
        self.is_wide = width == 8
        self.count = content.shape[0] // width
        self.content = content

    cdef inline Py_ssize_t end(self, Py_ssize_t i) noexcept:
        if self.is_wide:
            return <Py_ssize_t>(<const uint64_t*>&self.content[0])[i]
        return <Py_ssize_t>(<const uint32_t*>&self.content[0])[i]

    cdef inline Py_ssize_t begin(self, Py_ssize_t i) noexcept:
        return self.end(i - 1) if i else 0


cdef class Spans(Values):
    """Values that are a number of bytes each.

    Args:
        places: where they are in `content`.
        content: the bytes.
    """

    cdef Places places
    cdef const uint8_t[::1] content

    def __init__(self, Places places, const uint8_t[::1] content):
        self.places = places
        self.count = places.count
        self.content = content

    cdef inline const char* span(self, Py_ssize_t i, Py_ssize_t* nbytes) noexcept:
        cdef Py_ssize_t begin = self.places.begin(i)
        nbytes[0] = self.places.end(i) - begin
        if nbytes[0] == 0:
            return EMPTY
        return <const char*>&self.content[begin]


@cython.final
cdef class Ascii(Spans):
    """Strings of ASCII alone."""

    cdef object get(self, Py_ssize_t i):
        cdef Py_ssize_t nbytes
        cdef const char* at = self.span(i, &nbytes)
        made = PyUnicode_New(nbytes, 127)
        if nbytes:
            memcpy(PyUnicode_DATA(made), at, nbytes)
        return made


@cython.final
cdef class Text(Spans):
    """Strings, as UTF-8."""

    cdef object get(self, Py_ssize_t i):
        cdef Py_ssize_t nbytes
        cdef const char* at = self.span(i, &nbytes)
        return PyUnicode_DecodeUTF8(at, nbytes, LONE)


@cython.final
cdef class Bytes(Spans):
    """Objects of bytes."""

    cdef object get(self, Py_ssize_t i):
        cdef Py_ssize_t nbytes
        cdef const char* at = self.span(i, &nbytes)
        return PyBytes_FromStringAndSize(at, nbytes)


@cython.final
cdef class Pickled(Spans):
    """Values of any kind, which this process or its parent pickled."""

    cdef object get(self, Py_ssize_t i):
        cdef Py_ssize_t nbytes
        cdef const char* at = self.span(i, &nbytes)
        return pickle.loads(PyMemoryView_FromMemory(<char*>at, nbytes, PyBUF_READ))


@cython.final
cdef class Chosen(Values):
    """Values of which many are equal: each distinct value is stored once.

    Args:
        numbers: the index in `others` of each value.
        others: the values, once each.
    """

    cdef Numbers numbers
    cdef Values others

    def __init__(self, Numbers numbers not None, Values others not None):
        self.numbers = numbers
        self.others = others
        self.count = numbers.count

    cdef object get(self, Py_ssize_t i):
        return self.others.get(self.numbers.number(i))


@cython.final
cdef class Mixed(Values):
    """Values of several kinds.

    Args:
        kinds: one byte for each value: the index of its part.
        numbers: the index of each value within its part.
        parts: the values of each kind.
    """

    cdef const uint8_t[::1] kinds
    cdef Numbers numbers
    cdef tuple parts

    def __init__(self, const uint8_t[::1] kinds, Numbers numbers not None, tuple parts not None):
        self.kinds = kinds
        self.numbers = numbers
        self.parts = parts
        self.count = kinds.shape[0]

    cdef object get(self, Py_ssize_t i):
        return (<Values>self.parts[self.kinds[i]]).get(self.numbers.number(i))


@cython.final
cdef class Records(Values):
    """Tuples or lists of one length, or dicts of the same keys.

    Args:
        count: how many.
        fields: the values of each place, or key.
        keys: of dicts, in order; None: they are tuples or lists.
        is_list: whether they are lists.
    """

    cdef tuple fields
    cdef tuple keys
    cdef bint is_list

    def __init__(self, Py_ssize_t count, tuple fields, tuple keys=None, bint is_list=False):
        cdef Values field
        for field in fields:
            if field.count != count:
                raise ValueError(f"a field has {field.count} values, and there are {count}")
        self.count = count
        self.fields = fields
        self.keys = keys
        self.is_list = is_list

    cdef object get(self, Py_ssize_t i):
        cdef Py_ssize_t place, n = len(self.fields)
        cdef list items
        cdef tuple record
        cdef dict by_key
        if self.keys is not None:
            by_key = {}
            for place in range(n):
                by_key[self.keys[place]] = (<Values>self.fields[place]).get(i)
            return by_key
        if self.is_list:
            items = [None] * n
            for place in range(n):
                items[place] = (<Values>self.fields[place]).get(i)
            return items
        record = PyTuple_New(n)
        for place in range(n):
            item = (<Values>self.fields[place]).get(i)
            Py_INCREF(item)
            PyTuple_SET_ITEM(record, place, item)
        return record


@cython.final
cdef class Ragged(Values):
    """Tuples or lists of any lengths.

    Args:
        places: where the items of each are in `items`.
        items: those of all, one after the other.
        is_list: whether they are lists.
    """

    cdef Places places
    cdef Values items
    cdef bint is_list

    def __init__(self, Places places, Values items, bint is_list):
        if places.count and places.end(places.count - 1) > items.count:
            raise ValueError("the lists changed while they were shared")
        self.places = places
        self.items = items
        self.is_list = is_list
        self.count = places.count

    cdef object get(self, Py_ssize_t i):
        cdef Py_ssize_t k, begin = self.places.begin(i), n = self.places.end(i) - begin
        cdef list found = [None] * n
        for k in range(n):
            found[k] = self.items.get(begin + k)
        return found if self.is_list else tuple(found)


def text_ends(items not None, int64_t[::1] ends not None):
    """Write the end of each string of a list or tuple in UTF-8; return whether all are ASCII."""
    cdef Py_ssize_t i, at = 0
    cdef bint is_ascii = True
    for i in range(len(items)):
        item = items[i]
        if PyUnicode_IS_ASCII(item):
            at += PyUnicode_GET_LENGTH(item)
        else:
            is_ascii = False
            at += PyBytes_GET_SIZE(PyUnicode_AsEncodedString(item, "utf-8", LONE))
        ends[i] = at
    return is_ascii


def write_text(items not None, uint8_t[::1] out not None):
    """Write strings as UTF-8, one after the other. `out` has as many bytes as `text_ends` said."""
    cdef Py_ssize_t i, at = 0, n
    for i in range(len(items)):
        item = items[i]
        if PyUnicode_IS_ASCII(item):
            n = PyUnicode_GET_LENGTH(item)
            check_space(at, n, out)
            if n:
                memcpy(&out[at], PyUnicode_DATA(item), n)
        else:
            item = PyUnicode_AsEncodedString(item, "utf-8", LONE)
            n = PyBytes_GET_SIZE(item)
            check_space(at, n, out)
            memcpy(&out[at], PyBytes_AS_STRING(item), n)
        at += n


def write_bytes(items not None, uint8_t[::1] out not None):
    """Write objects of bytes, one after the other."""
    cdef Py_ssize_t i, at = 0, n
    cdef bytes item
    for i in range(len(items)):
        item = items[i]
        n = PyBytes_GET_SIZE(item)
        check_space(at, n, out)
        if n:
            memcpy(&out[at], PyBytes_AS_STRING(item), n)
        at += n


cdef int check_space(Py_ssize_t at, Py_ssize_t n, uint8_t[::1] out) except -1:
    if at + n > out.shape[0]:
        raise ValueError("the list changed while it was shared")
    return 0
