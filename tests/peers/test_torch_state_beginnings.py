"""States from before the first batch hold the first state of each worker, as torchdata's do.

Imports pytest, torch, torchdata and the torch face. Each dataset that is made is like no other one,
so that what a resumed run gives can come from the state alone.
"""

from __future__ import annotations

import copy
import itertools
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.utils.data as data
from torchdata.stateful_dataloader import StatefulDataLoader as Theirs

from reader.compat.torch import StatefulDataLoader

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata's
]
_SEEDS = itertools.count(1)


class Base:
    """Draws numbers from a generator of its own, whose seed is new for each object."""

    def __init__(self, seed: int | None = None) -> None:
        self.random = random.Random(next(_SEEDS) if seed is None else seed)
        self.at = 0
        self.iterated = 0

    def draw(self) -> tuple[int, int]:
        info = data.get_worker_info()
        return info.id if info else 0, self.random.randrange(1 << 20)

    def state_dict(self) -> dict[str, Any]:
        return {"random": self.random.getstate(), "at": self.at, "iterated": self.iterated}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.random.setstate(state["random"])
        self.at = state["at"]


class Drawn(Base, data.Dataset[Any]):
    """A map-style dataset with a state."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return index, *self.draw()


class Stream(Base, data.IterableDataset[Any]):
    """A stream with a state, whose iterator is a generator."""

    def __iter__(self) -> Iterator[Any]:
        self.iterated += 1
        self.at %= 6
        return self.steps()

    def steps(self) -> Iterator[Any]:
        while self.at < 6:
            self.at += 1
            yield self.at, *self.draw()


class ItsOwn(Stream):
    """A stream that is its own iterator."""

    def __iter__(self) -> Any:
        self.iterated += 1
        self.at %= 6
        return self

    def __next__(self) -> Any:
        if self.at == 6:
            raise StopIteration
        self.at += 1
        return self.at, *self.draw()


class Steps(ItsOwn):
    """The iterator of `Handing`."""


class Handing(data.IterableDataset[Any]):
    """A stream without a state, whose iterator has one."""

    def __init__(self, seed: int | None = None) -> None:
        self.random = random.Random(next(_SEEDS) if seed is None else seed)

    def __iter__(self) -> Any:
        return iter(Steps(self.random.randrange(1 << 20)))


KINDS = pytest.mark.parametrize("kind", [Drawn, Stream, ItsOwn, Handing])


def as_list(samples: list[Any]) -> list[Any]:
    return list(map(tuple, samples))


def make(kind: Any, dataset: Any, **options: Any) -> Any:
    return kind(dataset, 2, collate_fn=as_list, **{"num_workers": 2, **options})


def told(state: dict[str, Any]) -> list[Any]:
    """The part of a state for the workers."""
    found = list(state["_snapshot"]["_worker_snapshots"].values())
    return [(each["dataset_state"], each["fetcher_state"]) for each in found]


def ended(loader: Any) -> None:
    if isinstance(loader, Theirs):
        if loader._iterator is not None:
            loader._iterator._shutdown_workers()
            loader._iterator = None
    else:
        loader.close()


@KINDS
def test_first_state_of_each_worker_is_torchdatas(kind: Any) -> None:
    found = []
    for loaders in (Theirs, StatefulDataLoader):
        for is_begun in (False, True):
            loader = make(loaders, kind(seed=3))
            if is_begun:
                iter(loader)  # and nobody keeps it
            found.append(told(loader.state_dict()))
            ended(loader)
    assert found[1:] == found[:1] * 3
    if kind is not Drawn:  # `iter` was called once for each worker
        own = [each["dataset_iter_state"] if own is None else own for own, each in found[0]]
        assert [each["iterated"] for each in own] == [1, 1]


@pytest.mark.sampled(2)
@KINDS
@pytest.mark.parametrize("point", ["before", "iter", "left"])
def test_epoch_resumes_from_the_first_state_of_each_worker(kind: Any, point: str) -> None:
    whole = list(make(StatefulDataLoader, kind(seed=5)))
    loader = make(StatefulDataLoader, kind(seed=5))
    taken = 0
    if point == "iter":
        iter(loader)
    elif point == "left":  # worker 1 has delivered nothing
        taken = len(list(itertools.islice(loader, 1)))
    state = copy.deepcopy(loader.state_dict())
    assert point != "before" or list(loader) == whole
    again = make(StatefulDataLoader, kind())
    living = iter(again)
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert list(again) == whole[taken:]
    assert len(list(living)) == 6


@pytest.mark.parametrize("kind", [Drawn, Stream, ItsOwn])
def test_next_epoch_of_persistent_workers_goes_on_after_a_whole_and_an_abandoned_one(
    kind: Any,
) -> None:
    options = {"num_workers": 1, "persistent_workers": True}
    with make(StatefulDataLoader, kind(), **options) as loader:
        list(loader)
        states = [copy.deepcopy(loader.state_dict())]
        wholes = [list(loader)]
        for _ in loader:
            break
        batches = iter(loader)
        states.append(copy.deepcopy(loader.state_dict()))
        wholes.append(list(batches))
    for state, whole in zip(states, wholes, strict=True):
        with make(StatefulDataLoader, kind(), **options) as again:
            again.load_state_dict(state)
            assert list(again) == whole


def test_thread_reports_its_first_state() -> None:
    options = {"num_workers": 1, "worker_type": "thread"}
    whole = list(make(StatefulDataLoader, Stream(seed=5), **options))
    loader = make(StatefulDataLoader, Stream(seed=5), **options)
    state = copy.deepcopy(loader.state_dict())
    again = make(StatefulDataLoader, Stream(), **options)
    again.load_state_dict(state)
    assert list(again) == whole == list(loader)


def test_thread_may_ask_for_the_state_while_another_one_waits_for_the_first_batch() -> None:
    event = threading.Event()

    class Held(Stream):
        def __iter__(self) -> Any:
            event.wait()
            return super().__iter__()

    options = {"num_workers": 1, "worker_type": "thread"}
    whole = list(make(StatefulDataLoader, Stream(seed=5), **options))
    loader = make(StatefulDataLoader, Held(seed=5), **options)
    batches = iter(loader)
    with ThreadPoolExecutor(2) as pool:
        first, state = pool.submit(next, batches), pool.submit(loader.state_dict)
        event.set()
        found, saved = [first.result()], state.result()
        found += batches
    assert found == whole
    again = make(StatefulDataLoader, Held(), **options)  # the event is set by now
    again.load_state_dict(saved)
    assert list(again) in (whole, whole[1:])


@pytest.mark.parametrize("change", ["nothing", "sampler", "epoch"])
def test_epoch_begun_for_a_state_is_the_one_that_the_program_asks_for(change: str) -> None:
    """A program may replace the sampler, or choose its epoch, after it asked for the state."""

    def prepared(asks: bool) -> Any:
        dataset = Drawn(seed=5)
        order = data.DistributedSampler(dataset, 1, 0, seed=3)
        torch.manual_seed(1)
        loader = make(StatefulDataLoader, dataset, sampler=order)
        state = loader.state_dict() if asks else None
        if change == "sampler":
            loader.batch_sampler.sampler = data.DistributedSampler(dataset, 1, 0, seed=4)
        elif change == "epoch":
            order.set_epoch(2)
        return list(loader), state

    wanted, _ = prepared(asks=False)
    found, state = prepared(asks=True)
    assert found == wanted
    assert state["_snapshot"]["_snapshot_step"] == 0


def test_loader_whose_workers_have_no_state_starts_none_for_a_state() -> None:
    for options in ({}, {"shuffle": True}):
        loader: Any = StatefulDataLoader(range(9), 2, num_workers=2, **options)
        loader.state_dict()
        assert loader.workers() == []


class Refusing(Stream):
    """Its iterator cannot be made."""

    def __iter__(self) -> Any:
        raise KeyError("no such file")


class Waiting(Stream):
    """Its iterator is never there."""

    def __iter__(self) -> Any:
        threading.Event().wait()


class Leaving(Stream):
    """Its worker exits."""

    def __iter__(self) -> Any:
        os._exit(3)


def test_error_of_a_workers_start_comes_as_its_first_batch() -> None:
    loader = make(StatefulDataLoader, Refusing(), num_workers=1)
    loader.state_dict()
    with pytest.raises(KeyError, match="no such file"):
        next(iter(loader))


def test_state_waits_for_workers_as_long_as_timeout_says() -> None:
    loader = make(StatefulDataLoader, Waiting(), num_workers=1, timeout=0.2)
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.2 seconds"):
        loader.state_dict()


def test_worker_that_exits_at_its_start_hangs_nothing() -> None:
    loader = make(StatefulDataLoader, Leaving(), num_workers=1)
    with pytest.raises(RuntimeError, match="exited unexpectedly with exit code 3"):
        loader.state_dict(), next(iter(loader))
