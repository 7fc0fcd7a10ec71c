"""Rows of tables: values of each column type, nulls, fields, kept tables, refusals."""

from __future__ import annotations

import copy
import datetime
import errno
import json
import os
import pickle
import resource
import subprocess
import sys
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from reader import (
    ConfigError,
    ConfigTypeError,
    DatasetError,
    ReaderError,
    SampleIndexError,
    TableRows,
)
from reader.data.columns import columns_of
from reader.data.pure_samples import has_pure_samples
from reader.formats import arrow_source, source_files, table_file, table_folder, table_rows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROOT = Path(__file__).parents[2]
COUNT = 1000


@pytest.fixture
def table() -> Any:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "x": rng.random(COUNT, np.float32),
            "y": rng.random(COUNT),
            "n": rng.integers(-9, 9, COUNT),
            "flag": rng.random(COUNT) < 0.5,
            "text": [f"row {k} \u00e9" if k % 3 else "" for k in range(COUNT)],
        }
    )


@pytest.fixture
def parquet(table: Any, tmp_path: Path) -> Path:
    path = tmp_path / "table.parquet"
    pq.write_table(table, path, row_group_size=300)
    return path


def write_arrow(path: Path, table: Any, rows: int = COUNT, **options: Any) -> Path:
    with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table, max_chunksize=rows)
    return path


def same(rows: TableRows, table: Any) -> None:
    """Compare all rows with a table's columns."""
    assert len(rows) == table.num_rows
    samples = [rows[k] for k in range(len(rows))]
    for name in rows.fields:
        assert [sample[name] for sample in samples] == table.column(name).to_pylist()


# -- sources -----------------------------------------------------------------------------------


def test_rows_are_those_of_the_table(table: Any, parquet: Path, tmp_path: Path) -> None:
    same(TableRows(table), table)
    same(TableRows(parquet), table)
    same(TableRows(str(parquet), ["n", "x"]), table)
    same(TableRows(table.to_batches(max_chunksize=77)), table)
    same(TableRows(table.slice(100, 555)), table.slice(100, 555))
    same(TableRows(write_arrow(tmp_path / "a.arrow", table)), table)
    same(TableRows(write_arrow(tmp_path / "b.arrow", table, 90, compression="zstd")), table)


def test_a_sample_has_numbers_of_numpy_and_texts(parquet: Path) -> None:
    sample = TableRows(parquet)[1]
    assert list(sample) == ["x", "y", "n", "flag", "text"]
    kinds = [type(value) for value in sample.values()]
    assert kinds == [np.float32, np.float64, np.int64, np.bool_, str]


def test_files_of_a_folder_are_taken_by_name(table: Any, tmp_path: Path) -> None:
    for number, begin in ((2, 600), (0, 0), (1, 300)):
        part = table.slice(begin, 400 if number == 2 else 300)
        pq.write_table(part, tmp_path / f"part-{number}.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-0.parquet").touch()
    same(TableRows(tmp_path), table)
    paths = [tmp_path / f"part-{number}.parquet" for number in (2, 0)]
    assert TableRows(paths)[400] == TableRows(tmp_path)[0]
    write_arrow(tmp_path / "part-3.arrow", table)
    same(TableRows(tmp_path), pa.concat_tables([table, table]))


def test_a_dataframe_is_a_source() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "x": [1.5, None, 2.5],
            "n": [1, 2, 3],
            "kind": pd.Categorical(["b", "a", "b"]),
            "when": pd.to_datetime(["2020-01-01", "1970-01-02", "1970-01-01"]),
        },
        index=[7, 8, 9],
    )
    rows = TableRows(frame)
    assert rows.fields == ("x", "n", "kind", "when")
    assert np.isnan(rows[1]["x"])
    assert [rows.categories["kind"][rows[k]["kind"]] for k in range(3)] == ["b", "a", "b"]
    unit = np.datetime_data(frame["when"].dtype)[0]
    assert rows[1]["when"] == np.timedelta64(1, "D") // np.timedelta64(1, unit)
    assert columns_of(rows) is not None


def test_any_object_with_an_arrow_stream_is_a_source(table: Any) -> None:
    class Frame:
        def __arrow_c_stream__(self, schema: Any = None) -> Any:
            return table.__arrow_c_stream__(schema)

    same(TableRows(Frame()), table)


def test_an_arrow_file_of_one_batch_is_used_as_it_lies(table: Any, tmp_path: Path) -> None:
    fixed = table.select(["x", "y", "n"])
    write_arrow(tmp_path / "one.arrow", fixed)

    def is_mapped(columns: Any = None, name: str = "one", **options: Any) -> bool:
        rows = TableRows(tmp_path / f"{name}.arrow", columns, **options)
        return bool(rows._file.form.fields[0].step == rows.arrays[0].itemsize)

    assert is_mapped()
    assert is_mapped(["n"])
    assert not is_mapped({"xy": ["y", "x"]}, as_dtype={"x": "float64"})
    assert not is_mapped(as_dtype={"x": "float64"})
    write_arrow(tmp_path / "two.arrow", fixed, 500)
    assert not is_mapped(name="two")
    write_arrow(tmp_path / "packed.arrow", fixed, compression="lz4")
    assert not is_mapped(name="packed")
    nulls = fixed.append_column("z", pa.array([None] + [1.0] * (COUNT - 1)))
    write_arrow(tmp_path / "nulls.arrow", nulls)
    assert not is_mapped(name="nulls")
    assert is_mapped(["x", "y"], name="nulls")


