"""GluonNLP's datasets of files, and batches of running text."""

from __future__ import annotations

import copy
import pickle
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader import ConfigError, DataLoader
from reader.compat.gluon.datasets import Dataset, SimpleDataset
from reader.compat.gluon.nlp.bptt import CorpusBatchify, CorpusBPTTBatchify, StreamBPTTBatchify
from reader.compat.gluon.nlp.prefetching_stream import PrefetchingStream
from reader.compat.gluon.nlp.streams import SimpleDatasetStream, SimpleDataStream
from reader.compat.gluon.nlp.text_datasets import (
    ConcatDataset,
    CorpusDataset,
    NumpyDataset,
    Splitter,
    TextLineDataset,
    TSVDataset,
)

WORDS = ["_", "$", *string.ascii_lowercase]


class Vocab:
    """Letters by their numbers; "_" is the padding."""

    padding_token: str | None = "_"

    def __getitem__(self, tokens: Any) -> Any:
        if isinstance(tokens, (list, tuple)):
            return [WORDS.index(token) for token in tokens]
        return WORDS.index(tokens)


def samples(dataset: Any) -> list[Any]:
    return [dataset[index] for index in range(len(dataset))]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def written(text: str, name: str = "file.txt", encoding: str = "utf8") -> str:
        (tmp_path / name).write_text(text, encoding, newline="")
        return str(tmp_path / name)

    return written


# -- files -----------------------------------------------------------------------------------------


def test_lines_are_stripped(write: Callable[..., str]) -> None:
    assert samples(TextLineDataset(write(" a b \r\n\n\tc"))) == ["a b", "", "c"]
    assert samples(TextLineDataset(write("é", encoding="latin1"), "latin1")) == ["é"]
    assert isinstance(TextLineDataset(write("")), SimpleDataset)


def test_fields_are_chosen_and_heads_are_skipped(write: Callable[..., str]) -> None:
    path = write("id\tname\tcity\n1\tAda\tBonn\n2\tBob\tRome\n")
    assert samples(TSVDataset(path, num_discard_samples=1)) == [
        ["1", "Ada", "Bonn"],
        ["2", "Bob", "Rome"],
    ]
    chosen = TSVDataset(path, num_discard_samples=2, field_indices=[2, 0])
    assert samples(chosen) == [["Rome", "2"]]
    whole = TSVDataset(path, field_separator=None, num_discard_samples=2)
    assert samples(whole) == ["2\tBob\tRome"]
    other = TSVDataset(path, sample_splitter=Splitter("Bob"), field_separator=Splitter())
    assert samples(other) == [["id", "name", "city", "1", "Ada", "Bonn", "2"], ["Rome"]]


def test_heads_of_the_first_files_are_skipped(write: Callable[..., str]) -> None:
    paths = [write("a\nb\n", "1"), write("c\nd\n", "2")]
    assert samples(TSVDataset(paths, num_discard_samples=1)) == [["b"], ["c"], ["d"]]
    assert samples(TSVDataset(tuple(paths), num_discard_samples=3)) == [["d"]]


def test_a_sample_that_lacks_a_field_is_refused_or_skipped(write: Callable[..., str]) -> None:
    path = write("a\tb\nc\nd\te\n")
    text = r"^list index out of range\. Fields = \['c'\]: .*has 1 fields, and field_indices=\[1\]"
    with pytest.raises(IndexError, match=text) as caught:
        TSVDataset(path, field_indices=[1])
    assert isinstance(caught.value, ConfigError)
    with pytest.warns(UserWarning, match="^1 incomplete samples in .*file.txt"):
        dataset = TSVDataset(path, field_indices=[1], allow_missing=True)
    assert samples(dataset) == [["b"], ["e"]]


