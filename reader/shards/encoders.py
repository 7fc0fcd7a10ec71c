"""From samples to the bytes of shards: what each format writes, as its file in formats/ reads it.

Imports NumPy and the standard library; pyarrow and Pillow where a format or a value needs them. An
Encoder never changes once it has seen the first samples, and can be pickled: workers encode.
"""

from __future__ import annotations

import abc
import io
import itertools
import json
import pickle
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from reader.errors import ConfigError, ConfigTypeError, DatasetError, got
from reader.shards.formats.compression import required_pyarrow
from reader.shards.formats.mds_encodings import encoder_of, encoding_for, size_of
from reader.shards.formats.tar import scan_tar
from reader.shards.formats.tfrecord import record_of
from reader.stores.files import StoredBytes

__all__ = ["ENCODERS", "Encoder", "encoder_for"]

_KEY = "__key__"
_TAR_END = bytes(1024)
_MOST_MDS = (1 << 32) - 1  # bytes of a shard: its places are uint32
_MOST_LEVELS = 48  # of lists and dicts in a value of Parquet: more cannot be read back
_CONTAINERS = (Mapping, list, tuple)
_MOST_LOOKED_AT = 64 << 20  # bytes of samples that are kept while types of columns are looked for
_ONE_TYPE = "give its values one type, and its dicts the same keys, as by dataset.map"
_OF_PARQUET = ("none", "snappy", "gz", "gzip", "zstd", "brotli", "lz4")


class Encoder(abc.ABC):
    """Makes records of samples, and shards of records.

    Attributes:
        suffix: of the names of shards.
        frame_nbytes: what a shard has beside its records, in bytes.
        most_nbytes: how large a shard of the format can be, in bytes; None: of any size.
    """

    suffix = ""
    frame_nbytes = 0
    most_nbytes: int | None = None

    def look_at(self, samples: Iterator[Any]) -> list[Any]:
        """Take so many of the first samples as say what the columns are; return these, in order.

        Raises:
            ConfigError, ConfigTypeError: they do not say it.
        """
        return list(itertools.islice(samples, 1))  # most formats need no columns

    @property
    def columns(self) -> Mapping[str, str] | None:
        """The types of the columns, by the first samples; None: the format has none."""
        return None

    @abc.abstractmethod
    def record(self, sample: Any, index: int) -> bytes:
        """Return what a shard holds of a sample. Raises of many types: it cannot be encoded."""

    def nbytes(self, record: bytes) -> int:
        """Return how many bytes a record takes in its shard."""
        return len(record)

    def shard(self, records: list[bytes]) -> bytes:
        """Return the content of a shard. ConfigError: the records do not fit together."""
        return b"".join(records)

    def name(self, number: int) -> str:
        """Return the name of a shard, before it is compressed."""
        return f"shard-{number:05d}{self.suffix}"

    def index(
        self,
        shards: Sequence[Mapping[str, Any]],  # noqa: ARG002
        compression: str | None,  # noqa: ARG002
    ) -> dict[str, Any] | None:
        """Return what index.json says of the journal's shards; None: the format has none."""
        return None


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
    frame_nbytes = len(_TAR_END)

    def record(self, sample: Any, index: int) -> bytes:
        """See Encoder."""
        fields = _fields(sample)
        key = fields.get(_KEY, f"{index:09d}")
        if not isinstance(key, str):
            raise ConfigTypeError(f"__key__ must be a str, got {got(key)}")
        last = key.rpartition("/")[2]
        if not last or "." in last or "\0" in key:
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
            try:
                content = _member(name, value)
            except ConfigError:
                raise
            except Exception as error:  # of many types, such as Pillow's
                raise ConfigError(f"the field {name!r} cannot be written: {error}") from error
            member = tarfile.TarInfo(f"{key}.{name}")
            member.size = len(content)
            padding = -len(content) % tarfile.BLOCKSIZE
            parts += [member.tobuf(tarfile.PAX_FORMAT), content, bytes(padding)]
        if not parts:
            raise ConfigError("a sample of a tar file needs a field beside its key")
        record = b"".join(parts)
        found = _scanned(record)
        if found["keys"].tobytes().decode(errors="surrogateescape") != key or found["starts"][
            -1
        ] != len(fields) - (_KEY in fields):
            raise ConfigError(
                f"a reader of tar files would leave out members of the sample with the key {key!r}"
                f" and the fields {sorted(fields)}: give them other names, without '__' at both"
                " ends"
            )
        return record

    def shard(self, records: list[bytes]) -> bytes:
        """See Encoder."""
        keys = Counter(_scanned(record)["keys"].tobytes() for record in records)
        for key, count in keys.items():
            if count > 1:
                raise ConfigError(
                    f"{count} samples of a shard have the key {key.decode(errors='replace')!r}, and"
                    " would be read as one: give each sample a __key__ of its own, or none"
                )
        return b"".join([*records, _TAR_END])


