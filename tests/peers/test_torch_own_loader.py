"""PyTorch's own tests of a DataLoader, in our words, for our loader.

Imports pytest, torch and the harness; everything runs in this process. Holds nothing.
"""

from __future__ import annotations

import json
import os
import signal
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    get_worker_info,
)

from reader.compat.torch import DataLoader, StatefulDataLoader
from tests.peers.torch_samples import TENSORS, VECTORS, Rows, Stream

pytestmark = pytest.mark.peer
WORKERS = pytest.mark.parametrize("workers", [0, 2])


@WORKERS
def test_batches_in_order_are_slices_of_the_data(workers: int) -> None:
    for index, (vectors, numbers) in enumerate(DataLoader(TENSORS, 4, num_workers=workers)):
        assert torch.equal(vectors, VECTORS[index * 4 : index * 4 + 4])
        assert numbers.tolist() == list(range(index * 4, index * 4 + 4))
    assert index == 4


@WORKERS
def test_shuffled_batches_have_every_sample_once_and_belong_together(workers: int) -> None:
    seen: list[int] = []
    for vectors, numbers in DataLoader(TENSORS, 3, shuffle=True, num_workers=workers):
        assert torch.equal(vectors, VECTORS[numbers])
        seen += numbers.tolist()
    assert sorted(seen) == list(range(20))
    assert seen != list(range(20))


@WORKERS
def test_error_of_a_dataset_comes_as_often_as_it_is_raised(workers: int) -> None:
    class Errors(Rows):
        def __getitem__(self, index: int) -> Any:
            raise NotImplementedError("no samples here")

    batches = iter(DataLoader(Errors(6), 2, num_workers=workers))
    raised = 0
    while True:
        try:
            next(batches)
        except NotImplementedError:
            raised += 1
        except StopIteration:
            break
    assert raised == 3
    with pytest.raises(StopIteration):
        next(batches)


