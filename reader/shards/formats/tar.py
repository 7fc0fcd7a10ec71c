"""WebDataset's format: a tar file whose members of one name, up to its first dot, are a sample.

Imports the standard library's `tarfile`, which knows every kind of header, to index a file; then
members are read by their places. Source: webdataset's documentation, and POSIX's `pax` for tar.
"""

from __future__ import annotations

import re
import tarfile
import warnings
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from reader._core.shards.tar_members import TarMembers
from reader.errors import ConfigError, DatasetError, printable
from reader.shards.formats.shard import Arrays, Options, Shard
from reader.shards.formats.tar_lists import listed_members
from reader.stores.files import OpenBytes, StoredBytes

__all__ = ["TarShard", "begins_tar", "scan_tar"]

_NAME = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)  # key, and extension
_META = re.compile(r"__[^/]*__($|/)")  # members that are no sample's
_KEY = "__key__"
_BLOCK = 512
_MAGIC, _MAGIC_AT = b"ustar", 257
_NAME_NBYTES, _SUM_AT, _KIND_AT, _PREFIX_AT = 100, 148, 156, 345  # of a header
_SIZE = 124, 136
_FILE = ord("0")  # the kind of a member
_NUMBER = re.compile(rb" *([0-7]+)[ \0]*")
_BLANKS = b" " * (_KIND_AT - _SUM_AT)
_ADLER = 65521
_BEHIND = 1 << 16  # bytes behind the end that are looked at
_NEAR = 1 << 16  # bytes between members of a sample that are fetched with them
_COMPARED = 64  # members of a list whose headers are read


