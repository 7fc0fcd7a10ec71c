# Trees of containers around the fields of a batch.
from reader._core.batch.exchange cimport rd_spans

cdef extern from "reader/_core/batch/aliases.h":
    cppclass rd_met:
        bint add(const void* object) except +


cpdef enum NodeKind:
    FIELD = 0      # an array; index counts the fields in depth-first order
    OBJECT = 1     # anything else, kept whole; index counts the objects
    DICT = 2
    LIST = 3
    TUPLE = 4
    NAMEDTUPLE = 5
    DATACLASS = 6
    CUSTOM = 7     # a type passed to register_container
    GRAPH = 8      # the root, if a container or field is at two places; its only child is the batch
    AGAIN = 9      # a further place of a container


cdef class Structure:
    cdef readonly int kind
    # FIELD, OBJECT: its number; AGAIN, and containers within a GRAPH: the number by which AGAIN nodes refer
    # to a container; GRAPH: how many such numbers there are; else -1
    cdef readonly int index
    cdef readonly object cls       # the container's type; None for leaves
    cdef readonly tuple keys       # dict keys or dataclass field names, else None
    cdef readonly object extra     # dict: an empty copy for subclasses; CUSTOM: its flatten's extra value
    cdef readonly list children
    cdef Py_hash_t hash_value      # computed once; -1 = not yet
    cdef Structure its_plain       # what plain() returned; None = not called yet

    cdef object build(self, list fields, list objects, list made_before)
    cdef object build_once(self, list fields, list objects, list made_before)


cdef class Unwritten:
    pass


cdef class Flat:
    cdef readonly list fields      # array leaves, as they were passed
    cdef readonly list objects
    cdef readonly Structure structure

    cdef int keep_whole(self, object value) except -1


cdef extern from *:
    const Py_ssize_t NOWHERE "PY_SSIZE_T_MAX"  # the number of a container without fields, which is an object


cdef class Aliases:
    cdef rd_met met            # containers and fields of the first walk
    cdef rd_spans spans        # memory of torch tensors; of exact walks only
    cdef bint found            # something is at two places
    cdef bint holds_loop       # a container contains itself and is no plain list or dict
    # of the second walk; None in the first:
    cdef dict numbers          # id -> number of a container or field, or NOWHERE
    cdef list containers       # by number
    cdef list open_            # numbers of those whose children are being flattened
    cdef Py_ssize_t count      # AGAIN nodes of fields, and of closed containers
    cdef Py_ssize_t lowest     # number of the outermost open container met again; NOWHERE

    cdef Structure enter(self, object value, list objects)
    cdef int leave(self, bint is_whole) except -1


cdef enum:
    MAX_DEPTH = 100    # of nested containers: bounds every recursion over a structure


cdef bint is_masked(object array) except -1
cdef object foreign_converter(object value)
cdef Structure node(int kind, int index, object cls, tuple keys, object extra, list children)
cdef int container_kind(object value) except -1
cdef Structure make_container(int kind, object value, list children)
cdef list container_children(int kind, object value)
