"""Each check of a worker's results: it finds its kind of damage, and says what it saw."""

from __future__ import annotations

import ctypes
import os
import random
import re
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import reader
from reader._core.batch import dtype
from reader._core.wire.channel import TaskKind
from reader._core.wire.failure import FailureKind
from reader.errors import InternalError, WorkerDied
from tests.fuzz.scribbler import Scribbler
from tests.wire import Wire, wire

# Offsets: see layout.h
PAGE = 4096
RUN = 132
TASK_TAIL, TASK_HEAD, RESULT_TAIL, RELEASED, NSLOTS, SINCE = 0, 64, 128, 256, 320, 400
RECORD = {"seq": 0, "kind": 12, "slot": 16, "schema": 24, "generation": 32, "sum": 36, "token": 40}
RECORD |= {"attached_nbytes": 48, "place_sum": 58, "payload_sum": 60}
SLOT = {"generation": 4, "start": 8, "capacity": 16, "nfields": 44, "objects": 48, "nbytes": 56}
MAGIC = 0x314E4552444F4C
SKIPPED, STATE = 5, 10
WIDTHS = {"generation": 4, "sum": 4, "payload_sum": 4, "nfields": 4, "kind": 2, "place_sum": 2}


def _mixed(total: int, word: int) -> int:
    total = ((total ^ word) * 0x9E3779B97F4A7C15) % (1 << 64)
    return total ^ (total >> 32)


def _sum_of(total: int, data: bytes) -> int:
    whole = len(data) // 8 * 8
    for (word,) in struct.iter_unpack("<Q", data[:whole]):
        total = _mixed(total, word)
    rest = int.from_bytes(data[whole:], "little")
    return _mixed(total, rest ^ (len(data) - whole) << 56)


class Shared:
    """The shared memory of a Wire whose worker has sent one batch, as any worker may write it."""

    def __init__(self, road: Wire) -> None:
        self.fd = road.arena.fd
        at = Scribbler(random.Random(0), "slots")
        self.record = at.areas + at.task_ring
        self.table = self.record + at.result_ring

    def word(self, at: int, width: int = 8) -> int:
        return int.from_bytes(os.pread(self.fd, width, at), "little")

    def put(self, at: int, value: int, width: int = 8) -> None:
        os.pwrite(self.fd, (value % (1 << 8 * width)).to_bytes(width, "little"), at)

    def of_record(self, name: str) -> int:
        return self.word(self.record + RECORD[name], WIDTHS.get(name, 8))

    def set_record(self, name: str, value: int) -> None:
        """Change a word of the result, and seal it again."""
        self.put(self.record + RECORD[name], value, WIDTHS.get(name, 8))
        self.put(self.record + RECORD["sum"], 0, 4)
        made = _sum_of(MAGIC, os.pread(self.fd, 64, self.record)) % (1 << 32) | 1
        self.put(self.record + RECORD["sum"], made, 4)

    @property
    def slot(self) -> int:
        return self.of_record("slot")

    def of_slot(self, name: str) -> int:
        return self.word(self.slot + SLOT[name], WIDTHS.get(name, 8))

    def set_slot(self, name: str, value: int, sealed: bool = False) -> None:
        self.put(self.slot + SLOT[name], value, WIDTHS.get(name, 8))
        if sealed:
            made = MAGIC
            for each in ("start", "capacity", "nfields", "objects", "nbytes"):
                made = _mixed(made, self.of_slot(each))
            self.set_record("place_sum", made % (1 << 16))

    def set_table(self, place: int, value: int, sealed: bool = False) -> None:
        """Change a word of the field table of one field with one dimension."""
        start = self.of_slot("start")
        self.put(start + 8 * place, value)
        if sealed:
            table = os.pread(self.fd, 32, start)
            made = _sum_of(_sum_of(MAGIC, table), b"") % (1 << 32)
            self.set_record("payload_sum", made)


Damaging = Callable[[Shared], Any]

