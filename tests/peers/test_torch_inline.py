"""Without workers: batches are PyTorch's, whatever a program changes between two epochs."""

from __future__ import annotations

import collections
import signal
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as Peer
from torch.utils.data import Dataset, default_collate
from torch.utils.data._utils import collate

from reader.compat.torch import DataLoader
from reader.compat.torch.collate import with_extended
from tests.datasets import Point


class Numbers(Dataset[Any]):
    """Samples of one key."""

    def __init__(self, count: int = 8) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: int) -> Any:
        return torch.full((2,), key), key


class Words(str):
    """A string of a user's own class."""


class Pairs(list[Any]):
    """A list of a user's own class."""


SAMPLES: dict[str, list[Any]] = {
    "tuples": [(torch.ones(2), 1, 2.0, "a", b"b", True) for _ in range(3)],
    "lists": [[np.zeros(2), np.float32(3)], [np.ones(2), np.float32(4)]],
    "dicts": [{"b": torch.ones(1), 1: [1, (2, 3)]}, {1: [4, (5, 6)], "b": torch.zeros(1)}],
    "more keys in a later one": [{"a": 1}, {"a": 2, "b": 3}],
    "empty containers": [((), [], {}), ((), [], {})],
    "named tuples": [Point(1, 2), Point(3, 4)],
    "own classes": [Pairs([1, Words("x")]), Pairs([2, Words("y")])],
    "a list beside a tuple": [(1, 2), [3, 4]],
    "ordered dicts": [collections.OrderedDict(a=1, b=2)] * 2,
    "strings": ["a", "b"],
    "ranges": [range(3), range(3)],
    "one": [(torch.ones(1),)],
}
REFUSED: dict[str, list[Any]] = {
    "lengths": [(1, 2), (3,)],
    "a missing key": [{"a": 1, "b": 2}, {"a": 3}],
    "shapes": [(torch.ones(1),), (torch.ones(2),)],
    "no type of its": [(None,), (None,)],
    "deep": [({"a": [object()]},)],
    "nothing": [],
}


def same(ours: Any, theirs: Any) -> bool:
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, torch.Tensor):
        return ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if isinstance(ours, collections.abc.Mapping):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_in_containers_make_the_batch_of_the_library(name: str) -> None:
    found = with_extended(default_collate)(SAMPLES[name])
    assert same(found, default_collate(SAMPLES[name]))


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_library_refuses_is_refused_in_its_words(name: str) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011  whichever it is
        default_collate(REFUSED[name])
    with pytest.raises(type(theirs.value)) as ours:
        with_extended(default_collate)(REFUSED[name])
    assert str(ours.value) == str(theirs.value)


def test_nested_deeper_than_a_limit_is_left_to_the_library() -> None:
    sample: Any = 1
    for _ in range(200):
        sample = (sample,)
    assert same(with_extended(default_collate)([sample] * 2), default_collate([sample] * 2))


def test_functions_that_a_program_puts_into_the_map_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def halves(batch: Any, *, collate_fn_map: Any) -> Any:
        return [each / 2 for each in batch]

    monkeypatch.setitem(collate.default_collate_fn_map, int, halves)
    assert next(iter(DataLoader(Numbers(), batch_size=2)))[1] == [0, 0.5]
    monkeypatch.setitem(collate.default_collate_fn_map, tuple, lambda batch, collate_fn_map: "all")
    assert next(iter(DataLoader(Numbers(), batch_size=2))) == "all"


