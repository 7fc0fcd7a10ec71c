"""Documents of tokens by number: what language models are trained on, whatever holds it.

Imports the kinds of documents: flat ones, in memory or in mapped files, and listed ones, which a
dataset gives. A Documents is one of these, chosen by what it was made of.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import as_folder, as_int, described
from reader.data.dataset import Dataset
from reader.data.fingerprint import digest_of
from reader.data.wrapped import unless_overridden
from reader.errors import ConfigError, ConfigTypeError, DatasetError, SampleIndexError, got
from reader.formats.token_file import as_integers, check_as_dtype
from reader.shards.index import refuse_twice
from reader.shards.shards import Origin
from reader.sharing.shared_table import table_class
from reader.stores.files import Files
from reader.stores.paths import parts_of
from reader.stores.remote_files import files_for
from reader.stores.shard_cache import ShardCache
from reader.stores.urls import is_url
from reader.tokens.flat_documents import FlatDocuments, Mark, in_files, in_memory
from reader.tokens.listed_documents import ListedDocuments, TokenFields, in_shards
from reader.tokens.megatron_index import MAGIC

__all__ = ["Documents"]

_INDEX = ".idx"
_TOKENS = (".bin", ".npy", _INDEX)  # what names of files of tokens end in
Array = npt.NDArray[Any]

_DIGESTED = 20  # at most about 2 to that power lengths are digested


class Documents(Dataset[dict[str, Array]]):
    """Hold documents of tokens, each a dict of arrays: "tokens", and fields of the same length.

    Args:
        source: what holds the documents:

            - a list or tuple of documents, or an array with a row for each. They are copied into
              shared memory. A document is an array, list or tensor of integers, or a dict of these.
            - an array of tokens with one axis, with `document_end` or `document_begin`.
            - the path of a file, of a folder with such files, a pattern, or a list of these: see
              below.
            - any other dataset with a length and indices, such as `reader.Shards`. It is read once
              for the lengths, unless `lengths` gives them.
        document_end: the token that ends a document, and belongs to it.
        document_begin: the token that begins a document, and belongs to it.
        tokens: the field that has the tokens, of documents that are dicts; None: "tokens", or
            "input_ids".
        fields: the names of other fields, such as ["loss_mask"], of documents that are dicts; None:
            all of the first document that are arrays or lists of numbers. They have the length of
            the tokens.
        lengths: of each document of a dataset, in tokens; they are compared when it is read.
        dtype: of the tokens in flat files; None: what they say, else "uint16".
        as_dtype: what tokens are given as; None: as they are. Files of several types need it.
        header: how many bytes lie before the first token of a flat file: see `TokenWindows`.
        index: the folder where lengths are kept that files had to be read for; None: beside the
            first file, if that folder is writable. They are made anew for files that have changed.
        cache: where bytes of a store are kept: see `reader.Shards`.
        store: options of the store's client: see `reader.Shards`.

    Files are of these kinds, and their documents are numbered in the order of the files:

    - Megatron's: "corpus.idx" or "corpus.bin", or "corpus", with both beside each other. A
      document is a sequence of the index, as GPTDataset of Megatron has them: of a corpus that was
      split into sentences it is a sentence.
    - flat files of tokens, as `TokenWindows` reads them, whose names end in ".bin" or ".npy", or
      any with `dtype` or `header`. They need `document_end` or `document_begin`, which is searched
      for once. A document ends where its file ends.
    - all that `reader.Shards` reads, such as Parquet and JSON lines, with lists of tokens.

    Of a folder the first of these kinds is taken that it has. Flat files and Megatron's are mapped,
    and may be mixed; bytes of a store are fetched when they are asked for.

    Raises:
        ConfigError, ConfigTypeError: an argument that cannot be, or a file that cannot be read; a
            document that is none, it is named.

    >>> documents = Documents([[1, 2, 3], [4, 5]])
    >>> len(documents), documents[1]["tokens"].tolist(), documents.lengths.tolist()
    (2, [4, 5], [3, 2])
    >>> Documents(np.array([7, 8, 0, 9, 0]), document_end=0).lengths.tolist()
    [3, 2]
    """

    __repr__ = described

    def __init__(
        self,
        source: Any,
        *,
        document_end: int | None = None,
        document_begin: int | None = None,
        tokens: str | None = None,
        fields: Sequence[str] | None = None,
        lengths: Any = None,
        dtype: Any = None,
        as_dtype: Any = None,
        header: int | None = None,
        index: str | os.PathLike[str] | None = None,
        cache: ShardCache | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> None:
        wanted = None if as_dtype is None else as_integers("as_dtype", as_dtype)
        asked = TokenFields(tokens, fields, wanted)
        mark = _as_mark(document_end, document_begin)
        self._held: FlatDocuments | ListedDocuments
        if _is_path(source) or _is_paths(source):
            _refuse(lengths=lengths)
            stores = files_for(parts_of(source), cache, store)
            self._use = stores.use  # see stores.fetch_stats
            found = _token_files(parts_of(source), stores, dtype is not None or header is not None)
            if index is not None:
                index = os.path.expanduser(as_folder("index", index))  # noqa: PTH111
            if found is not None:
                _refuse(tokens=tokens, fields=fields)
                known = None if dtype is None else as_integers("dtype", dtype)
                if header is not None:
                    header = as_int("header", header, low=0, remedy="It is a number of bytes.")
                self._held = in_files(found, mark, known, header, wanted, index, stores)
                return
            _refuse(dtype=dtype, header=header)
            source, lengths = in_shards(source, asked, index, cache, store)
        else:
            _refuse(dtype=dtype, header=header, index=index, cache=cache, store=store)
            self._use = None
        _check_source(source)
        if type(source) in (list, tuple) or isinstance(source, np.ndarray):
            _refuse(lengths=lengths)
            self._held = in_memory(source, mark, asked)
            return
        if mark is not None:
            raise ConfigError(
                "document_end and document_begin are for flat tokens, a path or an array of NumPy,"
                f" and {got(source)} has documents already: leave them out"
            )
        self.dataset = source
        self._held = ListedDocuments(source, asked, lengths)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """How many tokens each document has: read-only, and 0 for an empty one."""
        return self._held.lengths

    @property
    def fields(self) -> dict[str, np.dtype[Any]]:
        """The type of each field by name; "tokens" is the first."""
        return dict(self._held.fields)

    @property
    def has_pure_samples(self) -> bool:
        """Whether a document depends only on its number."""
        return self._held.is_pure

    def __len__(self) -> int:
        return len(self._held.lengths)

    def __getitem__(self, index: int, /) -> dict[str, Array]:
        """Return the document at `index`; a negative one counts from the end."""
        return self._held.read([self._from_front(index)])[0]

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[dict[str, Array]]]:
        """Read many documents together; exists unless a subclass has a `__getitem__` of its own."""
        return unless_overridden(self, Documents, self._read)

    def _read(self, indices: Sequence[int]) -> list[dict[str, Array]]:
        return self._held.read(list(map(self._from_front, indices)))

    def gather(
        self,
        documents: npt.NDArray[np.int64],
        begins: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        out: Mapping[str, Array],
    ) -> None:
        """Copy pieces of documents to their places in flat arrays.

        Piece k is the `counts[k]` tokens of document `documents[k]` from token `begins[k]` on, and
        is copied to `out[field]` from `places[k]` on. Of flat documents it is copied in C, without
        the GIL; of listed ones each document is read once.

        Args:
            documents: from 0, of each piece.
            begins: of each piece in its document, in tokens.
            counts: of each piece, in tokens.
            places: of each piece in the arrays of `out`.
            out: a C-contiguous array of one axis for each field that is wanted. Integers may be
                wider than those of the documents.

        Raises:
            ConfigError: an array has a type that does not hold the field's values.
            SampleIndexError: a piece lies outside of its document or of `out`; nothing was copied.
            DatasetError: a document cannot be read, or is not as it was.
        """
        for name, array in out.items():
            dtype = self._held.fields.get(name)
            if dtype is None:
                raise ConfigError(
                    f"the documents have no field {name!r}, but {', '.join(self._held.fields)}"
                )
            if dtype == array.dtype:
                continue
            if dtype.kind not in "iu" or array.dtype.kind not in "iu":
                raise ConfigError(f"the field {name!r} of {dtype} cannot become {array.dtype}")
            check_as_dtype(dtype, array.dtype)
        self._held.gather(documents, begins, counts, places, out)

    def origin(self, index: int) -> Origin:
        """Return where a document comes from; its path is "" where that is no file."""
        return self._held.origin(self._from_front(index))

    def __fingerprint__(self, samples: int | None) -> dict[str, Any]:
        """Return how many documents there are, and a digest of some lengths; see `fingerprint_of`.

        No tokens are read.
        """
        count = len(self) if samples is None else samples
        step = max(1, count >> _DIGESTED)
        return {
            "kind": "Documents",
            "samples": count,
            "fields": {name: dtype.str for name, dtype in self.fields.items()},
            "lengths": digest_of(self.lengths[:count:step]),
        }

    def _from_front(self, index: int) -> int:
        """Return an index as it is from the front. SampleIndexError: it is outside."""
        count, place = len(self), operator.index(index)
        if not -count <= place < count:
            raise SampleIndexError(
                f"index {place} is outside of {count:,} documents: take one in [{-count}, {count})"
            )
        return place % count


def _as_mark(document_end: int | None, document_begin: int | None) -> Mark | None:
    if document_end is not None and document_begin is not None:
        raise ConfigError("document_end and document_begin say the same twice: pass one of them")
    if document_end is not None:
        return Mark(document_end, "document_end")
    return None if document_begin is None else Mark(document_begin, "document_begin")


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def _is_paths(source: Any) -> bool:
    return type(source) in (list, tuple) and bool(source) and all(map(_is_path, source))


def _check_source(source: Any) -> None:
    """Raise ConfigTypeError where something has no documents by their numbers."""
    has_numbers = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    is_by_name = isinstance(source, Mapping) or table_class(source) is not None
    if not has_numbers or is_by_name or (isinstance(source, np.ndarray) and not source.ndim):
        raise ConfigTypeError(
            "source must be documents with a length and indices from 0 on, or a path, got"
            f" {got(source)}: pass a list of arrays or dicts, such as list(column) of pandas,"
            " reader.Shards(path), or the path of a file of tokens"
        )


def _refuse(**given: Any) -> None:
    """Raise ConfigError where an argument was given that is of no use for this source."""
    kinds = {"lengths": "a dataset that is read for them", "tokens": "documents that are dicts"}
    kinds["fields"] = kinds["tokens"]
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"{name}= is for {kinds.get(name, 'files of tokens')}: leave it out")


# -- paths ----------------------------------------------------------------------------------------


def _token_files(parts: Sequence[str], stores: Files, is_flat: bool) -> list[str] | None:
    """Return the flat files, and indices of Megatron's, that paths name; None: they name shards.

    Args:
        parts: paths and patterns.
        stores: how files are found.
        is_flat: whether all are flat files, whatever their names are.

    Raises:
        ConfigError: there is no such file, one is named twice, or some are of the one kind and some
            of the other.
    """
    found: list[str] = []
    others: list[str] = []
    for part in parts:
        prefix = os.path.expanduser(part) + _INDEX  # noqa: PTH111
        if not part.endswith(_TOKENS) and not is_url(part) and os.path.isfile(prefix):  # noqa: PTH113
            found.append(os.path.abspath(prefix))  # noqa: PTH100
            continue
        for path in stores.named(part):
            inner = [path]
            if stores.is_folder(path):
                inner = [each for each in stores.entries(path) if each.endswith(_TOKENS)]
            if is_flat or (inner and inner[0].endswith(_TOKENS)):
                found += inner
            else:
                others.append(path)
    if found and others:
        raise ConfigError(
            f"'{found[0]}' is a file of tokens, and '{others[0]}' is read as shards: pass those of"
            " one kind, or ConcatDataset([Documents(...), Documents(...)])"
        )
    if others:
        return None
    refuse_twice(found)
    if is_flat:
        return found
    return list(dict.fromkeys(_of_index(path, stores) for path in found))


def _of_index(path: str, stores: Files) -> str:
    """Return the index of Megatron's beside a file, or the path of the file if there is none."""
    index = path.removesuffix(".bin") + _INDEX
    if not path.endswith(".bin") or not stores.has(index):
        return path
    try:
        begin = stores.head(index, len(MAGIC))
    except (OSError, DatasetError) as error:
        raise ConfigError(
            f"'{index}' lies beside '{path}', and cannot be read: {error}. Of a flat file pass"
            " dtype= or header="
        ) from error
    return index if begin == MAGIC else path
