"""A batch is the user's: never overwritten, held as long as it is viewed, and no longer (2.2)."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader
from reader._core.memory.arena import ledger
from tests.datasets import Box, Calls, Rows, check_rows
from tests.processes import wait_until

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def held(loader: DataLoader) -> int:
    """Return how many slots the trainer holds, by the loader's statistics."""
    return int(loader.stats()["arena"]["held_slots"])


@WORKERS
def test_02_1000_kept_batches_stay_right_and_their_memory_comes_back(workers: int) -> None:
    width = 4096  # 64 KiB a batch
    with DataLoader(
        Rows(4000, width), batch_size=4, num_workers=workers, persistent_workers=True
    ) as loader:
        kept = list(loader)
        assert len(kept) == 1000
        assert held(loader) == 1000
        for n, batch in enumerate(kept):
            check_rows(batch, range(4 * n, 4 * n + 4))
        full = loader.stats()["arena"]["owned_bytes"]
        assert full >= 1000 * 4 * width * 4
        del batch
        kept.clear()
        for batch in loader:
            del batch
        assert held(loader) == 0
        # the reader thread gives it back to the system later
        wait_until(lambda: loader.stats()["arena"]["owned_bytes"] < full // 10)


@WORKERS
def test_02_kept_slice_of_one_field_is_not_touched_by_10000_batches(workers: int) -> None:
    with DataLoader(
        Rows(10_000), batch_size=2, num_workers=workers, persistent_workers=True
    ) as loader:
        kept = next(iter(loader))[0][1:, 3:5]
        for _ in range(2):
            for batch in loader:
                assert batch[0][0, 0] == batch[1][0]
        assert kept.tolist() == [[1.0, 1.0]]
        del batch
        assert held(loader) <= 1
    assert kept.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    "options", [{"num_workers": 2}, {"num_workers": 1, "worker_type": "thread"}]
)
def test_02_kept_batches_of_closed_loaders_hold_no_descriptor(options: dict[str, Any]) -> None:
    def keep() -> Any:
        with DataLoader(Rows(64), batch_size=4, **options) as loader:
            return list(loader)

    keep()
    before = len(os.listdir("/proc/self/fd"))
    kept = [keep() for _ in range(4)]
    assert len(os.listdir("/proc/self/fd")) == before
    for batches in kept:
        for n, batch in enumerate(batches):
            check_rows(batch, range(4 * n, 4 * n + 4))
        assert ledger()["arenas"] >= 4
    del batches, batch


def _own(dataset: Any, options: dict[str, Any]) -> Any:
    return DataLoader(dataset, batch_size=2, **options)


def _torchs(dataset: Any, options: dict[str, Any]) -> Any:
    from reader.compat.torch import DataLoader

    return DataLoader(dataset, batch_size=2, **options)


