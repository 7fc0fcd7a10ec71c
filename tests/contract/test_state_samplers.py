"""Orders opened by a saved state: of stateful samplers, of ranks, replayed, and long ones."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import DistributedSampler as TorchDistributedSampler
from torch.utils.data import RandomSampler as TorchRandomSampler

from reader import (
    BucketBatchSampler,
    DataLoader,
    DistributedBatchSampler,
    DistributedSampler,
    StateError,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from reader.compat import gluon
from reader.compat.gluon import nlp
from tests.datasets import Indices

COUNT = 50


class Global:
    """Shuffles by every global generator, when the first index is taken."""

    def __iter__(self) -> Iterator[int]:
        order = list(range(COUNT))
        random.shuffle(order)
        order = [order[at] for at in np.random.permutation(COUNT)]
        yield from [order[at] for at in torch.randperm(COUNT).tolist()]


class Ragged:
    """A batch sampler of batches of different sizes."""

    def __iter__(self) -> Iterator[list[int]]:
        order = list(range(COUNT))
        random.shuffle(order)
        while order:
            size = random.Random(len(order)).randint(1, 5)
            yield order[:size]
            del order[:size]


class Stateful:
    """Goes on at its position, and begins another order when it is exhausted."""

    def __init__(self) -> None:
        self.at = self.epoch_ = self.asked = 0

    def __iter__(self) -> Iterator[int]:
        order = np.random.RandomState(self.epoch_).permutation(COUNT).tolist()
        while self.at < COUNT:
            self.at += 1
            yield order[self.at - 1]
        self.at, self.epoch_ = 0, self.epoch_ + 1

    def state_dict(self) -> dict[str, int]:
        self.asked += 1
        return {"at": self.at, "epoch": self.epoch_}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at, self.epoch_ = state["at"], state["epoch"]


class StatefulBatches(Stateful):
    """The same for whole batches."""

    def __iter__(self) -> Iterator[Any]:
        order = np.random.RandomState(self.epoch_).permutation(COUNT).tolist()
        while self.at < COUNT:
            self.at += 4
            yield order[self.at - 4 : self.at]
        self.at, self.epoch_ = 0, self.epoch_ + 1


def of_torchdata(name: str) -> Any:
    return getattr(pytest.importorskip("torchdata.stateful_dataloader.sampler"), name)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(4)


def rolling(seed: int | None) -> gluon.BatchSampler:
    return gluon.BatchSampler(gluon.RandomSampler(COUNT, seed=seed), 4, "rollover")


LENGTHS = [1 + index * 7 % 30 for index in range(COUNT)]
Options = dict[str, Any]
# Each makes the same order again in a program that begins anew.
EXACT: dict[str, Callable[[], Options]] = {
    "list": lambda: {"sampler": list(range(COUNT))[::-1]},
    "array": lambda: {"sampler": np.arange(COUNT)[::-1]},
    "batches of ranks": lambda: {
        "batch_sampler": DistributedBatchSampler(Indices(COUNT), 4, 2, 1, shuffle=True)
    },
    "ranks": lambda: {"sampler": DistributedSampler(Indices(COUNT), 2, 1)},
    "seeded buckets": lambda: {"batch_sampler": BucketBatchSampler(range(1, COUNT + 1), 4, seed=2)},
    "torch's ranks": lambda: {"sampler": TorchDistributedSampler(Indices(COUNT), 2, 1, seed=4)},
    "torchdata's ranks": lambda: {
        "sampler": of_torchdata("StatefulDistributedSampler")(Indices(COUNT), 2, 1, seed=4)
    },
    "torch's": lambda: {"sampler": TorchRandomSampler(Indices(COUNT), generator=generator())},
    "torch's with replacement": lambda: {
        "sampler": TorchRandomSampler(Indices(COUNT), replacement=True, generator=generator())
    },
    "torch's batches": lambda: {
        "batch_sampler": TorchBatchSampler(
            TorchRandomSampler(Indices(COUNT), generator=generator()), 4, False
        )
    },
    "torchdata's": lambda: {
        "sampler": of_torchdata("RandomSampler")(Indices(COUNT), generator=generator())
    },
    "torchdata's batches": lambda: {
        "batch_sampler": of_torchdata("BatchSampler")(
            of_torchdata("RandomSampler")(Indices(COUNT), generator=generator()), 4, False
        )
    },
    "Gluon's": lambda: {"sampler": gluon.RandomSampler(COUNT, seed=4)},
    "Gluon's interval": lambda: {"sampler": gluon.IntervalSampler(COUNT, 7)},
    "Gluon's rollover": lambda: {"batch_sampler": rolling(4)},
    "GluonNLP's buckets": lambda: {"batch_sampler": nlp.FixedBucketSampler(LENGTHS, 4, seed=4)},
    "GluonNLP's shuffled buckets": lambda: {
        "batch_sampler": nlp.FixedBucketSampler(LENGTHS, 4, shuffle=True, seed=4)
    },
    "GluonNLP's windows": lambda: {
        "batch_sampler": nlp.SortedBucketSampler(LENGTHS, 4, 3, shuffle=True, seed=4)
    },
    "GluonNLP's part": lambda: {"sampler": nlp.SplitSampler(COUNT, 3, 1, repeat=2, seed=4)},
    "GluonNLP's budget": lambda: {
        "batch_sampler": nlp.BoundedBudgetSampler(LENGTHS, 90, shuffle=True, seed=4)
    },
    "stateful": lambda: {"sampler": Stateful()},
    "stateful batches": lambda: {"batch_sampler": StatefulBatches()},
}
# These draw without a seed: the begun epoch is kept, later ones are fresh.
FRESH: dict[str, Callable[[], Options]] = {
    "weighted": lambda: {"sampler": WeightedRandomSampler(range(1, COUNT + 1), COUNT)},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(0, COUNT, 2))},
    "buckets": lambda: {"batch_sampler": BucketBatchSampler(range(1, COUNT + 1), max_tokens=200)},
    "Gluon's global": lambda: {"sampler": gluon.RandomSampler(COUNT)},
    "Gluon's global rollover": lambda: {"batch_sampler": rolling(None)},
    "GluonNLP's global buckets": lambda: {
        "batch_sampler": nlp.FixedBucketSampler(LENGTHS, 4, shuffle=True)
    },
    "GluonNLP's global part": lambda: {"sampler": nlp.SplitSampler(COUNT, 3, 1)},
    "torch's global": lambda: {"sampler": TorchRandomSampler(Indices(COUNT))},
    "global": lambda: {"sampler": Global()},
    "ragged": lambda: {"batch_sampler": Ragged()},
}
KINDS = {**EXACT, **FRESH}


def make(kind: str, **options: Any) -> DataLoader:
    given = KINDS[kind]()
    if "sampler" in given:
        options.setdefault("batch_size", 4)
    return DataLoader(Indices(COUNT), **given, **options)


def lists(loader: Any) -> list[list[int]]:
    return [np.asarray(batch).tolist() for batch in loader]


def plain(kind: str, state: Any) -> Any:
    """Through JSON, if the states of the samplers allow it."""
    return (
        state if kind in ("torchdata's", "torchdata's batches") else json.loads(json.dumps(state))
    )


ONE_THREAD = {"num_workers": 1, "worker_type": "thread"}
ON_PROCESSES = [next(iter(EXACT)), next(iter(FRESH))]  # the order is the trainer's: a kind of each


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *itertools.product(KINDS, ({}, {"seed": 3}, ONE_THREAD)),
        *((kind, {"num_workers": 1}) for kind in ON_PROCESSES),
    ],
    ids=str,
)
def test_01_an_order_resumes_where_it_stopped(kind: str, options: Options) -> None:
    loader = make(kind, **options)
    lists(loader)
    wanted, states = [], []
    for batch in loader:
        wanted.append(np.asarray(batch).tolist())
        states.append(plain(kind, loader.state_dict()))
    states.append(plain(kind, loader.state_dict()))
    later = [lists(loader) for _ in range(2)]
    loader.close()
    for at in (1, len(wanted) - 1, len(wanted), len(wanted) + 1):
        random.seed(9), np.random.seed(9), torch.manual_seed(9)
        before = random.getstate()
        loader = make(kind, **options)
        loader.load_state_dict(states[at - 1])
        if at <= len(wanted):
            assert lists(loader) == wanted[at:]
            assert random.getstate() == before  # a replayed order is not shared
        if kind in EXACT:
            assert [lists(loader) for _ in later] == later
        loader.close()


@pytest.mark.parametrize("every", [3, 0, None])
@pytest.mark.parametrize("kind", ["stateful", "stateful batches", "torchdata's"])
def test_01_batches_after_the_last_state_are_drawn_again(kind: str, every: int | None) -> None:
    loader = make(kind, snapshot_every_n_steps=every)
    wanted, states = [], []
    for batch in loader:
        wanted.append(np.asarray(batch).tolist())
        states.append(loader.state_dict())
    later = lists(loader)
    for at in (1, 5, 6, len(wanted)):
        again = make(kind, snapshot_every_n_steps=every)
        again.load_state_dict(states[at - 1])
        assert lists(again) == wanted[at:]
        assert lists(again) == later


def test_a_stateful_sampler_is_asked_every_n_steps() -> None:
    for every, asked in ((1, 15), (5, 5), (0, 1)):
        sampler = Stateful()
        list(
            DataLoader(Indices(COUNT), sampler=sampler, batch_size=4, snapshot_every_n_steps=every)
        )
        assert abs(sampler.asked - asked) <= 1


def ranks_of(kind: str, world: int, rank: int, drop_last: bool) -> Any:
    if kind == "torch's":
        return TorchDistributedSampler(Indices(COUNT), world, rank, seed=4, drop_last=drop_last)
    return DistributedSampler(Indices(COUNT), world, rank, seed=4, drop_last=drop_last)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("kind", ["ours", "torch's"])
@pytest.mark.parametrize("worlds", [(2, 3, 1), (3, 2, 4), (1, 4, 2), (4, 1, 3)], ids=str)
def test_01_another_number_of_ranks_takes_the_rest(
    kind: str, worlds: tuple[int, ...], drop_last: bool
) -> None:
    """The state of any rank resumes all; only the very end is padded."""
    state: Any = None
    found: list[int] = []
    for step, world in enumerate(worlds):
        is_last = step == len(worlds) - 1
        loaders = [
            DataLoader(Indices(COUNT), sampler=ranks_of(kind, world, rank, drop_last), batch_size=3)
            for rank in range(world)
        ]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        states = []
        for loader in loaders:
            for count, batch in enumerate(loader):
                found += np.asarray(batch).tolist()
                if not is_last and count == 1:
                    break
            states.append(json.loads(json.dumps(loader.state_dict())))
        assert all(each["order"].get("consumed") == states[0]["order"].get("consumed")
                   for each in states)  # fmt: skip
        state = states[-1]
        if is_last:
            for loader in loaders:  # later epochs are whole
                loader.set_epoch(7)
            later = [index for loader in loaders for batch in loader for index in batch.tolist()]
            assert set(later) <= set(range(COUNT))
            assert abs(len(later) - COUNT) < world
    extra = len(found) - len(set(found))
    if drop_last:
        assert extra == 0
        assert COUNT - len(found) < worlds[-1]
    else:
        assert set(found) == set(range(COUNT))
        assert extra < worlds[-1]


def test_ranks_of_another_world_size_are_reported() -> None:
    loader = DataLoader(Indices(COUNT), sampler=ranks_of("ours", 2, 0, False), batch_size=3)
    next(iter(loader))
    state = loader.state_dict()
    other = DistributedSampler(Indices(COUNT), 2, 0, seed=5)
    with pytest.raises(StateError, match="seed of the sampler is 5 here and 4 in the state"):
        DataLoader(Indices(COUNT), sampler=other, batch_size=3).load_state_dict(state)
    torchs = DataLoader(Indices(COUNT), sampler=ranks_of("torch's", 2, 0, False), batch_size=3)
    next(iter(torchs))
    state = torchs.state_dict()
    torchs.load_state_dict(state)
    torchs.sampler.set_epoch(2)
    with pytest.raises(StateError, match="the sampler is at epoch 2, and the state was saved in"):
        iter(torchs)


def test_a_long_order_opens_without_drawing_the_earlier_batches() -> None:
    count = 10**9
    loader = DataLoader(Indices(count), batch_size=64, shuffle=True, seed=1)
    next(iter(loader))
    state = loader.state_dict()
    batches = 9 * count // 10 // 64
    state.update(batches=batches, samples=batches * 64)
    loader.load_state_dict(state)
    found = np.asarray(next(iter(loader))).tolist()
    loader.set_epoch(0)
    assert found == [index for index, _ in zip(loader.sampler.iter_from(batches * 64), range(64),
                                               strict=False)]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_behind_the_last_batch_is_saved_again_before_anything_is_drawn(kind: str) -> None:
    begun = make(kind)
    count = len(lists(begun))
    state = begun.state_dict(trained=count)
    for _ in range(2):
        again = make(kind)
        again.load_state_dict(state)
        batches = iter(again)
        state = plain(kind, again.state_dict())
        del batches
    last = make(kind)
    last.load_state_dict(state)
    assert lists(last) == []
    assert last.epoch == 1


def test_batches_of_ranks_are_not_resumed_by_others() -> None:
    def loader(size: int = 4, ranks: int = 2, **options: Any) -> DataLoader:
        order = DistributedBatchSampler(Indices(COUNT), size, ranks, 0, **options)
        return DataLoader(Indices(COUNT), batch_sampler=order)

    begun = loader(shuffle=True, seed=3)
    first = next(iter(begun)).tolist()
    state = json.loads(json.dumps(begun.state_dict()))
    for name, other in (
        ("num_replicas", loader(ranks=3, shuffle=True, seed=3)),
        ("batch_size", loader(5, shuffle=True, seed=3)),
        ("seed", loader(shuffle=True, seed=4)),
        ("shuffle", loader(seed=3)),
        ("drop_last", loader(shuffle=True, seed=3, drop_last=True)),
    ):
        with pytest.raises(
            StateError, match=rf"^{name} of DistributedBatchSampler is .* in the st"
        ):
            other.load_state_dict(state)
    del state["order"]["facts"]  # as earlier versions saved it
    again = loader(shuffle=True, seed=3)
    again.load_state_dict(state)
    assert [first, *lists(again)] == lists(loader(shuffle=True, seed=3))
