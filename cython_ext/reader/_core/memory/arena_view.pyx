"""What the first pages of an arena say, read from outside: by another program, of a copy of them.

Imports the layout alone. Nothing is written, no lock is taken, and nothing is believed to be more than
a number: the program goes on writing while the pages are copied.
"""
from libc.string cimport memcpy

from reader._core.memory.arena cimport RD_MAGIC, rd_header, rd_heap
from reader._core.memory.stage_times cimport RD_TIMES_AT, RD_TIMES_KEPT, rd_made

import collections

FILE_NAME = "reader-arena"  # of the memory file: see Arena.create

# run: number of the attempt at an epoch. heaps: one for each worker, and the trainer's. page_nbytes: of
# the header, and of each heap behind it. owned_bytes: memory of batches, limit_nbytes at most.
# is_waiting: the consumer waits for a batch just now. is_closing: the workers are told to end.
ArenaHeader = collections.namedtuple(
    "ArenaHeader", "run heaps page_nbytes owned_bytes limit_nbytes is_waiting is_closing")

# pid: of the worker; 0: none runs. since_ns: of CLOCK_MONOTONIC, when it began what it makes; 0: nothing.
# batches: made so far. busy_ns: in which it made them. tasks: bytes of tasks that wait. fetch_ns, made_ns:
# of its last batches in this run, in the dataset's code and in all. slowest_ns: of their slowest sample.
HeapView = collections.namedtuple(
    "HeapView", "pid since_ns batches busy_ns tasks fetch_ns made_ns slowest_ns")


def header_of(bytes page not None):
    """Return the ArenaHeader that a copy of an arena's first page holds; None: it is none."""
    cdef rd_header head
    if len(page) < <Py_ssize_t>sizeof(head):
        return None
    memcpy(&head, <const char*>page, sizeof(head))
    if head.magic != RD_MAGIC or head.page_nbytes < 4096 or head.page_nbytes > 1 << 20:
        return None
    if head.nheaps < 1 or head.nheaps > 0xffff:
        return None
    return ArenaHeader(head.run, head.nheaps, head.page_nbytes, head.backed_bytes, head.limit_nbytes,
                       head.consumer_waiting != 0, head.stop != 0)


def heap_of(bytes page not None, run):
    """Return the HeapView that a copy of a heap's page holds; None: the page is too short."""
    cdef rd_heap heap
    cdef rd_made made
    cdef size_t at = RD_TIMES_AT, i
    cdef object fetch_ns = 0, made_ns = 0, slowest_ns = 0
    if len(page) < <Py_ssize_t>(RD_TIMES_AT + RD_TIMES_KEPT * sizeof(made)):
        return None
    memcpy(&heap, <const char*>page, sizeof(heap))
    for i in range(RD_TIMES_KEPT):
        memcpy(&made, <const char*>page + at + i * sizeof(made), sizeof(made))
        if made.run == run and 0 < made.begun_ns <= made.sent_ns and made.fetch_ns >= 0:
            fetch_ns += made.fetch_ns
            made_ns += made.sent_ns - made.begun_ns
            slowest_ns = max(slowest_ns, made.slowest_ns)
    return HeapView(heap.at_pid, heap.at_since_ns, heap.batches_made, heap.busy_ns,
                    heap.task_tail - heap.task_head, fetch_ns, made_ns, slowest_ns)
