"""Packed and mixed rows, resumed at random places into other layouts: the same global sequence."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, Mix, MixSampler, PackedTokens, ShardOrder

BATCH = 2
# (ranks, how each loads)
LAYOUTS: list[tuple[int, dict[str, Any]]] = [
    (1, {}),
    (2, {}),
    (3, {}),
    (8, {}),
    (1, {"num_workers": 1}),
    (2, {"num_workers": 1}),
    (1, {"num_workers": 2}),
    (1, {"num_workers": 5}),
    (1, {"num_workers": 3, "worker_type": "thread"}),
    (2, {"num_workers": 2, "worker_type": "thread"}),
]


def documents(seed: int, count: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(3, 1, count).astype(int), 1, 200)
    return [rng.integers(1, 60_000, length).astype(np.uint16) for length in lengths]


WEB, CODE = documents(1, 900), documents(2, 500)
# weights that change within the epoch, the second time along a line
CHANGES = [[40, [1, 3]], [90, [3, 1], "linear"], [200, [1, 1]]]


def loader(kind: str, layout: tuple[int, int], changes: Path, state: Any, **how: Any) -> Any:
    """Return the loader of one rank; a layout is (ranks, this rank)."""
    ranks, rank = layout
    dataset: Any
    sampler: Any
    if kind == "mix":
        dataset = Mix(
            {name: PackedTokens(held, 64, 1, window=128) for name, held in held_by_name()},
            {"web": 2, "code": 1},
            unit="tokens",
            stop="all",
            seed=3,
        )
        sampler = MixSampler(dataset, ranks, rank, changes=changes, every=16, drop_last=True)
    else:
        options: dict[str, Any] = {"targets": True, "strategy": kind}
        dataset = PackedTokens(WEB, 64, 1, window=128, **options)
        sampler = ShardOrder(dataset, 5, 100, rank=rank, world_size=ranks, drop_last=True)
    found: Any = DataLoader(dataset, sampler=sampler, batch_size=BATCH, **how)
    if state is not None:
        found.load_state_dict(json.loads(json.dumps(state)))
    return found


def held_by_name() -> list[tuple[str, list[Any]]]:
    return [("web", WEB), ("code", CODE)]


def taken(loaders: list[Any], steps: int | None = None) -> list[Any]:
    """Return the rows of so many steps, or of all that each rank takes, in the order of all."""
    iterators = [iter(each) for each in loaders]
    found: list[Any] = []
    while steps is None or steps > 0:
        batches = [next(iterator, None) for iterator in iterators]
        if None in [batch if batch is None else 0 for batch in batches]:
            break
        rows = [[tuple(row.tolist()) for row in batch["tokens"]] for batch in batches if batch]
        for places in zip(*rows, strict=False):  # the last batch of a rank may be shorter
            found += places
        steps = None if steps is None else steps - 1
    return found


@pytest.mark.parametrize(
    "resumes", [6, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.timeout(900)])]
)
@pytest.mark.parametrize("kind", ["best_fit", "wrapped", "mix"])
def test_an_epoch_goes_on_in_any_other_layout(kind: str, resumes: int, tmp_path: Path) -> None:
    changes = tmp_path / "weights.json"
    changes.write_text(json.dumps(CHANGES))
    whole = taken([loader(kind, (1, 0), changes, None)])
    rng = random.Random(resumes)
    for _ in range(resumes):
        (ranks, how), (ranks_then, how_then) = rng.sample(LAYOUTS, 2)
        steps = rng.randrange(1, len(whole) // BATCH // ranks)
        first = [loader(kind, (ranks, rank), changes, None, **how) for rank in range(ranks)]
        before = taken(first, steps)
        assert len(before) == steps * BATCH * ranks
        assert before == whole[: len(before)]
        state = rng.choice(first).state_dict()
        second = [
            loader(kind, (ranks_then, rank), changes, state, **how_then)
            for rank in range(ranks_then)
        ]
        rest, wanted = taken(second), whole[len(before) :]
        assert rest == wanted[: len(rest)]
        # what does not make a row of each rank is dropped, and counted as dropped
        assert len(wanted) - len(rest) < BATCH * ranks_then
        for each in first + second:
            each.close()
