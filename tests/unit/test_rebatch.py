"""Rebatching: rows keep their order, whatever the pieces; containers, states, what does not fit."""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reader import (
    CollateError,
    ConfigError,
    ConfigTypeError,
    DataLoader,
    IterableDataset,
    StateError,
    concat_ragged,
    rebatch,
)

Pair = collections.namedtuple("Pair", "left right")
SIZES = st.lists(st.integers(0, 9), max_size=12)


def pieces_of(sizes: list[int]) -> list[Any]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [np.arange(start, stop) for start, stop in itertools.pairwise(ends)]


def rows_of(batches: Any) -> list[Any]:
    return [np.asarray(batch).tolist() for batch in batches]


class Walk(IterableDataset[Any]):
    """The items of a list, by iterators with a position as state; an exception is raised."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.drawn = 0

    def __iter__(self) -> Any:
        return WalkIterator(self)


class WalkIterator(Iterator[Any]):
    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.at = 0

    def __next__(self) -> Any:
        if self.at >= len(self.walk.items):
            raise StopIteration
        self.at += 1
        self.walk.drawn += 1
        item = self.walk.items[self.at - 1]
        if isinstance(item, Exception):
            raise item
        return item

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


def taken(batches: Any, most: int = 10**6) -> list[Any]:
    """The results, with the exceptions in their places."""
    found: list[Any] = []
    while len(found) < most:
        try:
            found.append(next(batches).tolist())
        except StopIteration:
            break
        except (CollateError, LookupError) as error:
            found.append(str(error))
    return found


# ---- rows --------------------------------------------------------------------------------------


@given(SIZES, st.integers(1, 12), st.booleans())
def test_01_rows_keep_their_order_and_all_batches_have_the_size(
    sizes: list[int], size: int, drop_last: bool
) -> None:
    wanted = list(range(sum(sizes)))
    if drop_last:
        wanted = wanted[: len(wanted) // size * size]
    found = rows_of(rebatch(pieces_of(sizes), size, drop_last))
    assert found == [wanted[at : at + size] for at in range(0, len(wanted), size)]


def test_containers_of_any_kind_are_kept() -> None:
    def made(start: int, stop: int) -> Any:
        rows = np.arange(start, stop)
        return {"x": rows, "more": (rows[:, None] * [1, 2], [Pair(rows * 0.5, rows.astype("U3"))])}

    found = list(rebatch([made(0, 3), made(3, 20), made(20, 21)], 4))
    assert [len(batch["x"]) for batch in found] == [4, 4, 4, 4, 4, 1]
    for number, batch in enumerate(found):
        wanted = made(4 * number, min(4 * number + 4, 21))
        np.testing.assert_equal(batch, wanted)
        assert type(batch["more"]) is tuple
        assert type(batch["more"][1][0]) is Pair


def test_batch_within_one_piece_is_a_view_and_one_of_several_is_new() -> None:
    first, second = np.zeros((5, 2), np.float32), np.ones((5, 2), np.float32)
    found = list(rebatch([first, second], 4))
    assert [np.shares_memory(batch, first) for batch in found] == [True, False, False]
    assert [np.shares_memory(batch, second) for batch in found] == [False, False, True]


def test_many_pieces_of_a_row_each_make_a_batch() -> None:
    found = list(rebatch([np.full((1, 2), value) for value in range(5000)], 2500))
    assert [batch[:, 0].tolist() for batch in found] == [
        list(range(2500)),
        list(range(2500, 5000)),
    ]


def test_strings_of_any_width_are_joined() -> None:
    pieces = [np.array(["a", "b"]), np.array(["long", "longer"])]
    assert rows_of(rebatch(pieces, 3)) == [["a", "b", "long"], ["longer"]]


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_tensors_come_out_as_arrays(framework: str) -> None:
    module = pytest.importorskip(framework)
    make = module.tensor if framework == "torch" else module.to_tensor
    pieces = [{"x": make([1.0, 2.0, 3.0])}, {"x": make([4.0])}]
    found = list(rebatch(pieces, 2))
    assert [type(batch["x"]) for batch in found] == [np.ndarray] * 2
    assert [batch["x"].tolist() for batch in found] == [[1, 2], [3, 4]]


def test_tensors_of_types_that_numpy_lacks_keep_them() -> None:
    torch = pytest.importorskip("torch")
    pieces = [torch.ones(3, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)]
    loader = DataLoader(rebatch(pieces, 5), batch_size=None, framework="torch")
    (batch,) = loader
    assert batch.dtype == torch.bfloat16
    assert batch.tolist() == [1, 1, 1, 0, 0]


# ---- states ------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(st.integers(0, 9), st.just("bad"), st.just("wrong")), min_size=1, max_size=14
    ),
    st.integers(1, 12),
    st.integers(0, 30),
)
def test_iterator_goes_on_at_any_batch_past_errors_and_pieces_that_do_not_fit(
    sizes: list[Any], size: int, place: int
) -> None:
    pieces = iter(pieces_of([each for each in sizes if type(each) is int]))
    items = [
        LookupError(f"bad {number}") if each == "bad"
        else np.zeros((2, 3)) if each == "wrong"
        else next(pieces)
        for number, each in enumerate(sizes)
    ]  # fmt: skip
    walk = Walk(items)
    wanted = taken(iter(rebatch(walk, size)))
    batches: Any = iter(rebatch(walk, size))
    assert taken(batches, place) == wanted[:place]
    state = json.loads(json.dumps(batches.state_dict()))
    again: Any = iter(rebatch(walk, size))
    again.load_state_dict(state)
    final: Any = iter(rebatch(walk, size))
    final.load_state_dict(json.loads(json.dumps(again.state_dict())))
    assert taken(again) == wanted[place:]
    assert taken(final) == wanted[place:]


def test_resume_draws_only_the_pieces_of_two_batches_again() -> None:
    walk = Walk(pieces_of([10] * 100))
    batches: Any = iter(rebatch(walk, 25))
    wanted = taken(iter(rebatch(walk, 25)))
    taken(batches, 30)
    walk.drawn = 0
    again: Any = iter(rebatch(walk, 25))
    again.load_state_dict(batches.state_dict())
    assert walk.drawn <= 6
    assert taken(again) == wanted[30:]


def test_size_may_be_another_one_after_a_resume() -> None:
    walk = Walk(pieces_of([10] * 10))
    batches: Any = iter(rebatch(walk, 25))
    taken(batches, 1)
    again: Any = iter(rebatch(walk, 7))
    again.load_state_dict(batches.state_dict())
    assert list(itertools.chain(*taken(again))) == list(range(25, 100))


# ---- what does not fit -------------------------------------------------------------------------

ROWS = np.zeros((3, 2), np.float32)


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([5], r"cannot cut piece 0: it is 5 \(int\), which is no array of rows. Yield arrays"),
        ([{}], r"cannot cut piece 0: it is {} \(dict\)"),
        ([np.float32(1)], "cannot cut piece 0: it is .*, which is no array of rows"),
        ([np.zeros(())], r"cannot cut piece 0: it has the shape \(\), without rows. Give"),
        ([[1, 2]], r"cannot cut piece 0: it is \[1, 2\] \(list\)"),
        ([{"x": ROWS, "y": "a"}], r"piece 0: its field \['y'\] is 'a' \(str\), which is no array"),
        ([{"x": ROWS, "y": None}], r"its field \['y'\] is None"),
        ([(ROWS, np.zeros(()))], r"its field \[1\] has the shape \(\), without rows"),
        ([(ROWS, np.zeros(4))], r"its field \[1\] has 4 rows, and its field \[0\] has 3. Give all"),
        ([np.array([None, 1])], "piece 0: it is array.*, which is no array of rows"),
        ([concat_ragged([ROWS])], r"piece 0: its field \[1\] is .*, which is no array of rows"),
        ([ROWS, ROWS[:, :1]], r"join piece 1: it has rows of dtype float32 and shape \(1,\), and"),
        ([ROWS, ROWS.astype(int)], r"dtype int64 and shape \(2,\), and those before have float32"),
        ([{"x": ROWS}, {"y": ROWS}], r"join piece 1, dict\(\['y'\].*with those before, dict"),
        ([ROWS, (ROWS,)], r"cannot join piece 1, tuple.*, with those before, field 0. Yield the"),
    ],
    ids=range(15),
)  # fmt: skip
def test_10_pieces_that_do_not_fit_are_reported_and_skipped(pieces: Any, text: str) -> None:
    before = pieces[:-1]
    behind = before or [ROWS]
    batches = iter(rebatch([*pieces, *behind], 2))
    found: list[Any] = []
    with pytest.raises(CollateError, match=text):
        found.extend(batches)
    found.extend(batches)
    rows = [len(batch["x"] if isinstance(batch, dict) else batch) for batch in found]
    assert rows == ([2, 2, 2] if before else [2, 1])


def test_10_piece_that_does_not_fit_takes_the_place_of_a_batch() -> None:
    pieces = [np.arange(4), np.zeros(3), np.arange(4, 9)]
    batches = iter(DataLoader(rebatch(pieces, 3), batch_size=None))
    assert next(batches).tolist() == [0, 1, 2]
    with pytest.raises(CollateError, match="piece 1: it has rows of dtype float64"):
        next(batches)
    assert rows_of(batches) == [[3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ((iter([ROWS]), 3), ConfigError, "rebatch takes a stream with a fresh iterator for each"),
        ((5, 3), ConfigTypeError, "takes a stream, which is an object with __iter__, got 5"),
        (([ROWS], 0), ConfigError, "size must be an int of 1 or more, got 0"),
        (([ROWS], 1.5), ConfigTypeError, "size must be an int of 1 or more, got 1.5"),
        (([ROWS], 3, 1), ConfigTypeError, "drop_last must be a bool, got 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_rebatched_is_refused(arguments: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        rebatch(*arguments)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pieces": 9}, "the state needs 9 pieces with at least 5 rows, and the dataset yields"),
        ({"used": 99}, "with at least 99 rows"),
        ({"draws": 40}, "Walk ends before the place where the state was saved"),
        ({"draws": None}, "draws in the state of an iterator must be of type int"),
        ({"unfit": 5}, "unfit in the state of an iterator must be of type list"),
    ],
)
def test_state_that_does_not_fit_is_refused(change: Any, text: str) -> None:
    walk = Walk(pieces_of([10] * 10))
    batches: Any = iter(rebatch(walk, 25))
    taken(batches, 1)
    again: Any = iter(rebatch(walk, 25))
    with pytest.raises(StateError, match=text):
        again.load_state_dict({**batches.state_dict(), **change})
