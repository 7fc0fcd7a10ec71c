"""Move results from the workers' rings, in order, into the queue.

Imports the arena and the blocking queue. It uses plain memory without Python, and so needs no GIL;
no function here may call Python. The reader thread and the consumer run it; see results.pxd for
what each of the two touches, and under which lock.
"""
from libc.stdlib cimport calloc, free

from reader._core.arena cimport (add_u32, store_u64, rd_fence, rd_futex_wait, rd_futex_wake, rd_header,
                                 rd_wake_consumer, exchange_u32, load_u32, rd_arena_has_trim, rd_arena_trim, RD_END,
                                 rd_bell_clear, RD_FAILED, rd_head, rd_heap, rd_heap_at, RD_HELLO,
                                 RD_READY, rd_result_pop, rd_result_waiting, RD_SKIPPED, rd_slot_at,
                                 rd_slot_release, store_u32)
from reader._core.blocking_queue cimport (INTERRUPTED, TIMED_OUT, pthread_mutex_lock,
                                          pthread_mutex_unlock, queue_get, queue_has_news,
                                          queue_notify, queue_put)

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events, revents
    int poll(pollfd*, unsigned long, int) noexcept
    short POLLIN


cdef enum:
    EINTR_CODE = 4
    ETIMEDOUT_CODE = 110


cdef void drop(feed_state* s, rd_record* record) noexcept nogil:
    """Release the slot of a result that is not delivered."""
    if record.slot:
        rd_slot_release(s.arena, record.slot)
    record.kind = 0


cdef void land(feed_state* s, worker_state* worker, rd_record* record) noexcept nogil:
    """Remove the worker's oldest task, which a result answers."""
    cdef flight* oldest
    if worker.count == 0:
        return
    oldest = &worker.flights[worker.head]
    if oldest.spill:
        rd_slot_release(s.arena, oldest.spill)
    worker.head = (worker.head + 1) % worker.room
    worker.count -= 1


cdef void place(feed_state* s, rd_record* record) noexcept nogil:
    """Put a result into the queue, or keep it until those before it have come."""
    if s.any_order:
        queue_put(&s.queue, record, 0)
        rd_wake_consumer(rd_head(s.arena))
        return
    s.waiting[record.seq & s.mask] = record[0]
    if record.seq == s.next_seq:
        advance(s)


cdef void advance(feed_state* s) noexcept nogil:
    """Push the results that are next in order into the queue; the window keeps it from filling."""
    cdef rd_record* record = &s.waiting[s.next_seq & s.mask]
    while record.kind and record.seq == s.next_seq:
        queue_put(&s.queue, record, 0)
        record.kind = 0
        s.next_seq += 1
        record = &s.waiting[s.next_seq & s.mask]
    store_u64(&rd_head(s.arena).wanted_seq, s.next_seq)
    rd_wake_consumer(rd_head(s.arena))


cdef void notify(feed_state* s) noexcept nogil:
    """Let the consumer's get return NOTICE. Wakes it even if a worker died before it did."""
    queue_notify(&s.queue)
    store_u32(&rd_head(s.arena).consumer_waiting, 0)
    add_u32(&rd_head(s.arena).consumer_word, 1)
    rd_futex_wake(&rd_head(s.arena).consumer_word, 2147483647)


cdef void arrive(feed_state* s, uint32_t index, rd_record* record) noexcept nogil:
    """Handle one result of one worker."""
    cdef worker_state* worker = &s.workers[index]
    s.received += 1
    if record.kind == RD_HELLO:
        worker.said_hello = 1
        return
    if record.kind == RD_FAILED:
        if record.slot:
            store_u32(&rd_slot_at(s.arena, record.slot).state, RD_READY)
        s.failures[index] = record[0]
        worker.alive = 0
        notify(s)
        return
    land(s, worker, record)
    if load_u32(&s.starving) and exchange_u32(&s.starving, 0):
        notify(s)
    if record.kind == RD_SKIPPED:
        return
    if record.kind == RD_END:
        worker.end_run = record.run
    if record.slot:
        store_u32(&rd_slot_at(s.arena, record.slot).state, RD_READY)
    if record.run != s.run or (record.seq < s.next_seq and not s.any_order):
        drop(s, record)
        return
    if record.seq != s.next_seq:
        s.reordered += 1
    place(s, record)


