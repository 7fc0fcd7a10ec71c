"""Move results from the workers' rings into the queue, in order, and tasks into the rings.

Imports the arena and the blocking queue. It needs no GIL: no function here may call Python. The reader
thread and the consumer run it; see results.pxd for what each of the two touches, and under which lock.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from reader._core.memory.arena cimport (RD_ANY_SEQ, RD_BATCH, RD_ERROR, RD_FULL, RD_WRITING,
                                        rd_constants_hold, rd_promises_hold, rd_record_sum, rd_slot,
                                        rd_slot_known, rd_header, rd_arena_has_trim, rd_arena_trim, RD_END,
                                        RD_FAILED, rd_head, rd_heap, rd_heap_at, RD_HELLO, RD_READY,
                                        RD_SKIPPED, RD_STATE, rd_slot_at, rd_slot_release)
from reader._core.memory.stage_times cimport rd_times, rd_times_take
from reader._core.memory.wait cimport (load_relaxed_i64, load_relaxed_int, load_relaxed_u32, load_relaxed_u64, rd_now_ns,
                                       store_relaxed_u32, rd_kill, add_u32, store_u64, rd_fence, rd_futex_wait, rd_futex_wake,
                                       exchange_u32, load_u32, rd_bell_clear, store_u32)
from reader._core.wire.blocking_queue cimport (INTERRUPTED, TIMED_OUT, pthread_mutex_lock,
                                               pthread_mutex_unlock, queue_get, queue_take_back,
                                               queue_has_news, queue_notify, queue_put)
from reader._core.wire.channel cimport TASK_ENTER, TASK_EPOCH, TASK_TRIM
from reader._core.wire.ring cimport rd_wake_consumer, rd_result_pop, rd_result_waiting, rd_task_push

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events, revents
    int poll(pollfd*, unsigned long, int) noexcept
    short POLLIN


cdef enum:
    EINTR_CODE = 4
    ETIMEDOUT_CODE = 110
    INSPECT_NS = 200000000  # how long the consumer sleeps before it checks the shared words

cdef extern from "<stdio.h>" nogil:
    int snprintf(char*, size_t, const char*, ...) noexcept

ctypedef unsigned long long ull  # for snprintf

cdef const char* BAD_PROMISE = b"the memory that a worker promised is more than there may be"


cdef void drop(feed_state* s, rd_record* record) noexcept nogil:
    """Release the slot of a result that is not delivered."""
    if record.slot:
        rd_slot_release(arena_of(s, record), record.slot)
    record.kind = 0


cdef rd_arena* arena_of(feed_state* s, const rd_record* record) noexcept nogil:
    """Return the arena of a record's slot: this one, or one that was damaged since."""
    return s.arena if s.is_trusted or record.slot == 0 else record.arena


cdef const char* find_damage(feed_state* s, uint32_t index, const rd_record* record) noexcept nogil:
    """Check a record against the trainer's own state. Returns the check that failed, or NULL."""
    cdef worker_side* worker = &s.workers[index]
    cdef flight* oldest
    cdef rd_slot* slot
    if record.sum != rd_record_sum(record):
        return b"a result differs from its sum"
    if record.worker != index or record.kind == 0 or (
            record.kind > RD_FAILED and record.kind != RD_STATE):
        return b"a result has another worker or an unknown kind"
    if record.kind != RD_FULL and record.arena != NULL:
        return b"a result names an object of the trainer"
    if record.schema and (record.kind != RD_BATCH
                          or not rd_slot_known(s.arena, index, record.schema)):
        return b"the schema of a result lies in no slot of its worker"
    if record.kind == RD_FULL or record.kind == RD_SKIPPED or record.kind == RD_HELLO:
        if record.slot:
            return b"a result without a batch has a slot"
    elif record.slot:
        if not rd_slot_known(s.arena, index, record.slot):
            return b"the slot of a result is none of its worker"
        slot = rd_slot_at(s.arena, record.slot)
        if load_u32(&slot.state) != RD_WRITING or load_relaxed_u32(&slot.generation) != record.generation:
            return b"the slot of a result is not being written, or has another generation"
    elif record.kind == RD_ERROR or record.kind == RD_FAILED or record.kind == RD_BATCH:
        return b"a result has no slot"
    if record.kind == RD_HELLO or record.kind == RD_FAILED:
        return NULL
    if worker.count == 0:
        return b"a result answers no task"
    oldest = &worker.flights[worker.head]
    if record.seq != oldest.seq or record.run != oldest.sent_run:
        return b"a result answers another task than the oldest"
    if record.kind == RD_STATE and oldest.run == oldest.sent_run:
        return b"a state answers the task of a batch"
    if record.kind == RD_SKIPPED and oldest.run == s.run and not load_u32(&s.arena.stopping):
        return b"a batch was skipped that is waited for"
    return NULL


