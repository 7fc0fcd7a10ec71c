"""A sampler that takes some samples more often than others.

Imports `reader.checks`, `reader.random` and `reader.data`. It runs in the trainer alone and
keeps its own copy of the weights; no random state outlives an iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from reader.checks import as_bool, as_int
from reader.data.sampler import SeededSampler, in_chunks
from reader.data.seekable import as_position
from reader.errors import ConfigError, ConfigTypeError, got
from reader.random.seeds import draws_rng

__all__ = ["WeightedRandomSampler", "as_weights"]

_CHUNK = 4096  # indices drawn at a time: cheap per item, little memory


class WeightedRandomSampler(SeededSampler[int]):
    """Yield `num_samples` indices, each drawn with a probability proportional to its weight.

    With a `seed` the indices are a pure function of (seed, epoch, weights, num_samples); without
    one each iteration takes a fresh seed from the system. With replacement an iteration keeps a few
    thousand indices at a time, however large `num_samples` is, and seeks to any position at once.
    Without replacement it keeps 8 bytes per index and draws each row of weights whole.

    Args:
        weights: *shape* (n,), or (rows, n): `num_samples` indices are drawn for each row in turn.
            A list, an array or a tensor on the CPU of numbers from 0 that are finite and not all 0
            in a row; they need not sum to 1.
        num_samples: how many indices to draw for each row, 1 or more.
        replacement: whether an index may come again within its row.
        seed: an int in [0, 2**64), or None.

    >>> list(WeightedRandomSampler([0.0, 0.0, 2.5], 4)), len(WeightedRandomSampler([1, 1], 4))
    ([2, 2, 2, 2], 4)
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        seed: int | None = None,
    ) -> None:
        self.num_samples = as_int("num_samples", num_samples, low=1, remedy="Draw one or more.")
        self.replacement = as_bool("replacement", replacement)
        self.weights = _checked(as_weights(weights), self.num_samples, self.replacement)
        super().__init__(seed)

    def __iter__(self) -> Iterator[int]:
        return self._open_at(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the draws from `position` on; with replacement it seeks there at once."""
        return self._open_at(as_position(position))

    def _open_at(self, position: int) -> Iterator[int]:
        row, within = divmod(position, self.num_samples)
        return chain.from_iterable(self._draws(*self._begin(), row, within))

    def __len__(self) -> int:
        rows = 1 if self.weights.ndim == 1 else len(self.weights)
        return self.num_samples * rows

    def _draws(self, seed: int, epoch: int, row: int, within: int) -> Iterator[list[int]]:
        """Yield the draws from place `within` of row `row` on, a few thousand at a time.

        Each chunk has its own generator, so that no chunk before it need be drawn.
        """
        chunks_per_row = -(-self.num_samples // _CHUNK) if self.replacement else 1
        for number, weights in enumerate(np.atleast_2d(self.weights)[row:], row):
            if self.replacement:
                heights = np.cumsum(weights)
                last = np.flatnonzero(weights)[
                    -1
                ]  # rounding must not reach a weight of 0 behind it
                for start in range(within // _CHUNK * _CHUNK, self.num_samples, _CHUNK):
                    rng = draws_rng(seed, epoch, number * chunks_per_row + start // _CHUNK)
                    draws = rng.random(min(_CHUNK, self.num_samples - start)) * heights[-1]
                    drawn = np.minimum(np.searchsorted(heights, draws, side="right"), last)
                    yield drawn[max(within - start, 0) :].tolist()
            else:
                rng, shares = draws_rng(seed, epoch, number), weights / weights.sum()
                drawn = rng.choice(len(weights), self.num_samples, False, shares)
                yield from in_chunks(drawn[within:])
            within = 0


def as_weights(weights: Any) -> np.ndarray[Any, Any]:
    """Return weights of any kind as an array of numbers, without a copy where possible.

    Raises:
        ConfigTypeError: they cannot be read as an array of numbers.
    """
    try:
        if hasattr(weights, "detach"):  # a tensor of paddle or torch may require a gradient
            weights = weights.detach()
        array = np.asarray(weights.numpy() if hasattr(weights, "numpy") else weights)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigTypeError(
            f"weights must be an array of numbers, got {got(weights)}: {error}. Pass a list, or an"
            " array or tensor on the CPU."
        ) from error
    if array.dtype.kind not in "biuf":
        raise ConfigTypeError(
            f"weights must be an array of numbers, got {got(weights)} of type {array.dtype}. Pass"
            " a list or an array of floats."
        )
    return array


def _checked(
    weights: np.ndarray[Any, Any], num_samples: int, replacement: bool
) -> np.ndarray[Any, Any]:
    """Return the weights as a float64 copy. ConfigError if they cannot be drawn from."""
    if weights.ndim not in (1, 2) or weights.size == 0:
        raise ConfigError(
            f"weights must have the shape (n,) or (rows, n), n from 1, got {weights.shape}. Pass"
            " one weight for each sample."
        )
    rows = np.array(weights, np.float64)
    bad = ~(np.isfinite(rows) & (rows >= 0))
    if bad.any():
        where = tuple(map(int, np.argwhere(bad)[0]))
        raise ConfigError(
            f"weights must be finite numbers from 0, got {rows[where]} at position {where}. A"
            " weight of 0 leaves a sample out."
        )
    possible = int(np.count_nonzero(rows, axis=-1).min())
    if possible < (1 if replacement else num_samples):
        raise ConfigError(
            f"replacement={replacement} with num_samples={num_samples} needs"
            f" {1 if replacement else num_samples} or more weights above 0 in each row, got a row"
            f" with {possible}. Raise weights, or lower num_samples, or pass replacement=True."
        )
    return rows
