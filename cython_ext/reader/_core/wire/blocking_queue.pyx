"""BlockingQueue: a bounded first-in first-out queue of batches.

Imports the arena's records. Any number of threads may push and pop; waiting
needs no GIL. The reader thread uses the functions on `queue_state` below and never Python.
"""
import threading

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from reader._core.memory.arena cimport RD_OBJECT, process_ledger
from reader._core.memory.wait cimport (exchange_u32, load_u32, rd_futex_wait, rd_futex_wake, rd_now_ns,
                                       store_u32)

from reader.errors import (ConfigError, ConfigTypeError, LoadTimeout, QueueClosed, QueueKilled,
                           ReaderError)

cdef enum:
    EINTR_CODE = 4
    ETIMEDOUT_CODE = 110
    LOOK_NS = 200000000  # a signal may arrive just before the thread sleeps: check again after this


cdef int queue_open(queue_state* q, size_t capacity) except -1:
    memset(q, 0, sizeof(queue_state))
    pthread_mutex_init(&q.lock, NULL)
    q.capacity = capacity
    return 0


cdef void queue_free(queue_state* q) noexcept nogil:
    free(q.items)
    q.items = NULL
    pthread_mutex_destroy(&q.lock)


cdef bint grow(queue_state* q) noexcept nogil:
    """Double the ring: it has at most twice the space that was ever used."""
    cdef size_t old = q.space, space = max(<size_t>16, 2 * q.space), i
    cdef rd_record* items = <rd_record*>realloc(q.items, space * sizeof(rd_record))
    if items is NULL:
        return False
    for i in range(q.head):  # the items that had wrapped go after the others
        items[old + i] = items[i]
    q.items = items
    q.space = space
    return True


cdef int queue_put(queue_state* q, const rd_record* item, int64_t deadline_ns) noexcept nogil:
    """Append; waits while full, until the deadline (0: not at all). With DONE the queue owns it."""
    cdef uint32_t seen
    cdef int rc = 0
    while True:
        pthread_mutex_lock(&q.lock)
        if q.state != QUEUE_OPEN:
            rc = KILLED if q.state == QUEUE_KILLED else CLOSED
            pthread_mutex_unlock(&q.lock)
            return rc
        if q.count < q.capacity and (q.count < q.space or grow(q)):
            q.items[(q.head + q.count) % q.space] = item[0]
            q.count += 1
            q.pushed += 1
            rc = q.pop_waiters
            pthread_mutex_unlock(&q.lock)
            if rc:
                rd_futex_wake(&q.pushed, 1)
            return DONE
        if deadline_ns == 0 or rc == ETIMEDOUT_CODE:
            pthread_mutex_unlock(&q.lock)
            return TIMED_OUT
        seen = q.popped
        q.push_waiters += 1
        pthread_mutex_unlock(&q.lock)
        rc = rd_futex_wait(&q.popped, seen, deadline_ns)
        pthread_mutex_lock(&q.lock)
        q.push_waiters -= 1
        pthread_mutex_unlock(&q.lock)
        if rc == EINTR_CODE:
            return INTERRUPTED


cdef int queue_get(queue_state* q, rd_record* item, int64_t deadline_ns) noexcept nogil:
    """Take the oldest; waits while empty, until the deadline (0: not at all)."""
    cdef uint32_t seen
    cdef int rc = 0
    while True:
        pthread_mutex_lock(&q.lock)
        if q.notice:
            q.notice = 0
            pthread_mutex_unlock(&q.lock)
            return NOTICE
        if q.count:
            item[0] = q.items[q.head]
            q.head = (q.head + 1) % q.space
            q.count -= 1
            q.popped += 1
            rc = q.push_waiters
            pthread_mutex_unlock(&q.lock)
            if rc:
                rd_futex_wake(&q.popped, 1)
            return DONE
        if q.state != QUEUE_OPEN:
            rc = KILLED if q.state == QUEUE_KILLED else CLOSED
            pthread_mutex_unlock(&q.lock)
            return rc
        if deadline_ns == 0 or rc == ETIMEDOUT_CODE:
            pthread_mutex_unlock(&q.lock)
            return TIMED_OUT
        seen = q.pushed
        q.pop_waiters += 1
        pthread_mutex_unlock(&q.lock)
        rc = rd_futex_wait(&q.pushed, seen, deadline_ns)
        pthread_mutex_lock(&q.lock)
        q.pop_waiters -= 1
        pthread_mutex_unlock(&q.lock)
        if rc == EINTR_CODE:
            return INTERRUPTED


