"""Find Pillow's libjpeg-turbo, which decodes parts of images.

Imports the core's Libjpeg, and PIL where a JPEG is read. Owns the opened library: it is opened once
in each process.
"""

from __future__ import annotations

import functools
from pathlib import Path

from reader._core.pixels.render import Libjpeg
from reader.errors import ConfigError
from reader.frameworks import pillow

__all__ = ["libjpeg"]


@functools.cache
def libjpeg() -> Libjpeg | None:
    """Return the library; None: there is no suitable one, and images are decoded whole."""
    try:
        site = Path(pillow.require_pillow().__file__).parents[1]
    except ConfigError:
        return None  # there is no Pillow
    beside = sorted((site / "pillow.libs").glob("libjpeg-*.so*"))  # in a wheel
    for path in (*beside, "libjpeg.so.62"):  # the second is for a distribution's Pillow
        try:
            return Libjpeg(str(path))
        except OSError:
            continue
    return None
