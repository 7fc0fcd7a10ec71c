"""Documents of files: Megatron's, shards, folders and patterns, kept lengths, damage by name."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import (
    ConfigError,
    DataLoader,
    DatasetError,
    Documents,
    ReaderError,
    Shards,
    write_shards,
)
from reader.stores import kept_index
from reader.stores.kept_arrays import COUNT, write_arrays
from reader.tokens.megatron_index import TYPES
from tests.token_files import END, gathered, lists_of, megatron, written

LISTS = [[5, 6, 7], [8], [], [9, 10]]
DTYPES = [dtype.name for dtype in TYPES.values()]


# ---- Megatron's files ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("named", ["a.bin", "a.idx", "a", "a.*", ""])
def test_sequences_of_megatrons_files_are_documents(tmp_path: Path, dtype: str, named: str) -> None:
    path = megatron(tmp_path / "a", LISTS, dtype)
    documents = Documents(tmp_path / named)
    assert lists_of(documents) == LISTS
    assert documents.fields == {"tokens": np.dtype(dtype)}
    assert documents.origin(3)[:] == (str(path), 4 * np.dtype(dtype).itemsize, "", 3)
    out = gathered(documents, [(3, 1, 1), (0, 0, 3)], {"tokens": "int64"})
    assert out["tokens"].tolist() == [10, 99, 5, 6, 7, 99]
    assert lists_of(pickle.loads(pickle.dumps(documents))) == LISTS


def test_modes_of_an_index_are_passed_over(tmp_path: Path) -> None:
    assert lists_of(Documents(megatron(tmp_path / "a", LISTS, modes=True))) == LISTS


def test_a_flat_file_and_megatrons_are_one(tmp_path: Path) -> None:
    paths = [megatron(tmp_path / "a", [[1], [2, 3]], "uint16"), tmp_path / "b.bin"]
    written(paths[1], [[4, 5]])
    documents = Documents(paths, document_end=END)
    assert lists_of(documents) == [[1], [2, 3], [4, 5, END]]
    assert lists_of(Documents(tmp_path, document_end=END)) == lists_of(documents)
    with pytest.raises(ConfigError, match=r"b\.bin' is a flat file of tokens"):
        Documents(tmp_path)


def test_each_flipped_byte_of_an_index_is_told_or_changes_no_length(tmp_path: Path) -> None:
    path = megatron(tmp_path / "a", LISTS)
    index = path.with_suffix(".idx")
    whole = index.read_bytes()
    told = 0
    for place in range(len(whole)):
        for mask in (0x01, 0x80, 0xFF, 0x04):
            damaged = bytearray(whole)
            damaged[place] ^= mask
            index.write_bytes(damaged)
            try:
                documents = Documents(index)
            except ConfigError as error:
                assert "a.idx'" in str(error)  # noqa: PT017
                told += 1
            else:
                assert [len(each) for each in lists_of(documents)] == [3, 1, 0, 2]
    assert told > 3 * len(whole)


def test_an_index_that_is_cut_or_longer_is_told(tmp_path: Path) -> None:
    path = megatron(tmp_path / "a", LISTS)
    index = path.with_suffix(".idx")
    whole = index.read_bytes()
    for size in (*range(len(whole)), len(whole) + 1):
        index.write_bytes((whole + b"\0")[:size])
        with pytest.raises(ConfigError, match=r"a\.idx'"):
            Documents(index)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: b"XX" + index[2:], r"is no index of Megatron's: it begins with b'XXIDIDX"),
        (lambda index: index[:9] + b"\2" + index[10:], "version 2, and 1 is known"),
        (lambda index: index[:17] + b"\7" + index[18:], "type 7, which is float32, and no type"),
        (lambda index: index[:17] + b"\x63" + index[18:], "type 99, which is not known"),
        (lambda index: index[:17] + b"\5" + index[18:], "sequence 1 begins at 12, and those bef"),
        (lambda index: index[:34] + b"\xff" * 4 + index[38:], "sequence 0 has -1 tokens"),
        (lambda index: index[:34] + b"\4" + index[35:], "sequence 1 begins at 12, .* end at 16"),
        (lambda index: index[:18] + b"\xff" * 8 + index[26:], "it names 18,446,744,073,709,551"),
        (lambda index: index[:-8] + b"\7" + index[-7:], "its documents are to end at .* to 4"),
    ],
)
def test_what_is_wrong_with_an_index_is_said(tmp_path: Path, change: Any, message: str) -> None:
    index = megatron(tmp_path / "a", LISTS).with_suffix(".idx")
    index.write_bytes(change(index.read_bytes()))
    with pytest.raises(ConfigError, match=message):
        Documents(index)


def test_tokens_that_do_not_fit_the_index_are_told(tmp_path: Path) -> None:
    path = megatron(tmp_path / "a", LISTS)
    whole = path.read_bytes()
    for content in (whole[:-4], whole + b"\0" * 4, b""):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=rf"take 24 bytes, and '.*a\.bin' has {len(content)}"):
            Documents(path)
    path.unlink()
    with pytest.raises(ConfigError, match=r"is the index of '.*a\.bin', which cannot be read"):
        Documents(tmp_path / "a.idx")


def test_an_index_that_is_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    path = megatron(tmp_path / "a", LISTS)
    path.with_suffix(".idx").unlink()
    os.mkfifo(path.with_suffix(".idx"))
    for named in (path, path.with_suffix(".idx")):
        with pytest.raises(ConfigError, match=r"a\.idx'.* cannot be read.*: .*a pipe"):
            Documents(named)
    # a file of another kind that has the name is passed over
    path.with_suffix(".idx").unlink()
    path.with_suffix(".idx").write_text("0 1 2")
    documents = Documents(path, document_end=8, dtype="int32")
    assert lists_of(documents) == [[5, 6, 7, 8], [9, 10]]


def test_a_mark_for_megatrons_files_is_refused(tmp_path: Path) -> None:
    path = megatron(tmp_path / "a", LISTS)
    with pytest.raises(ConfigError, match=r"document_end is for flat files .* leave it out"):
        Documents(path, document_end=8)
    # but a file that is said to be flat is
    documents = Documents(path, document_end=8, dtype="int32", header=0)
    assert lists_of(documents) == [[5, 6, 7, 8], [9, 10]]


# ---- shards ----------------------------------------------------------------------------------


def rows() -> list[dict[str, Any]]:
    return [
        {"input_ids": [k] * (k % 4 + 1), "mask": [k % 2] * (k % 4 + 1), "text": "x"}
        for k in range(50)
    ]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
def test_lists_of_tokens_in_shards_are_documents(tmp_path: Path, kind: str) -> None:
    for number in range(2):
        path = tmp_path / f"part-{number}.{kind}"
        part = rows()[25 * number : 25 * number + 25]
        if kind == "parquet":
            pq = pytest.importorskip("pyarrow.parquet")
            pa = pytest.importorskip("pyarrow")
            pq.write_table(pa.Table.from_pylist(part), path, row_group_size=7)
        else:
            text = "".join(json.dumps(each) + "\n" for each in part).encode()
            path.write_bytes(gzip.compress(text) if kind.endswith("gz") else text)
    for source in (tmp_path, tmp_path / "part-*", Shards(tmp_path)):
        documents = Documents(source)
        assert documents.fields == {"tokens": np.dtype("int64"), "mask": np.dtype("int64")}
        assert lists_of(documents) == [each["input_ids"] for each in rows()]
        out = gathered(documents, [(49, 0, 2), (3, 1, 3)], {"mask": "int64", "tokens": "int64"})
        assert out["tokens"].tolist() == [49, 49, 99, 3, 3, 3, 99]
        assert out["mask"].tolist() == [1, 1, 99, 1, 1, 1, 99]
    assert documents.origin(26).position == 1
    assert documents.origin(26).path == str(tmp_path / f"part-1.{kind}")
    narrow = Documents(tmp_path, tokens="mask", fields=[], as_dtype="uint8")
    assert narrow.fields == {"tokens": np.dtype("uint8")}
    with DataLoader(narrow, batch_size=1, num_workers=2, collate_fn=list) as loader:
        found = [batch[0]["tokens"].tolist() for batch in loader]
    assert found == [each["mask"] for each in rows()]


@pytest.mark.parametrize("form", ["mds", "tfrecord", "tar"])
def test_shards_of_other_formats_have_documents(tmp_path: Path, form: str) -> None:
    wanted = [[k] * (k % 3 + 1) for k in range(20)]
    samples: list[Any] = [{"tokens": np.array(each, np.uint16)} for each in wanted]
    if form == "tfrecord":
        samples = [{"tokens": each} for each in wanted]
    if form == "tar":
        samples = [{"json": {"a": 1}, "npy": each["tokens"].tobytes()} for each in samples]
    write_shards(samples, tmp_path / "shards", form, shard_size=800)
    if form == "tar":
        shards = Shards(tmp_path / "shards", fields={"npy": "uint16"})
        documents = Documents(shards, tokens="npy")
    else:
        documents = Documents(tmp_path / "shards")
    assert lists_of(documents) == wanted
    assert documents.fields["tokens"] == ("int64" if form == "tfrecord" else "uint16")


def test_lengths_of_shards_are_kept_and_made_anew_for_files_that_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"tokens": [1, 2]}\n{"tokens": [3]}\n')
    assert Documents(path, index=tmp_path / "kept").lengths.tolist() == [2, 1]
    assert len(list((tmp_path / "kept").iterdir())) == 2  # the shards' index, and the lengths
    asked: list[int] = []
    fetch = Shards._read
    monkeypatch.setattr(
        Shards,
        "_read",
        lambda self, indices: asked.extend(indices) or fetch(self, indices),
    )
    assert Documents(path, index=tmp_path / "kept").lengths.tolist() == [2, 1]
    assert set(asked) == {0}  # the first, for its fields
    path.write_text('{"tokens": [1, 2]}\n{"tokens": [3, 4, 5]}\n')
    assert Documents(path, index=tmp_path / "kept").lengths.tolist() == [2, 3]


def test_a_line_without_the_tokens_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"tokens": [1]}\n{"ids": [3]}\n')
    with pytest.raises(ReaderError, match=r"a\.jsonl.* lacks the field 'tokens': it has ids"):
        Documents(path)
    path.write_text('{"text": "abc"}\n')
    with pytest.raises(ConfigError, match="document 0 has the fields 'text', and none is 'tokens'"):
        Documents(path)
    with pytest.raises(ConfigError, match=r"'tokens' of document 0 is text, .*reader tokens"):
        Documents(path, tokens="text")
    path.write_text('{"tokens": [1]}\n{"tokens": [3.5]}\n')
    with pytest.raises(ReaderError, match=r"a\.jsonl.*3\.5 does not fit int64"):
        Documents(path)


@pytest.mark.parametrize("dtype", [None, "uint16"])
def test_a_file_that_is_named_twice_is_refused(tmp_path: Path, dtype: Any) -> None:
    path = written(tmp_path / "a.bin", [[1, 2]])
    other = tmp_path / "b.bin"
    other.symlink_to(path)
    for paths in ([path, path], [path, other], [tmp_path / "*.bin", path]):
        with pytest.raises(ConfigError, match=r"names '.*a\.bin' twice.*would come twice"):
            Documents(paths, document_end=END, dtype=dtype)


def test_tokens_and_shards_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"tokens": [1]}\n')
    paths = [megatron(tmp_path / "a", LISTS), tmp_path / "b.jsonl"]
    with pytest.raises(ConfigError, match=r"a\.bin' is a file of tokens, and '.*b\.jsonl' is read"):
        Documents(paths)
    assert lists_of(Documents(tmp_path)) == LISTS  # the texts beside tokens are left out
    with pytest.raises(ConfigError, match="dtype= is for files of tokens"):
        Documents([[1]], dtype="uint16")


# ---- kept lengths ----------------------------------------------------------------------------


def test_a_flat_file_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reader.tokens import flat_documents

    path = written(tmp_path / "a.bin", [[1, 2], [3]])
    found = Documents(path, document_end=END).lengths.tolist()
    (index,) = tmp_path.glob(".reader-*.index")
    searched: list[Any] = []
    search = flat_documents._lengths
    monkeypatch.setattr(
        flat_documents, "_lengths", lambda *arguments: searched.append(1) or search(*arguments)
    )
    assert Documents(path, document_end=END).lengths.tolist() == found == [3, 2]
    assert not searched
    assert Documents(path, document_begin=1).lengths.tolist() == [5]  # another question
    assert len(searched) == 1
    for content in (b"", b"RDSHARDS" + bytes(100), index.read_bytes()[:-1]):
        index.write_bytes(content)
        assert Documents(path, document_end=END).lengths.tolist() == found
    written(path, [[1, 2, 3]])
    assert Documents(path, document_end=END).lengths.tolist() == [4]


@pytest.mark.parametrize("lengths", [[3], [3, 3], [5, -3, 3], [2**40, 2**40], []])
def test_kept_lengths_that_do_not_fit_the_file_are_found_anew(
    tmp_path: Path, lengths: list[int]
) -> None:
    path = written(tmp_path / "a.bin", [[1, 2], [3]])
    assert Documents(path, document_end=END).lengths.tolist() == [3, 2]
    (place,) = tmp_path.glob(".reader-*.index")
    content = place.read_bytes()
    kind = json.loads(content[content.index(b'{"format"') : content.index(b"]}") + 2])["format"]
    stamp = ("a.bin", path.stat().st_size, path.stat().st_mtime_ns)
    arrays = {"lengths": np.array(lengths, np.int64), "marks": np.ones(1, np.uint8)}
    with place.open("w+b") as file:
        write_arrays(file, kind, [stamp], [{COUNT: np.array([len(lengths)]), **arrays}])
    assert Documents(path, document_end=END).lengths.tolist() == [3, 2]


def test_lengths_are_kept_in_a_folder_that_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.bin", [[1, 2], [3]])
    Documents(path, document_end=END, index=tmp_path / "kept")
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert not list(tmp_path.glob(".reader*"))


def test_a_folder_that_cannot_be_written_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.bin", [[1, 2], [3]])
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"index='.*kept' cannot be written to"):
        Documents(path, document_end=END, index=tmp_path / "file" / "kept")

    def refuse(_: str) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(kept_index, "replacing", refuse)
    assert Documents(path, document_end=END).lengths.tolist() == [3, 2]
    assert not list(tmp_path.glob(".reader*"))


def test_a_file_that_shrinks_is_told_by_the_next_process(tmp_path: Path) -> None:
    path = megatron(tmp_path / "a", LISTS)
    sent = pickle.dumps(Documents(path))
    megatron(tmp_path / "a", LISTS[:2])
    with pytest.raises(DatasetError, match=r"a\.bin' has 16 bytes, and had 24"):
        pickle.loads(sent)