cdef void tell_record(feed_state* s, uint32_t index, const rd_record* record, char* seen) noexcept nogil:
    """Write the values that `find_damage` checked into a text of SEEN_NBYTES."""
    cdef worker_side* worker = &s.workers[index]
    cdef flight* oldest = &worker.flights[worker.head]
    cdef rd_slot* slot = NULL
    cdef int n = snprintf(seen, SEEN_NBYTES, b"kind %u of worker %u for batch %llu, run %u, slot %llu.%u, "
                          b"schema %llu, sum %u of %u; ", record.kind, record.worker, <ull>record.seq,
                          record.run, <ull>record.slot, record.generation, <ull>record.schema,
                          record.sum, rd_record_sum(record))
    if n < 0 or n >= SEEN_NBYTES:
        return
    if record.slot and rd_slot_known(s.arena, index, record.slot):
        slot = rd_slot_at(s.arena, record.slot)
        n += snprintf(seen + n, SEEN_NBYTES - n, b"the slot has state %u.%u; ",
                      load_u32(&slot.state), load_relaxed_u32(&slot.generation))
    if n >= SEEN_NBYTES:
        return
    if worker.count:
        snprintf(seen + n, SEEN_NBYTES - n, b"worker %u has %llu tasks from batch %llu on, run %u",
                 index, <ull>worker.count, <ull>oldest.seq, oldest.sent_run)
    else:
        snprintf(seen + n, SEEN_NBYTES - n, b"worker %u has no task", index)


cdef void mark_damaged(feed_state* s, uint32_t worker, uint64_t seq, const char* check,
                       const char* seen) noexcept nogil:
    """Note that a check failed on the values ``seen``, and kill all workers. Call with the lock held.

    Other parts of the arena may be damaged too, and a check finds damage only when it reads it. So all
    workers and the arena are replaced: see Feeder.renew.
    """
    cdef uint32_t i
    if s.is_trusted or s.check != NULL:
        return
    s.check = check
    snprintf(s.seen, SEEN_NBYTES, b"%s", seen)
    s.damaged_worker = min(worker, s.nworkers)
    s.damaged_seq = seq
    if seq == RD_ANY_SEQ and worker < s.nworkers and s.workers[worker].count:
        s.damaged_seq = s.workers[worker].flights[s.workers[worker].head].seq
    store_u32(&s.damaged, 1)
    for i in range(s.nworkers):
        if not s.workers[i].alive and s.workers[i].pidfd < 0:
            continue  # it was not started yet
        if s.workers[i].pidfd >= 0 and not s.workers[i].ended:
            rd_kill(s.workers[i].pidfd)
        s.workers[i].alive = 0
        s.workers[i].ended = 1
    notify(s)


cdef const char* damage_of(feed_state* s, char* seen) noexcept nogil:
    """Return the check that failed, and write the values it saw into a text of SEEN_NBYTES; NULL: none did."""
    cdef const char* check
    pthread_mutex_lock(&s.lock)  # the reader thread may be writing both
    check = s.check
    snprintf(seen, SEEN_NBYTES, b"%s", s.seen)
    pthread_mutex_unlock(&s.lock)
    return check


cdef void note_damage(feed_state* s) noexcept nogil:
    """Mark damage that a thread found while it released a slot, without the lock."""
    cdef uint32_t heap = load_relaxed_u32(&s.arena.damaged)
    cdef char[SEEN_NBYTES] seen
    if heap:
        pthread_mutex_lock(&s.lock)
        snprintf(seen, sizeof(seen), b"in heap %u of %u", heap - 1, s.arena.nheaps)
        mark_damaged(s, heap - 1, RD_ANY_SEQ, b"a slot or a stack of slots is out of bounds", seen)
        pthread_mutex_unlock(&s.lock)


