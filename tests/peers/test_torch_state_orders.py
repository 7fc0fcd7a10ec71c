"""Samplers of PyTorch and of users: epochs after a resume equal the uninterrupted run's.

Imports pytest, torch and the torch face. Nothing is seeded by hand after a resume; the resumed
program's own random state is another one.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as data

from reader import StateError
from reader.compat.torch import DataLoader, StatefulDataLoader

pytestmark = [pytest.mark.peer, pytest.mark.timeout(120)]
COUNT = 9
WEIGHTS = [1.0, 2.0, 3.0] * 3


class Drawn(data.Sampler[int]):
    """Draws its order from torch's global generator when it is iterated over."""

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(COUNT).tolist())


class DrawnBitByBit(Drawn):
    """Draws each index when it is asked for it."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(COUNT):
            yield int(torch.randint(COUNT, (1,)))


class DrawnBatches(data.Sampler[Any]):
    """A batch sampler that draws each batch."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Any]:
        for _ in range(5):
            yield torch.randint(COUNT, (2,)).tolist()


def batched(sampler: Any) -> dict[str, Any]:
    return {"batch_sampler": data.BatchSampler(sampler, 2, False)}


def single(sampler: Any) -> dict[str, Any]:
    return {"batch_size": 2, "sampler": sampler}


def distributed() -> Any:
    return data.DistributedSampler(range(COUNT), 1, 0, seed=3)  # type: ignore[arg-type]


def weighted(seed: int | None = None) -> Any:
    own = None if seed is None else torch.Generator().manual_seed(seed)
    return data.WeightedRandomSampler(WEIGHTS, COUNT, generator=own)


ORDERS: dict[str, Any] = {
    "weighted": lambda: single(weighted()),
    "weighted, generator": lambda: single(weighted(3)),
    "subset": lambda: single(data.SubsetRandomSampler(range(COUNT))),
    "distributed": lambda: single(distributed()),
    "random, with replacement": lambda: single(data.RandomSampler(range(COUNT), True)),
    "random, more than all": lambda: single(data.RandomSampler(range(COUNT), num_samples=14)),
    "user's": lambda: single(Drawn()),
    "batches of weighted": lambda: batched(weighted()),
    "batches of distributed": lambda: batched(distributed()),
    "batches of random": lambda: batched(data.RandomSampler(range(COUNT))),
}
LATE: dict[str, Any] = {
    "bit by bit": lambda: single(DrawnBitByBit()),
    "user's batches": lambda: {"batch_sampler": DrawnBatches()},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "workers": {"num_workers": 2, "worker_type": "thread"},
    "persistent": {"num_workers": 2, "worker_type": "thread", "persistent_workers": True},
    "no snapshots": {"snapshot_every_n_steps": 0},
}


def choose(loader: Any, number: int) -> None:
    for each in (loader.sampler, getattr(loader.batch_sampler, "sampler", None)):
        if isinstance(each, data.DistributedSampler):
            each.set_epoch(number)


def epochs(loader: Any, numbers: range) -> list[Any]:
    found = []
    for number in numbers:
        choose(loader, number)
        found.append([batch.tolist() for batch in loader])
        torch.rand(5)  # what a training draws
    return found


def check(make: Any, options: dict[str, Any], points: list[tuple[int, int | None]]) -> None:
    def loader_of(seed: int) -> Any:
        torch.manual_seed(seed)
        return StatefulDataLoader(list(range(COUNT)), **make(), **options)

    with loader_of(1) as straight:
        whole = epochs(straight, range(4))
    for epoch, taken in points:
        with loader_of(1) as loader:
            epochs(loader, range(epoch))
            choose(loader, epoch)
            batches = iter(loader)
            assert len(list(itertools.islice(batches, taken))) in (taken, len(whole[0]))
            torch.rand(5)
            state = copy.deepcopy(loader.state_dict())
            del batches
        with loader_of(99) as again:
            again.load_state_dict(state)
            first = epoch if taken is not None else epoch + 1
            rest = [] if taken is None else [whole[epoch][taken:]]
            wanted = [*rest, *whole[epoch + 1 :]][:2]
            assert epochs(again, range(first, first + 2)) == wanted, (epoch, taken)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ORDERS)
def test_epochs_after_a_resume_are_those_of_the_straight_run(name: str, options: str) -> None:
    check(ORDERS[name], OPTIONS[options], [(0, 2), (0, None), (1, 2), (1, None)])


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", LATE)
def test_order_that_is_drawn_lazily_resumes_in_later_epochs(name: str, options: str) -> None:
    check(LATE[name], OPTIONS[options], [(0, None), (1, 2), (1, None)])


def test_epochs_of_worker_processes_go_on() -> None:
    check(ORDERS["weighted"], {"num_workers": 2, "persistent_workers": True}, [(1, 2)])


def test_first_epoch_is_drawn_as_data_loader_draws_it() -> None:
    for name, make in ORDERS.items():
        found = []
        for kind in (DataLoader, StatefulDataLoader):
            torch.manual_seed(1)
            loader = kind(list(range(COUNT)), **make())
            found.append(([batch.tolist() for batch in loader], torch.rand(1).item()))
        assert found[0] == found[1], name


def test_later_epochs_leave_the_trainers_random_state_to_the_training() -> None:
    loader: Any = StatefulDataLoader(list(range(COUNT)), **single(DrawnBitByBit()))
    epochs(loader, range(1))
    batches = iter(loader)
    state = torch.get_rng_state()
    list(batches)
    assert torch.equal(torch.get_rng_state(), state)


def test_damaged_note_of_a_seeded_order_is_refused() -> None:
    loader: Any = StatefulDataLoader(list(range(COUNT)), **ORDERS["weighted"](), **OPTIONS["none"])
    epochs(loader, range(1))
    next(iter(loader))
    state = copy.deepcopy(loader.state_dict())
    state["_snapshot"]["_main_snapshot"]["engine"]["order"]["seeded"] = 1
    with pytest.raises(StateError, match="seeded in the state must be True, got 1"):
        loader.load_state_dict(state)


def _drawing(way: str, workers: int) -> StatefulDataLoader:
    """A loader whose order comes from a generator that the program gives, always seeded alike."""
    generator = torch.Generator().manual_seed(3)
    items: Any = [float(n) for n in range(23)]
    if way == "shuffle":
        order: dict[str, Any] = {"shuffle": True, "generator": generator, "batch_size": 4}
    elif way == "sampler":
        sampler = torch.utils.data.RandomSampler(items, generator=generator)
        order = {"sampler": sampler, "batch_size": 4}
    else:
        sampler = torch.utils.data.RandomSampler(items, generator=generator)
        order = {"batch_sampler": torch.utils.data.BatchSampler(sampler, 4, False)}
    return StatefulDataLoader(items, num_workers=workers, **order)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("epochs_before", [0, 1])
@pytest.mark.parametrize("used", [0, 1, 2])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("way", ["shuffle", "sampler", "batch_sampler"])
def test_state_between_epochs_resumes_from_its_own_generator(
    way: str, workers: int, used: int, epochs_before: int
) -> None:
    loader = _drawing(way, workers)
    whole = [[batch.tolist() for batch in loader] for _ in range(3)]
    loader = _drawing(way, workers)
    for _ in range(epochs_before):
        list(loader)
    state = loader.state_dict()
    other = _drawing(way, workers)
    for _ in range(used):
        list(other)
    other.load_state_dict(state)
    got = [[batch.tolist() for batch in other] for _ in range(2)]
    assert got == whole[epochs_before : epochs_before + 2]
