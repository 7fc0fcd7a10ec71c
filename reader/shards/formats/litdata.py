"""LitData's chunks, by an index.json: trees of values, rows of Arrow, or blocks of tokens.

Imports NumPy, and pyarrow for rows and for what is compressed. Source: litdata 0.2.76. A chunk has
the number of samples, where each begins and the last ends, and the samples: the sizes of a tree's
leaves, and the leaves. Numbers are uint32, of little-endian order. Rows of Arrow stand behind that
and take the samples' place. Of chunks of tokens the numbers of all samples are one sequence.
"""

from __future__ import annotations

import json
import operator
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, DatasetError, got, shown
from reader.shards.formats.compression import decompressed, required_pyarrow
from reader.shards.formats.litdata_serializers import Decoder, serializer_of, type_of_numbers
from reader.shards.formats.parquet import row_dicts
from reader.shards.formats.shard import (
    ListedShard,
    Options,
    PlacedShard,
    Shard,
    errors_of_library,
    read_places,
)
from reader.stores.files import Files, StoredBytes, StoredFile, inner_path

__all__ = ["describes_litdata", "open_litdata", "opening_litdata", "read_litdata"]

_NUMBER = np.dtype("<u4")
_PROTOCOL = 1  # of a tree's description
_TREES, _TOKENS = "PyTreeLoader", "TokensLoader"
_LEVELS = ("chunk", "batch", "sample")  # what is compressed by itself
_HEAD = struct.Struct("<8sHHIII")  # of a chunk compressed by batches: magic, version, flags, counts
_MAGIC, _VERSION = b"LDFZ01\0\0", 1
_FRAME = np.dtype(
    [("first", "<u4"), ("count", "<u4"), ("place", "<u8"), ("packed", "<u4"), ("nbytes", "<u4")]
)
_TAIL = struct.Struct("<I8s")  # of a chunk with rows: bytes of them, and magic
_ROWS_MAGIC = b"LDARW01\0"
_ROWS_OF_FILE = b"ARROW1"  # Arrow's file form begins so, and its stream form does not
_MOST_SAMPLES = 1 << 32
_WHOLE = "0"  # the field that a sample is which has none


def describes_litdata(index: Any) -> bool:
    """Whether what an index.json holds is of LitData."""
    return isinstance(index, dict) and "chunks" in index and "config" in index


def read_litdata(folder: str, index: dict[str, Any], options: Options) -> list[ListedShard]:
    """Return the chunks that an index.json names.

    Raises:
        ConfigError: they are encrypted, of a kind that is not read, or cannot be.
    """
    name = os.path.join(folder, "index.json")  # noqa: PTH118
    try:
        config = index["config"]
        note = _note(config, index["chunks"], options)
        found = [_listed(folder, each, note, config, options.files) for each in index["chunks"]]
        if found and not (note["is_tokens"] or _has_rows(found[0].path, options.files)):
            SampleTree(note["tree"], note["serializers"], options)  # refuses what is not known
    except ConfigError as error:
        raise ConfigError(f"'{name}': {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"'{name}' is damaged: its config or a chunk lacks {error}, or has it in another form."
            " Fetch the file again, or write the chunks anew"
        ) from error
    return found


def _note(config: dict[str, Any], chunks: list[Any], options: Options) -> dict[str, Any]:
    """Return what holds for all chunks."""
    if config.get("encryption"):
        raise ConfigError(
            "the chunks are encrypted, which is not read: write them anew without encryption="
        )
    has_tokens = any(each.get("dim") is not None for each in chunks)
    loader = config.get("item_loader") or (_TOKENS if has_tokens else _TREES)
    if loader not in (_TREES, _TOKENS):
        remedy = " Pass the Parquet files" if loader == "ParquetLoader" else ""
        raise ConfigError(
            f"the chunks are written for {loader!r}, and those for {_TREES} and {_TOKENS} are"
            f" read.{remedy}"
        )
    level = config.get("compression_level") or _LEVELS[0]
    packed = str(config.get("compression") or "")
    if level not in _LEVELS or packed.partition(":")[0] not in ("", "zstd"):
        raise ConfigError(
            f"the chunks are compressed by {packed!r} a {level!r}, and zstd a chunk, batch or"
            " sample is read"
        )
    note: dict[str, Any] = {
        "tree": str(config["data_spec"]),
        "serializers": [str(each) for each in config["data_format"]],
        "is_tokens": loader == _TOKENS,
        "block_size": options.block_size,
        "level": level if packed else "",
    }
    if note["is_tokens"]:
        type_of_numbers(note["serializers"][0])
    elif options.block_size is not None:
        raise ConfigError(
            f"block_size={options.block_size} is for chunks that were written for {_TOKENS}, and"
            f" these are for {loader}: leave it out"
        )
    return note


