"""`reader.Mix`: weights that change, where it ends, orders by window, origins, bad input."""

from __future__ import annotations

import copy
import math
import pickle
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import reader
from reader import ConfigError, ConfigTypeError, IterableDataset, Mix, Shards, TokenWindows, cache
from reader.streams.mix_schedule import LinearSchedule, MixSchedule
from tests.shard_files import make_tar
from tests.streams import Items

Plan = list[tuple[int, list[int]]]


class Labelled:
    """Sample i of dataset `name` is (name, i)."""

    def __init__(self, name: int, count: int) -> None:
        self.name, self.count = name, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, int]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.name, index


class Sharded(Labelled):
    """Has shards of some lengths."""

    def __init__(self, name: int, *lengths: int) -> None:
        super().__init__(name, sum(lengths))
        self.starts = np.cumsum([0, *lengths])
        self.nbytes = 100 * self.count


def labelled(lengths: list[int]) -> list[Any]:
    return [Labelled(name, count) for name, count in enumerate(lengths)]


def samples(mixed: Any) -> list[Any]:
    return [mixed[index] for index in range(len(mixed))]


@st.composite
def plans(draw: Any, sources: int) -> Plan:
    """Weights that change up to four times, of which each source has one above 0."""
    starts = sorted({0, *draw(st.lists(st.integers(1, 60), max_size=4))})
    weights = st.lists(st.integers(0, 6), min_size=sources, max_size=sources).filter(any)
    plan = [(start, draw(weights)) for start in starts]
    assume(all(any(each[source] for _, each in plan) for source in range(sources)))
    return plan


@st.composite
def linear_plans(draw: Any, sources: int) -> list[Any]:
    """Plans in which shares go linearly in some stretches."""
    plan = draw(plans(sources))
    return [
        (start, weights, "linear") if draw(st.booleans()) else (start, weights)
        for start, weights in plan[:-1]
    ] + plan[-1:]


def straight(
    lengths: list[int], plan: list[Any], stops: list[str], length: int | None
) -> list[Any] | None:
    """The definition of a mix, as a loop; None: it would wait for ever."""
    found: list[Any] = []
    taken, ended = [0] * len(lengths), set[int]()
    now: Any = None
    while length is None or len(found) < length:
        stretch = max(k for k, entry in enumerate(plan) if entry[0] <= len(found))
        first, is_last = plan[stretch][1], stretch + 1 == len(plan)
        then = plan[stretch + 1][1] if len(plan[stretch]) == 3 else None
        weights = first if then is None else [w + v for w, v in zip(first, then, strict=True)]
        open_ones = [
            s for s, w in enumerate(weights) if w and not (stops[s] == "all" and s in ended)
        ]
        waits = [s for s, n in enumerate(lengths) if taken[s] < n and s not in ended]
        if not open_ones:
            return found if taken == lengths else None
        if "last" in stops and is_last and all(s in ended for s in open_ones):
            return None if waits else found
        if now != (stretch, open_ones):
            now, begun = (stretch, open_ones), len(found)
            schedule: Any = MixSchedule([weights[s] for s in open_ones])
            if then is not None:
                samples = plan[stretch + 1][0] - plan[stretch][0]
                whole = LinearSchedule(first, then, samples)
                now_at = len(found) - plan[stretch][0]
                shares = whole.shares_at(now_at, open_ones)
                schedule = LinearSchedule(shares, [then[s] for s in open_ones], samples - now_at)
        source = open_ones[schedule.at(len(found) - begun)[0]]
        if taken[source] == lengths[source]:
            ended.add(source)
            if stops[source] == "first" or ("last" in stops and len(ended) == len(lengths)):
                return found
            if stops[source] == "all":
                continue
        found.append((source, taken[source] % lengths[source]))
        taken[source] += 1
    return found


# ---- weights that change -----------------------------------------------------------------------


