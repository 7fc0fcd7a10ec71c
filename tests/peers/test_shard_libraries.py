"""Shards that the libraries themselves wrote have the samples that they read from them.

Runs where these are installed: `make shard-libraries`.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import shutil
import sys
import types
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from reader import ConfigError, DataLoader, Shards, write_shards
from reader.shards.check_shards import check_shards
from tests.unit.test_shard_formats import told_or_read


def installed(name: str) -> Any:
    """Return a library; skip where it is not installed."""
    return pytest.importorskip(name, reason="make shard-libraries")


class _StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


def assert_whole(folder: Path) -> None:
    """Sums and sizes that a library wrote are found right, and none is left out."""
    for found in check_shards(folder, allow_pickle=True):
        assert (found.damage, list(found.uncompared)) == ([], [])


def with_stand_ins(library: str, *missing: str) -> Any:
    """Return a library. What it imports and reading and writing do not need are stand-ins."""
    named = list(missing)
    while True:
        for name in named:
            sys.modules.setdefault(name, _StandIn(name)).__dict__.setdefault("__path__", [])
        try:
            return importlib.import_module(library)
        except ModuleNotFoundError as error:
            if error.name in (None, library, *named):
                pytest.skip(f"{library} is not installed: make shard-libraries")
            named.append(str(error.name))
            ours = [each for each in sys.modules if f"{each}.".startswith(f"{library}.")]
            for name in set(ours) - set(named):
                del sys.modules[name]


def streaming() -> Any:
    """Return Streaming."""
    installed("catalogue")
    return with_stand_ins("streaming", "streaming.vision", "streaming.text", "streaming.multimodal")


def read_by_streaming(folder: Path, compression: str | None, whole: Path) -> list[Any]:
    """Return what Streaming's readers of shards read; of compressed ones `whole` is made."""
    reader_of = importlib.import_module("streaming.base.format").reader_from_json
    unpack = importlib.import_module("streaming.base.compression").decompress
    found: list[Any] = []
    for shard in json.loads((folder / "index.json").read_text())["shards"]:
        theirs = reader_of(str(folder), "", shard)
        if compression:
            whole.mkdir(exist_ok=True)
            packed = (folder / shard["zip_data"]["basename"]).read_bytes()
            (whole / shard["raw_data"]["basename"]).write_bytes(unpack(compression, packed))
            theirs.dirname = str(whole)
        found += [theirs[k] for k in range(shard["samples"])]
    return found


def comparable(value: Any) -> Any:
    """Return a value as one that `==` compares whole."""
    if hasattr(value, "tobytes") and hasattr(value, "mode"):  # an image of Pillow
        return value.mode, value.size, value.tobytes()
    if isinstance(value, memoryview):  # of LitData
        value = bytes(value)
    if hasattr(value, "numpy"):  # of torch
        value = value.numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [comparable(each) for each in value]
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    return type(value).__name__, value


# -- MosaicML Streaming ---------------------------------------------------------------------------

SCALARS = (
    *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64"),
)
COLUMNS = {
    **{name: name for name in (*SCALARS, "str_int", "str_float", "str_decimal", "json", "pkl")},
    **{name: name for name in ("bytes", "str", "int", "pil", "jpeg", "png", "jpeg_array")},
    "pils": "list[pil]",
    "jpegs": "list[jpeg]",
    "pngs": "list[png]",
    "any": "ndarray",
    "typed": "ndarray:int16",
    "shaped": "ndarray:float32:2,3",
}


def mds_sample(k: int, rng: np.random.Generator) -> dict[str, Any]:
    from PIL import Image

    def image(mode: str = "RGB") -> Any:
        pixels = rng.integers(0, 255, (5 + k % 3, 7, 3), dtype=np.uint8)
        return Image.fromarray(pixels).convert(mode)

    def jpeg() -> bytes:
        file = io.BytesIO()
        image().save(file, "JPEG")
        return file.getvalue()

    kind = (np.uint8, np.int64, np.float16)[k % 3]
    return {
        **{name: k / 7 if name.startswith("f") else k % 100 for name in SCALARS},
        "str_int": 10**30 + k,
        "str_float": k / 3,
        "str_decimal": Decimal("1.10"),
        "json": {"a": [k, None]},
        "pkl": {1, k},
        "bytes": os.urandom(k % 7),
        "str": "é" * (k % 5),
        "int": -k,
        "pil": image("RGBA" if k % 2 else "L"),
        "jpeg": image(),
        "png": image("LA"),
        "jpeg_array": [jpeg() for _ in range(k % 3 + 1)],
        "pils": [image(), image("1")],
        "jpegs": [image()] * (k % 3),
        "pngs": [],
        "any": rng.integers(0, 9, (k % 3 + 1, 300 if k % 2 else 2)).astype(kind),
        "typed": rng.integers(0, 9, k % 4 + 1).astype(np.int16),
        "shaped": rng.random((2, 3)).astype(np.float32),
    }


