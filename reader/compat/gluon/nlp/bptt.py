"""GluonNLP's batches of running text for truncated back-propagation through time.

Imports the arrays and datasets of Gluon, and the streams of this face. A vocabulary is the user's;
each returned array is the caller's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.compat.gluon.arrays import as_nd
from reader.compat.gluon.datasets import Dataset, SimpleDataset
from reader.compat.gluon.nlp.errors import ArgumentError, as_count
from reader.compat.gluon.nlp.streams import ORDERS, DataStream, order_of
from reader.errors import ConfigError, got

__all__ = ["CorpusBPTTBatchify", "CorpusBatchify", "StreamBPTTBatchify"]

_LAST_BATCHES = ("keep", "discard")


class CorpusBatchify:
    """Divide a corpus into sequences of equal length that lie side by side.

    Args:
        vocab: returns the list of numbers of a list of tokens, as `vocab[tokens]`.
        batch_size: how many sequences.
    """

    def __init__(self, vocab: Any, batch_size: int) -> None:
        self._vocab = vocab
        self._batch_size = as_count("batch_size", batch_size)

    def __call__(self, data: Any) -> Dataset:
        """Return the dataset of the corpus: row i has the tokens i of all sequences.

        Args:
            data: a dataset whose samples are tokens, such as CorpusDataset(..., flatten=True).

        Returns:
            A dataset of float32 arrays of *shape* (batch_size,). Tokens at the end that fill no row
            are left out.
        """
        count = len(data) // self._batch_size * self._batch_size
        columns = _columns(self._vocab[_tokens(data, count)], self._batch_size)
        return SimpleDataset(as_nd(columns))


class CorpusBPTTBatchify:
    """Cut a corpus into batches, each of which continues the sequences of the batch before it.

    Args:
        vocab: returns the list of numbers of a list of tokens, as `vocab[tokens]`, and the number
            of one token; it has `padding_token`.
        seq_len: tokens of each sequence in a batch.
        batch_size: sequences in a batch.
        last_batch: "keep": the sequences end with `vocab.padding_token` where they must; "discard":
            tokens at the end that fill no batch are left out.

    Raises:
        ConfigError: (a ValueError) another `last_batch`, or no padding token.
    """

    def __init__(self, vocab: Any, seq_len: int, batch_size: int, last_batch: str = "keep") -> None:
        self._vocab = vocab
        self._seq_len = as_count("seq_len", seq_len)
        self._batch_size = as_count("batch_size", batch_size)
        self._keeps_last = _keeps_last(last_batch)
        if self._keeps_last and not vocab.padding_token:
            raise ConfigError(
                'vocab.padding_token must be specified in vocab when last_batch="keep". Make the'
                ' vocabulary with one, or pass last_batch="discard".'
            )

    def __call__(self, corpus: Any) -> Dataset:
        """Return the dataset of batches.

        Args:
            corpus: a dataset whose samples are tokens, such as CorpusDataset(..., flatten=True).

        Returns:
            A dataset of pairs (data, target) of float32 arrays of *shape* (seq_len, batch_size);
            each target is the token after that in the data.
        """
        size, step = self._batch_size, self._seq_len
        if self._keeps_last:
            ids = list(self._vocab[_tokens(corpus, len(corpus))])
            rows = -(-len(ids) // size)
            rows += (1 - rows) % step  # each batch shares its first row with the previous one
            ids += [self._vocab[self._vocab.padding_token]] * (rows * size - len(ids))
        else:
            ids = self._vocab[_tokens(corpus, len(corpus) // size * size)]
        columns = _columns(ids, size)
        starts = range(0, len(columns) - step, step)
        return SimpleDataset([columns[at : at + step + 1] for at in starts]).transform(_data_target)


class StreamBPTTBatchify:
    """Make batches of a stream of corpora, each batch continuing the sequences of the one before.

    Each sequence takes the next sentence where its last one ends.

    Args:
        vocab: returns the list of numbers of a list of tokens, as `vocab[tokens]`, and the number
            of one token; it has `padding_token`, which fills sequences when the stream has ended.
        seq_len: tokens of each sequence in a batch.
        batch_size: sequences in a batch.
        sampler: "random": the sentences of each corpus come in an order that `numpy.random` draws;
            "sequential": in the order of the corpus.
        last_batch: "keep": after the last batch with tokens comes one of only padding, as in
            GluonNLP; "discard": it does not.

    Raises:
        ConfigError: (a ValueError) another `last_batch` or `sampler`, or no padding token.
    """

    def __init__(
        self,
        vocab: Any,
        seq_len: int,
        batch_size: int,
        sampler: str = "random",
        last_batch: str = "keep",
    ) -> None:
        if not vocab.padding_token:
            raise ConfigError(
                "Padding token must be specified in vocab for StreamBPTTBatchify. Make the"
                " vocabulary with one."
            )
        if not isinstance(sampler, str):
            raise ArgumentError(
                f"Expected sampler to be a str, but got {type(sampler)}: {got(sampler)}. Pass one"
                f" of {ORDERS}."
            )
        if sampler not in ORDERS:
            raise ConfigError(
                f'sampler must be either "random" or "sequential", but got {sampler}.'
            )
        self._vocab = vocab
        self._seq_len = as_count("seq_len", seq_len)
        self._batch_size = as_count("batch_size", batch_size)
        self._sampler = sampler
        self._keeps_last = _keeps_last(last_batch)

    def __call__(self, corpus: Iterable[Any]) -> DataStream:
        """Return the stream of batches.

        Args:
            corpus: a stream of datasets whose samples are lists of tokens, such as
                SimpleDatasetStream(CorpusDataset, ...).

        Returns:
            A stream of pairs (data, target) of float32 arrays of *shape* (seq_len, batch_size);
            each target is the token after that in the data.
        """
        shape = (self._batch_size, self._seq_len)
        return _BPTTStream(corpus, self._vocab, shape, self._sampler, self._keeps_last)


class _BPTTStream(DataStream):
    """The batches of a stream of corpora. `shape`: (batch_size, seq_len)."""

    def __init__(
        self, corpora: Any, vocab: Any, shape: tuple[int, int], sampler: str, keeps_last: bool
    ) -> None:
        self._corpora = corpora
        self._vocab = vocab
        self._shape = shape
        self._sampler = sampler
        self._keeps_last = keeps_last

    def __iter__(self) -> Iterator[Any]:
        return self._batches(self._sentences(iter(self._corpora)))

    def _sentences(self, corpora: Iterator[Any]) -> Iterator[list[Any]]:
        for corpus in corpora:
            for number in order_of(self._sampler, len(corpus)):
                yield self._vocab[corpus[number]]

    def _batches(self, sentences: Iterator[list[Any]]) -> Iterator[tuple[Any, Any]]:
        padding = self._vocab[self._vocab.padding_token]
        left: list[list[Any]] = [[] for _ in range(self._shape[0])]  # of each sequence
        has_tokens = True
        while has_tokens:
            pair = np.full((2, *self._shape), padding, np.float32)
            counts = [_fill(pair[:, row], ids, sentences) for row, ids in enumerate(left)]
            has_tokens = any(counts)
            if has_tokens or self._keeps_last:
                yield as_nd(pair[0].T.copy()), as_nd(pair[1].T.copy())


def _fill(pair: npt.NDArray[Any], ids: list[Any], sentences: Iterator[list[Any]]) -> int:
    """Write the next tokens of a sequence into (data, target); returns how many.

    `ids`: the tokens left of the sequence, from the last one written on; changed in place.
    """
    count, most = 0, pair.shape[1]
    while count < most:
        while len(ids) < 2:
            sentence = next(sentences, None)
            if sentence is None:
                return count
            ids += sentence
        number = min(len(ids) - 1, most - count)
        pair[0, count : count + number] = ids[:number]
        pair[1, count : count + number] = ids[1 : number + 1]
        del ids[:number]
        count += number
    return count


def _columns(ids: list[Any], count: int) -> npt.NDArray[Any]:
    """Return numbers as `count` columns of equal length, one after the other."""
    return np.ascontiguousarray(np.array(ids, np.float32).reshape(count, -1).T)


def _tokens(corpus: Any, count: int) -> list[Any]:
    """Return the first tokens of a flat corpus."""
    return [corpus[place] for place in range(count)]


def _data_target(rows: npt.NDArray[Any]) -> tuple[Any, Any]:
    return as_nd(rows[:-1].copy()), as_nd(rows[1:].copy())


def _keeps_last(last_batch: Any) -> bool:
    if last_batch not in _LAST_BATCHES:
        raise ConfigError(f'Got invalid last_batch: "{last_batch}". Must be "keep" or "discard".')
    return last_batch == "keep"  # type: ignore[no-any-return]
