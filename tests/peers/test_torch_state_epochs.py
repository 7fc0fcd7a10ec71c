"""A resumed run equals the uninterrupted one: in the rest of this epoch and in the next.

Imports pytest, torch and the torch face. Nothing is seeded by hand after a resume; the resumed
program's own random state is another one each time.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as data

from reader import StateError
from reader.compat.torch import DataLoader, StatefulDataLoader

pytestmark = [pytest.mark.peer, pytest.mark.timeout(120)]
WORKERS = pytest.mark.parametrize("workers", [0, 2])
EVERY = pytest.mark.parametrize("every", [1, 3])
Make = Callable[[], Any]


class Draws(data.Dataset[Any]):
    """Draws a number for each sample."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(1).item()


class DrawsAndTells(Draws):
    """Its state is that of torch's global generator."""

    def state_dict(self) -> dict[str, Any]:
        return {"random": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(state["random"])


class Stream(data.IterableDataset[Any]):
    """Draws each item, and has torch's global generator in its state."""

    at = 0

    def __iter__(self) -> Iterator[Any]:
        while self.at < 5:
            self.at += 1
            yield self.at, torch.randint(0, 1 << 20, (1,)).item()
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "random": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]
        torch.set_rng_state(state["random"])


def as_list(samples: list[Any]) -> list[Any]:
    return list(map(tuple, samples))


def check(make: Make, points: list[tuple[int, int | None]], disturb: bool = False) -> None:
    """Compare resumes at (epoch, batch; None: its end) with an uninterrupted run."""

    def epochs(loader: Any, count: int) -> list[Any]:
        found = []
        for _ in range(count):
            found.append(list(loader))
            if disturb:
                torch.rand(7)  # what a training draws
        return found

    torch.manual_seed(11)
    whole = epochs(make(), 4)
    for epoch, taken in points:
        torch.manual_seed(11)
        loader = make()
        epochs(loader, epoch)
        batches = iter(loader)
        assert len(list(itertools.islice(batches, taken))) in (taken, len(whole[0]))
        state = copy.deepcopy(loader.state_dict())
        del batches
        torch.manual_seed(99)
        again = make()
        again.load_state_dict(state)
        rest = [] if taken is None else [whole[epoch][taken:]]
        assert epochs(again, 2) == [*rest, *whole[epoch + 1 :]][:2], (epoch, taken)


POINTS: list[tuple[int, int | None]] = [(0, 0), (0, 2), (0, None), (1, 1), (1, None)]


@pytest.mark.sampled(3)
@WORKERS
@pytest.mark.parametrize("kind", [Draws, DrawsAndTells])
@pytest.mark.parametrize("seeded", [False, True])
def test_epochs_after_a_resumed_shuffle_are_those_of_the_straight_run(
    seeded: bool, kind: Any, workers: int
) -> None:
    def make() -> Any:
        own = torch.Generator().manual_seed(5) if seeded else None
        return StatefulDataLoader(
            kind(), 3, True, num_workers=workers, generator=own, collate_fn=as_list
        )

    check(make, POINTS, disturb=True)


@pytest.mark.sampled(4)
@EVERY
@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"persistent_workers": True}])
@pytest.mark.parametrize("kind", [DrawsAndTells, Stream])
def test_epochs_of_a_dataset_that_saves_torchs_random_state_go_on(
    kind: Any, options: dict[str, Any], every: int
) -> None:
    if "persistent_workers" in options:
        options = {**options, "num_workers": 1}

    def make() -> Any:
        return StatefulDataLoader(
            kind(), 2, snapshot_every_n_steps=every, collate_fn=as_list, **options
        )

    check(make, POINTS)


@WORKERS
def test_generator_that_only_seeds_workers_is_part_of_the_state(workers: int) -> None:
    def make() -> Any:
        own = torch.Generator().manual_seed(5)
        return StatefulDataLoader(
            Stream(), 2, num_workers=workers, generator=own, collate_fn=as_list
        )

    check(make, [(0, 1), (0, None), (1, None)])
    loader, again = make(), make()
    list(loader)
    again.load_state_dict(loader.state_dict())
    list(loader)
    list(again)
    assert torch.equal(loader.generator.get_state(), again.generator.get_state())


@WORKERS
def test_state_from_before_the_first_epoch_decides_it(workers: int) -> None:
    torch.manual_seed(3)
    loader = StatefulDataLoader(range(9), 2, shuffle=True, num_workers=workers)
    state = json.loads(json.dumps(loader.state_dict()))
    torch.manual_seed(4)
    again = StatefulDataLoader(range(9), 2, shuffle=True, num_workers=workers)
    again.load_state_dict(state)
    torch.manual_seed(5)
    assert [each.tolist() for each in again] == [each.tolist() for each in loader]