def test_corpora_are_lists_of_tokens(write: Callable[..., str]) -> None:
    paths = [write(" a b\n\nc\n", "1"), write("d", "2")]
    assert samples(CorpusDataset(paths)) == [["a", "b"], ["c"], ["d"]]
    marked = CorpusDataset(paths, bos="<s>", eos="</s>", skip_empty=False)
    assert samples(marked)[:2] == [["<s>", "a", "b", "</s>"], ["<s>", "</s>"]]
    flat = CorpusDataset(paths, flatten=True, eos="$")
    assert samples(flat) == ["a", "b", "$", "c", "$", "d", "$"]
    assert samples(CorpusDataset(paths, tokenizer=None, bos="<s>")) == ["a b", "c", "d"]
    assert samples(CorpusDataset(paths, tokenizer=None, skip_empty=False))[1] == ""
    assert samples(CorpusDataset(paths, tokenizer=list, flatten=True))[:3] == ["a", " ", "b"]


@pytest.mark.parametrize("kind", [TSVDataset, CorpusDataset])
def test_a_splitter_is_needed(kind: Any, write: Callable[..., str]) -> None:
    with pytest.raises(AssertionError, match=r"^sample_splitter must be specified\. Got None"):
        kind(write("a"), sample_splitter=None)


@pytest.mark.parametrize("kind", [TextLineDataset, TSVDataset, CorpusDataset, NumpyDataset])
def test_the_home_directory_is_found_and_a_missing_file_is_not(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "file.npy", np.arange(2))
    encoding = {} if kind is NumpyDataset else {"encoding": "latin1"}
    assert len(kind("~/file.npy", **encoding)) > 0
    with pytest.raises(FileNotFoundError):
        kind("~/none.npy")


def test_arrays_of_a_file_are_rows_side_by_side(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", b=np.arange(3), a=np.eye(3))
    both = NumpyDataset(f"{tmp_path}/two.npz")
    assert (both.keys, len(both)) == (["a", "b"], 3)
    row, number = both[1]
    assert row.tolist() == [0, 1, 0]
    assert number == 1
    assert both.get_field("b").tolist() == [0, 1, 2]
    np.save(tmp_path / "one.npy", np.eye(2))
    one = NumpyDataset(tmp_path / "one.npy", mmap_mode="r")
    assert one.keys is None
    assert isinstance(one[0], np.memmap)
    assert [row.tolist() for row in samples(one)] == [[1, 0], [0, 1]]


def test_arrays_that_make_no_samples_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "uneven.npz", a=np.arange(1), b=np.arange(1), c=np.arange(2))
    text = r"^All arrays must have the same length; array\[0\] has length 1 while array\[2\] has 2"
    with pytest.raises(AssertionError, match=text):
        NumpyDataset(f"{tmp_path}/uneven.npz")
    np.savez(tmp_path / "none.npz")
    with pytest.raises(AssertionError, match=r"^Needs at least 1 arrays"):
        NumpyDataset(f"{tmp_path}/none.npz")
    with pytest.raises(ValueError, match=r"^Unsupported extension: x\.bin"):
        NumpyDataset("x.bin")
    np.savez(tmp_path / "one.npz", a=np.arange(2))
    one = NumpyDataset(f"{tmp_path}/one.npz")
    assert samples(one) == [0, 1]
    with pytest.raises(ValueError, match=r"no field 'b': the keys of this dataset are \['a'\]"):
        one.get_field("b")


def test_datasets_are_joined_end_to_end(write: Callable[..., str]) -> None:
    lines = TextLineDataset(write("a\nb"))
    joined = ConcatDataset([lines, ["c"]])
    assert samples(joined) == ["a", "b", "c"]
    assert (joined[-1], len(joined)) == ("c", 3)
    assert samples(joined.transform(str.upper)) == ["A", "B", "C"]
    with pytest.raises(IndexError, match="index 3 of a ConcatDataset of 3 samples"):
        joined[3]


def test_datasets_are_gluons_and_can_be_copied(write: Callable[..., str], tmp_path: Path) -> None:
    path = write("a\tb\nc\td\n")
    np.save(tmp_path / "file.npy", np.arange(2))
    made: list[Any] = [kind(path) for kind in (TextLineDataset, TSVDataset, CorpusDataset)]
    made += [NumpyDataset(f"{tmp_path}/file.npy"), ConcatDataset([["a"], ["b"]])]
    for each in made:
        assert isinstance(each, Dataset)
        for again in (copy.deepcopy(each), pickle.loads(pickle.dumps(each))):
            assert type(again) is type(each)
            assert samples(again) == samples(each)


