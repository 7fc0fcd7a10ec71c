"""Shards that are damaged: an error of `reader` that names them, or samples.

No signal, no other error, no hang, and no memory out of proportion to the files.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reader import ConfigError, DatasetError, Shards, write_shards
from tests.fuzz.cases import Draws, damaged, try_cases
from tests.shard_files import chunk_of, leaves_of, make_litdata

MOST_NBYTES = 1 << 26  # at once, for files of some thousand bytes

SAMPLES: list[dict[str, Any]] = [
    {"txt": f"text {k} é", "cls": k, "bin": bytes(range(k)), "json": {"a": [k, None]}}
    for k in range(12)
]
ROWS = [{**each, "json": [each["cls"]] * 3} for each in SAMPLES]


def _litdata(folder: Path) -> None:
    chunk = chunk_of(
        [
            leaves_of([each["txt"].encode(), each["cls"].to_bytes(8, "little"), bytes(each["bin"])])
            for each in SAMPLES
        ]
    )
    form = {"txt": None, "cls": None, "bin": None}
    make_litdata(folder, form, ["str", "int", "bytes"], [chunk, chunk])


def _written(form: str, samples: list[dict[str, Any]], **options: Any) -> Callable[[Path], None]:
    return lambda folder: (
        write_shards(samples, folder, form, shard_size=100 if form == "jsonl" else 700, **options),
        None,
    )[1]


WRITERS: dict[str, Callable[[Path], None]] = {
    "tar": _written("tar", SAMPLES),
    "mds": _written("mds", SAMPLES),
    "mds, zstd": _written("mds", SAMPLES, compression="zstd"),
    "tfrecord": _written("tfrecord", ROWS),
    "tfrecord, gz": _written("tfrecord", ROWS, compression="gz"),
    "parquet": _written("parquet", SAMPLES),
    "jsonl": _written("jsonl", [{"txt": each["txt"]} for each in SAMPLES]),
    "litdata": _litdata,
}
NEEDED = {"tfrecord": "google_crc32c", "parquet": "pyarrow", "mds, zstd": "pyarrow"}


def read_all(folder: Path, **options: Any) -> str:
    """Return what comes of damaged shards: the name of an error, which names them, or "read"."""
    for kept in options["index"].glob(".reader-*"):  # a file's time may be that of the last case
        kept.unlink()
    tracemalloc.start()
    try:
        shards = Shards(folder, **options)
        for number in range(min(len(shards), 100)):
            shards[number]
    except (ConfigError, DatasetError) as error:
        told, outcome = str(error), type(error).__name__
    else:
        told, outcome = str(folder), "read"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST_NBYTES
    assert str(folder) in told
    return outcome


@pytest.mark.parametrize("kind", list(WRITERS))
def test_damaged_shards_are_told_or_read(kind: str, tmp_path: Path) -> None:
    for needed in (NEEDED.get(kind), NEEDED.get(kind.partition(",")[0])):
        if needed:
            pytest.importorskip(needed)
    folder, kept = tmp_path / "shards", tmp_path / "kept"
    WRITERS[kind](folder)
    files = {
        path: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.name.startswith(("shard", "chunk", "index"))
    }
    assert len(files) > 1
    options: dict[str, Any] = {"index": kept, "format": kind.partition(",")[0]}
    assert read_all(folder, **options) == "read"

    def case(draws: Draws) -> str:
        path = draws.choice(list(files))
        path.write_bytes(damaged(draws, files[path]))
        try:
            return read_all(folder, **options)
        finally:
            path.write_bytes(files[path])

    outcomes = try_cases(case, few=60)
    assert outcomes["DatasetError"] + outcomes["ConfigError"], outcomes


def test_a_damaged_index_is_made_again(tmp_path: Path) -> None:
    """The kept index is numbers that places in memory come of: it has a sum, and bounds."""
    folder, kept = tmp_path / "shards", tmp_path / "kept"
    WRITERS["tar"](folder)
    expected = [Shards(folder, index=kept)[number] for number in range(len(SAMPLES))]
    (path,) = kept.iterdir()
    sound = path.read_bytes()

    def case(draws: Draws) -> str:
        content = damaged(draws, sound)
        path.write_bytes(content)
        found = Shards(folder, index=kept)
        assert len(found) == len(expected)
        for number in range(len(found)):
            assert found[number] == expected[number]
        is_made_again = path.read_bytes() == sound
        return "made again" if is_made_again and content != sound else "kept"

    assert try_cases(case, few=60)["made again"]


PARTS = 8


@pytest.mark.nightly
@pytest.mark.timeout(500)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", list(WRITERS))
def test_each_byte_and_each_length_of_a_shard(kind: str, part: int, tmp_path: Path) -> None:
    for needed in (NEEDED.get(kind), NEEDED.get(kind.partition(",")[0])):
        if needed:
            pytest.importorskip(needed)
    folder, kept = tmp_path / "shards", tmp_path / "kept"
    WRITERS[kind](folder)
    options: dict[str, Any] = {"index": kept, "format": kind.partition(",")[0]}
    count = len(Shards(folder, **options))
    path = min(each for each in folder.iterdir() if each.name.startswith(("shard", "chunk")))
    content = path.read_bytes()
    for at in range(part, len(content), PARTS):
        for bits in (0x01, 0x80, 0xFF):
            path.write_bytes(content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :])
            if read_all(folder, **options) == "read" and kind != "jsonl":
                assert len(Shards(folder, **options)) == count
    for length in range(part, len(content), PARTS):
        path.write_bytes(content[:length])
        read_all(folder, **options)