def _listed(
    folder: str,
    chunk: dict[str, Any],
    note: dict[str, Any],
    config: dict[str, Any],
    files: Files,
) -> ListedShard:
    count = operator.index(chunk["chunk_size"])
    path = inner_path(folder, str(chunk["filename"]))
    plain = path.replace(f".{config['compression']}.", ".") if note["level"] == "chunk" else path
    nbytes = chunk.get("chunk_bytes")
    said = {**note, "count": count, "is_packed": plain != path}
    said["nbytes"] = None if nbytes is None else operator.index(nbytes)
    if plain != path and not files.is_here(path) and files.is_here(plain):
        path, said["is_packed"] = plain, False  # LitData has decompressed it already
    samples = count
    if note["is_tokens"]:
        said["tokens"] = operator.index(chunk["dim"])
        samples = said["tokens"] // note["block_size"] if note["block_size"] else count
    for number in (count, samples):
        if not 0 <= number < _MOST_SAMPLES:
            raise ConfigError(f"the chunk '{path}' is said to have {number:,} samples")
    return ListedShard(path, samples, json.dumps(said))


def _has_rows(path: str, files: Files) -> bool:
    """Whether a chunk has rows of Arrow in its samples' place."""
    try:
        return _rows_of(files.stored(files.found([path])[0])) is not None
    except (OSError, DatasetError):  # it is told of when it is opened
        return False


def _rows_of(stored: StoredBytes) -> tuple[int, int] | None:
    """Return where a chunk's rows of Arrow begin, and their bytes; None: it has none."""
    if stored.nbytes < _TAIL.size:
        return None
    end = stored.nbytes - _TAIL.size
    nbytes, magic = _TAIL.unpack(stored.read(end, _TAIL.size))
    return (end - nbytes, nbytes) if magic == _ROWS_MAGIC else None


def open_litdata(file: StoredFile, note: str, _: Any, options: Options) -> Shard:
    """Return an open chunk. DatasetError: it is damaged."""
    said: dict[str, Any] = json.loads(note)
    stored, count = options.files.stored(file), said["count"]
    if said["is_packed"]:
        content = decompressed(stored.read(0, stored.nbytes), "zstd", None, file.path)
        stored = options.files.stored(file, content)
    found = _opened(file, stored, said, options)
    found.nbytes, found.said_nbytes = stored.nbytes, said["nbytes"]
    found.head_nbytes = _NUMBER.itemsize * (count + 2)
    return found


def _opened(
    file: StoredFile, stored: StoredBytes, said: dict[str, Any], options: Options
) -> _Chunk:
    """Return an open chunk, of its bytes after it is decompressed as a whole."""
    count = said["count"]
    rows = None if said["is_tokens"] else _rows_of(stored)
    if rows is not None:
        return _RowsShard(file, stored, rows, count, options)
    if said["level"] == "batch":
        stored, places = _of_batches(file, stored, count, options.files)
    else:
        places = read_places(stored, count, _NUMBER.itemsize * (count + 2), stored.nbytes)
    if said["is_tokens"]:
        return _TokensShard(stored, places, said, options)
    return _TreesShard(stored, places, said, options)


