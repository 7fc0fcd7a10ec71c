"""A mix whose weights change, in loaders: one sequence, whatever the workers, ranks and resumes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, DistributedSampler, Mix, Shards
from tests.shard_files import make_mds

SIZE, LENGTH = 4, 240


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("shards")
    rows = [[{"n": np.int64(10 * k + j).tobytes()} for j in range(10)] for k in range(7)]
    return make_mds(found, {"n": ("int", 8)}, rows)


def number_of(sample: dict[str, Any]) -> int:
    return int(sample["n"])


def mix_of(folder: Path) -> Mix:
    return Mix(
        {
            "shards": Shards(folder).map(number_of),
            "web": range(1000, 1050),
            "code": range(2000, 2020),
        },
        weights=[
            (0, {"shards": 1, "web": 2, "code": 0}),
            (50, {"shards": 0.3, "web": 0.3, "code": 0.4}),
            (170, {"shards": 5, "web": 0, "code": 1}),
        ],
        stop="never",
        length=LENGTH,
        seed=3,
        window=20,
    )


def loader_of(folder: Path, rank: int = 0, world: int = 1, **options: Any) -> DataLoader:
    mixed = mix_of(folder)
    sampler = DistributedSampler(mixed, world, rank, shuffle=False)
    return DataLoader(mixed, batch_size=SIZE, sampler=sampler, **options)


def numbers_of(batches: Any) -> list[int]:
    return [int(each) for batch in batches for each in batch]


def dealt(ranks: list[list[int]]) -> list[int]:
    """Return the samples of ranks in the order of the one sequence."""
    return [each for turn in zip(*ranks, strict=True) for each in turn]


@pytest.mark.parametrize(
    "workers",
    [
        {"num_workers": 0},
        {"num_workers": 3},
        {"num_workers": 2, "worker_type": "thread"},
        {"num_workers": 1, "start_method": "spawn"},
    ],
    ids=str,
)
def test_06_the_sequence_of_a_mix_is_the_same_with_any_workers(
    workers: dict[str, Any], folder: Path
) -> None:
    mixed = mix_of(folder)
    for epoch in (0, 1):
        mixed.set_epoch(epoch)
        with loader_of(folder, **workers) as loader:
            loader.set_epoch(epoch)
            assert numbers_of(loader) == [mixed[index] for index in range(LENGTH)]


def test_01_a_mix_is_resumed_with_other_workers_and_ranks(folder: Path) -> None:
    mixed, rng = mix_of(folder), random.Random(2)
    expected = [mixed[index] for index in range(LENGTH)]
    for before, after in ((1, 1), (2, 1), (1, 3), (3, 2)):
        batches = rng.randrange(1, LENGTH // SIZE // before - 1)
        ranks, states = [], []
        for rank in range(before):
            with loader_of(folder, rank, before, num_workers=rng.choice([0, 2])) as loader:
                iterator = iter(loader)
                ranks.append(numbers_of([next(iterator) for _ in range(batches)]))
                states.append(json.loads(json.dumps(loader.state_dict())))
        begun = dealt(ranks)
        assert begun == expected[: len(begun)]
        rest = []
        for rank in range(after):
            with loader_of(folder, rank, after, num_workers=rng.choice([0, 1, 3])) as loader:
                loader.load_state_dict(states[-1])
                rest.append(numbers_of(loader))
        whole = begun + dealt(rest)
        assert whole[:LENGTH] == expected
        assert len(whole) < LENGTH + after  # the end is padded, so that ranks end together
