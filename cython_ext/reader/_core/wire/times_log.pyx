"""The times of the last batches that a consumer had, and their sums since the beginning.

Imports the stage times alone. A log belongs to one feeder; only the thread that iterates adds to it.
"""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport calloc, free

# Fields of a record in `last`, as numpy.dtype takes them; times in ns of time.monotonic_ns, 0: unknown.
FIELDS = (
    ("seq", "u8"), ("epoch", "u8"),
    ("dispatched_ns", "i8"), ("begun_ns", "i8"), ("sent_ns", "i8"), ("arrived_ns", "i8"),
    ("ordered_ns", "i8"), ("asked_ns", "i8"), ("delivered_ns", "i8"),
    ("fetch_ns", "i8"), ("slowest_ns", "i8"), ("slowest_key", "i8"),
    ("slowest_row", "i4"), ("worker", "i4"), ("rows", "u4"), ("run", "u4"),
)

STAGES = ("draw", "queue", "fetch", "collate", "send", "order", "ready", "wait")

cdef enum:
    KEPT = 512  # batches


@cython.final
cdef class TimesLog:
    """Keeps the times of the last batches, in memory that it takes with the first of them."""

    def __dealloc__(self):
        free(self.kept)

    cdef void add(self, const rd_times* times) noexcept:
        cdef rd_times* own
        if self.kept is NULL:
            self.kept = <rd_times*>calloc(KEPT, sizeof(rd_times))
            if self.kept is NULL:  # the batch is worth more than its times
                return
        own = &self.kept[self.count % KEPT]
        own[0] = times[0]
        self.count += 1
        if own.begun_ns:
            self.totals[0] += own.begun_ns - own.dispatched_ns
            self.totals[1] += own.fetch_ns
            self.totals[2] += own.sent_ns - own.begun_ns - own.fetch_ns
            self.totals[3] += own.arrived_ns - own.sent_ns
            self.totals[4] += own.ordered_ns - own.arrived_ns
            self.totals[5] += own.delivered_ns - own.ordered_ns
        self.totals[6] += own.delivered_ns - own.asked_ns

    def sums(self):
        """Return the seconds of all batches in each stage, by the names of STAGES.

        ``draw``: in the user's sampler; not in a built-in one. ``queue``: sent to a worker, and not
        begun. ``fetch``: in the dataset's code. ``collate``: the rest of what the worker did for it.
        ``send``: made, and not noticed by the trainer. ``order``: noticed before a batch that goes
        first. ``ready``: could be taken. ``wait``: the consumer waited for it.
        """
        return {"draw": self.drawn_ns * 1e-9,
                **{name: self.totals[i] * 1e-9 for i, name in enumerate(STAGES[1:])}}

    @property
    def computed_s(self):
        """Seconds in which the consumer's thread computed while it made batches: without workers alone."""
        return self.computed_ns * 1e-9

    def last(self, uint64_t count=KEPT):
        """Return the times of the last batches, oldest first: FIELDS of each, as bytes."""
        cdef uint64_t some = min(count, self.count, <uint64_t>KEPT), first = self.count - some
        cdef uint64_t begin = first % KEPT, before = min(some, KEPT - begin)
        cdef size_t each = sizeof(rd_times)
        if some == 0:
            return b""
        return (PyBytes_FromStringAndSize(<const char*>(self.kept + begin), before * each)
                + PyBytes_FromStringAndSize(<const char*>self.kept, (some - before) * each))
