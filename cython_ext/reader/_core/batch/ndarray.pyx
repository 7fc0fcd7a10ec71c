"""Arrays of NumPy: the one behind a value, and a copy of one.

Imports copying, dtype, exchange and structure. Functions only; whoever has the GIL may call them.
"""
import numpy as np

cimport numpy as cnp
from libc.stdint cimport int64_t

from reader._core.batch.dlpack cimport rd_dl_tensor
from reader._core.batch.dtype cimport dl_field_type
from reader._core.batch.exchange cimport array_on, holder, look, rd_view, row_view
from reader._core.batch.structure cimport foreign_converter
from reader._core.memory.copying cimport copy_with_gil

cnp.import_array()

cdef extern from "numpy/arrayobject.h":
    bint PyArray_ISNOTSWAPPED(cnp.ndarray)


cdef object as_ndarray(object value, list name):
    """Return the array behind a value; name[0] becomes the extended type's name or None."""
    cdef rd_dl_tensor tensor
    cdef rd_view view
    cdef FieldType type
    name[0] = None
    if isinstance(value, np.ndarray):
        return value
    view = row_view(value.__class__)
    if view is not NULL:
        memory = holder(view, value)
        if look(view, memory, &tensor):
            type = dl_field_type(tensor.code, tensor.bits, tensor.lanes)
            name[0] = type.name if type.extended else None
            return array_on(memory, type, &tensor)
    converter = foreign_converter(value)
    if converter is not None:
        found = converter(value)
        if found is not None:
            name[0] = found[1]
            return found[0]
    return np.asarray(value)


cdef int copy_array(cnp.ndarray source, FieldType type, char* target, bint is_uncached) except -1:
    """Copy a whole array to target, in C order and native byte order.

    An array in another order is copied through the cache: NumPy's loop limits the speed then, and a
    staging copy costs more than it saves.
    """
    cdef size_t nbytes = <size_t>cnp.PyArray_NBYTES(source)
    cdef const char* data = <const char*>cnp.PyArray_DATA(source)
    if (cnp.PyArray_IS_C_CONTIGUOUS(source) and PyArray_ISNOTSWAPPED(source)
            and source.dtype.names is None):
        copy_with_gil(target, data, nbytes, is_uncached)
        return 0
    made = source.view(type.storage) if type.extended else source
    view = rd_make_ndarray(type.storage, cnp.PyArray_NDIM(source),
                           <int64_t*>cnp.PyArray_DIMS(source), target, False, NULL)
    np.copyto(view, made, casting="equiv")
    return 0
