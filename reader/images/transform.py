"""What a transform of images is: one that chooses a view, or one that changes pixels.

Imports `reader.images.view`. A transform never changes once it is made: any thread may use it, and
it can be pickled. Its random numbers come from the generator that it is given.
"""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, ConfigTypeError, got
from reader.images.view import MAX_PIXELS, Box, View, whole_numbers

__all__ = [
    "Box",
    "PixelTransform",
    "Pixels",
    "Size",
    "ViewTransform",
    "as_color",
    "as_pair",
    "as_sides",
    "as_size",
    "channel_numbers",
    "check_layout",
    "check_probability",
]

Pixels = npt.NDArray[np.uint8]  # height x width x channels
Size = tuple[int, int]  # height, width

_LAYOUTS = ("channels_last", "channels_first")


class ViewTransform(abc.ABC):
    """A transform that takes a part of an image, resizes it or turns it over.

    Several of them are one step: pixels are computed once, for the last view.

    Attributes:
        resizes: it may change the number of pixels of its part.
        fill: what is added where an image is framed: a number from 0 to 255, or one for each
            channel.
    """

    resizes = False
    fill: tuple[int, ...] = (0,)

    @abc.abstractmethod
    def change_view(self, view: View, rng: np.random.Generator, size: Size | None) -> None:
        """Change the view.

        Args:
            view: as the transforms before left it.
            rng: of the sample.
            size: (height, width) of the whole list's result; None: it has none.
        """

    def padding(self, height: int, width: int) -> Box:
        """Return how many rows and columns are added first: (above, left, below, right)."""
        del height, width
        return 0, 0, 0, 0


class PixelTransform(abc.ABC):
    """A transform that changes the pixels of an image."""

    moves_pixels = False  # boxes, masks and points would have to move, too

    @abc.abstractmethod
    def paint(self, image: Pixels, rng: np.random.Generator) -> Pixels:
        """Return the image that is changed: the very array, or another one."""


def as_size(size: Any) -> Size:
    """Return (height, width). ConfigError, ConfigTypeError: they are not two ints from 1."""
    height, width = whole_numbers("size", size, "(height, width)")
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        raise ConfigError(
            f"size={size} is no size of an image: pass (height, width), from 1 on and"
            f" {MAX_PIXELS:,} pixels at most"
        )
    return height, width


def as_sides(size: Any) -> Size:
    """As `as_size`, where one int stands for both, too."""
    return as_size((size, size) if hasattr(size, "__index__") else size)


def channel_numbers(value: Any) -> tuple[float, ...]:
    """Return a number, or one for each channel, as a tuple; () where it is something else."""
    try:
        return tuple(float(each) for each in np.atleast_1d(np.asarray(value, np.float64)))
    except (TypeError, ValueError):
        return ()


def as_color(name: str, color: Any) -> tuple[int, ...]:
    """Return a number from 0 to 255, or one for each channel, as a tuple.

    Raises:
        ConfigError: it is something else.
    """
    numbers = channel_numbers(color)
    found = tuple(int(each) for each in numbers) if np.isfinite(numbers).all() else ()
    if not found or min(found) < 0 or max(found) > 255:
        raise ConfigError(
            f"{name} must be a number from 0 to 255, or one for each channel, got {got(color)}"
        )
    return found


def as_pair(name: str, pair: Any) -> tuple[float, float]:
    """Return two numbers. ConfigTypeError: it is something else."""
    try:
        low, high = (float(each) for each in pair)
    except (TypeError, ValueError):
        raise ConfigTypeError(f"{name} must be (low, high), two numbers, got {got(pair)}") from None
    return low, high


def check_layout(layout: Any) -> None:
    """Raise ConfigError if it is no layout of an image."""
    if layout not in _LAYOUTS:
        raise ConfigError(f"layout must be one of {', '.join(_LAYOUTS)}, got {got(layout)}")


def check_probability(p: float) -> None:
    """Raise ConfigError if `p` is no probability."""
    if not 0 <= p <= 1:
        raise ConfigError(f"p must be a probability, from 0 to 1, got {p!r}")
