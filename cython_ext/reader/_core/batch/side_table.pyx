"""Objects that worker threads of the trainer hand over as they are: a SideTable of a pool.

Imports nothing of the core. Workers put, the consumer takes; docs/concurrency.md says how they agree.
"""
cimport cython


@cython.final
cdef class SideTable:
    """Objects that worker threads of the trainer pass by reference instead of pickled.

    Any thread may call it. No Python code runs between lines that must be atomic: the GIL is held
    there, or on a build without one the object's own lock.
    """

    def __init__(self):
        self.entries = {}
        self.last = 0

    def put(self, run, value):
        """Keep a value; return the token for take(). Run None: `drop_stale` never drops it."""
        cdef Py_ssize_t token
        entry = (run, value)  # before the count: an allocation may run the garbage collector
        with cython.critical_section(self):
            token = self.last + 1
            self.last = token
        self.entries[token] = entry
        return token

    def take(self, token):
        """Remove a value and return it."""
        return self.entries.pop(token)[1]

    def drop_stale(self, run):
        """Drop the values of earlier runs."""
        for token in list(self.entries):  # other threads put and take meanwhile
            entry = self.entries.get(token)
            if entry is not None and entry[0] is not None and entry[0] != run:
                self.entries.pop(token, None)
