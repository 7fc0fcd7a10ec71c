"""Compares what `reader.images` makes of a file with a reference, which is Pillow.

Imports reader and Pillow. The reference is told here again, by Pillow's numbers and plain NumPy,
in the words of docs/images.md: its table of modes, its filter, its promise for a JPEG.
"""

from __future__ import annotations

import io
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from reader.errors import ImageError
from reader.images import decode, image_size

__all__ = ["Difference", "Refused", "differences", "reference", "table", "unlike"]

#: the kinds of the page, by Pillow's names: what is of no such kind has to be refused
FORMATS = (
    *("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "AVIF", "JPEG2000"),
    *("ICO", "PCX", "PSD", "SGI", "QOI", "DDS", "XPM", "SUN", "TGA"),  # TGA takes much for its own
)
HEIF = (b"ftypheic", b"ftypheix", b"ftypmif1")
JPEG_LEVELS = 2  # that a JPEG may differ from Pillow's, as the page says
FILTER_LEVELS = 2  # that Pillow's filter rounds off between its two passes
_WHITE_IS_ZERO, _PHOTOMETRIC, _BITS = 0, 262, 258  # tags of TIFF

Box = tuple[int, int, int, int]
Size = tuple[int, int]


class Refused(Exception):
    """The reference refuses a file."""


class Difference(NamedTuple):
    """One thing that is not as the reference has it.

    Attributes:
        name: of the file.
        asked: of `decode` or `image_size`.
        wanted, found: what the reference gave and what came, in words.
    """

    name: str
    asked: str
    wanted: str
    found: str


class Question(NamedTuple):
    """One thing that is asked about a file.

    Attributes:
        asked: in words.
        wanted: gives the reference's arrays, of which one is enough, or raises Refused.
        found: gives the array to compare with them.
        levels: by how much a number may differ.
    """

    asked: str
    wanted: Callable[[], tuple[Any, ...]]
    found: Callable[[], Any]
    levels: int = 0


def differences(path: Path) -> list[Difference]:
    """Return what is not as the reference has it, of a file's size, pixels, crops and resizes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of damaged tags, from Pillow
        rows = [
            (question, unlike(_answer(question.wanted), _answer(question.found), question.levels))
            for question in _questions(path)
        ]
    return [
        Difference(path.name, question.asked, *told) for question, told in rows if told is not None
    ]


def table(found: list[Difference]) -> str:
    """Return differences as lines of text."""
    return "\n".join(
        f"{row.name} | {row.asked}\n    reference: {row.wanted}\n    reader:    {row.found}"
        for row in found
    )


def reference(path: Path, mode: str = "RGB", upright: bool = False, smaller: Size = (0, 0)) -> Any:
    """Return the pixels of a file, height x width x channels.

    Args:
        path: of the file.
        mode: as for `decode`.
        upright: as for `decode`.
        smaller: (height, width) to resize to, after a JPEG is decoded at 1/2, 1/4 or 1/8 of its
            size, if that is as large; (0, 0): not.

    Raises:
        Refused: Pillow cannot read it, or its numbers have no range that the page names.
    """
    try:
        with _opened(path) as image:
            pixels = _pixels(image, mode, upright, smaller)
    except Exception as error:  # of many types
        raise Refused(f"{type(error).__name__}: {error}") from error
    return pixels[:, :, np.newaxis] if pixels.ndim == 2 else pixels


def unlike(wanted: Any, found: Any, levels: int) -> tuple[str, str] | None:
    """Return what was wanted and what was found, in words; None: they are alike.

    Args:
        wanted: arrays, of which one is enough, or an exception.
        found: an array or an exception: alike are Refused and an ImageError.
        levels: by how much a number may differ.
    """
    if isinstance(wanted, Exception) or isinstance(found, Exception):
        if isinstance(wanted, Refused) and isinstance(found, ImageError):
            return None
        shown = wanted if isinstance(wanted, Exception) else wanted[0]
        return _told(shown), _told(found)
    near = [answer for answer in wanted if answer.shape == found.shape]
    if not near:
        return _told(wanted[0]), _told(found)
    answer, away = min(
        ((answer, np.abs(answer.astype(int) - found.astype(int))) for answer in near),
        key=lambda pair: float(pair[1].mean()),
    )
    if away.max() <= levels:
        return None
    at = tuple(int(index) for index in np.unravel_index(away.argmax(), away.shape))
    return (
        f"{_told(answer)}, {answer[at]} at {at}",
        f"{found[at]} there, {away.mean():.1f} away on average, {(away > 0).mean():.0%} differ",
    )


def _questions(path: Path) -> Iterator[Question]:
    content = path.read_bytes()
    levels = JPEG_LEVELS if content[:3] == b"\xff\xd8\xff" else 0
    whole = _once(lambda: (reference(path),))
    upright = _once(lambda: (reference(path, upright=True),))
    yield Question("image_size", lambda: (_header_size(path),), lambda: np.array(image_size(path)))
    yield Question("RGB", whole, lambda: decode(path), levels)
    yield Question("L", lambda: (reference(path, "L"),), lambda: decode(content, mode="L"), levels)
    yield Question("upright", upright, lambda: decode(path, upright=True), levels)
    try:
        height, width = upright()[0].shape[:2]
    except Refused:
        yield Question("crop of a pixel", whole, lambda: decode(path, crop=(0, 0, 1, 1)))
        return
    rng = np.random.default_rng(zlib.crc32(path.name.encode()))
    for is_turned in (False, True, False):
        yield from _cropped(content, upright if is_turned else whole, is_turned, levels, rng)
    smaller = max(1, height // 3), max(1, width // 3)
    # of a JPEG that only Pillow decodes, all is decoded
    yield Question(
        f"size={smaller}, upright=True",
        lambda: (reference(path, upright=True, smaller=smaller), _resized(upright()[0], smaller)),
        lambda: decode(path, size=smaller, upright=True),
        levels + FILTER_LEVELS,
    )


def _cropped(
    content: bytes, source: Callable[[], tuple[Any]], is_turned: bool, levels: int, rng: Any
) -> Iterator[Question]:
    """Yield two questions about one crop: its pixels, and those that it is resized to."""
    rows, columns = source()[0].shape[:2]
    top, left = int(rng.integers(rows)), int(rng.integers(columns))
    height, width = int(rng.integers(rows - top)) + 1, int(rng.integers(columns - left)) + 1
    box = top, left, height, width
    size = int(rng.integers(2 * height)) + 1, int(rng.integers(2 * width)) + 1
    part = source()[0][top : top + height, left : left + width]
    yield Question(
        f"crop={box}, upright={is_turned}",
        lambda: (part,),
        lambda: decode(content, crop=box, upright=is_turned),
        levels,
    )
    yield Question(
        f"crop={box}, size={size}, upright={is_turned}, exact=True",
        lambda: (_resized(part, size),),
        lambda: decode(content, crop=box, size=size, upright=is_turned, exact=True),
        levels + FILTER_LEVELS,
    )


def _opened(path: Path) -> Any:
    with path.open("rb") as file:
        head = file.read(12)
    if head[4:] in HEIF:
        from pillow_heif import HeifImageFile

        return HeifImageFile(path)
    content = io.BytesIO(path.read_bytes())  # of a path it refuses the smallest TGA
    return Image.open(content, formats=FORMATS)


def _header_size(path: Path) -> Any:
    """Return height and width as an array. Refused: Pillow cannot read the header."""
    try:
        with _opened(path) as image:
            return np.array(image.size[::-1])
    except Exception as error:  # of many types
        raise Refused(f"{type(error).__name__}: {error}") from error


def _pixels(image: Any, mode: str, upright: bool, smaller: Size) -> Any:
    """Return Pillow's image as pixels of 8 bits, by the page's table of modes."""
    kind, size = image.format, image.size
    if kind == "JPEG" and image.mode in ("RGB", "L"):
        _shrink(image, mode, upright, smaller)
    image.load()
    tags = dict(getattr(image, "tag_v2", {}))
    if smaller != (0, 0):
        share = max(-(-size[0] // image.width), 1)  # 1, 2, 4 or 8
        image = _resize(image.convert(mode), smaller, upright, (size[0] / share, size[1] / share))
    if upright:
        image = ImageOps.exif_transpose(image)
    if image.mode not in ("I", "F") and not image.mode.startswith("I;16"):
        return np.array(image.convert(mode))
    grey = _grey(np.array(image), image.mode, kind, tags)
    return np.repeat(grey[:, :, np.newaxis], 3, axis=2) if mode == "RGB" else grey


def _grey(numbers: Any, mode: str, kind: str, tags: dict[int, Any]) -> Any:
    """Return numbers of more than 8 bits as those of 8."""
    white = {"F": 1, "I": 0xFFFF if kind == "PPM" else 0xFF}.get(mode, 0xFFFF)
    if mode.startswith("I;16") and tags.get(_BITS) == (12,):
        white = 0xFFF
    if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO and white > 0xFF:
        numbers = white - numbers
    if not (numbers.min() >= -0.001 and numbers.max() <= white * 1.001):
        raise ValueError(f"{mode} from {numbers.min()} to {numbers.max()} is not 0 to {white}")
    if white == 1:
        return np.rint(numbers * np.float32(255)).astype(np.uint8)
    return (numbers >> (white.bit_length() - 8)).astype(np.uint8)


def _is_sideways(image: Any) -> bool:
    return image.getexif().get(0x0112, 1) in range(5, 9)


def _shrink(image: Any, mode: str, upright: bool, smaller: Size) -> None:
    """Let Pillow's JPEG be decoded at 1/2, 1/4 or 1/8 of its size, and in the mode asked for."""
    height, width = smaller[::-1] if upright and _is_sideways(image) else smaller
    if height == 0:
        height, width = image.height, image.width
    factor = next(
        factor
        for factor in (8, 4, 2, 1)
        if factor == 1 or (image.height >= factor * height and image.width >= factor * width)
    )
    # Pillow divides what there is by what is asked for, and takes the next lower power of 2
    image.draft(mode, (image.width // factor, image.height // factor))


def _resize(image: Any, size: Size, upright: bool, part: tuple[float, float]) -> Any:
    """Return Pillow's image resized, not yet turned. `part`: its width and height."""
    height, width = size[::-1] if upright and _is_sideways(image) else size
    return image.resize((width, height), Image.Resampling.BILINEAR, box=(0, 0, *part))


def _resized(pixels: Any, size: Size) -> Any:
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.array(image.resize(size[::-1], Image.Resampling.BILINEAR))


def _once(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that gives what `make` gave, or raises what it raised, the first time."""
    kept: list[Any] = []

    def answer() -> Any:
        if not kept:
            kept.append(_answer(make))
        if isinstance(kept[0], Exception):
            raise kept[0]
        return kept[0]

    return answer


def _answer(make: Callable[[], Any]) -> Any:
    """Return what `make` returns, or the exception that it raises."""
    try:
        return make()
    except Exception as error:
        return error


def _told(answer: Any) -> str:
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {answer}"
    return " x ".join(map(str, answer.shape)) + " numbers"