def begins_tar(head: bytes) -> bool:
    """Whether a file that begins so is a tar file."""
    return head[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC


def scan_tar(stored: StoredBytes, _: bool) -> dict[str, Any]:
    """Return the index of a tar file.

    Returns:
        "starts": the first member of each sample, and how many members there are; "places",
        "nbytes", "extensions": of each member, the last as numbers; "names": the extensions;
        "key_ends": where the key of each sample begins and ends in "keys".

    Raises:
        ConfigError: it is damaged, or has two members of one name, or what cannot be a sample's.
    """
    samples: dict[str, dict[str, tuple[int, int]]] = {}
    for name, place, nbytes in _listed(stored) or _members(stored):
        found = _NAME.fullmatch(name)
        if found is None or _META.match(name):
            continue
        fields = samples.setdefault(found[1], {})
        extension = found[2].lower()
        if extension in fields:
            raise ConfigError(
                f"the shard '{stored.path}' has two members '{printable(name)}' of one sample:"
                " write it anew"
            )
        fields[extension] = place, nbytes
    numbers: dict[str, int] = {}
    members = [each for fields in samples.values() for each in fields.items()]
    kinds = [numbers.setdefault(extension, len(numbers)) for extension, _ in members]
    counts = [len(fields) for fields in samples.values()]
    keys = list(map(_encoded, samples))
    return {
        "count": np.array([len(counts)], np.int64),
        "starts": np.cumsum([0, *counts], dtype=np.int64),
        "places": np.array([place for _, (place, _) in members], np.int64),
        "nbytes": np.array([nbytes for _, (_, nbytes) in members], np.int64),
        "extensions": np.array(kinds, np.int32),
        "names": np.frombuffer(b"\0".join(map(_encoded, numbers)), np.uint8),
        "key_ends": np.cumsum([0, *map(len, keys)], dtype=np.int64),
        "keys": np.frombuffer(b"".join(keys), np.uint8),
    }


def _listed(stored: StoredBytes) -> list[tuple[str, int, int]] | None:
    """Return name, place and bytes of each member as a list of DALI's beside the file says them.

    None: there is none, or it is not of this file: members do not follow each other from the
    file's beginning to its end, or one of those whose headers are compared is another one.
    """
    members = listed_members(stored)
    end = 0
    for _, place, nbytes in members:
        if place != end + _BLOCK or nbytes < 0:  # what lies between may be a link, or a long name
            return None
        end = place + -(-nbytes // _BLOCK) * _BLOCK
    if not members or end + _BLOCK > stored.nbytes or any(stored.read(end, _BLOCK)):
        return None
    for name, place, nbytes in members[:: -(-len(members) // _COMPARED)]:
        if _plain_header(stored.read(place - _BLOCK, _BLOCK)) != (name, nbytes):
            return None
    _check_end(stored, end)
    return members


def _members(stored: StoredBytes) -> Iterator[tuple[str, int, int]]:
    """Yield name, place and bytes of each member that is a file, or a link to one."""
    seen: dict[str, tuple[int, int]] = {}
    try:
        file: Any = OpenBytes(stored)
        with tarfile.open(fileobj=file, mode="r:") as archive:
            archive.firstmember = None  # type: ignore[attr-defined]  # read already
            archive.offset = file.seek(0)
            while member := _plain_member(stored, archive) or _member(stored, archive):
                name, place, nbytes, link = member
                if link is not None:
                    found = seen.get(_target(link).removeprefix("./"))
                    if found is None:
                        raise ConfigError(
                            f"the shard '{stored.path}' has the member '{printable(name)}', a link"
                            f" to '{printable(link.linkname)}', which is no member before it: write"
                            " it anew with files in place of links"
                        )
                    place, nbytes = found
                elif place + nbytes > stored.nbytes:
                    raise ConfigError(
                        f"the shard '{stored.path}' is cut off: its member '{printable(name)}'"
                        f" ends at {place + nbytes:,}, and the file at {stored.nbytes:,}"
                    )
                seen[name.removeprefix("./")] = place, nbytes  # as `tar -c .` names all
                yield name, place, nbytes
            _check_end(stored, archive.offset)
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"the shard '{stored.path}' is damaged: {str(error) or repr(error)}. Fetch it again, or"
            " write it anew"
        ) from error


class _Member(NamedTuple):
    """A file in an archive, or a link to one.

    Attributes:
        name: of it.
        place: of its bytes in the archive.
        nbytes: of it.
        link: its header, which says to what; None: it is a file.
    """

    name: str
    place: int
    nbytes: int
    link: tarfile.TarInfo | None


def _plain_member(stored: StoredBytes, archive: tarfile.TarFile) -> _Member | None:
    """Return the next member where its header is that of a file and says all; else None.

    Most headers are, and `tarfile` takes five times as long for each.
    """
    place = archive.offset
    if archive.pax_headers or place + _BLOCK > stored.nbytes:
        return None
    header = _plain_header(stored.read(place, _BLOCK))
    if header is None:
        return None
    name, nbytes = header
    archive.offset = place + _BLOCK + -(-nbytes // _BLOCK) * _BLOCK
    return _Member(name, place + _BLOCK, nbytes, None)


def _plain_header(header: bytes) -> tuple[str, int] | None:
    """Return name and bytes of a member; None: its header is not that of a file, or not all."""
    if header[_KIND_AT] != _FILE or header[_PREFIX_AT] or not begins_tar(header):
        return None
    digits = _NUMBER.fullmatch(header, *_SIZE)
    said = _NUMBER.fullmatch(header, _SUM_AT, _KIND_AT)
    if digits is None or said is None:
        return None
    # Adler's lower half is one more than the sum of all bytes; the sum's own field counts as blanks
    total = zlib.adler32(header[:_SUM_AT] + _BLANKS + header[_KIND_AT:]) & 0xFFFF
    if total != (int(said[1], 8) + 1) % _ADLER:
        return None
    return _decoded(header[:_NAME_NBYTES].partition(b"\0")[0]), int(digits[1], 8)


def _member(stored: StoredBytes, archive: tarfile.TarFile) -> _Member | None:
    """Return the next member with any header; None: the archive ends."""
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # of a million samples
        if member.issym() or member.islnk():
            return _Member(member.name, 0, 0, member)
        if member.issparse():
            raise ConfigError(
                f"the shard '{stored.path}' has the sparse member '{printable(member.name)}': write"
                " it anew without `tar --sparse`"
            )
        if member.isreg():
            return _Member(member.name, member.offset_data, member.size, None)
    return None


def _target(member: tarfile.TarInfo) -> str:
    """Return the name that a link means: a hard link's own, a symbolic one's from its folder."""
    if member.islnk() or member.linkname.startswith("/"):
        return member.linkname
    folder = member.name.rpartition("/")[0]
    parts: list[str] = []
    for part in f"{folder}/{member.linkname}".split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _check_end(stored: StoredBytes, place: int) -> None:
    """Raise ConfigError where the reading of headers ended at no end of an archive.

    Warn where the file ends there: an archive has zeros at its end, which some programs leave out.
    """
    behind = stored.read(min(place, stored.nbytes), min(_BEHIND, max(0, stored.nbytes - place)))
    if behind[:_BLOCK].strip(b"\0"):
        raise ConfigError(
            f"the shard '{stored.path}' is damaged: the header of a member, at {place:,}, cannot be"
            " read, and what follows would be lost. Write it anew"
        )
    if not behind:
        warnings.warn(
            f"the shard '{stored.path}' ends behind a member, without the zeros at the end of a tar"
            " file: it may be cut off, so that samples are missing. Compare it with its source, or"
            " write it anew",
            stacklevel=2,
        )
    for at in range(0, len(behind), _BLOCK):
        if begins_tar(behind[at : at + _BLOCK]):
            raise ConfigError(
                f"the shard '{stored.path}' has another archive behind its end, at {place + at:,},"
                " whose samples would be lost: write them to a file of their own"
            )


class TarShard(Shard):
    """An open tar file.

    Args:
        stored: its bytes.
        arrays: its index: see `scan_tar`.
        options: which members are wanted.
    """

    def __init__(self, stored: StoredBytes, arrays: Arrays, options: Options) -> None:
        super().__init__(stored.path, stored.unpacked_nbytes)
        self._stored = stored
        self._arrays = arrays
        self._names = [_decoded(name) for name in arrays["names"].tobytes().split(b"\0")]
        wanted = [name if options.wants(name) else None for name in self._names]
        key = _KEY if options.wants(_KEY) else None
        self._members = TarMembers(stored, stored.fd, arrays, wanted, key)

    def samples(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """See Shard: bytes by extension, and the key."""
        try:
            return self._members.samples(positions)
        except IndexError as error:
            raise DatasetError(
                f"the index of the shard '{self.path}' is damaged: {error}. Remove that, and it"
                " is made again"
            ) from error

    def ranges(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """See Shard: from its first member that is wanted to its last."""
        starts, places, nbytes = (self._arrays[name] for name in ("starts", "places", "nbytes"))
        found = []
        for position in positions:
            begin, end = starts[position : position + 2].tolist()
            members = zip(places[begin:end].tolist(), nbytes[begin:end].tolist(), strict=True)
            parts = [(place, place + size) for place, size in members]
            first, last = min(parts)[0], max(map(max, parts))
            total = sum(end - begin for begin, end in parts)
            found += [(first, last)] if last - first <= 2 * total + _NEAR else parts
        return found

    def names(self, position: int) -> list[str]:
        """See Shard."""
        begin, end = self._arrays["starts"][position : position + 2].tolist()
        kinds = self._arrays["extensions"][begin:end].tolist()
        return [_KEY, *(self._names[kind] for kind in kinds)]

    def origin(self, position: int) -> tuple[int, str]:
        """See Shard: the place of the data of its first member."""
        first = self._arrays["starts"][position]
        return int(self._arrays["places"][first]), self._members.key(position)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")