class _Chunk(Shard):
    """An open chunk, whose size index.json may say.

    Attributes:
        nbytes: of the chunk.
        head_nbytes: of these those of the places of its samples.
        said_nbytes: what index.json says; None: nothing.
    """

    nbytes = head_nbytes = 0
    said_nbytes: int | None = None

    def check_sums(self) -> list[str]:
        """See Shard: the size. LitData counts the chunk, and early releases its samples alone."""
        if self.said_nbytes not in (None, self.nbytes, self.nbytes - self.head_nbytes):
            raise DatasetError(
                f"the shard '{self.path}' has {self.nbytes:,} bytes, and chunk_bytes of index.json"
                f" is {self.said_nbytes:,}: fetch it again, or write it anew"
            )
        return []


def opening_litdata(file: StoredFile, note: str) -> list[tuple[int, int]]:
    """Return where the bytes lie that opening a chunk reads: the places and its end, or all."""
    said = json.loads(note)
    if said["is_packed"] or said["level"] == "batch":
        return [(0, file.nbytes)]
    head = min(_NUMBER.itemsize * (said["count"] + 2), file.nbytes)
    return [(0, head), (max(head, file.nbytes - _TAIL.size), file.nbytes)]


def _of_batches(
    file: StoredFile, stored: StoredBytes, count: int, files: Files
) -> tuple[StoredBytes, npt.NDArray[Any]]:
    """Return the samples of a chunk that is compressed by batches, and where each begins."""
    magic, version, _, samples, _, batches = _HEAD.unpack(stored.read(0, _HEAD.size))
    if (magic, version, samples) != (_MAGIC, _VERSION, count):
        raise DatasetError(
            f"the shard '{file.path}' has another head than a chunk of {count:,} samples that is"
            f" compressed by batches: {got(magic)}, version {version}, {samples:,} samples. Fetch"
            " it again, or write it anew"
        )
    nbytes = _NUMBER.itemsize * (count + 1)
    places = np.frombuffer(stored.read(_HEAD.size, nbytes), _NUMBER).astype(np.int64)
    table = stored.read(_HEAD.size + nbytes, batches * _FRAME.itemsize)
    parts, done = [], 0
    for first, number, place, packed, size in np.frombuffer(table, _FRAME).tolist():
        is_next = first == done and 0 < number <= count - done
        if not is_next or places[first + number] - places[first] != size:
            break
        parts.append(decompressed(stored.read(place, packed), "zstd", size, file.path))
        done += number
    if done != count or len(parts) != batches or places[0] or (np.diff(places) < 0).any():
        raise DatasetError(
            f"the shard '{file.path}' is damaged: its batches are not those of its samples. Fetch"
            " it again, or write it anew"
        )
    return files.stored(file, b"".join(parts)), places


# -- trees -----------------------------------------------------------------------------------------

_Restore = Callable[[Iterator[Any]], Any]  # takes the leaves that it needs, in their order


class _Node(NamedTuple):
    """A part of a tree.

    Attributes:
        restore: makes it of its leaves.
        leaves: how many it has.
        children: by name, of a dict, list or tuple; a leaf has none.
    """

    restore: _Restore
    leaves: int
    children: dict[str, _Node]


def _node(said: dict[str, Any]) -> _Node:
    """Return a tree that is described as torch does. ConfigError, KeyError, ...: it cannot be."""
    kind, parts = said["type"], [_node(each) for each in said["children_spec"]]
    if kind is None:
        return _Node(next, 1, {})
    restores = [each.restore for each in parts]
    names: Sequence[Any] = range(len(parts))
    restore: _Restore
    if kind in ("builtins.dict", "collections.OrderedDict", "collections.defaultdict"):
        context = said["context"]
        names = json.loads(context) if isinstance(context, str) else context["dict_context"]
        named = dict(zip(names, restores, strict=True))
        if len(named) != len(parts):
            raise ValueError("a dict has one key twice")

        def restore(leaves: Iterator[Any]) -> Any:
            return {name: part(leaves) for name, part in named.items()}

    elif kind == "builtins.list":

        def restore(leaves: Iterator[Any]) -> Any:
            return [part(leaves) for part in restores]

    elif kind == "builtins.tuple":

        def restore(leaves: Iterator[Any]) -> Any:
            return tuple([part(leaves) for part in restores])

    elif kind == "collections.deque":
        most = json.loads(said["context"])

        def restore(leaves: Iterator[Any]) -> Any:
            return deque([part(leaves) for part in restores], most)

    else:
        raise ConfigError(
            f"a sample has a part of the type {got(kind)}, which is none of dict, list, tuple,"
            " OrderedDict, defaultdict and deque"
        )
    children = dict(zip(map(str, names), parts, strict=True))
    if len(children) != len(parts):
        raise ConfigError("a sample has two keys of one text, such as 1 and '1'")
    return _Node(restore, sum(each.leaves for each in parts), children)


