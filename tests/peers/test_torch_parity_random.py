"""Random loaders: PyTorch's and ours yield the same, to the last bit.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
import torch.utils.data as data

from tests.peers.torch_parity import check_same
from tests.peers.torch_samples import (
    Augmented,
    Batched,
    Counted,
    Keyed,
    Rows,
    Seeds,
    Stream,
    doubled,
)

pytestmark = pytest.mark.peer
CASES = 24


def make(draw: random.Random, loader: Any) -> tuple[Any, int]:
    """A loader, and how many batches are taken of an epoch: the same for the same draw."""
    options: dict[str, Any] = {"num_workers": draw.choice([0, 0, 1, 2])}
    if options["num_workers"]:
        options["persistent_workers"] = draw.random() < 0.5
        options["prefetch_factor"] = draw.choice([None, 1, 2, 5])
        options["timeout"] = draw.choice([0, 50])
    if draw.random() < 0.3:
        options["generator"] = torch.Generator().manual_seed(draw.randrange(100))
    if draw.random() < 0.25:
        sizes = [draw.randrange(9) for _ in range(draw.randrange(1, 4))]
        dataset: Any = draw.choice([Stream(*sizes), Counted(sum(sizes), *sizes)])
        options["batch_size"] = draw.choice([None, 1, 2, 3, 20])
        if options["batch_size"] is not None:
            options["drop_last"] = draw.random() < 0.5
        return loader(dataset, **options), draw.choice([1, 2, 99, 99])
    count = draw.randrange(1, 20)
    dataset = draw.choice([Rows, Augmented, Seeds, Batched, Keyed])(count)
    if draw.random() < 0.2 and count > 1:
        dataset = data.Subset(dataset, draw.sample(range(count), count // 2))
    own = torch.Generator().manual_seed(draw.randrange(100))
    sampler = draw.choice(
        [
            None,
            None,
            data.RandomSampler(dataset, draw.random() < 0.5, draw.randrange(1, 40)),
            data.RandomSampler(dataset, generator=own),
            data.SubsetRandomSampler(range(len(dataset)), draw.choice([None, own])),
            data.WeightedRandomSampler([draw.random() for _ in range(len(dataset))], 9),
            data.DistributedSampler(dataset, 3, draw.randrange(3), drop_last=draw.random() < 0.5),
        ]
    )
    size, drop_last = draw.choice([1, 2, 3, 7, 30]), draw.random() < 0.5
    kind = draw.random()
    if kind < 0.2:
        inner = sampler or data.SequentialSampler(dataset)
        return loader(
            dataset, batch_sampler=data.BatchSampler(inner, size, drop_last), **options
        ), draw.choice([1, 99])
    if kind < 0.4:
        options["batch_size"] = None
        options["collate_fn"] = draw.choice([None, doubled])
    else:
        options.update(batch_size=size, drop_last=drop_last)
    if sampler is None:
        options["shuffle"] = draw.choice([None, False, True])
    return loader(dataset, sampler=sampler, **options), draw.choice([1, 3, 99, 99])


@pytest.mark.parametrize("case", range(CASES))
def test_loaders_of_random_make_yield_the_same(case: int) -> None:
    def act(loader: Any) -> Any:
        draw = random.Random(case)
        made, taken = make(draw, loader)
        return [list(itertools.islice(made, taken)) for _ in range(2)]

    check_same(act)
