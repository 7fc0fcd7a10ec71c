"""The serializers of LitData, from bytes to values. Source: litdata 0.2.76.

Imports NumPy and the images, Pillow where a leaf is an image of it, and tifffile for TIFF. Torch's
tensors become arrays of NumPy, since a worker imports no framework. Keeps no state.
"""

from __future__ import annotations

import functools
import json
import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from reader.errors import ConfigError
from reader.images.encoded_image import decode
from reader.shards.formats.mds_encodings import list_parts, raw_image

__all__ = ["Decoder", "serializer_of", "type_of_numbers"]

Decoder = Callable[[bytes], Any]

_NUMPY: tuple[str, ...] = (  # by the number that stands for a type
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
)
_TORCH: tuple[str, ...] = (  # a type has several names there; bfloat16 cannot be written
    *("float32", "float32", "float64", "float64", "complex64", "complex64"),
    *("complex128", "complex128", "float16", "float16", "", "uint8", "int8", "int16", "int16"),
    *("int32", "int32", "int64", "int64", "bool", "uint16"),
)
_OF_NUMBERS = {"no_header_numpy": _NUMPY, "no_header_tensor": _TORCH}
_JPEG = b"\xff\xd8"


def serializer_of(form: str, field: str, allow_pickle: bool, is_encoded: bool) -> Decoder:
    """Return the function that makes a value of a leaf's bytes.

    It raises ValueError and others where they are damaged.

    Args:
        form: the serializer's name, such as "jpeg", "file:png" or "no_header_numpy:3".
        field: that has the leaf, for messages.
        allow_pickle: whether pickles are read, which can run any program.
        is_encoded: whether the bytes of a file are wanted as they are.

    Raises:
        ConfigError: the serializer is unknown or needs a library, or is of pickles.
    """
    name, _, kind = form.partition(":")
    if kind in _DECODERS or kind == "pickle":  # LitData itself chooses so
        name = kind
    if name in _OF_NUMBERS:
        return functools.partial(_numbers, type_of_numbers(form))
    if is_encoded and name not in _VALUES:
        return bytes
    if name == "pickle":
        if not allow_pickle:
            raise ConfigError(
                f"the field {field!r} holds pickles, which can run any program when they are read:"
                " pass allow_pickle=True if you trust who made the files"
            )
        return pickle.loads
    if name in ("tiff", "tifffile"):
        return _tiff_decoder(field)
    found = _DECODERS.get(name)
    if found is None:
        raise ConfigError(
            f"the field {field!r} has the serializer {form!r}, which is none of those that are"
            f" read: {', '.join(sorted({*_DECODERS, *_OF_NUMBERS, 'tifffile'}))}. Pass"
            " fields= without it, or with `bytes` for it to have its bytes"
        )
    return found


def type_of_numbers(form: str) -> np.dtype[Any]:
    """Return the type that "no_header_numpy:3" names. ConfigError: it names none."""
    name, _, code = form.partition(":")
    found = _type_of(_OF_NUMBERS.get(name, ()), int(code) if code.isdecimal() else -1)
    if found is None:
        raise ConfigError(f"the serializer {form!r} names no type of numbers")
    return found


def _type_of(types: tuple[str, ...], code: int) -> np.dtype[Any] | None:
    is_known = 0 <= code < len(types) and types[code]
    return np.dtype(types[code]) if is_known else None


def _tiff_decoder(field: str) -> Decoder:
    try:
        from tifffile import TiffFile
    except ImportError as error:
        raise ConfigError(
            f"the field {field!r} holds TIFF files, which tifffile reads, and it cannot be"
            f" imported: {error}. Run: pip install tifffile; or pass fields= with bytes or"
            " reader.images.Compose for it"
        ) from error
    import io

    def read(content: bytes) -> Any:
        with TiffFile(io.BytesIO(content)) as file:
            return file.asarray()

    return read


def _one(form: str, content: bytes) -> Any:
    (value,) = struct.unpack(form, content)
    return value


def _numbers(dtype: np.dtype[Any], content: bytes) -> Any:
    return np.frombuffer(content, dtype).copy()


