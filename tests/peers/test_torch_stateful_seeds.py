"""The seed of a StatefulDataLoader's batches: the base seed, or worker_init_fn's choice.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from reader.compat.torch import StatefulDataLoader
from tests.peers.torch_samples import Rows

pytestmark = pytest.mark.peer
START = pytest.mark.parametrize("start", ["fork", "spawn"])


class Draws(Rows):
    """Returns torch's seed, and a draw."""

    def __getitem__(self, index: int) -> Any:
        return torch.initial_seed(), torch.rand(2), np.random.rand()


def seed_alike(worker: int) -> None:
    torch.manual_seed(12345)


def seed_apart(worker: int) -> None:
    torch.manual_seed(40 + worker)


def leave_alone(worker: int) -> None:
    torch.rand(3)


def made(worker_init_fn: Any, start: str = "fork") -> StatefulDataLoader[Any]:
    return StatefulDataLoader(
        Draws(24), 3, num_workers=2, worker_init_fn=worker_init_fn, multiprocessing_context=start
    )


def run(trainer_seed: int, worker_init_fn: Any, start: str = "fork") -> list[Any]:
    torch.manual_seed(trainer_seed)
    return list(made(worker_init_fn, start))


def texts(batches: list[Any]) -> list[str]:
    return [str(batch) for batch in batches]


@pytest.mark.sampled(2)
@START
def test_seed_of_worker_init_fn_keys_the_batches(start: str) -> None:
    first, again = run(1, seed_alike, start), run(2, seed_alike, start)
    assert all(seeds.tolist() == [12345] * 3 for seeds, *_ in first)
    assert texts(first) == texts(again)
    assert len({str(drawn) for _, drawn, _ in first}) == len(first)  # each batch has its own
    apart = run(1, seed_apart, start)
    assert [seeds[0].item() for seeds, *_ in apart] == [40, 41] * 4
    assert not {str(drawn) for _, drawn, _ in apart} & {str(drawn) for _, drawn, _ in first}


def test_worker_init_fn_that_only_draws_leaves_the_base_seed() -> None:
    assert texts(run(1, leave_alone)) == texts(run(1, None)) != texts(run(2, None))


@pytest.mark.parametrize("taken", [1, 4, 7])
def test_batches_keyed_by_worker_init_fn_go_on_after_a_resume(taken: int) -> None:
    whole = texts(run(3, seed_apart))
    loader = made(seed_apart)
    assert texts(list(itertools.islice(loader, taken))) == whole[:taken]
    state = loader.state_dict()
    torch.manual_seed(9)
    other = made(seed_apart)
    other.load_state_dict(state)
    assert texts(list(other)) == whole[taken:]
