"""Random changes drawn from a list: RandAugment and TrivialAugment.

Imports this package's color changes and the core's warp. See `reader.images.transform`. The lists
and their ranges are torchvision's. Sources: RandAugment, arXiv 1909.13719; TrivialAugment, arXiv
2103.10158.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from reader._core.pixels.colors import warp
from reader.checks import as_int
from reader.images import color_changes
from reader.images.transform import Pixels, PixelTransform

__all__ = ["RandAugment", "TrivialAugmentWide"]


@dataclass(frozen=True)
class _Change:
    """One change of a list.

    Attributes:
        make: called with the image and the magnitude.
        least, greatest: the magnitude in the first bin and in the last.
        is_signed: whether it is negated at random.
        axis: the image's axis that the magnitude is relative to; None: it is absolute.
        is_whole: whether the magnitude is a whole number.
    """

    make: Callable[[Pixels, float], Pixels]
    least: float = 0.0
    greatest: float = 0.0
    is_signed: bool = False
    axis: int | None = None
    is_whole: bool = False

    def magnitude(
        self, bin_: int, bins: int, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> float:
        if self.is_whole:
            return round(float(np.float32(bin_) / np.float32((bins - 1) / self.greatest)))
        size = 1 if self.axis is None else shape[self.axis]
        found = _spread(self.least, self.greatest * size, bin_, bins)
        return -found if self.is_signed and rng.random() < 0.5 else found


def _spread(least: float, greatest: float, bin_: int, bins: int) -> float:
    """Return a number of torch.linspace from `least` to `greatest`, in float32.

    From the middle on it counts from the end. Products are not rounded before the sum, as with
    AVX2: float64 holds them.
    """
    first, last = np.float32(least), np.float32(greatest)
    step = float((last - first) / np.float32(bins - 1))
    if bin_ < bins // 2:
        return float(np.float32(float(first) + step * bin_))
    return float(np.float32(float(last) - step * (bins - 1 - bin_)))


def _moved(numbers: Callable[[Any, float], tuple[float, ...]]) -> Callable[[Pixels, float], Pixels]:
    """Return a change by an affine map of six numbers."""

    def make(image: Pixels, magnitude: float) -> Pixels:
        out = np.empty_like(image)
        warp(image, numbers(image.shape, magnitude), (0,) * image.shape[2], out)
        return out

    return make


def _turned(shape: tuple[int, ...], degrees: float) -> tuple[float, ...]:
    """Return the affine map that rotates an image counter-clockwise."""
    cos, sin = math.cos(-math.radians(degrees)), math.sin(-math.radians(degrees))
    x, y = shape[1] / 2, shape[0] / 2
    return cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y


_SHEAR_X = _moved(lambda _, by: (1, by, 0, 0, 1, 0))
_SHEAR_Y = _moved(lambda _, by: (1, 0, 0, by, 1, 0))
_MOVE_X = _moved(lambda _, by: (1, 0, -int(by), 0, 1, 0))
_MOVE_Y = _moved(lambda _, by: (1, 0, 0, 0, 1, -int(by)))
_TURN = _moved(_turned)


def _by(change: Callable[[Pixels, float], Pixels]) -> Callable[[Pixels, float], Pixels]:
    return lambda image, magnitude: change(image, 1.0 + magnitude)


def _posterize(most: int) -> _Change:
    """Return the change that keeps 8 bits in the first bin and 8 - `most` in the last."""
    return _Change(
        lambda image, lost: color_changes.posterize(image, 8 - int(lost)), 0, most, is_whole=True
    )


def _changes(
    shear: float, move_x: _Change, move_y: _Change, turn: float, strength: float, bits: int
) -> tuple[_Change, ...]:
    return (
        _Change(lambda image, _: image),
        _Change(_SHEAR_X, 0, shear, True),
        _Change(_SHEAR_Y, 0, shear, True),
        move_x,
        move_y,
        _Change(_TURN, 0, turn, True),
        _Change(_by(color_changes.brighten), 0, strength, True),
        _Change(_by(color_changes.saturate), 0, strength, True),
        _Change(_by(color_changes.contrast), 0, strength, True),
        _Change(_by(color_changes.sharpen), 0, strength, True),
        _posterize(bits),
        _Change(color_changes.solarize, 255, 0),
        _Change(lambda image, _: color_changes.auto_contrast(image)),
        _Change(lambda image, _: color_changes.equalize(image)),
    )


_RAND = _changes(
    0.3,
    _Change(_MOVE_X, 0, 150 / 331, True, axis=1),
    _Change(_MOVE_Y, 0, 150 / 331, True, axis=0),
    30,
    0.9,
    4,
)
_TRIVIAL = _changes(
    0.99, _Change(_MOVE_X, 0, 32, True), _Change(_MOVE_Y, 0, 32, True), 135, 0.99, 6
)


@dataclass(frozen=True)
class RandAugment(PixelTransform):
    """Make `num_ops` random changes of one strength, from a list of 14.

    The list: nothing, shear and move along each axis, turn, brightness, color, contrast, sharpness,
    posterize, solarize, auto contrast, equalize. Pixels from outside are black.

    Args:
        num_ops: how many changes are made, one after the other.
        magnitude: their strength: the number of a bin.
        num_magnitude_bins: how many bins there are.

    Raises:
        ConfigError, ConfigTypeError: a number is invalid.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    moves_pixels = True

    def __post_init__(self) -> None:
        _check_bins(self.num_magnitude_bins)
        as_int("num_ops", self.num_ops, low=0, remedy="It is how many changes are made.")
        most = self.num_magnitude_bins - 1
        as_int("magnitude", self.magnitude, low=0, high=most, remedy="It is the number of a bin.")

    def paint(self, image: Pixels, rng: np.random.Generator) -> Pixels:
        """See PixelTransform."""
        for _ in range(self.num_ops):
            change = _RAND[int(rng.integers(len(_RAND)))]
            image = change.make(
                image, change.magnitude(self.magnitude, self.num_magnitude_bins, rng, image.shape)
            )
        return image


@dataclass(frozen=True)
class TrivialAugmentWide(PixelTransform):
    """Make one change of a random strength, drawn from the list of RandAugment with wider ranges.

    Args:
        num_magnitude_bins: how many strengths there are.

    Raises:
        ConfigError, ConfigTypeError: a number is invalid.
    """

    num_magnitude_bins: int = 31
    moves_pixels = True

    def __post_init__(self) -> None:
        _check_bins(self.num_magnitude_bins)

    def paint(self, image: Pixels, rng: np.random.Generator) -> Pixels:
        """See PixelTransform."""
        change = _TRIVIAL[int(rng.integers(len(_TRIVIAL)))]
        bin_ = int(rng.integers(self.num_magnitude_bins))
        return change.make(image, change.magnitude(bin_, self.num_magnitude_bins, rng, image.shape))


def _check_bins(bins: Any) -> None:
    as_int("num_magnitude_bins", bins, low=2, remedy="It is how many strengths there are.")
