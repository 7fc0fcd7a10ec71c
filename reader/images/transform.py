"""What a transform of images is: one that chooses a view, or one that changes pixels.

Imports `reader.images.view`. A transform never changes once it is made: any thread may use it, and
it can be pickled. Its random numbers come from the generator that it is given.
"""

from __future__ import annotations

import abc
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import as_int
from reader.errors import ConfigError, ConfigTypeError, got
from reader.images.view import MAX_PIXELS, Box, View, whole_numbers

__all__ = [
    "Box",
    "PixelTransform",
    "Pixels",
    "Size",
    "ViewTransform",
    "as_color",
    "as_max_pixels",
    "as_number",
    "as_pair",
    "as_sides",
    "as_size",
    "channel_numbers",
    "check_layout",
    "check_probability",
    "check_rng",
]

Pixels = npt.NDArray[np.uint8]  # height x width x channels
Size = tuple[int, int]  # height, width

_LAYOUTS = ("channels_last", "channels_first")
_CHANNELS = (1, 3)  # that an image may have


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


def as_max_pixels(value: Any) -> int:
    """Return a limit on pixels. ConfigError, ConfigTypeError: it is no whole number from 1 on."""
    return as_int("max_pixels", value, low=1, remedy="It is the most pixels of a file.")


def as_sides(size: Any) -> Size:
    """As `as_size`, where one int stands for both, too."""
    return as_size((size, size) if hasattr(size, "__index__") else size)


def channel_numbers(value: Any) -> tuple[float, ...]:
    """Return a number, or one for each of 3 channels, as a tuple; () where it is something else."""
    try:
        found = tuple(float(each) for each in np.atleast_1d(np.asarray(value, np.float64)))
    except (TypeError, ValueError):
        return ()
    return found if len(found) in _CHANNELS else ()


def as_color(name: str, color: Any) -> tuple[int, ...]:
    """Return a whole number from 0 to 255, or one for each channel, as a tuple.

    Raises:
        ConfigError: it is something else.
    """
    numbers = channel_numbers(color)
    found = tuple(int(each) for each in numbers) if np.isfinite(numbers).all() else ()
    if not found or found != numbers or min(found) < 0 or max(found) > 255:
        raise ConfigError(
            f"{name} must be a whole number from 0 to 255, or one for each of 3 channels, got"
            f" {got(color)}"
        )
    return found


def as_number(name: str, value: Any, meaning: str) -> float:
    """Return a number as a float. ConfigTypeError: it is none; `meaning` says what it should be."""
    if not isinstance(value, Real):
        raise ConfigTypeError(f"{name} must be {meaning}, got {got(value)}")
    return float(value)


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


def check_rng(rng: Any) -> None:
    """Raise ConfigTypeError if it is neither a Generator nor None."""
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise ConfigTypeError(
            f"rng must be a numpy.random.Generator or None, got {got(rng)}: pass"
            " reader.sample_rng(index), or numpy.random.default_rng(seed)"
        )


def check_probability(p: Any) -> None:
    """Raise ConfigError or ConfigTypeError if `p` is no probability."""
    if not 0 <= as_number("p", p, "a probability, from 0 to 1") <= 1:
        raise ConfigError(f"p must be a probability, from 0 to 1, got {p!r}")