cdef void ask_again(feed_state* s, const rd_record* record) noexcept nogil:
    """Have a worker make a batch again, because its bytes were damaged after it arrived. Call with the lock held.

    Its task is in flight again, and `detach` reports it as lost. Batches queued behind it wait for it
    again.
    """
    cdef worker_side* worker = &s.workers[record.worker]
    cdef rd_record later
    if record.run == s.run and worker.count < worker.space:
        worker.head = (worker.head + worker.space - 1) % worker.space
        worker.flights[worker.head].seq = record.seq
        worker.flights[worker.head].run = worker.flights[worker.head].sent_run = record.run
        worker.flights[worker.head].spill = 0
        worker.count += 1
        if not s.any_order:
            while queue_take_back(&s.queue, &later):
                s.waiting[later.seq & s.mask] = later
            s.next_seq = record.seq
            store_u64(&rd_head(s.arena).wanted_seq, s.next_seq)


cdef void hold_queued(feed_state* s) noexcept nogil:
    """Move queued records back to those that wait for earlier ones. Call with the lock held."""
    cdef rd_record record
    cdef uint64_t count = 0
    while queue_take_back(&s.queue, &record):
        s.waiting[(count if s.any_order else record.seq) & s.mask] = record
        if count == 0 and not s.any_order:
            s.next_seq = record.seq
        count += 1


cdef void requeue(feed_state* s) noexcept nogil:
    """Queue the records that hold_queued took again, except those of kind 0. Call with the lock held."""
    cdef uint64_t i
    if not s.any_order:
        advance(s)
        return
    for i in range(s.mask + 1):
        if s.waiting[i].kind:
            queue_put(&s.queue, &s.waiting[i], 0)
            s.waiting[i].kind = 0


cdef void inspect(feed_state* s) noexcept nogil:
    """Check the shared futex words and counts after a long wait of the consumer: if a worker damaged them,
    another may sleep on, or a task may be lost. Call with the lock held."""
    cdef rd_header* head = rd_head(s.arena)
    cdef worker_side* worker
    cdef rd_heap* heap
    cdef uint64_t taken
    cdef uint32_t i
    cdef char[SEEN_NBYTES] seen
    if load_u32(&s.arena.stopping) or load_u32(&s.damaged):
        return
    if not rd_constants_hold(s.arena) or load_u32(&head.stop) or load_u32(&head.run) != s.run:
        snprintf(seen, sizeof(seen), b"%u heaps of %u, %llu bytes of %llu, limit %llu of %llu, run %u of "
                 b"%u, stop %u", head.nheaps, s.arena.nheaps, <ull>head.reserved_nbytes,
                 <ull>s.arena.nbytes, <ull>head.limit_nbytes, <ull>s.arena.limit_nbytes,
                 load_u32(&head.run), s.run, load_u32(&head.stop))
        mark_damaged(s, s.nworkers, RD_ANY_SEQ, b"the header of the arena is not as the trainer wrote it",
                     seen)
        return
    if not rd_promises_hold(s.arena):
        refuse_promise(s)
        return
    store_u64(&head.wanted_seq, RD_ANY_SEQ if s.any_order else s.next_seq)
    for i in range(s.nworkers):
        worker = &s.workers[i]
        if not worker.alive or worker.count == 0:
            worker.stalls = 0
            continue
        heap = rd_heap_at(s.arena, i)
        taken = load_relaxed_u64(&heap.task_head)
        if (load_relaxed_u64(&heap.task_tail) != worker.task_tail
                or worker.task_tail - taken > s.arena.task_ring_nbytes):
            snprintf(seen, sizeof(seen), b"%llu bytes written of %llu, %llu taken, in a ring of %llu",
                     <ull>load_relaxed_u64(&heap.task_tail), <ull>worker.task_tail, <ull>taken,
                     <ull>s.arena.task_ring_nbytes)
            mark_damaged(s, i, RD_ANY_SEQ, b"the counts of a task ring are not the trainer's", seen)
            return
        if (taken == worker.task_tail and load_relaxed_i64(&heap.at_since_ns) == 0
                and load_relaxed_u64(&heap.result_tail) == worker.result_head):
            worker.stalls += 1  # a healthy worker may look like this between two stores
            if worker.stalls >= 5:
                snprintf(seen, sizeof(seen), b"%llu tasks from batch %llu on, and %llu results so far",
                         <ull>worker.count, <ull>worker.flights[worker.head].seq, <ull>worker.result_head)
                mark_damaged(s, i, RD_ANY_SEQ, b"a worker has lost a task or its result", seen)
                return
        else:
            worker.stalls = 0
        store_u32(&heap.task_waiting, 0)
        rd_futex_wake(&heap.task_waiting, 2147483647)


