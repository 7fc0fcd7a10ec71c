"""The counters of a loader over all epochs, and the scalars that are made of them."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import reader
from reader import ConfigError, ConfigTypeError
from reader.integrations.counters import Counters, Reading
from reader.integrations.loop_watch import LoopWatch
from reader.integrations.scalars import NAMES, Scalars, between
from tests.integrations.numbers import BATCHES, SIZE, Numbers, loaded

ROOT = Path(__file__).parents[2]
LIBRARIES = {
    "prometheus": ("prometheus_client", "prometheus-client"),
    "tqdm": ("tqdm.auto", "tqdm"),
    "rich": ("rich.progress", r'"lodreader\[profile\]"'),
    "nvtx": ("nvtx", "nvtx"),
    "lightning": ("lightning.pytorch", "lightning"),
    "pytorch_lightning": ("pytorch_lightning", "pytorch-lightning"),
    "transformers": ("transformers", "transformers"),
    "paddle": ("paddle.callbacks", r'"lodreader\[paddle\]"'),
}
OTHERS = {"torch", "tensorboard", "tensorboardX", "visualdl"}


def reading_of(counters: Counters) -> Reading:
    found = counters.read()
    assert found is not None
    return found


def torch_loader(**options: Any) -> Any:
    from reader.compat.torch import DataLoader

    return DataLoader(Numbers(), batch_size=SIZE, **options)  # type: ignore[arg-type]


class Wrapped:
    """An object around a loader that pretends to be it, as Accelerate makes one."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    @property
    def __class__(self) -> Any:
        return type(self.loader)

    def __iter__(self) -> Any:
        return iter(self.loader)


@pytest.mark.parametrize("make", [torch_loader, lambda: loaded()])
def test_a_loader_within_another_object_is_counted(make: Any) -> None:
    loader = Wrapped(make())
    counters, watch = Counters(loader, "test"), LoopWatch(loader, every=1)
    for _ in loader:
        points = watch.step()
    assert points is not None
    assert points["reader/samples_per_s"] > 0
    assert reading_of(counters).batches == BATCHES
    assert watch.end().bound_by


def test_numbers_between_two_readings_are_shares_and_rates() -> None:
    before = Reading(at_s=10.0, batches=5, samples=50, wait_s=1.0, restarts=1)
    now = Reading(
        at_s=12.0,
        batches=9,
        samples=90,
        wait_s=1.5,
        stages={"fetch": 1.0, "collate": 0.5, "queue": 9.0},
        restarts=2,
        failed_samples=7,
        workers=3,
        queued=4,
        arena_bytes=4096,
        cache={"hits": 3, "misses": 1},
    )
    found = between(before, now)
    assert found == {
        "wait_share": 0.25,
        "batches_per_s": 2.0,
        "samples_per_s": 20.0,
        "workers_busy": 0.25,
        "queued": 4.0,
        "arena_bytes": 4096.0,
        "cache_hit_share": 0.75,
        "worker_restarts": 2.0,
        "failed_samples": 7.0,
    }
    assert tuple(found) == NAMES


def test_shares_are_within_0_and_1_and_no_time_gives_no_numbers() -> None:
    before = Reading(at_s=0.0)
    assert between(before, Reading(at_s=0.0, batches=1)) == {}
    late = Reading(at_s=1.0, wait_s=5.0, stages={"fetch": 9.0}, workers=2)
    found = between(before, late)
    assert found["wait_share"] == found["workers_busy"] == 1.0
    assert "samples_per_s" not in found
    assert "cache_hit_share" not in found


