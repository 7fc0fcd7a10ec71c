"""Windows of a file of tokens: what each holds, documents in them, files that are none."""

from __future__ import annotations

import pickle
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
        found.sort(key=lambda sample: int((sample[0] if targets else sample)[0]))
    for begin, sample in zip(begins, found, strict=True):
        first, *rest = sample if targets else (sample,)
        assert (first == tokens[begin : begin + length]).all()
        assert first.dtype.name == (as_dtype or "uint32")
        if targets:
            assert (rest[0] == tokens[begin + 1 : begin + 1 + length]).all()


def test_positions_and_segments_begin_anew_behind_each_document(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npy"
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 9, 5000).astype(np.int32)
    np.save(path, tokens)
    windows = TokenWindows(path, 50, 30, document_end=0, targets=True)
    for number in range(len(windows)):
        sample, positions, segments, targets = windows[number]
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


def test_fields_of_a_sample_are_apart(file: Path) -> None:
    for options in ({"shuffle": True}, {"document_end": 3}):
        sample = TokenWindows(file, 10, targets=True, **options)[0]  # type: ignore[arg-type]
        before = [part.copy() for part in sample]
        sample[0][:] = 0
        assert all(
            (part == other).all() for part, other in zip(sample[1:], before[1:], strict=True)
        )


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


def test_a_header_is_left_out(file: Path) -> None:
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
        ({"header": 1}, ConfigError, "1,999 bytes behind a header of 1, which is no whole number"),
        ({"header": 2001}, ConfigError, "behind a header of 2001"),
        ({"header": -1}, ConfigError, "header must be"),
        (
            {"document_end": 70000},
            ConfigError,
            "document_end must be a token of uint16, from 0 to 65535",
        ),
        ({"document_end": "x"}, ConfigTypeError, "document_end must be a token or None"),
        ({"shuffle": True, "seed": -1}, ConfigError, "seed must be"),
        ({"shuffle": "no"}, ConfigTypeError, "shuffle must be"),
        ({"seed": "x"}, ConfigTypeError, "seed must be"),
        ({"dtype": ">u2"}, ConfigError, "dtype must be one of"),
        ({"as_dtype": "uint8"}, ConfigError, "as_dtype must hold every token of uint16"),
        ({"as_dtype": "int16"}, ConfigError, "as_dtype must hold every token of uint16"),
        ({"path": "some.npy", "dtype": "uint16"}, ConfigError, "leave dtype and header out"),
        ({"path": "no"}, ConfigError, "'no' cannot be read as tokens"),
    ],
)
def test_what_cannot_be_is_refused(
    file: Path, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        TokenWindows(**{"path": file, "length": 10} | options)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match="has 0 tokens"):
        TokenWindows(tmp_path / "empty", 1)
    np.save(tmp_path / "two.npy", np.zeros((2, 2), np.uint16))
    with pytest.raises(ConfigError, match=r"holds \(2, 2\) of <u2: tokens are one axis"):
        TokenWindows(tmp_path / "two.npy", 1)
    np.save(tmp_path / "big.npy", np.zeros(9, ">u2"))
    with pytest.raises(ConfigError, match="of >u2: tokens are one axis"):
        TokenWindows(tmp_path / "big.npy", 1)
    np.savez(tmp_path / "some.npz", np.zeros(9, np.uint16))
    (tmp_path / "some.npz").rename(tmp_path / "some.npy")
    with pytest.raises(ConfigError, match="is an archive of several arrays"):
        TokenWindows(tmp_path / "some.npy", 1)
    (tmp_path / "bad.npy").write_bytes(b"no")
    with pytest.raises(ConfigError, match="cannot be read as tokens"):
        TokenWindows(tmp_path / "bad.npy", 1)
