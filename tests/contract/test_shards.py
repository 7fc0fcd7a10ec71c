"""Steps of several shards: made by several workers, delivered together, resumed, failed, placed."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

from reader import ConfigTypeError, SamplerError
from reader.compat.gluon import ShardedDataLoader, default_batchify_fn
from reader.compat.gluon.arrays import is_nd
from reader.compat.gluon.nlp import FixedBucketSampler, batchify
from reader.orders.step_batches import StepBatches
from tests.peers import impure_datasets

STEPS: list[Any] = [
    ([0, 1], [2, 3, 4]),
    [5, 6],
    [[7], [8], [9, 10]],
    [np.array([11, 12]), np.array([13])],
    np.array([[14, 15], [16, 17]]),
    [[18]],
    [19],
]
EXPECTED: list[Any] = [
    [[0, 1], [2, 3, 4]],
    [5, 6],
    [[7], [8], [9, 10]],
    [[11, 12], [13]],
    [[14, 15], [16, 17]],
    [[18]],
    [19],
]
WORKERS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2},
    {"num_workers": 3, "thread_pool": True},
    {"num_workers": 1, "prefetch": 0},
]


class Samples:
    """Samples are their indices; those in `bad` fail."""

    def __init__(self, *bad: int) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        if index in self.bad:
            raise KeyError(index)
        return index


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(each) for each in value]
    return (value.asnumpy() if is_nd(value) else value).tolist()


def drawn(loader: Any) -> list[Any]:
    """Return the steps of an epoch, and the arguments of what was raised in their places."""
    found: list[Any] = []
    batches = iter(loader)
    while True:
        try:
            found.append(plain(next(batches)))
        except StopIteration:
            return found
        except KeyError as error:
            found.append(error.args)


@pytest.mark.parametrize("workers", WORKERS)
def test_steps_come_as_the_sampler_has_them(workers: dict[str, Any]) -> None:
    with ShardedDataLoader(Samples(), batch_sampler=STEPS, **workers) as loader:
        assert len(loader) == len(STEPS)
        for _ in range(2):
            assert drawn(loader) == EXPECTED
        loader.batch_sampler = STEPS[:2]
        assert drawn(loader) == EXPECTED[:2]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("bad", [(2,), (0, 3), (8,), (11, 12, 13), (5,), (19,), (1, 4, 7, 9)])
def test_a_shard_that_fails_stands_for_its_step(
    workers: dict[str, Any], bad: tuple[int, ...]
) -> None:
    expected = []
    for step in EXPECTED:
        indices = [index for part in step for index in (part if isinstance(part, list) else [part])]
        failed = [index for index in indices if index in bad]
        expected.append((failed[0],) if failed else step)
    with ShardedDataLoader(Samples(*bad), batch_sampler=STEPS, **workers) as loader:
        for _ in range(2):
            assert drawn(loader) == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bad", [(), (3,), (8,)])
@pytest.mark.parametrize("is_list", [True, False])
def test_a_run_resumes_at_any_step(bad: tuple[int, ...], is_list: bool) -> None:
    class Once:
        """The same steps from an iterator that cannot seek."""

        def __iter__(self) -> Any:
            return iter(STEPS)

        def __len__(self) -> int:
            return len(STEPS)

    steps = STEPS if is_list else Once()
    with ShardedDataLoader(Samples(*bad), batch_sampler=steps) as loader:
        whole = drawn(loader)
    for count in range(len(STEPS) + 1):
        with ShardedDataLoader(Samples(*bad), batch_sampler=steps, num_workers=2) as loader:
            batches = iter(loader)
            for _ in range(count):
                try:
                    next(batches)
                except KeyError:
                    continue
            state = json.dumps(loader.state_dict())
        with ShardedDataLoader(Samples(*bad), batch_sampler=steps, num_workers=count % 3) as loader:
            loader.load_state_dict(json.loads(state))
            assert drawn(loader) == whole[count:]


class Meeting:
    """Samples that wait until another one is made at the same time."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(4)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        self.barrier.wait(timeout=20)
        return index


def test_the_shards_of_a_step_are_made_at_the_same_time() -> None:
    steps = [[[0], [1], [2], [3]], [[4], [5], [6], [7]]]
    options = {"num_workers": 4, "thread_pool": True, "prefetch": 0}
    with ShardedDataLoader(Meeting(), batch_sampler=steps, **options) as loader:
        assert drawn(loader) == steps


def test_each_shard_is_padded_by_itself() -> None:
    texts = [list(range(1 + index % 7)) for index in range(20)]
    sampler = FixedBucketSampler(list(map(len, texts)), 2, num_buckets=3, num_shards=2)
    pad = batchify.Pad(pad_val=-1, dtype="int64")
    found = []
    with ShardedDataLoader(texts, batch_sampler=sampler, batchify_fn=pad, num_workers=2) as loader:
        for step, shards in zip(sampler, loader, strict=True):
            assert type(shards) is list
            for indices, shard in zip(step, shards, strict=True):
                longest = max(len(texts[index]) for index in indices)
                assert shard.shape == (len(indices), longest)
                found += indices
    assert set(found) == set(range(20))


