# What a batch carries beside its arrays, pickled.
from reader._core.batch.structure cimport Flat, Structure
from reader._core.batch.tensor cimport Schema


cdef bytes pickle_schema(Schema schema)
cdef bytes pickle_attached(object value)
cdef bytes pickle_objects(list objects, Structure structure, object pack=*, list fields=*)
cdef bytes pickle_flat(Flat flat, object batch, object pack)