RESULTS: dict[str, tuple[str, str, Damaging]] = {
    "sum": (
        "a result differs from its sum",
        "for batch 9, .* sum [0-9]+ of [0-9]+",
        lambda at: at.put(at.record, 9),
    ),
    "kind": (
        "a result has another worker or an unknown kind",
        "kind 11 of worker 0",
        lambda at: at.set_record("kind", 11),
    ),
    "object": (
        "a result names an object of the trainer",
        "kind 1 of worker 0 for batch 0",
        lambda at: at.set_record("token", 4096),
    ),
    "schema": (
        "the schema of a result lies in no slot of its worker",
        "schema 64, sum",
        lambda at: at.set_record("schema", 64),
    ),
    "no batch": (
        "a result without a batch has a slot",
        "kind 5 .* slot [0-9]+",
        lambda at: (at.set_record("schema", 0), at.set_record("kind", SKIPPED)),
    ),
    "slot": (
        "the slot of a result is none of its worker",
        "slot 64.1",
        lambda at: at.set_record("slot", 64),
    ),
    "state of the slot": (
        "the slot of a result is not being written, or has another generation",
        "slot [0-9]+.77, .* the slot has state 2.1;",
        lambda at: at.set_record("generation", 77),
    ),
    "no slot": (
        "a result has no slot",
        "slot 0.1",
        lambda at: at.set_record("slot", 0),
    ),
    "another task": (
        "a result answers another task than the oldest",
        "for batch 6, .* worker 0 has 1 tasks from batch 0 on",
        lambda at: at.set_record("seq", 6),
    ),
    "state": (
        "a state answers the task of a batch",
        "kind 10",
        lambda at: (at.set_record("schema", 0), at.set_record("kind", STATE)),
    ),
    "skipped": (
        "a batch was skipped that is waited for",
        "kind 5 .* slot 0",
        lambda at: [
            at.set_record(name, value)
            for name, value in {"schema": 0, "slot": 0, "kind": SKIPPED}.items()
        ],
    ),
    "too many": (
        "the count of a result ring cannot be",
        "1000 results sent and 0 taken, in a ring of 64",
        lambda at: at.put(PAGE + RESULT_TAIL, 1000),
    ),
    "place": (
        "a slot has an invalid offset or size",
        "4096 bytes at 4097 of ",
        lambda at: at.set_slot("start", 4097),
    ),
    "slot's sum": (
        "a slot differs from its sum",
        "2 fields, 0 bytes of objects at 0 of 4096",
        lambda at: at.set_slot("nfields", 2),
    ),
    "objects": (
        "the objects of a batch lie out of its slot",
        "8 bytes at 4090 of 4096, of which 0 are attached",
        lambda at: (at.set_slot("objects", 4090), at.set_slot("nbytes", 8, sealed=True)),
    ),
    "attached": (
        "the objects of a batch lie out of its slot",
        "0 bytes at 0 of 4096, of which 1 are attached",
        lambda at: at.set_record("attached_nbytes", 1),
    ),
    "long table": (
        "the field table of a batch is longer than its slot",
        "1 fields in 4096 bytes",
        lambda at: at.set_table(2, 65),
    ),
    "table": (
        "the fields or objects of a batch differ from their sum",
        "1 fields in a table of 32 bytes, 0 bytes of objects",
        lambda at: at.set_table(3, 4),
    ),
    "slot of the schema": (
        "the slot of a schema differs from its sum",
        "[0-9]+ bytes of 4096",
        lambda at: at.put(at.of_record("schema") + SLOT["nbytes"], 4000),
    ),
    "schema's sum": (
        "a schema differs from its sum",
        "[0-9]+ bytes, and the sum is",
        lambda at: at.put(at.word(at.of_record("schema") + SLOT["start"]), 0),
    ),
}


def _sent(road: Wire) -> Shared:
    """Let the worker send a batch of one array of three numbers; the trainer has not taken it."""
    assert road.feeder.dispatch(0, TaskKind.TASK_NEXT, b"")
    assert road.channel.next_task() is not None
    road.channel.write(np.zeros(3))
    return Shared(road)


def _is_damage(road: Wire, check: str, seen: str) -> None:
    found = road.feeder.examine([])
    assert found is not None
    assert found.check == check
    assert re.search(seen, str(found)), str(found)


