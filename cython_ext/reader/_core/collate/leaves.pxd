# Makes the leaves of a batch that is not packed.
from reader._core.batch.exchange cimport rd_view
from reader._core.batch.structure cimport rd_met


cdef class LeafMaker:
    cdef object make_leaf        # FieldType -> function that makes a leaf of an array, or None
    cdef dict makers             # FieldType -> result of make_leaf
    cdef bint keeps_tensors      # torch tensors are leaves themselves
    cdef bint is_collated         # a collate_fn made the batch

    cdef object make(self, object batch, Py_ssize_t holders)
    cdef object walk(self, object value, object root, int depth, Py_ssize_t holders, dict again,
                     rd_met* met, bint* found)
    cdef object walk_container(self, int kind, object value, object root, int depth,
                               Py_ssize_t holders, dict again, rd_met* met, bint* found)
    cdef object leaf_of_array(self, object value, Py_ssize_t holders)
    cdef object leaf_of_tensor(self, rd_view view, object value, Py_ssize_t holders)
    cdef object leaf_of_other(self, object value)
    cdef object leaf_of_copy(self, object value)
    cdef object leaf_of_storage(self, object array, object type)
