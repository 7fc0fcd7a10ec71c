"""Batches in private memory (use_shared_memory=False), and how far loaders fetch ahead (2.2)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, LoDTensor
from tests.datasets import Box, Calls, Rows, check_rows
from tests.streams import Marking, Parts, marks, order_of, values_of

WORKERS = pytest.mark.parametrize("workers", [1, 2])
FRAMEWORKS = pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])


def arena(loader: DataLoader) -> dict[str, int]:
    found: dict[str, int] = loader.stats()["arena"]
    return found


def address(leaf: Any) -> int:
    return int(leaf.data_ptr()) if hasattr(leaf, "data_ptr") else int(leaf.ctypes.data)


def is_shared(at: int) -> bool:
    """Whether an address lies in an arena."""
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[0].split("-") for line in maps if "reader-arena" in line]
    return any(int(low, 16) <= at < int(high, 16) for low, high in ranges)


# ---- private memory ----------------------------------------------------------------------------


@pytest.mark.sampled(2)
@FRAMEWORKS
@WORKERS
def test_02_kept_private_batches_hold_no_slot_and_stay_right(workers: int, framework: str) -> None:
    pytest.importorskip(framework)
    with DataLoader(
        Rows(64), batch_size=4, num_workers=workers, framework=framework,
        use_shared_memory=False, persistent_workers=True,
    ) as loader:  # fmt: skip
        kept = []
        for _ in range(3):
            for n, batch in enumerate(loader):
                check_rows(batch, range(4 * n, 4 * n + 4))
                assert not any(is_shared(address(leaf)) for leaf in batch)
                kept.append(batch)
                assert arena(loader)["held_slots"] <= 1
        assert arena(loader)["held_slots"] == 0
    for n, batch in enumerate(kept):
        n %= 16
        check_rows(batch, range(4 * n, 4 * n + 4))


@FRAMEWORKS
def test_02_shared_batches_lie_in_the_arena(framework: str) -> None:
    pytest.importorskip(framework)
    with DataLoader(Rows(8), batch_size=4, num_workers=1, framework=framework) as loader:
        for batch in loader:
            assert all(is_shared(address(leaf)) for leaf in batch)


@WORKERS
def test_02_private_batches_are_writable_and_aligned(workers: int) -> None:
    with DataLoader(Rows(32), batch_size=4, num_workers=workers, use_shared_memory=False) as loader:
        kept = list(loader)
        for batch in kept:
            assert batch[0].flags.writeable
            assert batch[0].flags.c_contiguous
            assert batch[0].flags.aligned
            batch[0][:] += 1000
        for n, batch in enumerate(kept):
            assert (batch[0] == np.arange(4 * n, 4 * n + 4)[:, None] + 1000).all()


def test_02_private_batches_outlive_their_loader() -> None:
    loader = DataLoader(Rows(32), batch_size=4, num_workers=2, use_shared_memory=False)
    kept = list(loader)
    loader.close()
    del loader
    for n, batch in enumerate(kept):
        check_rows(batch, range(4 * n, 4 * n + 4))


@WORKERS
def test_02_private_batches_keep_containers_types_and_objects(workers: int) -> None:
    import ml_dtypes

    def sample(i: int) -> Any:
        return {
            "box": Box(np.full(2, i, "u2"), i, f"n{i}"),
            "brain": np.array([i], ml_dtypes.bfloat16),
            "time": np.datetime64(i, "s"),
            "empty": np.zeros((0, 3)),
            "raw": b"x",
            "flag": bool(i % 2),
        }

    found = []
    for shared in (True, False):
        with DataLoader(
            Calls(sample, 6), batch_size=3, num_workers=workers, use_shared_memory=shared
        ) as loader:
            found.append(list(loader))
    for one, other in zip(*found, strict=True):
        assert type(one["box"]) is type(other["box"])
        assert one["box"].name == other["box"].name
        assert one["raw"] == other["raw"]
        for a, b in ((one[k], other[k]) for k in ("brain", "time", "empty", "flag")):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert (a == b).all()
        assert (one["box"].image == other["box"].image).all()


def test_02_private_ragged_batches_keep_their_lod() -> None:
    def collate(samples: list[Any]) -> Any:
        return LoDTensor(np.concatenate(samples), [[0, len(samples[0]), sum(map(len, samples))]])

    with DataLoader(
        Calls(lambda i: np.full(i + 1, i), 4), batch_size=2, collate_fn=collate, num_workers=1,
        use_shared_memory=False,
    ) as loader:  # fmt: skip
        found = list(loader)
        assert arena(loader)["held_slots"] == 0 if loader.stats()["arena"] else True
    assert [batch.lod for batch in found] == [[[0, 1, 3]], [[0, 3, 7]]]
    assert found[1].numpy().tolist() == [2, 2, 2, 3, 3, 3, 3]


def test_02_private_batches_of_streams_and_of_places() -> None:
    parts = [range(11), range(100, 106)]
    with DataLoader(Parts(parts), batch_size=4, num_workers=2, use_shared_memory=False) as loader:
        assert [values_of(batch) for batch in loader] == order_of(parts, 2, 4)
    with DataLoader(
        Rows(32), batch_size=4, num_workers=2, use_shared_memory=False, places=["cpu"] * 2,
        persistent_workers=True,
    ) as loader:  # fmt: skip
        kept = list(loader)
        assert [[b[1][0] for b in group] for group in kept] == [[0, 4], [8, 12], [16, 20], [24, 28]]
        assert not any(is_shared(address(leaf)) for g in kept for b in g for leaf in b)
        assert arena(loader)["held_slots"] == 0


def test_08_kept_private_batches_never_fill_the_arena() -> None:
    """64 batches of 2 MiB are kept, and 24 MiB of shared memory are enough."""
    with DataLoader(
        Calls(lambda i: np.full(2 << 20, i, np.uint8), 64), batch_size=1, num_workers=2,
        use_shared_memory=False, max_bytes=24 << 20,
    ) as loader:  # fmt: skip
        kept = list(loader)
    assert [int(batch[0, -1]) for batch in kept] == list(range(64))


def test_02_without_workers_nothing_is_copied_twice() -> None:
    """There is no other process: the batches already belong to the trainer."""
    with DataLoader(Rows(8), batch_size=4, use_shared_memory=False) as loader:
        for n, batch in enumerate(loader):
            check_rows(batch, range(4 * n, 4 * n + 4))


# ---- how far ahead -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "window"),
    [
        ({}, 0),
        ({"prefetch_factor": 4, "reader_buffer_size": 3}, 0),
        ({"num_workers": 1, "worker_type": "thread"}, 2),
        ({"num_workers": 1, "worker_type": "thread", "prefetch_factor": 4}, 4),
        ({"num_workers": 2}, 4),
        ({"num_workers": 2, "use_buffer_reader": False}, 4),
        ({"num_workers": 2, "reader_buffer_size": 9}, 4),
        ({"num_workers": 2, "prefetch_factor": 3}, 6),
        ({"num_workers": 2, "prefetch_factor": 1}, 2),
        ({"seed": 1}, 0),
    ],
    ids=str,
)
def test_as_many_batches_are_made_ahead_as_the_options_say(
    options: dict[str, Any], window: int, tmp_path: Path
) -> None:
    log = str(tmp_path / "log")
    with DataLoader(Marking(log, 400), batch_size=4, **options) as loader:
        batches = iter(loader)
        for taken in range(4):
            if taken:
                check_rows(next(batches), range(4 * taken - 4, 4 * taken))
            pool: Any = batches.epoch.backend  # type: ignore[attr-defined]
            never = threading.Event()
            while pool.feeder.is_busy():
                never.wait(0.005)
            assert marks(log) == 4 * (window + taken)


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_drawn_before_an_epoch_is_asked_for(workers: int, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    with DataLoader(Marking(log, 400), batch_size=4, num_workers=workers) as loader:
        assert len(loader) == 100
        assert marks(log) == 0