@pytest.mark.parametrize(("workers", "kind"), [(0, "process"), (2, "process"), (2, "thread")])
def test_batches_and_samples_are_counted_over_epochs(workers: int, kind: str) -> None:
    with loaded(workers, worker_type=kind) as loader:
        assert len(list(loader)) == BATCHES
        counters = Counters(loader)
        for epoch in range(1, 4):
            assert len(list(loader)) == BATCHES
            found = reading_of(counters)
            assert (found.batches, found.samples) == (epoch * BATCHES, epoch * BATCHES * SIZE)
            assert found.workers == workers
            assert found.restarts == 0
            assert found.wait_s > 0
            assert found.busy_s >= epoch * BATCHES * SIZE * 0.0005


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_for_torch_is_counted_over_the_engines_of_its_epochs(workers: int) -> None:
    loader = torch_loader(num_workers=workers)
    counters = Counters(loader)
    assert reading_of(counters).batches == 0
    for epoch in range(3):
        for number, _ in enumerate(loader, 1):
            if number % 5 == 0:
                found = reading_of(counters)
                assert found.batches == epoch * BATCHES + number
                assert found.samples == found.batches * SIZE
    # the last batches of an epoch are counted although its engine was freed
    iterator = iter(loader)
    assert reading_of(counters).batches == 3 * BATCHES
    del iterator
    assert reading_of(counters).restarts == 0


def test_numbers_of_more_batches_than_have_records_are_estimated() -> None:
    loader = reader.DataLoader([1.0] * 1200, batch_size=2)
    counters = Counters(loader)
    assert len(list(loader)) == 600
    found = reading_of(counters)
    assert (found.batches, found.samples) == (600, 1200)


def test_a_worker_that_is_replaced_is_counted_and_new_epochs_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    with loaded(2) as loader:
        counters = Counters(loader)
        for _ in range(2):
            loader.set_epoch(0)
            for number, _ in enumerate(loader):
                if number in (3, 12):
                    assert reading_of(counters).restarts == 0
        loader.set_epoch(0)
        for number, _ in enumerate(loader):
            if number == 2:
                assert reading_of(counters).restarts == 0
                os.kill(loader.workers()[0].pid, signal.SIGKILL)
            if number == 12:
                assert reading_of(counters).restarts == 1
        assert reading_of(counters).restarts == 1


def test_a_worker_under_replacement_is_counted_when_it_has_started() -> None:
    with loaded(2) as loader:
        counters = Counters(loader)
        times = loader._engine.times
        batches = iter(loader)
        next(batches)
        first, second = loader.workers()
        away = dataclasses.replace(first, pid=None, thread_id=None)
        back = dataclasses.replace(first, pid=1, thread_id=1)
        for statuses in ([first, second], [away, second], [back, second], [back, second]):
            counters._note_workers(times, statuses)
            next(batches)
        del batches
        assert reading_of(counters).restarts == 1


def test_the_cache_of_a_dataset_is_reported() -> None:
    with reader.DataLoader(reader.cache(Numbers(), memory="1MB"), batch_size=SIZE) as loader:
        scalars = Scalars(loader)
        assert len(list(loader)) == BATCHES
        assert scalars.read()["reader/cache_hit_share"] == 0.0
        assert len(list(loader)) == BATCHES
        assert scalars.read()["reader/cache_hit_share"] == 1.0


def test_scalars_have_the_prefix_and_those_of_a_freed_loader_are_empty() -> None:
    loader = loaded(2)
    scalars = Scalars(loader, prefix="train/")
    iterator = iter(loader)
    next(iterator)
    assert {name.removeprefix("train/") for name in scalars.read()} == {
        *NAMES[:6],
        "worker_restarts",
        "failed_samples",
    }
    del iterator, loader
    gc.collect()
    assert scalars.read() == {}
    assert scalars.read() == {}


def test_a_watch_gives_scalars_at_each_nth_step_and_a_verdict() -> None:
    with loaded(2) as loader:
        watch = LoopWatch(loader, every=5)
        found = [watch.step() for _ in loader]
        verdict = watch.end()
    assert [number for number, each in enumerate(found, 1) if each] == [5, 10, 15]
    assert set(found[4] or ()) >= {"reader/wait_share", "reader/batches_per_s"}
    assert verdict.share > 0
    assert re.search(r"loop( waits|:)|bounds the loop", verdict.sentence)


