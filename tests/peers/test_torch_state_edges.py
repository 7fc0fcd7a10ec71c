"""States taken where an epoch ends or begins, with datasets that keep their own position.

Imports pytest, torch and torchdata. Holds nothing.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as data

from reader import StateError
from reader.compat.torch import StatefulDataLoader
from tests.peers.torch_parity import describe

pytestmark = [pytest.mark.peer, pytest.mark.timeout(120)]
EVERY = pytest.mark.parametrize("every", [1, 2, 0])


class Resuming(data.IterableDataset[int]):
    """Keeps its position until the next epoch begins, and begins only from a loaded state."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.at = 0
        self.loaded: int | None = None

    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        own = range(self.count)[info.id :: info.num_workers] if info else range(self.count)
        self.at, self.loaded = self.loaded or 0, None
        while self.at < len(own):
            self.at += 1
            yield own[self.at - 1]

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.loaded = state["at"]


class Late(data.IterableDataset[int]):
    """Has a state from its `__iter__` on, and is its own iterator."""

    at: int

    def __init__(self, count: int, is_itself: bool) -> None:
        self.count = count
        self.loaded = 0
        self.is_itself = is_itself
        self.iterated = 0

    def __iter__(self) -> Iterator[int]:
        self.iterated += 1
        self.at, self.loaded = self.loaded, 0
        return self if self.is_itself else iter(self.__next__, None)

    def __next__(self) -> int:
        if self.at >= self.count:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at, "iterated": self.iterated}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = self.loaded = state["at"]