cdef bint queue_take_back(queue_state* q, rd_record* item) noexcept nogil:
    """Take one out without waiting, in any state, to drop queued records."""
    cdef bint found
    pthread_mutex_lock(&q.lock)
    found = q.count > 0
    if found:
        item[0] = q.items[q.head]
        q.head = (q.head + 1) % q.space
        q.count -= 1
        q.popped += 1
    pthread_mutex_unlock(&q.lock)
    if found:
        rd_futex_wake(&q.popped, 1)
    return found


cdef size_t queue_count(queue_state* q) noexcept nogil:
    """Return how many are queued."""
    cdef size_t count
    pthread_mutex_lock(&q.lock)
    count = q.count
    pthread_mutex_unlock(&q.lock)
    return count


cdef int queue_now(queue_state* q) noexcept nogil:
    """Return the QueueState."""
    cdef int state
    pthread_mutex_lock(&q.lock)
    state = q.state
    pthread_mutex_unlock(&q.lock)
    return state


cdef bint queue_has_news(queue_state* q) noexcept nogil:
    """Whether a get would return at once."""
    cdef bint found
    pthread_mutex_lock(&q.lock)
    found = q.count > 0 or q.notice or q.state != QUEUE_OPEN
    pthread_mutex_unlock(&q.lock)
    return found


cdef void queue_set_state(queue_state* q, int state) noexcept nogil:
    """Change the state and wake all waiters. Only QUEUE_OPEN leaves KILLED."""
    pthread_mutex_lock(&q.lock)
    if q.state != QUEUE_KILLED or state == QUEUE_OPEN:
        q.state = state
    q.pushed += 1
    q.popped += 1
    pthread_mutex_unlock(&q.lock)
    rd_futex_wake(&q.pushed, 2147483647)
    rd_futex_wake(&q.popped, 2147483647)


cdef void queue_notify(queue_state* q) noexcept nogil:
    """Let the next get, or one that waits now, return NOTICE."""
    pthread_mutex_lock(&q.lock)
    q.notice = 1
    q.pushed += 1
    pthread_mutex_unlock(&q.lock)
    rd_futex_wake(&q.pushed, 1)


cdef int64_t wait_deadline(object timeout) except -2:
    """Return a monotonic deadline: -1 for None (for ever), 0 for a timeout of 0 (do not wait)."""
    cdef double seconds
    if timeout is None:
        return -1
    try:
        seconds = timeout
    except TypeError as error:
        raise ConfigTypeError(
            f"timeout is {timeout!r} ({type(timeout).__name__}); give seconds as a number, or None "
            f"to wait for ever") from error
    if not seconds >= 0:
        raise ConfigError(f"timeout is {timeout!r}; give seconds >= 0, or None to wait for ever")
    if seconds == 0:
        return 0
    if seconds > 1e9:
        return -1
    return rd_now_ns() + <int64_t>(seconds * 1e9)


cdef int64_t next_look(int64_t deadline_ns):
    """Return the time to sleep until: the main thread wakes in between to check for signals."""
    cdef int64_t look
    if deadline_ns == 0 or threading.get_ident() != threading.main_thread().ident:
        return deadline_ns
    look = rd_now_ns() + LOOK_NS
    return look if deadline_ns < 0 or look < deadline_ns else deadline_ns


