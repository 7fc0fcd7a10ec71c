"""Change colors at random.

Imports this package's color changes. See `reader.images.transform`.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from reader.errors import ConfigError, got
from reader.images import color_changes
from reader.images.transform import Pixels, PixelTransform, check_probability

__all__ = ["ColorJitter", "RandomGrayscale"]

_STEPS = (
    color_changes.brighten,
    color_changes.contrast,
    color_changes.saturate,
    color_changes.shift_hue,
)


class ColorJitter(PixelTransform):
    """Change brightness, contrast, saturation and hue at random, in a random order.

    Args:
        brightness, contrast, saturation: a number x: the factor is uniform from max(0, 1 - x) to 1
            + x; or (least, greatest). 0: no change.
        hue: a number x up to 0.5: the hue is shifted by a uniform part of the circle from -x to x;
            or (least, greatest).

    Raises:
        ConfigError: a range is invalid.
    """

    def __init__(
        self,
        brightness: float | tuple[float, float] = 0,
        contrast: float | tuple[float, float] = 0,
        saturation: float | tuple[float, float] = 0,
        hue: float | tuple[float, float] = 0,
    ) -> None:
        self.ranges = (
            _range("brightness", brightness, 1, 0, np.inf),
            _range("contrast", contrast, 1, 0, np.inf),
            _range("saturation", saturation, 1, 0, np.inf),
            _range("hue", hue, 0, -0.5, 0.5),
        )

    def paint(self, image: Pixels, rng: np.random.Generator) -> Pixels:
        """See PixelTransform."""
        for number in rng.permutation(len(_STEPS)):
            span = self.ranges[number]
            if span is not None:
                image = _STEPS[number](image, float(rng.uniform(*span)))
        return image

    def __repr__(self) -> str:
        return f"ColorJitter{self.ranges}"


@dataclass(frozen=True)
class RandomGrayscale(PixelTransform):
    """Make the image grey, with a probability.

    Args:
        p: the probability, from 0 to 1.

    Raises:
        ConfigError: `p` is no probability.
    """

    p: float = 0.1

    def __post_init__(self) -> None:
        check_probability(self.p)

    def paint(self, image: Pixels, rng: np.random.Generator) -> Pixels:
        """See PixelTransform."""
        return color_changes.saturate(image, 0) if rng.random() < self.p else image


def _range(
    name: str, value: Any, center: float, least: float, greatest: float
) -> tuple[float, float] | None:
    """Return (low, high); None: nothing changes."""
    try:
        if isinstance(value, Real):
            if float(value) < 0:
                raise ValueError
            low, high = max(least, center - float(value)), center + float(value)
        else:
            low, high = (float(each) for each in value)
    except (TypeError, ValueError):
        low, high = 1.0, 0.0
    if not least <= low <= high <= greatest or high == np.inf:
        limit = "0 to 0.5, or two from -0.5 to 0.5" if center == 0 else "0 on, or two"
        raise ConfigError(f"{name} must be a number from {limit} in order, got {got(value)}")
    return None if low == high == center else (low, high)
