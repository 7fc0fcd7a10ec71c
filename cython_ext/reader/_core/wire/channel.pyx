"""Channels between the trainer and one worker: small descriptors in shared rings.

Imports the arena and the batch writer. A WorkerChannel belongs to one worker and is used in its
main thread; the trainer's side is the Feeder. A worker takes one task at a time and answers it with exactly
one result.
"""
import pickle

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from reader._core.collate.columns cimport Columns
from reader._core.collate.indices cimport Indices, number_of
from reader._core.collate.share cimport rd_guest, rd_share_at, rd_share_await, rd_share_close, rd_share_leave
from reader._core.collate.share cimport Sharing
from reader._core.memory.arena cimport (RD_ANY_SEQ, RD_END, RD_ERROR, RD_FAILED, RD_FULL, RD_HELLO,
                                        RD_SKIPPED, RD_STATE, rd_head, rd_heap_at, rd_arena_damage,
                                        rd_payload_sum, rd_record_seal, rd_slot_offset, rd_trim_malloc)
from reader._core.memory.stage_times cimport (rd_made, rd_made_begin, rd_made_end, rd_made_fetched, rd_made_note,
                                                rd_made_show, rd_sample_begins, rd_sample_ends)
from reader._core.memory.wait cimport (load_relaxed_u32, load_u32, rd_now_ns, rd_start_trainer_watch,
                                       store_relaxed_i64, store_relaxed_u32, store_relaxed_u64)
from reader._core.wire.ring cimport (rd_result_push, rd_result_tell, rd_task, rd_task_peek, rd_task_pop,
                                     rd_task_look, rd_task_wait)

import os

from reader._core.collate.stack import BatchWriter
from reader._core.memory.heap import Heap
from reader.errors import ArenaFull, InternalError


cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    PyObject* PyIter_Next(object) except? NULL


def encode_task(keys, bint batched, bint exact=False):
    """Encode a task: return (kind, payload bytes).

    ``keys``: a list of dataset keys when ``batched``, else one key. Python's integers are sent as
    int64, and so are NumPy's and those of tensors unless ``exact``; anything else, bools among it, is
    pickled and keeps its type. Raises what pickle raises for keys that it cannot pickle.
    """
    cdef Py_ssize_t i, n
    cdef object integers = None  # the dtype of the last key that was an integer: asked once for all
    cdef bytes payload
    cdef int64_t* out
    if not batched:
        keys = [keys]
    n = len(keys)
    payload = b"\0" * (8 * n) if n else b""
    out = <int64_t*><char*>payload
    for i in range(n):
        key = keys[i]
        if type(key) is not int:
            if exact or isinstance(key, bool) or not hasattr(key, "__index__"):
                break
            dtype = getattr(key, "dtype", None)
            if dtype is not None and dtype is not integers:
                if not names_integers(dtype):
                    break
                integers = dtype
            key = key.__index__()
        try:
            out[i] = key
        except OverflowError:
            break
    else:
        return (TASK_INDICES if batched else TASK_INDEX), payload
    return (TASK_KEYS, pickle.dumps(keys, 5)) if batched else (
        TASK_KEY, pickle.dumps(keys[0], 5))


cdef bint names_integers(dtype) except -1:
    """Whether a dtype of NumPy or of a framework is an integer type: bools have an __index__ too."""
    return str(dtype).rpartition(".")[2].lower().startswith(("int", "uint"))


def are_indices(list keys not None, int64_t count):
    """Whether all keys are Python's integers, and indices of ``count`` items."""
    cdef int overflow
    cdef int64_t number
    for key in keys:
        if type(key) is not int:
            return False
        number = PyLong_AsLongLongAndOverflow(key, &overflow)
        if overflow or not -count <= number < count:
            return False
    return True


