"""Samples that are marked as padding: what a Padded gives, and samplers that fill up with it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reader
from reader import (
    BalancedBatches,
    BucketBatchSampler,
    ConfigError,
    ConfigTypeError,
    DataLoader,
    DatasetError,
    DistributedBatchSampler,
    DistributedSampler,
    Padded,
    SampleIndexError,
    ShardOrder,
)
from reader.compat import paddle as of_paddle
from reader.compat import torch as of_torch
from tests.datasets import Batched
from tests.even_program import COUNT, Squares, sums_without


def of_ranks(kind: Any, dataset: Any, ranks: int, *given: Any, **options: Any) -> list[list[Any]]:
    """Return what the sampler of each rank yields."""
    names = ("world_size", "rank") if kind is ShardOrder else ("num_replicas", "rank")
    return [
        list(kind(dataset, *given, **dict(zip(names, (ranks, rank), strict=True)), **options))
        for rank in range(ranks)
    ]


class Shards(reader.data.dataset.ShardedDataset[int]):
    """Numbers in shards of 7."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int, /) -> int:
        return range(self.count)[index]

    @property
    def starts(self) -> Any:
        return [*range(0, self.count, 7), self.count]


@given(
    count=st.integers(1, 60),
    ranks=st.integers(1, 9),
    even=st.sampled_from(["drop", "repeat", "pad"]),
    shuffle=st.booleans(),
    kind=st.sampled_from([DistributedSampler, ShardOrder, DistributedBatchSampler]),
)
def test_ranks_take_equally_many_and_padding_is_what_comes_again(
    count: int, ranks: int, even: Any, shuffle: bool, kind: Any
) -> None:
    given: list[Any] = [4] if kind is DistributedBatchSampler else []
    options = {"seed": 5} if kind is ShardOrder else {"seed": 5, "shuffle": shuffle}
    dataset = Padded(Shards(count))
    shares = of_ranks(kind, dataset, ranks, *given, even=even, **options)
    if given:
        assert {tuple(map(len, share)) for share in shares} == {tuple(map(len, shares[0]))}
        shares = [[index for batch in share for index in batch] for share in shares]
    assert {len(share) for share in shares} == {len(shares[0])}
    found = Counter(index for share in shares for index in share)
    if even == "drop":
        assert len(shares[0]) == count // ranks
        assert max(found.values(), default=1) == 1
        return
    assert len(shares[0]) == -(-count // ranks)
    own = {index: times for index, times in found.items() if index < count}
    assert sorted(own) == list(range(count))
    if even == "pad":
        assert set(own.values()) == {1}
    assert all(index < 2 * count for index in found)
    assert even == "pad" or len(own) == len(found)


@given(
    count=st.integers(1, 80),
    before=st.integers(1, 5),
    after=st.integers(1, 5),
    steps=st.integers(0, 20),
)
def test_another_number_of_ranks_counts_what_is_left_once(
    count: int, before: int, after: int, steps: int
) -> None:
    old = [DistributedSampler(range(count), before, rank, even="pad") for rank in range(before)]
    taken = [index for sampler in old for index in list(sampler)[:steps]]
    new = [DistributedSampler(range(count), after, rank, even="pad") for rank in range(after)]
    for sampler in new:
        sampler.resume_from(steps * before)
    left = [list(sampler) for sampler in new]
    assert len({len(share) for share in left}) == 1
    found = [*taken, *(index for share in left for index in share)]
    assert sorted(index for index in found if index < count) == list(range(count))


@given(ranks=st.integers(1, 9), even=st.sampled_from([None, "drop", "repeat", "pad"]))
def test_buckets_give_all_ranks_equally_many_batches(ranks: int, even: Any) -> None:
    lengths = [1 + index % 13 for index in range(57)]
    shares = of_ranks(BucketBatchSampler, lengths, ranks, 4, even=even, seed=2)
    assert {len(share) for share in shares} == {len(shares[0])}
    found = Counter(index for share in shares for batch in share for index in batch)
    if even == "pad":
        assert sorted(index for index in found.elements() if index < 57) == list(range(57))
    elif even != "drop":
        assert sorted(found) == list(range(57))


def test_dicts_get_a_field_and_other_samples_become_pairs() -> None:
    padded = Padded([{"a": 1}, {"a": 2}], field="counts")
    assert (padded[1], padded[2]) == ({"a": 2, "counts": True}, {"a": 1, "counts": False})
    assert (padded[-1], len(padded), padded.padding_of(1)) == ({"a": 2, "counts": True}, 2, 3)
    assert Padded([(1, 2)])[0] == ((1, 2), True)
    for index in (4, -3):
        with pytest.raises(SampleIndexError, match=f"Padded has no sample {index}: it has 2"):
            padded[index]
    with pytest.raises(ConfigError, match=r"a sample has a field 'a' already: .*field="):
        Padded([{"a": 1}], field="a")[0]


def test_what_the_dataset_offers_is_passed_on() -> None:
    assert not hasattr(Padded([1]), "__getitems__")
    assert not hasattr(Padded([1]), "__read_ahead__")
    many = Padded(Batched(4))
    assert [flag for _, flag in many.__getitems__([3, 4])] == [True, False]

    class Ahead(reader.Dataset[int]):
        asked: Any = None

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int, /) -> int:
            return index

        def __read_ahead__(self, keys: Any) -> None:
            self.asked = list(keys)

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    inner = Ahead()
    padded = Padded(inner)
    padded.__read_ahead__([2, 3])
    padded.set_epoch(4)
    assert (inner.asked, inner.epoch) == ([2, 0], 4)


