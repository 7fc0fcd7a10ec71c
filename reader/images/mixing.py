"""Mix the images of a batch with each other: MixUp and CutMix.

Imports `reader.errors` and `reader.collate`; tensors are recognised by `sys.modules`. A mix never
changes once it is made; its random numbers come from the given generator. Sources: MixUp, arXiv
1710.09412; CutMix, arXiv 1905.04899.
"""

from __future__ import annotations

import abc
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from reader._core.collate.rows import Rows
from reader.checks import as_int
from reader.collate import Collate
from reader.errors import ConfigError, ConfigTypeError, got
from reader.images.transform import as_number, check_layout, check_rng

__all__ = ["CutMix", "MixUp"]

_OWN = {  # makes a tensor of an array, by library
    "torch": ("Tensor", "from_numpy"),
    "paddle": ("Tensor", "to_tensor"),
}


class _Mix(Collate, abc.ABC):
    """Base class of MixUp and CutMix."""

    def __init__(self, num_classes: int, alpha: float = 1.0, layout: str = "channels_last") -> None:
        num_classes = as_int(
            "num_classes", num_classes, low=1, remedy="It is how many classes there are."
        )
        alpha = as_number("alpha", alpha, "a number above 0")
        if not 0 < alpha < math.inf:
            raise ConfigError(f"alpha must be a number above 0, got {got(alpha)}")
        check_layout(layout)
        self.num_classes, self.alpha, self.layout = num_classes, alpha, layout

    def lay_out(self, samples: Sequence[Any]) -> Any:
        """Stack samples (image, number of the class) and mix them: a `collate_fn`.

        The batch has tensors if the images are tensors, or if the loader gives tensors. Random
        numbers are keyed by NumPy's global generator, which a loader with `seed=` seeds for each
        batch.
        """
        for sample in samples:
            if not isinstance(sample, (tuple, list)) or len(sample) != 2:
                raise ConfigTypeError(
                    f"{self} takes samples (image, number of the class), got {got(sample)}: pick"
                    " the two by dataset.map(), or call apply() in a collate_fn of your own"
                )
        each = [_as_array("images", image) for image, _ in samples]
        other = next((image for image in each if image.shape != each[0].shape), None)
        if other is not None:
            raise ConfigError(
                f"{self} takes images of one size, got {each[0].shape} and {other.shape}: give them"
                " one, such as ImageFolder(size=(224, 224))"
            )
        images, labels = np.stack(each), np.asarray([label for _, label in samples])
        rng = np.random.default_rng(np.random.randint(2**31, size=4))
        mixed, shares = self.apply(images, labels, rng)
        to_tensor = _to_tensor(samples[0][0])
        if to_tensor is not None:
            return to_tensor(mixed), to_tensor(shares)
        return Rows.joined([mixed]), Rows.joined([shares])

    def apply(
        self, images: Any, labels: Any, rng: np.random.Generator | None = None
    ) -> tuple[Any, Any]:
        """Mix a batch with itself, shifted by one image.

        Args:
            images: an array, or a tensor of torch or Paddle on the CPU: batch x height x width x
                channels, or x channels x height x width. It is mixed in place if it is writable.
            labels: the number of the class of each image, or batch x num_classes shares.
            rng: source of random numbers; None: a new one in each call.

        Returns:
            The images, and batch x num_classes shares of float32: both as tensors if the images are
            a tensor.

        Raises:
            ConfigError, ConfigTypeError: images or labels have another form.
        """
        batch, to_tensor = _as_array("images", images), _to_tensor(images)
        if batch.ndim != 4:
            raise ConfigTypeError(
                f"images must be an array of 4 axes, a batch, got {batch.shape} of {batch.dtype}"
            )
        here, there = (1, 3) if self.layout == "channels_first" else (3, 1)
        if batch.shape[here] not in (1, 3) and batch.shape[there] in (1, 3):
            raise ConfigError(
                f'images are {batch.shape}, which is no batch of layout="{self.layout}": pass'
                " layout= as the images have it"
            )
        check_rng(rng)
        if not batch.flags.writeable:
            batch = batch.copy()
        shares = self._shares(labels, len(batch))
        rng = rng or np.random.default_rng()
        part = self._mix(batch, float(rng.beta(self.alpha, self.alpha)), rng)
        mixed = np.roll(shares, 1, axis=0) * np.float32(1 - part) + shares * np.float32(part)
        return (batch, mixed) if to_tensor is None else (to_tensor(batch), to_tensor(mixed))

    @abc.abstractmethod
    def _mix(self, batch: npt.NDArray[Any], part: float, rng: np.random.Generator) -> float:
        """Mix in place; return the share of each image itself."""

    def _shares(self, labels: Any, count: int) -> npt.NDArray[np.float32]:
        array = _as_array("labels", labels)
        if array.shape == (count, self.num_classes) and array.dtype.kind == "f":
            return array.astype(np.float32)
        if array.shape != (count,) or array.dtype.kind not in "iu":
            raise ConfigError(
                f"labels must be {count} numbers of classes, or {count} x {self.num_classes}"
                f" shares, got {array.shape} of {array.dtype}"
            )
        if array.size and not 0 <= array.min() <= array.max() < self.num_classes:
            raise ConfigError(
                f"labels must be from 0 to {self.num_classes - 1}, got {array.min()} to"
                f" {array.max()}: raise num_classes"
            )
        shares = np.zeros((count, self.num_classes), np.float32)
        shares[np.arange(count), array] = 1
        return shares

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_classes}, {self.alpha}, {self.layout!r})"


