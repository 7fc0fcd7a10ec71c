"""The samples of each format of shards, with its index or without, whole and damaged."""

from __future__ import annotations

import contextlib
import gzip
import inspect
import io
import json
import os
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reader import ConfigError, DatasetError, ShardOrder, Shards, write_shards
from reader.shards.formats.compression import decompressed
from reader.shards.formats.mds_encodings import decoder_of
from tests.shard_files import crc32c, example, make_mds, make_tar, make_tfrecord


def all_of(dataset: Any) -> list[Any]:
    return [dataset[index] for index in range(len(dataset))]


def told_or_read(path: Path, index: Path | None, name: str, **options: Any) -> list[Any] | None:
    """Return all samples of damaged shards; None: an error told of it, and named the file."""
    try:
        return all_of(Shards(path, index=index, **options))
    except (ConfigError, DatasetError) as error:
        told = str(error)
    assert name in told
    return None


# -- tar ------------------------------------------------------------------------------------------


def test_members_of_one_name_up_to_its_first_dot_are_a_sample(tmp_path: Path) -> None:
    members = [
        ("a.b/000.jpg", b"1"),
        ("a.b/000.seg.PNG", b"2"),
        ("001.txt", b"5"),
        ("a.b/000.cls", b"3"),  # not beside the others
        ("__meta__/x.json", b"?"),
        ("noext", b"?"),
        (".hidden", b"?"),
    ]
    shards = Shards(make_tar(tmp_path / "t.tar", members))
    assert all_of(shards) == [
        {"__key__": "a.b/000", "jpg": b"1", "seg.png": b"2", "cls": b"3"},
        {"__key__": "001", "txt": b"5"},
    ]
    assert shards[-1] == shards[1]
    origin = shards.origin(1)
    assert (origin.path, origin.key, origin.position) == (str(tmp_path / "t.tar"), "001", 0 + 1)
    assert (tmp_path / "t.tar").read_bytes()[origin.offset : origin.offset + 1] == b"5"


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_a_header_is_read(form: int, tmp_path: Path) -> None:
    long = "/".join(["folder"] * (12 if form == tarfile.USTAR_FORMAT else 60))
    names = [f"{long}/{k}é" for k in range(5)]
    members = [(f"{name}.{kind}", name.encode()) for name in names for kind in ("x", "y")]
    found = all_of(Shards(make_tar(tmp_path / "t.tar", members, form)))
    assert found == [{"__key__": name, "x": name.encode(), "y": name.encode()} for name in names]


def test_headers_that_say_all_are_read_as_tarfile_reads_them(tmp_path: Path) -> None:
    """A file's usual header is read without `tarfile`, and any other one by it."""
    members: list[tuple[str, dict[str, Any]]] = [
        ("a.txt", {}),
        ("b" * 96 + ".txt", {}),  # as long as a name may be
        ("c.txt", {"type": tarfile.AREGTYPE}),
        ("d.txt", {"type": tarfile.CONTTYPE}),
        ("e.txt", {"mtime": 0.5}),  # in a header of its own
        ("f.txt", {"uid": 1 << 40}),  # likewise, or in base 256
        ("g.d/h.txt", {}),
        ("g.d", {"type": tarfile.DIRTYPE}),
        ("i" * 300 + ".txt", {}),
        ("j.txt", {}),
        ("k", {}),  # of no sample
        ("l.txt", {}),
    ]
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        for headers in (None, {"comment": "of all that follow"}):
            path = tmp_path / "t.tar"
            with tarfile.open(path, "w", format=form, pax_headers=headers) as archive:
                for number, (name, fields) in enumerate(members):
                    if form == tarfile.USTAR_FORMAT and (len(name) > 100 or "uid" in fields):
                        continue
                    member = tarfile.TarInfo(name)
                    member.size = 0 if fields.get("type") == tarfile.DIRTYPE else number * 300
                    for key, value in fields.items():
                        setattr(member, key, value)
                    archive.addfile(member, io.BytesIO(bytes([number]) * member.size))
            with tarfile.open(path) as archive:
                expected = {
                    each.name.partition(".txt")[0]: archive.extractfile(each).read()  # type: ignore[union-attr]
                    for each in archive
                    if each.isreg() and each.name != "k"
                }
            found = {each["__key__"]: each["txt"] for each in all_of(Shards(path))}
            assert found == expected
            assert len(found) >= 8


