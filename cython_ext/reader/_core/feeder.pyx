"""Feeder: the trainer's engine behind an iterator.

Imports the arena, the blocking queue, the way of results and LoDTensorArray. A native reader thread
puts what the workers made into the queue, in order and without the GIL; the consumer dispatches
tasks and pops. See results.pxd for what each of the two touches, and under which lock.
"""
import os
import pickle

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from reader._core.arena cimport (store_u64, Hold, Lease, process_ledger, rd_arena_trim, RD_ANY_SEQ,
                                 RD_BATCH, RD_END, rd_bell_open, rd_bell_ring, RD_FULL, rd_head,
                                 rd_heap, rd_heap_at, RD_LOST, rd_now_ns, rd_slot, rd_slot_at,
                                 rd_slot_offset, rd_slot_release, rd_task, RD_TASK_INLINE,
                                 rd_task_push, store_u32)
from reader._core.blocking_queue cimport (DONE, INTERRUPTED, QUEUE_CLOSED, TIMED_OUT, next_look,
                                          pthread_mutex_destroy, queue_finish, pthread_mutex_init,
                                          pthread_mutex_lock, pthread_mutex_unlock, queue_free,
                                          queue_get, queue_open, queue_take_back, wait_deadline)
from reader._core.channel cimport TASK_EPOCH, TASK_TRIM
from reader._core.results cimport (flight, worker_state, drop, place, notify, drain, feed_get,
                                   reader_thread)

from reader._core.arena import Heap
from reader._core.failure import Failure
from reader.errors import InternalError, ReaderError

cdef extern from "reader/_core/wait.h" nogil:
    ctypedef void* (*rd_thread_body)(void*) noexcept nogil
    int rd_thread_start(pthread_t*, rd_thread_body, void*, const char*) noexcept


