"""GluonNLP's bucket schemes: three rules for the buckets' keys.

Imports `reader.errors`. A scheme is called once, when a sampler is made, and keeps its options.
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable
from typing import Any

from reader.compat.gluon.nlp.errors import ArgumentError
from reader.errors import ConfigError, ConfigTypeError, got, shown

__all__ = [
    "BucketScheme",
    "ConstWidthBucket",
    "ExpWidthBucket",
    "LinearWidthBucket",
    "as_bucket_count",
]


class BucketScheme(abc.ABC):
    """Base class of bucket schemes: compute the keys of buckets from the range of lengths.

    A key is the greatest length that its bucket takes.
    """

    def __call__(
        self, max_lengths: Any, min_lengths: Any, num_buckets: int
    ) -> list[int] | list[tuple[int, ...]]:
        """Return the keys, one for each bucket; two of them may be equal.

        Args:
            max_lengths: the greatest length of all samples, an int; or a sequence of ints with one
                for each component of a sample.
            min_lengths: the least length, likewise.
            num_buckets: how many.

        Raises:
            ArgumentError: (an AssertionError) num_buckets is no int of 1 or more.
        """
        num_buckets = as_bucket_count(num_buckets)
        try:
            high, low = operator.index(max_lengths), operator.index(min_lengths)
        except TypeError:
            columns = zip(max_lengths, min_lengths, strict=True)
            keys = [self._keys(int(high), int(low), num_buckets) for high, low in columns]
            return list(zip(*keys, strict=True))
        return self._keys(high, low, num_buckets)

    @abc.abstractmethod
    def _keys(self, high: int, low: int, count: int) -> list[int]:
        """Return `count` keys for lengths in [low, high]."""


class ConstWidthBucket(BucketScheme):
    """Divide the range of lengths into buckets of the same width, from the longest down.

    >>> ConstWidthBucket()(100, 10, 5)
    [100, 82, 64, 46, 28]
    >>> ConstWidthBucket()((100, 50), (10, 5), 3)
    [(100, 50), (70, 35), (40, 20)]
    """

    def _keys(self, high: int, low: int, count: int) -> list[int]:
        width = max((1 + high - low) // count, 1)
        return [max(high - width * number, low) for number in range(count)]


class LinearWidthBucket(BucketScheme):
    """Divide the range of lengths into buckets whose width grows by the same step.

    >>> LinearWidthBucket()(100, 10, 5)
    [17, 29, 47, 71, 100]
    """

    def _keys(self, high: int, low: int, count: int) -> list[int]:
        step = 2 * (high - low - count) / (count * (count + 1))
        return _up_to(high, count, lambda at: low + step * (at * (at + 1) / 2) + at)


class ExpWidthBucket(BucketScheme):
    """Divide the range of lengths into buckets, each wider than the one before by a factor.

    Args:
        bucket_len_step: the factor, greater than 1.

    Raises:
        ConfigError: (a ValueError) a factor of 1 or less.

    >>> ExpWidthBucket()(100, 10, 5)
    [25, 41, 59, 78, 100]
    """

    def __init__(self, bucket_len_step: float = 1.1) -> None:
        if not isinstance(bucket_len_step, (int, float)):
            raise ConfigTypeError(
                f"bucket_len_step must be a number, got {got(bucket_len_step)}. It is the ratio of"
                " the widths of two neighbouring buckets."
            )
        if not 1 < bucket_len_step < float("inf"):
            raise ConfigError(
                f"bucket_len_step must be greater than 1, got {bucket_len_step}. For buckets of the"
                " same width pass ConstWidthBucket()."
            )
        self.bucket_len_step = bucket_len_step

    def _keys(self, high: int, low: int, count: int) -> list[int]:
        step = self.bucket_len_step
        width = (high - low) * (step - 1) / (step**count - 1)
        return _up_to(high, count, lambda at: low + width * (step**at - 1) / (step - 1))


def _up_to(high: int, count: int, key_at: Callable[[int], float]) -> list[int]:
    """Return the keys of buckets 1 to `count`; the last one is `high` itself, without rounding."""
    return [*(round(key_at(at)) for at in range(1, count)), high]


def as_bucket_count(num_buckets: Any) -> int:
    """Return a number of buckets. ArgumentError: it is no int of 1 or more."""
    try:
        count = operator.index(num_buckets)
    except TypeError:
        count = 0
    if count < 1:
        raise ArgumentError(
            "num_buckets must be set when bucket_keys is None. Received"
            f" num_buckets={shown(num_buckets)}. Pass an int of 1 or more, or bucket_keys."
        )
    return count
