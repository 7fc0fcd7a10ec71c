"""Documents and rows of Megatron's files, beside Megatron's own datasets, in one process.

The files have documents of log-normal lengths, 16 bits a token. A turn reads 2,000 random
documents, or 2,000 rows of 2,048 tokens in the order of GPTDataset, which makes labels, positions
and a loss mask of each row, too. Needs megatron-core: requirements/shard-libraries.txt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reader import Documents
from reader.tokens.megatron_index import index_bytes
from tools.domain_bench.work import Turn, Work, left_out

LENGTH, BATCH = 2048, 8
_READ = 2000  # documents or rows of a turn


def megatron(folder: Path, documents: float) -> Work:
    """Documents and rows of Megatron's files."""
    lengths = _make_files(folder / "a", int(documents))
    return Work(_contestants(folder / "a", lengths), "us each")


def _make_files(prefix: Path, count: int) -> Any:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(6, 1, count), 1, 50_000).astype(np.int64)
    block = rng.integers(0, 50_000, 10**7).astype(np.uint16)
    with prefix.with_suffix(".bin").open("wb") as file:
        left = int(lengths.sum())
        while left > 0:
            file.write(block[:left].tobytes())
            left -= len(block)
    prefix.with_suffix(".idx").write_bytes(index_bytes(lengths, np.dtype("uint16")))
    return lengths


def _contestants(prefix: Path, lengths: Any) -> Iterator[tuple[str, Turn]]:
    ours = Documents(prefix)
    chosen = np.random.default_rng(1).integers(0, len(lengths), _READ)
    numbers = chosen.tolist()
    with left_out("Megatron"):
        from megatron.core.datasets.indexed_dataset import IndexedDataset

        theirs = IndexedDataset(str(prefix))
        yield "Megatron, a document", _timed(lambda: [theirs.get(k) for k in numbers])
    yield "reader, documents[k]", _timed(lambda: [ours[k] for k in numbers])
    yield "reader, documents by 64 gathered as int64", _timed(_by_64(ours, chosen, lengths))
    with left_out("GPTDataset"):
        gpt = gpt_dataset(prefix, len(lengths))
        rows = range(min(_READ, len(gpt)))
        yield "Megatron, a row of GPTDataset", _timed(lambda: [gpt[k] for k in rows])
        pieces = [_pieces(gpt, lengths, k) for k in rows]
        yield "reader, the same tokens, gathered by 8 rows", _timed(_by_rows(ours, pieces))


def _timed(read: Callable[[], Any]) -> Turn:
    def turn() -> float:
        begun = time.perf_counter()
        read()
        return (time.perf_counter() - begun) / _READ

    return turn


def _by_64(ours: Documents, chosen: Any, lengths: Any) -> Callable[[], None]:
    def read() -> None:
        for begin in range(0, len(chosen), 64):
            some = chosen[begin : begin + 64]
            counts = lengths[some]
            ends = np.cumsum(counts)
            out = np.empty(ends[-1], np.int64)
            ours.gather(some, np.zeros_like(some), counts, ends - counts, {"tokens": out})

    return read


def _by_rows(ours: Documents, pieces: list[Any]) -> Callable[[], None]:
    batches = [np.concatenate(pieces[k : k + BATCH]) for k in range(0, len(pieces), BATCH)]
    columns = [[np.ascontiguousarray(each[:, k]) for k in range(3)] for each in batches]

    def read() -> None:
        for documents, begins, counts in columns:
            ends = np.cumsum(counts)
            out = np.empty(ends[-1], np.int64)
            ours.gather(documents, begins, counts, ends - counts, {"tokens": out})

    return read


class _Tokenizer:
    """What GPTDataset asks of one."""

    eod, pad, vocab_size = 0, 1, 50_000
    unique_identifiers = {"class": "Tokenizer"}  # noqa: RUF012


def gpt_dataset(prefix: Path, count: int, length: int = LENGTH, samples: int | None = None) -> Any:
    """Return Megatron's dataset of the first `count` documents of a file."""
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    config = GPTDatasetConfig(
        random_seed=1,
        sequence_length=length,
        blend=([str(prefix)], None),
        split="1,0,0",
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        path_to_cache=str(prefix.parent / "cache"),
        tokenizer=_Tokenizer(),
        mid_level_dataset_surplus=0.005,
    )
    order = np.arange(count, dtype=np.int32)
    return GPTDataset(IndexedDataset(str(prefix)), str(prefix), order, samples, Split.train, config)


def _pieces(gpt: Any, lengths: Any, index: int) -> Any:
    """Return the pieces of documents that a row of GPTDataset is made of."""
    row = gpt.shuffle_index[index]
    (first, begin), (last, end) = gpt.sample_index[row : row + 2].tolist()
    documents = np.asarray(gpt.document_index[first : last + 1], np.int64)
    begins = np.zeros_like(documents)
    begins[0] = begin
    ends = lengths[documents]
    ends[-1] = end + 1
    return np.stack([documents, begins, ends - begins], axis=1)