def test_workers_may_be_killed() -> None:
    steps = [[[i, i + 1], [i + 2], [i + 3, i]] for i in range(16)] * 20
    with ShardedDataLoader(Samples(), batch_sampler=steps, num_workers=2) as loader:
        batches = iter(loader)
        found = []
        for number, step in enumerate(batches):
            found.append(plain(step))
            if number % 60 == 5:
                os.kill(loader.workers()[number % 2].pid, signal.SIGKILL)
    assert found == steps


def test_shard_k_lands_on_place_k() -> None:
    torch = pytest.importorskip("torch")
    options = {"framework": "torch", "places": ["cpu", "cpu"], "num_workers": 2}
    with ShardedDataLoader(Samples(), batch_sampler=STEPS, **options) as loader:
        steps = list(loader)
    assert [plain(step) if isinstance(step, list) else step.tolist() for step in steps] == EXPECTED
    assert all(type(shard) is torch.Tensor for shard in steps[0])


def test_steps_that_are_none_are_refused() -> None:
    for steps, error in (([[[0, 1], 2]], ConfigTypeError), ([[[0], []]], SamplerError)):
        with pytest.raises(error):
            drawn(ShardedDataLoader(Samples(), batch_sampler=steps))
    with pytest.raises(ConfigTypeError, match="must be an iterable"):
        StepBatches(3)


# -- datasets that carry something from sample to sample -----------------------------------------

ORDER = [5 * index % impure_datasets.COUNT for index in range(impure_datasets.COUNT)]
CARRIED: list[Any] = [
    step
    for at in range(0, impure_datasets.COUNT, 12)
    for step in (
        [ORDER[at : at + 3], ORDER[at + 3 : at + 5]],
        ORDER[at + 5 : at + 8],
        ([ORDER[at + 8]], ORDER[at + 9 : at + 11], [ORDER[at + 11]]),
    )
]


def arrays_of(samples: Any) -> Any:
    """A batchify function of a program."""
    return np.stack([array for array, _ in samples])


def as_gluonnlp_makes_them(dataset: Any, batchify_fn: Any) -> list[Any]:
    """Return the steps that GluonNLP's loader makes with one worker or none.

    It does not install beside current packages. One task makes the shards of a step, in order, and
    reads the samples of a shard before it makes the next.
    """
    steps = []
    for step in CARRIED:
        is_plain = not isinstance(step[0], list)
        made = [
            batchify_fn([dataset[i] for i in shard]) for shard in ([step] if is_plain else step)
        ]
        steps.append(made[0] if is_plain else made)
    return steps


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sample_s", [0.0, impure_datasets.SLOW_S], ids=["fast", "slow"])
@pytest.mark.parametrize("kind", impure_datasets.KINDS)
def test_what_a_dataset_carries_goes_from_shard_to_shard(kind: str, sample_s: float) -> None:
    ways = ({}, {"num_workers": 1}, {"num_workers": 1, "thread_pool": True})
    for function in (None, arrays_of):
        expected = []
        with impure_datasets.opened(kind, 0.0) as dataset:
            for _ in range(2):
                expected += as_gluonnlp_makes_them(dataset, function or default_batchify_fn)
        for workers in ways[:1] if sample_s else ways:
            options = {"batch_sampler": CARRIED, "batchify_fn": function, **workers}
            for _ in range(1 if sample_s else 3):
                with (
                    impure_datasets.opened(kind, sample_s) as dataset,
                    ShardedDataLoader(dataset, **options) as loader,
                ):
                    assert listed([step for _ in range(2) for step in loader]) == listed(expected)


@pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])
@pytest.mark.parametrize("sample_s", [0.0, impure_datasets.SLOW_S], ids=["fast", "slow"])
def test_a_shard_is_made_by_one_worker_sample_after_sample(threads: bool, sample_s: float) -> None:
    dataset = impure_datasets.Logged(sample_s)
    options = {"batch_sampler": CARRIED, "num_workers": 2, "thread_pool": threads}
    with ShardedDataLoader(dataset, **options) as loader:
        steps = [plain(step) for _ in range(2) for step in loader]
    made, orders = [], []
    for step, order in zip(steps, CARRIED * 2, strict=True):
        is_plain = not isinstance(order[0], list)
        made += [step] if is_plain else step
        orders += [order] if is_plain else order
    impure_datasets.check_made_whole(made, orders)


def listed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [listed(each) for each in value]
    return plain(value)