# -- running text ----------------------------------------------------------------------------------


def letters(array: Any) -> list[str]:
    return ["".join(WORDS[int(number)] for number in column) for column in array.T]


def pairs(dataset: Any) -> list[tuple[list[str], list[str]]]:
    return [(letters(data), letters(target)) for data, target in dataset]


def test_a_corpus_becomes_columns_side_by_side() -> None:
    rows = CorpusBatchify(Vocab(), 3)(SimpleDataset(list("abcdefghijk")))
    assert ["".join(WORDS[int(number)] for number in row) for row in samples(rows)] == [
        "adg",
        "beh",
        "cfi",
    ]
    assert rows[0].dtype == np.float32
    assert len(CorpusBatchify(Vocab(), 3)(["a"])) == 0


@pytest.mark.parametrize(
    ("corpus", "last_batch", "wanted"),
    [
        ("abcdefg", "keep", [(["abc", "efg"], ["bcd", "fg_"])]),
        ("abcdefg", "discard", []),
        (
            "abcdefghijkl",
            "keep",
            [(["abc", "hij"], ["bcd", "ijk"]), (["def", "kl_"], ["efg", "l__"])],
        ),
        ("abcdefghijkl", "discard", [(["abc", "ghi"], ["bcd", "hij"])]),
        ("abc", "keep", [(["abc", "___"], ["bc_", "___"])]),
        ("a", "keep", []),
        ("", "keep", []),
    ],
)
def test_batches_continue_the_columns_as_in_gluonnlp(
    corpus: str, last_batch: str, wanted: list[Any]
) -> None:
    batches = CorpusBPTTBatchify(Vocab(), 3, 2, last_batch)(list(corpus))
    assert pairs(samples(batches)) == wanted
    for data, target in samples(batches):
        assert data.dtype == target.dtype == np.float32
        assert data.shape == target.shape == (3, 2)
        assert not np.shares_memory(data, target)


