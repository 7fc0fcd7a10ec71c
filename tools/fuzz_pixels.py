"""Damaged image files and views at random: no crash, no byte beside the output, no wrong pixel.

Imports reader. A case is one of two. A file is damaged at some bytes, cut off or joined to another:
decoding a part of it gives pixels or an `ImageError`, reads no byte behind the file, and takes no
pixel from what the output or another picture held before. Or a view of an array is made in a drawn
layout and type: its pixels are those that plain NumPy makes, and the memory around them stays. Run
as ``python -m tools.fuzz_pixels --count N --seed S``; case K alone: ``--count 1 --seed K``.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import io
import mmap
import os
import random
import signal
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from reader._core.pixels.render import render
from reader.errors import ImageError
from reader.images.array_image import ArrayImage
from reader.images.encoded_image import EncodedImage, decode
from reader.images.view import View

__all__ = ["main", "run_case"]

AROUND, MARK = 256, 0xA5  # bytes beside an output, and what they hold
LIMIT_S = 60  # of one case
MOST_AWAY = 2.5  # levels, in noise, by weights that are rounded to 1/256
SIDES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 200)
TYPES = (np.uint8, np.uint16, np.float16, np.uint32, np.float32, np.float64)
SAVED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("JPEG", {"quality": 90}),
    ("JPEG", {"quality": 30, "subsampling": "4:4:4"}),
    ("JPEG", {"quality": 75, "subsampling": "4:2:2"}),
    ("JPEG", {"progressive": True}),
    ("JPEG", {"restart_marker_rows": 1}),
    ("PNG", {}),
    ("WEBP", {}),
    ("BMP", {}),
    ("GIF", {}),
    ("TIFF", {}),
    ("PPM", {}),
)


BEHIND = (b"\n", bytes(100), b"a trailer of a camera " * 9, b"\xff\xd8\xff\xe1\0\2" * 9)


class WrongPixels(AssertionError):
    """An output that is wrong."""


def framed(shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
    """Return an array with marked bytes around it, and the whole with those bytes."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.full(nbytes + 2 * AROUND, MARK, np.uint8)
    return memory[AROUND : AROUND + nbytes].view(dtype).reshape(shape), memory


def check_frame(memory: Any) -> None:
    """Raise WrongPixels where a byte beside the output was written."""
    if (memory[:AROUND] != MARK).any() or (memory[-AROUND:] != MARK).any():
        raise WrongPixels("bytes beside the output were written")


