"""Streams that wrap others: states of datasets, shared datasets, errors, interrupts, epochs."""

from __future__ import annotations

import dis
import itertools
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from reader import (
    DataLoader,
    DatasetError,
    IterableDataset,
    StateError,
    mix,
    rebatch,
    shuffle_buffer,
)
from reader.streams import stream_wrapper
from tests.streams import NumbersKept, NumbersWalk

OURS = str(Path(stream_wrapper.__file__).parent)


def both(value: int) -> int:
    return value


def rows(value: int) -> Any:
    return np.arange(4 * value, 4 * value + 3)


WRAPPERS: dict[str, Any] = {
    "first": lambda: mix([NumbersWalk(0, 9, both), NumbersWalk(50, 90, both)], [1, 2]),
    "last": lambda: mix([NumbersWalk(0, 3, both), NumbersWalk(50, 58, both)], stop="last"),
    "all": lambda: mix([NumbersWalk(0, 3, both), NumbersWalk(50, 58, both)], stop="all"),
    "shuffled": lambda: shuffle_buffer(NumbersWalk(0, 14, both), 3, seed=1),
    "rebatched": lambda: rebatch(NumbersWalk(0, 9, rows), 5),
    "nested": lambda: shuffle_buffer(mix([NumbersWalk(0, 5, both)] * 2), 3, seed=1),
}


# ---- interrupts --------------------------------------------------------------------------------


class Interrupt(BaseException):
    """Stands for the exception of a signal handler."""


class Tracer:
    """Raises where a signal handler may run: after a call, at a jump back, at a function's begin.

    Args:
        left: how many such places are passed before.
    """

    def __init__(self, left: int) -> None:
        self.left = left
        self.is_there: dict[FrameType, bool] = {}  # whether the last instruction lets signals in

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            was_there = self.is_there.get(frame, True)
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            self.is_there[frame] = name.startswith(("CALL", "JUMP_BACKWARD", "RESUME", "JUMP_ABS"))
            if was_there:
                self.left -= 1
                if self.left == 0:
                    sys.settrace(None)
                    raise Interrupt
        return self


def drawn_with_an_interrupt(make: Callable[[], Any], after: int) -> tuple[list[Any], bool]:
    """The results of a loop that goes on after an interrupt, and whether there was one."""
    samples, found = iter(make()), []
    was_there = False
    before = sys.gettrace()
    sys.settrace(Tracer(after))
    try:
        while True:
            try:
                sample = next(samples)
            except Interrupt:
                was_there = True
            except StopIteration:
                return found, was_there
            else:
                found.append(np.asarray(sample).tolist())
    finally:
        sys.settrace(before)


@pytest.mark.sampled(3)
@pytest.mark.skipif(sys.version_info < (3, 11), reason="signals come in at other instructions")
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_04_interrupt_anywhere_loses_no_sample(wrapper: str) -> None:
    make = WRAPPERS[wrapper]
    wanted = [np.asarray(sample).tolist() for sample in make()]
    for after in itertools.count(1):
        found, was_there = drawn_with_an_interrupt(make, after)
        assert found == wanted, after
        if not was_there:
            break
    assert after > 100


# ---- states of datasets ------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_state_between_epochs_is_that_of_the_wrapped_datasets(workers: int) -> None:
    """The rest of a source that keeps its position comes in the next epoch."""

    def loader() -> DataLoader:
        mixed = mix([NumbersKept(0, 5, both), NumbersKept(50, 62, both)])
        options: Any = {"persistent_workers": True} if workers else {}
        return DataLoader(mixed, batch_size=None, num_workers=workers, **options)

    with loader() as straight:
        assert list(straight) == [0, 50, 1, 51, 2, 52, 3, 53, 4, 54]
        state = json.loads(json.dumps(straight.state_dict()))
        assert list(straight) == [0, 55, 1, 56, 2, 57, 3, 58, 4, 59]
    with loader() as resumed:
        resumed.load_state_dict(state)
        assert list(resumed) == [0, 55, 1, 56, 2, 57, 3, 58, 4, 59]


def test_wrapper_has_a_state_only_if_all_datasets_have_one() -> None:
    kept, walk = NumbersKept(0, 5), NumbersWalk(0, 5)
    assert mix([kept, kept]).state_dict() == {"datasets": [{"at": 0}] * 2}  # type: ignore[union-attr]
    for other in (mix([kept, walk]), mix([walk]), shuffle_buffer(walk, 3), rebatch(walk, 3)):
        assert not hasattr(other, "state_dict")
        assert not hasattr(other, "load_state_dict")
    assert hasattr(iter(mix([kept, walk])), "state_dict")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"datasets": [{"at": 0}]}, "that of 1 wrapped datasets, and there are 2 here"),
        ({}, "datasets in the state of an iterator must be of type list, got None"),
        ([], "datasets in the state of an iterator must be of type list, got None"),
    ],
)
def test_state_of_a_wrapper_that_does_not_fit_is_refused(state: Any, text: str) -> None:
    wrapper: Any = mix([NumbersKept(0, 5), NumbersKept(0, 5)])
    with pytest.raises(StateError, match=text):
        wrapper.load_state_dict(state)


class Itself(IterableDataset[int]):
    """A dataset that is its own iterator."""

    at = -1

    def __iter__(self) -> Iterator[int]:
        self.at = -1
        return self  # type: ignore[return-value]

    def __next__(self) -> int:
        if self.at == 11:
            raise StopIteration
        self.at += 1
        return self.at

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