def test_the_verdict_of_a_watch_names_the_sample_that_is_slow() -> None:
    class Slow(Numbers):
        at = 30

        def __getitem__(self, index: int) -> Any:
            if index == self.at:
                time.sleep(1.0)
            return super().__getitem__(index)

    loader = reader.DataLoader(Slow(), batch_size=SIZE)
    for _ in loader:
        pass
    Slow.at = 21
    watch = LoopWatch(loader, every=1)
    for _ in loader:
        watch.step()
    verdict = watch.end()
    assert verdict.bound_by == "sample"
    assert "sample 21 of batch 5" in verdict.sentence
    assert [each.epoch for each in watch.measured().slow_samples] == [1] * 10


def test_the_verdict_agrees_with_that_of_a_profile() -> None:
    with loaded(1) as loader:
        watch = LoopWatch(loader, every=4)
        with reader.profile(loader) as seen:
            for _ in loader:
                watch.step()
        measured = watch.measured()
    assert measured.batches == seen.batches == BATCHES
    assert set(measured.stages) == set(seen.measured.stages)
    for name, seconds in seen.measured.stages.items():
        assert measured.stages[name] == pytest.approx(seconds, abs=1e-9)
    assert measured.wait_s == pytest.approx(seen.measured.wait_s, abs=1e-9)
    assert measured.first_wait_s >= seen.measured.first_wait_s > 0
    assert measured.seconds >= seen.measured.seconds
    assert [each.index for each in measured.slow_samples] == [
        each.index for each in seen.measured.slow_samples
    ]
    assert (measured.workers, measured.prefetch) == (1, seen.measured.prefetch)


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_watch_knows_what_workers_computed_between_two_readings(kind: str) -> None:
    with loaded(2, worker_type=kind) as loader:
        watch = LoopWatch(loader)
        for number, _ in enumerate(loader):
            if number in (2, 12):
                watch._look()
        found = watch.measured()
    assert found.cpu_s is not None
    assert found.runnable_s is not None
    assert 0 < found.cpu_s < found.busy_s
    assert found.uses_threads == (kind == "thread")


def test_a_watch_compares_no_clocks_of_different_workers() -> None:
    with loaded(2) as loader:
        watch = LoopWatch(loader)
        for _ in range(2):
            for number, _ in enumerate(loader):
                if number == 5:
                    watch._look()
        assert watch.measured().cpu_s is None


@pytest.mark.parametrize("wrong", [5, [1], None])
def test_non_loaders_are_refused_with_the_remedy(wrong: Any) -> None:
    for make, who in ((Scalars, "Scalars"), (LoopWatch, "LoopWatch"), (Counters, "Counters")):
        with pytest.raises(
            ConfigTypeError, match=rf"{who} takes a loader of this package, got .*install\(\)"
        ):
            make(wrong)


def test_pytorchs_own_loader_is_refused() -> None:
    import torch.utils.data

    with pytest.raises(ConfigTypeError, match=r"Scalars takes a loader of this package"):
        Scalars(torch.utils.data.DataLoader([1, 2]))  # type: ignore[arg-type]


def test_a_wrong_number_of_steps_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"every must be an int of 1 or more, got 0 \(int\)"):
        LoopWatch(loaded(), every=0)


def test_importing_the_room_imports_none_of_the_libraries() -> None:
    names = {name.partition(".")[0] for name, _ in LIBRARIES.values()}
    program = (
        "import sys, reader.integrations, reader.integrations.scalars\n"
        "import reader.integrations.tensorboard, reader.integrations.visualdl\n"
        f"found = {names | OTHERS} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=ROOT, check=True)


@pytest.mark.parametrize("module", LIBRARIES)
def test_a_missing_library_is_named_with_the_command(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, package = LIBRARIES[module]
    parts = library.split(".")
    for name in itertools.accumulate(parts, lambda head, tail: f"{head}.{tail}"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"reader.integrations.{module}", raising=False)
    with pytest.raises(
        ConfigError, match=rf"reader\.integrations\.{module} needs .*: pip install {package}$"
    ):
        __import__(f"reader.integrations.{module}")
