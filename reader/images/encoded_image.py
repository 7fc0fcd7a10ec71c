"""An image in a file: its size from the header, its pixels when asked for.

Imports the view, how files are opened, the Pillow adapter, and simplejpeg where a JPEG is read.
Keeps no state: any thread may decode, and the GIL is released while a file is read, decoded and
resized.
"""

from __future__ import annotations

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
from reader.images.kinds import find_kind, has_deep_colors, open_by_pillow
from reader.images.normalize import as_dtype, number_table
from reader.images.stored_pictures import StoredPicture
from reader.images.transform import Pixels, Size, as_max_pixels, as_size
from reader.images.view import MAX_PIXELS, SIDEWAYS, Box, Image, Spans, View, render_view

__all__ = ["EncodedImage", "Source", "channels_of", "content_of", "decode", "image_size"]

Source = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | npt.NDArray[np.uint8] | StoredPicture
)

_CHANNELS = {"RGB": 3, "L": 1}
_ORIENTATION = 0x0112  # a tag of Exif
_ORIENTATIONS = range(1, 9)
_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257  # tags
_MOST_BYTES = 16  # of memory for a pixel, while it is decoded by Pillow
_WHAT_TO_DO = "Make the file anew, or leave it out of the dataset"


def decode(
    source: Source,
    *,
    size: Size | None = None,
    crop: Box | None = None,
    mode: str = "RGB",
    out: npt.NDArray[Any] | None = None,
    upright: bool = False,
    exact: bool = False,
    max_pixels: int = MAX_PIXELS,
    dtype: Any = None,
) -> npt.NDArray[Any]:
    """Return the pixels of an image file: JPEG, PNG, BMP, GIF, PPM, TIFF, WebP or others.

    AVIF and JPEG 2000 are read if Pillow has their libraries, and HEIC if pillow-heif is installed.

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
        out: the array for the pixels: writable, C-contiguous, of the result's shape and dtype, such
            as a row of a batch. After an error it may hold part of an image.
        upright: turn the image upright by its Exif orientation before cropping.
        exact: decode a JPEG at its full size, whatever `size` is. That is slower, and the filter
            sees all of the file's pixels. Without it pixels differ by 1 to 4 levels on average, and
            more in fine texture.
        max_pixels: an image with more of them is refused before any is decoded. Each takes 16 bytes
            of memory at most, or of a JPEG those of the rows of the crop.
        dtype: of the result: "uint8"; "uint16", from 0 to 65535; or "float32" or another of
            `Compose`, from 0 to 1. With these a grey image of more than 8 bits keeps all of them.
            None: uint8.

    Returns:
        An array of `dtype`, height x width x 3, or x 1 with "L"; `out` if given.

    Raises:
        ImageError: the file cannot be read, is damaged or cut off, is of another kind, or has
            more than `max_pixels`. Damage in a JPEG after the crop is not noticed.
        ConfigError, ConfigTypeError: an argument is invalid, such as a crop outside of the image,
            or simplejpeg or Pillow is missing.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (40, 30), "red").save(file, "PNG")
    >>> decode(file.getvalue(), size=(2, 2), crop=(0, 0, 30, 30)).tolist()
    [[[255, 0, 0], [255, 0, 0]], [[255, 0, 0], [255, 0, 0]]]
    """
    number = as_dtype(dtype, None)
    limit = as_max_pixels(max_pixels)
    image = EncodedImage(source, mode, upright, None, exact, limit, number.name)
    view = image.view()
    if crop is not None:
        view.crop(*view.checked_box(crop))
    if size is not None:
        view.resize(*as_size(size))
    shape = (view.height, view.width, image.channels)
    if out is None:
        out = np.empty(shape, number)
    else:
        _check_out(out, shape, number)
    image.render(view, out, number_table(None, number, image.channels))
    return out


def image_size(source: Source) -> Size:
    """Return (height, width) of an image file in pixels, from its header: nothing is decoded.

    Args:
        source: as for `decode`.

    Raises:
        ImageError: the file cannot be read, its header is damaged, or it is of another kind.
        ConfigError: simplejpeg or Pillow is missing.
    """
    image = EncodedImage(source, max_pixels=None)
    return image.height, image.width