@pytest.mark.parametrize("case", RESULTS)
def test_check_of_a_result_finds_damage_and_says_what_it_saw(case: str) -> None:
    check, seen, damage = RESULTS[case]
    with wire() as road:
        damage(_sent(road))
        assert road.feeder.take(1) is None
        _is_damage(road, check, seen)
        assert road.feeder.ended_workers() == [0]


def test_generation_that_changes_after_the_result_came_is_damage() -> None:
    with wire() as road:
        shared = _sent(road)
        slot = shared.slot
        assert road.feeder.dispatch(1, TaskKind.TASK_NEXT, b"")  # takes what came
        shared.put(slot + SLOT["generation"], 5, 4)
        assert road.feeder.take(1) is None
        _is_damage(road, "a slot has another generation than its result", "5, and the result 1")


@pytest.mark.parametrize(
    ("place", "value", "seen"),
    [
        (0, 4096, r"float64 of shape \(3,\), 24 bytes at 4096 of 4096"),
        (0, -8, r"24 bytes at -8 of 4096"),
        (1, 32, r"32 bytes at 64 of 4096"),
        (3, 1000, r"float64 of shape \(1000,\), 24 bytes at 64"),
        (3, -3, r"shape \(-3,\)"),
        (3, 1 << 61, r"shape \(2305843009213693952,\)"),
    ],
)
def test_field_out_of_its_slot_whose_sums_agree_is_refused_alone(
    place: int, value: int, seen: str
) -> None:
    with wire() as road:
        _sent(road).set_table(place, value, sealed=True)
        item = road.feeder.take(1)
        assert item.kind is FailureKind.REFUSED
        assert "a field of a batch lies out of its slot (field 0 of 1, " in item.payload
        assert re.search(seen, item.payload), item.payload
        road.feeder.accept()
        assert road.feeder.examine([]) is None
        assert road.feeder.ended_workers() == []
        assert road.arena.stats()["held_slots"] == 0


def test_check_that_contradicts_the_sums_kills_no_worker_and_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    its_own = dtype.field_type
    sixes = [np.full(3, index, np.float32) for index in range(6)]
    with reader.DataLoader(sixes, batch_size=2, num_workers=2, persistent_workers=True) as loader:
        assert [batch[0, 0] for batch in loader] == [0, 2, 4]  # the workers know the types by now
        pids = {worker.pid for worker in loader.workers()}
        wrong = reader.DataLoader(sixes, batch_size=2, num_workers=1, start_method="fork")
        epoch = iter(wrong)  # its worker sends what it should
        # and unpickling makes another type here: like a bug of ours
        monkeypatch.setattr(dtype, "field_type", lambda _: its_own(np.dtype("f8")))
        for first in (0, 2, 4):
            with pytest.raises(InternalError) as caught:
                next(epoch)
            text = str(caught.value)
            assert f"batch {first // 2} of epoch 0 (dataset indices [{first}, {first + 1}])" in text
            assert (
                "a check refuses it: a field of a batch lies out of its slot (field 0 of 1," in text
            )
            assert "Its sums agree, so nothing overwrote it in shared memory" in text
            assert "please report it" in text
        assert next(epoch, None) is None
        wrong.close()
        monkeypatch.undo()
        assert [batch[0, 0] for batch in loader] == [0, 2, 4]
        assert {worker.pid for worker in loader.workers()} == pids
    assert caplog.text == ""


def _task_tail(shared: Shared, road: Wire) -> None:
    shared.put(PAGE + TASK_TAIL, 1)
    road.feeder.examine([])


def _task_head(shared: Shared, road: Wire) -> None:
    shared.put(PAGE + TASK_HEAD, 7)
    road.feeder.dispatch(1, TaskKind.TASK_NEXT, b"")


def _lost(shared: Shared, road: Wire) -> None:
    road.feeder.take(1)
    assert road.feeder.dispatch(1, TaskKind.TASK_NEXT, b"")
    assert road.channel.next_task() is not None
    shared.put(PAGE + SINCE, 0)
    for _ in range(5):
        road.feeder.examine([])


