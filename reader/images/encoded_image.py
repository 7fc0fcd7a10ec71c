"""An image as its file holds it: its size from the header, its pixels when asked for.

Imports the core's resample, the Pillow adapter, and simplejpeg where a JPEG is read. Keeps no
state: any thread may decode, and the GIL is released while a file is read, decoded and resized.
"""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reader._core.collate.resample import resample
from reader.errors import ConfigError, ConfigTypeError, ImageError, got
from reader.frameworks import pillow
from reader.images.crops import Box

__all__ = ["EncodedImage", "Pixels", "Size", "decode", "image_size"]

Pixels = npt.NDArray[np.uint8]
Size = tuple[int, int]  # height, width
Source = str | os.PathLike[str] | bytes | bytearray | memoryview | npt.NDArray[np.uint8]

_CHANNELS = {"RGB": 3, "L": 1}
_MAX_PIXELS = 2**27  # a header that claims more is damaged, or made to use memory up
_SIGNATURES = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    *((b"P%d" % number, "PPM") for number in range(1, 7)),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"%PDF", "PDF"),
    (b"PK\3\4", "ZIP"),
    (b"\x1f\x8b", "gzip"),
)
_KINDS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WebP")  # those that are decoded
_WHAT_TO_DO = "Make the file anew, or leave it out of the dataset"


def decode(
    source: Source,
    *,
    size: Size | None = None,
    crop: Box | None = None,
    mode: str = "RGB",
    out: Pixels | None = None,
) -> Pixels:
    """Return the pixels of an image file: JPEG, PNG, BMP, GIF, PPM, TIFF or WebP.

    The kind is found from the content, whatever the file is called. Of several images in a file it
    is the first. A JPEG is decoded at 1/2, 1/4 or 1/8 of its size where that is still as large as
    `size`. Then the crop is resized by a bilinear filter that takes the mean where it shrinks, as
    Pillow's does. Where nothing is resized the pixels are those that Pillow gives, within 2 levels.
    Transparency is dropped, 16 bits are cut to 8, and Exif's orientation is not applied: an image
    comes as it lies in its file, as from Pillow and torchvision's ImageFolder (Pillow turns a
    TIFF). The GIL is released meanwhile.

    Args:
        source: the path of a file, or its content as bytes or another object of contiguous bytes.
        size: (height, width) of the result, in pixels; None: as large as the crop.
        crop: (top, left, height, width) of what is taken of the image, in its own pixels; None: all
            of it. No pixel outside of it has any part in the result.
        mode: "RGB": red, green and blue; "L": grey, one channel.
        out: what the pixels are written to: a writable, C-contiguous array of uint8 that has the
            result's shape, such as a row of a batch. After an error it may hold part of an image.

    Returns:
        An array of uint8, height x width x 3, or x 1 with "L"; `out` where that was given.

    Raises:
        ImageError: the file cannot be read, is damaged or cut off, or is of another kind.
        ConfigError, ConfigTypeError: an argument that cannot be, such as a crop outside of the
            image, or simplejpeg or Pillow is missing.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (40, 30), "red").save(file, "PNG")
    >>> decode(file.getvalue(), size=(2, 2), crop=(0, 0, 30, 30)).tolist()
    [[[255, 0, 0], [255, 0, 0]], [[255, 0, 0], [255, 0, 0]]]
    """
    return EncodedImage(source).pixels(size=size, crop=crop, mode=mode, out=out)


def image_size(source: Source) -> Size:
    """Return (height, width) of an image file in pixels, from its header: nothing is decoded.

    Args:
        source: as for `decode`.

    Raises:
        ImageError: the file cannot be read, its header is damaged, or it is of another kind.
        ConfigError: simplejpeg or Pillow is missing.
    """
    image = EncodedImage(source)
    return image.height, image.width


