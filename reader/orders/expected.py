"""Batches that a dataset is told of before they are drawn, to fetch their samples meanwhile.

Imports the core's signals. It runs in the thread that draws tasks, and only for datasets that
have use for it, in orders that can be opened at any position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from reader._core.interpreter.signals import is_interrupt

__all__ = ["expected"]

_FIRST, _MOST = 256, 2048  # samples that are drawn ahead


def expected(
    batches: Iterator[Any], expect: Callable[[Sequence[Any], bool], None]
) -> Iterator[Any]:
    """Yield batches, of which those that come next are drawn ahead, and told.

    The first one is not held up: the next ones are told after it.

    Args:
        batches: of an epoch: each an index, or several.
        expect: takes the indices of those that come next, and whether they are the first ones.
    """
    held: deque[tuple[Any, list[Any]]] = deque()
    most, count, is_over, begins = 0, 0, False, True
    failure: Exception | None = None
    while True:
        if count <= most // 2 and not is_over:
            new: list[Any] = []
            while not is_over and (count <= most // 2 or len(new) < most - most // 2):
                try:
                    batch = next(batches)
                except StopIteration:
                    is_over = True
                except Exception as error:  # of the sampler: it is raised at its place
                    if is_interrupt(error):
                        raise
                    is_over, failure = True, error
                else:
                    held.append((batch, _indices_of(batch)))
                    new += held[-1][1]
                    count += len(held[-1][1])
            if most and new:
                coming = [index for _, each in held for index in each]
                begins = not _has_told(expect, coming, begins)
            most = min(max(_FIRST, 2 * most), _MOST)
        if not held:
            break
        batch, indices = held.popleft()
        count -= len(indices)
        yield batch
    if failure is not None:
        raise failure


def _has_told(
    expect: Callable[[Sequence[Any], bool], None], indices: list[Any], begins: bool
) -> bool:
    """Tell what comes next. False: a wrong index, or the network, which is told when it is read."""
    try:
        expect(indices, begins)
    except Exception as error:
        if is_interrupt(error):
            raise
        return False
    return True


def _indices_of(batch: Any) -> list[Any]:
    """Return the indices of a batch, or of a sample that is no batch."""
    if hasattr(batch, "tolist"):
        batch = batch.tolist()
    return list(batch) if isinstance(batch, (list, tuple)) else [batch]
