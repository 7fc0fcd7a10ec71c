"""Documents of tokens: what each kind of source gives, gathered pieces, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reader import (
    ConcatDataset,
    ConfigError,
    ConfigTypeError,
    DataLoader,
    DatasetError,
    Documents,
    SampleIndexError,
    share,
)
from reader.data.fingerprint import fingerprint_of
from tests.token_files import END, gathered, lists_of, written

LISTS = [[5, 6, 7], [8], [], [9, 10]]


class Listed:
    """Documents that only indices give."""

    def __init__(self, documents: list[Any]) -> None:
        self.documents = documents
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.documents[index]


# ---- what sources give ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, tuple, Listed, share], ids=lambda kind: kind.__name__)
def test_documents_of_lists_are_those_lists(kind: Any) -> None:
    documents = Documents(kind(LISTS))
    assert lists_of(documents) == LISTS
    assert documents.lengths.tolist() == [3, 1, 0, 2]
    assert documents.lengths.dtype == np.int64
    assert not documents.lengths.flags.writeable
    assert documents.fields == {"tokens": np.dtype("int64")}
    assert documents[-1]["tokens"].tolist() == [9, 10]
    assert documents.origin(3)[:] == ("", 0, "", 3)


@settings(max_examples=60, deadline=None)
@given(
    source=st.lists(st.lists(st.integers(1, 200), max_size=6), min_size=1, max_size=12),
    dtype=st.sampled_from(["uint8", "int8", "uint16", "int32", "uint32", "int64", "uint64"]),
    out=st.sampled_from(["uint16", "int32", "int64"]),
    data=st.data(),
    kind=st.sampled_from(["arrays", "listed", "file", "begins"]),
)
def test_gather_copies_any_pieces_of_any_source_into_any_wider_type(
    tmp_path_factory: Any, source: Any, dtype: str, out: str, data: Any, kind: str
) -> None:
    source = [[token % 127 + 1 for token in document] for document in source]
    path = tmp_path_factory.getbasetemp() / "some.bin"
    if kind == "file":
        documents = Documents(written(path, source, dtype), document_end=END, dtype=dtype, header=0)
        source = [[*document, END] for document in source]
    elif kind == "begins":
        source = [[END, *document] for document in source]
        np.concatenate(source).astype(dtype).tofile(path)
        documents = Documents(path, document_begin=END, dtype=dtype, header=0)
    else:
        arrays = [np.array(document, dtype) for document in source]
        documents = Documents(arrays if kind == "arrays" else Listed(arrays))
    assert lists_of(documents) == source
    assert documents.fields == {"tokens": np.dtype(dtype)}
    pieces = []
    for _ in range(data.draw(st.integers(0, 8))):
        number = data.draw(st.integers(0, len(source) - 1))
        begin = data.draw(st.integers(0, len(source[number])))
        pieces.append((number, begin, data.draw(st.integers(0, len(source[number]) - begin))))
    wider = out if np.can_cast(dtype, out) else dtype
    found = gathered(documents, pieces, {"tokens": wider})["tokens"].tolist()
    assert found == [token for n, b, c in pieces for token in [*source[n][b : b + c], 99]]


def test_negative_tokens_keep_their_sign_in_a_wider_type() -> None:
    documents = Documents([np.array([-1, -128, 127], np.int8)])
    assert gathered(documents, [(0, 0, 3)], {"tokens": "int64"})["tokens"].tolist() == [
        *(-1, -128, 127, 99)
    ]


def test_a_listed_document_is_read_once_for_all_its_pieces() -> None:
    source = Listed(LISTS)
    documents = Documents(source, lengths=[3, 1, 0, 2])
    source.asked.clear()
    gathered(documents, [(3, 0, 1), (0, 1, 2), (3, 1, 1), (0, 0, 1)], {"tokens": "int64"})
    assert sorted(source.asked) == [0, 3]


@pytest.mark.parametrize("kind", [list, Listed])
def test_fields_of_the_same_length_come_along(kind: Any) -> None:
    source = [
        {"input_ids": [1, 2, 3], "loss_mask": [True, False, True], "text": "abc", "label": 4},
        {"input_ids": np.array([4]), "loss_mask": np.array([False]), "text": "d", "label": 5},
    ]
    documents = Documents(kind(source))
    assert documents.fields == {"tokens": np.dtype("int64"), "loss_mask": np.dtype(bool)}
    assert list(documents[1]) == ["tokens", "loss_mask"]
    out = gathered(documents, [(0, 1, 2), (1, 0, 1)], documents.fields)
    assert out["loss_mask"].tolist() == [False, True, True, False, True]  # True: the gaps
    assert out["tokens"].tolist() == [2, 3, 99, 4, 99]
    assert list(Documents(kind(source), fields=[]).fields) == ["tokens"]


def test_weights_of_floats_are_a_field() -> None:
    documents = Documents([{"tokens": [1, 2], "weights": np.array([0.5, 2], "float32")}])
    out = gathered(documents, [(0, 1, 1)], {"weights": "float32"})
    assert out["weights"].tolist() == [2, 99]
    with pytest.raises(ConfigError, match="the field 'weights' of float32 cannot become int64"):
        gathered(documents, [(0, 1, 1)], {"weights": "int64"})


def test_tensors_of_torch_are_documents() -> None:
    torch = pytest.importorskip("torch")
    documents = Documents([torch.tensor([1, 2], dtype=torch.int32), torch.tensor([3]).int()])
    assert lists_of(documents) == [[1, 2], [3]]
    assert documents.fields["tokens"] == np.int32


def test_columns_and_tables_of_pandas_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    column = pandas.Series([[1], [2, 3]], index=[1, 0])  # whose numbers are not places
    for source in (column, column.to_frame("tokens")):
        with pytest.raises(ConfigTypeError, match=r"(?s)source must be documents.*list\(column\)"):
            Documents(source)
    assert lists_of(Documents(list(column))) == [[1], [2, 3]]


@pytest.mark.parametrize("dtype", [">i4", ">u2", ">i8"])
def test_arrays_in_another_byte_order_become_those_of_the_machine(dtype: str) -> None:
    tokens = np.array([1, 2, 0, 300, 0], dtype)
    for documents in (Documents(tokens, document_end=0), Documents([tokens[:3], tokens[3:]])):
        assert lists_of(documents) == [[1, 2, 0], [300, 0]]
        assert documents.fields["tokens"].isnative
        found = gathered(documents, [(0, 1, 2), (1, 0, 2)], {"tokens": "int64"})
        assert found["tokens"].tolist() == [2, 0, 99, 300, 0, 99]


def test_documents_may_have_other_fields_than_the_first_where_these_are_no_numbers() -> None:
    source = [{"tokens": [1]}, {"tokens": [2], "text": "two", "id": 7, "names": ["a"]}]
    assert lists_of(Documents(source)) == [[1], [2]]
    source[1]["loss_mask"] = [0]
    assert lists_of(Documents(source, fields=[])) == [[1], [2]]


def test_rows_of_an_array_are_documents() -> None:
    assert lists_of(Documents(np.arange(6, dtype=np.uint16).reshape(2, 3))) == [
        [0, 1, 2],
        [3, 4, 5],
    ]


@pytest.mark.parametrize(
    ("tokens", "ends", "begins"),
    [
        ([5, 6, 0, 7, 0], [3, 2], [2, 2, 1]),
        ([0, 5, 0, 0, 6], [1, 2, 1, 1], [2, 1, 2]),
        ([0], [1], [1]),
        ([5, 0, 6], [2, 1], [1, 2]),
    ],
)
def test_a_mark_ends_or_begins_documents_and_nothing_is_lost(
    tokens: list[int], ends: list[int], begins: list[int]
) -> None:
    array = np.array(tokens)
    assert Documents(array, document_end=0).lengths.tolist() == ends
    assert Documents(array, document_begin=0).lengths.tolist() == begins
    for documents in (Documents(array, document_end=0), Documents(array, document_begin=0)):
        assert np.concatenate(lists_of(documents)).tolist() == tokens


def test_marks_are_found_across_the_pieces_that_are_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from reader.tokens import flat_documents

    array = np.random.default_rng(0).integers(0, 5, 1000)
    whole = Documents(array, document_end=0).lengths
    monkeypatch.setattr(flat_documents, "_AT_ONCE", 7)
    assert Documents(array, document_end=0).lengths.tolist() == whole.tolist()


# ---- files ---------------------------------------------------------------------------------


def test_files_follow_one_another_and_say_where_a_document_lies(tmp_path: Path) -> None:
    paths = [
        written(tmp_path / "a.bin", [[1, 2], [3]]),
        written(tmp_path / "b.bin", []),
        written(tmp_path / "c.bin", [[4], [5, 6]]),
    ]
    np.save(tmp_path / "d.npy", np.array([7, 8], np.uint16))
    documents = Documents([*paths, tmp_path / "d.npy"], document_end=END)
    assert lists_of(documents) == [[1, 2, 0], [3, 0], [4, 0], [5, 6, 0], [7, 8]]
    assert documents.origin(3)[:] == (str(paths[2]), 4, "", 1)
    assert documents.origin(4).offset == 128
    out = gathered(documents, [(4, 1, 1), (0, 0, 2), (3, 1, 2)], {"tokens": "int32"})
    assert out["tokens"].tolist() == [8, 99, 1, 2, 99, 6, 0, 99]


def test_files_of_several_types_are_widened_or_named(tmp_path: Path) -> None:
    paths = [written(tmp_path / "a.bin", [[1]])]
    np.save(tmp_path / "b.npy", np.array([70_000, END], np.uint32))
    paths.append(tmp_path / "b.npy")
    with pytest.raises(ConfigError, match=r"a\.bin' of uint16 .*as_dtype=|b\.npy' of uint32"):
        Documents(paths, document_end=END)
    documents = Documents(paths, document_end=END, as_dtype="int64")
    assert documents.fields == {"tokens": np.dtype("int64")}
    assert lists_of(documents) == [[1, 0], [70_000, 0]]
    assert documents[0]["tokens"].dtype == np.int64
    with pytest.raises(ConfigError, match=r"as_dtype must hold every token of '.*b\.npy'"):
        Documents(paths, document_end=END, as_dtype="int32")


def test_a_shard_of_llm_c_is_read_by_its_header(tmp_path: Path) -> None:
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, 5
    path = tmp_path / "train_000001.bin"
    path.write_bytes(header.tobytes() + np.array([50256, 1, 2, 50256, 3], "<u2").tobytes())
    documents = Documents(path, document_begin=50256)
    assert lists_of(documents) == [[50256, 1, 2], [50256, 3]]
    assert documents.origin(1).offset == 1024 + 6


def test_an_odd_header_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"abc" + np.array([1, 2, END, 3], np.int32).tobytes())
    documents = Documents(path, document_end=END, dtype="int32", header=3)
    assert gathered(documents, [(0, 0, 3)], {"tokens": "int64"})["tokens"].tolist() == [1, 2, 0, 99]


def test_a_copy_in_another_process_opens_the_files_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.bin", [range(1, 60_000)])
    documents = Documents(path, document_end=END)
    sent = pickle.dumps(documents)
    assert len(sent) < 2_000
    assert lists_of(pickle.loads(sent)) == lists_of(documents)
    written(path, [[1]])
    with pytest.raises(DatasetError, match="had 120,000 when the dataset was made"):
        pickle.loads(sent)
    path.unlink()
    with pytest.raises(DatasetError, match="cannot be mapped"):
        pickle.loads(sent)


@pytest.mark.parametrize("kind", ["list", "file", "listed"])
def test_workers_give_the_documents_in_order(tmp_path: Path, kind: str) -> None:
    lists = [[k + 1] * (k % 5) for k in range(40)]
    source: Any = lists if kind == "list" else Listed(lists)
    options = {}
    if kind == "file":
        source, options = written(tmp_path / "a.bin", lists), {"document_end": END}
        lists = [[*each, END] for each in lists]
    documents = Documents(source, **options)
    with DataLoader(documents, batch_size=1, num_workers=2, collate_fn=list) as loader:
        assert [batch[0]["tokens"].tolist() for batch in loader] == lists


# ---- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ([], {}, "there is no document: the list is empty"),
        (Listed([]), {}, "there is no document: .* is empty"),
        (np.arange(3), {}, r"needs reader.Documents\(array, document_end=\) or.*pass \[array\]"),
        (np.arange(3), {"document_end": 9}, "document_end=9 is nowhere in the array"),
        (np.arange(3), {"document_end": 1, "document_begin": 1}, "say the same twice"),
        (np.arange(3), {"document_end": -(2**70)}, "document_end must be"),
        ([[1]], {"document_end": 1}, "a list of documents was passed"),
        (Listed([[1]]), {"document_end": 1}, "has documents already"),
        ([[1]], {"dtype": "uint16"}, "dtype= is for files of tokens"),
        ([[1]], {"lengths": [1]}, "is for a dataset that is read for them"),
        ([[1]], {"as_dtype": "float32"}, "as_dtype must be one of"),
        ([[1], [300]], {"as_dtype": "uint8"}, "document 1 has int64 that uint8 does not hold"),
        (
            [np.array([1], "u2"), np.array([70_000])],
            {},
            "document 1 has int64 that uint16 does not",
        ),
        ([{"a": [1]}], {}, "document 0 has the fields 'a', and none is 'tokens'"),
        ([{"a": [1]}, {"b": [1]}], {"tokens": "a"}, "document 1 has no field 'a', but 'b'"),
        (
            [{"tokens": [1], "m": [1]}, {"tokens": [1, 2], "m": [1]}],
            {},
            "the field 'm' of document 1 has 1 values, and its tokens are 2",
        ),
        ([{"tokens": [1], "m": [1, 2]}], {}, "has 2 values, and its tokens are 1.*, fields="),
        (Listed([[1]]), {"lengths": [1, 2]}, "lengths are 2, and the documents are 1"),
        (Listed([[1]]), {"lengths": [-1]}, "lengths must be integers from 0 on"),
        (Listed([[1]]), {"lengths": [1.5]}, "lengths must be integers from 0 on"),
        (
            Listed([[1]]),
            {"lengths": np.array([1 << 63], "u8")},
            r"lengths sum to 9\.22e\+18 tokens",
        ),
        (Listed([[1], [2]]), {"lengths": [1 << 62, 1 << 62]}, r"lengths sum to 9\.22e\+18 tokens"),
        (
            np.array([70_000, 0]),
            {"document_end": 0, "as_dtype": "uint8"},
            "has int64 that uint8 does not hold",
        ),
        (
            [{"tokens": [1]}, {"tokens": [2], "loss_mask": [1]}],
            {},
            r"document 1 has the field 'loss_mask', which the first one has not.*, fields=",
        ),
        ([[1], {"tokens": [2], "loss_mask": [1]}], {}, "document 1 has the field 'loss_mask'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(source: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Documents(source, **options)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (5, {}, "source must be documents with a length"),
        (iter([[1]]), {}, "source must be documents with a length"),
        (np.array(5), {}, "source must be documents with a length"),
        (
            {"tokens": [[1], [2]]},
            {},
            "source must be documents with a length.*list of arrays or di",
        ),
        (
            np.array([1, 0]),
            {"document_end": 0, "fields": ["m"]},
            "are for documents that are dicts",
        ),
        ([["a text"]], {}, "document 0 has values of <U6, and takes integers"),
        (["a text", 5], {}, "document 0 is text, .*python -m reader tokens"),
        ([[1.5]], {}, "document 0 has values of float64, and takes integers"),
        ([np.ones(4)], {}, "document 0 has values of float64, and takes integers"),
        ([[[1]]], {}, r"document 0 has the shape \(1, 1\), and it must have one axis"),
        ([[1], [[2]]], {}, r"document 1 has the shape \(1, 1\)"),
        ([[1, [2]]], {}, "document 0 is no array of numbers"),
        ([[1]], {"tokens": "a"}, "are for documents that are dicts, and document 0 is"),
        ([{"tokens": [1]}], {"fields": "a"}, r"fields must be a list of names, got 'a': \['a'\]"),
        ([{"tokens": [1]}], {"fields": [1]}, "fields must be names of fields"),
        ([{"tokens": [1], "m": [1]}, [1]], {}, "document 1 is .* and the others are dicts"),
    ],
)
def test_what_is_of_another_type_is_refused_by_name(
    source: Any, options: Any, message: str
) -> None:
    with pytest.raises(ConfigTypeError, match=message):
        Documents(source, **options)


def test_a_file_that_does_not_say_where_documents_end_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.bin", [[1, 2]])
    with pytest.raises(ConfigError, match=r"where its documents end: pass reader\.Documents"):
        Documents(path)
    with pytest.raises(ConfigError, match=r"document_end=7 is nowhere in '.*a\.bin'"):
        Documents(path, document_end=7)
    with pytest.raises(ConfigError, match="document_end must be"):
        Documents(path, document_end=70_000)
    with pytest.raises(ConfigError, match="there is no file"):
        Documents(tmp_path / "no.bin", document_end=0)
    (tmp_path / "b.bin").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"there is no document: '.*b\.bin' is empty"):
        Documents(tmp_path / "b.bin", document_end=0)
    with pytest.raises(ConfigError, match="tokens= is for documents that are dicts"):
        Documents(path, document_end=0, tokens="ids")


@pytest.mark.parametrize("kind", [list, Listed])
@pytest.mark.parametrize(
    "piece",
    [(4, 0, 0), (-1, 0, 1), (0, -1, 1), (0, 0, -1), (0, 0, 4), (0, 3, 1), (0, 2**62, 2**62)],
)
def test_a_piece_outside_of_its_document_is_refused_and_nothing_copied(
    kind: Any, piece: Any
) -> None:
    documents = Documents(kind(LISTS))
    columns = [np.array([0, part], np.int64) for part in piece]
    columns[2][0] = 1
    out = {"tokens": np.zeros(8, np.int64)}
    with pytest.raises(SampleIndexError, match=r"piece 1 is .* tokens from .* on of document"):
        documents.gather(*columns, np.array([0, 1], np.int64), out)
    assert not out["tokens"].any()


@pytest.mark.parametrize("kind", [list, Listed])
@pytest.mark.parametrize("place", [-1, 7, 2**62])
def test_a_piece_outside_of_its_row_is_refused(kind: Any, place: int) -> None:
    documents = Documents(kind(LISTS))
    one = np.array([0], np.int64)
    with pytest.raises(SampleIndexError, match=r"to place .* of 8"):
        documents.gather(one, one, one + 2, one + place, {"tokens": np.zeros(8, np.int64)})
    with pytest.raises(ConfigError, match="no field 'mask', but tokens"):
        documents.gather(one, one, one, one, {"mask": np.zeros(8, np.int64)})


@pytest.mark.parametrize("kind", [list, Listed])
def test_gather_refuses_an_array_that_does_not_hold_the_tokens(kind: Any) -> None:
    documents = Documents(kind([[70_000]]))
    zero = np.array([0], np.int64)
    for dtype, message in (
        ("int32", "must hold every token of int64, got int32"),
        ("f8", "cannot"),
    ):
        out = {"tokens": np.zeros(1, dtype)}
        with pytest.raises(ConfigError, match=message):
            documents.gather(zero, zero, zero + 1, zero, out)
        assert not out["tokens"].any()


def test_an_index_outside_is_refused() -> None:
    documents = Documents(LISTS)
    for index in (4, -5):
        with pytest.raises(SampleIndexError, match="is outside of 4 documents"):
            documents[index]


def test_a_dataset_that_gives_other_tokens_than_its_lengths_say_is_named() -> None:
    documents = Documents(Listed(LISTS), lengths=[3, 2, 0, 2])
    with pytest.raises(DatasetError, match="document 1 has 1 tokens, and its length is 2"):
        documents[1]
    other = Listed([[1], [2]])
    documents = Documents(other)
    other.documents[1] = ["x"]
    with pytest.raises(DatasetError, match="document 1 has values of"):
        documents[1]


def test_documents_are_pure_where_their_source_is() -> None:
    assert Documents(LISTS).has_pure_samples
    assert not Documents(Listed(LISTS)).has_pure_samples
    assert Documents(ConcatDataset([Documents(LISTS), Documents(LISTS)])).has_pure_samples


def test_a_digest_tells_lengths_and_types_apart() -> None:
    found = fingerprint_of(Documents(LISTS))
    assert fingerprint_of(Documents(Listed(LISTS))) == found
    zeros = [[0] * len(each) for each in LISTS]
    assert fingerprint_of(Documents(zeros)) == found  # tokens are not read
    assert fingerprint_of(Documents(LISTS[:3])) == fingerprint_of(Documents(LISTS), 3) != found
    assert fingerprint_of(Documents(LISTS, as_dtype="int32")) != found