def _array(order: str, types: tuple[str, ...], content: bytes) -> Any:
    """Return an array behind its type and its axes, as numbers of an order."""
    code, rank = struct.unpack_from(f"{order}II", content)
    dtype = _type_of(types, code)
    if dtype is None:
        raise ValueError(f"it names the type {code}, which is none of an array")
    begin = 8 + 4 * rank
    if len(content) < begin:
        raise ValueError("its shape is cut off")
    shape = struct.unpack_from(f"{order}{rank}I", content, 8)
    return np.frombuffer(content, dtype, offset=begin).reshape(shape).copy()


def _image(content: bytes) -> Any:
    """Return the pixels of an image file, by channel; of a JPEG as its Exif turns it."""
    pixels = decode(content, upright=content.startswith(_JPEG))
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _images(content: bytes) -> list[Any]:
    return [_image(part) for part in list_parts(content, 0)]


# -- nested values ---------------------------------------------------------------------------------


class _Bytes:
    """Bytes that are read in their order. ValueError: there are fewer than are asked for."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def take(self, nbytes: int) -> bytes:
        """Return the next bytes."""
        begin, self._at = self._at, self._at + nbytes
        if self._at > len(self._content):
            raise ValueError("it is cut off")
        return self._content[begin : self._at]

    def count(self) -> int:
        """Return the next number."""
        return int.from_bytes(self.take(4), "little")

    def text(self) -> str:
        """Return the next text, which has its length before it."""
        return self.take(self.count()).decode()

    def end(self) -> None:
        """See that all bytes are read."""
        if self._at != len(self._content):
            raise ValueError(f"it has {len(self._content) - self._at:,} bytes behind its end")


_TEXTS, _RECORDS, _DICT = 1, 6, 5
_ARRAYS = {2: np.dtype("<i8"), 3: np.dtype("<f8"), 4: np.dtype("bool")}
_SINGLE: dict[int, Callable[[_Bytes], Any]] = {
    0: lambda source: json.loads(source.take(source.count())),
    7: _Bytes.text,
    8: lambda source: _one("<q", source.take(8)),
    9: lambda source: _one("<d", source.take(8)),
    10: lambda source: source.take(1) != b"\0",
    11: lambda source: None,  # noqa: ARG005
}
_OF_RECORD = {16: 11, 17: 7, 18: 8, 19: 9, 20: 10}  # a kind of a record's value to one of these
_FIRST_TEXT = 0x20  # older files hold JSON


def _nested(content: bytes) -> Any:
    """Return a list or dict of values that JSON has."""
    if content[0] > _FIRST_TEXT:
        return json.loads(content)
    source = _Bytes(content)
    found = _value(source)
    source.end()
    return found


def _value(source: _Bytes) -> Any:
    kind = source.take(1)[0]
    if kind in _SINGLE:
        return _SINGLE[kind](source)
    if kind == _TEXTS:
        return [source.text() for _ in range(source.count())]
    if kind in _ARRAYS:
        dtype = _ARRAYS[kind]
        return np.frombuffer(source.take(source.count() * dtype.itemsize), dtype).tolist()
    if kind == _DICT:
        return {source.text(): _value(source) for _ in range(source.count())}
    if kind != _RECORDS:
        raise ValueError(f"it has a value of the kind {kind}")
    count, width = source.count(), source.count()
    names = [source.text() for _ in range(width)]
    if not names:
        raise ValueError("it has records without names")
    return [
        {name: _SINGLE[_OF_RECORD[source.take(1)[0]]](source) for name in names}
        for _ in range(count)
    ]


_VALUES: dict[str, Decoder] = {  # what is not the bytes of a file
    "str": bytes.decode,
    "text": bytes.decode,
    "bool": lambda content: content[0] != 0,
    "int": functools.partial(_one, "<q"),
    "float": functools.partial(_one, "<d"),
    "numpy": functools.partial(_array, "<", _NUMPY),
    "tensor": functools.partial(_array, ">", _TORCH),
    "json": _nested,
    "pil": raw_image,
    "jpeg_array": _images,
}
_DECODERS: dict[str, Decoder] = {
    **_VALUES,
    **dict.fromkeys(("jpeg", "image"), _image),
    **dict.fromkeys(("bytes", "file", "video", "audio", "nifti", "mesh", "pdf"), bytes),
}
