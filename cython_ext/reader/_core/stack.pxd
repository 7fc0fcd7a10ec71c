# In-place stacking: from samples to a slot with one copy each.
from libc.stdint cimport int64_t, uint64_t
from reader._core.arena cimport Heap, rd_record, rd_slot
from reader._core.dtype cimport FieldType
from reader._core.structure cimport Structure


cdef class SideTable:
    cdef dict entries            # token -> (run, value)
    cdef Py_ssize_t last         # token


cdef class SampleLeaf:
    cdef int kind                # LEAF_*: how samples are recognised and copied
    cdef int place               # number of the field, or of the object list
    cdef FieldType type
    cdef object python_type      # of NumPy scalars: their exact type
    cdef bint is_plain           # rows can be copied as bytes: no records, no extended type
    cdef int ndim
    cdef int64_t[64] extents
    cdef Py_ssize_t nbytes       # of one sample
    cdef char* rows              # where row 0 lies while a batch is being written
    cdef list values             # LEAF_OBJECT: the batch's values so far


cdef class Plan:
    cdef Structure structure     # containers of one sample, and so of the batch
    cdef list leaves             # SampleLeaf, in depth-first order
    cdef list fields             # those that are arrays
    cdef list objects            # those that are not
    cdef uint64_t schema         # of batches made by it; 0 = not published yet
    cdef uint64_t objects_room   # bytes that the pickled objects took last time


cdef class BatchWriter:
    cdef readonly Heap heap
    cdef object side             # SideTable in a thread of the trainer, None in a process
    cdef Plan plan               # of the last batch; most batches are alike
    cdef dict schemas            # (structure, types) -> offset of the KEPT slot
    cdef readonly Py_ssize_t position   # the sample in hand, for messages
    cdef list path               # where two samples differ, innermost first
    cdef str difference

    cdef uint64_t publish_schema(self, Structure structure, list types) except? 0
    cdef str place_text(self)
    cdef int put(self, Structure at, Plan plan, object sample, Py_ssize_t row) except -1
    cdef int put_leaf(self, SampleLeaf leaf, object sample, Py_ssize_t row) except -1
    cdef int put_array(self, SampleLeaf leaf, object sample, Py_ssize_t row) except -1
    cdef int differ(self, str difference) except -1
    cdef Plan make_plan(self, object sample)
    cdef rd_slot* begin(self, Plan plan, Py_ssize_t count) except? NULL
    cdef rd_slot* add_objects(self, rd_slot* slot, Plan plan, list objects, list types,
                              Structure structure, rd_record* record) except? NULL
    cdef int write(self, object batch, rd_record* record) except -1
    cdef int stack(self, object source, list keys, list names, rd_record* record) except -1
