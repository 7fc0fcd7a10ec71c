"""A profile of a real loop: the times of its batches, in order, and the slow sample."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import numpy as np
import pytest

import reader
from reader import ConfigTypeError, ReaderError
from reader._core.wire.times_log import STAGES
from reader.observe.watch import RECORD_FIELDS

SLOW = 21
ROAD = ["dispatched_ns", "begun_ns", "sent_ns", "arrived_ns", "ordered_ns", "delivered_ns"]


class Numbers:
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.3 if index == SLOW else 0.0005)
        return np.full(4, index, np.float32)


def as_list(samples: Any) -> Any:
    return [np.stack(samples)]


def loaded(workers: int, kind: Any, collate: Any = None, **options: Any) -> Any:
    return reader.DataLoader(
        Numbers(),
        batch_size=8,
        num_workers=workers,
        worker_type=kind,
        collate_fn=collate,
        **options,
    )


@pytest.mark.parametrize("collate", [None, as_list])
@pytest.mark.parametrize(("workers", "kind"), [(0, "process"), (2, "process"), (2, "thread")])
def test_each_batch_has_its_times_and_its_slowest_sample(
    workers: int, kind: str, collate: Any
) -> None:
    with loaded(workers, kind, collate) as loader, reader.profile(loader) as seen:
        assert len(list(loader)) == 8
    records = seen.records
    assert records["seq"].tolist() == list(range(8))
    for earlier, later in itertools.pairwise(ROAD):
        assert (records[earlier] > 0).all()
        assert (records[later] >= records[earlier]).all()
    assert (records["asked_ns"] <= records["delivered_ns"]).all()
    assert (records["fetch_ns"] <= records["sent_ns"] - records["begun_ns"]).all()
    assert (records["fetch_ns"] > 8 * 0.0005e9).all()
    assert records["rows"].tolist() == [8] * 8
    slow = seen.measured.slow_samples[0]
    assert (slow.index, slow.row, slow.batch) == (SLOW, SLOW % 8, SLOW // 8)
    assert slow.seconds >= 0.3
    assert seen.batches == 8
    assert seen.measured.seconds > 0.3
    told = json.loads(seen.to_json())
    assert told["verdict"]["bound_by"] == seen.bound_by
    assert set(told["measured"]["stages"]) | {"wait"} == {*STAGES, "store"}
    assert str(seen).startswith(seen.verdict.sentence)


class Quick:
    """Samples that take less than 5 us, but for one."""

    def __len__(self) -> int:
        return 600

    def __getitem__(self, index: int) -> Any:
        if index == 333:
            time.sleep(0.6)  # more than the start of workers takes
        return float(index)


class Named(Quick):
    def __getitem__(self, index: int) -> Any:
        return {"value": super().__getitem__(index), "name": str(index)}


class Stream(reader.IterableDataset):
    def __iter__(self) -> Any:
        return map(Quick().__getitem__, range(600))


QUICK: dict[str, Any] = {
    "stacked": (Quick, {"batch_size": 32}, 333),
    "objects": (Named, {"batch_size": 32}, 333),
    "collate_fn": (Quick, {"batch_size": 32, "collate_fn": list}, 333),
    "no batches": (Quick, {"batch_size": None}, 333),
    "tolerant": (Quick, {"batch_size": 32, "on_error": "skip"}, 333),
    "in its place": (Quick, {"batch_size": 32, "on_error": "replace"}, 333),
    "a stream": (Stream, {"batch_size": 32}, None),
    "a stream and collate_fn": (Stream, {"batch_size": 32, "collate_fn": list}, None),
}


@pytest.mark.sampled(4)
@pytest.mark.alone  # it measures the time of a sample
@pytest.mark.parametrize("way", QUICK)
@pytest.mark.parametrize(("workers", "kind"), [(0, "process"), (2, "process"), (2, "thread")])
def test_one_slow_sample_of_many_quick_ones_is_named(workers: int, kind: str, way: str) -> None:
    made, options, index = QUICK[way]
    loader = reader.DataLoader(made(), num_workers=workers, worker_type=kind, **options)
    with loader, reader.profile(loader) as seen:
        list(loader)
    slow = seen.measured.slow_samples[0]
    assert slow.index == index
    assert 0.15 < slow.seconds < 10
    if way != "no batches":
        assert slow.row == (333 if index or not workers else slow.batch // 2 * 32 + slow.row) % 32
    assert seen.bound_by in ("sample", "start"), seen.verdict
    if seen.bound_by == "sample":
        assert f"took {slow.seconds:.2f} s of {seen.measured.seconds:.2f}" in seen.verdict.sentence


@pytest.mark.parametrize("face", ["torch", "paddle", "gluon"])
@pytest.mark.parametrize("workers", [0, 2])
def test_one_slow_sample_of_many_quick_ones_is_named_in_each_face(face: str, workers: int) -> None:
    made = getattr(reader.compat, face).DataLoader
    loader = made(Quick(), batch_size=32, num_workers=workers)
    with reader.profile(loader) as seen:
        list(loader)
    loader.close()
    assert seen.measured.slow_samples[0].index == 333


def test_a_slow_sample_among_rows_of_guests_is_named() -> None:
    """Workers that make each other's rows: whoever waits for the last row names its sample."""

    class Pure(Quick):
        has_pure_samples = True

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.3 if index == 333 else 0.002)
            return float(index)

    loader = reader.DataLoader(Pure(), batch_size=64, num_workers=2)
    with loader, reader.profile(loader) as seen:
        list(loader)
    assert seen.measured.slow_samples[0].index == 333