@cython.final
cdef class BlockingQueue:
    """Bounded queue of batches between threads.

    ``BlockingQueue(capacity)``: ``capacity`` >= 1 counts batches. A batch is any object: a dict, a
    list, an array, nested or not, or a LoDTensorArray. ``pop`` returns what was pushed, uncopied. First in, first out; many
    producers and consumers, each item delivered once. A wait releases the GIL. It ends when an item or a
    free place comes, and by `close`, `kill`, the timeout, or Ctrl-C in the main thread. Any thread of the
    process that made it may use it; in a forked child it raises ReaderError.

    >>> import numpy as np
    >>> queue = BlockingQueue(2)
    >>> queue.push({"x": np.zeros(3), "names": ["a", "b"]})
    >>> queue.pop()
    {'x': array([0., 0., 0.]), 'names': ['a', 'b']}
    """

    def __cinit__(self, capacity):
        if isinstance(capacity, bool) or not hasattr(capacity, "__index__"):
            raise ConfigTypeError(
                f"capacity is {capacity!r} ({type(capacity).__name__}); give an integer >= 1")
        if capacity.__index__() < 1:
            raise ConfigError(f"capacity is {capacity!r}; a queue holds at least 1 batch")
        queue_open(&self.q, min(capacity.__index__(), 2 ** 62))
        self.fork_generation = process_ledger().fork_generation

    def __dealloc__(self):
        cdef rd_record item
        while queue_take_back(&self.q, &item):
            if item.kind == RD_OBJECT:
                Py_DECREF(<object>item.held_object)
        queue_free(&self.q)

    cdef int check_process(self) except -1:
        if self.fork_generation != process_ledger().fork_generation:
            raise ReaderError(
                "this BlockingQueue was made in the parent process and cannot be used in a forked "
                "process: its other threads do not exist; make a new one after the fork")
        return 0

    def push(self, batch, timeout=None):
        """Append a batch: a LoDTensorArray, or any object; waits while full.

        ``timeout``: seconds to wait at most; None: for ever; 0: not at all. Raises LoadTimeout when
        the queue stays full, QueueClosed, QueueKilled. An item that was not accepted stays yours.
        """
        cdef rd_record item
        cdef int64_t deadline = wait_deadline(timeout), look
        cdef int rc
        self.check_process()
        memset(&item, 0, sizeof(item))
        item.kind = RD_OBJECT
        item.held_object = <void*>batch
        Py_INCREF(batch)  # the queue's reference; pop hands it on
        try:
            rc = queue_put(&self.q, &item, 0)
            while rc == TIMED_OUT or rc == INTERRUPTED:
                if rc == INTERRUPTED or deadline:
                    PyErr_CheckSignals()
                if deadline >= 0 and rd_now_ns() >= deadline:
                    raise LoadTimeout(
                        f"the queue was still full after {timeout} s: it holds {self.q.capacity} "
                        f"batches; pop more often, or pass a larger capacity")
                look = next_look(deadline)
                with nogil:
                    rc = queue_put(&self.q, &item, look)
            if rc != DONE:
                self.raise_closed(rc, "push")
        except BaseException:
            Py_DECREF(batch)
            raise

    def pop(self, timeout=None):
        """Take the oldest batch, the very object that was pushed; waits while empty.

        ``timeout``: seconds to wait at most; None: for ever; 0: not at all. Raises LoadTimeout when
        the queue stays empty, QueueClosed when it is closed and drained, QueueKilled when it was killed and
        the batches queued before are delivered.
        """
        cdef rd_record item
        cdef int64_t deadline = wait_deadline(timeout), look
        cdef int rc
        self.check_process()
        rc = queue_get(&self.q, &item, 0)
        while rc == TIMED_OUT or rc == INTERRUPTED or rc == NOTICE:
            if rc == INTERRUPTED or deadline:
                PyErr_CheckSignals()
            if deadline >= 0 and rd_now_ns() >= deadline:
                raise LoadTimeout(
                    f"nothing arrived in the queue within {timeout} s; is its producer running?")
            look = next_look(deadline)
            with nogil:
                rc = queue_get(&self.q, &item, look)
        if rc != DONE:
            self.raise_closed(rc, "pop")
        batch = <object>item.held_object
        Py_DECREF(batch)  # the queue's reference, see push
        return batch

    def raise_closed(self, int rc, verb):
        """Raise the error of a closed or killed queue."""
        if rc == KILLED:
            error = QueueKilled(reason=self.reason)
            if isinstance(self.reason, BaseException):
                raise error from self.reason
            raise error
        raise QueueClosed(f"{verb} on a closed queue" + (
            "" if verb == "push" else " with nothing left in it"))

    def size(self):
        """How many batches are queued."""
        return queue_count(&self.q)

    def __len__(self):
        return queue_count(&self.q)

    def capacity(self):
        """How many batches fit."""
        return self.q.capacity

    @property
    def is_closed(self):
        """Whether close() or kill() was called."""
        return queue_now(&self.q) != QUEUE_OPEN

    @property
    def is_killed(self):
        """Whether kill() was called."""
        return queue_now(&self.q) == QUEUE_KILLED

    def close(self):
        """Accept no more batches; queued ones are still delivered, then pop raises QueueClosed."""
        self.check_process()
        queue_set_state(&self.q, QUEUE_CLOSED)

    def kill(self, reason=None):
        """Fail both sides: push at once, pop after the batches queued before.

        ``reason``: a text or an exception, carried by the QueueKilled of both sides. The first reason
        stays.
        """
        self.check_process()
        if queue_now(&self.q) != QUEUE_KILLED:
            self.reason = reason
            queue_set_state(&self.q, QUEUE_KILLED)

    def reopen(self):
        """Start over after close or kill: drop the queued batches and accept again."""
        cdef rd_record item
        self.check_process()
        while queue_take_back(&self.q, &item):
            if item.kind == RD_OBJECT:
                Py_DECREF(<object>item.held_object)
        self.reason = None
        queue_set_state(&self.q, QUEUE_OPEN)

    def __repr__(self):
        state = ("open", "closed", "killed")[queue_now(&self.q)]
        return f"BlockingQueue({queue_count(&self.q)} of {self.q.capacity}, {state})"
