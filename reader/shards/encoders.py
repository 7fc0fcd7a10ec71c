"""From samples to the bytes of shards: what each format writes, as its file in formats/ reads it.

Imports NumPy and the standard library; pyarrow and Pillow where a format or a value needs them. An
Encoder never changes once it has seen its first sample, and can be pickled: workers encode.
"""

from __future__ import annotations

import abc
import io
import json
import pickle
import tarfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from reader.errors import ConfigError, ConfigTypeError, got
from reader.shards.formats.mds_encodings import encoder_of, encoding_for, size_of
from reader.shards.formats.tfrecord import record_of

__all__ = ["ENCODERS", "Encoder", "encoder_for"]

_KEY = "__key__"
_TAR_END = bytes(1024)


class Encoder(abc.ABC):
    """Makes records of samples, and shards of records.

    Attributes:
        suffix: of the names of shards.
    """

    suffix = ""

    def look_at(self, sample: Any) -> None:  # noqa: B027  # most formats need no columns
        """See the first sample, which may say what the columns are."""

    @abc.abstractmethod
    def record(self, sample: Any, index: int) -> bytes:
        """Return what a shard holds of a sample. Raises of many types: it cannot be encoded."""

    def nbytes(self, record: bytes) -> int:
        """Return how many bytes a record takes in its shard."""
        return len(record)

    def shard(self, records: list[bytes]) -> bytes:
        """Return the content of a shard."""
        return b"".join(records)

    def said(self) -> dict[str, Any]:
        """Return what an index.json says of each shard; nothing where the format has none."""
        return {}


def _fields(sample: Any) -> Mapping[str, Any]:
    if not isinstance(sample, Mapping) or not all(isinstance(name, str) for name in sample):
        raise ConfigTypeError(
            f"a sample must be a dict with names for keys, got {got(sample)}: pass"
            ' dataset.map(lambda sample: {"image": sample[0], "label": sample[1]})'
        )
    return sample


class TarEncoder(Encoder):
    """Writes tar files as WebDataset does: a member for each field, the name its extension."""

    suffix = ".tar"

    def record(self, sample: Any, index: int) -> bytes:
        """See Encoder."""
        fields = _fields(sample)
        key = str(fields.get(_KEY, f"{index:09d}"))
        if not key or "." in key.rpartition("/")[2] or "\0" in key:
            raise ConfigError(f"__key__ must be a path whose last part has no dot, got {got(key)}")
        parts = []
        for name, value in fields.items():
            if name == _KEY:
                continue
            if not name or "/" in name or "\0" in name or name != name.lower():
                raise ConfigError(
                    "a field of a tar file is an extension in small letters, such as 'jpg', got"
                    f" {got(name)}"
                )
            content = _member(name, value)
            member = tarfile.TarInfo(f"{key}.{name}")
            member.size = len(content)
            padding = -len(content) % tarfile.BLOCKSIZE
            parts += [member.tobuf(tarfile.PAX_FORMAT), content, bytes(padding)]
        if not parts:
            raise ConfigError("a sample of a tar file needs a field beside its key")
        return b"".join(parts)

    def shard(self, records: list[bytes]) -> bytes:
        """See Encoder."""
        return b"".join([*records, _TAR_END])


def _member(name: str, value: Any) -> bytes:
    """Return the bytes of a member of a tar file."""
    kind = name.rpartition(".")[2]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if kind == "json":
        return json.dumps(value).encode()
    if kind == "npy" or isinstance(value, np.ndarray):
        if kind != "npy":
            raise ConfigError(f"the array of field {name!r} needs the extension 'npy', or bytes")
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        return file.getvalue()
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return str(value.item() if isinstance(value, np.generic) else value).encode()
    if hasattr(value, "save") and hasattr(value, "mode"):  # an image of Pillow
        file = io.BytesIO()
        value.save(file, {"jpg": "JPEG"}.get(kind, kind.upper()))
        return file.getvalue()
    raise ConfigTypeError(
        f"the field {name!r} of a tar file must be bytes, text, a number, an array named 'npy',"
        f" what JSON holds named 'json', or an image of Pillow, got {got(value)}"
    )


