"""The account of an epoch: each sample once, or an exception that names it and the reason.

Imports the errors of reader and the samples. An account belongs to one epoch, also where that is
resumed by another loader.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import reader
from tools.soak.kinds import Kind, Life
from tools.soak.samples import Broken

__all__ = ["Account"]


class Account:
    """Counts what an epoch delivered.

    Args:
        kind: of the loader.
        life: its options.

    Attributes:
        found: how often each sample came.
        twice: samples that came again.
        strange: batches that are not of the order, or not in their place.
    """

    def __init__(self, kind: Kind, life: Life) -> None:
        self.kind = kind
        self.life = life
        self.found: Counter[int] = Counter()
        self.twice = 0
        self.strange: list[str] = []
        self.told: list[str] = []  # exceptions, in words
        self._unnamed = 0  # exceptions that do not say which samples they stand for
        self._named: set[int] = set()  # samples that an exception stood for
        self._ended: set[int] = set()  # workers of a stream whose share is over
        order, size = life.order, life.size
        self._batches: list[list[int]] | None = None
        if order is not None:
            self._batches = [list(order[at : at + size]) for at in range(0, len(order), size)]
        self._place = {batch[0]: at for at, batch in enumerate(self._batches or [])}
        self._last = -1  # the place of the last batch in the order
        self._last_of: dict[int, int] = {}  # the last sample of each share

    def take(self, numbers: list[int]) -> None:
        """Count a batch."""
        life = self.life
        for number in numbers:
            self.twice += number in self.found
            self.found[number] += 1
        if any(not 0 <= number < life.shape.count for number in numbers):
            self.strange.append(f"{numbers} are no samples")
        elif self._batches is not None:
            at = self._place.get(numbers[0])
            if at is None or self._batches[at] != numbers:
                self.strange.append(f"{numbers} is no batch of the order")
            elif life.in_order:
                if at <= self._last:
                    self.strange.append(f"batch {at} came after batch {self._last}")
                self._last = at
        elif self.kind.is_stream and life.in_order:
            worker_id = numbers[0] % life.workers
            before = [self._last_of.get(worker_id, -1), *numbers]
            is_own = all(each % life.workers == worker_id for each in numbers)
            if not is_own or before != sorted(before):
                self.strange.append(f"{numbers} came after {before[0]} of worker {worker_id}")
            self._last_of[worker_id] = numbers[-1]

    def tell(self, error: Exception) -> bool:
        """Count an exception in the place of a batch; False: it is not one that may come."""
        self.told.append(f"{type(error).__name__}: {error}"[:200])
        if isinstance(error, Broken):
            if not self.life.shape.breaks(error.index):
                return False
            self._unnamed += self.kind.is_stream
            self._named |= {error.index, *self._with(error.index)}
            return True
        if isinstance(error, reader.WorkerDied):
            if self.kind.is_stream:  # of that batch, and of the rest of its share
                self._unnamed += 1
                self._ended.add(error.worker_id or 0)
            elif error.indices is None:
                self._unnamed += 1
            else:
                self._named |= set(error.indices)
            return self.kind.workers == "process" and self.kind.memory != "cgroup"
        if isinstance(error, reader.LoadTimeout):
            return "timeout" in self.life.options  # the batch comes later
        self._unnamed += isinstance(error, reader.ArenaFull)
        return isinstance(error, reader.ArenaFull) and bool(self.kind.memory)

    def _with(self, index: int) -> list[int]:
        """Return the samples of a sample's batch."""
        return next((batch for batch in self._batches or [] if index in batch), [])

    def lost(self) -> list[int]:
        """Return the samples that neither came nor are accounted for, at the end of the epoch."""
        missing = set(range(self.life.shape.count)) - set(self.found) - self._named
        for worker_id in self._ended:  # what is left of its share is over
            share = set(range(worker_id, self.life.shape.count, self.life.workers))
            came = share & set(self.found)
            missing -= {each for each in share if each > max(came, default=-1)}
        return sorted(missing) if len(missing) > self._unnamed * self.life.size else []

    def describe(self) -> dict[str, Any]:
        """Return the account, for a report."""
        return {"life": repr(self.life)[:600], "told": self.told[-5:], "strange": self.strange[:3]}
