"""The Feeder's reports of its workers: lost tasks, damage, current batches and counts.

Imports results and the layout. The reports are immutable.
"""
import collections

from libc.stdint cimport int64_t, uint32_t, uint64_t

from reader._core.memory.arena cimport rd_heap, rd_heap_at
from reader._core.memory.wait cimport load_relaxed_i64, load_relaxed_u32, load_relaxed_u64, rd_now_ns
from reader._core.wire.results cimport feed_state, paused_between


class LostTasks(collections.namedtuple("LostTasks", "seqs current_seq said_hello is_used_up")):
    """The tasks of a worker that has ended: see `Feeder.detach`.

    ``seqs``: batches of the current run that it had not answered, oldest first; ``current_seq``: the one
    it was making, or None; ``said_hello``: whether it had started; ``is_used_up``: whether its copy
    of an iterable dataset was exhausted in this run.
    """

    __slots__ = ()


class Damage(collections.namedtuple("Damage", "worker check seen")):
    """The finding of `Feeder.examine`: ``check`` failed on the values ``seen``, in the part of ``worker``
    in the arena (None: in no worker's).
    """

    __slots__ = ()

    def __str__(self):
        return f"{self.check} ({self.seen})"


class WorkerProgress(collections.namedtuple("WorkerProgress", "pid seq row seconds is_ready",
                                            defaults=[True])):
    """A worker's current batch: see `Feeder.worker_progress`.

    ``pid``: of its process, or this one's for a thread; ``seq``: the batch, None while idle;
    ``row``: of the sample in it, -1: none in particular; ``seconds``: since it took the task;
    ``is_ready``: whether it has started, `worker_init_fn` included.
    """

    __slots__ = ()


class WorkerCounts(collections.namedtuple("WorkerCounts",
                                          "batches busy_s computed_s runnable_s stored_s bounded_s clock_error_s")):
    """A worker's counts so far: see `Feeder.worker_counts`.

    ``batches``: made, in all runs, by this worker and the dead ones it replaces; ``busy_s``:
    seconds that they took, waits for the dataset's storage included; ``computed_s``: seconds of cores
    that they took, 0 unless the worker works for several loaders, or on another machine;
    ``runnable_s``: seconds in which it was ready and had no core there; ``stored_s``: seconds in which its
    batches were seen being copied into the object store there; ``bounded_s``: seconds in which its tasks
    were held back, because as many bytes as allowed were in flight; ``clock_error_s``: how far its times
    may be off.
    """

    __slots__ = ()


cdef object progress_of(feed_state* s, uint32_t worker, uint64_t sent):
    """Return a worker's current batch; `sent`: one more than the number of the newest task."""
    cdef rd_heap* heap = rd_heap_at(s.arena, worker)
    cdef int64_t now_ns, since_ns = load_relaxed_i64(&heap.at_since_ns)
    pid = load_relaxed_u32(&heap.at_pid)
    seq = load_relaxed_u64(&heap.at_seq)
    if since_ns == 0 or seq >= sent:  # a number that was never sent: overwritten
        return WorkerProgress(pid, None, -1, 0.0, bool(load_relaxed_u32(&s.workers[worker].said_hello)))
    now_ns = rd_now_ns()
    now_ns -= paused_between(s, since_ns, now_ns)
    return WorkerProgress(pid, seq, load_relaxed_i64(&heap.at_row), (now_ns - since_ns) * 1e-9)


cdef object counts_of(feed_state* s, uint32_t worker):
    """Return a worker's counts."""
    cdef rd_heap* heap = rd_heap_at(s.arena, worker)
    return WorkerCounts(load_relaxed_u64(&heap.batches_made), load_relaxed_u64(&heap.busy_ns) * 1e-9,
                        load_relaxed_u64(&heap.computed_ns) * 1e-9, load_relaxed_u64(&heap.runnable_ns) * 1e-9,
                        load_relaxed_u64(&heap.stored_ns) * 1e-9, load_relaxed_u64(&heap.bounded_ns) * 1e-9,
                        load_relaxed_u64(&heap.clock_error_ns) * 1e-9)
