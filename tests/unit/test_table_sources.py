"""Which files, columns and types are a table's: what is asked for is compared and converted."""

from __future__ import annotations

import datetime
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, TableRows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

PAIR = pa.table({"x": [1, 2], "s": ["a", "b"]})
NAN = float("nan")


def written(folder: Path, *tables: Any) -> Path:
    """Write each table to a Parquet file of its own."""
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def values(rows: TableRows, name: str) -> list[Any]:
    found = [row[name] for row in rows]
    return [each.tolist() if hasattr(each, "tolist") else each for each in found]


# -- columns that are not asked for ---------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        pa.table({"x": [3], "s": ["c"], "more": [1]}),
        pa.table({"x": [3]}),
        pa.table({"x": [3], "s": pa.nulls(1)}),
        pa.table({"x": [3], "s": pa.array(["c"], pa.large_string())}),
        pa.table({"x": [3], "s": [5]}),
        pa.table({"x": [3], "s": [{"a": 1}]}),
        pa.Table.from_arrays([pa.array([3]), pa.array([1]), pa.array([2])], names=["x", "s", "s"]),
    ],
    ids=["more", "fewer", "nulls", "large_string", "int64", "struct", "twice"],
)
def test_columns_that_are_not_asked_for_may_differ(other: Any, tmp_path: Path) -> None:
    folder = written(tmp_path / "files", PAIR, other)
    for columns in (["x"], {"inputs": ["x"]}):
        assert np.ravel(values(TableRows(folder, columns), next(iter(columns)))).tolist() == [
            1,
            2,
            3,
        ]
    assert values(TableRows(folder, ["x"], disk=tmp_path / "kept"), "x") == [1, 2, 3]
    rows = pickle.loads(pickle.dumps(TableRows(folder, ["x"])))
    assert values(rows, "x") == [1, 2, 3]


def test_a_column_of_which_two_have_the_name_is_refused_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], list("xss"))
    assert TableRows(twice, ["x"])[0] == {"x": 1}
    for source in (twice, written(tmp_path / "files", PAIR, twice)):
        for columns in (["s"], None):
            with pytest.raises(ConfigError, match=r"has two columns 's': give each a name of its"):
                TableRows(source, columns)


class Thing:
    """An object that Arrow does not hold."""


@pytest.mark.parametrize(
    "beside",
    [
        [Thing(), Thing()],
        [Path("a"), Path("b")],
        np.array([1j, 2]),
        "sparse",
        list(np.zeros((2, 2, 2))),
        [1, "x"],
        [{1: 2}, {3: 4}],
        [[1], 2],
    ],
    ids=["objects", "paths", "complex", "sparse", "arrays", "mixed", "dicts", "lists"],
)
def test_a_frame_may_hold_anything_beside_what_is_asked_for(beside: Any) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": [1, 2]})
    frame["other"] = pd.arrays.SparseArray([0, 1]) if isinstance(beside, str) else beside
    assert TableRows(frame, ["x"])[1] == {"x": 2}
    assert TableRows(frame, {"inputs": ["x", "x"]})[1]["inputs"].tolist() == [2, 2]
    with pytest.raises(ConfigError, match=r"columns names 'y', and the table .* of its 2 are 'x'"):
        TableRows(frame, ["y"])


def test_a_frame_with_a_name_twice_gives_its_other_columns() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.arange(6).reshape(2, 3), columns=["x", "a", "a"])
    assert TableRows(frame, ["x"])[1] == {"x": 3}
    with pytest.raises(ConfigError, match=r"Duplicate column names .* leave the column out by"):
        TableRows(frame, ["a"])


def test_integer_names_of_a_frame_are_asked_for_as_they_are() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.arange(6.0).reshape(2, 3))
    assert TableRows(frame, [0, np.int64(2)])[1] == {"0": 3.0, "2": 5.0}
    assert TableRows(frame, ["0"])[1] == {"0": 3.0}
    rows = TableRows(frame, {"inputs": [0, 2], "label": 1}, as_dtype={1: "int8"})
    assert rows[1]["inputs"].tolist() == [3, 5]
    assert rows[1]["label"].dtype == np.int8
    assert TableRows(frame).fields == ("0", "1", "2")