@WORKERS
def test_first_epoch_and_the_random_state_after_all_are_those_of_data_loader(workers: int) -> None:
    found = []
    for kind in (DataLoader, StatefulDataLoader):
        torch.manual_seed(3)
        loader = kind(range(9), 2, shuffle=True, num_workers=workers)
        first = [each.tolist() for each in loader]
        list(loader)
        found.append((first, torch.rand(1).item()))
    assert found[0] == found[1]


def test_copy_of_a_loader_draws_by_itself() -> None:
    loader = StatefulDataLoader(range(9), 9, shuffle=True)
    list(loader)
    other = copy.copy(loader)
    second = [each.tolist() for each in other]
    assert [each.tolist() for each in loader] == second


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("_generator", "AAAA", "must be a list of ints, since .* no generator, got 'AAAA'"),
        ("_generator", [1, -2, 3], "must be a list of ints, since the loader has no"),
        ("_format", 9, "has format 9 .int., and this version of reader reads format 2"),
    ],
)
def test_damaged_state_of_the_generator_is_refused(name: str, value: Any, text: str) -> None:
    state = StatefulDataLoader(range(9), shuffle=True).state_dict()
    state["_snapshot"]["_main_snapshot"][name] = value
    with pytest.raises(StateError, match=text):
        StatefulDataLoader(range(9), shuffle=True).load_state_dict(state)


def test_an_older_state_without_a_generator_is_accepted() -> None:
    loader = StatefulDataLoader(range(9), 2, shuffle=True)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    for name in ("_format", "_generator"):
        del state["_snapshot"]["_main_snapshot"][name]
    again = StatefulDataLoader(range(9), 2, shuffle=True)
    again.load_state_dict(state)
    assert [each.tolist() for each in again] == [each.tolist() for each in batches]


@pytest.mark.parametrize("shuffle", [False, True])
def test_state_with_a_generator_is_refused_without_one(shuffle: bool) -> None:
    own = torch.Generator().manual_seed(5)
    with_one = StatefulDataLoader(range(9), shuffle=shuffle, generator=own)
    without = StatefulDataLoader(range(9), shuffle=shuffle)
    with pytest.raises(StateError, match="the loader has no generator, got"):
        without.load_state_dict(with_one.state_dict())
    with pytest.raises(StateError, match="must be the state of a generator, as text, got"):
        with_one.load_state_dict(without.state_dict())


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 0), (0, 2)])
def test_number_of_workers_that_cannot_resume_is_refused_by_iter_and_not_before(
    before: int, after: int
) -> None:
    loader = StatefulDataLoader(Stream(), 2, num_workers=before, collate_fn=as_list)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    del batches
    again = StatefulDataLoader(Stream(), 2, num_workers=after, collate_fn=as_list)
    again.load_state_dict(state)
    for kind in (AssertionError, StateError):
        text = f"saved by {before or 1} workers.*this loader has {after or 1}"
        with pytest.raises(kind, match=text):
            iter(again)
    right = StatefulDataLoader(Stream(), 2, num_workers=after, collate_fn=as_list)
    again.load_state_dict(right.state_dict())
    assert len(list(again)) == 3 * max(1, after)


_AHEAD: dict[str, Any] = {"shuffle": True, "num_workers": 1, "persistent_workers": True}


def _epochs(loader: Any, count: int) -> list[Any]:
    return [[batch.tolist() for batch in loader] for _ in range(count)]


def test_state_after_the_last_batch_lacks_the_draws_of_a_prefetched_epoch() -> None:
    def make() -> StatefulDataLoader[Any]:
        return StatefulDataLoader(list(range(12)), 4, prefetch_next_epoch=True, **_AHEAD)

    torch.manual_seed(5)
    with make() as loader:
        whole = _epochs(loader, 4)
    torch.manual_seed(5)
    with make() as loader:
        assert _epochs(loader, 1) == whole[:1]
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(3)] == whole[1]
        state = json.loads(json.dumps(loader.state_dict()))
        with pytest.raises(StopIteration):
            next(batches)
        assert _epochs(loader, 2) == whole[2:]
    with make() as loader:
        loader.load_state_dict(state)
        assert _epochs(loader, 3) == [[], *whole[2:]]


def test_prefetched_and_dropped_epoch_has_drawn_nothing() -> None:
    found = []
    for ahead in (False, True):
        torch.manual_seed(5)
        kept = StatefulDataLoader(list(range(12)), 4, prefetch_next_epoch=ahead, **_AHEAD)
        with kept as loader:
            epochs = _epochs(loader, 2)
            loader.set_epoch(7)
            found.append(epochs + _epochs(loader, 2))
    assert found[0] == found[1]
