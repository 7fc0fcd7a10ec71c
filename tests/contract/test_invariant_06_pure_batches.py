"""Batch n is a pure function of (dataset, seed, epoch, n), whoever makes it (2.6)."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, ReaderError, sample_rng
from tests.datasets import Augmented, Calls, TorchAugmented, digest_of

EPOCHS = 3


def digests(dataset: Any, seed: int, **options: Any) -> list[str]:
    with DataLoader(dataset, batch_size=4, shuffle=True, seed=seed, **options) as loader:
        return [digest_of(loader) for _ in range(EPOCHS)]


@pytest.fixture(scope="module")
def wanted() -> list[str]:
    return digests(Augmented(), 11, num_workers=0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.nightly), 2, 5])
def test_06_digests_are_equal_for_any_number_of_workers(
    wanted: list[str], workers: int, persistent: bool
) -> None:
    for prefetch_factor in (1, 3):
        assert wanted == digests(
            Augmented(),
            11,
            num_workers=workers,
            persistent_workers=persistent,
            prefetch_factor=prefetch_factor,
        )


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_06_digests_are_equal_for_each_start_method(wanted: list[str], start_method: str) -> None:
    assert wanted == digests(
        Augmented(), 11, num_workers=2, start_method=start_method, persistent_workers=True
    )


def test_06_seed_and_epoch_decide_the_digests(wanted: list[str]) -> None:
    assert len(set(wanted)) == EPOCHS
    assert not set(wanted) & set(digests(Augmented(), 12, num_workers=2))


def test_06_digests_are_equal_after_an_epoch_left_in_the_middle(
    wanted: list[str], cell: dict[str, Any]
) -> None:
    with DataLoader(
        Augmented(), batch_size=4, shuffle=True, seed=11, persistent_workers=True, **cell
    ) as loader:
        for n, _ in enumerate(loader):
            if n == 3:
                break
        assert [digest_of(loader) for _ in range(EPOCHS - 1)] == wanted[1:]


@pytest.mark.nightly
def test_06_torch_augmentation_is_equal_for_any_number_of_workers() -> None:
    pytest.importorskip("torch")
    first = digests(TorchAugmented(), 5, num_workers=0, framework="torch")
    for workers in (1, 2):
        assert first == digests(TorchAugmented(), 5, num_workers=workers, framework="torch")


@pytest.mark.nightly
def test_06_paddle_augmentation_is_equal_for_any_number_of_workers() -> None:
    paddle = pytest.importorskip("paddle")

    def sample(index: int) -> np.ndarray:
        return paddle.rand([3]).numpy()

    first = digests(Calls(sample, 16), 5, num_workers=0)
    assert first == digests(Calls(sample, 16), 5, num_workers=1)


def test_06_random_collate_fn_is_equal_for_any_number_of_workers() -> None:
    def collate(samples: list[Any]) -> Any:
        mixed = np.random.permutation(len(samples))
        return {"mixed": mixed, "keyed": sample_rng(samples[0]["index"]).random(2)}

    found = [digests(Augmented(), 3, num_workers=n, collate_fn=collate) for n in (0, 1, 2)]
    assert found[0] == found[1] == found[2]


def test_06_keyed_generator_is_the_same_whatever_the_batch_size(cell: dict[str, Any]) -> None:
    def sample(index: int) -> Any:
        return sample_rng(index).integers(1 << 40)

    found = []
    for batch_size in (1, 7, None):
        with DataLoader(Calls(sample, 21), batch_size=batch_size, seed=9, **cell) as loader:
            found.append(np.concatenate([np.atleast_1d(batch) for batch in loader]).tolist())
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 21


def test_06_without_a_seed_epochs_and_loaders_differ(cell: dict[str, Any]) -> None:
    def sample(index: int) -> Any:
        return np.random.random(), sample_rng(index).random()

    seen = set()
    for _ in range(2):
        with DataLoader(Calls(sample, 8), batch_size=8, **cell) as loader:
            for _ in range(2):
                seen.add(digest_of(loader))
    assert len(seen) == 4


def test_06_without_a_seed_workers_do_not_draw_the_same() -> None:
    def sample(index: int) -> Any:
        return np.random.random()

    with DataLoader(Calls(sample, 64), batch_size=1, num_workers=4) as loader:
        found = [batch.item() for batch in loader]
    assert len(set(found)) == 64


def test_06_order_of_keys_does_not_depend_on_the_worker() -> None:
    def sample(index: int) -> dict[str, int]:
        return {"a": index, "b": 1} if index // 4 % 2 else {"b": 1, "a": index}

    for workers in (0, 1, 2):
        with DataLoader(Calls(sample, 32), batch_size=4, num_workers=workers) as loader:
            found = [list(batch) for batch in loader]
        assert found == [["b", "a"], ["a", "b"]] * 4


def test_06_form_of_a_batch_does_not_depend_on_the_batch_before() -> None:
    def sample(index: int) -> Any:
        kinds: list[Any] = [1.5, 2, "text", np.float32(3), np.ones(2, "f4"), (1, None), True]
        return kinds[index // 4 % len(kinds)]

    found = []
    for workers in (0, 1, 2, 3):
        with DataLoader(Calls(sample, 56), batch_size=4, num_workers=workers) as loader:
            found.append(digest_of(loader))
    assert len(set(found)) == 1


def test_sample_rng_outside_of_a_loader_says_so() -> None:
    # In its own thread: a loader of another test may have fetched in this one.
    with ThreadPoolExecutor(1) as pool, pytest.raises(ReaderError, match="only while a DataLoader"):
        pool.submit(sample_rng, 0).result()


def test_06_switching_threads_at_every_step_changes_nothing(wanted: list[str]) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert digests(Augmented(), 11, num_workers=0) == wanted
        assert digests(Augmented(), 11, num_workers=2) == wanted
    finally:
        sys.setswitchinterval(before)
