"""GluonNLP's datasets of files: lines, fields, tokens and arrays; and datasets end to end.

Imports the datasets of Gluon and the errors of this face. A dataset reads its files once, when it
is made, and holds what it read.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reader import data
from reader.checks import refuse_url
from reader.compat.gluon.datasets import Dataset, SimpleDataset
from reader.compat.gluon.nlp.errors import ArgumentError, MissingFieldError
from reader.errors import ConfigError, got, shown

__all__ = [
    "ConcatDataset",
    "CorpusDataset",
    "NumpyDataset",
    "Splitter",
    "TSVDataset",
    "TextLineDataset",
    "line_splitter",
    "whitespace_splitter",
]


class Splitter:
    """Split a text at a separator.

    Args:
        separator: None: at whitespace, of which any amount is one separator.

    >>> Splitter(",")("a,b,,c")
    ['a', 'b', '', 'c']
    """

    def __init__(self, separator: str | None = None) -> None:
        self._separator = separator

    def __call__(self, text: str) -> list[str]:
        """Return the parts of a text."""
        return text.split(self._separator)


def line_splitter(text: str) -> list[str]:
    """Return the lines of a text, as `str.splitlines` does."""
    return text.splitlines()


def whitespace_splitter(text: str) -> list[str]:
    """Return the words of a text, as `str.split` does."""
    return text.split()


_TABS = Splitter("\t")


class ConcatDataset(data.ConcatDataset[Any], Dataset):
    """Hold the samples of several datasets, those of the first one first.

    A negative index counts from the end.

    Args:
        datasets: a list of datasets; their lengths are read now, once.
    """


class TextLineDataset(SimpleDataset):
    """Hold the lines of a text file, without the whitespace around each.

    Args:
        filename: path of the file; "~" is the home directory.
        encoding: of the file.
    """

    def __init__(self, filename: str | Path, encoding: str = "utf8") -> None:
        refuse_url("filename", filename)
        with Path(filename).expanduser().open(encoding=encoding) as file:
            super().__init__([line.strip() for line in file])


class TSVDataset(SimpleDataset):
    """Hold the samples of text files, each divided into fields: a list of texts.

    Args:
        filename: path of a file, or a list of them; "~" is the home directory.
        encoding: of the files.
        sample_splitter: divides the text of a file into samples.
        field_separator: divides a sample into fields; None: a sample is a text.
        num_discard_samples: how many samples to leave out at the beginning of the first file.
        field_indices: which fields make a sample, in which order; None: all.
        allow_missing: leave out samples that lack a field, with a UserWarning.

    Raises:
        MissingFieldError: (an IndexError) a sample lacks a field.
        ArgumentError: (an AssertionError) there is no `sample_splitter`.
    """

    def __init__(
        self,
        filename: str | Path | list[str] | tuple[str, ...],
        encoding: str = "utf8",
        sample_splitter: Callable[[str], Iterable[Any]] = line_splitter,
        field_separator: Callable[[Any], Any] | None = _TABS,
        num_discard_samples: int = 0,
        field_indices: list[int] | None = None,
        allow_missing: bool = False,
    ) -> None:
        found: list[Any] = []
        left_out = num_discard_samples
        for name, text in _texts(filename, encoding, sample_splitter):
            samples = list(sample_splitter(text))
            left_out, samples = max(left_out - len(samples), 0), samples[max(left_out, 0) :]
            if field_separator is not None:
                samples = _fields(samples, name, field_separator, field_indices, allow_missing)
            found += samples
        super().__init__(found)


class CorpusDataset(SimpleDataset):
    """Hold the samples of text files, each divided into tokens: a list of texts.

    Args:
        filename: path of a file, or a list of them; "~" is the home directory.
        encoding: of the files.
        flatten: each token is a sample by itself.
        skip_empty: leave out samples without text; else they have `bos` and `eos` alone.
        sample_splitter: divides the text of a file into samples, which are then stripped.
        tokenizer: divides a sample into tokens; None: a sample is a text, and `flatten`, `bos` and
            `eos` are unused.
        bos: a token to put before those of each sample; None: none.
        eos: a token to put after them; None: none.

    Raises:
        ArgumentError: (an AssertionError) there is no `sample_splitter`.
    """

    def __init__(
        self,
        filename: str | Path | list[str] | tuple[str, ...],
        encoding: str = "utf8",
        flatten: bool = False,
        skip_empty: bool = True,
        sample_splitter: Callable[[str], Iterable[str]] = line_splitter,
        tokenizer: Callable[[str], Iterable[Any]] | None = whitespace_splitter,
        bos: str | None = None,
        eos: str | None = None,
    ) -> None:
        before, after = [bos] if bos else [], [eos] if eos else []
        found: list[Any] = []
        for _, text in _texts(filename, encoding, sample_splitter):
            stripped = (sample.strip() for sample in sample_splitter(text))
            samples = (sample for sample in stripped if sample or not skip_empty)
            if tokenizer is None:
                found.extend(samples)
                continue
            tokens = ([*before, *tokenizer(sample), *after] for sample in samples)
            found.extend(filter(None, itertools.chain.from_iterable(tokens)) if flatten else tokens)
        super().__init__(found)


class NumpyDataset(Dataset):
    """Hold the rows of the array of a .npy file, or of the arrays of a .npz file.

    A sample is a row, or the tuple of the rows of several arrays, in the order of their keys.

    Args:
        filename: path of the file; "~" is the home directory.
        kwargs: passed to `numpy.load`.

    Raises:
        ConfigError: (a ValueError) another kind of file.
        ArgumentError: (an AssertionError) arrays of different lengths, or none.
    """

    def __init__(self, filename: str | Path, **kwargs: Any) -> None:
        refuse_url("filename", filename)
        path = Path(filename).expanduser()
        if path.suffix not in (".npy", ".npz"):
            raise ConfigError(
                f"Unsupported extension: {filename}. Pass a file that numpy.save (.npy) or"
                " numpy.savez (.npz) wrote."
            )
        loaded = np.load(path, **kwargs)
        self._keys: list[str] | None = None
        if path.suffix == ".npy":
            self._arrays: list[npt.NDArray[Any]] = [loaded]
        else:
            with loaded:
                self._keys = sorted(loaded.keys())
                self._arrays = [loaded[key] for key in self._keys]
        _check_lengths(self._arrays)

    @property
    def keys(self) -> list[str] | None:
        """The keys of the arrays of a .npz file, sorted; None for a .npy file."""
        return self._keys

    def get_field(self, field: str) -> npt.NDArray[Any]:
        """Return one of the arrays of a .npz file. ConfigError: there is none of that key."""
        if self._keys is None or field not in self._keys:
            raise ConfigError(
                f"there is no field {shown(field)}: the keys of this dataset are {self._keys}."
            )
        return self._arrays[self._keys.index(field)]

    def __getitem__(self, index: Any, /) -> Any:
        rows = tuple(array[index] for array in self._arrays)
        return rows[0] if len(rows) == 1 else rows

    def __len__(self) -> int:
        return len(self._arrays[0])


def _texts(filename: Any, encoding: str, splitter: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file."""
    if not splitter:
        raise ArgumentError(
            f"sample_splitter must be specified. Got {got(splitter)}: pass a function that divides"
            " the text of a file into samples."
        )
    for name in filename if isinstance(filename, (list, tuple)) else [filename]:
        refuse_url("filename", name)
        yield str(name), Path(name).expanduser().read_text(encoding)


def _fields(
    samples: list[Any], name: str, separate: Callable[[Any], Any], indices: Any, may_lack: bool
) -> list[Any]:
    """Return the chosen fields of each sample of a file."""
    found: list[Any] = []
    lacking = 0
    for sample in samples:
        fields = sample
        try:
            fields = separate(sample)
            found.append([fields[index] for index in indices] if indices else fields)
        except IndexError as error:
            if not may_lack:
                raise MissingFieldError(
                    f"{error}. Fields = {fields}: a sample of {name} has {len(fields)} fields, and"
                    f" field_indices={indices} names others. Pass allow_missing=True to leave out"
                    " such samples."
                ) from error
            lacking += 1
    if lacking:
        warnings.warn(f"{lacking} incomplete samples in {name}: left out", stacklevel=3)
    return found


def _check_lengths(arrays: list[npt.NDArray[Any]]) -> None:
    if not arrays:
        raise ArgumentError("Needs at least 1 arrays: the file has none.")
    for place, array in enumerate(arrays):
        if len(array) != len(arrays[0]):
            raise ArgumentError(
                f"All arrays must have the same length; array[0] has length {len(arrays[0])} while"
                f" array[{place}] has {len(array)}. Cut them to the same length."
            )