class MixUp(_Mix):
    """Blend each image of a batch with the one before it, and their classes with it.

    Args:
        num_classes: how many classes there are.
        alpha: of the Beta distribution that the part of the image itself is drawn from.
        layout: of the images: "channels_last" or "channels_first".

    Raises:
        ConfigError, ConfigTypeError: an argument is invalid.
    """

    def _mix(self, batch: npt.NDArray[Any], part: float, rng: np.random.Generator) -> float:
        del rng
        whole = batch.dtype.kind in "iu"
        last = batch[-1:].copy()
        for number in range(len(batch) - 1, -1, -1):
            before = batch[number - 1] if number else last[0]
            mixed = batch[number] * np.float32(part) + before * np.float32(1 - part)
            batch[number] = np.floor(mixed + 0.5) if whole else mixed
        return part


class CutMix(_Mix):
    """Put a rectangle of the image before into each image of a batch; mix classes by its area.

    Args:
        num_classes: how many classes there are.
        alpha: of the Beta distribution that the part of the image itself is drawn from.
        layout: of the images: "channels_last" or "channels_first".

    Raises:
        ConfigError, ConfigTypeError: an argument is invalid.
    """

    def _mix(self, batch: npt.NDArray[Any], part: float, rng: np.random.Generator) -> float:
        planes = batch if self.layout == "channels_first" else batch.transpose(0, 3, 1, 2)
        height, width = planes.shape[2:]
        half = 0.5 * math.sqrt(1 - part)
        x, y = int(rng.integers(width)), int(rng.integers(height))
        rows, columns = int(half * height), int(half * width)
        top, bottom = max(0, y - rows), min(height, y + rows)
        left, right = max(0, x - columns), min(width, x + columns)
        box = planes[:, :, top:bottom, left:right]
        box[:] = np.roll(box, 1, axis=0)
        return 1.0 - float((bottom - top) * (right - left)) / float(height * width)


def _to_tensor(value: Any) -> Callable[[Any], Any] | None:
    """Return the function that makes an array a tensor like `value`; None: `value` is no tensor."""
    for library, (kind, make) in _OWN.items():
        module = sys.modules.get(library)
        if module is not None and isinstance(value, getattr(module, kind)):
            return cast(Callable[[Any], Any], getattr(module, make))
    return None


def _as_array(name: str, value: Any) -> npt.NDArray[Any]:
    """Return an array on the memory of an array or tensor. ConfigTypeError: that is impossible."""
    if isinstance(value, np.ndarray):
        return value
    try:
        return np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:  # a device, a gradient, or bfloat16
        raise ConfigTypeError(
            f"{name} must be an array, or a tensor on the CPU of a type that NumPy has, got"
            f" {got(value)}: pass it.detach().float().cpu()"
        ) from error
