"""Feeder: the trainer's side of the rings, which sends tasks and takes batches.

Imports the arena, the blocking queue, results and LoDTensorArray. A native reader thread puts the
workers' batches into the queue, in order and without the GIL; the consumer dispatches tasks and
pops. See results.pxd for what each of the two threads touches, and under which lock.
"""
import os

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport errno
from libc.limits cimport INT_MAX
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from reader._core.collate.share cimport rd_share_at
from reader._core.memory.arena cimport (Hold, process_ledger, rd_arena_trim, RD_ANY_SEQ, RD_BATCH, RD_END,
                                        RD_FAILED, RD_FULL, rd_head, RD_STATE, rd_heap, rd_heap_at, RD_LOST,
                                        rd_slot, rd_slot_offset, rd_slot_release, rd_heap_holds, rd_slot_read)
from reader._core.memory.heap cimport heap_words
from reader._core.memory.stage_times cimport rd_times
from reader._core.memory.wait cimport (load_relaxed_i64, load_relaxed_u32, load_relaxed_u64, rd_futex_wait,
                                       store_relaxed_i64, store_relaxed_int, store_relaxed_u32, store_relaxed_u64, store_u64,
                                       rd_bell_open, rd_bell_ring, rd_now_ns, store_u32, load_u32, exchange_u32, rd_futex_wake)
from reader._core.wire.blocking_queue cimport (DONE, INTERRUPTED, NOTICE, QUEUE_CLOSED, TIMED_OUT, next_look,
                                               queue_notify, pthread_mutex_destroy, queue_count,
                                               queue_set_state, pthread_mutex_init, pthread_mutex_lock,
                                               pthread_mutex_unlock, queue_free, queue_get, queue_open,
                                               queue_take_back, wait_deadline)
from reader._core.wire.channel cimport TASK_ENTER, TASK_EPOCH, TASK_TRIM
from reader._core.wire.records cimport drop_damaged, last_state, open_batch, open_payload
from reader._core.wire.results cimport (arena_of, ask_again, hold_queued, requeue, inspect, look_between,
                                        SEEN_NBYTES, damage_of, mark_damaged, note_damage, take_all, flight, notify,
                                        worker_side, drop, least_busy, enqueue, push_task, note_initial_state, drain,
                                        feed_get, paused_between, reader_thread)
from reader._core.wire.ring cimport rd_task, RD_TASK_INLINE, rd_task_push
from reader._core.wire.worker_reports cimport counts_of, progress_of

from reader._core.interpreter.signals import is_interrupt
from reader._core.memory.heap import Heap
from reader._core.wire.failure import Failure, FailureKind
from reader._core.wire.records import Damaged
from reader._core.wire.worker_reports import Damage, LostTasks
from reader.errors import InternalError, ReaderError, refusal

cdef extern from "reader/_core/memory/wait.h" nogil:
    ctypedef void* (*rd_thread_body)(void*) noexcept nogil
    int rd_thread_start(pthread_t*, rd_thread_body, void*, const char*) noexcept

cdef enum:
    GIVE_WAY_NS = 5_000_000  # at most: the time that Python lets a thread wait


