"""Handwritten digits: the images, how they are split, and the dataset that shifts them at random.

The 1797 images come with scikit-learn (no download): 8 x 8 pixels from the UCI collection of
optical recognition of handwritten digits. Imports numpy and `reader`; scikit-learn when asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import reader

__all__ = ["PIXELS", "DigitImages", "Split", "load"]

PIXELS = 8
TEST_IMAGES = 360
_SPLIT_SEED = 0  # the test images do not depend on the seed of a run

Sample = tuple[NDArray[np.float32], np.int64]


@dataclasses.dataclass(frozen=True)
class Split:
    """Images of shape (n, 8, 8) with values in [0, 1], and their labels, 0 to 9."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def load() -> tuple[Split, Split]:
    """Return the training set (1437 images) and the test set (360)."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    digits: Any = load_digits()
    images = (digits.images / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return Split(images[train], labels[train]), Split(images[test], labels[test])


class DigitImages(reader.Dataset[Sample]):
    """Yields (image of shape (1, 8, 8), label); to train on, shifted by up to a pixel each way.

    Args:
        split: the images.
        rng_of: index -> the generator that the shift is drawn from; None: images are not shifted.
            `reader.sample_rng` makes an image the same for any number of workers.
    """

    def __init__(
        self, split: Split, rng_of: Callable[[int], np.random.Generator] | None = None
    ) -> None:
        self.labels = split.labels
        self.rng_of = rng_of
        self.padded = np.pad(split.images[:, None], ((0, 0), (0, 0), (1, 1), (1, 1)))

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        """Return one sample; its image is a view, which the loader copies once, into its batch."""
        top, left = (1, 1) if self.rng_of is None else self.rng_of(index).integers(0, 3, 2)
        image = self.padded[index, :, top : top + PIXELS, left : left + PIXELS]
        return image, self.labels[index]
