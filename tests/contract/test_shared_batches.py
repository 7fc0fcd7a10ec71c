"""Batches that several workers make together, when the trainer waits and others are idle."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reader import CollateError, DataLoader, DatasetError, ReaderError, sample_rng
from reader.compat.torch import DataLoader as TorchLoader
from tests.datasets import Calls, digest_of, first_time

COUNT, SIZE, WORKERS = 96, 32, 4
SLOW_S = 0.002  # per sample; a batch of them is worth sharing


class Slow:
    """Samples that take a while: the value of `make(index)`, and the worker that made it."""

    has_pure_samples = True

    def __init__(self, make: Callable[[int], Any], count: int = COUNT, slow_from: int = 0) -> None:
        self.make = make
        self.count = count
        self.slow_from = slow_from

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index >= self.slow_from:
            time.sleep(SLOW_S)
        return {"value": self.make(index), "who": threading.get_native_id()}


def row(index: int) -> Any:
    return np.full((3, 5), index, np.float32)


def makers(batch: Any) -> int:
    """Return how many workers made the rows of a batch."""
    return len(set(np.asarray(batch["who"]).tolist()))


def opened(dataset: Any, **options: Any) -> Any:
    options = {"num_workers": WORKERS, "batch_size": SIZE, **options}
    return DataLoader(dataset, **options)


def values(batches: list[Any]) -> list[Any]:
    return [batch["value"] for batch in batches]


FORMS: dict[str, Callable[[int], Any]] = {
    "array": row,
    "tuple": lambda i: (np.full(7, i, np.uint8), i, np.int16(i), bool(i % 2)),
    "dict": lambda i: {"x": np.full((2, 2), i), "y": (np.full(1, i, bool), 0.5 * i)},
    "tensor": lambda i: torch.full((4,), i, dtype=torch.bfloat16),
    "strided": lambda i: np.arange(24, dtype=np.int32).reshape(4, 6).T[i % 6 :: -1][:1] + i,
    "large": lambda i: np.full(1 << 18, i, np.uint8),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("worker_type", ["process", "thread"])
def test_first_batch_is_made_by_all_workers(form: str, worker_type: str) -> None:
    dataset = Slow(FORMS[form])
    with opened(dataset, worker_type=worker_type, persistent_workers=True) as loader:
        for _ in range(3):
            batches = list(loader)
            assert makers(batches[0]) > 1
            with DataLoader(Calls(dataset.make, COUNT), batch_size=SIZE) as alone:
                assert digest_of(values(batches)) == digest_of(alone)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_started_workers_share_too(start_method: str) -> None:
    with opened(Slow(row), start_method=start_method, persistent_workers=True) as loader:
        list(loader)
        assert makers(next(iter(loader))) > 1


def test_straggler_is_helped_by_workers_that_wait() -> None:
    dataset = Slow(row, slow_from=COUNT - SIZE)
    with opened(dataset) as loader:
        batches = list(loader)
    assert makers(batches[-1]) > 1
    assert np.concatenate(values(batches))[:, 0, 0].tolist() == list(range(COUNT))


def test_guests_get_the_same_epoch() -> None:
    with opened(
        Slow(lambda i: sample_rng(i).normal(size=3)), seed=5, persistent_workers=True
    ) as one:
        found = [list(one) for _ in range(3)]
    dataset = Calls(lambda i: sample_rng(i).normal(size=3), COUNT)
    with DataLoader(dataset, batch_size=SIZE, seed=5) as alone:
        for batches in found:
            assert makers(batches[0]) > 1
            assert digest_of(values(batches)) == digest_of(alone)


def drawn_python(_: int) -> float:
    return random.random()


def drawn_numpy(_: int) -> Any:
    return np.random.standard_normal(3)


def drawn_torch(_: int) -> Any:
    return torch.rand(3)


def drawn_late(index: int) -> float:
    return random.random() if index % SIZE == SIZE - 2 else 0.0


def drawn_first(index: int) -> float:
    return random.random() if index % SIZE == 0 else 0.0


DRAWS = [drawn_python, drawn_numpy, drawn_torch, drawn_late, drawn_first]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", DRAWS, ids=lambda make: make.__name__)
def test_batch_that_draws_from_global_state_is_that_of_one_worker(
    make: Callable[[int], Any],
) -> None:
    def digests(dataset: Any, workers: int) -> list[str]:
        with opened(dataset, num_workers=workers, seed=7, persistent_workers=True) as loader:
            return [digest_of(values(list(loader))) for _ in range(3)]

    dataset = Slow(make)
    assert digests(dataset, 1) == digests(dataset, WORKERS) == digests(dataset, 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [drawn_torch, drawn_late], ids=lambda make: make.__name__)
def test_workers_own_random_numbers_are_those_of_pytorch(make: Callable[[int], Any]) -> None:
    """Their state is not seeded for each batch, and goes on over batches and epochs."""

    def digests(kind: Any) -> list[str]:
        torch.manual_seed(5)
        loader = kind(Slow(make), batch_size=SIZE, num_workers=2, persistent_workers=True)
        found = []
        for _ in range(2):
            next(iter(loader))  # an epoch that is left
            found.append(digest_of(values(list(loader))))
        return found

    assert digests(TorchLoader) == digests(TorchLoader) == digests(torch.utils.data.DataLoader)


def test_seeded_batches_of_samples_that_draw_nothing_are_shared() -> None:
    with TorchLoader(Slow(row), batch_size=SIZE, num_workers=2) as loader:
        assert makers(next(iter(loader))) > 1
    with opened(Slow(row), seed=3) as ours:
        assert makers(next(iter(ours))) > 1


NOT_SHARED: dict[str, dict[str, Any]] = {
    "collate_fn": {"collate_fn": lambda samples: {"who": [s["who"] for s in samples]}},
    "seeded threads": {"worker_type": "thread", "seed": 3},
    "any order": {"in_order": False},
    "one worker": {"num_workers": 1},
    "reseed": {"seed": 3, "reseed": lambda dataset, seed: None},
}


@pytest.mark.parametrize("make", [DataLoader, TorchLoader], ids=["own", "torch"])
def test_without_pure_samples_each_batch_is_made_by_one_worker(
    make: Any,
) -> None:
    class Silent(Slow):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return super().__getitem__(index)

    with make(Silent(row), batch_size=SIZE, num_workers=2) as loader:
        assert [makers(batch) for batch in loader] == [1] * (COUNT // SIZE)


@pytest.mark.parametrize("case", NOT_SHARED)
def test_batch_that_sharing_could_change_is_made_by_one_worker(case: str) -> None:
    with opened(Slow(row), **NOT_SHARED[case]) as loader:
        assert [makers(batch) for batch in loader] == [1] * (COUNT // SIZE)


def test_batch_with_objects_is_made_by_one_worker() -> None:
    with opened(Slow(lambda i: f"n{i}")) as loader:
        batches = list(loader)
    assert [makers(batch) for batch in batches] == [1] * (COUNT // SIZE)
    names = [name for batch in batches for name in batch["value"]]
    assert names == [f"n{i}" for i in range(COUNT)]


class Tracked(Slow):
    """Has a state that goes with each batch."""

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


def test_batches_of_a_dataset_with_a_state_are_made_by_one_worker() -> None:
    with opened(Tracked(row), snapshot_every_n_steps=1) as loader:
        assert [makers(batch) for batch in loader] == [1] * (COUNT // SIZE)


# ---- errors ----------------------------------------------------------------------------------


def failing(*indices: int) -> Callable[[int], Any]:
    def make(index: int) -> Any:
        if index in indices:
            raise KeyError(f"no picture {index}")
        return row(index)

    return make


def growing(*indices: int) -> Callable[[int], Any]:
    return lambda index: row(index)[: 2 if index in indices else 3]


def error_of(dataset: Any, **options: Any) -> tuple[list[Any], BaseException]:
    """Return the batches before an error, and the error."""
    found = []
    with opened(dataset, **options) as loader:
        batches = iter(loader)
        with pytest.raises((KeyError, CollateError, DatasetError)) as caught:
            found.extend(digest_of([batch["value"]]) for batch in batches)
    return found, caught.value


@pytest.mark.sampled(3)
@pytest.mark.parametrize("make", [failing, growing], ids=["failing", "growing"])
@pytest.mark.parametrize("indices", [(1,), (31,), (9, 10, 11, 12), (30, 3), (40, 33), (5, 38, 70)])
@pytest.mark.parametrize("worker_type", ["process", "thread"])
def test_first_bad_sample_is_reported_as_by_one_worker(
    make: Callable[..., Any], indices: tuple[int, ...], worker_type: str
) -> None:
    dataset = Slow(make(*indices))
    alone, its_error = error_of(dataset, num_workers=1, worker_type=worker_type)
    shared, error = error_of(dataset, worker_type=worker_type)
    assert shared == alone
    assert type(error) is type(its_error)
    assert str(error).partition("\n")[0] == str(its_error).partition("\n")[0]
    assert f"{min(indices)}" in str(error) + "".join(getattr(error, "__notes__", []))


def test_epoch_goes_on_after_a_bad_batch() -> None:
    with opened(Slow(failing(7)), persistent_workers=True) as loader:
        for _ in range(2):
            batches = iter(loader)
            with pytest.raises(KeyError):
                next(batches)
            rest = list(batches)
            assert np.concatenate(values(rest))[:, 0, 0].tolist() == list(range(SIZE, COUNT))


def test_unlike_samples_are_collated_by_the_rules_of_a_face() -> None:
    def make(index: int) -> Any:
        return index if index % SIZE < 20 else float(index)  # torch makes doubles of these

    with TorchLoader(Slow(make), batch_size=SIZE, num_workers=2) as loader:
        for number, batch in enumerate(loader):
            wanted = torch.utils.data.default_collate(
                [make(i) for i in range(number * SIZE, (number + 1) * SIZE)]
            )
            assert batch["value"].dtype == wanted.dtype
            assert torch.equal(batch["value"], wanted)


# ---- ends ------------------------------------------------------------------------------------


def test_shared_batch_can_be_left() -> None:
    with opened(Slow(row), persistent_workers=True) as loader:
        for _ in range(6):
            batches = iter(loader)
            leaves = threading.Timer(0.005, batches.close)
            leaves.start()
            with contextlib.suppress(ReaderError, StopIteration):
                next(batches)
            leaves.join()
        assert np.concatenate(values(list(loader)))[:, 0, 0].tolist() == list(range(COUNT))


class Deadly(Slow):
    """Kills the process that makes a sample, the first time."""

    has_pure_samples = True

    def __init__(self, at: int, once: str) -> None:
        super().__init__(row)
        self.at = at
        self.once = once

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.at and first_time(self.once):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.parametrize("at", [0, 1, 2, 5, 17, 30, 31, 50])
def test_sample_that_kills_its_worker_once_costs_nothing(at: int, tmp_path: Path) -> None:
    with opened(Deadly(at, str(tmp_path / "once")), persistent_workers=True) as loader:
        for _ in range(2):
            batches = list(loader)
            assert np.concatenate(values(batches))[:, 0, 0].tolist() == list(range(COUNT))


def test_workers_killed_in_shared_batches_lose_none() -> None:
    rng = random.Random(3)
    with opened(Slow(row, count=20 * SIZE), persistent_workers=True, worker_retries=1000) as loader:
        for _ in range(3):
            found = []
            batches = iter(loader)
            for number in range(20):
                if number % 3 == 0:
                    pid = rng.choice([worker.pid for worker in loader.workers()])
                    timer = threading.Timer(rng.random() * 0.03, _kill, (pid,))
                    timer.start()
                found.append(next(batches)["value"].copy())
                if number % 3 == 0:
                    timer.join()
            rest = list(batches)
            assert not rest
            assert np.concatenate(found)[:, 0, 0].tolist() == list(range(20 * SIZE))


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
