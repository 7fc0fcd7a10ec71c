"""Plans of packed rows: which pieces of which documents lie in a row.

Imports NumPy, the permutations and the compiled packing. A plan is a function of the documents'
lengths, a seed and an epoch. It holds a few numbers for each window of documents; what the rows of
a window hold is computed when a row of it is asked for, and the newest windows are kept.
"""

from __future__ import annotations

import abc
import threading
import warnings
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader._core.random.permutation import Permutation
from reader._core.tokens.packing import PackedWindow, RowCounter, best_fit, pieces_of
from reader.random.seeds import order_key

__all__ = ["POLICIES", "BestFitPlan", "Pieces", "Plan", "WrappedPlan"]

Numbers = npt.NDArray[np.int64]

#: what becomes of a document that is longer than a row, as the compiled code has it
POLICIES = {"split": 0, "truncate": 1, "drop": 2}

_RUN = 128  # documents that lie side by side, and go to one window together
_MOST_KEPT = 1 << 24  # numbers of the windows that are kept, 128 MiB
_MORE_PLANNED = 100  # windows, before it is told that they are planned again and again
_COUNTED = 1 << 20  # lengths at a time


class Pieces(NamedTuple):
    """The pieces of some rows.

    Attributes:
        documents: of which document each piece is.
        begins: the token of the document that it begins with.
        counts: how many tokens it has.
        firsts: row k has the pieces firsts[k] to firsts[k + 1]; *shape* (rows + 1,).
    """

    documents: Numbers
    begins: Numbers
    counts: Numbers
    firsts: Numbers


class _Part(NamedTuple):
    """The pieces that one window has of some rows: as `Pieces`, and which rows these are."""

    rows: Numbers
    sizes: Numbers  # pieces of each
    documents: Numbers
    begins: Numbers
    counts: Numbers


class _KeptWindows:
    """The newest windows that were planned, in one process; threads may share it.

    Args:
        windows: how many the plan has.
    """

    def __init__(self, windows: int) -> None:
        self._windows = windows
        self._kept: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._size = 0
        self._planned = 0  # windows in the newest epoch, each time that it was
        self._lock = threading.Lock()

    def get(self, window: int, epoch: int) -> Any:
        """Return a window that is kept, or None."""
        with self._lock:
            found = self._kept.get((window, epoch))
            if found is not None:
                self._kept.move_to_end((window, epoch))
            return found

    def put(self, window: int, epoch: int, planned: Any) -> None:
        """Keep a window, and forget the oldest where it is too much."""
        with self._lock:
            if self._kept and next(reversed(self._kept))[1] != epoch:
                self._planned = 0
            self._planned += 1
            if (window, epoch) not in self._kept:
                self._kept[window, epoch] = planned
                self._size += planned.size
            while self._size > _MOST_KEPT and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1].size
            is_again_and_again = self._planned == 3 * self._windows + _MORE_PLANNED
        if is_again_and_again:
            warnings.warn(
                f"packed rows are read in an order that jumps over {self._windows:,} windows of"
                f" documents, of which {len(self._kept):,} are kept: windows are planned again and"
                " again. Pass sampler=reader.ShardOrder(dataset, seed), which keeps to a few"
                " windows at a time",
                stacklevel=2,
            )


