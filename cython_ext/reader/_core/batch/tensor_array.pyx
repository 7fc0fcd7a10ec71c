"""LoDTensorArray: the fields of one batch, with the structure they came from.

Imports LoDTensor and structure. An array belongs to its holder and leases its slot of the arena
while it lives; so does each view made from it.
"""
import pickle
import threading

import numpy as np

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from reader._core.batch.dtype cimport FieldType
from reader._core.batch.ndarray cimport rd_make_ndarray
from reader._core.batch.structure cimport Flat
from reader._core.batch.tensor cimport LoDTensor, Schema
from reader._core.memory.arena cimport Lease, PageLock, rd_is_foreign, rd_record, rd_slot
from reader._core.memory.notes cimport RD_COPIED, RD_ISSUED, rd_notes, rd_notes_add, rd_notes_ref
from reader._core.memory.wait cimport load_u8

from reader._core.batch.structure import flatten as _flatten_batch
from reader._core.batch.structure import plain_value
from reader.errors import DatasetError, ReaderError

ISSUED, COPIED = RD_ISSUED, RD_COPIED  # kinds of notes

cnp.import_array()


cdef object U8 = np.dtype(np.uint8)
cdef object _unpacking = threading.local()  # fields: of the batch whose objects are unpickled


def field_of_batch(index):
    """Return a field of the batch whose objects are being unpickled; their pickle calls it."""
    return _unpacking.fields[index]


cdef list unpack(bytes packed, list fields):
    """Unpickle the objects of a batch that were pickled around some of its fields."""
    before = getattr(_unpacking, "fields", None)
    _unpacking.fields = fields
    try:
        return pickle.loads(packed)
    except (SystemExit, GeneratorExit) as error:
        try:  # raised again: by an object in the batch, not by a signal's handler
            pickle.loads(packed)
        except type(error):
            raise DatasetError(f"the batch cannot be unpickled in this process: {error!r}; return "
                               f"objects that can be pickled and unpickled") from error
        raise
    finally:
        _unpacking.fields = before


