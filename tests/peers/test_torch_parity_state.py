"""The meaning of a state: torchdata's StatefulDataLoader 0.11 and ours, at each batch.

Imports pytest, torchdata and the harness. Holds nothing.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as data
from torchdata.stateful_dataloader import StatefulDataLoader as Theirs

from reader.compat.torch import DataLoader
from reader.compat.torch import StatefulDataLoader as Ours
from tests.peers.torch_parity import check_same_result
from tests.peers.torch_samples import Augmented, Rows, Stream

pytestmark = [pytest.mark.peer, pytest.mark.timeout(120)]
WORKERS = pytest.mark.parametrize("workers", [0, 2])


class Order(data.Sampler[int]):
    """A sampler with a state, which is also the iterator."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < self.count:
            self.at += 1
            yield self.count - self.at
        self.at = 0

    def __len__(self) -> int:
        return self.count

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Numbers(data.IterableDataset[Any]):
    """A stream with a state: worker w of W yields w, w + W, ..."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        own = range(self.count) if info is None else range(info.id, self.count, info.num_workers)
        while self.at < len(own):
            self.at += 1
            yield own[self.at - 1]
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


MAKES: dict[str, Any] = {
    "in order": lambda kind, **o: kind(Rows(7), 2, **o),
    "without batching": lambda kind, **o: kind(range(5), None, **o),
    "sampler with a state": lambda kind, **o: kind(Rows(8), 2, sampler=Order(8), **o),
    "stream": lambda kind, **o: kind(Stream(5, 2), 2, collate_fn=first_of, **o),
    "stream with a state": lambda kind, **o: kind(Numbers(8), 2, **o),
}


def first_of(samples: list[Any]) -> Any:
    return [sample[0].tolist() for sample in samples]


def resumed(kind: Any, make: Any, taken: int | None, after: str, **options: Any) -> Any:
    """The batches of two epochs after a state was taken and loaded into a loader made anew."""
    made = make(kind, **options)
    if taken is None:
        state = made.state_dict()
    else:
        batches = iter(made)
        for _ in range(taken):
            next(batches)
        if after == "the end":
            assert next(batches, None) is None
        state = made.state_dict()
        del batches
    again = make(kind, **options)
    again.load_state_dict(state)
    del made
    return [list(again), list(again)]


@pytest.mark.sampled(4)
@WORKERS
@pytest.mark.parametrize("name", MAKES)
def test_state_of_every_batch_means_the_same(name: str, workers: int) -> None:
    make = MAKES[name]
    whole = len(list(make(Ours, num_workers=workers)))
    points: list[tuple[int | None, str]] = [(None, ""), (1, "")]
    points += [(whole, ""), (whole, "the end")]
    for taken, after in points:
        options = {"make": make, "taken": taken, "after": after, "num_workers": workers}
        check_same_result(functools.partial(resumed, **options), Theirs, Ours)


@WORKERS
def test_nothing_is_left_after_a_short_last_batch(workers: int) -> None:
    """The batch that exhausts it; torchdata repeats a worker's shard, or all of it."""
    for make in (
        lambda kind, **o: kind(Numbers(9), 2, **o),
        lambda kind, **o: kind(Rows(7), 2, sampler=Order(7), **o),
    ):
        whole = len(list(make(Ours, num_workers=workers)))
        first, second = resumed(Ours, make, whole, "", num_workers=workers)
        assert (len(first), len(second)) == (0, whole)


@pytest.mark.sampled(2)
@WORKERS
@pytest.mark.parametrize("every", [1, 3, 0, None])
def test_stream_resumes_exactly_however_often_its_state_is_taken(
    every: int | None, workers: int
) -> None:
    def make(kind: Any, **options: Any) -> Any:
        return kind(Numbers(9), 2, **options)

    whole = list(make(Ours, num_workers=workers))
    for taken in (2, len(whole)):
        found = resumed(Ours, make, taken, "", num_workers=workers, snapshot_every_n_steps=every)
        assert [each.tolist() for each in found[0]] == [each.tolist() for each in whole[taken:]]
        assert len(found[1]) == len(whole)


@WORKERS
def test_loading_and_asking_gives_an_equal_state_that_json_can_hold(workers: int) -> None:
    made = Ours(Augmented(9), 2, True, num_workers=workers)
    batches = iter(made)
    next(batches)
    state = made.state_dict()
    del batches
    again = Ours(Augmented(9), 2, True, num_workers=workers)
    again.load_state_dict(json.loads(json.dumps(state)))
    assert again.state_dict() == state


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (2, 1), (1, 1)])
def test_shuffled_augmented_epochs_go_on_exactly_with_any_number_of_workers(
    before: int, after: int
) -> None:
    def make(workers: int) -> Any:
        torch.manual_seed(6)
        return Ours(Augmented(9), 2, True, num_workers=workers)

    straight = make(before)
    whole = [str(batch) for _ in range(2) for batch in straight]
    made = make(before)
    batches = iter(made)
    found = [str(next(batches)) for _ in range(3)]
    again = make(after)
    again.load_state_dict(json.loads(json.dumps(made.state_dict())))
    del batches
    found += [str(batch) for batch in again]
    assert found == whole[:5]


def test_signature_is_torchdatas_and_its_loader_is_ours() -> None:
    theirs = list(inspect.signature(Theirs.__init__).parameters.values())
    own = inspect.signature(Ours.__init__).parameters
    assert [each.name for each in theirs] == list(own)[: len(theirs)]
    assert all(own[each.name].default == each.default for each in theirs)
    assert issubclass(Ours, DataLoader)
    assert Ours(Rows(3), snapshot_every_n_steps=4).snapshot_every_n_steps == 4
    with pytest.raises(ValueError, match="snapshot_every_n_steps"):
        Ours(Rows(3), snapshot_every_n_steps=-1)