def test_links_to_members_are_followed_and_others_refused(tmp_path: Path) -> None:
    def linked(target: str, kind: bytes) -> Path:
        path = make_tar(tmp_path / "t.tar", [("d/a.txt", b"text")])
        with tarfile.open(path, "a") as archive:
            member = tarfile.TarInfo("d/b.txt")
            member.type, member.linkname = kind, target
            archive.addfile(member)
        return path

    for target, kind in (("d/a.txt", tarfile.LNKTYPE), ("../d/./a.txt", tarfile.SYMTYPE)):
        assert Shards(linked(target, kind))[1] == {"__key__": "d/b", "txt": b"text"}
    for target in ("/etc/passwd", "c.txt", "/d/a.txt"):
        with pytest.raises(ConfigError, match=rf"'d/b.txt', a link to '{target}', which is no"):
            Shards(linked(target, tarfile.SYMTYPE))


def test_sparse_members_and_two_of_one_name_are_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a.bin")
    member.type, member.size = tarfile.GNUTYPE_SPARSE, 0
    (tmp_path / "t.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(ConfigError, match=r"has the sparse member 'a.bin': write it anew"):
        Shards(tmp_path / "t.tar")
    path = make_tar(tmp_path / "u.tar", [("a.txt", b"1"), ("a.TXT", b"2")])
    with pytest.raises(ConfigError, match=r"has two members 'a.TXT' of one sample"):
        Shards(path)


def test_a_damaged_tar_is_refused_or_has_the_same_samples(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "t.tar", [(f"{k}.txt", bytes([k]) * 700) for k in range(4)])
    content = path.read_bytes()
    form = [(sample["__key__"], len(sample["txt"])) for sample in all_of(Shards(path))]
    headers = [at for at in range(len(content)) if at % 1536 < 512 and at < 4 * 1536]
    for at in [*range(0, len(content), 97), *headers[::5]]:
        damaged = bytearray(content)
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        found = told_or_read(path, tmp_path / "kept", "t.tar")
        # the sum of a header covers all of it, and nothing covers the data
        if found is not None:
            assert [(each["__key__"], len(each["txt"])) for each in found] == form
    for length in range(0, 4 * 1536, 61):
        path.write_bytes(content[:length])
        with pytest.raises(
            ConfigError, match=r"t.tar.*(cut off|damaged|none of the formats|no sample)"
        ):
            Shards(path)
    for length in (4 * 1536 + 100, 4 * 1536 + 512):
        path.write_bytes(content[:length])
        assert len(Shards(path)) == 4
    for count in (1, 3, 4):  # as some programs leave a whole file, and as one may be cut
        path.write_bytes(content[: count * 1536])
        with pytest.warns(UserWarning, match=r"t.tar' ends behind a member, .* it may be cut off"):
            assert len(Shards(path)) == count


def make_listed_tar(path: Path, count: int) -> Path:
    """Write a tar file of texts, and the list that DALI's wds2idx writes of it."""
    members = [(f"d/{k}.{kind}", b"%d" % k * 300) for k in range(count) for kind in ("txt", "cls")]
    make_tar(path, members)
    with tarfile.open(path) as archive:
        found = [(each.offset_data, each.size, each.name) for each in archive]
    words = [f"{name.rpartition('.')[2]} {place} {nbytes} {name}" for place, nbytes, name in found]
    lines = [" ".join(words[k : k + 2]) for k in range(0, len(words), 2)]
    path.with_suffix(".idx").write_text("\n".join([f"v1.2 {len(lines)}", *lines]) + "\n")
    return path


def test_the_list_of_dali_saves_reading_headers(tmp_path: Path) -> None:
    path = make_listed_tar(tmp_path / "t.tar", 100)
    listed = path.with_suffix(".idx")
    expected = all_of(Shards(path, index=tmp_path / "listed"))
    assert [each["txt"] for each in expected] == [b"%d" % k * 300 for k in range(100)]
    content = bytearray(path.read_bytes())
    content[1024 : 1024 + 8] = b"????????"  # the header of a member that is not compared
    path.write_bytes(content)
    os.utime(listed)
    assert all_of(Shards(path, index=tmp_path / "again")) == expected
    listed.unlink()
    with pytest.raises(ConfigError, match=r"t.tar' is damaged"):
        Shards(path, index=tmp_path / "headers")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("v1.2", "v1.1"),
        lambda text: text.replace("v1.2 9", "v1.2 8"),
        lambda text: text.replace(" 512 ", " 1536 "),
        lambda text: text.replace(" 300 ", " -300 "),
        lambda text: text.replace(" 300 ", " 299 "),
        lambda text: text.replace(" 300 ", " 1e3 "),
        lambda text: text.replace("d/4.txt", "d/5.txt"),
        lambda text: text.replace("d/4.txt", "d/4 .txt"),
        lambda text: text.replace("d/4.txt", "d/4\x85.txt"),
        lambda text: text.replace(" d/8.cls", ""),
        lambda text: text.rpartition("\ntxt")[0].replace("v1.2 9", "v1.2 8"),
        lambda text: text + "txt 20000 300 d/9.txt cls 21024 300 d/9.cls\n",
        lambda text: text * 100,
        lambda text: "",
        lambda text: "\n",
    ],
)
def test_a_list_that_is_not_the_files_is_left_alone(change: Any, tmp_path: Path) -> None:
    path = make_listed_tar(tmp_path / "t.tar", 9)
    expected = all_of(Shards(path, index=tmp_path / "listed"))
    listed = path.with_suffix(".idx")
    text = listed.read_text()
    assert change(text) != text
    listed.write_text(change(text))
    assert all_of(Shards(path, index=tmp_path / "changed")) == expected


