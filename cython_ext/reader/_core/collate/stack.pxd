# In-place stacking: from samples to a slot with one copy each.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp.vector cimport vector
from reader._core.batch.side_table cimport SideTable
from reader._core.batch.tensor cimport Schema
from reader._core.collate.columns cimport Columns
from reader._core.collate.lent_row cimport LentRow
from reader._core.collate.plan cimport Plan
from reader._core.collate.share cimport Sharing
from reader._core.memory.arena cimport rd_record, rd_slot
from reader._core.memory.heap cimport Heap
from reader._core.memory.stage_times cimport rd_made, rd_timer


cdef class BatchWriter:
    cdef readonly Heap heap
    cdef object side             # SideTable in a thread of the trainer, None in a process
    cdef Plan plan               # of the last batch; most batches are alike
    cdef Plan gathered           # of the last batch that was gathered from arrays; None: none was
    cdef dict schemas            # (structure, types) -> offset of the KEPT slot
    cdef object rules            # how to collate samples that are not alike; None: refuse them
    cdef bint is_strict          # the rules want samples that are exactly alike
    cdef bint has_origins        # ready-made batches say which fields were NumPy arrays
    cdef bint keeps_aliases      # a value at two places of a ready-made batch is one object in the user's
    cdef object pack             # pickles objects for the rules, so that they arrive unchanged; or None
    cdef object revive           # makes an array a tensor again, for the rules; or None
    cdef Sharing sharing         # with other workers; None: each makes its batches alone
    cdef object attach           # makes what is attached to each batch; None: nothing is
    cdef vector[int64_t] table   # of begin() and write(): the field table, until the batch is whole
    cdef uint64_t objects_at     # of begin() and write(): where objects go; the copy in the slot may be damaged
    cdef LentRow lent            # of stack(): the row lent to a sample
    cdef list drawn              # of stream(): samples that are in no slot yet
    cdef readonly Py_ssize_t row        # the row of the current sample, for messages
    cdef bint makes_stale          # whether stale batches are made too
    # of stream(): whether all samples of the batch were drawn, and whether there were too few
    cdef readonly bint drew_all, ran_out
    cdef bint holds_all            # of stack(): all samples of the batch are in memory at once
    cdef bint fills                # of stack(): samples may write themselves to their rows
    cdef rd_made made              # times of the batch in hand
    cdef rd_timer timer            # which of its samples are timed

    cdef uint64_t publish_schema(self, Schema schema) except? 0
    cdef uint64_t keep_schema(self, bytes pickled) except 0
    cdef int put_beside(self, list objects, Schema schema, rd_record* record) except -1
    cdef bytes payload(self, list objects, Schema schema, bytes packed, rd_record* record)
    cdef rd_slot* begin(self, Plan plan, Py_ssize_t count) except? NULL
    cdef int put_table(self, rd_slot* slot, Py_ssize_t nfields) noexcept
    cdef rd_slot* add_payload(self, rd_slot* slot, Plan plan, Py_ssize_t nfields, bytes payload,
                              rd_record* record) except? NULL
    cdef int write(self, object batch, rd_record* record) except -1
    cdef int stack(self, object source, list keys, list names, rd_record* record,
                   object fill=*) except -1
    cdef bint gather(self, Columns columns, object keys, rd_record* record) except -1
    cdef int stream(self, object source, Py_ssize_t count, bint drop_last,
                    rd_record* record) except -1
    cdef int stream_list(self, object source, Py_ssize_t count, bint drop_last,
                         rd_record* record) except -1
    cdef set_rules(self, object rules)
    cdef bint is_stale(self, rd_record* record) noexcept
    cdef str unlike(self, Plan plan, Py_ssize_t row, list names)
    cdef int skip(self, rd_slot* slot, rd_record* record) except -1
    cdef object fetch(self, object source, object fill, list keys, Plan plan, rd_slot* slot,
                      Py_ssize_t row, list names)
    cdef object fetch_sample(self, object source, object fill, list keys, Plan plan, rd_slot* slot,
                             Py_ssize_t row, list names)
    cdef object draw(self, object source, Py_ssize_t row)
    cdef int open(self, Sharing sharing, Plan plan, rd_slot* slot, list keys, Py_ssize_t row,
                   rd_record* record) except -1
    cdef rd_slot* drop(self, rd_slot* slot) except? NULL
    cdef bint suits(self, Plan plan, object sample) except -1
    cdef list fetch_rest(self, object source, list keys, Py_ssize_t row, rd_record* record)
    cdef int refuse_nothing(self, Plan plan, list names) except -1
    cdef int collate(self, list samples, rd_record* record) except -1
    cdef int shorten(self, Plan plan, rd_slot* slot, Py_ssize_t count, Py_ssize_t begun) except -1
    cdef rd_slot* complete(self, rd_slot* slot, Plan plan, rd_record* record) except? NULL
