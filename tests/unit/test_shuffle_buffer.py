"""Shuffle buffers: each sample once, how far it moves, orders by seed, epoch, worker, states."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reader import (
    ConfigError,
    ConfigTypeError,
    DataLoader,
    DatasetError,
    IterableDataset,
    StateError,
    mix,
    shuffle_buffer,
)
from tests.streams import Sharded


class Walk(IterableDataset[int]):
    """Numbers whose iterators have their position as state, and raise at some of them."""

    def __init__(self, count: int, bad: tuple[int, ...] = ()) -> None:
        self.count = count
        self.bad = bad
        self.drawn = 0

    def __iter__(self) -> Any:
        return WalkIterator(self)


class WalkIterator(Iterator[int]):
    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.at = 0

    def __next__(self) -> int:
        if self.at >= self.walk.count:
            raise StopIteration
        self.at += 1
        self.walk.drawn += 1
        if self.at - 1 in self.walk.bad:
            raise LookupError(self.at - 1)
        return self.at - 1

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


def taken(samples: Any, most: int = 10**6) -> list[Any]:
    """The results, with the exceptions in their places."""
    found: list[Any] = []
    while len(found) < most:
        try:
            found.append(next(samples))
        except StopIteration:
            break
        except (LookupError, DatasetError) as error:
            found.append(type(error).__name__)
    return found


# ---- the order ---------------------------------------------------------------------------------


@given(st.integers(0, 200), st.integers(1, 40), st.integers(0, 2**64 - 1))
def test_each_sample_comes_once_and_near_its_position(count: int, size: int, seed: int) -> None:
    found = list(shuffle_buffer(range(count), size, seed))
    assert sorted(found) == list(range(count))
    for place, sample in enumerate(found):
        assert sample - size < place < sample + 4 * size
    if size == 1:
        assert found == list(range(count))


def test_buffer_that_holds_all_shuffles_altogether() -> None:
    seen = np.zeros((8, 8))
    for seed in range(800):
        for place, sample in enumerate(shuffle_buffer(range(8), 8, seed)):
            seen[place, sample] += 1
    assert seen.min() > 60
    assert seen.max() < 145  # of 100


def test_samples_are_mixed_beyond_any_border() -> None:
    """At any position, samples from before it and from after it follow one another."""
    found = np.array(list(shuffle_buffer(range(4000), 50, seed=1)))
    for place in range(200, 3800):
        assert found[:place].max() > place
        assert (found[place:] < place).any()
    assert np.abs(found - np.arange(4000)).mean() > 25  # 17 within blocks


def test_order_is_a_function_of_seed_epoch_and_worker() -> None:
    def epochs(own: int | None, workers: int, **options: Any) -> list[Any]:
        stream = shuffle_buffer(Sharded(80), 10, own)
        with DataLoader(stream, batch_size=None, num_workers=workers, **options) as loader:
            return [list(loader) for _ in range(2)]

    threads: Any = {"worker_type": "thread", "persistent_workers": True}
    first = epochs(1, 0)
    assert first == epochs(1, 0) == epochs(1, 1, **threads) == epochs(1, 1)
    assert first[0] != first[1]
    assert first != epochs(2, 0)
    assert epochs(1, 2) == epochs(1, 2, **threads)
    places = [[value // 2 for value in epochs(1, 2)[0] if value % 2 == w] for w in (0, 1)]
    assert places[0] != places[1]  # of worker 0 and of worker 1
    assert epochs(None, 0, seed=4) == epochs(None, 0, seed=4)
    assert epochs(None, 0, seed=4) != epochs(None, 0, seed=5)
    assert epochs(None, 0) != epochs(None, 0)


def test_epoch_without_a_loader_is_the_chosen_one() -> None:
    stream = shuffle_buffer(range(50), 10, seed=1)
    first = list(stream)
    stream.set_epoch(1)
    second = list(stream)
    with DataLoader(shuffle_buffer(range(50), 10, seed=1), batch_size=None) as loader:
        assert [list(loader), list(loader)] == [first, second]
    assert list(shuffle_buffer(range(50), 10)) != list(shuffle_buffer(range(50), 10))
    with pytest.raises(ConfigError, match="epoch must be an int of 0 or more"):
        stream.set_epoch(-1)


def test_epoch_that_a_loader_is_set_to_is_its_own_again() -> None:
    def loader() -> DataLoader:
        return DataLoader(shuffle_buffer(range(50), 10, seed=1), batch_size=None)

    wanted = loader()
    orders = [list(wanted) for _ in range(4)]
    later = loader()
    later.set_epoch(2)
    assert [list(later), list(later)] == orders[2:]


# ---- states ------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.integers(0, 60),
    st.integers(1, 9),
    st.sets(st.integers(0, 60), max_size=4),
    st.integers(0, 80),
)
def test_iterator_goes_on_at_any_sample_and_draws_little_again(
    count: int, size: int, bad: set[int], place: int
) -> None:
    walk = Walk(count, tuple(bad))
    wanted = taken(iter(shuffle_buffer(walk, size, seed=3)))
    samples: Any = iter(shuffle_buffer(walk, size, seed=3))
    assert taken(samples, place) == wanted[:place]
    state = json.loads(json.dumps(samples.state_dict()))
    walk.drawn, drawn_before = 0, samples.sources[0]._items.at
    seed = 77 if place else 3  # once begun, the order is in the state
    again: Any = iter(shuffle_buffer(walk, size, seed))
    again.load_state_dict(state)
    assert walk.drawn <= 5 * size + len(bad)
    assert again.sources[0]._items.at <= drawn_before
    state = json.loads(json.dumps(again.state_dict()))
    final: Any = iter(shuffle_buffer(walk, size, seed))
    final.load_state_dict(state)
    assert taken(again) == wanted[place:]
    assert taken(final) == wanted[place:]


def test_generator_that_an_exception_ended_is_reported_and_the_buffer_still_comes() -> None:
    def items() -> Iterator[int]:
        yield from range(10)
        raise LookupError

    class Dying(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return items()

    found = taken(iter(shuffle_buffer(Dying(), 4, seed=1)))
    assert found[6:8] == ["LookupError", "DatasetError"]
    assert sorted(found[:6] + found[8:]) == list(range(10))
    samples = iter(shuffle_buffer(Dying(), 4, seed=1))
    taken(samples, 7)
    with pytest.raises(DatasetError, match="has ended the generator of Dying, which cannot cont"):
        next(samples)


def test_exception_that_comes_when_samples_are_drawn_again_is_raised() -> None:
    samples: Any = iter(shuffle_buffer(Walk(60), 4, seed=1))
    taken(samples, 20)
    again: Any = iter(shuffle_buffer(Walk(60, bad=(18,)), 4, seed=1))
    with pytest.raises(LookupError):
        again.load_state_dict(samples.state_dict())


def test_stream_that_has_become_shorter_is_reported() -> None:
    samples: Any = iter(shuffle_buffer(Walk(60), 4, seed=1))
    taken(samples, 20)
    again: Any = iter(shuffle_buffer(Walk(10), 4, seed=1))
    with pytest.raises(StateError, match="Walk ends before the place where the state was saved"):
        again.load_state_dict(samples.state_dict())


def test_iterator_of_a_stream_without_a_state_has_none() -> None:
    samples: Any = iter(shuffle_buffer(range(10), 3))
    assert not hasattr(samples, "state_dict")
    assert not hasattr(samples, "load_state_dict")
    assert not hasattr(shuffle_buffer(range(10), 3), "state_dict")


class Unready(Walk):
    """Its iterators have no state before their first sample."""

    def __iter__(self) -> Any:
        return UnreadyIterator(self)


class UnreadyIterator(WalkIterator):
    def state_dict(self) -> Any:
        if self.at == 0:
            raise AttributeError("nothing was drawn")
        return super().state_dict()


@pytest.mark.parametrize("place", [1, 9, 30])
def test_iterator_may_have_its_first_state_behind_its_first_sample(place: int) -> None:
    samples: Any = iter(shuffle_buffer(Unready(40), 3, seed=1))
    wanted = taken(iter(shuffle_buffer(Unready(40), 3, seed=1)))
    taken(samples, place)
    again: Any = iter(shuffle_buffer(Unready(40), 3, seed=1))
    again.load_state_dict(samples.state_dict())
    assert taken(again) == wanted[place:]


# ---- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ((iter([1]), 3), ConfigError, "shuffle_buffer takes a stream with a fresh iterator"),
        (((i for i in [1]), 3), ConfigError, "one-shot iterator <generator"),
        ((5, 3), ConfigTypeError, r"takes a stream, which is an object with __iter__, got 5"),
        ((Walk, 3), ConfigTypeError, "got <class"),
        (
            ("a.txt", 3),
            ConfigTypeError,
            r"takes a stream, got 'a\.txt' \(str\), which holds characters",
        ),
        (
            ({"a": 1}, 3),
            ConfigTypeError,
            r"a stream, got .* whose items are its keys\. Pass list\(d",
        ),
        (([1], 0), ConfigError, r"size must be an int in \[1"),
        (([1], 2.5), ConfigTypeError, "size must be an int"),
        (([1], 3, -1), ConfigError, "seed must be an int in"),
        (([1], 3, "1"), ConfigTypeError, "seed must be an int in"),
    ],
)
def test_what_cannot_be_shuffled_is_refused(arguments: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        shuffle_buffer(*arguments)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"size": 5}, "a buffer of 5 samples, and this one has 4: .* Pass size=5"),
        ({"steps": -1}, "steps in the state of an iterator must be of type int, got -1"),
        ({"filled": None}, "filled in the state"),
        ({"order": [1, 2]}, "order in the state must be a seed, an epoch and a worker"),
        ({"order": [1, 2, "0"]}, "order in the state must be a seed"),
        ({"checkpoint": 5}, "key in the state of an iterator must be of type int"),
        ({"checkpoint": {"key": 0, "errors": 0, "state": 7}}, "phase in the state of an iterator"),
        (
            {"checkpoint": {"key": 0, "errors": 0, "state": {"phase": "open", "dataset": 1}}},
            None,
        ),
    ],
)
def test_state_that_does_not_fit_is_refused(change: Any, text: str | None) -> None:
    samples: Any = iter(shuffle_buffer(Walk(60), 4, seed=1))
    list(itertools.islice(samples, 20))
    state = {**samples.state_dict(), **change}
    again: Any = iter(shuffle_buffer(Walk(60), 4, seed=1))
    if text is None:
        again.load_state_dict(state)  # the dataset's own is skipped if it has none
    else:
        with pytest.raises(StateError, match=text):
            again.load_state_dict(state)


def test_state_of_other_streams_is_refused() -> None:
    samples: Any = iter(mix([Walk(9), Walk(9)]))
    other: Any = iter(shuffle_buffer(Walk(9), 3))
    with pytest.raises(StateError, match="size in the state of an iterator must be of type int"):
        other.load_state_dict(samples.state_dict())

    class Kept(Walk):
        def __iter__(self) -> Any:
            return (value for value in range(9))

        def state_dict(self) -> Any:
            return {}

        def load_state_dict(self, state: Any) -> None:
            pass

    taken(walked := iter(shuffle_buffer(Walk(9), 3)), 2)
    kept: Any = iter(shuffle_buffer(Kept(9), 3))
    with pytest.raises(StateError, match="saved with an iterator that has a state, and generator"):
        kept.load_state_dict(walked.state_dict())  # type: ignore[attr-defined]
