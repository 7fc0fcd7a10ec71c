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

#: those that can be decoded; the last three by what Pillow may lack
KINDS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WebP", "AVIF", "JPEG 2000", "HEIC")

_SIGNATURES = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    *((b"P%d" % number, "PPM") for number in range(1, 7)),
    (b"Pf", "PPM"),  # of floats, which is grey
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),  # BigTIFF
    (b"MM\0+", "TIFF"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL"),
    (b"%PDF", "PDF"),
    (b"PK\3\4", "ZIP"),
    (b"\x1f\x8b", "gzip"),
)
_BRANDS = (  # of files that begin with a box "ftyp"
    ((b"avif", b"avis"), "AVIF"),
    ((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"), "HEIC"),
)
_MOST_BRANDS = 256  # bytes of a box that are looked at
_HEAD = 16  # bytes that hold every signature
_FEATURES = {"AVIF": "avif", "JPEG 2000": "jpg_2000"}  # of Pillow's library, by kind
_BITS_PER_SAMPLE = 258  # a tag of TIFF
_START_OF_DATA = b"\xff\x93"  # a marker of JPEG 2000
_FORMATS = {"JPEG 2000": "JPEG2000"}  # Pillow's names, where they are others


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
    kind = next((kind for start, kind in _SIGNATURES if head.startswith(start)), "")
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        kind = "WebP"
    elif head[4:8] == b"ftyp":
        kind = _kind_of_brands(head)
    elif not kind and head.lstrip()[:1] == b"<":
        kind = "HTML or XML"
    if kind in KINDS:
        return kind
    found = f"it is a file of the kind {kind}" if kind else f"it begins with {head[:_HEAD]!r}"
    raise ImageError(
        f"{name} is none of {', '.join(KINDS)}: {found}. Convert it, or leave it out of the dataset"
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
    is_blank = kind == "JPEG 2000" and _START_OF_DATA not in bytes(content)
    if is_blank and not pillow.reads_truncated():  # Pillow would make it black
        raise ValueError("it is cut off before its first tile")
    return image_module.open(io.BytesIO(content), formats=(_FORMATS.get(kind, kind.upper()),))


def has_deep_colors(content: Any, kind: str, image: Any) -> bool:
    """Whether a PNG, TIFF or PPM has more than 8 bits of each color. `image`: Pillow's, of it."""
    if kind == "PNG":
        return bytes(content[24:25]) == b"\x10"
    if kind == "TIFF":
        return bool(max(image.tag_v2.get(_BITS_PER_SAMPLE, (8,))) > 8)
    if kind == "PPM":
        words = re.sub(rb"#[^\n]*", b"", bytes(content[:_MOST_BRANDS])).split(maxsplit=4)
        return words[0] in (b"P3", b"P6") and len(words[3]) > 2 and int(words[3]) > 0xFF
    return False