def _stack(shared: Shared, road: Wire) -> None:
    shared.put(2 * PAGE + RELEASED, 12345)
    road.feeder.dispatch(1, TaskKind.TASK_KEY, bytes(1000))


WORDS: dict[str, tuple[str, str, Callable[[Shared, Wire], Any]]] = {
    "header": (
        "the header of the arena is not as the trainer wrote it",
        "2 heaps of 2, .* run 9 of 1, stop 0",
        lambda shared, road: shared.put(RUN, 9, 4),
    ),
    "task tail": (
        "the counts of a task ring are not the trainer's",
        "1 bytes written of 64, 64 taken, in a ring of",
        _task_tail,
    ),
    "task head": (
        "the count of a task ring cannot be",
        "64 bytes written and 7 taken",
        _task_head,
    ),
    "lost": (
        "a worker has lost a task or its result",
        "1 tasks from batch 1 on, and 1 results so far",
        _lost,
    ),
    "stack": (
        "a slot or a stack of slots is out of bounds",
        "in heap 1 of 2",
        _stack,
    ),
    "dead heap": (
        "the heap of a dead worker is out of bounds",
        "heap 0: 99999999 slots of",
        lambda shared, road: (shared.put(PAGE + NSLOTS, 99999999), road.feeder.examine([0])),
    ),
}


@pytest.mark.parametrize("case", WORDS)
def test_check_of_shared_words_finds_damage_and_says_what_it_saw(case: str) -> None:
    check, seen, damage = WORDS[case]
    with wire() as road:
        damage(_sent(road), road)
        _is_damage(road, check, seen)


class _RingsOverwritten:
    """Its worker overwrites the rings of tasks, and finds that at its next task."""

    def __init__(self, done: int) -> None:
        self.done = done

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 1 and not os.pread(self.done, 1, 0):
            os.pwrite(self.done, b"1", 0)
            time.sleep(0.5)  # by then the ring holds all tasks: none is written over the damage
            at = Scribbler(random.Random(0), "tasks")
            ctypes.memset(at.base + at.areas, 0x5A, at.task_ring)
        return np.full(3, index)


def test_death_of_a_worker_that_found_damage_is_not_blamed_on_the_dataset(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = os.memfd_create("done")
    with reader.DataLoader(
        _RingsOverwritten(done), batch_size=1, num_workers=1, prefetch_factor=8, start_method="fork"
    ) as loader:
        found = [int(batch[0, 0]) for batch in loader]
    os.close(done)
    assert found == list(range(8))
    assert "ended by itself with exit code 1" in caplog.text
    assert (
        "a worker found what it shares with others out of bounds, or unlike its sum" in caplog.text
    )
    assert "os._exit" not in caplog.text


class _AlwaysOverwrites:
    """Its worker overwrites slots each time it makes sample 3."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            at = Scribbler(random.Random(0), "slots")
            at_slots = at.base + at.areas + at.task_ring + at.result_ring
            for place in range(at_slots, at_slots + 12 * 64, 64):
                ctypes.memset(place, 0x41, 4)  # its state
        return np.full(3, index)


def test_same_damage_at_the_same_batch_names_both_causes() -> None:
    with reader.DataLoader(
        _AlwaysOverwrites(), batch_size=2, num_workers=1, start_method="fork"
    ) as loader:
        epoch = iter(loader)
        assert next(epoch)[:, 0].tolist() == [0, 1]
        with pytest.raises(WorkerDied) as caught:
            next(epoch)
    notes = "\n".join(getattr(caught.value, "__notes__", []))
    assert caught.value.damage is not None, str(caught.value)
    assert "the same check failed each time" in notes
    assert "or the check in reader is wrong" in notes


def test_sums_of_this_file_are_those_of_the_core() -> None:
    with wire() as road:
        shared = _sent(road)
        before = shared.of_record("sum")
        shared.set_record("seq", 0)
        shared.set_slot("objects", 0, sealed=True)
        shared.set_table(2, 1, sealed=True)
        assert shared.of_record("sum") == before
        assert road.feeder.take(1).numpy_fields()[0].tolist() == [0, 0, 0]
        road.feeder.accept()
