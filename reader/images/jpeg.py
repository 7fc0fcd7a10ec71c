"""JPEG files: their size and orientation from the header, their end, their pixels.

Imports libjpeg, which decodes parts of images, and simplejpeg, which decodes whole ones. Keeps no
state. No length or offset in a file is followed beyond the file's bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from reader._core.pixels.render import jpeg_end
from reader.errors import ConfigError
from reader.images.libjpeg import libjpeg
from reader.images.view import Spans

__all__ = ["is_junk", "jpeg_header", "jpeg_orientation", "render_jpeg", "simplejpeg", "told_of"]

_END = b"\xff\xd9"
_EXIF = b"Exif\0\0"
_ORIENTATION, _SHORT = 0x0112, 3  # a tag of Exif, and the type of its number
_LEAST_PADDING = 16  # zero bytes


def simplejpeg() -> Any:
    """Return the module. ConfigError: it is not installed."""
    try:
        import simplejpeg
    except ImportError as error:
        raise ConfigError(
            f"JPEG files are decoded by simplejpeg, which cannot be imported: {error}. Run: pip"
            ' install "lodreader[images]"'
        ) from error
    return simplejpeg


def jpeg_header(content: Any) -> tuple[int, int, str]:
    """Return height, width and the colors as simplejpeg names them.

    Raises:
        ValueError, KeyError: the header cannot be read, or simplejpeg does not know its colors.
    """
    module = simplejpeg()
    try:
        height, width, colors, _ = module.decode_jpeg_header(content)
    except ValueError as error:
        if not is_junk(error):
            raise
        height, width, colors, _ = module.decode_jpeg_header(content, strict=False)
    return height, width, colors


def is_junk(error: object) -> bool:
    """Whether a decoder complains of bytes between the parts of a file, which hold no pixel."""
    return "extraneous bytes" in str(error)


def told_of(error: object) -> str:
    """Return libjpeg's message without the names of its functions."""
    text = str(error)
    return "it is cut off" if "Premature end of JPEG file" in text else text.rpartition("(): ")[2]


def render_jpeg(
    content: Any,
    size: tuple[int, int],
    factor: int,
    spans: Spans,
    out: Any,
    table: Any = None,
    channels_first: bool = False,
) -> str | None:
    """Render a part of a JPEG, of which libjpeg decodes what the part needs.

    A file that ends with an end marker, or has one where its image ends, is believed to be
    complete. Otherwise all rows are decoded: their pixels must be there.

    Args:
        content: of the file.
        size: (height, width), as its header says.
        factor: it is decoded at 1/`factor` of its size.
        spans: what is rendered, in pixels of the smaller image.
        out: as for `render`.
        table: as for `render`.
        channels_first: as for `render`.

    Returns:
        None: `out` was made. Otherwise what libjpeg found wrong, or "": it cannot decode parts.
    """
    library = libjpeg()
    if library is None:
        return ""
    rows, columns, flips, is_turned = spans
    reads_all = content[-2:] != _END and not jpeg_end(content)
    if reads_all and not any(content[-_LEAST_PADDING:]):
        # Zeros decode to pixels. Behind this mark they do not, so that lost ones are noticed.
        content = bytes(content).rstrip(b"\0") + _END
    found: str | None = library.render(
        content,
        size,
        factor,
        rows,
        columns,
        out,
        table,
        flips,
        channels_first,
        is_turned,
        reads_all,
    )
    return found


def jpeg_orientation(content: Any) -> int | None:
    """Return the Exif orientation that a header gives; None: it takes Pillow to tell.

    This walk answers for the usual header, in a tenth of Pillow's time.
    """
    at, end = 2, len(content)
    while at + 4 <= end:
        mark, marker, length = struct.unpack_from(">BBH", content, at)
        if marker == 0xDA:
            return 1  # the pixels begin, and no Exif came before
        if mark != 0xFF or not 0xC0 <= marker < 0xFF or 0xD0 <= marker < 0xDA or length < 2:
            return None  # stray bytes, fill, or no part with a length
        if marker == 0xE1:
            if at + 2 + length > end or bytes(content[at + 4 : at + 10]) != _EXIF:
                return None
            return _orientation_in(bytes(content[at + 10 : at + 2 + length]))
        at += 2 + length
    return None


def _orientation_in(exif: bytes) -> int | None:
    """Return the orientation in Exif's first directory; None: not found as a single number."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None:
        return None
    try:
        (at,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, at)
        entries = np.frombuffer(exif, np.uint8, count * 12, at + 2).reshape(count, 12)
    except (struct.error, ValueError):
        return None
    tags = entries[:, :2].copy().view(f"{order}u2").ravel()
    places = np.flatnonzero(tags == _ORIENTATION)
    if len(places) != 1:
        return None
    kind, number, value = struct.unpack(f"{order}HIHxx", entries[places[0], 2:].tobytes())
    return value if (kind, number) == (_SHORT, 1) else None
