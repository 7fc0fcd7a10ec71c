"""`loader.stats()["mix"]`: what each source has given, in loaders of any layout and order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from reader import BatchSampler, DataLoader, DistributedSampler, Mix, MixSampler
from tests.streams import Items

SOURCES = {"web": range(50), "code": range(1000, 1020)}
LENGTHS = {"web": np.arange(1, 51), "code": 30}
SIZE, LENGTH = 4, 210


def mix_of() -> Mix:
    options: dict[str, Any] = {"unit": "tokens", "lengths": LENGTHS, "seed": 1}
    weights = [(0, [1, 2], "linear"), (90, [2, 1])]
    return Mix(SOURCES, weights, stop="never", length=LENGTH, **options)


def counted(samples: list[int]) -> dict[str, dict[str, Any]]:
    """Return what `stats` should say of some samples."""
    found = {}
    for name, source in SOURCES.items():
        own = [each for each in samples if each in source]
        tokens = sum(each + 1 for each in own) if name == "web" else 30 * len(own)
        found[name] = {
            "samples": len(own),
            "tokens": tokens,
            "passes": len(own) / len(source),
        }
    return found


def numbers_of(batches: Any) -> list[int]:
    return [int(each) for batch in batches for each in batch]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["order", "ranks", "changes", "batches", "mapped"])
def test_stats_count_what_was_delivered_of_each_source(kind: str, workers: int) -> None:
    mix = mix_of()
    options: dict[str, Any] = {"batch_size": SIZE, "num_workers": workers}
    sampler: Any = None
    dataset: Any = mix
    if kind == "ranks":
        sampler = DistributedSampler(mix, 1, 0, shuffle=False)
    elif kind == "changes":
        sampler = MixSampler(mix)
        sampler.change_weights([0, 1], at=100)
    elif kind == "batches":
        options = {
            "batch_sampler": BatchSampler(range(LENGTH), SIZE),
            "num_workers": workers,
        }
    elif kind == "mapped":
        dataset = mix.map(int)
    if kind != "batches":
        options["sampler"] = sampler
    with DataLoader(dataset, **options) as loader:
        assert loader.stats()["mix"] == (None if kind == "batches" else counted([]))
        samples: list[int] = []
        for batch in loader:
            samples += batch.tolist()
            if kind == "batches":
                assert loader.stats()["mix"] is None  # any indices may come from a range
            elif len(samples) % 20 == 0 or len(samples) == LENGTH:
                assert loader.stats()["mix"] == counted(samples)
        assert len(samples) == LENGTH
        if kind != "batches":
            assert loader.stats()["mix"] == counted(samples)
            again = numbers_of([next(iter(loader))])
            assert sum(each["samples"] for each in loader.stats()["mix"].values()) == len(again)


@pytest.mark.parametrize("kind", [MixSampler, DistributedSampler])
def test_stats_count_what_all_ranks_were_given_also_after_a_resume(kind: Any) -> None:
    options = {} if kind is MixSampler else {"shuffle": False}
    shares, states = [], []
    for rank in range(3):
        mix = mix_of()
        sampler = kind(mix, 3, rank, **options)
        with DataLoader(mix, batch_size=SIZE, sampler=sampler) as loader:
            iterator = iter(loader)
            shares.append(numbers_of([next(iterator) for _ in range(6)]))
            states.append((loader.state_dict(), loader.stats()["mix"]))
            iterator.close()
    taken = [each for share in shares for each in share]
    assert all(stats == counted(taken) for _, stats in states)
    mix = mix_of()
    sampler = kind(mix, 2, 0, **options)
    with DataLoader(mix, batch_size=SIZE, sampler=sampler) as loader:
        loader.load_state_dict(states[1][0])
        iterator = iter(loader)
        next(iterator)
        mixed = Counter({name: each["samples"] for name, each in mix.given(72 + 8).items()})
        found = Counter({name: each["samples"] for name, each in loader.stats()["mix"].items()})
        assert found == mixed
        for _ in iterator:
            pass
        assert loader.stats()["mix"] == mix.given(LENGTH)


def test_stats_of_loaders_that_do_not_keep_to_a_mix_have_none() -> None:
    for dataset, options in (
        (range(9), {}),
        (Items("abc"), {}),
        (mix_of(), {"shuffle": True}),
        (mix_of(), {"sampler": DistributedSampler(mix_of(), 1, 0)}),
    ):
        with DataLoader(dataset, batch_size=3, **options) as loader:
            next(iter(loader))
            assert loader.stats()["mix"] is None