class Counting(data.Dataset[Any]):
    """Counts its samples, and keeps torch's random state, as some datasets do."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.given = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, int]:
        self.given += 1
        return index, self.given

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given, "random": torch.get_rng_state().tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["given"]
        torch.set_rng_state(torch.tensor(state["random"], dtype=torch.uint8))


class Places(data.Sampler[Any]):
    """A sampler, or with `size` a batch sampler, that keeps its position as `Resuming` does."""

    def __init__(self, count: int, size: int = 0) -> None:
        self.items: list[Any] = list(range(count))
        if size:
            self.items = [self.items[at : at + size] for at in range(0, count, size)]
        self.at = 0
        self.loaded: int | None = None

    def __iter__(self) -> Iterator[Any]:
        self.at, self.loaded = self.loaded or 0, None
        while self.at < len(self.items):
            self.at += 1
            yield self.items[self.at - 1]

    def __len__(self) -> int:
        return len(self.items)

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.loaded = state["at"]


def in_second_epoch(make: Any, taken: int, breaks: bool = False) -> tuple[list[str], list[str]]:
    """Return the epoch after another one, and the epoch of a loader of its state."""
    loader = make()
    for _ in itertools.islice(loader, 3 if breaks else None):
        pass
    epoch = iter(loader)
    for _ in range(taken):
        next(epoch)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [describe(batch) for batch in epoch]
    again = make()
    again.load_state_dict(state)
    assert again.state_dict() == state
    return rest, [describe(batch) for batch in again]


@EVERY
@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}])
def test_stream_whose_state_is_of_the_epoch_before_begins_anew(
    options: dict[str, Any], every: int
) -> None:
    def make() -> Any:
        return StatefulDataLoader(Resuming(9), 2, snapshot_every_n_steps=every, **options)

    for taken in (0, 1, 3):
        expected, found = in_second_epoch(make, taken)
        assert found == expected, taken


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}])
@pytest.mark.parametrize("where", ["inside", "behind"])
def test_stream_whose_epoch_was_over_has_whole_epochs_again(
    where: str, options: dict[str, Any]
) -> None:
    loader = StatefulDataLoader(Resuming(9), 4, **options)
    whole = [describe(batch) for batch in loader]
    state = loader.state_dict()
    if where == "inside":
        for _, _ in zip(range(len(whole)), epoch := iter(loader), strict=False):
            state = loader.state_dict()
        del epoch
    again = StatefulDataLoader(Resuming(9), 4, **options)
    again.load_state_dict(state)
    found = [[describe(batch) for batch in again] for _ in range(2)]
    assert found == [[] if where == "inside" else whole, whole]


class Sticky(Resuming):
    """Begins every epoch where a state was loaded, as the streams of Hugging Face do."""

    def __iter__(self) -> Iterator[int]:
        loaded = self.loaded
        yield from super().__iter__()
        self.loaded = loaded


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}])
def test_stream_that_begins_where_it_was_loaded_is_not_empty_for_ever(
    options: dict[str, Any],
) -> None:
    loader = StatefulDataLoader(Sticky(9), 4, **options)
    whole = [describe(batch) for batch in loader]
    again = StatefulDataLoader(Sticky(9), 4, **options)
    again.load_state_dict(loader.state_dict())
    assert [[describe(batch) for batch in again] for _ in range(2)] == [whole, whole]


@pytest.mark.sampled(4)
@EVERY
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["sampler", "batch_sampler"])
def test_sampler_whose_state_is_of_the_epoch_before_begins_anew(
    kind: str, workers: int, every: int
) -> None:
    def make() -> Any:
        own: dict[str, Any] = {"num_workers": workers, "snapshot_every_n_steps": every}
        if kind == "sampler":
            return StatefulDataLoader(range(14), 3, sampler=Places(14), **own)
        return StatefulDataLoader(range(14), batch_sampler=Places(14, 3), **own)

    for taken, breaks in itertools.product((0, 1, 4), (False, True)):
        expected, found = in_second_epoch(make, taken, breaks)
        assert found == expected, (taken, breaks)


@EVERY
@pytest.mark.parametrize("workers", [0, 1])
def test_counts_of_a_dataset_are_kept_however_seldom_its_state_is_taken(
    workers: int, every: int
) -> None:
    def make() -> Any:
        own = {"num_workers": workers, "snapshot_every_n_steps": every}
        return StatefulDataLoader(Counting(9), None, **own)

    for taken in (0, 1, 4):
        expected, found = in_second_epoch(make, taken)
        assert found == expected, taken


@pytest.mark.parametrize("is_itself", [False, True])
def test_a_stream_has_a_state_as_soon_as_its_epoch_begins(is_itself: bool) -> None:
    def make() -> Any:
        return StatefulDataLoader(Late(5, is_itself), None)

    loader = make()
    before = loader.state_dict()
    iter(loader)
    state = loader.state_dict()
    own = state["fetcher_state"]["dataset_iter_state"] if is_itself else state["dataset_state"]
    assert own == {"at": 0, "iterated": 1}
    assert (state["dataset_state"] is None) == is_itself  # kept once
    for each in (before, state):
        again = make()
        again.load_state_dict(each)
        assert list(again) == list(range(5))


def test_states_of_a_dataset_leave_the_trainers_random_state_alone() -> None:
    def make() -> Any:
        return StatefulDataLoader(Counting(6), 2, shuffle=True)

    def epochs(loader: Any, count: int) -> list[str]:
        return [describe(list(loader)) for _ in range(count)]

    torch.manual_seed(0)
    loader = make()
    found = epochs(loader, 2)
    again = make()
    again.load_state_dict(loader.state_dict())
    found += epochs(again, 2)
    torch.manual_seed(0)
    assert found == epochs(make(), 4)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("dataset_state",), None, "sizes of 0 batches of a worker that made 2"),
        (("_snapshot", "_worker_snapshots", "worker_0", "part", "draws"), [[5, 5]], "of 5 batch"),
        (("fetcher_state", "dataset_iter_state"), {"at": 1}, "here has no load_state_dict"),
    ],
)
def test_damaged_state_of_a_stream_is_refused(path: tuple[str, ...], value: Any, text: str) -> None:
    loader = StatefulDataLoader(Resuming(9), 2)
    epoch = iter(loader)
    for _ in range(2):
        next(epoch)
    state = copy.deepcopy(loader.state_dict())
    functools.reduce(lambda at, key: at[key], path[:-1], state)[path[-1]] = value
    again = StatefulDataLoader(Resuming(9), 2)
    with pytest.raises(StateError, match=text):
        again.load_state_dict(state)
        next(iter(again))
