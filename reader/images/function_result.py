"""Check the results of the user's functions, and whether a list can continue with them.

Imports the transforms. Pure functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, got
from reader.images.erasing import RandomErasing
from reader.images.transform import PixelTransform, Size, ViewTransform

__all__ = ["call", "check_size", "has_size", "is_image", "own"]


def is_image(found: Any) -> bool:
    """Whether a function returned an image that the list can continue with."""
    return (
        isinstance(found, np.ndarray)
        and found.dtype == np.uint8
        and found.ndim == 3
        and found.shape[2] in (1, 3)
        and found.size > 0
    )


def call(found: Any, functions: list[Any], size: Size, keeps_size: bool) -> Any:
    """Call further functions with a result that is no image; return the last result.

    Args:
        found: the result of the first function.
        functions: the first function and those after it.
        size: of the image of the first function's argument.
        keeps_size: whether boxes, masks or points must fit the result.
    """
    for number, each in enumerate(functions):
        if isinstance(each, (ViewTransform, PixelTransform, RandomErasing)):
            raise ConfigError(
                f"{each} follows a function that returned {got(found)}, and needs an array of"
                " uint8, height x width x 1 or 3: put the function last"
            )
        found = each(found) if number else found
        if keeps_size:
            check_size(found, each, size)
    return found


def own(found: Any, transform: Any) -> npt.NDArray[Any]:
    """Return a copy of a function's result, which the function may have kept."""
    if not isinstance(found, np.ndarray) or found.ndim != 3:
        raise ConfigError(
            f"{transform} follows a function that returned {got(found)}, and needs an array of"
            " NumPy of 3 axes: put the function last"
        )
    return np.array(found)


def check_size(found: Any, function: Any, size: Size) -> None:
    """Raise ConfigError if a function changed the size of an image."""
    if not has_size(found, size, size):
        shape = tuple(getattr(found, "shape", getattr(found, "size", ())))
        raise ConfigError(
            f"{function} made {shape} of {size[0]} x {size[1]} pixels, and boxes, masks and points"
            " cannot follow it: keep the size"
        )


def has_size(found: Any, size: Size, default: Size) -> bool:
    """Whether an array, tensor or image of Pillow has a size; others count as of size `default`."""
    if isinstance(getattr(found, "height", None), int):
        return (found.height, found.width) == size
    shape = tuple(getattr(found, "shape", ()))
    return size in ((shape[:2], shape[-2:]) if len(shape) > 1 else (default,))
