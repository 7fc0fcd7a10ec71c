"""Documents that a dataset gives one by one, and what makes a document of a sample.

Imports how datasets are asked for many samples. The dataset is the user's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.data.pure_samples import has_pure_samples
from reader.data.wrapped import fetch_many
from reader.errors import ConfigError, ConfigTypeError, DatasetError, SampleIndexError, got
from reader.shards.shards import Origin, Shards
from reader.sharing.share import share
from reader.stores.files import StoredFile
from reader.stores.kept_arrays import COUNT, Arrays
from reader.stores.kept_index import kept_for
from reader.stores.shard_cache import ShardCache

__all__ = ["TOKENS", "ListedDocuments", "TokenFields", "check_pieces", "in_shards", "outside"]

TOKENS = "tokens"
_USUAL = (TOKENS, "input_ids")  # names of the field that has the tokens
_AT_ONCE = 256  # samples that are read together for their lengths
Array = npt.NDArray[Any]


class TokenFields:
    """Which fields of a sample are a document: the tokens, and others of the same length.

    Args:
        tokens: the name of the field with the tokens; None: a usual one.
        fields: the names of the others; None: all arrays and lists of numbers of the first sample.
        as_dtype: what tokens become; None: they stay what they are.

    Attributes:
        types: the type of each field, once a document was seen, by the name that it has in a
            document; "tokens" is the first.
    """

    def __init__(
        self, tokens: str | None, fields: Sequence[str] | None, as_dtype: np.dtype[Any] | None
    ) -> None:
        for name, value in (("tokens", tokens), *(("fields", each) for each in fields or ())):
            if not isinstance(value, str) and value is not None:
                raise ConfigTypeError(f"{name} must be names of fields, got {got(value)}")
        if isinstance(fields, str):
            raise ConfigTypeError(f"fields must be a list of names, got {fields!r}: [{fields!r}]")
        self._tokens, self._others = tokens, None if fields is None else tuple(fields)
        self._seen: frozenset[str] | None = None  # fields of the first, where none were named
        self.as_dtype = as_dtype
        self.types: dict[str, np.dtype[Any]] = {}

    @property
    def names(self) -> dict[str, str]:
        """The name of each field in samples that are dicts, with its type; of others none."""
        if self._others is None:
            return {}
        known = {self._tokens or TOKENS: self.types[TOKENS]}
        known |= {name: self.types[name] for name in self._others}
        return {name: str(dtype) for name, dtype in known.items()}

    def document(self, sample: Any, number: int) -> dict[str, Array]:
        """Return a document with its fields.

        Args:
            sample: a dict of fields, or tokens.
            number: of the document, for errors.

        Raises:
            ConfigError, ConfigTypeError: it is none, or differs from the first one.
        """
        if type(sample) is np.ndarray and sample.ndim == 1 and self._is_usual(sample.dtype):
            return {TOKENS: sample}  # as most are, soon
        is_dict = isinstance(sample, Mapping)
        if not self.types:
            self._look_at(sample, number)
        if is_dict:
            values = {TOKENS: self._field(sample, self._tokens or TOKENS, number)}
            values |= {name: self._field(sample, name, number) for name in self._others or ()}
            if self._seen is not None and not self._seen.issuperset(sample):
                self._refuse_new(sample, number)
        elif self._others:
            raise ConfigTypeError(
                f"document {number:,} is {got(sample)}, and the others are dicts with the fields"
                f" {', '.join(self.types)}: pass dicts alone"
            )
        else:
            values = {TOKENS: sample}
        found = {
            name: self._array(name, value, number, self.types[name])
            for name, value in values.items()
        }
        count = len(found[TOKENS])
        for name, array in found.items():
            if len(array) != count:
                raise ConfigError(
                    f"the field {name!r} of document {number:,} has {len(array):,} values, and its"
                    f" tokens are {count:,}: they must be as many. Name the fields that belong to"
                    " tokens by reader.Documents(source, fields=)"
                )
        return found

    def _is_usual(self, dtype: np.dtype[Any]) -> bool:
        """Whether documents are tokens alone, of this type."""
        # None equals float64: a type that is not known yet is no type
        return not self._others and TOKENS in self.types and self.types[TOKENS] == dtype

    def _look_at(self, sample: Any, number: int) -> None:
        """Learn names and types from the first document."""
        values = {TOKENS: sample}
        if self._others is None:
            self._seen = frozenset(sample if isinstance(sample, Mapping) else [TOKENS])
        if isinstance(sample, Mapping):
            if self._tokens is None:
                self._tokens = next((name for name in _USUAL if name in sample), None)
                if self._tokens is None:
                    raise ConfigError(
                        f"document {number:,} has the fields {', '.join(map(repr, sample))}, and"
                        " none is 'tokens' or 'input_ids': name the one that has the tokens by"
                        " reader.Documents(source, tokens=), or turn text into tokens by python -m"
                        " reader tokens"
                    )
            values = {TOKENS: self._field(sample, self._tokens, number)}
            if self._others is None:
                self._others = tuple(
                    name for name in sample if name != self._tokens and _is_list(sample[name])
                )
            if TOKENS in self._others or self._tokens in self._others:
                raise ConfigError(
                    f"the tokens are the field {self._tokens!r}, and fields names {TOKENS!r} or it,"
                    " too: leave it out there"
                )
            values |= {name: self._field(sample, name, number) for name in self._others}
        elif self._tokens is not None or self._others:
            raise ConfigTypeError(
                f"tokens= and fields= are for documents that are dicts, and document {number:,} is"
                f" {got(sample)}: leave them out"
            )
        types = {}
        for name, value in values.items():
            dtype = self._array(name, value, number, None).dtype
            types[name] = self.as_dtype or dtype if name == TOKENS else dtype
        self.types = types

    def _refuse_new(self, sample: Mapping[str, Any], number: int) -> None:
        """Raise ConfigError where a document has a field of numbers that the first one has not."""
        for name in sample:
            if name not in self._seen and _is_list(sample[name]):  # type: ignore[operator]
                raise ConfigError(
                    f"document {number:,} has the field {name!r}, which the first one has not: give"
                    " it to all, or name those that you want by reader.Documents(source, fields=);"
                    " [] has tokens alone"
                )

    def _field(self, sample: Any, name: str, number: int) -> Any:
        try:
            return sample[name]
        except KeyError:
            raise ConfigError(
                f"document {number:,} has no field {name!r}, but"
                f" {', '.join(map(repr, sample)) or 'none'}: every document must have it"
            ) from None

    def _array(self, name: str, value: Any, number: int, dtype: np.dtype[Any] | None) -> Array:
        """Return the values of a field as an array of a type; None: of its own."""
        what = f"the field {name!r} of document {number:,}"
        if isinstance(value, (str, bytes)):
            raise ConfigTypeError(
                f"{what} is text, {got(value)}: turn it into tokens by your tokenizer, or by"
                " python -m reader tokens"
            )
        try:
            found = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigTypeError(f"{what} is no array of numbers: {error}") from error
        if found.ndim == 1 and not found.size and not hasattr(value, "dtype"):
            found = found.astype(dtype or np.int64)  # an empty list has no type
        if found.ndim != 1:
            raise ConfigTypeError(
                f"{what} has the shape {found.shape}, and it must have one axis: {got(value)}"
            )
        kinds = "iu" if name == TOKENS else "iufb"
        if found.dtype.kind not in kinds:
            told = "integers" if name == TOKENS else "numbers"
            raise ConfigTypeError(f"{what} has values of {found.dtype}, and takes {told}")
        found = found.astype(found.dtype.newbyteorder("="), copy=False)  # that of the machine
        if dtype is None or found.dtype == dtype:
            return found
        if not np.can_cast(found.dtype, dtype) and not _holds(dtype, found):
            raise ConfigError(
                f"{what} has {found.dtype} that {dtype} does not hold, as those of the first"
                " document or as_dtype: pass a wider as_dtype, or documents of one type"
            )
        return found.astype(dtype)


def _is_list(value: Any) -> bool:
    """Whether a value is a list, array or tensor of numbers."""
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        return False
    try:
        found = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return False
    return found.ndim == 1 and found.dtype.kind in "iufb"


def _holds(dtype: np.dtype[Any], values: Array) -> bool:
    """Whether integers are values of a type, too."""
    if dtype.kind not in "iu" or values.dtype.kind not in "iu":
        return False
    if not values.size:
        return True
    limits = np.iinfo(dtype)
    return int(limits.min) <= int(values.min()) and int(values.max()) <= int(limits.max)


class ListedDocuments:
    """Documents that a dataset gives.

    Args:
        dataset: with a length and indices.
        asked: which fields of its samples are a document.
        lengths: of each; None: all are read once.

    Raises:
        ConfigError, ConfigTypeError: there is none, one is no document, or `lengths` are not as
            many.
    """

    def __init__(self, dataset: Any, asked: TokenFields, lengths: Any) -> None:
        self._dataset, self._asked = dataset, asked
        count = len(dataset)
        if not count:
            raise ConfigError(f"there is no document: {got(dataset)} is empty")
        if lengths is None:
            self._lengths = share(_counted(dataset, asked, 0, count))
        else:
            self._lengths = share(_as_lengths(lengths, count))
            asked.document(fetch_many(dataset, [0])[0], 0)
        self.fields = dict(asked.types)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """How many tokens each document has."""
        return self._lengths.view(np.ndarray)  # type: ignore[no-any-return]

    @property
    def is_pure(self) -> bool:
        """Whether a document depends only on its number."""
        return has_pure_samples(self._dataset)

    def read(self, indices: Sequence[int]) -> list[dict[str, Array]]:
        """Return documents, by their numbers from the front.

        Raises:
            DatasetError: one is no document, or has another length than it had.
        """
        found = []
        for index, sample in zip(indices, fetch_many(self._dataset, indices), strict=True):
            try:
                document = self._asked.document(sample, index)
            except ConfigError as error:
                raise DatasetError(str(error)) from error
            has, had = len(document[TOKENS]), int(self._lengths[index])
            if has != had:
                raise DatasetError(
                    f"document {index:,} has {has:,} tokens, and its length is {had:,}: give the"
                    " same tokens each time, and the right lengths="
                )
            found.append(document)
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
        numbers, rows = np.unique(documents, return_inverse=True)
        check_pieces(documents, begins, counts, places, self.lengths, out)
        found = self.read(numbers.tolist())
        pieces = zip(rows.tolist(), begins.tolist(), counts.tolist(), places.tolist(), strict=True)
        for row, begin, count, place in pieces:
            for name, array in out.items():
                array[place : place + count] = found[row][name][begin : begin + count]

    def origin(self, index: int) -> Origin:
        """Return where a document comes from."""
        find = getattr(self._dataset, "origin", None)
        return Origin("", 0, "", index) if find is None else find(index)


def in_shards(
    path: Any,
    asked: TokenFields,
    folder: str | None,
    cache: ShardCache | None,
    store: Mapping[str, Any] | None,
) -> tuple[Shards, Array]:
    """Return shards whose samples have documents as arrays, and the length of each, which are kept.

    Args:
        path: as `Shards` takes it.
        asked: which fields of their samples are a document.
        folder: where their index and the lengths are kept.
        cache: of the bytes of a store.
        store: options of its client.
    """
    shards = Shards(path, index=folder, cache=cache, store=store)
    asked.document(shards[0], 0)
    names = asked.names
    if names:
        shards = Shards(path, fields=names, index=folder, cache=cache, store=store)
    files, starts = shards.files, shards._set.starts.view(np.ndarray)
    numbers = {file.path: number for number, file in enumerate(files)}

    def scan(file: StoredFile) -> Arrays:
        number = numbers[file.path]
        found = _counted(shards, asked, int(starts[number]), int(starts[number + 1]))
        return {COUNT: np.array([len(found)]), "lengths": found}

    kept = kept_for(f"lengths of {sorted(names.items())}", files, folder, scan)
    found = [kept.arrays(row) for row in range(len(files))]
    every = [
        (scan(file) if arrays is None else arrays)["lengths"]
        for file, arrays in zip(files, found, strict=True)
    ]
    return shards, np.concatenate(every)


def _counted(dataset: Any, asked: TokenFields, begin: int, end: int) -> Array:
    """Return the lengths of documents, which are read for them."""
    lengths = np.empty(end - begin, np.int64)
    for first in range(begin, end, _AT_ONCE):
        numbers = range(first, min(end, first + _AT_ONCE))
        samples = fetch_many(dataset, numbers)
        for number, sample in zip(numbers, samples, strict=True):
            lengths[number - begin] = len(asked.document(sample, number)[TOKENS])
    return lengths


def _as_lengths(lengths: Any, count: int) -> Array:
    """Return lengths as an array. ConfigError: they are none, or of another number."""
    found = np.asarray(lengths)
    if found.ndim != 1 or found.dtype.kind not in "iu" or (found < 0).any():
        raise ConfigError(
            f"lengths must be integers from 0 on, one for each document, got {got(lengths)}"
        )
    if len(found) != count:
        raise ConfigError(f"lengths are {len(found):,}, and the documents are {count:,}")
    if found.sum(dtype=float) >= 1 << 63:
        raise ConfigError(f"lengths sum to {found.sum(dtype=float):.3g} tokens: they are damaged")
    return found.astype(np.int64)


def check_pieces(
    documents: Array,
    begins: Array,
    counts: Array,
    places: Array,
    lengths: Array,
    out: Mapping[str, Array],
) -> None:
    """Raise SampleIndexError where a piece lies outside of its document or of its row."""
    for array in out.values():
        is_bad = (documents < 0) | (documents >= len(lengths)) | (begins < 0)
        is_bad |= (counts < 0) | (places < 0) | (places > array.size - counts)
        is_bad |= begins > lengths[np.where(is_bad, 0, documents)] - counts
        if is_bad.any():
            bad = int(np.argmax(is_bad))
            raise outside(bad, documents, begins, counts, places, lengths, array)


def outside(
    bad: int,
    documents: Array,
    begins: Array,
    counts: Array,
    places: Array,
    lengths: Array,
    out: Array,
) -> SampleIndexError:
    """Return the error of a piece that does not fit."""
    document, count = int(documents[bad]), int(counts[bad])
    has = f"has {lengths[document]:,} tokens" if 0 <= document < len(lengths) else "is none"
    return SampleIndexError(
        f"piece {bad} is {count:,} tokens from {int(begins[bad]):,} on of document {document:,},"
        f" which {has}, to place {int(places[bad]):,} of {out.size:,}"
    )
