"""Images turned over: left for right, or top for bottom, at random.

Imports the transform's bases. See `reader.images.transform`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reader.images.transform import Size, ViewTransform, check_chance
from reader.images.view import View

__all__ = ["RandomHorizontalFlip", "RandomVerticalFlip"]


@dataclass(frozen=True)
class RandomHorizontalFlip(ViewTransform):
    """Turn left and right over, with a probability.

    Args:
        p: the probability, from 0 to 1.

    Raises:
        ConfigError: `p` is none.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        check_chance(self.p)

    def change_view(self, view: View, rng: np.random.Generator, size: Size | None) -> None:
        """See ViewTransform."""
        del size
        view.columns.is_flipped ^= bool(rng.random() < self.p)


@dataclass(frozen=True)
class RandomVerticalFlip(ViewTransform):
    """Turn top and bottom over, with a probability.

    Args:
        p: the probability, from 0 to 1.

    Raises:
        ConfigError: `p` is none.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        check_chance(self.p)

    def change_view(self, view: View, rng: np.random.Generator, size: Size | None) -> None:
        """See ViewTransform."""
        del size
        view.rows.is_flipped ^= bool(rng.random() < self.p)
