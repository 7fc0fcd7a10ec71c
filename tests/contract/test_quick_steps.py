"""Steps in C: which steps these are, and that all others give the same results."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from reader import BatchSampler, DataLoader, ReaderError, SequenceSampler
from reader._core.epoch.iterator import EpochIterator
from reader._core.interpreter.signals import draw_into
from reader.engine import engine
from reader.engine.map_source import MapSource
from tests.datasets import Calls
from tests.streams import Iterates

COUNT, SIZE = 96, 4
BATCHES = COUNT // SIZE
OPTIONS: dict[str, dict[str, Any]] = {
    "processes": {"num_workers": 2},
    "threads": {"num_workers": 2, "worker_type": "thread"},
    "shuffled": {"num_workers": 2, "shuffle": True, "seed": 5},
    "in any order": {"num_workers": 2, "in_order": False},
    "without workers": {"num_workers": 0},
    "without workers, shuffled": {"num_workers": 0, "shuffle": True},
    "without workers, collated": {
        "num_workers": 0,
        "collate_fn": lambda rows: [list(rows), [n for _, n in rows]],
    },
}


def rows(index: int) -> tuple[np.ndarray[Any, Any], int]:
    return np.full(3, index), index


def opened(get: Callable[[int], Any] = rows, **options: Any) -> EpochIterator:
    loader = DataLoader(Calls(get, COUNT), batch_size=SIZE, framework="numpy", **options)
    batches: Any = iter(loader)
    batches.loader = loader  # kept as long as its iterator
    return batches  # type: ignore[no-any-return]


def count_prepared(batches: EpochIterator) -> list[int]:
    """Note the steps that the epoch makes: the number of batches before each."""
    found: list[int] = []
    next_made = batches.epoch.next_made

    def noted() -> Any:
        found.append(batches.stats.batches)  # type: ignore[union-attr]
        return next_made()

    batches.epoch.next_made = noted
    return found


@pytest.mark.parametrize("kind", OPTIONS)
def test_usual_steps_run_no_code_of_the_engine(kind: str) -> None:
    batches = opened(**OPTIONS[kind])
    prepared = count_prepared(batches)
    found = [int(label) for _, labels in batches for label in labels]
    assert sorted(found) == list(range(COUNT))
    assert set(prepared) <= {BATCHES}  # the end


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0, "seed": 1},
        {"num_workers": 0, "timeout": 60},
        {"num_workers": 0, "places": ["cpu", "cpu"]},
        {"num_workers": 2, "places": ["cpu", "cpu"]},
        {"num_workers": 2, "prefetch_next_epoch": True, "persistent_workers": True},
    ],
    ids=["seeded here", "timed here", "places here", "places", "next epoch ahead"],
)
def test_unusual_steps_are_made_by_the_epoch(options: dict[str, Any]) -> None:
    batches = opened(**options)
    prepared = count_prepared(batches)
    count = sum(1 for _ in batches)
    assert count * len(options.get("places", [0])) == BATCHES
    assert len(prepared) > 1
    batches.loader.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_position_counts_quick_steps(workers: int) -> None:
    batches = opened(num_workers=workers)
    for number in range(BATCHES):
        next(batches)
        assert batches.epoch.progress.batches == number + 1
    assert next(batches, None) is None
    assert batches.epoch.progress.is_finished


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_error_of_a_conversion_comes_once_in_its_place(
    kind: type[BaseException], workers: int
) -> None:
    batches = opened(num_workers=workers)
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


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_of_samples_come_at_their_places(workers: int) -> None:
    def get(index: int) -> int:
        if index in (21, 22, 60):
            raise LookupError(index)
        return index

    batches = opened(get, num_workers=workers)
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
def test_dataset_may_grow_after_its_sampler_was_made(workers: int) -> None:
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
    while batches.dispatcher.feeder.queued < 3:
        pass
    next(batches)
    stats: Any = batches.stats
    assert stats.last_wait_s == 0.0
    assert stats.batches == 2


def slow_after(batches: int) -> Callable[[int], Any]:
    """Return samples; those after the first batches take a while."""

    def get(index: int) -> Any:
        if index >= batches * SIZE:
            threading.Event().wait(0.3)
        return rows(index)

    return get


def test_no_batch_is_taken_from_a_pool_that_is_being_closed() -> None:
    batches = opened(slow_after(9), num_workers=1, prefetch_factor=10)
    next(batches)
    while batches.dispatcher.feeder.queued < 8:
        pass
    batches.epoch.backend.close_soon()  # as another thread that closes the loader does
    with pytest.raises(ReaderError, match="closed after 1 batch"):
        next(batches)
    assert next(batches, "the end") == "the end"
    batches.epoch.backend.close()


def test_threads_whose_last_one_closes_them_may_be_closed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last thread has closed the feeder, and has not said yet that it closes the pool."""
    batches = opened(num_workers=2, worker_type="thread")
    next(batches)
    pool: Any = batches.epoch.backend
    asked, closed = threading.Event(), threading.Event()
    resting = pool._is_resting

    def rests() -> bool:
        asked.set()
        closed.wait(30)
        return bool(resting())

    monkeypatch.setattr(pool, "_is_resting", rests)
    closer = threading.Thread(target=pool.close_soon)
    closer.start()
    assert asked.wait(30)
    pool._close()  # as that thread does
    closed.set()
    closer.join(30)
    assert not closer.is_alive()
    assert not pool._is_resting()
    pool.close()


