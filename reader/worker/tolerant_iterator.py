"""An iterator over a stream that continues after a sample fails.

Imports bad_sample. It belongs to one worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reader._core.interpreter.signals import is_interrupt
from reader.data.iterable import is_dead
from reader.worker.bad_sample import BadSample, bad_sample, is_bad

__all__ = ["TolerantIterator"]

_MOST_IN_A_ROW = 100


class TolerantIterator:
    """Draws from an iterator; a draw that fails is left out, or the sample before takes its place.

    The error of an iterator that cannot continue is raised, such as of a generator that raised. So
    is the error after a hundred failed draws in a row, for instance of a lost connection.

    Args:
        source: the result of the dataset's `__iter__`.
        replaces: whether the sample before takes the place; failed draws before the first sample
            are left out.
        is_inline: whether Ctrl-C may come anywhere.

    Attributes:
        source: the iterator itself.
    """

    def __init__(self, source: Iterator[Any], replaces: bool, is_inline: bool) -> None:
        self.source = source
        self._replaces = replaces
        self._is_inline = is_inline
        self._draws = 0
        self._before: tuple[int, Any] | None = None  # the number of a draw, and its sample
        self._bad: list[BadSample] = []

    def __iter__(self) -> TolerantIterator:
        return self

    def __next__(self) -> Any:
        failed = 0
        while True:
            number, self._draws = self._draws, self._draws + 1
            try:
                sample = next(self.source)
            except StopIteration:
                raise
            except Exception as error:
                is_ours = is_bad(error) and not (self._is_inline and is_interrupt(error))
                failed += 1
                if not is_ours or is_dead(self.source) or failed == _MOST_IN_A_ROW:
                    raise
                found = bad_sample(number, -1, error)
                before = self._before
                if self._replaces and before is not None:
                    self._bad.append(found._replace(instead=before[0]))
                    return before[1]
                self._bad.append(found)
            else:
                if self._replaces:
                    self._before = number, sample
                return sample

    def take_bad(self) -> tuple[BadSample, ...]:
        """Return the draws that failed since the last call."""
        found, self._bad = tuple(self._bad), []
        return found
