"""Packed tokens: every document once, what lies beside the tokens, arguments that cannot be."""

from __future__ import annotations

import itertools
import json
import pickle
import warnings
from pathlib import Path
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
    Documents,
    Mix,
    PackedTokens,
    SampleIndexError,
    ShardOrder,
    StateError,
    cache,
)
from reader._core.tokens.packing import RowCounter, best_fit

ALL = ["tokens", "positions", "segments", "targets", "loss_mask", "cu_seqlens", "longest"]


def documents_of(lengths: list[int]) -> list[Any]:
    """Return documents whose tokens tell them and their places apart."""
    return [np.arange(count) + 1000 * number + 1 for number, count in enumerate(lengths)]


def check_rows(packed: PackedTokens, documents: list[Any]) -> dict[int, list[tuple[int, int]]]:
    """Check all rows beside what their origin says; return the pieces of each document."""
    found: dict[int, list[tuple[int, int]]] = {}
    length, padding = packed.length, 0
    for number, row in enumerate(packed.__getitems__(range(len(packed)))):
        at = 0
        for segment, (document, begin, count) in enumerate(packed.origin(number)):
            here = slice(at, at + count)
            tokens = documents[document]
            assert row["tokens"][here].tolist() == tokens[begin : begin + count].tolist()
            assert row["positions"][here].tolist() == list(range(count))
            assert (row["segments"][here] == segment).all()
            following = tokens[begin + 1 : begin + count + 1].tolist()
            none = count - len(following)
            assert row["targets"][here].tolist() == following + [-100] * none
            assert row["loss_mask"][here].tolist() == [True] * len(following) + [False] * none
            assert row["cu_seqlens"][segment] == at
            found.setdefault(document, []).append((begin, count))
            at += count
        assert at
        padding += length - at
        assert (row["segments"][at:] == -1).all()
        assert not row["tokens"][at:].any()
        assert not row["positions"][at:].any()
        assert (row["targets"][at:] == -100).all()
        assert not row["loss_mask"][at:].any()
        sizes = np.diff(row["cu_seqlens"])
        assert (sizes >= 0).all()
        assert row["cu_seqlens"][-1] == length
        assert at in row["cu_seqlens"]
        assert sizes.max() == row["longest"]
    assert padding == packed.counts["padding"]
    return found


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=60).filter(any),
    length=st.integers(1, 30),
    window=st.sampled_from([1, 7, 100_000]),
    seed=st.sampled_from([None, 5]),
    epoch=st.integers(0, 2),
    kind=st.sampled_from(["split", "truncate", "drop", "wrapped"]),
)
def test_every_document_comes_once_but_for_what_the_policy_leaves_out(
    lengths: list[int], length: int, window: int, seed: Any, epoch: int, kind: str
) -> None:
    documents = documents_of(lengths)
    options: dict[str, Any] = {"strategy": "wrapped"} if kind == "wrapped" else {"long": kind}
    if kind == "drop" and not any(0 < count <= length for count in lengths):
        with pytest.raises(ConfigError, match=r"no row can be packed.*long='drop' leaves"):
            PackedTokens(documents, length, seed, **options)
        return
    packed = PackedTokens(documents, length, seed, window=window, fields=ALL, **options)
    packed.set_epoch(epoch)
    found = check_rows(packed, documents)
    left_out = 0
    for number, count in enumerate(lengths):
        kept = count
        if count > length:
            kept = {"truncate": length, "drop": 0}.get(kind, count)
        end = 0
        for begin, piece in sorted(found.get(number, [])):
            assert begin == end
            end += piece
        assert end == kept
        if kind != "wrapped" and count <= length:  # no document that fits is cut
            assert len(found.get(number, [])) == (count > 0)
        left_out += count - kept
    counts = packed.counts
    assert counts["tokens"] == sum(lengths)
    assert counts["left_out_tokens"] == left_out
    assert counts["empty_documents"] == lengths.count(0)
    assert counts["rows"] == len(packed) == packed.starts[-1]
    if kind == "wrapped":
        assert counts["padding"] < length


def packed_simply(lengths: list[int], length: int) -> list[int]:
    """Return what rests in each row by best fit of decreasing lengths, in the obvious way."""
    rests: list[int] = []
    for count in sorted(lengths, reverse=True):
        fitting = [rest for rest in rests if rest >= count]
        if fitting:
            rests.remove(min(fitting))
            rests.append(min(fitting) - count)
        else:
            rests.append(length - count)
    return sorted(rests)


