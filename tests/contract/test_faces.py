"""What an engine does for whatever face composes it, beyond `reader.DataLoader` and its peers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reader import ConfigError, sample_rng
from reader.policy import ErrorPolicy, Policy
from tests.datasets import Rows
from tests.faces import Face


class Draws:
    """Samples drawn from `sample_rng`."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return sample_rng(index).integers(1 << 30)


class Refuses:
    """A dataset whose second sample raises."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index == 1:
            raise ValueError("sample 1 is damaged")
        return np.zeros(2)


def reworded(error: BaseException, worker: int, text: str) -> BaseException:
    assert "sample 1 is damaged" in text
    return RuntimeError(f"worker {worker} of toy failed")


def test_seed_of_a_face_repeats_its_samples_without_more_ado() -> None:
    def samples(seed: int) -> list[Any]:
        with Face(Policy(), Draws(), batch_size=4, seed=seed) as loader:
            return [batch.tolist() for batch in loader]

    assert samples(5) == samples(5) != samples(6)


def test_places_that_a_face_cannot_serve_are_refused_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="gpu:0"):
        Face(Policy(), Rows(4), places="gpu:0")


def test_note_of_a_face_stays_on_an_exception_that_it_rewords() -> None:
    policy = Policy(
        error_policy=ErrorPolicy(error_text="{type} in worker {worker}", reword=reworded)
    )
    with (
        Face(policy, Refuses(), num_workers=1) as loader,
        pytest.raises(RuntimeError, match="worker 0 of toy failed") as raised,
    ):
        list(loader)
    assert "ValueError in worker 0" in raised.value.__notes__


class Restarts:
    """An iterator that begins anew whenever `iter` is called on it."""

    def __iter__(self) -> Restarts:
        self._batches = iter([[0, 1], [2, 3], [4, 5]])
        return self

    def __next__(self) -> list[int]:
        return next(self._batches)


class Batches:
    """A batch sampler with such an iterator."""

    def __iter__(self) -> Restarts:
        return iter(Restarts())


@pytest.mark.parametrize("workers", [0, 2])
def test_iterator_of_a_batch_sampler_is_begun_once_in_an_epoch(workers: int) -> None:
    options: dict[str, Any] = {"batch_sampler": Batches(), "num_workers": workers}
    with Face(Policy(), np.arange(6), **options) as loader:
        for _ in range(2):
            assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
