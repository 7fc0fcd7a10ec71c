"""Which files are a set of shards, its index, what fields become, and the order of its samples."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader import (
    ConfigError,
    ConfigTypeError,
    DataLoader,
    DatasetError,
    SampleIndexError,
    ShardOrder,
    Shards,
    write_shards,
)
from reader._core.plans.windows import group_shards
from reader.data.windowed_order import WindowedOrder
from reader.images import Compose, RandomResizedCrop
from reader.random.permutation import Permutation, shuffled
from reader.random.seeds import order_key
from reader.shards.check_shards import check_shards
from reader.shards.formats import FORMATS
from reader.shards.formats.tar import scan_tar
from reader.stores.paths import expanded, named, parts_of
from tests.shard_files import (
    chunk_of,
    example,
    leaves_of,
    make_litdata,
    make_mds,
    make_tar,
    make_tfrecord,
)


def tar_of(path: Path, *numbers: int) -> Path:
    members = [(f"{k}.{kind}", str(k).encode()) for k in numbers for kind in ("cls", "txt")]
    path.parent.mkdir(parents=True, exist_ok=True)
    return make_tar(path, members)


def classes(shards: Any) -> list[int]:
    return [int(shards[index]["cls"]) for index in range(len(shards))]


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a", ["a"]),
        ("a{1..3}", ["a1", "a2", "a3"]),
        ("{08..11}", ["08", "09", "10", "11"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{0..9..4}", ["0", "4", "8"]),
        ("{-1..1}", ["-1", "0", "1"]),
        ("{a,b}{0..1}", ["a0", "a1", "b0", "b1"]),
        ("{a..c}", ["a", "b", "c"]),
        ("{a..e..2}", ["a", "c", "e"]),
        ("{e..a..3}", ["e", "b"]),
        ("x{a,b{1,2}}", ["xa", "xb1", "xb2"]),
        ("{a,{b,c}}{1,2}", ["a1", "a2", "b1", "b2", "c1", "c2"]),
        ("{,x}", ["", "x"]),
        ("a{b,{c,d}", ["a{b,c", "a{b,d"]),
        ("a}b{", ["a}b{"]),
    ],
)
def test_braces_name_what_shells_name(pattern: str, names: list[str]) -> None:
    assert list(expanded(pattern)) == names


def names_of(path: Any) -> list[str]:
    return [name for part in parts_of(path) for name in named(part)]


def test_paths_patterns_and_lists_name_files_in_their_order(tmp_path: Path) -> None:
    for name in ("b1.tar", "b0.tar", "a0.tar", "odd{1,2}.tar"):
        (tmp_path / name).touch()
    base = str(tmp_path)
    assert names_of(f"{base}/b{{1..0}}.tar") == [f"{base}/b1.tar", f"{base}/b0.tar"]
    assert names_of(f"{base}/[ab]*.tar") == [f"{base}/{name}.tar" for name in ("a0", "b0", "b1")]
    assert names_of(f"{base}/b0.tar::{base}/a0.tar") == [f"{base}/b0.tar", f"{base}/a0.tar"]
    assert names_of([tmp_path / "b1.tar", f"{base}/a0.tar"]) == [f"{base}/b1.tar", f"{base}/a0.tar"]
    assert names_of(tmp_path / "odd{1,2}.tar") == [f"{base}/odd{{1,2}}.tar"]


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        (
            "no.tar",
            ConfigError,
            r"no file '.*no.tar': the folder '.*' has 1 entries, such",
        ),
        ("no-*.tar", ConfigError, r"the pattern '.*no-\*.tar' names no file: the folder"),
        ("no/{0..2}.tar", ConfigError, r"no/0.tar': there is no folder '.*no', or it cannot be"),
        ("{0..99999999}", ConfigError, r"of more than 10,000,000 files"),
        (
            "**/*.tar",
            ConfigError,
            r"the pattern '.*' has '\*\*', which is not supported: name each",
        ),
        ("{x}", ConfigError, r"the pattern has \{x\}, which is neither a range"),
        ([], ConfigError, r"path is an empty list"),
        (7, ConfigTypeError, r"path must be a path, a pattern such as .*got 7"),
        ({"a": 1}, ConfigTypeError, r"path must be a path, a pattern"),
        ("s3://bucket/x.tar", ConfigError, r"s3://"),
        (["t.tar", "./t.tar"], ConfigError, r"names '.*t.tar' twice: its samples would come twice"),
    ],
)
def test_paths_that_name_nothing_are_refused(
    path: Any, kind: type[Exception], text: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    tar_of(tmp_path / "t.tar", 1)
    with pytest.raises(kind, match=text):
        Shards(path)


def test_a_folder_has_its_shards_and_other_files(tmp_path: Path) -> None:
    tar_of(tmp_path / "1.tar", 2)
    tar_of(tmp_path / "0.tar", 0, 1)
    (tmp_path / "README.md").write_text("words")
    assert classes(Shards(tmp_path)) == [0, 1, 2]
    (tmp_path / "rows.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"rows.jsonl' of jsonl and '.*0.tar' of tar: pass those"):
        Shards(tmp_path)
    assert classes(Shards(tmp_path, format="tar")) == [0, 1, 2]
    with pytest.raises(ConfigError, match=r"format must be one of tar, mds, .*, got 'zip'"):
        Shards(tmp_path, format="zip")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConfigError, match=r"empty' has no shard of the formats tar, mds"):
        Shards(empty)
    (empty / "index.json").write_text('{"what": 1}')
    with pytest.raises(ConfigError, match=r"index.json' is the index of no known format"):
        Shards(empty)
    with pytest.raises(ConfigError, match=r"README.md' is a shard of none of the formats"):
        Shards(tmp_path / "README.md")


def test_a_file_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    tar_of(tmp_path / "o" / "a.tar", 0)
    tar_of(tmp_path / "o" / "b.tar", 1)
    (tmp_path / "link.tar").symlink_to(tmp_path / "o" / "b.tar")
    (tmp_path / "p").symlink_to(tmp_path / "o")
    for other in ("o/b.tar", "link.tar", "p", "o/../o/b.tar"):
        with pytest.raises(ConfigError, match=r"names '.*o/[ab].tar' twice.*: its samples would"):
            Shards([tmp_path / "o", tmp_path / other])
    wids_of(tmp_path / "o", ("a.tar", 1), ("b.tar", 1), ("a.tar", 1))
    with pytest.raises(ConfigError, match=r"an index that it names, names '.*/a.tar' twice: its"):
        Shards(tmp_path / "o" / "train.json")
    make_mds(tmp_path / "m", {"n": ("int", 8)}, [[{"n": bytes(8)}]])
    index = tmp_path / "m" / "index.json"
    said = json.loads(index.read_text())
    index.write_text(json.dumps({**said, "shards": said["shards"] * 2}))
    with pytest.raises(ConfigError, match=r"names '.*shard.00000.mds' twice: its samples would"):
        Shards(tmp_path / "m")


def test_paths_hold_when_the_process_changes_its_folder(tmp_path: Path, monkeypatch: Any) -> None:
    tar_of(tmp_path / "a" / "t.tar", 1, 2)
    tar_of(tmp_path / "b" / "t.tar", 3, 4)
    monkeypatch.chdir(tmp_path / "a")
    found = [Shards(path) for path in ("t.tar", "*.tar", "{t,../b/t}.tar", ".")]
    monkeypatch.chdir(tmp_path / "b")
    assert [classes(each) for each in found] == [[1, 2], [1, 2], [1, 2, 3, 4], [1, 2]]
    assert found[0].origin(0).path == str(tmp_path / "a" / "t.tar")


def test_files_come_by_their_numbers(tmp_path: Path) -> None:
    numbers = [9, 10, 99_999, 100_000]
    for number in numbers:
        tar_of(tmp_path / f"shard-{number}.tar", number)
    assert classes(Shards(tmp_path)) == numbers
    assert classes(Shards(f"{tmp_path}/shard-*.tar")) == numbers


@pytest.mark.parametrize("kind", [None, "tfrecord"])
def test_names_of_tensorflow_are_known_and_missing_ones_told(kind: Any, tmp_path: Path) -> None:
    pytest.importorskip("google_crc32c")
    for k in range(3):
        make_tfrecord(tmp_path / f"b.tfrecord-0000{k}-of-00003", [example({"n": [k]})])
    make_tfrecord(tmp_path / "shard-00000.tfrecord", [example({"n": [3]})])
    make_tfrecord(tmp_path / "unnamed", [example({"n": [4]})])
    shards = Shards(tmp_path, kind)
    assert [shards[index]["n"] for index in range(len(shards))] == [[0], [1], [2], [3], [4]]
    (tmp_path / "b.tfrecord-00001-of-00003").write_bytes(b"damaged")
    with pytest.raises(ConfigError, match=r"b.tfrecord-00001-of-00003' is cut off"):
        Shards(tmp_path, kind)
    (tmp_path / "b.tfrecord-00001-of-00003").unlink()
    for path in (tmp_path, f"{tmp_path}/b.*"):
        with pytest.raises(
            ConfigError, match=r"2 of 3 files .* missing, such as '.*b.tfrecord-00001-of-00003': f"
        ):
            Shards(path, kind)
    assert len(Shards(f"{tmp_path}/b.tfrecord-0000{{0,2}}-of-00003", kind)) == 2


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["t-0-of-3.tar", "t-2-of-3.tar"], "t-1-of-3.tar"),
        (["t-1-of-3.tar", "t-2-of-3.tar", "t-3-of-3.tar"], ""),  # some count from 1
        (["t-1-of-2.tar", "u-0-of-1.tar"], "t-0-of-2.tar"),
        (["00-of-99999999.tar"], "01-of-99999999.tar"),
        (["t-0-of-2-0123456789abcdef.tar", "t-1-of-2-fedcba9876543210.tar"], ""),
        (["t-0-of-2-0123456789abcdef.tar"], "t-1-of-2.tar"),
        (["1-of-2-hopes.tar"], ""),
    ],
)
def test_numbered_files_are_whole(names: list[str], missing: str, tmp_path: Path) -> None:
    for number, name in enumerate(names):
        tar_of(tmp_path / name, number)
    for path in (tmp_path, f"{tmp_path}/*.tar"):
        if not missing:
            assert len(Shards(path)) == len(names)
            continue
        with pytest.raises(ConfigError, match=rf"are missing, such as '.*/{missing}'"):
            Shards(path)
    assert len(Shards([tmp_path / name for name in names])) == len(names)


def test_shards_that_cannot_be_read_do_not_vanish_from_a_folder(tmp_path: Path) -> None:
    tar_of(tmp_path / "0.tar", 0)
    (tmp_path / "README").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder.tar").mkdir()
    (tmp_path / "link.tar").symlink_to(tmp_path / "folder.tar")
    assert classes(Shards(tmp_path)) == [0]
    (tmp_path / "a.tar").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"a.tar' cannot be read: .*No such file"):
        Shards(tmp_path)
    (tmp_path / "a.tar").unlink()
    for suffix in ("tar.xz", "tar.lzma", "tar.Z", "tar.7z", "tar.zip", "txz"):
        (path := tmp_path / f"b.{suffix}").write_bytes(b"packed")
        for kind in (None, "tar"):
            with pytest.raises(ConfigError, match=rf"b.{suffix}' is compressed by '.*decompress"):
                Shards(tmp_path, kind)
        (tmp_path / "c.jsonl").write_text("1\n")
        assert Shards(tmp_path, "jsonl")[0] == 1
        (tmp_path / "c.jsonl").unlink()
        path.unlink()


@pytest.mark.parametrize("form", ["tar", "mds", "mds, zstd"])
def test_a_file_of_another_size_than_its_list_says_is_told(form: str, tmp_path: Path) -> None:
    if form == "tar":
        tar_of(tmp_path / "0.tar", 0)
        wids_of(tmp_path, ("0.tar", 1)).rename(tmp_path / "index.json")
    else:
        packed = {"compression": "zstd"} if "zstd" in form else {}
        if packed:
            pytest.importorskip("pyarrow")
        write_shards([{"n": k} for k in range(9)], tmp_path, "mds", **packed)
    (path,) = (each for each in tmp_path.iterdir() if each.name.startswith(("0", "shard")))
    nbytes = path.stat().st_size
    assert len(Shards(tmp_path)) in (1, 9)
    with path.open("ab") as file:
        file.write(bytes(1024))
    text = rf"' has {nbytes + 1024:,} bytes, and the list of its set says {nbytes:,}: they are of d"
    with pytest.raises(ConfigError, match=text):
        Shards(tmp_path)
    (found,) = check_shards(tmp_path)
    assert "the list of its set says" in found.damage[0]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["train-00000-of-00001.tar", "test-00000-of-00001.tar"], "'test-.*' and 'train-.*', and"),
        (
            ["a-train-1.tar", "a-validation-1.tar", "a-val-2.tar"],
            "'a-train-1.tar' and 'a-val-2.tar'",
        ),
        (
            ["testing.tar", "dev.tar"],
            "'dev.tar' and 'testing.tar'.*those of '.*/.dev.'$",
        ),
        (["train-0.tar", "train-1.tar", "other.tar"], None),
        (["train-val.tar", "val-1.tar"], None),
        (["valley.tar", "training.tar", "contest.tar", "devices.tar"], None),
    ],
)
def test_files_of_several_splits_in_a_folder_are_told(
    names: list[str], told: str | None, tmp_path: Path
) -> None:
    for k, name in enumerate(names):
        tar_of(tmp_path / name, k)
    if told is None:
        assert len(Shards(tmp_path)) == len(names)
        return
    with pytest.warns(UserWarning, match=rf"has files of several splits, such as .*{told}"):
        assert len(Shards(tmp_path)) == len(names)
    assert len(Shards([tmp_path / name for name in names])) == len(names)


def test_a_folder_of_folders_names_them(tmp_path: Path) -> None:
    tar_of(tmp_path / "train" / "a.tar", 0)
    (tmp_path / "test").mkdir()
    with pytest.raises(ConfigError, match="and it has the folders test, train: pass the folder or"):
        Shards(tmp_path)


# -- the index ------------------------------------------------------------------------------------


def kept_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(".reader-*"))


def test_an_index_is_kept_and_made_anew_for_shards_that_change(tmp_path: Path) -> None:
    paths = [tar_of(tmp_path / f"{k}.tar", 2 * k, 2 * k + 1) for k in range(3)]
    assert classes(Shards(tmp_path)) == list(range(6))
    (kept,) = kept_in(tmp_path)
    first = kept.stat()
    Shards(tmp_path)
    assert kept.stat().st_mtime_ns == first.st_mtime_ns
    tar_of(paths[1], 7, 8, 9)
    assert classes(Shards(tmp_path)) == [0, 1, 7, 8, 9, 4, 5]
    assert kept.stat().st_ino != first.st_ino
    (moved := tmp_path / "moved").mkdir()
    for path in (*paths, kept):
        path.rename(moved / path.name)
    stamp = (moved / kept.name).stat().st_mtime_ns
    assert classes(Shards(moved)) == [0, 1, 7, 8, 9, 4, 5]
    assert (moved / kept.name).stat().st_mtime_ns == stamp


def test_a_damaged_index_is_made_anew(tmp_path: Path) -> None:
    tar_of(tmp_path / "t.tar", *range(4))
    Shards(tmp_path)
    (kept,) = kept_in(tmp_path)
    content = kept.read_bytes()
    for at in range(0, len(content), 7):
        kept.write_bytes(content[:at] + bytes([content[at] ^ 0x20]) + content[at + 1 :])
        assert classes(Shards(tmp_path)) == [0, 1, 2, 3]
    for length in range(0, len(content), 23):
        kept.write_bytes(content[:length])
        assert classes(Shards(tmp_path)) == [0, 1, 2, 3]


def test_a_large_index_stays_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(3):
        tar_of(tmp_path / f"{k}.tar", *range(4 * k, 4 * k + 4))
    held = Shards(tmp_path)
    monkeypatch.setattr("reader.stores.kept_arrays._MOST_HELD", 0)
    for _ in range(2):  # made, and read again
        shards = Shards(tmp_path)
        assert shards._set._kept.content is None
        assert classes(shards) == list(range(12))
        copied = pickle.loads(pickle.dumps(shards))
        assert [copied.origin(k) for k in range(12)] == [held.origin(k) for k in range(12)]
        with DataLoader(shards, batch_size=5, num_workers=2) as loader:
            assert [int(each) for batch in loader for each in batch["cls"]] == list(range(12))
        for kept in kept_in(tmp_path):
            kept.unlink()
        held = Shards(tmp_path)


@pytest.mark.parametrize("fault", ["removed", "empty", "other", "flipped"])
def test_a_large_index_that_changes_while_it_is_used_gives_no_other_samples(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reader.stores.kept_arrays._MOST_HELD", 0)
    tar_of(tmp_path / "t.tar", *range(4))
    shards = Shards(tmp_path)
    (kept,) = kept_in(tmp_path)
    content = kept.read_bytes()
    if fault == "removed":
        kept.unlink()
    elif fault == "empty":
        kept.write_bytes(b"")
    elif fault == "other":
        kept.write_bytes(content[:40] + bytes(80) + content[120:])
    else:
        kept.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    with pytest.warns(UserWarning, match=r"index' is no longer what it was when the dataset was"):
        assert classes(shards) == [0, 1, 2, 3]


def test_a_set_of_files_that_others_have_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: list[str] = []

    def scan(stored: Any, check: bool) -> dict[str, Any]:
        scanned.append(Path(stored.path).name)
        return scan_tar(stored, check)

    monkeypatch.setitem(FORMATS, "tar", FORMATS["tar"]._replace(scan=scan))
    for k in range(4):
        tar_of(tmp_path / f"{k}.tar", k)
    Shards([tmp_path / "0.tar", tmp_path / "1.tar"])
    Shards([tmp_path / "2.tar", tmp_path / "1.tar"])
    assert sorted(scanned) == ["0.tar", "1.tar", "2.tar"]
    assert classes(Shards([tmp_path / f"{k}.tar" for k in (2, 0, 1)])) == [2, 0, 1]
    assert classes(Shards(tmp_path)) == [0, 1, 2, 3]
    assert sorted(scanned) == ["0.tar", "1.tar", "2.tar", "3.tar"]
    assert len(kept_in(tmp_path)) == 4
    tar_of(tmp_path / "1.tar", 7, 8)
    assert classes(Shards([tmp_path / "1.tar"])) == [7, 8]
    assert scanned[4:] == ["1.tar"]


def test_an_index_lies_where_it_is_asked_for_or_nowhere(tmp_path: Path) -> None:
    tar_of(tmp_path / "a" / "t.tar", 1)
    Shards(tmp_path / "a" / "t.tar", index=tmp_path / "kept" / "here")
    assert not kept_in(tmp_path / "a")
    assert len(kept_in(tmp_path / "kept" / "here")) == 1
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"index='.*file' cannot be written to"):
        Shards(tmp_path / "a" / "t.tar", index=tmp_path / "file")


def test_a_shard_that_changes_while_it_is_used_is_told(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "t.tar", 1, 2)
    shards = Shards(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(DatasetError, match=r"t.tar' has changed since its index was made"):
        shards[0]
    shards = Shards(path)
    assert shards[0]["cls"] == b"1"
    os.truncate(path, 600)
    with pytest.raises(DatasetError, match=r"t.tar' has changed .* 10,240 bytes, and has 600"):
        shards[1]
    path.unlink()
    with pytest.raises(DatasetError, match=r"t.tar' cannot be opened"):
        pickle.loads(pickle.dumps(shards))[0]


def test_indices_outside_are_refused(tmp_path: Path) -> None:
    shards = Shards(tar_of(tmp_path / "t.tar", 1, 2))
    for index in (2, -3):
        with pytest.raises(SampleIndexError, match=rf"index {index} is outside of 2 samples"):
            shards[index]
    assert shards.__getitems__([]) == []


# -- fields ---------------------------------------------------------------------------------------


def test_fields_become_what_is_asked_for(tmp_path: Path) -> None:
    numbers = np.arange(3, dtype=np.float32)
    members = [
        ("a.cls", b" 7\n"),
        ("a.txt", "é".encode()),
        ("a.json", b'{"k": [1]}'),
        ("a.vec", numbers.tobytes()),
        ("a.png", b"p"),
    ]
    wanted: dict[str, Any] = {
        "cls": int,
        "txt": str,
        "json": "json",
        "vec": np.float32,
        "jpg;png": None,
        "__key__": None,
    }
    shards = Shards(make_tar(tmp_path / "t.tar", members), fields=wanted)
    found = shards[0]
    assert (found.pop("vec") == numbers).all()
    assert found == {"cls": 7, "txt": "é", "json": {"k": [1]}, "jpg": b"p", "__key__": "a"}
    again = pickle.loads(pickle.dumps(shards))
    assert again[0]["cls"] == 7
    assert shards.has_pure_samples
    path = tmp_path / "t.tar"
    assert Shards(path, fields={"cls": float, "txt": len})[0] == {"cls": 7.0, "txt": 2}
    assert Shards(path, fields={"vec": "<f4"})[0]["vec"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"no;nix": int}, DatasetError, r"sample 0 \(1\) of .*t.tar', at 512, lacks the field"),
        ({"txt": "json"}, None, ""),
        ({"cls": np.float64}, DatasetError, r"field 'cls' of sample 0 \(1\) .*cannot be decoded: "),
        ({"cls": "no such type"}, ConfigTypeError, r"a field becomes int, float, str, bytes, "),
        ({"cls": object}, None, ""),
        ({"cls": "str"}, ConfigTypeError, r"text or bytes by the types str and bytes, got 'str'"),
        ({"cls": np.bytes_}, ConfigTypeError, r"text or bytes by the types str and bytes"),
        ({"cls": np.dtype(object)}, ConfigError, r"cannot become an array of objects: that would"),
        ({}, ConfigTypeError, r"fields must be a dict such as"),
        (["cls"], ConfigTypeError, r"fields must be a dict such as"),
        ({1: int}, ConfigTypeError, r"the name of a field must be a str, got 1"),
        ({"cls;a": int, "cls;b": str}, ConfigError, r"two fields are called 'cls', the first of"),
    ],
)
def test_fields_that_cannot_be_are_told(
    fields: Any, kind: type[Exception] | None, text: str, tmp_path: Path
) -> None:
    path = tar_of(tmp_path / "t.tar", 1)
    if kind is None:
        if fields != {"cls": object}:
            assert Shards(path, fields=fields)[0] == {"txt": 1}
        return
    with pytest.raises(kind, match=text):
        Shards(path, fields=fields)[0]


def test_images_are_those_of_a_folder(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pytest.importorskip("simplejpeg")
    from reader.images import CenterCrop, ImageFolder, RandomResizedCrop

    members = []
    for k in range(6):
        rng = np.random.default_rng(k)
        file = io.BytesIO()
        pixels = rng.integers(0, 255, (40 + k, 50, 3), dtype=np.uint8)
        pillow.fromarray(pixels).save(file, "JPEG" if k % 2 else "PNG")
        folder = tmp_path / "files" / str(k % 2)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{k}.{'jpg' if k % 2 else 'png'}").write_bytes(file.getvalue())
    files = ImageFolder(tmp_path / "files", size=(16, 24), transforms=[CenterCrop(30)])
    for k, (path, label) in enumerate(files.samples):
        members += [(f"{k}{Path(path).suffix}", Path(path).read_bytes())]
        members += [(f"{k}.cls", str(label).encode())]
    shards = Shards(make_tar(tmp_path / "t.tar", members))
    ours = shards.images("jpg;png", "cls", size=(16, 24), transforms=[CenterCrop(30)])
    assert len(ours) == 6
    for index in range(6):
        out = np.zeros((16, 24, 3), np.uint8)
        image, label = ours.__getitem__(index, out=(out, np.zeros((), np.int64)))
        assert image is out
        assert (image == files[index][0]).all()
        assert label == files[index][1]
    alone = shards.images("png;jpg", size=(16, 24), transforms=[RandomResizedCrop()])
    assert alone[0].shape == (16, 24, 3)
    broken = Shards(make_tar(tmp_path / "u.tar", [("a.jpg", b"\xff\xd8\xff\xe0no")])).images("jpg")
    with pytest.raises(DatasetError, match=r"field 'jpg' of sample 0 \(a\) .*, cannot be decoded"):
        broken[0]


# -- order ----------------------------------------------------------------------------------------

LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(any)


@given(LENGTHS, st.integers(1, 60), st.integers(0, 2**64 - 1), st.data())
def test_a_windowed_order_has_each_sample_once_and_opens_anywhere(
    lengths: list[int], window: int, seed: int, data: Any
) -> None:
    starts = np.cumsum([0, *lengths])
    order = WindowedOrder(starts, window, seed, 1)
    whole = order.take(0, len(order))
    assert sorted(whole.tolist()) == list(range(sum(lengths)))
    alone = WindowedOrder(starts, window, seed, 1)
    backwards = [alone[place] for place in reversed(range(len(whole)))]
    assert backwards == whole[::-1].tolist()
    begin, stop = data.draw(st.integers(0, 400)), data.draw(st.integers(0, 400))
    step = data.draw(st.integers(1, 9))
    assert order.take(begin, stop, step).tolist() == whole[begin:stop:step].tolist()
    # a group has whole shards, and no shard more than it needs
    shards = np.searchsorted(starts, whole, "right") - 1
    seen: set[int] = set()
    at = 0
    while at < len(whole):
        group = {int(shards[at])}
        size = lengths[int(shards[at])]
        while at + size > at and len(set(shards[at : at + size].tolist())) > len(group):
            group = set(shards[at : at + size].tolist())
            size = sum(lengths[each] for each in group)
        assert not group & seen
        seen |= group
        at += size


@given(
    LENGTHS,
    st.integers(1, 60) | st.integers(2**40, 2**70),
    st.integers(0, 2**64 - 1),
    st.integers(0, 3),
)
def test_a_windowed_order_is_what_its_definition_says(
    lengths: list[int], window: int, seed: int, epoch: int
) -> None:
    order = WindowedOrder(np.cumsum([0, *lengths]), window, seed, epoch)
    expected: list[int] = []
    groups: list[list[int]] = [[]]
    for shard in shuffled(len(lengths), seed, epoch).take(0, len(lengths)).tolist():
        if sum(lengths[each] for each in groups[-1]) >= window:
            groups.append([])
        groups[-1].append(shard)
    for number, group in enumerate(groups):
        own = [sum(lengths[:each]) + k for each in group for k in range(lengths[each])]
        expected += [own[k] for k in Permutation(len(own), order_key(seed, epoch, number + 1))]
    assert [each.tolist() for each in order.groups] == groups
    assert order.take(0, len(order)).tolist() == expected


def test_groups_of_a_million_shards_are_the_shards_once_and_no_two_groups_lie_alike() -> None:
    lengths = np.random.default_rng(4).integers(0, 9, 10**6)
    order = WindowedOrder(np.concatenate([[0], np.cumsum(lengths)]), 20, 5, 0)
    sizes = [int(lengths[group].sum()) for group in order.groups]
    assert min(sizes[:-1]) == 20
    assert max(sizes) <= 27
    assert (np.sort(np.concatenate(order.groups)) == np.arange(10**6)).all()
    assert len(order) == sum(sizes)


def test_arrays_for_another_number_of_shards_are_refused() -> None:
    starts, shards = np.arange(5), np.arange(4)
    rooms = [np.empty(count, np.int64) for count in (4, 4, 5)]
    for k in range(3):
        wrong = [room[: len(room) - (k == number)] for number, room in enumerate(rooms)]
        with pytest.raises(ValueError, match="the arrays must have room for 4 shards"):
            group_shards(starts, shards, 1, *wrong)


class Numbers(Shards):
    """Shards of given lengths, without files."""

    def __init__(self, *lengths: int) -> None:
        self._lengths = lengths

    @property
    def starts(self) -> Any:
        return np.cumsum([0, *self._lengths])

    @property
    def nbytes(self) -> int:
        return 100 * len(self)

    def __len__(self) -> int:
        return sum(self._lengths)


@pytest.mark.parametrize("dtype", ["int32", "uint16", "uint64"])
def test_starts_may_be_integers_of_any_type(dtype: str) -> None:
    class Typed(Numbers):
        @property
        def starts(self) -> Any:
            return super().starts.astype(dtype)

    typed, plain = (list(ShardOrder(kind(3, 2, 4), 1, 4)) for kind in (Typed, Numbers))
    assert typed == plain


@pytest.mark.parametrize("window", [None, 7, "all", "1kB"])
def test_ranks_take_one_sequence_in_turn(window: Any) -> None:
    dataset = Numbers(5, 9, 1, 20, 3)
    (whole,) = [list(ShardOrder(dataset, 3, window, rank=0, world_size=1))]
    assert sorted(whole) == list(range(38))
    for world in (2, 3, 5):
        ranks = [
            list(ShardOrder(dataset, 3, window, rank=k, world_size=world)) for k in range(world)
        ]
        assert len({len(each) for each in ranks}) == 1
        assert [each for turn in zip(*ranks, strict=True) for each in turn][:38] == whole
        ranks = [
            list(ShardOrder(dataset, 3, window, rank=k, world_size=world, drop_last=True))
            for k in range(world)
        ]
        assert [each for turn in zip(*ranks, strict=True) for each in turn] == whole[
            : 38 // world * world
        ]


def test_an_order_is_resumed_and_differs_by_epoch() -> None:
    order = ShardOrder(Numbers(50, 50, 50), 1, 60, rank=0, world_size=1)
    first, second = list(order), list(order)
    assert first != second
    order.set_epoch(0)
    assert list(order.iter_from(77)) == first[77:]
    order.set_epoch(1)
    assert list(order) == second
    state = order.state_dict()
    other = ShardOrder(Numbers(50, 50, 50), 9, 60, rank=0, world_size=1)
    other.load_state_dict(state)
    assert list(other) == second
    fresh = ShardOrder(Numbers(50, 50, 50), None, 60)
    assert list(fresh) != list(fresh)


def test_orders_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"seed must be an int, the same one in all 2 ranks"):
        ShardOrder(Numbers(4), world_size=2, rank=0)
    with pytest.raises(ConfigTypeError, match=r"ShardOrder takes reader.Shards.*RandomSampler"):
        ShardOrder([1, 2, 3])  # type: ignore[arg-type]
    for window in (0, "many", 1.5):
        with pytest.raises(ConfigError, match="window"):
            ShardOrder(Numbers(4), window=window)  # type: ignore[arg-type]


def test_orders_are_told_for_maps_and_images(tmp_path: Path) -> None:
    shards = Shards(tar_of(tmp_path / "t.tar", *range(9)))
    for dataset in (shards, shards.map(len), shards.map(len).map(str)):
        assert sorted(ShardOrder(dataset, 0)) == list(range(9))
    assert json.dumps(list(ShardOrder(shards, 0)))


# -- lists that other programs keep --------------------------------------------------------------


def wids_of(folder: Path, *shards: tuple[str, int], **more: Any) -> Path:
    """Write a list of wids."""
    listed = [
        {"url": name, "nsamples": count, "filesize": (folder / name).stat().st_size, **more}
        for name, count in shards
    ]
    path = folder / "train.json"
    path.write_text(json.dumps({"wids_version": 1, "shardlist": listed}))
    return path


def test_a_list_of_wids_names_the_shards(tmp_path: Path) -> None:
    tar_of(tmp_path / "b.tar", *range(3))
    tar_of(tmp_path / "a.tar", *range(2))
    tar_of(tmp_path / "other.tar", *range(9))
    path = wids_of(tmp_path, ("b.tar", 3), ("a.tar", 2))
    shards = Shards(path)
    assert (shards.format, np.diff(shards.starts).tolist()) == ("tar", [3, 2])
    path.rename(tmp_path / "index.json")
    assert np.diff(Shards(tmp_path).starts).tolist() == [3, 2]
    for entry, text in (
        (("a.tar", 5), r"a.tar' has 2 samples, and the list of its set says 5: they are of differ"),
        (
            ("a.tar", 2, 7),
            r"a.tar' has 10,240 bytes, and the list of its set says 7: they are of d",
        ),
    ):
        wids_of(tmp_path, entry[:2], **({"filesize": entry[2]} if entry[2:] else {}))
        with pytest.raises(ConfigError, match=text):
            Shards(tmp_path / "train.json")
    for url in ("https://example.org/a.tar", "../a.tar", "/a.tar"):
        wids_of(tmp_path, ("a.tar", 2), url=url)
        with pytest.raises(ConfigError, match=r"a list of wids|outside of its folder"):
            Shards(tmp_path / "train.json")
    (tmp_path / "train.json").write_text('{"wids_version": 1, "shardlist": [{"url": "a.tar"}]}')
    with pytest.raises(ConfigError, match=r"is damaged: a shard lacks 'nsamples'"):
        Shards(tmp_path / "train.json")
    (tmp_path / "train.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"train.json' is the index of no known format"):
        Shards(tmp_path / "train.json")


def test_counts_and_splits_of_energon_are_heeded(tmp_path: Path) -> None:
    (tmp_path / ".nv-meta").mkdir()
    (tmp_path / "parts").mkdir()
    said = {"parts/a.tar": 2, "parts/b.tar": 3}
    for name, count in said.items():
        tar_of(tmp_path / name, *range(count))
    place = tmp_path / ".nv-meta" / ".info.json"
    place.write_text(json.dumps({"shard_counts": said}))
    assert np.diff(Shards(tmp_path).starts).tolist() == [2, 3]
    (tmp_path / ".nv-meta" / "split.yaml").write_text("split_parts: ...")
    with pytest.raises(ConfigError, match=r"has shards of several splits, and .nv-meta/split.yaml"):
        Shards(tmp_path)
    tar_of(tmp_path / "c.tar", *range(4))
    place.write_text(json.dumps({"shard_counts": {"c.tar": 4}}))
    assert len(Shards(tmp_path / "c.tar")) == 4
    place.write_text(json.dumps({"shard_counts": {"c.tar": 5}}))
    with pytest.raises(ConfigError, match=r"c.tar' has 4 samples, and the list of its set says 5"):
        Shards(f"{tmp_path}/*.tar")
    for name in ("../o/c.tar", "/etc/passwd"):
        place.write_text(json.dumps({"shard_counts": {name: 4}}))
        with pytest.raises(
            ConfigError, match=rf".info.json': it names the file '{name}', which is outside"
        ):
            Shards(tmp_path / "c.tar")
    place.write_text("[]")
    with pytest.raises(ConfigError, match=r".info.json' is damaged: .*energon prepare"):
        Shards(tmp_path / "c.tar")


@pytest.mark.parametrize(
    ("values", "dtype", "wrong"),
    [
        ([128000, 1], np.uint16, "128000"),
        ([1, -1], np.uint8, "-1"),
        ([2.7], np.int32, "2.7"),
        ([float("nan")], np.int64, "nan"),
        ([1e300], np.float32, "1e+300"),
        ([2], np.bool_, "2"),
        ([300], np.int8, "300"),
    ],
)
def test_numbers_that_do_not_fit_are_told(
    values: list[Any], dtype: Any, wrong: str, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"x": [values]}), tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text(json.dumps({"x": values}) + "\n")
    for name in ("t.parquet", "t.jsonl"):
        shards = Shards(tmp_path / name, fields={"x": dtype})
        with pytest.raises(DatasetError, match=re.escape(f"{wrong} does not fit")):
            shards[0]


@pytest.mark.parametrize("value", [None, [], ["a", "b"], {"k": 1}])
def test_what_is_no_text_becomes_none(value: Any, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"x": value, "y": 1.5, "z": ["a"]}) + "\n")
    assert Shards(tmp_path / "t.jsonl", fields={"y": str, "z": str})[0] == {"y": "1.5", "z": "a"}
    with pytest.raises(DatasetError, match=r"field 'x' of sample 0 .*neither text nor one number"):
        Shards(tmp_path / "t.jsonl", fields={"x": str})[0]


def test_a_field_that_cannot_be_decoded_has_a_short_message(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "t.tar", [("a.png", b"\x89" * 1_000_000), ("a.txt", b"x" * 99_999)])
    for fields in ({"png": str}, {"txt": float}):
        with pytest.raises(DatasetError, match=r"cannot be decoded: .*, of b'") as caught:
            Shards(path, fields=fields)[0]
        assert len(str(caught.value)) < 1000 + len(str(path))


def test_numbers_that_fit_are_those(tmp_path: Path) -> None:
    rows: dict[str, Any] = {
        "a": [1, 2],
        "b": [0.1, float("inf")],
        "c": [],
        "d": [1.0, 2.0],
        "e": 2.0,
        "f": True,
    }
    (tmp_path / "t.jsonl").write_text(json.dumps(rows) + "\n")
    kinds: dict[str, Any] = {
        "a": np.uint16,
        "b": np.float32,
        "c": np.int8,
        "d": np.int64,
        "e": int,
        "f": int,
    }
    found = Shards(tmp_path / "t.jsonl", fields=kinds)[0]
    for name, kind in kinds.items():
        assert np.asarray(found[name]).tolist() == np.asarray(rows[name], kind).tolist()
    (tmp_path / "h.jsonl").write_text('{"n": 2.9}\n')
    with pytest.raises(DatasetError, match=r"it is no whole number"):
        Shards(tmp_path / "h.jsonl", fields={"n": int})[0]


@pytest.mark.parametrize("kind", ["tar", "mds", "tfrecord", "jsonl", "parquet", "litdata"])
def test_a_shard_that_changes_while_it_is_read_is_an_error(kind: str, tmp_path: Path) -> None:
    """Bytes of two versions would be a mixture."""
    if kind in ("tfrecord", "parquet"):
        pytest.importorskip({"tfrecord": "google_crc32c", "parquet": "pyarrow"}[kind])
    if kind == "litdata":
        chunk = chunk_of([leaves_of([b"abc"]), leaves_of([b"def"])])
        make_litdata(tmp_path / "s", {"txt": None}, ["str"], [chunk])
    else:
        write_shards([{"txt": "abc"}, {"txt": "def"}], tmp_path / "s", kind)
    shards = Shards(tmp_path / "s")
    first = shards[0]
    (path,) = (each for each in (tmp_path / "s").iterdir() if each.name[:5] in ("shard", "chunk"))
    content = path.read_bytes()
    path.write_bytes(content)
    os.utime(path, ns=(0, 0))
    with pytest.raises(DatasetError, match=rf"{path.name}' has changed since its index was made"):
        shards[1]
    assert Shards(tmp_path / "s")[0] == first


def test_images_of_shards_with_fields_are_refused(tmp_path: Path) -> None:
    """The fields would be left out silently."""
    shards = Shards(tar_of(tmp_path / "t.tar", 1), fields={"cls": int})
    with pytest.raises(ConfigError, match=r"images\(\) decodes the fields itself"):
        shards.images("txt", "cls")


# -- what came from outside -----------------------------------------------------------------------


def test_a_negative_index_has_the_random_numbers_of_its_sample(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    members = []
    for k in range(4):
        file = io.BytesIO()
        image.fromarray(rng.integers(0, 255, (40, 40, 3), np.uint8)).save(file, "PNG")
        members.append((f"{k}.png", file.getvalue()))
    path = make_tar(tmp_path / "t.tar", members)
    crop = Compose([RandomResizedCrop()], size=(16, 16))
    shards = Shards(path, fields={"png": crop})
    with DataLoader(shards, batch_size=4, seed=3) as loader:
        (plain,) = loader
    with DataLoader(shards, batch_size=4, seed=3, sampler=[0, -3, 2, -1]) as loader:
        (negative,) = loader
    assert np.array_equal(plain["png"], negative["png"])


def test_links_in_a_folder_that_was_archived_by_its_dot_are_followed(tmp_path: Path) -> None:
    (folder := tmp_path / "x").mkdir()
    (folder / "a.jpg").write_bytes(b"one")
    (folder / "b.jpg").symlink_to("a.jpg")
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        for name in ("a.jpg", "b.jpg"):
            archive.add(folder / name, f"./{name}")
    assert [sample["jpg"] for sample in Shards(tmp_path / "t.tar").__getitems__([0, 1])] == [
        b"one",
        b"one",
    ]


def test_an_index_without_shards_is_told(tmp_path: Path) -> None:
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"version": 2, "shards": []}))
    for path in (index, tmp_path):
        with pytest.raises(ConfigError, match=r"has no shard"):
            Shards(path)


def test_a_long_name_that_is_longer_than_any_memory_is_told(tmp_path: Path) -> None:
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    head = member.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "t.tar").write_bytes(head + bytes(10_240 - len(head)))
    with pytest.raises(ConfigError, match=r"t.tar' is damaged"):
        Shards(tmp_path / "t.tar")


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"samples": float("inf")}, r"index.json' is damaged: a shard lacks .*infinity"),
        ({"column_names": [["a"]]}, None),
        ({"hashes": ["shake_128"]}, None),
    ],
)
def test_an_index_of_mds_in_another_form_is_told_or_read(
    changed: dict[str, Any], match: str | None, tmp_path: Path
) -> None:
    write_shards([{"a": 1}], tmp_path / "m", "mds")
    place = tmp_path / "m" / "index.json"
    index = json.loads(place.read_text())
    hashes = dict.fromkeys(changed.pop("hashes", []), "")
    index["shards"][0].update(changed)
    index["shards"][0]["raw_data"]["hashes"].update(hashes)
    place.write_text(json.dumps(index))
    if match is None:
        assert list(Shards(tmp_path / "m")[0].values()) == [1]
        return
    with pytest.raises(ConfigError, match=match):
        Shards(tmp_path / "m")[0]


@pytest.mark.parametrize("options", [{"index": 3}, {"format": ["tar"]}, {"format": "zip"}])
def test_arguments_of_another_type_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    tar_of(tmp_path / "t.tar", 1)
    with pytest.raises((ConfigError, ConfigTypeError), match=r"must be|format must be one of"):
        Shards(tmp_path / "t.tar", **options)


def test_places_of_texts_of_another_version_are_told(tmp_path: Path) -> None:
    text = b"a,b\n1,x\n2,y\n"
    (tmp_path / "s.csv").write_bytes(text)
    meta = np.array([2, 4, 8, 12], np.uint32).tobytes()
    (tmp_path / "s.csv.meta").write_bytes(meta)
    shard = {
        "format": "csv",
        "version": 2,
        "samples": 2,
        "compression": None,
        "column_names": ["a", "b"],
        "column_encodings": ["int", "str"],
        "newline": "\n",
        "separator": ",",
        "raw_data": {"basename": "s.csv", "bytes": len(text)},
        "raw_meta": {"basename": "s.csv.meta", "bytes": len(meta)},
    }
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"version": 2, "shards": [shard]}))
    assert Shards(tmp_path)[1] == {"a": 2, "b": "y"}
    shard["raw_meta"] = {"basename": "s.csv.meta", "bytes": len(meta) + 4}
    index.write_text(json.dumps({"version": 2, "shards": [shard]}))
    with pytest.raises(DatasetError, match=r"s.csv.meta' has 16 bytes, and index.json says 20"):
        Shards(tmp_path)[0]