cdef void refuse_promise(feed_state* s) noexcept nogil:
    """Note as damage that a heap promises more memory than possible. Call with the lock held."""
    cdef char[SEEN_NBYTES] seen
    cdef uint64_t promised = 0, expected = 0
    cdef uint32_t i = 0
    for i in range(s.arena.nheaps):
        promised = load_relaxed_u64(&rd_heap_at(s.arena, i).promised)
        expected = load_relaxed_u64(&rd_heap_at(s.arena, i).expected)
        if promised > s.arena.limit_nbytes or expected > s.arena.limit_nbytes:
            break
    snprintf(seen, sizeof(seen), b"heap %u promises %llu bytes and expects %llu, and the limit is %llu", i,
             <ull>promised, <ull>expected, <ull>s.arena.limit_nbytes)
    mark_damaged(s, s.nworkers, RD_ANY_SEQ, BAD_PROMISE, seen)


cdef int64_t look_between(feed_state* s, int64_t deadline_ns) noexcept nogil:
    """Check at intervals whether a wake-up was lost because a worker damaged a shared word.

    Returns the time to sleep until: after a lost wake-up nothing else wakes the calling thread.
    """
    cdef int64_t now = rd_now_ns()
    if now - s.inspected_ns >= INSPECT_NS:
        s.inspected_ns = now
        note_damage(s)
        pthread_mutex_lock(&s.lock)
        inspect(s)
        pthread_mutex_unlock(&s.lock)
    now += INSPECT_NS
    return now if deadline_ns < 0 or now < deadline_ns else deadline_ns


cdef void pop_task(feed_state* s, worker_side* worker, rd_record* record) noexcept nogil:
    """Remove the worker's oldest task: a result has answered it."""
    cdef flight* oldest
    if worker.count == 0:
        return
    oldest = &worker.flights[worker.head]
    if oldest.spill:
        rd_slot_release(s.arena, oldest.spill)
    worker.head = (worker.head + 1) % worker.space
    worker.count -= 1


cdef uint32_t least_busy(feed_state* s, int worker) noexcept nogil:
    """Return the worker with the fewest tasks, or ``worker`` unless that is -1; ``nworkers``: none can take
    a task now. Call with the lock held."""
    cdef uint32_t i, best = s.nworkers
    cdef size_t count, fewest = 2 * s.flights_limit
    cdef rd_heap* heap
    for i in range(s.nworkers):
        count = s.workers[i].count
        if not s.workers[i].alive or count >= s.flights_limit:
            continue
        if (worker >= 0 and i != <uint32_t>worker) or (worker < 0 and s.workers[i].is_resting):
            continue
        heap = rd_heap_at(s.arena, i)
        if load_relaxed_i64(&heap.at_since_ns) and load_relaxed_u32(&heap.at_run) != s.run:
            count += s.flights_limit  # it is busy with a stale task
        if count < fewest:
            fewest = count
            best = i
    return best


