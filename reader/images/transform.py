"""What a transform of images is: one that chooses a view, or one that changes pixels.

Imports `reader.images.view`. A transform never changes once it is made: any thread may use it, and
it can be pickled. Its random numbers come from the generator that it is given.
"""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError
from reader.images.view import Box, View, whole_numbers

__all__ = [
    "Box",
    "PixelTransform",
    "Pixels",
    "Size",
    "ViewTransform",
    "as_sides",
    "as_size",
    "check_chance",
]

Pixels = npt.NDArray[np.uint8]  # height x width x channels
Size = tuple[int, int]  # height, width

MAX_PIXELS = 2**27  # a header that claims more is damaged, or made to use memory up


class ViewTransform(abc.ABC):
    """A transform that takes a part of an image, resizes it or turns it over.

    Several of them are one step: pixels are computed once, for the last view.

    Attributes:
        resizes: it may change the number of pixels of its part.
        fill: what is added where an image is framed: a number from 0 to 255, or one for each
            channel.
    """

    resizes = False
    fill: int | tuple[int, ...] = 0

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


def check_chance(p: float) -> None:
    """Raise ConfigError if `p` is no probability."""
    if not 0 <= p <= 1:
        raise ConfigError(f"p must be a probability, from 0 to 1, got {p!r}")
