"""What tables are stored as: Arrow streams, texts, partitions, structs and nested lists."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader import ConfigError, ConfigTypeError, DataLoader, DatasetError, TableRows
from reader.formats.json_lines import ShallowText
from reader.images import CenterCrop, Compose, decode

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
csv = pytest.importorskip("pyarrow.csv")

csv.read_csv(io.BytesIO(b"x\n1\n"))  # at the first one pyarrow opens a pipe for signals

TABLE = pa.table({"x": [1, 2, 3], "s": ["a", "b", "c"]})
ROWS = TABLE.to_pylist()


def plain(rows: TableRows) -> list[dict[str, Any]]:
    """Return samples as plain values."""

    def of(value: Any) -> Any:
        if isinstance(value, list):
            return [of(each) for each in value]
        return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value

    return [{name: of(value) for name, value in row.items()} for row in rows]


def stream(path: Path, table: Any, rows: int = 2) -> Path:
    with pa.ipc.new_stream(str(path), table.schema) as out:
        out.write_table(table, max_chunksize=rows)
    return path


# -- Arrow streams ---------------------------------------------------------------------------------


def test_a_folder_of_several_splits_is_refused_and_its_splits_named(tmp_path: Path) -> None:
    """Its description is JSON: read as rows it would be a table of one row."""
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        stream(tmp_path / split / "data-00000-of-00001.arrow", TABLE)
    match = r"has dataset_dict.json: .* Pass one of these folders: test, train$"
    with pytest.raises(ConfigError, match=match):
        TableRows(tmp_path)
    assert plain(TableRows(tmp_path / "train")) == ROWS


def test_a_table_without_columns_is_refused_as_that(tmp_path: Path) -> None:
    empty = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    lines, written = tmp_path / "t.jsonl", tmp_path / "t.arrow"
    lines.write_text("{}\n{}\n")
    with pa.ipc.new_file(str(written), empty.schema) as out:
        out.write_batch(empty)
    for source in (lines, written, stream(tmp_path / "s.arrow", pa.table(empty)), pa.table(empty)):
        with pytest.raises(ConfigError, match="has no columns: pass a table with one at least"):
            TableRows(source)


def test_files_without_columns_of_their_own_have_those_of_their_folders(tmp_path: Path) -> None:
    empty = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    for year in (1, 2):
        (tmp_path / f"year={year}").mkdir()
        with pa.ipc.new_file(str(tmp_path / f"year={year}" / "t.arrow"), empty.schema) as out:
            out.write_batch(empty)
    assert plain(TableRows(tmp_path)) == [{"year": 1}] * 2 + [{"year": 2}] * 2


def test_a_folder_of_arrow_streams_is_a_table(tmp_path: Path) -> None:
    """As the library `datasets` saves one: streams, and descriptions beside them."""
    stream(tmp_path / "data-00000-of-00002.arrow", TABLE)
    stream(tmp_path / "data-00001-of-00002.arrow", TABLE.slice(1))
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": {"x": 1}}))
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": []}))
    rows = TableRows(tmp_path)
    assert plain(rows) == ROWS + ROWS[1:]
    assert plain(pickle.loads(pickle.dumps(rows))) == plain(rows)
    assert plain(TableRows(tmp_path, ["s"], disk=tmp_path / "kept"))[4] == {"s": "c"}
    coded = pa.table({"x": TABLE["s"].dictionary_encode()})
    assert TableRows(stream(tmp_path / "c", coded)).categories == {"x": ["a", "b", "c"]}


def test_a_stream_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = stream(tmp_path / "t.arrow", TABLE)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ConfigError, match=r"'.*t.arrow' is damaged, or has changed"):
        TableRows(path)


# -- texts ----------------------------------------------------------------------------------------


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, "zstd", asbytes=True))


def lz4(content: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "lz4") as packed:
        packed.write(content)
    return bytes(out.getvalue())


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstd,
    ".lz4": lz4,
}
TEXTS = {
    ".csv": "x,s\n1,a\n2,b\n3,c\n",
    ".tsv": "x\ts\n1\ta\n2\tb\n3\tc\n",
    ".jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    ".ndjson": "\n".join(json.dumps(row) for row in ROWS),
    ".json": "".join(json.dumps(row) + "\n" for row in ROWS),
}


@pytest.mark.parametrize("packed", list(PACKED))
@pytest.mark.parametrize("kind", list(TEXTS))
def test_texts_are_read_by_their_names(kind: str, packed: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{kind}{packed}"
    path.write_bytes(PACKED[packed](TEXTS[kind].encode()))
    rows = TableRows(path)
    assert plain(rows) == ROWS
    assert plain(pickle.loads(pickle.dumps(rows))) == ROWS
    assert plain(TableRows(path, ["s"], disk=tmp_path / "kept")) == [{"s": each} for each in "abc"]
    upper = path.rename(tmp_path / path.name.upper())
    assert plain(TableRows([upper, upper])) == ROWS * 2
    coded = TableRows(upper, {"at": "s"}, as_dtype={"at": "category"})
    assert coded.categories == {"at": ["a", "b", "c"]}
    unpacked = upper.rename(tmp_path / f"t{kind}")
    assert plain(TableRows(unpacked)) == ROWS  # what is compressed says so


def test_a_csv_file_is_read_as_pandas_reads_it(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    path = tmp_path / "t.csv"
    path.write_text(
        '\ufeffid,price,name,on\n1,0.5,"a, b",true\n2,,"two\nlines",false\n'
        '3,1e3,"say ""hi""",true\n'
    )
    rows, frame = TableRows(path), pd.read_csv(path)
    assert repr(plain(rows)) == repr(frame.to_dict("records"))
    assert [rows.arrays[k].dtype.name for k in (0, 1, 3)] == ["int64", "float64", "bool"]


