"""Windows of a file of tokens: their contents, documents in them, files of other kinds."""

from __future__ import annotations

import errno
import gzip
import io
import pickle
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader import (
    ConfigError,
    ConfigTypeError,
    DataLoader,
    DatasetError,
    SampleIndexError,
    TokenWindows,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.bin"
    np.arange(1000, dtype=np.uint16).tofile(path)
    return path


@given(
    count=st.integers(1, 60),
    length=st.integers(1, 20),
    stride=st.integers(1, 25),
    targets=st.booleans(),
    as_dtype=st.sampled_from([None, "int64"]),
    shuffle=st.booleans(),
)
def test_windows_are_slices_of_the_file(
    tmp_path_factory: Any,
    count: int,
    length: int,
    stride: int,
    targets: bool,
    as_dtype: Any,
    shuffle: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / "some.bin"
    tokens = np.arange(count, dtype=np.uint32) * 7
    tokens.tofile(path)
    options: dict[str, Any] = {"dtype": "uint32", "targets": targets, "as_dtype": as_dtype}
    begins = range(0, count - length - targets + 1, stride)
    if not begins:
        with pytest.raises(ConfigError, match="and a window takes"):
            TokenWindows(path, length, stride, shuffle, **options)
        return
    windows = TokenWindows(path, length, stride, shuffle, **options)
    assert len(windows) == len(begins)
    found = [windows[k] for k in range(len(begins))]
    if shuffle:
        found.sort(key=lambda sample: int((sample["tokens"] if targets else sample)[0]))
    for begin, sample in zip(begins, found, strict=True):
        first = sample["tokens"] if targets else sample
        assert (first == tokens[begin : begin + length]).all()
        assert first.dtype.name == (as_dtype or "uint32")
        if targets:
            assert (sample["targets"] == tokens[begin + 1 : begin + 1 + length]).all()


def test_positions_and_segments_begin_anew_after_each_document(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npy"
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 9, 5000).astype(np.int32)
    np.save(path, tokens)
    windows = TokenWindows(path, 50, 30, document_end=0, targets=True)
    for number in range(len(windows)):
        sample, positions, segments, targets = windows[number].values()
        place = segment = 0
        for token, position, found in zip(sample, positions, segments, strict=True):
            assert (position, found) == (place, segment)
            place += 1
            if token == 0:
                place, segment = 0, segment + 1
        assert (targets[:-1] == sample[1:]).all()
    assert positions.dtype == segments.dtype == np.int32


def test_a_shuffled_order_is_that_of_its_seed(file: Path) -> None:
    orders = [
        [int(sample[0]) for sample in TokenWindows(file, 10, None, True, seed=seed)]
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == list(range(0, 1000, 10))


def test_indices_count_from_both_ends(file: Path) -> None:
    for options in ({}, {"shuffle": True}, {"as_dtype": "int64"}):
        windows = TokenWindows(file, 10, **options)  # type: ignore[arg-type]
        assert (windows[-1] == windows[99]).all()
        for index in (100, -101):
            with pytest.raises(
                SampleIndexError, match=r"outside of 100 windows: take one in \[-100"
            ):
                windows[index]


def test_fields_of_a_sample_do_not_share_memory(file: Path) -> None:
    for options in ({"shuffle": True}, {"document_end": 3}):
        sample = TokenWindows(file, 10, targets=True, **options)[0]  # type: ignore[arg-type]
        before = {name: part.copy() for name, part in sample.items()}
        sample["tokens"][:] = 0
        assert all((sample[name] == before[name]).all() for name in sample if name != "tokens")


def test_fields_have_names_or_the_order_of_a_tuple(file: Path) -> None:
    for options, names in (
        ({"targets": True}, ["tokens", "targets"]),
        ({"document_end": 3}, ["tokens", "positions", "segments"]),
        ({"document_end": 3, "targets": True}, ["tokens", "positions", "segments", "targets"]),
    ):
        named = TokenWindows(file, 10, **options)  # type: ignore[arg-type]
        plain = TokenWindows(file, 10, fields="tuple", **options)  # type: ignore[arg-type]
        for number in range(len(named)):
            assert list(named[number]) == names
            assert type(plain[number]) is tuple
            for one, other in zip(named[number].values(), plain[number], strict=True):
                assert (one == other).all()
    with pytest.raises(ConfigError, match="fields must be 'dict' or 'tuple', got 'list'"):
        TokenWindows(file, 10, fields="list")  # type: ignore[arg-type]


def test_a_subclass_is_asked_for_its_samples(file: Path) -> None:
    class Halved(TokenWindows):
        def __getitem__(self, index: int, /) -> Any:
            return super().__getitem__(index) // 2

    for options in ({}, {"as_dtype": "int64"}, {"shuffle": True}):
        windows = Halved(file, 10, **options)  # type: ignore[arg-type]
        batches = np.concatenate(list(DataLoader(windows, batch_size=7)))
        assert (batches == np.stack([windows[k] for k in range(100)])).all()


def test_numbers_of_numpy_are_numbers(file: Path) -> None:
    windows = TokenWindows(file, np.uint8(200), np.uint8(200), header=np.uint8(200))  # type: ignore[arg-type]
    assert windows[3][0] == 700
    with pytest.raises(TypeError):
        windows[1.5]  # type: ignore[index]


def test_a_header_is_skipped(file: Path) -> None:
    assert TokenWindows(file, 10, header=20)[0].tolist() == list(range(10, 20))


def test_the_file_is_not_copied(file: Path) -> None:
    windows = TokenWindows(file, 10)
    assert len(pickle.dumps(windows)) < 1000
    again = pickle.loads(pickle.dumps(windows))
    assert (again[7] == windows[7]).all()
    assert not windows[7].flags.writeable
    with file.open("ab") as more:
        more.write(b"12")
    with pytest.raises(DatasetError, match="has 1,001 tokens, and had 1,000 when"):
        pickle.loads(pickle.dumps(windows))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"length": 0}, ConfigError, "length must be an int of 1 or more"),
        ({"length": "2"}, ConfigTypeError, "length must be"),
        ({"stride": 0}, ConfigError, "stride must be an int of 1 or more"),
        ({"length": 1001}, ConfigError, "has 1,000 tokens of uint16, and a window takes 1,001"),
        ({"length": 1000, "targets": True}, ConfigError, "takes 1,001"),
        ({"dtype": "float32"}, ConfigError, "dtype must be one of uint8"),
        ({"as_dtype": "no"}, ConfigError, "as_dtype must be one of"),
        ({"as_dtype": ","}, ConfigError, "as_dtype must be one of"),
        ({"dtype": {"names": ["a"]}}, ConfigError, "dtype must be one of"),
        ({"header": 1}, ConfigError, "1,999 bytes behind a header of 1, which is no whole number"),
        ({"header": 2001}, ConfigError, "has 2,000 bytes, and header is 2,001: pass how many"),
        ({"length": 10**30}, ConfigError, r"length must be an int in \[1, 9223372036854775807\]"),
        ({"stride": 2**63}, ConfigError, r"stride must be an int in \[1, 9223372036854775807\]"),
        ({"header": 2**63}, ConfigError, r"header must be an int in \[0, 9223372036854775807\]"),
        ({"header": -1}, ConfigError, "header must be"),
        (
            {"document_end": 70000},
            ConfigError,
            r"document_end must be an int in \[0, 65535\], got 70000 .* token of uint16, or None",
        ),
        ({"document_end": "x"}, ConfigTypeError, "document_end must be .*, got 'x' .* or None"),
        ({"document_end": True}, ConfigTypeError, "document_end must be .*, got True"),
        ({"document_end": np.zeros(2)}, ConfigTypeError, "document_end must be .*, got array"),
        ({"targets": "no"}, ConfigTypeError, "targets must be a bool, got 'no'"),
        ({"targets": 1}, ConfigTypeError, "targets must be a bool, got 1"),
        ({"shuffle": True, "seed": -1}, ConfigError, "seed must be"),
        ({"seed": 2**70}, ConfigError, r"seed must be an int in \[0, 9223372036854775807\], got"),
        ({"shuffle": "no"}, ConfigTypeError, "shuffle must be"),
        ({"seed": "x"}, ConfigTypeError, "seed must be"),
        ({"dtype": ">u2"}, ConfigError, "dtype must be one of"),
        ({"as_dtype": "uint8"}, ConfigError, "as_dtype must hold every token of uint16"),
        ({"as_dtype": "int16"}, ConfigError, "as_dtype must hold every token of uint16"),
        ({"path": "some.npy", "dtype": "uint16"}, ConfigError, "leave dtype and header out"),
        ({"path": "no"}, ConfigError, "'no' cannot be read as tokens: .*; pass the path of a file"),
        ({"path": "no.npy"}, ConfigError, "'no.npy' cannot be read as tokens: .*; pass the path"),
        ({"path": "."}, ConfigError, "'.' cannot be read as tokens: .*; pass the path of a file"),
        (
            {"path": "/dev/zero"},
            ConfigError,
            "'/dev/zero' cannot be read as tokens: .*no regular file",
        ),
        ({"path": ""}, ConfigError, "path must be the path of a file of tokens, got ''"),
        ({"path": "a\0b"}, ConfigError, "path must be the path of a file of tokens, got 'a"),
        ({"path": None}, ConfigTypeError, "path must be the path of a file of tokens, got None"),
        ({"path": 5}, ConfigTypeError, "path must be the path of a file of tokens, got 5"),
        ({"path": ["a"]}, ConfigTypeError, "TokenWindows of each file, and ConcatDataset of those"),
        ({"path": np.zeros(9, "u2")}, ConfigTypeError, r"numpy.save\(.* or .* TensorDataset\("),
    ],
)
def test_invalid_arguments_are_refused(
    file: Path, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        TokenWindows(**{"path": file, "length": 10} | options)


def test_a_stride_beyond_all_limits_leaves_one_window(file: Path) -> None:
    for targets in (False, True):
        windows = TokenWindows(file, 10, 2**63 - 1, targets=targets)
        assert len(windows) == 1
        sample = windows[0]
        assert (sample["tokens"] if targets else sample).tolist() == list(range(10))


def test_a_limit_on_open_files_is_named(file: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"limit of open files: raise it \(ulimit -n\)"):
            TokenWindows(file, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_file_that_may_not_be_read_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("reader.stores.files.open_regular", refuse)
    with pytest.raises(ConfigError, match="Permission denied; pass the path of a file that you"):
        TokenWindows(file, 10)


# a record of no bytes, as TensorFlow writes it: its length, and the masked CRC-32C of that
TFRECORD = bytes(8) + b"\x29\x03\x98\x07" + b"\xd8\xea\x82\xa2"
_NPY = b"\x93NUMPY\x01\0"
_ZIP = b"PK\3\4" + bytes(100)
_GZIP = b"\x1f\x8b\x08\0"


def zipped() -> bytes:
    made = io.BytesIO()
    np.savez(made, np.zeros(99, np.uint16))
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.npz", zipped(), "is an archive of several arrays, .* numpy.save or array.tofile"),
        ("a.npy", zipped(), "is an archive of several arrays"),
        ("a.bin", zipped(), "is an archive of several arrays"),
        ("a.npy", b"some text", r"is no file of NumPy: it begins with b'some t', and .* than .npy"),
        ("a.npy", b"", "is no file of NumPy: it begins with b''"),
        ("a.bin", _NPY + bytes(90), "is a file of NumPy, .* a name that ends in .npy"),
        ("a.npy", _NPY + b"v\0{'descr': '<u2'", "holds no plain integers, or is damaged"),
        ("a.npy", _NPY + b"\4\0((((", "holds no plain integers, or is damaged: .*numpy.save"),
        ("a.parquet", b"PAR1...PAR1", "is a Parquet file"),
        ("a.arrow", b"ARROW1\0\0..", "is an Arrow file"),
        ("a.h5", b"\x89HDF\r\n\x1a\n", "is a HDF5 file"),
        ("a.idx", b"MMIDIDX\0\0\1", "is the index of a Megatron dataset, .* in the file .bin"),
        ("a.bin.gz", gzip.compress(b"ab"), "is compressed: write the tokens alone"),
        ("a.zst", b"\x28\xb5\x2f\xfd..", "is compressed"),
        ("a.bz2", b"BZh9", "is compressed"),
        ("a.xz", b"\xfd7zXZ\0", "is compressed by xz"),
        ("a.idx", b"TNTIDX\0\0\1", "is the index of a fairseq dataset"),
        ("a.db", b"SQLite format 3\0", "is an SQLite database"),
        ("a.tfrecord", TFRECORD, "is a TFRecord file"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_a_file_of_another_kind_is_refused(
    tmp_path: Path, name: str, content: bytes, text: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=text) as caught:
        TokenWindows(tmp_path / name, 1, dtype=None if name.endswith(".npy") else "uint8")
    assert "pickle" not in str(caught.value)


def shard(magic: int = 20240520, version: int = 1, count: int = 100, rest: bytes = b"") -> bytes:
    head = np.zeros(256, "<i4")
    head[:3] = magic, version, count
    return head.tobytes() + rest


TOKENS = (np.arange(100, dtype=np.int64) * 499).astype("<u2")
WIDE = (np.arange(100, dtype=np.int64) * 1283).astype("<u4")


@pytest.mark.parametrize(
    ("magic", "version", "tokens"), [(20240520, 1, TOKENS), (20240801, 7, WIDE)]
)
@pytest.mark.parametrize("says_dtype", [False, True])
def test_the_header_of_a_shard_of_llm_c_is_no_tokens(
    tmp_path: Path, magic: int, version: int, tokens: Any, says_dtype: bool
) -> None:
    path = tmp_path / "fineweb_train_000001.bin"
    path.write_bytes(shard(magic, version, rest=tokens.tobytes()))
    windows = TokenWindows(path, 10, dtype=tokens.dtype if says_dtype else None, targets=True)
    for each in (windows, pickle.loads(pickle.dumps(windows))):
        assert len(each) == 9
        assert each[0]["tokens"].tolist() == tokens[:10].tolist()
        assert each[8]["targets"].tolist() == tokens[81:91].tolist()
        assert each[0]["tokens"].dtype == tokens.dtype
    as_it_is = TokenWindows(path, 10, header=0)
    assert as_it_is[0].tolist() == np.frombuffer(path.read_bytes(), "<u2", 10).tolist()
    assert (
        TokenWindows(path, 10, header=1024, dtype=tokens.dtype)[0].tolist()
        == windows[0]["tokens"].tolist()
    )


def test_a_shard_without_tokens_has_none(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(shard(count=0))
    with pytest.raises(ConfigError, match="has 0 tokens of uint16"):
        TokenWindows(tmp_path / "a.bin", 1)


@pytest.mark.parametrize(
    ("content", "options", "text"),
    [
        (shard(count=101, rest=TOKENS.tobytes()), {}, "101 tokens by its header, and 100 follow"),
        (shard(rest=TOKENS.tobytes()[:-1]), {}, "100 tokens by its header, and 99.5 follow"),
        (shard(rest=bytes(202)), {}, "and 101 follow: .* or pass header=1024 to take what is"),
        (shard(count=-5, rest=TOKENS.tobytes()), {}, "-5 tokens by its header, and 100 follow"),
        (shard()[:500], {}, "100 tokens by its header, and 0 follow: it is cut off"),
        (shard(version=2, rest=TOKENS.tobytes()), {}, "of version 2, which is not known: pass"),
        (
            shard(rest=TOKENS.tobytes()),
            {"dtype": "uint32"},
            "of uint16, and dtype is uint32: leave",
        ),
        (shard(20240522), {}, "is a file of llm.c with questions to evaluate"),
        (shard(20240326, 3), {}, "is a file of llm.c with the weights of a model"),
    ],
)
def test_a_shard_whose_header_does_not_fit_is_refused(
    tmp_path: Path, content: bytes, options: dict[str, Any], text: str
) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(ConfigError, match=text):
        TokenWindows(tmp_path / "a.bin", 1, **options)


TEXTS = {
    "ascii": b"It was the best of times, it was the worst of times.\n" * 4,
    "json": b'{"text": "It was the best of times"}\n{"text": "it was the worst"}\n',
    "utf-8": "Es war die beste aller Zeiten. Größer ging es nicht. 最好的时代 ".encode() * 99,
    "utf-16": "It was the best of times, it was the worst of times".encode("utf-16"),
    "latin-1": "Größer, schöner, älter; dès lors, à côté. ".encode("latin-1") * 40,
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_refused_as_tokens_of_several_bytes(tmp_path: Path, name: str) -> None:
    path, content = tmp_path / "corpus.txt", TEXTS[name]
    for moved in range(2 if name == "utf-8" else 1):  # a character is cut at the end
        path.write_bytes(b"x" * (2 * moved) + content[: len(content) // 2 * 2])
        for dtype in (None, "uint16"):
            with pytest.raises(ConfigError, match=r"is text: .*your tokenizer.*dtype='uint8'.*=0"):
                TokenWindows(path, 4, dtype=dtype)
        assert bytes(TokenWindows(path, 4, dtype="uint8", header=2 * moved)[0]) == content[:4]
        assert len(TokenWindows(path, 4, header=0)) == path.stat().st_size // 8


@pytest.mark.parametrize(
    "tokens",
    [
        np.full(4096, 0x2020, np.uint16),  # blanks, as bytes
        np.full(4096, 0x4142, np.uint16),
        np.arange(0x4141, 0x4150, dtype=np.uint16),  # fewer bytes than a text
        np.arange(4096, dtype=np.uint16) + 0x2020,
        np.arange(4096, dtype=np.uint32) + 0x202020,
    ],
)
def test_tokens_whose_bytes_are_letters_are_tokens(tmp_path: Path, tokens: Any) -> None:
    tokens.tofile(tmp_path / "a.bin")
    windows = TokenWindows(tmp_path / "a.bin", 4, dtype=tokens.dtype)
    assert len(windows) == len(tokens) // 4
    assert windows[0].tolist() == tokens[:4].tolist()


def test_objects_in_a_file_of_numpy_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, None], object))
    with pytest.raises(ConfigError, match=r"holds no plain integers, or is damaged: .*objects"):
        TokenWindows(tmp_path / "a.npy", 1)


@pytest.mark.parametrize(
    "content", [_ZIP, b"PAR1....", _GZIP + b"12", b"BZh9", _NPY[:6]], ids=lambda value: value[:4]
)
def test_tokens_that_look_like_another_kind_are_tokens(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokens.bin"
    path.write_bytes(b"\0\0" * content.startswith(_NPY[:6]) + content)
    header = 2 * content.startswith(_NPY[:6])
    windows = TokenWindows(path, 1, dtype="uint8", header=header)
    assert bytes(int(window[0]) for window in windows) == content


def test_files_of_another_format_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match="has 0 tokens"):
        TokenWindows(tmp_path / "empty", 1)
    np.save(tmp_path / "two.npy", np.zeros((2, 2), np.uint16))
    with pytest.raises(ConfigError, match=r"holds \(2, 2\) of <u2: tokens are one axis"):
        TokenWindows(tmp_path / "two.npy", 1)
    np.save(tmp_path / "big.npy", np.zeros(9, ">u2"))
    with pytest.raises(ConfigError, match="of >u2: tokens are one axis"):
        TokenWindows(tmp_path / "big.npy", 1)
