"""What a file is by how it begins, to say by name what a dataset cannot read.

Imports the standard library alone. A file is named only where so many of its bytes fit that no
other content is alike by chance.
"""

from __future__ import annotations

import struct

__all__ = ["BEGIN_NBYTES", "kind_of"]

BEGIN_NBYTES = 64  # that `kind_of` looks at

_BEGINS = {
    b"\x89HDF\r\n\x1a\n": "a HDF5 file",
    b"ARROW1\0\0": "an Arrow file",
    b"SQLite format 3\0": "an SQLite database",
    b"MMIDIDX\0\0": "the index of a Megatron dataset, whose tokens are in the file .bin beside it",
    b"TNTIDX\0\0": "the index of a fairseq dataset, whose tokens are in the file .bin beside it",
    b"\xfd7zXZ\0": "compressed by xz",
    b"\x89PNG\r\n\x1a\n": "a picture (PNG)",
}
_LENGTH = struct.Struct("<QI")
_CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, its bits in reverse
_MASK = 0xA282EAD8  # TensorFlow adds it to each checksum


def kind_of(begin: bytes) -> str | None:
    """Return what a file is that begins so, as a noun or as "compressed by ..."; None: unknown."""
    for each, kind in _BEGINS.items():
        if begin.startswith(each):
            return kind
    return "a TFRecord file" if _is_tfrecord(begin) else None


def _is_tfrecord(begin: bytes) -> bool:
    """Whether it begins with a length and the checksum of that length."""
    if len(begin) < _LENGTH.size:
        return False
    length, found = _LENGTH.unpack_from(begin)
    crc = 0xFFFFFFFF
    for byte in struct.pack("<Q", length):
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ _CASTAGNOLI * (crc & 1)
    crc ^= 0xFFFFFFFF
    masked = (crc >> 15 | crc << 17) + _MASK & 0xFFFFFFFF
    return bool(found == masked)
