"""RoundRobin: names one worker after the other for the tasks of a loader.

Imports nothing of the project. It belongs to the thread that draws tasks.
"""
cimport cython


@cython.final
cdef class RoundRobin:
    """Names one worker after the other, from ``turn`` on.

    ``num_workers``: how many there are; ``limit``: most tasks of a worker, where loads are watched.
    """

    def __init__(self, int num_workers, int turn=0, int limit=1):
        self.num_workers = num_workers
        self.limit = limit
        self.turn = turn

    def watch(self, loads):
        """Skip workers that have ``limit`` tasks; ``loads`` counts those of each."""
        self.loads = loads

    cpdef int next_worker(self) except -1:
        """Return whose turn it is; the turn is passed on by `pass_on`."""
        if self.loads is None:
            return self.turn
        loads = self.loads()
        for step in range(self.num_workers):
            worker = (self.turn + step) % self.num_workers
            if loads[worker] < self.limit:
                return worker
        return min(range(self.num_workers), key=loads.__getitem__)

    cpdef void pass_on(self, int worker) noexcept:
        """Have the turn be that of the worker after this one."""
        self.turn = (worker + 1) % self.num_workers