def test_a_list_that_is_older_than_the_file_is_left_alone(tmp_path: Path) -> None:
    path = make_listed_tar(tmp_path / "t.tar", 200)
    listed = path.with_suffix(".idx")
    text = listed.read_text()
    make_listed_tar(path, 200)
    listed.write_text(text.replace("d/3.txt", "d/x.txt"))  # not one that is compared
    then = path.stat().st_mtime_ns - 1
    os.utime(listed, ns=(then, then))
    assert Shards(path, index=tmp_path / "index")[3]["txt"] == b"3" * 300


def test_long_names_and_links_are_no_list_s(tmp_path: Path) -> None:
    name = "/".join(["folder"] * 60) + "/a.txt"
    path = make_tar(tmp_path / "t.tar", [(name, b"1"), ("b.txt", b"2")])
    with tarfile.open(path) as archive:
        words = [f"txt {each.offset_data} {each.size} {each.name}" for each in archive]
    path.with_suffix(".idx").write_text("\n".join(["v1.2 2", *words]))
    assert [each["__key__"] for each in all_of(Shards(path))] == [name[:-4], "b"]


def test_a_second_archive_behind_the_end_is_told(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "t.tar", [("a.txt", b"1")])
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(ConfigError, match="has another archive behind its end, at 10,240, whose"):
        Shards(path)


def test_a_compressed_tar_is_one(tmp_path: Path) -> None:
    content = make_tar(tmp_path / "t.tar", [("a.txt", b"1"), ("b.txt", b"2")]).read_bytes()
    for name in ("u.tar.gz", "u.tgz"):
        (tmp_path / name).write_bytes(gzip.compress(content))
        assert [each["txt"] for each in all_of(Shards(tmp_path / name))] == [b"1", b"2"]
    (tmp_path / "u.tgz").write_bytes(gzip.compress(content)[:-20])
    with pytest.raises(ConfigError, match=r"u.tgz' cannot be decompressed by gz"):
        Shards(tmp_path / "u.tgz")


def test_a_shard_that_snappy_has_compressed_is_one(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "t.jsonl.snappy"
    content = pa.compress(b'{"a": 1}\n' * 1000, codec="snappy", asbytes=True)
    path.write_bytes(content)
    assert all_of(Shards(path)) == [{"a": 1}] * 1000
    for damaged in (content[:-1], b"\xff\xff\xff\xff\x0f" + content[2:], b"\xff" * 9, b""):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"t.jsonl.snappy' cannot be decompressed by snappy"):
            Shards(path)


@pytest.mark.parametrize(("how", "codec"), [("br", "brotli"), ("snappy", "snappy")])
def test_a_shard_of_fewer_bytes_than_its_index_says_is_told(how: str, codec: str) -> None:
    pa = pytest.importorskip("pyarrow")
    content = pa.compress(b"0123456789", codec=codec, asbytes=True)
    assert decompressed(content, how, 10, "t.mds") == b"0123456789"
    for nbytes in (11, 1 << 31):
        with pytest.raises(DatasetError, match=rf"has 10 bytes .*, and is said to have {nbytes:,}"):
            decompressed(content, how, nbytes, "t.mds")
    with pytest.raises(DatasetError, match=r"'t.mds' has .* bytes decompressed"):
        decompressed(content, how, 9, "t.mds")