cdef bint drain(feed_state* s) noexcept nogil:
    """Take all results from the rings. Returns whether there was one."""
    cdef rd_record record
    cdef rd_heap* heap
    cdef uint32_t i
    cdef bint found = False
    for i in range(s.nworkers):
        heap = rd_heap_at(s.arena, i)
        if not rd_result_waiting(heap):
            continue
        found = True
        pthread_mutex_lock(&s.lock)
        while rd_result_pop(s.arena, heap, &record):
            arrive(s, i, &record)
        pthread_mutex_unlock(&s.lock)
    return found


cdef bint something_waits(feed_state* s) noexcept nogil:
    """Whether the consumer has something to take."""
    cdef uint32_t i
    if queue_has_news(&s.queue):
        return True
    for i in range(s.nworkers):
        if rd_result_waiting(rd_heap_at(s.arena, i)):
            return True
    return False


cdef int feed_get(feed_state* s, rd_record* record, int64_t deadline_ns) noexcept nogil:
    """Wait for the next result in order. The waiting consumer takes results from the rings itself,
    which saves the detour through the reader thread."""
    cdef rd_header* head = rd_head(s.arena)
    cdef uint32_t seen
    cdef int rc = 0
    while True:
        while drain(s):  # until nothing came after wanted_seq was set: see rd_result_tell
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
        rc = rd_futex_wait(&head.consumer_word, seen, deadline_ns)
        store_u32(&head.consumer_waiting, 0)
        if rc == EINTR_CODE:
            return INTERRUPTED


cdef void look_for_ended(feed_state* s, pollfd* polls) noexcept nogil:
    """Note the worker processes that have ended, after taking what they sent before."""
    cdef uint32_t i
    cdef rd_record record
    cdef rd_heap* heap
    for i in range(s.nworkers):
        if polls[1 + i].fd < 0 or not polls[1 + i].revents:
            continue
        pthread_mutex_lock(&s.lock)
        if s.workers[i].pidfd == polls[1 + i].fd and not s.workers[i].ended:
            heap = rd_heap_at(s.arena, i)
            while rd_result_pop(s.arena, heap, &record):
                arrive(s, i, &record)
            s.workers[i].ended = 1
            s.workers[i].alive = 0
            notify(s)
        pthread_mutex_unlock(&s.lock)


cdef void* reader_thread(void* argument) noexcept nogil:
    """Results -> order -> queue, until `stop` is set. Waits for results, deaths and the bell."""
    cdef feed_state* s = <feed_state*>argument
    cdef uint32_t* asleep = &rd_head(s.arena).reader_asleep
    cdef pollfd* polls = <pollfd*>calloc(1 + s.nworkers, sizeof(pollfd))
    cdef uint32_t i
    while not load_u32(&s.stop):
        if drain(s):
            rd_fence()
            continue
        if rd_arena_has_trim(s.arena):
            pthread_mutex_lock(&s.trim_lock)
            s.trimmed += rd_arena_trim(s.arena, 2)
            pthread_mutex_unlock(&s.trim_lock)
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
            if rd_result_waiting(rd_heap_at(s.arena, i)):
                break
        else:
            if not load_u32(&s.stop) and not rd_arena_has_trim(s.arena):
                poll(polls, 1 + s.nworkers, -1)
        store_u32(asleep, 0)
        if polls[0].revents & POLLIN:
            rd_bell_clear(s.bell)
        look_for_ended(s, polls)
    free(polls)
    return NULL