class MdsEncoder(Encoder):
    """Writes MDS.

    Args:
        columns: the encoding of each column by name; None: what the first sample has.
    """

    suffix = ".mds"

    def __init__(self, columns: Mapping[str, str] | None) -> None:
        self._encodings = None if columns is None else dict(sorted(columns.items()))
        self._columns: list[tuple[str, str, Callable[[Any], bytes], int | None]] = []

    def look_at(self, sample: Any) -> None:
        """See Encoder."""
        if self._encodings is None:
            fields = _fields(sample)
            self._encodings = {name: encoding_for(name, fields[name]) for name in sorted(fields)}
        self._columns = [
            (name, encoding, encoder_of(encoding, name), size_of(encoding))
            for name, encoding in self._encodings.items()
        ]

    def record(self, sample: Any, index: int) -> bytes:  # noqa: ARG002
        """See Encoder."""
        fields, names = _fields(sample), [name for name, _, _, _ in self._columns]
        if sorted(fields) != names:
            raise ConfigError(
                f"a sample has the fields {sorted(fields)}, and the columns are {names}"
            )
        sizes, parts = [], []
        for name, encoding, encode, size in self._columns:
            part = encode(fields[name])
            if size is None:
                sizes.append(len(part))
            elif size != len(part):
                raise ConfigError(
                    f"the field {name!r} has {len(part)} bytes, and values of {encoding!r} have"
                    f" {size}"
                )
            parts.append(part)
        return b"".join([np.array(sizes, "<u4").tobytes(), *parts])

    def nbytes(self, record: bytes) -> int:
        """See Encoder."""
        return len(record) + 4

    def shard(self, records: list[bytes]) -> bytes:
        """See Encoder."""
        description = json.dumps(self.said(), sort_keys=True).encode()
        begin = 4 * (len(records) + 2) + len(description)
        places = np.cumsum([begin, *map(len, records)])
        head = np.array([len(records), *places], "<u4").tobytes()
        return b"".join([head, description, *records])

    def said(self) -> dict[str, Any]:
        """See Encoder."""
        encodings = self._encodings or {}
        return {
            "version": 2,
            "format": "mds",
            "column_names": list(encodings),
            "column_encodings": list(encodings.values()),
            "column_sizes": [size_of(each) for each in encodings.values()],
            "size_limit": None,
            "hashes": ["sha256"],
        }


class TfRecordEncoder(Encoder):
    """Writes TFRecord files of tf.train.Example."""

    suffix = ".tfrecord"

    def record(self, sample: Any, index: int) -> bytes:  # noqa: ARG002
        """See Encoder."""
        return record_of(_fields(sample))


class JsonLinesEncoder(Encoder):
    """Writes JSON lines."""

    suffix = ".jsonl"

    def record(self, sample: Any, index: int) -> bytes:  # noqa: ARG002
        """See Encoder."""
        return json.dumps(sample, ensure_ascii=False).encode() + b"\n"


class ParquetEncoder(Encoder):
    """Writes Parquet, of which each shard is a row group.

    Args:
        compression: of its columns; None: snappy, as pyarrow's.
    """

    suffix = ".parquet"

    def __init__(self, compression: str | None) -> None:
        self._compression = compression
        self._schema: Any = None

    def look_at(self, sample: Any) -> None:
        """See Encoder."""
        import pyarrow as pa

        row = {name: _plain(value) for name, value in _fields(sample).items()}
        self._schema = pa.Table.from_pylist([row]).schema

    def record(self, sample: Any, index: int) -> bytes:  # noqa: ARG002
        """See Encoder: the row, on its way between our own processes."""
        row = {name: _plain(value) for name, value in _fields(sample).items()}
        return pickle.dumps(row, pickle.HIGHEST_PROTOCOL)

    def shard(self, records: list[bytes]) -> bytes:
        """See Encoder."""
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.Table.from_pylist(list(map(pickle.loads, records)), schema=self._schema)
        out = pa.BufferOutputStream()
        parquet.write_table(table, out, compression=self._compression or "snappy")
        return bytes(out.getvalue())


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


ENCODERS = ("mds", "tar", "tfrecord", "parquet", "jsonl")


def encoder_for(form: str, columns: Mapping[str, str] | None, compression: str | None) -> Encoder:
    """Return what encodes samples in a format. ConfigError: there is none, or no such columns."""
    if form not in ENCODERS:
        raise ConfigError(f"format must be one of {', '.join(ENCODERS)}, got {got(form)}")
    if columns is not None and form != "mds":
        raise ConfigError(f'columns= are those of "mds", and the format is {form!r}: leave it out')
    if form == "mds":
        return MdsEncoder(columns)
    if form == "parquet":
        return ParquetEncoder(compression)
    if form == "tar":
        return TarEncoder()
    return TfRecordEncoder() if form == "tfrecord" else JsonLinesEncoder()