def decode_task(int kind, bytes payload):
    """Return the list of keys of a task: the inverse of encode_task. [] if it has none, or they cannot be
    unpickled."""
    if kind == TASK_NEXT or kind == TASK_AGAIN:
        return []
    if kind == TASK_INDICES or kind == TASK_INDEX:
        return Indices(payload).tolist()
    try:
        keys = pickle.loads(payload)
    except (SystemExit, GeneratorExit) as error:
        try:  # raised again: by a key, not by a signal's handler
            pickle.loads(payload)
        except type(error):
            return []
        raise
    except Exception:
        return []
    return keys if kind == TASK_KEYS else [keys]


def watch_trainer(int trainer_pidfd):
    """End this process at once when the trainer ends (a native thread waits for it)."""
    cdef int rc = rd_start_trainer_watch(trainer_pidfd)
    if rc:
        raise OSError(rc, f"cannot start the thread that watches the trainer: {os.strerror(rc)}")


cdef int take_item(list samples, object source, object key, rd_made* made, rd_timer* timer) except -1:
    """Append the sample of a key to those of its batch, and note its time."""
    cdef Py_ssize_t row = len(samples)
    cdef int64_t begun = rd_sample_begins(timer, row)
    samples.append(source[key])
    if rd_sample_ends(made, timer, row, begun):
        made.slowest_key = number_of(key)
    return 0


cdef bint take_next(list samples, object source, rd_made* made, rd_timer* timer) except -1:
    """Append an iterator's next item to the samples of its batch, and note its time; False: it has ended.
    No signal is handled between drawing a sample and keeping it."""
    cdef Py_ssize_t row = len(samples)
    cdef int64_t begun = rd_sample_begins(timer, row)
    cdef PyObject* item = PyIter_Next(source)
    if item is NULL:
        return False
    kept = <object>item
    Py_DECREF(kept)  # two have it: `item` owned one
    samples.append(kept)
    rd_sample_ends(made, timer, row, begun)
    return True