@pytest.mark.parametrize("compression", [None, "zstd", "zstd:7", "gz", "br", "bz2", "snappy"])
def test_every_encoding_of_mds_is_read_as_by_streaming(
    compression: str | None, tmp_path: Path
) -> None:
    library = streaming()
    rng = np.random.default_rng(0)
    writer = library.MDSWriter(
        columns=COLUMNS,
        out=str(tmp_path / "data"),
        compression=compression,
        hashes=["sha1", "xxh64"],
        size_limit=1 << 14,
    )
    with writer:
        for k in range(40):
            writer.write(mds_sample(k, rng))
    found = Shards(tmp_path / "data", allow_pickle=True)
    assert len(found) == 40
    assert_whole(tmp_path / "data")
    expected = read_by_streaming(tmp_path / "data", compression, tmp_path / "whole")
    for one, other in zip(expected, found.__getitems__(range(40)), strict=True):
        assert list(one) == list(other)
        assert comparable(one) == comparable(other)


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("kind", ["JSON", "CSV", "TSV", "XSV"])
def test_texts_of_streaming_are_read(kind: str, compression: str | None, tmp_path: Path) -> None:
    library = streaming()
    options = {"separator": "||"} if kind == "XSV" else {}
    rows = [{"a": "x y" * (k % 4), "b": k, "c": k / 3} for k in range(50)]
    with getattr(library, f"{kind}Writer")(
        columns={"a": "str", "b": "int", "c": "float"},
        out=str(tmp_path / "data"),
        compression=compression,
        size_limit=300,
        **options,
    ) as writer:
        for row in rows:
            writer.write(row)
    assert Shards(tmp_path / "data").__getitems__(range(50)) == rows


@pytest.mark.parametrize("compression", [None, "zstd", "gz"])
def test_streaming_reads_the_mds_that_we_write(compression: str | None, tmp_path: Path) -> None:
    streaming()
    columns = {name: COLUMNS[name] for name in COLUMNS if name != "pkl"}
    rng = np.random.default_rng(0)
    samples = [mds_sample(k, rng) for k in range(40)]
    written = [{name: sample[name] for name in columns} for sample in samples]
    options: dict[str, Any] = {"shard_size": 1 << 12, "compression": compression}
    write_shards(written, tmp_path / "data", "mds", columns=columns, **options)
    found = read_by_streaming(tmp_path / "data", compression, tmp_path / "whole")
    ours = Shards(tmp_path / "data").__getitems__(range(40))
    assert comparable(found) == comparable(ours)
    assert len(list((tmp_path / "data").glob("shard.*"))) > 1
    for one, other in zip(found, written, strict=True):
        for name in ("str", "json", "int", "bytes", "uint64", "str_decimal"):
            assert one[name] == other[name]
        assert np.array_equal(one["any"], other["any"])


# -- LitData ---------------------------------------------------------------------------------------


def litdata_of(folder: Path, samples: list[Any], **options: Any) -> list[Any]:
    """Write samples by LitData into "data", and return those that it reads of a copy."""
    library = with_stand_ins("litdata")
    writer = importlib.import_module("litdata.streaming.writer").BinaryWriter(
        str(folder / "data"), **{"chunk_size": 16, **options}
    )
    for number, sample in enumerate(samples):
        writer[number] = sample
    writer.done()
    writer.merge()
    loader = {"item_loader": options["item_loader"]} if "item_loader" in options else {}
    shutil.copytree(folder / "data", folder / "read")
    found = library.StreamingDataset(str(folder / "read"), **loader)
    return [found[number] for number in range(len(found))]


