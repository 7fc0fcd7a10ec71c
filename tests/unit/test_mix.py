"""Mixes: exact shares, ends, any position at once, streams like map-style ones, bad input."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
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
    DistributedSampler,
    IterableDataset,
    SampleIndexError,
    StateError,
    mix,
)
from reader.streams.mix_schedule import MixSchedule
from reader.streams.mix_weights import cycle_counts
from tests.streams import Items

COUNTS = st.lists(st.integers(1, 25), min_size=1, max_size=7)
LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=5)
STOPS = ("first", "last", "all")


class Labelled:
    """Sample i of dataset `name` is (name, i); notes its epoch."""

    def __init__(self, name: int, count: int) -> None:
        self.name = name
        self.count = count
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, int]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.name, index

    def set_epoch(self, epoch: int) -> None:
        self.asked.append(epoch)


class Many(Labelled):
    """Gives many samples in one call."""

    def __getitems__(self, indices: list[int]) -> list[tuple[int, int]]:
        self.asked.append(list(indices))
        return [(self.name, index) for index in indices]


def labelled(lengths: list[int]) -> list[Labelled]:
    return [Labelled(name, count) for name, count in enumerate(lengths)]


def samples(mixed: Any) -> list[Any]:
    return [mixed[index] for index in range(len(mixed))]


# ---- shares ------------------------------------------------------------------------------------


@given(COUNTS)
def test_each_source_is_everywhere_within_one_of_its_share(counts: list[int]) -> None:
    schedule, length = MixSchedule(counts), sum(counts)
    given: Counter[int] = Counter()
    for place in range(2 * length + 3):
        for source, count in enumerate(counts):
            assert abs(given[source] - Fraction(place * count, length)) < 1
            assert schedule.given(source, place) == given[source]
        source, before = schedule.at(place)
        assert source == schedule.source_at(place)
        assert before == given[source]
        assert schedule.place_of(source, before) == place
        given[source] += 1


@given(st.lists(st.floats(2e-2, 1e2), min_size=1, max_size=8))
def test_any_weights_are_shares_of_a_cycle_to_a_65536th(weights: list[float]) -> None:
    counts = cycle_counts(weights, (), [1] * len(weights))
    assert min(counts) >= 1
    assert sum(counts) <= 65536
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count / sum(counts) - weight / sum(weights)) < 1 / 65536


@given(COUNTS, st.floats(1e-30, 1e30))
def test_whole_multiples_of_one_number_are_shares_exactly(counts: list[int], unit: float) -> None:
    found = cycle_counts([count * unit for count in counts], (), [1] * len(counts))
    assert [Fraction(count, sum(found)) for count in found] == [
        Fraction(count, sum(counts)) for count in counts
    ]


def test_equal_shares_take_turns() -> None:
    assert cycle_counts(None, (), [1] * 3) == [1, 1, 1]
    assert samples(mix(list(map(list, ("abc", "def", "ghi"))))) == list("adgbehcfi")


@pytest.mark.parametrize("kind", [list, tuple, np.array, np.float32])
def test_weights_may_be_any_array_of_numbers(kind: Any) -> None:
    weights = np.array([3, 1], kind) if kind is np.float32 else kind([3, 1])
    assert cycle_counts(weights, (), [1, 1]) == [3, 1]


# ---- where a mix ends --------------------------------------------------------------------------


def straight(lengths: list[int], counts: list[int], stop: str) -> list[tuple[int, int]]:
    """The definition of a mix, as a loop."""
    found, taken = [], [0] * len(lengths)
    taking_part, ended = list(range(len(lengths))), set()
    schedule, place = MixSchedule(counts), 0
    while True:
        source = taking_part[schedule.source_at(place)]
        if (taken[source] and taken[source] % lengths[source] == 0) or not lengths[source]:
            ended.add(source)
            if stop == "first" or len(ended) == len(lengths):
                return found
            if stop == "all":
                taking_part.remove(source)
                schedule, place = MixSchedule([counts[each] for each in taking_part]), 0
                continue
        found.append((source, taken[source] % lengths[source]))
        taken[source] += 1
        place += 1


@settings(max_examples=60)
@given(LENGTHS, st.data(), st.sampled_from(STOPS))
def test_mix_of_datasets_and_mix_of_streams_are_what_the_loop_gives(
    lengths: list[int], data: st.DataObject, stop: Any
) -> None:
    size = len(lengths)
    weights = data.draw(st.lists(st.integers(1, 9), min_size=size, max_size=size))
    wanted = straight(lengths, weights, stop)
    sources = labelled(lengths)
    mixed: Any = mix(sources, weights, stop)
    assert samples(mixed) == wanted
    assert [mixed[index] for index in range(-len(mixed), 0)] == wanted
    streams = [Items([(source.name, index) for index in range(len(source))]) for source in sources]
    stream: Any = mix(streams, weights, stop)
    assert list(stream) == wanted
    assert list(stream) == wanted


def test_first_ends_before_any_sample_comes_again() -> None:
    found = samples(mix(labelled([5, 100]), [1, 2]))
    assert len(set(found)) == len(found)
    assert Counter(name for name, _ in found) == {0: 5, 1: 11}


def test_last_has_each_sample_and_begins_anew_what_ended() -> None:
    found = samples(mix(labelled([5, 100]), [1, 2], stop="last"))
    assert [index for name, index in found if name == 1] == list(range(100))
    assert [index for name, index in found if name == 0] == [index % 5 for index in range(50)]


def test_all_has_each_sample_once_also_of_empty_sources() -> None:
    lengths = [5, 0, 100, 17]
    wanted = sorted((name, index) for name, count in enumerate(lengths) for index in range(count))
    found = samples(mix(labelled(lengths), [5, 2, 1, 1], stop="all"))
    assert sorted(found) == wanted
    streams = [
        Items([(name, index) for index in range(count)]) for name, count in enumerate(lengths)
    ]
    assert list(mix(streams, [5, 2, 1, 1], stop="all")) == found
    nothing: Any = mix([[], []], stop="all")
    assert len(nothing) == 0
    with pytest.raises(SampleIndexError, match="of a mix of 0 samples"):
        nothing[0]


def test_stream_that_is_empty_does_not_begin_anew_for_ever() -> None:
    stream = mix([Items("ab"), Items(""), Items("cdef")], stop="last")
    assert "".join(stream) == "acbdaebfa"
    assert list(mix([Items(""), Items("")], stop="last")) == []


def test_index_past_the_end_is_refused() -> None:
    mixed: Any = mix([list("ab"), list("cd")])
    for index in (len(mixed), -len(mixed) - 1):
        with pytest.raises(SampleIndexError, match=f"got index {index} of a mix of 4 samples"):
            mixed[index]


# ---- seeds, epochs, loaders --------------------------------------------------------------------


def test_with_a_seed_each_pass_of_each_epoch_has_an_order_of_its_own() -> None:
    mixed: Any = mix(labelled([20, 100]), [1, 2], stop="last", seed=3)
    orders = []
    for epoch in (0, 1):
        mixed.set_epoch(epoch)
        found = samples(mixed)
        of_first = [index for name, index in found if name == 0]
        passes = [of_first[start : start + 20] for start in range(0, 40, 20)]
        orders += [*passes, [index for name, index in found if name == 1]]
        assert all(sorted(each) == list(range(20)) for each in passes)
        assert sorted(orders[-1]) == list(range(100))
        assert samples(mixed) == found
    assert len({str(order) for order in orders}) == 6
    assert samples(mix(labelled([20, 100]), [1, 2], stop="last", seed=4)) != samples(mixed)


def test_epoch_is_passed_on_to_the_sources() -> None:
    sources = labelled([3, 3])
    mixed: Any = mix(sources)
    mixed.set_epoch(7)
    assert [source.asked for source in sources] == [[7], [7]]
    with pytest.raises(ConfigError, match="epoch must be an int of 0 or more"):
        mixed.set_epoch(-1)


def test_samples_of_a_batch_are_asked_for_at_once_where_a_source_can() -> None:
    many = Many(0, 10)
    mixed: Any = mix([many, Labelled(1, 10)], [2, 1])
    assert mixed.__getitems__([0, 1, 2, 4, -1]) == [mixed[index] for index in (0, 1, 2, 4, -1)]
    assert many.asked[0] == [0, 1, 9]
    assert not hasattr(mix(labelled([3, 3])), "__getitems__")


@pytest.mark.parametrize("again", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_give_the_same(again: Any) -> None:
    mixed: Any = mix(labelled([20, 30]), [0.3, 0.7], stop="last", seed=1)
    assert samples(again(mixed)) == samples(mixed)
    stream: Any = mix([Items("abc"), Items("defg")], stop="last")
    assert list(again(stream)) == list(stream)


@pytest.mark.parametrize("workers", [(0, 2), (2, 1)])
def test_06_a_loader_of_a_mix_resumes_at_any_batch_with_other_workers(
    workers: tuple[int, int],
) -> None:
    def loader(count: int) -> DataLoader:
        mixed = mix([range(40), range(100, 130)], [2, 1], stop="last", seed=2)
        return DataLoader(mixed, batch_size=4, shuffle=True, seed=9, num_workers=count)

    with loader(workers[0]) as made:
        wanted, states = [], []
        for batch in made:
            wanted.append(batch.tolist())
            states.append(json.loads(json.dumps(made.state_dict())))
    for at in (0, 6, len(wanted) - 2):
        with loader(workers[1]) as made:
            made.load_state_dict(states[at])
            assert [batch.tolist() for batch in made] == wanted[at + 1 :]


def test_01_ranks_share_a_mix() -> None:
    mixed: Any = mix([range(41), range(100, 107)], [3, 1], stop="all")
    found = []
    for rank in range(3):
        sampler = DistributedSampler(mixed, 3, rank, seed=4)
        found += [int(each) for batch in DataLoader(mixed, sampler=sampler) for each in batch]
    assert sorted(found) == sorted([*range(41), *range(100, 107)])


# ---- names -----------------------------------------------------------------------------------

WEB, CODE = list(range(6)), list(range(10, 13))


def test_dict_names_sources_and_their_weights_in_any_order() -> None:
    listed: Any = mix([WEB, CODE], [2, 1])
    for weights in ([2, 1], {"web": 2, "code": 1}, {"code": 1, "web": 2}):
        named: Any = mix({"web": WEB, "code": CODE}, weights)
        assert samples(named) == samples(listed)
        assert named.names == ["web", "code"]
        streams: Any = mix({"web": Items(WEB), "code": Items(CODE)}, weights)
        assert list(streams) == samples(listed)
    assert listed.names == []


def walks(names: str | None) -> Any:
    return mix([Walk(), Walk()] if names is None else {name: Walk() for name in names}, [2, 1])


@pytest.mark.parametrize(("before", "after"), [(None, "ab"), ("ab", None), ("ab", "ab")])
def test_state_of_a_mix_goes_on_with_names_and_without(
    before: str | None, after: str | None
) -> None:
    made = iter(walks(before))
    head = [next(made) for _ in range(3)]
    state = json.loads(json.dumps(made.state_dict()))
    assert state["names"] == list(before or "")
    if before is None:
        del state["names"]  # as older versions saved it
    again = iter(walks(after))
    again.load_state_dict(state)
    assert head + list(again) == list(walks(None))


def test_state_of_other_sources_is_refused_by_their_names() -> None:
    state = iter(mix({"web": Walk(), "code": Walk()})).state_dict()
    for other in ("code", "web"), ("web", "books"):
        with pytest.raises(
            StateError, match=rf"sources 'web', 'code', and this one has '{other[0]}'"
        ):
            iter(mix(dict.fromkeys(other, Walk()))).load_state_dict(state)


def broken() -> Iterator[int]:
    yield 1
    raise ValueError("damaged")


class Broken(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return broken()


def test_generator_that_ended_is_reported_by_the_name_of_its_source() -> None:
    made: Any = iter(mix({"web": Broken(), "code": Items(CODE)}))
    assert [next(made), next(made)] == [1, 10]
    with pytest.raises(ValueError, match="damaged"):
        next(made)
    with pytest.raises(DatasetError, match=r"the generator of source 'web' \(Broken\), which"):
        next(made)


# ---- bad input ---------------------------------------------------------------------------------

SIX, STREAM = list(range(6)), Items("ab")


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (([],), ConfigError, "mix takes one dataset or more, got none"),
        ((5,), ConfigTypeError, r"mix takes a list of datasets, got 5 \(int\)"),
        (([SIX, 5],), ConfigTypeError, r"map-style datasets, .* got 5 \(int\) at position 1"),
        (([SIX, STREAM],), ConfigError, "not both: got the stream .* at position 1 and .* 0. Make"),
        (([iter(SIX)],), ConfigError, "mix takes a stream with a fresh iterator .* one-shot"),
        (([STREAM, (i for i in SIX)],), ConfigError, "one-shot iterator <generator"),
        (([SIX, []],), ConfigError, "an empty source at position 1"),
        (([SIX, []], None, "last"), ConfigError, "an empty source at position 1"),
        (
            ("data.csv",),
            ConfigTypeError,
            r"mix takes a list of datasets, got 'data\.csv' \(str\), w",
        ),
        (
            ([SIX, "abc"],),
            ConfigTypeError,
            r"got 'abc' \(str\) at position 1, which holds characters\. Op",
        ),
        (([STREAM, b"abc"],), ConfigTypeError, r"got b'abc' .* at position 1, which holds bytes"),
        (({"web": SIX, "code": "abc"},), ConfigTypeError, r"got 'abc' \(str\) for 'code', which"),
        (({},), ConfigError, "mix takes one dataset or more, got none"),
        (
            ({1: SIX},),
            ConfigTypeError,
            r"names of sources, strings, got 1 \(int\)\. Pass \{'1': dat",
        ),
        (({"a": SIX, "b": STREAM},), ConfigError, "the stream .* for 'b' and .* for 'a'. Make"),
        (({"a": SIX, "b": []},), ConfigError, "an empty source for 'b', which"),
        (
            ({"a": SIX, "b": SIX}, {"a": 1}),
            ConfigError,
            "no weight of 'b'. The sources are 'a', 'b'",
        ),
        (
            ({"a": SIX}, {"a": 1, "c": 1}),
            ConfigError,
            "unknown sources 'c'. The sources are 'a': p",
        ),
        (({"a": SIX, "b": SIX}, {"a": 1, "b": 0}), ConfigError, "got 0.0 for 'b'. Leave out"),
        (({"a": SIX, "b": SIX}, {"a": 1, "b": 1e-6}), ConfigError, "weight for 'b' is 1e-06 of"),
        (
            ([SIX, SIX], {"a": 1}),
            ConfigError,
            "weights of 'a' and a list of datasets. Pass both as",
        ),
        (([SIX, SIX], [1]), ConfigError, r"mix got 1 weights for 2 sources"),
        (([SIX, SIX], [[1, 2]]), ConfigError, r"shape \(n,\), n from 1, got \(1, 2\)"),
        (([SIX, SIX], [1, 0]), ConfigError, r"got 0.0 at position 1. Leave out"),
        (([SIX, SIX], [-1, 1]), ConfigError, r"got -1.0 at position 0"),
        (([SIX, SIX], [1, float("nan")]), ConfigError, r"got nan at position 1"),
        (([SIX, SIX], [1, float("inf")]), ConfigError, r"got inf at position 1"),
        (([SIX, SIX], ["a", "b"]), ConfigTypeError, "weights must be an array of numbers"),
        (([SIX, SIX], [1, 1e-6]), ConfigError, r"position 1 is 1e-06 of the sum .* is 1/65536"),
        (([SIX, SIX], [1e300, 1e-300]), ConfigError, r"position 1 is 0 of the sum .* is 1/65536"),
        (([SIX], None, "longest"), ConfigError, "stop must be one of 'first', 'last', 'all', got"),
        (([SIX], None, "first", -1), ConfigError, r"seed must be an int in \[0"),
        (([SIX], None, "first", "1"), ConfigTypeError, "seed must be an int"),
        (([STREAM], None, "first", 1), ConfigError, "streams have none. Shuffle the mix by"),
    ],
)
def test_what_cannot_be_mixed_is_refused(arguments: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        mix(*arguments)


class Walk(IterableDataset[int]):
    """Numbers whose iterators have their position as state."""

    def __iter__(self) -> Any:
        return WalkIterator()


class WalkIterator(Iterator[int]):
    at = 0

    def __next__(self) -> int:
        if self.at == 7:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("stop", STOPS)
def test_iterator_of_streams_with_states_goes_on_at_any_sample(stop: Any) -> None:
    stream: Any = mix([Walk(), mix([Walk(), Walk()], stop="all")], [1, 3], stop)
    wanted = list(stream)
    for place in range(len(wanted) + 1):
        samples = iter(stream)
        assert list(itertools.islice(samples, place)) == wanted[:place]
        state = json.loads(json.dumps(samples.state_dict()))
        again = iter(stream)
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert list(again) == wanted[place:]
        assert list(again) == []


def test_iterator_has_a_state_only_if_all_streams_have_one() -> None:
    assert hasattr(iter(mix([Walk(), Walk()])), "state_dict")
    for streams in ([Walk(), Items("ab")], [Items("ab")]):
        samples: Any = iter(mix(streams))
        assert not hasattr(samples, "state_dict")
        assert not hasattr(samples, "load_state_dict")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"counts": [2, 1]}, r"shares \[2, 1\] with stop='first', and this one has \[1, 1\]"),
        ({"stop": "last"}, "with stop='last'"),
        ({"place": -1}, "place in the state of an iterator must be of type int, got -1"),
        ({"place": None}, "place in the state"),
        ({"sources": []}, "that of 0 wrapped datasets, and there are 2"),
        ({"ended": [True]}, "that of 1 wrapped datasets"),
        ({"sources": [{"phase": "no"}] * 2}, "'phase' in the state .* must be one of .*, got 'no'"),
        ({"sources": [5, 5]}, "phase in the state of an iterator must be of type str"),
    ],
)
def test_state_that_does_not_fit_is_refused(change: Any, text: str) -> None:
    samples: Any = iter(mix([Walk(), Walk()]))
    with pytest.raises(StateError, match=text):
        samples.load_state_dict({**samples.state_dict(), **change})
    with pytest.raises(StateError, match="counts in the state"):
        samples.load_state_dict(5)