@pytest.mark.parametrize("dataset", ["text", 3, list, iter([1])])
def test_padded_takes_datasets_with_a_length(dataset: Any) -> None:
    with pytest.raises(ConfigTypeError, match="Padded takes a"):
        Padded(dataset)
    for field in ("", 3):
        with pytest.raises(ConfigError, match="field must be the name of the flag"):
            Padded([1], field)  # type: ignore[arg-type]


def test_even_is_refused_where_it_contradicts_drop_last_or_the_dataset() -> None:
    numbers = list(range(10))
    with pytest.raises(ConfigError, match=r"drop_last=True drops what is over, and even='pad'"):
        DistributedSampler(numbers, 2, 0, drop_last=True, even="pad")
    with pytest.raises(ConfigError, match="even must be 'drop', 'repeat' or 'pad', got 'padded'"):
        DistributedBatchSampler(numbers, 2, 2, 0, even="padded")  # type: ignore[arg-type]
    sampler = DistributedSampler(numbers, 3, 0, even="pad")
    batches = DistributedBatchSampler(numbers, 2, 3, 0, even="pad")
    nested = reader.BatchSampler(sampler, 2)
    for options in ({"sampler": sampler}, {"batch_sampler": batches}, {"batch_sampler": nested}):
        with pytest.raises(ConfigError, match=r"even='pad' marks .* of list cannot say so: .*Padd"):
            DataLoader(numbers, **options)  # type: ignore[arg-type]
    for face in (of_torch.DataLoader, of_paddle.DataLoader):
        with pytest.raises(ConfigError, match=r"even='pad' marks .*reader\.Padded\(dataset\)"):
            iter(face(numbers, batch_sampler=batches))
    loader = DataLoader(numbers, sampler=DistributedSampler(numbers, 3, 2), batch_size=2)
    late = DistributedSampler(numbers, 3, 2, shuffle=False, even="pad")
    loader.batch_sampler = reader.BatchSampler(late, 2)
    with pytest.raises(SampleIndexError, match="index 11 in batch"):
        list(loader)


def test_the_samplers_default_follows_from_the_dataset() -> None:
    padded = Padded(list(range(10)))
    assert DistributedSampler(padded, 3, 0).even == "pad"
    assert DistributedSampler(padded, 3, 0, drop_last=True).even == "drop"
    assert DistributedSampler(range(10), 3, 0).even == "repeat"
    assert DistributedBatchSampler(padded, 2, 3, 0).even == "pad"
    theirs = of_paddle.DistributedBatchSampler(padded, 2, 3, 2)
    assert [index for batch in theirs for index in batch] == [4, 5, 10, 11]


def test_the_shuffle_of_a_loader_pads_shards_of_a_padded(monkeypatch: Any) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    found = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        loader = DataLoader(Padded(Shards(29)), batch_size=4, shuffle=True, seed=1)
        found.append([np.stack(batch, 1) for batch in loader])
    assert [len(batches) for batches in found] == [3, 3, 3]
    rows = np.concatenate([row for batches in found for row in batches])
    assert sorted(rows[rows[:, 1] == 1][:, 0]) == list(range(29))
    assert len(rows) == 30


@pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_say_which_rows_count_and_a_loader_resumes(framework: Any, workers: int) -> None:
    padded = Padded(Squares())
    kinds = {"numpy": np.ndarray, "torch": torch.Tensor, "paddle": paddle.Tensor}

    def loader(rank: int) -> DataLoader[Any]:
        sampler = DistributedSampler(padded, 4, rank, seed=1)
        given: dict[str, Any] = {"framework": framework, "num_workers": workers}
        return DataLoader(padded, batch_size=50, sampler=sampler, **given)

    sums = np.zeros(3, int)
    for rank in range(4):
        with loader(rank) as begun:
            batches = iter(begun)
            taken = [next(batches) for _ in range(2)]
            state = json.loads(json.dumps(begun.state_dict()))
            del batches
        with loader(rank) as rest:
            rest.load_state_dict(state)
            taken += rest
        assert type(taken[0]["valid"]) is kinds[framework]
        assert len(taken) == 6
        for batch in taken:
            valid, number, square = (
                np.asarray(batch[name]) for name in ("valid", "number", "square")
            )
            assert valid.dtype == bool
            sums += [valid.sum(), number[valid].sum(), square[valid].sum()]
    assert sums.tolist() == sums_without()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failed_sample_that_is_padding_is_named_as_itself(workers: int, tmp_path: Path) -> None:
    padded = Padded(Squares((0, 9)))
    path = tmp_path / "bad.jsonl"
    with DataLoader(
        padded,
        batch_sampler=[[0, 1], [COUNT, 9], [COUNT + 9, 3]],
        on_error="skip",
        quarantine=path,
        num_workers=workers,
    ) as loader:
        batches = [(batch["number"].tolist(), batch["valid"].tolist()) for batch in loader]
    assert batches[0] == ([1], [True])
    assert batches[2] == ([3], [True])
    assert len(batches[1][0]) == 1
    assert batches[1][1] == [False]
    assert [each.index for each in loader.errors] == [0, 0, 9, 9]
    assert len(reader.without(Squares(), path)) == COUNT - 2


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_that_vanishes_on_one_of_several_ranks_is_an_error(
    workers: int, monkeypatch: Any
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    sampler = DistributedSampler(Squares(), shuffle=False)
    dataset = Squares((1, 3))
    options: dict[str, Any] = {"on_error": "skip", "num_workers": workers}
    with DataLoader(dataset, batch_size=2, sampler=sampler, **options) as loader:
        match = r"all samples of a batch failed, and this is rank 1 of 2 .*a step less.*Padded"
        with pytest.raises(DatasetError, match=match):
            next(iter(loader))
    alone = DistributedSampler(Squares(), num_replicas=1, rank=0, shuffle=False)
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.delenv("RANK")
    with DataLoader(Squares((0, 1)), batch_size=2, sampler=alone, **options) as loader:
        assert next(iter(loader))["number"].tolist() == [2, 3]


def test_iterating_over_a_padded_gives_each_sample_once() -> None:
    assert list(Padded(["a", "b"])) == [("a", True), ("b", True)]
    assert Padded([5])[np.int64(1)] == (5, False)
    assert type(Padded([5])[np.int64(1)][1]) is bool


def test_samplers_made_for_another_length_are_refused() -> None:
    padded, costs = Padded(list(range(7))), [1] * 5
    ranks: dict[str, Any] = {"rank": 0, "seed": 1}
    of_rank: dict[str, Any] = {**ranks, "world_size": 3, "even": "pad"}
    made: list[dict[str, Any]] = [
        {"sampler": DistributedSampler(Padded(costs), 3, 0)},
        {"batch_sampler": DistributedBatchSampler(Padded(costs), 2, 3, 0)},
        {"batch_sampler": BucketBatchSampler(costs, 2, num_replicas=3, even="pad", **ranks)},
        {"batch_sampler": BalancedBatches(costs, 2, **of_rank)},
    ]
    for options in made:
        with pytest.raises(
            ConfigError, match=r"was made for 5 samples, and Padded has 7: its .* Make it for this"
        ):
            DataLoader(padded, **options)
    with pytest.raises(
        ConfigError, match=r"BalancedBatches was made for 5 samples, and range has 7"
    ):
        DataLoader(range(7), batch_sampler=BalancedBatches(costs, 2))


def test_samples_that_would_count_twice_are_refused() -> None:
    padded = Padded(list(range(7)))
    theirs = torch.utils.data.DistributedSampler(padded, 2, 0)  # type: ignore[arg-type, var-annotated]
    bucket = BucketBatchSampler([1] * 7, 2, num_replicas=2, rank=0, seed=1)
    balanced = BalancedBatches([1] * 7, 2, world_size=2, rank=0, seed=1)
    own = DistributedSampler(padded, 2, 0, even="repeat")
    made: list[dict[str, Any]] = [{"sampler": theirs}, {"sampler": own}]
    made += [{"batch_sampler": each} for each in (bucket, balanced)]
    made.append({"batch_sampler": paddle.io.DistributedBatchSampler(padded, 2, 2, 0)})
    for options in made:
        with pytest.raises(ConfigError, match="marks none of them: Padded would count these twice"):
            DataLoader(padded, **options)
        DataLoader(padded.dataset, **options)
    even = torch.utils.data.DistributedSampler(padded, 7, 0)  # type: ignore[arg-type, var-annotated]
    assert len(DataLoader(padded, sampler=even)) == 1


def test_a_padded_is_the_outermost_dataset() -> None:
    padded = Padded(list(range(7)))
    for outer in (
        padded.map(str),
        reader.Subset(padded, [0, 1]),
        reader.Subset(padded.map(str), [0]),
    ):
        with pytest.raises(ConfigError, match=r"Padded is within .*: make it the outermost"):
            DataLoader(outer)
