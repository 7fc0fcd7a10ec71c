"""Copies of samples into a batch: each way gives the same bytes, and a rule chooses the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reader import DataLoader
from reader._core.memory.arena import shared_huge_pages
from reader._core.memory.copying import (
    cache_nbytes,
    choose_copy_way,
    copy_way,
    copy_ways,
    stack_uncached,
)
from reader.engine.tuner import Choice, Reading, Tuner
from reader.errors import ConfigError
from tests.datasets import Calls, digest_of

EDGES = [0, 1, 63, 64, 4095, 4096, 4097, 4159, 4160, 8191, 65536, 65537, 70001]


@pytest.fixture(params=copy_ways())
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    choose_copy_way(request.param)
    yield request.param
    choose_copy_way()


@pytest.fixture
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy batches of every size past the cache."""
    monkeypatch.setattr("reader.worker.loop.cache_nbytes", lambda: 0)


def check_equal(dataset: Any, workers: int, count: int = 4) -> None:
    with DataLoader(dataset, batch_size=count, num_workers=workers, framework="numpy") as loader:
        for number, batch in enumerate(loader):
            samples = [dataset[number * count + row] for row in range(count)]
            wanted = {name: np.stack([each[name] for each in samples]) for name in samples[0]}
            assert digest_of(batch) == digest_of(wanted)
            arena = loader.stats()["arena"]
            assert (arena["uncached_from_bytes"], arena["copy_way"]) == (0, copy_way())


@pytest.mark.usefixtures("uncached")
@pytest.mark.parametrize("workers", [0, 1])
def test_each_way_gives_the_same_bytes_at_every_edge(way: str, workers: int) -> None:
    memory = np.random.default_rng(5).integers(0, 256, 1 << 20, np.uint8)

    def sample(index: int) -> dict[str, np.ndarray]:
        # rows begin at every offset of a line, since the sizes are odd, and so do the sources
        return {f"{size}": memory[index * 7 + size : index * 7 + 2 * size] for size in EDGES}

    assert copy_way() == way
    check_equal(Calls(sample, 8), workers)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("size", EDGES[1:])
def test_arrays_are_stacked_past_the_cache_as_numpy_stacks_them(size: int) -> None:
    rows = list(np.random.default_rng(6).integers(0, 256, (3, size), np.uint8))
    out = np.empty((3, size), np.uint8)
    stack_uncached(rows, out)
    np.testing.assert_array_equal(out, np.stack(rows))


def test_arrays_that_do_not_fill_the_stack_are_refused() -> None:
    rows, out = [np.zeros(4)] * 3, np.empty((3, 4))
    for wrong in (np.zeros(8)[::2], np.zeros(4, np.int64), np.zeros(13)):
        with pytest.raises(
            ConfigError, match="must lie in C order, have dtype float64 and at most 96"
        ):
            stack_uncached([wrong], out)
    with pytest.raises(ConfigError, match=r"an array of 32 bytes .* and at most 0 bytes"):
        stack_uncached([*rows, np.zeros(4)], out)
    with pytest.raises(ConfigError, match="the arrays leave 32 bytes of the target unwritten"):
        stack_uncached(rows[:2], out)
    for target in (np.empty((4, 3)).T, np.broadcast_to(np.zeros(4), (3, 4))):
        with pytest.raises(ConfigError, match="the target must lie in C order and be writable"):
            stack_uncached(rows, target)


@pytest.mark.usefixtures("uncached", "way")
def test_samples_without_c_order_are_copied_correctly_in_every_way() -> None:
    image = np.arange(200 * 300 * 3, dtype=np.float32).reshape(200, 300, 3)

    def sample(index: int) -> dict[str, np.ndarray]:
        return {
            "transposed": (image + index).transpose(2, 0, 1),
            "reversed": (image + index)[::-1, ::2],
            "swapped": (image + index).astype(">f4"),
            "column": np.asfortranarray(image[:, :, 0] + index),
        }

    check_equal(Calls(sample, 8), 0)


@pytest.mark.usefixtures("uncached", "way")
def test_ready_made_batches_are_copied_in_every_way() -> None:
    batches = [{"x": np.full((7, 3001), number, np.int32)} for number in range(4)]
    options: dict[str, Any] = {"batch_size": None, "num_workers": 1, "framework": "numpy"}
    with DataLoader(batches, **options) as loader:
        assert [digest_of(batch) for batch in loader] == [digest_of(batch) for batch in batches]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_that_would_leave_the_cache_go_past_it(workers: int) -> None:
    with DataLoader(range(64), batch_size=4, num_workers=workers, prefetch_factor=2) as loader:
        steps = iter(loader)
        next(steps)
        in_flight = 2 * workers or 1
        assert loader.stats()["arena"]["uncached_from_bytes"] == cache_nbytes() // (2 * in_flight)


def test_the_threshold_of_uncached_copies_follows_the_batches_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = [Choice(2, 4), Choice(1, 4), Choice(1, 2)]

    def read(tuner: Tuner, now: Reading) -> Choice:
        tuner.choice = script.pop(0) if script else tuner.choice
        return tuner.choice

    monkeypatch.setattr(Tuner, "is_due", lambda *_: True)
    monkeypatch.setattr(Tuner, "read", read)
    monkeypatch.setattr("reader.engine.auto._BETWEEN_S", 0)
    options: dict[str, Any] = {"num_workers": "auto", "prefetch_factor": "auto"}
    with DataLoader(range(4000), batch_size=4, **options) as loader:
        chosen = set()
        for _ in loader:
            found = loader.stats()["arena"]["uncached_from_bytes"]  # it asks for the choice, too
            workers, factor = loader.chosen["num_workers"], loader.chosen["prefetch_factor"]
            chosen.add((workers, factor))
            assert found == cache_nbytes() // (2 * workers * factor)
        assert {(1, 4), (1, 2)} <= chosen


def test_the_widest_instructions_are_used() -> None:
    assert copy_ways()[0] == "plain"
    assert copy_way() == copy_ways()[-1]
    with pytest.raises(ConfigError, match="cannot copy by 'abacus': this machine has plain"):
        choose_copy_way("abacus")
    assert copy_way() == copy_ways()[-1]


@pytest.mark.parametrize("workers", [0, 1])
def test_huge_pages_are_advised_where_the_kernel_takes_advice(workers: int) -> None:
    images = np.zeros((6, 5 << 20), np.uint8)
    with DataLoader(images, batch_size=1, num_workers=workers, framework="numpy") as loader:
        steps = iter(loader)
        assert next(steps).shape == (1, 5 << 20)
        policy = shared_huge_pages()
        is_advised = workers == 0 or policy == "advise"
        assert loader.stats()["arena"]["huge_pages"] == ("advised" if is_advised else policy)