def test_json_lines_have_lists_structs_and_nulls(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"a": {"b": 1}, "l": ["x", "y"], "n": null}\n{"a": {"b": 2}, "l": [], "n": 5}\n'
    )
    rows = TableRows(path, ["a.b", "l", "n"], fill_null={"n": 0})
    assert plain(rows) == [{"a.b": 1, "l": ["x", "y"], "n": 0}, {"a.b": 2, "l": [], "n": 5}]


def nested(levels: int) -> str:
    return '{"s": "[[[", "a": ' + "[" * levels + "1" + "]" * levels + ', "b": [["]]]"]]}\n'


def test_json_of_many_levels_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(nested(63) * 2)
    rows = TableRows(path)
    assert len(rows) == 2
    assert np.ravel(rows[1]["a"]).tolist() == [1]
    for text in (nested(64), nested(2) + nested(300_000), '{"a":\n' * 300_000, "[" * 300_000):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"in more than 64 levels, which is the limit. Read"):
            TableRows(path)


def depth(value: Any) -> int:
    if isinstance(value, (list, dict)):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth, inner), default=0)
    return 0


JSON_VALUES = st.recursive(
    st.text('"\\[]{}\nn', max_size=8) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\[]{}'), inner),
)


@given(st.lists(JSON_VALUES, min_size=1, max_size=4), st.integers(1, 40))
def test_levels_are_counted_as_json_has_them(values: list[Any], size: int) -> None:
    levels = max(map(depth, values))
    text = "".join(json.dumps(each) + "\n" for each in values).encode()
    for most in (levels, levels - 1):
        file = ShallowText(io.BytesIO(text), most)
        with pytest.raises(ValueError, match="levels") if most < levels else nullcontext():
            assert b"".join(iter(lambda f=file: f.read(size), b"")) == text