def guarded(content: bytes) -> memoryview:
    """Return a copy of the content whose next byte lies in a page that cannot be read."""
    page = mmap.PAGESIZE
    nbytes = -(-len(content) // page) * page
    memory = mmap.mmap(-1, nbytes + page)
    place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(place + nbytes), ctypes.c_size_t(page), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    memory[nbytes - len(content) : nbytes] = content
    return memoryview(memory)[nbytes - len(content) : nbytes].toreadonly()


def drawn_view(rng: random.Random, height: int, width: int) -> View:
    """Return a view that has crops, resizes and flips."""
    view = View(height, width)
    for _ in range(rng.randrange(3)):
        part = rng.randint(1, view.height), rng.randint(1, view.width)
        view.crop(
            rng.randint(0, view.height - part[0]), rng.randint(0, view.width - part[1]), *part
        )
        if rng.random() < 0.6:
            view.resize(rng.choice(SIDES), rng.choice(SIDES))
    view.rows.is_flipped, view.columns.is_flipped = rng.random() < 0.3, rng.random() < 0.5
    return view


# -- files --------------------------------------------------------------------------------------


def a_file(rng: random.Random) -> tuple[bytes, str]:
    """Return the content of an image file, and its kind."""
    kind, options = rng.choice(SAVED)
    height, width = rng.choice(SIDES), rng.choice(SIDES)
    pixels = np.random.default_rng(rng.randrange(2**32)).integers(0, 256, (height, width, 3))
    image = Image.fromarray(pixels.astype(np.uint8)).resize((width, height))
    if rng.random() < 0.2:
        image = image.convert("L")
    elif kind == "JPEG" and rng.random() < 0.1:
        image = image.convert("CMYK")
    exif = Image.Exif()
    if kind != "TIFF" and rng.random() < 0.5:
        exif[0x0112] = rng.randrange(10)
    file = io.BytesIO()
    image.save(file, kind, **options, **({"exif": exif} if exif else {}))
    content = file.getvalue()
    if kind == "JPEG" and rng.random() < 0.3:
        content += rng.choice(BEHIND)
    return content, kind


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Return the content with some of its bytes changed, lost or doubled."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(changed)) if rng.random() < 0.5 else rng.randrange(64) % len(changed)
        how = rng.randrange(6)
        if how == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            changed[at : at + 2] = struct.pack(">H", rng.choice((0, 1, 255, 0x7FFF, 0xFFFF)))
        elif how == 2:
            del changed[at : at + rng.choice((1, 2, 64, len(changed)))]
        elif how == 3:
            changed[at:at] = rng.randbytes(rng.choice((1, 2, 64)))
        elif how == 4:
            changed[at:at] = changed[: rng.randrange(len(changed))]
        else:
            changed[at : at + 2] = bytes((0xFF, rng.choice((0xC0, 0xC4, 0xD8, 0xD9, 0xDA, 0xDB))))
        changed = changed or bytearray(b"\xff")
    return bytes(changed)


def _other(mark: int) -> bytes:
    """Return a turned picture that leaves its pixels in the decoder's memory."""
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (300, 300), (mark, mark, mark)).save(file, "JPEG", exif=exif)
    return file.getvalue()


OTHERS = {mark: _other(mark) for mark in (0, 255)}


def file_case(rng: random.Random) -> str:
    """Decode a part of a file that may be damaged; return the outcome."""
    content, kind = a_file(rng)
    is_damaged = rng.random() < 0.8
    if is_damaged:
        content = damaged(rng, content)
    try:
        image = EncodedImage(guarded(content), rng.choice(("RGB", "L")), rng.random() < 0.3)
        view = drawn_view(rng, image.height, image.width)
        shape: tuple[int, ...] = (view.height, view.width, image.channels)
        is_first = rng.random() < 0.5
        if is_first:
            shape = (image.channels, view.height, view.width)
        out, memory = framed(shape, np.uint8)
        image.render(view, out, channels_first=is_first)
        made = out.copy()
        for mark in (0, 255):
            out[...] = mark
            decode(OTHERS[mark], upright=True)
            image.render(view, out, channels_first=is_first)
            if (out != made).any():
                raise WrongPixels(f"pixels of a {kind} file come from elsewhere")
    except ImageError:
        if not is_damaged:
            raise WrongPixels(f"a whole {kind} file was refused") from None
        return "a damaged file was refused"
    check_frame(memory)
    return "a damaged file was decoded" if is_damaged else "a file was decoded"


# -- arrays -------------------------------------------------------------------------------------


def weights_of(size: int, start: float, length: float, low: int, high: int) -> Any:
    """Return the weight of each input of an axis in each output: outputs x inputs."""
    step = length / size
    radius = max(1.0, step)
    centers = start + (np.arange(size) + 0.5) * step
    inputs = np.arange(low, high) + 0.5
    weights = np.maximum(0.0, 1.0 - np.abs(inputs - centers[:, np.newaxis]) / radius)
    for row, center in zip(weights, centers, strict=True):
        if row.sum() <= 0.0:
            row[np.abs(inputs - center).argmin()] = 1.0
    return weights / weights.sum(axis=1, keepdims=True)


def expected(pixels: Any, view: View) -> Any:
    """Return the pixels of a view, as real numbers: height x width x channels."""
    made = pixels.astype(np.float64)
    for number, axis in enumerate((view.rows, view.columns)):
        start, length, low, high = axis.scaled(1)
        part = made.take(range(low, high), axis=number)
        weights = weights_of((view.height, view.width)[number], start, length, low, high)
        made = np.moveaxis(np.tensordot(weights, part, (1, number)), 0, number)
        if axis.is_flipped:
            made = np.flip(made, number)
    return made


