"""`num_workers="auto"` and `prefetch_factor="auto"` of PyTorch's face, of both loaders.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import json
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import reader.compat.torch as ours
from reader.engine.tuner import Choice
from reader.errors import ConfigError
from tests.datasets import Slow
from tests.peers.torch_samples import Augmented, Rows, Stream

pytestmark = pytest.mark.peer
AUTO: dict[str, Any] = {"num_workers": "auto", "prefetch_factor": "auto"}
LOADERS = pytest.mark.parametrize("kind", [ours.DataLoader, ours.StatefulDataLoader])


class Stateful(Rows):
    """A map-style dataset with a state."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def shown(batches: Any) -> list[Any]:
    return [[each.tolist() for each in batch] for batch in batches]


@LOADERS
@pytest.mark.parametrize("more", [{}, {"persistent_workers": True}, {"worker_type": "thread"}])
def test_batches_are_those_of_one_worker_in_their_order(kind: Any, more: dict[str, Any]) -> None:
    def made(**options: Any) -> Any:
        generator = torch.Generator().manual_seed(5)
        return kind(Rows(50), 4, True, generator=generator, **options, **more)

    fixed, found = made(num_workers=1), made(**AUTO)
    for _ in range(2):
        assert shown(found) == shown(fixed)


@LOADERS
def test_added_workers_stay_for_the_next_epoch(kind: Any) -> None:
    loader = kind(Slow(0.004, 480), 4, num_workers="auto")
    first = loader.chosen
    assert first["num_workers"] >= 2
    assert first["prefetch_factor"] == 2
    list(loader)
    found = loader.chosen
    assert first["num_workers"] < found["num_workers"] <= loader.num_workers
    batches = iter(loader)
    assert len(batches._workers) >= found["num_workers"]  # it begins with the numbers found before
    list(batches)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those may be more than the processors
        fixed = kind(Slow(0.004, 8), 4, **loader.chosen)
    assert fixed.num_workers == fixed.chosen["num_workers"]


@LOADERS
def test_attributes_are_upper_bounds_and_mean_auto_again(kind: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # they are no more than the processors at first
        loader = kind(Rows(8), 4, **AUTO)
        assert len(list(loader)) == 2
    assert isinstance(loader.num_workers, int)
    assert loader.num_workers >= 4
    assert loader.prefetch_factor == 8
    assert json.loads(json.dumps(loader.num_workers)) == loader.num_workers
    again = kind(Rows(8), 4, num_workers=loader.num_workers, prefetch_factor=loader.prefetch_factor)
    copied = pickle.loads(pickle.dumps(loader))
    for each in (again, copied):
        assert each.chosen["num_workers"] < each.num_workers
        assert each.chosen["prefetch_factor"] == 2
        assert len(list(each)) == 2


def test_numbers_that_are_set_later_take_effect() -> None:
    loader = ours.DataLoader(Rows(8), 4, num_workers="auto")
    assert len(list(loader)) == 2
    loader.num_workers = 1
    assert loader.chosen == {"num_workers": 1, "prefetch_factor": 2}
    batches = iter(loader)
    assert len(batches._workers) == 1
    assert len(list(batches)) == 2
    loader = ours.DataLoader(Rows(8), 4)
    assert len(list(ours.DataLoader(Rows(8), 4, **loader.chosen))) == 2


@LOADERS
@pytest.mark.parametrize(
    ("dataset", "options", "error", "text"),
    [
        (Stream(3), {"num_workers": "auto"}, ConfigError, "an iterable dataset has a part for"),
        (Stateful(8), {"num_workers": "auto"}, ConfigError, "a dataset with a state of its own"),
        (
            Stateful(8),
            {"num_workers": 2, "prefetch_factor": "auto"},
            ConfigError,
            "a dataset with a state of its own",
        ),
        (Rows(8), {"prefetch_factor": "auto"}, ValueError, "could only be specified in multiproc"),
        (Rows(8), {"num_workers": "most"}, TypeError, "num_workers must be an int"),
    ],
)
def test_invalid_arguments_are_refused_when_the_loader_is_made(
    kind: Any, dataset: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        kind(dataset, **options)


def changing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the number of workers at each reading."""
    rng = np.random.default_rng(3)

    def read(self: Any, now: Any) -> Choice:
        self.choice = Choice(int(rng.integers(1, 5)), 2)
        return self.choice

    monkeypatch.setattr("reader.engine.auto.Tuner.read", read)
    monkeypatch.setattr("reader.engine.auto.Tuner.is_due", lambda *_: True)
    monkeypatch.setattr("reader.engine.backends.pool.Pool.has_begun", lambda *_: True)
    monkeypatch.setattr("reader.engine.auto._BETWEEN_S", 0.0)


@LOADERS
def test_with_a_seed_augmentation_is_the_same_with_any_worker(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing(monkeypatch)
    options: dict[str, Any] = {"batch_size": 2, "shuffle": True, "seed": 4}
    plain = kind(Augmented(60), num_workers=1, **options)
    assert shown(kind(Augmented(60), num_workers="auto", **options)) == shown(plain)


@pytest.mark.parametrize("workers", ["auto", 2, 0])
def test_a_state_is_resumed_by_auto_and_by_any_number(
    workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing(monkeypatch)
    torch.manual_seed(7)
    loader = ours.StatefulDataLoader(Augmented(40), 2, True, num_workers="auto")
    batches = iter(loader)
    for _ in range(7):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    whole = shown(batches)
    again = ours.StatefulDataLoader(Augmented(40), 2, True, num_workers=workers)
    again.load_state_dict(state)
    assert shown(again) == whole


def test_each_worker_that_comes_later_is_initialised(tmp_path: Any) -> None:
    def note(worker: int) -> None:
        (tmp_path / str(worker)).touch()

    loader = ours.StatefulDataLoader(Slow(0.004, 480), 4, num_workers="auto", worker_init_fn=note)
    list(loader)
    assert len(list(tmp_path.iterdir())) >= loader.chosen["num_workers"] > 2


@LOADERS
def test_auto_may_be_set_on_an_existing_loader(kind: Any) -> None:
    loader = kind(Slow(0.004, 48), 4, num_workers=1)
    expected = shown(loader)
    loader.num_workers = loader.prefetch_factor = "auto"
    assert shown(loader) == expected
    assert loader.num_workers >= 4
    assert loader.chosen.keys() == AUTO.keys()
    loader = kind(Stream(8), 4, num_workers=1)
    loader.num_workers = "auto"
    with pytest.raises(ConfigError, match="an iterable dataset has a part for each worker"):
        iter(loader)


@LOADERS
@pytest.mark.parametrize("name", ["num_workers", "prefetch_factor"])
@pytest.mark.parametrize("value", ["many", 2.5])
def test_an_invalid_count_is_refused_as_argument_and_attribute(
    kind: Any, name: str, value: Any
) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be an int, got {value!r}"):
        kind(Rows(8), 4, **{"num_workers": 1, name: value})
    loader = kind(Rows(8), 4, num_workers=1)
    with pytest.raises(ConfigError, match=f"{name} must be an int, got {value!r}"):
        setattr(loader, name, value)
    assert len(list(loader)) == 2
