"""Tables of random columns, and files of tables that are damaged or forged.

What is sound is read equal to pyarrow's answer, whatever stores it. What is damaged is refused by
an error of `reader`, or read: no signal, no other error, no byte that the file does not have.
"""

from __future__ import annotations

import copy
import datetime
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ReaderError, TableRows
from reader.formats import table_folder
from tests.fuzz.cases import Draws, damaged, try_cases

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
csv = pytest.importorskip("pyarrow.csv")

csv.read_csv(io.BytesIO(b"x\n1\n"))  # at the first one pyarrow opens a pipe for signals

COUNT = 40
MOST_BYTES = 1 << 26

TABLE = pa.table(
    {
        "x": np.arange(COUNT, dtype=np.float32),
        "n": pa.array([None if k % 7 == 0 else k for k in range(COUNT)]),
        "flag": [k % 3 == 0 for k in range(COUNT)],
        "s": [f"row {k} \u00e9" for k in range(COUNT)],
        "c": pa.array(["ab"[k % 2] for k in range(COUNT)]).dictionary_encode(),
        "l": [[k] * (k % 4) for k in range(COUNT)],
        "ls": [["a" * k] * (k % 3) for k in range(COUNT)],
        "pair": pa.array([[k, k] for k in range(COUNT)], pa.list_(pa.int16(), 2)),
        "picture": [{"bytes": b"x" * k, "path": "p"} for k in range(COUNT)],
        "day": pa.array(range(COUNT), pa.date32()),
    }
)


def _as_arrow(table: Any, path: Path, new: Callable[..., Any], rows: int, packed: Any) -> None:
    options = pa.ipc.IpcWriteOptions(compression=packed)
    with new(str(path), table.schema, options=options) as out:
        out.write_table(table, max_chunksize=rows)


WRITERS: dict[str, Callable[[Any, Path], None]] = {
    "parquet": lambda table, path: pq.write_table(table, path, row_group_size=17),
    "plain": lambda table, path: pq.write_table(
        table, path, compression="none", use_dictionary=False
    ),
    "arrow": lambda table, path: _as_arrow(table, path, pa.ipc.new_file, COUNT, None),
    "chunks": lambda table, path: _as_arrow(table, path, pa.ipc.new_file, 17, "lz4"),
    "stream": lambda table, path: _as_arrow(table, path, pa.ipc.new_stream, 17, None),
    "fixed": lambda table, path: _as_arrow(
        table.select(["x", "pair", "day"]), path, pa.ipc.new_file, COUNT, None
    ),
}


# -- sound files ----------------------------------------------------------------------------------


def _number(draws: Draws) -> int:
    return draws.randint(-100, 100)


def _text(draws: Draws) -> str:
    return draws.choice(["", "a", "\u00e9\U0001f600", "longer than twelve bytes", "\0"])


def _bytes(draws: Draws) -> bytes:
    return draws.choice([b"", b"\0", b"\xff" * 20])


def _list_of(item: Callable[[Draws], Any]) -> Callable[[Draws], list[Any]]:
    return lambda draws: [item(draws) for _ in range(draws.randint(0, 3))]


KINDS: dict[str, tuple[Any, Callable[[Draws], Any]]] = {
    "int8": (pa.int8(), _number),
    "int64": (pa.int64(), _number),
    "double": (pa.float64(), lambda draws: _number(draws) / 8),
    "bool": (pa.bool_(), lambda draws: draws.chance(0.5)),
    "pair": (pa.list_(pa.int16(), 2), lambda draws: [_number(draws), _number(draws)]),
    "string": (pa.string(), _text),
    "large_string": (pa.large_string(), _text),
    "binary": (pa.binary(), _bytes),
    "list": (pa.list_(pa.int32()), _list_of(_number)),
    "pairs": (pa.list_(pa.list_(pa.int8(), 2)), _list_of(lambda draws: [_number(draws)] * 2)),
    "texts": (pa.list_(pa.string()), _list_of(_text)),
    "pieces": (pa.large_list(pa.binary()), _list_of(_bytes)),
    "lists": (pa.list_(pa.list_(pa.float32())), _list_of(_list_of(_number))),
    "deep": (pa.list_(pa.large_list(pa.list_(pa.string()))), _list_of(_list_of(_list_of(_text)))),
    "two": (pa.list_(pa.string(), 2), lambda draws: [_text(draws), _text(draws)]),
}
FILLS: dict[str, Any] = {"int8": -7, "int64": -7, "bool": True, "pair": -7} | {
    **dict.fromkeys(("string", "large_string"), "?"),
    **{kind: [] for kind in ("texts", "deep", "two", "lists", "pieces", "list", "pairs")},
    "binary": b"?",
}


def _expected(value: Any, kind: str) -> Any:
    if value is None:
        return [-7, -7] if kind == "pair" else FILLS.get(kind, float("nan"))
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _sound_case(draws: Draws, folder: Path) -> str:
    names = [draws.choice(list(KINDS)) for _ in range(draws.randint(1, 3))]
    count = draws.randint(1, 12)
    has_nulls = draws.chance(0.5)
    columns, fills = {}, {}
    for number, kind in enumerate(names):
        type_, make = KINDS[kind]
        values = [None if has_nulls and draws.chance(0.2) else make(draws) for _ in range(count)]
        columns[f"{number}"] = pa.array(values, type_)
        if kind in FILLS:
            fills[f"{number}"] = FILLS[kind]
    first = draws.randint(0, count - 1)
    table = pa.table(columns).slice(first)
    wanted = [
        {name: _expected(row[name], kind) for name, kind in zip(row, names, strict=True)}
        for row in table.to_pylist()
    ]
    path = folder / "table"
    writer = draws.choice(["memory", "kept", "parquet", "plain", "arrow", "chunks", "stream"])
    if writer == "memory":
        rows = TableRows(table, fill_null=fills)
    else:
        WRITERS["parquet" if writer == "kept" else writer](table, path)
        disk = folder / f"kept-{len(os.listdir(folder))}" if writer == "kept" else None
        rows = TableRows(path, fill_null=fills, disk=disk)
    found = [{name: _plain(value) for name, value in row.items()} for row in rows]
    assert repr(found) == repr(wanted), writer
    return writer


