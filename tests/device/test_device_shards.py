"""Shards of a step on devices: shard k on device k, whole, in order, with failures and resumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.device.accelerator import ACCELERATOR

pytestmark = pytest.mark.nightly

Facts = Callable[..., dict[str, Any]]

PROGRAM = """
    import json
    import numpy as np, torch
    from tests.device.accelerator import accelerator

    sim = accelerator()
    from reader.compat.gluon import ShardedDataLoader

    places = [sim.name(number) for number in range(3)]
    steps = [[[i, i + 1], [i + 2], [i, i + 3, i + 1]][: 1 + i % 3] for i in range(90)]
    steps[7] = [5, 6]

    class Samples:
        def __init__(self, bad=()):
            self.bad = bad

        def __len__(self):
            return 100

        def __getitem__(self, index):
            if index in self.bad:
                raise KeyError(index)
            return np.full(5000, index, np.int64)

    def loader(bad=(), workers=2):
        return ShardedDataLoader(Samples(bad), batch_sampler=steps, num_workers=workers,
                                 framework="torch", places=places)

    def drawn(batches, most=1000):
        found = []
        while len(found) < most:
            try:
                step = next(batches)
            except StopIteration:
                break
            except KeyError as error:
                found.append(list(error.args))
                continue
            shards = step if isinstance(step, list) else [step]
            assert [str(shard.device) for shard in shards] == places[: len(shards)]
            found.append([shard[:, 4999].cpu().tolist() for shard in shards])
            if not isinstance(step, list):
                found[-1] = found[-1][0]
        return found

    sim.set(delay_us=200, jitter_us=800)
    wrong = 0
    for workers in (2, 0):
        with loader(workers=workers) as made:
            for _ in range(2):
                wrong += drawn(iter(made)) != steps
    bad = (2, 41, 64)
    expected = []
    for step in steps:
        flat = [i for shard in step for i in (shard if isinstance(shard, list) else [shard])]
        failed = [i for i in flat if i in bad]
        expected.append(failed[:1] or step)
    with loader(bad) as made:
        wrong += drawn(iter(made)) != expected
    for most in (1, 8, 40, 89):
        with loader(bad) as made:
            first = drawn(iter(made), most)
            state = json.loads(json.dumps(made.state_dict()))
        with loader(bad, workers=0) as made:
            made.load_state_dict(state)
            wrong += first + drawn(iter(made)) != expected
    made = None
    print(json.dumps({"wrong": wrong, **sim.counts()}))
"""


@pytest.fixture(scope="module")
def facts(facts_of: Facts, device_kind: str) -> dict[str, Any]:
    return facts_of("torch", PROGRAM, **{ACCELERATOR: device_kind})


def test_each_shard_lands_on_its_device(facts: dict[str, Any]) -> None:
    assert facts["wrong"] == 0


def test_shards_are_copied_safely(facts: dict[str, Any]) -> None:
    assert facts.get("faults", 0) == 0