# -- columns -----------------------------------------------------------------------------------

_DAY = datetime.date(1970, 1, 3)
_NOON = datetime.datetime(1970, 1, 1, 12)


@pytest.mark.parametrize(
    ("kind", "value", "wanted", "dtype"),
    [
        *[(kind, 7, 7, kind) for kind in ("int8", "uint8", "int16", "uint16", "int32", "uint32")],
        ("uint64", 2**64 - 1, 2**64 - 1, "uint64"),
        ("int64", -(2**63), -(2**63), "int64"),
        ("float16", np.float16(0.5), 0.5, "float16"),
        ("bool_", True, True, "bool"),
        ("date32", _DAY, 2, "int32"),
        ("date64", _DAY, 2 * 86_400_000, "int64"),
        (pa.time32("s"), datetime.time(0, 1), 60, "int32"),
        (pa.time64("us"), datetime.time(0, 1), 60_000_000, "int64"),
        (pa.timestamp("ms"), _NOON, 43_200_000, "int64"),
        (pa.timestamp("s", "UTC"), _NOON, 43_200, "int64"),
        (pa.duration("s"), datetime.timedelta(minutes=2), 120, "int64"),
        (pa.list_(pa.int16(), 3), [1, 2, 3], [1, 2, 3], "int16"),
        (pa.list_(pa.list_(pa.float32(), 2), 2), [[1, 2], [3, 4]], [[1, 2], [3, 4]], "float32"),
        (pa.list_(pa.bool_(), 2), [True, False], [True, False], "bool"),
        (pa.binary(3), b"abc", [97, 98, 99], "uint8"),
    ],
    ids=str,
)
def test_values_of_fixed_width_are_gathered(
    kind: Any, value: Any, wanted: Any, dtype: str, tmp_path: Path
) -> None:
    kind = getattr(pa, kind)() if isinstance(kind, str) else kind
    table = pa.table({"other": pa.array([1, 2, 3], pa.int8()), "c": pa.array([value] * 3, kind)})
    for rows in (
        TableRows(table),
        TableRows(table.slice(1)),
        TableRows(write_arrow(tmp_path / "one.arrow", table)),
    ):
        found = rows[1]["c"]
        assert found.dtype == dtype
        assert found.tolist() == wanted
        assert columns_of(rows) is not None


def test_tensors_have_their_shape() -> None:
    numbers = np.arange(24, dtype=np.int32).reshape(4, 2, 3)
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(numbers)
    rows = TableRows(pa.table({"c": column}).slice(1))
    assert (rows[1]["c"] == numbers[2]).all()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", ["", "ab", "\u00e9"]),
        ("large_string", ["", "ab", "\u00e9"]),
        pytest.param(
            *("string_view", ["", "ab", "longer than twelve bytes"]),
            marks=pytest.mark.skipif(not hasattr(pa, "string_view"), reason="pyarrow 16 has it"),
        ),
        ("binary", [b"", b"\0", b"xyz"]),
        ("large_binary", [b"", b"\0", b"xyz"]),
        (pa.list_(pa.int64()), [[], [1], [2, 3]]),
        (pa.large_list(pa.float32()), [[0.5], [], [2, 3]]),
    ],
    ids=str,
)
def test_values_that_differ_in_length_come_row_by_row(kind: Any, values: Any) -> None:
    kind = getattr(pa, kind)() if isinstance(kind, str) else kind
    rows = TableRows(pa.table({"c": pa.array([values[1], *values], kind)}).slice(1))
    found = [rows[k]["c"] for k in range(3)]
    if isinstance(values[0], list):
        assert [each.tolist() for each in found] == values
    else:
        assert found == values
    assert columns_of(rows) is None
    assert has_pure_samples(rows)


def test_categories_are_one_list_over_all_files(tmp_path: Path) -> None:
    texts = ["b", "a", "c", "a", "d", "b"]
    for number in range(3):
        column = pa.array(texts[2 * number : 2 * number + 2]).dictionary_encode()
        pq.write_table(pa.table({"c": column}), tmp_path / f"{number}.parquet")
    rows = TableRows(tmp_path)
    assert rows.categories["c"] == ["b", "a", "c", "d"]
    assert [rows.categories["c"][rows[k]["c"]] for k in range(6)] == texts
    assert rows[0]["c"].dtype == np.int32
    rows = TableRows(pa.table({"c": texts}), as_dtype={"c": "category"})
    assert [rows.categories["c"][rows[k]["c"]] for k in range(6)] == texts
    assert columns_of(rows) is not None


def test_fields_are_made_of_columns(table: Any) -> None:
    rows = TableRows(table, {"inputs": ["y", "x"], "label": "n"}, as_dtype={"inputs": "float32"})
    assert rows.fields == ("inputs", "label")
    wanted = np.stack([table["y"].to_numpy().astype(np.float32), table["x"].to_numpy()], 1)
    assert (np.stack([rows[k]["inputs"] for k in range(COUNT)]) == wanted).all()
    rows = TableRows(table, {"one": ["n"], "two": "n"}, as_dtype={"two": "int8"})
    assert (rows[5]["one"].shape, rows[5]["two"].dtype) == ((1,), np.int8)