class _Record(StoredBytes):
    """A record in memory, as the scan of a shard reads it."""

    def __init__(self, content: bytes) -> None:
        self.path, self._content, self._fd = "in memory", content, -1
        self.nbytes = self.unpacked_nbytes = len(content)


def _scanned(record: bytes) -> dict[str, Any]:
    """Return the index of the tar file that holds this record alone."""
    return scan_tar(_Record(record + _TAR_END), True)


def _member(name: str, value: Any) -> bytes:
    """Return the bytes of a member of a tar file."""
    kind = name.rpartition(".")[2]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if kind == "json":
        return _json_of(name, value).encode()
    if kind == "npy" or isinstance(value, np.ndarray):
        if kind != "npy":
            raise ConfigError(f"the array of field {name!r} needs the extension 'npy', or bytes")
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        return file.getvalue()
    if isinstance(value, str):
        return value.encode()
    is_number = isinstance(value, (bool, int, float, np.number, np.bool_))
    if is_number and not isinstance(value, np.timedelta64):
        return str(value.item() if isinstance(value, np.generic) else value).encode()
    if hasattr(value, "save") and hasattr(value, "mode"):  # an image of Pillow
        file = io.BytesIO()
        value.save(file, {"jpg": "JPEG"}.get(kind, kind.upper()))
        return file.getvalue()
    raise ConfigTypeError(
        f"the field {name!r} of a tar file must be bytes, text, a number, an array named 'npy',"
        f" what JSON holds named 'json', or an image of Pillow, got {got(value)}"
    )


def _json_of(name: str, value: Any, **options: Any) -> str:
    """Return the JSON of a field. ConfigTypeError: it holds what JSON does not."""
    try:
        return json.dumps(value, **options)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigTypeError(
            f"the field {name!r} cannot be JSON: {error}. Decode it, as by fields={{{name!r}: str}}"
            f" of reader.Shards (--field {name}=str of convert), or change it by dataset.map"
        ) from error


