# Copies, checks and opens the records that workers sent.
from libc.stdint cimport uint64_t
from reader._core.batch.tensor_array cimport LoDTensorArray
from reader._core.memory.arena cimport rd_arena, rd_record
from reader._core.wire.results cimport feed_state

# `side`: SideTable of worker threads, whose records are not checked; None: they are processes.
# `schemas`: offset of a KEPT slot -> Schema, of the arena in which the record's slot lies.
cdef object open_payload(rd_record* record, object side)
cdef object last_state(rd_record* record, object side)
cdef LoDTensorArray open_batch(rd_arena* arena, rd_record* record, object side, dict schemas,
                               uint64_t epoch)
cdef list drop_damaged(feed_state* s, dict schemas)
