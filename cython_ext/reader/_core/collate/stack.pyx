"""Stacking in place: a worker asks for each sample, and the plan copies it once, to its place in a slot.

Imports the arena's heap, plans, payloads, structure and the Schema of tensor. A BatchWriter belongs to one
worker and one thread.
"""
import pickle

import numpy as np

cimport cython
cimport numpy as cnp
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy, memset

from reader._core.batch.dtype cimport FieldType
from reader._core.batch.ndarray cimport as_ndarray, copy_array
from reader._core.batch.payload cimport pickle_attached, pickle_flat, pickle_objects, pickle_schema
from reader._core.batch.side_table cimport SideTable
from reader._core.batch.structure cimport OBJECT, Flat
from reader._core.batch.tensor cimport ORIGIN_ARRAY, ORIGIN_TENSOR
from reader._core.collate.columns cimport Columns
from reader._core.collate.indices cimport Indices, number_of
from reader._core.collate.lent_row cimport LentRow, detached, index_of
from reader._core.collate.plan cimport SampleLeaf
from reader._core.collate.rows cimport Rows
from reader._core.collate.share cimport AGAIN, Sharing
from reader._core.memory.arena cimport (RD_ALIGN, RD_BATCH, RD_KEPT, RD_SKIPPED, rd_head, rd_header,
                                        rd_payload_sum, rd_place_sum, rd_slot_offset)
from reader._core.memory.copying cimport NOGIL_NBYTES
from reader._core.memory.stage_times cimport rd_coarse_ns, rd_made_note, rd_sample_begins, rd_sample_ends
from reader._core.memory.wait cimport load_u32, rd_now_ns, store_relaxed_i64, store_u32

from reader._core.batch.dtype import field_type
from reader._core.batch.structure import flatten
from reader.errors import CollateError

cnp.import_array()

cdef enum:
    ENDED = 1          # what stream() returns when the source is exhausted
    KEPT_SCHEMAS = 64  # batches of more forms than these carry their schema with each batch
    GATHERED = 1 << 20 # bytes to gather between two checks whether the batch is stale

# limit of a batch, above that of any arena; a field and a payload can be added without overflow
cdef uint64_t MOST_NBYTES = <uint64_t>1 << 62
cdef object END = object()   # what next() returns for an exhausted source


cdef inline uint64_t aligned(uint64_t at) noexcept:
    """Return where the next field begins."""
    return (at + RD_ALIGN - 1) // RD_ALIGN * RD_ALIGN


cdef inline uint64_t field_nbytes(Py_ssize_t nbytes) noexcept:
    """Return the bytes of a field in its slot, at least 1: Paddle distinguishes tensors by address."""
    return <uint64_t>max(nbytes, 1)