def tree_of(k: int, rng: np.random.Generator) -> dict[str, Any]:
    torch = installed("torch")
    of = importlib.import_module("litdata.types")

    names = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    arrays = {
        name: rng.integers(0, 99, (k % 3 + 1, k % 4)).astype(name)
        for name in (*names, "float16", "float32", "float64", "complex64", "complex128", "bool")
    }
    tensors = [torch.from_numpy(arrays[name]) for name in ("int8", "int64", "uint16", "bool")]
    tensors += [each.to(torch.float16) for each in tensors]
    return {
        "scalars": (k, k / 7, k % 2 == 0, "é" * (k % 5), os.urandom(k % 7)),
        "pair": (np.arange(k % 4), {"t": torch.arange(k % 4 + 1) / 3, 7: (k,)}),
        "arrays": arrays,
        "rows": [each[0] for each in arrays.values()],
        "tensors": tensors,
        "columns": [each.ravel() for each in tensors],
        "set": {1, k},
        "text": of.Text(text="t" * k),
        "file": of.File(bytes=os.urandom(k), path="x.bin"),
    }


LEVELS = [None, "zstd:7 chunk", "zstd batch", "zstd:3 sample"]


@pytest.mark.parametrize("level", LEVELS)
def test_trees_of_litdata_are_read_as_by_it(level: str | None, tmp_path: Path) -> None:
    with_stand_ins("litdata")
    rng = np.random.default_rng(0)
    compression, wrap = level.split() if level else (None, None)
    options: dict[str, Any] = {"compression": compression, "compression_level": wrap}
    if wrap == "batch":
        options["compression_batch_size"] = 5
    expected = litdata_of(tmp_path, [tree_of(k, rng) for k in range(40)], **options)
    assert bool(list(tmp_path.glob("data/*.zstd:7.bin"))) == (wrap == "chunk")
    for folder in ("data", "read"):  # LitData decompresses chunks where it reads them
        found = Shards(tmp_path / folder, allow_pickle=True)
        assert found.format == "litdata"
        assert len(found) == len(expected) == 40
        for one, other in zip(expected, found.__getitems__(range(40)), strict=True):
            assert comparable(one) == comparable(other)
        assert_whole(tmp_path / folder)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_rows_of_litdata_are_read_as_by_it(compression: str | None, tmp_path: Path) -> None:
    rows: list[Any] = [
        {"text": "é" * k, "n": [k, 2], "d": {"a": [{"x": k / 3}] * (k % 3)}, "b": bytes([k])}
        for k in range(40)
    ]
    rows[3] = {**rows[3], "more": "late"}
    expected = litdata_of(tmp_path, rows, compression=compression)
    assert b"ARROW1" in next(tmp_path.glob("data/*.bin")).read_bytes()
    found = Shards(tmp_path / "data")
    assert found.__getitems__(range(40)) == expected
    assert found[3]["more"] == "late"
    assert_whole(tmp_path / "data")
    assert Shards(tmp_path / "data", fields={"text": None})[2] == {"text": "éé"}


@pytest.mark.parametrize("rich", [False, True])
def test_nested_values_of_litdata_are_read_as_by_it(rich: bool, tmp_path: Path) -> None:
    """A tensor beside them keeps the samples from being rows."""
    torch = installed("torch")
    with_stand_ins("litdata")
    values: list[Any] = [
        ["é", ""],
        [1, -(2**62)],
        [0.5],
        [True, False],
        [],
        [{"a": None, "b": 1}, {"a": "x", "b": 0.5}, {"a": True, "b": -1}],
        [[1], {"k": [None]}],
        [2**70],
    ]
    if rich:
        values = [{"in": value, "none": None, "s": "é", "f": 0.1, "i": 7} for value in values]
    samples = [{"t": torch.zeros(2), "v": [value, "x"]} for value in values]
    expected = litdata_of(tmp_path, samples)
    index = json.loads((tmp_path / "data" / "index.json").read_text())
    assert "json" in index["config"]["data_format"]
    found = Shards(tmp_path / "data")
    for one, other in zip(expected, found.__getitems__(range(len(values))), strict=True):
        assert comparable(one) == comparable(other)


