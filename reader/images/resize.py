"""Resize images.

Imports the transform's bases. See `reader.images.transform`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from reader.errors import ConfigError
from reader.images.transform import Size, ViewTransform, as_sides
from reader.images.view import View

__all__ = ["Resize"]


@dataclass(frozen=True)
class Resize(ViewTransform):
    """Make the shorter side a number of pixels long, or the image (height, width).

    Args:
        size: an int: the length of the shorter side, and the other one as torchvision rounds it;
            or (height, width).
        max_size: with an int: the longer side is no longer than that; None: any length.

    Raises:
        ConfigError, ConfigTypeError: a size is invalid.
    """

    size: int | Size
    max_size: int | None = None
    resizes = True

    def __post_init__(self) -> None:
        size: Any = self.size
        if isinstance(size, (list, tuple)) and len(size) == 1:
            (size,) = size  # torchvision's form
        sides = as_sides(size)
        size = operator.index(size) if hasattr(size, "__index__") else sides
        object.__setattr__(self, "size", size)
        if self.max_size is not None and (not isinstance(size, int) or self.max_size <= size):
            raise ConfigError(
                f"max_size must be above the shorter side, and goes with size=INT alone, got"
                f" size={self.size!r} and max_size={self.max_size!r}"
            )

    def change_view(self, view: View, rng: np.random.Generator, size: Size | None) -> None:
        """See ViewTransform."""
        del rng, size
        if not isinstance(self.size, int):
            view.resize(*as_sides(self.size))
            return
        short, long = sorted((view.height, view.width))
        new_short, new_long = self.size, int(self.size * long / short)
        if self.max_size is not None and new_long > self.max_size:
            new_short, new_long = int(self.max_size * new_short / new_long), self.max_size
        new_short = max(1, new_short)
        is_wide = view.width >= view.height
        view.resize(*((new_short, new_long) if is_wide else (new_long, new_short)))