def test_types_are_as_asked_for() -> None:
    table = pa.table({"d": [Decimal("1.25"), None], "n": [1, 300], "x": [0.1, 2.0]})
    rows = TableRows(table, as_dtype={"d": "float64", "n": np.uint16, "x": np.dtype("float16")})
    assert [value.dtype.name for value in rows[0].values()] == ["float64", "uint16", "float16"]
    assert (rows[0]["d"], rows[0]["x"]) == (1.25, np.float16(0.1))
    assert np.isnan(rows[1]["d"])


# -- nulls -------------------------------------------------------------------------------------


def test_nulls_are_nan_or_the_fill_value() -> None:
    table = pa.table(
        {
            "x": pa.array([1.5, None, 2.5], pa.float32()),
            "n": [1, None, 3],
            "flag": [True, None, False],
            "text": ["a", None, "b"],
            "codes": pa.array(["a", None, "b"]).dictionary_encode(),
            "pairs": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2)),
            "some": [[1], None, [2, 3]],
        }
    )
    fills = {"n": -5, "flag": True, "text": "?", "codes": -1, "pairs": 9, "some": []}
    rows = TableRows(table, fill_null=fills)
    found = rows[1]
    assert np.isnan(found["x"])
    assert (found["n"], found["flag"], found["text"], found["codes"]) == (-5, True, "?", -1)
    assert (found["pairs"].tolist(), found["some"].tolist()) == ([9, 9], [])
    assert rows[2]["pairs"].tolist() == [3, 9]
    assert rows[2]["some"].tolist() == [2, 3]
    assert TableRows(table, ["x"], fill_null={"x": 7})[1]["x"] == 7
    assert TableRows(table, ["codes"], fill_null={"codes": -1}).categories["codes"] == ["a", "b"]


@pytest.mark.parametrize("name", ["n", "flag", "text", "codes", "pairs", "some"])
def test_other_nulls_are_refused_with_their_count(name: str) -> None:
    columns = {
        "n": [1, None, None],
        "flag": [True, None, None],
        "text": ["a", None, None],
        "codes": pa.array(["a", None, None]).dictionary_encode(),
        "pairs": pa.array([[1, 2], None, None], pa.list_(pa.int8(), 2)),
        "some": [[1], None, None],
    }
    with pytest.raises(
        ConfigError, match=rf"column '{name}' of the table is .* has 2 nulls: pass fill_null="
    ):
        TableRows(pa.table({name: columns[name]}))


NAN = float("nan")
SOME = pa.list_(pa.int64())
PAIR = pa.list_(pa.int64(), 2)
LISTS = [[1, None], None, [3, 4]]


@pytest.mark.parametrize(
    ("kind", "dtype", "fill", "wanted"),
    [
        (SOME, None, 0, [[1, 0], [], [3, 4]]),
        (pa.large_list(pa.int8()), None, np.int64(7), [[1, 7], [], [3, 4]]),
        (SOME, "float32", None, "pass fill_null={'c': \\[\\]}"),
        (SOME, "float32", [], [[1, NAN], [], [3, 4]]),
        (SOME, "float32", np.zeros(0), [[1, NAN], [], [3, 4]]),
        (SOME, "float32", (5, 0.5, NAN), [[1, NAN], [5, 0.5, NAN], [3, 4]]),
        (SOME, "float32", 0.5, [[1, 0.5], [], [3, 4]]),
        (SOME, "float32", NAN, [[1, NAN], [], [3, 4]]),
        (pa.list_(pa.float64()), None, [0], [[1, NAN], [0], [3, 4]]),
        (pa.list_(pa.float64()), "int16", 0, [[1, 0], [], [3, 4]]),
        (PAIR, None, 0, [[1, 0], [0, 0], [3, 4]]),
        (PAIR, "float32", None, [[1, NAN], [NAN, NAN], [3, 4]]),
        (PAIR, "float32", NAN, [[1, NAN], [NAN, NAN], [3, 4]]),
        (pa.list_(pa.float32(), 2), None, None, [[1, NAN], [NAN, NAN], [3, 4]]),
        (SOME, None, None, "has 1 null and 1 null within lists: pass fill_null={'c': 0}"),
        (SOME, None, [], "has 1 null and 1 null within lists: pass fill_null={'c': 0}"),
        (PAIR, None, None, "has 1 null and 1 null within lists: pass fill_null={'c': 0}"),
    ],
    ids=str,
)
def test_nulls_within_lists_are_nan_or_the_fill_value(
    kind: Any, dtype: Any, fill: Any, wanted: Any
) -> None:
    table = pa.table({"c": pa.array([[9, 9], *LISTS], kind)}).slice(1)
    options: dict[str, Any] = {"fill_null": {"c": fill}, "as_dtype": {"c": dtype}}
    if isinstance(wanted, str):
        with pytest.raises(ConfigError, match=wanted):
            TableRows(table, **options)
        return
    rows = TableRows(table, **options)
    for number, row in enumerate(wanted):
        assert rows[number]["c"].dtype == (dtype or pa.array([], kind.value_type).to_numpy().dtype)
        np.testing.assert_array_equal(rows[number]["c"], row)


def test_values_under_a_null_list_are_ignored() -> None:
    items = pa.array([1, None, 1000, 3])
    column = pa.ListArray.from_arrays([0, 1, 3, 4], items, mask=pa.array([False, True, False]))
    rows = TableRows(pa.table({"c": column}), fill_null={"c": [8]}, as_dtype={"c": "int8"})
    assert [rows[k]["c"].tolist() for k in range(3)] == [[1], [8], [3]]


