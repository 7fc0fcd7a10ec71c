"""Shards that the libraries themselves wrote have the samples that they read from them.

Runs where these are installed: `make shard-libraries`.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import sys
import types
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from reader import Shards


def installed(name: str) -> Any:
    """Return a library; skip where it is not installed."""
    return pytest.importorskip(name, reason="make shard-libraries")


class _StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


def streaming() -> Any:
    """Return Streaming. What it imports and writing does not need are stand-ins."""
    installed("catalogue")
    missing = ["streaming.vision", "streaming.text", "streaming.multimodal"]
    while True:
        for name in missing:
            sys.modules.setdefault(name, _StandIn(name)).__dict__.setdefault("__path__", [])
        try:
            return importlib.import_module("streaming")
        except ModuleNotFoundError as error:
            if error.name in (None, "streaming", *missing):
                pytest.skip("Streaming is not installed: make shard-libraries")
            missing.append(str(error.name))
            for name in [each for each in sys.modules if each.startswith("streaming.base")]:
                del sys.modules[name]
            sys.modules.pop("streaming", None)


def comparable(value: Any) -> Any:
    """Return a value as one that `==` compares whole."""
    if hasattr(value, "tobytes") and hasattr(value, "mode"):  # an image of Pillow
        return value.mode, value.size, value.tobytes()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, list):
        return [comparable(each) for each in value]
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
    reader_of = importlib.import_module("streaming.base.format").reader_from_json
    unpack = importlib.import_module("streaming.base.compression").decompress
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
    expected = []
    for shard in json.loads((tmp_path / "data" / "index.json").read_text())["shards"]:
        theirs = reader_of(str(tmp_path / "data"), "", shard)
        if compression:
            packed = (tmp_path / "data" / shard["zip_data"]["basename"]).read_bytes()
            (tmp_path / shard["raw_data"]["basename"]).write_bytes(unpack(compression, packed))
            theirs.dirname = str(tmp_path)
        expected += [theirs[k] for k in range(shard["samples"])]
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


# -- TFRecord -------------------------------------------------------------------------------------


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
