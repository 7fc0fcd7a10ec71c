"""The state of a loader of an iterable dataset: each worker resumes its shard."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from reader import (
    CollateError,
    DataLoader,
    DatasetError,
    IterableDataset,
    StateError,
    mix,
    rebatch,
    shard,
    shuffle_buffer,
)
from reader import get_worker_info as worker_info
from reader.policy import DispatchPolicy, Policy, WorkerPolicy
from tests.datasets import OddError
from tests.faces import Face
from tests.streams import Numbers, NumbersKept, NumbersWalk, Parts, Sharded, piece

COUNT = 61


class Plain(IterableDataset[Any]):
    """Has no state."""

    def __iter__(self) -> Iterator[Any]:
        for value in shard(range(COUNT)):
            yield value, random.random()


class Walk:
    """An iterator with its position as state."""

    def __init__(self, dataset: WalkSet, at: int, step: int) -> None:
        self.dataset = dataset
        self.at = at
        self.step = step

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.at >= COUNT:
            raise StopIteration
        self.at += self.step
        self.dataset.seen += 1
        return self.at - self.step, random.random()

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class WalkSet(IterableDataset[Any]):
    """A dataset with a state whose iterator has one, too."""

    def __init__(self) -> None:
        self.seen = 0

    def __iter__(self) -> Iterator[Any]:
        info = worker_info()
        return Walk(self, 0, 1) if info is None else Walk(self, info.id, info.num_workers)

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


class Kept(IterableDataset[Any]):
    """A dataset that keeps its position itself, and begins anew after its end."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[Any]:
        info = worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        while first + self.at * step < COUNT:
            self.at += 1
            yield first + (self.at - 1) * step, random.random()
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Itself(Walk, IterableDataset[Any]):  # type: ignore[misc]
    """A dataset that is its own iterator."""

    def __init__(self) -> None:
        super().__init__(self, 0, 1)  # type: ignore[arg-type]
        self.seen = 0

    def __iter__(self) -> Iterator[Any]:
        info = worker_info()
        self.at, self.step = (0, 1) if info is None else (info.id, info.num_workers)
        return self


def values(batch: Any) -> Any:
    return [np.asarray(field).tolist() for field in batch]


def run(loader: DataLoader) -> tuple[list[Any], list[Any]]:
    """One epoch: its batches, and the states before each, after the last, and after it."""
    found, states = [], [loader.state_dict()]
    for batch in loader:
        found.append(values(batch))
        states.append(json.loads(json.dumps(loader.state_dict())))
    states.append(json.loads(json.dumps(loader.state_dict())))
    return found, states


# Where the arithmetic of states is done does not matter to it: inline and on threads, and each kind
# on processes. Threads share their dataset, so one that keeps its place itself has one of them.
PLACES = [
    *(
        (kind, workers, persistent, True, every)
        for kind in (Plain, WalkSet, Kept, Itself)
        for workers, persistent in ((0, False), (1, False), (3, False), (3, True))
        for every in (1, 3, 0)
        if workers < 3 or kind in (Plain, WalkSet)
    ),
    (Plain, 3, False, False, 3),
    (WalkSet, 3, True, False, 1),
    (Kept, 1, False, False, 3),
    *(
        (kind, 3, persistent, False, every)
        for kind in (Kept, Itself)
        for persistent, every in ((False, 1), (False, 3), (True, 0))
    ),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("kind", "workers", "persistent", "threads", "every"), PLACES)
def test_06_each_worker_resumes_where_it_stopped(
    kind: Any, workers: int, persistent: bool, threads: bool, every: int
) -> None:
    options: Any = {
        "batch_size": 4, "num_workers": workers, "persistent_workers": persistent,
        "worker_type": "thread" if threads else "process",
        "snapshot_every_n_steps": every, "seed": 5,
    }  # fmt: skip
    with DataLoader(kind(), **options) as loader:
        wanted, states = run(loader)
        later = [values(batch) for batch in loader]
    for at in (1, 7, len(wanted) - 1, len(wanted)):
        with DataLoader(kind(), **options) as loader:
            loader.load_state_dict(states[at])
            assert loader.state_dict() == states[at]
            assert [values(batch) for batch in loader] == wanted[at:]
            assert [values(batch) for batch in loader] == later
    with DataLoader(kind(), **options) as loader:
        loader.load_state_dict(states[-1])
        assert [values(batch) for batch in loader] == later


