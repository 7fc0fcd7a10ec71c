"""StreamFetcher with a fake channel: what is drawn, kept, sent again, and ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reader._core.wire.channel import TaskKind
from reader.errors import ArenaFull
from reader.worker.stream import Stream, StreamFetcher


class Paper:
    """Stands for a WorkerChannel; the first `full` attempts to send find no memory."""

    is_stale = False

    def __init__(self, full: int = 0) -> None:
        self.full = full
        self.sent: list[Any] = []
        self.run = 1
        self.seq = -1
        self.drawn: list[Any] = []
        self.is_stale = self.drew_all = self.ran_out = False

    def set_attachment(self, make: Any) -> None:
        """Only the real channel sends snapshots with batches."""

    def note_fetched(self, rows: int) -> None:
        """Only the real channel counts times."""

    def draw(self, source: Iterator[Any], count: int, samples: list[Any]) -> None:
        while len(samples) < count and not (samples and self.is_stale):
            try:
                samples.append(next(source))
            except StopIteration:
                return

    def _room(self) -> None:
        if self.full:
            self.full -= 1
            raise ArenaFull

    def write_from(self, made: list[Any]) -> None:
        self.write(made[0])
        made.clear()

    def write(self, batch: Any) -> None:
        self._room()
        self.sent.append(batch)

    def stack(self, samples: list[Any], keys: list[int], names: Any = None) -> None:
        assert list(keys) == list(range(len(samples)))
        self.write(samples)

    def stream(self, source: Iterator[Any], count: int, drop_last: bool) -> bool:
        """As the real one: after the first sample it knows how much memory it needs."""
        first = next(source, None)
        if first is None:
            return False
        self.drawn = [first]
        self._room()
        rest = [sample for _, sample in zip(range(count - 1), source, strict=False)]
        if drop_last and len(rest) < count - 1:
            return False
        self.sent.append([first, *rest])
        return True

    def take_drawn(self) -> list[Any]:
        drawn, self.drawn = self.drawn, []
        return drawn

    def send_end(self) -> None:
        self.sent.append("end")


class Numbers:
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, self.count + 1))


def run(fetcher: StreamFetcher, paper: Paper, most: int = 30) -> list[Any]:
    """Ask until the end, and again for batches that found no memory."""
    again: int | None = None
    for _ in range(most):
        if paper.sent and paper.sent[-1] == "end":
            return paper.sent[:-1]
        paper.seq += 1
        try:
            if again is None:
                fetcher.make(paper, TaskKind.TASK_NEXT, None)  # type: ignore[arg-type]
            else:
                fetcher.make(paper, TaskKind.TASK_AGAIN, again)  # type: ignore[arg-type]
            again = None
        except ArenaFull:
            again = paper.seq if again is None else again
    raise AssertionError("no end")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("full", [0, 1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("collate", [None, list, tuple])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8])
def test_01_nothing_is_lost_or_invented_when_there_is_no_memory(
    count: int, collate: Any, drop_last: bool, full: int
) -> None:
    fetcher = StreamFetcher(Numbers(count), collate, Stream(4, drop_last))
    batches = [list(range(at, min(at + 4, count + 1))) for at in range(1, count + 1, 4)]
    wanted = [batch for batch in batches if len(batch) == 4 or not drop_last]
    found = run(fetcher, Paper(full))
    assert [list(batch) for batch in found] == wanted


@pytest.mark.parametrize("full", [0, 2])
@pytest.mark.parametrize("collate", [None, lambda item: -item])
def test_01_without_batching_each_item_is_sent_once(full: int, collate: Any) -> None:
    fetcher = StreamFetcher(Numbers(3), collate, Stream(None, False))
    sign = 1 if collate is None else -1
    assert run(fetcher, Paper(full)) == [sign, 2 * sign, 3 * sign]


@pytest.mark.parametrize("size", [None, 2])
def test_01_collate_fn_runs_once_for_each_batch_even_without_memory(size: int | None) -> None:
    calls: list[Any] = []

    def collate(samples: Any) -> Any:
        calls.append(samples)
        return samples

    run(StreamFetcher(Numbers(4), collate, Stream(size, False)), Paper(3))
    assert calls == ([1, 2, 3, 4] if size is None else [[1, 2], [3, 4]])


def test_new_run_closes_the_old_iterator_before_the_next_begins() -> None:
    told: list[str] = []

    class Careful:
        def __iter__(self) -> Iterator[int]:
            told.append("open")
            try:
                yield from range(9)
            finally:
                told.append("shut")

    fetcher = StreamFetcher(Careful(), None, Stream(2, False))
    paper = Paper()
    for run_ in (1, 2, 3):
        paper.run = run_
        paper.seq = 0
        fetcher.make(paper, TaskKind.TASK_NEXT, None)  # type: ignore[arg-type]
    assert told == ["open", "shut", "open", "shut", "open"]
    assert paper.sent == [[0, 1]] * 3
    del fetcher
    assert told[-1] == "shut"


def test_exhausted_iterator_is_released_and_not_called_again() -> None:
    asked: list[int] = []

    class Once:
        def __iter__(self) -> Once:
            return self

        def __next__(self) -> int:
            asked.append(1)
            raise StopIteration

    for collate in (None, list):
        asked.clear()
        fetcher = StreamFetcher(Once(), collate, Stream(2, False))
        paper = Paper()
        for paper.seq in range(3):
            fetcher.make(paper, TaskKind.TASK_NEXT, None)  # type: ignore[arg-type]
        assert paper.sent == ["end"] * 3
        assert len(asked) == 1
