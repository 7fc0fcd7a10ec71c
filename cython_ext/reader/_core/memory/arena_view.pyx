"""Read an arena from another program, out of copies of some of its pages.

Imports the layout alone. It writes nothing and takes no lock. It trusts no value, since the program goes on
writing while the pages are copied.
"""
from libc.string cimport memcpy, memset

from libc.stdint cimport INT64_MAX, uint32_t, uint64_t
from reader._core.memory.arena cimport RD_MAGIC, rd_arena, rd_header, rd_heap, rd_lay_out
from reader._core.memory.stage_times cimport rd_noted

import collections

cdef enum:
    MOST_NOTED = 512  # batches of a worker

FILE_NAME = "reader-arena"  # of the memory file: see Arena.create

# run: the number of this attempt at an epoch. heaps: one for each worker, and the trainer's. page_nbytes:
# of the header, and of each heap behind it. owned_bytes: memory of batches, limit_nbytes at most.
# is_waiting: the consumer waits for a batch now. is_closing: the workers are asked to end.
ArenaHeader = collections.namedtuple(
    "ArenaHeader", "run heaps page_nbytes owned_bytes limit_nbytes is_waiting is_closing")

# pid: of the worker; 0: none runs. since_ns: when it began its batch, by CLOCK_MONOTONIC; 0: it is idle.
# batches: made so far. busy_ns: time that they took. tasks: bytes of tasks that wait. fetch_ns, made_ns:
# time of its last batches in this run, in the dataset's code and in all. slowest_ns: time of their slowest
# sample.
HeapView = collections.namedtuple(
    "HeapView", "pid since_ns batches busy_ns tasks fetch_ns made_ns slowest_ns")


def header_of(bytes page not None):
    """Return the ArenaHeader in a copy of an arena's first page; None: it is no such page."""
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


def noted_place(header not None, bytes page not None, uint32_t index):
    """Return where in the file a worker noted its last batches, and in how many bytes; None: nowhere.
    ``page``: a copy of its heap's page; ``index``: the heap's number."""
    cdef rd_heap heap
    cdef rd_arena arena
    if len(page) < <Py_ssize_t>sizeof(heap):
        return None
    memcpy(&heap, <const char*>page, sizeof(heap))
    memset(&arena, 0, sizeof(arena))
    arena.nbytes = INT64_MAX
    if index >= header.heaps or rd_lay_out(
            &arena, header.page_nbytes, header.heaps, heap.task_ring_nbytes, heap.result_ring_count,
            heap.slot_table_count, header.limit_nbytes):
        return None
    return (arena.areas + index * arena.area_nbytes + arena.noted_at,
            min(heap.result_ring_count, <uint64_t>MOST_NOTED) * sizeof(rd_noted))


def heap_of(bytes page not None, bytes noted not None, run):
    """Return the HeapView in copies of a heap's page and of the bytes at its `noted_place`; None: the page
    is too short."""
    cdef rd_heap heap
    cdef rd_noted one
    cdef size_t i
    cdef object fetch_ns = 0, made_ns = 0, slowest_ns = 0
    if len(page) < <Py_ssize_t>sizeof(heap):
        return None
    memcpy(&heap, <const char*>page, sizeof(heap))
    for i in range(len(noted) // sizeof(one)):
        memcpy(&one, <const char*>noted + i * sizeof(one), sizeof(one))
        if one.made.run == run and 0 < one.made.begun_ns <= one.made.sent_ns and one.made.fetch_ns >= 0:
            fetch_ns += one.made.fetch_ns
            made_ns += one.made.sent_ns - one.made.begun_ns
            slowest_ns = max(slowest_ns, one.made.slowest_ns)
    return HeapView(heap.at_pid, heap.at_since_ns, heap.batches_made, heap.busy_ns,
                    heap.task_tail - heap.task_head, fetch_ns, made_ns, slowest_ns)