@settings(max_examples=300)
@given(st.data(), st.sampled_from(["first", "last", "all", "never"]))
def test_each_stop_is_what_the_loop_gives(data: st.DataObject, stop: Any) -> None:
    least = int(stop != "all")
    lengths = data.draw(st.lists(st.integers(least, 30), min_size=1, max_size=4))
    plan = data.draw(st.one_of(plans(len(lengths)), linear_plans(len(lengths))))
    length = data.draw(st.integers(1, 150)) if stop == "never" else None
    wanted = straight(lengths, plan, [stop] * len(lengths), length)
    options: dict[str, Any] = {"length": length}
    if wanted is None:
        with pytest.raises(ConfigError, match=f"stop='{stop}' waits for the source at position"):
            Mix(labelled(lengths), plan, stop=stop)
        return
    mixed = Mix(labelled(lengths), plan, stop=stop, **options)
    assert samples(mixed) == wanted
    assert [mixed[index] for index in range(-len(mixed), 0)] == wanted


@settings(max_examples=200)
@given(st.data())
def test_each_source_ends_as_it_is_told(data: st.DataObject) -> None:
    kinds = {"stop": "first", "hand_on": "all", "repeat": "never"}
    lengths = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    ends = [data.draw(st.sampled_from(sorted(kinds))) for _ in lengths]
    plan = data.draw(st.one_of(plans(len(lengths)), linear_plans(len(lengths))))
    length = data.draw(st.integers(1, 150))
    if "repeat" not in ends and data.draw(st.booleans()):
        length = None
    wanted = straight(lengths, plan, [kinds[each] for each in ends], length)
    sources = {str(number): each for number, each in enumerate(labelled(lengths))}
    options: dict[str, Any] = {"stop": dict(zip(sources, ends, strict=True)), "length": length}
    if wanted is None:
        with pytest.raises(ConfigError, match=r"waits for the source|leaves no source with a"):
            Mix(sources, plan, **options)
    else:
        assert samples(Mix(sources, plan, **options)) == wanted


def test_a_source_repeats_while_another_one_hands_its_share_on() -> None:
    sources = {"web": "abcdef", "code": "xy", "books": "1"}
    sources_of_lists = {name: list(each) for name, each in sources.items()}
    stop = {"books": "hand_on", "web": "stop", "code": "repeat"}
    assert "".join(samples(Mix(sources_of_lists, stop=stop))) == "ax1bycxdyexfy"
    assert len(Mix(sources_of_lists, stop=stop, length=5)) == 5


@given(st.data())
def test_each_stretch_is_everywhere_within_one_sample_of_its_shares(data: st.DataObject) -> None:
    sources = data.draw(st.integers(1, 4))
    plan = data.draw(plans(sources))
    mixed = Mix([range(7)] * sources, plan, stop="never", length=200)
    ends = [*(start for start, _ in plan[1:]), 200]
    for (start, weights), end in zip(plan, ends, strict=True):
        given: Counter[Any] = Counter()
        for place in range(start, min(end, 200)):
            given[mixed.origin(place).source] += 1
            for source, weight in enumerate(weights):
                share = Fraction((place + 1 - start) * weight, sum(weights))
                assert abs(given[source] - share) < 1


@given(st.data(), st.sampled_from(["first", "last", "all", "never"]))
def test_a_source_goes_on_at_a_change_without_loss_or_repetition(
    data: st.DataObject, stop: Any
) -> None:
    lengths = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    drawn = data.draw(linear_plans(len(lengths)))
    plan = [(start, [w + 1 for w in weights], *kind) for start, weights, *kind in drawn]
    options: dict[str, Any] = {"length": 170} if stop == "never" else {}
    found = samples(Mix(labelled(lengths), plan, stop=stop, **options))
    for source, count in enumerate(lengths):
        indices = [index for name, index in found if name == source]
        assert indices == [k % count for k in range(len(indices))]
        if stop in ("last", "all"):
            assert len(indices) >= count
        if stop in ("first", "all"):
            assert len(indices) <= count