def test_a_long_line_is_read(tmp_path: Path) -> None:
    long = "y" * (3 << 20)  # pyarrow parses a MiB at a time
    for path, text in (("t.csv", f"s\na\n{long}\n"), ("t.jsonl", f'{{"s": "{long}"}}\n')):
        (tmp_path / path).write_text(text)
        assert TableRows(tmp_path / path)[-1]["s"] == long


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("t.csv", b"", "cannot be read as CSV: Empty CSV file. Read it by pandas"),
        ("t.csv", b"x,s\n", "has 0 rows"),
        ("t.csv", b"x,s\n1\n", "cannot be read as CSV: .*Expected 2 columns, got 1"),
        ("t.csv", b"x,x\n1,2\n", "has two columns 'x'"),
        ("t.csv.gz", gzip.compress(b"x\n1\n" * 9999, mtime=0)[:-30], "cannot be read as CSV: "),
        ("t.csv.gz", b"x\n1\n", "cannot be read as CSV: "),
        ("t.jsonl", b"", "cannot be read as JSON lines: Empty JSON file"),
        ("t.jsonl", b'{"x": 1', "cannot be read as JSON lines: "),
        ("t.json", b'[{"x": 1}, {"x": 2}]', "cannot be read as JSON lines: .*. Read it by pandas"),
        ("t.jsonl", b'{"x": 1}\n{"x": "a"}\n', "cannot be read as JSON lines: .*changed from"),
        (
            "t.txt",
            b"x,s\n1,a\n",
            "neither a Parquet nor .* ends in .csv, .tsv, .* without .gz, .bz2",
        ),
    ],
)
def test_texts_that_are_no_tables_are_refused(
    name: str, content: bytes, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"(?s)'.*{name}' .*{text}"):
        TableRows(tmp_path / name)


def test_a_text_is_no_dataset_by_itself(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TEXTS[".csv"])
    with pytest.raises(
        ConfigTypeError, match=r"holds characters.* reader.TableRows has the rows of"
    ):
        DataLoader(str(tmp_path / "t.csv"))


# -- names of files and folders -------------------------------------------------------------------


def test_names_in_capital_letters_are_found(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "A.PARQUET")
    stream(tmp_path / "b.Arrow", TABLE)
    assert plain(TableRows(tmp_path)) == ROWS * 2


def test_texts_of_a_folder_count_where_it_has_no_other_tables(tmp_path: Path) -> None:
    for name in ("1.csv", "0.csv", "2.JSONL"):
        text = TEXTS[f".{name.lower().rpartition('.')[2]}"]
        (tmp_path / name).write_text(text)
    assert plain(TableRows(tmp_path)) == ROWS * 3
    pq.write_table(TABLE, tmp_path / "t.parquet")
    assert plain(TableRows(tmp_path)) == ROWS


def partitioned(folder: Path, *values: str, key: str = "year") -> Path:
    for number, value in enumerate(values):
        (folder / f"{key}={value}").mkdir(parents=True)
        pq.write_table(TABLE.slice(number, 1), folder / f"{key}={value}" / "part.parquet")
    return folder


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        (["2023", "2024"], "int32", [2023, 2024]),
        (["-1", "07"], "int32", [-1, 7]),
        (["1", "3000000000"], "int64", [1, 3_000_000_000]),
        (["Oslo", "a%20b%2Fc"], "str", ["Oslo", "a b/c"]),
        (["1.5", "2"], "str", ["1.5", "2"]),
        (["1", "x=y"], "str", ["1", "x=y"]),
        (["1", "99999999999999999999"], "str", ["1", "99999999999999999999"]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], "int32", [1, -9]),
    ],
    ids=str,
)
def test_folders_of_partitions_give_columns(
    values: list[str], kind: str, wanted: list[Any], tmp_path: Path
) -> None:
    folder = partitioned(tmp_path / "files", *values)
    rows = TableRows(folder, fill_null={"year": -9} if -9 in wanted else None)
    assert rows.fields == ("x", "s", "year")
    assert [row["year"] for row in plain(rows)] == wanted
    assert [row["x"] for row in plain(rows)] == [1, 2]
    assert type(rows[0]["year"]).__name__ == kind
    if kind == "int32":  # pyarrow takes the folders in the order in which it finds them
        theirs = pq.read_table(folder, partitioning="hive")["year"].to_pylist()
        assert {-9 if each is None else each for each in theirs} == set(wanted)


