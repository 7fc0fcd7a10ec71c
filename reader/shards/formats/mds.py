"""MosaicML Streaming's formats: MDS, and its JSON lines and separated values, by an index.json.

Imports NumPy. Source: mosaicml-streaming 0.13's documentation of index.json, version 2. A shard of
MDS has the number of samples, where each begins and the last ends, its description, and the
samples: for each the sizes of the columns that have none in the index, and the columns. Numbers are
uint32, of little-endian order. The others have the same numbers in a file of their own.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from reader.errors import ConfigError, DatasetError, got
from reader.shards.formats.compression import decompressed
from reader.shards.formats.mds_encodings import decoder_of, holds_file, size_of
from reader.shards.formats.shard import ListedShard, Options, PlacedShard, Shard, read_places
from reader.stores.files import StoredBytes, StoredFile, inner_path

__all__ = ["describes_mds", "open_mds", "opening_mds", "read_mds"]

_NUMBER = np.dtype("<u4")
_VERSION = 2
_KINDS = ("mds", "json", "xsv", "csv", "tsv")
_SEPARATORS = {"csv": ",", "tsv": "\t"}
_FROM_TEXT = {"str": str, "int": int, "float": float}
_MOST_SAMPLES = 1 << 32


def describes_mds(index: Any) -> bool:
    """Whether what an index.json holds is of Streaming."""
    return isinstance(index, dict) and "shards" in index and "version" in index


def read_mds(folder: str, index: dict[str, Any], options: Options) -> list[ListedShard]:
    """Return the shards that an index.json names.

    Raises:
        ConfigError: it has another version, or says what cannot be.
    """
    name = os.path.join(folder, "index.json")  # noqa: PTH118
    try:
        if index["version"] != _VERSION:
            raise ConfigError(_of_version(index["version"]))
        return [_listed(folder, each, options) for each in index["shards"]]
    except ConfigError as error:
        raise ConfigError(f"'{name}': {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ConfigError(
            f"'{name}' is damaged: a shard lacks {error}, or has it in another form. Fetch the file"
            " again, or write the shards anew"
        ) from error


def _of_version(version: Any) -> str:
    return (
        f"it has version {got(version)}, and {_VERSION} is known. Write the shards by a release of"
        " Streaming from 0.1 on"
    )


def _listed(folder: str, shard: dict[str, Any], options: Options) -> ListedShard:
    kind = shard["format"]
    if kind not in _KINDS:
        raise ConfigError(f"a shard has the format {got(kind)}, which is none of {_KINDS}")
    if shard["version"] != _VERSION:
        raise ConfigError(_of_version(shard["version"]))
    count = int(shard["samples"])
    note = {"kind": kind, "count": count, "columns": _columns(kind, shard, options)}
    if kind != "mds":
        note["newline"] = str(shard["newline"])
        note["separator"] = str(shard.get("separator") or _SEPARATORS.get(kind, ""))
    parts = ["data"] if kind == "mds" else ["data", "meta"]
    packed = str(shard["compression"] or "").partition(":")[0]
    paths = [inner_path(folder, str(shard[f"raw_{part}"]["basename"])) for part in parts]
    if packed and not all(map(options.files.is_here, paths)):
        paths = [inner_path(folder, str(shard[f"zip_{part}"]["basename"])) for part in parts]
        note["packed"] = packed
        note["nbytes"] = [int(shard[f"raw_{part}"]["bytes"]) for part in parts]
    form = "zip" if "packed" in note else "raw"
    stored = [shard[f"{form}_{part}"].get("bytes") for part in parts]
    nbytes = [None if each is None else operator.index(each) for each in stored]
    note["meta_nbytes"] = nbytes[-1]
    note["sums"] = [dict(shard[f"raw_{part}"].get("hashes") or {}) for part in parts]
    note["meta"] = paths[1] if parts[1:] else ""
    if not 0 <= count < _MOST_SAMPLES:
        raise ConfigError(f"the shard '{paths[0]}' is said to have {count:,} samples")
    return ListedShard(paths[0], count, json.dumps(note), nbytes=nbytes[0])


def _columns(
    kind: str, shard: dict[str, Any], options: Options
) -> list[tuple[str, str, int | None]]:
    """Return name, encoding, and bytes of each value or None, of each column."""
    if kind == "json":
        return [(str(name), "", None) for name in shard["columns"]]
    names, encodings = shard["column_names"], shard["column_encodings"]
    sizes = shard["column_sizes"] if kind == "mds" else [None] * len(names)
    columns = [(str(name), *each) for name, *each in zip(names, encodings, sizes, strict=True)]
    for name, encoding, size in columns:
        if kind == "mds":
            decoder_of(encoding, name, options.allow_pickle)  # refuses what is not known
        if kind == "mds" and size != size_of(encoding):
            raise ConfigError(
                f"the column {name!r} is said to have {size} bytes, and values of {encoding!r} have"
                f" {size_of(encoding) or 'as many as each says'}"
            )
        if kind != "mds" and encoding not in _FROM_TEXT:
            raise ConfigError(f"the column {name!r} has the encoding {encoding!r}")
    return columns


def open_mds(file: StoredFile, note: str, _: Any, options: Options) -> Shard:
    """Return an open shard. DatasetError: it is damaged."""
    said: dict[str, Any] = json.loads(note)
    data = _stored(file, said, 0, options)
    if said["kind"] == "mds":
        return _MdsShard(data, said, options)
    meta_path = said["meta"]
    try:
        (meta,) = options.files.found([meta_path])
    except OSError as error:
        raise DatasetError(f"'{meta_path}' cannot be opened: {error}") from error
    if said["meta_nbytes"] not in (None, meta.nbytes):
        raise DatasetError(
            f"'{meta_path}' has {meta.nbytes:,} bytes, and index.json says"
            f" {said['meta_nbytes']:,}: they are of different versions. Fetch them again"
        )
    return _TextShard(data, _stored(meta, said, 1, options), said)


def opening_mds(file: StoredFile, note: str) -> list[tuple[int, int]]:
    """Return where the bytes lie that opening a shard reads: the places, or all."""
    said = json.loads(note)
    if "packed" in said:
        return [(0, file.nbytes)]
    head = _NUMBER.itemsize * (said["count"] + 2) if said["kind"] == "mds" else 0
    return [(0, min(head, file.nbytes))]


def _stored(file: StoredFile, said: dict[str, Any], part: int, options: Options) -> StoredBytes:
    """Return the bytes of one of a shard's files, decompressed."""
    stored = options.files.stored(file)
    if "packed" not in said:
        return stored
    nbytes = said["nbytes"][part]
    content = decompressed(stored.read(0, stored.nbytes), said["packed"], nbytes, file.path)
    found = options.files.stored(file, content)
    if options.check:  # all of it was read
        _compare_sums(found, said["sums"][part])
    return found


