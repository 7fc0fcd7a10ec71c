"""The keyed permutation: every value once, any part by itself, no pattern, never changed."""

from __future__ import annotations

import itertools
import pickle
import threading
import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader.errors import ConfigError, ConfigTypeError
from reader.random.permutation import ALGORITHM, Permutation, indices_at, shuffled

KEYS = st.integers(0, 2**128 - 1)
LARGE = st.one_of(st.integers(1025, 2**63 - 1), st.sampled_from([10**9, 2**62, 2**63 - 1]))
TABLE = 1024  # counts above it are computed, those up to it are kept


@given(count=st.integers(0, 5000), key=KEYS)
def test_each_value_has_one_position(count: int, key: int) -> None:
    order = Permutation(count, key)
    assert len(order) == order.count == count
    values = order.take(0, count)
    assert (values.dtype, values.shape) == (np.int64, (count,))
    assert np.array_equal(np.sort(values), np.arange(count))


@pytest.mark.parametrize("count", [TABLE - 1, TABLE, TABLE + 1, 32**2 * 2, 33**2, 2**17 + 1, 10**6])
def test_counts_at_the_edges_of_the_construction_lose_nothing(count: int) -> None:
    values = Permutation(count, key=count).take(0, count)
    assert np.array_equal(np.sort(values), np.arange(count))


@given(
    count=st.one_of(st.integers(1, 3000), LARGE),
    key=KEYS,
    start=st.integers(0, 2**63 - 1),
    length=st.integers(0, 50),
    step=st.one_of(st.integers(1, 5), st.integers(1, 2**62)),
)
def test_any_part_is_that_of_the_whole(
    count: int, key: int, start: int, length: int, step: int
) -> None:
    order = Permutation(count, key)
    places = range(start % (count + 1), count, step)[:length]
    stop = places[-1] + 1 if places else places.start
    values = order.take(places.start, stop, step).tolist()
    assert (
        values == [order[place] for place in places] == order[places.start : stop : step].tolist()
    )
    assert all(0 <= value < count for value in values)
    assert len(set(values)) == len(values)


def test_one_value_is_a_python_int() -> None:
    order = Permutation(2000, key=1)
    assert type(order[7]) is int
    assert order[np.int64(7)] == order[7]  # type: ignore[call-overload]


# The contract of ALGORITHM 1. Saved states depend on it: if it changes, ALGORITHM must change.
@pytest.mark.parametrize(
    ("count", "key", "first", "last"),
    [
        (10, 1, [9, 3, 1], 0),
        (1024, 2**127 + 5, [634, 554, 505], 353),
        (1025, 0, [443, 344, 291], 681),
        (10**6, 1, [570810, 316100, 892942], 116578),
        (10**9, 2**64, [412337767, 71694704, 945487516], 188012589),
        (
            2**63 - 1,
            2**128 - 1,
            [4321785124089440012, 608000495855362008, 2637964094087580227],
            4802605816693041893,
        ),
    ],
)
def test_the_order_stays_what_it_was_in_earlier_versions(
    count: int, key: int, first: list[int], last: int
) -> None:
    order = Permutation(count, key)
    assert (ALGORITHM, order.take(0, 3).tolist(), order[count - 1]) == (1, first, last)


def test_the_order_of_an_epoch_stays_what_it_was_in_earlier_versions() -> None:
    assert shuffled(10**9, 1, 2).take(0, 3).tolist() == [694256857, 900354547, 639004617]


def deviation(observed: npt.NDArray[Any], expected: float, freedom: int) -> float:
    """How far chi-square is from its mean by chance, in standard deviations."""
    chi_square = float(((observed - expected) ** 2 / expected).sum())
    return (chi_square - freedom) / (2 * freedom) ** 0.5


