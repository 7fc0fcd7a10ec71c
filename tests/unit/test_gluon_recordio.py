"""Records as mx.recordio writes them: headers, images, concurrent readers, and damage."""

from __future__ import annotations

import copy
import gc
import io
import multiprocessing
import pickle
import random
import struct
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from reader import ConfigError, ConfigTypeError, DatasetError, RecordIO
from reader.compat.gluon.recordio import (
    IRHeader,
    MXIndexedRecordIO,
    MXRecordIO,
    pack,
    pack_img,
    unpack,
    unpack_img,
)

MAGIC = struct.pack("<I", 0xCED7230A)
COUNT = 3000


def content(number: int) -> bytes:
    return random.Random(number).randbytes(number % 300) + MAGIC * (number % 3)


# -- headers ------------------------------------------------------------------------------------


def test_bytes_of_a_header() -> None:
    assert pack((9, 2.5, 7, 8), b"abc") == struct.pack("<IfQQ", 0, 2.5, 7, 8) + b"abc"
    labels = struct.pack("<IfQQ2f", 2, 0, 7, 8, 1.5, -1)
    assert pack(IRHeader(0, [1.5, -1], 7, 8), b"abc") == labels + b"abc"
    assert len(pack(IRHeader(0, 1, 0, 0), b"")) == 24


@given(
    st.one_of(
        st.floats(width=32, allow_nan=False),
        st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5),
    ),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=20),
)
def test_what_was_packed_is_unpacked(label: Any, number: int, s: bytes) -> None:
    header, found = unpack(pack(IRHeader(0, label, number, 3), s))
    assert (header.id, header.id2, found) == (number, 3, s)
    if isinstance(label, list):
        assert header.flag == len(label)
        assert (header.label.dtype, header.label.tolist()) == (np.float32, label)
        header.label[0] = 1  # it is the caller's
    else:
        assert (header.flag, header.label) == (0, label)


