"""Deal samples to batches of bounded and nearly equal cost.

Imports nothing. Both functions write to arrays of the caller, read no other state, and release the GIL: any
thread may call them.
"""
from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector


cdef struct Batch:
    double total  # cost of its samples so far
    int32_t number


cdef inline bint _before(Batch one, Batch other) noexcept nogil:
    return one.total < other.total or (one.total == other.total and one.number < other.number)


def deal(const double[::1] costs not None, double limit, int32_t[::1] batch_of not None,
         double[::1] totals not None):
    """Give each sample, in turn, to the batch that has cost the least so far.

    Costliest first, the totals become nearly equal: the small ones even out what the large ones left (R. L.
    Graham, Bounds on Multiprocessing Timing Anomalies, 1969).

    Args:
        costs: of the samples, in the order in which they are dealt; 0 or more.
        limit: the most that the total of a batch may be.
        batch_of: receives the number of each sample's batch; as long as `costs`.
        totals: receives the total of each batch; its length is the number of batches.

    Returns:
        Whether all fitted. If not, the values in the two arrays are of no use.
    """
    cdef Py_ssize_t i, at, child, count = totals.shape[0]
    cdef vector[Batch] heap  # the batch of the least total first
    cdef Batch least
    cdef bint fits = count > 0 or costs.shape[0] == 0
    if batch_of.shape[0] != costs.shape[0]:
        raise ValueError(f"batch_of has {batch_of.shape[0]} places for {costs.shape[0]} costs")
    with nogil:
        heap.resize(count)
        for i in range(count):
            heap[i].total, heap[i].number = 0, <int32_t>i
        for i in range(costs.shape[0] if fits else 0):
            least = heap[0]
            least.total += costs[i]
            if not least.total <= limit:
                fits = False
                break
            batch_of[i] = least.number
            at = 0
            while True:
                child = 2 * at + 1
                if child + 1 < count and _before(heap[child + 1], heap[child]):
                    child += 1
                if child >= count or not _before(heap[child], least):
                    break
                heap[at] = heap[child]
                at = child
            heap[at] = least
        for i in range(count):
            totals[heap[i].number] = heap[i].total
    return fits


def cut(const double[::1] lengths not None, double limit, int64_t[::1] ends not None,
        double[::1] totals not None):
    """Cut a row of samples into batches, each as long as the limit allows once it is padded.

    What a batch costs is the length of its longest sample times the number of its samples.

    Args:
        lengths: of the samples, in their order; 0 or more.
        limit: the most that a batch may cost, at least the longest length.
        ends: receives where each batch ends.
        totals: receives the cost of each batch; as long as `ends`.

    Returns:
        How many batches there are; -1: more than `ends` has places.
    """
    cdef Py_ssize_t i, begin = 0, made = 0, most = ends.shape[0]
    cdef double longest = 0, taller
    if totals.shape[0] != most:
        raise ValueError(f"totals has {totals.shape[0]} places, and ends has {most}")
    with nogil:
        for i in range(lengths.shape[0]):
            taller = max(longest, lengths[i])
            if i > begin and not taller * (i - begin + 1) <= limit:
                if made == most:
                    break
                ends[made], totals[made] = i, longest * (i - begin)
                made, begin, taller = made + 1, i, lengths[i]
            longest = taller
        i = lengths.shape[0]
        if begin < i and made < most:
            ends[made], totals[made] = i, longest * (i - begin)
            made, begin = made + 1, i
    return made if begin == lengths.shape[0] else -1