def _compare_sums(stored: StoredBytes, sums: dict[str, str]) -> list[str]:
    """Return the kinds of sums of an index.json that cannot be computed here.

    Raises:
        DatasetError: another one is not that of the bytes.
    """
    unknown = []
    for name, wanted in sums.items():
        made = _new_sum(name)
        if made is None:
            unknown.append(name)
            continue
        made.update(stored.read(0, stored.nbytes))
        found = made.hexdigest()
        if found != wanted:
            raise DatasetError(
                f"the shard '{stored.path}' is damaged: its {name} is {found}, and index.json"
                f" says {wanted}. Fetch it again"
            )
    return unknown


def _new_sum(name: str) -> Any:
    """Return what computes a kind of sum, as hashlib or xxhash has it; None: neither has it."""
    try:
        found = hashlib.new(name, usedforsecurity=False)
        return found if found.digest_size else None  # 0: its digests have any length
    except ValueError:  # such as xxh64, or one that this system's OpenSSL leaves out
        pass
    try:
        import xxhash
    except ImportError:
        return None
    return getattr(xxhash, name)() if name in xxhash.algorithms_available else None


class _MdsShard(PlacedShard):
    """An open shard of MDS.

    Args:
        stored: its bytes.
        said: what the index says of it.
        options: how its columns are decoded.
    """

    def __init__(self, stored: StoredBytes, said: dict[str, Any], options: Options) -> None:
        count = said["count"]
        least = _NUMBER.itemsize * (count + 2)
        super().__init__(stored, read_places(stored, count, least, stored.nbytes))
        self._sums = said["sums"][0]
        self._head_nbytes = least
        columns = said["columns"]
        self._columns = [name for name, _, _ in columns]
        self._described = [(name, encoding) for name, encoding, _ in columns]
        self._sizes = [size for _, _, size in columns]
        self._head = struct.Struct(f"<{self._sizes.count(None)}I")
        self._decoders = [
            decoder_of(encoding, name, options.allow_pickle) for name, encoding, _ in columns
        ]
        self._chosen = [k for k, name in enumerate(self._columns) if options.wants(name)]
        for k, (name, encoding, _) in enumerate(columns):
            if name in options.encoded and holds_file(encoding):
                self._decoders[k] = bytes

    def samples(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """See Shard: values by column."""
        chosen = [(k, self._columns[k], self._decoders[k]) for k in self._chosen]
        found = []
        for position, parts in zip(positions, self._parts(positions), strict=True):
            try:
                found.append({name: decode(parts[k]) for k, name, decode in chosen})
            except Exception:  # of many types
                found.append({name: self._decoded(k, parts[k], position) for k, name, _ in chosen})
        return found

    def names(self, position: int) -> list[str]:  # noqa: ARG002
        """See Shard."""
        return list(self._columns)

    def check_sums(self) -> list[str]:
        """See Shard: also that the columns are those that the shard itself describes."""
        nbytes = self._places[0] - self._head_nbytes
        try:
            said = json.loads(self._stored.read(self._head_nbytes, nbytes))
            own = list(zip(said["column_names"], said["column_encodings"], strict=True))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DatasetError(
                f"the shard '{self.path}' is damaged: its description cannot be read: {error}."
                " Fetch it again, or write it anew"
            ) from error
        if own != self._described:
            raise DatasetError(
                f"the shard '{self.path}' has the columns {own}, and index.json says"
                f" {self._described}: they are of different versions. Fetch both again"
            )
        return _compare_sums(self._stored, self._sums)

    def _decoded(self, number: int, part: bytes, position: int) -> Any:
        """Return a value. DatasetError, which names the column: it is damaged."""
        try:
            return self._decoders[number](part)
        except Exception as error:  # of many types
            what = f"its column {self._columns[number]!r}: {error}"
            raise self.damaged(position, what) from error

    def _parts(self, positions: Sequence[int]) -> Iterator[list[bytes]]:
        """Yield the bytes of each column of some samples."""
        head = self._head.size
        for position, content in zip(positions, self.contents(positions), strict=True):
            sizes: list[Any] = self._sizes
            if head:
                if len(content) < head:
                    raise self.damaged(position, "it has fewer bytes than its sizes")
                said = iter(self._head.unpack_from(content))
                sizes = [next(said) if size is None else size for size in sizes]
            parts, at = [], head
            for size in sizes:
                parts.append(content[at : at + size])
                at += size
            if at != len(content):
                raise self.damaged(
                    position,
                    f"its columns have {at - head:,} bytes, and it has {len(content) - head:,}",
                )
            yield parts


class _TextShard(PlacedShard):
    """An open shard of JSON lines or separated values of Streaming.

    Args:
        data: its bytes.
        meta: the bytes of the file that has the places of samples.
        said: what the index says of it.
    """

    def __init__(self, data: StoredBytes, meta: StoredBytes, said: dict[str, Any]) -> None:
        super().__init__(data, read_places(meta, said["count"], 0, data.nbytes))
        self._said, self._meta = said, meta

    def samples(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """See Shard: values by column."""
        return list(map(self._sample, positions, self.contents(positions)))

    def _sample(self, position: int, content: bytes) -> dict[str, Any]:
        try:
            text = content.decode()
            if self._said["kind"] == "json":
                found = json.loads(text)
                if not isinstance(found, dict):
                    raise ValueError(f"it is no object, but {got(found)}")
                return found
            parts = text.removesuffix(self._said["newline"]).split(self._said["separator"])
            return {
                name: _FROM_TEXT[encoding](part)
                for (name, encoding, _), part in zip(self._said["columns"], parts, strict=True)
            }
        except (ValueError, RecursionError) as error:
            raise self.damaged(position, str(error)) from error

    def names(self, position: int) -> list[str]:
        """See Shard."""
        return list(self.samples([position])[0])

    def check_sums(self) -> list[str]:
        """See Shard."""
        parts = zip((self._stored, self._meta), self._said["sums"], strict=True)
        return [name for stored, sums in parts for name in _compare_sums(stored, sums)]