@pytest.mark.parametrize(
    ("values", "dtype", "fill", "wanted"),
    [
        ([1, None], "float32", None, NAN),
        ([1, None], "float32", NAN, NAN),
        ([1, None], "float16", 0.5, 0.5),
        ([1, None], "int8", -128, -128),
        ([True, None], "float32", None, NAN),
        ([True, None], "float32", 2, 2),
        ([True, None], "int8", True, 1),
        ([True, None], None, np.False_, 0),
        ([datetime.date(1970, 1, 2), None], "float64", None, NAN),
        ([1.5, None], None, Decimal("0.25"), 0.25),
        ([1.0, None], "int32", 7, 7),
        ([Decimal(1), None], "float32", 2**70, 2**70),
        ([0.5, None], None, float("inf"), float("inf")),
    ],
    ids=str,
)
def test_a_fill_value_has_the_type_of_the_values(
    values: Any, dtype: Any, fill: Any, wanted: Any
) -> None:
    table = pa.table({"c": values})
    rows = TableRows(table, fill_null={"c": fill}, as_dtype={"c": dtype})
    assert rows[0]["c"] == TableRows(table.slice(0, 1), as_dtype={"c": dtype})[0]["c"]
    assert rows[0]["c"].dtype == (dtype or rows[0]["c"].dtype)
    np.testing.assert_array_equal(rows[1]["c"], wanted)
    fields = TableRows(table, {"f": ["c"]}, fill_null={"f": fill}, as_dtype={"f": dtype})
    np.testing.assert_array_equal(fields[1]["f"], [wanted])


def test_a_null_among_categories_is_named() -> None:
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    with pytest.raises(ConfigError, match=r"a null among its categories: pass fill_null=.*-1"):
        TableRows(pa.table({"c": codes}))


# -- indices, copies and pickles ---------------------------------------------------------------


def test_indices_count_from_both_ends(parquet: Path) -> None:
    rows = TableRows(parquet)
    assert rows[-1] == rows[COUNT - 1]
    assert rows[np.int8(3)] == rows[3]  # type: ignore[index]
    for index in (COUNT, -COUNT - 1):
        with pytest.raises(SampleIndexError, match=r"outside of 1000 rows: take one in \[-1000,"):
            rows[index]


def test_rows_cannot_be_written_to(table: Any, parquet: Path) -> None:
    for rows in (TableRows(table, {"xs": ["x"]}), TableRows(parquet, {"xs": ["x"]})):
        with pytest.raises(ValueError, match="read-only"):
            rows[0]["xs"][0] = 1


def test_copies_and_pickles_have_the_same_rows(table: Any, parquet: Path, tmp_path: Path) -> None:
    sources = [table, parquet, write_arrow(tmp_path / "one.arrow", table.select(["x", "n"]))]
    for source in sources:
        rows = TableRows(source)
        assert copy.copy(rows)._file is copy.deepcopy(rows)._file is rows._file
        again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(rows))))
        assert [again[k] for k in range(COUNT)] == [rows[k] for k in range(COUNT)]
    assert len(pickle.dumps(TableRows(parquet))) < 2000


def test_a_pickle_of_another_file_is_refused(table: Any, parquet: Path) -> None:
    pickled = pickle.dumps(TableRows(parquet))
    pq.write_table(table.slice(1), parquet)
    with pytest.raises(DatasetError, match="the table has 999 rows, and had 1,000 when"):
        pickle.loads(pickled)


# -- tables that are kept ----------------------------------------------------------------------


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