cdef int push_task(feed_state* s, uint32_t worker, rd_task* task, const char* payload) noexcept nogil:
    """Note a task as in flight and write it to the ring. Call with the lock held. Returns 0, or -1
    if the ring is full."""
    cdef worker_side* w = &s.workers[worker]
    cdef flight* f = &w.flights[(w.head + w.count) % w.space]
    cdef bint is_batch = (task.kind != TASK_TRIM and task.kind != TASK_EPOCH
                          and task.kind != TASK_ENTER)
    cdef rd_times* times
    cdef char[SEEN_NBYTES] seen
    cdef int rc
    f.seq = task.seq
    f.sent_run = task.run
    f.run = task.run - (not is_batch)  # no batch: the run before, so that `detach` does not report it as lost
    f.spill = task.spill
    if is_batch:
        times = &s.times[task.seq & s.mask]
        memset(times, 0, sizeof(rd_times))
        times.seq, times.epoch, times.run = task.seq, task.epoch, task.run
        times.worker = <int32_t>worker
        times.dispatched_ns = rd_now_ns()
    w.count += 1  # before the push: the answer may come at once
    if task.kind == TASK_ENTER and not w.owes_state:
        w.owes_state = 1
        s.owing += 1
    rc = rd_task_push(s.arena, worker, &w.task_tail, task, payload)
    if rc == -2:  # not reported: the task is in flight, and is lost with its worker
        snprintf(seen, sizeof(seen), b"%llu bytes written and %llu taken, in a ring of %llu",
                 <ull>w.task_tail, <ull>load_relaxed_u64(&rd_heap_at(s.arena, worker).task_head),
                 <ull>s.arena.task_ring_nbytes)
        mark_damaged(s, worker, RD_ANY_SEQ, b"the count of a task ring cannot be", seen)
        rc = 0
    return rc


cdef void enqueue(feed_state* s, rd_record* record) noexcept nogil:
    """Put a result into the queue, or keep it until all before it have come."""
    if s.any_order:
        s.times[record.seq & s.mask].ordered_ns = s.now_ns
        queue_put(&s.queue, record, 0)
        rd_wake_consumer(rd_head(s.arena))
        return
    s.waiting[record.seq & s.mask] = record[0]
    if record.seq == s.next_seq:
        advance(s)


cdef void advance(feed_state* s) noexcept nogil:
    """Push the results that are next in order into the queue; the table's size keeps it from filling."""
    cdef rd_record* record = &s.waiting[s.next_seq & s.mask]
    if s.owing:
        return  # initial states first: a lost batch may have to be made again from one
    while record.kind and record.seq == s.next_seq:
        s.times[s.next_seq & s.mask].ordered_ns = s.now_ns
        queue_put(&s.queue, record, 0)
        record.kind = 0
        s.next_seq += 1
        record = &s.waiting[s.next_seq & s.mask]
    store_u64(&rd_head(s.arena).wanted_seq, s.next_seq)
    rd_wake_consumer(rd_head(s.arena))


cdef void note_initial_state(feed_state* s, uint32_t index) noexcept nogil:
    """Note that the state of a worker is no longer awaited. Call with the lock held."""
    if s.workers[index].owes_state:
        s.workers[index].owes_state = 0
        s.owing -= 1
        if s.owing == 0:
            advance(s)
            notify(s)


cdef void notify(feed_state* s) noexcept nogil:
    """Make the consumer's get return NOTICE. Wakes it even if a worker died just before waking it."""
    queue_notify(&s.queue)
    store_u32(&rd_head(s.arena).consumer_waiting, 0)
    add_u32(&rd_head(s.arena).consumer_word, 1)
    rd_futex_wake(&rd_head(s.arena).consumer_word, 2147483647)


cdef void arrive(feed_state* s, uint32_t index, rd_record* record) noexcept nogil:
    """Handle one result of one worker."""
    cdef worker_side* worker = &s.workers[index]
    s.received += 1
    if record.kind == RD_HELLO:
        store_relaxed_u32(&worker.said_hello, 1)
        return
    if record.kind == RD_FAILED:
        if record.slot:
            store_u32(&rd_slot_at(s.arena, record.slot).state, RD_READY)
            if not s.is_trusted:
                record.arena = s.arena
        s.failures[index] = record[0]
        worker.alive = 0
        notify(s)
        return
    pop_task(s, worker, record)
    if load_u32(&s.starving) and exchange_u32(&s.starving, 0):
        notify(s)
    if record.kind == RD_SKIPPED:
        return
    if record.kind == RD_STATE and record.run == s.run:
        if s.states[index].kind:
            drop(s, &s.states[index])
        if record.slot:
            store_u32(&rd_slot_at(s.arena, record.slot).state, RD_READY)
            if not s.is_trusted:
                record.arena = s.arena
        s.states[index] = record[0]
        note_initial_state(s, index)
        return
    if record.kind == RD_END:
        worker.end_run = record.run
    if record.slot:
        store_u32(&rd_slot_at(s.arena, record.slot).state, RD_READY)
        if not s.is_trusted:
            record.arena = s.arena
    if record.run != s.run or record.kind == RD_STATE or (record.seq < s.next_seq and not s.any_order):
        drop(s, record)
        return
    if record.seq != s.next_seq:
        s.reordered += 1
    note_arrival(s, index, record)
    enqueue(s, record)


