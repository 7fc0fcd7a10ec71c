"""Tables whose lengths, offsets or codes are not so: refused before anything is read by them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, DatasetError, TableRows
from reader.errors import ReaderError
from reader.formats import table_rows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

FAR = 1 << 30


def _ends(*values: int, kind: str = "int32") -> Any:
    return pa.py_buffer(np.array(values, kind))


def _text(offsets: Any, type_: Any = None, content: bytes = b"abcdef") -> Any:
    buffers = [None, offsets, pa.py_buffer(content)]
    return pa.Array.from_buffers(type_ or pa.string(), 3, buffers)


def _list(offsets: Any, type_: Any) -> Any:
    items = pa.array([1, 2, 3], type_.value_type)
    return pa.Array.from_buffers(type_, 3, [None, offsets], children=[items])


def _codes(indices: list[int]) -> Any:
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int32()), pa.array(["a", "b"]), safe=False
    )


LIES: dict[str, Callable[[], Any]] = {
    "text beyond": lambda: _text(_ends(0, FAR, FAR, 6)),
    "text backwards": lambda: _text(_ends(0, 6, 3, 6)),
    "text before": lambda: _text(_ends(0, -FAR, 3, 6)),
    "long text beyond": lambda: _text(_ends(0, FAR, FAR, 6, kind="int64"), pa.large_string()),
    "binary beyond": lambda: _text(_ends(0, FAR, FAR, 6), pa.binary()),
    "no UTF-8": lambda: _text(_ends(0, 3, 6, 6), content=b"abc\xff\xfe\xfd"),
    "list beyond": lambda: _list(_ends(0, FAR, FAR, 3), pa.list_(pa.int64())),
    "list backwards": lambda: _list(_ends(0, 3, 1, 3), pa.list_(pa.int64())),
    "large list beyond": lambda: _list(
        _ends(0, FAR, FAR, 3, kind="int64"), pa.large_list(pa.int8())
    ),
    "texts in a list": lambda: pa.ListArray.from_arrays([0, 1, 2, 3], _text(_ends(0, FAR, FAR, 6))),
    "picture": lambda: pa.StructArray.from_arrays(
        [_text(_ends(0, FAR, FAR, 6), pa.binary()), pa.array(["p", "q", "r"])], ["bytes", "path"]
    ),
    "code beyond": lambda: _codes([0, 1, 1 << 28]),
    "code before": lambda: _codes([0, 1, -(1 << 28)]),
}


def lying(kind: str) -> Any:
    """Return a table that claims more than it has."""
    return pa.table({"x": [1, 2, 3], "c": LIES[kind]()})


@pytest.mark.parametrize("kind", list(LIES))
def test_an_array_that_points_beyond_its_memory_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the table is not valid: .*\. Make it anew"):
        TableRows(lying(kind))
    assert TableRows(lying(kind), ["x"])[1] == {"x": 2}


@pytest.mark.parametrize("new", ["new_file", "new_stream"])
@pytest.mark.parametrize("kind", list(LIES))
def test_a_file_that_points_beyond_its_bytes_is_refused(
    kind: str, new: str, tmp_path: Path
) -> None:
    table = lying(kind)
    path = tmp_path / "lie.arrow"
    with getattr(pa.ipc, new)(str(path), table.schema) as file:
        file.write_table(table)
    with pytest.raises(ReaderError, match=r"'.*lie.arrow' is damaged, or has changed .* Write it"):
        TableRows(path)
    assert TableRows(path, ["x"])[1] == {"x": 2}


def test_more_rows_than_a_file_has_bytes_for_are_refused(tmp_path: Path) -> None:
    """Bools, and numbers that would be mapped as they lie there."""
    path = tmp_path / "lie.arrow"
    for column in (pa.array([True, False] * 4000), pa.array(range(8000))):
        table = pa.table({"c": column})
        with pa.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
        content = path.read_bytes()
        count = np.int64(8000).tobytes()
        assert content.count(count) >= 2
        path.write_bytes(content.replace(count, np.int64(8_000_000).tobytes()))
        with pytest.raises(ReaderError, match=r"'.*lie.arrow' is damaged, or has changed"):
            TableRows(path)


@pytest.mark.parametrize("size", [-1, 2**31 - 1])
def test_a_list_that_claims_an_impossible_length_is_refused(size: int, tmp_path: Path) -> None:
    path = tmp_path / "lie.arrow"
    table = pa.table({"x": [1], "c": pa.array([[0] * 77], pa.list_(pa.int64(), 77))})
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    content = path.read_bytes()
    length = np.int32(77).tobytes()
    path.write_bytes(content.replace(length, np.int32(size).tobytes()))
    with pytest.raises(ReaderError, match=r"cannot be rows of arrays|too large for an array"):
        TableRows(path)


def test_texts_of_a_parquet_file_that_are_no_utf8_are_refused_when_it_is_opened(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"c": ["needle"] * 3}), path, use_dictionary=False, compression="none")
    path.write_bytes(path.read_bytes().replace(b"needle", b"need\xff\xfe"))
    with pytest.raises(DatasetError, match=r"'.*t.parquet' is damaged, .*UTF8"):
        TableRows(path)


def test_names_that_are_no_utf8_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"a\xff": 1}\n')
    with pytest.raises(ConfigError, match=r"'.*t.jsonl' cannot be read as JSON lines: .*utf-8"):
        TableRows(path)


def test_a_file_that_is_cut_while_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.arrow"
    table = pa.table({"x": np.arange(10_000)})
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    opened = table_rows.open_regular

    def cut_first(name: Any) -> int:
        os.truncate(path, 1000)
        return opened(name)

    monkeypatch.setattr(table_rows, "open_regular", cut_first)
    with pytest.raises(
        DatasetError, match=r"'.*t.arrow' has changed while it was opened: .* Leave"
    ):
        TableRows(path)
