"""Copy, check and open the batches of records that left the queue.

Imports the arena, results, LoDTensorArray and its schemas. The consumer runs it. A worker process may write
into shared memory at any time, so each byte is read once, into the trainer's own memory, and compared with
the sums in the record. Only the bytes of samples stay where they lie.
"""
import pickle

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from reader._core.batch.dtype cimport FieldType
from reader._core.batch.tensor cimport Schema
from reader._core.memory.arena cimport (Lease, rd_payload_sum, rd_place_sum, rd_slot, rd_slot_at,
                                        rd_slot_read, rd_slot_release, rd_table_nbytes)
from reader._core.memory.extents cimport rd_extents_nbytes
from reader._core.wire.results cimport drop, feed_state

from reader.errors import InternalError


class Damaged(Exception):
    """A worker's bytes differ from their sum, or lie out of bounds.

    ``check``: the check that failed, bytes that live for ever; ``seen``: the values that it saw;
    ``is_sealed``: all sums agree, so the worker wrote these bytes, and nothing overwrote them since.
    """

    def __init__(self, check, seen, is_sealed=False):
        super().__init__(check, seen)
        self.check = check
        self.seen = seen
        self.is_sealed = is_sealed


cdef int read_slot(rd_record* record, rd_slot* copy) except -1:
    """Copy the slot record that a record names, and check it."""
    if rd_slot_read(record.arena, rd_slot_at(record.arena, record.slot), copy):
        raise Damaged(b"a slot has an invalid offset or size",
                      f"{copy.capacity} bytes at {copy.start} of {record.arena.nbytes}")
    if copy.generation != record.generation:
        raise Damaged(b"a slot has another generation than its result",
                      f"{copy.generation}, and the result {record.generation}")
    # before the rest: it says how many bytes to copy
    if record.place_sum != <uint16_t>rd_place_sum(copy):
        raise Damaged(b"a slot differs from its sum",
                      f"{copy.nfields} fields, {copy.objects_nbytes} bytes of objects at {copy.objects} "
                      f"of {copy.capacity}")
    if (copy.objects > copy.capacity or copy.objects_nbytes > copy.capacity - copy.objects
            or record.attached_nbytes < 0
            or <uint64_t>record.attached_nbytes > copy.objects_nbytes):
        raise Damaged(b"the objects of a batch lie out of its slot",
                      f"{copy.objects_nbytes} bytes at {copy.objects} of {copy.capacity}, of which "
                      f"{record.attached_nbytes} are attached")
    return 0


cdef bytes slot_objects(rd_arena* arena, const rd_slot* slot):
    return (<const char*>arena.base + slot.start + slot.objects)[:slot.objects_nbytes]


cdef bytes read_table(rd_record* record, const rd_slot* slot, bytes objects):
    """Return a copy of the field table of a slot, after comparing the sum of both."""
    cdef const uint8_t* start = record.arena.base + slot.start
    cdef uint64_t nbytes = rd_table_nbytes(start, slot.nfields, slot.capacity)
    cdef bytes table
    if nbytes > slot.capacity:
        raise Damaged(b"the field table of a batch is longer than its slot",
                      f"{slot.nfields} fields in {slot.capacity} bytes")
    table = (<const char*>start)[:nbytes]
    if (record.payload_sum != rd_payload_sum(<const char*>table, nbytes, <const char*>objects,
                                             slot.objects_nbytes)
            or rd_table_nbytes(<const uint8_t*><const char*>table, slot.nfields, nbytes) != nbytes):
        raise Damaged(b"the fields or objects of a batch differ from their sum",
                      f"{slot.nfields} fields in a table of {nbytes} bytes, {slot.objects_nbytes} bytes "
                      f"of objects; the sum is {record.payload_sum}")
    return table


cdef Schema load_schema(rd_record* record, dict schemas):
    cdef rd_slot slot
    cdef uint32_t wanted
    cdef uint64_t place
    cdef int rc
    schema = schemas.get(record.schema)
    if schema is None:
        rc = rd_slot_read(record.arena, rd_slot_at(record.arena, record.schema), &slot)
        wanted, place = slot.nfields, slot.objects  # see BatchWriter.publish_schema
        slot.nfields = 0
        slot.objects = 0
        if rc or slot.objects_nbytes > slot.capacity or place != rd_place_sum(&slot):
            raise Damaged(b"the slot of a schema differs from its sum",
                          f"{slot.objects_nbytes} bytes of {slot.capacity} at {slot.start}")
        pickled = slot_objects(record.arena, &slot)
        if wanted != rd_payload_sum(NULL, 0, <const char*>pickled, slot.objects_nbytes):
            raise Damaged(b"a schema differs from its sum",
                          f"{slot.objects_nbytes} bytes, and the sum is {wanted}")
        schema = schemas[record.schema] = pickle.loads(pickled)
    return schema


