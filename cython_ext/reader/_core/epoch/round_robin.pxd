# Whose turn it is to take a task.


cdef class RoundRobin:
    cdef int num_workers
    cdef int limit                 # most tasks of a worker, where loads are watched
    cdef object loads              # a function: how many tasks each worker has; None: not watched
    cdef public int turn

    cpdef int next_worker(self) except -1
    cpdef void pass_on(self, int worker) noexcept