def test_files_of_several_splits_in_a_folder_are_told(tmp_path: Path) -> None:
    for name in ("train-00000-of-00001", "test-00000-of-00001"):
        pq.write_table(pa.table({"x": [1]}), tmp_path / f"{name}.parquet")
    with pytest.warns(
        UserWarning, match=r"of several splits, such as 'test-.*those of '.*/.test.'$"
    ):
        assert len(TableRows(tmp_path)) == 2
    assert len(TableRows([tmp_path / "train-00000-of-00001.parquet"])) == 1


def test_partitions_of_nulls_alone_are_as_columns_of_nulls(tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "files", "__HIVE_DEFAULT_PARTITION__")
    rows = TableRows(folder, as_dtype={"year": "int16"}, fill_null={"year": -9})
    assert [row["year"] for row in plain(rows)] == [-9]
    with pytest.raises(ConfigError, match=r"'year' of .* is null, which cannot be rows"):
        TableRows(folder)


def test_partitions_may_be_asked_for_alone_coded_and_within_one_another(tmp_path: Path) -> None:
    for city in ("Rome", "Oslo"):
        partitioned(tmp_path / "files" / f"city={city}", "2023", "2024")
    folder = tmp_path / "files"
    options: Any = {"as_dtype": {"city": "category"}}
    rows = TableRows(folder, ["city", "year"], **options)
    assert rows.categories == {"city": ["Oslo", "Rome"]}
    expected = [{"city": c, "year": y} for c in (0, 1) for y in (2023, 2024)]
    assert plain(rows) == expected
    assert plain(pickle.loads(pickle.dumps(rows))) == expected
    for _ in range(2):
        kept = TableRows(folder, ["city", "year"], disk=tmp_path / "kept", **options)
        assert plain(kept) == expected
    pickled = pickle.dumps(rows)
    partitioned(folder / "city=Bern", "2023")
    with pytest.raises(DatasetError, match="the table has 5 rows, and had 4 when the dataset was"):
        pickle.loads(pickled)


def test_a_column_of_the_file_is_taken_before_that_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "x=9").mkdir()
    pq.write_table(TABLE, tmp_path / "x=9" / "0.parquet")
    assert plain(TableRows(tmp_path)) == ROWS


def test_folders_whose_names_give_no_table_are_refused(tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "a", "1")
    pq.write_table(TABLE, folder / "0.parquet")
    with pytest.raises(
        ConfigError, match=r"other names of columns, \[\] and \['year'\]: pass a list"
    ):
        TableRows(folder)
    folder = partitioned(partitioned(tmp_path / "b", "1"), "2", key="month")
    with pytest.raises(
        ConfigError, match=r"columns, \['month'\] and \['year'\]: pass a list of files"
    ):
        TableRows(folder)
    folder = partitioned(tmp_path / "c", "1")
    (folder / "year=1" / "year=2").symlink_to(folder)  # it has no end
    with pytest.raises(ConfigError, match=r"year=2' names the column 'year' again: pass a list of"):
        TableRows(folder)
    (tmp_path / "d" / "year=1").mkdir(parents=True)
    with pytest.raises(
        ConfigError, match=r"has no file that ends in .parquet, .* but 1 other entr"
    ):
        TableRows(tmp_path / "d")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"PARE" + bytes(20) + b"PARE", "is an encrypted Parquet file: read it with its keys by"),
        (b"ORC" + bytes(20), "is an ORC file: read it by pyarrow.orc"),
        (b"FEA1" + bytes(20), "is a Feather file of version 1"),
    ],
)
def test_other_files_are_named(content: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"'.*t.parquet' {text}"):
        TableRows(tmp_path / "t.parquet")


def encrypted(path: Path, is_plain: bool) -> Path:
    """Write a Parquet file with an encrypted column, with or without its footer."""
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Plain(encryption.KmsClient):  # type: ignore[misc,name-defined]
        def wrap_key(self, key: bytes, name: str) -> bytes:
            return key.hex().encode()

        def unwrap_key(self, key: bytes, name: str) -> bytes:
            return bytes.fromhex(key.decode())

    factory = encryption.CryptoFactory(lambda _: Plain())
    config = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["s"]}, plaintext_footer=is_plain
    )
    made = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, TABLE.schema, encryption_properties=made) as file:
        file.write_table(TABLE)
    return path


