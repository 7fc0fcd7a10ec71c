"""Documents in flat arrays, one after the other: in shared memory, or in mapped files.

Imports how files of tokens open, shared memory, and the compiled copy. A dataset that goes to
another process goes as paths and as shared memory; files are compared with what they were.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader._core.tokens.gather import TokenArrays
from reader.checks import as_int
from reader.errors import ConfigError, DatasetError
from reader.formats.token_file import StoredTokens, open_tokens
from reader.shards.shards import Origin
from reader.sharing.share import share
from reader.stores.files import Files, StoredFile
from reader.stores.kept_arrays import COUNT, Arrays
from reader.stores.kept_index import kept_for
from reader.stores.urls import is_url
from reader.tokens.listed_documents import TOKENS, TokenFields, check_pieces, outside
from reader.tokens.megatron_index import read_index

__all__ = ["FlatDocuments", "Mark", "in_files", "in_memory"]

Array = npt.NDArray[Any]
_INDEX = ".idx"
_AT_ONCE = 1 << 22  # tokens that are searched at a time


class Mark(NamedTuple):
    """The token that ends or begins each document, and belongs to it.

    Attributes:
        token: its number.
        option: "document_end" or "document_begin", which it was given as.
    """

    token: int
    option: str

    def check(self, dtype: np.dtype[Any], what: str) -> None:
        """Raise ConfigError where it is no token of a type."""
        limits = np.iinfo(dtype)
        as_int(
            self.option,
            self.token,
            low=int(limits.min),
            high=int(limits.max),
            remedy=f"It is a token of {what}, which has {dtype}.",
        )


class TokenFile(NamedTuple):
    """A file of tokens, as it was when it was opened first.

    Attributes:
        file: path, bytes and time.
        dtype: of its tokens.
        begin: where they begin, in bytes.
        size: how many there are.
    """

    file: StoredFile
    dtype: np.dtype[Any]
    begin: int
    size: int

    def opened(self, files: Files) -> Array | StoredTokens:
        """Return its tokens: mapped, or those of a file in a store.

        Raises:
            DatasetError: it cannot be mapped, or has changed.
        """
        path = self.file.path
        if is_url(path):
            return StoredTokens(files, self.file, self.dtype, self.begin, self.size)
        try:
            found = files.file(path)
            if found != self.file:
                raise DatasetError(
                    f"'{path}' has {found.nbytes:,} bytes, and had {self.file.nbytes:,} when the"
                    " dataset was made, or was written anew: leave the file as it is while it is"
                    " read"
                )
            if not self.size:
                return np.empty(0, self.dtype)
            return np.asarray(np.memmap(path, self.dtype, "r", self.begin, self.size))
        except (OSError, ValueError) as error:
            raise DatasetError(f"'{path}' cannot be mapped: {error}") from error


class FlatDocuments:
    """Documents that lie in arrays.

    Args:
        arrays: of each field, by name, in shared memory: one array has all documents; None: they
            lie in `files`.
        files: that have the documents, the first ones in the first; they have tokens alone.
        stores: how files are read.
        firsts: the first document of each file, and how many documents there are.
        places: in a row where each document begins, in numbers from the begin of its file, and in
            a row how many tokens it has.
        as_dtype: what tokens are given as; None: as they are.
    """

    is_pure = True

    def __init__(
        self,
        arrays: dict[str, Array] | None,
        files: Sequence[TokenFile],
        stores: Files,
        firsts: Array,
        places: Array,
        as_dtype: np.dtype[Any] | None,
    ) -> None:
        self._arrays, self._files, self._stores = arrays, list(files), stores
        self._firsts, self._places = firsts, share(places)
        self._as_dtype = as_dtype
        self._open()

    def _open(self) -> None:
        parts: dict[str, list[Any]]
        if self._arrays is None:
            parts = {TOKENS: [each.opened(self._stores) for each in self._files]}
        else:
            parts = {name: [each.view(np.ndarray)] for name, each in self._arrays.items()}
        self.fields = {name: each[0].dtype for name, each in parts.items()}
        if self._as_dtype is not None:
            self.fields[TOKENS] = self._as_dtype
        self._starts, self.lengths = self._places.view(np.ndarray)
        self._parts, self._begins = parts, self._firsts.tolist()
        self._is_far = any(isinstance(each, StoredTokens) for each in parts[TOKENS])
        self._sources = (
            {}
            if self._is_far
            else {
                name: TokenArrays(each, self._firsts, self._starts, self.lengths)
                for name, each in parts.items()
            }
        )

    def read(self, indices: Sequence[int]) -> list[dict[str, Array]]:
        """Return documents, by their numbers from the front."""
        if not self._is_far:
            return [self._view(index) for index in indices]
        documents = np.asarray(indices, np.int64)
        pieces = self._pieces(documents, np.zeros_like(documents), self.lengths[documents])
        return [{TOKENS: self._typed(TOKENS, piece)} for piece in pieces]

    def _view(self, index: int) -> dict[str, Array]:
        """Return a document that lies in memory, or is mapped; it is not copied."""
        part = bisect_right(self._begins, index) - 1
        begin = int(self._starts[index])
        end = begin + int(self.lengths[index])
        return {
            name: self._typed(name, arrays[part][begin:end]) for name, arrays in self._parts.items()
        }

    def _typed(self, name: str, values: Array) -> Array:
        dtype = self.fields[name]
        return values if values.dtype == dtype else values.astype(dtype)

    def _pieces(self, documents: Array, begins: Array, counts: Array) -> list[Array]:
        """Return pieces of documents; those of a file in a store are fetched together."""
        numbers = np.searchsorted(self._firsts, documents, "right") - 1
        firsts = self._starts[documents] + begins
        found: list[Any] = [None] * len(documents)
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            part = self._parts[TOKENS][number]
            wanted = firsts[rows].tolist(), counts[rows].tolist()
            pieces = (
                part.pieces(*wanted)
                if isinstance(part, StoredTokens)
                else [part[first : first + count] for first, count in zip(*wanted, strict=True)]
            )
            for row, piece in zip(rows.tolist(), pieces, strict=True):
                found[row] = piece
        return found

    def gather(
        self,
        documents: Array,
        begins: Array,
        counts: Array,
        places: Array,
        out: Mapping[str, Array],
    ) -> None:
        """See `Documents.gather`."""
        if self._is_far:
            check_pieces(documents, begins, counts, places, self.lengths, out)
            pieces = self._pieces(documents, begins, counts)
            for array in out.values():  # of tokens alone: see `files`
                for piece, place in zip(pieces, places.tolist(), strict=True):
                    array[place : place + len(piece)] = piece
            return
        for name, array in out.items():
            bad = self._sources[name].gather(documents, begins, counts, places, array)
            if bad >= 0:
                raise outside(bad, documents, begins, counts, places, self.lengths, array)

    def origin(self, index: int) -> Origin:
        """Return where a document comes from."""
        part = bisect_right(self._begins, index) - 1
        position = index - self._begins[part]
        if self._arrays is not None:
            return Origin("", 0, "", position)
        file = self._files[part]
        offset = file.begin + int(self._starts[index]) * file.dtype.itemsize
        return Origin(file.file.path, offset, "", position)

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: vars(self)[name]
            for name in ("_arrays", "_files", "_stores", "_firsts", "_places", "_as_dtype")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()


# -- in memory ------------------------------------------------------------------------------------


def in_memory(source: Any, mark: Mark | None, asked: TokenFields) -> FlatDocuments:
    """Return documents of arrays, which are copied into shared memory.

    Args:
        source: a list of documents, or an array: of all tokens, or with a row for each document.
        mark: the tokens that end or begin documents, in an array of all tokens.
        asked: which fields documents have.

    Raises:
        ConfigError, ConfigTypeError: one is no document.
    """
    if isinstance(source, np.ndarray) and source.ndim == 1 and source.dtype.kind in "iu":
        if mark is None:
            raise ConfigError(
                "an array of tokens with one axis needs reader.Documents(array, document_end=) or"
                " document_begin=: the token that ends, or begins, each document. As one document"
                " pass [array]"
            )
        tokens = asked.document(source, 0)[TOKENS]
        mark.check(tokens.dtype, "the array")
        lengths, has_mark = _lengths(tokens, mark)
        if not has_mark:
            raise _no_mark(mark, "the array")
        flat = {TOKENS: share(np.ascontiguousarray(tokens))}
    else:
        if mark is not None:
            raise ConfigError(
                "document_end and document_begin are for flat tokens, and a list of documents was"
                " passed: leave them out, or pass one array"
            )
        if not len(source):
            raise ConfigError("there is no document: the list is empty")
        found = [asked.document(sample, number) for number, sample in enumerate(source)]
        lengths = np.array([len(each[TOKENS]) for each in found], np.int64)
        flat = {
            name: share(np.concatenate([each[name] for each in found]).astype(dtype, copy=False))
            for name, dtype in asked.types.items()
        }
    places = np.stack([_starts(lengths), lengths])
    firsts = np.array([0, len(lengths)], np.int64)
    return FlatDocuments(flat, (), Files(), firsts, places, asked.as_dtype)


def _starts(lengths: Array) -> Array:
    return np.cumsum(lengths) - lengths


# -- documents that a token ends or begins --------------------------------------------------------


def _lengths(tokens: Array | StoredTokens, mark: Mark) -> tuple[Array, bool]:
    """Return how many tokens each document has, and whether the mark is among them."""
    found = []
    for begin in range(0, len(tokens), _AT_ONCE):
        if isinstance(tokens, StoredTokens):
            (part,) = tokens.pieces([begin], [min(_AT_ONCE, len(tokens) - begin)])
        else:
            part = tokens[begin : begin + _AT_ONCE]
        found.append(np.flatnonzero(part == mark.token) + begin)
    cuts = np.concatenate([np.empty(0, np.int64), *found]) + (mark.option == "document_end")
    edges = np.concatenate([[0], cuts, [len(tokens)]])
    is_edge = np.ones(len(edges), bool)  # no document is empty: a mark at an end cuts nothing off
    is_edge[1:] = edges[1:] > edges[:-1]
    return np.diff(edges[is_edge]), bool(len(cuts))


def _no_mark(mark: Mark, where: str) -> ConfigError:
    return ConfigError(
        f"{mark.option}={mark.token} is nowhere in {where}: pass the token that your tokenizer"
        " wrote there, or the dtype of the tokens"
    )


# -- in files -------------------------------------------------------------------------------------


def in_files(
    paths: Sequence[str],
    mark: Mark | None,
    dtype: np.dtype[Any] | None,
    header: int | None,
    as_dtype: np.dtype[Any] | None,
    folder: str | None,
    stores: Files,
) -> FlatDocuments:
    """Return the documents of files of tokens.

    Args:
        paths: of flat files, and of the indices of Megatron's.
        mark: the token that ends or begins each document of a flat file.
        dtype: of the tokens in flat files; None: what they say.
        header: how many bytes lie before these; None: what they say.
        as_dtype: what tokens are given as.
        folder: where lengths of documents are kept that a file had to be read for.
        stores: how files are read.

    Raises:
        ConfigError: a file cannot be read, or is none.
    """
    files: list[TokenFile] = []
    lengths: list[Array | None] = []
    for path in paths:
        if path.endswith(_INDEX):
            file, found = _megatron_file(path, stores)
            files.append(file)
            lengths.append(found)
            continue
        files.append(_flat_file(path, dtype, header, stores))
        lengths.append(None)
    _check_types(files, as_dtype)
    flat = [file for file, found in zip(files, lengths, strict=True) if found is None]
    if flat:
        marked = _required(mark, flat[0].file.path)
        for file in flat:
            marked.check(file.dtype, f"'{file.file.path}'")
        cut = iter(_cut_files(flat, marked, folder, stores))
        lengths = [next(cut) if found is None else found for found in lengths]
    elif mark is not None:
        raise ConfigError(
            f"{mark.option} is for flat files of tokens, and '{paths[0]}' says where its documents"
            " are: leave it out"
        )
    every = [each for each in lengths if each is not None]
    firsts = np.cumsum([0, *map(len, every)], dtype=np.int64)
    if not firsts[-1]:
        raise ConfigError(f"there is no document: '{files[0].file.path}' is empty")
    places = np.stack([np.concatenate([_starts(each) for each in every]), np.concatenate(every)])
    return FlatDocuments(None, files, stores, firsts, places, as_dtype)


def _required(mark: Mark | None, path: str) -> Mark:
    """Return the mark. ConfigError: there is none."""
    if mark is None:
        raise ConfigError(
            f"'{path}' is a flat file of tokens, which does not say where its documents end: pass"
            " reader.Documents(path, document_end=), the token that ends each, or document_begin="
        )
    return mark


def _flat_file(
    path: str, dtype: np.dtype[Any] | None, header: int | None, stores: Files
) -> TokenFile:
    """Return a flat file of tokens. ConfigError: it cannot be read, or is none."""
    tokens = open_tokens(path, dtype, header, stores)
    if isinstance(tokens, StoredTokens):
        return TokenFile(tokens.file, tokens.dtype, tokens.begin, len(tokens))
    begin = int(getattr(tokens, "offset", 0))
    return TokenFile(stores.file(path), tokens.dtype, begin, len(tokens))


def _megatron_file(path: str, stores: Files) -> tuple[TokenFile, Array]:
    """Return the file that an index of Megatron's is of, and how many tokens its sequences have."""
    tokens = path.removesuffix(_INDEX) + ".bin"
    try:
        file = stores.file(tokens)
    except (OSError, ValueError, DatasetError) as error:
        raise ConfigError(
            f"'{path}' is the index of '{tokens}', which cannot be read: {error}"
        ) from error
    dtype, lengths = read_index(path, file, stores)
    return TokenFile(file, dtype, 0, file.nbytes // dtype.itemsize), lengths


def _cut_files(
    files: Sequence[TokenFile], mark: Mark, folder: str | None, stores: Files
) -> Iterator[Array]:
    """Yield how many tokens each document of a flat file has; they are kept. See `kept_for`."""
    by_path = {file.file.path: file for file in files}

    def scan(file: StoredFile) -> Arrays:
        lengths, has_mark = _lengths(by_path[file.path].opened(stores), mark)
        small = lengths.astype(np.uint32) if lengths.max(initial=0) < 1 << 32 else lengths
        return {
            COUNT: np.array([len(lengths)]),
            "lengths": small,
            "marks": np.array([has_mark], np.uint8),
        }

    read_as = {(file.dtype.str, file.begin) for file in files}
    kind = f"documents {mark.option}={mark.token} {sorted(read_as)}"
    kept = kept_for(kind, [file.file for file in files], folder, scan)
    found = [kept.arrays(row) for row in range(len(files))]
    has_mark = any(arrays is not None and arrays["marks"].any() for arrays in found)
    if not has_mark and any(file.size for file in files):
        first = files[0].file.path
        raise _no_mark(mark, f"'{first}'" + (f" and {len(files) - 1} others" if files[1:] else ""))
    for arrays, file in zip(found, files, strict=True):
        lengths = None if arrays is None else arrays["lengths"].astype(np.int64)
        if lengths is None or (lengths < 1).any() or int(lengths.sum()) != file.size:
            lengths = scan(file.file)["lengths"].astype(np.int64)  # it has gone, or is not ours
        yield lengths


def _check_types(files: Sequence[TokenFile], as_dtype: np.dtype[Any] | None) -> None:
    """Raise ConfigError where files have several types, or tokens would become other numbers."""
    types = {file.dtype: file.file.path for file in reversed(files)}
    if as_dtype is None and len(types) > 1:
        told = " and ".join(f"'{path}' of {dtype}" for dtype, path in types.items())
        raise ConfigError(
            f"the files have tokens of several types, such as {told}: pass as_dtype= that holds"
            " all, such as 'int32'"
        )
    for dtype, path in types.items():
        if as_dtype is not None and not np.can_cast(dtype, as_dtype):
            raise ConfigError(
                f"as_dtype must hold every token of '{path}', which has {dtype}, got {as_dtype}:"
                " pass a wider one"
            )