def test_dataset_that_is_its_own_iterator_is_refused_by_several_threads_alone() -> None:
    threads: Any = {"worker_type": "thread", "batch_size": None}
    assert sorted(DataLoader(shuffle_buffer(Itself(), 3), num_workers=1, **threads)) == [*range(12)]
    with (
        DataLoader(shuffle_buffer(Itself(), 3), num_workers=2, **threads) as loader,
        pytest.raises(DatasetError, match="__iter__ of Itself returns the dataset itself"),
    ):
        list(loader)


@pytest.mark.parametrize(
    "wrap", [lambda each: shuffle_buffer(each, 3, 1), lambda each: mix([each])]
)
def test_dataset_that_is_its_own_iterator_goes_on(wrap: Any) -> None:
    with DataLoader(wrap(Itself()), batch_size=None) as loader:
        batches = iter(loader)
        before = [next(batches) for _ in range(5)]
        state = json.loads(json.dumps(loader.state_dict()))
        behind = list(batches)
    assert sorted(before + behind) == list(range(12))
    with DataLoader(wrap(Itself()), batch_size=None) as loader:
        loader.load_state_dict(state)
        assert list(loader) == behind


# ---- the rest ----------------------------------------------------------------------------------


class Epochs(IterableDataset[int]):
    """Yields its epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter([self.epoch])


@pytest.mark.parametrize(
    "wrap",
    [
        lambda each: mix([each]),
        lambda each: shuffle_buffer(each, 1),
        lambda each: shuffle_buffer(mix([each]), 1),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_epoch_is_passed_on_to_wrapped_datasets(wrap: Any, workers: int) -> None:
    stream = wrap(Epochs())
    with DataLoader(
        stream, batch_size=None, num_workers=workers, persistent_workers=bool(workers)
    ) as loader:
        for epoch in (3, 5):
            stream.set_epoch(epoch)
            assert list(loader) == [epoch]
        loader.set_epoch(7)
        assert list(loader) == [7]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_survive_pickle(wrapper: str) -> None:
    stream = WRAPPERS[wrapper]()
    again = pickle.loads(pickle.dumps(stream))
    for one, other in itertools.zip_longest(stream, again):
        np.testing.assert_equal(one, other)


def test_iter_of_a_wrapped_dataset_that_fails_is_raised_and_called_again() -> None:
    class Refuses(IterableDataset[int]):
        asked = 0

        def __iter__(self) -> Iterator[int]:
            self.asked += 1
            if self.asked == 2:
                raise LookupError("no such file")
            return iter([1, 2])

    samples = iter(mix([Refuses(), NumbersWalk(0, 4, both)], stop="last"))
    found: list[Any] = []
    with pytest.raises(LookupError):
        found.extend(samples)
    assert found == [1, 0, 2, 1]
    assert list(samples) == [1, 2, 2, 3, 1]


# ---- what is no stream ------------------------------------------------------------------------


class Indexed:
    """A map-style dataset that can be iterated over, too, as those of Hugging Face."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> int:
        return range(7)[index]

    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


SEQUENCES: dict[str, Any] = {
    "list": list(range(7)),
    "tuple": tuple(range(7)),
    "range": range(7),
    "array": np.arange(7),
    "dataset": Indexed(),
    "one": [0],
    "none": [],
}
WORKERS: dict[str, dict[str, Any]] = {
    "none": {},
    "one": {"num_workers": 1},
    "two": {"num_workers": 2},
    "nine": {"num_workers": 9},
    "threads": {"num_workers": 3, "worker_type": "thread"},
    "spawned": {"num_workers": 2, "start_method": "spawn"},
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", SEQUENCES)
def test_each_item_of_a_sequence_comes_once_whatever_the_workers(kind: str, workers: str) -> None:
    items = SEQUENCES[kind]
    expected = sorted(map(int, items))
    stream = shuffle_buffer(items, 3, seed=1)
    with DataLoader(stream, batch_size=None, **WORKERS[workers]) as loader:
        for _ in range(2):
            assert sorted(map(int, loader)) == expected


@pytest.mark.parametrize("workers", ["none", "one", "two", "threads"])
def test_each_row_of_a_list_of_pieces_comes_once(workers: str) -> None:
    pieces = [np.arange(start, start + 5) for start in range(0, 35, 5)]
    for stream in (rebatch(pieces, 3), shuffle_buffer(rebatch(pieces, 3), 2, seed=1)):
        with DataLoader(stream, batch_size=None, **WORKERS[workers]) as loader:
            assert sorted(row for batch in loader for row in batch.tolist()) == list(range(35))


def test_a_list_within_workers_goes_on_at_a_saved_state() -> None:
    options: dict[str, Any] = {"batch_size": None, "num_workers": 2, "seed": 3}
    with DataLoader(shuffle_buffer(list(range(20)), 4), **options) as loader:
        whole = list(loader)
    with DataLoader(shuffle_buffer(list(range(20)), 4), **options) as loader:
        batches = iter(loader)
        begin = [next(batches) for _ in range(7)]
        state = loader.state_dict()
        batches.close()
    with DataLoader(shuffle_buffer(list(range(20)), 4), **options) as loader:
        loader.load_state_dict(state)
        assert begin + list(loader) == whole