def array_case(rng: random.Random) -> str:
    """Make a view of an array; return the outcome."""
    channels = rng.choice((1, 3))
    shape = (rng.choice(SIDES), rng.choice(SIDES), channels)
    pixels = np.random.default_rng(rng.randrange(2**32)).integers(0, 256, shape).astype(np.uint8)
    view = drawn_view(rng, *shape[:2])
    is_first, dtype = rng.random() < 0.5, rng.choice(TYPES)
    table = None
    if dtype != np.uint8 or rng.random() < 0.5:  # from which the byte can be told
        table = (np.arange(256) if dtype == np.uint8 else np.arange(256) * 3 + 1).astype(dtype)
        table = np.ascontiguousarray(np.tile(table, (channels, 1)))
    made_shape: tuple[int, ...] = (view.height, view.width, channels)
    if is_first:
        made_shape = (channels, view.height, view.width)
    out, memory = framed(made_shape, dtype)
    if rng.random() < 0.5:
        ArrayImage(pixels).render(view, out, table, is_first)
    else:
        flips = (view.rows.is_flipped, view.columns.is_flipped)
        render(pixels, view.rows.scaled(1), view.columns.scaled(1), out, table, flips, is_first)
    check_frame(memory)
    made = out.astype(np.float64)
    if dtype != np.uint8:
        made = (made - 1) / 3
    made = made.transpose(1, 2, 0) if is_first else made
    away = np.abs(made - expected(pixels, view)).max()
    if not away <= MOST_AWAY or (made % 1 != 0).any():
        raise WrongPixels(f"a pixel is {away} levels away")
    return "a view of an array was made"


# -- cases --------------------------------------------------------------------------------------


def run_case(seed: int) -> str:
    """Run a case in this process; return its outcome. Raises WrongPixels at a fault."""
    rng = random.Random(seed)
    case: Callable[[random.Random], str] = rng.choice((file_case, array_case))
    return case(rng)


def main(arguments: list[str] | None = None) -> int:
    """Run cases in forked programs; return how many went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz_pixels", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    options = parser.parse_args(arguments)
    outcomes: Counter[str] = Counter()
    wrong, seed, end = 0, options.seed, options.seed + options.count
    while seed < end:
        seed, found, error = _run_some(seed, min(end, seed + 500))
        outcomes.update(found)
        if error:
            print(error)
            wrong += 1
    print(f"{options.count} cases: {dict(outcomes)}, {wrong} went wrong")
    return wrong


def _run_some(first: int, end: int) -> tuple[int, Counter[str], str]:
    """Run cases in a forked program until one goes wrong.

    Returns the case to go on with, what came of those before, and what was wrong.
    """
    reached = mmap.mmap(-1, 8)
    reached[:] = struct.pack("<q", first)
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        with os.fdopen(tell, "w") as pipe:
            os._exit(_run_here(range(first, end), reached, pipe))
    os.close(tell)
    with os.fdopen(told) as pipe:
        lines = pipe.read().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    at = struct.unpack("<q", reached[:])[0]
    wrong = [line for line in lines if line.startswith("case ")]
    if status < 0:
        wrong.append(f"case {at} ended by {signal.Signals(-status).name}")
    outcomes = Counter(line for line in lines if not line.startswith("case "))
    return (at + 1 if wrong else end), outcomes, "\n".join(wrong)


def _run_here(cases: range, reached: mmap.mmap, pipe: Any) -> int:
    faulthandler.enable()
    for seed in cases:
        reached[:] = struct.pack("<q", seed)
        signal.alarm(LIMIT_S)
        try:
            pipe.write(run_case(seed) + "\n")
        except Exception as error:
            pipe.write(f"case {seed}: {type(error).__name__}: {error}\n")
            pipe.flush()
            return 1
        pipe.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(min(main(), 1))
