"""An image in a file: its size from the header, its pixels when asked for.

Imports the view, how files are opened, the Pillow adapter, and simplejpeg where a JPEG is read.
Keeps no state: any thread may decode, and the GIL is released while a file is read, decoded and
resized.
"""

from __future__ import annotations

import io
import os
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, ConfigTypeError, ImageError, got
from reader.files import open_regular
from reader.frameworks import pillow
from reader.images.jpeg import (
    is_junk,
    jpeg_header,
    jpeg_orientation,
    render_jpeg,
    simplejpeg,
    told_of,
)
from reader.images.transform import Pixels, Size, as_size
from reader.images.view import MAX_PIXELS, SIDEWAYS, Box, Image, Spans, View, render_view

__all__ = ["EncodedImage", "Source", "channels_of", "content_of", "decode", "image_size"]

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | npt.NDArray[np.uint8]

_CHANNELS = {"RGB": 3, "L": 1}
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
_KINDS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WebP")  # can be decoded
_ORIENTATION = 0x0112  # a tag of Exif
_ORIENTATIONS = range(1, 9)
_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257  # tags
_HEAD = 16  # bytes that tell a file's kind
_WHAT_TO_DO = "Make the file anew, or leave it out of the dataset"


def decode(
    source: Source,
    *,
    size: Size | None = None,
    crop: Box | None = None,
    mode: str = "RGB",
    out: Pixels | None = None,
    upright: bool = False,
    exact: bool = False,
) -> Pixels:
    """Return the pixels of an image file: JPEG, PNG, BMP, GIF, PPM, TIFF or WebP.

    The kind is found from the content, not the name. Of several images in a file the first is
    decoded. Of a JPEG only the rows and columns of the crop are decoded, at 1/2, 1/4 or 1/8 of
    their size if that is still as large as `size`. Then the crop is resized by a bilinear filter
    that takes means when it shrinks, as Pillow's does. Without resizing the pixels equal Pillow's
    within 2 levels. Transparency is dropped, 16 bits become 8, and without `upright` the Exif
    orientation is ignored, as by Pillow and torchvision's ImageFolder (Pillow turns a TIFF). The
    GIL is released meanwhile.

    Args:
        source: the path of a file, or its content as bytes or another object of contiguous bytes.
        size: (height, width) of the result, in pixels; None: as large as the crop.
        crop: (top, left, height, width) of the part to take, in the image's own pixels; None: all
            of it. Pixels outside do not affect the result, except in blocks of 8 x 8 or 16 x 16
            pixels at the edges, if a JPEG is decoded smaller.
        mode: "RGB": red, green and blue; "L": grey, one channel.
        out: the array for the pixels: writable, C-contiguous, uint8, of the result's shape, such as
            a row of a batch. After an error it may hold part of an image.
        upright: turn the image upright by its Exif orientation before cropping.
        exact: decode a JPEG at its full size, whatever `size` is. That is slower, and the filter
            sees all of the file's pixels. Without it pixels differ by 1 to 4 levels on average, and
            more in fine texture.

    Returns:
        An array of uint8, height x width x 3, or x 1 with "L"; `out` if given.

    Raises:
        ImageError: the file cannot be read, is damaged or cut off, or is of another kind. Damage in
            a JPEG after the crop is not noticed.
        ConfigError, ConfigTypeError: an argument is invalid, such as a crop outside of the image,
            or simplejpeg or Pillow is missing.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (40, 30), "red").save(file, "PNG")
    >>> decode(file.getvalue(), size=(2, 2), crop=(0, 0, 30, 30)).tolist()
    [[[255, 0, 0], [255, 0, 0]], [[255, 0, 0], [255, 0, 0]]]
    """
    image = EncodedImage(source, mode, upright, exact=exact)
    view = image.view()
    if crop is not None:
        view.crop(*view.checked_box(crop))
    if size is not None:
        view.resize(*as_size(size))
    shape = (view.height, view.width, image.channels)
    if out is None:
        out = np.empty(shape, np.uint8)
    else:
        _check_out(out, shape)
    image.render(view, out)
    return out


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