class MdsEncoder(Encoder):
    """Writes MDS.

    Args:
        columns: the encoding of each column by name; None: what the first sample has.
    """

    suffix = ".mds"
    most_nbytes = _MOST_MDS

    def __init__(self, columns: Mapping[str, str] | None) -> None:
        self._encodings = None if columns is None else dict(sorted(columns.items()))
        self._columns: list[tuple[str, str, Callable[[Any], bytes], int | None]] = []
        self._description = b""

    def look_at(self, samples: Iterator[Any]) -> list[Any]:
        """See Encoder."""
        seen = super().look_at(samples)
        if not seen:
            return seen
        if self._encodings is None:
            fields = _fields(seen[0])
            self._encodings = {name: encoding_for(name, fields[name]) for name in sorted(fields)}
        if not self._encodings:
            raise ConfigError("a sample of MDS needs a field, and the first one has none")
        self._columns = [
            (name, encoding, encoder_of(encoding, name), size_of(encoding))
            for name, encoding in self._encodings.items()
        ]
        self._description = json.dumps(self._described(), sort_keys=True).encode()
        self.frame_nbytes = 8 + len(self._description)  # the count, and where the last one ends
        return seen

    @property
    def columns(self) -> Mapping[str, str] | None:
        """See Encoder."""
        return self._encodings

    def record(self, sample: Any, index: int) -> bytes:  # noqa: ARG002
        """See Encoder."""
        fields, names = _fields(sample), [name for name, _, _, _ in self._columns]
        if sorted(fields) != names:
            raise ConfigError(
                f"a sample has the fields {sorted(fields)}, and the columns are {names}"
            )
        sizes, parts = [], []
        for name, encoding, encode, size in self._columns:
            try:
                part = encode(fields[name])
            except Exception as error:  # of many types
                raise ConfigError(
                    f"the field {name!r} does not fit its encoding {encoding!r}: {error}"
                ) from error
            if size is None:
                sizes.append(len(part))
            elif size != len(part):
                raise ConfigError(
                    f"the field {name!r} has {len(part)} bytes, and values of {encoding!r} have"
                    f" {size}"
                )
            parts.append(part)
        nbytes = self.frame_nbytes + 4 * (len(sizes) + 1) + sum(map(len, parts))
        if nbytes > self.most_nbytes:
            raise ConfigError(
                f"it takes {nbytes:,} bytes, and a shard of MDS has {self.most_nbytes:,} at most:"
                " split it, or compress its fields"
            )
        return b"".join([np.array(sizes, "<u4").tobytes(), *parts])

    def nbytes(self, record: bytes) -> int:
        """See Encoder."""
        return len(record) + 4

    def shard(self, records: list[bytes]) -> bytes:
        """See Encoder."""
        begin = self.frame_nbytes + 4 * len(records)
        places = np.cumsum([begin, *map(len, records)])
        head = np.array([len(records), *places], "<u4").tobytes()
        return b"".join([head, self._description, *records])

    def name(self, number: int) -> str:
        """See Encoder: as Streaming names it."""
        return f"shard.{number:05d}{self.suffix}"

    def index(
        self, shards: Sequence[Mapping[str, Any]], compression: str | None
    ) -> dict[str, Any] | None:
        """See Encoder."""

        def part(file: Mapping[str, Any]) -> dict[str, Any]:
            hashes = {"sha256": file["sha256"]}
            return {"basename": file["name"], "bytes": file["nbytes"], "hashes": hashes}

        found = [
            {
                **self._described(),
                "compression": compression,
                "samples": shard["samples"],
                "raw_data": part(shard.get("raw", shard)),
                "zip_data": part(shard) if compression else None,
            }
            for shard in shards
        ]
        return {"version": 2, "shards": found}

    def _described(self) -> dict[str, Any]:
        """Return what a shard, and index.json for each, says of the columns."""
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
        if isinstance(sample, Mapping):
            _fields(sample)  # JSON would make text of other keys, and one of 1 and "1"
        try:
            text = json.dumps(sample, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            if isinstance(sample, dict):
                for name, value in sample.items():
                    _json_of(name, value)  # says which field it is
            raise
        return text.encode() + b"\n"


class ParquetEncoder(Encoder):
    """Writes Parquet, of which each shard is a row group.

    Args:
        compression: of its columns; None: snappy, as pyarrow's.
    """

    suffix = ".parquet"

    def __init__(self, compression: str | None) -> None:
        self._compression = {"gz": "gzip", None: "snappy"}.get(compression, compression)
        self._types: dict[str, Any] = {}

    def look_at(self, samples: Iterator[Any]) -> list[Any]:
        """See Encoder: until each column has a type, or so many as memory should hold."""
        seen: list[Any] = []
        nbytes = 0
        for number, sample in enumerate(samples):
            seen.append(sample)
            try:
                self._add_types(_fields(sample))
            except ConfigError as error:
                if not number:
                    raise
                raise DatasetError(f"sample {number:,} cannot be encoded: {error}") from error
            if not self._untyped():
                return seen
            nbytes += len(pickle.dumps(dict(sample)))
            if nbytes > _MOST_LOOKED_AT:
                break
        for name in self._untyped():
            raise ConfigError(
                f"the field {name!r} has {_shown_type(self._types[name])} in the first"
                f" {len(seen):,} samples, and the type of a column is that of its values: leave it"
                " out, or begin with samples that have values in it"
            )
        return seen

    def _add_types(self, fields: Mapping[str, Any]) -> None:
        """Add to the types of columns what a sample says. ConfigError: it says another type."""
        for name in self._untyped() if self._types else fields:
            value = _plain(name, fields.get(name))
            found = _type_of(name, value)
            before = self._types.get(name, found)
            both = _filled(before, found)
            if both is None:
                raise ConfigTypeError(
                    f"the field {name!r} is {got(value)}, and samples before it have {before}:"
                    f" {_ONE_TYPE}"
                )
            self._types[name] = both
        if not self._types:
            raise ConfigError("a sample of Parquet needs a field, and the first one has none")

    def _untyped(self) -> list[str]:
        """Return the columns of whose values no type is known, or not that of all parts."""
        return [name for name, kind in self._types.items() if _lacks_type(kind)]

    @property
    def columns(self) -> Mapping[str, str] | None:
        """See Encoder."""
        return {name: str(kind) for name, kind in self._types.items()}

    def record(self, sample: Any, index: int) -> bytes:  # noqa: ARG002
        """See Encoder: the row, on its way between our own processes."""
        row = {name: _plain(name, value) for name, value in _fields(sample).items()}
        if row.keys() != self._types.keys():
            raise ConfigError(
                f"a sample has the fields {sorted(row)}, and the columns are those of the first"
                f" one, {sorted(self._types)}: give each sample all fields, None for what it lacks"
            )
        for name, kind in self._types.items():
            if not _fits(_type_of(name, row[name]), kind):
                raise ConfigTypeError(
                    f"the field {name!r} is {got(row[name])}, and its column has {kind}, by the"
                    f" first value: {_ONE_TYPE}"
                )
            self._column(name, [row[name]])
        return pickle.dumps(row, pickle.HIGHEST_PROTOCOL)

    def shard(self, records: list[bytes]) -> bytes:
        """See Encoder."""
        import pyarrow as pa
        from pyarrow import parquet

        rows = list(map(pickle.loads, records))
        columns = {name: self._column(name, [row[name] for row in rows]) for name in self._types}
        out = pa.BufferOutputStream()
        parquet.write_table(pa.table(columns), out, compression=self._compression)
        return bytes(out.getvalue())

    def _column(self, name: str, values: list[Any]) -> Any:
        """Return values as a column. ConfigError: its type does not hold one of them exactly."""
        import pyarrow as pa

        kind = self._types[name]
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"the field {name!r} does not fit into {kind}: {error}") from error


