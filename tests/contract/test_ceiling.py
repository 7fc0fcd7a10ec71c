"""The ceiling of a step: measured on kept batches; the loader is not changed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import reader
from reader import ConfigError, ConfigTypeError


class Numbers:
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        return np.full(2, index, np.float32)


def loader_of(**options: Any) -> reader.DataLoader[Any, Any]:
    return reader.DataLoader(Numbers(), batch_size=4, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_step_gets_the_same_kept_batches_repeatedly(workers: int) -> None:
    seen: list[int] = []
    with loader_of(num_workers=workers) as loader:
        found = loader.ceiling(lambda batch: seen.append(int(batch[0][0])), batches=2, steps=6)
    assert seen == [0, 0, 4, 0, 4, 0, 4]  # the first one is not measured
    assert found.steps == 6
    assert found.steps_per_s == pytest.approx(1 / found.step_s)
    assert found.loader_s is None
    assert found.gain is None
    assert "the loader has not run yet" in str(found)


@pytest.mark.parametrize("workers", [0, 2])
def test_position_epoch_and_iterators_of_the_loader_stay(workers: int) -> None:
    with loader_of(num_workers=workers, shuffle=True, seed=3) as loader:
        whole = [int(batch[0][0]) for batch in loader]
        loader.set_epoch(0)
        batches = iter(loader)
        begun = [int(next(batches)[0][0]) for _ in range(3)]
        state = loader.state_dict()
        drawn = random.getstate()
        found = loader.ceiling(lambda batch: None, steps=1)
        assert random.getstate() == drawn
        assert loader.state_dict() == state
        assert loader.epoch == 1
        rest = [int(batch[0][0]) for batch in batches]
    assert begun + rest == whole
    assert found.gain is not None
    assert found.gain >= 1
    assert "with the loader" in str(found)


def test_an_epoch_of_one_batch_is_enough() -> None:
    seen = []
    with reader.DataLoader([1, 2], batch_size=2) as loader:
        assert loader.ceiling(seen.append, batches=9, steps=3).steps == 3
    assert len(seen) == 4


def test_an_error_of_the_step_ends_it() -> None:
    def fail(batch: Any) -> None:
        raise ZeroDivisionError

    with loader_of(num_workers=2) as loader, pytest.raises(ZeroDivisionError):
        loader.ceiling(fail)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": 0}, "batches must be an int of 1 or more, got 0"),
        ({"steps": 0}, "steps must be an int of 1 or more, got 0"),
        ({"seconds": 0}, "seconds must be a number above 0 and below 1e6, got 0"),
        ({"seconds": float("nan")}, "got nan"),
        ({"seconds": "3"}, "got '3'"),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with loader_of() as loader, pytest.raises(ConfigError, match=message):
        loader.ceiling(lambda batch: None, **options)


def test_a_step_that_cannot_be_called_is_refused() -> None:
    with loader_of() as loader, pytest.raises(ConfigTypeError, match="takes a function of a batch"):
        loader.ceiling(5)  # type: ignore[arg-type]


def test_a_loader_without_a_batch_is_refused() -> None:
    with reader.DataLoader([]) as loader, pytest.raises(ConfigError, match="the loader gave none"):
        loader.ceiling(lambda batch: None)
