# The worker's side of its two rings, and how tasks are encoded.
from libc.stdint cimport uint32_t, uint64_t
from reader._core.collate.share cimport Sharing, rd_guest
from reader._core.collate.stack cimport BatchWriter
from reader._core.memory.arena cimport Arena, rd_heap, rd_record, rd_slot
from reader._core.memory.heap cimport Heap
from reader._core.memory.stage_times cimport rd_made, rd_timer

cpdef enum TaskKind:
    TASK_INDICES = 0    # payload: int64 indices of one batch
    TASK_KEYS = 1       # payload: a pickled list of keys of one batch
    TASK_INDEX = 2      # one int64: a sample without batching
    TASK_KEY = 3        # a pickled key: a sample without batching
    TASK_NEXT = 4       # no payload: the next batch of an iterable dataset
    TASK_AGAIN = 5      # one int64, the number of a batch that did not fit before: send it
    TASK_EPOCH = 6      # a pickled EpochStart; the answer is SKIPPED
    TASK_TRIM = 7       # free the memory of free slots; the answer is SKIPPED
    TASK_BROKEN = 8     # never sent: stands for a task whose keys cannot be unpickled
    TASK_ENTER = 9      # no payload: begin the epoch now; the answer is STATE


cdef int take_item(list samples, object source, object key, rd_made* made, rd_timer* timer) except -1
cdef bint take_next(list samples, object source, rd_made* made, rd_timer* timer) except -1


cdef class WorkerChannel:
    cdef readonly Arena arena
    cdef readonly Heap heap
    cdef list beside              # of this worker, for other loaders; trimmed when memory is short
    cdef readonly BatchWriter writer
    cdef rd_heap* c
    cdef uint32_t worker_id
    cdef int bell                 # the reader thread's eventfd; inherited, not owned
    cdef Sharing sharing          # with the other workers; None: this one makes each batch alone
    cdef bint takes_indices       # whether next_task() returns an Indices, and not a list
    cdef object side              # SideTable in a thread of the trainer, else None
    cdef readonly bint is_resting # within `next_task`: no code of the user's runs
    # of the current task
    cdef readonly uint32_t run
    cdef readonly uint64_t epoch
    cdef readonly uint64_t seq

    cdef object keys_of(self, int* kind, const char* payload, Py_ssize_t nbytes)
    cdef void note_begun(self) noexcept
    cdef int look(self, bint waits) noexcept
    cdef const rd_guest* guest(self) noexcept
    cdef rd_record record(self, int kind) noexcept
    cdef int send(self, rd_record* record) except -1
    cdef int send_payload(self, int kind, payload) except -1
    cdef int carry(self, rd_record* record, payload) except -1
    cdef int await_guests(self) noexcept
    cdef int done(self, rd_record* record) except -1
    cdef int show(self, rd_record* record) except -1