class Plan(abc.ABC):
    """The rows of all windows.

    Windows are made of runs of documents that lie side by side. With a seed the runs come in random
    order, the same one in each epoch, so that a window has documents from everywhere; what changes
    with the epoch is the order within it.

    Args:
        lengths: of the documents, in tokens.
        length: of a row.
        window: how many documents a window has, rounded up to whole runs.
        seed: of the orders; None: that of the documents.

    Attributes:
        starts: the first row that begins in each window, and then how many rows there are.
        counter: what was counted on the way.
    """

    starts: Numbers

    def __init__(
        self, lengths: npt.NDArray[Any], length: int, window: int, seed: int | None, policy: int
    ) -> None:
        self.length = length
        self.counter = RowCounter(length, policy)
        self._lengths, self._seed = lengths, seed
        self._run = min(_RUN, window)
        runs = -(-len(lengths) // self._run)
        self._runs = None if seed is None else Permutation(runs, order_key(seed, 0))
        self._runs_per_window = -(-window // self._run)
        self.windows = max(1, -(-runs // self._runs_per_window))
        self._kept = _KeptWindows(self.windows)

    def _begins(self, window: int) -> Numbers:
        """Return the first document of each run of a window."""
        runs = -(-len(self._lengths) // self._run)
        first = window * self._runs_per_window
        last = min(first + self._runs_per_window, runs)
        found = np.arange(first, last) if self._runs is None else self._runs.take(first, last)
        return found * self._run

    def _count(self, window: int) -> int:
        """Return how many rows the best fit has for a window, and note what it has."""
        return int(self.counter.count(self._lengths, self._begins(window), self._run))

    def _documents(self, window: int, epoch: int) -> tuple[Numbers, Numbers]:
        """Return the documents of a window that have tokens, in the epoch's order, and how many."""
        begins = self._begins(window)
        documents = (begins[:, None] + np.arange(self._run)).ravel()
        documents = documents[documents < len(self._lengths)]
        counts = self._lengths[documents].astype(np.int64, copy=False)
        if not counts.all():
            documents, counts = documents[counts > 0], counts[counts > 0]
        if self._seed is not None:
            count = len(documents)
            key = order_key(self._seed, epoch, 2 * window + 1)
            order = Permutation(count, key).take(0, count)
            documents, counts = documents[order], counts[order]
        return documents, counts

    def _window(self, window: int, epoch: int) -> Any:
        """Return what `_planned` made for a window; that of the newest windows is kept."""
        found = self._kept.get(window, epoch)
        if found is None:
            found = self._planned(window, epoch)
            self._kept.put(window, epoch, found)
        return found

    @abc.abstractmethod
    def most_pieces(self) -> int:
        """Return how many pieces a row has at most, as near as is found without planning."""

    @abc.abstractmethod
    def _planned(self, window: int, epoch: int) -> Any:
        """Plan a window."""

    @abc.abstractmethod
    def pieces(self, rows: Numbers, epoch: int) -> Pieces:
        """Return the pieces of rows, which lie within the plan, in that order."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process gets: it plans windows itself."""
        state = dict(vars(self))
        for name in ("_kept", "counter", "_lengths"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._kept = _KeptWindows(self.windows)

    def with_lengths(self, lengths: npt.NDArray[Any]) -> None:
        """Take the lengths anew, which are not copied to other processes with the plan."""
        self._lengths = lengths


class BestFitPlan(Plan):
    """Rows of whole documents, packed by best fit, window by window."""

    def __init__(
        self, lengths: npt.NDArray[Any], length: int, window: int, seed: int | None, policy: int
    ) -> None:
        super().__init__(lengths, length, window, seed, policy)
        self._policy = policy
        self.starts = _starts([self._count(each) for each in range(self.windows)])

    def most_pieces(self) -> int:
        """See Plan."""
        return max(1, self.counter.most_pieces)

    def _kept_of(self, counts: Numbers) -> tuple[Numbers, Numbers]:
        """Return how many rows each document fills, and what is left of it to be packed."""
        filled = np.zeros_like(counts)
        if self._policy == POLICIES["split"]:
            return np.divmod(counts, self.length)
        if self._policy == POLICIES["truncate"]:
            return filled, np.minimum(counts, self.length)
        return filled, np.where(counts > self.length, 0, counts)

    def _planned(self, window: int, epoch: int) -> PackedWindow:
        documents, counts = self._documents(window, epoch)
        filled, rest = self._kept_of(counts)
        is_packed = rest > 0
        firsts, pieces = best_fit(rest[is_packed], self.length)
        packed = documents[is_packed][pieces]
        rows = int(filled.sum()) + len(firsts) - 1
        order = None
        if self._seed is not None:
            order = Permutation(rows, order_key(self._seed, epoch, 2 * window + 2))
        else:  # rows in the order of their first documents
            by_first = np.argsort(packed[firsts[:-1]], kind="stable")
            sizes = np.diff(firsts)[by_first]
            packed = packed[_ranges(firsts[:-1][by_first], sizes)]
            firsts = _starts(sizes)
        has_filled = filled > 0
        return PackedWindow(
            documents[has_filled], np.cumsum(filled[has_filled]), packed, firsts, order
        )

    def pieces(self, rows: Numbers, epoch: int) -> Pieces:
        """Return the pieces of rows, which lie within the plan, in that order."""
        window_of = np.searchsorted(self.starts, rows, "right") - 1
        numbers, which = np.unique(window_of, return_inverse=True)
        windows = [self._window(number, epoch) for number in numbers.tolist()]
        places = rows - self.starts[window_of]
        found = pieces_of(windows, which, places, self._lengths, self.length, self._policy)
        return Pieces(*found)


class _Stream(NamedTuple):
    """The documents of a window one after the other."""

    documents: Numbers
    ends: Numbers  # tokens up to and with each

    @property
    def size(self) -> int:
        """How many numbers it keeps."""
        return 2 * len(self.documents)


class WrappedPlan(Plan):
    """Rows cut from all documents one after the other, wherever a row is full."""

    def __init__(
        self, lengths: npt.NDArray[Any], length: int, window: int, seed: int | None
    ) -> None:
        super().__init__(lengths, length, window, seed, POLICIES["split"])
        tokens = []
        for each in range(self.windows):
            before = self.counter.tokens
            self._count(each)
            tokens.append(self.counter.tokens - before)
        self._tokens = _starts(tokens)  # that lie before each window
        self.starts = -(-self._tokens // length)

    def most_pieces(self) -> int:
        """See Plan. Between the first and the last piece lie the shortest documents, at worst."""
        counts = np.zeros(self.length + 1, np.int64)
        for begin in range(0, len(self._lengths), _COUNTED):
            some = np.minimum(self._lengths[begin : begin + _COUNTED], self.length)
            counts += np.bincount(some, minlength=self.length + 1)
        counts[0] = 0
        each = np.arange(self.length + 1)
        before = _starts(counts * each)[:-1]  # tokens of all shorter ones
        fitting = np.clip((self.length - before) // np.maximum(each, 1), 0, counts)
        return min(self.length, int(fitting.sum()) + 2)

    def _planned(self, window: int, epoch: int) -> _Stream:
        documents, counts = self._documents(window, epoch)
        return _Stream(documents, np.cumsum(counts))

    def _parts(self, rows: Numbers, epoch: int) -> list[_Part]:
        """Return the pieces of rows by window, in the order in which a row has them."""
        begins = rows * self.length
        ends = np.minimum(begins + self.length, self._tokens[-1])
        first = np.searchsorted(self._tokens, begins, "right") - 1
        last = np.searchsorted(self._tokens, ends, "left") - 1
        touched = np.unique(np.concatenate([[], *map(np.arange, first, last + 1)]).astype(np.int64))
        parts = []
        for window in touched.tolist():
            which = np.flatnonzero((first <= window) & (window <= last))
            here, beyond = self._tokens[window], self._tokens[window + 1]
            if here == beyond:
                continue
            begin = np.maximum(begins[which], here) - here
            end = np.minimum(ends[which], beyond) - here
            parts.append(self._part(self._window(window, epoch), which, begin, end))
        return parts

    def pieces(self, rows: Numbers, epoch: int) -> Pieces:
        """Return the pieces of rows, which lie within the plan, in that order."""
        parts = self._parts(rows, epoch)
        sizes = np.zeros(len(rows), np.int64)
        for part in parts:
            sizes[part.rows] += part.sizes
        firsts = _starts(sizes)
        found = np.empty((3, firsts[-1]), np.int64)
        begun = firsts[:-1].copy()
        for part in parts:
            places = _ranges(begun[part.rows], part.sizes)
            for target, values in zip(found, part[2:]):
                target[places] = values
            begun[part.rows] += part.sizes
        return Pieces(found[0], found[1], found[2], firsts)

    @staticmethod
    def _part(stream: _Stream, which: Numbers, begin: Numbers, end: Numbers) -> _Part:
        first = np.searchsorted(stream.ends, begin, "right")
        sizes = np.searchsorted(stream.ends, end, "left") - first + 1
        at = _ranges(first, sizes)
        document_begins = np.where(at > 0, stream.ends[at - 1], 0)
        piece_begins = np.maximum(document_begins, np.repeat(begin, sizes))
        piece_ends = np.minimum(stream.ends[at], np.repeat(end, sizes))
        return _Part(
            which,
            sizes,
            stream.documents[at],
            piece_begins - document_begins,
            piece_ends - piece_begins,
        )


def _starts(sizes: Any) -> Numbers:
    """Return where each of some things with these sizes begins, and where the last one ends."""
    found = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=found[1:])
    return found


def _ranges(begins: Numbers, sizes: Numbers) -> Numbers:
    """Return the numbers of ranges with these beginnings and sizes, one after the other."""
    firsts = _starts(sizes)
    return np.arange(firsts[-1]) + np.repeat(begins - firsts[:-1], sizes)
