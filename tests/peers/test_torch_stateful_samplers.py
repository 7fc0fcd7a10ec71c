"""torchdata's samplers with a state: draws and states are torchdata's, and they go on exactly.

Imports pytest, torch, torchdata and the torch face. Holds nothing.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
import torchdata.stateful_dataloader.sampler as theirs

import reader.compat.torch
from reader import StateError
from reader.compat.torch import StatefulDataLoader
from reader.compat.torch import sampler as ours
from tests.streams import Iterates

pytestmark = pytest.mark.peer
OPTIONS = pytest.mark.parametrize(
    "options", [{}, {"num_samples": 23}, {"replacement": True, "num_samples": 70}]
)


def random(module: Any, seed: int = 3, **options: Any) -> Any:
    return module.RandomSampler(range(9), generator=torch.Generator().manual_seed(seed), **options)


@OPTIONS
def test_random_sampler_draws_as_torchdatas_and_takes_its_states(options: dict[str, Any]) -> None:
    whole = list(random(theirs, **options))
    for saver, loader in itertools.product((ours, theirs), repeat=2):
        for taken in (0, 1, 9, 20, len(whole)):
            batches = iter(random(saver, **options))
            assert list(itertools.islice(batches, taken)) == whole[:taken]
            state = batches.state_dict()
            assert state["yielded"] == min(taken, len(whole))
            again = iter(random(loader, seed=4, **options))
            again.load_state_dict(copy.deepcopy(state))
            assert list(again) == whole[taken:]


def test_random_sampler_seeds_its_own_generator_as_torchdatas() -> None:
    found = []
    for module in (ours, theirs):
        torch.manual_seed(5)
        sampler: Any = module.RandomSampler(range(9))  # type: ignore[attr-defined]
        found.append([list(sampler), list(sampler), len(sampler), torch.rand(1).item()])
    assert found[0] == found[1]


@pytest.mark.parametrize("options", [{"replacement": 1}, {"num_samples": 0}, {"num_samples": 2.5}])
def test_random_sampler_refuses_what_torchdatas_refuses(options: dict[str, Any]) -> None:
    said = []
    for module in (ours, theirs):
        with pytest.raises((TypeError, ValueError)) as error:
            random(module, **options)
        said.append((type(error.value), str(error.value)))
    assert said[0] == said[1]


@pytest.mark.parametrize("kind", ["random", "plain", "distributed"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batch_sampler_has_torchdatas_batches_and_states(drop_last: bool, kind: str) -> None:
    def make(module: Any) -> Any:
        if kind == "random":
            sampler = random(module)
        elif kind == "plain":
            sampler = Iterates(range, 7)
        else:
            sampler = module.StatefulDistributedSampler(range(9), 2, 1)
        return module.BatchSampler(sampler, 2, drop_last)

    whole = list(make(theirs))
    for saver, loader in itertools.product((ours, theirs), repeat=2):
        for taken in (0, 1, len(whole)):
            batches = iter(make(saver))
            assert list(itertools.islice(batches, taken)) == whole[:taken]
            state = copy.deepcopy(batches.state_dict())
            again = iter(make(loader))
            again.load_state_dict(state)
            assert list(again) == whole[taken:], (saver, loader, taken)


def test_batch_sampler_refuses_a_state_that_its_sampler_cannot_take() -> None:
    made = iter(ours.BatchSampler(Iterates(range, 7), 2, False))
    for name in ("sampler_state", "sampler_iter_state"):
        with pytest.raises(StateError, match=f"the state has {name}, and .* no load_state_dict"):
            made.load_state_dict({"samples_yielded": 2, name: {}})  # type: ignore[attr-defined]


def test_distributed_sampler_has_torchdatas_shares_and_states() -> None:
    assert reader.compat.torch.StatefulDistributedSampler is ours.StatefulDistributedSampler
    for taken in (0, 1, 4):
        states, rests = [], []
        for module in (ours, theirs):
            made: Any = module.StatefulDistributedSampler(range(9), 2, 1, seed=3)  # type: ignore[attr-defined]
            made.set_epoch(2)
            list(itertools.islice(made, taken))
            states.append(made.state_dict())
            again: Any = module.StatefulDistributedSampler(range(9), 2, 1, seed=3)  # type: ignore[attr-defined]
            again.set_epoch(2)
            again.load_state_dict(states[-1])
            rests.append([list(again), list(again)])
        assert states[0] == states[1] == {"yielded": taken}
        assert rests[0] == rests[1]
        assert len(rests[0][0]) == 5 - taken


@pytest.mark.parametrize(
    ("state", "text"), [({}, "Invalid state_dict"), ({"yielded": -1}, "negative yielded value")]
)
def test_distributed_sampler_refuses_other_objects_than_states(state: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ours.StatefulDistributedSampler(range(9), 2, 1).load_state_dict(state)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["random", "batches", "distributed"])
def test_loader_with_them_goes_on_from_every_batch(kind: str, workers: int) -> None:
    def make() -> Any:
        if kind == "batches":
            batches = ours.BatchSampler(random(ours), 2, False)
            return StatefulDataLoader(range(9), batch_sampler=batches, num_workers=workers)
        sampler = random(ours)
        if kind == "distributed":
            sampler = ours.StatefulDistributedSampler(range(9), 1, 0)
        return StatefulDataLoader(range(9), 2, sampler=sampler, num_workers=workers)

    def epochs(loader: Any, count: int) -> Any:
        return [[each.tolist() for each in loader] for _ in range(count)]

    whole = epochs(make(), 2)
    for taken in (0, 2, 5):
        loader = make()
        batches = iter(loader)
        for _ in range(taken):
            next(batches)
        state = copy.deepcopy(loader.state_dict())
        del batches
        again = make()
        again.load_state_dict(state)
        assert epochs(again, 2) == [whole[0][taken:], whole[1]], taken
