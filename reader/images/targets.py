"""The targets of an image: boxes, masks and points that follow its transforms.

Imports `reader.errors` and views. A Targets belongs to one image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, got
from reader.images.view import Axis, Box, View

__all__ = ["Targets"]


class Targets:
    """Boxes, masks and points of one image.

    Args:
        boxes: None, or N x 4 numbers: left, top, right and bottom, in pixels.
        masks: None, or an array of height x width, or N x height x width.
        points: None, or ... x 2 numbers: x and y, in pixels.
        height, width: of the image.

    Raises:
        ConfigError: they are of another form.
    """

    def __init__(self, boxes: Any, masks: Any, points: Any, height: int, width: int) -> None:
        self._of: dict[str, npt.NDArray[Any]] = {}
        for name, value, last in (("boxes", boxes, 4), ("points", points, 2)):
            if value is None:
                continue
            array = _as_array(value)
            if array.shape == (0,):
                array = array.reshape(0, last)
            if not array.ndim or array.shape[-1] != last or array.dtype.kind not in "iuf":
                raise ConfigError(
                    f"{name} must be numbers of ... x {last}, got {got(value)}"
                    f"{_remedy(array, value)}"
                )
            self._of[name] = array.astype(np.result_type(array.dtype, np.float32))
        if masks is not None:
            array = masks if isinstance(masks, np.ndarray) else _as_array(masks)
            if array.shape[-2:] != (height, width):
                has = array.shape or got(masks)
                raise ConfigError(
                    f"masks must be ... x {height} x {width}, as the image, got {has}"
                    f"{_remedy(array, masks)}"
                )
            self._of["masks"] = array

    def __bool__(self) -> bool:
        return bool(self._of)

    def frame(self, sides: Box) -> None:
        """Follow the padding of an image."""
        above, left, below, right = sides
        for name, array in self._of.items():
            if name == "masks":
                around = [(0, 0)] * (array.ndim - 2) + [(above, below), (left, right)]
                self._of[name] = np.pad(array, around)
            else:
                array += np.array([left, above] * (array.shape[-1] // 2), array.dtype)

    def follow(self, view: View) -> None:
        """Follow a view of the image.

        Boxes are cut off at its edges, and may be left without an area; points are not.
        """
        for name, array in self._of.items():
            if name == "masks":
                rows, columns = _inputs(view.rows), _inputs(view.columns)
                self._of[name] = array[..., rows[:, np.newaxis], columns]
                continue
            for first in range(0, array.shape[-1], 2):
                for place, axis in ((first, view.columns), (first + 1, view.rows)):
                    array[..., place] = axis.place_of(array[..., place])
            if name == "boxes":
                for low, axis in ((0, view.columns), (1, view.rows)):
                    sides = array[..., low::2]
                    array[..., low::2] = np.clip(np.sort(sides, axis=-1), 0, axis.size)

    def result(self) -> dict[str, npt.NDArray[Any]]:
        """Return the targets by name."""
        return self._of


def _as_array(value: Any) -> npt.NDArray[Any]:
    """Return a new array of a value; 0-d if it is no array."""
    try:
        return np.array(np.asarray(value))
    except (RuntimeError, TypeError, ValueError):  # rows of different lengths, or a tensor
        return np.array(None)


def _remedy(array: npt.NDArray[Any], value: Any) -> str:
    if array.dtype != object or not hasattr(value, "detach"):
        return ""
    return ": of a tensor pass it.detach().cpu(), of bfloat16 it.float()"


def _inputs(axis: Axis) -> npt.NDArray[np.int64]:
    """Return the image's pixel below the center of each of the view's pixels."""
    centers = axis.start + (np.arange(axis.size) + 0.5) * axis.length / axis.size
    inputs = np.clip(np.floor(centers).astype(np.int64), axis.low, axis.high - 1)
    return inputs[::-1] if axis.is_flipped else inputs
