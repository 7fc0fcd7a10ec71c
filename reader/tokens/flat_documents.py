"""Documents in flat arrays, one after the other: in shared memory, or in mapped files.

Imports how files of tokens open, shared memory, and the compiled copy. A dataset that goes to
another process goes as paths and as shared memory; files are compared with what they were.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader._core.tokens.gather import TokenArrays
from reader.checks import as_int, refuse_url
from reader.errors import ConfigError, DatasetError, got
from reader.formats.token_file import as_integers, open_tokens
from reader.shards.shards import Origin
from reader.sharing.share import share
from reader.stores.files import Files, StoredFile
from reader.tokens.listed_documents import TOKENS, TokenFields, outside

__all__ = ["FlatDocuments", "Mark", "in_files", "in_memory"]

Array = npt.NDArray[Any]
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
    dtype: str
    begin: int
    size: int

    def mapped(self) -> Array:
        """Return its tokens. DatasetError: it cannot be mapped, or has changed."""
        path = self.file.path
        try:
            found = Files().file(path)
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
        firsts: Array,
        places: Array,
        as_dtype: np.dtype[Any] | None,
    ) -> None:
        self._arrays, self._files = arrays, list(files)
        self._firsts, self._places = firsts, share(places)
        self._as_dtype = as_dtype
        self._open()

    def _open(self) -> None:
        if self._arrays is None:
            parts = {TOKENS: [each.mapped() for each in self._files]}
        else:
            parts = {name: [each.view(np.ndarray)] for name, each in self._arrays.items()}
        self.fields = {name: each[0].dtype for name, each in parts.items()}
        if self._as_dtype is not None:
            self.fields[TOKENS] = self._as_dtype
        starts, self.lengths = self._places.view(np.ndarray)
        self._parts, self._starts = parts, starts
        self._sources = {
            name: TokenArrays(each, self._firsts, starts, self.lengths)
            for name, each in parts.items()
        }

    def read(self, indices: Sequence[int]) -> list[dict[str, Array]]:
        """Return documents, by their numbers from the front."""
        found = []
        for index in indices:
            part = int(np.searchsorted(self._firsts, index, "right")) - 1
            begin = int(self._starts[index])
            end = begin + int(self.lengths[index])
            found.append(
                {
                    name: arrays[part][begin:end].astype(self.fields[name], copy=False)
                    for name, arrays in self._parts.items()
                }
            )
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
        for name, array in out.items():
            bad = self._sources[name].gather(documents, begins, counts, places, array)
            if bad == -2:
                raise ConfigError(
                    f"the field {name!r} of {self.fields[name]} cannot become {array.dtype}"
                )
            if bad >= 0:
                raise outside(bad, documents, begins, counts, places, self.lengths, array)

    def origin(self, index: int) -> Origin:
        """Return where a document comes from."""
        part = int(np.searchsorted(self._firsts, index, "right")) - 1
        position = index - int(self._firsts[part])
        if self._arrays is not None:
            return Origin("", 0, "", position)
        file = self._files[part]
        offset = file.begin + int(self._starts[index]) * np.dtype(file.dtype).itemsize
        return Origin(file.file.path, offset, "", position)

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: vars(self)[name]
            for name in ("_arrays", "_files", "_firsts", "_places", "_as_dtype")
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
                "an array of tokens with one axis needs document_end= or document_begin=: the token"
                " that ends, or begins, each document. As one document pass [array]"
            )
        mark.check(source.dtype, "the array")
        lengths, has_mark = _lengths(source, mark)
        if not has_mark:
            raise _no_mark(mark, "the array")
        flat = {TOKENS: share(np.ascontiguousarray(source))}
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
    return FlatDocuments(flat, (), firsts, places, asked.as_dtype)


def _starts(lengths: Array) -> Array:
    return np.cumsum(lengths) - lengths


# -- documents that a token ends or begins --------------------------------------------------------


def _lengths(tokens: Array, mark: Mark) -> tuple[Array, bool]:
    """Return how many tokens each document has, and whether the mark is among them."""
    found = [
        np.flatnonzero(tokens[begin : begin + _AT_ONCE] == mark.token) + begin
        for begin in range(0, len(tokens), _AT_ONCE)
    ]
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
    dtype: Any,
    header: int | None,
    as_dtype: np.dtype[Any] | None,
) -> FlatDocuments:
    """Return the documents of files of tokens; see `Documents`.

    Raises:
        ConfigError: one cannot be read, or is none.
    """
    if header is not None:
        header = as_int("header", header, low=0, remedy="It is a number of bytes.")
    known = None if dtype is None else as_integers("dtype", dtype)
    files, lengths, have_mark = [], [], False
    for path in paths:
        refuse_url("source", path)
        file, found, has_mark = _flat_file(path, mark, known, header)
        files.append(file)
        lengths.append(found)
        have_mark |= has_mark
    types = {each.dtype: each.file.path for each in reversed(files)}
    for each in files:
        _check_type(each, types, as_dtype)
    firsts = np.cumsum([0, *map(len, lengths)], dtype=np.int64)
    if not firsts[-1]:
        raise ConfigError(f"there is no document: '{paths[0]}' is empty")
    if mark is not None and not have_mark:
        raise _no_mark(mark, f"'{paths[0]}'" + (" and the others" if paths[1:] else ""))
    places = np.stack(
        [np.concatenate([_starts(each) for each in lengths]), np.concatenate(lengths)]
    )
    return FlatDocuments(None, files, firsts, places, as_dtype)


def _flat_file(
    path: str, mark: Mark | None, dtype: np.dtype[Any] | None, header: int | None
) -> tuple[TokenFile, Array, bool]:
    """Return a flat file of tokens, how many each document has, and whether it has the mark."""
    path = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111
    tokens = open_tokens(path, dtype, header, Files())
    if mark is None:
        raise ConfigError(
            f"'{path}' is a flat file of tokens, which does not say where its documents end: pass"
            " document_end=, the token that ends each, or document_begin="
        )
    mark.check(tokens.dtype, f"'{path}'")
    begin = int(getattr(tokens, "offset", 0))
    stamp = Files().file(path)
    file = TokenFile(stamp, tokens.dtype.str, begin, len(tokens))
    return file, *_lengths(np.asarray(tokens), mark)


def _check_type(file: TokenFile, types: Mapping[str, str], as_dtype: np.dtype[Any] | None) -> None:
    """Raise ConfigError where the tokens of a file would become other numbers."""
    found = np.dtype(file.dtype)
    if as_dtype is None:
        if len(types) > 1:
            told = " and ".join(f"'{path}' of {np.dtype(name)}" for name, path in types.items())
            raise ConfigError(
                f"the files have tokens of several types, such as {told}: pass as_dtype= that"
                " holds all, such as 'int32'"
            )
    elif not np.can_cast(found, as_dtype):
        raise ConfigError(
            f"as_dtype must hold every token of '{file.file.path}', which has {found}, got"
            f" {got(as_dtype)}: pass a wider one"
        )