def test_a_kept_table_is_used_again(
    table: Any, parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "kept"
    same(TableRows(parquet, disk=folder), table)
    names = entries(folder)
    assert [name.partition("-")[0] for name in names] == ["table", "table"]
    assert [name.rpartition(".")[2] for name in names] == ["json", "rows"]
    told = json.loads((folder / names[0]).read_text())
    assert told["made_of"]["sources"][0][0] == str(parquet)
    with monkeypatch.context() as patch:
        patch.setattr(table_rows.RowLayout, "write", lambda *_: pytest.fail("decoded again"))
        same(TableRows(parquet, disk=str(folder)), table)
        same(pickle.loads(pickle.dumps(TableRows(parquet, disk=folder))), table)
    TableRows(parquet, ["x"], disk=folder)
    TableRows(parquet, as_dtype={"text": "category"}, disk=folder)
    rows = TableRows(parquet, as_dtype={"text": "category"}, disk=folder)
    assert rows.categories["text"][rows[2]["text"]] == table["text"][2].as_py()
    assert len(entries(folder)) == 6


def test_a_kept_table_is_made_again_where_its_file_has_changed(
    table: Any, parquet: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    before = TableRows(parquet, disk=folder)
    pq.write_table(table.slice(5), parquet)
    same(TableRows(parquet, disk=folder), table.slice(5))
    same(before, table)
    os.utime(parquet, ns=(0, 0))
    same(TableRows(parquet, disk=folder), table.slice(5))
    assert len(entries(folder)) == 2


@pytest.mark.parametrize("what", ["rows", "json"])
@pytest.mark.parametrize("damage", ["cut", "longer", "end", "missing"])
def test_a_damaged_table_is_made_again(
    table: Any, parquet: Path, tmp_path: Path, what: str, damage: str
) -> None:
    folder = tmp_path / "kept"
    TableRows(parquet, disk=folder)
    (path,) = folder.glob(f"*.{what}")
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        ways = {"cut": content[:-9], "longer": content + b"1", "end": content[:-9] + b"123456789"}
        path.write_bytes(ways[damage])
    same(TableRows(parquet, disk=folder), table)
    assert path.stat().st_size == len(content)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes have a checksum of their own."""
    monkeypatch.setattr(table_folder, "_BLOCK", 4096)
    monkeypatch.setattr(table_folder, "_PIECE", 1000)
    return 4096


def nbytes_of(folder: Path) -> int:
    (path,) = folder.glob("*.json")
    return int(json.loads(path.read_text())["form"][2])


def overwrite(path: Path, place: int, keeps_time: bool) -> None:
    """Change a bit; the file is as long as before."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    if keeps_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("keeps_time", [True, False])
@pytest.mark.parametrize("place", [0, 0.5, 1])
@pytest.mark.parametrize("is_small", [True, False])
def test_a_table_with_another_bit_is_made_again(
    request: Any,
    table: Any,
    parquet: Path,
    tmp_path: Path,
    place: float,
    keeps_time: bool,
    is_small: bool,
) -> None:
    if not is_small:
        request.getfixturevalue("small_blocks")
    folder = tmp_path / "kept"
    TableRows(parquet, disk=folder)
    (path,) = folder.glob("*.rows")
    overwrite(path, int(place * (nbytes_of(folder) - 1)), keeps_time)
    same(TableRows(parquet, disk=folder), table)
    inode = path.stat().st_ino
    TableRows(parquet, disk=folder)
    assert path.stat().st_ino == inode


def test_different_blocks_of_a_large_table_are_checked_each_time(
    table: Any,
    parquet: Path,
    tmp_path: Path,
    small_blocks: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_folder, "_CHECKED", 3 * small_blocks)
    folder, checked, sum_of = tmp_path / "kept", cast(list[int], []), table_folder._sum_of

    def note(fd: int, number: int, nbytes: int) -> int:
        checked.append(number)
        return sum_of(fd, number, nbytes)

    def checked_now() -> list[int]:
        checked.clear()
        same(TableRows(parquet, disk=folder), table)
        return list(checked)

    monkeypatch.setattr(table_folder, "_sum_of", note)
    TableRows(parquet, disk=folder)
    (path,) = folder.glob("*.rows")
    every = list(range(-(-nbytes_of(folder) // small_blocks)))
    rounds = [checked_now() for _ in range(50)]
    assert all(len(numbers) == len(set(numbers)) == 3 for numbers in rounds)
    assert {number for numbers in rounds for number in numbers} > set(rounds[0])
    path.touch()  # as a copy is
    assert checked_now() == every
    assert len(checked_now()) == 3
    inode = path.stat().st_ino
    for number in every:
        overwrite(path, number * small_blocks, keeps_time=False)
        checked_now()
        assert path.stat().st_ino != inode
        inode = path.stat().st_ino


def test_another_users_table_is_checked_whole(
    table: Any, parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    TableRows(parquet, disk=folder)
    (path,) = folder.glob("*.rows")
    path.touch()

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", refuse)
        patch.setattr(table_rows.RowLayout, "write", lambda *_: pytest.fail("decoded again"))
        for _ in range(2):
            same(TableRows(parquet, disk=folder), table)


def test_checksums_are_taken_while_a_table_is_written(
    parquet: Path, tmp_path: Path, small_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, sums_of_all = [], table_folder._BlockSums.all

    def note(sums: Any, nbytes: int) -> list[int]:
        found.append((len(sums._sums), nbytes // small_blocks))
        return sums_of_all(sums, nbytes)

    monkeypatch.setattr(table_folder._BlockSums, "all", note)
    TableRows(parquet, disk=tmp_path / "kept")
    TableRows(parquet, ["x"], disk=tmp_path / "kept")
    assert found == [(11, 11), (0, 0)]


def test_two_processes_make_a_kept_table_once(table: Any, parquet: Path, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from reader import TableRows\n"
        "from reader.formats.row_layout import RowLayout\n"
        "write = RowLayout.write\n"
        "def slow(*given):\n"
        "    print('made', flush=True)\n"
        "    sys.stdin.readline()\n"
        "    return write(*given)\n"
        "RowLayout.write = slow\n"
        f"rows = TableRows({str(parquet)!r}, disk={str(tmp_path / 'kept')!r})\n"
        "print(len(rows), rows[999]['n'])\n"
    )
    with start(program) as first:
        assert first.stdout.readline() == "made\n"
        with start(program) as second:
            assert os.waitid(os.P_PID, second.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            said, _ = first.communicate("go\n", timeout=30)
            other, _ = second.communicate(timeout=30)
    assert said == other == f"1000 {table['n'][999]}\n"
    assert len(entries(tmp_path / "kept")) == 2


def test_a_killed_process_leaves_no_usable_table(table: Any, parquet: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    program = (
        "import sys\n"
        "from reader import TableRows\n"
        "from reader.formats import row_layout\n"
        "write_at = row_layout.write_at\n"
        "def slow(*given):\n"
        "    write_at(*given)\n"
        "    print('written', flush=True)\n"
        "    sys.stdin.readline()\n"
        "row_layout.write_at = slow\n"
        f"TableRows({str(parquet)!r}, disk={str(folder)!r})\n"
    )
    with start(program) as first:
        assert first.stdout.readline() == "written\n"
        assert [name.rpartition(".")[2] for name in entries(folder)] == ["part"]
        first.kill()
    same(TableRows(parquet, disk=folder), table)
    assert [name.rpartition(".")[2] for name in entries(folder)] == ["json", "rows"]


def start(program: str) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# -- what is refused ---------------------------------------------------------------------------

TABLE = pa.table(
    {
        "price": [1, 2],
        "text": ["a", "b"],
        "size": [0.5, 1.5],
        "big": [1, 1000],
        "list": [[1], [2]],
        "code": pa.array(["a", "b"]).dictionary_encode(),
    }
)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"source": "no.parquet"},
            ConfigError,
            "'no.parquet' cannot be read as a table: .*No such",
        ),
        ({"source": []}, ConfigError, "source is an empty list"),
        ({"source": 5}, ConfigTypeError, "source must be a path, a list of paths, .* got 5"),
        ({"source": ""}, ConfigError, "'' cannot be read as a table: .*; pass the path of"),
        ({"source": [""]}, ConfigError, "'' cannot be read as a table: .*; pass the path of"),
        ({"source": "a\0b"}, ConfigError, "cannot be read as a table: .*; pass the path of"),
        ({"source": "a" * 999}, ConfigError, "cannot be read as a table: .*; pass the path of"),
        ({"source": TABLE["price"]}, ConfigTypeError, r"of one column pass pyarrow.table\({"),
        ({"source": np.zeros(3)}, ConfigTypeError, r"of columns pass pyarrow.table\({"),
        ({"source": ["a", 5]}, ConfigTypeError, "a list as source holds paths, .* got 'a'"),
        ({"source": TABLE.slice(2)}, ConfigError, "the table has 0 rows: pass a table with one"),
        (
            {"columns": ["pric"]},
            ConfigError,
            "columns names 'pric', and .* nearest .* 6 are 'price'",
        ),
        ({"columns": {"a": ["size", "q"]}}, ConfigError, "columns names 'q'"),
        ({"columns": []}, ConfigError, "one at least"),
        ({"columns": ["size", "size"]}, ConfigError, "each column once"),
        ({"columns": {"a": []}}, ConfigError, "the field 'a' no column"),
        ({"columns": "size"}, ConfigTypeError, "columns must be a list of names, or a dict"),
        ({"columns": np.array(["size"])}, ConfigTypeError, r"pass .*, list\(names\) of others"),
        ({"columns": [1]}, ConfigError, "columns names '1', and the table has no such column"),
        ({"columns": [True]}, ConfigTypeError, "columns by strings, got True"),
        ({"columns": [["size"]]}, ConfigTypeError, r"columns by strings, got \['size'\] .*a dict"),
        ({"columns": {"a": [["size"]]}}, ConfigTypeError, "columns by strings, got"),
        ({"columns": {"a": ["size", "price"]}}, ConfigError, "'size' is float64 and 'price' int64"),
        ({"columns": {"a": ["size", "text"]}}, ConfigError, "single numbers, and 'text' is not"),
        ({"fill_null": {"siz": 0}}, ConfigError, "fill_null names 'siz', .* are 'size'"),
        ({"fill_null": 0}, ConfigTypeError, "fill_null must be a dict"),
        (
            {"fill_null": {"price": 0.5}},
            ConfigError,
            "of 'price' must be a number of int64, got 0.5",
        ),
        ({"fill_null": {"price": "x"}}, ConfigTypeError, "must be a number of int64, got 'x'"),
        ({"fill_null": {"price": True}}, ConfigTypeError, "a number of int64, got True"),
        ({"fill_null": {"price": NAN}}, ConfigError, "a number of int64, got nan"),
        (
            {"fill_null": {"price": 2**63}},
            ConfigError,
            "a number of int64, got 9223372036854775808",
        ),
        ({"fill_null": {"price": []}}, ConfigTypeError, r"a number of int64, got \[\]"),
        ({"fill_null": {"size": "3"}}, ConfigTypeError, "a number of float64, got '3'"),
        ({"fill_null": {"size": 1j}}, ConfigTypeError, "a number of float64, got 1j"),
        ({"fill_null": {"size": 10**400}}, ConfigError, "a number of float64, got 1000"),
        (
            {"fill_null": {"size": 1e9}, "as_dtype": {"size": "float16"}},
            ConfigError,
            "a number of float16, got 1000000000.0",
        ),
        ({"fill_null": {"text": 0}}, ConfigTypeError, "fill_null of 'text' must be a str, got 0"),
        ({"fill_null": {"text": "\udc80"}}, ConfigError, "must be a string that UTF-8 holds"),
        ({"fill_null": {"code": True}}, ConfigTypeError, "must be a code, such as -1, got True"),
        ({"fill_null": {"code": 2**31}}, ConfigError, "must be a code, such as -1, got 2147483648"),
        (
            {"fill_null": {"list": "x"}},
            ConfigTypeError,
            "of 'list' must be a number of int64, .*, or a list .*, got 'x'",
        ),
        ({"fill_null": {"list": [0.5]}}, ConfigError, "of 'list' .*, got 0.5"),
        ({"fill_null": {"list": [[0]]}}, ConfigTypeError, r"of 'list' .*, got \[0\]"),
        ({"fill_null": {"list": np.zeros((1, 2))}}, ConfigTypeError, "of 'list' .*, got array"),
        ({"as_dtype": {"siz": "int8"}}, ConfigError, "as_dtype names 'siz'"),
        ({"as_dtype": "int8"}, ConfigTypeError, "as_dtype must be a dict"),
        ({"as_dtype": {"size": "no"}}, ConfigError, "of 'size' must be a type of numbers"),
        ({"as_dtype": {"size": ","}}, ConfigError, "of 'size' must be a type of numbers"),
        ({"as_dtype": {"size": ("i4", "x")}}, ConfigError, "of 'size' must be a type of numbers"),
        ({"as_dtype": {"size": "M8[s]"}}, ConfigError, "of 'size' must be a type of numbers"),
        ({"as_dtype": {"text": "int8"}}, ConfigError, "and the column is string"),
        (
            {"as_dtype": {"size": "category"}},
            ConfigError,
            "is for strings and integers, and the column is double",
        ),
        ({"as_dtype": {"size": "int8"}}, ConfigError, "is int8, which does not hold 0.5"),
        ({"as_dtype": {"big": "int8"}}, ConfigError, "is int8, which does not hold 1000"),
        ({"memory_limit": 0}, ConfigError, "memory_limit must be an int of 1 or more"),
        ({"memory_limit": 63}, ConfigError, "takes 128 bytes or more, and memory_limit allows 63"),
        ({"disk": 5}, ConfigTypeError, "disk must be the path of a folder, got 5 .*Pass a path"),
        ({"disk": ""}, ConfigError, "disk must be the path of a folder, got ''"),
        ({"disk": "a\0b"}, ConfigError, "disk must be the path of a folder, got 'a"),
        ({"disk": "some"}, ConfigError, "disk is for tables in files, and source is in memory"),
    ],
)
def test_invalid_arguments_are_refused(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        TableRows(**{"source": TABLE} | options)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.struct([("a", pa.int8())]), {"a": 1}),
        (pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3])),
        (pa.null(), None),
        (pa.map_(pa.string(), pa.int8()), [("a", 1)]),
    ],
    ids=str,
)
def test_columns_that_are_no_arrays_are_refused(kind: Any, value: Any) -> None:
    table = pa.table({"good": [1], "bad": pa.array([value], kind)})
    with pytest.raises(ConfigError, match=r"the column 'bad' of the table is .* leave it out"):
        TableRows(table)
    assert TableRows(table, ["good"])[0] == {"good": 1}


@pytest.mark.parametrize(
    ("values", "as_dtype", "told"),
    [
        ([1, 65520], "float16", "65520"),
        ([None, 70000], "float16", "70000"),
        ([[1], [70000]], "float16", "70000"),
        ([1e9], "float16", "1000000000.0"),
        ([-1e300, 1.0], "float32", r"-1e\+300"),
    ],
)
def test_a_number_that_would_become_infinite_is_refused(
    values: list[Any], as_dtype: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=f"is {as_dtype}, which does not hold {told}, a value"):
        TableRows(pa.table({"x": values}), as_dtype={"x": as_dtype})


def test_infinite_and_rounded_numbers_are_accepted() -> None:
    rows = TableRows(
        pa.table({"x": [np.inf, np.nan, 1.0], "n": [65504, 65505, 65519]}),
        as_dtype=dict.fromkeys("xn", "float16"),
    )
    assert repr([float(row["x"]) for row in rows]) == "[inf, nan, 1.0]"
    assert [row["n"] for row in rows] == [65504] * 3


@pytest.mark.parametrize(("digits", "scale"), [(12, 2), (18, 7), (38, 22), (38, 30), (9, -3)])
@pytest.mark.parametrize("kind", ["decimal128", "decimal256", "decimal64"])
def test_decimals_are_the_nearest_floats(kind: str, digits: int, scale: int, rng: Any) -> None:
    if not hasattr(pa, kind) or (kind == "decimal64" and (digits > 18 or scale < 0)):
        pytest.skip("there is no such type")
    with localcontext() as context:
        context.prec = 80
        values = [
            None if rng.random() < 0.1 else Decimal(int(rng.random() * 10 ** (number % digits + 1)))
            for number in range(2000)
        ]
        values = [value and (value * (-1) ** n).scaleb(-scale) for n, value in enumerate(values)]
        array = pa.array(values, getattr(pa, kind)(digits, scale))
    for column in (array, array.slice(3)):
        rows = TableRows(pa.table({"d": column}), as_dtype={"d": "float64"})
        wanted = [np.nan if each is None else float(each) for each in column.to_pylist()]
        assert np.array_equal(np.asarray(rows.arrays[0]), wanted, equal_nan=True)


def test_nan_is_one_category_in_all_chunks() -> None:
    chunks = [pa.array(each).dictionary_encode() for each in ([1.0, np.nan], [np.nan, 2.0])]
    rows = TableRows(pa.table({"x": pa.chunked_array(chunks)}))
    assert [int(row["x"]) for row in rows] == [0, 1, 1, 2]
    assert repr(rows.categories["x"]) == "[1.0, nan, 2.0]"


def test_decimals_are_refused_without_a_type() -> None:
    table = pa.table({"d": [Decimal("1.5")]})
    with pytest.raises(ConfigError, match=r"is decimal128.* pass as_dtype={'d': \"float64\"}"):
        TableRows(table)


def test_files_of_another_format_are_refused(table: Any, parquet: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(
        ConfigError, match=r"the folder '.*empty' has no file that ends in .parquet"
    ):
        TableRows(empty)
    (tmp_path / "bad").write_bytes(b"something else")
    with pytest.raises(ConfigError, match=r"'.*bad' is neither a Parquet nor an Arrow file"):
        TableRows(tmp_path / "bad")
    (tmp_path / "old").write_bytes(b"FEA1....")
    with pytest.raises(ConfigError, match=r"'.*old' is a Feather file of version 1"):
        TableRows(tmp_path / "old")
    for begin in (b"PAR1", b"ARROW1\0\0"):
        (tmp_path / "cut").write_bytes(begin + b"1234567890")
        with pytest.raises(ConfigError, match=r"'.*cut' is damaged"):
            TableRows(tmp_path / "cut")
    content = bytearray(parquet.read_bytes())
    content[40:4000] = bytes(3960)
    parquet.write_bytes(content)
    with pytest.raises(DatasetError, match=r"'.*table.parquet' is damaged"):
        TableRows(parquet)
    pq.write_table(table.slice(0, 0), tmp_path / "none.parquet")
    with pytest.raises(ConfigError, match=r"'.*none.parquet' has 0 rows"):
        TableRows(tmp_path / "none.parquet")


def test_files_that_differ_are_refused_with_both_names(table: Any, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "a.parquet")
    other = table.set_column(0, "x", table["x"].cast(pa.string()))
    pq.write_table(other, tmp_path / "b.parquet")
    with pytest.raises(
        ConfigError, match=r"a.parquet' and '.*b.parquet' differ in the column 'x': it is float"
    ):
        TableRows(tmp_path)
    pq.write_table(table.drop_columns(["n"]), tmp_path / "b.parquet")
    with pytest.raises(ConfigError, match=r"differ in the column 'n': .* missing in the second"):
        TableRows(tmp_path)


def test_columns_of_one_name_are_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ConfigError, match="the table has two columns 'a'"):
        TableRows(table)


def test_a_table_beyond_the_memory_is_refused(
    parquet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_rows, "available_bytes", lambda: 40_000)
    assert len(TableRows(parquet, ["x", "y"])) == COUNT
    with pytest.raises(
        ConfigError, match=r"takes [\d,]+ bytes or more, and the machine can give 40,000: choose"
    ):
        TableRows(parquet)  # texts do not fit


def test_an_invalid_folder_is_refused(parquet: Path) -> None:
    with pytest.raises(ConfigError, match=r"disk must be a folder, got '.*table.parquet': "):
        TableRows(parquet, disk=parquet)


def test_a_series_is_refused_with_what_to_pass() -> None:
    series = pytest.importorskip("pandas").Series([1, 2], name="n")
    with pytest.raises(ConfigTypeError, match=r"\(Series\): of one column pass to_frame\(\) of it"):
        TableRows(series)
    assert TableRows(series.to_frame())[1] == {"n": 2}


def test_a_frame_that_arrow_cannot_hold_is_refused() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"a": [1, "x"]})
    with pytest.raises(ConfigError, match=r"column a with type object. Give each column a name"):
        TableRows(frame)
    with pytest.raises(ConfigTypeError, match="source must be a path"):
        TableRows(type(frame))


def test_rows_without_bytes_are_rows() -> None:
    rows = TableRows(pa.table({"c": pa.array([[], []], pa.list_(pa.int8(), 0))}))
    assert [rows[k]["c"].shape for k in range(2)] == [(0,), (0,)]


def test_a_limit_of_the_system_is_named(
    table: Any, parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow = write_arrow(tmp_path / "one.arrow", table.select(["x"]))
    pickled = pickle.dumps(TableRows(table))
    ways = [
        lambda: TableRows(table),
        lambda: TableRows(parquet),
        lambda: TableRows(tmp_path),
        lambda: pickle.loads(pickled),
    ]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for way in ways:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            with pytest.raises(ReaderError, match=r"limit of open files: raise it \(ulimit -n\)"):
                way()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    def refuse(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(table_file.mmap, "mmap", refuse)  # which takes another descriptor
    for source, disk in ((table, None), (arrow, None), (parquet, tmp_path / "kept")):
        with pytest.raises(ReaderError, match=r"limit of open files: raise it \(ulimit -n\)"):
            TableRows(source, disk=disk)


def test_a_folder_that_may_not_be_written_to_is_named(
    parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(table_rows.RowLayout, "write", refuse)
    with pytest.raises(ConfigError, match="Permission denied; name a folder by disk= that you may"):
        TableRows(parquet, disk=tmp_path / "kept")
    monkeypatch.setattr(source_files.os, "listdir", refuse)
    with pytest.raises(ConfigError, match="Permission denied; pass the path of a Parquet or Arrow"):
        TableRows(tmp_path)


def test_a_missing_pyarrow_is_named(parquet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"cannot be imported: .* Run: pip install \"lodreader\["):
        arrow_source.pyarrow()


def test_pyarrow_is_imported_when_a_table_is_opened() -> None:
    program = "import sys, reader; reader.TableRows; assert 'pyarrow' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("is_file", [True, False])
def test_a_pickle_with_the_earlier_names_of_modules_loads(
    parquet: Path, table: Any, is_file: bool
) -> None:
    """The classes that read files of known formats lay in reader.data."""
    rows = TableRows(parquet if is_file else table)
    before = pickle.dumps(rows, 0).replace(b"reader.formats.", b"reader.data.")
    assert before.count(b"reader.data.table_") > 2
    loaded = pickle.loads(before)
    assert type(loaded) is TableRows
    assert loaded[7] == rows[7]