cdef void note_arrival(feed_state* s, uint32_t index, const rd_record* record) noexcept nogil:
    """Note when a batch came, and its worker's times."""
    cdef rd_times* times = &s.times[record.seq & s.mask]
    s.now_ns = rd_now_ns()
    if times.seq == record.seq and times.run == record.run:
        times.arrived_ns = s.now_ns
        if record.kind == RD_BATCH:
            rd_times_take(times, s.arena, index, record.run, s.workers[index].result_head - 1)


cdef bint take_all(feed_state* s, uint32_t index) noexcept nogil:
    """Take the results of one worker. False if one was damaged: then all workers are killed. Call with the
    lock held."""
    cdef rd_record record
    cdef const char* check
    cdef char[SEEN_NBYTES] seen
    cdef int rc
    while True:
        rc = rd_result_pop(s.arena, index, &s.workers[index].result_head, &record)
        if rc == 0:
            return True
        if s.is_trusted:
            check = NULL
        elif rc < 0:
            check = b"the count of a result ring cannot be"
            snprintf(seen, sizeof(seen), b"%llu results sent and %llu taken, in a ring of %llu",
                     <ull>load_relaxed_u64(&rd_heap_at(s.arena, index).result_tail),
                     <ull>s.workers[index].result_head, <ull>s.arena.result_ring_count)
        else:
            check = find_damage(s, index, &record)
            if check != NULL:
                tell_record(s, index, &record, seen)
        if check != NULL:
            mark_damaged(s, index, RD_ANY_SEQ, check, seen)
            return False
        if record.kind == RD_FULL and not s.is_trusted and not rd_promises_hold(s.arena):
            # another heap's damaged count promised too much memory, so this worker found none: make the
            # batch again
            refuse_promise(s)
            return False
        arrive(s, index, &record)


cdef bint has_results(feed_state* s, uint32_t index) noexcept nogil:
    """Whether a worker has sent a result. Needs no lock."""
    return not load_u32(&s.damaged) and rd_result_waiting(
        s.arena, index, &s.workers[index].result_head)


cdef bint drain(feed_state* s) noexcept nogil:
    """Take all results from the rings. Returns whether there was one."""
    cdef uint32_t i
    cdef bint found = False
    for i in range(s.nworkers):
        if not has_results(s, i):
            continue
        found = True
        pthread_mutex_lock(&s.lock)
        if not load_u32(&s.damaged):
            take_all(s, i)
        pthread_mutex_unlock(&s.lock)
    return found


cdef bint something_waits(feed_state* s) noexcept nogil:
    """Whether the consumer has something to take."""
    cdef uint32_t i
    if queue_has_news(&s.queue):
        return True
    for i in range(s.nworkers):
        if has_results(s, i):
            return True
    return False


cdef void note_wake(feed_state* s, int64_t begun_ns, int64_t due_ns) noexcept nogil:
    """Note that a wait has ended: long after its deadline if the process was stopped."""
    cdef int64_t now = rd_now_ns()
    if now - max(begun_ns, due_ns) > RD_PAUSE_NS:
        pthread_mutex_lock(&s.lock)
        rd_pauses_note(&s.pauses, begun_ns, now)
        pthread_mutex_unlock(&s.lock)