@cython.final
@cython.no_gc_clear  # __dealloc__ needs the arena to end its thread
cdef class Feeder:
    """Moves batches from workers to one consumer.

    ``arena``: the pool's; ``nworkers``; ``window``: most batches dispatched and not yet taken;
    ``side``: a SideTable when the workers are threads of this process.

    The methods are for the consumer: one thread at a time, in the process that made the Feeder. While it is in
    `take`, any thread may call `worker_progress`, `worker_counts`, `paused_s`, `clock_s`, `stats`, `queued` and
    `notify`, which read atomics or take the lock; and `begin_run` and then `close`, to end the epoch and the pool.
    """

    def __init__(self, Arena arena not None, uint32_t nworkers, uint64_t window,
                 uint32_t flights_limit, available_bytes=None, side=None):
        cdef uint32_t i
        cdef uint64_t size = 16
        self.arena = arena
        self.side = side
        self.schemas = {}
        self.damaged = []
        self.failed = {}
        self.unreported = {}
        self.available_bytes = available_bytes
        self.heap = Heap(arena, nworkers, 2, available_bytes)
        self.fork_generation = process_ledger().fork_generation
        self.s.arena = arena.c
        self.s.nworkers = nworkers
        self.s.is_trusted = side is not None
        self.s.damaged_worker = nworkers
        self.s.damaged_seq = RD_ANY_SEQ
        self.s.flights_limit = flights_limit
        self.s.tick_ms = -1
        self.s.bell = rd_bell_open()
        if self.s.bell < 0:
            error = OSError(errno, os.strerror(errno))
            raise refusal("an eventfd for the workers", "cannot be opened", error)
        arena.c.bell = arena.c.own_bell = self.s.bell
        pthread_mutex_init(&self.s.lock, NULL)
        pthread_mutex_init(&self.s.trim_lock, NULL)
        queue_open(&self.s.queue, window + 2 * nworkers + 2)
        while size < window + 2 * nworkers + 2:
            size *= 2
        self.s.mask = size - 1
        self.s.waiting = <rd_record*>calloc(size, sizeof(rd_record))
        self.s.times = <rd_times*>calloc(size, sizeof(rd_times))
        self.times = TimesLog()
        self.s.failures = <rd_record*>calloc(nworkers, sizeof(rd_record))
        self.s.workers = <worker_side*>calloc(nworkers, sizeof(worker_side))
        self.s.states = <rd_record*>calloc(nworkers, sizeof(rd_record))
        if not (self.s.waiting and self.s.times and self.s.failures and self.s.states and self.s.workers):
            raise MemoryError()
        for i in range(nworkers):
            self.s.workers[i].pidfd = -1
            self.s.workers[i].space = flights_limit + 1  # one more for a batch that is made again
            self.s.workers[i].flights = <flight*>calloc(flights_limit + 1, sizeof(flight))
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
        free(self.s.times)
        free(self.s.failures)
        free(self.s.states)
        queue_free(&self.s.queue)
        pthread_mutex_destroy(&self.s.lock)
        pthread_mutex_destroy(&self.s.trim_lock)

    cdef bint is_here(self) noexcept:
        """Whether it is open in the process that made it, and closing has not begun."""
        return self.s.bell >= 0 and self.fork_generation == process_ledger().fork_generation \
            and not load_u32(&rd_head(self.s.arena).stop)

    cdef int check_process(self) except -1:
        if self.s.bell < 0:
            raise ReaderError("the loader was closed; iterate over it again to start new workers")
        if self.fork_generation != process_ledger().fork_generation:
            raise ReaderError(
                "this iterator belongs to the parent process, and its workers do not exist in this "
                "forked process: make a new iterator, iter(loader), after the fork")
        return 0

    @property
    def bell(self):
        """The eventfd that workers ring; they inherit it."""
        return self.s.bell

    def start(self):
        """Start the reader thread."""
        cdef int rc = rd_thread_start(&self.thread, reader_thread, &self.s, b"reader-feed")
        if rc:
            raise ReaderError(f"cannot start the reader thread: {os.strerror(rc)}; "
                              f"raise the limit on threads (ulimit -u)")
        self.running = True

    def close(self):
        """Stop the reader thread and drop queued batches. Idempotent; does nothing after a fork."""
        cdef int bell = self.s.bell
        if self.fork_generation != process_ledger().fork_generation:
            return
        self.stop_thread()
        if bell >= 0:
            queue_set_state(&self.s.queue, QUEUE_CLOSED)
            notify(&self.s)  # wakes a consumer that waits
            pthread_mutex_lock(&self.s.lock)  # that consumer may be emptying the rings
            self.flush()
            pthread_mutex_unlock(&self.s.lock)
            store_relaxed_int(&self.s.arena.bell, -1)
            self.s.bell = -1  # the arena closes it
            self.release_damaged()

    def stop_thread(self):
        """Stop the reader thread, if it runs."""
        if self.running:
            self.running = False
            store_u32(&self.s.stop, 1)
            rd_bell_ring(self.s.bell)
            with nogil:
                pthread_join(self.thread, NULL)  # it stops soon, and never waits for the GIL
            store_u32(&self.s.stop, 0)

    cdef void flush(self) noexcept:
        """Drop all results that are queued or wait for earlier ones. Call with the lock held."""
        cdef rd_record record
        cdef uint64_t i
        if self.opening.kind:
            drop(&self.s, &self.opening)
        while queue_take_back(&self.s.queue, &record):
            drop(&self.s, &record)
        for i in range(self.s.mask + 1):
            if self.s.waiting[i].kind:
                drop(&self.s, &self.s.waiting[i])
        for i in range(self.s.nworkers):
            if self.s.states[i].kind:
                drop(&self.s, &self.s.states[i])
            self.s.workers[i].owes_state = 0
        self.s.owing = 0

    def release_damaged(self):
        """Release the damaged arenas; their queued batches are dropped by now."""
        while self.damaged:
            self.damaged.pop()[0].release()

    def examine(self, workers):
        """Check the arena's parts of ended worker processes, before others take them over.

        Returns the Damage that was found, now or before, or None. After damage all workers are killed, and
        the caller must call `renew`.
        """
        cdef uint32_t i
        cdef const char* check
        cdef char[SEEN_NBYTES] seen
        if self.s.is_trusted:
            return None
        note_damage(&self.s)
        pthread_mutex_lock(&self.s.lock)
        inspect(&self.s)
        pthread_mutex_unlock(&self.s.lock)
        for i in workers:
            if rd_heap_holds(self.s.arena, i):
                words = heap_words(self.s.arena, i).encode()  # before the lock is taken
                pthread_mutex_lock(&self.s.lock)
                mark_damaged(&self.s, i, RD_ANY_SEQ, b"the heap of a dead worker is out of bounds", words)
                pthread_mutex_unlock(&self.s.lock)
        check = damage_of(&self.s, seen)
        if check is NULL:
            return None
        worker = self.s.damaged_worker
        return Damage(None if worker == self.s.nworkers else worker, check.decode(),
                      seen.decode(errors="replace"))  # it may be cut within a character

    def found_by(self, uint32_t pid):
        """Return the Damage that a worker process found before it ended itself; None: it noted none."""
        head = rd_head(self.s.arena)
        if pid == 0 or load_relaxed_u32(&head.found_by) != pid:
            return None
        return Damage(None, "a worker found what it shares with others out of bounds, or unlike its sum",
                      f"in heap {load_relaxed_u32(&head.found_in)} of {self.s.arena.nheaps}")

    def detach_all(self):
        """Stop the reader thread, take the undamaged results that workers had sent, and return the
        LostTasks of each worker. Call it when `examine` found damage and all workers are reaped."""
        cdef uint32_t i
        self.stop_thread()
        pthread_mutex_lock(&self.s.lock)
        for i in range(self.s.nworkers):
            if i != self.s.damaged_worker:
                take_all(&self.s, i)
        hold_queued(&self.s)
        pthread_mutex_unlock(&self.s.lock)
        again = drop_damaged(&self.s, self.schemas)
        pthread_mutex_lock(&self.s.lock)
        requeue(&self.s)
        pthread_mutex_unlock(&self.s.lock)
        lost = [self.detach(i) for i in range(self.s.nworkers)]
        return [tasks._replace(seqs=sorted(tasks.seqs + again[i])) for i, tasks in enumerate(lost)]

    def renew(self, Arena arena not None):
        """Go on in another arena, after `detach_all`: the old one was damaged.

        Batches from the old one that are not delivered yet were checked by `detach_all`; it is freed
        with the last of them. Attach the new workers next.
        """
        cdef Arena old = self.arena
        cdef uint32_t i
        heap = Heap(arena, self.s.nworkers, 2, self.available_bytes)
        for i in range(self.s.nworkers):
            if self.s.failures[i].kind:
                drop(&self.s, &self.s.failures[i])
            self.s.workers[i].result_head = 0
            self.s.workers[i].task_tail = 0
            self.s.workers[i].stalls = 0
        pthread_mutex_lock(&self.s.trim_lock)
        old.close_damaged()
        pthread_mutex_unlock(&self.s.trim_lock)
        self.damaged.append((old, self.schemas))
        self.schemas = {}
        self.heap = heap
        self.arena = arena
        self.s.arena = arena.c
        arena.c.bell = arena.c.own_bell = self.s.bell
        rd_head(arena.c).run = self.s.run
        store_u64(&rd_head(arena.c).wanted_seq, RD_ANY_SEQ if self.s.any_order else self.s.next_seq)
        self.s.check = NULL
        self.s.damaged_worker = self.s.nworkers
        self.s.damaged_seq = RD_ANY_SEQ
        store_u32(&self.s.damaged, 0)
        self.start()

    def attach(self, uint32_t worker, int pidfd=-1):
        """Let a worker take tasks. ``pidfd``: of its process; the caller owns it; -1: a thread."""
        pthread_mutex_lock(&self.s.lock)
        self.s.workers[worker].pidfd = pidfd
        self.s.workers[worker].ended = 0
        self.s.workers[worker].alive = 1
        store_relaxed_u32(&self.s.workers[worker].said_hello, 0)
        pthread_mutex_unlock(&self.s.lock)
        self.failed.pop(worker, None)
        self.unreported.pop(worker, None)
        rd_bell_ring(self.s.bell)  # the reader thread has a new process to watch

    def set_resting(self, uint32_t worker, bint is_resting):
        """Let a worker rest: `dispatch` gives it a task only where it names the worker. False: any, again."""
        self.s.workers[worker].is_resting = is_resting

    def detach(self, uint32_t worker):
        """Detach a worker whose process is reaped; return its LostTasks.

        Its rings are then empty and ready for a replacement.
        """
        cdef rd_heap* heap = rd_heap_at(self.s.arena, worker)
        cdef worker_side* w = &self.s.workers[worker]
        cdef flight* f
        cdef size_t i
        seqs = []
        pthread_mutex_lock(&self.s.lock)
        for i in range(w.count):
            f = &w.flights[(w.head + i) % w.space]
            if f.spill:
                rd_slot_release(self.s.arena, f.spill)
            if f.run == self.s.run:
                seqs.append(f.seq)
        if self.s.states[worker].kind:
            drop(&self.s, &self.s.states[worker])
        note_initial_state(&self.s, worker)
        w.count = 0
        w.pidfd = -1
        w.ended = 0
        w.alive = 0
        hello = bool(load_relaxed_u32(&w.said_hello))
        current_seq = None
        at_seq = load_relaxed_u64(&heap.at_seq)
        if load_relaxed_i64(&heap.at_since_ns) and load_relaxed_u32(&heap.at_run) == self.s.run \
                and at_seq in seqs:
            current_seq = at_seq
        if load_relaxed_u32(&rd_share_at(self.s.arena, worker).entered):
            current_seq = None  # it died at a row of another worker's batch, which the maker will make
        if self.s.check is not NULL:  # only the damaged worker was at a batch
            current_seq = None
            if worker == self.s.damaged_worker and self.s.damaged_seq in seqs:
                current_seq = self.s.damaged_seq
        store_relaxed_i64(&heap.at_since_ns, 0)
        store_relaxed_u64(&heap.task_tail, w.task_tail)
        store_u64(&heap.task_head, w.task_tail)
        store_u32(&heap.task_waiting, 0)
        is_used_up = w.end_run == self.s.run
        pthread_mutex_unlock(&self.s.lock)
        return LostTasks(seqs, current_seq, hello, is_used_up)

    def ended_workers(self):
        """Return the numbers of worker processes that have ended and are not detached yet."""
        cdef uint32_t i
        found = []  # made before the lock is taken: making it may collect garbage
        pthread_mutex_lock(&self.s.lock)
        for i in range(self.s.nworkers):
            if self.s.workers[i].ended:
                found.append(i)
        pthread_mutex_unlock(&self.s.lock)
        return found

    def failed_worker(self):
        """Return the Failure of a worker that could not start, once in each run; else None.

        A run that is left may not have raised it, and nobody replaces the worker.
        """
        cdef uint32_t i
        cdef rd_record record
        for i in range(self.s.nworkers):
            pthread_mutex_lock(&self.s.lock)
            record = self.s.failures[i]
            self.s.failures[i].kind = 0
            pthread_mutex_unlock(&self.s.lock)
            if record.kind:
                try:
                    self.failed[i] = Failure(FailureKind.START, -1, self.s.epoch, i,
                                             open_payload(&record, self.side))
                    return self.failed[i]
                except Damaged as error:
                    self.report_damage(&record, error)
        return self.unreported.popitem()[1] if self.unreported else None

    @property
    def has_initial_states(self):
        """Whether each worker that was asked to begin the epoch has begun it or has ended."""
        return self.s.owing == 0

    def initial_state(self, uint32_t worker):
        """Return the state with which a worker began the epoch, once; None: it sent none."""
        cdef rd_record record
        pthread_mutex_lock(&self.s.lock)
        record = self.s.states[worker]
        self.s.states[worker].kind = 0
        pthread_mutex_unlock(&self.s.lock)
        if not record.kind:
            return None
        try:
            return last_state(&record, self.side)
        except Damaged as error:
            self.report_damage(&record, error)
            return None

    @property
    def paused_s(self):
        """The seconds in which this process is known not to have run."""
        return paused_between(&self.s, -1, 0) * 1e-9

    def clock_s(self):
        """The time of a clock that stands still while this process does not run (SIGSTOP, a debugger)."""
        return rd_now_ns() * 1e-9 - self.paused_s

    def watch_pauses(self, double tick_s):
        """Notice pauses also while no thread waits: the reader thread wakes every ``tick_s`` seconds."""
        store_relaxed_int(&self.s.tick_ms, <int>(tick_s * 1000))
        rd_bell_ring(self.s.bell)

    def worker_progress(self, uint32_t worker):
        """Return a WorkerProgress: what a worker is making now. For messages, and a Watchdog."""
        self.check_process()
        return progress_of(&self.s, worker, self.sent)

    def worker_counts(self, uint32_t worker):
        """Return WorkerCounts. `busy_s` by elapsed time near 1: more workers help; near 0: it waits."""
        self.check_process()
        return counts_of(&self.s, worker)

    def begin_run(self, uint64_t epoch, uint64_t next_seq=0, bint in_order=True, TimesLog times=None):
        """Begin an attempt at an epoch, from batch ``next_seq`` on; not ``in_order``: from any.

        ``times``: the log of what is taken from now on; None: that of before.
        Batches of earlier runs become stale: those in the queue are dropped now, those in flight
        when they arrive. Does not wait for them.
        """
        self.check_process()
        self.current = None
        self.accepted = self.sent = next_seq
        if times is not None:
            self.times = times
        pthread_mutex_lock(&self.s.lock)
        self.s.run += 1
        self.s.epoch = epoch
        self.s.next_seq = next_seq
        self.s.any_order = not in_order
        store_u64(&rd_head(self.s.arena).wanted_seq, next_seq if in_order else RD_ANY_SEQ)
        store_u32(&rd_head(self.s.arena).run, self.s.run)
        self.flush()
        pthread_mutex_unlock(&self.s.lock)
        self.unreported = dict(self.failed)
        if self.unreported:
            queue_notify(&self.s.queue)
        self.release_damaged()
        if self.side is not None:
            self.side.drop_stale(self.s.run)

    def trim(self):
        """Free the memory of released slots now, and ask each worker to free its own."""
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
                push_task(&self.s, i, &task, NULL)
        pthread_mutex_unlock(&self.s.lock)

    cpdef bint dispatch(self, uint64_t seq, int kind, bytes payload, int worker=-1) except -1:
        """Send a task to ``worker``, or with -1 to the one with the fewest. False if it cannot take
        one now; `take` returns None when it can. ArenaFull if a long task does not fit."""
        cdef rd_task task
        cdef const char* data = payload
        self.check_process()
        task.seq = seq
        task.epoch = self.s.epoch
        task.run = self.s.run
        task.kind = kind
        task.nbytes = len(payload)
        task.skip = 0
        task.spill = 0
        hold = Hold.on(self.s.arena)  # another thread may close the loader meanwhile
        return self.dispatch_task(&task, data, worker)

    cdef bint dispatch_task(self, rd_task* task, const char* data, int worker) except -1:
        cdef uint32_t best
        cdef rd_slot* slot = NULL
        cdef rd_slot copy
        cdef int rc
        if task.nbytes > RD_TASK_INLINE:  # the ring has space for flights_limit shorter ones
            try:
                slot = self.heap.alloc(task.nbytes)
            except InternalError:
                if not load_u32(&self.s.arena.damaged):
                    raise
                note_damage(&self.s)
                return False
            if rd_slot_read(self.s.arena, slot, &copy) or copy.capacity < task.nbytes:
                return False  # the next check finds it
            memcpy(<char*>self.s.arena.base + copy.start, data, task.nbytes)
            self.heap.note_written(slot, task.nbytes)
            task.spill = rd_slot_offset(self.s.arena, slot)
        drain(&self.s)  # count the answers that woke nobody too
        pthread_mutex_lock(&self.s.lock)
        best = least_busy(&self.s, worker)
        if best == self.s.nworkers:
            store_u32(&self.s.starving, 1)
            pthread_mutex_unlock(&self.s.lock)
            if task.spill:
                self.heap.drop(slot)
            return False
        rc = push_task(&self.s, best, task, data)
        pthread_mutex_unlock(&self.s.lock)
        if rc:
            raise InternalError("a worker's task ring is full; flights_limit should rule that out")
        self.sends += 1
        if task.kind != TASK_EPOCH and task.kind != TASK_ENTER:
            self.sent = max(self.sent, task.seq + 1)
        return True

    def drop_task(self, uint64_t seq, uint32_t worker, bint is_end=False):
        """Put a Failure of kind LOST or END in place of a batch that will not come."""
        cdef rd_record record
        memset(&record, 0, sizeof(record))
        record.seq = seq
        record.kind = RD_END if is_end else RD_LOST
        record.worker = <unsigned short>worker
        pthread_mutex_lock(&self.s.lock)
        record.run = self.s.run
        enqueue(&self.s, &record)
        pthread_mutex_unlock(&self.s.lock)

    def take(self, timeout=None):
        """Wait for the next batch in order: a LoDTensorArray, or a Failure in its place.

        None: the consumer must check ended_workers and failed_worker, or dispatch again; or the
        feeder was closed. False: nothing came within ``timeout`` seconds (None: wait for ever).
        Returns the same item until `accept`, so that Ctrl-C loses none. Waits without the GIL.
        """
        cdef rd_record record
        cdef int64_t deadline, look
        cdef int rc
        if self.s.bell < 0:
            return None
        self.check_process()
        if self.current is not None:
            return self.current
        if load_u32(&self.s.damaged):
            return None
        if self.opening.kind:  # Ctrl-C interrupted its opening
            return self.open_taken()
        rc = queue_get(&self.s.queue, &record, 0)
        if rc == TIMED_OUT:
            if self.asked_ns == 0:
                self.asked_ns = rd_now_ns()
            hold = Hold.on(self.s.arena)  # another thread may close the loader meanwhile
            deadline = wait_deadline(timeout)
            while rc == TIMED_OUT or rc == INTERRUPTED:
                if deadline:
                    PyErr_CheckSignals()
                if deadline >= 0 and rd_now_ns() >= deadline:
                    return False
                look = next_look(deadline)
                if not self.s.is_trusted:
                    look = look_between(&self.s, look)
                with nogil:
                    rc = feed_get(&self.s, &record, look)
                    store_u32(&self.is_back, 1)
                if exchange_u32(&self.is_back, 0) == 2:
                    rd_futex_wake(&self.is_back, INT_MAX)
        if rc != DONE:
            return None
        self.opening = record
        return self.open_taken()

    cdef int give_way(self) except -1:
        """Release the GIL until a waiting consumer has it; for methods that other threads call again and
        again. Python alone would let the consumer wait for 5 ms at each batch."""
        cdef int64_t until_ns
        if load_u32(&self.is_back):  # not cleared meanwhile: that takes the GIL
            store_u32(&self.is_back, 2)
            until_ns = rd_now_ns() + GIVE_WAY_NS
            with nogil:
                rd_futex_wait(&self.is_back, 2, until_ns)
        return 0

    cdef object ready(self):
        """Return a batch or Failure if `take` would return it at once; else None. Notices stay for `take`."""
        cdef int rc
        if not self.is_here():
            return None
        if self.current is not None:
            return self.current
        if load_u32(&self.s.damaged) or self.opening.kind:
            return None
        rc = queue_get(&self.s.queue, &self.opening, 0)
        if rc == NOTICE:
            queue_notify(&self.s.queue)
        return self.open_taken() if rc == DONE else None

    cdef int report_damage(self, rd_record* record, error) except -1:
        """Have a worker make a batch again, because its bytes were damaged after it arrived; kill all workers."""
        cdef bytes seen = error.seen.encode()
        pthread_mutex_lock(&self.s.lock)
        if record.kind != RD_FAILED and record.kind != RD_STATE:
            ask_again(&self.s, record)
        mark_damaged(&self.s, record.worker, record.seq, <const char*>error.check, seen)
        pthread_mutex_unlock(&self.s.lock)
        drop(&self.s, record)
        return 0

    cdef object open_taken(self):
        """Open the record that left the queue. After an interrupt the next call does.

        Unpickling the user's objects may raise any exception.
        """
        cdef rd_record* record = &self.opening
        try:
            self.current = self.open_record(record)
            if record.kind == RD_BATCH:
                self.note_taken(record.seq)
        except Damaged as error:
            if not error.is_sealed:
                return self.report_damage(record, error) or None
            self.current = Failure(FailureKind.REFUSED, record.seq, self.s.epoch, record.worker,
                                   f"{error.check.decode()} ({error.seen})")
            drop(&self.s, record)
        except BaseException as error:
            if is_interrupt(error):
                raise
            self.current = Failure(FailureKind.OPEN, record.seq, self.s.epoch, record.worker, error)
            drop(&self.s, record)
        record.kind = 0
        return self.current

    cdef void note_taken(self, uint64_t seq) noexcept:
        """Log the times of a delivered batch."""
        cdef rd_times* times = &self.s.times[seq & self.s.mask]
        if times.seq == seq and times.run == self.s.run:
            times.delivered_ns = rd_now_ns()
            times.asked_ns = self.asked_ns if self.asked_ns else times.delivered_ns
            if not self.s.pauses.count or not paused_between(&self.s, times.dispatched_ns, times.delivered_ns):
                self.times.add(times)  # other records have no stages
                self.times.follow(self.current)
        self.asked_ns = 0

    def is_busy(self):
        """Whether any worker still has tasks; then `take` returns None when one is answered."""
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
        """Let the next `take`, or one that waits now, return None."""
        self.check_process()
        notify(&self.s)

    cpdef accept(self):
        """Confirm that the consumer has the item of the last `take`. No signal is handled in it."""
        self.current = None
        self.accepted += 1

    @property
    def queued(self):
        """How many batches wait in the queue."""
        return queue_count(&self.s.queue)

    cdef object open_record(self, rd_record* record):
        """Return the batch or the Failure of a record that left the queue."""
        if record.kind == RD_BATCH:
            known = self.schemas
            for old, its in self.damaged:  # the slots of its schemas may be overwritten by now
                if (<Arena>old).c == arena_of(&self.s, record):
                    known = its
            return open_batch(self.s.arena, record, self.side, known, self.s.epoch)
        if record.kind == RD_FULL:
            return Failure(FailureKind.FULL, record.seq, self.s.epoch, record.worker, None,
                           record.need_bytes, record.have_bytes, record.limit_bytes,
                           "max_bytes" if record.is_at_limit else "memory")
        if record.kind == RD_END:
            return Failure(FailureKind.END, record.seq, self.s.epoch, record.worker,
                           last_state(record, self.side))
        if record.kind == RD_LOST:
            return Failure(FailureKind.LOST, record.seq, self.s.epoch, record.worker)
        return Failure(FailureKind.ERROR, record.seq, self.s.epoch, record.worker, open_payload(record, self.side))

    def stats(self):
        """Return counts since the Feeder was made; the last two are current numbers.

        ``dispatched``: tasks sent to workers, those sent again included; ``received``: results, stale ones
        and workers' hellos included; ``reordered``: results that came before earlier ones (many: some
        batches take far longer than others); ``trimmed``: slots whose memory the reader thread freed;
        ``in_flight``: tasks without an answer so far; ``queued``: batches that wait for the consumer (near
        0: it starves; near ``window``: workers wait).
        """
        cdef uint32_t i
        cdef uint64_t received, reordered, trimmed, in_flight = 0
        pthread_mutex_lock(&self.s.lock)
        received, reordered, trimmed = self.s.received, self.s.reordered, self.s.trimmed
        for i in range(self.s.nworkers):
            in_flight += self.s.workers[i].count
        pthread_mutex_unlock(&self.s.lock)
        return {"dispatched": self.sends, "received": received, "reordered": reordered,
                "trimmed": trimmed, "in_flight": in_flight, "queued": self.queued}
