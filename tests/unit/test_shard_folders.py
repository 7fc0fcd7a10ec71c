"""Folders whose files are samples, and files of libraries that are not installed."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, DataLoader, DatasetError, ShardOrder, Shards
from tests.unit.test_shard_formats import all_of, told_or_read


def make_folder(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def make_index(folder: Path, *rows: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_the_files_of_a_folder_are_samples_by_their_paths(tmp_path: Path) -> None:
    names = ["b/2.jpg", "b.txt", "a/x/1.png", "a/é\n.bin", "z"]
    make_folder(tmp_path, *names, ".hidden", ".git/config", "a/.x/y")
    shards = Shards(tmp_path, format="files")
    expected = sorted(names, key=str.encode)
    assert all_of(shards) == [{"file": name, "bytes": name.encode()} for name in expected]
    assert (len(shards), shards.format, len(shards.starts)) == (5, "files", 2)
    assert shards.origin(1)[2:] == (expected[1], 1)
    assert all_of(pickle.loads(pickle.dumps(shards))) == all_of(shards)
    assert Shards(tmp_path, format="files", fields={"file": len})[4] == {"file": 1}
    assert sorted(ShardOrder(shards, 0)) == list(range(5))
    with DataLoader(shards, batch_size=2, num_workers=2, collate_fn=list) as loader:
        assert [each["file"] for batch in loader for each in batch] == expected
    assert not list(tmp_path.glob(".reader*"))
    make_folder(tmp_path, "zz")
    assert len(Shards(tmp_path, format="files")) == 6


def test_names_that_are_no_text_are_kept(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff"
    with open(name, "wb") as file:
        file.write(b"1")
    assert all_of(Shards(tmp_path, format="files")) == [{"file": "\udcff", "bytes": b"1"}]


def test_an_index_names_the_files_and_has_fields(tmp_path: Path) -> None:
    make_folder(tmp_path, "a/1.jpg", "2.jpg", "other")
    rows = [{"file": "a/1.jpg", "label": 7}, {"label": 8, "file": "2.jpg", "box": [1]}]
    shards = Shards(make_index(tmp_path, *rows, rows[0]), format="files")
    one = {"file": "a/1.jpg", "label": 7, "bytes": b"a/1.jpg"}
    assert all_of(shards) == [one, {**rows[1], "bytes": b"2.jpg"}, one]
    chosen = Shards(tmp_path, format="files", fields={"bytes": len, "label": float})
    assert chosen[1] == {"bytes": 5, "label": 8.0}
    begin = (tmp_path / "index.jsonl").read_bytes().index(b"\n") + 1
    assert shards.origin(1)[1:] == (begin, "2.jpg", 1)
    with pytest.raises(
        DatasetError, match=r"\(a/1.jpg\) .* lacks the field 'no': it has file, lab"
    ):
        Shards(tmp_path, format="files", fields={"no": int})[0]
    assert Shards(tmp_path).format == "jsonl"  # what is found without a format stays so
    both = Shards([tmp_path, make_folder(tmp_path / "b", "x")], format="files")
    assert [each["file"] for each in all_of(both)] == ["a/1.jpg", "2.jpg", "a/1.jpg", "x"]
    make_index(tmp_path, rows[0])
    with pytest.raises(DatasetError, match=r"index.jsonl' has changed since its index was made"):
        pickle.loads(pickle.dumps(shards))[0]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (7, r"line 0 of '.*index.jsonl' must be an object with a \"file\", such as .*, got 7"),
        ({"label": 1}, r"must be an object with a \"file\""),
        ({"file": 1}, r"must be an object with a \"file\""),
        ({"file": "x", "bytes": 1}, r"and without \"bytes\", which is what the file holds, got"),
        ({"file": "../x"}, r"file 0 of .* names the file '../x', which is outside of its folder"),
        ({"file": "/etc/passwd"}, r"names the file '/etc/passwd', which is outside of its folder"),
        ({"file": "no"}, r"file 0 of '.*index.jsonl' cannot be read: .*No such file.*Put it there"),
        ({"file": "a\0b"}, r"cannot be read: .*null"),
        ({"file": ""}, r"cannot be read: "),
        ({"file": "pipe"}, r"cannot be read: .*a pipe, and no regular file"),
    ],
)
def test_lines_that_name_no_file_of_the_folder_are_told(
    row: Any, text: str, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    make_index(tmp_path, row)
    with pytest.raises(DatasetError, match=text):
        Shards(tmp_path, format="files")[0]


def test_folders_that_cannot_be_are_told(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match=r"the link '.*loop' leads back to a folder that it lies"):
        Shards(tmp_path, format="files")
    (tmp_path / "loop").unlink()
    with pytest.raises(ConfigError, match=r"the shards have no sample"):
        Shards(tmp_path, format="files")
    make_folder(tmp_path, "x")
    with pytest.raises(ConfigError, match=r"x' is a file of a set that its folder describes: pass"):
        Shards(tmp_path / "x", format="files")
    shards = Shards(tmp_path, format="files")
    (tmp_path / "x").unlink()
    with pytest.raises(DatasetError, match=r"file 0 of .* cannot be read: .*or make the dataset"):
        shards[0]
    (tmp_path / "index.jsonl").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"index.jsonl' cannot be read: "):
        Shards(tmp_path, format="files")


def test_a_damaged_index_of_files_is_told_or_has_files(tmp_path: Path) -> None:
    make_folder(tmp_path, "1", "2")
    path = make_index(tmp_path, {"file": "1", "n": 5}, {"file": "2", "n": 6}) / "index.jsonl"
    content = path.read_bytes()
    damages = [content[:at] + bytes([content[at] ^ 2]) + content[at + 1 :] for at in range(44)]
    for damaged in [*damages, *(content[:length] for length in range(len(content)))]:
        path.write_bytes(damaged)
        found = told_or_read(tmp_path, None, "index.jsonl", format="files")
        assert all(each["bytes"] == each["file"].encode() for each in found or ())


def test_images_of_a_folder_are_written_into_their_rows(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pytest.importorskip("simplejpeg")
    pixels = np.random.default_rng(0).integers(0, 255, (3, 4, 5, 3), dtype=np.uint8)
    for k, each in enumerate(pixels):
        file = io.BytesIO()
        pillow.fromarray(each).save(file, "PNG")
        (tmp_path / f"{k}.png").write_bytes(file.getvalue())
    alone = Shards(tmp_path, format="files").images("bytes")
    out = np.zeros((4, 5, 3), np.uint8)
    assert alone.__getitem__(1, out=out) is out
    assert (out == pixels[1]).all()
    make_index(tmp_path, *({"file": f"{k}.png", "label": k * 2} for k in range(3)))
    images = Shards(tmp_path, format="files").images("bytes", "label", size=(4, 5))
    for k, (image, label) in enumerate(all_of(images)):
        assert (image == pixels[k]).all()
        assert label == 2 * k


def test_a_library_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "array_record", None)
    begin = bytes.fromhex("83af70d10d884a3f000000000000000040")
    (tmp_path / "a-00000-of-00001").write_bytes(begin + bytes(100))
    for path in (tmp_path, tmp_path / "a-00000-of-00001"):
        with pytest.raises(ConfigError, match=r"is read by array_record, .*pip install array_rec"):
            Shards(path)
    (tmp_path / "a.array_record").touch()
    with pytest.raises(ConfigError, match=r"a.array_record' is read by array_record, which cannot"):
        Shards(tmp_path / "a.array_record")
