/* NumPy arrays over memory that another object owns.  Needs numpy's C API to be imported. */
#ifndef READER_CORE_NDARRAY_H
#define READER_CORE_NDARRAY_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <stdint.h>

/* An array of `type` (a numpy.dtype) over `data`, by `strides` in bytes; NULL: in C order.  It keeps
 * `base` (may be NULL) alive.  Returns a new reference, or NULL with an exception set. */
static inline PyObject *rd_make_strided(PyObject *type, int ndim, const int64_t *shape,
                                        const int64_t *strides, void *data, int readonly,
                                        PyObject *base) {
    PyObject *array;
    Py_INCREF(type); /* NewFromDescr takes it over */
    array = PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)type, ndim, (npy_intp *)shape,
                                 (npy_intp *)strides, data,
                                 readonly ? NPY_ARRAY_CARRAY_RO : NPY_ARRAY_CARRAY, NULL);
    if (array != NULL && base != NULL) {
        Py_INCREF(base); /* SetBaseObject takes it over, also when it fails */
        if (PyArray_SetBaseObject((PyArrayObject *)array, base) < 0) {
            Py_DECREF(array);
            return NULL;
        }
    }
    return array;
}

static inline PyObject *rd_make_ndarray(PyObject *type, int ndim, const int64_t *shape, void *data,
                                        int readonly, PyObject *base) {
    return rd_make_strided(type, ndim, shape, NULL, data, readonly, base);
}

#endif
