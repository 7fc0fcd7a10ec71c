"""Megatron's own IndexedDataset and GPTDataset have the documents that Documents reads.

Runs where megatron-core is installed: `make shard-libraries`. Its datasets run on the CPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import Documents
from reader.__main__ import main
from reader.tokens.megatron_index import TYPES
from tests.token_files import lists_of
from tools.domain_bench.documents import gpt_dataset

torch = pytest.importorskip("torch")
indexed = pytest.importorskip(
    "megatron.core.datasets.indexed_dataset", reason="make shard-libraries"
)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close the indices that Megatron's cache of a method keeps open for the whole program."""
    yield
    indexed._IndexReader.__getitem__.cache_clear()


def documents_of(count: int, dtype: str) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    most = min(50_000, np.iinfo(dtype).max)
    return [rng.integers(0, most, rng.integers(1, 200)) for _ in range(count)]


def build(prefix: Path, found: Any, dtype: str) -> None:
    """Write documents by Megatron's builder."""
    builder = indexed.IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.dtype(dtype).type)
    for document in found:
        builder.add_document(torch.tensor(document), [len(document)])
    builder.finalize(f"{prefix}.idx")


@pytest.mark.parametrize("dtype", [dtype.name for dtype in TYPES.values()])
def test_documents_are_those_of_indexed_dataset(tmp_path: Path, dtype: str) -> None:
    build(tmp_path / "a", documents_of(60, dtype), dtype)
    theirs = indexed.IndexedDataset(str(tmp_path / "a"))
    ours = Documents(tmp_path / "a")
    assert ours.lengths.tolist() == theirs.sequence_lengths.tolist()
    assert ours.fields["tokens"] == theirs.index.dtype
    assert lists_of(ours) == [theirs[k].tolist() for k in range(len(theirs))]


def test_sequences_of_documents_are_documents_as_gpt_dataset_has_them(tmp_path: Path) -> None:
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "a.bin"), dtype=np.int32)
    builder.add_document(torch.arange(10), [3, 0, 7])
    builder.add_item(torch.arange(4))
    builder.add_item(torch.arange(2))
    builder.end_document()
    builder.finalize(str(tmp_path / "a.idx"))
    theirs = indexed.IndexedDataset(str(tmp_path / "a"))
    assert len(theirs.document_indices) - 1 == 2
    assert Documents(tmp_path / "a").lengths.tolist() == theirs.sequence_lengths.tolist()


def test_files_that_were_joined_and_modes_are_read(tmp_path: Path) -> None:
    found = documents_of(20, "uint16")
    build(tmp_path / "a", found[:10], "uint16")
    build(tmp_path / "b", found[10:], "uint16")
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "c.bin"), dtype=np.uint16)
    for name in "ab":
        builder.add_index(str(tmp_path / name))
    builder.finalize(str(tmp_path / "c.idx"))
    assert lists_of(Documents(tmp_path / "c")) == [each.tolist() for each in found]
    both = Documents([tmp_path / "a", tmp_path / "b"])
    assert lists_of(both) == lists_of(Documents(tmp_path / "c"))
    builder = indexed.IndexedDatasetBuilder(
        str(tmp_path / "d.bin"), dtype=np.uint16, multimodal=True
    )
    builder.add_document(torch.arange(5), [2, 3], [0, 1])
    builder.finalize(str(tmp_path / "d.idx"))
    assert Documents(tmp_path / "d").lengths.tolist() == [2, 3]


def pieces_of(dataset: Any, index: int) -> list[tuple[int, int, int]]:
    """Return the pieces of documents that a sample of GPTDataset is made of."""
    row = dataset.shuffle_index[index]
    (first, begin), (last, end) = dataset.sample_index[row : row + 2].tolist()
    lengths = dataset.dataset.sequence_lengths
    found = []
    for place in range(first, last + 1):
        document = int(dataset.document_index[place])
        start = begin if place == first else 0
        stop = end + 1 if place == last else int(lengths[document])
        found.append((document, start, stop - start))
    return found


def test_rows_of_gpt_dataset_are_gathered_from_the_same_documents(tmp_path: Path) -> None:
    build(tmp_path / "a", documents_of(100, "uint16"), "uint16")
    dataset = gpt_dataset(tmp_path / "a", 100, 64, 300)
    documents = Documents(tmp_path / "a")
    for index in range(len(dataset)):
        theirs = dataset[index]
        pieces = np.array(pieces_of(dataset, index), np.int64)
        counts = np.ascontiguousarray(pieces[:, 2])
        out = np.zeros(counts.sum(), np.int64)
        columns = [np.ascontiguousarray(pieces[:, k]) for k in (0, 1)]
        documents.gather(*columns, counts, np.cumsum(counts) - counts, {"tokens": out})
        assert theirs["tokens"].tolist() == out[:64].tolist()
        assert theirs["labels"].tolist() == out[1:65].tolist()


def test_megatron_reads_what_the_command_writes(tmp_path: Path) -> None:
    texts = ["abc", "", "x" * 300, "wörter"]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "a.jsonl").write_text(lines)
    options = ["--tokenizer", "bytes", "--document-end", "256", "--num-workers", "0"]
    assert (
        main(["tokens", str(tmp_path / "a.jsonl"), "--output", str(tmp_path / "x"), *options]) == 0
    )
    theirs = indexed.IndexedDataset(str(tmp_path / "x"))
    assert [theirs[k].tolist() for k in range(len(theirs))] == [
        [*text.encode(), 256] for text in texts
    ]
    assert theirs.document_indices.tolist() == list(range(len(texts) + 1))
    assert len(gpt_dataset(tmp_path / "x", len(texts), 64, 4)) >= 4
