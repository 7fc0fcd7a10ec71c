"""GluonNLP's sampler of batches within a budget of tokens.

Imports the errors and counts of this face and `reader.data`. It runs in the trainer alone. The
batches are made once, of sorted samples; the sampler keeps where each ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import as_int
from reader.compat.gluon.nlp.errors import ArgumentError, as_count
from reader.data.sampler import SeededSampler
from reader.data.seekable import as_position
from reader.errors import ConfigError, got, shown
from reader.random.permutation import Permutation
from reader.random.seeds import order_key

__all__ = ["BoundedBudgetSampler"]

_SORTS = ("max", "none")


class BoundedBudgetSampler(SeededSampler[list[int]]):
    """Yield batches that hold as many samples as a budget of tokens, or of samples, allows.

    Samples are sorted by length, and each batch takes as many of them as fit.

    Args:
        lengths: of all samples, greater than 0: ints, or tuples of equally many ints, of which the
            greatest counts; read once.
        max_num_tokens: the most that a batch may hold, counted as its longest sample times its
            samples: what padding makes of it. -1: no limit.
        max_num_sentences: the most samples of a batch. -1: no limit.
        required_batch_size_multiple: batches have a multiple of so many samples, where so many fit
            in the budget; but for the last.
        sort_type: "max": sorted by the greatest length of each sample; "none": in the order of the
            dataset.
        shuffle: yield the batches in random order.
        seed: an int in [0, 2**64): the order is a function of (seed, epoch). None: another one in
            each iteration.

    Raises:
        ArgumentError: (an AssertionError) an argument that cannot work.
        ConfigError: (a ValueError) a sample that is longer than the budget.

    >>> list(BoundedBudgetSampler([3, 9, 2, 8, 9, 1], max_num_tokens=18, shuffle=False))
    [[5, 2, 0], [3, 1], [4]]
    """

    def __init__(
        self,
        lengths: Sequence[Any] | npt.NDArray[Any],
        max_num_tokens: int = -1,
        max_num_sentences: int = -1,
        required_batch_size_multiple: int = 1,
        sort_type: str = "max",
        shuffle: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        found = _as_token_counts(lengths)
        tokens = as_int("max_num_tokens", max_num_tokens, low=-1, remedy="-1: no limit.")
        most = as_int("max_num_sentences", max_num_sentences, low=-1, remedy="-1: no limit.")
        if tokens < 1 and most < 1:
            raise ArgumentError(
                f"max_num_tokens={tokens} and max_num_sentences={most}: one of them at least must"
                " be larger than 0. Without a budget pass a batch size to another sampler."
            )
        longest = int(found.argmax())
        if 0 < tokens < found[longest]:
            raise ConfigError(
                f"max_num_tokens={tokens} is less than the length of sample {longest},"
                f" {found[longest]}. Pass more, or leave out long samples."
            )
        multiple = as_count("required_batch_size_multiple", required_batch_size_multiple)
        if sort_type not in _SORTS:
            raise ArgumentError(f"sort_type must be one of {_SORTS}, got {shown(sort_type)}.")
        self._is_shuffled = bool(shuffle)
        is_sorted = sort_type == "max"
        self._samples = np.argsort(found, kind="stable") if is_sorted else np.arange(len(found))
        self._ends = _ends_of_batches(found[self._samples].tolist(), tokens, most, multiple)

    def __iter__(self) -> Iterator[list[int]]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[list[int]]:
        """Iterate over the batches from `position` on; seeks there at once."""
        places = range(len(self))[as_position(position) :]
        if not self._is_shuffled:
            return map(self._batch, places)
        order = Permutation(len(self), order_key(*self._begin()))
        return (self._batch(order[place]) for place in places)

    def _batch(self, number: int) -> list[int]:
        start = self._ends[number - 1] if number else 0
        found: list[int] = self._samples[start : self._ends[number]].tolist()
        return found

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._ends)


def _ends_of_batches(lengths: list[int], tokens: int, most: int, multiple: int) -> list[int]:
    """Return where each batch ends. `tokens`, `most`: of a batch; less than 1: no limit."""
    ends: list[int] = []
    start = longest = 0
    for place, length in enumerate(lengths):
        longest = max(longest, length)
        while place > start and (
            0 < most < place - start + 1 or 0 < tokens < (place - start + 1) * longest
        ):
            count = place - start
            start += count - count % multiple if count >= multiple else count
            ends.append(start)
            longest = max(lengths[start : place + 1])
    return [*ends, len(lengths)]


def _as_token_counts(lengths: Any) -> npt.NDArray[np.int64]:
    """Return the greatest length of each sample."""
    if not len(lengths):
        raise ArgumentError(
            "BoundedBudgetSampler does not support empty lengths. Pass one for each sample."
        )
    found = np.asarray(lengths)
    if found.ndim == 2 and found.size:
        found = found.max(axis=1)
    if found.ndim != 1 or found.dtype.kind not in "iu" or found.min() < 1:
        raise ArgumentError(
            "lengths must be ints larger than 0, or tuples of them, one for each sample, got"
            f" {got(lengths)}."
        )
    return found.astype(np.int64)
