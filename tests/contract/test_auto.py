"""A number of workers that is found while training: no batch is lost or changed."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import reader
from reader import ConfigError, ConfigTypeError, DataLoader
from reader.engine.auto import AutoWorkers
from reader.engine.backends.pool import Pool
from reader.engine.tuner import Choice
from reader.observe.observed import options_of
from tests.streams import RangeStream

KINDS = [
    {},
    {"worker_type": "thread"},
    {"persistent_workers": True},
    pytest.param({"start_method": "spawn"}, marks=pytest.mark.nightly),
]


class Waiting:
    """Numbers that take time without a core."""

    def __init__(self, seconds: float = 0.004, count: int = 480) -> None:
        self.seconds, self.count = seconds, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        time.sleep(self.seconds)
        return reader.sample_rng(index).random(3), index


def rows(batches: Any) -> list[Any]:
    return [(values.tolist(), numbers.tolist()) for values, numbers in batches]


@pytest.mark.parametrize("kind", KINDS)
def test_workers_are_added_if_the_loop_waits_and_batches_stay_the_same(
    kind: dict[str, Any],
) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3, "seed_globals": False}
    plain = DataLoader(Waiting(0), **options)
    with DataLoader(
        Waiting(), num_workers="auto", prefetch_factor="auto", **options, **kind
    ) as loader:
        first = loader.chosen
        for _ in range(2):
            assert rows(loader) == rows(plain)
        assert loader.chosen["num_workers"] > first["num_workers"]
        assert loader.chosen.keys() == {"num_workers", "prefetch_factor"}
    assert rows(DataLoader(Waiting(0), **options, **loader.chosen)) == rows(
        DataLoader(Waiting(0), **options)
    )


def test_workers_that_the_loop_does_not_need_get_no_more_tasks() -> None:
    options: dict[str, Any] = {"batch_size": 4, "num_workers": "auto"}
    found = set()
    with DataLoader(Waiting(0, 1200), **options) as loader:
        for _ in loader:
            time.sleep(0.01)
            found.add(loader.chosen["num_workers"])
    assert min(found) == 1  # on a busy machine the loop may wait now and then
    assert loader.chosen["prefetch_factor"] == 2


def changing(monkeypatch: pytest.MonkeyPatch, choices: Iterator[int]) -> None:
    """Change the number of workers at each reading."""

    def read(self: Any, now: Any) -> Choice:
        self.choice = Choice(next(choices), self.choice.factor)
        return self.choice

    monkeypatch.setattr("reader.engine.auto.Tuner.read", read)
    monkeypatch.setattr("reader.engine.auto.Tuner.is_due", lambda *_: True)
    monkeypatch.setattr("reader.engine.backends.pool.Pool.has_begun", lambda *_: True)
    monkeypatch.setattr("reader.engine.auto._BETWEEN_S", 0.0)


def numbers_of_workers(seed: int) -> Iterator[int]:
    rng = np.random.default_rng(seed)
    while True:
        yield int(rng.integers(1, 5))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [{}, {"worker_type": "thread"}, {"in_order": False}])
@pytest.mark.parametrize("seed", range(3))
def test_a_change_of_workers_at_any_time_loses_nothing(
    kind: dict[str, Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing(monkeypatch, numbers_of_workers(seed))
    options: dict[str, Any] = {"batch_size": 2, "seed": 1, "seed_globals": False}
    whole = sorted(rows(DataLoader(Waiting(0), **options)))
    with DataLoader(Waiting(0.0002), num_workers="auto", **options, **kind) as loader:
        for _ in range(3):
            found = rows(loader)
            if kind.get("in_order", True):
                assert found == rows(DataLoader(Waiting(0), **options)) or loader.epoch > 1
            assert sorted(numbers for _, numbers in found) == sorted(
                numbers for _, numbers in whole
            )


def test_a_resumed_run_has_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    changing(monkeypatch, numbers_of_workers(7))
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3}
    whole = rows(DataLoader(Waiting(0), **options))
    with DataLoader(Waiting(0.001), num_workers="auto", **options) as loader:
        batches = iter(loader)
        first = [next(batches) for _ in range(50)]
        first, state = rows(first), loader.state_dict()
        batches.close()
        loader.load_state_dict(state)
        assert first + rows(loader) == whole
    with DataLoader(Waiting(0), num_workers=2, **options) as loader:
        loader.load_state_dict(state)
        assert first + rows(loader) == whole


class Large(Waiting):
    """Samples of 1 MiB."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return np.full(1 << 17, index, np.int64)


def test_short_memory_bounds_the_batches_in_flight(caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"batch_size": 2, "num_workers": "auto", "prefetch_factor": "auto"}
    with DataLoader(Large(0.008), max_bytes=18 << 20, **options) as loader:
        for _ in range(3):
            found = [int(batch[:, 0].sum()) for batch in loader]
            assert found == [4 * number + 1 for number in range(240)]
        chosen = loader.chosen
    assert chosen["num_workers"] * chosen["prefetch_factor"] <= 16
    short = [record for record in caplog.records if "memory is short" in record.getMessage()]
    assert len(short) < 6  # it is not tried again in each epoch


