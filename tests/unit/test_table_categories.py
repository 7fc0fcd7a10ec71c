"""What codes of categories mean: the same in several tables, and of integers as of texts."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, ConfigTypeError, TableRows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

CITIES = ["Oslo", "Rome", "Bern"]


def codes(rows: TableRows, name: str = "c") -> list[int]:
    assert {row[name].dtype for row in rows} == {np.dtype(np.int32)}
    return [int(row[name]) for row in rows]


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_codes_mean_what_categories_say(kind: str) -> None:
    column = pa.array(["Rome", "Oslo", "Rome"])
    column = column.dictionary_encode() if kind == "dictionary" else column.cast(kind)
    for given in (CITIES, tuple(CITIES), np.array(CITIES)):
        rows = TableRows(pa.table({"c": column}), categories={"c": given})
        assert codes(rows) == [1, 0, 1]
        assert rows.categories == {"c": CITIES}
    rows = TableRows(pa.table({"c": column}), {"at": "c"}, categories={"at": CITIES})
    assert codes(rows, "at") == [1, 0, 1]


def test_a_validation_table_has_the_codes_of_the_training_table() -> None:
    train = pa.table({"c": ["Oslo", "Rome", "Oslo"], "k": [900, 7, 900]})
    valid = pa.table({"c": ["Rome", "Oslo"], "k": [7, 900]})
    rows = TableRows(train, as_dtype=dict.fromkeys("ck", "category"))
    again = TableRows(valid, categories=rows.categories)
    assert rows.categories == again.categories == {"c": ["Oslo", "Rome"], "k": [900, 7]}
    assert (codes(rows), codes(again)) == ([0, 1, 0], [1, 0])
    assert (codes(rows, "k"), codes(again, "k")) == ([0, 1, 0], [1, 0])
    separate = TableRows(valid, as_dtype={"c": "category"})
    assert codes(separate) == [0, 1]  # numbered as they come


@pytest.mark.parametrize("kind", ["int8", "uint16", "int64", "uint64"])
def test_integers_have_codes(kind: str, tmp_path: Path) -> None:
    table = pa.table({"c": np.array([90, 7, 90, 3], kind)})
    rows = TableRows(table, as_dtype={"c": "category"})
    assert (codes(rows), rows.categories) == ([0, 1, 0, 2], {"c": [90, 7, 3]})
    pq.write_table(table, tmp_path / "0.parquet")
    pq.write_table(pa.table({"c": np.array([3, 90], np.int64)}), tmp_path / "1.parquet")
    rows = TableRows(tmp_path, categories={"c": np.array([3, 7, 90])})
    assert codes(rows) == [2, 1, 2, 0, 0, 2]
    assert {type(each) for each in rows.categories["c"]} == {int}


def test_nulls_have_the_code_that_is_asked_for() -> None:
    for column in (pa.array(["Rome", None]), pa.array(["Rome", None]).dictionary_encode()):
        table = pa.table({"c": column})
        rows = TableRows(table, categories={"c": CITIES}, fill_null={"c": -2})
        assert codes(rows) == [1, -2]
        with pytest.raises(ConfigError, match=r"has 1 null: pass fill_null={'c': -1}"):
            TableRows(table, categories={"c": CITIES}, fill_unknown={"c": -1})


def test_an_unknown_value_is_refused_or_has_the_code_that_is_asked_for(tmp_path: Path) -> None:
    table = pa.table({"c": ["Rome", "Kyiv", "Oslo"], "k": [5, 6, 5]})
    with pytest.raises(
        ConfigError,
        match=r"'c' of the table has 'Kyiv'.* none of its 3 categories: .* fill_unknown={'c': -1}",
    ):
        TableRows(table, ["c"], categories={"c": CITIES})
    with pytest.raises(ConfigError, match=r"'k' of the table has 6 .*, which is none of its 1 cat"):
        TableRows(table, ["k"], categories={"k": [5]})
    rows = TableRows(table, ["c"], categories={"c": CITIES}, fill_unknown={"c": -1})
    assert codes(rows) == [1, -1, 0]
    assert (
        codes(TableRows(table, ["k"], categories={"k": []}, fill_unknown={"k": 3}), "k") == [3] * 3
    )
    pq.write_table(table, tmp_path / "t.parquet")
    for unknown in (-1, -7):
        options: Any = {"categories": {"c": CITIES}, "fill_unknown": {"c": unknown}}
        for _ in range(2):  # made, and found
            rows = TableRows(tmp_path / "t.parquet", ["c"], disk=tmp_path / "kept", **options)
            assert codes(pickle.loads(pickle.dumps(rows))) == [1, unknown, 0]
    assert len(list((tmp_path / "kept").glob("*.rows"))) == 2


def test_values_of_a_dictionary_that_no_row_has_are_left_alone() -> None:
    dictionary = pa.array(["Kyiv", "Rome", None])
    column = pa.DictionaryArray.from_arrays(pa.array([1, 1]), dictionary)
    rows = TableRows(pa.table({"c": column}), categories={"c": CITIES})
    assert codes(rows) == [1, 1]
    assert codes(TableRows(pa.table({"c": column}))) == [1, 1]


def test_codes_are_the_same_in_all_files_whatever_stores_them(tmp_path: Path) -> None:
    texts = pa.array(["Rome", "Oslo"])
    for number, column in enumerate((texts, texts.dictionary_encode(), pa.nulls(1))):
        pq.write_table(pa.table({"c": column}), tmp_path / f"{number}.parquet")
    rows = TableRows(tmp_path, categories={"c": CITIES}, fill_null={"c": -1})
    assert codes(rows) == [1, 0, 1, 0, -1]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"categories": {"c": "Oslo"}}, ConfigTypeError, "of 'c' must be a list of values, got 'O"),
        ({"categories": {"c": {"Oslo": 1}}}, ConfigTypeError, "of 'c' must be a list of values"),
        ({"categories": {"c": 5}}, ConfigTypeError, "of 'c' must be a list of values, got 5"),
        ({"categories": ["Oslo"]}, ConfigTypeError, "categories must be a dict by the names"),
        ({"categories": {"d": []}}, ConfigError, "categories names 'd', and the table has no such"),
        ({"categories": {"c": ["a", "a"]}}, ConfigError, "each value once, got 'a' .*twice"),
        ({"categories": {"c": [1]}}, ConfigTypeError, "of 'c' must be values .* a str, got 1"),
        (
            {"categories": {"c": [None]}},
            ConfigTypeError,
            "got None.*: nulls get their code by fill",
        ),
        ({"categories": {"k": ["a"]}}, ConfigTypeError, "of 'k' must be values .* int, got 'a'"),
        ({"categories": {"k": [True]}}, ConfigTypeError, "of 'k' must be values .* int, got True"),
        ({"categories": {"x": [0.5]}}, ConfigError, "for strings and integers, .* is double"),
        ({"categories": {"l": ["a"]}}, ConfigError, "for strings and integers, .* is list"),
        ({"categories": {"b": [b"a"]}}, ConfigError, "for strings and integers, .* is binary"),
        ({"categories": {"k": [1]}, "as_dtype": {"k": "int8"}}, ConfigError, "int8, a type of num"),
        ({"as_dtype": {"f": "category"}}, ConfigError, "for strings and integers, .* fixed_size"),
        (
            {"fill_unknown": {"c": -1}},
            ConfigError,
            "get codes as they come: say what codes mean by",
        ),
        (
            {"fill_unknown": {"x": -1}},
            ConfigError,
            "get codes as they come: say what codes mean by",
        ),
        ({"fill_unknown": -1}, ConfigTypeError, "fill_unknown must be a dict by the names"),
        (
            {"categories": {"c": ["a"]}, "fill_unknown": {"c": 2**31}},
            ConfigError,
            "fill_unknown of 'c' must be a code, such as -1, got 2147483648",
        ),
        (
            {"categories": {"c": ["a"]}, "fill_unknown": {"c": "a"}},
            ConfigTypeError,
            "fill_unknown of 'c' must be a code, such as -1, got 'a'",
        ),
    ],
)
def test_categories_that_cannot_be_are_refused(
    options: Any, error: type[Exception], text: str
) -> None:
    columns = {"c": ["a"], "k": [1], "x": [0.5], "l": [["a"]], "b": [b"a"]}
    pairs = pa.array([[1, 2]], pa.list_(pa.int8(), 2))
    with pytest.raises(error, match=text):
        TableRows(pa.table(columns | {"f": pairs}), **options)
