"""Loading a foreign or damaged state, or another object: refused, and nothing changes."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reader import BatchSampler, DataLoader, StateError
from tests.contract.test_state_samplers import Global, Indices, Stateful, generator
from tests.contract.test_state_streams import Dealt, Kept
from tests.names import shown


def loaders() -> dict[str, Any]:
    """Makers of loaders of each kind of state."""
    import torch.utils.data as torch_data

    options: dict[str, Any] = {"batch_size": 4}
    return {
        "entered": lambda: DataLoader(Indices(50), shuffle=True, seed=1, **options),
        "replayed": lambda: DataLoader(Indices(50), sampler=Global(), **options),
        "generator": lambda: DataLoader(
            Indices(50),
            sampler=torch_data.RandomSampler(Indices(50), generator=generator()),
            **options,
        ),
        "stateful": lambda: DataLoader(Indices(50), sampler=Stateful(), **options),
        "ranks": lambda: DataLoader(
            Indices(50), sampler=torch_data.DistributedSampler(Indices(50), 2, 1), **options
        ),
        "stream": lambda: DataLoader(Dealt(40, "sequence"), **options),
        "stateful stream": lambda: DataLoader(Kept(), seed=3, **options),
    }


WRONG: tuple[Any, ...] = (None, -1, 1.5, "x", [], {}, True, 2**70, [None], {"x": 1})
ODD: tuple[Any, ...] = (
    *(np.int64(1), np.float64(1.0), np.bool_(True), np.str_("map"), np.arange(3), np.array(1)),
    *(np.zeros((2, 2)) > 0, float("nan"), 10**400, b"x", 1j, (1, 2), {1}, ..., object(), {1: 2}),
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a state can be damaged; the states of users' own objects are theirs."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key not in ("source", "iterator", "drawn"):
                yield (*path, key)
                yield from () if key == "state" else paths(each, (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from paths(each, (*path, at))


def damaged(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(state)
    at = made
    for step in path[:-1]:
        at = at[step]
    if value is damaged:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return made


@pytest.mark.parametrize("kind", sorted(loaders()))
def test_each_missing_or_wrong_part_of_a_state_is_reported_and_nothing_changes(
    kind: str,
) -> None:
    make = loaders()[kind]
    loader = make()
    for _ in zip(range(3), loader, strict=False):
        pass
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [np.asarray(batch).tolist() for batch in again(make, state)]
    probe = make()
    before = json.dumps(probe.state_dict())
    refused = 0
    for path in paths(state):
        for value in (damaged, *WRONG):
            bad = damaged(state, path, value)
            if bad == state:
                continue
            globals_before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[union-attr, index]
            try:
                probe.load_state_dict(bad)
            except StateError:
                refused += 1
            else:  # another position of the same kind, or one without effect: it can be loaded
                with contextlib.suppress(StateError):
                    for _ in zip(range(2), probe, strict=False):
                        pass
                probe = make()
                before = json.dumps(probe.state_dict())
                continue
            globals_after = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[union-attr, index]
            assert globals_after == globals_before
            assert json.dumps(probe.state_dict()) == before
    assert refused > 100
    for path in paths(state):
        with pytest.raises(StateError):
            probe.load_state_dict(damaged(state, path[:1], damaged))
    probe.load_state_dict(state)
    assert [np.asarray(batch).tolist() for batch in probe] == rest


def again(make: Any, state: Any) -> Any:
    loader = make()
    loader.load_state_dict(state)
    return loader


@pytest.mark.parametrize(
    "foreign",
    [
        None,
        3,
        "state",
        [],
        {},
        {"_snapshot": {"_snapshot_step": 2}},
        {"reader": 2},
        {"reader": "1"},
    ],
    ids=str,
)
def test_an_object_that_is_no_state_of_a_loader_is_reported(foreign: Any) -> None:
    loader = DataLoader(Indices(50))
    with pytest.raises(StateError, match=r"no state of a reader.DataLoader|the state has format"):
        loader.load_state_dict(foreign)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"seed": 2}, "seed was 1 when it was saved, and this loader has 2"),
        ({"seed": None}, "seed was 1 when it was saved, and this loader has None"),
        (
            {"shuffle": False},
            "sampler was 'RandomSampler' when it was saved, and this loader has 'SequenceSampler'",
        ),
        ({"dataset": Indices(40)}, "length was 50 when it was saved, and this loader has 40"),
        ({"dataset": Dealt(50, "sequence")}, "kind was 'map' when it was saved"),
    ],
    ids=shown,
)
def test_a_state_that_does_not_fit_is_reported_with_both_values(
    change: dict[str, Any], text: str
) -> None:
    options: dict[str, Any] = {"dataset": Indices(50), "batch_size": 4, "shuffle": True, "seed": 1}
    loader = DataLoader(**options)
    next(iter(loader))
    state = loader.state_dict()
    given = {**options, **change}
    if isinstance(given["dataset"], Dealt):
        del given["shuffle"]
    other = DataLoader(**given)
    with pytest.raises(StateError, match=text):
        other.load_state_dict(state)
    with pytest.raises(StateError, match="batch_sampler was None when it was saved"):
        DataLoader(Indices(50), batch_sampler=BatchSampler(range(50), 4), seed=1).load_state_dict(
            {**state, "fit": {**state["fit"], "sampler": None, "batch_size": None}}
        )


@pytest.mark.parametrize("kind", list(loaders()))
def test_foreign_values_anywhere_in_a_state_are_reported_and_nothing_changes(kind: str) -> None:
    """NumPy's and torch's values compare as arrays: each place is refused by StateError alone."""
    import torch

    with loaders()[kind]() as saved:
        iterator = iter(saved)
        next(iterator)
        state = saved.state_dict()
    with loaders()[kind]() as loader:
        before = repr(loader.state_dict())
        for path in paths(state):
            for value in (*ODD, torch.tensor(1), torch.arange(3)):
                with pytest.raises(StateError):
                    loader.load_state_dict(damaged(state, path, value))
        looped = copy.deepcopy(state)
        looped["fit"]["x"] = looped
        with pytest.raises(StateError):
            loader.load_state_dict(looped)
        assert repr(loader.state_dict()) == before


def test_first_key_that_is_no_number_is_reported_before_the_order_is_drawn_again() -> None:
    with loaders()["replayed"]() as loader:
        next(iter(loader))
        state = loader.state_dict()
        for wrong in ("x", None, [1], 1.5):
            with pytest.raises(StateError, match="first in the state must be an int, got"):
                loader.load_state_dict(damaged(state, ("order", "first"), wrong))


@pytest.mark.parametrize("workers", [0, 2])
def test_state_of_batches_out_of_order_is_refused_by_a_loader_in_order(workers: int) -> None:
    """The loop would wait for its early batches for ever."""
    options: dict[str, Any] = {"batch_size": 2, "num_workers": workers, "timeout": 20}
    if workers:
        options["worker_type"] = "thread"
    first = DataLoader(Indices(50), in_order=False, **options)
    next(iter(first))
    state = first.state_dict()
    state["batches"], state["samples"], state["beyond"] = 0, 0, [1, 3]
    with DataLoader(Indices(50), **options) as loader:
        with pytest.raises(StateError, match=r"in_order=False, when batches \[1, 3\] were deliv"):
            loader.load_state_dict(state)
        assert len(list(loader)) == len(loader)
    for wrong in ([0], [3, 1], [1, 1]):
        with pytest.raises(StateError, match="beyond in the state must be the numbers"):
            first.load_state_dict({**state, "beyond": wrong})
    first.load_state_dict(state)
    found = sorted(number for batch in first for number in batch.tolist())
    assert found == [n for n in range(len(Indices(50))) if n // 2 not in (1, 3)]
    first.close()


def test_a_dataset_that_has_grown_is_seen_whole_from_the_next_epoch_on() -> None:
    loader = DataLoader(Indices(50), batch_size=4)
    list(loader)
    state = loader.state_dict()
    larger = DataLoader(Indices(60), batch_size=4)
    larger.load_state_dict(state)
    assert (larger.epoch, len(list(larger))) == (1, 15)


def test_a_negative_interval_between_states_is_refused() -> None:
    with pytest.raises(ValueError, match="snapshot_every_n_steps"):
        DataLoader(Indices(50), snapshot_every_n_steps=-1)
