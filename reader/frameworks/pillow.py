"""Decode and encode images between bytes and NumPy arrays, by Pillow.

Imports PIL, where an image is read or written, and pillow-heif for HEIC. Keeps no state; threads
may call it at once, and Pillow releases the GIL while it decodes.
"""

from __future__ import annotations

import functools
import io
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, ConfigTypeError, DatasetError, ImageError, got

__all__ = [
    "ColorsError",
    "as_pixels",
    "check_range",
    "decode",
    "deep_numbers",
    "deep_pixels",
    "eight_bits",
    "encode",
    "has_turbo",
    "heif_class",
    "pixels",
    "require_pillow",
    "supported",
]

_ORIENTATION = 0x0112  # a tag of Exif: how the camera was held, 1 for upright
_WITH_OPACITY = ("RGBA", "LA", "PA", "RGBa", "La")
_FORMATS = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG"}
_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262  # tags of TIFF
_WHITE_IS_ZERO = 0
_DEEP_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")


class ColorsError(ValueError):
    """The colors of an image cannot be converted; its text follows the image's name."""


def require_pillow() -> Any:
    """Return `PIL.Image`. ConfigError: Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError(
            f"images are read and written by Pillow, which cannot be imported: {error}. Run: pip"
            ' install "lodreader[images]"'
        ) from error
    return Image


def has_turbo() -> bool:
    """Whether Pillow decodes JPEG files by libjpeg-turbo. ConfigError: Pillow is not installed."""
    require_pillow()
    from PIL import features

    return bool(features.check("libjpeg_turbo"))


@functools.cache
def supported() -> frozenset[str]:
    """Return the names of the libraries that Pillow has, as its `features` names them."""
    from PIL import features

    return frozenset(features.get_supported())


def heif_class(name: str) -> Any:
    """Return the class of pillow-heif's images. It is not registered: Pillow stays as it is.

    Raises:
        ImageError: pillow-heif is not installed; `name` is that of the file to read.
    """
    try:
        from pillow_heif import HeifImageFile
    except ImportError as error:
        raise ImageError(
            f"{name} is a file of the kind HEIC, which pillow-heif reads, and it cannot be"
            f" imported: {error}. Run: pip install pillow-heif; or convert the file, or leave it"
            " out of the dataset"
        ) from error
    return HeifImageFile


def decode(content: bytes, color: int) -> npt.NDArray[np.uint8]:
    """Return an image as a new array: height x width x channels, of 8 bits.

    Args:
        content: of a file, in any format that Pillow reads.
        color: 1: red, green and blue; 0: one channel, the luminance; -1: the channels that the
            file has, 1, 3, or 4 with opacity. Unless it is -1, the image is turned upright by its
            Exif orientation.

    Raises:
        DatasetError: Pillow cannot read it.
    """
    image_module = require_pillow()
    try:
        with image_module.open(io.BytesIO(content)) as image:
            array = pixels(image if color < 0 else _upright(image), color)
    except ColorsError as error:
        raise DatasetError(f"an image of {len(content)} bytes {error}") from error
    except Exception as error:  # of many types, by format
        raise DatasetError(
            f"an image of {len(content)} bytes cannot be read: {error!r}. Is the file whole, and"
            " an image?"
        ) from error
    return array[:, :, np.newaxis] if array.ndim == 2 else array


def _upright(image: Any) -> Any:
    if image.getexif().get(_ORIENTATION, 1) == 1:
        return image  # Pillow would copy it
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def pixels(image: Any, color: int) -> npt.NDArray[np.uint8]:
    """Return the pixels of Pillow's `image`, 8 bits each, as a new array.

    `color` is that of `decode`; with one channel the array has two dimensions.

    Raises:
        ColorsError: Pillow cannot convert the image's mode, or its numbers have another range.
    """
    deep = deep_numbers(image)
    if deep is not None:  # `convert` would clip values above 255
        gray = eight_bits(*deep)
        return np.repeat(gray[:, :, np.newaxis], 3, axis=2) if color == 1 else gray
    if color < 0:
        has_opacity = image.mode in _WITH_OPACITY or "transparency" in image.info
        mode = "RGBA" if has_opacity else "L" if image.mode in ("1", "L") else "RGB"
    else:
        mode = "RGB" if color else "L"
    if image.mode == mode:
        return np.array(image)
    image.load()  # an exception here means damage
    try:
        return np.array(image.convert(mode))
    except ValueError as error:
        raise ColorsError(
            f"has colors of the mode {image.mode}, which Pillow does not convert to {mode}:"
            f" {error}. Convert it{' first' if color else ', or read it as RGB'}"
        ) from error


def deep_numbers(image: Any) -> tuple[npt.NDArray[Any], int] | None:
    """Return the numbers of Pillow's `image` of one channel, and which of them is white.

    Black is 0. Of 16 or 12 bits the largest number is white. Whole numbers of 32 bits have the
    range of 8 bits, as by Pillow, unless the file's kind has 16 at most. Floats are from 0 to 1.

    Returns:
        None: the image has 8 bits.
    """
    if image.mode not in _DEEP_MODES:
        return None
    numbers = np.asarray(image)
    if image.mode == "F":
        return numbers, 1
    if image.mode == "I":  # Pillow before 11 opens 16 bits of a PNG so, and all do those of a PPM
        return numbers, 0xFFFF if image.format in ("PNG", "PPM") else 0xFF
    tags = getattr(image, "tag_v2", {})  # of a TIFF
    white = 0xFFF if tags.get(_BITS_PER_SAMPLE) == (12,) else 0xFFFF
    is_negative = tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO  # Pillow turns 8 bits over, but not 16
    return white - numbers if is_negative else numbers, white


def deep_pixels(image: Any) -> npt.NDArray[Any] | None:
    """Return Pillow's `image` of more than 8 bits as height x width x 1; None: it has 8.

    Returns:
        uint16, where 65535 is white, or float32, where 1 is.
    """
    deep = deep_numbers(image)
    if deep is None:
        return None
    numbers, white = deep
    if white > 0xFF:
        whole = np.clip(numbers, 0, white).astype(np.uint32) * 0xFFFF
        found: npt.NDArray[Any] = ((whole + white // 2) // white).astype(np.uint16)
    else:
        found = numbers.astype(np.float32) / np.float32(white)
    return found[:, :, np.newaxis]


def eight_bits(numbers: npt.NDArray[Any], white: int) -> npt.NDArray[np.uint8]:
    """Return numbers from 0 to `white` as pixels of 8 bits: the upper 8, or floats times 255.

    Raises:
        ColorsError: some numbers are not in that range.
    """
    if white > 0xFF:
        upper = np.clip(numbers, 0, white) >> (white.bit_length() - 8)
    else:
        check_range(numbers, white)
        upper = numbers
        if white == 1:
            upper = numbers * np.float32(255)
            np.rint(upper, out=upper)
    found: npt.NDArray[np.uint8] = upper.astype(np.uint8)
    return found


def check_range(numbers: npt.NDArray[Any], white: int) -> None:
    """Raise ColorsError if a number is, beyond rounding to 8 bits, not from 0 to `white`."""
    low, high = numbers.min(), numbers.max()
    margin = 0.5 / 255 if white == 1 else 0
    if -margin <= low and high <= white + margin:  # False for nan, too
        return
    kind = "floats" if white == 1 else "whole numbers"
    raise ColorsError(
        f"has {kind} from {low:,} to {high:,}, and {kind} of {8 * numbers.itemsize} bits become"
        f" pixels from 0, black, to {white}, white: Pillow would clip them. Convert it"
    )


def as_pixels(value: Any, color: int, upright: bool, deep: bool) -> npt.NDArray[Any] | None:
    """Return the pixels of an image of Pillow; None if `value` is none.

    Args:
        value: anything.
        color: 1: red, green and blue; 0: one channel, the luminance.
        upright: turn it upright by its Exif orientation.
        deep: return those of more than 8 bits as `deep_pixels` does.

    Raises:
        ImageError: it cannot be read, or its colors cannot be converted.
    """
    module = sys.modules.get("PIL.Image")
    if module is None or not isinstance(value, module.Image):
        return None
    try:
        image = _upright(value) if upright else value
        found = deep_pixels(image) if deep else None
        return pixels(image, color) if found is None else found
    except ColorsError as error:
        raise ImageError(f"the image of Pillow {error}") from error
    except Exception as error:  # of many types: its file is read now
        raise ImageError(
            f"an image of Pillow, {value.width} x {value.height}, cannot be read: {error!r}. Make"
            " its file anew, or leave it out of the dataset"
        ) from error


def encode(array: Any, ending: str, quality: int) -> bytes:
    """Return an image as the content of a file.

    Args:
        array: height x width x 3 of red, green and blue, or x 4 with opacity, or height x width;
            of 8 bits.
        ending: of the file: ".jpg", ".jpeg" or ".png".
        quality: of a JPEG, 1 to 100; of a PNG the compression level, 0 to 9.

    Raises:
        ConfigError: the array is no image, or the ending is unknown.
    """
    image_module = require_pillow()
    kind = _FORMATS.get(ending.lower().lstrip("."))
    if kind is None:
        raise ConfigError(
            f"an image cannot be written as {ending!r}: pass one of .jpg, .jpeg and .png"
        )
    pixels = np.asarray(array)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    is_right = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    if pixels.dtype != np.uint8 or not is_right or not pixels.size:
        raise ConfigTypeError(
            "an image must be a non-empty uint8 array of shape (height, width) or (height, width,"
            f" channels) with 1, 3 or 4 channels, got {pixels.dtype} of shape {pixels.shape}:"
            f" {got(array)}. Convert it"
        )
    options = {"quality": quality} if kind == "JPEG" else {"compress_level": min(quality, 9)}
    image = image_module.fromarray(np.ascontiguousarray(pixels))
    if kind == "JPEG" and image.mode == "RGBA":
        image = image.convert("RGB")
    written = io.BytesIO()
    image.save(written, kind, **options)
    return written.getvalue()
