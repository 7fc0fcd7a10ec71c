"""Rectangles of an image that are erased at random.

Imports `reader.errors`. See `reader.images.transform`.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, ConfigTypeError, got
from reader.images.transform import as_pair, channel_numbers, check_probability

__all__ = ["RandomErasing"]

_VALUE = 'a number, one for each of 3 channels, or "random"'


class RandomErasing:
    """Overwrite a random rectangle, with a probability, as torchvision's transform of this name.

    It works on the result, so it comes after `Normalize`.

    Args:
        p: the probability, from 0 to 1.
        scale: least and greatest area, as parts of the image's.
        ratio: least and greatest height / width.
        value: the written value: a number, one for each of 3 channels, or "random": normal
            deviates. In units of the result.

    Raises:
        ConfigError, ConfigTypeError: an argument is invalid.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: Any = 0,
    ) -> None:
        check_probability(p)
        self.p, self.scale, self.ratio = p, as_pair("scale", scale), as_pair("ratio", ratio)
        self.value = value
        if isinstance(value, Real):
            self.value = float(value)
        elif not isinstance(value, str):
            self.value = channel_numbers(value)
            if not self.value:
                raise ConfigTypeError(f"value must be {_VALUE}, got {got(value)}")
        if not 0 <= self.scale[0] <= self.scale[1] <= 1:
            raise ConfigError(f"scale must be (low, high) from 0 to 1, got {got(scale)}")
        if not 0 < self.ratio[0] <= self.ratio[1] < math.inf:
            raise ConfigError(f"ratio must be (low, high) above 0, got {got(ratio)}")
        if isinstance(value, str) and value != "random":
            raise ConfigError(f"value must be {_VALUE}, got {got(value)}")

    def check_dtype(self, dtype: np.dtype[Any]) -> None:
        """Raise ConfigError if the value does not fit into a result of this dtype."""
        if dtype == np.uint8 and (
            isinstance(self.value, str) or not 0 <= np.min(self.value) <= np.max(self.value) <= 255
        ):
            raise ConfigError(
                f"RandomErasing has the value {self.value!r}, and the result is uint8, from 0 to"
                " 255: pass another value, or a dtype of floats"
            )

    def erase(
        self, image: npt.NDArray[Any], rng: np.random.Generator, channels_first: bool
    ) -> None:
        """Overwrite a rectangle of the image in place."""
        if rng.random() >= self.p:
            return
        planes = image if channels_first else image.transpose(2, 0, 1)
        channels, height, width = planes.shape
        for _ in range(10):
            area = height * width * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            box_height, box_width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if box_height < height and box_width < width:
                top = int(rng.integers(height - box_height + 1))
                left = int(rng.integers(width - box_width + 1))
                shape = (channels, box_height, box_width)
                planes[:, top : top + box_height, left : left + box_width] = self._filling(
                    rng, shape
                )
                return

    def _filling(self, rng: np.random.Generator, shape: tuple[int, int, int]) -> Any:
        if isinstance(self.value, str):
            return rng.standard_normal(shape, np.float32)
        if isinstance(self.value, tuple):
            if len(self.value) not in (1, shape[0]):
                raise ConfigError(
                    f"RandomErasing has a value of {len(self.value)} channels, and the image has"
                    f" {shape[0]}: pass one number, or one for each channel"
                )
            return np.reshape(self.value, (-1, 1, 1))
        return self.value

    def __repr__(self) -> str:
        return f"RandomErasing({self.p}, {self.scale}, {self.ratio}, {self.value!r})"