class _Pairs:
    """A batch sampler with a replayed order, which refers to the dataset."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[list[int]]:
        for first in range(0, len(self.dataset), 2):
            yield [first, first + 1]


def _of_pairs(dataset: Any, options: dict[str, Any]) -> Any:
    return DataLoader(dataset, batch_sampler=_Pairs(dataset), **options)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [_own, _of_pairs, _torchs], ids=["own", "pairs", "torch"])
@pytest.mark.parametrize("taken", [0, 1, 9])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 1, "worker_type": "thread"}, {"num_workers": 1, "in_order": False}],
    ids=["inline", "thread", "process"],
)
def test_02_dataset_is_freed_with_loader_and_iterator_without_a_collection(
    options: dict[str, Any], taken: int, make: Callable[..., Any]
) -> None:
    dataset = Rows(6)
    alive = weakref.ref(dataset)
    loader = make(dataset, options)
    batches = iter(loader)
    gc.collect()
    gc.disable()
    try:
        for _ in range(taken):
            next(batches, None)
        del dataset, loader, batches
        wait_until(lambda: alive() is None)  # workers that end use it until then
    finally:
        gc.enable()


def test_02_memory_of_a_kept_batch_goes_back_when_its_loader_is_closed() -> None:
    def mapped_kib() -> int:
        text = Path("/proc/self/status").read_text()
        return int(text.split("RssShmem:")[1].split()[0])

    with DataLoader(Calls(lambda i: np.ones(32 << 20, np.uint8), 2), batch_size=None,
                    num_workers=1) as loader:  # fmt: skip
        first, second = loader
    before = mapped_kib()
    assert first[::4096].all()
    assert second[::4096].all()
    full = mapped_kib()
    assert full - before >= 60 << 10 or full >= 60 << 10
    del second
    assert full - mapped_kib() >= 30 << 10
    assert first[::4096].all()


VIEWS: dict[str, Callable[[Any], Any]] = {
    "array": lambda a: a,
    "slice": lambda a: a[1:2, ::2],
    "scalar row": lambda a: a[0],
    "transposed": lambda a: a.T,
    "reshaped": lambda a: a.reshape(-1),
    "other dtype": lambda a: a.view(np.uint8),
    "memoryview": lambda a: memoryview(a),
    "cast memoryview": lambda a: memoryview(a).cast("B"),
    "dlpack capsule": lambda a: a.__dlpack__(),
    "from_dlpack": np.from_dlpack,
    "flat iterator": lambda a: a.flat,
    "frombuffer": lambda a: np.frombuffer(a, np.float32),
    "asarray": np.asarray,
    "cycle": lambda a: cycle_of(a),
}


def cycle_of(value: Any) -> Any:
    made: list[Any] = [value]
    made.append(made)
    return made


@pytest.mark.sampled(2)
@pytest.mark.parametrize("view", VIEWS)
@WORKERS
def test_02_slot_is_held_exactly_as_long_as_anything_views_it(workers: int, view: str) -> None:
    with DataLoader(Rows(64), batch_size=4, num_workers=workers) as loader:
        batches = iter(loader)
        batch = next(batches)
        assert held(loader) == 1
        viewed = VIEWS[view](batch[0])
        del batch
        assert held(loader) == 1
        for n in range(1, 16):
            check_rows(next(batches), range(4 * n, 4 * n + 4))
            assert held(loader) == 1
        del viewed
        if view == "cycle":
            gc.collect()
        assert held(loader) == 0


@WORKERS
def test_02_all_fields_of_a_batch_share_one_slot_that_the_last_one_releases(workers: int) -> None:
    with DataLoader(
        Calls(lambda i: {"a": np.ones(3), "b": [np.zeros(2), i], "c": "text"}, 8),
        batch_size=4,
        num_workers=workers,
    ) as loader:
        batches = iter(loader)
        batch = next(batches)
        a, (b, i) = batch["a"], batch["b"]
        del batch
        for field in ("a", "b"):
            assert held(loader) == 1
            if field == "a":
                del a
            else:
                del b
        assert held(loader) == 1
        del i
        assert held(loader) == 0


@WORKERS
def test_02_batches_are_writable_and_writing_touches_no_other_batch(workers: int) -> None:
    with DataLoader(Rows(64), batch_size=4, num_workers=workers) as loader:
        kept = []
        for batch in loader:
            assert batch[0].flags.writeable
            assert batch[0].flags.c_contiguous
            assert batch[0].flags.aligned
            assert batch[0].ctypes.data % 64 == 0
            assert batch[1].ctypes.data % 64 == 0
            kept.append(batch)
            batch[0][:] += 1000
        for n, batch in enumerate(kept):
            assert (batch[0] == np.arange(4 * n, 4 * n + 4)[:, None] + 1000).all()


@WORKERS
def test_02_a_reused_slot_keeps_nothing_that_the_user_wrote(workers: int) -> None:
    with DataLoader(Rows(64), batch_size=4, num_workers=workers, persistent_workers=True) as loader:
        for _ in range(3):
            for n, batch in enumerate(loader):
                check_rows(batch, range(4 * n, 4 * n + 4))
                batch[0][:] = np.nan
                batch[1][:] = -1


@WORKERS
def test_02_slot_released_in_another_thread_is_used_again(workers: int) -> None:
    with DataLoader(Rows(64), batch_size=4, num_workers=workers, persistent_workers=True) as loader:
        box: list[Any] = []
        for _ in range(3):
            for n, batch in enumerate(loader):
                check_rows(batch, range(4 * n, 4 * n + 4))
                box.append(batch)
                del batch
                thread = threading.Thread(target=box.clear)
                thread.start()
                thread.join()
        assert held(loader) == 0
        assert loader.stats()["arena"]["free_slots"] < 64


@WORKERS
def test_02_steady_state_takes_no_more_memory_epoch_after_epoch(workers: int) -> None:
    with DataLoader(
        Rows(64, 1 << 14), batch_size=4, num_workers=workers, persistent_workers=True
    ) as loader:
        seen = []
        for _ in range(6):
            for batch in loader:
                del batch
            arena = loader.stats()["arena"]
            seen.append((arena["owned_bytes"], sum(arena[k] for k in arena if "slots" in k)))
        most_in_flight = 2 * max(1, workers) + 4 * max(1, workers)
        assert seen[-1][0] <= most_in_flight * (4 * 4 * (1 << 14) + 8192)
        assert seen[-1][1] <= 2 * most_in_flight + 8


@WORKERS
def test_02_ragged_batches_reuse_slots_too(workers: int) -> None:
    sizes = [1 + (37 * i) % 500 for i in range(200)]
    with DataLoader(
        Calls(lambda i: np.full((sizes[i], 64), i, np.int32), 200),
        batch_size=None,
        num_workers=workers,
        persistent_workers=True,
    ) as loader:
        for _ in range(3):
            for i, batch in enumerate(loader):
                assert batch.shape == (sizes[i], 64)
                assert (batch == i).all()
            del batch
        arena = loader.stats()["arena"]
        if workers == 0:
            assert arena is None  # batches that are not stacked lie in no arena
            return
        assert arena["held_slots"] == 0
        assert arena["owned_bytes"] < 8 << 20


@WORKERS
def test_02_copies_and_pickles_of_a_batch_own_their_bytes(workers: int) -> None:
    with DataLoader(Rows(16), batch_size=4, num_workers=workers) as loader:
        batches = iter(loader)
        batch = next(batches)
        copied, pickled = copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))
        del batch
        assert held(loader) == 0
        list(batches)
        check_rows(copied, range(4))
        check_rows(pickled, range(4))


@pytest.mark.parametrize("framework", ["torch", "paddle"])
@WORKERS
def test_02_slot_is_held_exactly_as_long_as_a_tensor_of_a_framework_views_it(
    workers: int, framework: str
) -> None:
    pytest.importorskip(framework)
    with DataLoader(Rows(64), batch_size=4, num_workers=workers, framework=framework) as loader:
        batches = iter(loader)
        rows, labels = next(batches)
        assert held(loader) == 1
        del labels
        view = rows[1:3]
        del rows
        assert held(loader) == 1
        if framework == "torch":
            array = view.numpy()
            del view
            assert held(loader) == 1
        else:
            array = np.asarray(view)
            del view
        for n in range(1, 16):
            check_rows(next(batches), range(4 * n, 4 * n + 4))
        assert array.tolist() == [[1.0] * 8, [2.0] * 8]
        del array
        assert held(loader) == 0


def test_02_torch_tensor_lies_in_the_arena_and_is_written_through() -> None:
    torch = pytest.importorskip("torch")
    with DataLoader(Rows(8), batch_size=4, num_workers=1, framework="torch") as loader:
        batches = iter(loader)
        rows = next(batches)[0]
        assert rows.data_ptr() == rows.numpy().ctypes.data
        assert rows.data_ptr() % 64 == 0
        rows[0, 0] = 77
        assert rows.numpy()[0, 0] == 77
        assert np.from_dlpack(rows)[0, 0] == 77
        kept = torch.utils.dlpack.to_dlpack(rows)
        del rows
        assert held(loader) == 1
        assert torch.utils.dlpack.from_dlpack(kept)[0, 0] == 77
        del kept
        assert held(loader) == 0


def test_02_paddle_tensor_lies_in_the_arena() -> None:
    paddle = pytest.importorskip("paddle")
    with DataLoader(Rows(8), batch_size=4, num_workers=1, framework="paddle") as loader:
        batches = iter(loader)
        rows = next(batches)[0]
        assert isinstance(rows, paddle.Tensor)
        assert rows.data_ptr() % 64 == 0
        with open("/proc/self/maps") as maps:
            ranges = [line.split()[0].split("-") for line in maps if "reader-arena" in line]
        assert any(int(a, 16) <= rows.data_ptr() < int(b, 16) for a, b in ranges)
        total = float((rows * 2).sum())
        assert total == 2 * 8 * (0 + 1 + 2 + 3)
        del rows
        assert held(loader) == 0


@WORKERS
def test_02_dataclass_batches_release_their_slot_with_the_last_field(workers: int) -> None:
    with DataLoader(
        Calls(lambda i: Box(np.full(4, i), i, str(i)), 8), batch_size=4, num_workers=workers
    ) as loader:
        batches = iter(loader)
        batch = next(batches)
        image = batch.image
        assert batch.name == ["0", "1", "2", "3"]
        del batch
        assert held(loader) == 1
        assert image[3].tolist() == [3] * 4
        del image
        assert held(loader) == 0


@WORKERS
def test_02_batch_of_objects_alone_holds_no_slot(workers: int) -> None:
    with DataLoader(Calls(str, 8), batch_size=4, num_workers=workers) as loader:
        batches = iter(loader)
        assert next(batches) == ["0", "1", "2", "3"]
        kept = next(batches)
        assert held(loader) == 0
        assert kept == ["4", "5", "6", "7"]
