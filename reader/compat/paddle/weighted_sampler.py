"""The weighted sampler of `paddle.io`: its rules and texts, and its draws, bit for bit.

Imports paddle and `reader.data.weighted_sampler`. It draws from the global generator of NumPy,
which belongs to the user, when the first index is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle.io

from reader.compat.paddle.errors import ArgumentError
from reader.data.sampler import in_chunks
from reader.data.weighted_sampler import as_weights
from reader.errors import ConfigError, got

__all__ = ["WeightedRandomSampler"]


class WeightedRandomSampler(paddle.io.WeightedRandomSampler):
    """Yield indices drawn with the given weights, by `numpy.random.choice`.

    Args:
        weights: *shape* (n,), or (rows, n): `num_samples` indices are drawn for each row in turn,
            by the weights of that row. A list, an array or a tensor on the CPU.
        num_samples: how many indices to draw for each row.
        replacement: whether an index may come again within its row.

    Raises:
        ConfigError: (a ValueError) num_samples or replacement is wrong.

    While iterating: ArgumentError (an AssertionError) for weights that cannot be drawn from.
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True) -> None:
        if not isinstance(num_samples, int) or num_samples <= 0:
            raise ConfigError(
                f"num_samples should be a positive integer: got {got(num_samples)}. Draw one or"
                " more."
            )
        if not isinstance(replacement, bool):
            raise ConfigError(
                f"replacement should be a boolean value: got {got(replacement)}. Pass True or"
                " False."
            )
        self.weights = weights
        self.num_samples = num_samples
        self.replacement = replacement

    def __iter__(self) -> Iterator[int]:
        rows = _checked_rows(as_weights(self.weights), self.num_samples, self.replacement)
        for row in rows / rows.sum(axis=1, keepdims=True):
            drawn = np.random.choice(len(row), self.num_samples, self.replacement, row)
            for chunk in in_chunks(drawn):
                yield from chunk

    def __len__(self) -> int:
        return self.num_samples * len(_rows(as_weights(self.weights)))


def _rows(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if weights.ndim not in (1, 2) or weights.size == 0:
        raise ArgumentError(
            f"weights should be a 1-D or 2-D array: got shape {weights.shape}. Pass one weight for"
            " each sample."
        )
    return weights.reshape((-1, weights.shape[-1]))


def _checked_rows(
    weights: npt.NDArray[Any], num_samples: int, replacement: bool
) -> npt.NDArray[Any]:
    """Return the weights, *shape* (rows, n). ArgumentError where no index can be drawn."""
    rows = _rows(weights)
    if not np.all(rows >= 0):
        raise ArgumentError(
            f"weights should be positive value: got {rows[~(rows >= 0)][0]}. A weight of 0 leaves"
            " a sample out."
        )
    if np.any(np.isinf(rows)):
        raise ArgumentError("weights should not be INF: got inf. Pass finite weights.")
    possible = np.count_nonzero(rows, axis=1)
    if not np.all(possible > 0):
        raise ArgumentError(
            f"weights should have positive values: all are 0 in row {int(possible.argmin())}."
            " Raise one of them."
        )
    if not replacement and not np.all(possible >= num_samples):
        raise ArgumentError(
            "weights positive value number should not less than num_samples when"
            f" replacement=False: got {int(possible.min())} weights above 0 for"
            f" num_samples={num_samples}. Lower it, or pass replacement=True."
        )
    return rows
