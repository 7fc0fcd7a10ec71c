"""Element types of fields: NumPy's own, and those that machine learning added.

Imports errors and numpy. NumPy has no bfloat16 or float8; such a field is stored as unsigned
integers of the same width, with its type's name. With ml_dtypes installed, NumPy views get the real
type. Source of the codes: the DLPack specification 1.1.
"""
import sys

cimport cython
from cpython.object cimport PyObject

from reader.errors import ConfigError

import numpy as np

# name -> (width in bytes, DLPack code)
EXTENDED = {
    "bfloat16": (2, 4),
    "float8_e3m4": (1, 7),
    "float8_e4m3": (1, 8),
    "float8_e4m3b11fnuz": (1, 9),
    "float8_e4m3fn": (1, 10),
    "float8_e4m3fnuz": (1, 11),
    "float8_e5m2": (1, 12),
    "float8_e5m2fnuz": (1, 13),
    "float8_e8m0fnu": (1, 14),
    "complex32": (4, 5),
}
_DLPACK_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


cdef enum:
    DL_CODES = 32


@cython.final
cdef class FieldType:
    """Type of a field's elements.

    ``storage``: the numpy.dtype of the bytes; ``name``: "float32", "bfloat16", ...;
    ``extended``: whether NumPy itself lacks the type. Two equal types are one object.
    """

    def __init__(self):
        raise TypeError("use field_type(dtype)")

    def numpy_dtype(self):
        """Return the dtype of NumPy views: for extended types that of ml_dtypes, or ConfigError."""
        if not self.extended:
            return self.storage
        if self.shown is None:
            try:
                import ml_dtypes
            except ImportError as error:
                raise ConfigError(
                    f"a {self.name} field as a NumPy array needs the package ml_dtypes; "
                    f"install it (pip install ml_dtypes), or ask for framework='torch' or 'paddle'"
                ) from error
            if not hasattr(ml_dtypes, self.name):
                raise ConfigError(
                    f"NumPy has no element type for a {self.name} field; ask for framework='torch', "
                    f"or convert it in the dataset")
            shown = np.dtype(getattr(ml_dtypes, self.name))
            with cython.critical_section(self):  # written once: others read it without a lock
                if self.shown is None:
                    self.shown = shown
        return self.shown

    def __reduce__(self):
        return field_type, (self.name if self.extended else self.storage,)

    def __repr__(self):
        return self.name


_known = {}
_named = []
cdef PyObject* by_code[DL_CODES][17]  # by DLPack's code and width in bytes: FieldType or None


def field_type(dtype):
    """Return the FieldType of a numpy dtype (also of ml_dtypes) or of a name such as "bfloat16".

    Native byte order only. TypeError for a dtype that holds Python objects.
    """
    cdef FieldType self = _known.get(dtype)
    if self is not None:
        return self
    self = FieldType.__new__(FieldType)
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name in EXTENDED:
        width, self.dl_code = EXTENDED[name]
        self.storage = np.dtype(f"u{width}")
        self.extended = True
    else:
        self.storage = np.dtype(dtype)
        if self.storage.hasobject:
            raise TypeError(f"dtype {self.storage} holds Python objects, which cannot be stored in "
                            f"shared memory; use a dtype of numbers")
        if not self.storage.isnative:
            self.storage = self.storage.newbyteorder("=")
        if self.storage.kind in "iu":
            # C has two integers of 8 bytes, which NumPy treats alike: take the frameworks' one
            self.storage = np.dtype(self.storage.str)
        self.extended = False
        self.dl_code = _DLPACK_CODES.get(self.storage.kind, -1)
        name = self.storage.name if self.storage.names is None else str(self.storage)
    self.name = sys.intern(name)
    self.itemsize = self.storage.itemsize
    if len(_known) > 4096:  # a program may make thousands of record and text dtypes: drop those
        for key in list(_known):
            known = _known.get(key)
            if known is not None and known.storage.kind in "SUV":
                _known.pop(key, None)
    # one object per type, so that types compare by identity
    return _known.setdefault(dtype, _known.setdefault(self.name if self.extended else self.storage,
                                                      self))


cdef PyObject* dl_type_at(int code, int bits, int lanes) except? NULL:
    """As dl_field_type; borrowed, and NULL for None."""
    if lanes != 1 or bits % 8 or bits > 128 or code < 0 or code >= DL_CODES:
        return NULL
    if by_code[code][bits // 8] is NULL:
        found = find_type(code, bits)
        _named.append(found)  # keeps it alive: the table holds no reference
        by_code[code][bits // 8] = <PyObject*>found
    if by_code[code][bits // 8] is <PyObject*>None:
        return NULL
    return by_code[code][bits // 8]


cdef FieldType dl_field_type(int code, int bits, int lanes):
    """Return the FieldType of a DLPack type; None for one that fields cannot have."""
    cdef PyObject* found = dl_type_at(code, bits, lanes)
    return None if found is NULL else <FieldType>found


cdef object find_type(int code, int bits):
    for name, (width, its_code) in EXTENDED.items():
        if its_code == code and width * 8 == bits:
            return field_type(name)
    if code == 2 and bits > 64:
        return None  # the long double of this machine has another format
    if code == 6:
        return field_type(np.dtype(bool)) if bits == 8 else None
    kinds = {0: "i", 1: "u", 2: "f", 5: "c"}
    try:
        return field_type(np.dtype(f"{kinds[code]}{bits // 8}"))
    except (KeyError, TypeError):
        return None
