"""The encodings of MDS, from bytes to values. Source: mosaicml-streaming 0.13's documentation.

Imports NumPy, and Pillow where a column holds images. Keeps no state.
"""

from __future__ import annotations

import functools
import io
import json
import math
import pickle
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from reader.errors import ConfigError, ConfigTypeError, got
from reader.frameworks import pillow

__all__ = [
    "decoder_of",
    "encoder_of",
    "encoding_for",
    "holds_file",
    "list_parts",
    "raw_image",
    "size_of",
]

Decoder = Callable[[bytes], Any]
Encoder = Callable[[Any], bytes]

_SCALARS = (
    *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64"),
)
_CODES = {  # of an array's type
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
_AXES = ("uint8", "uint16", "uint32", "uint64")  # types of a shape
_FILES = ("bytes", "jpeg", "png")


def size_of(encoding: str) -> int | None:
    """Return how many bytes each value of an encoding has; None: they differ."""
    if encoding == "int":
        return 8
    if encoding in _SCALARS:
        return np.dtype(encoding).itemsize
    name, _, form = encoding.partition(":")
    if name == "ndarray" and ":" in form:
        dtype, shape = _array_form(form)
        return math.prod(shape) * np.dtype(dtype).itemsize
    return None


def holds_file(encoding: str) -> bool:
    """Whether the values of an encoding are bytes, such as those of an image file."""
    return encoding in _FILES


def decoder_of(encoding: str, column: str, allow_pickle: bool) -> Decoder:
    """Return the function that makes a value of a column's bytes.

    It raises ValueError and others where they are damaged.

    Raises:
        ConfigError: the encoding is unknown, or of pickles, which may run any program.
    """
    name, has_form, form = encoding.partition(":")
    if name == "ndarray":
        dtype, shape = _array_form(form) if has_form else ("", ())
        return lambda content: _array(content, dtype, shape)
    if encoding == "pkl" and not allow_pickle:
        raise ConfigError(
            f"the column {column!r} holds pickles, which can run any program when they are read:"
            " pass allow_pickle=True if you trust who made the files"
        )
    found = _DECODERS.get(encoding)
    if found is None and encoding in _SCALARS:
        scalar = np.dtype(encoding)
        return lambda content: _one(content, scalar)
    if found is None:
        known = ", ".join(sorted({*_DECODERS, *_SCALARS, "ndarray"}))
        raise ConfigError(
            f"the column {column!r} has the encoding {encoding!r}, which is none of MDS: {known}"
        )
    return found


def _array_form(form: str) -> tuple[str, tuple[int, ...]]:
    """Return the type and shape that an encoding names; "", (): each value names them."""
    dtype, _, axes = form.partition(":")
    try:
        shape = tuple(map(int, axes.split(","))) if axes else ()
    except ValueError:
        shape = (0,)
    if dtype not in _CODES.values() or min(shape, default=1) < 1:
        raise ConfigError(f"the encoding 'ndarray:{form}' names no type and shape of MDS")
    return dtype, shape


def _one(content: bytes, dtype: np.dtype[Any]) -> Any:
    if len(content) != dtype.itemsize:
        raise ValueError(f"{len(content)} bytes are no {dtype}")
    return np.frombuffer(content, dtype)[0]


def _array(content: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
    place = 0
    if not dtype:
        if content[:1] == b"" or content[0] not in _CODES:
            raise ValueError("it names no type of an array")
        dtype, place = _CODES[content[0]], 1
    if not shape:
        if len(content) <= place:
            raise ValueError("it names no shape of an array")
        axes = np.dtype(_AXES[content[place] & 3])
        count, place = content[place] >> 2, place + 1
        end = place + count * axes.itemsize
        shape = tuple(np.frombuffer(content[place:end], axes).tolist())
        if len(shape) != count:
            raise ValueError("its shape is cut off")
        place = end
    return np.frombuffer(content[place:], dtype).reshape(shape)


def _int(content: bytes) -> int:
    return int(_one(content, np.dtype(np.int64)))


def _image(content: bytes) -> Any:
    """Return Pillow's image of a file's bytes, which is decoded when it is used."""
    return pillow.require_pillow().open(io.BytesIO(content))


def raw_image(content: bytes) -> Any:
    """Return Pillow's image of its width, height and mode, and its pixels."""
    width, height, length = struct.unpack_from("<III", content)
    mode, pixels = content[12 : 12 + length].decode(), content[12 + length :]
    if not 0 < width * height <= 8 * len(pixels):  # a pixel has a bit at least
        raise ValueError(f"{len(pixels):,} bytes are no image of {height} x {width} pixels")
    return pillow.require_pillow().frombytes(mode, (width, height), pixels)


def list_parts(content: bytes, place: int) -> list[bytes]:
    """Return the parts of a list: how many stands at a place, then their sizes, then they."""
    (count,) = struct.unpack_from("<I", content, place)
    begin = place + 4 + 4 * count
    sizes = np.frombuffer(content[place + 4 : begin], np.uint32).tolist()
    if len(sizes) != count or begin + sum(sizes) != len(content):
        raise ValueError(f"a list of {count} parts has other bytes than it says")
    found = []
    for size in sizes:
        found.append(content[begin : begin + size])
        begin += size
    return found


def _list_of(decode: Decoder, place: int) -> Decoder:
    return lambda content: [decode(part) for part in list_parts(content, place)]


_DECODERS: dict[str, Decoder] = {
    "bytes": bytes,
    "str": lambda content: content.decode(),
    "int": _int,
    "str_int": lambda content: int(content.decode()),
    "str_float": lambda content: float(content.decode()),
    "str_decimal": lambda content: Decimal(content.decode()),
    "pil": raw_image,
    "jpeg": _image,
    "png": _image,
    "jpeg_array": _list_of(_image, 0),
    "jpegarray": _list_of(_image, 0),
    "list[pil]": _list_of(raw_image, 4),
    "list[jpeg]": _list_of(_image, 4),
    "list[png]": _list_of(_image, 4),
    "json": lambda content: json.loads(content.decode()),
    "pkl": pickle.loads,
}


# -- from values to bytes -------------------------------------------------------------------------


def encoding_for(column: str, value: Any) -> str:
    """Return the encoding that holds values such as this. ConfigTypeError: there is none."""
    if isinstance(value, bool):  # MDS has no encoding of flags
        return "json"
    if isinstance(value, int):
        return "int"
    if isinstance(value, np.generic) and value.dtype.name in _SCALARS:
        return str(value.dtype.name)
    if isinstance(value, np.ndarray) and value.dtype.name in _CODES.values():
        return f"ndarray:{value.dtype.name}"
    if _is_image(value):
        return "png"
    if isinstance(value, list) and value and all(map(_is_image, value)):
        return "list[png]"
    for kind, encoding in ((bytes, "bytes"), (str, "str"), (float, "float64")):
        if isinstance(value, kind):
            return encoding
    if isinstance(value, (dict, list)):
        return "json"
    if value is None:
        raise ConfigTypeError(
            f"the field {column!r} of the first sample is None, which MDS does not hold: give it a"
            " value, as by dataset.map, or write 'parquet' or 'jsonl'"
        )
    raise ConfigTypeError(
        f"no encoding of MDS is known for the field {column!r} of the first sample, which is"
        f" {got(value)}: pass columns="
    )


def encoder_of(encoding: str, column: str) -> Encoder:
    """Return the function that makes a column's bytes of a value.

    It raises ValueError, TypeError and others for values that are not of the column's type.

    Raises:
        ConfigError: the encoding is unknown, or one that is not written.
    """
    found = _ENCODERS.get(encoding)
    if encoding in _SCALARS:
        found = functools.partial(_encoded_scalar, np.dtype(encoding))
    name, has_form, form = encoding.partition(":")
    if name == "ndarray":
        dtype, shape = _array_form(form) if has_form else ("", ())
        found = functools.partial(_encoded_array, dtype, shape)
    if found is None:
        known = ", ".join(sorted({*_ENCODERS, *_SCALARS, "ndarray"}))
        raise ConfigError(
            f"the column {column!r} has the encoding {encoding!r}, which is none of those that are"
            f" written: {known}"
        )
    return found


def _encoded_scalar(dtype: np.dtype[Any], value: Any) -> bytes:
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole and (dtype.kind != "f" or not isinstance(value, (float, np.floating))):
        raise TypeError(f"it must be a number of {dtype}, got {got(value)}")
    try:
        with np.errstate(over="ignore"):
            found = dtype.type(value)
        is_kept = int(found) == value if is_whole else np.isinf(found) == np.isinf(value)
    except OverflowError:
        is_kept = False
    if not is_kept:
        raise ValueError(f"{got(value)} does not fit into {dtype}")
    return bytes(found.tobytes())


def _encoded_array(dtype: str, shape: tuple[int, ...], value: Any) -> bytes:
    if np.ma.is_masked(value):
        raise ValueError("a mask has no form in MDS: pass value.filled(0), or other numbers")
    array = np.asarray(value)
    if not array.ndim:
        raise ValueError(f"it must be an array with a shape, got {got(value)}: pass array.item()")
    if array.dtype.name not in _CODES.values() or not array.size:
        raise ValueError(f"an array of {array.dtype} of shape {array.shape} has no form in MDS")
    array = array.astype(array.dtype.newbyteorder("<"), "C", copy=False)
    if (dtype and array.dtype != dtype) or (shape and array.shape != shape):
        raise ValueError(f"an array of {array.dtype} of shape {array.shape} is not as its column")
    head = b""
    if not dtype:
        head += bytes([next(code for code, name in _CODES.items() if name == array.dtype.name)])
    if not shape:
        kind = next(k for k, name in enumerate(_AXES) if max(array.shape) <= np.iinfo(name).max)
        head += bytes([array.ndim << 2 | kind]) + np.array(array.shape, _AXES[kind]).tobytes()
    return head + bytes(array.tobytes())


def _encoded_bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"it must be bytes, got {got(value)}")
    return bytes(value)


def _encoded_file(form: str, magic: bytes, value: Any) -> bytes:
    """Return the bytes of an image file, of these or of Pillow's image."""
    if isinstance(value, bytes):
        if not value.startswith(magic):
            raise ValueError(f"it must be the bytes of a {form} file, got {got(value)}")
        return value
    file = io.BytesIO()
    _image_of_pillow(value).save(file, form)
    return file.getvalue()


def _encoded_raw_image(value: Any) -> bytes:
    image = _image_of_pillow(value)
    if image.mode in ("P", "PA"):
        raise ValueError(
            f"an image of mode {image.mode!r} would lose its palette: pass image.convert('RGB'), or"
            " write it as 'png'"
        )
    mode: bytes = image.mode.encode()
    return struct.pack("<III", *image.size, len(mode)) + mode + bytes(image.tobytes())


def _encoded_list(encode: Encoder, head: bytes, least: int, value: Any) -> bytes:
    """Return a list of images, as `list_parts` reads it behind a head.

    Args:
        encode: makes the bytes of an image.
        head: what stands before how many there are.
        least: how many images the encoding has; Streaming cannot read fewer.
        value: a list or tuple.
    """
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"it must be a list of images, got {got(value)}")
    if len(value) < least:
        raise ValueError("it must have an image, which 'list[jpeg]' need not")
    parts = []
    for number, each in enumerate(value):
        try:
            parts.append(encode(each))
        except (TypeError, ValueError, OSError) as error:  # OSError: of Pillow, for a mode
            raise ValueError(f"image {number:,} of the list: {error}") from error
    sizes = np.array([len(parts), *map(len, parts)], "<u4").tobytes()
    return b"".join([head, sizes, *parts])


