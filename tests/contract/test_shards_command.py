"""`python -m reader shards`: what it prints, what it refuses, and its exit codes."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, Shards, write_shards
from reader.__main__ import main
from tests.shard_files import chunk_of, leaves_of, make_litdata, make_mds, make_tar


def tar_of(path: Path, *numbers: int) -> Path:
    members = [(f"{k}.{name}", b"%d" % k) for k in numbers for name in ("cls", "txt")]
    return make_tar(path, members)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "in"
    found.mkdir()
    tar_of(found / "a-0.tar", 0, 1, 2)
    tar_of(found / "a-1.tar", 3, 4)
    return found


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    code = main(["shards", *map(str, arguments)])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_a_list_has_formats_fields_and_counts(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    code, out, _ = run(capsys, "list", folder)
    assert code == 0
    assert out.startswith("tar: 5 samples in 2 shards, 20 KiB\n  __key__: str of 1\n  cls: bytes")
    assert "  3 samples" in out
    code, out, _ = run(capsys, "list", f"{folder}/a-{{0..1}}.tar", "--json")
    said = json.loads(out)
    assert code == 0
    assert [said[name] for name in ("format", "samples", "nbytes")] == ["tar", 5, 20480]
    assert said["fields"] == {"__key__": "str of 1", "cls": "bytes of 1", "txt": "bytes of 1"}
    assert [each["samples"] for each in said["shards"]] == [3, 2]


def test_an_index_is_made_and_its_place_is_told(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "index", folder, "--index", tmp_path / "kept")
    (kept,) = (tmp_path / "kept").iterdir()
    assert (code, f"the index is kept in {kept}\n" in out) == (0, True)
    made = kept.stat().st_mtime_ns
    assert run(capsys, "index", folder, "--index", tmp_path / "kept")[:2] == (0, out)
    assert kept.stat().st_mtime_ns == made  # and not made twice
    write_shards([{"a": 1}], tmp_path / "mds")
    assert "no other index is needed" in run(capsys, "index", tmp_path / "mds")[1]


def test_an_index_that_cannot_be_kept_is_told(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:  # no folder refuses root
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("reader.files.new_file", refuse)
    code, _, err = run(capsys, "index", folder)
    assert code == 2
    assert "is not kept: pass --index FOLDER" in err


@pytest.mark.parametrize("workers", [0, 2])
def test_a_check_reads_all_and_names_each_fault(
    workers: int, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    numbers = ("--num-workers", workers)
    assert run(capsys, "check", folder, *numbers) == (
        0,
        "5 samples in 2 shards, 20 KiB: all whole\n",
        "",
    )
    tar_of(folder / "a-2.tar", 5)
    with (folder / "a-1.tar").open("r+b") as file:
        file.seek(1024)  # the second member's header
        file.write(b"?")
    code, out, _ = run(capsys, "check", folder, *numbers)
    assert code == 1
    assert out.count("is damaged: the header of a member, at 1,024, cannot be read") == 1
    assert "a-1.tar" in out
    assert out.endswith("4 samples in 3 shards, 30 KiB: 1 damaged\n")


def test_a_check_decodes_the_fields_that_are_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    members = [(f"{k:02d}.cls", b"1" if k % 2 else b"one") for k in range(30)]
    path = make_tar(tmp_path / "t.tar", members)
    code, out, _ = run(capsys, "check", path, "--field", "cls=int")
    assert code == 1
    assert out.count("field 'cls' of sample") == 10
    assert "... and 5 more samples of the shard" in out
    assert out.endswith(": 15 damaged\n")
    assert run(capsys, "check", path)[0] == 0


def test_a_check_decodes_fields_of_samples_that_are_no_dicts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pairs = [leaves_of([b"%d" % k, b"x" * (1 + k % 2)]) for k in range(4)]
    folder = make_litdata(tmp_path / "t", (None, None), ["bytes", "str"], [chunk_of(pairs)])
    assert run(capsys, "check", folder, "--field", "0=int")[0] == 0
    code, out, _ = run(capsys, "check", folder, "--field", "1=uint16")
    assert (code, out.count("field '1' of sample")) == (1, 4)
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n7\n"abc"\n[1]\n')
    code, out, _ = run(capsys, "check", path, "--field", "a=int")
    assert (code, out.count("holds no object")) == (1, 3)


def test_pickles_are_listed_if_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make_mds(tmp_path, {"p": ("pkl", None)}, [[{"p": pickle.dumps("text")}]])
    for command in ("list", "index", "check"):
        code, _, error = run(capsys, command, tmp_path)
        assert (code, "holds pickles" in error) == (2, True)
        assert run(capsys, command, tmp_path, "--allow-pickle")[0] == 0
    assert "p: str of 4" in run(capsys, "list", tmp_path, "--allow-pickle")[1]


@pytest.mark.parametrize("kind", ["mds", "tar", "tfrecord", "jsonl", "parquet"])
def test_a_check_compares_the_sums_of_a_manifest(
    kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if kind in ("tfrecord", "parquet"):
        pytest.importorskip({"tfrecord": "google_crc32c", "parquet": "pyarrow"}[kind])
    rows = [{"txt": f"the text number {k}"} for k in range(40)]
    assert write_shards(rows, tmp_path / "out", kind, shard_size="500") > 2
    assert run(capsys, "check", tmp_path / "out")[0] == 0
    second, third = sorted(
        each for each in (tmp_path / "out").iterdir() if each.name.startswith("shard")
    )[1:3]
    content = bytearray(second.read_bytes())
    content[-1] ^= 1  # of the last sample, or what is behind it
    second.write_bytes(content)
    third.unlink()
    code, out, _ = run(capsys, "check", tmp_path / "out")
    assert code == 1
    assert f"the shard '{second}' is damaged: its SHA-256 is " in out
    assert str(third) in out
    assert ": 2 damaged\n" in out


def test_sums_of_an_index_are_compared_though_the_shard_is_not_compressed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = make_mds(tmp_path / "m", {"n": ("bytes", None)}, [[{"n": b"abc"}, {"n": b"def"}]])
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0]["raw_data"]["hashes"] = {"sha1": "0" * 40}
    (folder / "index.json").write_text(json.dumps(index))
    assert Shards(folder)[1] == {"n": b"def"}
    code, out, _ = run(capsys, "check", folder)
    assert code == 1
    assert "its sha1 is " in out


def summed(folder: Path, kind: str, wanted: str | None = None, packed: bool = False) -> Path:
    """Write a shard of MDS with a sum of a kind, which is right or as wanted; return its file."""
    make_mds(folder, {"n": ("bytes", None)}, [[{"n": b"abc"}, {"n": b"def"}]])
    path = folder / "shard.00000.mds"
    content = path.read_bytes()
    index = json.loads((folder / "index.json").read_text())
    shard = index["shards"][0]
    if wanted is None:
        new = getattr(hashlib, kind, None) or getattr(pytest.importorskip("xxhash"), kind)
        wanted = new(content).hexdigest()
    shard["raw_data"]["hashes"] = {kind: wanted}
    if packed:
        shard["compression"] = "gz"
        shard["zip_data"] = {**shard["raw_data"], "basename": f"{path.name}.gz"}
        path.unlink()
        path = path.with_suffix(".mds.gz")
        path.write_bytes(gzip.compress(content, 0))
        shard["zip_data"]["bytes"] = path.stat().st_size
    (folder / "index.json").write_text(json.dumps(index))
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["md5", "sha3_256", "xxh32", "xxh64", "xxh128", "xxh3_64"])
def test_sums_of_each_kind_of_streaming_are_compared(
    kind: str, packed: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = summed(tmp_path, kind, packed=packed)
    code, out, _ = run(capsys, "check", tmp_path)
    assert (code, "not compared" in out) == (0, False)
    content = path.read_bytes()
    if packed:
        changed = gzip.decompress(content).replace(b"def", b"dEf")
        path.write_bytes(gzip.compress(changed, 0))
    else:
        path.write_bytes(content.replace(b"def", b"dEf"))
    assert path.stat().st_size == len(content)
    code, out, _ = run(capsys, "check", tmp_path)
    assert (code, f"' is damaged: its {kind} is " in out) == (1, True)


def test_sums_that_nobody_can_compute_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, kind in enumerate(["xxh64", "xxh64", "shake_128", "sum"]):
        summed(tmp_path / str(number), kind, "00")
    monkeypatch.setitem(sys.modules, "xxhash", None)
    code, out, _ = run(capsys, "check", *(tmp_path / str(number) for number in range(4)))
    assert code == 0
    assert "the xxh64 sums of 2 shards were not compared: pip install xxhash\n" in out
    assert "the shake_128 sums of 1 shards were not compared, for want of a program\n" in out
    assert "the sum sums of 1 shards were not compared, for want of a program\n" in out
    path = tmp_path / "0" / "shard.00000.mds"
    path.write_bytes(path.read_bytes() + b"\0")
    code, out, _ = run(capsys, "check", tmp_path / "0")
    assert (code, " bytes, and the list of its set says " in out) == (1, True)


def test_columns_of_an_index_are_those_of_the_shard(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_shards([{"a": 1, "t": "x"}, {"a": 2, "t": "y"}], tmp_path, "mds")
    index = tmp_path / "index.json"
    assert run(capsys, "check", tmp_path)[0] == 0
    whole = index.read_text()
    for one, other in (('["a", "t"]', '["b", "t"]'), ('["int", "str"]', '["int64", "str"]')):
        index.write_text(whole.replace(one, other))
        code, out, _ = run(capsys, "check", tmp_path)
        assert (code, " has the columns [('a', 'int'), ('t', 'str')], and index.json" in out) == (
            1,
            True,
        )
    index.write_text(whole.replace(', "hashes": {"sha256"', ', "other": {"sha256"'))
    (tmp_path / "manifest.json").unlink()
    (path,) = tmp_path.glob("*.mds")
    path.write_bytes(path.read_bytes().replace(b'"column_names": [', b'"column_names": {'))
    code, out, _ = run(capsys, "check", tmp_path)
    assert (code, "its description cannot be read" in out) == (1, True)
    with pytest.raises(ConfigError, match=r"mds' is a file of a set that its folder describes"):
        Shards(path)


def test_samples_are_converted_and_an_ended_run_goes_on(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    made = ("convert", folder, out, "--to", "mds", "--field", "cls=int", "--field", "txt=str")
    code, told, _ = run(capsys, *made, "--shard-size", "230", "--num-workers", 2)
    assert (code, told) == (0, f"5 samples in 2 shards of mds: {out}\n")
    assert [Shards(out)[k] for k in range(5)] == [{"cls": k, "txt": str(k)} for k in range(5)]
    (out / "manifest.json").unlink()
    assert run(capsys, *made, "--shard-size", "230")[:2] == (0, told)
    code, _, err = run(capsys, *made, "--shard-size", "250")
    assert code == 2
    assert "were written with other arguments" in err
    made = (*made[:-1], "txt=bytes")
    code, _, err = run(capsys, *made, "--shard-size", "230")
    assert code == 2
    assert "their columns are {'cls': 'int', 'txt': 'str'}, and these samples have {'cls'" in err


def test_a_field_that_json_does_not_hold_is_named(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    code, _, err = run(capsys, "convert", folder, tmp_path / "out", "--to", "jsonl")
    assert code == 2
    assert "the field 'cls' cannot be JSON" in err
    assert "(--field cls=str of convert)" in err
    made = ("convert", folder, tmp_path / "out", "--to", "jsonl", "--field", "txt=str")
    assert run(capsys, *made, "--field", "cls=int")[0] == 0
    assert Shards(tmp_path / "out")[3] == {"cls": 3, "txt": "3"}
    code, _, err = run(capsys, *made, "--field", "cls=float")
    assert code == 2
    assert "their first one has other bytes than the first one of these" in err


def test_images_of_a_column_are_decoded_by_a_check(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pytest.importorskip("simplejpeg")
    pillow.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    path = make_tar(tmp_path / "t.tar", [("a.png", content), ("b.png", content[:-30])])
    code, out, _ = run(capsys, "check", path, "--field", "png=image")
    assert code == 1
    assert "field 'png' of sample 1 (b) of the shard" in out
    assert ": 1 damaged\n" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("list", "no such folder"), "there is no file"),
        (("list", "."), "has no shard of the formats"),
        (("check", ".", "--format", "rar"), "format must be one of tar, mds"),
        (("check", ".", "--field", "cls"), "--field takes NAME=TYPE"),
        (("check", ".", "--field", "cls=no such type"), "a field becomes int"),
        (("convert", "a.tar", "out", "--to", "rar"), "format must be one of mds"),
        (("convert", "a.tar", "out", "--to", "mds", "--shard-size", "x"), "shard_size"),
        (("check", "a.tar", "--num-workers", "-1"), "num_workers"),
    ],
)
def test_what_is_refused_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...],
    text: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "a.tar" in arguments:
        tar_of(tmp_path / "a.tar", 0)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("python -m reader shards: ")
    assert text in err