def test_columns_of_any_type_are_read_from_any_file(tmp_path: Path) -> None:
    outcomes = try_cases(lambda draws: _sound_case(draws, tmp_path), few=150)
    assert len(outcomes) == 7, outcomes


# -- damaged files --------------------------------------------------------------------------------


def _read_all(path: Path, content: bytes | None, **options: Any) -> str:
    """Return what comes of a damaged file: the name of an error, or "read"."""
    try:
        rows = TableRows(path, memory_limit=MOST_BYTES, **options)
    except ReaderError as error:
        return type(error).__name__
    for number in range(min(len(rows), 1000)):
        try:
            row = rows[number]
        except ReaderError:
            return "a row"
        for value in row.values():
            for each in value if isinstance(value, list) else [value]:
                if content is not None and isinstance(each, (str, bytes)):
                    assert (each.encode() if isinstance(each, str) else each) in content
    return "read"


@pytest.mark.parametrize("kind", list(WRITERS))
def test_a_damaged_file_is_refused_or_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "table"
    WRITERS[kind](TABLE, path)
    sound = path.read_bytes()
    options: Any = {} if kind == "fixed" else {"fill_null": {"n": -1}}
    assert _read_all(path, None, **options) == "read"

    def case(draws: Draws) -> str:
        content = damaged(draws, sound)
        path.write_bytes(content)
        return _read_all(path, content if kind in ("arrow", "stream") else None, **options)

    outcomes = try_cases(case, few=120)
    assert outcomes["ConfigError"], outcomes


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_damaged_text_is_refused_or_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{kind}"
    out = io.StringIO()
    if kind == "csv":
        out.write("x,s,day\n")
    for k in range(COUNT):
        day = datetime.date(2000, 1, 1) + datetime.timedelta(k)
        row = {"x": k / 4, "s": f"row {k} \u00e9", "day": str(day)}
        text = ",".join(map(str, row.values())) if kind == "csv" else json.dumps(row)
        out.write(text + "\n")
    sound = out.getvalue().encode()
    path.write_bytes(sound)
    assert _read_all(path, None) == "read"

    def case(draws: Draws) -> str:
        path.write_bytes(damaged(draws, sound))
        return _read_all(path, None)

    assert try_cases(case, few=100)["read"]


# -- forged tables in a folder --------------------------------------------------------------------


def _forge(rows: Path, told: dict[str, Any], content: bytes) -> None:
    """Write a table's files anew, with the right checksums and times."""
    nbytes = len(content)
    with rows.open("wb+") as file:
        file.write(content)
        file.flush()
        told["checksums"] = [
            table_folder._sum_of(file.fileno(), number, nbytes)
            for number in range(table_folder._blocks_of(nbytes))
        ]
        text = json.dumps(told, indent=1).encode()
        file.write(text)
    rows.with_suffix(".json").write_bytes(text)
    os.utime(rows, ns=(told["changed_ns"], told["changed_ns"]))


HOSTILE: list[Any] = [
    *(None, True, False, -1, 0, 1, 1.0, 2**31, 2**61, 2**63, 1e300, "", "O", "object", "V8"),
    *("int64", "str", "list of str", [], [1], [2**40], {}, {"a": 1}, [[]]),
]


def _places_of(value: Any) -> list[tuple[Any, Any]]:
    """Return each container within a value, with each of its keys."""
    if not isinstance(value, (dict, list)):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [(value, key) for key in keys] + [
        place for key in keys for place in _places_of(value[key])
    ]


def test_a_forged_table_is_made_again_or_refused_row_by_row(tmp_path: Path) -> None:
    path, folder = tmp_path / "t.parquet", tmp_path / "kept"
    pq.write_table(TABLE, path)
    options: Any = {"fill_null": {"n": -1}, "disk": folder}
    sound = repr(list(TableRows(path, **options)))
    (text,) = folder.glob("*.json")
    (rows,) = folder.glob("*.rows")
    told, content = json.loads(text.read_text()), rows.read_bytes()
    content = content[: told["form"][2]]

    def case(draws: Draws) -> str:
        forged = json.loads(json.dumps(told))
        if draws.chance(0.5):
            for _ in range(draws.choice([1, 1, 3])):
                places = _places_of(forged["form"])
                if places:
                    inside, key = draws.choice(places)
                    inside[key] = copy.deepcopy(draws.choice(HOSTILE))  # it may be forged, too
            _forge(rows, forged, content)
            found = list(TableRows(path, **options))
            return "same" if repr(found) == sound else "other categories"
        forged["form"][2] = len(changed := damaged(draws, content))
        _forge(rows, forged, changed)
        return _read_all(path, None, **options)

    outcomes = try_cases(case, few=150)
    assert (
        {"same", "a row", "read"} <= set(outcomes) <= {"same", "a row", "read", "other categories"}
    )