class SampleTree:
    """The form of samples: a tree, the serializers of its leaves, and which of them are wanted.

    A dict has a field for each key. A list or tuple has the fields "0", "1" and so on, and a value
    that is the whole sample the field "0".

    Args:
        said: the tree, as torch describes it in JSON.
        serializers: the name of each leaf's.
        options: which fields are wanted; all: samples are whole.

    Attributes:
        names: of the fields.
        leaves: the number, field and decoder of each leaf that is wanted.
        restore: makes a sample of these, decoded.

    Raises:
        ConfigError, KeyError, ...: the tree or a serializer cannot be.
    """

    def __init__(self, said: str, serializers: list[str], options: Options) -> None:
        protocol, root = json.loads(said)
        if protocol != _PROTOCOL:
            raise ConfigError(f"the tree of a sample has version {got(protocol)}, and 1 is known")
        node = _node(root)
        if node.leaves != len(serializers):
            raise ConfigError(
                f"a sample has {node.leaves} leaves, and {len(serializers)} serializers are named"
            )
        fields = node.children if node.children or not node.leaves else {_WHOLE: node}
        self.names = list(fields)
        self.leaves: list[tuple[int, str, Decoder]] = []
        chosen: dict[str, _Restore] = {}
        number = 0
        for name, field in fields.items():
            part = range(number, number + field.leaves)
            number += field.leaves
            if not options.wants(name):
                continue
            chosen[name] = field.restore
            is_encoded = name in options.encoded and not field.children
            for leaf in part:
                decoder = serializer_of(serializers[leaf], name, options.allow_pickle, is_encoded)
                self.leaves.append((leaf, name, decoder))

        def fields_of(leaves: Iterator[Any]) -> Any:
            return {name: restore(leaves) for name, restore in chosen.items()}

        self.restore = node.restore if options.names is None else fields_of


class _TreesShard(_Chunk, PlacedShard):
    """An open chunk of trees.

    Args:
        stored: its bytes.
        places: where each sample begins, and the last one ends.
        said: what the index says of it.
        options: how its samples are decoded.
    """

    def __init__(
        self,
        stored: StoredBytes,
        places: npt.NDArray[Any],
        said: dict[str, Any],
        options: Options,
    ) -> None:
        super().__init__(stored, places)
        self._is_packed = said["level"] == "sample"
        self._tree = SampleTree(said["tree"], said["serializers"], options)
        self._sizes = struct.Struct(f"<{len(said['serializers'])}I")

    def samples(self, positions: Sequence[int]) -> list[Any]:
        """See Shard: the tree; of fields that are wanted, a dict."""
        found = []
        for position, content in zip(positions, self.contents(positions), strict=True):
            if self._is_packed:
                content = decompressed(content, "zstd", None, self.path)
            found.append(self._tree.restore(iter(self._leaves(position, content))))
        return found

    def _leaves(self, position: int, content: bytes) -> list[Any]:
        """Return the leaves of a sample that are wanted. DatasetError: they are damaged."""
        if len(content) < self._sizes.size:
            raise self.damaged(position, "it has fewer bytes than its sizes")
        ends = [self._sizes.size]
        for size in self._sizes.unpack_from(content):
            ends.append(ends[-1] + size)
        if ends[-1] != len(content):
            raise self.damaged(
                position, f"its leaves end at {ends[-1]:,}, and it has {len(content):,} bytes"
            )
        found = []
        for number, field, decode in self._tree.leaves:
            try:
                found.append(decode(content[ends[number] : ends[number + 1]]))
            except Exception as error:  # of many types
                raise self.damaged(position, f"its field {field!r}: {shown(error)}") from error
        return found

    def names(self, position: int) -> list[str]:  # noqa: ARG002
        """See Shard."""
        return list(self._tree.names)


