"""Data that have grown since a state was saved: they join when the program says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reader import (
    BatchSampler,
    ConcatDataset,
    ConfigError,
    DataLoader,
    DistributedSampler,
    Padded,
    SequenceSampler,
    ShardOrder,
    StateError,
)
from tests.contract.test_state_data import write_in
from tests.contract.test_state_samplers import Global
from tests.datasets import Fails, Indices


def begun(loader: DataLoader, batches: int) -> tuple[list[Any], Any, list[Any]]:
    """The first batches of an epoch, the state behind them, and the rest."""
    with loader:
        iterator = iter(loader)
        found = [np.asarray(next(iterator)).tolist() for _ in range(batches)]
        state = json.loads(json.dumps(loader.state_dict()))
        return found, state, [np.asarray(batch).tolist() for batch in iterator]


def flat(batches: list[Any]) -> list[int]:
    return [index for batch in batches for index in batch]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_01_samples_that_are_new_come_once_now_or_in_the_next_epoch(data: st.DataObject) -> None:
    size, workers = data.draw(st.integers(1, 7)), data.draw(st.sampled_from([0, 0, 2]))
    old = data.draw(st.integers(size + 1, 60))
    new = old + data.draw(st.integers(1, 40))
    at = data.draw(st.integers(1, -(-old // size)))
    options: Any = {
        "batch_size": size,
        "shuffle": data.draw(st.booleans()),
        "worker_type": "thread",
    }
    options["seed"] = data.draw(st.sampled_from([None, 3]))
    first, state, rest = begun(DataLoader(Indices(old), **options), at)
    with DataLoader(Indices(new), num_workers=workers, **options) as loader:
        loader.load_state_dict(state, grown="next_epoch")
        assert [batch.tolist() for batch in loader] == rest
        assert sorted(flat([batch.tolist() for batch in loader])) == list(range(new))
    with DataLoader(Indices(new), num_workers=workers, **options) as loader:
        loader.load_state_dict(state, grown="now")
        found, states = [], [loader.state_dict()]
        for batch in loader:
            found.append(batch.tolist())
            states.append(json.loads(json.dumps(loader.state_dict())))
        whole = flat(first + found)
        assert sorted(whole) == list(range(new))
        assert sorted(whole[:old]) == list(range(old))
        again = [batch.tolist() for batch in loader]
    cut = data.draw(st.integers(0, len(found)))
    more = new + data.draw(st.integers(0, 20))
    with DataLoader(Indices(more), **options) as loader:  # it may have grown once more
        loader.load_state_dict(states[cut], grown="now" if more > new else None)
        later = [batch.tolist() for batch in loader]
        if more == new:
            assert later == found[cut:]
            if options["seed"] is not None:
                assert [batch.tolist() for batch in loader] == again
        assert sorted(flat(first + found[:cut] + later)) == list(range(more))


def test_a_state_of_data_that_have_grown_asks_when_they_join() -> None:
    _, state, _ = begun(DataLoader(Indices(50), batch_size=4, shuffle=True, seed=1), 3)
    loader = DataLoader(Indices(60), batch_size=4, shuffle=True, seed=1)
    text = "length was 50 .* has 60: the data have grown.*grown='next_epoch'.*grown='now'"
    with pytest.raises(StateError, match=text):
        loader.load_state_dict(state)
    with pytest.raises(ConfigError, match="grown must be 'next_epoch', 'now' or None, got 'later'"):
        loader.load_state_dict(state, grown="later")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"grown must be .* got array"):
        loader.load_state_dict(state, grown=np.zeros(2))  # type: ignore[arg-type]
    with pytest.raises(StateError, match="length was 50 when it was saved, and this loader has 40"):
        DataLoader(Indices(40), batch_size=4, shuffle=True, seed=1).load_state_dict(
            state, grown="now"
        )
    del state["fit"]["data"]  # of an earlier version
    loader.load_state_dict(state, grown="now")
    assert len(flat([batch.tolist() for batch in loader])) == 48
    for wrong in ([1], ["a"], [60, 50], [50, 70], 5):
        with pytest.raises(StateError, match="grown in the state"):
            loader.load_state_dict({**state, "grown": wrong})
    shrunk = {**state, "grown": [40, 50]}
    with pytest.raises(StateError, match="length was 50 when it was saved, and this loader has 45"):
        DataLoader(Indices(45), batch_size=4, shuffle=True, seed=1).load_state_dict(shrunk)


def test_other_data_that_are_more_are_no_data_that_have_grown() -> None:
    old = ConcatDataset([Indices(20), Indices(10)])
    _, state, rest = begun(DataLoader(old, batch_size=4), 3)
    grown = ConcatDataset([Indices(20), Indices(10), Indices(5)])
    loader = DataLoader(grown, batch_size=4)
    loader.load_state_dict(state, grown="next_epoch")
    assert [batch.tolist() for batch in loader] == rest
    other = DataLoader(ConcatDataset([Indices(25), Indices(10)]), batch_size=4)
    with pytest.raises(StateError, match=r"the data are not .*of\[0\].samples was 20 and is 25"):
        other.load_state_dict(state, grown="now")
    kind = DataLoader(Fails(-1, 40), batch_size=4)
    with pytest.raises(StateError, match="kind was"):
        kind.load_state_dict(state, grown="now")


@pytest.mark.parametrize("world", [1, 2])
def test_01_shards_that_were_added_join_in_the_next_epoch(tmp_path: Path, world: int) -> None:
    old = write_in(tmp_path / "old", [20, 20, 10])
    new = write_in(tmp_path / "new", [20, 20, 10, 20, 7])

    def loader(shards: Any, rank: int) -> DataLoader:
        order = ShardOrder(shards, 3, 25, rank=rank, world_size=world)
        options: Any = {"batch_sampler": BatchSampler(order, 4, False)}
        return DataLoader(shards, collate_fn=_pairs, **options)

    epoch: list[Any] = []
    for rank in range(world):
        with loader(old, rank) as before:
            batches = iter(before)
            first = [next(batches) for _ in range(3)]
            state = before.state_dict()
            rest = list(batches)
        assert first
        with loader(new, rank) as after:
            with pytest.raises(StateError, match="the data have grown"):
                after.load_state_dict(state)
            with pytest.raises(StateError, match=r"grown='now' is for .*ShardOrder.*next_epoch"):
                after.load_state_dict(state, grown="now")
            after.load_state_dict(state, grown="next_epoch")
            iterator = iter(after)
            assert next(iterator) == rest[0]
            middle = after.state_dict()
            assert list(iterator) == rest[1:]
            epoch += flat(list(after))
        with loader(new, rank) as after:
            after.load_state_dict(middle, grown="next_epoch")
            assert list(after) == rest[1:]
    assert sorted(set(epoch)) == [
        (s, n) for s, c in enumerate([20, 20, 10, 20, 7]) for n in range(c)
    ]
    assert len(epoch) - len(set(epoch)) < world


def _pairs(samples: list[Any]) -> list[tuple[int, int]]:
    return [(sample["shard"], sample["n"]) for sample in samples]


def test_ranks_finish_their_epoch_and_then_take_all() -> None:
    for rank in (0, 1):
        sampler = DistributedSampler(Indices(30), 2, rank, seed=5)
        _, state, rest = begun(DataLoader(Indices(30), batch_size=4, sampler=sampler), 2)
        sampler = DistributedSampler(Indices(44), 2, rank, seed=5)
        loader = DataLoader(Indices(44), batch_size=4, sampler=sampler)
        loader.load_state_dict(state, grown="next_epoch")
        assert [batch.tolist() for batch in loader] == rest
        direct = DistributedSampler(Indices(44), 2, rank, seed=5)
        direct.set_epoch(1)
        assert flat([batch.tolist() for batch in loader]) == list(direct)


def test_orders_of_the_user_cannot_grow_within_an_epoch() -> None:
    _, state, _ = begun(DataLoader(Indices(50), sampler=Global(), batch_size=4), 3)
    loader = DataLoader(Indices(60), sampler=Global(), batch_size=4)
    for grown in ("now", "next_epoch"):
        with pytest.raises(StateError, match=f"grown='{grown}' is for the orders of .*has Global"):
            loader.load_state_dict(state, grown=grown)  # type: ignore[arg-type]


def test_batches_of_an_epoch_that_has_grown_are_made_again_and_trained_late() -> None:
    first, state, _ = begun(DataLoader(Indices(50), batch_size=4, shuffle=True, seed=1), 3)
    with DataLoader(Indices(60), batch_size=4, shuffle=True, seed=1) as loader:
        loader.load_state_dict(state, grown="now")
        iterator = iter(loader)
        found = first + [next(iterator).tolist() for _ in range(11)]
        assert [loader.replay(n).tolist() for n in range(14)] == found
        late = loader.state_dict(trained=12)
        found += [batch.tolist() for batch in iterator]
    with DataLoader(Indices(60), batch_size=4, shuffle=True, seed=1) as loader:
        loader.load_state_dict(late)
        assert [batch.tolist() for batch in loader] == found[12:]
    with DataLoader(Indices(60), sampler=SequenceSampler(Indices(60)), batch_size=None) as loader:
        _, state, _ = begun(DataLoader(Indices(50), batch_size=None), 20)
        loader.load_state_dict(state, grown="now")
        assert [int(sample) for sample in loader] == list(range(20, 60))


@pytest.mark.parametrize("ranks", [2, 4])
def test_padding_stays_padding_where_the_data_have_grown(ranks: int) -> None:
    def loader(count: int, rank: int) -> DataLoader:
        padded = Padded(Indices(count))
        return DataLoader(padded, batch_size=5, sampler=DistributedSampler(padded, ranks, rank))

    counted: list[int] = []
    for rank in range(ranks):
        with loader(51, rank) as old:
            batches = [next(iter(old))]
            state = old.state_dict()
        with loader(80, rank) as new:
            new.load_state_dict(state, grown="next_epoch")
            batches += new
        counted += [int(index) for each, counts in batches for index in each[counts]]
    assert sorted(counted) == list(range(51))