@pytest.mark.parametrize("how", ["fork", "close"])
def test_batch_kept_by_an_interrupt_is_not_for_a_child_or_after_the_end(how: str) -> None:
    batches = opened(num_workers=2)
    convert, at = batches.convert, 2

    def interrupted(batch: Any) -> Any:
        if batch.seq == at:
            raise KeyboardInterrupt
        return convert(batch)

    batches.convert = interrupted
    for _ in range(at):
        next(batches)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    batches.convert = convert
    if how == "close":
        batches.loader.close()
        with pytest.raises(ReaderError, match="closed after 2 batches"):
            next(batches)
        return
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(batches)
        except ReaderError as error:
            code = 0 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert next(batches)[1][0] == at * SIZE


class Fragile(list[Any]):
    """A list of the user's, whose first copy of one batch cannot be made."""

    calls: ClassVar[list[int]] = []

    def __init__(self, values: Any = ()) -> None:
        super().__init__(values)
        if os.getpid() == TRAINER and len(self):
            first = int(np.ravel(self[0])[0])
            self.calls.append(first)
            if first == 8 and self.calls.count(8) == 1:
                raise RuntimeError("not this time")


TRAINER = os.getpid()


def test_containers_of_the_user_are_made_once() -> None:
    Fragile.calls.clear()
    batches = opened(lambda index: Fragile([np.int64(index)]), num_workers=2)
    found: list[Any] = []
    while True:
        try:
            found.append(int(next(batches)[0][0]))
        except StopIteration:
            break
        except RuntimeError as error:
            found.append(str(error))
    assert found == [0, 4, "not this time", *range(12, COUNT, SIZE)]
    assert Fragile.calls == list(range(0, COUNT, SIZE))


@pytest.mark.parametrize("in_order", [True, False])
def test_two_interrupts_at_one_place_send_a_task_once(
    monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    encode, left = MapSource.encode, [2]

    def interrupted(self: MapSource, task: Any) -> Any:
        is_now = task.number == 4 and left[0] > 0
        made = None if is_now and left[0] == 2 else encode(self, task)
        if is_now:  # before it acts, and then after it
            left[0] -= 1
            raise KeyboardInterrupt
        return made

    monkeypatch.setattr(MapSource, "encode", interrupted)
    order = [list(range(n, n + SIZE)) for n in range(0, COUNT, SIZE)]
    dataset = Calls(rows, COUNT)
    loader = DataLoader(dataset, batch_sampler=order, num_workers=1, in_order=in_order)
    found: list[int] = []
    interrupts = 0
    batches: Any = None
    while True:
        try:
            batches = iter(loader) if batches is None else batches
            found += next(batches)[1].tolist()
        except StopIteration:
            break
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts >= 1
    assert left == [0]
    assert sorted(found) == list(range(COUNT))


def test_interrupt_does_not_lose_the_exception_of_the_sampler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing() -> Any:
        yield [0, 1]
        yield [2, 3]
        raise ValueError("the sampler's")

    left = [1]

    def interrupted(error: BaseException) -> BaseException:
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        return error

    monkeypatch.setattr(engine, "as_user_error", interrupted)
    loader = DataLoader(Calls(rows, COUNT), batch_sampler=Iterates(failing), num_workers=1)
    found: list[Any] = []
    batches: Any = None
    while True:
        try:
            batches = iter(loader) if batches is None else batches
            found.append(next(batches)[1].tolist())
        except StopIteration:
            break
        except (KeyboardInterrupt, ValueError) as error:
            found.append(type(error).__name__)
    assert found[-1] == "ValueError"
    assert [batch for batch in found if type(batch) is list] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError, StopIteration])
def test_interrupted_samplers_are_known_at_once(kind: type[BaseException]) -> None:
    def drawn() -> Any:
        yield [0]
        if kind is not StopIteration:
            raise kind

    found: list[Any] = []
    torn: list[bool] = []
    order = drawn()
    draw_into(found, order, len(found) + 1, torn)
    assert (found, torn) == ([[0]], [])
    if kind is StopIteration:
        draw_into(found, order, len(found) + 1, torn)
    else:
        with pytest.raises(kind):
            draw_into(found, order, len(found) + 1, torn)
    assert (found, torn) == ([[0]], [True] if kind is KeyboardInterrupt else [])


def test_closed_iterator_says_so() -> None:
    batches = opened(num_workers=2)
    next(batches)
    batches.close()
    assert next(batches, "the end") == "the end"