class EncodedImage(Image):
    """The content of an image file with its parsed header.

    Args:
        source, mode, upright, exact: as for `decode`.
        name: for messages; None: the path.
        max_pixels: as for `decode`; None: no limit, for those who need the size alone.
        dtype: of what will be rendered: of others than uint8 files of more bits keep them.

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
        max_pixels: int | None = MAX_PIXELS,
        dtype: str = "uint8",
    ) -> None:
        self._dtype = dtype
        self.channels = channels_of(mode)
        self._content, found = content_of(source)
        self.name = found if name is None else name
        self._kind = find_kind(self._content, self.name)
        self._is_plain = True  # simplejpeg knows its colors
        self._is_exact = exact
        if self._kind == "JPEG":
            self.height, self.width = self._jpeg_size()
        else:
            is_png = self._kind == "PNG"
            self.height, self.width = self._png_size() if is_png else self._other_size()
        self._check_size(max_pixels)
        self._stored_size = self.height, self.width
        is_upright = self._kind in ("TIFF", "HEIC")  # by what opens them
        self.orientation = self._orientation() if upright and not is_upright else 1
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
                if self._kind == "JPEG" and self.channels == 1:
                    image.draft("L", image.size)  # the luminance that the file stores
                decoded = self._pixels_of(image)
                if decoded.shape[:2] != size:  # a file within the file has another
                    raise ValueError(f"Pillow makes {decoded.shape[0]} x {decoded.shape[1]} pixels")
        except pillow.ColorsError as error:
            raise ImageError(f"{self.name} {error}, or leave it out of the dataset") from error
        except Exception as error:  # many types
            raise self._refused(error, "") from error
        if decoded.ndim == 2:
            decoded = decoded[:, :, np.newaxis]
        return np.ascontiguousarray(decoded)

    def _pixels_of(self, image: Any) -> npt.NDArray[Any]:
        """Return the pixels of Pillow's image: uint8, or see `pillow.deep_pixels`."""
        if self._dtype != "uint8":
            deep = pillow.deep_pixels(image)
            if deep is not None:
                return deep
            if self._dtype == "uint16" and has_deep_colors(self._content, self._kind, image):
                raise pillow.ColorsError(
                    "has 16 bits of each color, of which Pillow reads 8 in this form, and dtype is"
                    " uint16: pass another dtype, make it a PNG of grey alone"
                )
        return pillow.pixels(image, 1 if self.channels == _CHANNELS["RGB"] else 0)

    def _orientation(self) -> int:
        """Return the Exif orientation; 1: upright or unknown."""
        found = jpeg_orientation(self._content) if self._kind == "JPEG" else None
        if found is not None:
            return found if found in _ORIENTATIONS else 1
        try:
            with self._opened() as image:
                found = image.getexif().get(_ORIENTATION, 1)
        except Exception as error:  # of many types
            if isinstance(error, ConfigError) or _is_of_memory(error) or _is_pillows_limit(error):
                raise self._refused(error, "") from error
            return 1  # Exif is damaged, but the image may be intact
        return found if found in _ORIENTATIONS else 1

    def _opened(self) -> Any:
        """Return Pillow's image with its header read."""
        return open_by_pillow(self._content, self._kind, self.name)

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
        except Exception as error:  # many types
            raise self._refused(error, "its header cannot be read: ") from error

    def _size_of(self, image: Any) -> Size:
        """Return the height and width that Pillow's image will have when it is decoded."""
        if self._kind == "TIFF" and image.tag_v2.get(_ORIENTATION) in SIDEWAYS:
            # Pillow before 11 turns the size with the pixels, later ones at once
            return image.tag_v2[_TIFF_WIDTH], image.tag_v2[_TIFF_HEIGHT]
        return image.height, image.width

    def _check_size(self, max_pixels: int | None) -> None:
        size = f"{self.height} x {self.width} pixels"
        count = self.height * self.width
        if count <= 0:
            raise self._error(f"its header says {size}")
        if max_pixels is not None and count > max_pixels:
            raise ImageError(
                f"{self.name} has {size}, which are {count:,}, and max_pixels={max_pixels:,} is the"
                f" limit: all of them may take {count * _MOST_BYTES >> 20:,} MiB of memory. Pass a"
                " larger max_pixels, or leave it out of the dataset"
            )

    def _refused(self, error: Exception, where: str) -> Exception:
        """Return the error to raise for one of Pillow's. `where`: the text before its own."""
        if isinstance(error, (ConfigError, ImageError)):  # what would read the file is missing
            return error
        size = f"{getattr(self, 'height', '?')} x {getattr(self, 'width', '?')} pixels"
        if _is_of_memory(error):
            return ImageError(
                f"{self.name}, a file of the kind {self._kind} with {size}, needs more memory than"
                " this process can have. Pass a smaller max_pixels, or leave it out of the dataset"
            )
        if _is_pillows_limit(error):
            return ImageError(
                f"{self.name}, a file of the kind {self._kind}, is beyond a limit of Pillow itself:"
                f" {error}. Set PIL.Image.MAX_IMAGE_PIXELS in each process, or leave it out of the"
                " dataset"
            )
        if type(error).__name__ == "UnidentifiedImageError":
            return ImageError(
                f"{self.name} is a damaged {self._kind} file, or has a form that Pillow does not"
                " know: it cannot be identified. Make it anew, convert it, or leave it out of the"
                " dataset"
            )
        return self._error(f"{where}{str(error) or repr(error)}")

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
        if isinstance(source, StoredPicture):
            return source.content(), f"'{source}'"
        try:
            source = memoryview(source).cast("B")
        except (TypeError, ValueError):
            raise ConfigTypeError(
                "source must be a path, or the content of a file as contiguous bytes, got"
                f" {got(source)}"
            ) from None
    return source, f"an image of {len(source):,} bytes"


def _is_of_memory(error: Exception) -> bool:
    """Whether memory was missing, which Pillow's codecs tell by an OSError of these words."""
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and str(error).startswith("out of memory")
    )


def _is_pillows_limit(error: Exception) -> bool:
    """Whether Pillow says so of an image's size: by an error, or a warning that became one."""
    return type(error).__name__ in ("DecompressionBombError", "DecompressionBombWarning")


def _check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if not isinstance(out, np.ndarray):
        raise ConfigTypeError(f"out must be an array of NumPy, got {got(out)}")
    if out.shape != shape or out.dtype != dtype:
        raise ConfigError(
            f"out must have the shape {shape} and {dtype}, as the result, got {out.shape} and"
            f" {out.dtype}"
        )
    if not out.flags.writeable or not out.flags.c_contiguous:
        raise ConfigError(
            "out must be writable and C-contiguous, got an array that is"
            f" {'strided' if out.flags.writeable else 'read-only'}"
        )
