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
from reader.images.libjpeg import libjpeg
from reader.images.transform import Pixels, Size, as_size
from reader.images.view import MAX_PIXELS, Box, Image, View, render_view

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
_END_OF_JPEG = b"\xff\xd9"
_ORIENTATION = 0x0112  # a tag of Exif
_SIDEWAYS = range(5, 9)  # in these orientations rows are columns
_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257  # tags
_FORTH, _BACK = slice(None), slice(None, None, -1)
_TURNS = {  # flips of rows and columns, after sideways images are transposed
    1: (_FORTH, _FORTH),
    2: (_FORTH, _BACK),
    3: (_BACK, _BACK),
    4: (_BACK, _FORTH),
    5: (_FORTH, _FORTH),
    6: (_FORTH, _BACK),
    7: (_BACK, _BACK),
    8: (_BACK, _FORTH),
}
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
        # Pillow itself turns a TIFF upright
        self._turned = self._orientation() if upright and self._kind != "TIFF" else 1
        if self._turned in _SIDEWAYS:
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
        if self._has_parts and self._render_part(view, factor, out, table, channels_first):
            return
        whole, factor = self._decoded(factor)
        render_view(whole, view, factor, out, table, channels_first)

    def whole(self, factor: int) -> tuple[Pixels, int]:
        """Return all of the image at 1/`factor` of its size, and the actual factor.

        Raises:
            ImageError: the file is damaged or cut off.
        """
        factor = factor if self.is_scalable else 1
        size = -(-self.height // factor), -(-self.width // factor)
        if self._has_parts:
            out = np.empty((*size, self.channels), np.uint8)
            view = View(*size, self.name)
            if self._render_part(view, factor, out, None, False, is_scaled=True):
                return out, factor
        return self._decoded(factor)

    @property
    def is_scalable(self) -> bool:
        """Whether it can be decoded at a smaller size."""
        return self._has_parts and not self._is_exact

    @property
    def _has_parts(self) -> bool:
        """Whether it can be decoded in part."""
        return self._kind == "JPEG" and self._is_plain and self._turned == 1

    def _render_part(
        self,
        view: View,
        factor: int,
        out: npt.NDArray[Any],
        table: npt.NDArray[Any] | None,
        channels_first: bool,
        is_scaled: bool = False,
    ) -> bool:
        """Render a view if libjpeg can decode only that part. See `render`.

        `is_scaled`: the view is one of the image at 1/`factor` of its size.
        """
        library = libjpeg() if self._content[-2:] == _END_OF_JPEG else None
        step = 1 if is_scaled else factor
        return library is not None and library.render(
            self._content,
            (self.height, self.width),
            factor,
            view.rows.scaled(step),
            view.columns.scaled(step),
            out,
            table,
            (view.rows.is_flipped, view.columns.is_flipped),
            channels_first,
        )

    def _decoded(self, factor: int) -> tuple[Pixels, int]:
        """Return all of the image, and its actual factor."""
        if not self._has_parts:
            return self._upright(self._by_pillow()), 1
        found = self._by_simplejpeg(factor)
        is_full = found.shape[:2] == (self.height, self.width)  # Pillow decoded it
        return found, 1 if is_full else factor

    def _by_simplejpeg(self, factor: int) -> Pixels:
        """Return all of a JPEG at 1/`factor` of its size."""
        simplejpeg = _simplejpeg()
        try:
            decoded: Pixels = simplejpeg.decode_jpeg(
                self._content,
                "RGB" if self.channels == _CHANNELS["RGB"] else "GRAY",
                min_height=-(-self.height // factor),
                min_width=-(-self.width // factor),
                min_factor=factor,
            )
        except ValueError as error:
            if "extraneous bytes" in str(error):  # the image is complete, with junk
                return self._by_pillow()
            raise self._error(_told(error)) from error
        return decoded

    def _by_pillow(self) -> Pixels:
        """Return all of an image, not turned."""
        size = (self.height, self.width)
        if self._turned in _SIDEWAYS:
            size = size[::-1]
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

    def _upright(self, pixels: Pixels) -> Pixels:
        """Turn an image upright by its Exif orientation."""
        if self._turned in _SIDEWAYS:
            pixels = pixels.transpose(1, 0, 2)
        return np.ascontiguousarray(pixels[_TURNS[self._turned]])

    def _orientation(self) -> int:
        """Return the Exif orientation; 1: upright or unknown."""
        try:
            with self._opened() as image:
                found = image.getexif().get(_ORIENTATION, 1)
        except ConfigError:
            raise  # there is no Pillow
        except Exception:  # of many types: Exif is damaged, but the image may be intact
            return 1
        return found if found in _TURNS else 1

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
        simplejpeg = _simplejpeg()
        try:
            height, width, colors, _ = simplejpeg.decode_jpeg_header(self._content)
        except (ValueError, KeyError) as error:
            if isinstance(error, KeyError) or "subsampling" in str(error):
                self._is_plain = False  # a rare subsampling, which only Pillow decodes
                return self._other_size()
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
                return self._size_of(image)
        except ConfigError:
            raise  # there is no Pillow
        except Exception as error:  # many types
            raise self._error(f"its header cannot be read ({error or error!r})") from error

    def _size_of(self, image: Any) -> Size:
        """Return the height and width that Pillow's image will have when it is decoded."""
        if self._kind == "TIFF" and image.tag_v2.get(_ORIENTATION) in _SIDEWAYS:
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
    _simplejpeg()
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


def _told(error: Exception) -> str:
    """Return libjpeg's error message without the names of its functions."""
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