@pytest.mark.parametrize(("workers", "then"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("kind", [Plain, WalkSet, Kept])
def test_one_worker_and_none_have_the_same_position(kind: Any, workers: int, then: int) -> None:
    with DataLoader(kind(), batch_size=4, num_workers=workers, seed=5) as loader:
        wanted, states = run(loader)
    with DataLoader(kind(), batch_size=4, num_workers=then, seed=5) as loader:
        loader.load_state_dict(states[6])
        assert [values(batch) for batch in loader] == wanted[6:]


# ---- streams that wrap others ------------------------------------------------------------------

WRAPPERS: dict[str, Any] = {
    "mix, first": lambda kind: mix([kind(0, 40), kind(100, 130)], [2, 1]),
    "mix, last": lambda kind: mix([kind(0, 40), kind(100, 107), kind(200, 203)], [3, 2, 1], "last"),
    "mix, all": lambda kind: mix([kind(0, 40), kind(100, 107), kind(200, 203)], [3, 2, 1], "all"),
    "shuffled": lambda kind: shuffle_buffer(kind(0, 61), 3, seed=1),
    "shuffled, no seed": lambda kind: shuffle_buffer(kind(0, 61), 4),
    "shuffled, small": lambda kind: shuffle_buffer(kind(0, 61), 80, seed=1),
    "rebatched": lambda kind: rebatch(kind(0, 61, piece), 7),
    "rebatched, last dropped": lambda kind: rebatch(kind(0, 61, piece), 2, drop_last=True),
    "shuffled mix": lambda kind: shuffle_buffer(mix([kind(0, 40), kind(100, 130)], stop="all"), 5),
    "mixed buffers": lambda kind: mix([shuffle_buffer(kind(0, 30), 4), kind(100, 190)], [1, 2]),
}
WRAPPED = [
    *((kind, *place) for kind in (Numbers, NumbersWalk, NumbersKept) for place in (
        (0, False, True, 1), (0, False, True, 3), (1, True, True, 1), (1, True, True, 3),
    )),
    # the rest that `NumbersKept` leaves for the next epoch is in no state then
    *((kind, 3, True, True, every) for kind in (Numbers, NumbersWalk) for every in (1, 0)),
]  # fmt: skip


def fields_of(batch: Any) -> str:
    return json.dumps(batch, default=lambda field: np.asarray(field).tolist())


def check_resumes(make: Any, at: Any, options: dict[str, Any]) -> None:
    """Stop an epoch anywhere, and resume it in another loader."""
    with DataLoader(make(), **options) as loader:
        wanted, states = [], [loader.state_dict()]
        for batch in loader:
            wanted.append(fields_of(batch))
            states.append(json.loads(json.dumps(loader.state_dict())))
        between = json.loads(json.dumps(loader.state_dict()))
        later = list(map(fields_of, loader))
    assert len(wanted) > 6
    for place in at(len(wanted)):
        with DataLoader(make(), **options) as loader:
            loader.load_state_dict(states[place])
            assert list(map(fields_of, loader)) == wanted[place:]
            assert list(map(fields_of, loader)) == later
    with DataLoader(make(), **options) as loader:
        loader.load_state_dict(between)
        assert list(map(fields_of, loader)) == later


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("kind", "workers", "persistent", "threads", "every"), WRAPPED)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_06_a_stream_of_streams_resumes_where_it_stopped(
    wrapper: str, kind: Any, workers: int, persistent: bool, threads: bool, every: int
) -> None:
    options = {
        "batch_size": None if "rebatched" in wrapper else 4, "num_workers": workers,
        "persistent_workers": persistent, "worker_type": "thread" if threads else "process",
        "snapshot_every_n_steps": every, "seed": 5,
    }  # fmt: skip
    check_resumes(
        lambda: WRAPPERS[wrapper](kind),
        lambda count: (5, count - 1) if workers else {0, 2, 5, 6, count // 2, count - 1},
        options,
    )


@pytest.mark.parametrize("kind", [Numbers, NumbersWalk, NumbersKept])
def test_06_a_stream_of_streams_resumes_in_worker_processes(kind: Any) -> None:
    def make() -> Any:
        mixed = mix([kind(0, 40, piece), kind(40, 52, piece)], [2, 1], stop="last")
        return rebatch(shuffle_buffer(mixed, 6), 5)

    options = {"batch_size": None, "num_workers": 2, "persistent_workers": True, "seed": 3}
    check_resumes(make, lambda count: (2, count - 3), options)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_06_a_stream_of_streams_without_a_seed_has_the_same_samples_after_a_resume(
    wrapper: str,
) -> None:
    options = {"batch_size": None if "rebatched" in wrapper else 4}
    check_resumes(lambda: WRAPPERS[wrapper](NumbersWalk), lambda _: (1, 6), options)


@pytest.mark.parametrize(
    ("wrap", "most"),
    [
        (lambda source: mix([source]), 0),
        (lambda source: shuffle_buffer(source, 10), 50),
        (lambda source: rebatch(source, 4), 8),
    ],
    ids=["mix", "shuffle_buffer", "rebatch"],
)
def test_a_resume_far_in_a_stream_with_states_draws_few_samples_again(wrap: Any, most: int) -> None:
    def walk() -> NumbersWalk:
        return NumbersWalk(0, 1000, np.atleast_1d)

    with DataLoader(wrap(walk()), batch_size=None) as loader:
        wanted = [int(batch[0]) for batch in loader]
        batches = iter(loader)
        for _ in range(len(wanted) - 20):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
    assert len(json.dumps(state)) < 2000  # it has no samples
    source = walk()
    with DataLoader(wrap(source), batch_size=None) as loader:
        loader.load_state_dict(state)
        count = len(list(loader))
    assert count == 20
    rows = 4 if most == 8 else 1
    assert source.drawn <= count * rows + most


def noise(_: int) -> Any:
    return np.random.rand(3)


def test_draws_while_a_state_is_loaded_change_no_random_numbers_of_the_batch() -> None:
    def make() -> DataLoader:
        return DataLoader(rebatch(NumbersWalk(0, 12, noise), 3), batch_size=None, seed=4)

    wanted = [batch.tolist() for batch in make()]
    for place in range(1, 12):
        batches = iter(loader := make())
        for _ in range(place):
            next(batches)
        state = loader.state_dict()
        assert state["workers"][0]["state"]["iterator"]["checkpoint"] is not None
        loader = make()
        loader.load_state_dict(state)
        assert [batch.tolist() for batch in loader] == wanted[place:]


class Dealt(IterableDataset[int]):
    """Numbers that `shard` divides, of a sequence, a stream or in runs."""

    def __init__(self, count: int, kind: str, world: tuple[int, int] = (0, 1)) -> None:
        self.count = count
        self.kind = kind
        self.world = world

    def __iter__(self) -> Iterator[int]:
        items: Any = range(self.count)
        if self.kind == "stream":
            items = iter(items)
        rank, size = self.world
        return shard(items, rank=rank, world_size=size, contiguous=self.kind == "runs")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["sequence", "stream", "runs"])
@pytest.mark.parametrize("seed", range(3))
def test_01_any_number_of_workers_takes_the_rest(kind: str, seed: int) -> None:
    choose = random.Random(f"{kind} {seed}")
    count = choose.randint(40, 90)
    state: Any = None
    found: list[int] = []
    steps = []
    for _ in range(30):
        options: Any = {
            "num_workers": choose.choice([0, 1, 2, 3]), "batch_size": choose.choice([1, 3, 4, None])
        }  # fmt: skip
        most = choose.randint(0, 9)
        steps.append((options, most))
        with DataLoader(Dealt(count, kind), **options) as loader:
            if state is not None:
                loader.load_state_dict(state)
                assert loader.state_dict() == state
            batches = iter(loader)
            assert state is None or loader.state_dict()["batches"] == state["batches"]
            for _, batch in zip(range(most), batches, strict=False):
                found += np.atleast_1d(batch).tolist()
            else:
                state = json.loads(json.dumps(loader.state_dict()))
            if next(batches, None) is None:
                break
    assert sorted(found) == list(range(count)), steps


def test_01_the_rest_is_divided_among_another_number_of_ranks_and_workers() -> None:
    found: list[int] = []
    state: Any = None
    for world, workers in ((2, 1), (3, 2), (1, 0)):
        for rank in range(world):
            dataset = Dealt(300, "sequence", (rank, world))
            with DataLoader(dataset, batch_size=4, num_workers=workers) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                batches = iter(loader)
                for _, batch in zip(range(6 if world > 1 else 99), batches, strict=False):
                    found += batch.tolist()
                latest = loader.state_dict()
        state = latest  # of the last rank: it resumes all
    assert sorted(found) == list(range(300))


def test_other_ranks_with_as_many_workers_are_reported() -> None:
    loader = DataLoader(Dealt(40, "sequence", (0, 2)), batch_size=4)
    next(iter(loader))
    again = DataLoader(Dealt(40, "sequence", (0, 3)), batch_size=4)
    again.load_state_dict(loader.state_dict())
    with pytest.raises(StateError, match="over 2 ranks when the state was saved"):
        next(iter(again))


class Doubled(IterableDataset[int]):
    """Makes two samples of each item."""

    def __iter__(self) -> Iterator[int]:
        for value in shard(range(40)):
            yield from (value, -value)


class Held(IterableDataset[int]):
    """Holds items back."""

    def __iter__(self) -> Iterator[int]:
        items = shard(range(40))
        held = [next(items), next(items)]
        for value in items:
            held.append(value)
            yield held.pop(0)
        yield from held


class Chosen(IterableDataset[int]):
    """Leaves items out, after a while."""

    def __iter__(self) -> Iterator[int]:
        return (value for value in shard(range(40)) if value < 18 or value % 4)


class Alike:
    """Streams with as many items of `shard` as samples, but no sample per item."""

    @staticmethod
    def rebatched() -> Any:
        return rebatch(RowsOf33(), 32)

    @staticmethod
    def mixed() -> Any:
        return mix([Sharded(40), Parts([range(9)] * 2)], [100, 1])

    @staticmethod
    def shuffled() -> Any:
        return shuffle_buffer(Sharded(40), 3)


class RowsOf33(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return (np.full(33, value) for value in shard(range(40)))


@pytest.mark.parametrize("make", [Alike.rebatched, Alike.mixed, Alike.shuffled])
def test_other_workers_are_refused_by_streams_that_wrap_streams(
    make: Any,
) -> None:
    with DataLoader(make(), batch_size=None, num_workers=2) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with pytest.raises(StateError, match="each at a position of its own"):
        DataLoader(make(), batch_size=None).load_state_dict(state)


@pytest.mark.parametrize("kind", [Doubled, Held, Chosen, WalkSet])
def test_other_workers_are_refused_if_the_rest_is_not_known(kind: Any) -> None:
    with DataLoader(kind(), batch_size=4, num_workers=2) as loader:
        batches = iter(loader)
        for _ in range(6):
            next(batches)
        state = loader.state_dict()
    loader = DataLoader(kind(), batch_size=4)
    with pytest.raises(
        StateError, match=r"2 workers, each at a position of its own, and this loader has 1"
    ):
        loader.load_state_dict(state)
    assert loader.state_dict()["batches"] == 0


def test_items_that_were_divided_must_be_divided_again() -> None:
    with DataLoader(Dealt(40, "sequence"), batch_size=4, num_workers=2) as loader:
        next(iter(loader))
        state = loader.state_dict()
    del state["fit"]["data"]  # another dataset is refused before
    again = DataLoader(Parts([range(40)]), batch_size=4)
    again.load_state_dict(state)
    with pytest.raises(StateError, match="its __iter__ does not call"):
        next(iter(again))


# ---- errors ------------------------------------------------------------------------------------


class Odd:
    """An iterator that raises at some values and can go on."""

    def __init__(self, bad: tuple[int, ...]) -> None:
        self.at = -1
        self.bad = bad

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.at += 1
        if self.at >= 30:
            raise StopIteration
        if self.at in self.bad:
            raise OddError("file", line=self.at)
        return np.zeros(2 if self.at == 13 else 1), self.at


class OddSet(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(Odd((6, 8, 21)))


class Dying(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from Odd((6,))


class OddWalk(Odd):
    """Says where it is."""

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class OddWalkSet(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(OddWalk((1, 6, 7, 8, 21, 29)))


ODD: dict[str, Any] = {
    "odd": OddSet,
    "dying": Dying,
    "shuffled": lambda: shuffle_buffer(OddSet(), 3, seed=1),
    "shuffled walk": lambda: shuffle_buffer(OddWalkSet(), 3, seed=1),
    "shuffled dying": lambda: shuffle_buffer(Dying(), 3, seed=1),
    "mixed walks": lambda: mix([OddWalkSet(), OddWalkSet()], [2, 1], stop="all"),
    "mixed dying": lambda: mix([Dying(), OddWalkSet()], stop="last"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ODD.values(), ids=ODD)
def test_errors_keep_their_places_after_a_resume(kind: Any, workers: int) -> None:
    def taken(loader: DataLoader) -> tuple[list[Any], list[Any]]:
        batches, found, states = iter(loader), [], []
        for _ in range(40):
            try:
                found.append(values(next(batches))[1])
            except StopIteration:
                return found, states
            except (OddError, CollateError, DatasetError) as error:
                found.append(type(error).__name__)
            states.append(json.loads(json.dumps(loader.state_dict())))
        raise AssertionError("no end")

    with DataLoader(kind(), batch_size=4, num_workers=workers) as loader:
        wanted, states = taken(loader)
    assert len(wanted) > 2
    for at, state in enumerate(states, 1):
        with DataLoader(kind(), batch_size=4, num_workers=workers) as loader:
            loader.load_state_dict(state)
            assert taken(loader)[0] == wanted[at:]


# ---- random state of workers -------------------------------------------------------------------


KEEPING = Policy(dispatch=DispatchPolicy(is_round_robin=True), worker=WorkerPolicy(keeps_rng=True))


class Noise:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return index, random.random(), np.random.rand()


@pytest.mark.parametrize("dataset", [Noise(), Plain(), WalkSet()], ids=lambda each: type(each))
def test_the_random_state_of_workers_resumes_if_a_face_promises_it(dataset: Any) -> None:
    options: Any = {"batch_size": 4, "num_workers": 2, "persistent_workers": True}
    with Face(KEEPING, dataset, **options) as loader:
        wanted, states = run(loader)
        later = [values(batch) for batch in loader]
    for at in (2, 5, len(wanted) + 1):
        with Face(KEEPING, dataset, **options) as loader:
            loader.load_state_dict(states[at])
            if at <= len(wanted):
                assert [values(batch) for batch in loader] == wanted[at:]
            assert [values(batch) for batch in loader] == later


class Tally:
    """A map-style dataset that counts its fetched samples."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return index, self.asked

    def state_dict(self) -> dict[str, int]:
        return {"asked": self.asked}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.asked = state["asked"]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_prefetched_epoch_starts_after_the_last_group(steps: int) -> None:
    options: Any = {"num_workers": 2, "persistent_workers": True, "prefetch_next_epoch": True}
    options.update(batch_size=4, places=["cpu"] * 3)

    def numbers(groups: Any) -> list[int]:
        return [int(each) for group in groups for batch in group for each in batch[0]]

    with DataLoader(Kept(), **options) as loader:
        list(loader)  # the next epoch begins before the last group is handed over
        before = numbers(islice(loader, steps)) if steps else []
        state = json.loads(json.dumps(loader.state_dict()))
    with DataLoader(Kept(), **options) as loader:
        loader.load_state_dict(state)
        assert sorted(before + numbers(loader)) == list(range(COUNT))


@pytest.mark.parametrize("workers", [0, 1])
def test_the_state_of_a_dataset_with_indices_resumes(workers: int) -> None:
    with DataLoader(Tally(), batch_size=4, num_workers=workers) as loader:
        wanted, states = run(loader)
    with DataLoader(Tally(), batch_size=4, num_workers=workers) as loader:
        loader.load_state_dict(states[5])
        assert [values(batch) for batch in loader] == wanted[5:]
