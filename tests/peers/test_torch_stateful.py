"""A saved epoch resumes exactly, repeatedly and from any position, or StateError says why not.

Imports pytest, torch and torchdata. Holds nothing.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as data
from torchdata.stateful_dataloader import StatefulDataLoader as Theirs
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

import reader
from reader import StateError
from reader.compat.torch import DataLoader, StatefulDataLoader
from tests.datasets import Indices
from tests.peers.torch_parity import describe
from tests.peers.torch_samples import Augmented, Rows

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata's
]
WORKERS = pytest.mark.parametrize("workers", [0, 2])
Make = Callable[[], Any]


class Walk(data.Sampler[int]):
    """A sampler whose iterator has a state."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Steps:
        return Steps(self.count)

    def __len__(self) -> int:
        return self.count


class Steps:
    """Counts down."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left

    def state_dict(self) -> dict[str, int]:
        return {"left": self.left}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.left = state["left"]


class Again(data.IterableDataset[int]):
    """Its own iterator, which begins anew when it is asked after its end."""

    at = 0

    def __iter__(self) -> Again:
        return self

    def __next__(self) -> int:
        if self.at == 13:
            self.at = 0
            raise StopIteration
        self.at += 1
        return self.at


class Noise(data.IterableDataset[float]):
    """What a worker draws at random."""

    def __iter__(self) -> Iterator[float]:
        yield from (torch.rand(1).item() for _ in range(9))


MAKES: dict[str, Callable[..., Any]] = {
    "shuffled": lambda **own: StatefulDataLoader(Augmented(40), 4, shuffle=True, **own),
    "in sequence": lambda **own: StatefulDataLoader(Augmented(40), 4, **own),
    "generator": lambda **own: StatefulDataLoader(
        Augmented(40), 4, shuffle=True, generator=torch.Generator().manual_seed(3), **own
    ),
    "seed": lambda **own: StatefulDataLoader(Augmented(40), 4, shuffle=True, seed=3, **own),
    "replayed": lambda **own: StatefulDataLoader(
        Augmented(40), 4, sampler=data.WeightedRandomSampler([1.0, 2.0] * 20, 40), **own
    ),
    "stateful": lambda **own: StatefulDataLoader(Indices(40), 4, sampler=Walk(40), **own),
    "unbatched": lambda **own: StatefulDataLoader(Indices(12), None, shuffle=True, **own),
    "own batches": lambda **own: StatefulDataLoader(
        Indices(40), batch_sampler=[[each, 39 - each] for each in range(10)], **own
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("every", [1, 3, 17, 0])
@pytest.mark.parametrize("name", MAKES)
def test_epoch_abandoned_repeatedly_is_whole(name: str, every: int) -> None:
    make = functools.partial(MAKES[name], snapshot_every_n_steps=every)
    torch.manual_seed(1)
    loader = make()
    straight = iter(loader)
    for _ in range(3):
        next(straight)
    state = json.loads(json.dumps(loader.state_dict()))
    for steps, workers in ((0, 2), (2, 0), (0, 0), (1, 1), (99, 2)):
        torch.manual_seed(steps)  # the state has all that an epoch needs
        loader = make(num_workers=workers)
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        epoch = iter(loader)
        found = [describe(batch) for batch in itertools.islice(epoch, steps)]
        assert found == [describe(batch) for batch in itertools.islice(straight, steps)]
        state = json.loads(json.dumps(loader.state_dict()))
    assert found


@WORKERS
@pytest.mark.parametrize("name", MAKES)
def test_state_before_the_first_batch_is_that_of_the_epoch_that_was_begun(
    name: str, workers: int
) -> None:
    torch.manual_seed(1)
    loader = MAKES[name](num_workers=workers)
    epoch = iter(loader)
    state = loader.state_dict()
    torch.manual_seed(2)
    other = MAKES[name](num_workers=workers)
    other.load_state_dict(state)
    assert [describe(batch) for batch in other] == [describe(batch) for batch in epoch]


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 1},
        {"num_workers": 1, "persistent_workers": True, "prefetch_next_epoch": True},
    ],
    ids=["inline", "worker", "ahead"],
)
def test_each_epoch_has_the_order_of_its_seed_and_number(
    kind: Any, options: dict[str, Any]
) -> None:
    with kind(Indices(40), 8, shuffle=True, seed=5, **options) as loader:
        found = [torch.cat(list(loader)).tolist() for _ in range(4)]
    sampler = reader.RandomSampler(range(40), seed=5)
    for epoch, order in enumerate(found):
        sampler.set_epoch(epoch)
        assert order == list(sampler)


@WORKERS
@pytest.mark.parametrize("kind", [data.DataLoader, Theirs, StatefulDataLoader, DataLoader])
def test_stream_that_would_begin_anew_ends_with_its_short_batch(kind: Any, workers: int) -> None:
    sizes = [len(batch) for batch in kind(Again(), 4, num_workers=workers)]
    assert sizes == [4, 4, 4, 1] if not workers else sorted(sizes) == [1, 1, *[4] * 6]


@pytest.mark.parametrize("persistent", [False, True])
def test_stream_whose_epoch_was_over_goes_on_with_new_random_numbers(persistent: bool) -> None:
    make = functools.partial(
        StatefulDataLoader, Noise(), 4, num_workers=1, persistent_workers=persistent
    )
    torch.manual_seed(3)
    loader = make()
    first = [describe(batch) for batch in loader]
    state, random = loader.state_dict(), torch.get_rng_state()
    second = [describe(batch) for batch in loader]
    assert first != second
    torch.set_rng_state(random)
    other = make()
    other.load_state_dict(state)
    assert [describe(batch) for batch in other] == second


def test_epoch_of_a_loaded_state_is_known_and_another_one_can_be_chosen() -> None:
    make = MAKES["seed"]
    loader = make()
    loader.set_epoch(4)
    next(iter(loader))
    state = loader.state_dict()
    other = make()
    other.load_state_dict(state)
    assert other.epoch == 4
    other.set_epoch(4)
    assert len(list(other)) == 9
    other.load_state_dict(state)
    other.set_epoch(6)
    assert len(list(other)) == 10
    assert other.epoch == 7


# ---- ranks -----------------------------------------------------------------------------------

RANKS: dict[str, Callable[..., Any]] = {
    "torch": data.DistributedSampler,
    "torchdata": StatefulDistributedSampler,
    "ours": reader.DistributedSampler,
}


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("length", [41, 64])
@pytest.mark.parametrize("kind", RANKS)
@pytest.mark.parametrize("face", ["stateful", "native"])
def test_other_numbers_of_ranks_lose_and_repeat_no_sample(
    face: str, kind: str, length: int, drop_last: bool
) -> None:
    def make(ranks: int, rank: int) -> Any:
        sampler = RANKS[kind](Indices(length), ranks, rank, seed=3, drop_last=drop_last)
        if face == "stateful":
            return StatefulDataLoader(Indices(length), 3, sampler=sampler)
        return reader.DataLoader(Indices(length), batch_size=3, sampler=sampler)

    found: list[int] = []
    state = None
    for ranks, steps in ((2, 3), (3, 0), (3, 1), (1, 1), (4, 99)):
        loaders = [make(ranks, rank) for rank in range(ranks)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
            for batch in itertools.islice(loader, steps):
                found += map(int, batch)
        state = loaders[-1].state_dict()
    left = len(found) - len(set(found))
    assert left <= (0 if drop_last else 3)
    assert len(set(found)) >= length - (3 if drop_last else 0)


# ---- states that do not fit ------------------------------------------------------------------


def _state(name: str, steps: int = 2) -> dict[str, Any]:
    loader = MAKES[name]()
    epoch = iter(loader)
    for _ in range(steps):
        next(epoch)
    found: dict[str, Any] = copy.deepcopy(loader.state_dict())
    return found


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        (one, other)
        for one in ("shuffled", "in sequence", "generator", "seed", "replayed")
        for other in ("shuffled", "in sequence", "generator", "seed", "replayed")
        if one != other
    ],
)
def test_state_of_another_order_is_refused_and_nothing_changes(saved: str, loaded: str) -> None:
    state = _state(saved)
    torch.manual_seed(4)
    loader, other = MAKES[loaded](), MAKES[loaded]()
    with pytest.raises(StateError):
        loader.load_state_dict(state)
    torch.manual_seed(5)
    found = [describe(batch) for batch in loader]
    torch.manual_seed(5)
    assert found == [describe(batch) for batch in other]


def _paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, each in value.items() if isinstance(value, dict) else ():
        yield (*path, key)
        if key not in ("random", "state", "iterator"):  # what is within is the user's
            yield from _paths(each, (*path, key))


@pytest.mark.parametrize("name", ["shuffled", "generator", "replayed", "stateful"])
@pytest.mark.parametrize("steps", [0, 2])
def test_incomplete_state_is_refused(name: str, steps: int) -> None:
    state = _state(name, steps)
    optional = {"batch_sampler.sampler", "drawn" if steps == 0 else ""}
    for path in _paths(state):
        damaged = copy.deepcopy(state)
        within = functools.reduce(lambda at, key: at[key], path[:-1], damaged)
        del within[path[-1]]
        if path[-1] not in optional and "data" not in path:  # states of 0.1.0 lack it
            with pytest.raises(StateError):
                MAKES[name]().load_state_dict(damaged)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("_steps_since_snapshot",), 1, "_steps_since_snapshot in the state must be 0, got 1"),
        (("_iterator_finished",), True, "finished epoch, whose count of batches must be 0, got 2"),
        (("_snapshot", "_snapshot_step"), 3, "_snapshot_step in the state must be 2, got 3"),
        (("_snapshot", "_main_snapshot", "_num_workers"), 4, "number of _worker_snapshots, got 4"),
        (("_snapshot", "_main_snapshot", "_base_seed"), -1, "must be a seed, got -1"),
        (("_snapshot", "_worker_snapshots", "worker_0", "worker_id"), 1, "worker_0 must be 0"),
        (("_snapshot", "_main_snapshot", "engine", "order", "drawn"), {}, "'seed' in the state"),
    ],
)
def test_damaged_state_is_refused_with_what_does_not_fit(
    path: tuple[str, ...], value: Any, text: str
) -> None:
    state = _state("shuffled")
    functools.reduce(lambda at, key: at[key], path[:-1], state)[path[-1]] = value
    with pytest.raises(StateError, match=text):
        MAKES["shuffled"]().load_state_dict(state)


def test_state_of_torchdata_is_refused() -> None:
    theirs = Theirs(Rows(12), 4, num_workers=1)
    next(epoch := iter(theirs))
    del epoch
    with pytest.raises(StateError, match="torchdata's own"):
        StatefulDataLoader(Rows(12), 4).load_state_dict(theirs.state_dict())
