"""Which part of an image is taken: a box at its center, or one drawn at random.

Imports `reader.errors`. A crop never changes once it is made; any thread may call it, and it can be
pickled. What decodes the box resizes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reader.errors import ConfigError

__all__ = ["Box", "CenterCrop", "RandomResizedCrop"]

Box = tuple[int, int, int, int]  # top, left, height, width


@dataclass(frozen=True)
class CenterCrop:
    """The largest box of an aspect ratio at the center of an image, or a part of it.

    Args:
        part: of that box's height and width, above 0 and up to 1. The default, 224 / 256, is the
            usual test crop: 224 pixels of a short side of 256.
        ratio: width / height of the box.

    Raises:
        ConfigError: `part` or `ratio` cannot be.

    >>> CenterCrop()(256, 512)
    (16, 144, 224, 224)
    """

    part: float = 0.875
    ratio: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.part <= 1:
            raise ConfigError(f"part must be above 0 and at most 1, got {self.part}")
        _check_ratio("ratio", self.ratio)

    def __call__(self, height: int, width: int, rng: object = None, /) -> Box:
        """Return (top, left, height, width) within an image of `height` x `width` pixels."""
        del rng  # for the crops that are drawn
        return _centered(height, width, self.part, self.ratio)


@dataclass(frozen=True)
class RandomResizedCrop:
    """A box of random area, aspect ratio and place, as torchvision's transform of this name draws.

    The area is uniform, the aspect ratio uniform in its logarithm. After ten boxes that do not fit
    into the image, it is the largest box at the center whose ratio is allowed.

    Args:
        scale: least and greatest area, as parts of the image's.
        ratio: least and greatest width / height.

    Raises:
        ConfigError: a range that cannot be.

    >>> RandomResizedCrop(scale=(1, 1), ratio=(2, 2))(30, 60, np.random.default_rng(0))
    (0, 0, 30, 60)
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        low, high = self.scale
        if not 0 < low <= high <= 1:
            raise ConfigError(f"scale must be (low, high) above 0 and up to 1, got {self.scale}")
        least, greatest = self.ratio
        _check_ratio("ratio", least)
        _check_ratio("ratio", greatest)
        if least > greatest:
            raise ConfigError(f"ratio must be (low, high), got {self.ratio}")

    def __call__(self, height: int, width: int, rng: np.random.Generator) -> Box:
        """Return (top, left, height, width) within an image of `height` x `width` pixels."""
        least, greatest = self.ratio
        for _ in range(10):
            area = height * width * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(math.log(least), math.log(greatest)))
            box_height = max(1, round(math.sqrt(area / ratio)))
            box_width = max(1, round(math.sqrt(area * ratio)))
            if box_height <= height and box_width <= width:
                top = int(rng.integers(height - box_height + 1))
                left = int(rng.integers(width - box_width + 1))
                return top, left, box_height, box_width
        return _centered(height, width, 1.0, min(max(width / height, least), greatest))


def _centered(height: int, width: int, part: float, ratio: float) -> Box:
    """Return the largest box of a ratio at the center, or a part of it."""
    box_height = min(height, max(1, round(part * min(height, width / ratio))))
    box_width = min(width, max(1, round(part * min(width, height * ratio))))
    return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width


def _check_ratio(name: str, ratio: float) -> None:
    if not 0 < ratio < math.inf:
        raise ConfigError(f"{name} must be width / height, above 0, got {ratio}")