# -- rows ------------------------------------------------------------------------------------------


class _RowsShard(_Chunk):
    """An open chunk of rows of Arrow, which are in memory.

    Args:
        file: the chunk.
        stored: its bytes.
        rows: where the rows begin in these, and their bytes.
        count: how many the index says there are.
        options: which columns are wanted.
    """

    def __init__(
        self,
        file: StoredFile,
        stored: StoredBytes,
        rows: tuple[int, int],
        count: int,
        options: Options,
    ) -> None:
        pa: Any = required_pyarrow(f"the shard '{file.path}' has rows of Arrow")
        content = stored.read(*rows)
        self._begin = rows[0]
        is_file = content.startswith(_ROWS_OF_FILE)
        with errors_of_library(file.path, DatasetError):
            with (pa.ipc.open_file if is_file else pa.ipc.open_stream)(content) as source:
                table = source.read_all()
            table.validate(full=True)  # offsets that lie outside would end the process
            table = table.combine_chunks()  # else `take` copies all of them each time
            self._columns = table.column_names
            self._table = table.select([name for name in self._columns if options.wants(name)])
        if table.num_rows != count:
            raise DatasetError(
                f"the shard '{file.path}' has {table.num_rows:,} rows, and index.json says"
                f" {count:,}: fetch it again, or write it anew"
            )
        super().__init__(file.path, table.nbytes)
        self._options = options

    def samples(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """See Shard: a row as a dict of Python values; of a picture that is encoded, its bytes."""
        with errors_of_library(self.path, DatasetError):
            return row_dicts(self._table, np.asarray(positions), self._options)

    def names(self, position: int) -> list[str]:  # noqa: ARG002
        """See Shard."""
        return list(self._columns)

    def origin(self, position: int) -> tuple[int, str]:  # noqa: ARG002
        """See Shard: where the chunk's rows begin."""
        return self._begin, ""


# -- tokens ----------------------------------------------------------------------------------------


class _TokensShard(_Chunk, PlacedShard):
    """An open chunk of tokens: blocks of them, or the samples as they were written.

    Args:
        stored: its bytes.
        places: where each sample begins that was written, and the last one ends.
        said: what the index says of it.
        options: whether fields are wanted: the whole sample is the field "0".
    """

    def __init__(
        self,
        stored: StoredBytes,
        places: npt.NDArray[Any],
        said: dict[str, Any],
        options: Options,
    ) -> None:
        self._has_fields = options.names is not None
        self._dtype = type_of_numbers(said["serializers"][0])
        wanted = said["tokens"] * self._dtype.itemsize
        if places[-1] - places[0] != wanted:
            raise DatasetError(
                f"the shard '{stored.path}' has {places[-1] - places[0]:,} bytes of tokens, and"
                f" {said['tokens']:,} tokens have {wanted:,}: fetch it again, or write it anew"
            )
        if said["block_size"]:
            step = said["block_size"] * self._dtype.itemsize
            places = np.arange(places[0], places[-1] + 1, step)
        super().__init__(stored, places)

    def samples(self, positions: Sequence[int]) -> list[Any]:
        """See Shard: an array; of fields that are wanted, a dict."""
        found = []
        for content in self.contents(positions):
            tokens = np.frombuffer(content, self._dtype).copy()
            found.append({_WHOLE: tokens} if self._has_fields else tokens)
        return found

    def names(self, position: int) -> list[str]:  # noqa: ARG002
        """See Shard."""
        return [_WHOLE]