def test_a_label_may_be_a_number_of_numpy() -> None:
    assert unpack(pack(IRHeader(0, np.float32(3), 0, 0), b""))[0] == (0, 3, 0, 0)
    assert unpack(pack(IRHeader(0, np.arange(2), 0, 0), b""))[0].label.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: unpack(b"x" * 23), DatasetError, "record of 23 bytes has no header, .* takes 24"),
        (
            lambda: unpack(struct.pack("<IfQQ", 2**32 - 1, 0, 0, 0) + b"1234"),
            DatasetError,
            r"says 4294967295 labels \(17179869180 bytes\), but only 4 bytes follow",
        ),
        (lambda: pack((0, 1, -1, 0), b""), ConfigError, "the header .* cannot be packed"),
        (lambda: pack_img((0, 1, 0, 0), image(), img_fmt=".gif"), ConfigError, "'.gif': pass one"),
        (lambda: pack_img((0, 1, 0, 0), image() / 2), ConfigTypeError, "uint8 array .* float64"),
        (lambda: pack_img((0, 1, 0, 0), image()[0, 0]), ConfigTypeError, r"of shape \(3,\)"),
        (lambda: unpack_img(pack((0, 1, 0, 0), b"abc")), DatasetError, "an image of 3 bytes"),
    ],
)
def test_bytes_that_are_no_record_are_reported(
    call: Callable[[], Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        call()


# -- images -------------------------------------------------------------------------------------


def image(channels: int = 3) -> Any:
    return np.random.default_rng(1).integers(0, 255, (5, 7, channels), np.uint8)


@pytest.mark.parametrize("channels", [3, 4])
def test_an_image_is_packed_with_blue_first_and_unpacked_so(channels: int) -> None:
    record = pack_img(IRHeader(0, 3, 7, 0), image(channels), quality=3, img_fmt=".PNG")
    header, found = unpack_img(record)
    assert (header, found.tolist()) == ((0, 3, 7, 0), image(channels).tolist())
    with Image.open(io.BytesIO(record[24:])) as opened:
        assert opened.getpixel((0, 0))[:3] == tuple(image(channels)[0, 0, 2::-1].tolist())


def test_a_grey_image_has_two_dimensions() -> None:
    record = pack_img((0, 1, 0, 0), image(1), img_fmt="png")
    assert unpack_img(record)[1].tolist() == image(1)[:, :, 0].tolist()
    assert pack_img((0, 1, 0, 0), image(1)[:, :, 0], img_fmt="png") == record
    color = unpack_img(record, 1)[1]
    assert (color == image(1)).all()
    assert color.shape == (5, 7, 3)
    assert unpack_img(pack_img((0, 1, 0, 0), image(), img_fmt="png"), 0)[1].shape == (5, 7)


def test_a_jpeg_is_nearly_what_it_was() -> None:
    smooth = np.full((8, 8, 3), (10, 120, 240), np.uint8)
    for ending in ".jpg", ".JPEG":
        found = unpack_img(pack_img((0, 1, 0, 0), smooth, 95, ending))[1]
        assert np.abs(found.astype(int) - smooth).max() < 4
    opaque = np.dstack([smooth, smooth[:, :, :1]])
    assert unpack_img(pack_img((0, 1, 0, 0), opaque))[1].shape == (8, 8, 3)


# -- files --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "some.rec"
    file = MXIndexedRecordIO(path.with_suffix(".idx"), path, "w")
    for number in range(COUNT):
        file.write_idx(str(number), content(number))  # keys become ints
    file.close()
    return path


def opened(path: Path) -> MXIndexedRecordIO:
    return MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "r")


def all_of(file: MXRecordIO) -> list[bytes]:
    return list(iter(file.read, None))  # type: ignore[arg-type]


def test_records_come_in_the_order_of_the_file_until_none(tmp_path: Path) -> None:
    path, records = tmp_path / "some.rec", [b"abc", b"", b"1234" + MAGIC + b"5", MAGIC, b"last"]
    writer = MXRecordIO(str(path), "w")
    offsets = []
    for record in records:
        offsets.append(writer.tell())
        writer.write(record)
    writer.close()
    writer.close()
    assert [each.name for each in tmp_path.iterdir()] == ["some.rec"]  # no index
    reader = MXRecordIO(str(path), "r")
    told = []
    for record in records:
        told.append(reader.tell())
        assert reader.read() == record
    assert told == offsets
    assert reader.read() is reader.read() is None
    reader.reset()
    assert all_of(reader) == records
    assert list(RecordIO(path)) == records


def test_written_records_are_in_the_file_when_the_object_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "some.rec"
    writer = MXIndexedRecordIO(tmp_path / "some.idx", path, "w", key_type=str)
    writer.write_idx("a b", b"abc")
    assert not path.exists()
    del writer
    gc.collect()
    assert MXIndexedRecordIO(tmp_path / "some.idx", path, "r", str).read_idx("a b") == b"abc"


def test_a_writer_that_is_reset_begins_anew(tmp_path: Path) -> None:
    writer = MXIndexedRecordIO(tmp_path / "some.idx", tmp_path / "some.rec", "w")
    writer.write_idx(1, b"abc")
    writer.reset()
    writer.write_idx(1, b"d")
    writer.close()
    again = opened(tmp_path / "some.rec")
    assert (again.keys, again.read_idx(1)) == ([1], b"d")


def test_records_are_found_by_key_and_read_on_from_there(many: Path) -> None:
    file = opened(many)
    assert file.keys == list(range(COUNT))
    assert [file.read_idx(number) for number in (7, 2999, 0)] == [
        content(7),
        content(2999),
        content(0),
    ]
    file.seek(11)
    assert [file.read(), file.read()] == [content(11), content(12)]
    file.read_idx(2998)  # it has parts
    assert [file.read(), file.read()] == [content(2999), None]
    assert file.tell() == many.stat().st_size
    with pytest.raises(KeyError, match="has the key 3000"):
        file.read_idx(COUNT)
    assert list(RecordIO(many)) == [content(number) for number in range(COUNT)]


def wrong_in(file: MXIndexedRecordIO, seed: int) -> int:
    order = random.Random(seed).sample(range(COUNT), COUNT)
    return sum(file.read_idx(number) != content(number) for number in order)


def test_four_threads_read_the_same_file(many: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(wrong_in, [opened(many)] * 4, range(4))) == 0
        found = [record for each in pool.map(all_of, [opened(many)] * 4) for record in each]
    assert sorted(found) == sorted(map(content, range(COUNT)))  # each record once


def tell_wrong(file: MXIndexedRecordIO, seed: int, answers: Any) -> None:
    answers.put((file.read() == content(1), wrong_in(file, seed)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_two_processes_read_the_same_file(many: Path, method: Any) -> None:
    context = multiprocessing.get_context(method)
    answers, file = context.Queue(), opened(many)
    assert file.read() == content(0)
    with file._locks[next(iter(file._locks))]:  # one thread reads while another forks
        children = [
            context.Process(target=tell_wrong, args=(file, seed, answers)) for seed in range(2)
        ]
        for child in children:
            child.start()
    assert [answers.get(timeout=30) for _ in children] == [(True, 0)] * 2
    for child in children:
        child.join()
    answers.close()
    answers.join_thread()


def test_readers_are_copied_with_their_position(many: Path) -> None:
    file = opened(many)
    file.seek(5)
    for again in copy.deepcopy(file), pickle.loads(pickle.dumps(file)):
        assert (again.read(), again.read_idx(3)) == (content(5), content(3))
    file.close()
    closed = pickle.loads(pickle.dumps(file))
    with pytest.raises(ConfigError, match=r"cannot be read: it is closed. Call open\(\)"):
        closed.read_idx(3)
    closed.open()
    assert closed.read_idx(3) == content(3)


def test_damage_is_reported_with_the_key(tmp_path: Path) -> None:
    path = tmp_path / "some.rec"
    file = MXIndexedRecordIO(path.with_suffix(".idx"), path, "w")
    file.write_idx(70, b"abc")
    file.write_idx(71, b"defg")
    file.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:12] + b"\0" + whole[13:])
    damaged = opened(path)
    assert damaged.read_idx(70) == b"abc"
    with pytest.raises(DatasetError, match=r"the record with key 71 of '.*some.rec', at offset 12"):
        damaged.read_idx(71)
    damaged.reset()
    damaged.read()
    with pytest.raises(DatasetError, match=r"a record of .* at offset 12, is damaged"):
        damaged.read()
    path.write_bytes(whole[:18])
    with pytest.raises(DatasetError, match="the file ends at 18, within it"):
        opened(path).read_idx(71)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0\t0\nmoon\n", r"line 2 of the index .* must be a key, a tab and an offset.*'moon'"),
        ("0\t0\n1\t4000\n", "line 2 of the index .* within the 12 bytes"),
        ("0\t-4\n", "line 1"),
        ("a\t0\n", "line 1"),
    ],
)
def test_an_index_of_another_file_is_reported(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "some.rec"
    writer = MXRecordIO(path, "w")
    writer.write(b"abc")
    writer.close()
    path.with_suffix(".idx").write_text(text)
    with pytest.raises(ConfigError, match=said):
        opened(path)


def make(tmp_path: Path, flag: str = "w") -> MXIndexedRecordIO:
    return MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", flag, str)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda path: MXRecordIO(path / "a.rec", "a"), ValueError, "^Invalid flag a"),
        (lambda path: MXRecordIO(path / "a.rec", "r"), ConfigError, "cannot be opened"),
        (lambda path: MXRecordIO(path / "b" / "a.rec", "w"), ConfigError, "cannot be written"),
        (
            lambda path: MXIndexedRecordIO(path / "b" / "a.idx", path / "a.rec", "w"),
            ConfigError,
            "an index cannot be written to",
        ),
        (
            lambda path: (make(path).close(), (path / "a.idx").unlink(), make(path, "r")),
            ConfigError,
            "the index '.*a.idx' cannot be read",
        ),
        (
            lambda path: make(path).read(),
            AssertionError,
            "cannot be read: it was opened with .*'w'",
        ),
        (
            lambda path: (make(path).close(), make(path, "r").write(b"")),
            AssertionError,
            "cannot be written: it was opened with flag 'r'",
        ),
        (
            lambda path: [file := make(path), file.close(), file.write(b"")],
            ConfigError,
            "is closed",
        ),
        (
            lambda path: [file := make(path), *(file.write_idx("k", b"") for _ in range(2))],
            ConfigError,
            r"two records of .* have the key 'k' \(str\)",
        ),
        (lambda path: make(path).write_idx("a\tb", b""), ConfigError, r"the key 'a\\tb' .* a tab"),
        (lambda path: make(path).write_idx("a\n", b""), ConfigError, "the end of a line in it"),
        (lambda path: pickle.dumps(make(path)), ConfigTypeError, "a writer .* cannot be copied"),
    ],
)
def test_invalid_arguments_are_refused_by_name(
    tmp_path: Path, call: Callable[[Path], Any], kind: type[Exception], text: str
) -> None:
    with warnings.catch_warnings():
        with pytest.raises(kind, match=text):
            call(tmp_path)
        gc.collect()
    assert not list(tmp_path.rglob("*.part"))
