"""Which kind of file holds an image, by its first bytes; and how Pillow opens a kind.

Imports the Pillow adapter. Keeps no state.
"""

from __future__ import annotations

import io
import re
from typing import Any

from reader.errors import ImageError
from reader.frameworks import pillow

__all__ = ["KINDS", "find_kind", "has_deep_colors", "open_by_pillow"]

#: those that can be decoded: AVIF, JPEG 2000 and HEIC by what Pillow may lack
KINDS = (
    *("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WebP", "AVIF", "JPEG 2000", "HEIC"),
    *("TGA", "ICO", "PCX", "PSD", "SGI", "QOI", "DDS", "XPM", "Sun raster"),
)

_SIGNATURES = (  # expressions, for the first bytes
    (rb"\xff\xd8\xff", "JPEG"),
    (rb"\x89PNG\r\n\x1a\n", "PNG"),
    (rb"GIF8[79]a", "GIF"),
    (rb"P[1-6f]", "PPM"),  # Pf: of floats, which is grey
    (rb"BM", "BMP"),
    (rb"II[*+]\0|MM\0[*+]", "TIFF"),  # +: BigTIFF
    (rb"RIFF....WEBP", "WebP"),
    (rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51", "JPEG 2000"),
    (rb"\0\0\x01\0[^\0]", "ICO"),
    (rb"\n[\0\x02\x03\x05]\x01[\x01\x02\x04\x08]", "PCX"),
    (rb"8BPS\0\x01", "PSD"),
    (rb"\x01\xda[\0\x01][\x01\x02]", "SGI"),
    (rb"qoif", "QOI"),
    (rb"DDS ", "DDS"),
    (rb"/\* XPM \*/", "XPM"),
    (rb"\x59\xa6\x6a\x95", "Sun raster"),
    (rb"\0\0\0\x0cJXL \r\n\x87\n|\xff\x0a", "JPEG XL"),
    (rb"\x76\x2f\x31\x01", "OpenEXR"),
    (rb"SDPX|XPDS", "DPX"),
    (rb"SIMPLE  =", "FITS"),
    (rb"id=ImageMagick", "MIFF"),
    (rb"#\?RADIANCE|#\?RGBE", "Radiance HDR"),
    (rb"%!PS", "PostScript"),
    (rb"%PDF", "PDF"),
    (rb"PK\x03\x04", "ZIP"),
    (rb"\x1f\x8b", "gzip"),
    (rb"\s*<", "HTML or XML"),
    # which has no signature: (no) colors of a map, a type, then the size, bits of a pixel and flags
    (
        rb".[\0\x01][\x01-\x03\x09-\x0b].{9}(?!\0\0)..(?!\0\0)..[\x01\x08\x0f\x10\x18\x20][\0-\x2f]",
        "TGA",
    ),
)
_COMPILED = [(re.compile(begin, re.DOTALL), kind) for begin, kind in _SIGNATURES]
_BRANDS = (  # of files that begin with a box "ftyp"
    ((b"avif", b"avis"), "AVIF"),
    ((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"), "HEIC"),
)
_MOST_BRANDS = 256  # bytes of a box that are looked at
_HEAD = 16  # bytes that hold every signature
_FEATURES = {"AVIF": "avif", "JPEG 2000": "jpg_2000"}  # of Pillow's library, by kind
_LARGEST_ICON = 1024
_BITS_PER_SAMPLE = 258  # a tag of TIFF
_START_OF_DATA = b"\xff\x93"  # a marker of JPEG 2000
_FORMATS = {"JPEG 2000": "JPEG2000", "Sun raster": "SUN"}  # Pillow's names, where they are others


def find_kind(content: Any, name: str) -> str:
    """Return one of KINDS.

    Args:
        content: of the file.
        name: of the file, for messages.

    Raises:
        ImageError: it is of another kind, empty, or begins with zeros.
    """
    head = bytes(content[:_MOST_BRANDS])
    if head[:_HEAD] in (b"", bytes(_HEAD)):
        found = "begins with zeros" if head else "is empty"
        raise ImageError(
            f"{name} is no image: it {found}: it was not written to its end. Copy or download it"
            " again, make it anew, or leave it out of the dataset"
        )
    by_begin = (kind for begin, kind in _COMPILED if begin.match(head))
    kind = _kind_of_brands(head) if head[4:8] == b"ftyp" else next(by_begin, "")
    if kind in KINDS:
        return kind
    told = f"it is a file of the kind {kind}" if kind else f"it begins with {head[:_HEAD]!r}"
    raise ImageError(
        f"{name} is none of {', '.join(KINDS)}: {told}. Convert it, or leave it out of the dataset"
    )


def _kind_of_brands(head: bytes) -> str:
    """Return the kind of a file by its first brand, or else by those that it is compatible with."""
    end = int.from_bytes(head[:4], "big")
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, min(end, len(head)) - 3, 4))]
    for brand in brands:
        for names, kind in _BRANDS:
            if brand in names:
                return kind
    return "HEIF or video"


def open_by_pillow(content: Any, kind: str, name: str) -> Any:
    """Return Pillow's image of a file of a kind, with its header read.

    Raises:
        ImageError: what reads this kind is not installed.
        ConfigError: Pillow is not installed.
        Exception: of many types: the header is damaged.
    """
    image_module = pillow.require_pillow()
    if kind == "HEIC":
        return pillow.heif_class(name)(io.BytesIO(content))
    if kind in _FEATURES and _FEATURES[kind] not in pillow.supported():
        raise ImageError(
            f"{name} is a file of the kind {kind}, which this Pillow cannot read: its library"
            f" for {_FEATURES[kind]} is missing. Install Pillow 11.3 or later from a wheel, convert"
            " the file, or leave it out of the dataset"
        )
    if kind == "ICO":
        _check_icon(content)
    is_blank = kind == "JPEG 2000" and _START_OF_DATA not in bytes(content)
    if is_blank and not pillow.reads_truncated():  # Pillow would make it black
        raise ValueError("it is cut off before its first tile")
    return image_module.open(io.BytesIO(content), formats=(_FORMATS.get(kind, kind.upper()),))


def _check_icon(content: Any) -> None:
    """Raise ValueError if an icon has a large picture, which Pillow decodes to find its size."""
    for sides in re.findall(rb"IHDR(....)(....)", bytes(content), re.DOTALL):
        width, height = (int.from_bytes(each, "big") for each in sides)
        if max(width, height) > _LARGEST_ICON:
            raise ValueError(
                f"it has a picture of {height} x {width} pixels, and {_LARGEST_ICON} is the most of"
                " a side of an icon"
            )


def has_deep_colors(content: Any, kind: str, image: Any) -> bool:
    """Whether a file has more than 8 bits of each color. `image`: Pillow's, of it."""
    if kind == "PNG":
        return bytes(content[24:25]) == b"\x10"
    if kind == "SGI":
        return bytes(content[3:4]) == b"\2"
    if kind == "TIFF":
        return bool(max(image.tag_v2.get(_BITS_PER_SAMPLE, (8,))) > 8)
    if kind == "PPM":
        words = re.sub(rb"#[^\n]*", b"", bytes(content[:_MOST_BRANDS])).split(maxsplit=4)
        return words[0] in (b"P3", b"P6") and len(words[3]) > 2 and int(words[3]) > 0xFF
    return False