class EncodedImage:
    """The content of an image file, whose header is read.

    Args:
        source: as for `decode`.

    Attributes:
        name: of the file, for messages.
        height, width: in pixels.
    """

    def __init__(self, source: Source) -> None:
        self._content, self.name = _content_of(source)
        self._kind = self._find_kind()
        self._is_plain = True  # simplejpeg knows its colors
        read_size = {"JPEG": self._jpeg_size, "PNG": self._png_size}
        self.height, self.width = read_size.get(self._kind, self._other_size)()
        if not 0 < self.height * self.width <= _MAX_PIXELS:
            raise self._error(
                f"its header says {self.height} x {self.width} pixels, and {_MAX_PIXELS:,} is the"
                " limit"
            )

    def shape(self, size: Size | None, crop: Box | None, mode: str) -> tuple[int, int, int]:
        """Return the shape of the pixels that `pixels` returns; see `decode` for the arguments."""
        channels = _CHANNELS.get(mode) if isinstance(mode, str) else None
        if channels is None:
            raise ConfigError(f'mode must be "RGB" or "L", got {got(mode)}')
        if crop is not None:
            top, left, height, width = _whole("crop", crop, "(top, left, height, width)")
            is_inside = 0 <= top <= self.height - height and 0 <= left <= self.width - width
            if not is_inside or height < 1 or width < 1:
                raise ConfigError(
                    f"crop={crop} does not lie within {self.name}, which has {self.height} x"
                    f" {self.width} pixels: crop is (top, left, height, width) in its pixels"
                )
        if size is None:
            return (*(crop[2:] if crop else (self.height, self.width)), channels)
        height, width = as_size(size)
        return height, width, channels

    def pixels(
        self,
        *,
        size: Size | None = None,
        crop: Box | None = None,
        mode: str = "RGB",
        out: Pixels | None = None,
    ) -> Pixels:
        """Decode; see `decode`."""
        shape = self.shape(size, crop, mode)
        if out is not None:
            _check_out(out, shape)
        top, left, height, width = crop or (0, 0, self.height, self.width)
        is_whole = (height, width) == (self.height, self.width)
        if shape[:2] == (height, width):
            if is_whole:
                return self._decoded(1, mode, out)
            part = self._decoded(1, mode)[top : top + height, left : left + width]
            if out is None:
                return np.ascontiguousarray(part)
            out[:] = part
            return out
        factor = next(
            f for f in (8, 4, 2, 1) if f == 1 or (height >= f * shape[0] and width >= f * shape[1])
        )
        decoded = self._decoded(factor, mode)
        if decoded.shape[0] == self.height and decoded.shape[1] == self.width:
            factor = 1  # too small to be scaled, or not of a kind that is
        out = np.empty(shape, np.uint8) if out is None else out
        resample(decoded, (top / factor, left / factor, height / factor, width / factor), out)
        return out

    def _decoded(self, factor: int, mode: str, out: Pixels | None = None) -> Pixels:
        """Return all of the image: a JPEG as 1/`factor` of it, where simplejpeg decodes it."""
        if self._kind != "JPEG" or not self._is_plain:
            return self._by_pillow(mode, out)
        simplejpeg = _simplejpeg()
        try:
            decoded: Pixels = simplejpeg.decode_jpeg(
                self._content,
                "RGB" if mode == "RGB" else "GRAY",
                min_height=-(-self.height // factor),
                min_width=-(-self.width // factor),
                min_factor=factor,
                buffer=out,
            )
        except ValueError as error:
            if "extraneous bytes" in str(error):  # the image is whole, with junk between its parts
                return self._by_pillow(mode, out)
            raise self._error(_told(error)) from error
        return decoded if out is None else out

    def _by_pillow(self, mode: str, out: Pixels | None) -> Pixels:
        try:
            with self._opened() as image:
                if (image.height, image.width) != (self.height, self.width):
                    raise ValueError(f"Pillow finds {image.height} x {image.width} pixels")
                decoded = pillow.pixels(image, 1 if mode == "RGB" else 0)
        except ConfigError:
            raise  # there is no Pillow
        except Exception as error:  # many types
            raise self._error(f"{error or error!r}") from error
        if decoded.ndim == 2:
            decoded = decoded[:, :, np.newaxis]
        if out is None:
            return np.ascontiguousarray(decoded)
        out[:] = decoded
        return out

    def _opened(self) -> Any:
        """Return Pillow's image, of which the header is read."""
        open_image = pillow.require_pillow().open
        return open_image(io.BytesIO(self._content), formats=(self._kind.upper(),))

    def _find_kind(self) -> str:
        head = bytes(self._content[:16])
        kind = next((kind for start, kind in _SIGNATURES if head.startswith(start)), "")
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            kind = "WebP"
        if kind in _KINDS:
            return kind
        if head[4:8] == b"ftyp":
            kind = "HEIF, AVIF or video"
        elif head.lstrip()[:1] == b"<":
            kind = "HTML or XML"
        if not head:
            found = "it is empty"
        elif kind:
            found = f"it is a file of the kind {kind}"
        else:
            found = f"it begins with {head!r}"
        raise ImageError(
            f"{self.name} is none of {', '.join(_KINDS)}: {found}. Convert it, or leave it out of"
            " the dataset"
        )

    def _jpeg_size(self) -> Size:
        simplejpeg = _simplejpeg()
        try:
            height, width, colors, _ = simplejpeg.decode_jpeg_header(self._content)
        except ValueError as error:
            raise self._error(f"its header cannot be read ({_told(error)})") from error
        self._is_plain = colors in ("YCbCr", "RGB", "GRAY")
        return height, width

    def _png_size(self) -> Size:
        if self._content[12:16] != b"IHDR" or len(self._content) < 33:
            raise self._error("its header is cut off, or missing")
        width, height = struct.unpack_from(">II", self._content, 16)
        return height, width

    def _other_size(self) -> Size:
        try:
            with self._opened() as image:
                return image.height, image.width
        except ConfigError:
            raise  # there is no Pillow
        except Exception as error:  # many types
            raise self._error(f"its header cannot be read ({error or error!r})") from error

    def _error(self, found: str) -> ImageError:
        return ImageError(f"{self.name} is a damaged {self._kind} file: {found}. {_WHAT_TO_DO}")


def as_size(size: Any) -> Size:
    """Return (height, width). ConfigError, ConfigTypeError: they are not two ints from 1."""
    height, width = _whole("size", size, "(height, width)")
    if height < 1 or width < 1 or height * width > _MAX_PIXELS:
        raise ConfigError(
            f"size={size} is no size of an image: pass (height, width), from 1 on and"
            f" {_MAX_PIXELS:,} pixels at most"
        )
    return height, width


def require_decoders() -> None:
    """Import what decodes. ConfigError: simplejpeg or Pillow is missing."""
    _simplejpeg()
    pillow.require_pillow()


def _content_of(source: Any) -> tuple[Any, str]:
    """Return the bytes of a file, and how a message names it."""
    if isinstance(source, (str, os.PathLike)):
        name = f"'{os.fsdecode(source)}'"
        try:
            return Path(source).read_bytes(), name
        except (OSError, ValueError) as error:
            raise ImageError(f"{name} cannot be read: {error}") from error
    if not isinstance(source, bytes):
        try:
            source = memoryview(source).cast("B")
        except (TypeError, ValueError):
            raise ConfigTypeError(
                "source must be a path, or the content of a file as contiguous bytes, got"
                f" {got(source)}"
            ) from None
    return source, f"an image of {len(source):,} bytes"


def _whole(name: str, numbers: Any, form: str) -> tuple[int, ...]:
    """Return as many ints as `form` has."""
    try:
        found = tuple(number.__index__() for number in numbers)
    except (TypeError, AttributeError):
        found = ()
    if len(found) != form.count(",") + 1:
        raise ConfigTypeError(f"{name} must be {form}, whole numbers of pixels, got {got(numbers)}")
    return found


def _check_out(out: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(out, np.ndarray):
        raise ConfigTypeError(f"out must be an array of NumPy, got {got(out)}")
    if out.shape != shape or out.dtype != np.uint8:
        raise ConfigError(
            f"out must have the shape {shape} and uint8, as the result, got {out.shape} and"
            f" {out.dtype}"
        )
    if not out.flags.writeable or not out.flags.c_contiguous:
        raise ConfigError(
            "out must be writable and C-contiguous, got an array that is"
            f" {'strided' if out.flags.writeable else 'read-only'}"
        )


def _told(error: Exception) -> str:
    """Return what libjpeg says was wrong, without the names of its functions."""
    text = str(error)
    return "it is cut off" if "Premature end of JPEG file" in text else text.rpartition("(): ")[2]


def _simplejpeg() -> Any:
    """Return the module. ConfigError: it is not installed."""
    try:
        import simplejpeg
    except ImportError as error:
        raise ConfigError(
            f"JPEG files are decoded by simplejpeg, which cannot be imported: {error}. Run: pip"
            ' install "lodreader[images]"'
        ) from error
    return simplejpeg