def test_a_frame_of_polars_gives_what_is_asked_for() -> None:
    if importlib.util.find_spec("polars") is None:
        pytest.skip("polars is not installed")
    program = (  # polars keeps threads and descriptors of its own
        "import polars, reader\n"
        "frame = polars.DataFrame({'x': [1, 2], 'other': [object(), object()]})\n"
        "print(reader.TableRows(frame, ['x'])[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "{'x': np.int64(2)}\n", done.stderr


# -- types that files have in common -------------------------------------------------------------


@pytest.mark.parametrize(
    ("types", "wanted"),
    [
        (("int32", "int64"), "int64"),
        (("int64", "int8"), "int64"),
        (("uint8", "int8"), "int16"),
        (("int64", "uint64"), "int64"),
        (("float", "double"), "float64"),
        (("double", "float"), "float64"),
        (("int64", "double"), "float64"),
        (("int8", "float"), "float32"),
        (("null", "int16"), "int16"),
        (("int16", "null"), "int16"),
        (("null", "float"), "float32"),
        (("null", "null", "int8"), "int8"),
    ],
    ids=str,
)
def test_numbers_of_several_files_have_the_wider_type(
    types: tuple[str, ...], wanted: str, tmp_path: Path
) -> None:
    names = {"double": "float64", "float": "float32"}
    tables = [
        pa.table({"x": pa.nulls(1) if kind == "null" else np.array([7], names.get(kind, kind))})
        for kind in types
    ]
    rows = TableRows(written(tmp_path, *tables), fill_null={"x": 5})
    assert values(rows, "x") == [5 if kind == "null" else 7 for kind in types]
    assert rows[0]["x"].dtype == wanted
    for dtype in ("float32", "int8"):
        rows = TableRows(tmp_path, as_dtype={"x": dtype}, fill_null={"x": 5})
        assert {row["x"].dtype.name for row in rows} == {dtype}


LONG = "longer than the twelve bytes that a view holds"


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (pa.array(["a"]), pa.array([LONG], pa.large_string()), ["a", LONG]),
        (pa.array(["a"], pa.large_string()), pa.array(["b"]), ["a", "b"]),
        (pa.array(["a"]), pa.array(["b"]).dictionary_encode(), ["a", "b"]),
        (pa.array([b"a"]), pa.array([b"b"], pa.large_binary()), [b"a", b"b"]),
        (pa.array([[1]], pa.list_(pa.int8())), pa.array([[2, 3]]), [[1], [2, 3]]),
        (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), pa.array([[3]]), [[1, 2], [3]]),
        (pa.array([["a"]]), pa.array([["b"]], pa.large_list(pa.large_string())), [["a"], ["b"]]),
        (pa.array([["a"]]), pa.array([[None]]), [["a"], ["?"]]),
        (
            pa.array([datetime.datetime(1970, 1, 2)], pa.timestamp("ms")),
            pa.array([datetime.datetime(1970, 1, 3)], pa.timestamp("us")),
            [86_400_000_000, 2 * 86_400_000_000],
        ),
    ],
    ids=str,
)
def test_other_values_of_several_files_have_the_type_of_both(
    one: Any, other: Any, wanted: Any, tmp_path: Path
) -> None:
    fill: Any = {"c": "?"} if wanted[-1] == ["?"] else None
    if pa.types.is_dictionary(other.type):  # what the column is decides
        rows = TableRows(written(tmp_path, pa.table({"c": one}), pa.table({"c": other})))
        assert [rows.categories["c"][row["c"]] for row in rows] == wanted
        return
    rows = TableRows(
        written(tmp_path, pa.table({"c": one}), pa.table({"c": other})), fill_null=fill
    )
    assert values(rows, "c") == wanted


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a"], [1]),
        (["a"], [b"a"]),
        ([1], [True]),
        ([[1]], [1]),
        ([datetime.date(1970, 1, 1)], [1]),
        ([{"a": 1}], [1]),
    ],
    ids=str,
)
def test_types_that_have_none_in_common_are_refused(one: Any, other: Any, tmp_path: Path) -> None:
    written(tmp_path, pa.table({"x": one}), pa.table({"x": other}))
    with pytest.raises(
        ConfigError, match=r"differ in the column 'x': it is .* or name the columns that you want"
    ):
        TableRows(tmp_path)


def test_an_integer_that_the_common_type_does_not_hold_is_refused(tmp_path: Path) -> None:
    written(tmp_path, pa.table({"x": [2**53 + 1]}), pa.table({"x": [0.5]}))
    with pytest.raises(
        ConfigError, match=r"other types in other files, and float64, .* not hold 9007199254740993"
    ):
        TableRows(tmp_path)
    assert values(TableRows(tmp_path, as_dtype={"x": "float64"}), "x") == [2.0**53, 0.5]
    big = np.array([2**64 - 1], np.uint64)
    written(tmp_path, pa.table({"x": [1]}), pa.table({"x": big}))
    with pytest.raises(ConfigError, match="and int64, which is for all, does not hold 1844674407"):
        TableRows(tmp_path)


