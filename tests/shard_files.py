"""Files of shards that tests make: by the standard library, and by the formats' own words."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

with contextlib.suppress(ImportError):
    import pyarrow.parquet  # noqa: F401  # pyarrow 14 opens files then, and keeps them

__all__ = [
    "chunk_of",
    "crc32c",
    "example",
    "leaves_of",
    "make_litdata",
    "make_mds",
    "make_tar",
    "make_tfrecord",
    "record",
    "tree",
]


def make_tar(
    path: Path, members: Iterable[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT
) -> Path:
    """Write a tar file of some members."""
    with tarfile.open(path, "w", format=form) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def make_mds(
    folder: Path,
    columns: Mapping[str, tuple[str, int | None]],
    shards: Sequence[Sequence[Mapping[str, bytes]]],
) -> Path:
    """Write shards of MDS of samples whose columns are encoded.

    Args:
        folder: for them.
        columns: encoding, and bytes of each value or None, by name.
        shards: the samples of each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(columns)
    index = []
    for number, samples in enumerate(shards):
        rows = [_sample(sample, columns, names) for sample in samples]
        said: dict[str, Any] = {
            "version": 2,
            "format": "mds",
            "column_names": names,
            "column_encodings": [columns[name][0] for name in names],
            "column_sizes": [columns[name][1] for name in names],
            "compression": None,
            "hashes": [],
            "size_limit": 1 << 26,
        }
        description = json.dumps(said).encode()
        begin = 4 * (len(rows) + 2) + len(description)
        places = begin + np.cumsum([0, *map(len, rows)])
        head = np.array([len(rows), *places], "<u4").tobytes()
        content = head + description + b"".join(rows)
        name = f"shard.{number:05d}.mds"
        (folder / name).write_bytes(content)
        data = {"basename": name, "bytes": len(content), "hashes": {}}
        index.append({**said, "samples": len(rows), "raw_data": data, "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": index}))
    return folder


def _sample(
    sample: Mapping[str, bytes], columns: Mapping[str, tuple[str, int | None]], names: list[str]
) -> bytes:
    sizes = [len(sample[name]) for name in names if columns[name][1] is None]
    return np.array(sizes, "<u4").tobytes() + b"".join(sample[name] for name in names)


def tree(kind: Any) -> dict[str, Any]:
    """Return the description of a tree, as torch has it, of a value whose leaves are None."""
    if kind is None:
        return {"type": None, "context": None, "children_spec": []}
    parts = list(kind.values()) if isinstance(kind, dict) else list(kind)
    context = list(kind) if isinstance(kind, dict) else None
    return {
        "type": f"builtins.{type(kind).__name__}",
        "context": json.dumps(context),
        "children_spec": list(map(tree, parts)),
    }


def leaves_of(leaves: Sequence[bytes]) -> bytes:
    """Return a sample of LitData: the sizes of its leaves, and they."""
    return np.array(list(map(len, leaves)), "<u4").tobytes() + b"".join(leaves)


def chunk_of(samples: Sequence[bytes]) -> bytes:
    """Return a chunk of LitData."""
    places = 4 * (len(samples) + 2) + np.cumsum([0, *map(len, samples)])
    return np.array([len(samples), *places], "<u4").tobytes() + b"".join(samples)


def make_litdata(
    folder: Path, form: Any, serializers: Sequence[str], chunks: Sequence[bytes], **config: Any
) -> Path:
    """Write chunks of LitData; of tokens `dim` of the config says how many each has.

    Args:
        folder: for them.
        form: a value whose leaves are None, as the samples are trees.
        serializers: of the leaves.
        chunks: the content of each.
        config: what else index.json says. "nbytes" is that of each chunk before it is compressed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dim, nbytes = config.pop("dim", None), config.pop("nbytes", None)
    said = []
    for number, content in enumerate(chunks):
        packed = f"{config['compression']}." if "compression" in config else ""
        name = f"chunk-0-{number}.{packed if config.get('is_packed') else ''}bin"
        (folder / name).write_bytes(content)
        count = config.get("count") or int.from_bytes(content[:4], "little")
        sizes = {"chunk_bytes": nbytes or len(content), "chunk_size": count}
        said.append({**sizes, "dim": dim, "filename": name})
    config = {
        "data_format": list(serializers),
        "data_spec": json.dumps([1, tree(form)]),
        **config,
    }
    (folder / "index.json").write_text(json.dumps({"chunks": said, "config": config}))
    return folder


def crc32c(content: bytes) -> int:
    """Return the sum of Castagnoli, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def record(content: bytes) -> bytes:
    """Return a record of TFRecord."""
    length = struct.pack("<Q", len(content))
    return length + _masked(length) + content + _masked(content)


def _masked(content: bytes) -> bytes:
    crc = crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def make_tfrecord(path: Path, examples: Iterable[bytes]) -> Path:
    """Write a TFRecord file."""
    path.write_bytes(b"".join(map(record, examples)))
    return path


def example(features: Mapping[str, Sequence[Any]], packed: bool = True) -> bytes:
    """Return a tf.train.Example: of bytes, floats or whole numbers, by name."""
    return _field(1, b"".join(_entry(*each, packed) for each in features.items()))


def _entry(name: str, values: Sequence[Any], packed: bool) -> bytes:
    if not len(values):
        return _field(1, _field(1, name.encode()) + _field(2, b""))
    if isinstance(values[0], bytes):
        kind, inner = 1, b"".join(_field(1, value) for value in values)
    elif isinstance(values[0], float):
        kind = 2
        plain = [struct.pack("<f", value) for value in values]
        inner = _field(1, b"".join(plain)) if packed else b"".join(b"\x0d" + each for each in plain)
    else:
        kind = 3
        plain = [_varint(value % (1 << 64)) for value in values]
        inner = _field(1, b"".join(plain)) if packed else b"".join(b"\x08" + each for each in plain)
    return _field(1, _field(1, name.encode()) + _field(2, _field(kind, inner)))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