def test_images_of_litdata_have_its_pixels(tmp_path: Path) -> None:
    """Each JPEG has Exif, so that LitData reads it by Pillow, and not by torchvision."""
    from PIL import Image

    with_stand_ins("litdata")
    of = importlib.import_module("litdata.types")

    rng = np.random.default_rng(0)

    def jpeg(turned: int) -> bytes:
        exif, out = Image.Exif(), io.BytesIO()
        exif[0x0112] = turned
        pixels = rng.integers(0, 255, (12, 17, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((33, 41)).save(out, "JPEG", exif=exif)
        return out.getvalue()

    samples = [
        {
            "jpeg": of.Jpeg(bytes=jpeg(k + 1)),
            "image": of.Image(bytes=jpeg(1), path="x.jpeg"),
            "many": of.JpegArray(images=[of.Jpeg(bytes=jpeg(1))] * (k % 3 + 1)),
            "pil": Image.open(io.BytesIO(jpeg(1))).convert("L"),
        }
        for k in range(8)
    ]
    expected = litdata_of(tmp_path, samples)
    found = Shards(tmp_path / "data").__getitems__(range(8))
    for one, other in zip(expected, found, strict=True):
        assert comparable(one) == comparable(other)


def test_tiff_files_of_litdata_are_its_arrays(tmp_path: Path) -> None:
    tifffile = installed("tifffile")
    with_stand_ins("litdata")
    paths = []
    for k in range(5):
        path = tmp_path / f"{k}.tiff"
        tifffile.imwrite(path, np.full((3, 4, 5), k, np.uint16))
        paths.append(str(path))
    expected = litdata_of(tmp_path, [{"t": path, "k": 1} for path in paths])
    found = Shards(tmp_path / "data").__getitems__(range(5))
    for one, other in zip(expected, found, strict=True):
        assert comparable(one) == comparable(other)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_tokens_of_litdata_come_in_its_blocks(kind: str, tmp_path: Path) -> None:
    torch = installed("torch")
    with_stand_ins("litdata")
    loader = importlib.import_module("litdata.streaming.item_loader").TokensLoader
    tokens = [np.arange(k, k + 50 + k, dtype=np.int32) for k in range(20)]
    written = list(map(torch.from_numpy, tokens)) if kind == "torch" else tokens
    expected = litdata_of(
        tmp_path, written, chunk_size=None, chunk_bytes=1000, item_loader=loader(block_size=32)
    )
    found = Shards(tmp_path / "data", block_size=32)
    assert len(expected) == len(found) > 30
    for one, other in zip(expected, found.__getitems__(range(len(found))), strict=True):
        assert comparable(one) == comparable(other)
    whole = Shards(tmp_path / "data")
    assert [whole[k].tolist() for k in range(20)] == [each.tolist() for each in tokens]
    assert_whole(tmp_path / "data")


# -- WebDataset -----------------------------------------------------------------------------------


def test_tar_files_of_webdataset_have_its_samples(tmp_path: Path) -> None:
    library = installed("webdataset")
    rng = np.random.default_rng(0)
    with library.ShardWriter(f"{tmp_path}/t-%04d.tar", maxcount=25, verbose=0) as writer:
        for k in range(60):
            sample = {"txt": "x é" * k, "cls": k, "json": {"a": k}, "npy": rng.random((3, k % 4))}
            sample |= {"pyd": [1, 2], "seg.bin": os.urandom(k), "__key__": f"dir/{k:05d}"}
            writer.write(sample)
    expected = [
        {name: value for name, value in sample.items() if name not in ("__url__", "__local_path__")}
        for sample in library.WebDataset(f"{tmp_path}/t-{{0000..0002}}.tar", shardshuffle=False)
    ]
    found = Shards(f"{tmp_path}/t-{{0000..0002}}.tar")
    assert found.__getitems__(range(60)) == expected
    assert len(expected) == len(found)
    with library.TarWriter(f"{tmp_path}/z.tar.gz") as writer:
        for k in range(5):
            writer.write({"__key__": str(k), "pickle": [k]})
    zipped = Shards(tmp_path / "z.tar.gz", fields={"pickle": pickle.loads})
    assert [zipped[k] for k in range(5)] == [{"pickle": [k]} for k in range(5)]


@pytest.mark.parametrize("compression", [None, "gz"])
def test_webdataset_reads_the_tar_files_that_we_write(
    compression: str | None, tmp_path: Path
) -> None:
    library = installed("webdataset")
    rng = np.random.default_rng(0)
    written: list[dict[str, Any]] = [
        {"txt": "x é" * k, "cls": k, "json": {"a": [k, None]}, "npy": rng.random((3, k % 4))}
        | {"seg.bin": os.urandom(k), "__key__": f"{'long/' * 30}{k:05d}"}
        for k in range(60)
    ]
    options: dict[str, Any] = {"shard_size": 1 << 14, "compression": compression}
    write_shards(written, tmp_path / "data", "tar", **options)
    paths = sorted(map(str, (tmp_path / "data").glob("*.tar*")))
    found = list(library.WebDataset(paths, shardshuffle=False, empty_check=False).decode())
    assert len(paths) > 1
    for one, other in zip(found, written, strict=True):
        assert {name for name in one if not name.startswith("__")} == other.keys() - {"__key__"}
        for name in ("txt", "cls", "json", "seg.bin", "__key__"):
            assert one[name] == other[name]
        assert np.array_equal(one["npy"], other["npy"])


# -- TFRecord -------------------------------------------------------------------------------------


def test_tfrecord_reads_the_records_that_we_write(tmp_path: Path) -> None:
    installed("tfrecord")
    read = importlib.import_module("tfrecord.reader").tfrecord_loader
    rng = np.random.default_rng(0)
    written: list[dict[str, Any]] = [
        {"image": os.urandom(k * 10), "label": k - 5, "many": [k, 2**40, -1]}
        | {"f": rng.random(k % 4 + 2).astype(np.float32)}
        for k in range(30)
    ]
    write_shards(written, tmp_path / "data", "tfrecord", shard_size=1 << 11)
    paths = sorted((tmp_path / "data").glob("*.tfrecord"))
    assert len(paths) > 1
    found = [each for path in paths for each in read(str(path), None)]
    for one, other in zip(found, written, strict=True):
        assert one.keys() == other.keys()
        assert bytes(one["image"]) == other["image"]
        for name in ("label", "many", "f"):
            assert np.array_equal(np.ravel(one[name]), np.ravel(other[name]))


def test_tfrecords_have_the_features_of_their_library(tmp_path: Path) -> None:
    installed("tfrecord")
    write = importlib.import_module("tfrecord.writer").TFRecordWriter
    read = importlib.import_module("tfrecord.reader").tfrecord_loader
    rng = np.random.default_rng(0)
    path = tmp_path / "a.tfrecord"
    writer = write(str(path))
    for k in range(30):
        features = {"image": (os.urandom(k * 10), "byte"), "label": (k - 5, "int")}
        features |= {"many": ([k, 2**40, -1], "int")}
        features |= {"f": (rng.random(k % 4).astype(np.float32), "float")}
        writer.write(features)
    writer.close()
    found = Shards(path)
    for one, other in zip(read(str(path), None), found.__getitems__(range(30)), strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            if name == "image":
                assert [bytes(value)] == other[name]
            else:
                assert np.ravel(value).tolist() == np.asarray(other[name], value.dtype).tolist()


# -- ArrayRecord ----------------------------------------------------------------------------------


def array_record_of(path: Path, records: list[bytes], options: str) -> Path:
    installed("array_record")
    write = importlib.import_module("array_record.python.array_record_module").ArrayRecordWriter
    writer = write(str(path), options)
    for each in records:
        writer.write(each)
    writer.close()
    return path


@pytest.mark.parametrize("options", ["group_size:1", "group_size:8,uncompressed", "group_size:4"])
def test_array_records_have_their_bytes_by_position(options: str, tmp_path: Path) -> None:
    records = [os.urandom(k % 50) + b"x" * k for k in range(200)]
    array_record_of(tmp_path / "train.array_record-00000-of-00002", records[:150], options)
    array_record_of(tmp_path / "train.array_record-00001-of-00002", records[150:], options)
    found = Shards(tmp_path)
    assert (len(found), found.format) == (200, "array_record")
    assert found.__getitems__(range(200)) == records
    assert found.__getitems__([199, 3, 150, 3]) == [records[k] for k in (199, 3, 150, 3)]
    assert found.origin(151).position == 1
    sizes = Shards(tmp_path, fields={"bytes": len})
    assert pickle.loads(pickle.dumps(sizes))[170] == {"bytes": len(records[170])}
    with DataLoader(found, batch_size=7, num_workers=2, collate_fn=list) as loader:
        assert [each for batch in loader for each in batch] == records


def test_a_damaged_array_record_is_told_or_has_its_records(tmp_path: Path) -> None:
    records = [b"record %d" % k * (k % 5) for k in range(40)]
    path = array_record_of(tmp_path / "t.array_record", records, "group_size:1")
    content = path.read_bytes()
    used = [at for at, byte in enumerate(content) if byte]
    for at in [*used[::11], 64, 30_000, 66_000]:
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])
        assert told_or_read(path, tmp_path / "kept", "t.array_record") in (None, records)
    for length in [*range(0, len(content), 3001), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ConfigError, match=r"t.array_record"):
            Shards(path)
