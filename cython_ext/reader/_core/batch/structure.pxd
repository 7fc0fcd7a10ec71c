# Trees of containers around the fields of a batch.

cpdef enum NodeKind:
    FIELD = 0      # an array; index counts the fields in depth-first order
    OBJECT = 1     # anything else, kept whole; index counts the objects
    DICT = 2
    LIST = 3
    TUPLE = 4
    NAMEDTUPLE = 5
    DATACLASS = 6
    CUSTOM = 7     # a type passed to register_container


cdef class Structure:
    cdef readonly int kind
    cdef readonly int index        # of a FIELD or OBJECT, else -1
    cdef readonly object cls       # the container's type; None for leaves
    cdef readonly tuple keys       # dict keys or dataclass field names, else None
    cdef readonly object extra     # dict: an empty copy for subclasses; CUSTOM: what its flatten kept
    cdef readonly list children
    cdef Py_hash_t hash_value      # computed once; -1 = not yet
    cdef Structure its_plain       # what plain() returned; None = not called yet

    cdef object build(self, list fields, list objects)


cdef class Unwritten:
    pass


cdef class Flat:
    cdef readonly list fields      # array leaves, as they were passed
    cdef readonly list objects
    cdef readonly Structure structure


cdef enum:
    MAX_DEPTH = 100    # of nested containers: bounds every recursion over a structure


cdef bint is_masked(object array) except -1
cdef object foreign_converter(object value)
cdef Structure node(int kind, int index, object cls, tuple keys, object extra, list children)
cdef int container_kind(object value) except -1
cdef Structure make_container(int kind, object value, list children)
cdef list container_children(int kind, object value)
