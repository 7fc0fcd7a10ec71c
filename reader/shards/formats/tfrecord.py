"""TFRecord: records with their lengths and sums, which hold a `tf.train.Example` each.

Imports NumPy, and google-crc32c where sums are compared. Source: TensorFlow's documentation of
TFRecord and of `example.proto`; protobuf's of its encoding. A record has its length, uint64, the
sum of that, its bytes, and the sum of those; sums are CRC32C, turned and moved on.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reader._core.shards.tf_example import features_of
from reader.errors import ConfigError, ConfigTypeError, got
from reader.shards.formats.shard import Arrays, Options, Shard
from reader.stores.files import StoredBytes

__all__ = ["TfRecordShard", "begins_tfrecord", "record_of", "scan_tfrecord"]

_HEAD = struct.Struct("<QI")
_SUM = struct.Struct("<I")
_BLOCK = 1 << 20
_BYTES = 2  # a kind of a field of protobuf: bytes with their length


def begins_tfrecord(head: bytes) -> bool:
    """Whether a file that begins so is a TFRecord file: the sum of the first length is right."""
    if len(head) < _HEAD.size:
        return False
    try:
        return bool(_sum(head[:8]) == _SUM.unpack_from(head, 8)[0])
    except ConfigError:  # google-crc32c is not installed: the name has to say it
        return False


def scan_tfrecord(stored: StoredBytes, check: bool) -> dict[str, Any]:
    """Return the index of a file: the "places" of its records' bytes, and how many "nbytes".

    Raises:
        ConfigError: it is damaged, or cut off.
    """
    places: list[int] = []
    sizes: list[int] = []
    at = 0
    block, begin = b"", 0
    while at < stored.nbytes:
        if at + _HEAD.size > begin + len(block):
            begin = at
            block = stored.read(at, min(_BLOCK, stored.nbytes - at))
        if len(block) - (at - begin) < _HEAD.size:
            raise _cut(stored, at)
        nbytes, found = _HEAD.unpack_from(block, at - begin)
        if check and _sum(block[at - begin : at - begin + 8]) != found:
            raise ConfigError(
                f"the shard '{stored.path}' is damaged: the sum of the length of record"
                f" {len(places):,}, at {at:,}, is wrong. Fetch it again, or write it anew"
            )
        places.append(at + _HEAD.size)
        sizes.append(nbytes)
        at += _HEAD.size + nbytes + _SUM.size
    if at > stored.nbytes:
        raise _cut(stored, places[-1])
    return {
        "count": np.array([len(places)], np.int64),
        "places": np.array(places, np.int64),
        "nbytes": np.array(sizes, np.int64),
    }


def _cut(stored: StoredBytes, at: int) -> ConfigError:
    return ConfigError(
        f"the shard '{stored.path}' is cut off: it ends within the record at {at:,}. Fetch it"
        " again, or write it anew"
    )


@functools.cache
def _crc32c() -> Any:
    try:
        from google_crc32c import value
    except ImportError as error:
        raise ConfigError(
            "the sums of TFRecord files are computed by google-crc32c, which cannot be imported:"
            f' {error}. Run: pip install "lodreader[shards]"; or pass check=False'
        ) from error
    return value


def _sum(content: bytes) -> int:
    """Return the sum that TFRecord writes for some bytes."""
    crc: int = _crc32c()(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class TfRecordShard(Shard):
    """An open TFRecord file.

    Args:
        stored: its bytes.
        arrays: its index: see `scan_tfrecord`.
        options: whether sums are compared.
    """

    def __init__(self, stored: StoredBytes, arrays: Arrays, options: Options) -> None:
        super().__init__(stored.path, stored.unpacked_nbytes)
        self._stored = stored
        self._places, self._nbytes = arrays["places"].data, arrays["nbytes"].data
        self._options = options

    def samples(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """See Shard: a list by feature; of one that is encoded, its only bytes."""
        return list(map(self._sample, positions))

    def ranges(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """See Shard."""
        begins = [(self._places[k], self._nbytes[k]) for k in positions]
        return [(place, place + nbytes + _SUM.size) for place, nbytes in begins]

    def _sample(self, position: int) -> dict[str, Any]:
        found = self._features(position, self._options.names)
        for name in self._options.encoded & found.keys():
            if len(found[name]) == 1:
                found[name] = found[name][0]
        return found

    def _features(self, position: int, names: frozenset[str] | None) -> dict[str, Any]:
        """Return the features of a record that are wanted. DatasetError: it is no Example."""
        try:
            return features_of(self.record(position), names, self._options.numbers)
        except ValueError as error:
            raise self.damaged(position, f"it is no tf.train.Example: {error}") from error

    def record(self, position: int) -> bytes:
        """Return the bytes of a record. DatasetError: its sum is wrong."""
        place, nbytes = self._places[position], self._nbytes[position]
        content: bytes = self._stored.read(place, nbytes + _SUM.size)
        record = content[:nbytes]
        if self._options.check and _sum(record) != _SUM.unpack_from(content, nbytes)[0]:
            raise self.damaged(position, "its sum is wrong")
        return record

    def names(self, position: int) -> list[str]:
        """See Shard."""
        return list(self._features(position, None))

    def origin(self, position: int) -> tuple[int, str]:
        """See Shard: where the record's length stands."""
        return self._places[position] - _HEAD.size, ""


def record_of(sample: Mapping[str, Any]) -> bytes:
    """Return the record of an Example with these features: bytes, text, numbers, or lists of them.

    Whole numbers are int64, others float32, as in every Example.

    Raises:
        ConfigError, ConfigTypeError: a feature is none of these, or has a number that does not fit.
    """
    entries = [
        _field(1, _field(1, name.encode()) + _field(2, _feature(name, value)))
        for name, value in sample.items()
    ]
    content = _field(1, b"".join(entries))
    length = struct.pack("<Q", len(content))
    sums = [_SUM.pack(_sum(part)) for part in (length, content)]
    return b"".join([length, sums[0], content, sums[1]])


def _feature(name: str, value: Any) -> bytes:
    is_array = isinstance(value, (np.ndarray, np.generic))
    # times would be numbers without their unit
    values = value.ravel().tolist() if is_array and value.dtype.kind not in "mM" else value
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    values = [each.encode() if isinstance(each, str) else each for each in values]
    if all(isinstance(each, bytes) for each in values):
        return _field(1, b"".join(_field(1, each) for each in values))
    if all(isinstance(each, (int, float)) for each in values):
        whole = [each for each in values if isinstance(each, int)]
        wrong = next((each for each in whole if not -(1 << 63) <= each < 1 << 63), None)
        if wrong is not None:
            raise ConfigError(
                f"the feature {name!r} has the number {wrong}, which does not fit into int64: pass"
                " text, or bytes"
            )
        if len(whole) == len(values):
            numbers = b"".join(_encoded_varint(each % (1 << 64)) for each in values)
            return _field(3, _field(1, numbers))
        with np.errstate(over="ignore"):
            floats = np.array(values, "<f8").astype("<f4")
        if np.isinf(floats).sum() != sum(map(math.isinf, values)):
            raise ConfigError(
                f"the feature {name!r} has a number that does not fit into float32, as floats are"
                f" here, got {got(value)}: scale it, or pass text or bytes"
            )
        return _field(2, _field(1, floats.tobytes()))
    raise ConfigTypeError(
        f"the feature {name!r} must be bytes, text, numbers, or a list of one of these, got"
        f" {got(value)}"
    )


def _field(number: int, content: bytes) -> bytes:
    return _encoded_varint(number << 3 | _BYTES) + _encoded_varint(len(content)) + content


def _encoded_varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
