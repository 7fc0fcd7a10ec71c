"""Datasets that are arrays: rows go into batches without Python code, and nothing else changes."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader import DataLoader, Subset, TensorDataset
from reader.data.columns import columns_of
from tests.datasets import Calls, digest_of

COUNT = 203
RNG = np.random.default_rng(3)
WIDE = RNG.integers(0, 256, (COUNT, 3, 37), np.uint8)
LABELS = np.arange(COUNT)
WEIGHTS = RNG.random((COUNT, 1))


def plain(dataset: Any) -> Calls:
    """Return the same samples, fetched one by one."""
    return Calls(dataset.__getitem__, len(dataset))


def _mapped(folder: Path) -> np.memmap[Any, Any]:
    path = folder / "rows.bin"
    np.arange(COUNT * 5, dtype=np.float32).tofile(path)
    return np.memmap(path, np.float32, "r", shape=(COUNT, 5))


ARRAYS: dict[str, Callable[[Path], Any]] = {
    "array": lambda _: WIDE,
    "numbers": lambda _: LABELS,
    "file": _mapped,
    "tensors": lambda _: TensorDataset([WIDE, LABELS, WEIGHTS]),
    "every-second": lambda _: TensorDataset([WIDE[::2], LABELS[::2]]),
    "backwards": lambda _: TensorDataset([WIDE[::-1]]),
    "one-row": lambda _: TensorDataset([np.broadcast_to(WEIGHTS[:1], (COUNT, 1)), LABELS]),
    "some": lambda _: Subset(TensorDataset([WIDE, LABELS]), [5, 3, 8, 8, 202, 0] * 9),
    "some-of-some": lambda _: Subset(Subset(LABELS, range(9, 199)), np.arange(3, 150, 3)),
    "empty-rows": lambda _: TensorDataset([np.empty((COUNT, 0), np.float32), LABELS]),
    "times": lambda _: LABELS.astype("M8[s]"),
    "pickled": lambda _: pickle.loads(pickle.dumps(TensorDataset([WIDE, LABELS, WEIGHTS]))),
}


def _loaded(dataset: Any, **options: Any) -> list[Any]:
    with DataLoader(dataset, batch_size=16, framework="numpy", **options) as loader:
        return [digest_of(batch) for batch in loader]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "kind", [{}, {"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"}]
)
@pytest.mark.parametrize("name", ARRAYS)
def test_batches_are_those_of_samples_fetched_one_by_one(
    name: str, kind: dict[str, Any], tmp_path: Path
) -> None:
    dataset = ARRAYS[name](tmp_path)
    assert columns_of(dataset) is not None
    for more in ({}, {"shuffle": True, "seed": 4}):
        assert _loaded(dataset, **kind, **more) == _loaded(plain(dataset), **kind, **more)


@pytest.mark.parametrize("name", ["tensors", "some", "pickled"])
def test_no_python_code_runs_for_a_sample(name: str, tmp_path: Path) -> None:
    dataset, calls = ARRAYS[name](tmp_path), []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "__getitem__":
            calls.append(frame.f_code.co_filename)

    loader = DataLoader(dataset, batch_size=16, num_workers=0)
    sys.setprofile(note)
    try:
        epochs = [sum(1 for _ in loader) for _ in range(2)]
    finally:
        sys.setprofile(None)
    assert epochs[0] == epochs[1] == -(-len(dataset) // 16)
    # the first sample decides the form of batches, once per worker and epoch
    assert len([each for each in calls if each.endswith(("datasets.py", "subset.py"))]) <= 4


OTHERS: dict[str, Any] = {
    "list": [1, 2, 3],
    "objects": TensorDataset([np.array(["a", None], object)]),
    "strings": TensorDataset([["a", "b"]]),
    "records": np.zeros(4, [("a", "i4"), ("b", "f8")]),
    "swapped": WIDE.astype(">i4"),
    "columns-first": TensorDataset([np.asfortranarray(WIDE)]),
    "masked": np.ma.masked_array(LABELS.astype(float), LABELS % 2),
    "none": TensorDataset([np.empty((0, 3))]),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_are_not_gathered_are_the_same_as_before(name: str, workers: int) -> None:
    def outcome(dataset: Any) -> Any:
        try:
            return _loaded(dataset, num_workers=workers)
        except reader.CollateError as error:
            return str(error)

    assert outcome(OTHERS[name]) == outcome(plain(OTHERS[name]))


class Doubled(TensorDataset):
    def __getitem__(self, index: int, /) -> tuple[Any, ...]:
        return tuple([2 * each for each in super().__getitem__(index)])


class Everywhere(TensorDataset):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[-1] for _ in indices]


@pytest.mark.parametrize("workers", [0, 1])
def test_subclass_that_fetches_by_itself_is_asked(workers: int) -> None:
    (batch,) = DataLoader(
        Doubled([LABELS]), batch_size=COUNT, num_workers=workers, framework="numpy"
    )
    assert (batch[0] == 2 * LABELS).all()
    (batch,) = DataLoader(
        Everywhere([LABELS]), batch_size=COUNT, num_workers=workers, framework="numpy"
    )
    assert (batch[0] == COUNT - 1).all()


@pytest.mark.parametrize("keys", [[0, 5, COUNT, 1], [0, -1, -COUNT], [7, -COUNT - 1], ["a"]])
@pytest.mark.parametrize("name", ["array", "tensors", "some"])
def test_keys_outside_of_the_arrays_raise_as_before(
    name: str, keys: list[Any], tmp_path: Path
) -> None:
    def outcome(dataset: Any) -> Any:
        try:
            with DataLoader(dataset, batch_sampler=[keys, [1, 2]], num_workers=1) as loader:
                return [digest_of(batch) for batch in loader]
        except Exception as error:
            return type(error), str(error).partition("\n")[0]

    dataset = ARRAYS[name](tmp_path)
    # the texts differ only in the name of the dataset's class
    wanted = outcome(plain(dataset))
    assert str(outcome(dataset)).replace(type(dataset).__name__, "Calls") == str(wanted).replace(
        type(dataset).__name__, "Calls"
    )


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 1])
def test_missing_sample_is_named(at: int, workers: int) -> None:
    indices = [3, 5, 8, 13]
    indices[at] = COUNT
    dataset = Subset(TensorDataset([LABELS]), indices)
    with (
        DataLoader(dataset, batch_size=4, num_workers=workers) as loader,
        pytest.raises(IndexError, match=f"index {COUNT} is out of bounds") as raised,
    ):
        list(loader)
    (note,) = raised.value.__notes__
    assert f"raised in dataset index {at} (sample {at} of the batch), batch 0 of epoch 0" in note


def test_arrays_may_be_changed_and_replaced_between_batches() -> None:
    dataset = TensorDataset([np.zeros((64, 4), np.float32)])
    loader = DataLoader(dataset, batch_size=16, num_workers=0, framework="numpy")
    batches = []
    for number, (batch,) in enumerate(loader):
        batches.append((batch.dtype, batch.shape, batch.max()))
        if number == 0:
            dataset.tensors[0][:] = 1
        elif number == 1:
            dataset.tensors = [np.full((64, 2), 2, np.int64)]
        else:
            dataset.tensors = [[3] * 64]
    assert batches == [
        (np.float32, (16, 4), 0),
        (np.float32, (16, 4), 1),
        (np.int64, (16, 2), 2),
        (np.int64, (16,), 3),
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_epoch_resumes_where_it_stopped(workers: int) -> None:
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 9, "framework": "numpy"}
    dataset = TensorDataset([WIDE, LABELS])
    with DataLoader(dataset, num_workers=workers, **options) as loader:
        whole = [digest_of(batch) for batch in loader]
    with DataLoader(dataset, num_workers=workers, **options) as loader:
        steps = iter(loader)
        begun = [digest_of(next(steps)) for _ in range(9)]
        state = loader.state_dict()
        steps.close()
    with DataLoader(dataset, num_workers=workers, **options) as loader:
        loader.load_state_dict(state)
        assert begun + [digest_of(batch) for batch in loader] == whole


def test_workers_that_are_killed_lose_no_batch() -> None:
    options: dict[str, Any] = {"batch_size": 2, "shuffle": True, "seed": 9, "framework": "numpy"}
    dataset = TensorDataset([WIDE, LABELS])
    whole = [digest_of(batch) for batch in DataLoader(dataset, **options)]
    got = []
    with DataLoader(dataset, num_workers=2, worker_retries=20, **options) as loader:
        for number, batch in enumerate(loader):
            got.append(digest_of(batch))
            if number % 20 == 3:
                os.kill(loader.workers()[number % 2].pid, signal.SIGKILL)
    assert got == whole


def test_batch_of_an_abandoned_epoch_is_not_finished() -> None:
    rows = np.zeros((4096, 1 << 14), np.uint8)
    with DataLoader(rows, batch_size=4096, num_workers=1, persistent_workers=True) as loader:
        for _ in range(5):
            iter(loader)
        (batch,) = loader
        assert batch.shape == (4096, 1 << 14)


class Fetched:
    def __init__(self, fetch: Callable[[list[int]], Any]) -> None:
        self.fetch = fetch

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        raise AssertionError(index)

    def __getitems__(self, indices: list[int]) -> Any:
        return self.fetch(indices)


@pytest.mark.parametrize("workers", [0, 1])
def test_many_samples_may_come_as_one_array(workers: int) -> None:
    columns = {"wide": WIDE, "label": LABELS}
    options: dict[str, Any] = {"num_workers": workers, "shuffle": True, "seed": 2}
    wanted = _loaded(plain(WIDE), **options)
    assert _loaded(Fetched(lambda indices: WIDE[indices]), **options) == wanted
    rows = [{name: array[i] for name, array in columns.items()} for i in range(COUNT)]
    fetched = Fetched(lambda indices: {name: array[indices] for name, array in columns.items()})
    assert _loaded(fetched, **options) == _loaded(rows, **options)
    with pytest.raises(reader.DatasetError, match="returned 3; it must return a list"):
        _loaded(Fetched(lambda _: WIDE[:3]), **options)
    with pytest.raises(reader.DatasetError, match="returned 1; it must return a list"):
        _loaded(Fetched(lambda _: {"wide": WIDE[:3]}), **options)
