"""The state of a loader of a map-style dataset: saved anywhere, resumed in another loader."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from reader import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SamplerError,
    StateError,
    sample_rng,
)
from reader._core.epoch.dispatcher import Dispatcher
from reader._core.epoch.tasks import Task, TaskTable
from reader._core.wire.channel import TaskKind
from reader.engine.progress import Progress
from reader.engine.worker_cursors import WorkerCursors
from reader.orders.order_origin import Position
from tests.datasets import OddError
from tests.wire import TakingFeeder

COUNT = 30
CELLS = pytest.mark.parametrize(("workers", "then"), [(0, 0), (0, 2), (2, 0), (2, 1)])


class Noisy:
    """Samples with augmentation from all generators that a dataset may draw from."""

    def __init__(self, count: int = COUNT) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index == self.count + 1:
            raise OddError("file", line=index)
        keyed = sample_rng(index).random()
        return index, keyed, random.random(), np.random.rand(), torch.rand(2)


def values(batch: Any) -> Any:
    return [np.asarray(field).tolist() for field in batch]


def saved(loader: DataLoader) -> Any:
    """The state, through JSON as a program would keep it."""
    return json.loads(json.dumps(loader.state_dict()))


def straight(loader: DataLoader, epochs: int) -> tuple[list[Any], dict[tuple[int, int], Any]]:
    """All batches of some epochs, and the state after each batch and after each epoch."""
    found: list[Any] = []
    states: dict[tuple[int, int], Any] = {(0, 0): saved(loader)}
    for epoch in range(epochs):
        made = []
        for batch in loader:
            made.append(values(batch))
            states[epoch, len(made)] = saved(loader)
        states[epoch + 1, 0] = saved(loader)
        found.append(made)
    return found, states


@pytest.mark.sampled(6)
@pytest.mark.parametrize("options", [{"shuffle": True}, {}, {"batch_size": 1}], ids=str)
@CELLS
def test_06_resumed_epochs_equal_those_of_an_uninterrupted_run(
    workers: int, then: int, options: Any
) -> None:
    options = {"batch_size": 4, "seed": 3, **options}
    with DataLoader(Noisy(10), num_workers=workers, **options) as loader:
        wanted, states = straight(loader, 3)
    for at in [(0, 0), (0, 1), (1, 0), (1, 2), (1, len(wanted[1])), (2, 0)]:
        with DataLoader(Noisy(10), num_workers=then, **options) as loader:
            loader.load_state_dict(states[at])
            assert loader.state_dict() == states[at]
            epoch, batches = at
            assert loader.epoch == epoch
            assert [values(batch) for batch in loader] == wanted[epoch][batches:]
            for later in wanted[epoch + 1 :]:
                assert [values(batch) for batch in loader] == later


@CELLS
def test_06_without_a_seed_order_and_keyed_augmentation_go_on(workers: int, then: int) -> None:
    with DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers) as loader:
        (wanted,), states = straight(loader, 1)
    with DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=then) as loader:
        loader.load_state_dict(states[0, 3])
        assert [values(batch)[:2] for batch in loader] == [batch[:2] for batch in wanted[3:]]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("way", ["break", "del", "close", "other"])
def test_the_position_of_a_break_is_kept_without_the_iterator(workers: int, way: str) -> None:
    with DataLoader(Noisy(), batch_size=4, shuffle=True, seed=1, num_workers=workers) as loader:
        (wanted,), states = straight(loader, 1)
        loader.set_epoch(0)
        batches: Any = iter(loader)
        for _ in range(3):
            next(batches)
        if way == "close":
            batches.close()
        elif way == "other":  # a state of another iterator that was dropped
            batches = iter(loader)
            next(batches)
            loader.set_epoch(0)
            batches = iter(loader)
            for _ in range(3):
                next(batches)
        if way != "break":
            del batches
        assert saved(loader) == states[0, 3]
    with DataLoader(Noisy(), batch_size=4, shuffle=True, seed=1) as loader:
        loader.load_state_dict(states[0, 3])
        assert [values(batch) for batch in loader] == wanted[3:]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_made_ahead_do_not_count_as_delivered(workers: int) -> None:
    with DataLoader(
        Noisy(), batch_size=2, num_workers=workers, prefetch_factor=4, seed=0
    ) as loader:
        batches = iter(loader)
        assert saved(loader)["batches"] == 0
        for count in range(1, 5):
            next(batches)
            assert saved(loader)["batches"] == count


def test_an_exception_in_the_place_of_a_batch_counts_as_that_batch() -> None:
    order = [0, 1, 2, COUNT + 1, 4, 5]
    loader = DataLoader(Longer(), sampler=order, batch_size=1, num_workers=1)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    with pytest.raises(OddError):
        next(batches)
    state = saved(loader)
    loader.close()
    loader = DataLoader(Longer(), sampler=order, batch_size=1)
    loader.load_state_dict(state)
    assert [values(batch)[0] for batch in loader] == [[4], [5]]


class Longer(Noisy):
    def __len__(self) -> int:
        return self.count + 2


@pytest.mark.parametrize("ahead", [False, True])
def test_persistent_workers_and_prefetched_epochs_have_the_same_state(ahead: bool) -> None:
    plain = DataLoader(Noisy(), batch_size=4, shuffle=True, seed=5)
    wanted, states = straight(plain, 3)
    options: Any = {"num_workers": 2, "persistent_workers": True, "prefetch_next_epoch": ahead}
    with DataLoader(Noisy(), batch_size=4, shuffle=True, seed=5, **options) as loader:
        found, own = straight(loader, 3)
        assert found == wanted
        told = ("epoch", "batches", "samples", "base_seed", "epochs")
        for at, state in states.items():
            assert [own[at][name] for name in told] == [state[name] for name in told]
        for at in ((0, 2), (1, 7), (1, 8), (2, 0)):  # also while the next epoch is begun ahead
            loader.load_state_dict(states[at])
            assert loader.state_dict() == states[at]
            assert [values(batch) for batch in loader] == wanted[at[0]][at[1] :]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_dropped_before_its_first_batch_is_resumed(workers: int) -> None:
    def make() -> DataLoader:
        sampler = DistributedSampler(range(COUNT), 2, 1, seed=4)  # it counts its epochs itself
        return DataLoader(
            Noisy(), sampler=sampler, seed=1, num_workers=workers, worker_type="thread"
        )

    with make() as loader:
        wanted, _ = straight(loader, 2)
    with make() as loader:
        batches = iter(loader)
        del batches
        state = saved(loader)
    with make() as loader:
        loader.load_state_dict(state)
        assert [[values(batch) for batch in loader] for _ in range(2)] == wanted


@pytest.mark.parametrize("workers", [0, 2])
def test_a_group_of_places_is_delivered_whole(workers: int) -> None:
    options: Any = {"batch_size": 4, "seed": 2, "places": ["cpu"] * 3, "num_workers": workers}
    with DataLoader(Noisy(), **options) as loader:
        groups, states = [], []
        for group in loader:
            groups.append([values(batch) for batch in group])
            states.append(saved(loader))
    assert [state["batches"] for state in states] == [3, 6, 8]
    for at, state in enumerate(states, 1):
        with DataLoader(Noisy(), **options) as loader:
            loader.load_state_dict(state)
            assert [[values(batch) for batch in group] for group in loader] == groups[at:]


def test_batches_of_a_group_that_an_exception_broke_are_not_delivered() -> None:
    options: Any = {"sampler": [0, 1, 3, COUNT + 1, 4, 5], "places": ["cpu"] * 2}
    with DataLoader(Longer(), **options) as loader:
        batches: Any = iter(loader)
        next(batches)
        with pytest.raises(OddError):
            next(batches)
        assert saved(loader)["batches"] == 2  # 3 waits for its group
        state = saved(loader)
        assert [values(batch)[0] for batch in next(batches)] == [[3], [4]]
        assert saved(loader)["batches"] == 5
        batches.close()
        assert saved(loader)["batches"] == 5
        loader.load_state_dict(state)
        batches = iter(loader)
        with pytest.raises(OddError):
            next(batches)
        batches.close()
        assert saved(loader)["batches"] == 2


@pytest.mark.parametrize("size", [1, 3, 8])
def test_another_batch_size_resumes_at_the_sample(size: int) -> None:
    with DataLoader(Noisy(), batch_size=4, shuffle=True, seed=3, num_workers=1) as loader:
        (wanted,), states = straight(loader, 1)
    with DataLoader(Noisy(), batch_size=size, shuffle=True, seed=3) as loader:
        loader.load_state_dict(states[0, 3])
        rest = [values(batch)[:2] for batch in loader]
    assert all(len(batch[0]) <= size for batch in rest)
    flat = [list(itertools.chain.from_iterable(each)) for each in zip(*rest, strict=True)]
    left = [batch[:2] for batch in wanted[3:]]
    assert flat == [list(itertools.chain.from_iterable(each)) for each in zip(*left, strict=True)]


def test_a_state_is_a_copy_and_loading_does_not_disturb_a_live_iterator() -> None:
    loader = DataLoader(Noisy(), batch_size=4, seed=3)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    kept = copy.deepcopy(state)
    loader.load_state_dict(state)
    state["epoch"] = 99
    assert loader.state_dict() == kept
    assert len(list(batches)) == 7
    assert len(list(loader)) == 7
    assert len(list(loader)) == 8


def test_set_epoch_after_loading_begins_that_epoch_anew() -> None:
    loader = DataLoader(Noisy(), batch_size=4, seed=3)
    _, states = straight(loader, 1)
    loader.load_state_dict(states[0, 2])
    loader.set_epoch(0)  # that of the state: it is resumed
    assert len(list(loader)) == 6
    loader.load_state_dict(states[0, 2])
    loader.set_epoch(1)
    assert len(list(loader)) == 8


def test_a_copy_of_a_loader_resumes_from_its_loaded_state() -> None:
    loader = DataLoader(Noisy(), batch_size=4, seed=3)
    (wanted,), states = straight(loader, 1)
    again = pickle.loads(pickle.dumps(loader))
    again.load_state_dict(states[0, 5])
    assert [values(batch) for batch in again] == wanted[5:]


class Moody:
    """A sampler that gives another order each time, from no known random state."""

    def __init__(self) -> None:
        self.began = 0

    def __iter__(self) -> Iterator[int]:
        self.began += 1
        return iter([(7 * self.began + each) % COUNT for each in range(COUNT)])


def test_a_sampler_that_does_not_repeat_its_order_is_reported() -> None:
    sampler = Moody()
    loader = DataLoader(Noisy(), sampler=sampler, batch_size=4)
    batches = iter(loader)
    next(batches)
    state = saved(loader)
    del batches
    loader.load_state_dict(state)
    with pytest.raises(StateError, match=r"sampler \(Moody\) does not give the same order again"):
        iter(loader)
    assert loader.state_dict() == state  # still to be begun with
    sampler.began -= 2
    assert len(list(loader)) == 7


def test_an_error_of_the_sampler_is_not_the_end_of_the_epoch() -> None:
    def order() -> Iterator[int]:
        yield from range(8)
        raise OddError("sampler", line=8)

    class Raising:
        def __iter__(self) -> Iterator[int]:
            return order()

    loader = DataLoader(Noisy(), sampler=Raising(), batch_size=4)
    batches = iter(loader)
    assert len([next(batches), next(batches)]) == 2
    with pytest.raises(OddError):
        next(batches)
    assert list(batches) == []
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (0, 2)
    assert issubclass(StateError, ValueError)
    assert not issubclass(StateError, SamplerError)


def test_datasets_without_a_state_send_no_snapshot() -> None:
    loader = DataLoader(Noisy(), batch_size=4, num_workers=1)
    for _ in loader:
        assert loader.state_dict()["workers"] is None
    assert WorkerCursors(2, 4).to_json()["workers"][0]["made"] == 0
    loader.close()


class Counted(IterableDataset[int]):
    """Yields numbers, with a state."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 120:
            self.at += 1
            yield self.at
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_thread_saves_while_another_one_iterates(is_stream: bool) -> None:
    states: list[Any] = []
    is_over = threading.Event()

    def make() -> DataLoader:
        if is_stream:
            return DataLoader(Counted(), batch_size=1, snapshot_every_n_steps=1)
        return DataLoader(range(120), batch_size=1, shuffle=True, seed=5)

    loader = make()

    def save() -> None:
        while not is_over.is_set():
            states.append(loader.state_dict())

    made = iter(loader)
    found = [int(next(made)[0])]
    thread = threading.Thread(target=save)
    was = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        found += [int(batch[0]) for batch in made]
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(was)
    counts = [state["batches"] for state in states if state["epoch"] == 0]
    assert counts == sorted(counts)
    assert len(found) == 120
    for state in [state for state in states if state["epoch"] == 0][:: max(1, len(counts) // 5)]:
        resumed = make()
        resumed.load_state_dict(state)
        assert found[: state["batches"]] + [int(batch[0]) for batch in resumed] == found


def test_batches_handed_over_while_two_threads_count_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = TaskTable(8, worker_cursors=WorkerCursors(1, 1))
    dispatcher = Dispatcher(table, TakingFeeder(), None)
    progress = Progress(0, {}, table, Position(0, 0))
    table.report_first()  # all is counted by `count`
    after = WorkerCursors.after
    threads: list[threading.Thread] = []

    def hand(number: int) -> None:
        task = table.draw(TaskKind.TASK_INDICES, b"")
        table.ready(task, task.kind, task.payload)
        dispatcher.send_held()
        dispatcher.hand(table.arrive(number))

    def count_and_wait(self: WorkerCursors, tasks: list[Task], is_stream: bool) -> WorkerCursors:
        found = after(self, tasks, is_stream)
        if not threads:  # another thread counts, and a batch is handed over, right here
            threads.append(threading.Thread(target=progress.count))
            threads[0].start()
            threads[0].join(0.1)
            hand(1)
        return found

    monkeypatch.setattr(WorkerCursors, "after", count_and_wait)
    hand(0)
    progress.count()
    threads[0].join()
    progress.count()
    assert progress.batches == 2
    assert len(table) == 0
