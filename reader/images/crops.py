"""Crops of an image: a box at its center, or a random one.

Imports the transform's bases. See `reader.images.transform`. `CenterCrop` and `RandomResizedCrop`
may also be called with a height, a width and a generator, and return their box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from reader.errors import ConfigError, ConfigTypeError, got
from reader.images.transform import (
    Box,
    Size,
    ViewTransform,
    as_color,
    as_number,
    as_pair,
    as_sides,
)
from reader.images.view import View

__all__ = ["CenterCrop", "CropBy", "RandomCrop", "RandomResizedCrop"]


@dataclass(frozen=True)
class CenterCrop(ViewTransform):
    """A box at the center of an image: of a size, or as large as its aspect ratio allows.

    An image that is smaller than `size` is framed in black first, as by torchvision.

    Args:
        size: (height, width) in pixels, or one number for both, as torchvision's. A number up to 1
            is taken as `part`. None: the box is the largest of the `ratio`, or a part of it, and is
            resized to the size of the whole list.
        part: of that box's height and width, above 0 and up to 1. None: 224 / 256, the usual test
            crop: 224 pixels of a short side of 256.
        ratio: width / height of the box; unused with a size.

    Raises:
        ConfigError, ConfigTypeError: `size`, `part` or `ratio` cannot be.

    >>> CenterCrop()(256, 512)
    (16, 144, 224, 224)
    >>> CenterCrop(224)(256, 512)
    (16, 144, 224, 224)
    """

    size: float | Size | None = None
    part: float = 0.875
    ratio: float = 1.0

    def __init__(
        self, size: float | Size | None = None, part: float | None = None, ratio: float = 1.0
    ) -> None:
        sides: Any = size
        is_part = isinstance(sides, Real) and (not hasattr(sides, "__index__") or sides <= 1)
        if is_part:  # it was the first argument once, followed by the ratio
            sides, part, ratio = None, sides, ratio if part is None else part
        part = 0.875 if part is None else as_number("part", part, "above 0 and at most 1")
        if not 0 < part <= 1:
            raise ConfigError(f"part must be above 0 and at most 1, got {part}")
        _check_ratio(ratio)
        object.__setattr__(self, "size", None if sides is None else as_sides(sides))
        object.__setattr__(self, "part", part)
        object.__setattr__(self, "ratio", ratio)

    def __call__(self, height: int, width: int, rng: object = None, /) -> Box:
        """Return (top, left, height, width) within an image of `height` x `width` pixels."""
        del rng  # used only by random crops
        if self.size is None:
            return _centered(height, width, self.part, self.ratio)
        box_height, box_width = as_sides(self.size)
        box_height, box_width = min(height, box_height), min(width, box_width)
        top, left = round((height - box_height) / 2), round((width - box_width) / 2)
        return top, left, box_height, box_width

    @property
    def resizes(self) -> bool:  # type: ignore[override]
        """See ViewTransform."""
        return self.size is None

    def padding(self, height: int, width: int) -> Box:
        """See ViewTransform."""
        if self.size is None:
            return 0, 0, 0, 0
        box_height, box_width = as_sides(self.size)
        above, left = max(0, box_height - height), max(0, box_width - width)
        return above // 2, left // 2, (above + 1) // 2, (left + 1) // 2

    def change_view(self, view: View, rng: np.random.Generator, size: Size | None) -> None:
        """See ViewTransform."""
        view.crop(*view.checked_box(self(view.height, view.width, rng)))
        if self.size is None and size is not None:
            view.resize(*size)


class RandomResizedCrop(ViewTransform):
    """A random box, resized; area, aspect ratio and place are drawn as by torchvision.

    The area is uniform, the aspect ratio uniform in its logarithm. After ten boxes that do not fit
    into the image, it is the largest box at the center whose ratio is allowed.

    Args:
        size: (height, width) that the box is resized to, or one number for both; None: the size of
            the whole list. Two numbers up to 1 are taken as `scale`, so (1, 1) is no size of one
            pixel: that is 1.
        scale: least and greatest area, as parts of the image's; None: 0.08 to 1.
        ratio: least and greatest width / height.

    Raises:
        ConfigError, ConfigTypeError: a size or a range is invalid.

    >>> RandomResizedCrop(scale=(1, 1), ratio=(2, 2))(30, 60, np.random.default_rng(0))
    (0, 0, 30, 60)
    """

    resizes = True

    def __init__(
        self,
        size: int | tuple[float, float] | None = None,
        scale: tuple[float, float] | None = None,
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> None:
        sides: Any = size
        is_scale = isinstance(sides, (tuple, list)) and (
            any(not hasattr(side, "__index__") for side in sides) or max(sides, default=0) <= 1
        )
        if is_scale:  # it was the first argument once, followed by the ratio
            sides, scale, ratio = None, sides, ratio if scale is None else scale
        scale = (0.08, 1.0) if scale is None else scale
        self.size = None if sides is None else as_sides(sides)
        self.scale, self.ratio = as_pair("scale", scale), as_pair("ratio", ratio)
        low, high = self.scale
        if not 0 < low <= high <= 1:
            raise ConfigError(f"scale must be (low, high) above 0 and up to 1, got {scale}")
        least, greatest = self.ratio
        _check_ratio(least)
        _check_ratio(greatest)
        if least > greatest:
            raise ConfigError(f"ratio must be (low, high), got {ratio}")

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

    def change_view(self, view: View, rng: np.random.Generator, size: Size | None) -> None:
        """See ViewTransform."""
        view.crop(*view.checked_box(self(view.height, view.width, rng)))
        target = self.size or size
        if target is not None:
            view.resize(*target)

    def __repr__(self) -> str:
        return f"RandomResizedCrop({self.size}, scale={self.scale}, ratio={self.ratio})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RandomResizedCrop) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.size, self.scale, self.ratio))


class RandomCrop(ViewTransform):
    """A box of a fixed size at a random place; the image may be padded first.

    Args:
        size: (height, width) in pixels, or one number for both.
        padding: rows and columns that are added on each side first: one number, (left and right,
            above and below), or (left, above, right, below), as torchvision's.
        pad_if_needed: pad an image that is smaller than `size`; otherwise that is an error.
        fill: the padding's color: a number from 0 to 255, or one for each channel.

    Raises:
        ConfigError, ConfigTypeError: a size or a padding is invalid.
    """

    def __init__(
        self,
        size: int | Size,
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: int | Sequence[int] = 0,
    ) -> None:
        self.size = as_sides(size)
        self.pad_if_needed = bool(pad_if_needed)
        self.fill = as_color("fill", fill)
        self._padding = _padding(padding)

    def padding(self, height: int, width: int) -> Box:
        """See ViewTransform."""
        above, left, below, right = self._padding
        if self.pad_if_needed:
            rows = max(0, self.size[0] - (height + above + below))
            columns = max(0, self.size[1] - (width + left + right))
            above, below, left, right = above + rows, below + rows, left + columns, right + columns
        return above, left, below, right

    def change_view(self, view: View, rng: np.random.Generator, size: Size | None) -> None:
        """See ViewTransform. ConfigError: the image is smaller."""
        del size
        height, width = self.size
        if height > view.height or width > view.width:
            raise ConfigError(
                f"RandomCrop({height}, {width}) does not fit into {view.name}, which has"
                f" {view.height} x {view.width} pixels: resize it first, or pass padding= or"
                " pad_if_needed=True"
            )
        top = int(rng.integers(view.height - height + 1))
        left = int(rng.integers(view.width - width + 1))
        view.crop(top, left, height, width)

    def __repr__(self) -> str:
        return f"RandomCrop({self.size}, {self._padding}, {self.pad_if_needed}, {self.fill})"


class CropBy(ViewTransform):
    """A box that a function of the user's chooses; it is resized to the size of the whole list.

    Args:
        crop: called with height, width and a generator; returns (top, left, height, width).
    """

    resizes = True
    is_pure = False

    def __init__(self, crop: Callable[[int, int, np.random.Generator], Box]) -> None:
        self.crop = crop

    def change_view(self, view: View, rng: np.random.Generator, size: Size | None) -> None:
        """See ViewTransform. ConfigError, ConfigTypeError: it returned no box of the image."""
        view.crop(*view.checked_box(self.crop(view.height, view.width, rng)))
        if size is not None:
            view.resize(*size)

    def __repr__(self) -> str:
        return f"CropBy({self.crop!r})"


def _centered(height: int, width: int, part: float, ratio: float) -> Box:
    """Return the largest box of a ratio at the center, or a part of it."""
    box_height = min(height, max(1, round(part * min(height, width / ratio))))
    box_width = min(width, max(1, round(part * min(width, height * ratio))))
    return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width


def _check_ratio(ratio: Any) -> None:
    if not 0 < as_number("ratio", ratio, "width / height, above 0") < math.inf:
        raise ConfigError(f"ratio must be width / height, above 0, got {ratio}")


def _padding(padding: Any) -> Box:
    """Return torchvision's argument as (above, left, below, right)."""
    try:
        given = (0,) if padding is None else np.atleast_1d(np.asarray(padding)).tolist()
        sides: tuple[int, ...] = tuple(side.__index__() for side in given)
        left, above, right, below = {1: sides * 4, 2: sides * 2, 4: sides}[len(sides)]
    except (TypeError, AttributeError, KeyError):
        raise ConfigTypeError(
            "padding must be one number of pixels, (left and right, above and below), or (left,"
            f" above, right, below), got {got(padding)}"
        ) from None
    if min(sides) < 0:
        raise ConfigError(f"padding must be 0 or more pixels, got {padding}")
    return above, left, below, right
