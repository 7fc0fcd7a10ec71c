"""Generators of a worker thread: made on request, seeded in place, apart from the global ones."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pytest

from reader.worker.rng import WorkerRng


def draw(rng: WorkerRng) -> tuple[float, float]:
    return rng.random_generator.random(), rng.numpy_generator.standard_normal()


def test_same_seed_gives_the_same_numbers_and_another_gives_others() -> None:
    assert draw(WorkerRng(5)) == draw(WorkerRng(5)) != draw(WorkerRng(6))
    assert draw(WorkerRng(5 + (1 << 64))) == draw(WorkerRng(5))  # the low 64 bits count
    assert draw(WorkerRng(-1)) == draw(WorkerRng((1 << 64) - 1))


def test_generators_stay_the_same_objects_when_they_are_seeded_anew() -> None:
    rng = WorkerRng(5)
    before = rng.random_generator, rng.numpy_generator
    draw(rng)
    rng.reseed(6)
    assert (rng.random_generator, rng.numpy_generator) == before
    assert draw(rng) == draw(WorkerRng(6))
    assert repr(rng) == "WorkerRng(6)"


def test_generator_that_is_made_after_a_seeding_has_its_seed() -> None:
    rng = WorkerRng(5)
    rng.reseed(6)
    assert draw(rng) == draw(WorkerRng(6))


def test_global_generators_are_not_drawn_from() -> None:
    before = random.getstate(), repr(np.random.get_state(legacy=False))
    draw(WorkerRng(5))
    assert (random.getstate(), repr(np.random.get_state(legacy=False))) == before


def test_torch_has_a_generator_only_if_it_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = WorkerRng(5)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
        assert rng.torch_generator is None
    torch: Any = pytest.importorskip("torch")
    generator = rng.torch_generator
    assert generator is rng.torch_generator
    first = torch.rand(2, generator=generator).tolist()
    rng.reseed(5)
    assert torch.rand(2, generator=generator).tolist() == first
