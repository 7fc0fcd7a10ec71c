"""Batches made in the thread that iterates, as a face with `is_as_collated` gets them."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from reader import DatasetError, ReaderError, sample_rng
from reader.policy import BatchPolicy, Policy
from tests.faces import Face
from tests.streams import RangeStream

INLINE = Policy(batch=BatchPolicy(is_as_collated=True))


class Threads:
    """Samples that name the thread that made them."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> tuple[int, str]:
        return index, threading.current_thread().name


def test_batches_are_made_in_the_asking_thread_and_are_the_results_of_collate_fn() -> None:
    made: list[Any] = []

    def collate(samples: Any) -> Any:
        made.append(samples)
        return samples

    loader = Face(INLINE, Threads(), batch_size=3, collate_fn=collate)
    batches = iter(loader)
    first = next(batches)
    assert first is made[0]
    assert len(made) == 1  # nothing is made ahead
    assert first == [(n, threading.current_thread().name) for n in range(3)]
    assert [[n for n, _ in batch] for batch in batches] == [[3, 4, 5], [6]]
    assert loader.workers() == []


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("dataset", [range(7), RangeStream(7)], ids=["map", "stream"])
def test_each_place_gets_its_batch(places: int, dataset: Any) -> None:
    loader = Face(INLINE, dataset, batch_size=2, collate_fn=list, places=["cpu"] * places)
    wanted: Any = [[0, 1], [2, 3], [4, 5], [6]]
    if places == 2:
        wanted = [wanted[:2], wanted[2:]]
    assert list(loader) == wanted
    assert list(loader) == wanted


def test_loader_that_its_collate_fn_refers_to_is_garbage_collected() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.loader = Face(INLINE, range(8), batch_size=2, collate_fn=self.collate)
            self.batches = iter(self.loader)

        def collate(self, samples: Any) -> Any:
            return samples

    trainer = Trainer()
    next(trainer.batches)
    seen = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert seen() is None


def test_10_error_comes_in_the_place_of_its_batch_and_names_the_sample() -> None:
    class Fails(Threads):
        def __getitem__(self, index: int) -> Any:
            if index == 4:
                raise ValueError("not this one")
            return index

    batches = iter(Face(INLINE, Fails(), batch_size=3, collate_fn=list))
    assert next(batches) == [0, 1, 2]
    with pytest.raises(ValueError, match="not this one") as caught:
        next(batches)
    (note,) = caught.value.__notes__
    assert "dataset index 4 (sample 1 of the batch), batch 1 of epoch 0" in note
    assert "the thread that iterates (num_workers=0)" in note
    assert list(batches) == [[6]]


def test_04_ctrl_c_in_the_dataset_is_raised_and_the_batch_is_made_again() -> None:
    interrupts = [KeyboardInterrupt]

    class Interrupted(Threads):
        def __getitem__(self, index: int) -> Any:
            if index == 4 and interrupts:
                raise interrupts.pop()
            return index

    batches = iter(Face(INLINE, Interrupted(), batch_size=3, collate_fn=list))
    found = [next(batches)]
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert [*found, *batches] == [[0, 1, 2], [3, 4, 5], [6]]


def test_01_stop_iteration_in_the_dataset_is_an_error_and_no_end() -> None:
    class Stops(Threads):
        def __getitem__(self, index: int) -> Any:
            if index == 1:
                raise StopIteration
            return index

    batches = iter(Face(INLINE, Stops(), batch_size=3, collate_fn=list))
    with pytest.raises(DatasetError, match="StopIteration"):
        next(batches)
    assert list(batches) == [[3, 4, 5], [6]]


def test_sample_rng_is_refused_again_once_the_batch_is_made() -> None:
    drawn: list[float] = []

    class Draws(Threads):
        def __getitem__(self, index: int) -> Any:
            drawn.append(sample_rng(index).random())
            return index

    next(iter(Face(INLINE, Draws(), batch_size=3, collate_fn=list, seed=1)))
    assert len(drawn) == 3
    with pytest.raises(ReaderError, match="only while a DataLoader fetches"):
        sample_rng(0)