class EncodedImage(Image):
    """The content of an image file with its parsed header.

    Args:
        source, mode, upright, exact: as for `decode`.
        name: for messages; None: the path.

    Attributes:
        name: of the file, for messages.
        height, width: in pixels, as rendered.
        orientation: Exif's number for how its pixels are turned when they are rendered; 1: not.
        channels: 3, or 1 with the mode "L".
    """

    def __init__(
        self,
        source: Source,
        mode: str = "RGB",
        upright: bool = False,
        name: str | None = None,
        exact: bool = False,
    ) -> None:
        self.channels = channels_of(mode)
        self._content, found = content_of(source)
        self.name = found if name is None else name
        if not any(self._content[:_HEAD]):
            found = "begins with zeros" if len(self._content) else "is empty"
            raise ImageError(
                f"{self.name} {found}: it was not written to its end. Copy or download it again, or"
                " leave it out of the dataset"
            )
        self._kind = self._find_kind()
        self._is_plain = True  # simplejpeg knows its colors
        self._is_exact = exact
        read_size = {"JPEG": self._jpeg_size, "PNG": self._png_size}
        self.height, self.width = read_size.get(self._kind, self._other_size)()
        if not 0 < self.height * self.width <= MAX_PIXELS:
            raise self._error(
                f"its header says {self.height} x {self.width} pixels, and {MAX_PIXELS:,} is the"
                " limit"
            )
        self._stored_size = self.height, self.width
        # Pillow itself turns a TIFF upright
        self.orientation = self._orientation() if upright and self._kind != "TIFF" else 1
        if self.orientation in SIDEWAYS:
            self.height, self.width = self.width, self.height

    def render(
        self,
        view: View,
        out: npt.NDArray[Any],
        table: npt.NDArray[Any] | None = None,
        channels_first: bool = False,
    ) -> None:
        """See Image."""
        factor = view.factor if self.is_scalable else 1
        told = ""
        if self._has_parts:
            spans = view.spans(factor, self.orientation)
            found = self._render_part(spans, factor, out, table, channels_first)
            if found is None:
                return
            told = found
        whole, factor = self._decoded(factor, told)
        render_view(whole, view, factor, out, table, channels_first, self.orientation)

    def whole(self, factor: int) -> tuple[Pixels, int]:
        """Return all of the image at 1/`factor` of its size, not turned, and the actual factor.

        Raises:
            ImageError: the file is damaged or cut off.
        """
        factor = factor if self.is_scalable else 1
        height, width = (-(-side // factor) for side in self._stored_size)
        told = ""
        if self._has_parts:
            out = np.empty((height, width, self.channels), np.uint8)
            found = self._render_part(View(height, width).spans(1), factor, out)
            if found is None:
                return out, factor
            told = found
        return self._decoded(factor, told)

    @property
    def is_scalable(self) -> bool:
        """Whether it can be decoded at a smaller size."""
        return self._has_parts and not self._is_exact

    @property
    def _has_parts(self) -> bool:
        """Whether it can be decoded in part."""
        return self._kind == "JPEG" and self._is_plain

    def _render_part(
        self,
        spans: Spans,
        factor: int,
        out: npt.NDArray[Any],
        table: npt.NDArray[Any] | None = None,
        channels_first: bool = False,
    ) -> str | None:
        """Render a part if libjpeg can decode only that; None: done. See `render_jpeg`."""
        size = self._stored_size
        return render_jpeg(self._content, size, factor, spans, out, table, channels_first)

    def _decoded(self, factor: int, told: str) -> tuple[Pixels, int]:
        """Return all of the image, not turned, and its actual factor.

        `told`: what libjpeg found wrong when it decoded a part; "": nothing.
        """
        if not self._has_parts:
            return self._by_pillow(), 1
        found = self._by_simplejpeg(factor, told)
        is_full = found.shape[:2] == self._stored_size  # Pillow decoded it
        return found, 1 if is_full else factor

    def _by_simplejpeg(self, factor: int, told: str) -> Pixels:
        """Return all of a JPEG at 1/`factor` of its size."""
        height, width = self._stored_size
        decode_jpeg = simplejpeg().decode_jpeg
        try:
            decoded: Pixels = decode_jpeg(
                self._content,
                "RGB" if self.channels == _CHANNELS["RGB"] else "GRAY",
                min_height=-(-height // factor),
                min_width=-(-width // factor),
                min_factor=factor,
            )
        except ValueError as error:
            wrong = told or error
            if is_junk(wrong) or pillow.reads_truncated():  # is_junk: the image is complete
                return self._by_pillow()
            raise self._error(told_of(wrong)) from error
        return decoded

    def _by_pillow(self) -> Pixels:
        """Return all of an image, not turned."""
        size = self._stored_size
        try:
            with self._opened() as image:
                found = self._size_of(image)
                if found != size:
                    raise ValueError(f"Pillow finds {found[0]} x {found[1]} pixels")
                decoded = pillow.pixels(image, 1 if self.channels == _CHANNELS["RGB"] else 0)
        except ConfigError:
            raise  # there is no Pillow
        except pillow.ColorsError as error:
            raise ImageError(f"{self.name} {error}, or leave it out of the dataset") from error
        except Exception as error:  # many types
            raise self._error(f"{error or error!r}") from error
        if decoded.ndim == 2:
            decoded = decoded[:, :, np.newaxis]
        return np.ascontiguousarray(decoded)

    def _orientation(self) -> int:
        """Return the Exif orientation; 1: upright or unknown."""
        found = jpeg_orientation(self._content) if self._kind == "JPEG" else None
        if found is not None:
            return found if found in _ORIENTATIONS else 1
        try:
            with self._opened() as image:
                found = image.getexif().get(_ORIENTATION, 1)
        except ConfigError:
            raise  # there is no Pillow
        except Exception:  # of many types: Exif is damaged, but the image may be intact
            return 1
        return found if found in _ORIENTATIONS else 1

    def _opened(self) -> Any:
        """Return Pillow's image with its header read."""
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
        try:
            height, width, colors = jpeg_header(self._content)
        except ConfigError:
            raise  # there is no simplejpeg
        except (ValueError, KeyError) as error:
            if isinstance(error, KeyError) or "subsampling" in str(error):
                self._is_plain = False  # a rare subsampling, which only Pillow decodes
                return self._other_size()
            if pillow.reads_truncated():
                self._is_plain = False
                return self._other_size()
            raise self._error(f"its header cannot be read ({told_of(error)})") from error
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
                return self._size_of(image)
        except ConfigError:
            raise  # there is no Pillow
        except Exception as error:  # many types
            raise self._error(f"its header cannot be read ({error or error!r})") from error

    def _size_of(self, image: Any) -> Size:
        """Return the height and width that Pillow's image will have when it is decoded."""
        if self._kind == "TIFF" and image.tag_v2.get(_ORIENTATION) in SIDEWAYS:
            # Pillow before 11 turns the size with the pixels, later ones at once
            return image.tag_v2[_TIFF_WIDTH], image.tag_v2[_TIFF_HEIGHT]
        return image.height, image.width

    def _error(self, found: str) -> ImageError:
        return ImageError(f"{self.name} is a damaged {self._kind} file: {found}. {_WHAT_TO_DO}")


def channels_of(mode: Any) -> int:
    """Return how many channels a mode has. ConfigError: it is no mode."""
    channels = _CHANNELS.get(mode) if isinstance(mode, str) else None
    if channels is None:
        raise ConfigError(f'mode must be "RGB" or "L", got {got(mode)}')
    return channels


def require_decoders() -> None:
    """Import the decoders. ConfigError: simplejpeg or Pillow is missing."""
    simplejpeg()
    pillow.require_pillow()


def content_of(source: Any) -> tuple[Any, str]:
    """Return the bytes of a file, and its name for messages."""
    if isinstance(source, (str, os.PathLike)):
        name = f"'{os.fsdecode(source)}'"
        try:
            # twice as fast as pathlib
            with open(source, "rb", buffering=0, opener=open_regular) as file:
                return file.read(), name
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
