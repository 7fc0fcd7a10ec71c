"""The times of the last delivered batches, and their sums since the beginning.

Imports the stage times, the notes and LoDTensorArray. A log belongs to one feeder; only the thread that
iterates adds to it.
"""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from reader._core.batch.tensor_array cimport LoDTensorArray
from reader._core.memory.notes cimport (RD_HANDED, RD_NOTES_KEPT, rd_note, rd_notes_add, rd_notes_new,
                                        rd_notes_read, rd_notes_unref)
from reader._core.memory.wait cimport load_u64

# Fields of a record in `last`, as numpy.dtype takes them; times in ns of time.monotonic_ns, 0: unknown.
FIELDS = (
    ("seq", "u8"), ("epoch", "u8"),
    ("dispatched_ns", "i8"), ("begun_ns", "i8"), ("sent_ns", "i8"),
    ("came_ns", "i8"), ("landed_ns", "i8"), ("others_ns", "i8"), ("arrived_ns", "i8"),
    ("ordered_ns", "i8"), ("asked_ns", "i8"), ("delivered_ns", "i8"),
    ("fetch_ns", "i8"), ("slowest_ns", "i8"), ("slowest_key", "i8"),
    ("slowest_row", "i4"), ("worker", "i4"), ("rows", "u4"), ("run", "u4"),
)

# Of a note in `notes`: the batch's number, counted as `count` counts; when; and which of NOTED it is.
NOTE = (("number", "u8"), ("at_ns", "i8"), ("kind", "u4"), ("place", "u4"))
NOTED = ("issued_ns", "copied_ns", "handed_ns", "given_back_ns")

STAGES = ("draw", "queue", "fetch", "collate", "transfer", "landing", "send", "order", "ready", "wait")

cdef enum:
    KEPT = 512  # batches

cdef struct packed_note:
    uint64_t number
    int64_t at_ns
    uint32_t kind, place


@cython.final
cdef class TimesLog:
    """Keeps the times of the last batches; allocates its memory with the first."""

    def __dealloc__(self):
        free(self.kept)
        if self.notes is not NULL:
            rd_notes_unref(self.notes)

    def ask(self):
        """Begin to note what happens to batches after delivery; each call pairs with one of `let`. Returns
        the number of notes so far, for `noted`."""
        if self.notes is NULL:
            self.notes = rd_notes_new()
            if self.notes is NULL:
                raise MemoryError()
        self.askers += 1
        return load_u64(&self.notes.count)

    def let(self):
        """Stop noting, if no other caller of `ask` is left."""
        self.askers -= 1
        if self.askers == 0 and self.notes is not NULL:
            rd_notes_unref(self.notes)
            self.notes = NULL

    def noted(self, uint64_t since):
        """Return the notes from number `since` on, as bytes of NOTE, and the number of the next.

        2048 are kept; older ones are left out.
        """
        cdef uint64_t count
        cdef rd_note note
        cdef packed_note packed
        cdef int rc
        cdef list found = []
        if self.notes is NULL:
            return b"", since
        count = load_u64(&self.notes.count)
        if count - since > RD_NOTES_KEPT:
            since = count - RD_NOTES_KEPT
        while since < count:
            rc = rd_notes_read(self.notes, since, &note)
            if rc == 0:
                break  # another thread is still writing it
            since += 1
            if rc < 0:
                continue
            packed.number, packed.at_ns = note.what >> 16, note.at_ns
            packed.kind, packed.place = note.what & 255, (note.what >> 8) & 255
            found.append(PyBytes_FromStringAndSize(<const char*>&packed, sizeof(packed)))
        return b"".join(found), since

    cdef int follow(self, LoDTensorArray batch) noexcept:
        """Note the end of the batch that was added last, if a profile runs."""
        if self.notes is not NULL:
            batch.follow(self.notes, self.count - 1)
        return 0

    cdef int note_handed(self, uint64_t number) noexcept:
        """Note that the user has a batch; `number`: see LoDTensorArray."""
        if number and self.notes is not NULL:
            rd_notes_add(self.notes, number - 1, 0, RD_HANDED)
        return 0

    cdef void add(self, const rd_times* times) noexcept:
        cdef rd_times* own
        if self.kept is NULL:
            self.kept = <rd_times*>calloc(KEPT, sizeof(rd_times))
            if self.kept is NULL:  # out of memory: deliver the batch without its times
                return
        own = &self.kept[self.count % KEPT]
        own[0] = times[0]
        self.count += 1
        if own.begun_ns:
            self.totals[0] += own.begun_ns - own.dispatched_ns
            self.totals[1] += own.fetch_ns
            self.totals[2] += own.sent_ns - own.begun_ns - own.fetch_ns
            if own.landed_ns:
                self.totals[3] += own.came_ns - own.sent_ns
                self.totals[4] += own.landed_ns - own.came_ns
            self.totals[5] += own.arrived_ns - max(own.sent_ns, own.landed_ns)
            self.totals[6] += own.ordered_ns - own.arrived_ns
            self.totals[7] += own.delivered_ns - own.ordered_ns
        self.totals[8] += own.delivered_ns - own.asked_ns

    def sums(self):
        """Return the seconds of all batches in each stage, by the names of STAGES.

        ``draw``: in the user's sampler; not in a built-in one. ``queue``: sent to a worker, and not
        begun. ``fetch``: in the dataset's code. ``collate``: the rest of what the worker did for it.
        ``transfer``, ``landing``: of a batch of another machine, on its way here, and here but not in its
        slot. ``send``: made, not yet noticed by the trainer. ``order``: noticed before an earlier batch,
        and waiting for it. ``ready``: could be taken. ``wait``: the consumer waited for it.
        """
        return {"draw": self.drawn_ns * 1e-9,
                **{name: self.totals[i] * 1e-9 for i, name in enumerate(STAGES[1:])}}

    @property
    def computed_s(self):
        """CPU seconds of the consumer's thread while it made batches; only without workers."""
        return self.computed_ns * 1e-9

    def after(self, uint64_t seen):
        """Return the times of the batches after the first `seen`, as `last` does, and the number of all, as
        one step."""
        return self.last(self.count - seen), self.count

    def last(self, uint64_t count=KEPT):
        """Return the times of the last batches, oldest first: FIELDS of each, as bytes."""
        cdef uint64_t some = min(count, self.count, <uint64_t>KEPT), first = self.count - some
        cdef uint64_t begin = first % KEPT, before = min(some, KEPT - begin)
        cdef size_t each = sizeof(rd_times)
        if some == 0:
            return b""
        return (PyBytes_FromStringAndSize(<const char*>(self.kept + begin), before * each)
                + PyBytes_FromStringAndSize(<const char*>self.kept, (some - before) * each))
