"""An image in an array, with the methods of an image in a file.

Imports the view. Keeps a reference to the array, which is not changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, ConfigTypeError, got
from reader.images.view import Image, View, render_view

__all__ = ["ArrayImage"]


class ArrayImage(Image):
    """An array of pixels.

    Args:
        pixels: uint8, height x width x channels, 1 or 3 of them, or height x width.
        name: of the image, for messages.
        channels: of the result, of deep pixels, see `render_deep`; 0: these are not.

    Raises:
        ConfigError, ConfigTypeError: it is no such array.
    """

    def __init__(self, pixels: Any, name: str = "an array", channels: int = 0) -> None:
        if not isinstance(pixels, np.ndarray):
            raise ConfigTypeError(
                "an image must be an array of NumPy, the path of a file, or its content as bytes,"
                f" got {got(pixels)}"
            )
        if pixels.ndim == 2:
            pixels = pixels[:, :, np.newaxis]
        is_image = pixels.ndim == 3 and pixels.shape[2] in (1, 3) and pixels.size
        if not is_image or (pixels.dtype != np.uint8 and not channels):
            raise ConfigError(
                "an image must be an array of uint8, height x width x channels, with 1 or 3"
                f" channels, got {pixels.shape} of {pixels.dtype}"
            )
        self.pixels: npt.NDArray[Any] = np.ascontiguousarray(pixels)
        self.name = name
        self.height, self.width, found = self.pixels.shape
        self.channels = channels or found

    def render(
        self,
        view: View,
        out: npt.NDArray[Any],
        table: npt.NDArray[Any] | None = None,
        channels_first: bool = False,
    ) -> None:
        """Render a view."""
        render_view(self.pixels, view, 1, out, table, channels_first)