def test_a_profile_continues_over_epochs_and_new_workers() -> None:
    with loaded(1, "process") as loader, reader.profile(loader) as seen:
        for _ in range(3):
            assert len(list(loader)) == 8
    assert seen.batches == 24
    assert seen.records["epoch"].tolist() == [0] * 8 + [1] * 8 + [2] * 8


def test_batches_out_of_order_have_times() -> None:
    with loaded(2, "process", in_order=False) as loader, reader.profile(loader) as seen:
        assert len(list(loader)) == 8
    assert sorted(seen.records["seq"].tolist()) == list(range(8))
    assert (seen.records["begun_ns"] > 0).all()


def test_the_last_batches_are_kept_and_all_are_counted() -> None:
    """The log holds 512 records; the profile keeps earlier ones if it reads them in time."""
    with reader.DataLoader(list(range(6000))) as loader, reader.profile(loader) as seen:
        assert len(list(loader)) == 6000
    assert seen.batches == 6000
    assert seen.records.dtype == np.dtype(list(RECORD_FIELDS))
    kept = seen.records["seq"].tolist()
    assert kept[-512:] == list(range(5488, 6000))
    assert kept == sorted(set(kept))


def faces() -> list[Any]:
    import reader.compat.gluon
    import reader.compat.paddle
    import reader.compat.torch

    compat = reader.compat
    return [reader.DataLoader, *(x.DataLoader for x in (compat.torch, compat.paddle, compat.gluon))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("as_method", [True, False])
def test_loaders_of_each_face_have_a_profile(which: int, workers: int, as_method: bool) -> None:
    loader = faces()[which](Numbers(), batch_size=8, num_workers=workers)
    with loader.profile() if as_method else reader.profile(loader) as seen:
        for _ in range(2):
            assert len(list(loader)) == 8
    loader.close()
    assert seen.batches == 16
    assert seen.records["epoch"].tolist() == [0] * 8 + [1] * 8
    assert (seen.records["handed_ns"] >= seen.records["delivered_ns"]).all()
    assert seen.measured.slow_samples[0].index == SLOW
    assert seen.measured.workers == workers
    assert seen.memory[-1].trainer > 0


def test_an_option_that_changes_during_a_profile_keeps_it_whole() -> None:
    import reader.compat.paddle

    loader = reader.compat.paddle.DataLoader(Numbers(), batch_size=8)
    with loader.profile() as seen:
        assert len(list(loader)) == 8
        loader.num_workers = 1
        assert len(list(loader)) == 8
    loader.close()
    assert seen.batches == 16


def test_a_closed_loader_can_be_profiled_again() -> None:
    loader = loaded(1, "process")
    assert len(list(loader)) == 8
    loader.close()
    with loader.profile() as seen:
        pass
    assert seen.batches == 0
    with loader, loader.profile() as seen:
        assert len(list(loader)) == 8
    assert seen.batches == 8


def test_a_profile_without_a_batch_says_so() -> None:
    with loaded(0, "process") as loader, reader.profile(loader) as seen:
        pass
    assert seen.batches == 0
    assert "No batch" in str(seen)


def test_the_time_of_a_sampler_of_the_user_is_seen() -> None:
    class Slow:
        def __iter__(self) -> Any:
            for number in range(8):
                time.sleep(0.02)
                yield [number]

        def __len__(self) -> int:
            return 8

    with (
        reader.DataLoader(list(range(8)), batch_sampler=Slow()) as loader,
        reader.profile(loader) as seen,
    ):
        assert len(list(loader)) == 8
    assert seen.measured.stages["draw"] >= 0.16


def test_foreign_loaders_are_refused() -> None:
    with pytest.raises(ConfigTypeError, match=r"takes a loader of this package, got 5"):
        reader.profile(5)
    with pytest.raises(ConfigTypeError, match=r"got the class DataLoader: make one"):
        reader.profile(reader.DataLoader)
    with (
        loaded(0, "process") as loader,
        pytest.raises(ConfigTypeError, match=r"got an iterator of one: pass the loader itself"),
    ):
        reader.profile(iter(loader))


def test_an_unfinished_profile_says_so() -> None:
    with loaded(0, "process") as loader:
        seen = reader.profile(loader)
        for look in (str, repr, lambda seen: seen.bound_by, lambda seen: seen.to_json()):
            with pytest.raises(ReaderError, match="nothing was measured yet: leave the with"):
                look(seen)


def test_a_profile_is_of_one_loop() -> None:
    with loaded(0, "process") as loader:
        seen = reader.profile(loader)
        with seen:
            pass
        with pytest.raises(ReaderError, match="make another one"), seen:
            pass


class Computes(Numbers):
    def __getitem__(self, index: int) -> Any:
        before = time.thread_time()
        while time.thread_time() - before < 0.002:
            pass
        return np.full(4, index, np.float32)


class Waits(Numbers):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return np.full(4, index, np.float32)


def test_each_loader_of_a_pool_has_its_own_computing_time() -> None:
    with reader.WorkerPool(2) as pool:
        computes, waits = (
            reader.DataLoader(each(), batch_size=8, pool=pool) for each in (Computes, Waits)
        )
        with computes.profile() as one, waits.profile() as other:
            for _ in range(3):
                for _ in zip(computes, waits):
                    pass
    computed_s, waited_s = one.measured.cpu_s or 0.0, other.measured.cpu_s or 0.0
    assert computed_s > 0.3
    assert waited_s < 0.5 * computed_s
    assert other.measured.others_cpu_s > waited_s


@pytest.mark.parametrize(
    ("workers", "factor", "kind"),
    [(2, 2, "process"), (2, 16, "process"), (16, 2, "thread"), (1, 64, "process")],
)
def test_times_of_all_batches_are_known(workers: int, factor: int, kind: Any) -> None:
    """For any number of waiting batches: those of one worker may come far apart, or all at once."""
    options: dict[str, Any] = {"num_workers": workers, "prefetch_factor": factor}
    samples = np.zeros((1024, 3))
    with reader.DataLoader(
        list(samples), batch_size=4, worker_type=kind, persistent_workers=True, **options
    ) as loader:
        for _ in range(2):
            with reader.profile(loader) as seen:
                assert sum(1 for _ in loader) == 256
            assert len(seen.records) == 256
            assert (seen.records["begun_ns"] > 0).all()