@pytest.mark.parametrize("is_plain", [True, False])
def test_an_encrypted_parquet_file_is_told_as_such(is_plain: bool, tmp_path: Path) -> None:
    path = encrypted(tmp_path / "t.parquet", is_plain)
    text = "has encrypted columns: .* Read it with" if is_plain else "is an encrypted Parquet file"
    with pytest.raises(ConfigError, match=rf"(?s)'.*t.parquet' {text}.*decryption_properties"):
        TableRows(path)


# -- structs --------------------------------------------------------------------------------------


def test_fields_of_structs_are_columns(tmp_path: Path) -> None:
    inner = [{"b": 1, "c": {"d": "x"}}, None, {"b": 3, "c": None}]
    table = pa.table({"a": inner, "a.e": [7, 8, 9], "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "t.parquet")
    stream(tmp_path / "t.arrow", table)
    for source in (table, tmp_path / "t.parquet", tmp_path / "t.arrow"):
        rows = TableRows(
            source, {"b": "a.b", "d": "a.c.d", "e": "a.e"}, fill_null={"a.b": -1, "d": "?"}
        )
        assert [tuple(row.values()) for row in plain(rows)] == [
            (1, "x", 7),
            (-1, "?", 8),
            (3, "?", 9),
        ]
        with pytest.raises(ConfigError, match=r"columns names 'a.z', and .* has no such column"):
            TableRows(source, ["a.z"])
        with pytest.raises(
            ConfigError, match=r"'a' of .* is struct.*: name its fields, such as 'a.b'"
        ):
            TableRows(source)
    pq.write_table(pa.table({"a": [None, None]}), tmp_path / "u.parquet")
    pq.write_table(pa.table({"a": [{"c": None}]}), tmp_path / "v.parquet")
    files = [tmp_path / f"{name}.parquet" for name in "uvt"]
    rows = TableRows(files, ["a.c.d"], fill_null={"a.c.d": "?"})
    assert [row["a.c.d"] for row in plain(rows)] == ["?", "?", "?", "x", "?", "?"]
    frame = table.select(["a"]).to_pandas()
    assert plain(TableRows(frame, ["a.b"], as_dtype={"a.b": "float32"}))[2] == {"a.b": 3.0}


def picture(color: int) -> bytes:
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image.new("RGB", (8, 6), (color, 0, 0)).save(out, "PNG")
    return out.getvalue()


def test_pictures_are_bytes_that_images_take(tmp_path: Path) -> None:
    contents = [picture(color) for color in (10, 20, 30)]
    images = [{"bytes": each, "path": f"{k}.png"} for k, each in enumerate(contents)]
    table = pa.table({"image": images, "label": [0, 1, 2]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    stream(tmp_path / "t.arrow", table)
    for source in (table, tmp_path / "t.parquet", tmp_path / "t.arrow"):
        rows = TableRows(source)
        assert [row["image"] for row in rows] == contents
        assert decode(rows[2]["image"])[0, 0].tolist() == [30, 0, 0]
        assert Compose([CenterCrop(4)]).apply(rows[1]["image"]).shape == (4, 4, 3)
        paths = TableRows(source, {"image": "image", "name": "image.path"})
        assert paths[1] == {"image": contents[1], "name": "1.png"}
    missing = pa.table({"image": [{"bytes": None, "path": "0.png"}, images[0]]})
    with pytest.raises(ConfigError, match=r"'image' of the table is binary and has 1 null"):
        TableRows(missing)


# -- lists of what differs in length -------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.string()), [["a", "\u00e9"], [], [""]]),
        (pa.large_list(pa.large_string()), [["a", "b"], [], ["c"]]),
        (pa.list_(pa.binary()), [[b"\0"], [b"", b"ab"], []]),
        (pa.list_(pa.list_(pa.int16())), [[[1], [2, 3]], [], [[]]]),
        (pa.list_(pa.list_(pa.list_(pa.float64()))), [[[[1.0], []]], [], [[]]]),
        (pa.list_(pa.list_(pa.string())), [[["a"], []], [], [["b", "c"]]]),
        (pa.list_(pa.string(), 2), [["a", "b"], ["", "c"], ["d", "d"]]),
        (pa.list_(pa.list_(pa.string(), 2)), [[["a", "b"]], [], [["c", "d"], ["e", "f"]]]),
        (pa.list_(pa.list_(pa.float32(), 4)), [[[1.0, 2.0, 3.0, 4.0]], [], [[5.0] * 4] * 2]),
        (pa.list_(pa.binary(2)), [[b"ab"], [], [b"cd", b"ef"]]),
        (pa.list_(pa.bool_()), [[True], [], [False, True]]),
    ],
    ids=str,
)
def test_lists_of_what_differs_in_length_are_lists(kind: Any, values: Any, tmp_path: Path) -> None:
    table = pa.table({"c": pa.array([values[2], *values], kind)}).slice(1)
    pq.write_table(table, tmp_path / "t.parquet")
    wanted = values
    if kind == pa.list_(pa.binary(2)):
        wanted = [[list(each) for each in row] for row in values]
    for source in (table, tmp_path / "t.parquet"):
        rows = TableRows(source)
        assert [row["c"] for row in plain(rows)] == wanted
        assert [row["c"] for row in plain(pickle.loads(pickle.dumps(rows)))] == wanted
    assert [row["c"] for row in plain(TableRows(tmp_path, disk=tmp_path / "kept"))] == wanted


def test_boxes_of_a_picture_are_one_array() -> None:
    table = pa.table({"boxes": pa.array([[[1, 2, 3, 4]], []], pa.list_(pa.list_(pa.int64(), 4)))})
    rows = TableRows(table, as_dtype={"boxes": "float32"})
    assert [row["boxes"].shape for row in rows] == [(1, 4), (0, 4)]
    assert rows[0]["boxes"].dtype == np.float32


@pytest.mark.parametrize(
    ("values", "fill", "wanted"),
    [
        ([["a", None], None], "?", [["a", "?"], []]),
        ([["a"], None], [], [["a"], []]),
        ([["a"], None], None, r"has 1 null: pass fill_null={'c': \[\]}"),
        ([["a", None]], None, "has 1 null within lists: pass fill_null={'c': \"\"}"),
        ([["a", None]], [], "has 1 null within lists: pass fill_null={'c': \"\"}"),
        ([[b"a", None]], None, "has 1 null within lists: pass fill_null={'c': b\"\"}"),
        ([[[1], None], None], 0, [[[1], []], []]),
        ([[[1, None]]], 0, [[[1, 0]]]),
        ([[[1]]], [1], r"fill_null of 'c' must be \[\] for lists that are null, .* got \[1\]"),
        ([["a"]], ["b"], r"fill_null of 'c' must be \[\] for lists that are null, .* got \['b'\]"),
        ([["a"]], 0, "fill_null of 'c' must be a str, got 0"),
    ],
)
def test_nulls_in_nested_lists_are_filled_or_refused(values: Any, fill: Any, wanted: Any) -> None:
    table = pa.table({"c": values})
    if isinstance(wanted, str):
        with pytest.raises((ConfigError, ConfigTypeError), match=wanted):
            TableRows(table, fill_null={"c": fill})
        return
    assert [row["c"] for row in plain(TableRows(table, fill_null={"c": fill}))] == wanted


@pytest.mark.parametrize("workers", [0, 2])
def test_nested_lists_and_pictures_pass_a_loader(workers: int, tmp_path: Path) -> None:
    table = pa.table({"words": [["a"], ["b", "c"]] * 4, "n": range(8)})
    rows = TableRows(table)
    with DataLoader(rows, batch_size=4, num_workers=workers, collate_fn=list) as loader:
        found = [row for batch in loader for row in batch]
    assert [list(row["words"]) for row in found] == [["a"], ["b", "c"]] * 4
    assert [int(row["n"]) for row in found] == list(range(8))