@cython.final
cdef class WorkerChannel:
    """A worker's side of its rings: takes tasks, sends one result for each.

    ``arena``: attached in this process; ``worker_id``: the worker's number; ``bell``: eventfd that
    wakes the reader thread; ``keep_slots``: how many slots to keep hot; ``available_bytes``: hook that
    returns how much memory the machine can still give; ``side``: for worker threads in the trainer.
    """

    packs = True  # `write` takes memory of the arena, and may raise ArenaFull

    def __init__(self, Arena arena not None, uint32_t worker_id, int bell, uint32_t keep_slots,
                 available_bytes=None, side=None):
        self.arena = arena
        self.worker_id = worker_id
        self.bell = bell
        self.side = side
        self.c = rd_heap_at(arena.c, worker_id)
        self.await_guests()
        self.heap = Heap(arena, worker_id, keep_slots, available_bytes)
        self.writer = BatchWriter(self.heap, side)
        self.beside = []
        store_relaxed_u32(&self.c.at_pid, os.getpid())
        store_relaxed_i64(&self.c.at_since_ns, 0)

    def keep_hot(self, uint32_t slots):
        """Keep this many slots hot from now on."""
        self.heap.keep_slots = slots

    def share_memory(self, list beside not None, nbytes=None, uint32_t idle=0):
        """Share memory with this worker's channels for other loaders, from now on; [] with none.

        When it is short, their spare memory is freed, too. ``nbytes``: of the arenas of all; None: they have no
        limit of their own. ``idle``: see `Arena.share_budget`.
        """
        self.beside = beside
        if nbytes is not None:
            self.arena.share_budget([(<WorkerChannel>other).arena for other in beside], nbytes, idle)

    def set_rules(self, rules):
        """Give the batch writer its rules, or None: see BatchWriter."""
        self.writer.set_rules(rules)

    def share(self, source, watch=None):
        """From now on share batches that the trainer waits for with the other workers.

        ``source[key]`` fetches a sample, the same in every worker; ``watch``: a RandomWatch, or None. Only
        batches of `stack` are shared.
        """
        self.sharing = self.writer.sharing = Sharing(self.heap, source, watch, self.writer.is_strict)

    def take_indices(self):
        """Return an Indices for integer keys of a batch from `next_task`, from now on."""
        self.takes_indices = True

    def pause_sharing(self, bint is_paused):
        """Pause the sharing of batches, or go on with it."""
        self.writer.sharing = None if is_paused else self.sharing

    cdef int await_guests(self) noexcept:
        """Wait until nobody writes into the batch that a dead predecessor was making."""
        store_relaxed_u32(&rd_share_at(self.arena.c, self.worker_id).may_join, 0)
        rd_share_leave(self.arena.c, self.worker_id)
        rd_share_close(self.arena.c, self.worker_id)
        with nogil:
            while rd_share_await(self.arena.c, self.worker_id):
                pass
        return 0

    def make_stale(self):
        """From now on make stale batches too, until the pool stops.

        Then the user's code draws the same numbers from the worker's random state, however early the loop
        leaves an epoch.
        """
        self.writer.makes_stale = True

    def set_attachment(self, make):
        """Attach the result of ``make()`` to each batch from now on; None: attach nothing.

        It is called in the worker's main thread when all samples of a batch were fetched or drawn,
        before the batch is sent, and not for ends and errors. In the trainer the result is
        `LoDTensorArray.attached`. `stack`, `stream` and `write` pass on its exceptions, and raise
        DatasetError if the result cannot be pickled.
        """
        self.writer.attach = make

    def next_task(self, bint waits=True):
        """Wait for a task: return (kind, keys), or None when the pool stops; without ``waits`` also when
        there is no task now.

        ``seq`` and ``epoch`` are those of the returned task's batch. Stale tasks are answered here, unless
        `make_stale` was called, and a TASK_EPOCH is answered before it is returned. Keys are None for
        TASK_NEXT and TASK_ENTER, the pickled EpochStart for TASK_EPOCH, and for TASK_BROKEN the exception
        that unpickling raised. Blocks without the GIL until a task comes, the pool ends, or a signal's
        handler raises.
        """
        cdef rd_task its_head
        cdef rd_task* task = &its_head
        cdef int rc, kind
        cdef int64_t lacks  # bytes that the task's samples lack
        cdef const uint8_t* payload = NULL
        cdef rd_record skipped
        cdef Sharing sharing
        self.is_resting = True
        while True:
            rc = 0
            if load_relaxed_u32(&rd_share_at(self.arena.c, self.worker_id).entered):
                rd_share_leave(self.arena.c, self.worker_id)  # overwritten: it is in no batch
            if not load_u32(&rd_head(self.arena.c).stop):
                rc = rd_task_peek(self.arena.c, self.worker_id, task, &payload)
            if rc == 0:
                rc = self.look(waits)
                if rc == 0 or rc == 3:
                    return None
                if rc < 0:
                    PyErr_CheckSignals()
                if rc == 2:
                    self.is_resting = False
                    self.writer.sharing.help(RD_ANY_SEQ)
                    self.is_resting = True
                continue
            self.seq = task.seq
            self.epoch = task.epoch
            self.run = task.run
            sharing = self.writer.sharing
            if sharing is not None:
                sharing.note_task(self.run, self.epoch)
            if task.kind == TASK_TRIM:
                self.heap.release_spare()
                for beside in self.beside:
                    (<WorkerChannel>beside).heap.release_spare()
                rd_trim_malloc()
            if task.kind == TASK_TRIM or (task.kind != TASK_EPOCH and not self.writer.makes_stale
                                          and task.run != load_u32(&rd_head(self.arena.c).run)):
                rd_task_pop(self.c, task)
                skipped = self.record(RD_SKIPPED)
                self.send(&skipped)
                continue
            kind = task.kind
            keys = self.keys_of(&kind, <const char*>payload, task.nbytes)
            if kind == TASK_EPOCH:
                rd_task_pop(self.c, task)
                skipped = self.record(RD_SKIPPED)
                self.send(&skipped)
                self.is_resting = False
                return kind, keys
            self.note_begun()
            lacks = 0
            if kind != TASK_ENTER:
                lacks = self.heap.reserve_samples(kind != TASK_NEXT and kind != TASK_AGAIN)
            rd_task_pop(self.c, task)
            if lacks:
                self.send_full(lacks, self.heap.left, self.heap.left, "memory")
                continue
            self.is_resting = False
            return kind, keys

    cdef object keys_of(self, int* kind, const char* payload, Py_ssize_t nbytes):
        """Decode the keys of a task; its kind becomes TASK_BROKEN if that raises."""
        cdef Py_ssize_t i
        cdef int64_t* numbers = <int64_t*>payload
        if kind[0] == TASK_INDICES or kind[0] == TASK_INDEX or kind[0] == TASK_AGAIN:
            if kind[0] != TASK_INDICES:
                return numbers[0]
            if self.takes_indices:
                return Indices.of(payload, nbytes)
            return [numbers[i] for i in range(nbytes // 8)]
        if kind[0] == TASK_NEXT or kind[0] == TASK_ENTER:
            return None
        try:
            return pickle.loads(payload[:nbytes])
        except BaseException as error:  # answered as a failure: it must not end the worker
            if kind[0] == TASK_EPOCH:
                raise
            kind[0] = TASK_BROKEN
            return error

    cdef void note_begun(self) noexcept:
        """Show that the worker makes the batch of its task from now on."""
        store_relaxed_u64(&self.c.at_seq, self.seq)
        store_relaxed_u32(&self.c.at_run, self.run)
        store_relaxed_i64(&self.c.at_row, -1)
        rd_made_begin(&self.writer.made, rd_now_ns())
        self.writer.timer.glance_ns = 0
        store_relaxed_i64(&self.c.at_since_ns, self.writer.made.begun_ns)

    cdef int look(self, bint waits) noexcept:
        """Return the result of `rd_task_wait`, or without ``waits`` of `rd_task_look`."""
        cdef const rd_guest* guest = self.guest()
        cdef int found
        if not waits:
            return rd_task_look(self.arena.c, self.c, guest)
        with nogil:
            found = rd_task_wait(self.arena.c, self.c, guest)
        return found

    cdef const rd_guest* guest(self) noexcept:
        """Return this worker's part as a guest in others' batches; NULL: it makes no rows of them."""
        if self.writer.sharing is not None and self.writer.sharing.is_on:
            return &self.writer.sharing.guest
        return NULL

    @property
    def has_work(self):
        """Whether `next_task` would have something to do."""
        return self.look(False) != 3

    @property
    def is_stopped(self):
        """Whether the pool stops, so that no more tasks come."""
        return load_u32(&rd_head(self.arena.c).stop) != 0

    @property
    def row(self):
        """The row of the sample that is being stacked, or that failed."""
        return self.writer.row

    @property
    def is_stale(self):
        """Whether nobody waits for the current batch: a new run began, or the pool stops."""
        cdef rd_record record = self.record(0)
        return self.writer.is_stale(&record)

    def note_row(self, Py_ssize_t row):
        """Note the row of a sample that is fetched outside of this module; -1: none. Returns `is_stale`."""
        cdef rd_record record = self.record(0)
        store_relaxed_i64(&self.c.at_row, row)
        return self.writer.is_stale(&record)

    def fetch(self, source, keys, list samples not None):
        """Append the sample of each key to a list, until the batch is stale. If one raises, its row is the
        length of the list."""
        cdef rd_record record = self.record(0)
        for key in keys:
            store_relaxed_i64(&self.c.at_row, len(samples))
            if samples and self.writer.is_stale(&record):
                break
            take_item(samples, source, key, &self.writer.made, &self.writer.timer)
        store_relaxed_i64(&self.c.at_row, -1)

    def draw(self, source, Py_ssize_t count, list samples not None):
        """As `fetch`, from an iterator, until the list has ``count`` samples or the iterator has ended."""
        cdef rd_record record = self.record(0)
        cdef bint is_open = True
        while is_open and len(samples) < count:
            store_relaxed_i64(&self.c.at_row, len(samples))
            if samples and self.writer.is_stale(&record):
                break
            is_open = take_next(samples, source, &self.writer.made, &self.writer.timer)
        store_relaxed_i64(&self.c.at_row, -1)

    @property
    def times_each(self):
        """Whether samples take so long that the caller must note each by `note_sample`."""
        return self.writer.timer.untimed == 0

    def note_sample(self, Py_ssize_t row, key, int64_t ns):
        """Note the time of a sample that was fetched outside of this module."""
        if rd_made_note(&self.writer.made, row, ns):
            self.writer.made.slowest_key = number_of(key)

    def note_fetched(self, Py_ssize_t rows):
        """Note that all samples of the batch are fetched, where they are not timed one by one."""
        rd_made_fetched(&self.writer.made, <uint32_t>rows, rd_now_ns())

    def skip(self):
        """Answer the current task, which is stale, with SKIPPED."""
        cdef rd_record record = self.record(RD_SKIPPED)
        self.done(&record)

    def stack(self, source, list keys not None, list names, fill=None):
        """Fetch ``source[key]`` for each key, stack the samples in place and send the batch.

        ``names``: the dataset's own indices, for messages, or None. ``fill(key, out)`` fetches a sample
        too, and may write it to the arrays in ``out``. Passes on the source's exceptions, and raises
        CollateError for samples that do not fit together.
        """
        cdef rd_record record = self.record(0)
        self.writer.stack(source, keys, names, &record, fill)
        self.done(&record)

    def gather(self, Columns columns not None, keys not None):
        """Copy the rows of the keys into a batch, and send it. False: they cannot be gathered and nothing
        was sent; use `stack`. ``keys``: a list, or an Indices."""
        cdef rd_record record = self.record(0)
        if not self.writer.gather(columns, keys, &record):
            return False
        self.done(&record)
        return True

    def stream(self, source, Py_ssize_t count, bint drop_last):
        """Draw ``count`` samples from an iterator, stack them in place and send the batch.

        Return whether a batch was sent. It was not if no sample is left, or too few with ``drop_last``:
        then call `send_end`. Passes on the source's exceptions, and raises CollateError and ArenaFull: see
        `take_drawn`.
        """
        cdef rd_record record = self.record(0)
        if self.writer.stream(source, count, drop_last, &record):
            return False
        self.done(&record)
        return True

    def take_drawn(self):
        """Return the samples that `stream` drew before it raised ArenaFull; only once."""
        drawn, self.writer.drawn = self.writer.drawn, []
        return drawn

    @property
    def drew_all(self):
        """Whether the last `stream` had drawn all samples of its batch when it failed."""
        return self.writer.drew_all

    @property
    def ran_out(self):
        """Whether the last `stream` found too few samples for its batch."""
        return self.writer.ran_out

    def send_end(self, state=None):
        """Answer the current task with END: this worker's copy of the dataset is exhausted.

        ``state``: an object that becomes the `payload` of the answer. Raises ArenaFull.
        """
        cdef rd_record record = self.record(RD_END)
        if state is not None:
            self.carry(&record, state if self.side is not None else pickle.dumps(state, 5))
        self.done(&record)

    def send_initial_state(self, state=None):
        """Answer TASK_ENTER with STATE: the epoch is begun.

        ``state``: an object that becomes `Feeder.initial_state`; left out if the arena has no memory for
        it.
        """
        cdef rd_record record = self.record(RD_STATE)
        if state is not None:
            try:
                self.carry(&record, state if self.side is not None else pickle.dumps(state, 5))
            except ArenaFull:
                pass
        store_relaxed_i64(&self.c.at_since_ns, 0)
        self.send(&record)

    def write(self, batch):
        """Send a ready-made batch. Raises DatasetError when a leaf of it cannot be pickled."""
        cdef rd_record record = self.record(0)
        self.writer.write(batch, &record)
        self.done(&record)

    def write_from(self, list made not None):
        """As `write`, for the only object in a list, which is removed from it; see LocalChannel."""
        self.write(made[0])
        made.clear()

    def send_full(self, need_bytes, have_bytes, limit_bytes, knob):
        """Answer the current task with FULL: there is no memory for its batch."""
        cdef rd_record record = self.record(RD_FULL)
        record.need_bytes = need_bytes
        record.have_bytes = have_bytes
        record.limit_bytes = limit_bytes
        record.is_at_limit = 1 if knob == "max_bytes" else 0
        store_relaxed_i64(&self.c.at_since_ns, 0)
        self.send(&record)

    def send_error(self, failure):
        """Answer the current task with an error: encoded bytes, or in a thread the object."""
        self.send_payload(RD_ERROR, failure)

    def fail(self, failure):
        """Report that this worker could not start, and why."""
        self.send_payload(RD_FAILED, failure)

    def hello(self):
        """Report that this worker runs."""
        cdef rd_record record = self.record(RD_HELLO)
        self.send(&record)

    cdef rd_record record(self, int kind) noexcept:
        cdef rd_record made
        made.seq = self.seq
        made.run = self.run
        made.kind = <unsigned short>kind
        made.worker = <unsigned short>self.worker_id
        made.slot = made.schema = 0
        made.generation = made.sum = 0
        made.token = made.attached_nbytes = made.limit_bytes = 0
        return made

    cdef int send_payload(self, int kind, payload) except -1:
        cdef rd_record record = self.record(kind)
        try:
            self.carry(&record, payload)
        except ArenaFull as full:
            return self.send_full(full.need_bytes, full.have_bytes, full.limit_bytes,
                                    full.knob) or 0
        store_relaxed_i64(&self.c.at_since_ns, 0)
        return self.send(&record)

    cdef int carry(self, rd_record* record, payload) except -1:
        """Attach a payload to a record: an object in a thread, else bytes."""
        cdef rd_slot* slot
        cdef const char* data
        if self.side is not None:
            record.token = self.side.put(None if record.kind == RD_FAILED else self.run, payload)
            return 0
        slot = self.heap.alloc(max(1, len(payload)))
        data = payload
        memcpy(<char*>self.arena.c.base + slot.start, data, len(payload))
        slot.objects_nbytes = len(payload)
        record.payload_sum = rd_payload_sum(NULL, 0, data, len(payload))
        self.heap.note_written(slot, len(payload))
        record.slot = rd_slot_offset(self.arena.c, slot)
        record.generation = slot.generation
        return 0

    def note_computed(self, uint64_t ns):
        """Add to the core time that a process spent for this loader, if it works for several."""
        store_relaxed_u64(&self.c.computed_ns, self.c.computed_ns + ns)

    cdef int done(self, rd_record* record) except -1:
        self.writer.timer.untimed = rd_made_end(&self.writer.made, rd_now_ns())
        return self.show(record)

    cdef int show(self, rd_record* record) except -1:
        """Send the answer to a task, and the times noted for it."""
        cdef rd_made* made = &self.writer.made
        store_relaxed_u64(&self.c.busy_ns, self.c.busy_ns + <uint64_t>(made.sent_ns - made.begun_ns))
        store_relaxed_u64(&self.c.batches_made, self.c.batches_made + 1)
        store_relaxed_i64(&self.c.at_since_ns, 0)
        rd_made_show(made, self.arena.c, self.worker_id, self.seq, self.run)
        if self.writer.sharing is not None:
            self.writer.sharing.note_answer()
        return self.send(record)

    cdef int send(self, rd_record* record) except -1:
        self.heap.release_samples()
        if self.side is None:  # a thread of the trainer needs no check
            rd_record_seal(self.arena.c, record)
        if rd_result_push(self.arena.c, self.worker_id, record):
            rd_arena_damage(self.arena.c, self.worker_id)  # ends a process: its counts are damaged
            raise InternalError("a worker's result ring is full; flights_limit should rule that out")
        rd_result_tell(self.arena.c, record, self.bell)
        return 0