def _is_image(value: Any) -> bool:
    """Whether a value is an image of Pillow."""
    return hasattr(value, "save") and hasattr(value, "mode")


def _image_of_pillow(value: Any) -> Any:
    if not _is_image(value):
        raise TypeError(f"it must be an image of Pillow, got {got(value)}")
    return value


def _encoded_text(kinds: tuple[type, ...], value: Any) -> bytes:
    """Return the text of a value, which must be of one of these types."""
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"it must be {kinds[0].__name__}, got {got(value)}")
    return str(value.item() if isinstance(value, np.generic) else value).encode()


def _encoded_json(value: Any) -> bytes:
    return json.dumps(value).encode()


_JPEG: Encoder = functools.partial(_encoded_file, "JPEG", b"\xff\xd8")
_PNG: Encoder = functools.partial(_encoded_file, "PNG", b"\x89PNG")
_ENCODERS: dict[str, Encoder] = {
    "bytes": _encoded_bytes,
    "str": functools.partial(_encoded_text, (str,)),
    "int": functools.partial(_encoded_scalar, np.dtype(np.int64)),
    "str_int": functools.partial(_encoded_text, (int, np.integer)),
    "str_float": functools.partial(_encoded_text, (float, np.floating)),
    "str_decimal": functools.partial(_encoded_text, (Decimal,)),
    "pil": _encoded_raw_image,
    "jpeg": _JPEG,
    "png": _PNG,
    "jpeg_array": functools.partial(_encoded_list, _JPEG, b"", 1),
    "jpegarray": functools.partial(_encoded_list, _JPEG, b"", 1),
    "list[pil]": functools.partial(_encoded_list, _encoded_raw_image, bytes(4), 0),
    "list[jpeg]": functools.partial(_encoded_list, _JPEG, bytes(4), 0),
    "list[png]": functools.partial(_encoded_list, _PNG, bytes(4), 0),
    "json": _encoded_json,
}
