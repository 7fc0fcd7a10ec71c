"""A profile of remote workers: their times by the trainer's clock, and the advice."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader import DataLoader, Ray
from reader.integrations.loop_watch import LoopWatch
from reader.observe.judge import judge
from reader.observe.replay import replay_of
from reader.observe.trace import trace_of
from tests.cluster.nodes import await_nodes

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]

AHEAD_S = 5000  # of the clock of a node


class Timed:
    """Samples that say when they were made, by the clock of their machine."""

    def __init__(self, count: int, seconds: float = 0.01, nbytes: int = 8) -> None:
        self.count, self.seconds, self.nbytes = count, seconds, nbytes

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        began = time.monotonic_ns()
        threading.Event().wait(self.seconds)
        return began, time.monotonic_ns(), np.zeros(self.nbytes, np.uint8)


class Computes(Timed):
    def __getitem__(self, index: int) -> Any:
        until = time.process_time() + self.seconds
        while time.process_time() < until:
            pass
        return index


def verdict_of(seen: Any, **changed: Any) -> Any:
    """The verdict of a profile, as if the machine had enough memory for all its work."""
    measured = replace(seen.measured, memory_stall_s=0.0, **changed)
    return judge(measured, replay(seen, measured))


def replay(seen: Any, measured: Any) -> Any:
    ended_ns = seen._timeline().ended_ns
    begun_ns = seen._timeline().begun_ns
    options = {"is_shared": measured.shares_workers, "is_remote": True}
    return replay_of(
        seen.records, begun_ns, ended_ns, measured.workers, measured.prefetch, **options
    )


@pytest.fixture
def away(cluster: Any) -> Iterator[Ray]:
    """Workers on a node whose clock is 5,000 s ahead: it is in a time namespace of its own."""
    unshare = ["unshare", "--time", "--monotonic", str(AHEAD_S), "--fork", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("the system lets nobody make a time namespace")
    start = [Path(sys.executable).with_name("ray"), "start", f"--address={cluster.address}"]
    options = ["--block", "--num-cpus=4", '--resources={"away": 4}']
    process = subprocess.Popen(
        [*unshare, *start, *options, f"--object-store-memory={200 << 20}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    await_nodes(cluster.address, 1, "away")
    yield Ray(address=cluster.address, resources={"away": 1})
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_times_of_another_machine_are_converted_to_the_local_clock(away: Ray) -> None:
    with DataLoader(Timed(400), batch_size=2, num_workers=2, backend=away) as loader:
        for _ in loader:  # workers start
            pass
        with reader.profile(loader) as seen:
            made = [(batch[0], batch[1]) for batch in loader]
    records, (error_s,) = seen.records, seen.measured.clock_errors.values()
    assert len(records) == 200
    assert error_s < 0.01
    (host,) = seen.measured.clock_errors
    assert f"Clocks of other machines: {host} within " in str(seen)
    order = ["dispatched", "begun", "sent", "came", "landed", "arrived", "ordered", "delivered"]
    for before, after in itertools.pairwise(order):
        assert (records[f"{before}_ns"] <= records[f"{after}_ns"]).all(), (before, after)
    assert (records["fetch_ns"] > 0.02e9).all()
    # the samples' own times, less the lead of that clock
    slack_ns = 2 * error_s * 1e9 + 1e6
    for record, (began, done) in zip(records, made):
        assert record["begun_ns"] - slack_ns < began.min() - AHEAD_S * 10**9
        assert done.max() - AHEAD_S * 10**9 < record["sent_ns"] + slack_ns
    events = trace_of(seen._timeline())["traceEvents"]
    for name in ("transfer", "landing"):
        assert sum(event["name"] == name for event in events) == 2 * len(records)
    stages = seen.measured.stages
    assert stages["fetch"] > 0.9 * 200 * 0.02
    assert stages["transfer"] > 0
    assert list(stages).index("store") < list(stages).index("transfer")
    assert stages["landing"] > 0


def test_waiting_workers_are_distinguished_from_computing_ones(backend: Ray) -> None:
    found = {}
    for kind in (Timed, Computes):
        with DataLoader(kind(100, 0.05), num_workers=2, backend=backend) as loader:
            for _ in loader:
                pass
            with reader.profile(loader) as seen:
                for _ in loader:
                    pass
        found[kind] = seen
    waits, computes = found[Timed], found[Computes]
    assert verdict_of(waits, runnable_s=0.0).bound_by == "storage"
    assert (waits.measured.room or 0) > 2
    assert (
        2 < verdict_of(waits, runnable_s=0.0).options["num_workers"] <= (waits.measured.room or 0)
    )
    assert verdict_of(computes).bound_by in ("workers", "dataset", "cores")
    assert (computes.measured.cpu_s or 0) > 10 * (waits.measured.cpu_s or 0)


def test_a_gain_is_forecast_of_workers_that_wait(backend: Ray) -> None:
    seconds = {}
    for workers in (1, 3):
        options: dict[str, Any] = {"batch_size": 4, "num_workers": workers, "backend": backend}
        with DataLoader(Timed(200), **options) as loader:
            for _ in loader:
                pass
            with reader.profile(loader) as seen:
                for _ in loader:
                    pass
            if workers == 1:
                again = replay(seen, seen.measured)
                assert again.seconds() == pytest.approx(seen.measured.seconds, rel=0.25)
                forecast_s = again.seconds(workers=3, ahead=6)
        seconds[workers] = seen.measured.seconds
    assert forecast_s == pytest.approx(seconds[3], rel=0.35)


def test_workers_idle_for_a_limit_on_bytes_are_reported(cluster: Any) -> None:
    seen = {}
    for limit in (1 << 20, None):
        backend = Ray(address=cluster.address, resources={"CPU": 0.5}, max_in_flight_bytes=limit)
        dataset = Timed(100, 0.02, 1 << 20)
        with DataLoader(dataset, num_workers=3, backend=backend) as loader:
            for _ in loader:
                pass
            with reader.profile(loader) as found:
                for _ in loader:
                    pass
        seen[limit] = found
    verdict = verdict_of(seen[1 << 20], runnable_s=0.0)
    assert verdict.bound_by == "prefetch"
    assert "max_in_flight_bytes" in verdict.sentence
    assert "Raise max_in_flight_bytes=" in verdict.advice
    assert seen[None].measured.bounded_s == 0
    assert seen[None].measured.seconds < 0.7 * seen[1 << 20].measured.seconds


def test_programs_that_share_workers_see_each_others_batches(cluster: Any) -> None:
    backend = Ray(address=cluster.address, resources={"CPU": 0.5}, pool="seen")
    options: dict[str, Any] = {"batch_size": 1, "num_workers": 1, "backend": backend}
    with (
        DataLoader(Timed(60, 0.02), **options) as one,
        DataLoader(Timed(1000, 0.08), **options) as other,
    ):
        for loader in (one, other):
            next(iter(loader))
        is_over = threading.Event()

        def draw() -> None:
            for _ in other:
                if is_over.is_set():
                    break

        thread = threading.Thread(target=draw)
        thread.start()
        with reader.profile(one) as seen:
            for _ in one:
                pass
        is_over.set()
        thread.join()
    assert seen.measured.shares_workers
    assert seen.measured.others_s > 0.5 * seen.measured.busy_s
    verdict = verdict_of(seen, runnable_s=0.0)
    assert verdict.bound_by == "workers"
    assert "batches of other programs" in verdict.sentence


def test_a_watch_of_a_loop_counts_the_capacity_of_the_cluster(backend: Ray) -> None:
    with DataLoader(Timed(100, 0.02), num_workers=2, backend=backend) as loader:
        for _ in loader:
            pass
        watch = LoopWatch(loader)
        for _ in loader:
            watch.step()
        seen = watch.measured()
    assert seen.is_remote
    assert not seen.shares_workers
    assert (seen.room or 0) > 2
    assert 0 < (seen.cpu_s or 0) < seen.busy_s


def test_times_of_batches_that_travel_together_are_all_known(backend: Ray) -> None:
    options: dict[str, Any] = {"num_workers": 2, "prefetch_factor": 32, "backend": backend}
    with DataLoader(list(range(6000)), batch_size=4, **options) as loader:
        for _ in loader:
            pass
        with reader.profile(loader) as seen:
            assert sum(1 for _ in loader) == 1500
    assert len(seen.records) >= 512
    assert (seen.records["begun_ns"] > 0).all()
    assert (seen.records["landed_ns"] > 0).all()