def test_ctrl_c_in_a_sample_and_in_a_sampler_costs_no_batch() -> None:
    left = [3, 9]

    def may_be_interrupted(index: int) -> None:
        if left and index == left[0]:
            del left[0]
            signal.raise_signal(signal.SIGINT)

    class Interrupted(Rows):
        def __getitem__(self, index: int) -> Any:
            if len(left) == 2:
                may_be_interrupted(index)
            return index

    class Sampler(torch.utils.data.Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            for index in range(12):
                if len(left) == 1:
                    may_be_interrupted(index)
                yield index

    batches = iter(DataLoader(Interrupted(12), 2, sampler=Sampler()))
    found: list[int] = []
    interrupts = 0
    while True:
        try:
            found += next(batches).tolist()
        except KeyboardInterrupt:
            interrupts += 1
        except StopIteration:
            break
    assert interrupts == 2
    assert found == list(range(12))


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), CancelledError()])
def test_base_exceptions_are_raised_unchanged_without_workers(error: BaseException) -> None:
    class Raises(Rows):
        def __getitem__(self, index: int) -> Any:
            raise error

    class Sampler(torch.utils.data.Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            yield 0
            raise error

    with pytest.raises(type(error)) as caught:
        next(iter(DataLoader(Raises(2))))
    assert caught.value is error
    batches = iter(DataLoader(Rows(2), sampler=Sampler()))
    next(batches)
    with pytest.raises(type(error)) as caught:
        next(batches)
    assert caught.value is error
    assert next(batches, None) is None


def test_warning_of_a_stream_that_is_too_long_names_the_loop() -> None:
    class Numbers(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

        def __len__(self) -> int:
            return 2

    loader = DataLoader(Numbers())
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="Length of IterableDataset") as warned:
        assert len(list(loader)) == 3
    assert [each.filename for each in warned] == [__file__]


@WORKERS
def test_error_says_what_was_raised_and_in_which_worker(workers: int) -> None:
    class Errors(Rows):
        def __getitem__(self, index: int) -> Any:
            raise KeyError("there is\nno such key")

    with pytest.raises(KeyError, match="there is") as caught:
        next(iter(DataLoader(Errors(), num_workers=workers)))
    if workers:
        assert "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback" in str(
            caught.value
        )


class Prefixed(RuntimeError):
    """Has more to say than its argument."""

    def __str__(self) -> str:
        return f"of ours: {self.args[0]}"


RAISES: dict[str, Callable[[], Any]] = {
    "attribute": lambda: object().missing,  # type: ignore[attr-defined]
    "name": lambda: eval("missing"),
    "import": lambda: __import__("no_such_module"),
    "syntax": lambda: compile("1 +", "<text>", "eval"),
    "division": lambda: 1 / 0,
    "key": lambda: {}[3],
    "codec": lambda: b"\xff".decode(),
    "json": lambda: json.loads("{"),
    "file": lambda: os.stat("no such file"),
    "os": lambda: _raise(OSError("plain")),
    "bare": lambda: _raise(ValueError()),
    "own text": lambda: _raise(Prefixed("text")),
}


def _raise(error: Exception) -> None:
    raise error


def test_errors_of_every_kind_have_pytorchs_words_and_their_own() -> None:
    class Errors(Rows):
        def __getitem__(self, index: int) -> Any:
            return [*RAISES.values()][index]()

    batches = iter(DataLoader(Errors(len(RAISES)), num_workers=1))
    for name, act in RAISES.items():
        with pytest.raises(Exception) as caught:  # noqa: PT011  # of many kinds
            act()
        own, kind = str(caught.value), type(caught.value)
        with pytest.raises(kind) as caught:
            next(batches)
        text = str(caught.value)
        assert f"Caught {kind.__name__} in DataLoader worker process 0.\nOriginal Tr" in text, name
        assert own.partition(" (<")[0] in text, name  # the place of a syntax error comes last
    assert next(batches, None) is None


@WORKERS
def test_sampler_and_batch_sampler_are_reachable_and_shared(workers: int) -> None:
    plain = DataLoader(TENSORS, num_workers=workers)
    assert plain.batch_sampler is not None
    assert isinstance(plain.batch_sampler, BatchSampler)
    assert plain.batch_sampler.sampler is plain.sampler
    assert plain._index_sampler is plain.batch_sampler
    order = RandomSampler(TENSORS)
    assert DataLoader(TENSORS, sampler=order, num_workers=workers).sampler is order


@WORKERS
def test_seed_makes_two_runs_equal(workers: int) -> None:
    class Noise(Rows):
        def __getitem__(self, index: int) -> Any:
            return torch.rand(1), np.random.rand()

    def run(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        np.random.seed(seed)
        return [str(batch) for batch in DataLoader(Noise(), 2, True, num_workers=workers)]

    assert run(7) == run(7)
    assert run(7) != run(8)


class SeedOf(Rows):
    def __getitem__(self, index: int) -> Any:
        return torch.initial_seed()


def test_seeds_of_workers_follow_the_base_seed() -> None:
    batches = iter(DataLoader(SeedOf(4), num_workers=2))
    seeds = [int(batch) for batch in batches]
    assert seeds == [batches._base_seed, batches._base_seed + 1] * 2


def init_with_seed(worker_id: int) -> None:
    torch.manual_seed(worker_id + 12345)


def test_worker_init_fn_may_seed_again() -> None:
    found = DataLoader(SeedOf(4), 1, num_workers=2, worker_init_fn=init_with_seed)
    assert [int(batch) for batch in found] == [12345, 12346] * 2


@pytest.mark.parametrize("options", [{}, {"seed": 2**64 - 1}, {"seed": 3, "worker_type": "thread"}])
def test_seeds_of_batches_differ_and_fit_into_a_tensor(options: dict[str, Any]) -> None:
    """PyTorch's own tests collate `torch.initial_seed()`, which must therefore be an int64."""
    kind = DataLoader if options else StatefulDataLoader
    found = [int(batch) for batch in kind(SeedOf(64), num_workers=2, **options)]
    assert len(set(found)) == 64


def init_fails(worker_id: int) -> None:
    if worker_id == 1:
        raise ArithmeticError("worker 1 will not start")


@pytest.mark.parametrize("kind", ["map", "stream"])
def test_error_of_worker_init_fn_comes_as_that_workers_first_batch(kind: str) -> None:
    dataset = Rows(6) if kind == "map" else Stream(2, 2)
    batches = iter(DataLoader(dataset, 1, num_workers=2, worker_init_fn=init_fails))
    next(batches)
    with pytest.raises(ArithmeticError, match="worker 1 will not start"):
        next(batches)
    del batches


class EpochStart(IterableDataset[Any]):
    """Yields the info of its worker."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        with pytest.raises(Exception, match=r"cannot assign"):
            info.id = 3
        yield info.id, info.num_workers, info.seed, info.dataset is self, os.getpid()


def test_worker_info_is_given_in_workers_and_nowhere_else() -> None:
    assert get_worker_info() is None
    batches = iter(DataLoader(EpochStart(), None, num_workers=2))
    pids = [worker.pid for worker in batches._workers]
    base = batches._base_seed
    assert list(batches) == [[i, 2, base + i, True, pids[i]] for i in range(2)]
    assert get_worker_info() is None


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_short_streams_end_and_the_others_go_on(persistent: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = DataLoader(Stream(1, 6, 0, 3), 2, num_workers=4, persistent_workers=persistent)
        both = [iter(loader) for _ in range(2)]
    for batches in both:
        found = [batch[0].tolist() for batch in batches]
        assert found == [[[0, 0]], [[1, 0], [1, 1]], [[3, 0], [3, 1]], [[1, 2], [1, 3]], [[3, 2]],
                         [[1, 4], [1, 5]]]  # fmt: skip
        with pytest.raises(StopIteration):
            next(batches)
    loader.close()


def test_workers_end_with_code_zero() -> None:
    for _ in range(5):  # on a machine that stalls one may be ended with a signal
        batches = iter(DataLoader(TENSORS, 4, num_workers=2))
        workers = list(batches._workers)
        list(batches)
        del batches
        for worker in workers:
            worker.join(40)
        codes = [worker.exitcode for worker in workers]
        if codes == [0, 0]:
            break
    assert codes == [0, 0]


def test_more_workers_than_batches_work() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = DataLoader(TENSORS, 15, num_workers=4)
        assert [len(batch[1]) for batch in loader] == [15, 5]
