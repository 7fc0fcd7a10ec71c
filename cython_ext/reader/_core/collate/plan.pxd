# The form of a batch, and how a sample is copied to its row.
cimport numpy as cnp
from libc.stdint cimport int64_t, uint64_t
from reader._core.batch.dlpack cimport rd_dl_tensor
from reader._core.batch.dtype cimport FieldType
from reader._core.batch.exchange cimport rd_view
from reader._core.batch.structure cimport Structure
from reader._core.batch.tensor cimport Schema


cdef class SampleLeaf:
    cdef int kind                # LEAF_*: how samples are recognised and copied
    cdef int place               # number of the field, or of the object list
    cdef FieldType type
    cdef object python_type      # exact type in sample 0
    cdef rd_view view            # reads the memory of its tensors; NULL: a converter does
    cdef bint is_number          # LEAF_SCALAR: python_type is one of NumPy's own; see NUMBERS
    cdef bint in_sequence        # LEAF_OBJECT: its container is a sequence
    cdef bint copies_as_bytes           # rows can be copied as bytes: no records, no extended type
    cdef int ndim
    cdef int64_t[64] extents
    cdef Py_ssize_t nbytes       # of one sample
    cdef char* rows              # where row 0 lies while a batch is being written
    cdef list values             # LEAF_OBJECT: the batch's values so far
    # LEAF_ARRAY, where Plan.rereads: of the last row that was put
    cdef object last             # its value; alive, so nothing else has its memory
    cdef char* last_at     # where that lies; NULL: there is none
    cdef Py_ssize_t last_row


cdef class Plan:
    cdef Structure structure     # containers of one sample, and so of the batch
    cdef list leaves             # SampleLeaf, in depth-first order
    cdef list fields             # those that are arrays
    cdef list objects            # those that are not
    cdef Py_ssize_t row_nbytes   # of all fields of one sample
    cdef int64_t most_rows       # that a batch may have: see refuse_rows
    cdef bint is_strict          # types must be those of sample 0, exactly; tuples become lists
    cdef Structure its_batch     # containers of the batch
    cdef Schema its_schema       # of batches made by it; None at first
    cdef uint64_t schema         # of batches made by it; 0 = not published yet
    cdef bint rereads            # whether to read arrays that a dataset reuses again when all samples are there
    cdef list to_reread          # (leaf, value, row) of these
    cdef bint is_uncached        # samples of the batch in hand are copied past the cache
    cdef uint64_t objects_nbytes   # bytes to reserve for the pickled objects of the next batch
    cdef list path               # where two samples differ, innermost first
    cdef str difference          # how

    @staticmethod
    cdef Plan of(object sample, bint is_strict)
    cdef Structure plan_node(self, object sample, int depth, bint in_sequence)
    cdef int put(self, Structure at, object sample, Py_ssize_t row) except -1
    cdef int put_leaf(self, SampleLeaf leaf, object sample, Py_ssize_t row) except -1
    cdef int note(self, SampleLeaf leaf, object value, char* at, Py_ssize_t row) except -1
    cdef int reread(self) except -1
    cdef int put_array(self, SampleLeaf leaf, object sample, Py_ssize_t row) except -1
    cdef int refuse_rows(self, Py_ssize_t count) except -1
    cdef int differ(self, str difference) except -1
    cdef int differ_in_keys(self, Structure at, object sample) except -1
    cdef str where(self)
    cdef int put_tensor(self, SampleLeaf leaf, object sample, rd_dl_tensor* tensor,
                        Py_ssize_t row) except -1
    cdef bint can_lend(self) except -1
    cdef list batch_views(self, Py_ssize_t count, object owner)
    cdef list row_views(self, Py_ssize_t row, object owner)
    cdef object out_of(self, list views)
    cdef list object_lists(self)
    cdef list take_back(self, Py_ssize_t count, object revive)
    cdef int drop_objects(self) except -1


