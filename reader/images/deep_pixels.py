"""Render views of pixels of more than 8 bits: grey, of 16 bits or floats.

Imports the core's render and the Pillow adapter, not the views that it renders: these import it.
Keeps no state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reader._core.pixels.render import render
from reader.errors import ImageError
from reader.frameworks import pillow

__all__ = ["render_deep"]


def render_deep(
    pixels: npt.NDArray[Any],
    view: Any,
    out: npt.NDArray[Any],
    table: npt.NDArray[Any] | None,
    channels_first: bool,
) -> None:
    """Render a view of pixels of more than 8 bits. See `Image.render`.

    `pixels` are height x width x 1: of uint16, where 65535 is white, or of float32, where 1 is. Of
    the table the first and the last numbers are used: those of black and white.

    Raises:
        ImageError: numbers are outside of the range of `out`.
    """
    white = 1 if pixels.dtype == np.float32 else 0xFFFF
    channels = out.shape[0 if channels_first else 2]
    rows, columns = view.rows, view.columns
    flips = rows.is_flipped, columns.is_flipped
    try:
        if table is None:
            few = np.repeat(pillow.eight_bits(pixels, white), channels, axis=2)
            render(few, rows.scaled(1), columns.scaled(1), out, None, flips, channels_first)
            return
        part = _resized(pixels[rows.low : rows.high, columns.low : columns.high, 0], view)
        part = part[:: -1 if flips[0] else 1, :: -1 if flips[1] else 1]
        is_whole = np.issubdtype(table.dtype, np.integer)
        if is_whole:
            pillow.check_range(part, white)
            part = np.clip(part, 0, white)
        share = part.astype(np.float64 if table.dtype == np.float64 else np.float32) / white
    except pillow.ColorsError as error:
        raise ImageError(f"{view.name} {error}, or leave it out of the dataset") from error
    for channel in range(channels):
        black, full = (table[channel, number].astype(share.dtype) for number in (0, 255))
        found = black + share * (full - black)
        target = out[channel] if channels_first else out[:, :, channel]
        target[...] = np.rint(found) if is_whole else found


def _resized(part: npt.NDArray[Any], view: Any) -> npt.NDArray[Any]:
    """Return the pixels that a view may read, resized by Pillow's bilinear filter."""
    if not view.is_resized:
        return part
    sides: list[tuple[float, float]] = []
    for axis, most in ((view.columns, part.shape[1]), (view.rows, part.shape[0])):
        start = max(0.0, axis.start - axis.low)
        sides.append((start, min(float(most), start + axis.length)))
    box = sides[0][0], sides[1][0], sides[0][1], sides[1][1]
    image_module = pillow.require_pillow()
    image = image_module.fromarray(np.ascontiguousarray(part, np.float32))
    size = view.width, view.height
    return np.asarray(image.resize(size, image_module.Resampling.BILINEAR, box))