cdef int check_fields(Schema schema, const rd_slot* slot, bytes table) except -1:
    """Raise unless the fields of a field table, which agrees with its sum, lie within their slot."""
    cdef const int64_t* entry = <const int64_t*><const char*>table
    cdef FieldType type
    cdef uint64_t nbytes
    cdef int64_t i
    cdef Py_ssize_t place = 0
    if slot.nfields != <size_t>len(schema.types):
        raise Damaged(b"a batch has another number of fields than its schema",
                      f"{slot.nfields}, and the schema {len(schema.types)}", is_sealed=True)
    for type in schema.types:
        nbytes = rd_extents_nbytes(type.itemsize, entry + 3, entry[2])
        # an offset below 0 is one far above the capacity
        if (<uint64_t>entry[0] > slot.capacity or nbytes > slot.capacity - <uint64_t>entry[0]
                or nbytes != <uint64_t>entry[1]):
            raise Damaged(b"a field of a batch lies out of its slot",
                          f"field {place} of {len(schema.types)}, {type.name} of shape "
                          f"{tuple([entry[3 + i] for i in range(entry[2])])}, {entry[1]} bytes at "
                          f"{entry[0]} of {slot.capacity}", is_sealed=True)
        entry += 3 + entry[2]
        place += 1
    return 0


cdef bytes read_payload(rd_record* record):
    """Return a copy of the objects of a record's slot. Raises Damaged."""
    cdef rd_slot slot
    cdef bytes payload
    read_slot(record, &slot)
    payload = slot_objects(record.arena, &slot)
    read_table(record, &slot, payload)
    return payload


cdef void release(rd_record* record) noexcept:
    """Release the slot of an opened record; an exception after it does not release it again."""
    rd_slot_release(record.arena, record.slot)
    record.slot = 0


cdef object open_payload(rd_record* record, object side):
    """Return the payload of an ERROR or FAILED record; releases its slot. Raises Damaged."""
    if side is not None:
        return side.take(record.token)
    payload = read_payload(record)
    release(record)
    return payload


cdef object last_state(rd_record* record, object side):
    """Return the payload of an END record, or None. Raises Damaged, and what unpickling raises."""
    if side is not None:
        return side.take(record.token) if record.token else None
    if not record.slot:
        return None
    state = pickle.loads(read_payload(record))
    release(record)  # last: after an exception above, opening may be tried again
    return state


cdef LoDTensorArray open_batch(rd_arena* arena, rd_record* record, object side, dict schemas,
                               uint64_t epoch):
    """Return the batch of a record; ``arena``: of worker threads. Raises Damaged, and what
    unpickling raises."""
    cdef Lease lease = None
    cdef Schema schema
    cdef rd_slot slot
    cdef list objects = []
    cdef bytes packed = None, payload = b"", table = None
    cdef const char* start
    attached = None
    if side is not None:
        slot.start = 0
        schema, objects, attached = side.take(record.token)
        if record.slot:
            slot = rd_slot_at(arena, record.slot)[0]
            if slot.generation != record.generation:
                raise InternalError(f"slot of batch {record.seq} was reused before it was read")
            start = <const char*>arena.base + slot.start
            table = start[:rd_table_nbytes(<const uint8_t*>start, slot.nfields, slot.capacity)]
            lease = Lease.take(arena, record.slot)
        return LoDTensorArray.from_slot(lease, schema, objects, None, attached, record, epoch,
                                        table, slot.start)
    read_slot(record, &slot)
    if slot.objects_nbytes:
        payload = slot_objects(record.arena, &slot)
    table = read_table(record, &slot, payload)
    if record.schema:
        schema = load_schema(record, schemas)
        if <int64_t>slot.objects_nbytes > record.attached_nbytes:
            packed = payload
    else:
        first, packed = pickle.loads(payload)
        schema = pickle.loads(first)
    check_fields(schema, &slot, table)
    if packed is not None and not record.has_fields_within:  # else see unpack
        objects, packed = pickle.loads(packed), None
    if record.attached_nbytes:  # after the objects
        attached = pickle.loads(payload[len(payload) - record.attached_nbytes:])
    # last: after an exception above, opening may be tried again
    lease = Lease.take(record.arena, record.slot)
    return LoDTensorArray.from_slot(lease, schema, objects, packed, attached, record, epoch, table,
                                    slot.start)


cdef bint is_sound(rd_record* record, dict schemas) except -1:
    """Whether a record's batch is as its worker sent it; the worker has ended."""
    cdef rd_slot slot
    if record.slot == 0:
        return True
    try:
        read_slot(record, &slot)
        read_table(record, &slot, slot_objects(record.arena, &slot))
        if record.schema:
            load_schema(record, schemas)
    except Damaged:
        return False
    except BaseException:  # a schema that cannot be unpickled: opening reports it
        return True
    return True


cdef list drop_damaged(feed_state* s, dict schemas):
    """Drop waiting records that were overwritten since they came; return the batches of each worker.

    No lock is held, since Python runs: the reader thread and the workers have ended. No signal handler may
    raise meanwhile: an exception of unpickling is left to the opening of its record.
    """
    cdef rd_record* record
    cdef uint64_t i
    again = [[] for _ in range(s.nworkers)]
    for i in range(s.mask + 1):
        record = &s.waiting[i]
        if record.kind and not is_sound(
                record, schemas if record.slot and record.arena == s.arena else {}):
            if record.run == s.run:
                again[record.worker].append(record.seq)
            drop(s, record)
    return again
