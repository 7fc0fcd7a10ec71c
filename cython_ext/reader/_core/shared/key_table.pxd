# The layout of KeyTable, and its search without Python: see key_table.pyx. Imports C types.
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef class KeyTable:
    cdef const uint32_t[::1] slots
    cdef const uint64_t[::1] ends
    cdef const uint8_t[::1] content
    cdef Py_ssize_t width, count
    cdef const uint8_t* key(self, Py_ssize_t i) noexcept
    cdef size_t length(self, Py_ssize_t i) noexcept
    cdef Py_ssize_t find(self, const void* key, size_t nbytes) noexcept