@settings(max_examples=200)
@given(st.data(), st.integers(1, 9), st.integers(1, 120))
def test_a_linear_stretch_is_within_half_the_levels_of_a_tree_of_its_integrals(
    data: st.DataObject, sources: int, length: int
) -> None:
    weights = st.lists(
        st.sampled_from([0, 0, 1, 2, 7, 65_000]), min_size=sources, max_size=sources
    ).filter(any)
    first, last = data.draw(weights), data.draw(weights)
    assume(all(one or other for one, other in zip(first, last, strict=True)))
    schedule, given = LinearSchedule(first, last, length), [0] * sources
    bound = Fraction(math.ceil(math.log2(sources)), 2)
    for place in range(length + 1):
        for source in range(sources):
            begin = Fraction(first[source], sum(first))
            rise = Fraction(last[source], sum(last)) - begin
            integral = begin * place + rise * place * place / (2 * length)
            assert abs(given[source] - integral) <= bound
            assert schedule.given(source, place) == given[source]
        if place < length:
            source, before = schedule.at(place)
            assert before == given[source]
            assert schedule.place_of(source, before) == place
            given[source] += 1


def test_a_linear_stretch_of_10_to_the_12_samples_is_exact_and_pickles_small() -> None:
    length = 10**12
    plan = [(0, [0.7, 0.2, 0.1], "linear"), (length, [0.1, 0.2, 0.7])]
    mixed = Mix([range(10**6)] * 3, plan, stop="never", length=2 * length)
    assert len(pickle.dumps(mixed)) < 1500
    for place in (0, 1, length // 3, length // 2, length - 1, length):
        part = Fraction(place, length)
        wanted = [
            place * (Fraction(7, 10) - Fraction(6, 10) * part / 2),
            place * Fraction(2, 10),
            place * (Fraction(1, 10) + Fraction(6, 10) * part / 2),
        ]
        found = [each["samples"] for each in mixed.given(place).values()]
        assert sum(found) == place
        assert all(abs(one - other) <= 1 for one, other in zip(found, wanted, strict=True))


def test_shares_stay_at_the_end_of_a_linear_stretch() -> None:
    mixed = Mix([range(500)] * 2, [(0, [1, 0], "linear"), (400, [0, 1])])
    given = [mixed.given(count)[1]["samples"] for count in (0, 100, 200, 400, 500)]
    assert given == [0, 12, 50, 200, 300]


def test_a_place_behind_many_changes_is_that_of_a_plain_count() -> None:
    rng = np.random.default_rng(5)
    starts = np.cumsum([0, *rng.integers(1, 40, 400)]).tolist()
    plan = [(start, rng.integers(1, 9, 3).tolist()) for start in starts]
    mixed = Mix([range(100)] * 3, plan, stop="never", length=20_000)
    taken: Counter[Any] = Counter()
    for place in range(20_000):
        name, position, _ = mixed.origin(place)
        assert position == taken[name] % 100
        taken[name] += 1
    again = pickle.loads(pickle.dumps(mixed))
    assert samples(again) == samples(mixed)


def test_a_schedule_by_name_and_by_list_is_one() -> None:
    sources = {"web": list("abcdef"), "code": list("xyz")}
    by_list = Mix(list(sources.values()), [(0, [3, 1]), (4, None), (6, np.array([1.0, 0]))])
    by_name = Mix(
        sources,
        ((0, {"code": 1, "web": 3}), (4, {"code": 7, "web": 7}), (6, {"web": 0.5, "code": 0})),
    )
    assert samples(by_list) == samples(by_name)
    assert reader.mix(sources, [(0, [3, 1]), (4, [1, 1])])[5] in "abcdefxyz"  # type: ignore[index]


def test_a_stretch_behind_the_end_changes_nothing() -> None:
    sources = labelled([20, 20])
    assert samples(Mix(sources, [(0, [1, 1]), (1_000_000, [0, 1])])) == samples(Mix(sources))
    ends = Mix(sources, [(0, [1, 1]), (50, [0, 1])], stop="never", length=50)
    assert samples(ends) == samples(Mix(sources, stop="never", length=50))


def test_a_source_that_gave_all_and_has_no_weight_any_more_is_not_waited_for() -> None:
    plan: Plan = [(0, [1, 0]), (10, [0, 1])]
    wanted = [(0, k) for k in range(10)] + [(1, k) for k in range(5)]
    for stop in "last", "all":
        assert samples(Mix(labelled([10, 5]), plan, stop=stop)) == wanted  # type: ignore[arg-type]


def test_a_pickle_of_a_mix_holds_no_cycle() -> None:
    uneven = [(k * 1000, [1.0, 2.0**0.5 + k, 0.3]) for k in range(3)]
    mixed = Mix([range(10**9)] * 3, uneven, stop="never", length=10**12)
    text = pickle.dumps(mixed)
    assert len(text) < 1500
    again = pickle.loads(text)
    for place in (0, 999, 1000, 123_456_789, 10**12 - 1):
        assert again.origin(place) == mixed.origin(place)


# ---- order -------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 20])
def test_each_pass_of_a_source_has_an_order_of_its_own(window: Any) -> None:
    sources = {"a": Sharded(0, 10, 10, 10, 10), "b": Labelled(1, 30)}
    mixed = Mix(sources, stop="never", length=400, seed=5, window=window)
    orders = []
    for epoch in (0, 1):
        mixed.set_epoch(epoch)
        found = samples(mixed)
        for name, count in ((0, 40), (1, 30)):
            of_name = [index for each, index in found if each == name]
            passes = [of_name[k : k + count] for k in range(0, 200 // count * count, count)]
            assert all(sorted(each) == list(range(count)) for each in passes)
            orders += passes
        for again in (copy.deepcopy(mixed), pickle.loads(pickle.dumps(mixed))):
            assert samples(again) == found
    assert len({str(each) for each in orders}) == len(orders) == 2 * (5 + 6)


def test_a_window_keeps_to_few_shards_of_a_source_at_a_time() -> None:
    sources = [Sharded(0, *[10] * 12), Sharded(1, *[10] * 4), Labelled(2, 40)]
    mixed = Mix(sources, [3, 1, 1], seed=1, window=20)
    found = samples(mixed)
    for name in (0, 1):
        shards = [index // 10 for each, index in found if each == name]
        groups = [set(shards[k : k + 20]) for k in range(0, len(shards) // 20 * 20, 20)]
        assert all(len(group) == 2 for group in groups)
        assert len(set.union(*groups)) == 2 * len(groups)
    free = [index // 10 for each, index in found if each == 2]
    assert len(set(free[:20])) > 2


def test_windows_are_samples_or_bytes_or_all() -> None:
    def indices(window: Any, source: Any = None) -> list[Any]:
        return samples(Mix([source or Sharded(0, *[10] * 12)], seed=1, window=window))

    assert indices("2kB") == indices(20) != indices(30)
    assert indices("all") == indices(None) != indices(120)
    mapped = reader.TensorDataset([list(range(120))]).map(lambda row: (0, row[0]))
    mapped.dataset.starts = np.arange(0, 121, 10)  # type: ignore[attr-defined]
    assert indices(20, mapped) == indices(20)


def test_shards_their_images_and_other_datasets_are_sources(tmp_path: Path) -> None:
    tar = make_tar(tmp_path / "t.tar", [(f"{k}.cls", str(k).encode()) for k in range(6)])
    np.arange(40, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    shards = Shards(tar, fields={"cls": int})
    sources = {
        "tar": shards,
        "tokens": TokenWindows(tmp_path / "tokens.bin", 4),
        "mix": Mix([range(5), shards.map(len)]),
    }
    mixed = Mix(sources, stop="all", seed=0, window=3)
    assert len(mixed) == 6 + 10 + 10
    for index, sample in enumerate(mixed.__getitems__(list(range(26)))):
        name, position, own = mixed.origin(index)
        assert str(sample) == str(sources[str(name)][position])  # type: ignore[index]
        if name == "tar":
            assert own == shards.origin(position)
            assert own.path == str(tar)
        elif name == "mix":
            assert own == (position % 2, position // 2, None)
        else:
            assert own is None
    assert sorted(mixed.origin(k).position for k in range(26) if str(mixed[k]) == "{'cls': 3}") == [
        3
    ]


def test_images_of_shards_have_shards_and_origins(tmp_path: Path) -> None:
    pytest.importorskip("simplejpeg")
    pillow = pytest.importorskip("PIL.Image")
    for number in range(2):
        pillow.new("RGB", (9, 9), (number, 0, 0)).save(tmp_path / f"{number}.png")
    members = [(f"{k}.png", (tmp_path / f"{k}.png").read_bytes()) for k in range(2)]
    images = Shards(make_tar(tmp_path / "t.tar", members)).images("png", size=(4, 4))
    mixed = Mix({"a": images}, seed=0, window=1)
    assert {mixed.origin(k).origin.key for k in (0, 1)} == {"0", "1"}
    assert {int(mixed[k][0, 0, 0]) for k in (0, 1)} == {0, 1}
    assert sorted(reader.ShardOrder(images, 0, "1B")) == [0, 1]


def test_origin_is_none_where_a_source_has_no_such_method() -> None:
    named = Labelled(0, 4)
    named.origin = "https://example.org"  # type: ignore[attr-defined]
    mixed = Mix([named, range(4)])
    assert mixed.origin(-1) == (1, 3, None)
    assert [mixed.origin(0).source, mixed.origin(0).position, mixed.origin(0).origin] == [
        0,
        0,
        None,
    ]
    with pytest.raises(reader.SampleIndexError, match="got index 8 of a mix of 8 samples"):
        mixed.origin(8)


class Noise(Labelled):
    """Samples are random numbers of `sample_rng`."""

    def __getitem__(self, index: int) -> float:
        return float(reader.sample_rng(index).random())


class ManyNoise(Noise):
    def __getitems__(self, indices: list[int]) -> list[float]:
        return [self[index] for index in indices]


@pytest.mark.parametrize("kind", [Noise, ManyNoise])
def test_06_a_sample_that_comes_again_has_random_numbers_of_its_own(kind: Any) -> None:
    def numbers(mixed: Any, workers: int) -> list[float]:
        with reader.DataLoader(mixed, batch_size=5, seed=1, num_workers=workers) as loader:
            return [float(each) for batch in loader for each in batch]

    mixed = Mix([kind(0, 4)], stop="never", length=22)
    found = numbers(mixed, 0)
    assert len(set(found)) == 22
    assert found[:4] == numbers(kind(0, 4), 0)  # as without a mix
    assert numbers(mixed, 2) == found
    inner = Mix([kind(0, 2)], stop="never", length=4)
    assert len(set(numbers(Mix([inner], stop="never", length=12), 0))) == 12


# ---- bad input ---------------------------------------------------------------------------------

A, B = Labelled(0, 10), Labelled(1, 20)
TWO = {"web": A, "code": B}


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize(
    ("weights", "kind", "text"),
    [
        ([(5, [1, 1])], ConfigError, r"begins at sample 0, got 5 for its first stretch\. Pass \(0"),
        (
            [(0, [1, 1]), (9, [1, 2]), (9, [2, 1])],
            ConfigError,
            r"must come in order, got sample 9 in weights\[2\] after 9\. Sort them",
        ),
        (
            [(0, [1, 1]), (9, [1, 2]), (4, [2, 1])],
            ConfigError,
            r"got sample 4 in weights\[2\] after 9",
        ),
        (
            [(0, [1, 1]), (-1, [1, 2])],
            ConfigError,
            r"weights\[1\]\[0\] must be an int of 0 or more",
        ),
        (
            [(0, [1, 1]), (1.5, [1, 2])],
            ConfigTypeError,
            r"weights\[1\]\[0\] must be an int .* 1\.5",
        ),
        (
            [(0, [1, 1]), (9,)],
            ConfigTypeError,
            r"weights\[1\] of a schedule must be \(sample, weig",
        ),
        ([(0, [1, 1]), 9], ConfigTypeError, r"weights\[1\] of a schedule .* got 9 \(int\)"),
        (
            [(0, [1, 1]), (9, [1, -1])],
            ConfigError,
            r"weights from sample 9 on: .* from 0, got -1\.0 for 'code'",
        ),
        ([(0, [1, float("nan")])], ConfigError, "weights from sample 0 on: .* got nan for 'code'"),
        ([(0, [1, 1]), (9, [float("inf"), 1])], ConfigError, "from sample 9 on: .* inf for 'web'"),
        ([(0, [1, 1]), (1000, [0, 0])], ConfigError, "from sample 1,000 on: .* that are all 0"),
        ([(0, [1, 1]), (9, [1])], ConfigError, "from sample 9 on: mix got 1 weights for 2 sources"),
        (
            [(0, [1, 1]), (9, {"web": 1})],
            ConfigError,
            "from sample 9 on: mix got no weight of 'code'",
        ),
        (
            [(0, {"web": 1, "code": 1, "c": 1})],
            ConfigError,
            "on: mix got weights of unknown .* 'c'",
        ),
        ([(0, "ab")], ConfigTypeError, "from sample 0 on: weights must be an array of numbers"),
        (
            [(0, [1, 1e-6])],
            ConfigError,
            "the weight for 'code' is 1e-06 of .* that mix gives is 1/655",
        ),
        ([(0, [1, 0]), (9, [2, 0])], ConfigError, "weight for 'code' is 0 in all of the schedule"),
        ([(0, [1, 0])], ConfigError, "weight for 'code' is 0 in all of the schedule. Leave the"),
        ([1, 0], ConfigError, r"positive finite numbers, got 0\.0 for 'code'"),
        ([(k, [1, 1]) for k in range(1025)], ConfigError, "up to 1,024 stretches, got 1,025"),
        ([(k, [1, 1e-3]) for k in range(1024)], ConfigError, "smallest share .* is 1/256"),
        (
            [(0, [1, 1], "linear")],
            ConfigError,
            r"last entry of a schedule, from sample 0 on, is \"li",
        ),
        ([(0, [1, 1], "cosine"), (9, [1, 1])], ConfigError, r"weights\[0\] .* got 'cosine' .* end"),
        ([(0, [1, 1], 9), (9, [1, 1])], ConfigError, r"weights\[0\] .* got 9 \(int\) at its end"),
        (
            [(9, [1, 1], "linear"), (4, [1, 2])],
            ConfigError,
            r"in order, got sample 4 in weights\[1",
        ),
        ([(0, [1, 0], "linear"), (9, [2, 0])], ConfigError, "'code' is 0 in all of the schedule"),
        ([(0, 1), (9, 1)], ConfigError, r"shape \(n,\), n from 1, got \(2, 2\)"),
    ],
)
def test_weights_that_are_no_shares_are_refused(weights: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        Mix(TWO, weights)


@pytest.mark.parametrize(
    ("datasets", "options", "kind", "text"),
    [
        (TWO, {"stop": "never"}, ConfigTypeError, "length must be an int of 1 or more, got None"),
        (TWO, {"stop": "never", "length": 0}, ConfigError, "length must be an int of 1 or more"),
        (
            TWO,
            {"length": 9},
            ConfigError,
            r"length=9 is for stop='never', .* reader\.Subset\(mix, ra",
        ),
        (
            TWO,
            {"stop": "ever"},
            ConfigError,
            "stop must be one of .*, 'never', got 'ever'.*; 'never'",
        ),
        (TWO, {"stop": ["all"]}, ConfigError, r"stop must be one of .* got \['all'\]"),
        (
            TWO,
            {"unit": "batches"},
            ConfigError,
            "unit must be 'samples' or 'tokens', got 'batches'",
        ),
        (
            TWO,
            {"lengths": [1, 1]},
            ConfigError,
            "lengths= are the tokens .* Pass unit='tokens' too",
        ),
        (TWO, {"seed": -1}, ConfigError, r"seed must be an int in \[0"),
        (TWO, {"window": 9}, ConfigError, "window=9 is for random orders, .* Pass seed= too"),
        (
            TWO,
            {"window": 9, "seed": 1},
            ConfigError,
            "window=9 orders .* none of these has `starts`",
        ),
        ([Sharded(0, 4)], {"window": 0, "seed": 1}, ConfigError, "window must be an int of 1 or"),
        ([Sharded(0, 4)], {"window": "x", "seed": 1}, ConfigError, "window must be a number of b"),
        ({"a": Stream()}, {}, ConfigTypeError, "for 'a'. Mix streams by reader.mix"),
        ([A, Items("ab")], {}, ConfigTypeError, "at position 1. Mix streams by reader.mix"),
        ([iter([1])], {}, ConfigTypeError, "at position 0. Mix streams by reader.mix"),
        ([], {}, ConfigError, "Mix takes one dataset or more, got none"),
        ({"a": "x.csv"}, {}, ConfigTypeError, r"Mix takes datasets, got 'x\.csv' \(str\) for 'a'"),
        ({"a": []}, {"stop": "never", "length": 9}, ConfigError, "an empty source for 'a'"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    datasets: Any, options: Any, kind: Any, text: str
) -> None:
    with pytest.raises(kind, match=text):
        Mix(datasets, **options)


@pytest.mark.parametrize(
    "starts", [[0, 4, 3, 10], [0, 9], [1, 10], [10], 5, [0.0, 10.0], [[0, 10]]]
)
def test_starts_that_are_no_shards_are_refused(starts: Any) -> None:
    source = Labelled(0, 10)
    source.starts = starts  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError, match=r"starts of a dataset must be .* to 10, got .* of Labelled"
    ):
        Mix([source], seed=1, window=4)


def test_a_window_of_bytes_needs_the_bytes_of_a_source() -> None:
    source = Sharded(0, 5, 5)
    del source.nbytes
    with pytest.raises(ConfigError, match="window='1kB' is a number of bytes, and Sharded has no"):
        Mix([source], seed=1, window="1kB")


def test_an_order_that_changes_with_the_epoch_is_not_cached() -> None:
    with pytest.raises(ConfigError, match=r"Mix with a seed.*cache what they are made"):
        cache(Mix([range(3), range(3)], seed=1), memory="1MB")
    assert cache(Mix([range(3), range(3)]), memory="1MB")[2] == 1
    assert Mix([cache(range(3), memory="1MB"), range(3)], seed=1)[0] in range(3)


def test_what_stop_waits_for_must_have_a_turn() -> None:
    plan: Plan = [(0, [1, 1]), (20, [1, 0])]
    text = "waits for the source for 'code', and 10 of its 20 samples have no turn: its weight is 0"
    with pytest.raises(ConfigError, match=f"stop='last' {text} from sample 20 on"):
        Mix(TWO, plan, stop="last")
    with pytest.raises(ConfigError, match=f"stop='all' {text} from sample 20 on"):
        Mix(TWO, plan, stop="all")
    with pytest.raises(
        ConfigError, match="makes a mix of more than 9,223,372,036,854,775,807 samp"
    ):
        Mix([range(2**62), range(2**62)])


def test_streams_take_weights_that_stay() -> None:
    with pytest.raises(
        ConfigError, match=r"weights that change, a list of \(sample, weights\), are"
    ):
        reader.mix([Items("ab"), Items("cd")], [(0, [1, 1]), (2, [1, 3])])
    with pytest.raises(ConfigError, match=r"'all', got 'never' .* reader\.Mix has 'never', too"):
        reader.mix([Items("ab")], stop="never")  # type: ignore[arg-type]