cdef int64_t paused_between(feed_state* s, int64_t since_ns, int64_t until_ns) noexcept nogil:
    """Return the nanoseconds of a time in which this process did not run; since -1: of all time."""
    cdef int64_t found
    pthread_mutex_lock(&s.lock)
    found = s.pauses.sum_ns if since_ns < 0 else rd_pauses_between(&s.pauses, since_ns, until_ns)
    pthread_mutex_unlock(&s.lock)
    return found


cdef int feed_get(feed_state* s, rd_record* record, int64_t deadline_ns) noexcept nogil:
    """Wait for the next result in order. The waiting consumer takes results from the rings itself, without
    the detour through the reader thread."""
    cdef rd_header* head = rd_head(s.arena)
    cdef uint32_t seen
    cdef int64_t begun
    cdef int rc = 0
    while True:
        while drain(s):  # until none came after wanted_seq was set: see rd_result_tell
            rd_fence()
        seen = load_u32(&head.consumer_word)
        store_u32(&head.consumer_waiting, 1)
        rd_fence()
        if something_waits(s):
            store_u32(&head.consumer_waiting, 0)
            rc = queue_get(&s.queue, record, 0)
            if rc != TIMED_OUT:
                return rc
            continue
        if rc == ETIMEDOUT_CODE:
            store_u32(&head.consumer_waiting, 0)
            return TIMED_OUT
        begun = rd_now_ns()
        rc = rd_futex_wait(&head.consumer_word, seen, deadline_ns)
        store_u32(&head.consumer_waiting, 0)
        if deadline_ns >= 0:
            note_wake(s, begun, deadline_ns)
        if rc == EINTR_CODE:
            return INTERRUPTED


cdef void look_for_ended(feed_state* s, pollfd* polls) noexcept nogil:
    """Note the worker processes that have ended, after taking their last results."""
    cdef uint32_t i
    for i in range(s.nworkers):
        if polls[1 + i].fd < 0 or not polls[1 + i].revents:
            continue
        pthread_mutex_lock(&s.lock)
        if s.workers[i].pidfd == polls[1 + i].fd and not s.workers[i].ended:
            take_all(s, i)
            s.workers[i].ended = 1
            s.workers[i].alive = 0
            notify(s)
        pthread_mutex_unlock(&s.lock)


cdef void* reader_thread(void* argument) noexcept nogil:
    """Results -> order -> queue, until `stop` is set. Waits for results, deaths and the bell."""
    cdef feed_state* s = <feed_state*>argument
    cdef uint32_t* asleep = &rd_head(s.arena).reader_asleep
    cdef pollfd* polls = <pollfd*>calloc(1 + s.nworkers, sizeof(pollfd))
    cdef int64_t begun
    cdef uint64_t freed
    cdef uint32_t i
    cdef int tick_ms
    while not load_u32(&s.stop):
        if drain(s):
            rd_fence()
            continue
        if rd_arena_has_trim(s.arena):
            pthread_mutex_lock(&s.trim_lock)
            freed = rd_arena_trim(s.arena, 2)
            pthread_mutex_unlock(&s.trim_lock)
            pthread_mutex_lock(&s.lock)
            s.trimmed += freed
            pthread_mutex_unlock(&s.lock)
            note_damage(s)
            continue
        polls[0].fd = s.bell
        polls[0].events = POLLIN
        pthread_mutex_lock(&s.lock)
        for i in range(s.nworkers):
            polls[1 + i].fd = -1 if s.workers[i].ended else s.workers[i].pidfd
            polls[1 + i].events = POLLIN
            polls[1 + i].revents = 0
        pthread_mutex_unlock(&s.lock)
        # a worker that sends after this store rings the bell; earlier results are seen below
        store_u32(asleep, 1)
        rd_fence()
        for i in range(s.nworkers):
            if has_results(s, i):
                break
        else:
            if not load_u32(&s.stop) and not rd_arena_has_trim(s.arena):
                tick_ms = load_relaxed_int(&s.tick_ms)
                begun = rd_now_ns()
                poll(polls, 1 + s.nworkers, tick_ms)
                if tick_ms >= 0:
                    note_wake(s, begun, begun + tick_ms * <int64_t>1000000)
        store_u32(asleep, 0)
        if polls[0].revents & POLLIN:
            rd_bell_clear(s.bell)
        look_for_ended(s, polls)
    free(polls)
    return NULL
