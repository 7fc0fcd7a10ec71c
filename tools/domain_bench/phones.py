"""JPEG files of phones: with bytes behind the image, and turned ones, beside the same plain file.

Each contestant decodes a part of one file of 2000 x 1500 pixels, from memory, on one thread. The
files have the same pixels; what is taken is in the middle.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reader.images import decode
from tools.domain_bench.work import Turn, Work

WIDTH, HEIGHT, PART = 2000, 1500, 300
ORIENTATIONS = (3, 6, 8)
BEHIND = {
    "a line break": b"\n",
    "4,096 zeros": bytes(4096),
    "a video": b"\0\0\0\x18ftypmp42" + np.random.default_rng(0).bytes(2_000_000),
}


def phones(_folder: Path) -> Work:
    """Crops, small pictures and whole ones of a phone's files, the plain file's first."""
    return Work(_contestants(), "ms per image")


def _contestants() -> Iterator[tuple[str, Turn]]:
    plain = _encoded(1)
    files = {"plain": plain, **{f"and {name}": plain + more for name, more in BEHIND.items()}}
    turned = {f"orientation {number}": _encoded(number) for number in ORIENTATIONS}
    for name, content in {**files, **turned}.items():
        for what in ("crop", "small", "whole"):
            yield f"{what}, {name}", _turn(content, what, name in turned)


def _encoded(orientation: int) -> bytes:
    from PIL import Image
    from sklearn.datasets import load_sample_images  # type: ignore[import-untyped, unused-ignore]

    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    image = Image.fromarray(load_sample_images().images[0]).resize((WIDTH, HEIGHT))
    image.save(file, "JPEG", quality=92, exif=exif)
    return file.getvalue()


def _turn(content: bytes, what: str, upright: bool) -> Turn:
    options: dict[str, Any] = {"upright": upright}
    if what == "small":
        options["size"] = (224, 224)
    if what == "crop":
        height, width, _ = decode(content, upright=upright).shape
        options["crop"] = ((height - PART) // 2, (width - PART) // 2, PART, PART)

    def turn() -> float:
        begun = time.perf_counter()
        for _ in range(5):
            decode(content, **options)
        return (time.perf_counter() - begun) / 5

    return turn