@cython.final
cdef class BatchWriter:
    """Writes batches into slots of one heap.

    Used by one worker in its main thread. `write` copies a ready-made batch once. `stack` fetches
    samples by key, `stream` draws them, and both stack them in place. `rules`, None at first:
    ``can_stack(sample)`` says whether a first sample may be stacked (or raises), and
    ``collate(samples)`` makes the batch if it may not, or if samples are not alike. ``attach()``,
    unless it is None, makes what is attached to a batch, once all its samples are fetched.
    """

    def __init__(self, Heap heap not None, SideTable side=None):
        self.heap = heap
        self.side = side
        self.schemas = {}
        self.plan = None
        self.gathered = None
        self.set_rules(None)
        self.attach = None
        self.sharing = None
        self.lent = LentRow()
        self.drawn = []
        self.row = 0

    cdef set_rules(self, object rules):
        """Set the rules of a face, or None; see `reader.policy.CollateRules`."""
        self.rules = rules
        self.plan = None
        self.is_strict = rules is not None and rules.is_strict
        self.pack = None if rules is None else rules.pack
        self.keeps_aliases = rules is None or rules.keeps_aliases
        self.has_origins = rules is not None and (self.pack is not None or rules.has_origins)
        self.revive = None if rules is None else rules.revive

    cdef rd_slot* begin(self, Plan plan, Py_ssize_t count) except? NULL:
        """Take a slot for count samples, make its field table and set the leaves' rows."""
        cdef SampleLeaf leaf
        cdef uint64_t at = 0
        cdef rd_slot* slot
        cdef char* start
        cdef uint64_t share_nbytes = 0 if self.sharing is None else self.sharing.extra_nbytes(count)
        cdef int i
        plan.drop_objects()
        plan.rereads = self.rules is not None and not self.holds_all and not self.fills
        if count > plan.most_rows:
            plan.refuse_rows(count)
        if not plan.fields and self.side is not None:
            return NULL
        for leaf in plan.fields:
            at += (4 + leaf.ndim) * 8
        for leaf in plan.fields:
            at = min(aligned(at) + field_nbytes(count * leaf.nbytes), MOST_NBYTES)
        self.heap.expect(at if self.holds_all else at // count)
        slot = self.heap.alloc(at + plan.objects_nbytes + share_nbytes)
        plan.is_uncached = self.heap.goes_past_cache(at)
        if self.sharing is not None:
            self.sharing.was_fresh = self.heap.is_fresh(slot)
        start = <char*>self.heap.arena.c.base + slot.start
        self.table.clear()
        at = 0
        for leaf in plan.fields:
            at += (4 + leaf.ndim) * 8
        for leaf in plan.fields:
            at = aligned(at)
            leaf.rows = start + at
            self.table.push_back(<int64_t>at)
            self.table.push_back(count * leaf.nbytes)
            self.table.push_back(leaf.ndim + 1)
            self.table.push_back(count)
            for i in range(leaf.ndim):
                self.table.push_back(leaf.extents[i])
            at += field_nbytes(count * leaf.nbytes)
        self.objects_at = slot.objects = at  # where objects would begin
        return slot

    cdef int stack(self, object source, list keys, list names,  # word-ok: one loop for each sample
                   rd_record* record, object fill=None) except -1:
        """Fetch a sample for each key and stack them in place.

        ``fill(key, out)`` fetches one too, and may write it to its row: see LentRow. Or None.
        """
        cdef Py_ssize_t row = 1, before, count = len(keys)
        cdef Plan plan = self.plan
        cdef Sharing sharing = None
        cdef rd_slot* slot = NULL
        cdef object sample
        cdef int differs = 1
        self.row = 0
        self.holds_all = type(source) is list
        self.fills = fill is not None
        self.made.rows = <uint32_t>count
        if count == 0:
            raise CollateError("cannot make a batch of no samples; the sampler yielded an empty one")
        try:
            if self.sharing is not None and self.sharing.source is source:
                sharing = self.sharing
                sharing.begin()
                sharing.help_first(count, record.seq)
            if fill is not None and plan is not None:
                slot = self.begin(plan, count)
            if sharing is not None and plan is not None and sharing.is_due(0, count, plan, record.seq):
                slot = self.begin(plan, count) if slot is NULL else slot
                self.open(sharing, plan, slot, keys, 0, record)
            sample = self.fetch(source, fill, keys, plan, slot, 0, names)
            if not self.suits(plan, sample):
                sample = detached(sample, fill)
                slot = self.drop(slot)
                samples = [sample] + self.fetch_rest(source, keys, 0, record)
                return self.collate(samples, record)
            if plan is not None:
                if slot is NULL:
                    slot = self.begin(plan, count)
                differs = plan.put(plan.structure, sample, 0)
                if differs:
                    sample = detached(sample, fill)
                    slot = self.drop(slot)
            if differs:
                self.plan = None
                if plan is not None and not self.suits(None, sample):
                    samples = [sample] + self.fetch_rest(source, keys, 0, record)
                    return self.collate(samples, record)
                plan = Plan.of(sample, self.is_strict)
                slot = self.begin(plan, count)
                if plan.put(plan.structure, sample, 0):
                    raise CollateError(f"sample {names[0] if names else 0!r} changed while "
                                       f"it was read: {plan.where()} {plan.difference}")
                self.plan = plan
            if fill is not None:
                sample = None
                self.lent.take_back(0, names)
            if sharing is not None and sharing.is_shared:
                row = sharing.next_row(0)
            while row < count:
                if row == AGAIN:
                    slot = self.drop(slot)
                    return self.stack(source, keys, names, record, fill)
                if slot is not NULL and self.is_stale(record):
                    return self.skip(slot, record)
                if sharing is not None and sharing.is_due(row, count, plan, record.seq):
                    self.open(sharing, plan, slot, keys, row, record)
                elif sharing is not None and sharing.is_first:
                    sharing.help(record.seq)
                before = row
                try:
                    sample = self.fetch(source, fill, keys, plan, slot, row, names)
                    differs = plan.put(plan.structure, sample, row)
                    if fill is not None and not differs:
                        sample = None
                        self.lent.take_back(row, names)
                except BaseException:
                    if sharing is not None:
                        before = sharing.row_before(row)
                    if before == row:
                        raise
                if before == row and differs and sharing is not None:
                    before = sharing.row_before(row)
                if before != row:
                    row = before
                elif differs:
                    if self.rules is None:
                        raise CollateError(self.unlike(plan, row, names))
                    plan.reread()
                    samples = plan.take_back(row, self.revive)
                    samples.append(detached(sample, fill))
                    slot = self.drop(slot)
                    samples += self.fetch_rest(source, keys, row, record)
                    return self.collate(samples, record)
                elif sharing is not None and sharing.is_shared:
                    row = sharing.next_row(row)
                    before, sharing.waited_row = sharing.waited_row, -1
                    if before >= 0 and rd_made_note(&self.made, before, sharing.waited_ns):
                        self.made.slowest_key = number_of(keys[before])
                else:
                    row += 1
            if self.rules is None and names and plan.structure.kind == OBJECT:
                self.refuse_nothing(plan, names)
            plan.reread()
            slot = self.complete(slot, plan, record)
        except BaseException:
            self.drop(slot)
            raise
        finally:
            self.lent.views = None
            if plan is not None:
                plan.drop_objects()
        return 0

    cdef object fetch(self, object source, object fill, list keys, Plan plan, rd_slot* slot,
                      Py_ssize_t row, list names):
        """Fetch the sample of a row, and note its time."""
        cdef int64_t begun
        if self.holds_all:
            return self.fetch_sample(source, fill, keys, plan, slot, row, names)
        if self.sharing is not None and self.sharing.is_shared:
            self.timer.glance_ns = rd_coarse_ns()  # it may have waited since the row before
        begun = rd_sample_begins(&self.timer, row)
        sample = self.fetch_sample(source, fill, keys, plan, slot, row, names)
        if rd_sample_ends(&self.made, &self.timer, row, begun):
            self.made.slowest_key = number_of(keys[row])
        return sample

    cdef object draw(self, object source, Py_ssize_t row):
        """Draw a sample of a stream, or END, and note its time."""
        cdef int64_t begun = rd_sample_begins(&self.timer, row)
        sample = next(source, END)
        rd_sample_ends(&self.made, &self.timer, row, begun)
        return sample

    cdef object fetch_sample(self, object source, object fill, list keys, Plan plan, rd_slot* slot,
                             Py_ssize_t row, list names):
        """Fetch the sample of a row."""
        self.row = row
        store_relaxed_i64(&self.heap.c.at_row, row)
        key = keys[row]
        if fill is None:
            return source[key]
        if plan is None or slot is NULL:
            return fill(key, None)
        return self.lent.fetch(fill, key, plan, row, self.heap.arena, names)

    cdef int open(self, Sharing sharing, Plan plan, rd_slot* slot, list keys, Py_ssize_t row,
                  rd_record* record) except -1:
        """Let others make the rows after one."""
        if slot is not NULL:
            self.put_table(slot, len(plan.fields))
            sharing.open(slot, self.objects_at, plan, keys, row, record)
        return 0

    cdef rd_slot* drop(self, rd_slot* slot) except? NULL:
        """Drop a slot of which nothing was published; returns NULL."""
        try:
            if self.sharing is not None:
                self.sharing.close()  # others may write to it
                self.sharing.is_shared = False
        finally:
            if slot is not NULL:
                self.heap.drop(slot)
        return NULL

    cdef bint gather(self, Columns columns, object keys, rd_record* record) except -1:
        """Gather a batch from rows of arrays. False: fetch and stack its samples one by one.

        Sample 0 of the first batch is fetched, and gives the form of all batches.
        """
        cdef Plan plan = self.plan
        cdef rd_slot* slot = NULL
        cdef size_t row = 0, some, each = 0, count = <size_t>len(keys)
        cdef SampleLeaf leaf
        self.row = 0
        self.holds_all = self.fills = False
        if count == 0:
            return False
        if plan is None or plan is not self.gathered or not columns.suit(plan):
            keys = keys.tolist() if type(keys) is Indices else keys
            if type(keys[0]) is not int or keys[0] < 0:
                return False
            sample = columns.source[keys[0]]
            if not self.suits(None, sample):
                return False
            plan = Plan.of(sample, self.is_strict)
            if not columns.suit(plan):
                return False
            self.plan = self.gathered = plan
        if not columns.take(keys):
            return False
        try:
            slot = self.begin(plan, count)
            columns.aim(plan)
            for leaf in plan.fields:
                each += leaf.nbytes
            some = max(GATHERED // max(each, <size_t>1), <size_t>1)
            if columns.fill is not None:
                columns.write(plan, count, self.heap.arena)
                row = count
            while row < count:
                if row and self.is_stale(record):
                    self.skip(slot, record)
                    return True
                some = min(some, count - row)
                if each * some < NOGIL_NBYTES:
                    columns.copy(row, some, plan.is_uncached)
                else:
                    with nogil:
                        columns.copy(row, some, plan.is_uncached)
                row += some
            slot = self.complete(slot, plan, record)
        except BaseException:
            if slot is not NULL:
                self.heap.drop(slot)
            raise
        return True

    cdef int refuse_nothing(self, Plan plan, list names) except -1:
        """Refuse a batch of samples that are all None: most often a `return` was forgotten."""
        for sample in (<SampleLeaf>plan.objects[0]).values:
            if sample is not None:
                return 0
        raise CollateError(
            f"each sample of the batch is None (dataset indices {names[:8]}"
            f"{', ...' if len(names) > 8 else ''}): __getitem__ of the dataset returned nothing; add "
            f"its return statement, or, where None is a sample, pass collate_fn=list")

    cdef int stream(self, object source, Py_ssize_t count, bint drop_last,
                    rd_record* record) except -1:
        """Draw count samples and stack them in place; ENDED when none is left.

        After ArenaFull ``drawn`` holds the samples that were drawn.
        """
        cdef Py_ssize_t row = 0
        cdef Plan plan = self.plan
        cdef rd_slot* slot = NULL
        cdef object sample
        self.row = 0
        self.drawn = []
        self.drew_all = self.ran_out = self.holds_all = self.fills = False
        if plan is None or plan.objects:
            # the pickled objects may not fit when all samples are drawn: keep the samples
            return self.stream_list(source, count, drop_last, record)
        self.made.rows = <uint32_t>count
        sample = self.draw(source, 0)
        if sample is END:
            return ENDED
        self.drawn.append(sample)
        try:
            slot = self.begin(plan, count)
            if plan.put(plan.structure, sample, 0):
                self.heap.drop(slot)
                slot = NULL
                return self.stream_list(source, count, drop_last, record)
            self.drawn = []
            for row in range(1, count):
                if self.is_stale(record):
                    return self.skip(slot, record)
                self.row = row
                store_relaxed_i64(&self.heap.c.at_row, row)
                sample = self.draw(source, row)
                if sample is END:
                    if drop_last:
                        self.heap.drop(slot)
                        return ENDED
                    self.ran_out = True
                    self.shorten(plan, slot, row, count)
                    break
                if plan.put(plan.structure, sample, row):
                    if self.rules is not None:
                        plan.reread()
                        self.drawn = plan.take_back(row, self.revive)
                        self.skip(slot, record)
                        slot = NULL
                        self.drawn.append(sample)
                        return self.stream_list(source, count, drop_last, record)
                    text = self.unlike(plan, row, None)
                    for _ in range(row + 1, count):  # or the next batch would get these samples
                        if self.is_stale(record) or next(source, END) is END:
                            break
                    self.drew_all = True
                    raise CollateError(text)
            self.drew_all = True
            plan.reread()
            slot = self.complete(slot, plan, record)
        except BaseException:
            if slot is not NULL:
                self.heap.drop(slot)
            raise
        finally:
            plan.drop_objects()
        return 0

    cdef int stream_list(self, object source, Py_ssize_t count, bint drop_last,
                         rd_record* record) except -1:
        """As stream, but draws all samples before it copies the first."""
        cdef list samples = self.drawn
        while len(samples) < count:
            if self.is_stale(record):
                return self.skip(NULL, record)
            self.row = len(samples)
            store_relaxed_i64(&self.heap.c.at_row, len(samples))
            sample = self.draw(source, len(samples))
            if sample is END:
                self.ran_out = True
                break
            samples.append(sample)
        self.drew_all = True
        if not samples or (drop_last and len(samples) < count):
            self.drawn = []
            return ENDED
        self.stack(samples, list(range(len(samples))), None, record)
        self.drawn = []
        return 0

    cdef bint is_stale(self, rd_record* record) noexcept:
        """Whether nobody waits for this batch: a new run began, or the pool stops."""
        cdef rd_header* head = rd_head(self.heap.arena.c)
        return load_u32(&head.stop) or (load_u32(&head.run) != record.run and not self.makes_stale)

    cdef str unlike(self, Plan plan, Py_ssize_t row, list names):
        """Return the message for a sample that differs from sample 0."""
        return (f"cannot stack sample {row}{index_of(names, row)} with sample 0"
                f"{index_of(names, 0)}: {plan.where()} {plan.difference}; make them alike in the "
                f"dataset (pad, resize, convert), or pass a collate_fn")

    cdef int skip(self, rd_slot* slot, rd_record* record) except -1:
        self.drop(slot)
        record.kind = RD_SKIPPED
        return 0

    cdef bint suits(self, Plan plan, object sample) except -1:
        """Whether samples may be stacked in place. Calls the rules for each batch with objects, and
        strict rules only for the first batch of a form."""
        if self.rules is None or (plan is not None and (self.is_strict or not plan.objects)):
            return True
        return self.rules.can_stack(sample)

    cdef list fetch_rest(self, object source, list keys, Py_ssize_t row, rd_record* record):
        """Fetch the samples after a row. Raises where nobody waits for the batch any more."""
        samples = []
        for self.row in range(row + 1, len(keys)):
            if self.is_stale(record):
                raise CollateError("nobody waits for this batch any more")
            samples.append(self.fetch(source, None, keys, None, NULL, self.row, None))
        return samples

    cdef int collate(self, list samples, rd_record* record) except -1:
        """Make and write a batch of samples that are not alike, by the rules."""
        self.row = -1
        return self.write(self.rules.collate(samples), record)

    cdef int shorten(self, Plan plan, rd_slot* slot, Py_ssize_t count, Py_ssize_t begun) except -1:
        """Set the number of rows of a batch that has fewer than the ``begun`` it has space for."""
        cdef SampleLeaf leaf
        cdef int64_t* entry = self.table.data()
        cdef bint is_fresh = self.heap.is_fresh(slot)
        for leaf in plan.fields:
            if is_fresh:  # the rest counts as written when the batch is sent
                memset(leaf.rows + count * leaf.nbytes, 0, (begun - count) * leaf.nbytes)
            entry[1] = count * leaf.nbytes
            entry[3] = count
            entry += 4 + leaf.ndim
        return 0

    cdef rd_slot* complete(self, rd_slot* slot, Plan plan, rd_record* record) except? NULL:
        """Add schema and objects to a slot whose rows are written, and fill in the record."""
        self.row = -1  # an error from here on concerns no sample in particular
        if plan.its_schema is None:
            plan.its_schema = Schema(plan.its_batch, [(<SampleLeaf>leaf).type for leaf in plan.fields])
        if self.side is None and plan.schema == 0:
            plan.schema = self.publish_schema(plan.its_schema)
        record.schema = plan.schema
        objects = plan.object_lists()
        if self.side is not None:
            self.put_beside(objects, plan.its_schema, record)
            if slot is not NULL:
                self.put_table(slot, len(plan.fields))
                self.heap.note_written(slot, self.objects_at)
        else:
            payload = self.payload(objects, plan.its_schema, None, record)
            slot = self.add_payload(slot, plan, len(plan.fields), payload, record)
        record.kind = RD_BATCH
        record.slot = 0 if slot is NULL else rd_slot_offset(self.heap.arena.c, slot)
        record.generation = 0 if slot is NULL else slot.generation
        return slot

    cdef int put_beside(self, list objects, Schema schema, rd_record* record) except -1:
        """Put all but the arrays into the side table."""
        beside = None if self.attach is None else self.attach()
        record.token = self.side.put(record.run, (schema, objects, beside))
        return 0

    cdef bytes payload(self, list objects, Schema schema, bytes packed, rd_record* record):
        """Pickle all but the arrays: an unpublished schema, the objects, and the attachment.

        ``packed``: the objects if the rules have pickled them, or None.
        """
        cdef bytes attached, made = b""
        record.has_fields_within = packed is not None
        if packed is None and (objects or not record.schema):
            packed = pickle_objects(objects, schema.structure)
        if not record.schema:
            made = pickle.dumps((pickle_schema(schema), packed), 5)
        elif packed is not None:
            made = packed
        beside = None if self.attach is None else self.attach()
        if beside is not None:
            attached = pickle_attached(beside)
            record.attached_nbytes = len(attached)
            made += attached
        return made

    cdef int put_table(self, rd_slot* slot, Py_ssize_t nfields) noexcept:
        """Write the field table into its slot."""
        if self.table.size():
            memcpy(<char*>self.heap.arena.c.base + slot.start, self.table.data(),
                   self.table.size() * 8)
        slot.nfields = <uint32_t>nfields
        return 0

    cdef rd_slot* add_payload(self, rd_slot* slot, Plan plan, Py_ssize_t nfields, bytes payload,
                              rd_record* record) except? NULL:
        """Write the field table, and bytes after the arrays of the slot, or of a larger one that
        replaces it."""
        cdef uint64_t at = self.objects_at, size = len(payload)
        cdef rd_slot* larger
        cdef char* base = <char*>self.heap.arena.c.base
        cdef const char* data = payload
        record.payload_sum = rd_payload_sum(self.table.data(), self.table.size() * 8, data, size)
        if size and at + size > slot.backed:
            # rare: the objects are larger than those of the last batch
            larger = self.heap.alloc(at + size)
            memcpy(base + larger.start, base + slot.start, at)
            self.heap.note_written(slot, at)
            self.heap.drop(slot)
            slot = larger
        self.put_table(slot, nfields)
        slot.objects = at if size else 0
        slot.objects_nbytes = size
        memcpy(base + slot.start + at, data, size)
        self.heap.note_written(slot, at + size)
        if size and plan is not None:
            plan.objects_nbytes = size + size // 4 + 64
        return slot

    cdef int write(self, object batch, rd_record* record) except -1:
        """Write a ready-made batch, with one copy of each array."""
        cdef Flat flat = flatten(batch, self.pack is not None, self.keeps_aliases)
        cdef list arrays = [], types = []
        cdef uint64_t at = 0, table
        cdef rd_slot* slot = NULL
        cdef char* start
        cdef Rows rows
        cdef cnp.ndarray array
        cdef Schema schema
        cdef bytes origins = None, packed = None, payload = b""
        cdef bint is_uncached
        cdef Py_ssize_t nbytes
        cdef int i
        name = [None]
        if self.pack is not None and self.side is None:  # fields within objects are appended to the others
            packed = pickle_flat(flat, batch, self.pack)
        for value in flat.fields:
            if type(value) is Rows:
                made, kind = value, (<Rows>value).type
            else:
                made = as_ndarray(value, name)
                kind = field_type(name[0] if name[0] is not None else made.dtype)
            arrays.append(made)
            types.append(kind)
            at += (3 + ndim_of(made)) * 8
        table = at
        for made in arrays:
            at = min(aligned(at) + field_nbytes(nbytes_of(made)), MOST_NBYTES)
        if self.has_origins:
            origins = find_origins(flat.fields)
        schema = Schema(flat.structure, types, origins)
        record.schema = 0
        if self.side is None:
            record.schema = self.publish_schema(schema)
            payload = self.payload(flat.objects, schema, packed, record)
        try:
            if arrays or self.side is None:
                # the samples, and the batch made of them
                self.heap.expect(2 * at)
                slot = self.heap.alloc(at + len(payload))
                is_uncached = self.heap.goes_past_cache(at)
                self.objects_at = slot.objects = at
                start = <char*>self.heap.arena.c.base + slot.start
                self.table.clear()
                at = table
                for made, kind in zip(arrays, types):
                    at = aligned(at)
                    nbytes = nbytes_of(made)
                    self.table.push_back(<int64_t>at)
                    self.table.push_back(nbytes)
                    self.table.push_back(ndim_of(made))
                    if type(made) is Rows:
                        rows = <Rows>made
                        rows.is_uncached = is_uncached
                        for i in range(rows.ndim):
                            self.table.push_back(rows.extents[i])
                        rows.write(start + at)
                    else:
                        array = <cnp.ndarray>made
                        for i in range(cnp.PyArray_NDIM(array)):
                            self.table.push_back(cnp.PyArray_DIM(array, i))
                        copy_array(array, kind, start + at, is_uncached)
                    at += field_nbytes(nbytes)
            if self.side is None:
                slot = self.add_payload(slot, None, len(arrays), payload, record)
            else:
                self.put_beside(flat.objects, schema, record)
                if slot is not NULL:
                    self.put_table(slot, len(arrays))
                    self.heap.note_written(slot, self.objects_at)
        except BaseException:
            if slot is not NULL:
                self.heap.drop(slot)
            raise
        record.kind = RD_BATCH
        record.slot = 0 if slot is NULL else rd_slot_offset(self.heap.arena.c, slot)
        record.generation = 0 if slot is NULL else slot.generation
        return 0

    cdef uint64_t publish_schema(self, Schema schema) except? 0:
        """Return the offset of the KEPT slot with the schema; 0: each batch carries it instead."""
        key = (schema.structure, tuple(schema.types), schema.origins)
        found = self.schemas.get(key)
        if found is not None:
            return found
        if len(self.schemas) >= KEPT_SCHEMAS:
            return 0
        found = self.schemas[key] = self.keep_schema(pickle_schema(schema))
        return found

    cdef uint64_t keep_schema(self, bytes pickled) except 0:
        """Return the offset of a new KEPT slot with a pickled schema."""
        cdef rd_slot* slot = self.heap.alloc(len(pickled))
        cdef const char* data = pickled
        memcpy(<char*>self.heap.arena.c.base + slot.start, data, len(pickled))
        slot.objects_nbytes = len(pickled)
        self.heap.note_written(slot, len(pickled))
        # the slot has sums in place of a field table and the offset of objects: records.load_schema checks
        # them
        slot.objects = rd_place_sum(slot)
        slot.nfields = rd_payload_sum(NULL, 0, data, len(pickled))
        store_u32(&slot.state, RD_KEPT)
        return rd_slot_offset(self.heap.arena.c, slot)


cdef inline int ndim_of(object field) noexcept:
    return (<Rows>field).ndim if type(field) is Rows else cnp.PyArray_NDIM(<cnp.ndarray>field)


cdef inline Py_ssize_t nbytes_of(object field) noexcept:
    return (<Rows>field).nbytes if type(field) is Rows else cnp.PyArray_NBYTES(<cnp.ndarray>field)


cdef bytes find_origins(list fields):
    """Return the Origin of each field, or None if all are tensors."""
    cdef bytes origins = bytes([ORIGIN_ARRAY if isinstance(value, np.ndarray) else ORIGIN_TENSOR
                                for value in fields])
    return origins if ORIGIN_ARRAY in origins else None
