"""Cut shards, in the order in which they come, into groups that have enough samples.

Imports nothing. It writes to arrays of the caller, reads no other state, and releases the GIL: any thread may
call it.
"""
from libc.stdint cimport int64_t


def group_shards(const int64_t[::1] starts not None, const int64_t[::1] shards not None, int64_t window,
                 int64_t[::1] firsts not None, int64_t[::1] ends not None, int64_t[::1] cuts not None):
    """Say where the samples of shards lie once the shards come in another order, and cut them into groups.

    Args:
        starts: the first sample of each shard, and how many samples there are.
        shards: their numbers, in the order in which they come.
        window: how many samples a group has at least, but for the last one; 1 or more.
        firsts: receives the first sample of each shard that comes; as long as `shards`.
        ends: receives how many samples come up to the end of each; likewise.
        cuts: receives 0, and how many shards come up to the end of each group; one longer than `shards`.

    Returns:
        How many values `cuts` has received: one more than there are groups.
    """
    cdef Py_ssize_t i, count = shards.shape[0], made = 1
    cdef int64_t shard, end = 0, begin = 0
    if firsts.shape[0] != count or ends.shape[0] != count or cuts.shape[0] != count + 1:
        raise ValueError(f"the arrays must have room for {count} shards")
    with nogil:
        cuts[0] = 0
        for i in range(count):
            shard = shards[i]
            firsts[i] = starts[shard]
            end += starts[shard + 1] - starts[shard]
            ends[i] = end
            if end - begin >= window or i == count - 1:
                cuts[made] = i + 1
                made += 1
                begin = end
    return made
