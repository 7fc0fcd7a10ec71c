"""A part of a file mapped into memory, shared with every process that maps it.

Imports nothing. A Mapping owns its addresses, not the file's descriptor; forked processes inherit it. It
never changes, and any thread may read it.
"""
cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

import os


@cython.final
cdef class Mapping:
    """Memory that is the beginning of a file; `memoryview(mapping)` gives its bytes.

    Args:
        fd: of the file, which has at least `nbytes`.
        nbytes: how many bytes are mapped; 0: none are.
        is_writable: whether this process may change them.

    Raises:
        OSError: the system refuses it.
    """

    def __cinit__(self, int fd, Py_ssize_t nbytes, bint is_writable=False):
        cdef void* start
        if nbytes < 0:
            raise ValueError(f"nbytes must be 0 or more, got {nbytes}")
        self.is_writable = is_writable
        if nbytes:
            start = mmap(NULL, nbytes, PROT_READ | (PROT_WRITE if is_writable else 0), MAP_SHARED, fd, 0)
            if start is MAP_FAILED:
                raise OSError(errno, os.strerror(errno))
            self.start = <char*>start
            self.nbytes = nbytes

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.start if self.nbytes else <char*>&self.start, self.nbytes,
                          not self.is_writable, flags)

    def __len__(self):
        return self.nbytes

    def __dealloc__(self):
        if self.start is not NULL:
            munmap(self.start, self.nbytes)
