"""Libraries that wrap a StatefulDataLoader: they change its samplers, and its states stay true.

Imports pytest, torch and the torch face. Holds nothing.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler

from reader.compat.torch import StatefulDataLoader

pytestmark = pytest.mark.peer
WORKERS = pytest.mark.parametrize("workers", [0, 2])


class Seedable(RandomSampler):
    """Makes its generator when it is iterated for the first time, as Accelerate's sampler does."""

    def __iter__(self) -> Iterator[int]:
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(7)
        yield from super().__iter__()


class Shard(BatchSampler):
    """Every second batch of another batch sampler, as Accelerate's shard of a process."""

    def __init__(self, batch_sampler: Any, process_index: int = 0) -> None:
        self.batch_sampler = batch_sampler
        self.process_index = process_index

    def __len__(self) -> int:
        return (len(self.batch_sampler) + 1) // 2

    def __iter__(self) -> Iterator[list[int]]:
        for number, batch in enumerate(self.batch_sampler):
            if number % 2 == self.process_index:
                yield batch


def make(how: str, workers: int) -> StatefulDataLoader[Any]:
    data = list(range(11))
    if how == "put in":
        made: Any = StatefulDataLoader(data, 2, shuffle=True, num_workers=workers)
        made.batch_sampler.sampler = Seedable(data)
        return made  # type: ignore[no-any-return]
    sampler = Seedable(data)
    if how == "shard":
        shard = Shard(BatchSampler(sampler, 2, False))
        return StatefulDataLoader(data, batch_sampler=shard, num_workers=workers)
    if how == "shard, generator":
        sampler = RandomSampler(data, generator=torch.Generator().manual_seed(3))
        shard = Shard(BatchSampler(sampler, 2, False))
        return StatefulDataLoader(data, batch_sampler=shard, num_workers=workers)
    return StatefulDataLoader(data, 2, sampler=sampler, num_workers=workers)


def numbers(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@pytest.mark.sampled(4)
@WORKERS
@pytest.mark.parametrize("how", ["given", "put in", "shard", "shard, generator"])
def test_sampler_that_makes_its_generator_late_resumes_from_every_state(
    how: str, workers: int
) -> None:
    torch.manual_seed(1)
    loader = make(how, workers)
    epochs = [numbers(loader) for _ in range(3)]
    loader = make(how, workers)
    states = []
    for epoch in range(2):
        for batch in loader:
            del batch
            states.append(copy.deepcopy(loader.state_dict()))
        assert len(states) == (epoch + 1) * len(epochs[0])
    states.append(loader.state_dict())
    for count in (0, 1, len(epochs[0]), len(epochs[0]) + 1, len(states) - 1):
        torch.manual_seed(2)  # nothing of it counts
        fresh, used = make(how, workers), make(how, workers)
        numbers(used)
        for again in (fresh, used):
            again.load_state_dict(json.loads(json.dumps(states[count])))
            epoch, begun = divmod(count + 1, len(epochs[0]))
            found = numbers(again)
            if not begun and count < len(states) - 1:  # within the loop: nothing of it is left
                assert found == []
                found = numbers(again)
            if count == len(states) - 1:
                epoch, begun = 2, 0
            assert found == epochs[epoch][begun:]


@WORKERS
def test_state_taken_before_a_library_sets_its_sampler_uses_that_sampler(workers: int) -> None:
    data = list(range(11))

    def prepared() -> tuple[StatefulDataLoader[Any], dict[str, Any]]:
        made: Any = StatefulDataLoader(data, 2, shuffle=True, num_workers=workers)
        state = made.state_dict()
        made.batch_sampler.sampler = Seedable(data)
        return made, state

    loader, state = prepared()
    wanted = numbers(loader), numbers(loader)
    again, _ = prepared()
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert (numbers(again), numbers(again)) == wanted


@WORKERS
def test_state_of_one_rank_resumes_another_rank_with_its_own_share(workers: int) -> None:
    """As Accelerate saves it: one file for the ranks of a node."""
    data = list(range(12))

    def rank(index: int, seed: int = 7) -> StatefulDataLoader[Any]:
        sampler = RandomSampler(data, generator=torch.Generator().manual_seed(seed))
        shard = Shard(BatchSampler(sampler, 2, False), index)
        return StatefulDataLoader(data, batch_sampler=shard, num_workers=workers)

    loader, other = rank(0), rank(1)
    wanted = [numbers(other) for _ in range(2)]
    batches = iter(loader)
    first = next(batches).tolist()
    state = json.loads(json.dumps(loader.state_dict()))
    again = rank(1, seed=8)
    again.load_state_dict(state)
    assert numbers(again) == wanted[0][1:]
    assert numbers(again) == wanted[1]
    own = rank(0, seed=8)
    own.load_state_dict(state)
    assert [first, *numbers(own)] == numbers(rank(0))
