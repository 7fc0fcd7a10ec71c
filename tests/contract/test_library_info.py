"""`get_worker_info` of torch and paddle in workers of the own loader, which a stream splits by."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import reader
from reader.worker import library_info
from tests.contract.conftest import Cell

LIBRARIES = {"torch": "torch.utils.data", "paddle": "paddle.io"}


def info_of(library: str) -> Any:
    """The worker info of a library."""
    return importlib.import_module(LIBRARIES[library]).get_worker_info()


class Split:
    """A stream that splits itself by the function of a library, as most programs do."""

    def __init__(self, library: str, count: int = 12) -> None:
        self.library = library
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        info = info_of(self.library)
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from range(first, self.count, step)


class Described:
    """Yields whether the worker info of a library equals that of this package."""

    def __init__(self, library: str) -> None:
        self.library = library

    def __iter__(self) -> Iterator[Any]:
        info, own = info_of(self.library), reader.get_worker_info()
        if own is None:
            yield info is None
            return
        kind = vars(sys.modules[type(info).__module__])["WorkerInfo"]
        facts = [(info.id, own.id), (info.num_workers, own.num_workers), (info.seed, own.seed)]
        is_same = info.dataset is self and info is info_of(self.library)
        yield type(info) is kind and is_same and all(theirs == ours for theirs, ours in facts)


class Nested(Split):
    """A stream of the samples of another loader with two worker processes."""

    def __iter__(self) -> Iterator[Any]:
        before = info_of(self.library)
        inner = Split(self.library)
        with reader.DataLoader(inner, num_workers=2, start_method="fork") as loader:
            yield [sample for batch in loader for sample in batch.tolist()]
        assert info_of(self.library) is before


@pytest.mark.timeout(180)  # workers that are spawned import the library
@pytest.mark.sampled(2)
@pytest.mark.parametrize("library", LIBRARIES)
def test_01_a_stream_split_by_a_librarys_function_has_each_sample_once(
    library: str, each_cell: Cell
) -> None:
    with reader.DataLoader(Split(library), batch_size=2, **each_cell) as loader:
        for _ in range(2):
            found = [sample for batch in loader for sample in batch.tolist()]
            assert sorted(found) == list(range(12))


@pytest.mark.parametrize("library", LIBRARIES)
def test_worker_info_of_a_library_has_its_class_and_our_values(library: str, cell: Cell) -> None:
    with reader.DataLoader(Described(library), batch_size=None, **cell) as loader:
        assert all(list(loader))


@pytest.mark.parametrize("library", LIBRARIES)
def test_loaders_that_share_workers_each_find_their_own_dataset(library: str) -> None:
    with reader.WorkerPool(2) as pool:
        options: dict[str, Any] = {"num_workers": 2, "pool": pool, "batch_size": None}
        loaders = [reader.DataLoader(Described(library), **options) for _ in range(2)]
        for pair in zip(*loaders, strict=True):
            assert all(pair)
        for loader in loaders:
            loader.close()


def test_worker_processes_that_a_worker_thread_starts_answer_for_themselves() -> None:
    options: dict[str, Any] = {"num_workers": 2, "worker_type": "thread", "batch_size": None}
    with reader.DataLoader(Nested("torch"), **options) as loader:
        for found in loader:
            assert sorted(found) == list(range(12))
    assert info_of("torch") is None


_LATE = """
import sys

import reader
from tests.contract.test_library_info import Split

if __name__ == "__main__":
    # a spawned worker imports it in the stream in the tests above
    for each in ({"start_method": "fork"}, {"worker_type": "thread"}):
        assert "torch" not in sys.modules
        with reader.DataLoader(Split("torch"), batch_size=3, num_workers=2, **each) as loader:
            found = [sample for batch in loader for sample in batch.tolist()]
        assert sorted(found) == list(range(12)), (each, found)
    assert "torch" in sys.modules
    with reader.DataLoader(Split("torch"), batch_size=3, num_workers=2, **each) as loader:
        assert len(list(loader)) == 4
    print("once")
"""


def test_01_a_library_that_only_the_stream_imports_answers_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LATE], check=False, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("once\n", "")


@pytest.mark.parametrize("answer", [None, lambda: None])
def test_a_library_that_keeps_its_worker_info_elsewhere_is_warned_of_once(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.utils.data

    monkeypatch.setattr(torch.utils.data, "get_worker_info", answer)
    monkeypatch.setattr(library_info, "_refused", set())
    monkeypatch.setattr(library_info, "_answering", {})
    for expected in (1, 0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with reader.DataLoader(range(4), num_workers=2, worker_type="thread") as loader:
                assert len(list(loader)) == 4
        found = [str(each.message) for each in caught if "get_worker_info" in str(each.message)]
        assert len(found) == expected
        for text in found:
            assert "torch.utils.data.get_worker_info() cannot answer in the workers" in text
            assert "use reader.get_worker_info() or reader.shard" in text
