"""The features of a `tf.train.Example`: read whole, and never beyond their message."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader._core.shards.tf_example import features_of
from tests.shard_files import example

NONE: frozenset[str] = frozenset()
WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.floats(width=32, allow_nan=False)
VALUES = st.one_of(
    st.lists(st.binary(max_size=20), min_size=1),
    st.lists(WHOLE, min_size=1),
    st.lists(FLOATS, min_size=1),
)
SAMPLES = st.dictionaries(st.text(max_size=10), VALUES, max_size=5)


@given(SAMPLES, st.booleans())
def test_features_are_those_that_were_written(sample: dict[str, Any], packed: bool) -> None:
    content = example(sample, packed)
    assert features_of(content, None, NONE) == sample
    arrays = features_of(content, None, frozenset(sample))
    for name, values in sample.items():
        if isinstance(values[0], bytes):
            assert arrays[name] == values
        else:
            kind = np.int64 if isinstance(values[0], int) else np.float32
            assert arrays[name].dtype == kind
            assert arrays[name].tolist() == values
    for name in sample:
        assert features_of(content, frozenset([name]), NONE) == {name: sample[name]}


@given(SAMPLES, st.booleans(), st.data())
def test_damaged_messages_are_told_or_have_features(
    sample: dict[str, Any], packed: bool, data: st.DataObject
) -> None:
    content = bytearray(example(sample, packed))
    for _ in range(data.draw(st.integers(1, 3))):
        if content:
            at = data.draw(st.integers(0, len(content) - 1))
            content[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    for numbers in (NONE, frozenset(sample)):
        try:
            found = features_of(bytes(content), None, numbers)
        except ValueError:
            continue
        for values in found.values():
            assert len(values) <= len(content)


@given(st.binary(max_size=60))
def test_any_bytes_are_told_or_have_features(content: bytes) -> None:
    for numbers in (NONE, frozenset([""])):
        try:
            features_of(content, None, numbers)
        except ValueError:
            continue


def message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


@pytest.mark.parametrize(
    ("feature", "told"),
    [
        (message(3, b"\x0a\x01\x80"), "a number is cut off"),
        (message(3, b"\x0a\x0b" + b"\xff" * 10 + b"\x01"), "more than 64 bits"),
        (message(3, b"\x0d\x00\x00\x00\x00"), "another kind"),
        (message(2, b"\x0a\x03\x00\x00\x00"), "a float is cut off"),
        (message(2, b"\x09" + bytes(8)), "another kind"),
        (message(1, b"\x08\x01"), "another kind"),
        (message(1, b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "longer than its message"),
        (message(1, b"\x0b"), "the kind 3"),
        (b"\x18\x01", "another kind"),
    ],
)
@pytest.mark.parametrize("numbers", [NONE, frozenset("n")])
def test_values_that_cannot_be_are_told(feature: bytes, told: str, numbers: frozenset[str]) -> None:
    entry = message(1, b"n") + message(2, feature)
    with pytest.raises(ValueError, match=told):
        features_of(message(1, message(1, entry)), None, numbers)


def test_what_is_not_known_is_left_out() -> None:
    """Later versions of a message may have more fields."""
    more = b"\x48\x05" + message(9, b"x") + b"\x4d" + bytes(4) + b"\x49" + bytes(8)
    values = message(1, struct.pack("<2f", 1, 2)) + more
    entry = more + message(2, more + message(2, values)) + message(1, b"n")
    features = more + message(1, entry)
    found = features_of(more + message(1, features), None, NONE)
    assert found == {"n": [1.0, 2.0]}


def test_a_feature_without_values_is_empty() -> None:
    for kind, dtype in ((2, np.float32), (3, np.int64)):
        content = message(1, message(1, message(1, b"n") + message(2, message(kind, b""))))
        assert features_of(content, None, NONE) == {"n": []}
        found = features_of(content, None, frozenset("n"))["n"]
        assert (found.dtype, found.size) == (dtype, 0)
    assert features_of(message(1, message(1, message(1, b"n"))), None, NONE) == {"n": []}
    assert features_of(b"", None, NONE) == {}