@given(
    length=st.integers(1, 5000),
    shares=st.lists(st.floats(0, 1), max_size=80),
)
def test_the_best_fit_is_that_of_its_definition(length: int, shares: list[float]) -> None:
    counts = np.array([max(1, round(share * length)) for share in shares], np.int64)
    firsts, order = best_fit(counts, length)
    assert sorted(order.tolist()) == list(range(len(counts)))
    rests = [length - int(counts[order[a:b]].sum()) for a, b in itertools.pairwise(firsts)]
    assert sorted(rests) == packed_simply(counts.tolist(), length)
    counter = RowCounter(length, 0)
    for _ in range(2):  # it begins anew for each window
        assert counter.count(counts, np.arange(0, len(counts), 3), 3) == len(rests)
    most = max((int(b - a) for a, b in itertools.pairwise(firsts)), default=0)
    assert counter.most_pieces >= most


def test_lengths_below_0_are_refused_before_they_are_counted() -> None:
    with pytest.raises(ValueError, match="document 1 has -1 tokens"):
        RowCounter(8, 0).count(np.array([1, -1, 2]), np.array([0]), 3)


def test_rows_of_long_documents_are_found_without_a_list_of_them() -> None:
    lengths = [10**6, 3, 10**6 + 5, 0, 4]
    documents = documents_of(lengths)
    packed = PackedTokens(documents, 7, 1)
    counts = [sum(count for *_, count in packed.origin(row)) for row in range(0, len(packed), 997)]
    assert set(counts) <= {7, *range(1, 7)}
    assert len(packed) == 2 * (10**6 // 7) + 2  # 6 and 1, 4 and 3 tokens rest


def test_another_epoch_packs_other_documents_together_in_as_many_rows() -> None:
    rng = np.random.default_rng(0)
    documents = documents_of(rng.integers(1, 20, 500).tolist())
    packed = PackedTokens(documents, 20, 3, window=150)
    first = [packed.origin(row) for row in range(len(packed))]
    packed.set_epoch(1)
    second = [packed.origin(row) for row in range(len(packed))]
    assert first != second
    packed.set_epoch(0)
    assert [packed.origin(row) for row in range(len(packed))] == first
    together = [{frozenset(each[0] for each in row) for row in rows} for rows in (first, second)]
    assert len(together[0] & together[1]) < len(first) // 2


def test_without_a_seed_rows_come_in_the_order_of_the_documents() -> None:
    documents = documents_of([2] * 1000)
    packed = PackedTokens(documents, 6, window=256)
    firsts = [packed.origin(row)[0][0] for row in range(len(packed))]
    assert firsts == sorted(firsts)
    assert [each[0] for each in packed.origin(0)] == [0, 1, 2]


def test_fields_of_documents_are_packed_with_the_tokens() -> None:
    documents = [
        {"tokens": [1, 2, 3], "loss_mask": [0, 1, 1], "labels": [-100, 2, 3], "kind": [7, 7, 7]},
        {"tokens": [4, 5], "loss_mask": [0, 1], "labels": [-100, 5], "kind": [8, 8]},
        {
            "tokens": [6, 7, 8, 9],
            "loss_mask": [1, 1, 1, 0],
            "labels": [6, 7, 8, 9],
            "kind": [9] * 4,
        },
    ]
    with pytest.raises(ConfigError, match="what pads the field 'kind'"):
        PackedTokens(documents, 6)
    packed = PackedTokens(documents, 6, pad={"kind": -1})
    assert packed.fields == ("tokens", "loss_mask", "labels", "kind", "positions", "segments")
    row = packed[1]
    assert row["tokens"].tolist() == [4, 5, 6, 7, 8, 9]
    assert row["loss_mask"].tolist() == [0, 1, 1, 1, 1, 0]
    assert packed[0]["labels"].tolist() == [-100, 2, 3, -100, -100, -100]
    assert packed[0]["kind"].tolist() == [7, 7, 7, -1, -1, -1]
    moved = PackedTokens(documents, 6, fields=["targets", "loss_mask"])[1]
    assert moved["targets"].tolist() == [5, -100, 7, 8, 9, -100]
    assert moved["loss_mask"].tolist() == [1, 0, 1, 1, 0, 0]  # of the targets
    cut = PackedTokens(documents, 3, fields=["tokens", "targets", "loss_mask"])
    rows = {tuple(row["tokens"].tolist()): row for row in map(cut.__getitem__, range(len(cut)))}
    assert rows[6, 7, 8]["targets"].tolist() == [7, 8, 9]
    assert rows[6, 7, 8]["loss_mask"].tolist() == [1, 1, 0]


def test_a_row_has_what_is_asked_for() -> None:
    documents = documents_of([3, 2])
    assert PackedTokens(documents, 4).fields == ("tokens", "positions", "segments")
    every = PackedTokens(documents, 4, targets=True, loss_mask=True, cu_seqlens=True)
    assert sorted(every.fields) == sorted(ALL)
    named = PackedTokens(documents, 4, fields=ALL)
    for row in range(len(every)):
        for name, array in every[row].items():
            assert np.array_equal(array, named[row][name])


def test_a_loss_mask_of_bool_is_padded_with_false() -> None:
    documents = [{"tokens": [1, 2, 3], "loss_mask": np.array([False, True, True])}]
    row = PackedTokens(documents, 4)[0]
    assert row["loss_mask"].tolist() == [False, True, True, False]
    assert row["loss_mask"].dtype == bool
    assert PackedTokens(documents, 4, pad={"loss_mask": True})[0]["loss_mask"][3]
    with pytest.raises(ConfigError, match=r"'loss_mask' is 2 .* which bool does not hold"):
        PackedTokens(documents, 4, pad={"loss_mask": 2})


def test_types_and_padding_are_as_asked() -> None:
    documents = [np.arange(3, dtype=np.uint16)]
    packed = PackedTokens(documents, 4, as_dtype=None, pad=9, fields=["tokens"])
    assert packed[0]["tokens"].dtype == np.uint16
    assert packed[0]["tokens"].tolist() == [0, 1, 2, 9]
    assert PackedTokens(documents, 4)[0]["tokens"].dtype == np.int64
    with pytest.raises(
        ConfigError, match=r"pad of the field 'tokens' is -1 .int., which uint16 does not"
    ):
        PackedTokens(documents, 4, as_dtype=None, pad=-1)
    with pytest.raises(
        ConfigError, match=r"ignore_index of the field 'targets' is -100 .int., which"
    ):
        PackedTokens(documents, 4, as_dtype=None, fields=["targets"])
    other = PackedTokens(documents, 4, ignore_index=-1, fields=["targets"])
    assert other[0]["targets"].tolist() == [1, 2, -1, -1]


def test_a_pickled_copy_has_the_same_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "tokens.bin"
    rng.integers(0, 20, 5000).astype(np.uint16).tofile(path)
    packed = PackedTokens(Documents(path, document_end=0), 64, 1, window=50)
    packed.set_epoch(3)
    packed[0]
    copy = pickle.loads(pickle.dumps(packed))
    assert len(pickle.dumps(packed)) < 10_000
    for row in range(len(packed)):
        assert copy.origin(row) == packed.origin(row)
        assert (copy[row]["tokens"] == packed[row]["tokens"]).all()


def test_windows_that_are_planned_again_and_again_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reader.tokens.packing._MOST_KEPT", 1000)
    packed = PackedTokens(documents_of([3] * 3000), 9, 1, window=128)
    windows = len(packed.starts) - 1
    rows = np.random.default_rng(0).permutation(len(packed)).tolist()
    with pytest.warns(UserWarning, match=rf"over {windows} windows of documents, of which .*Shard"):
        assert all(map(packed.origin, rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(6):
            packed.set_epoch(epoch)
            for row in ShardOrder(packed, 0, window=1):
                packed.origin(row)


def test_a_group_of_shard_order_has_the_rows_of_a_few_windows() -> None:
    packed = PackedTokens(documents_of([3] * 8000), 9, 1, window=128)
    windows = len(packed.starts) - 1
    assert ShardOrder(packed, 0).window == len(packed) * 16 // windows
    assert ShardOrder(PackedTokens(documents_of([1] * 50), 1), 0).window == 50 * 16


class Halved(PackedTokens):
    """Rows of a subclass that makes them in its own way."""

    def __getitem__(self, index: int, /) -> Any:
        return {"half": super().__getitem__(index)["tokens"][::2].copy()}


class LastTokens(Documents):
    """Documents of a subclass that reads them in its own way."""

    def __getitem__(self, index: int, /) -> Any:
        return {"last": super().__getitem__(index)["tokens"][-1]}


def test_a_subclass_with_its_own_getitem_is_asked_for_each_sample() -> None:
    documents = [[1, 2, 3, 4], [5, 6, 7, 8]]
    (rows,) = DataLoader(Halved(documents, 4), batch_size=2)
    assert {name: values.tolist() for name, values in rows.items()} == {"half": [[1, 3], [5, 7]]}
    (found,) = DataLoader(LastTokens(documents), batch_size=2)
    assert found["last"].tolist() == [4, 8]


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32])
def test_a_loss_mask_of_any_type_is_padded_with_0(dtype: Any) -> None:
    documents = [
        {"tokens": np.arange(count) + 1, "loss_mask": (np.arange(count) % 2).astype(dtype)}
        for count in (5, 2)
    ]
    row = PackedTokens(documents, 8, fields=["loss_mask", "targets"])[0]
    assert row["loss_mask"].tolist() == [1, 0, 1, 0, 0, 1, 0, 0]
    assert row["loss_mask"].dtype == dtype
    (row,) = PackedTokens(documents, 8, fields=["loss_mask"], pad={"loss_mask": 1})
    assert row["loss_mask"].tolist() == [0, 1, 0, 1, 0, 0, 1, 1]


def test_a_mask_of_flags_is_not_padded_with_numbers() -> None:
    documents = [{"tokens": [1], "loss_mask": [True]}]
    for value in (2, 0.5, [0], "x"):
        with pytest.raises(ConfigError, match=r"pad of the field 'loss_mask' is .* bool does no"):
            PackedTokens(documents, 2, pad={"loss_mask": value})


def test_batches_are_filled_by_indices_from_the_end_too() -> None:
    packed = PackedTokens(documents_of([5, 9, 3, 30]), 8, 1)
    out = {
        "tokens": np.zeros((2, 8), np.int64),
        "positions": np.zeros((2, 8), np.int32),
        "segments": np.zeros((2, 8), np.int32),
    }
    packed.__fill_batch__(np.array([-1, 0]), out)
    for row, index in enumerate((-1, 0)):
        for name, values in packed[index].items():
            assert out[name][row].tolist() == values.tolist()
    with pytest.raises(SampleIndexError, match="index -9 is outside of 6 rows"):
        packed.__fill_batch__(np.array([-9, 0]), out)


def test_mixed_rows_have_cu_seqlens_of_one_length_by_a_map() -> None:
    def alike(row: dict[str, Any]) -> dict[str, Any]:
        more = (0, 8 - len(row["cu_seqlens"]))
        return {"cu_seqlens": np.pad(row["cu_seqlens"], more, constant_values=8)}

    packed = [
        PackedTokens(documents_of(lengths), 8, fields=["cu_seqlens"]).map(alike)
        for lengths in ([8], [2, 2, 2, 1])
    ]
    (batch,) = DataLoader(Mix(packed), batch_size=2)
    assert batch["cu_seqlens"].tolist() == [[0] + [8] * 7, [0, 2, 4, 6, 7, 8, 8, 8]]


def test_rows_that_change_with_the_epoch_are_not_cached() -> None:
    documents = documents_of([5, 9, 3, 30])
    with pytest.raises(ConfigError, match=r"PackedTokens with a seed.*cache what they"):
        cache(PackedTokens(documents, 8, 1), memory="1MB")
    packed = PackedTokens(documents, 8)
    cached = cache(packed, memory="1MB")
    for _ in range(2):
        assert cached[0]["tokens"].tolist() == packed[0]["tokens"].tolist()


def test_it_has_the_windows_of_shard_order() -> None:
    packed = PackedTokens(documents_of([3] * 1000), 9, 1, window=128)
    order = ShardOrder(packed, 0, window=100)
    assert sorted(order) == list(range(len(packed)))
    windows = np.searchsorted(packed.starts, list(order), "right")
    assert len(set(windows[:100].tolist())) <= 4


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"length": 0}, ConfigError, "length must be an int in .1, 16777216., got 0"),
        ({"long": "cut"}, ConfigError, "long must be one of 'split', .*'never', got 'cut'"),
        (
            {"long": "never"},
            ConfigError,
            r"document 1 has 9 tokens, a row has 8, and long='never'.*1 of 3 documents.*length, or",
        ),
        ({"strategy": "first"}, ConfigError, "strategy must be one of 'best_fit', 'wrapped'"),
        ({"strategy": "wrapped", "long": "drop"}, ConfigError, "long='drop' is for strategy="),
        ({"window": 0}, ConfigError, "window must be an int of 1 or more"),
        ({"seed": -1}, ConfigError, "seed must be"),
        ({"fields": "tokens"}, ConfigTypeError, "fields must be a list of names"),
        ({"fields": []}, ConfigError, "fields must name one field at least"),
        (
            {"fields": ["masks"]},
            ConfigError,
            "fields names 'masks', and there are tokens, positions",
        ),
        ({"fields": ["tokens", "loss_mask"]}, ConfigError, "ask for 'targets' too"),
        ({"loss_mask": True}, ConfigError, "ask for 'targets' too"),
        ({"targets": 1}, ConfigTypeError, "targets must be"),
        ({"targets": True, "fields": ["tokens"]}, ConfigError, "targets=True asks for more"),
        ({"as_dtype": {"labels": "int64"}}, ConfigError, "as_dtype names 'labels', and there"),
        ({"as_dtype": "float32"}, ConfigError, "as_dtype must be one of uint8"),
        ({"as_dtype": "uint8"}, ConfigError, "as_dtype must hold every token of int64"),
        ({"pad": {"labels": 0}}, ConfigError, "pad names 'labels', and there are tokens"),
        ({"pad": "x"}, ConfigError, "pad of the field 'tokens' is 'x'"),
        ({"pad": True}, ConfigError, "pad of the field 'tokens' is True"),
        ({"pad": [0]}, ConfigError, r"pad of the field 'tokens' is \[0\]"),
        ({"fields": [["tokens"]]}, ConfigError, r"fields names \['tokens'\], and there are tokens"),
        ({"ignore_index": None}, ConfigTypeError, "ignore_index must be"),
    ],
)
def test_arguments_that_cannot_be_are_told(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    documents = documents_of([3, 9, 2])
    with pytest.raises(error, match=text):
        PackedTokens(documents, **{"length": 8, **options})


def test_documents_that_have_no_tokens_or_a_field_of_ours_are_told() -> None:
    with pytest.raises(ConfigError, match="no row can be packed: the 2 documents have 0 tokens"):
        PackedTokens([np.zeros(0, int), np.zeros(0, int)], 4)
    with pytest.raises(ConfigError, match="have a field 'positions', which a row makes of its own"):
        PackedTokens([{"tokens": [1], "positions": [0]}], 4)
    packed = PackedTokens(documents_of([3, 3]), 3)
    for index in (2, -3):
        with pytest.raises(SampleIndexError, match="outside of 2 rows"):
            packed[index]


def test_a_document_that_changed_is_told() -> None:
    class Held:
        def __init__(self) -> None:
            self.documents = documents_of([3, 4])

        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return self.documents[index]

    held = Held()
    packed = PackedTokens(Documents(held), 10)
    held.documents[0] = np.arange(5)
    with pytest.raises(DatasetError):
        packed[0]


def test_a_state_tells_other_rows_apart() -> None:
    documents = documents_of([5, 9, 3, 30])
    packed = PackedTokens(documents, 8, 1)
    loader: Any = DataLoader(packed, batch_size=1)
    next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    same: Any = DataLoader(PackedTokens(documents, 8, 1), batch_size=1)
    same.load_state_dict(state)
    others = {
        "seed": PackedTokens(documents, 8, 2),
        "tokens": PackedTokens([*documents[:3], documents[3][:-1]], 8, 1),
        "of.lengths": PackedTokens(documents[::-1], 8, 1),
        "strategy": PackedTokens(documents, 8, 1, strategy="wrapped"),
    }
    for fact, other in others.items():
        loader = DataLoader(other, batch_size=1)
        with pytest.raises(StateError, match=fact):
            loader.load_state_dict(state)
