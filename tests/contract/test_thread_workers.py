"""Worker threads: what they have beyond processes, and the same promises."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, DatasetError, IterableDataset, get_worker_info, sample_rng, shard
from reader.policy import Policy, WorkerPolicy
from reader.worker.rng import WorkerRng
from tests.datasets import Augmented, Calls, NoLength, Rows, TorchAugmented, check_rows, digest_of
from tests.faces import Face
from tests.processes import BOUND_S

THREADS: dict[str, Any] = {"num_workers": 2, "worker_type": "thread"}
EPOCHS = 2


def digests(dataset: Any, **options: Any) -> list[str]:
    with DataLoader(dataset, batch_size=4, shuffle=True, seed=11, **options) as loader:
        return [digest_of(loader) for _ in range(EPOCHS)]


# ---- one dataset, shared ---------------------------------------------------------------------


class Unpicklable(Rows):
    """Names the object that made a sample, and cannot be pickled."""

    def __init__(self) -> None:
        super().__init__(16)
        self.lock = threading.Lock()

    def __getitem__(self, index: int) -> Any:
        with self.lock:
            return {"row": super().__getitem__(index), "maker": self}


def test_threads_work_on_the_very_dataset_and_hand_objects_over_by_reference() -> None:
    dataset = Unpicklable()
    with DataLoader(dataset, batch_size=4, **THREADS) as loader:
        for n, batch in enumerate(loader):
            check_rows(batch["row"], range(4 * n, 4 * n + 4))
            assert all(maker is dataset for maker in batch["maker"])


def test_threads_run_side_by_side() -> None:
    """The first two samples wait for each other: one thread alone would wait for ever.

    Only these: which worker makes a later batch depends on who was done first, and so one of them
    may make more than half of all.
    """
    barrier = threading.Barrier(2, timeout=BOUND_S)

    def meet(index: int) -> Any:
        if index < 2:
            barrier.wait()
        return index

    for options in ({}, {"seed": 3, "seed_globals": False}):
        with DataLoader(Calls(meet, 8), batch_size=1, **THREADS, **options) as loader:
            assert [int(batch[0]) for batch in loader] == list(range(8))


@pytest.mark.parametrize("persistent", [False, True])
def test_persistent_threads_stay_between_epochs(persistent: bool) -> None:
    with DataLoader(
        Calls(lambda index: threading.get_native_id(), 8),
        batch_size=1,
        persistent_workers=persistent,
        **THREADS,
    ) as loader:
        epochs = [{int(batch[0]) for batch in loader} for _ in range(2)]
    assert len(epochs[0] | epochs[1]) == (2 if persistent else 4)


def test_dataset_is_told_of_an_epoch_once_and_by_the_trainer_alone() -> None:
    told: list[tuple[int, int]] = []

    class EpochStart(Rows):
        def set_epoch(self, epoch: int) -> None:
            told.append((epoch, threading.get_ident()))

    with DataLoader(EpochStart(8), batch_size=4, persistent_workers=True, **THREADS) as loader:
        for epoch in range(2):
            loader.set_epoch(epoch)
            assert len(list(loader)) == 2
    assert told == [(epoch, threading.get_ident()) for epoch in range(2)]


# ---- what the user's code can ask ------------------------------------------------------------


def test_worker_info_answers_for_each_thread() -> None:
    found: list[Any] = []
    started: list[int] = []
    dataset = Calls(lambda index: found.append(get_worker_info()) or 0, 8)
    with DataLoader(dataset, batch_size=1, worker_init_fn=started.append, **THREADS) as loader:
        assert len(list(loader)) == 8
    assert sorted(started) == [0, 1]
    assert {(info.id, info.num_workers, info.worker_type) for info in found} == {
        (0, 2, "thread"),
        (1, 2, "thread"),
    }
    assert all(info.dataset is dataset for info in found)
    assert len({info.seed for info in found}) == 2
    assert get_worker_info() is None


def test_worker_info_of_a_process_says_so_and_has_no_generators() -> None:
    dataset = Calls(lambda index: (get_worker_info().worker_type, get_worker_info().rng), 2)  # type: ignore[union-attr]
    with DataLoader(dataset, batch_size=1, num_workers=1) as loader:
        assert [(kinds[0], rngs[0]) for kinds, rngs in loader] == [("process", None)] * 2


def test_without_workers_the_thread_is_no_worker_whatever_the_worker_type() -> None:
    dataset = Calls(lambda index: get_worker_info() is None, 4)
    with DataLoader(dataset, batch_size=4, num_workers=0, worker_type="thread") as loader:
        assert [batch.all() for batch in loader] == [True]


def draws(index: int) -> Any:
    info = get_worker_info()
    assert info is not None
    assert info.rng is not None
    rng = info.rng
    drawn = {"python": rng.random_generator.random(), "numpy": rng.numpy_generator.random()}
    if rng.torch_generator is not None:
        import torch

        drawn["torch"] = torch.rand(1, generator=rng.torch_generator).item()
    return {**drawn, "keyed": sample_rng(index).random(), "index": index}


def test_06_generators_of_threads_are_seeded_for_each_batch() -> None:
    found = {
        digests(Calls(draws, 40), num_workers=workers, worker_type="thread", seed_globals=each)[1]
        for workers in (1, 3)
        for each in (False, True)
    }
    assert len(found) == 1


def test_generators_of_threads_without_a_seed_are_fresh() -> None:
    with DataLoader(Calls(draws, 64), batch_size=1, **THREADS) as loader:
        found = [batch["numpy"].item() for epoch in range(2) for batch in loader]
    assert len(set(found)) == 128


def test_face_prepares_each_thread_and_gives_its_seed() -> None:
    seen: list[Any] = []

    def prepare(worker_id: int, num_workers: int, dataset: Any) -> int:
        info = get_worker_info()
        assert info is not None
        seen.append((worker_id, num_workers, info.worker_type, type(info.rng)))
        return 100 + worker_id

    dataset = Calls(lambda index: (get_worker_info().seed, draws(index)["numpy"]), 4)  # type: ignore[union-attr]
    policy = Policy(worker=WorkerPolicy(make_prepare=lambda: prepare))
    with Face(policy, dataset, batch_size=1, **THREADS) as loader:
        found = {int(seed[0]): float(drawn[0]) for seed, drawn in list(loader)[:2]}
    assert sorted(seen) == [(n, 2, "thread", WorkerRng) for n in range(2)]
    assert found == {100 + n: WorkerRng(100 + n).numpy_generator.random() for n in range(2)}


# ---- seeds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
def test_06_digests_of_threads_are_those_of_processes(workers: int) -> None:
    wanted = digests(Augmented(), num_workers=2)
    for persistent in (False, True):
        options = {"num_workers": workers, "persistent_workers": persistent}
        assert digests(Augmented(), worker_type="thread", **options) == wanted


def test_06_torch_augmentation_in_threads_is_that_of_processes() -> None:
    pytest.importorskip("torch")
    wanted = digests(TorchAugmented(), num_workers=1, framework="torch")
    assert digests(TorchAugmented(), framework="torch", **THREADS) == wanted


@pytest.mark.parametrize("workers", [0, 2])
def test_07_global_generators_are_left_alone_without_seed_globals(workers: int) -> None:
    state, other = random.getstate(), np.random.get_state(legacy=False)
    found = []
    for worker_type in ("process", "thread"):
        with DataLoader(
            Calls(lambda index: sample_rng(index).random(), 40),
            batch_size=4,
            shuffle=True,
            seed=5,
            seed_globals=False,
            num_workers=workers,
            worker_type=worker_type,
        ) as loader:
            found.append(digest_of(loader))
    assert found[0] == found[1]
    assert random.getstate() == state
    assert str(np.random.get_state(legacy=False)) == str(other)


def test_06_workers_are_not_seeded_before_each_batch_without_seed_globals() -> None:
    dataset = Calls(lambda index: random.random(), 16)
    with DataLoader(dataset, batch_size=1, num_workers=1, seed=5, seed_globals=False) as loader:
        once, again = ([batch.item() for batch in loader] for _ in range(2))
    assert not set(once) & set(again)


def test_06_seeded_loader_inside_the_dataset_of_another_gets_a_nested_hold() -> None:
    def inner() -> list[float]:
        with DataLoader(Augmented(8), batch_size=4, seed=2, **THREADS) as loader:
            return [float(batch["python"].sum()) for batch in loader]

    def outer(index: int) -> Any:
        return random.random(), inner(), random.random()

    wanted = inner()
    with DataLoader(Calls(outer, 4), batch_size=1, seed=1, **THREADS) as loader:
        found = list(loader)
    with DataLoader(Calls(lambda i: (random.random(), random.random()), 4), seed=1) as loader:
        plain = list(loader)
    for (first, inside, second), (its_first, its_second) in zip(found, plain, strict=True):
        assert (first, second) == (its_first, its_second)
        assert [float(value[0]) for value in inside] == wanted


def test_06_seeded_loaders_in_threads_of_the_trainer_do_not_disturb_each_other() -> None:
    wanted = digests(Augmented(), num_workers=0)
    found: list[list[str]] = []

    def train(options: dict[str, Any]) -> None:
        found.append(digests(Augmented(), **options))

    each = [{"num_workers": 0}, THREADS, THREADS]
    threads = [threading.Thread(target=train, args=(options,)) for options in each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert found == [wanted] * 3


# ---- iterable datasets -----------------------------------------------------------------------


class Letters(IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        return shard("abcdefg")


@pytest.mark.parametrize("options", [{}, {"seed": 1}, {"seed": 1, "seed_globals": False}])
@pytest.mark.parametrize("persistent", [False, True])
def test_01_each_thread_iterates_its_shard(persistent: bool, options: dict[str, Any]) -> None:
    with DataLoader(
        Letters(), batch_size=None, persistent_workers=persistent, **THREADS, **options
    ) as loader:
        for _ in range(2):
            assert list(loader) == list("abcdefg")


def test_dataset_that_is_its_own_iterator_is_refused_by_threads() -> None:
    class Self(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return self  # type: ignore[return-value]

        def __next__(self) -> int:
            raise AssertionError("it was drawn from")

    with (
        DataLoader(Self(), **THREADS) as loader,
        pytest.raises(DatasetError, match=r"__iter__ of Self returns the dataset itself"),
    ):
        next(iter(loader))


# ---- errors ----------------------------------------------------------------------------------


def test_10_exception_arrives_at_its_place_and_names_the_thread() -> None:
    class Odd(Exception):
        def __init__(self, one: int, two: int) -> None:  # no pickle would rebuild it
            super().__init__(one)
            self.two = two

    raised = Odd(1, 2)

    def sample(index: int) -> int:
        if index == 5:
            raise raised
        return index

    with DataLoader(Calls(sample, 12), batch_size=2, **THREADS) as loader:
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(Odd) as info:
            next(batches)
        assert info.value is raised
        notes = "\n".join(info.value.__notes__)  # type: ignore[attr-defined]
        assert "dataset index 5 (sample 1 of the batch), batch 2 of epoch 0" in notes
        assert "by worker thread " in notes
        assert [batch.tolist() for batch in batches] == [[6, 7], [8, 9], [10, 11]]


@pytest.mark.parametrize("kind", [StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_01_exceptions_that_would_end_a_thread_or_the_loop_are_errors_of_their_batch(
    kind: type,
) -> None:
    def sample(index: int) -> int:
        if index == 1:
            raise kind
        return index

    with DataLoader(Calls(sample, 3), **THREADS) as loader:
        batches = iter(loader)
        assert next(batches).tolist() == [0]
        with pytest.raises(DatasetError):
            next(batches)
        assert next(batches).tolist() == [2]


class Breaks:
    """A key that pickles, and breaks when it is unpickled."""

    def __reduce__(self) -> Any:
        return _break, ()


def _break() -> Any:
    raise ValueError("broken on arrival")


@pytest.mark.parametrize("worker_type", ["process", "thread"])
def test_01_keys_that_cannot_be_unpickled_are_an_error_of_their_batch(worker_type: str) -> None:
    keys: list[Any] = ["a", Breaks(), "c"]
    with DataLoader(
        NoLength(), sampler=keys, batch_size=None, num_workers=1, worker_type=worker_type
    ) as loader:
        batches = iter(loader)
        assert next(batches) == "a"
        with pytest.raises(DatasetError, match="cannot be unpickled in the worker"):
            next(batches)
        assert next(batches) == "c"
