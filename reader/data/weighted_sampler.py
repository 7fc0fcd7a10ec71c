"""A sampler that takes some samples more often than others.

Imports `reader.checks`, `reader.random` and `reader.data`. It runs in the trainer alone and
keeps its own copy of the weights; no random state outlives an iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from reader.checks import as_array, as_bool, as_int
from reader.data.fingerprint import digest_of
from reader.data.sampler import SeededSampler, in_chunks
from reader.data.seekable import as_position
from reader.errors import ConfigError, ConfigTypeError, got
from reader.random.seeds import draws_rng

__all__ = ["WeightedRandomSampler", "as_weights", "checked_weights", "place_of", "summable"]

_LEAST = float(np.finfo(np.float64).smallest_subnormal)
_LEAST_SUM = 2.0**-900
_CHUNK = 4096  # indices drawn at a time: cheap per item, little memory
_MOST_DIGESTED = 1 << 15


class WeightedRandomSampler(SeededSampler[int]):
    """Yield `num_samples` indices, each drawn with a probability proportional to its weight.

    With a `seed` the indices are a pure function of (seed, epoch, weights, num_samples); without
    one each iteration takes a fresh seed from the system. With replacement an iteration keeps a few
    thousand indices at a time, however large `num_samples` is, and seeks to any position at once.
    Without replacement it keeps 8 bytes per index and draws all at once.

    Args:
        weights: *shape* (n,), one for each sample: a list, an array or a tensor on the CPU of
            numbers from 0 that are finite and not all 0; they need not sum to 1.
        num_samples: how many indices to draw, 1 or more.
        replacement: whether an index may come again.
        seed: an int in [0, 2**64), or None.

    Raises:
        ConfigTypeError, ConfigError: an invalid weight or number of samples.

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
        self.weights = checked_weights(weights)
        least = 1 if self.replacement else self.num_samples
        possible = int(np.count_nonzero(self.weights))
        if possible < least:
            raise ConfigError(
                f"replacement={self.replacement} with num_samples={self.num_samples} needs {least}"
                f" or more weights above 0, got {possible}. Raise weights, or lower num_samples, or"
                " pass replacement=True."
            )
        super().__init__(seed)

    def __iter__(self) -> Iterator[int]:
        return self._open_at(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the draws from `position` on; with replacement it seeks there at once."""
        return self._open_at(as_position(position))

    def _open_at(self, position: int) -> Iterator[int]:
        return chain.from_iterable(self._draws(*self._begin(), position))

    def __len__(self) -> int:
        return self.num_samples

    def order_facts(self) -> dict[str, Any]:
        """Return what draws depend on beside seed and epoch; some of many weights are looked at."""
        some = self.weights[:: max(1, len(self.weights) // _MOST_DIGESTED)]
        return {
            "num_samples": self.num_samples,
            "replacement": self.replacement,
            "weights": f"{len(self.weights)}:{digest_of(some)}",
        }

    def _draws(self, seed: int, epoch: int, position: int) -> Iterator[list[int]]:
        """Yield the draws from a position on, a few thousand at a time.

        Each chunk has its own generator, so that no chunk before it need be drawn.
        """
        weights = summable(self.weights)
        if not self.replacement:
            shares = weights / weights.sum()
            shares[(self.weights > 0) & (shares == 0)] = _LEAST  # it comes when all others have
            rng = draws_rng(seed, epoch, 0)
            drawn = rng.choice(len(weights), self.num_samples, False, shares)
            yield from in_chunks(drawn[position:])
            return
        heights = np.cumsum(weights)
        last = np.flatnonzero(weights)[-1]  # rounding must not reach a weight of 0 behind it
        for start in range(position // _CHUNK * _CHUNK, self.num_samples, _CHUNK):
            rng = draws_rng(seed, epoch, start // _CHUNK)
            draws = rng.random(min(_CHUNK, self.num_samples - start)) * heights[-1]
            drawn = np.minimum(np.searchsorted(heights, draws, side="right"), last)
            yield drawn[max(position - start, 0) :].tolist()


def as_weights(weights: Any) -> np.ndarray[Any, Any]:
    """Return weights of any kind as an array of numbers, without a copy where possible.

    Raises:
        ConfigTypeError: they cannot be read as an array of numbers.
    """
    array = as_array("weights", weights)
    if array.dtype.kind not in "biuf":
        raise ConfigTypeError(
            f"weights must be an array of numbers, got {got(weights)} of type {array.dtype}. Pass"
            " a list or an array of floats."
        )
    return array


def checked_weights(
    weights: Any, are_positive: bool = False, names: Sequence[str] = ()
) -> np.ndarray[Any, Any]:
    """Return weights, one for each of what is weighed, as a float64 copy of *shape* (n,).

    Args:
        weights: as a user passes them.
        are_positive: whether a weight of 0 is refused, too.
        names: of what is weighed, for messages; (): it has positions.

    Raises:
        ConfigTypeError: they cannot be read as an array of numbers.
        ConfigError: there are none, or they have another shape, are below 0, or not finite.
    """
    array = as_weights(weights)
    if array.ndim != 1 or array.size == 0:
        remedy = ""
        if array.ndim > 1 and max(array.shape) == array.size:
            remedy = " Those of one row or column come as weights.reshape(-1)."
        raise ConfigError(
            f"weights must have the shape (n,), n from 1, got {array.shape}. Pass one weight for"
            f" each sample or source, in one dimension.{remedy}"
        )
    found = np.array(array, np.float64)
    bad = ~(np.isfinite(found) & (found > 0 if are_positive else found >= 0))
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        limit, remedy = "finite numbers from 0", "A weight of 0 leaves a sample out."
        if are_positive:
            limit, remedy = "positive finite numbers", "Leave out what is to give nothing."
        raise ConfigError(
            f"weights must be {limit}, got {found[where]} {place_of(names, where)}. {remedy}"
        )
    return found


def place_of(names: Sequence[str], position: int) -> str:
    """Name the weighed object at a position."""
    return f"for {names[position]!r}" if names else f"at position {position}"


def summable(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return weights whose sum is finite and exact enough, with the same shares.

    They are multiplied by a power of 2 where the sum would be inf, or all are so small that they
    have lost digits.
    """
    with np.errstate(over="ignore"):
        total = weights.sum()
    if _LEAST_SUM < total < np.inf:
        return weights
    found: np.ndarray[Any, Any] = np.ldexp(weights, -int(np.frexp(weights.max())[1]))
    return found
