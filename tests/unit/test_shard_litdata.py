"""The samples of LitData's chunks: trees, rows, tokens, each serializer, whole and damaged."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import struct
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reader import ConfigError, DatasetError, Shards
from reader.shards.check_shards import check_shards
from reader.shards.formats.litdata_serializers import serializer_of
from tests.shard_files import chunk_of, leaves_of, make_litdata, tree
from tests.unit.test_shard_formats import all_of, told_or_read

FORM = {"n": None, "l": [None, (None, {"s": None})]}
SERIALIZERS = ["int", "float", "bool", "str"]


def leaves(number: int) -> bytes:
    parts = [struct.pack("<q", number), struct.pack("<d", number / 2), bytes([number % 2])]
    return leaves_of([*parts, ("é" * (number % 4)).encode()])


def value(number: int) -> dict[str, Any]:
    return {"n": number, "l": [number / 2, (number % 2 == 1, {"s": "é" * (number % 4)})]}


def make_trees(folder: Path, *counts: int, **config: Any) -> Path:
    numbers = iter(range(sum(counts)))
    chunks = [chunk_of([leaves(next(numbers)) for _ in range(count)]) for count in counts]
    return make_litdata(folder, FORM, SERIALIZERS, chunks, **config)


def zstd(content: bytes) -> bytes:
    return bytes(pytest.importorskip("pyarrow").compress(content, codec="zstd", asbytes=True))


def of_batches(samples: list[bytes], size: int) -> bytes:
    groups = [samples[at : at + size] for at in range(0, len(samples), size)]
    packed = [zstd(b"".join(group)) for group in groups]
    head = struct.pack("<8sHHIII", b"LDFZ01\0\0", 1, 0, len(samples), size, len(groups))
    head += np.cumsum([0, *map(len, samples)]).astype("<u4").tobytes()
    place = len(head) + 24 * len(groups)
    table = b""
    for number, (group, part) in enumerate(zip(groups, packed, strict=True)):
        sizes = len(part), sum(map(len, group))
        table += struct.pack("<IIQII", number * size, len(group), place, *sizes)
        place += len(part)
    return head + table + b"".join(packed)


# -- trees ----------------------------------------------------------------------------------------


def test_samples_are_the_trees_that_were_written(tmp_path: Path) -> None:
    shards = Shards(make_trees(tmp_path, 3, 1, 5))
    assert (len(shards), shards.format) == (9, "litdata")
    assert all_of(shards) == list(map(value, range(9)))
    assert shards.__getitems__([8, 0, -1, 3]) == list(map(value, [8, 0, 8, 3]))
    origin = shards.origin(4)
    assert (origin.path, origin.offset) == (str(tmp_path / "chunk-0-2.bin"), 4 * 7)
    assert all_of(pickle.loads(pickle.dumps(shards))) == list(map(value, range(9)))
    assert Shards(tmp_path, format="litdata")[1] == value(1)
    with pytest.raises(ConfigError, match=r"of the format 'litdata', and format='mds' is asked"):
        Shards(tmp_path, format="mds")


def test_fields_are_keys_or_places_or_the_whole(tmp_path: Path) -> None:
    make_trees(tmp_path / "d", 2)
    found = Shards(tmp_path / "d", fields={"l": None, "n": float})
    assert found[1] == {"l": [0.5, (True, {"s": "é"})], "n": 1.0}
    with pytest.raises(DatasetError, match=r"lacks the field 'no': it has n, l"):
        Shards(tmp_path / "d", fields={"no": None})[0]
    pair = chunk_of([leaves_of([b"x", b"7"])])
    make_litdata(tmp_path / "t", (None, None), ["bytes", "str"], [pair])
    assert Shards(tmp_path / "t")[0] == (b"x", "7")
    assert Shards(tmp_path / "t", fields={"1": int, "0": bytes})[0] == {"1": 7, "0": b"x"}
    make_litdata(tmp_path / "b", None, ["bytes"], [chunk_of([leaves_of([b"x"])])])
    assert Shards(tmp_path / "b")[0] == b"x"
    assert Shards(tmp_path / "b", fields={"0": len})[0] == {"0": 1}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"type": "collections.OrderedDict", "context": '["a", "b"]'}, {"a": b"0", "b": b"1"}),
        (
            {"type": "collections.defaultdict", "context": {"dict_context": [2, "b"]}},
            {2: b"0", "b": b"1"},
        ),
        ({"type": "collections.deque", "context": "null"}, deque([b"0", b"1"])),
    ],
)  # fmt: skip
def test_each_container_of_a_tree_is_made(said: Any, expected: Any, tmp_path: Path) -> None:
    make_litdata(tmp_path, [None, None], ["bytes"] * 2, [chunk_of([leaves_of([b"0", b"1"])])])
    change(tmp_path, data_spec=json.dumps([1, {**said, "children_spec": [tree(None)] * 2}]))
    assert Shards(tmp_path)[0] == expected
    assert type(Shards(tmp_path)[0]) in (dict, deque)


def change(folder: Path, chunk: Any = None, **config: Any) -> None:
    path = folder / "index.json"
    index = json.loads(path.read_text())
    index["config"].update(config)
    if chunk:
        index["chunks"][0].update(chunk)
    path.write_text(json.dumps(index))


def spec(kind: str | None, context: Any, count: int) -> str:
    parts = [tree(None)] * count
    return json.dumps([1, {"type": kind, "context": context, "children_spec": parts}])


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"encryption": {"algorithm": "fernet"}}, r"the chunks are encrypted, which is not read"),
        ({"item_loader": "TemporalArrayLoader"}, r"written for 'TemporalArrayLoader', and"),
        ({"item_loader": "ParquetLoader"}, r"are read. Pass the Parquet files"),
        ({"compression": "lz4"}, r"compressed by 'lz4' a 'chunk', and zstd a chunk, batch or"),
        ({"data_format": ["int", "float", "bool", "pickle"]}, r"field 'l' holds pickles, which"),
        ({"data_format": ["int", "float", "bool", "mine"]}, r"'l' has the serializer 'mine'"),
        ({"data_format": ["int", "float", "graph", "str"]}, r"'l' has the serializer 'graph'"),
        ({"data_format": ["no_header_numpy:14", *SERIALIZERS[1:]]}, r"'no_header_numpy:14' names"),
        ({"data_format": ["no_header_tensor:10", *SERIALIZERS[1:]]}, r"'no_header_tensor:10'"),
        ({"data_format": SERIALIZERS[1:]}, r"a sample has 4 leaves, and 3 serializers are named"),
        ({"data_format": None}, r"is damaged: its config or a chunk lacks"),
        ({"data_spec": spec("collections.namedtuple", '"m"', 4)}, r"type 'collections.namedtuple'"),
        ({"data_spec": spec("builtins.dict", '["a", "a", "b", "c"]', 4)}, r"damaged: .* one key"),
        ({"data_spec": spec("builtins.dict", '[1, "1", "b", "c"]', 4)}, r"two keys of one text"),
        ({"data_spec": spec("builtins.dict", '["a"]', 4)}, r"is damaged: "),
        ({"data_spec": json.dumps([2, tree(FORM)])}, r"has version 2 .*, and 1 is known"),
        ({"data_spec": None}, r"is damaged: "),
        ({"chunk": {"chunk_size": -1}}, r"is said to have -1 samples"),
        ({"chunk": {"chunk_size": "3"}}, r"is damaged: "),
        ({"chunk": {"filename": "../x"}}, r"names the file '../x', which is outside"),
        ({"chunk": {"filename": "no.bin"}}, r"no.bin' cannot be read: "),
    ],
)  # fmt: skip
def test_an_index_that_cannot_be_is_refused(config: Any, text: str, tmp_path: Path) -> None:
    change(make_trees(tmp_path, 2), **config)
    with pytest.raises(ConfigError, match=text):
        Shards(tmp_path)


def test_what_is_not_wanted_may_be_of_any_serializer(tmp_path: Path) -> None:
    content = chunk_of([leaves_of([pickle.dumps({1, 2}), b"own", b"7"])])
    form = {"p": None, "m": None, "s": None}
    make_litdata(tmp_path, form, ["pickle", "mine:x", "str"], [content])
    assert Shards(tmp_path, fields={"s": int, "m": bytes})[0] == {"s": 7, "m": b"own"}
    with pytest.raises(ConfigError, match=r"'m' has the serializer 'mine:x'.*with `bytes` for it"):
        Shards(tmp_path, fields={"m": len})
    found = Shards(tmp_path, fields={"p": len, "s": None}, allow_pickle=True)
    assert found[0] == {"p": 2, "s": "7"}


# -- serializers ----------------------------------------------------------------------------------


def numpy_of(array: Any, code: int, order: str) -> bytes:
    head = struct.pack(f"{order}II{array.ndim}I", code, array.ndim, *array.shape)
    return head + bytes(array.tobytes())


def nested(kind: int, count: int, *parts: bytes) -> bytes:
    return struct.pack("<BI", kind, count) + b"".join(parts)


def text(value: str) -> bytes:
    return struct.pack("<I", len(value.encode())) + value.encode()


ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)
RECORDS = [{"a": "é", "b": -1}, {"a": None, "b": 0.5}, {"a": True, "b": False}]


@pytest.mark.parametrize(
    ("form", "content", "expected"),
    [
        ("str", "é".encode(), "é"),
        ("text", b"", ""),
        ("int", struct.pack("<q", -(2**63)), -(2**63)),
        ("float", struct.pack("<d", 0.1), 0.1),
        ("bool", b"\1", True),
        ("bytes", b"\0", b"\0"),
        ("file:png", b"p", b"p"),
        ("file", b"p", b"p"),
        ("audio:wav", b"w", b"w"),
        ("file:json", b'{"a": 1}', {"a": 1}),
        ("json", b"[1, null]", [1, None]),
        ("json", nested(0, 4, b"null"), None),
        ("json", nested(1, 2, text("é"), text("")), ["é", ""]),
        ("json", nested(2, 2, struct.pack("<qq", -1, 2**62)), [-1, 2**62]),
        ("json", nested(3, 1, struct.pack("<d", 0.5)), [0.5]),
        ("json", nested(4, 2, b"\1\0"), [True, False]),
        ("json", nested(5, 2, text("k"), b"\x0b", text("l"), b"\x0a\1"), {"k": None, "l": True}),
        ("json", nested(5, 1, text("k"), b"\x08" + struct.pack("<q", 7)), {"k": 7}),
        ("json", b"\x07" + text("t"), "t"),
        ("json", b"\x09" + struct.pack("<d", 2.0), 2.0),
        (
            "json",
            nested(
                6, 3, struct.pack("<I", 2), text("a"), text("b"),
                b"\x11" + text("é") + b"\x12" + struct.pack("<q", -1),
                b"\x10\x13" + struct.pack("<d", 0.5), b"\x14\1\x14\0",
            ),
            RECORDS,
        ),
        ("numpy", numpy_of(ARRAY, 9, "<"), ARRAY),
        ("tensor", numpy_of(ARRAY, 1, ">"), ARRAY),
        ("tensor", numpy_of(np.zeros((0, 3), np.int64), 17, ">"), np.zeros((0, 3), np.int64)),
        ("tensor", numpy_of(np.array(7, np.uint16), 20, ">"), np.array(7, np.uint16)),
        ("no_header_numpy:5", b"\1\2\3\4", np.array([513, 1027], np.uint16)),
        ("no_header_tensor:19", b"\1\0", np.array([True, False])),
        ("no_header_tensor:0", b"", np.zeros(0, np.float32)),
    ],
)  # fmt: skip
def test_each_serializer_is_read(form: str, content: bytes, expected: Any) -> None:
    found = serializer_of(form, "f", False, False)(content)
    if isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert (found == expected).all()
        assert found.flags.writeable
    else:
        assert (found, type(found)) == (expected, type(expected))


def test_images_are_arrays_by_channel_or_rendered(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pytest.importorskip("simplejpeg")
    pixels = np.random.default_rng(0).integers(0, 255, (8, 6, 3), dtype=np.uint8)
    image = pillow.fromarray(pixels)
    exif = pillow.Exif()
    exif[0x0112] = 6  # turned by a quarter
    files = []
    for kind, options in (("PNG", {}), ("JPEG", {"exif": exif, "quality": 95})):
        file = io.BytesIO()
        image.save(file, kind, **options)
        files.append(file.getvalue())
    raw = np.array([6, 8, 3], "<u4").tobytes() + b"RGB" + image.tobytes()
    many = np.array([2, len(files[0]), len(files[1])], "<u4").tobytes() + b"".join(files)
    form = {"png": None, "jpeg": None, "many": None, "pil": None}
    content = chunk_of([leaves_of([*files, many, raw])])
    make_litdata(tmp_path, form, ["image:png", "jpeg", "jpeg_array", "pil"], [content])
    shards = Shards(tmp_path)
    found = shards[0]
    assert (found["png"] == pixels.transpose(2, 0, 1)).all()
    assert found["jpeg"].shape == (3, 6, 8)
    assert [each.shape for each in found["many"]] == [(3, 8, 6), (3, 6, 8)]
    assert (np.asarray(found["pil"]) == pixels).all()
    for name in ("png", "pil"):
        assert (shards.images(name)[0] == pixels).all()
    assert Shards(tmp_path, fields={"jpeg": bytes})[0] == {"jpeg": files[1]}


def test_tiff_files_are_arrays_by_tifffile(tmp_path: Path, monkeypatch: Any) -> None:
    make_litdata(tmp_path, {"t": None}, ["tifffile"], [chunk_of([leaves_of([b"no"])])])
    monkeypatch.setitem(__import__("sys").modules, "tifffile", None)
    with pytest.raises(ConfigError, match=r"which tifffile reads, .*pip install tifffile; or pass"):
        Shards(tmp_path)
    assert Shards(tmp_path, fields={"t": bytes})[0] == {"t": b"no"}


@pytest.mark.parametrize(
    "form", ["str", "int", "bool", "json", "numpy", "tensor", "no_header_numpy:2", "jpeg_array"]
)
@given(content=st.binary(max_size=40))
@settings(max_examples=200)
def test_a_damaged_leaf_is_an_error_of_python(form: str, content: bytes) -> None:
    with contextlib.suppress(ArithmeticError, LookupError, OSError, ValueError, struct.error):
        serializer_of(form, "f", False, False)(content)


@given(content=st.binary(max_size=24), kind=st.integers(0, 12))
@settings(max_examples=500)
def test_damaged_nested_values_are_errors_of_python(content: bytes, kind: int) -> None:
    with contextlib.suppress(LookupError, ValueError, struct.error):
        serializer_of("json", "f", False, False)(bytes([kind]) + content)


# -- compression, rows and tokens -----------------------------------------------------------------


@pytest.mark.parametrize("level", ["chunk", "batch", "sample"])
def test_each_level_of_compression_is_read(level: str, tmp_path: Path) -> None:
    samples = [leaves(k) for k in range(10)]
    content = {
        "chunk": lambda: zstd(chunk_of(samples)),
        "batch": lambda: of_batches(samples, 4),
        "sample": lambda: chunk_of(list(map(zstd, samples))),
    }[level]()
    config = {"compression": "zstd:7", "compression_level": level, "count": 10}
    if level == "chunk":
        config |= {"is_packed": True, "nbytes": len(chunk_of(samples))}
    make_litdata(tmp_path, FORM, SERIALIZERS, [content], **config)
    assert all_of(Shards(tmp_path)) == list(map(value, range(10)))
    assert faults(tmp_path) == []
    if level == "chunk":  # LitData decompresses chunks into its folder
        (tmp_path / "chunk-0-0.zstd:7.bin").unlink()
        (tmp_path / "chunk-0-0.bin").write_bytes(chunk_of(samples))
        assert all_of(Shards(tmp_path)) == list(map(value, range(10)))
        assert faults(tmp_path) == []


def faults(folder: Path) -> list[str]:
    """What a check finds wrong with shards."""
    return [text for found in check_shards(folder) for text in found.damage]


@pytest.mark.parametrize("kind", ["trees", "tokens", "rows"])
def test_a_check_compares_sizes_and_counts_with_the_index(kind: str, tmp_path: Path) -> None:
    if kind == "trees":
        make_trees(tmp_path, 3)
    elif kind == "tokens":
        make_tokens(tmp_path, 5, 0, 8)
    else:
        make_litdata(tmp_path, {"s": None, "l": None}, ["str"] * 2, [with_rows(ROWS, None)])
    assert faults(tmp_path) == []
    path = tmp_path / "chunk-0-0.bin"
    nbytes, count = path.stat().st_size, int.from_bytes(path.read_bytes()[:4], "little")
    change(tmp_path, {"chunk_bytes": nbytes - 4 * (count + 2)})  # as early releases count
    assert faults(tmp_path)[:1] == []
    for said in (nbytes - 1, nbytes + 1, 0):
        change(tmp_path, {"chunk_bytes": said})
        found = faults(tmp_path)[0]
        assert f"-0.bin' has {nbytes:,} bytes, and chunk_bytes of index.json is {said:,}: " in found
        assert len(Shards(tmp_path)) > 0
    change(tmp_path, {"chunk_bytes": None})
    assert faults(tmp_path) == []
    change(tmp_path, {"chunk_size": count + 1})
    assert f"and index.json says {count + 1}" in faults(tmp_path)[0]
    change(tmp_path, {"chunk_size": count, "chunk_bytes": "x"})
    with pytest.raises(ConfigError, match=r"index.json' is damaged: its config or a chunk lacks"):
        Shards(tmp_path)


def with_rows(rows: list[dict[str, Any]], codec: str | None, is_file: bool = True) -> bytes:
    pa = pytest.importorskip("pyarrow")
    table, out = pa.Table.from_pylist(rows), io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    new = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with new(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=3)
    content = out.getvalue()
    tail = content + struct.pack("<I", len(content)) + b"LDARW01\0"
    return chunk_of([b""] * len(rows)) + tail


ROWS = [
    {"s": "é" * k, "l": [k, None], "image": {"bytes": bytes([k]), "path": "p"}} for k in range(7)
]


@pytest.mark.parametrize(("codec", "is_file"), [(None, True), ("zstd", True), (None, False)])
def test_rows_of_arrow_are_samples(codec: str | None, is_file: bool, tmp_path: Path) -> None:
    form = {"s": None, "l": None, "image": None}
    make_litdata(tmp_path, form, ["str", "pickle", "json"], [with_rows(ROWS, codec, is_file)])
    shards = Shards(tmp_path)
    assert all_of(shards) == ROWS
    assert shards.__getitems__([6, 0, 0]) == [ROWS[6], ROWS[0], ROWS[0]]
    assert Shards(tmp_path, fields={"image": bytes, "s": None})[2] == {"image": b"\2", "s": "éé"}
    assert shards.origin(3).offset == 4 * 9
    with pytest.raises(DatasetError, match=r"lacks the field 'no': it has s, l, image"):
        Shards(tmp_path, fields={"no": None})[0]
    change(tmp_path, {"chunk_size": 6})
    with pytest.raises(DatasetError, match=r"chunk-0-0.bin' has 7 rows, and index.json says 6"):
        Shards(tmp_path)[0]


def make_tokens(folder: Path, *lengths: int, **config: Any) -> Path:
    tokens = np.arange(sum(lengths), dtype=np.uint16)
    parts = [each.tobytes() for each in np.split(tokens, np.cumsum(lengths)[:-1])]
    config = {"item_loader": "TokensLoader", "dim": sum(lengths), **config}
    return make_litdata(folder, None, ["no_header_numpy:5"], [chunk_of(parts)] * 2, **config)


def test_tokens_come_in_blocks_or_as_they_were_written(tmp_path: Path) -> None:
    make_tokens(tmp_path, 5, 0, 8)
    blocks = Shards(tmp_path, block_size=4)
    assert [each.tolist() for each in all_of(blocks)] == [
        list(range(at, at + 4)) for at in (0, 4, 8, 0, 4, 8)
    ]
    assert blocks[0].dtype == np.uint16
    assert blocks.origin(1).offset == 4 * 5 + 8
    assert [len(each) for each in all_of(Shards(tmp_path))] == [5, 0, 8, 5, 0, 8]
    assert Shards(tmp_path, fields={"0": len}, block_size=13)[1] == {"0": 13}
    with pytest.raises(ConfigError, match=r"the shards have no sample"):
        Shards(tmp_path, block_size=14)
    with pytest.raises(ConfigError, match=r"block_size must be an int of 1 or more, got 0"):
        Shards(tmp_path, block_size=0)
    change(tmp_path, {"dim": 12})
    with pytest.raises(DatasetError, match=r"has 26 bytes of tokens, and 12 tokens have 24"):
        Shards(tmp_path)[0]
    with pytest.raises(ConfigError, match=r"block_size=4 is for chunks that were written for Tok"):
        Shards(make_trees(tmp_path / "trees", 2), block_size=4)
    (tmp_path / "t.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"block_size=4 is for LitData's .* format is 'jsonl'"):
        Shards(tmp_path / "t.jsonl", block_size=4)


CONTENTS = {
    "trees": lambda: chunk_of([leaves(k) for k in range(3)]),
    "batch": lambda: of_batches([leaves(k) for k in range(3)], 2),
    "sample": lambda: chunk_of([zstd(leaves(k)) for k in range(3)]),
    "chunk": lambda: zstd(chunk_of([leaves(k) for k in range(3)])),
    "rows": lambda: with_rows(ROWS[:3], None),
    "packed rows": lambda: with_rows(ROWS[:3], "zstd"),
    "tokens": lambda: chunk_of([b"ab", b"cdef", b""]),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_damaged_chunk_is_told_or_has_samples_of_the_same_form(kind: str, tmp_path: Path) -> None:
    content = CONTENTS[kind]()
    config: dict[str, Any] = {"count": 3}
    form, serializers = (None, ["no_header_numpy:5"]) if kind == "tokens" else (FORM, SERIALIZERS)
    if kind == "tokens":
        config["dim"] = 3
    elif kind in ("batch", "sample", "chunk"):
        config |= {"compression": "zstd", "compression_level": kind, "is_packed": kind == "chunk"}
    make_litdata(tmp_path, form, serializers, [content], **config)
    (path,) = tmp_path.glob("chunk*")
    whole = all_of(Shards(tmp_path))
    for at in range(0, len(content), 4 if "rows" in kind else 1):
        damaged = bytearray(content)
        damaged[at] ^= 0x80 if "rows" in kind else 0x41  # of a name, it is no text any more
        path.write_bytes(damaged)
        found = told_or_read(tmp_path, None, "chunk-0-0.")
        if found is not None:
            assert list(map(type, found)) == list(map(type, whole))
    for length in range(0, len(content), 23 if "rows" in kind else 1):
        path.write_bytes(content[:length])
        with pytest.raises(DatasetError, match=r"chunk-0-0\."):
            all_of(Shards(tmp_path))
