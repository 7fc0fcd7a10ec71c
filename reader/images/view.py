"""A view of an image: the part that is taken, its size in the result, and its flips.

Imports the core's render. A view belongs to one result: transforms crop, resize and flip it, and
nothing is computed before the pixels are rendered.
"""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import numpy.typing as npt

from reader._core.pixels.render import render
from reader.errors import ConfigError, ConfigTypeError, got
from reader.images.deep_pixels import render_deep

__all__ = ["MAX_PIXELS", "Axis", "Box", "Image", "View", "render_view", "whole_numbers"]

Box = tuple[int, int, int, int]  # top, left, height, width
MAX_PIXELS = 2**27  # of a file unless the user says otherwise, and of a result


class Axis:
    """The rows or the columns of a view.

    Attributes:
        full: how many pixels the image has.
        start, length: the part of the image, in its pixels, which may be fractions.
        low, high: pixels outside of low to high - 1 do not affect the result, unless a JPEG is
            decoded smaller: see `decode`.
        size: the part's pixels in the result.
        is_flipped: whether they come in reverse order.
        is_resized: whether size is, or was, different from the number of the image's pixels.
    """

    def __init__(self, size: int) -> None:
        self.full = size
        self.start: float = 0
        self.length: float = size
        self.low, self.high = 0, size
        self.size = size
        self.is_flipped = self.is_resized = False

    def crop(self, first: int, count: int) -> None:
        """Take `count` of the view's current pixels, from number `first` on."""
        if self.is_flipped:
            first = self.size - first - count
        if self.is_resized:
            step = self.length / self.size
            self.start += first * step
            self.length = count * step
        else:
            self.start += first
            self.length = count
            self.low, self.high = int(self.start), int(self.start) + count
        self.size = count

    def resize(self, size: int) -> None:
        """Resize the part to `size` pixels."""
        self.is_resized |= size != self.size
        self.size = size

    @property
    def is_whole(self) -> bool:
        """Whether all pixels are taken unchanged."""
        return not (self.is_flipped or self.is_resized) and self.size == self.full

    def place_of(self, inside: Any) -> Any:
        """Return the place in the view of a place in the image: 0 at the view's beginning."""
        place = (inside - self.start) * self.size / self.length
        return self.size - place if self.is_flipped else place

    def scaled(self, factor: int) -> tuple[float, float, int, int]:
        """Return start, length, low and high in pixels of an image of 1/factor of the size."""
        low, high = self.low // factor, -(-self.high // factor)
        return self.start / factor, self.length / factor, low, high


class View:
    """The part, size and flips of one image.

    Args:
        height, width: of the image, in pixels.
        name: of the image, for messages.
    """

    def __init__(self, height: int, width: int, name: str = "an image") -> None:
        self.name = name
        self.rows, self.columns = Axis(height), Axis(width)

    @property
    def height(self) -> int:
        """The height of the result, in pixels."""
        return self.rows.size

    @property
    def width(self) -> int:
        """The width of the result, in pixels."""
        return self.columns.size

    @property
    def is_resized(self) -> bool:
        """Whether pixels of the result are means of several of the image."""
        return self.rows.is_resized or self.columns.is_resized

    @property
    def factor(self) -> int:
        """8, 4, 2 or 1: the image at 1/factor of its size is still larger than the view."""
        least = min(self.rows.length / self.height, self.columns.length / self.width)
        return next(factor for factor in (8, 4, 2, 1) if factor == 1 or least >= factor)

    @property
    def is_whole(self) -> bool:
        """Whether it shows all of the image unchanged."""
        return self.rows.is_whole and self.columns.is_whole

    def crop(self, top: int, left: int, height: int, width: int) -> None:
        """Take a box, in pixels of the current view."""
        self.rows.crop(top, height)
        self.columns.crop(left, width)

    def resize(self, height: int, width: int) -> None:
        """Resize the view to `height` x `width` pixels.

        Raises:
            ConfigError: the size exceeds the limit of an image.
        """
        if height * width > MAX_PIXELS:
            raise ConfigError(
                f"{self.name}, {self.height} x {self.width} pixels here, would become {height} x"
                f" {width}, and {MAX_PIXELS:,} pixels is the limit: crop it first, or pass a"
                " smaller size"
            )
        self.rows.resize(height)
        self.columns.resize(width)

    def checked_box(self, box: Any) -> Box:
        """Return a box as four ints.

        Raises:
            ConfigError, ConfigTypeError: it is no box, or does not lie within the view.
        """
        top, left, height, width = whole_numbers("crop", box, "(top, left, height, width)")
        is_inside = 0 <= top <= self.height - height and 0 <= left <= self.width - width
        if not is_inside or height < 1 or width < 1:
            raise ConfigError(
                f"crop={box} does not lie within {self.name}, which has {self.height} x"
                f" {self.width} pixels: crop is (top, left, height, width) in its pixels"
            )
        return top, left, height, width


class Image(abc.ABC):
    """An image whose pixels are made when a view of it is rendered.

    Attributes:
        name: for messages.
        height, width: in pixels.
        channels: 1 or 3.
    """

    name: str
    height: int
    width: int
    channels: int

    def view(self) -> View:
        """Return a view of all of the image."""
        return View(self.height, self.width, self.name)

    @abc.abstractmethod
    def render(
        self,
        view: View,
        out: npt.NDArray[Any],
        table: npt.NDArray[Any] | None = None,
        channels_first: bool = False,
    ) -> None:
        """Render a view.

        Args:
            view: of this image.
            out: height x width x channels, or with `channels_first` channels x height x width.
            table: the value of each number, channels x 256 of the type of `out`; None: the number
                itself.
            channels_first: how `out` is laid out.

        Raises:
            ImageError: its file is damaged or cut off.
        """


def render_view(
    pixels: npt.NDArray[Any],
    view: View,
    factor: int,
    out: npt.NDArray[Any],
    table: npt.NDArray[Any] | None,
    channels_first: bool,
) -> None:
    """Render a view from pixels at 1/`factor` of the image's size: uint8, or see `render_deep`."""
    if pixels.dtype != np.uint8:
        render_deep(pixels, view, out, table, channels_first)
        return
    flips = view.rows.is_flipped, view.columns.is_flipped
    rows, columns = view.rows.scaled(factor), view.columns.scaled(factor)
    render(pixels, rows, columns, out, table, flips, channels_first)


def whole_numbers(name: str, numbers: Any, form: str) -> tuple[int, ...]:
    """Return the ints of `numbers`. ConfigTypeError: they are not of the form `form`."""
    try:
        found = tuple(number.__index__() for number in numbers)
    except (TypeError, AttributeError):
        found = ()
    if len(found) != form.count(",") + 1:
        raise ConfigTypeError(f"{name} must be {form}, whole numbers of pixels, got {got(numbers)}")
    return found