def test_damage_of_what_is_compressed_leaves_no_memory(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "t.jsonl.zst"
    content = bytearray(pa.compress(b'{"a": 1}\n' * 100_000, codec="zstd", asbytes=True))
    path.write_bytes(content)
    assert len(Shards(path)) == 100_000
    content[len(content) // 2] ^= 0x41
    path.write_bytes(content)
    before = mapped_nbytes()
    for _ in range(8):
        with pytest.raises(ConfigError, match=r"t.jsonl.zst' cannot be decompressed by zst: "):
            Shards(path)
    assert mapped_nbytes() - before < 1 << 30


def mapped_nbytes() -> int:
    """Return the bytes of this process's address space."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


# -- MDS ------------------------------------------------------------------------------------------

COLUMNS = {"n": ("int", 8), "s": ("str", None), "x": ("ndarray:float32:2,3", 24)}


def mds_sample(number: int) -> dict[str, bytes]:
    return {
        "n": np.int64(number).tobytes(),
        "s": ("é" * (number % 4)).encode(),
        "x": np.full(6, number, np.float32).tobytes(),
    }


def make_numbers(folder: Path, *counts: int) -> Path:
    numbers = iter(range(sum(counts)))
    return make_mds(
        folder, COLUMNS, [[mds_sample(next(numbers)) for _ in range(k)] for k in counts]
    )


def test_samples_of_mds_have_their_columns_decoded(tmp_path: Path) -> None:
    shards = Shards(make_numbers(tmp_path, 3, 0, 5))
    assert (len(shards), shards.format) == (8, "mds")
    for number, sample in enumerate(all_of(shards)):
        assert (sample["n"], sample["s"]) == (number, "é" * (number % 4))
        assert sample["x"].shape == (2, 3)
        assert (sample["x"] == number).all()
    assert [each["n"] for each in shards.__getitems__([7, 0, -1, 3])] == [7, 0, 7, 3]
    assert os.listdir(tmp_path).count(".reader") == 0
    origin = shards.origin(4)
    assert origin[:1] == (str(tmp_path / "shard.00002.mds"),)
    assert origin.position == 1


def test_several_folders_are_one_set_and_a_folder_of_them_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_numbers(tmp_path / name, 2)
    assert [each["n"] for each in all_of(Shards([tmp_path / "a", tmp_path / "b"]))] == [0, 1, 0, 1]
    assert len(Shards(f"{tmp_path}/{{a,b}}")) == 4
    with pytest.raises(ConfigError, match=r"has no index.json, and 2 folders in it have one: pass"):
        Shards(tmp_path)
    with pytest.raises(
        ConfigError, match=r"is a file of a set that its folder describes: pass the folder"
    ):
        Shards(tmp_path / "a" / "shard.00000.mds", format="mds")


@pytest.mark.parametrize("kind", ["mds", "litdata"])
def test_a_folder_without_the_index_that_a_format_needs_is_told(kind: str, tmp_path: Path) -> None:
    write_shards([{"txt": "a"}], tmp_path, "tar")
    with pytest.raises(ConfigError, match=r"no shard of .* MDS and LitData need their index.json"):
        Shards(tmp_path, format=kind)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 1}, r"it has version 1 .*, and 2 is known"),
        ({"format": "zip"}, r"a shard has the format 'zip'"),
        (
            {"column_encodings": ["int", "str", "pkl"]},
            r"column 'x' holds pickles.*allow_pickle=True",
        ),
        (
            {"column_encodings": ["int", "str", "what"]},
            r"column 'x' has the encoding 'what', which",
        ),
        (
            {"column_encodings": ["int", "str", "uint8"]},
            r"column 'x' is said to have 24 bytes, and",
        ),
        ({"samples": -1}, r"is said to have -1 samples"),
        ({"raw_data": None}, r"is damaged: a shard lacks"),
        (
            {"raw_data": {"basename": "../x", "bytes": 1}},
            r"names the file '../x', which is outside",
        ),
        ({"raw_data": {"basename": "no.mds", "bytes": 1}}, r"no.mds' cannot be read: "),
    ],
)
def test_an_index_that_cannot_be_is_refused(change: Any, text: str, tmp_path: Path) -> None:
    path = make_numbers(tmp_path, 2) / "index.json"
    index = json.loads(path.read_text())
    index["shards"][0].update(change)
    path.write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=text):
        Shards(tmp_path)


def test_pickles_are_read_if_asked_for(tmp_path: Path) -> None:
    make_mds(tmp_path, {"p": ("pkl", None)}, [[{"p": pickle.dumps({1, 2})}]])
    assert Shards(tmp_path, allow_pickle=True)[0] == {"p": {1, 2}}


def test_damaged_mds_is_told_or_has_samples_of_the_same_form(tmp_path: Path) -> None:
    make_numbers(tmp_path, 3)
    path = tmp_path / "shard.00000.mds"
    content = path.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0x41
        path.write_bytes(damaged)
        found = told_or_read(tmp_path, None, "shard.00000.mds")
        if found is not None:
            assert [list(each) for each in found] == [["n", "s", "x"]] * 3
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ConfigError, match=r"shard.00000.mds' has \d+ bytes, and the list"):
            Shards(tmp_path)


@pytest.mark.parametrize(
    "encoding", ["ndarray", "ndarray:int8", "pil", "jpeg_array", "list[png]", "json", "str_int"]
)
@given(content=st.binary(max_size=40))
@settings(max_examples=200)
def test_a_damaged_value_is_an_error_of_python(encoding: str, content: bytes) -> None:
    with contextlib.suppress(ArithmeticError, LookupError, OSError, ValueError, struct.error):
        decoder_of(encoding, "c", False)(content)


# -- TFRecord -------------------------------------------------------------------------------------

FEATURES: list[dict[str, Any]] = [
    {"image": [b"\xff\xd8"], "label": [3], "box": [0.5, -1.0], "none": []},
    {"image": [b"", b"two"], "label": [-1, 2**62, 0], "box": [], "name": [b"x" * 300]},
]


@pytest.mark.parametrize("packed", [True, False])
def test_examples_are_dicts_of_lists(packed: bool, tmp_path: Path) -> None:
    pytest.importorskip("google_crc32c")
    path = make_tfrecord(tmp_path / "t.tfrecord", [example(each, packed) for each in FEATURES])
    assert all_of(Shards(path)) == FEATURES
    path = path.rename(tmp_path / "train-00000-of-00010")  # known by its first bytes
    shards = Shards(path, fields={"label": None, "image": bytes})
    assert shards.format == "tfrecord"
    assert shards[0] == {"label": [3], "image": b"\xff\xd8"}
    assert shards.origin(1).offset == path.stat().st_size - 16 - len(example(FEATURES[1], packed))


def test_a_damaged_tfrecord_is_always_told(tmp_path: Path) -> None:
    pytest.importorskip("google_crc32c")
    path = make_tfrecord(tmp_path / "t.tfrecord", [example(each) for each in FEATURES])
    content = path.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises((ConfigError, DatasetError), match=r"t.tfrecord.*damaged"):
            all_of(Shards(path))
    whole = len(content) - len(example(FEATURES[1])) - 16
    for length in set(range(len(content))) - {0, whole}:
        path.write_bytes(content[:length])
        with pytest.raises(ConfigError, match=r"t.tfrecord.*(cut off|damaged)"):
            Shards(path)


@pytest.mark.parametrize("packed", [True, False])
def test_numbers_of_any_size_are_read_one_by_one_and_together(packed: bool, tmp_path: Path) -> None:
    numbers = [each for bits in range(64) for each in ((1 << bits) - 1, -(1 << bits), 5)]
    lists = [numbers, numbers[:1], [127], [128], [-1], list(range(300))]
    path = make_tfrecord(
        tmp_path / "t.tfrecord",
        [example({"n": each, "f": [0.5] * len(each)}, packed) for each in lists],
    )
    assert [sample["n"] for sample in all_of(Shards(path))] == lists
    shards = Shards(path, fields={"n": np.int64, "f": np.float32})
    for sample, expected in zip(all_of(shards), lists, strict=True):
        assert (sample["n"].dtype, sample["n"].tolist()) == (np.int64, expected)
        assert (sample["f"].dtype, sample["f"].tolist()) == (np.float32, [0.5] * len(expected))


def test_the_only_bytes_of_a_feature_become_an_array(tmp_path: Path) -> None:
    """Also where they read as digits."""
    path = make_tfrecord(tmp_path / "t.tfrecord", [example({"a": [b"12345678"], "b": [b"1"] * 2})])
    found = Shards(path, fields={"a": np.uint16})[0]["a"]
    assert (found.dtype, found.tobytes()) == (np.uint16, b"12345678")


def test_a_damaged_feature_is_told_where_another_one_is_missing(tmp_path: Path) -> None:
    bad = example({"a": [b"x"]})[:-1] + b"\xff"
    content = bad.replace(b"\x0a\x01\xff", b"\x0a\x09\xff")
    path = make_tfrecord(tmp_path / "t.tfrecord", [content])
    for fields in (None, {"b": int}):
        with pytest.raises(DatasetError, match=r"t.tfrecord', at 0, is damaged: it is no tf.train"):
            Shards(path, fields=fields)[0]


def test_a_sequence_example_is_refused(tmp_path: Path) -> None:
    """Its context would be read as an Example, and the lists be lost."""
    context = example({"n": [1]})
    path = make_tfrecord(tmp_path / "t.tfrecord", [context, context + b"\x12\x00"])
    assert Shards(path)[0] == {"n": [1]}
    with pytest.raises(DatasetError, match=r"lists of features, as tf.train.SequenceExample"):
        Shards(path)[1]


def test_a_feature_has_the_last_of_two_kinds(tmp_path: Path) -> None:
    floats, numbers = example({"n": [0.5]}), example({"n": [7]})
    one, other = floats[floats.rindex(b"\x12") :], numbers[numbers.rindex(b"\x1a") :]
    assert (one[0], other[0]) == (0x12, 0x1A)  # fields 2 and 3 of a feature
    feature = one + other
    entry = b"\x0a\x01n\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    path = make_tfrecord(tmp_path / "t.tfrecord", [b"\x0a" + bytes([len(features)]) + features])
    assert Shards(path)[0] == {"n": [7]}


def test_sums_that_are_not_wanted_are_not_compared(tmp_path: Path) -> None:
    path = make_tfrecord(tmp_path / "t.tfrecord", [example({"a": [1]})])
    path.write_bytes(path.read_bytes()[:-4] + b"????")
    assert all_of(Shards(path, check=False)) == [{"a": [1]}]


def test_our_sum_of_tests_is_that_of_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283


# -- JSON lines -----------------------------------------------------------------------------------


def test_json_lines_are_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Any] = [{"a": [1, None]}, {"é": "\n"}, 7, "text", {}]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n  \r\n")
    assert all_of(Shards(path)) == rows
    (tmp_path / "u.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert all_of(Shards([path, tmp_path / "u.jsonl.gz"])) == rows * 2
    assert Shards(path, fields={"a": None})[0] == {"a": [1, None]}
    with pytest.raises(
        DatasetError, match=r"line 2 of the shard .* holds no object, so that it has"
    ):
        Shards(path, fields={"a": None})[2]
    for length in (0, 1, 4, 9, 4095, 4096, 4097, 10_000):
        for blank in (" ", "\t", "\r", "\t \r"):
            line = (blank * length)[:length]
            path.write_text(f"{line}\n  1\n{line}\n{line}2{line}\n{line}", newline="")
            assert all_of(Shards(path)) == [1, 2]
    monkeypatch.setattr("reader.shards.formats.json_lines._BLOCK", 3)
    for text in ("1\n\n \n   \n  2", " \n1\n2\n", "1\n  \n2\n    ", "\n\n\n1\n 2 \n\n"):
        path.write_text(text)
        assert all_of(Shards(path)) == [1, 2]
    path.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DatasetError, match=r"line 1 of the shard '.*t.jsonl', at 9, is no JSON: "):
        Shards(path)[1]


# -- Parquet --------------------------------------------------------------------------------------


def parquet_rows(begin: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "n": k,
            "s": None if k % 5 == 0 else "é" * (k % 3),
            "l": [[k, None], []],
            "d": {"a": k / 2, "b": b"x" * (k % 4)},
            "image": {"bytes": bytes([k]), "path": f"{k}.png"},
        }
        for k in range(begin, begin + count)
    ]


def make_parquet(path: Path, begin: int, count: int, **options: Any) -> Path:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(parquet_rows(begin, count)), path, **options)
    return path


def test_rows_of_parquet_are_samples(tmp_path: Path) -> None:
    make_parquet(tmp_path / "0.parquet", 0, 10, row_group_size=3)
    make_parquet(tmp_path / "1.PARQUET", 10, 5, compression="zstd")
    shards = Shards(tmp_path)
    assert all_of(shards) == parquet_rows(0, 15)
    order = [14, 0, 7, 3, 3, 11, -1]
    assert [each["n"] for each in shards.__getitems__(order)] == [14, 0, 7, 3, 3, 11, 14]
    assert 0 < shards.origin(0).offset < shards.origin(9).offset
    chosen = Shards(tmp_path, fields={"image": bytes, "n": None, "s": None})
    assert chosen[7] == {"image": b"\x07", "n": 7, "s": "é"}
    (path := tmp_path / "unnamed").write_bytes((tmp_path / "0.parquet").read_bytes())
    assert Shards(path).format == "parquet"


def test_lists_of_numbers_of_parquet_become_arrays(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    lists = [[k, k + 1, k + 2][: k % 4] for k in range(12)]
    columns = {
        "plain": pa.array(lists, pa.list_(pa.int32())),
        "large": pa.array(lists, pa.large_list(pa.float64())),
        "fixed": pa.array([[k, -k] for k in range(12)], pa.list_(pa.int8(), 2)),
        "flags": pa.array([[bool(k % 2)] for k in range(12)]),
        "one": pa.array(range(12)),
    }
    parquet.write_table(pa.table(columns), tmp_path / "0.parquet", row_group_size=5)
    shards = Shards(tmp_path, fields=dict.fromkeys(columns, np.int64))
    whole = all_of(Shards(tmp_path))
    for index, sample in enumerate(all_of(shards)):
        for name, value in sample.items():
            assert value.dtype == np.int64
            assert value.tolist() == np.asarray(whole[index][name], np.int64).tolist()
    nulls = [[1, None], [2]]
    parquet.write_table(pa.table({"a": nulls, "b": [None, [1]]}), tmp_path / "1.parquet")
    for name in ("a", "b"):
        with pytest.raises(DatasetError, match=rf"field '{name}' of sample 0 of the shard"):
            Shards(tmp_path / "1.parquet", fields={name: np.int64})[0]
    assert Shards(tmp_path / "1.parquet", fields={"a": np.int64})[1]["a"].tolist() == [2]


def test_parquet_files_whose_columns_differ_are_told(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "0.parquet")
    parquet.write_table(pa.table({"a": [1.5], "b": ["x"]}), tmp_path / "1.parquet")
    with pytest.raises(
        ConfigError, match=r"0.parquet' and '.*1.parquet' differ .*: a: double, a: "
    ):
        Shards(tmp_path)


def test_a_parquet_without_the_wanted_column_is_told(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"a": [1, 2]}), tmp_path / "t.parquet")
    with pytest.raises(DatasetError, match=r"t.parquet', at \d+, lacks the field 'b': it has a$"):
        Shards(tmp_path, fields={"b": None})[1]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table([[1], [2], [3]], names=["a", "b", "a"]), tmp_path / "t.parquet")
    with pytest.raises(ConfigError, match=r"t.parquet' has two columns of the name 'a', and a"):
        Shards(tmp_path)


def test_columns_that_folders_name_are_told_to_be_missing(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for year in (2020, 2021):
        (folder := tmp_path / "set=1" / f"year={year}").mkdir(parents=True)
        parquet.write_table(pa.table({"x": [year]}), folder / "a.parquet")
    with pytest.raises(
        ConfigError, match=r"has folders NAME=VALUE, and no shard: pass '.*/\*/\*.pa"
    ):
        Shards(tmp_path)
    with pytest.warns(UserWarning, match=r"folders say year, which samples of Shards do not"):
        shards = Shards(tmp_path / "set=1" / "*" / "*.parquet")
    assert all_of(shards) == [{"x": 2020}, {"x": 2021}]
    assert all_of(Shards(tmp_path / "set=1" / "year=2020")) == [{"x": 2020}]
    for k in (1, 2):  # a column that the files have is read, and no warning comes
        (folder := tmp_path / "own" / f"x={k}").mkdir(parents=True)
        parquet.write_table(pa.table({"x": [k]}), folder / "a.parquet")
    assert all_of(Shards(tmp_path / "own" / "*" / "*.parquet")) == [{"x": 1}, {"x": 2}]


def test_rows_that_a_list_of_parquet_files_names_come_once(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    said: list[Any] = []
    table = pa.table({"x": [1, 2, 3]})
    parquet.write_to_dataset(
        table, tmp_path, basename_template="part-{i}.parquet", metadata_collector=said
    )
    parquet.write_metadata(table.schema, tmp_path / "_metadata", metadata_collector=said)
    shards = Shards(tmp_path)
    assert len(shards.files) == 2
    assert [each["x"] for each in all_of(shards)] == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"the shards have no sample"):
        Shards(tmp_path / "_metadata")


def test_damaged_words_about_columns_end_no_process(tmp_path: Path) -> None:
    """Of some pyarrow throws where nothing catches it: sizes of lists, since version 19."""
    pytest.importorskip("pyarrow")
    write_shards([{"x": "text", "y": [k]} for k in range(3)], tmp_path, "parquet")
    (path,) = tmp_path.glob("*.parquet")
    content = path.read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    outcomes: set[Any] = set()
    for at in range(begin, len(content) - 8):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            outcomes.add(Shards(path).origin(0).offset)
        except (ConfigError, DatasetError) as error:
            outcomes.add(type(error))
    assert {4, ConfigError, DatasetError} <= outcomes


def test_a_footer_of_negative_rows_is_told(tmp_path: Path) -> None:
    path = make_parquet(tmp_path / "t.parquet", 0, 6)
    content = path.read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    told = 0
    for at in range(begin, len(content) - 8):  # 6 rows are 12 in the footer, and -6 rows are 11
        if content[at] != 12:
            continue
        path.write_bytes(content[:at] + b"\x0b" + content[at + 1 :])
        with contextlib.suppress(ConfigError):
            assert len(Shards(path, index=tmp_path / "kept")) >= 0
            continue
        with pytest.raises(ConfigError, match=r"t.parquet' is damaged") as info:
            Shards(path, index=tmp_path / "kept")
        told += "row group 0 is said to have -6 rows" in str(info.value)
    assert told == 1


def test_sums_of_pages_are_compared_if_pyarrow_can(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    if "page_checksum_verification" not in inspect.signature(parquet.ParquetFile).parameters:
        pytest.skip("this pyarrow compares no sums of pages")
    table = pa.table({"a": np.arange(100)})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    parquet.write_table(table, path := tmp_path / "t.parquet", **options)
    content = path.read_bytes()
    at = content.index(np.int64(50).tobytes())
    path.write_bytes(content[:at] + b"\x07" + content[at + 1 :])
    assert Shards(path, check=False)[50] == {"a": 7}
    with pytest.raises(DatasetError, match=r"t.parquet' is damaged, .*(crc|CRC)"):
        Shards(path)[50]


def test_decoded_row_groups_are_counted_and_dropped(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    blob = bytes(1 << 20)
    for k in range(3):
        table = pa.table({"n": range(8 * k, 8 * k + 8), "b": [blob] * 8})
        parquet.write_table(table, tmp_path / f"{k}.parquet", compression="zstd", row_group_size=1)
    shards = Shards(tmp_path)
    assert sum(each.nbytes for each in shards.files) < 1 << 16
    shard = shards.read_one(0)[0]
    held = []
    for position in range(8):
        assert shard.samples([position])[0]["n"] == position
        held.append(shard.unpacked_nbytes >> 20)
    assert held[:2] == [1, 2]
    assert max(held) <= 4  # in MiB, of 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reader.shards.shards._MOST_UNPACKED", 3 << 20)
        assert [shards[index]["n"] for index in (0, 1, 8, 9, 16)] == [0, 1, 8, 9, 16]
        assert len(shards._open) == 2


def test_a_window_keeps_to_few_row_groups(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for k in range(3):
        make_parquet(tmp_path / f"{k}.parquet", 20 * k, 20, row_group_size=6)
    shards = Shards(tmp_path)
    assert list(np.diff(shards.starts)) == [6, 6, 6, 2] * 3
    assert len(shards.files) == 3
    assert list(shards.images("image").starts) == list(shards.starts)
    order = list(ShardOrder(shards, seed=0, window=1))
    assert sorted(order) == list(range(60))
    groups = np.searchsorted(shards.starts, order, "right")
    assert np.count_nonzero(np.diff(groups)) == 11  # each is left once
    assert [shards[index]["n"] for index in order] == order


def test_damaged_parquet_is_told_or_has_rows_of_the_same_form(tmp_path: Path) -> None:
    path = make_parquet(tmp_path / "t.parquet", 0, 6, row_group_size=3)
    content = path.read_bytes()
    for at in range(0, len(content), 11):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x08]) + content[at + 1 :])
        found = told_or_read(path, tmp_path / "kept", "t.parquet")
        if found is not None:
            assert len(found) == 6
    for length in range(0, len(content), 37):
        path.write_bytes(content[:length])
        with pytest.raises(ConfigError, match=r"t.parquet' is damaged"):
            Shards(path)


def test_images_of_pillow_come_from_their_encodings(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    image = pillow.fromarray(np.arange(60, dtype=np.uint8).reshape(4, 5, 3))
    file = io.BytesIO()
    image.save(file, "PNG")
    raw = np.array([5, 4, 3], "<u4").tobytes() + b"RGB" + image.tobytes()
    columns = {"p": ("pil", None), "q": ("png", None)}
    make_mds(tmp_path, columns, [[{"p": raw, "q": file.getvalue()}]])
    found = Shards(tmp_path)[0]
    for each in found.values():
        assert (np.asarray(each) == np.asarray(image)).all()


@pytest.mark.parametrize("how", ["gz", "bz2", "zst"])
def test_a_shard_that_is_too_large_decompressed_is_told(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import bz2

    content = b'{"a": 1}\n' * (1 << 18)
    if how == "zst":
        packed = pytest.importorskip("pyarrow").compress(content, codec="zstd", asbytes=True)
    else:
        packed = {"gz": gzip, "bz2": bz2}[how].compress(content)
    (path := tmp_path / f"t.jsonl.{how}").write_bytes(packed)
    assert len(Shards(path)) == 1 << 18
    monkeypatch.setattr("reader.shards.formats.compression.MOST_NBYTES", len(content) - 1)
    for kept in tmp_path.glob(".reader-*"):
        kept.unlink()
    with pytest.raises(ConfigError, match=rf"t.jsonl.{how}' has more than 2,359,295 bytes"):
        Shards(path)