@cython.final
cdef class LoDTensorArray:
    """The fields of one batch, in order, with the structure they came from.

    ``LoDTensorArray(tensors)`` holds the given LoDTensors (or what LoDTensor accepts);
    ``LoDTensorArray.from_batch(batch)`` flattens any nested batch. ``restore()`` returns the batch
    with NumPy arrays as leaves, ``restore(convert)`` with ``convert(LoDTensor)``. Acts as a
    sequence of LoDTensor. A batch of a DataLoader lies in a slot of its arena, which is released
    when the last view of the batch dies. Paddle 3 calls it DenseTensorArray.
    """

    def __init__(self, tensors=()):
        self.tensors = [tensor if isinstance(tensor, LoDTensor) else LoDTensor(tensor)
                        for tensor in tensors]
        self.objects = []

    @staticmethod
    def from_batch(batch):
        """Flatten a nested batch; its arrays are shared, not copied."""
        cdef Flat flat = _flatten_batch(batch)
        cdef LoDTensorArray self = LoDTensorArray(flat.fields)
        self.schema = Schema(flat.structure, [(<LoDTensor>t).type for t in self.tensors])
        self.objects = flat.objects
        return self

    @staticmethod
    cdef LoDTensorArray from_slot(Lease lease, Schema schema, list objects, bytes packed,
                                  object attached, const rd_record* record, uint64_t epoch,
                                  bytes table, uint64_t start):
        cdef LoDTensorArray self = LoDTensorArray.__new__(LoDTensorArray)
        self.lease = lease
        self.schema = schema
        self.objects = objects
        self.packed = packed
        self.attached = attached
        self.seq = record.seq
        self.epoch = epoch
        if lease is not None:
            self.bytes_at = <char*>lease.c.arena.base + start
            self.table = table
        return self

    cdef list make_arrays(self):
        """Return NumPy views of all fields in storage types; the fast path from a slot."""
        cdef list arrays = []
        cdef const int64_t* entry
        cdef FieldType type
        cdef object array
        if self.table is None:
            for tensor in self.list_tensors():
                arrays.append((<LoDTensor>tensor).storage_array())
            return arrays
        entry = <const int64_t*><const char*>self.table
        for type in self.schema.types:
            array = rd_make_ndarray(type.storage, <int>entry[2], entry + 3,
                                    self.bytes_at + entry[0], False, <PyObject*>self.lease)
            arrays.append(array)
            entry += 3 + entry[2]
        return arrays

    cdef list make_tensors(self):
        cdef const int64_t* entry = NULL
        cdef FieldType type
        cdef LoDTensor tensor
        made = []
        if self.table is None:
            return made
        entry = <const int64_t*><const char*>self.table
        for type in self.schema.types:
            tensor = LoDTensor.__new__(LoDTensor)
            tensor.lay_out(type, <int>entry[2], entry + 3)
            tensor.take(self.lease, None, self.bytes_at + entry[0], False)
            tensor.place = "cpu"
            tensor.offsets = ()
            made.append(tensor)
            entry += 3 + entry[2]
        return made

    cdef list list_tensors(self):
        if self.tensors is None:
            self.tensors = self.make_tensors()
        return self.tensors

    def numpy_fields(self):
        """Return NumPy views of the fields, in order; extended types need ml_dtypes."""
        cdef list arrays = self.make_arrays()
        cdef FieldType type
        if self.schema is not None:
            for i, type in enumerate(self.schema.types):
                if type.extended:
                    arrays[i] = arrays[i].view(type.numpy_dtype())
            return arrays
        return [(<LoDTensor>tensor).numpy() for tensor in self.tensors]

    def storage_fields(self):
        """Return NumPy views of the fields; extended types as unsigned integers of equal width."""
        return self.make_arrays()

    def adapted(self, list makers not None):
        """Return the batch with fields that ``makers``, one for each, make of `storage_fields`."""
        cdef list fields = self.make_arrays()
        cdef Py_ssize_t place
        for place in range(len(fields)):
            fields[place] = makers[place](fields[place])
        return self.place_fields(fields)

    def capsules(self, names, shapes=None):
        """Return a DLPack capsule (version 0) of each field whose type is in ``names``, else None.

        ``shapes``: {field: shape} for fields that get another shape than their own.
        """
        cdef LoDTensor tensor
        tensors = self.list_tensors()
        if shapes:
            tensors = list(tensors)
            for place in shapes:
                tensors[place] = tensors[place].reshape(shapes[place])
        return [tensor.make_capsule(False) if tensor.type.name in names else None
                for tensor in tensors]

    def layout(self):
        """Return (offset, nbytes, shape) of each field in the slot; None: it lies in no slot."""
        cdef const int64_t* entry
        cdef Py_ssize_t i
        cdef int k
        if self.table is None:
            return None
        made = []
        entry = <const int64_t*><const char*>self.table
        for i in range(len(self.schema.types)):
            made.append((entry[0], entry[1], tuple([entry[3 + k] for k in range(entry[2])])))
            entry += 3 + entry[2]
        return made

    def slot_bytes(self, int64_t begin, int64_t end):
        """Return a NumPy view of the slot's bytes ``begin`` to ``end``, offsets as in `layout`."""
        cdef int64_t nbytes = end - begin
        return rd_make_ndarray(U8, 1, &nbytes, self.bytes_at + begin, False, <PyObject*>self.lease)

    def restore(self, convert=None):
        """Return the batch in its containers: leaves are ``convert(LoDTensor)``, or NumPy views."""
        if convert is None:
            return self.place_fields(self.numpy_fields())
        return self.place_fields([convert(tensor) for tensor in self.list_tensors()])

    cpdef object place_fields(self, list fields):
        """Return the batch's containers with these fields."""
        if self.schema is None:
            return fields
        if self.packed is not None:
            return self.schema.structure.build(fields, unpack(self.packed, fields), None)
        return self.schema.structure.build(fields, self.objects, None)

    def plain_containers(self):
        """Return the batch with dicts and lists for other containers: see Structure.plain."""
        cdef LoDTensorArray made
        if self.schema is None:
            return self
        made = LoDTensorArray.__new__(LoDTensorArray)
        made.schema = self.schema.plain()
        made.lease = self.lease
        made.table = self.table
        made.bytes_at = self.bytes_at
        made.tensors = self.tensors
        made.objects = [plain_value(value) for value in self.objects]
        made.packed = self.packed
        made.attached = self.attached
        made.seq = self.seq
        made.epoch = self.epoch
        made.number = self.number
        return made

    cdef int follow(self, rd_notes* notes, uint64_t number) noexcept:
        """Have the lease note its end; `number`: see the lease."""
        self.number = number + 1
        if self.lease is not None and self.lease.c.notes is NULL:
            rd_notes_ref(notes)
            self.lease.c.number = number
            self.lease.c.notes = notes
        return 0

    def note(self, int kind, int place=0):
        """Note, if a profile runs, that the copy to a place is issued or done now: ISSUED, COPIED."""
        if self.number and self.lease is not None and self.lease.c.notes is not NULL:
            rd_notes_add(self.lease.c.notes, self.number - 1, place, kind)

    def private_copy(self):
        """Return a copy of the batch in private memory, which holds no slot."""
        cdef LoDTensorArray made = LoDTensorArray.__new__(LoDTensorArray)
        cdef LoDTensor tensor, copied
        made.schema = self.schema
        made.objects = self.objects
        made.packed = self.packed
        made.attached = self.attached
        made.seq = self.seq
        made.epoch = self.epoch
        made.tensors = []
        for tensor in self.list_tensors():
            copied = LoDTensor.__new__(LoDTensor)
            copied.view_ndarray(tensor.storage_array().copy(), tensor.type)
            copied.offsets = tensor.offsets
            made.tensors.append(copied)
        return made

    def lock_pages(self):
        """Keep the pages of this batch's slot in place; return a PageLock. The caller locks them.

        Call it before the first copy to a device. The slot then owns its whole size, and keeps
        these pages when other batches use it, until `PageLock.unlock`. None if the arena's limit does not
        allow the whole slot: copy from pages that are not locked. ReaderError for a batch that lies in no
        arena, and in a forked child.
        """
        if self.lease is None:
            raise ReaderError("this batch is not in shared memory, so it has no pages to lock")
        if rd_is_foreign(self.lease.c.arena):
            raise ReaderError("this batch belongs to the parent process: lock its pages there, not "
                              "in a forked process")
        return PageLock.take(self.lease)

    @property
    def is_page_locked(self):
        """Whether a PageLock keeps this batch's pages, perhaps one of an earlier batch."""
        cdef rd_slot* slot
        if self.lease is None:
            return False
        slot = <rd_slot*>(self.lease.c.arena.base + self.lease.c.slot)
        return load_u8(&slot.locks) > 0

    @property
    def slot_address(self):
        """Where the bytes of this batch's slot begin, in this process; None without a slot.

        The same slot has the same address in every batch, while the arena lives.
        """
        return None if self.lease is None else <size_t>self.bytes_at

    @property
    def types(self):
        """The FieldType of each field, in order."""
        if self.schema is not None:
            return self.schema.types
        return [(<LoDTensor>tensor).type for tensor in self.tensors]

    @property
    def structure(self):
        """The containers of the batch; None for a plain list of tensors."""
        return None if self.schema is None else self.schema.structure

    def append(self, tensor):
        """Add a tensor to a plain array. TypeError for a batch that has a structure."""
        if self.schema is not None:
            raise TypeError("a batch with a structure has a fixed number of fields")
        self.tensors.append(tensor if isinstance(tensor, LoDTensor) else LoDTensor(tensor))

    def __len__(self):
        return len(self.tensors) if self.schema is None else len(self.schema.types)

    def __getitem__(self, index):
        return self.list_tensors()[index]

    def __iter__(self):
        return iter(self.list_tensors())

    def __repr__(self):
        where = "" if self.seq is None else f", batch {self.seq} of epoch {self.epoch}"
        return f"LoDTensorArray({len(self)} fields{where})"

