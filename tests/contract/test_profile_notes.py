"""Notes of a profile about delivered batches: hand-over, copies, the last view."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import reader
from reader._core.wire.times_log import FIELDS, TimesLog
from reader.config import LoaderConfig
from reader.engine.engine import Engine
from reader.engine.face import EngineFace
from reader.loader import make_samplers
from reader.observe.face import ObservedFace
from reader.observe.trace import trace_of
from reader.observe.watch import RECORD_FIELDS
from reader.policy import BatchPolicy, Policy
from tools.late_device import LateDevice

KINDS = [(0, "process"), (2, "process"), (2, "thread")]
COUNT = 32


def loaded(workers: int, kind: str, **options: Any) -> Any:
    data = np.arange(COUNT * 16, dtype=np.float32).reshape(COUNT, 16)
    return reader.DataLoader(data, batch_size=4, num_workers=workers, worker_type=kind, **options)


@pytest.mark.parametrize(("workers", "kind"), KINDS)
def test_the_record_of_a_batch_says_when_it_was_handed_over_and_released(
    workers: int, kind: str
) -> None:
    began: list[int] = []
    with loaded(workers, kind) as loader, reader.profile(loader) as seen:
        for batch in loader:
            began.append(time.monotonic_ns())
            time.sleep(0.005)
            del batch
    records = seen.records
    assert records.dtype.names == tuple(name for name, _ in RECORD_FIELDS)
    assert (records["handed_ns"] >= records["delivered_ns"]).all()
    assert (records["handed_ns"] <= np.array(began)).all()
    assert (records["given_back_ns"] - records["handed_ns"] >= 5_000_000).all()
    assert (records["given_back_ns"][:-1] <= records["asked_ns"][1:]).all()
    assert (records["issued_ns"] == 0).all()
    assert (records["copied_ns"] == 0).all()
    assert (records["place"] == -1).all()
    assert seen.measured.held_s >= COUNT / 4 * 0.005
    assert seen.measured.copy_s == []
    assert "held" in seen.measured.rows
    held = [e for e in trace_of(seen._timeline())["traceEvents"] if e["name"] == "held"]
    assert [e["ph"] for e in held] == ["b", "e"] * (COUNT // 4)


def test_a_kept_batch_was_not_released() -> None:
    kept = []
    with loaded(2, "process") as loader, reader.profile(loader) as seen:
        for number, batch in enumerate(loader):
            if number == 3:
                kept.append(batch)
            del batch
    given_back = seen.records["given_back_ns"] > 0
    assert given_back.tolist() == [number != 3 for number in range(COUNT // 4)]
    assert kept[0].tolist() == np.arange(3 * 64, 4 * 64, dtype=np.float32).reshape(4, 16).tolist()
    kept.clear()  # nobody asks any more


def test_views_of_a_batch_hold_it() -> None:
    with loaded(2, "process") as loader, reader.profile(loader) as seen:
        batches = iter(loader)
        row = next(batches)[1]
        time.sleep(0.02)
        row = row.copy()
        for _ in batches:
            pass
    first = seen.records[0]
    assert first["given_back_ns"] - first["handed_ns"] >= 20_000_000
    assert row.tolist() == list(range(16, 32))


def test_foreign_memory_is_handed_over_and_never_released() -> None:
    with loaded(0, "process", collate_fn=list) as loader, reader.profile(loader) as seen:
        assert len(list(loader)) == COUNT // 4
    assert (seen.records["handed_ns"] >= seen.records["delivered_ns"]).all()
    assert (seen.records["given_back_ns"] == 0).all()
    assert seen.measured.held_s == 0.0
    assert "held" not in seen.measured.rows


@pytest.mark.parametrize(("workers", "kind"), KINDS)
def test_nothing_is_noted_without_a_profile(workers: int, kind: str) -> None:
    with loaded(workers, kind) as loader:
        with reader.profile(loader):
            assert len(list(loader)) == COUNT // 4
        assert len(list(loader)) == COUNT // 4
        times = loader._engine.times
        assert times.noted(0) == (b"", 0)
        with reader.profile(loader) as seen:
            assert len(list(loader)) == COUNT // 4
    assert (seen.records["handed_ns"] > 0).all()


def test_two_profiles_of_a_loader_see_the_same() -> None:
    with loaded(2, "process") as loader, reader.profile(loader) as outer:
        with reader.profile(loader) as inner:
            for batch in loader:
                del batch
        for batch in loader:
            del batch
    for name in ("handed_ns", "given_back_ns"):
        assert (outer.records[name] > 0).all()
        assert outer.records[name][: COUNT // 4].tolist() == inner.records[name].tolist()


def test_with_more_batches_than_notes_each_note_belongs_to_its_batch() -> None:
    with reader.DataLoader(np.zeros((6000, 2))) as loader, reader.profile(loader) as seen:
        for batch in loader:
            del batch
    last = seen.records[-400:-1]
    assert last["seq"].tolist() == list(range(5600, 5999))
    assert (last["handed_ns"] >= last["delivered_ns"]).all()
    assert (last["given_back_ns"][:-1] <= last["asked_ns"][1:]).all()


@pytest.mark.parametrize("places", [1, 2])
def test_each_copy_to_a_device_has_its_times_and_its_place(places: int) -> None:
    class Loader(EngineFace, ObservedFace):
        def __init__(self) -> None:
            data = np.zeros((COUNT, 16), np.float32)
            config = LoaderConfig.build(
                data, is_iterable=False, batch_size=4, num_workers=2, places=["cpu"] * places
            )
            policy = Policy(batch=BatchPolicy(make_adapter=lambda _: LateDevice()))
            self._engine = Engine(config, policy, *make_samplers(config))

    with Loader() as loader, reader.profile(loader) as seen:
        assert len(list(loader._engine)) == COUNT // 4 // places
    records = seen.records
    assert records["place"].tolist() == [number % places for number in range(COUNT // 4)]
    assert (records["issued_ns"] >= records["delivered_ns"]).all()
    assert (records["copied_ns"] >= records["issued_ns"]).sum() >= COUNT // 4 - 3 * places
    assert (records["handed_ns"] >= records["issued_ns"]).all()
    assert len(seen.measured.copy_s) == places
    assert ("copy" if places == 1 else "copy 1") in seen.measured.rows
    events = trace_of(seen._timeline())["traceEvents"]
    named = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {f"copies to place {place}" for place in range(places)} <= named
    assert {e["tid"] for e in events if e["name"] == "copy"} == {4 + p for p in range(places)}


def test_notes_are_kept_during_a_profile() -> None:
    times = TimesLog()
    assert times.ask() == 0
    assert times.ask() == 0
    times.let()
    assert times.noted(0) == (b"", 0)
    times.let()
    assert times.after(0) == (b"", 0)
    assert len(FIELDS) < len(RECORD_FIELDS)