def orders(count: int, keys: int) -> npt.NDArray[np.int64]:
    """The orders of some seeds and epochs, one in each row."""
    return np.stack([shuffled(count, key // 20, key % 20).take(0, count) for key in range(keys)])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_every_order_of_few_samples_comes_equally_often(count: int) -> None:
    possible = list(itertools.permutations(range(count)))
    seen = Counter(map(tuple, orders(count, 4000).tolist()))
    assert set(seen) == set(possible)
    if count > 1:
        numbers = np.array([seen[each] for each in possible])
        assert abs(deviation(numbers, 4000 / len(possible), len(possible) - 1)) < 4


@pytest.mark.parametrize(
    ("count", "keys"), [(6, 4000), (7, 4000), (8, 4000), (100, 3000), (1024, 400), (1025, 2000)]
)
def test_no_pattern_shows(count: int, keys: int) -> None:
    """Positions, distances, neighbours and orders of the next key look random."""
    found = orders(count, keys)
    cells = np.bincount((found + count * np.arange(count)).ravel(), minlength=count * count)
    assert abs(deviation(cells, keys / count, (count - 1) ** 2)) < 4
    moved = np.bincount(((found - np.arange(count)) % count).ravel(), minlength=count)
    assert abs(deviation(moved, keys, count - 1)) < 4
    beside = np.bincount(((found[:, 1:] - found[:, :-1]) % count).ravel(), minlength=count)
    assert beside[0] == 0
    assert abs(deviation(beside[1:], keys, count - 2)) < 4
    after = np.bincount(((found[1:] - found[:-1]) % count).ravel(), minlength=count)
    assert abs(deviation(after, keys - 1, count - 1)) < 4


def test_no_pattern_shows_among_a_billion() -> None:
    """The 1/100 of the range that a position and its neighbour lead to, far into the order."""
    order = shuffled(10**9, 3, 0)
    for start in (0, 900_000_000):
        tenths = order.take(start, start + 200_001) // 10**7
        pairs = np.bincount(tenths[:-1] * 100 + tenths[1:], minlength=10_000)
        assert abs(deviation(pairs, 20, 9999)) < 5
        far = np.bincount(tenths[:-31623] * 100 + tenths[31623:], minlength=10_000)
        assert abs(deviation(far, (200_001 - 31623) / 10_000, 9999)) < 5


@given(count=st.integers(1000, 1100), key=KEYS, bit=st.integers(0, 127))
def test_each_bit_of_the_key_changes_the_order(count: int, key: int, bit: int) -> None:
    one, other = (Permutation(count, each).take(0, count) for each in (key, key ^ 1 << bit))
    assert int((one == other).sum()) < 20


def test_indices_come_as_python_ints_a_few_at_a_time() -> None:
    order = shuffled(10_000, 5, 0)
    for places in (range(10_000), range(9_990, 10_000), range(3, 10_000, 7), range(5, 5)):
        indices = list(indices_at(order, places))
        assert indices == order.take(0, 10_000)[places.start : places.stop : places.step].tolist()
        assert all(type(index) is int for index in indices[:3])


def test_a_billion_samples_take_no_memory() -> None:
    tracemalloc.start()
    try:
        order = shuffled(10**9, 1, 0)
        indices = indices_at(order, range(900_000_000, 10**9))
        assert len({next(indices) for _ in range(10_000)}) == 10_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 21


def test_threads_may_share_an_order() -> None:
    order = Permutation(10**9, key=4)
    found: list[npt.NDArray[np.int64]] = []
    threads = [
        threading.Thread(target=lambda: found.append(order.take(0, 100_000))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(each, order.take(0, 100_000)) for each in found)
    assert len(found) == 4


def test_an_order_survives_pickle_and_says_what_it_is() -> None:
    order = Permutation(5000, key=255)
    copy = pickle.loads(pickle.dumps(order))
    assert np.array_equal(copy.take(0, 5000), order.take(0, 5000))
    assert repr(copy) == "Permutation(5000, key=0xff)"
    assert Permutation.__doc__ is not None


@pytest.mark.parametrize(
    ("ask", "error", "match"),
    [
        (lambda p: p[-1], IndexError, r"10 values has no place -1: places go from 0 to 9"),
        (lambda p: p[10], IndexError, r"no place 10"),
        (lambda p: p[2**70], IndexError, r"no place 1180591620717411303424"),
        (lambda p: p["a"], TypeError, r"int"),
        (lambda p: p[::-1], IndexError, r"read forwards: the step .* got -1"),
        (lambda p: p.take(-1, 3), IndexError, r"cannot take places -1 to 3 by 1 .* of 10 values"),
        (lambda p: p.take(0, 11), IndexError, r"cannot take places 0 to 11"),
        (lambda p: p.take(0, 3, 0), IndexError, r"by 0 .* steps from 1"),
        (lambda p: Permutation(-1, 0), ConfigError, r"count must be an int of 0 or more, got -1"),
        (lambda p: Permutation(2**63, 0), ConfigError, r"count must be"),
        (lambda p: Permutation(1.0, 0), ConfigTypeError, r"count must be .* got 1\.0"),  # type: ignore[arg-type]
        (lambda p: Permutation(1, 2**128), ConfigError, r"key must be an int in \[0, "),
        (lambda p: Permutation(1, None), ConfigTypeError, r"key must be .* got None"),  # type: ignore[arg-type]
    ],
)
def test_positions_out_of_range_are_refused(ask: Any, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        ask(Permutation(10, key=0))
    assert Permutation(10, key=0).take(5, 2).shape == (0,)
