"""Steps in C: which they are, and that whatever is not usual comes as it would without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reader import BatchSampler, DataLoader, SequenceSampler
from reader.engine.epoch import EpochIterator
from tests.datasets import Calls

COUNT, SIZE = 96, 4
BATCHES = COUNT // SIZE
OPTIONS: dict[str, dict[str, Any]] = {
    "processes": {"num_workers": 2},
    "threads": {"num_workers": 2, "worker_type": "thread"},
    "shuffled": {"num_workers": 2, "shuffle": True, "seed": 5},
    "in any order": {"num_workers": 2, "in_order": False},
}


def rows(index: int) -> tuple[np.ndarray[Any, Any], int]:
    return np.full(3, index), index


def opened(get: Callable[[int], Any] = rows, **options: Any) -> EpochIterator:
    loader = DataLoader(Calls(get, COUNT), batch_size=SIZE, framework="numpy", **options)
    batches: Any = iter(loader)
    batches.loader = loader  # kept as long as its iterator
    return batches  # type: ignore[no-any-return]


def count_prepared(batches: EpochIterator) -> list[int]:
    """Have the steps noted that `prepare` makes: the number of batches before each."""
    found: list[int] = []
    prepare = batches.prepare

    def noted() -> None:
        found.append(batches.stats.batches)  # type: ignore[union-attr]
        prepare()

    batches.prepare = noted  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("kind", OPTIONS)
def test_usual_steps_run_no_code_of_the_engine(kind: str) -> None:
    batches = opened(**OPTIONS[kind])
    prepared = count_prepared(batches)
    found = [label for _, labels in batches for label in labels.tolist()]
    assert sorted(found) == list(range(COUNT))
    assert set(prepared) <= {BATCHES}  # the end


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 2, "places": ["cpu", "cpu"]},
        {"num_workers": 2, "prefetch_next_epoch": True, "persistent_workers": True},
    ],
    ids=["inline", "places", "next epoch ahead"],
)
def test_other_steps_are_prepared(options: dict[str, Any]) -> None:
    batches = opened(**options)
    prepared = count_prepared(batches)
    count = sum(1 for _ in batches)
    assert count * len(options.get("places", [0])) == BATCHES
    assert len(prepared) > 1
    batches.loader.close()


def test_position_counts_quick_steps() -> None:
    batches = opened(num_workers=2)
    for number in range(BATCHES):
        next(batches)
        assert batches.cursor.batches <= number + 1  # counted in lots
        if number % 5 == 2:
            batches.cursor.settle()
            assert batches.cursor.batches == number + 1
    assert next(batches, None) is None
    assert batches.cursor.is_finished


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_what_a_conversion_raises_comes_once_at_its_place(kind: type[BaseException]) -> None:
    batches = opened(num_workers=2)
    convert, raised = batches.convert, 0

    def bad(batch: Any) -> Any:
        nonlocal raised
        if batch.seq == 3 and (kind is ValueError or not raised):
            raised += 1
            raise kind(raised)
        return convert(batch)

    batches.convert = bad
    found: list[int] = []
    errors = 0
    while True:
        try:
            found += [int(label) // SIZE for label in next(batches)[1][:1]]
        except StopIteration:
            break
        except (ValueError, KeyboardInterrupt):
            assert len(found) == 3
            errors += 1
    assert errors == 1
    kept = [] if kind is ValueError else [3]  # Ctrl-C loses none
    assert found == [0, 1, 2, *kept, *range(4, BATCHES)]


def test_errors_of_samples_come_at_their_places() -> None:
    def get(index: int) -> int:
        if index in (21, 22, 60):
            raise LookupError(index)
        return index

    batches = opened(get, num_workers=2)
    prepared = count_prepared(batches)
    found: list[Any] = []
    while True:
        try:
            found.append(next(batches)[0] // SIZE)
        except StopIteration:
            break
        except LookupError as error:
            found.append(str(error.args[0])[:2])
    assert found == [*range(5), "21", *range(6, 15), "60", *range(16, BATCHES)]
    assert len(prepared) == 3  # two errors and the end


@pytest.mark.parametrize("workers", [1, 2])
def test_dataset_may_grow_behind_its_sampler(workers: int) -> None:
    dataset = Calls(rows, 10)
    order = BatchSampler(sampler=SequenceSampler(range(16)), batch_size=2)
    loader = DataLoader(dataset, batch_sampler=order, num_workers=workers, framework="numpy")
    found = []
    for _, labels in loader:
        found.append(labels.tolist())
        dataset.count = 16
    assert found == [[n, n + 1] for n in range(0, 16, 2)]


def test_ready_batches_count_as_no_wait() -> None:
    batches = opened(num_workers=2, prefetch_factor=4)
    next(batches)
    while batches.feeder.queued < 3:
        pass
    next(batches)
    stats: Any = batches.stats
    assert stats.last_wait_s == 0.0
    assert stats.batches == 2


def test_closed_iterator_says_so() -> None:
    batches = opened(num_workers=2)
    next(batches)
    batches.close()
    assert next(batches, "the end") == "the end"