def test_a_time_that_the_finer_unit_does_not_hold_is_refused(tmp_path: Path) -> None:
    late = pa.array([2**60], pa.timestamp("s"))
    for number, times in enumerate((late, pa.array([1], pa.timestamp("us")))):
        table = pa.table({"x": times})
        with pa.ipc.new_file(str(tmp_path / f"{number}.arrow"), table.schema) as file:
            file.write_table(table)
    with pytest.raises(ConfigError, match=r"is timestamp\[s\] in one file, and cannot become time"):
        TableRows(tmp_path)


def test_decimals_and_floats_are_converted_from_what_each_file_has(tmp_path: Path) -> None:
    from decimal import Decimal

    written(tmp_path, pa.table({"x": [0.1, 2.5]}), pa.table({"x": [Decimal("0.1")]}))
    rows = TableRows(tmp_path, as_dtype={"x": "float64"})
    assert values(rows, "x") == [0.1, 2.5, 0.1]
    with pytest.raises(ConfigError, match=r"is decimal128.* pass as_dtype={'x': \"float64\"}"):
        TableRows(tmp_path)


def test_a_column_of_nulls_alone_is_rows_of_the_type_that_is_asked_for() -> None:
    table = pa.table({"x": pa.nulls(2)})
    assert np.isnan(values(TableRows(table, as_dtype={"x": "float32"}), "x")).all()
    rows = TableRows(table, as_dtype={"x": "int8"}, fill_null={"x": -1})
    assert values(rows, "x") == [-1, -1]
    with pytest.raises(ConfigError, match=r"is null, which cannot be rows of arrays"):
        TableRows(table)


FIXED = pa.list_(pa.float32(), 2)
TENSOR = pa.fixed_shape_tensor(pa.float32(), [2, 2])


@pytest.mark.parametrize(
    ("values_", "row"),
    [
        (pa.array([[1, 2]], FIXED), np.full(2, np.nan)),
        (pa.array([[[1, 2]]], pa.list_(FIXED, 1)), np.full((1, 2), np.nan)),
        (
            pa.ExtensionArray.from_storage(
                TENSOR, pa.array([[1, 2, 3, 4]], pa.list_(pa.float32(), 4))
            ),
            np.full((2, 2), np.nan),
        ),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_nulls_alone_in_one_file_are_rows_as_long_as_in_the_others(
    tmp_path: Path, values_: Any, row: Any, is_first: bool
) -> None:
    tables = [pa.table({"x": pa.nulls(2)}), pa.table({"x": values_})]
    written(tmp_path, *(tables if is_first else tables[::-1]))
    rows = TableRows(tmp_path)
    found = [rows[k]["x"] for k in ((0, 1) if is_first else (1, 2))]
    np.testing.assert_array_equal(found, [row, row])
    assert not np.isnan(rows[2 if is_first else 0]["x"]).any()


def test_items_that_are_nulls_alone_in_one_file_are_as_long_as_in_the_others(
    tmp_path: Path,
) -> None:
    some = pa.array([[[1, 2]]], pa.list_(FIXED))
    written(tmp_path, pa.table({"x": [[None], []]}), pa.table({"x": some}))
    rows = TableRows(tmp_path)
    assert [rows[k]["x"].shape for k in range(3)] == [(1, 2), (0, 2), (1, 2)]
    assert np.isnan(rows[0]["x"]).all()


def test_lists_of_lists_of_nulls_alone_keep_all_their_items(tmp_path: Path) -> None:
    nulls = pa.table({"x": [[[None, None]], [[None], [None] * 3]]})
    written(tmp_path, nulls, pa.table({"x": [[[1.5]]]}))
    found = [[len(each) for each in row["x"]] for row in TableRows(tmp_path)]
    assert found == [[2], [1, 3], [1]]


def test_nulls_alone_within_lists_are_of_the_type_that_is_asked_for() -> None:
    rows = TableRows(pa.table({"x": [[None], []]}), as_dtype={"x": "float32"})
    assert [rows[k]["x"].dtype.name for k in range(2)] == ["float32"] * 2
    assert np.isnan(rows[0]["x"]).tolist() == [True]
    deep = pa.table({"x": [[[None, None]], [], [[None], [None] * 3]]})
    rows = TableRows(deep, as_dtype={"x": "int8"}, fill_null={"x": 3})
    found = [[each.tolist() for each in row["x"]] for row in rows]
    assert found == [[[3, 3]], [], [[3], [3, 3, 3]]]
    fixed = pa.table({"x": pa.array([[None, None]], pa.list_(pa.null(), 2))})
    assert values(TableRows(fixed, as_dtype={"x": "int8"}, fill_null={"x": 3}), "x") == [[3, 3]]
    with pytest.raises(ConfigError, match=r"is list<item: null>, which cannot be rows of arrays"):
        TableRows(pa.table({"x": [[], []]}))
