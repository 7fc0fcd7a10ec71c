"""Normalize pixels for a network: floats of mean 0 and deviation 1.

Imports the transform's helpers. A Normalize never changes once it is made.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, ConfigTypeError, got
from reader.images.transform import channel_numbers

__all__ = ["Normalize", "as_dtype", "number_table"]

_DTYPES = ("uint8", "uint16", "float16", "bfloat16", "float32", "float64")


class Normalize:
    """Make floats of pixels: (value / 255 - mean) / std, in each channel.

    The numbers are those of torchvision's ToTensor and Normalize, bit by bit, for float32.

    Args:
        mean, std: of values from 0 to 1: a number for each of 3 channels, or one for all.

    Raises:
        ConfigError, ConfigTypeError: an argument is no number, or `std` is 0.
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        self.mean, self.std = _numbers("mean", mean), _numbers("std", std)
        if 0 in np.array(self.std, np.float32):
            raise ConfigError(f"std must not be 0, which it is as float32, got {got(std)}")

    def __repr__(self) -> str:
        return f"Normalize({self.mean}, {self.std})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Normalize) and (self.mean, self.std) == (other.mean, other.std)

    def __hash__(self) -> int:
        return hash((self.mean, self.std))


@functools.lru_cache(maxsize=64)
def number_table(
    normalize: Normalize | None, dtype: np.dtype[Any], channels: int
) -> npt.NDArray[Any] | None:
    """Return the value of each number of a pixel, channels x 256; None: the number itself.

    Without a `normalize` floats are from 0 to 1, as torchvision's ToTensor makes them,
    and those of uint16 from 0 to 65535.

    Raises:
        ConfigError: `normalize` is for another number of channels.
    """
    if dtype == np.uint8:
        return None
    if dtype == np.uint16:
        whole = np.tile(np.arange(256, dtype=np.uint16) * np.uint16(257), (channels, 1))
        whole.setflags(write=False)
        return whole
    numbers = np.tile(np.arange(256, dtype=np.float32) / np.float32(255), (channels, 1))
    if normalize is not None:
        for name, given in (("mean", normalize.mean), ("std", normalize.std)):
            if len(given) not in (1, channels):
                raise ConfigError(
                    f"Normalize has a {name} of {len(given)} channels, and the image has"
                    f" {channels}: pass one number, or one for each channel"
                )
        numbers -= np.array(normalize.mean, np.float32).reshape(-1, 1)
        numbers /= np.array(normalize.std, np.float32).reshape(-1, 1)
    found = np.ascontiguousarray(numbers.astype(dtype))
    found.setflags(write=False)  # shared by many images
    return found


def as_dtype(dtype: Any, normalize: Normalize | None) -> np.dtype[Any]:
    """Return the dtype of the result. ConfigError: it is invalid."""
    if dtype is None:
        return np.dtype(np.uint8 if normalize is None else np.float32)
    name = str(dtype).removeprefix("torch.").removeprefix("paddle.")
    if name not in _DTYPES:
        with contextlib.suppress(TypeError):
            name = np.dtype(dtype).name
    if name not in _DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(_DTYPES)}, got {got(dtype)}")
    if name in ("uint8", "uint16") and normalize is not None:
        raise ConfigError(f'{normalize} makes floats, and dtype is "{name}": leave one of them out')
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as error:
            raise ConfigError(
                f'dtype="bfloat16" needs ml_dtypes, which cannot be imported: {error}. Run: pip'
                " install ml_dtypes"
            ) from error
        dtype = ml_dtypes.bfloat16
    else:
        dtype = name
    found: np.dtype[Any] = np.dtype(dtype)
    return found


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    found = channel_numbers(value)
    if not found or not np.isfinite(found).all():
        raise ConfigTypeError(
            f"{name} must be a number, or one for each of 3 channels, got {got(value)}"
        )
    return found
