"""Change an image's colors by an amount: brightness, contrast and so on.

Imports the core's colors. Each function returns the given image, changed in place, or a new one.
The results equal those of Pillow's ImageEnhance and ImageOps, and so torchvision's on Pillow
images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reader._core.pixels import colors
from reader.images.transform import Pixels

__all__ = [
    "auto_contrast",
    "brighten",
    "contrast",
    "equalize",
    "posterize",
    "saturate",
    "sharpen",
    "shift_hue",
    "solarize",
]

_NUMBERS = np.arange(256, dtype=np.float32)
_RGB = 3


def brighten(image: Pixels, factor: float) -> Pixels:
    """Mix with black: 0 is black, 1 the image."""
    return _looked_up(image, _NUMBERS * np.float32(factor))


def contrast(image: Pixels, factor: float) -> Pixels:
    """Mix with the mean grey: 0 is grey, 1 the image."""
    mean = np.float32(int(colors.mean_grey(image) + 0.5))
    return _looked_up(image, mean + np.float32(factor) * (_NUMBERS - mean))


def saturate(image: Pixels, factor: float) -> Pixels:
    """Mix each pixel with its grey: 0 is grey, 1 the image."""
    if image.shape[2] == _RGB:
        colors.saturate(image, factor)
    return image


def shift_hue(image: Pixels, factor: float) -> Pixels:
    """Turn the hue by a part of the circle of colors, from -0.5 to 0.5."""
    if image.shape[2] == _RGB:
        colors.shift_hue(image, int(factor * 255) % 256)
    return image


def sharpen(image: Pixels, factor: float) -> Pixels:
    """Mix with the smoothed image: 0 is smooth, 1 the image, 2 sharper."""
    out = np.empty_like(image)
    colors.sharpen(image, factor, out)
    return out


def posterize(image: Pixels, bits: int) -> Pixels:
    """Keep the highest `bits` of each number."""
    return _looked_up(image, np.arange(256) & (256 - (1 << (8 - bits))))


def solarize(image: Pixels, threshold: float) -> Pixels:
    """Invert numbers from the threshold on: n becomes 255 - n."""
    return _looked_up(image, np.where(threshold > _NUMBERS, _NUMBERS, 255 - _NUMBERS))


def auto_contrast(image: Pixels) -> Pixels:
    """Stretch the numbers of each channel from 0 to 255."""
    tables = []
    for counts in _counted(image):
        present = np.flatnonzero(counts)
        low, high = int(present[0]), int(present[-1])
        scale = 255.0 / (high - low) if high > low else 1.0
        offset = -low * scale if high > low else 0.0
        tables.append(np.clip((np.arange(256) * scale + offset).astype(np.int64), 0, 255))
    return _looked_up(image, np.stack(tables))


def equalize(image: Pixels) -> Pixels:
    """Equalize the histogram of each channel."""
    tables = []
    for counts in _counted(image):
        present = counts[counts > 0]
        step = int(present[:-1].sum()) // 255
        if len(present) <= 1 or not step:
            tables.append(np.arange(256))
            continue
        before = np.concatenate([[0], np.cumsum(counts)[:-1]])
        tables.append(np.minimum((before + step // 2) // step, 255))
    return _looked_up(image, np.stack(tables))


def _counted(image: Pixels) -> npt.NDArray[np.int64]:
    counts = np.zeros((image.shape[2], 256), np.int64)
    colors.count(image, counts)
    return counts


def _looked_up(image: Pixels, table: npt.NDArray[Any]) -> Pixels:
    """Replace each number by its entry in a table of 256, or in one table per channel."""
    numbers = np.clip(table, 0, 255).astype(np.uint8)
    colors.look_up(image, np.ascontiguousarray(np.broadcast_to(numbers, (image.shape[2], 256))))
    return image