def test_workers_may_die_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    changing(monkeypatch, numbers_of_workers(5))
    options: dict[str, Any] = {"batch_size": 4, "seed": 3}
    whole = rows(DataLoader(Waiting(0), **options))
    with DataLoader(Waiting(0.002), num_workers="auto", worker_retries=20, **options) as loader:
        found = []
        for number, batch in enumerate(loader):
            found.append(batch)
            if number % 10 == 5:
                for status in loader.workers()[:2]:
                    if status.pid is not None:
                        os.kill(status.pid, signal.SIGKILL)
        assert rows(found) == whole


def test_chosen_is_the_number_that_was_passed() -> None:
    loader = DataLoader(Waiting(), num_workers=3, prefetch_factor=4)
    assert loader.chosen == {"num_workers": 3, "prefetch_factor": 4}
    with DataLoader(Waiting(0), num_workers=2, prefetch_factor="auto") as loader:
        list(loader)
        assert loader.chosen["num_workers"] == 2


@pytest.mark.parametrize("kind", [{}, {"worker_type": "thread"}])
def test_two_concurrent_loops_lose_nothing(
    kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    changing(monkeypatch, numbers_of_workers(2))
    options: dict[str, Any] = {"batch_size": 4, "seed": 3, "seed_globals": False}
    whole = rows(DataLoader(Waiting(0), **options))
    with DataLoader(Waiting(0.0002), num_workers="auto", **options, **kind) as loader:
        pairs = list(zip(iter(loader), iter(loader), strict=True))
    assert rows(first for first, _ in pairs) == whole
    assert sorted(numbers for _, numbers in rows(second for _, second in pairs)) == sorted(
        numbers for _, numbers in whole
    )


class Computing(Waiting):
    """Samples that use a core without the GIL."""

    BLOCK = bytes(1 << 16)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            hashlib.sha256(self.BLOCK).digest()
        return np.float32(index), index


def share_of(dataset: Any, kind: dict[str, Any]) -> float | None:
    """Return which part of their batches' time the workers compute."""
    with DataLoader(dataset, batch_size=4, num_workers="auto", **kind) as loader:
        batches, readings = iter(loader), []
        auto, pool = loader._engine.auto, loader._engine._cache.newest
        assert isinstance(auto, AutoWorkers)
        assert isinstance(pool, Pool)
        for _ in range(2):
            for _ in range(40):
                next(batches)
            assert pool.has_begun(2)
            readings.append(auto._reading(pool, time.monotonic()))
        return readings[1].since(readings[0]).share


@pytest.mark.parametrize("kind", KINDS)
def test_the_time_that_workers_compute_is_known(kind: dict[str, Any]) -> None:
    computing, waiting = share_of(Computing(), kind), share_of(Waiting(0.004), kind)
    assert computing is not None
    assert waiting is not None
    least = 2 * waiting if kind.get("worker_type") == "thread" else 0.4  # those wait for the GIL
    assert computing > least
    assert waiting < 0.4


def test_a_profile_knows_the_present_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    changing(monkeypatch, itertools.repeat(3))
    with DataLoader(Waiting(0.001), batch_size=4, num_workers="auto") as loader:
        assert options_of(loader._engine).workers == loader.chosen["num_workers"]
        list(loader)
        assert options_of(loader._engine)[:2] == (3, 6)


def test_ranks_of_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reader.option_checks.usable_cores", lambda: 32.0)
    assert DataLoader(Waiting(), num_workers="auto").config.num_workers == 64
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    loader = DataLoader(Waiting(), num_workers="auto")
    assert loader.config.num_workers == 16
    assert isinstance(loader._engine.auto, AutoWorkers)


class Stateful(Waiting):
    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


@pytest.mark.parametrize(
    ("dataset", "options", "error", "text"),
    [
        (
            RangeStream(8),
            {"num_workers": "auto"},
            ConfigError,
            "an iterable dataset has a part",
        ),
        (
            RangeStream(8),
            {"prefetch_factor": "auto"},
            ConfigError,
            "an iterable dataset has a part",
        ),
        (Stateful(), {"num_workers": "auto"}, ConfigError, "has a dataset with a state of its own"),
        (Waiting(), {"prefetch_factor": "auto"}, ConfigError, 'pass num_workers="auto" as well'),
        (Waiting(), {"num_workers": "most"}, ConfigTypeError, "num_workers must be an int"),
        (Waiting(), {"num_workers": 1, "prefetch_factor": "x"}, ConfigTypeError, "prefetch_factor"),
    ],
)
def test_invalid_arguments_are_refused(
    dataset: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        DataLoader(dataset, **options)