def test_exception_of_a_signal_while_a_batch_is_collated_passes() -> None:
    class Timeout(Exception):
        pass

    def ring(*_: object) -> None:
        raise Timeout

    class Slow(torch.Tensor):
        pass

    def stacked(batch: Any, *, collate_fn_map: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return "whole"

    before = signal.signal(signal.SIGUSR1, ring)
    own = dict(collate.default_collate_fn_map)
    try:
        collate.default_collate_fn_map[Slow] = stacked
        batches = iter(DataLoader([torch.ones(1).as_subclass(Slow)] * 2, batch_size=2))  # type: ignore[arg-type]
        with pytest.raises(Timeout):
            next(batches)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        assert next(batches) == "whole"  # the same batch, once the handler raises no more
    finally:
        signal.signal(signal.SIGUSR1, before)
        collate.default_collate_fn_map.clear()
        collate.default_collate_fn_map.update(own)


CHANGES: dict[str, Any] = {
    "collate_fn": lambda loader: setattr(loader, "collate_fn", len),
    "a sample more": lambda loader: setattr(loader.dataset, "count", 9),
    "fetches many": lambda loader: setattr(
        loader.dataset, "__getitems__", lambda keys: [(torch.ones(1), -key) for key in keys]
    ),
    "batch_sampler.batch_size": lambda loader: setattr(loader.batch_sampler, "batch_size", 3),
    "batch_sampler.drop_last": lambda loader: setattr(loader.batch_sampler, "drop_last", True),
    "sampler": lambda loader: setattr(loader.batch_sampler, "sampler", [5, 6, 7]),
    "nothing": lambda loader: None,
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_program_changes_between_two_epochs_counts(name: str) -> None:
    def epochs(kind: Any) -> list[Any]:
        loader = kind(Numbers(), batch_size=4)
        before = list(loader)
        CHANGES[name](loader)
        return [before, list(loader), list(loader)]

    assert same(epochs(DataLoader), epochs(Peer))


def test_iterators_of_one_loader_that_live_at_once_are_independent() -> None:
    loader = DataLoader(Numbers(6), batch_size=2)
    first, second = iter(loader), iter(loader)
    assert next(first)[1].tolist() == [0, 1]
    assert [batch[1].tolist() for batch in second] == [[0, 1], [2, 3], [4, 5]]
    third = iter(loader)
    assert next(third)[1].tolist() == [0, 1]
    assert [batch[1].tolist() for batch in first] == [[2, 3], [4, 5]]
    assert next(third)[1].tolist() == [2, 3]
    with pytest.raises(StopIteration):
        next(second)


def test_loop_that_was_left_leaves_nothing_to_the_next_one() -> None:
    loader = DataLoader(Numbers(6), batch_size=2)
    for _ in range(3):
        for batch in loader:
            assert batch[1].tolist() == [0, 1]
            break
    assert len(list(loader)) == 3


def test_counts_are_those_of_the_newest_iterator() -> None:
    loader = DataLoader(Numbers(6), batch_size=2)
    list(loader)
    batches = iter(loader)
    next(batches)
    stats = loader.stats()
    assert stats is not None
    assert stats["batches"] == 1
    assert loader.epoch == 2


def test_failed_sample_is_raised_at_its_place_in_every_epoch() -> None:
    class Broken(Numbers):
        def __getitem__(self, key: int) -> Any:
            if key == 3:
                raise ValueError("no sample 3")
            return key

    loader = DataLoader(Broken(6), batch_size=2)
    for _ in range(2):
        batches = iter(loader)
        assert next(batches).tolist() == [0, 1]
        with pytest.raises(ValueError, match="no sample 3"):
            next(batches)
        assert next(batches).tolist() == [4, 5]


def test_threads_that_loop_over_one_loader_at_once_get_all_batches_each() -> None:
    loader = DataLoader(Numbers(40), batch_size=2)
    found: list[list[int]] = []
    begin = threading.Barrier(4)

    def loop() -> None:
        begin.wait()
        found.extend([int(key) for batch in loader for key in batch[1]] for _ in range(5))

    threads = [threading.Thread(target=loop) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert found == [list(range(40))] * 20


def test_loaders_with_the_same_options_and_other_classes_are_checked_by_themselves() -> None:
    class Seeded(DataLoader[Any]):
        @property
        def seeds_batches(self) -> bool:
            return True

    plain, seeded = DataLoader(Numbers()), Seeded(Numbers())
    assert plain._engine_maker.options(plain).seed is None
    assert seeded._engine_maker.options(seeded).seed == 0