@given(
    st.lists(st.sampled_from("abcdef"), min_size=2, max_size=60),
    st.integers(1, 6),
    st.integers(1, 5),
)
def test_every_token_but_the_first_of_a_column_is_a_target_once(
    corpus: list[str], seq_len: int, batch_size: int
) -> None:
    batches = pairs(samples(CorpusBPTTBatchify(Vocab(), seq_len, batch_size)(corpus)))
    rows = -(-len(corpus) // batch_size)
    if rows == 1:
        assert batches == []
        return
    columns = ["".join(parts) for parts in zip(*(data for data, _ in batches), strict=True)]
    targets = ["".join(parts) for parts in zip(*(target for _, target in batches), strict=True)]
    assert [column[1:] for column in columns] == [target[:-1] for target in targets]
    ends = [column[0] + target for column, target in zip(columns, targets, strict=True)]
    missing = "_" * (len("".join(ends)) - len(corpus))
    assert sorted("".join(ends)) == sorted("".join(corpus) + missing)


SENTENCES = ["abcd$", "efghij$", "klmn$", "o$"]


@pytest.mark.parametrize("last_batch", ["keep", "discard"])
def test_a_stream_of_sentences_fills_columns_as_in_gluonnlp(last_batch: str) -> None:
    corpora = SimpleDataStream([[list(each) for each in SENTENCES]])
    batches = StreamBPTTBatchify(Vocab(), 5, 2, "sequential", last_batch)(corpora)
    wanted = [
        (["abcd$", "klmn$"], ["bcd$e", "lmn$o"]),
        (["efghi", "o____"], ["fghij", "$____"]),
        (["j____", "_____"], ["$____", "_____"]),
        (["_____", "_____"], ["_____", "_____"]),
    ]
    assert pairs(batches) == pairs(batches) == wanted[: 4 if last_batch == "keep" else 3]
    data, target = next(iter(batches))
    assert (data.shape, data.dtype) == ((5, 2), np.float32)
    data += 1
    assert letters(target) == ["bcd$e", "lmn$o"]


@given(st.lists(st.text("abc", max_size=7), max_size=12), st.integers(1, 6), st.integers(1, 4))
def test_sentences_of_any_length_are_read_whole(
    sentences: list[str], seq_len: int, batch_size: int
) -> None:
    corpora = [[list(sentence) for sentence in sentences]]
    make = StreamBPTTBatchify(Vocab(), seq_len, batch_size, "sequential", "discard")
    batches = pairs(make(SimpleDataStream(corpora)))
    targets = "".join("".join(target) for _, target in batches).replace("_", "")
    data = "".join("".join(data) for data, _ in batches).replace("_", "")
    # each sequence begins with a token that is no target
    assert 0 <= len("".join(sentences)) - len(targets) <= batch_size
    assert len(data) == len(targets)


def test_sentences_come_in_the_order_that_numpy_draws() -> None:
    corpora = SimpleDataStream([[list(each) for each in SENTENCES]])
    stream = StreamBPTTBatchify(Vocab(), 18, 1, last_batch="discard")(corpora)
    np.random.seed(3)
    (found,) = pairs(stream)
    order = np.random.RandomState(3).permutation(4)
    whole = "".join(SENTENCES[number] for number in order)
    assert found == ([whole[:-1] + "_"[: 19 - len(whole)]], [whole[1:]])


def test_batches_of_files_are_made_ahead(write: Callable[..., str], tmp_path: Path) -> None:
    write("a b c\nd e", "1.txt"), write("f g h", "2.txt")
    corpora = SimpleDatasetStream(CorpusDataset, f"{tmp_path}/*.txt", "sequential", eos="$")
    batches = StreamBPTTBatchify(Vocab(), 3, 1, "sequential", "discard")(corpora)
    wanted = [(["abc"], ["bc$"]), (["$de"], ["de$"]), (["$fg"], ["fgh"]), (["h__"], ["$__"])]
    assert pairs(PrefetchingStream(batches, 2, "process")) == wanted
    assert pairs(batches) == wanted
    loader = DataLoader(batches, batch_size=None)
    assert pairs(loader) == wanted


class Bare:
    """A vocabulary without a padding token."""

    padding_token = None


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (
            lambda: CorpusBPTTBatchify(Vocab(), 3, 2, "rollover"),
            ValueError,
            '^Got invalid last_batch: "rollover". Must be "keep" or "discard".',
        ),
        (
            lambda: CorpusBPTTBatchify(Bare(), 3, 2),
            ValueError,
            '^vocab.padding_token must be specified in vocab when last_batch="keep".',
        ),
        (
            lambda: StreamBPTTBatchify(Bare(), 3, 2),
            ValueError,
            "^Padding token must be specified in vocab for StreamBPTTBatchify.",
        ),
        (
            lambda: StreamBPTTBatchify(Vocab(), 3, 2, last_batch="x"),
            ValueError,
            "^Got invalid last_batch",
        ),
        (
            lambda: StreamBPTTBatchify(Vocab(), 3, 2, "sorted"),
            ValueError,
            '^sampler must be either "random" or "sequential", but got sorted',
        ),
        (
            lambda: StreamBPTTBatchify(Vocab(), 3, 2, [1]),  # type: ignore[arg-type]
            AssertionError,
            "^Expected sampler to be a str, but got <class 'list'>",
        ),
        (lambda: CorpusBatchify(Vocab(), 0), AssertionError, "batch_size must be larger than 0"),
        (lambda: CorpusBPTTBatchify(Vocab(), 0, 2), AssertionError, "seq_len must be larger"),
    ],
)
def test_invalid_arguments_are_refused_in_gluonnlps_words(
    make: Callable[[], Any], kind: Any, text: str
) -> None:
    with pytest.raises(kind, match=text):
        make()
    assert CorpusBPTTBatchify(Bare(), 3, 2, "discard") is not None
