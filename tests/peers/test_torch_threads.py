"""Worker threads of the torch face: same order, error texts and results as processes."""

from __future__ import annotations

import os
import threading
from multiprocessing.context import ForkContext, SpawnContext
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import reader
from reader.compat.torch import DataLoader, StatefulDataLoader
from tests.datasets import Pids

THREADS: dict[str, Any] = {"num_workers": 2, "worker_type": "thread"}


class Rows(Dataset[Any]):
    """Rows of two fields, with who made them."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        worker = (-1, 0) if info is None else (info.id, info.num_workers)
        return torch.full((3,), float(index)), worker


class Noise(Dataset[Any]):
    """Draws from PyTorch's generator for worker threads."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(2, generator=torch.thread_safe_generator())


class Failing(Rows):
    """Cannot give one row."""

    def __getitem__(self, index: int) -> Any:
        if index == 4:
            raise KeyError("row four")
        return super().__getitem__(index)


class Stream(IterableDataset[Any]):
    """Each worker its own numbers."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 10, step))


def told(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [told(part) for part in value]


@pytest.mark.parametrize("persistent", [False, True])
def test_threads_give_the_batches_of_pytorchs_processes(persistent: bool) -> None:
    options: dict[str, Any] = {"shuffle": True, "persistent_workers": persistent}
    torch.manual_seed(3)
    theirs = torch.utils.data.DataLoader(Rows(), 2, num_workers=2, **options)
    wanted = [told(theirs) for _ in range(2)]
    after = torch.rand(1)
    del theirs
    torch.manual_seed(3)
    with DataLoader(Rows(), 2, **options, **THREADS) as ours:
        got = [told(ours) for _ in range(2)]
    assert got == wanted
    assert torch.equal(torch.rand(1), after)


def test_get_worker_info_answers_in_each_thread_and_nowhere_else() -> None:
    batches = told(DataLoader(Rows(), 1, **THREADS))
    assert [worker for _, worker in batches] == [[[n % 2], [2]] for n in range(11)]
    assert get_worker_info() is None
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(get_worker_info()))
    thread.start()
    thread.join()
    assert answers == [None]


def test_thread_knows_that_it_is_one_and_has_generators_of_its_own() -> None:
    class Asking(Rows):
        def __getitem__(self, index: int) -> Any:
            info = get_worker_info()
            assert info is not None
            assert info.dataset is self
            return index, info.worker_method, info.rng is not None

    batches = list(DataLoader(Asking(), None, **THREADS))
    assert [batch[1:] for batch in batches] == [["thread", True]] * 11


def test_global_random_state_is_left_alone_and_the_base_seed_decides() -> None:
    torch.manual_seed(5)
    once = told(DataLoader(Noise(), 3, **THREADS))
    state = torch.get_rng_state()
    torch.manual_seed(5)
    again = told(DataLoader(Noise(), 3, **THREADS))
    assert once == again
    assert torch.equal(torch.get_rng_state(), state)


def test_error_of_a_thread_comes_at_its_place_in_pytorchs_words() -> None:
    batches = iter(DataLoader(Failing(), 2, **THREADS))
    got: list[Any] = []
    while True:
        try:
            got.append(next(batches)[0][:, 0].tolist())
        except StopIteration:
            break
        except KeyError as error:
            got.append(str(error).splitlines()[0])
    words = "Caught KeyError in DataLoader worker process 0."
    assert got == [[0.0, 1.0], [2.0, 3.0], words, [6.0, 7.0], [8.0, 9.0], [10.0]]


def test_streams_are_divided_among_threads_as_among_processes() -> None:
    theirs = torch.utils.data.DataLoader(Stream(), 2, num_workers=2)
    wanted = [batch.tolist() for batch in theirs]
    assert [batch.tolist() for batch in DataLoader(Stream(), 2, **THREADS)] == wanted


def test_threads_look_like_workers_and_end_with_their_iterator() -> None:
    batches = iter(DataLoader(Rows(), 1, **THREADS))
    next(batches)
    workers = batches._workers
    assert [worker.is_alive() for worker in workers] == [True, True]
    with pytest.raises(reader.ReaderError, match="is a thread and cannot be ended from outside"):
        workers[0].terminate()
    del batches
    for worker in workers:
        worker.join(40)
        worker.terminate()
        worker.kill()
    assert [worker.exitcode for worker in workers] == [0, 0]


@pytest.mark.parametrize("resumed", [THREADS, {"num_workers": 2}, {"num_workers": 0}])
def test_epoch_of_threads_goes_on_with_other_workers(resumed: dict[str, Any]) -> None:
    class Drawn(Rows):
        def __getitem__(self, index: int) -> Any:
            return index, torch.rand(1)

    torch.manual_seed(8)
    whole = told(StatefulDataLoader(Drawn(), 2, True, **THREADS))
    torch.manual_seed(8)
    loader = StatefulDataLoader(Drawn(), 2, True, **THREADS)
    batches = iter(loader)
    begun = told([next(batches) for _ in range(2)])
    state = loader.state_dict()
    del batches
    other = StatefulDataLoader(Drawn(), 2, True, **resumed)
    other.load_state_dict(state)
    assert begun + told(other) == whole


def test_start_method_contradicts_threads() -> None:
    with pytest.raises(reader.ConfigError, match="start_method"):
        iter(DataLoader(Rows(), multiprocessing_context="spawn", **THREADS))


class ThreadProcess(threading.Thread):
    """A thread with the interface of a process, as MONAI has one."""


class ThreadContext(SpawnContext):
    """A context for which PyTorch's workers become threads."""

    _name = "thread of a library"
    Process = ThreadProcess  # type: ignore[assignment]


class OwnContext(ForkContext):
    """A context of a user, with an unknown name."""

    _name = "own"


def test_context_whose_processes_are_threads_asks_for_threads() -> None:
    loader = DataLoader(Pids(4), 2, num_workers=2, multiprocessing_context=ThreadContext())
    assert [batch.tolist() for batch in loader] == [[os.getpid()] * 2] * 2


def test_a_users_context_counts_as_the_method_it_is_derived_from() -> None:
    loader = DataLoader(Pids(4), 2, num_workers=2, multiprocessing_context=OwnContext())
    assert all(os.getpid() not in batch.tolist() for batch in loader)


def test_threads_and_a_start_method_are_refused_when_the_loader_is_made() -> None:
    with pytest.raises(reader.ConfigError, match="start_method='fork' contradicts worker_type"):
        DataLoader(Pids(4), multiprocessing_context="fork", **THREADS)
