# The bounded queue between the reader thread and the consumer.
from libc.stdint cimport int64_t, uint32_t
from reader._core.memory.arena cimport rd_record

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*) noexcept
    int pthread_mutex_destroy(pthread_mutex_t*) noexcept
    int pthread_mutex_lock(pthread_mutex_t*) noexcept
    int pthread_mutex_unlock(pthread_mutex_t*) noexcept

cdef enum Outcome:
    DONE = 0
    TIMED_OUT = 1
    INTERRUPTED = 2    # a signal arrived, or it is time to check for signals
    CLOSED = 3
    KILLED = 4
    NOTICE = 5         # not an item: the feeder wants the consumer's attention

cdef enum QueueState:
    QUEUE_OPEN = 0
    QUEUE_CLOSED = 1
    QUEUE_KILLED = 2

# Shared by the threads that push and pop; `lock` guards everything but the futex words, which a
# thread about to sleep reads without it.
cdef struct queue_state:
    pthread_mutex_t lock
    rd_record* items       # a ring of `space` records
    size_t space, head, count, capacity
    int state              # QueueState
    uint32_t pushed        # futex word: counts what may wake a pop
    uint32_t popped        # futex word: counts what may wake a push
    uint32_t pop_waiters, push_waiters
    uint32_t notice        # flag: the next get returns NOTICE

cdef int queue_open(queue_state* q, size_t capacity) except -1
cdef void queue_free(queue_state* q) noexcept nogil
cdef int queue_put(queue_state* q, const rd_record* item, int64_t deadline_ns) noexcept nogil
cdef int queue_get(queue_state* q, rd_record* item, int64_t deadline_ns) noexcept nogil
cdef bint queue_take_back(queue_state* q, rd_record* item) noexcept nogil
cdef size_t queue_count(queue_state* q) noexcept nogil
cdef int queue_now(queue_state* q) noexcept nogil
cdef bint queue_has_news(queue_state* q) noexcept nogil
cdef void queue_set_state(queue_state* q, int state) noexcept nogil
cdef void queue_notify(queue_state* q) noexcept nogil
cdef int64_t wait_deadline(object timeout) except -2
cdef int64_t next_look(int64_t deadline_ns)


cdef class BlockingQueue:
    cdef queue_state q
    cdef object reason             # the argument of kill()
    cdef uint32_t fork_generation  # of the process that made it

    cdef int check_process(self) except -1