def _plain(name: str, value: Any) -> Any:
    """Return a value of Python. ConfigTypeError: it would lose its unit, or has no order.

    A time of NumPy would be a number without unit; a set comes in another order in each process.
    """
    if isinstance(value, (set, frozenset)):
        raise ConfigTypeError(
            f"the field {name!r} is a set, which has no order: pass sorted(value)"
        )
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    found = value.tolist()
    if value.dtype.kind in "mM" and any(isinstance(each, int) for each in np.ravel(value).tolist()):
        raise ConfigTypeError(
            f"the field {name!r} has times of {value.dtype}, which Python's cannot be: pass them"
            " in microseconds or days, such as value.astype('datetime64[us]'), or as numbers"
        )
    return found


def _type_of(name: str, value: Any) -> Any:
    """Return pyarrow's type of a value. ConfigTypeError: it has none."""
    import pyarrow as pa

    if _is_deeper(value, _MOST_LEVELS):  # pyarrow has no such limit, and ends the process
        raise ConfigTypeError(
            f"the field {name!r} has lists and dicts in more than {_MOST_LEVELS} levels, or one"
            " that holds itself: pass it as text of JSON"
        )
    try:
        found = pa.infer_type([value])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigTypeError(
            f"the field {name!r} cannot be in a column of Parquet: {error}"
        ) from error
    if pa.types.is_nested(found) and _is_mixed(value):
        raise ConfigTypeError(
            f"the field {name!r} has text and bytes, or floats and flags, in one list, and a column"
            f" of Parquet has one of them, got {got(value)}"
        )
    return found


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether containers lie in one another in more levels, or one in itself."""
    found = [value]
    for _ in range(levels):
        parts = (
            each.values() if isinstance(each, Mapping) else each
            for each in found
            if isinstance(each, _CONTAINERS)
        )
        inner = {id(each): each for part in parts for each in part if isinstance(each, _CONTAINERS)}
        if not inner:
            return False
        found = list(inner.values())
    return True


def _is_mixed(value: Any) -> bool:
    """Whether a list in a value has types of which pyarrow makes one without a word."""
    if isinstance(value, Mapping):
        return any(map(_is_mixed, value.values()))
    if not isinstance(value, (list, tuple)):
        return False
    kinds = set(map(type, value))
    if {str, bytes} <= kinds or {float, bool} <= kinds:
        return True
    return bool(kinds & {list, tuple, dict}) and any(map(_is_mixed, value))


def _lacks_type(kind: Any) -> bool:
    """Whether a type is that of no value, or of a list or dict without any."""
    from pyarrow import types

    if types.is_list(kind):
        return _lacks_type(kind.value_type)
    if types.is_struct(kind):
        inner = [kind.field(k).type for k in range(kind.num_fields)]
        return not inner or any(map(_lacks_type, inner))
    return bool(types.is_null(kind))


def _shown_type(kind: Any) -> str:
    """Return what values have whose type is not known."""
    from pyarrow import types

    return "no value" if types.is_null(kind) else f"values of {kind} alone"


def _filled(kind: Any, more: Any) -> Any:
    """Return a type with the parts of another where it has none; None: values are of one of them.

    Args:
        kind: which may lack a type; see `_lacks_type`.
        more: the type of a later value.
    """
    import pyarrow as pa
    from pyarrow import types

    if types.is_null(kind):
        return more
    if types.is_list(kind) and types.is_list(more):
        inner = _filled(kind.value_type, more.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_struct(kind) and types.is_struct(more):
        fields = {kind.field(k).name: kind.field(k).type for k in range(kind.num_fields)}
        for each in map(more.field, range(more.num_fields)):
            fields[each.name] = _filled(fields.get(each.name, pa.null()), each.type)
        return None if None in fields.values() else pa.struct(list(fields.items()))
    return kind if _fits(more, kind) else None


def _fits(kind: Any, wanted: Any) -> bool:
    """Whether values of a type are also of another: a whole number is a float, None is any."""
    from pyarrow import types

    if kind == wanted or types.is_null(kind):
        return True
    if types.is_integer(kind):
        return bool(types.is_integer(wanted) or types.is_floating(wanted))
    if types.is_list(kind):
        return types.is_list(wanted) and _fits(kind.value_type, wanted.value_type)
    if types.is_struct(kind) and types.is_struct(wanted):
        places = {wanted.field(k).name: wanted.field(k).type for k in range(wanted.num_fields)}
        inner = [kind.field(k) for k in range(kind.num_fields)]
        return all(each.name in places and _fits(each.type, places[each.name]) for each in inner)
    return bool(types.is_decimal(kind) and types.is_decimal(wanted))


ENCODERS = ("mds", "tar", "tfrecord", "parquet", "jsonl")


def encoder_for(form: str, columns: Mapping[str, str] | None, compression: str | None) -> Encoder:
    """Return what encodes samples in a format. ConfigError: there is none, or no such columns."""
    if form not in ENCODERS:
        raise ConfigError(f"format must be one of {', '.join(ENCODERS)}, got {got(form)}")
    if columns is not None:
        if form != "mds":
            raise ConfigError(
                f'columns= are those of "mds", and the format is {form!r}: leave it out'
            )
        if not isinstance(columns, Mapping) or not all(
            isinstance(each, str) for pair in columns.items() for each in pair
        ):
            raise ConfigTypeError(
                'columns must be a dict of names and encodings, such as {"image": "jpeg", "label":'
                f' "int"}}, got {got(columns)}'
            )
    if form == "mds":
        return MdsEncoder(columns)
    if form == "parquet":
        required_pyarrow("the format is 'parquet'")
        if compression is not None and compression not in _OF_PARQUET:
            raise ConfigError(
                f"compression of Parquet must be one of {', '.join(_OF_PARQUET)}, got"
                f" {got(compression)}"
            )
        return ParquetEncoder(compression)
    if form == "tar":
        return TarEncoder()
    return TfRecordEncoder() if form == "tfrecord" else JsonLinesEncoder()