@cython.final
cdef class Feeder:
    """Moves batches from workers to one consumer.

    ``arena``: the pool's; ``nworkers``; ``window``: most batches dispatched and not yet taken;
    ``side``: a SideTable when the workers are threads of this process. `dispatch`, `take` and the
    rest are for one consumer at a time, in the process that made the Feeder.
    """

    def __init__(self, Arena arena not None, uint32_t nworkers, uint64_t window,
                 uint32_t flights_limit, available_bytes=None, side=None):
        cdef uint32_t i
        cdef uint64_t room = 16
        self.arena = arena
        self.side = side
        self.schemas = {}
        self.heap = Heap(arena, nworkers, 2, available_bytes)
        self.fork_generation = process_ledger().fork_generation
        self.s.arena = arena.c
        self.s.nworkers = nworkers
        self.s.flights_limit = flights_limit
        self.s.bell = rd_bell_open()
        if self.s.bell < 0:
            raise ReaderError("cannot open an eventfd: too many open files? raise `ulimit -n`")
        arena.c.bell = arena.c.own_bell = self.s.bell
        pthread_mutex_init(&self.s.lock, NULL)
        pthread_mutex_init(&self.s.trim_lock, NULL)
        queue_open(&self.s.queue, window + 2 * nworkers + 2)
        while room < window + 2 * nworkers + 2:
            room *= 2
        self.s.mask = room - 1
        self.s.waiting = <rd_record*>calloc(room, sizeof(rd_record))
        self.s.failures = <rd_record*>calloc(nworkers, sizeof(rd_record))
        self.s.workers = <worker_state*>calloc(nworkers, sizeof(worker_state))
        if not (self.s.waiting and self.s.failures and self.s.workers):
            raise MemoryError()
        for i in range(nworkers):
            self.s.workers[i].pidfd = -1
            self.s.workers[i].room = flights_limit
            self.s.workers[i].flights = <flight*>calloc(flights_limit, sizeof(flight))
            if self.s.workers[i].flights is NULL:
                raise MemoryError()

    def __dealloc__(self):
        cdef uint32_t i
        if self.s.workers is not NULL:
            self.close()
            for i in range(self.s.nworkers):
                free(self.s.workers[i].flights)
        free(self.s.workers)
        free(self.s.waiting)
        free(self.s.failures)
        queue_free(&self.s.queue)
        pthread_mutex_destroy(&self.s.lock)
        pthread_mutex_destroy(&self.s.trim_lock)

    cdef int check_process(self) except -1:
        if self.s.bell < 0:
            raise ReaderError("the loader was closed; iterate over it again to start new workers")
        if self.fork_generation != process_ledger().fork_generation:
            raise ReaderError(
                "this iterator belongs to the process that forked this one; its workers and its "
                "reader thread do not exist here: make a new iterator, iter(loader), after the fork")
        return 0

    @property
    def bell(self):
        """The eventfd that workers ring: to be inherited by them."""
        return self.s.bell

    def start(self):
        """Start the reader thread."""
        cdef int rc = rd_thread_start(&self.thread, reader_thread, &self.s, b"reader-feed")
        if rc:
            raise ReaderError(f"cannot start the reader thread: {os.strerror(rc)}; "
                              f"raise the limit on threads (ulimit -u)")
        self.running = True

    def close(self):
        """End the reader thread and drop what is queued. Idempotent; not for a forked child."""
        cdef int bell = self.s.bell
        if self.fork_generation != process_ledger().fork_generation:
            return
        if self.running:
            self.running = False
            store_u32(&self.s.stop, 1)
            rd_bell_ring(bell)
            with nogil:
                pthread_join(self.thread, NULL)  # it never waits for the GIL, nor for long
        if bell >= 0:
            queue_finish(&self.s.queue, QUEUE_CLOSED)
            notify(&self.s)  # wakes a consumer that waits
            pthread_mutex_lock(&self.s.lock)  # that consumer may be emptying the rings
            self.flush()
            pthread_mutex_unlock(&self.s.lock)
            self.s.arena.bell = -1
            self.s.bell = -1  # the arena closes it

    cdef void flush(self) noexcept:
        """Drop everything that is queued or waits for its turn. With the lock."""
        cdef rd_record record
        cdef uint64_t i
        if self.opening.kind:
            drop(&self.s, &self.opening)
        while queue_take_back(&self.s.queue, &record):
            drop(&self.s, &record)
        for i in range(self.s.mask + 1):
            if self.s.waiting[i].kind:
                drop(&self.s, &self.s.waiting[i])

    # -- workers ---------------------------------------------------------------------------------

    def attach(self, uint32_t worker, int pidfd=-1):
        """Let a worker take tasks. ``pidfd``: of its process; stays the caller's; -1: a thread."""
        pthread_mutex_lock(&self.s.lock)
        self.s.workers[worker].pidfd = pidfd
        self.s.workers[worker].ended = 0
        self.s.workers[worker].alive = 1
        self.s.workers[worker].said_hello = 0
        pthread_mutex_unlock(&self.s.lock)
        rd_bell_ring(self.s.bell)  # the reader thread has a new process to watch

    def detach(self, uint32_t worker):
        """Forget a worker whose process is reaped: returns (seqs, busy_seq, said_hello, said_end).

        ``seqs``: the current run's batches it had not answered, oldest first; ``busy_seq``: the
        one it was at, or None; ``said_end``: whether it answered END in this run. Its channels are
        empty after that, ready for a replacement.
        """
        cdef rd_heap* heap = rd_heap_at(self.s.arena, worker)
        cdef worker_state* w = &self.s.workers[worker]
        cdef flight* f
        cdef size_t i
        seqs = []
        pthread_mutex_lock(&self.s.lock)
        for i in range(w.count):
            f = &w.flights[(w.head + i) % w.room]
            if f.spill:
                rd_slot_release(self.s.arena, f.spill)
            if f.run == self.s.run:
                seqs.append(f.seq)
        w.count = 0
        w.pidfd = -1
        w.ended = 0
        w.alive = 0
        hello = bool(w.said_hello)
        busy = None
        if heap.at_since_ns and heap.at_run == self.s.run and heap.at_seq in seqs:
            busy = heap.at_seq
        heap.at_since_ns = 0
        heap.task_head = heap.task_tail
        heap.task_waiting = 0
        said_end = w.end_run == self.s.run
        pthread_mutex_unlock(&self.s.lock)
        return seqs, busy, hello, said_end

    def ended_workers(self):
        """Numbers of worker processes that ended and are not detached yet."""
        cdef uint32_t i
        found = []  # made before the lock is taken: making it may collect garbage
        pthread_mutex_lock(&self.s.lock)
        for i in range(self.s.nworkers):
            if self.s.workers[i].ended:
                found.append(i)
        pthread_mutex_unlock(&self.s.lock)
        return found

    def failed_worker(self):
        """Take the Failure of a worker that could not start, or None."""
        cdef uint32_t i
        cdef rd_record record
        for i in range(self.s.nworkers):
            if self.s.failures[i].kind:
                pthread_mutex_lock(&self.s.lock)
                record = self.s.failures[i]
                self.s.failures[i].kind = 0
                pthread_mutex_unlock(&self.s.lock)
                return Failure("start", -1, self.s.epoch, i, self.payload(&record))
        return None

    def worker_progress(self, uint32_t worker):
        """What a worker is at: (pid, batch or None, row, seconds)."""
        cdef rd_heap* heap
        self.check_process()
        heap = rd_heap_at(self.s.arena, worker)
        if heap.at_since_ns == 0:
            return heap.at_pid, None, -1, 0.0
        return (heap.at_pid, heap.at_seq, heap.at_index,
                (rd_now_ns() - heap.at_since_ns) * 1e-9)

    # -- tasks and batches -----------------------------------------------------------------------

    def begin_run(self, uint64_t epoch, uint64_t next_seq=0, bint in_order=True):
        """Begin an attempt at an epoch from batch ``next_seq`` on, or with any if not ``in_order``.

        Everything of earlier runs becomes stale: what is queued is dropped, what is in flight is
        dropped as it comes in, and nothing is waited for.
        """
        self.check_process()
        self.current = None
        self.accepted = self.sent = next_seq
        pthread_mutex_lock(&self.s.lock)
        self.s.run += 1
        self.s.epoch = epoch
        self.s.next_seq = next_seq
        self.s.any_order = not in_order
        store_u64(&rd_head(self.s.arena).wanted_seq, next_seq if in_order else RD_ANY_SEQ)
        store_u32(&rd_head(self.s.arena).run, self.s.run)
        self.flush()
        pthread_mutex_unlock(&self.s.lock)
        if self.side is not None:
            self.side.purge(self.s.run)

    def trim(self):
        """Give the memory of released slots back now, and ask every worker to do so with its own."""
        cdef rd_task task
        cdef uint32_t i
        self.check_process()
        hold = Hold.on(self.s.arena)  # another thread may close the loader meanwhile
        memset(&task, 0, sizeof(task))
        task.kind = TASK_TRIM
        with nogil:
            pthread_mutex_lock(&self.s.trim_lock)
            while rd_arena_trim(self.s.arena, 1 << 20):
                pass
            pthread_mutex_unlock(&self.s.trim_lock)
        pthread_mutex_lock(&self.s.lock)
        task.run = self.s.run
        for i in range(self.s.nworkers):
            if self.s.workers[i].alive and self.s.workers[i].count < self.s.flights_limit:
                self.send(i, &task, NULL)
        pthread_mutex_unlock(&self.s.lock)

    cdef int send(self, uint32_t worker, rd_task* task, const char* payload) noexcept:
        """Note a task as in flight and write it down. With the lock. 0, or -1: the ring is full."""
        cdef worker_state* w = &self.s.workers[worker]
        cdef flight* f = &w.flights[(w.head + w.count) % w.room]
        f.seq = task.seq
        f.run = task.run - (task.kind == TASK_TRIM or task.kind == TASK_EPOCH)  # no batch is lost
        f.spill = task.spill
        w.count += 1  # before the push: the answer may come at once
        return rd_task_push(self.s.arena, rd_heap_at(self.s.arena, worker), task, payload)

    def dispatch(self, uint64_t seq, int kind, bytes payload not None, int worker=-1):
        """Send a task to ``worker``, or (-1) to the one with the fewest. False when it cannot take it
        now: `take` gives notice when it can. Raises ArenaFull for a long task without room."""
        cdef rd_task task
        cdef const char* data = payload
        self.check_process()
        task.seq = seq
        task.epoch = self.s.epoch
        task.run = self.s.run
        task.kind = kind
        task.nbytes = <uint32_t>len(payload)
        task.skip = 0
        task.spill = 0
        hold = Hold.on(self.s.arena)  # another thread may close the loader meanwhile
        return self.dispatch_task(&task, data, worker)

    cdef bint dispatch_task(self, rd_task* task, const char* data, int worker) except -1:
        cdef uint32_t i, best = 0
        cdef size_t count, fewest = 2 * self.s.flights_limit
        cdef rd_heap* heap
        cdef rd_slot* slot = NULL
        cdef int rc
        if task.nbytes > RD_TASK_INLINE:  # the ring has room for flights_limit shorter ones
            slot = self.heap.alloc(task.nbytes)
            memcpy(<char*>self.s.arena.base + slot.start, data, task.nbytes)
            task.spill = rd_slot_offset(self.s.arena, slot)
        drain(&self.s)  # answers that woke nobody count, too
        pthread_mutex_lock(&self.s.lock)
        for i in range(self.s.nworkers):
            count = self.s.workers[i].count
            if not self.s.workers[i].alive or count == self.s.flights_limit:
                continue
            if worker >= 0 and i != <uint32_t>worker:
                continue
            heap = rd_heap_at(self.s.arena, i)
            if heap.at_since_ns and heap.at_run != self.s.run:
                count += self.s.flights_limit  # it is busy with something nobody wants any more
            if count < fewest:
                fewest = count
                best = i
        if fewest == 2 * self.s.flights_limit:
            store_u32(&self.s.starving, 1)
            pthread_mutex_unlock(&self.s.lock)
            if task.spill:
                self.heap.abandon(slot)
            return False
        rc = self.send(best, task, data)
        pthread_mutex_unlock(&self.s.lock)
        if rc:
            raise InternalError("a worker's task ring is full; flights_limit should rule that out")
        self.sends += 1
        if task.kind != TASK_EPOCH:
            self.sent = max(self.sent, task.seq + 1)
        return True

    def give_up(self, uint64_t seq, uint32_t worker, bint is_end=False):
        """Put a Failure of kind "lost", or "end", in the place of a batch that will not come."""
        cdef rd_record record
        memset(&record, 0, sizeof(record))
        record.seq = seq
        record.kind = RD_END if is_end else RD_LOST
        record.worker = <unsigned short>worker
        pthread_mutex_lock(&self.s.lock)
        record.run = self.s.run
        place(&self.s, &record)
        pthread_mutex_unlock(&self.s.lock)

    def take(self, timeout=None):
        """Wait for the next batch in order: a LoDTensorArray, or a Failure in its place.

        None: attention is wanted (see ended_workers, failed_worker, or dispatch again; or the
        feeder was closed). False: nothing came within ``timeout`` seconds (None: wait for ever).
        The same item comes again until `accept`: Ctrl-C loses nothing. Waits without the GIL.
        """
        cdef rd_record record
        cdef int64_t deadline, look
        cdef int rc
        if self.s.bell < 0:
            return None
        self.check_process()
        if self.current is not None:
            return self.current
        if self.opening.kind:  # Ctrl-C came while it was opened
            return self.open_taken()
        rc = queue_get(&self.s.queue, &record, 0)
        if rc == TIMED_OUT:
            hold = Hold.on(self.s.arena)  # another thread may close the loader meanwhile
            deadline = wait_deadline(timeout)
            while rc == TIMED_OUT or rc == INTERRUPTED:
                if deadline:
                    PyErr_CheckSignals()
                if deadline >= 0 and rd_now_ns() >= deadline:
                    return False
                look = next_look(deadline)
                with nogil:
                    rc = feed_get(&self.s, &record, look)
        if rc != DONE:
            return None
        self.opening = record
        return self.open_taken()

    cdef object open_taken(self):
        """Open the record that left the queue. Ctrl-C leaves it for the next time."""
        cdef rd_record* record = &self.opening
        try:
            self.current = self.open_record(record)
        except Exception as error:  # the user's objects may refuse to be unpickled
            self.current = Failure("open", record.seq, self.s.epoch, record.worker, error)
            if record.slot:
                rd_slot_release(self.s.arena, record.slot)
        record.kind = 0
        return self.current

    def is_busy(self):
        """Whether a worker still has tasks; if so, `take` gives notice when it answers one."""
        cdef uint32_t i
        cdef bint busy = False
        self.check_process()
        pthread_mutex_lock(&self.s.lock)
        for i in range(self.s.nworkers):
            busy = busy or (self.s.workers[i].alive and self.s.workers[i].count > 0)
        if busy:
            store_u32(&self.s.starving, 1)
        pthread_mutex_unlock(&self.s.lock)
        return busy

    def notify(self):
        """Let a `take` that waits, or the next one, return None."""
        self.check_process()
        notify(&self.s)

    def accept(self):
        """Confirm that the item of the last `take` reached its place. No signal comes between."""
        self.current = None
        self.accepted += 1

    @property
    def queued(self):
        """How many batches wait in the queue."""
        return self.s.queue.count

    cdef object open_record(self, rd_record* record):
        """The Python face of a record that left the queue."""
        if record.kind == RD_BATCH:
            return self.open_batch(record)
        if record.kind == RD_FULL:
            return Failure("full", record.seq, self.s.epoch, record.worker, None, record.a, record.b,
                           record.c, "max_bytes" if record.spare else "prefetch_factor")
        if record.kind == RD_END:
            return Failure("end", record.seq, self.s.epoch, record.worker, self.last_state(record))
        if record.kind == RD_LOST:
            return Failure("lost", record.seq, self.s.epoch, record.worker)
        return Failure("error", record.seq, self.s.epoch, record.worker, self.payload(record))

    cdef object last_state(self, rd_record* record):
        """What an END record carries, None without."""
        if self.side is not None:
            return self.side.take(record.a) if record.a else None
        return pickle.loads(self.payload(record)) if record.slot else None

    cdef object payload(self, rd_record* record):
        """What an ERROR or FAILED record carries; its slot goes back."""
        if self.side is not None:
            return self.side.take(record.a)
        data = self.slot_objects(record.slot)
        rd_slot_release(self.s.arena, record.slot)
        return data

    cdef bytes slot_objects(self, uint64_t offset):
        cdef rd_slot* slot = rd_slot_at(self.s.arena, offset)
        return (<const char*>self.s.arena.base + slot.start + slot.objects)[:slot.objects_nbytes]

    cdef LoDTensorArray open_batch(self, rd_record* record):
        cdef Lease lease = None
        cdef Schema schema
        cdef rd_slot* slot = NULL
        cdef list objects = []
        cdef bytes packed = None
        attached = None
        if record.slot:
            slot = rd_slot_at(self.s.arena, record.slot)
            if slot.generation != record.generation:
                raise InternalError(f"slot of batch {record.seq} was reused before it was read")
        if self.side is not None:
            schema, objects, attached = self.side.take(record.a)
        elif record.schema:
            schema = self.schemas.get(record.schema)
            if schema is None:
                schema = pickle.loads(self.slot_objects(record.schema))
                self.schemas[record.schema] = schema
            if <int64_t>slot.objects_nbytes > record.b:
                packed = self.slot_objects(record.slot)
        else:
            first, packed = pickle.loads(self.slot_objects(record.slot))
            schema = pickle.loads(first)
        if packed is not None and not record.c:  # else they are unpacked with the batch's fields
            objects, packed = pickle.loads(packed), None
        if record.b:  # what the worker attached lies behind the objects
            attached = pickle.loads(self.slot_objects(record.slot)[slot.objects_nbytes - record.b:])
        if slot is not NULL:  # last: what raised before may be tried again
            lease = Lease.take(self.s.arena, record.slot)
        return LoDTensorArray.from_slot(lease, schema, objects, packed, attached, record,
                                        self.s.epoch)

    def stats(self):
        """Counts of the reader thread: received, reordered, trimmed; and batches queued."""
        return {"received": self.s.received, "reordered": self.s.reordered,
                "trimmed": self.s.trimmed, "queued": self.s.queue.count}
