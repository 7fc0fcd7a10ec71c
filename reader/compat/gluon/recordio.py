"""`mx.recordio`, name for name: records with headers, labels and images, and the files of records.

Imports the files of this face, NumPy, and Pillow for images. It has no state of its own.
"""

from __future__ import annotations

import numbers
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader.compat.gluon.record_files import MXIndexedRecordIO, MXRecordIO
from reader.errors import ConfigError, DatasetError, got
from reader.frameworks.pillow import decode, encode

__all__ = [
    "IRHeader",
    "MXIndexedRecordIO",
    "MXRecordIO",
    "pack",
    "pack_img",
    "unpack",
    "unpack_img",
]

_HEADER = struct.Struct("<IfQQ")


class IRHeader(NamedTuple):
    """What stands before the content of a record.

    Attributes:
        flag: how many labels of 32 bits follow the header; 0: the label stands in it.
        label: a float, or several as an array of float32.
        id: of the record, an int of 64 bits.
        id2: a second one.
    """

    flag: int
    label: Any
    id: int
    id2: int


def pack(header: Any, s: bytes) -> bytes:
    """Return a record: a header and a content, as bytes.

    Args:
        header: an IRHeader, or its four values. Its flag is set by its label: a number stands in
            the header, a sequence of numbers follows it.
        s: the content.

    >>> unpack(pack(IRHeader(0, [1, 2], 7, 0), b"abc"))
    (IRHeader(flag=2, label=array([1., 2.], dtype=float32), id=7, id2=0), b'abc')
    """
    header = IRHeader(*header)
    labels = b""
    if isinstance(header.label, numbers.Number):
        header = header._replace(flag=0)
    else:
        several = np.asarray(header.label, np.float32)
        header, labels = (
            header._replace(flag=several.size, label=0),
            several.astype("<f4").tobytes(),
        )
    try:
        return _HEADER.pack(*header) + labels + s
    except struct.error as error:
        raise ConfigError(
            f"the header {got(header)} cannot be packed: {error}. Pass a real number or several as"
            " label, and ints from 0 to 2**64 - 1 as id and id2"
        ) from None


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """Return the header and the content of a record, each the caller's own.

    Raises:
        DatasetError: it is too short for a header, or for the labels that the header counts.
    """
    if len(s) < _HEADER.size:
        raise DatasetError(
            f"a record of {len(s)} bytes has no header, which takes {_HEADER.size}. Was it written"
            " by pack?"
        )
    header, content = IRHeader(*_HEADER.unpack_from(s)), s[_HEADER.size :]
    if not header.flag:
        return header, content
    size = 4 * header.flag
    if len(content) < size:
        raise DatasetError(
            f"the header of a record says {header.flag} labels ({size} bytes), but only"
            f" {len(content)} bytes follow it. Pass a record that pack() wrote"
        )
    labels = np.frombuffer(content, "<f4", header.flag).astype(np.float32)
    return header._replace(label=labels), content[size:]


def pack_img(header: Any, img: Any, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Return a record of an image.

    Args:
        header: as for `pack`.
        img: height x width x 3, of 8 bits: blue, green, red, as OpenCV and MXNet have it; or x 4
            with opacity, or height x width.
        quality: of a JPEG, 1 to 100; of a PNG how hard to compress, 0 to 9, and 9 for more.
        img_fmt: ".jpg", ".jpeg" or ".png".
    """
    return pack(header, encode(_swapped(np.asarray(img)), img_fmt, quality))


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, npt.NDArray[np.uint8]]:
    """Return the header and the image of a record.

    The channels are blue, green, red, as OpenCV and MXNet have them here; the datasets of images
    give red, green, blue. A grey image is height x width.

    Args:
        s: the record.
        iscolor: 1: three channels; 0: grey; -1: as the file has it.

    Raises:
        DatasetError: the record is damaged, or holds no image.
    """
    header, content = unpack(s)
    image = decode(content, iscolor)
    return header, image[:, :, 0] if image.shape[2] == 1 else _swapped(image)


def _swapped(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an image with red and blue in each other's place."""
    if image.ndim != 3 or image.shape[2] not in (3, 4):
        return image
    return np.ascontiguousarray(image[:, :, [2, 1, 0, 3][: image.shape[2]]])
