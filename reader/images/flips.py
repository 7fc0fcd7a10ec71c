"""Flip images at random: left for right, or top for bottom.

Imports the transform's bases. See `reader.images.transform`.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np

from reader.images.transform import Size, ViewTransform, check_probability
from reader.images.view import Axis, View

__all__ = ["RandomHorizontalFlip", "RandomVerticalFlip"]


@dataclass(frozen=True)
class _RandomFlip(ViewTransform):
    """Base class of both flips."""

    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.p)

    def change_view(self, view: View, rng: np.random.Generator, size: Size | None) -> None:
        """See ViewTransform."""
        del size
        self._axis(view).is_flipped ^= bool(rng.random() < self.p)

    @abc.abstractmethod
    def _axis(self, view: View) -> Axis:
        """Return the axis to flip."""


class RandomHorizontalFlip(_RandomFlip):
    """Flip left and right, with a probability.

    Args:
        p: the probability, from 0 to 1.

    Raises:
        ConfigError: `p` is no probability.
    """

    def _axis(self, view: View) -> Axis:
        return view.columns


class RandomVerticalFlip(_RandomFlip):
    """Flip top and bottom, with a probability.

    Args:
        p: the probability, from 0 to 1.

    Raises:
        ConfigError: `p` is no probability.
    """

    def _axis(self, view: View) -> Axis:
        return view.rows
