"""The arrays of a set's shards, kept in a file: the index of formats that have none of their own.

Imports how files are opened and the sharing of arrays. A file holds numbers and text alone: a head,
the arrays of each shard, and then what describes them, which alone is read when the file is opened.
Every part is compared with its sum when it is read.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from reader._core.shared.entry_table import checksum
from reader.files import open_regular
from reader.sharing.share import share

__all__ = ["COUNT", "Arrays", "KeptArrays", "Stamp", "kept_in", "kept_in_memory", "write_arrays"]

_MAGIC = b"RDSHARDS"
_VERSION = 3
_HEAD = struct.Struct("<8s4Q")  # magic, version, sum, where the description begins, its bytes
_UNIT = 8  # bytes: every array begins at a multiple
_MOST_HELD = 1 << 30  # bytes of arrays that lie in shared memory; more stay in the file
_PLACE, _SUM, _SAMPLES, _LENGTHS = 0, 1, 2, 3  # columns of the table
COUNT = "count"  # an array of one number, how many samples a shard has

Arrays = Mapping[str, npt.NDArray[Any]]
_Types = tuple[tuple[str, str], ...]
Stamp = tuple[str, int, int]  # what names a shard's file: path, nbytes, mtime_ns


class KeptArrays(NamedTuple):
    """The arrays of each shard of a set.

    Attributes:
        table: of each shard, in a row: where its arrays begin, their sum, how many samples it has,
            and how long each array is.
        types: the name and the type of each array.
        content: the file's bytes in shared memory; None: what is wanted is read from the file.
        place: its path; "": there is no file.
    """

    table: npt.NDArray[np.int64]
    types: _Types
    content: Any
    place: str

    def samples(self) -> npt.NDArray[np.int64]:
        """Return how many samples each shard has."""
        return self.table[:, _SAMPLES]

    def arrays(self, row: int) -> Arrays | None:
        """Return the arrays of a shard by name; None: the file has gone, or is another one."""
        place, total, _, *lengths = self.table[row].tolist()
        nbytes = int(_nbytes(self.table[row : row + 1], self.types)[0])
        if self.content is not None:
            content = self.content.view(np.ndarray)[place : place + nbytes]
            return self._split(content, lengths)
        try:
            with open(self.place, "rb", opener=open_regular) as file:
                file.seek(place)
                content = file.read(nbytes)
        except OSError:
            return None
        if len(content) != nbytes or _signed(checksum([content])) != total:
            return None
        return self._split(np.frombuffer(content, np.uint8), lengths)

    def _split(self, content: npt.NDArray[np.uint8], lengths: list[int]) -> Arrays:
        found, at = {}, 0
        for length, (name, kind) in zip(lengths, self.types, strict=True):
            end = at + length * np.dtype(kind).itemsize
            found[name] = content[at:end].view(kind)
            at = _padded(end)
        return found


def write_arrays(
    file: BinaryIO, kind: str, stamps: Sequence[Stamp], shards: Iterable[Arrays]
) -> tuple[npt.NDArray[np.int64], _Types]:
    """Write the arrays of shards, one shard after the other; returns their table and types.

    Args:
        file: empty; it can be sought in.
        kind: the name of the format.
        stamps: of the shards, with paths as the file is to hold them.
        shards: the arrays of each by name, among them COUNT; one that a shard lacks is empty.
    """
    file.write(bytes(_HEAD.size))
    kinds: dict[str, str] = {}
    rows: list[dict[str, int]] = []
    parts: list[tuple[int, int, int]] = []
    at = _HEAD.size
    for arrays in shards:
        plain = {name: np.ascontiguousarray(each) for name, each in arrays.items() if name != COUNT}
        for name, array in plain.items():
            kinds.setdefault(name, array.dtype.str)
        ordered = [plain[name] for name in kinds if name in plain]
        content = b"".join(each.tobytes().ljust(_padded(each.nbytes), b"\0") for each in ordered)
        file.write(content)
        parts.append((at, _signed(checksum([content])), int(arrays[COUNT][0])))
        rows.append({name: len(each) for name, each in plain.items()})
        at += len(content)
    types = tuple(kinds.items())
    table = np.array(
        [
            [*part, *(lengths.get(name, 0) for name in kinds)]
            for part, lengths in zip(parts, rows, strict=True)
        ],
        np.int64,
    )
    description = json.dumps({"format": kind, "files": stamps, "arrays": types}).encode()
    file.write(description)
    file.write(table.tobytes())
    file.seek(0)
    total = checksum([description, table.tobytes()])
    file.write(_HEAD.pack(_MAGIC, _VERSION, total, at, len(description)))
    return table, types


def kept_in(place: str, kind: str) -> tuple[list[Stamp], KeptArrays] | None:
    """Return the stamps of a file's shards, as it holds them, and their arrays; None: it has none.

    That is so where there is no such file, or it is damaged or of another format or version.
    """
    try:
        with open(place, "rb", opener=open_regular) as file:
            return _read(file, kind, place)
    except OSError:
        return None


def kept_in_memory(kind: str, stamps: Sequence[Stamp], shards: Iterable[Arrays]) -> KeptArrays:
    """Return the arrays of shards in shared memory. See `write_arrays`."""
    file = io.BytesIO()
    table, types = write_arrays(file, kind, stamps, shards)
    content = np.frombuffer(file.getbuffer(), np.uint8)
    return KeptArrays(share(table), types, share(content), "")


def _read(file: BinaryIO, kind: str, place: str) -> tuple[list[Stamp], KeptArrays] | None:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, version, total, at, nbytes = _HEAD.unpack(head)
    if (magic, version) != (_MAGIC, _VERSION) or not _HEAD.size <= at <= at + nbytes <= size:
        return None
    file.seek(at)
    description, rest = file.read(nbytes), file.read()
    if checksum([description, rest]) != total:
        return None
    with suppress(KeyError, TypeError, ValueError, RecursionError):
        said = json.loads(description)
        stamps: list[Stamp] = [(str(path), int(n), int(t)) for path, n, t in said["files"]]
        types = tuple((str(name), np.dtype(each).str) for name, each in said["arrays"])
        table = np.frombuffer(rest, "<i8").reshape(len(stamps), _LENGTHS + len(types))
        if said["format"] != kind or not _fits(table, types, at):
            return None
        content = None
        if at <= _MOST_HELD:
            file.seek(0)
            content = np.frombuffer(file.read(at), np.uint8)
            if not _has_sums(table, types, content):
                return None
            content = share(content)
        return stamps, KeptArrays(share(table.copy()), types, content, place)
    return None


def _fits(table: npt.NDArray[Any], types: _Types, end: int) -> bool:
    """Whether all arrays lie within a file's first bytes, and are of plain numbers."""
    if any(np.dtype(each).kind not in "iu" for _, each in types):
        return False
    numbers = table[:, [_PLACE, *range(_LENGTHS, table.shape[1])]]
    if (table[:, _SAMPLES] < 0).any() or ((numbers < 0) | (numbers > end)).any():
        return False
    return bool((numbers[:, 0] + _nbytes(table, types) <= end).all())


def _has_sums(table: npt.NDArray[Any], types: _Types, content: npt.NDArray[np.uint8]) -> bool:
    """Whether the arrays of all shards have their sums."""
    begins, ends = table[:, _PLACE], table[:, _PLACE] + _nbytes(table, types)
    return all(
        _signed(checksum([content[begin:end]])) == total
        for begin, end, total in zip(
            begins.tolist(), ends.tolist(), table[:, _SUM].tolist(), strict=True
        )
    )


def _nbytes(table: npt.NDArray[Any], types: _Types) -> npt.NDArray[Any]:
    """Return how many bytes the arrays of each shard take."""
    sizes = np.array([np.dtype(each).itemsize for _, each in types], np.int64)
    found: npt.NDArray[Any] = _padded(table[:, _LENGTHS:] * sizes).sum(axis=1)
    return found


def _padded(nbytes: Any) -> Any:
    return -(-nbytes // _UNIT) * _UNIT


def _signed(total: int) -> int:
    """Return a sum as it stands in a table of int64."""
    return total - (1 << 64) if total >> 63 else total
