"""Measure the numbers of the model on a real cluster of Ray, whose three nodes are on this machine.

Uses Ray's own calls for Ray's numbers, and the product for its lander's.
"""

from __future__ import annotations

import datetime
import os
import platform
import signal
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from reader import DataLoader, Ray
from reader._core.memory.arena import Arena
from reader.cluster.line import LaunchRequest, Line
from tools.cluster_sim.model import Measured
from tools.local_cluster import LocalCluster

__all__ = ["Timed", "measure", "rate_of", "real_batch_s"]

_LARGE = 38_535_168  # 256 images of 224 x 224 x 3
_WORKERS = 3


class Timed:
    """Arrays of one size, of which each takes a while.

    Args:
        count: of samples.
        nbytes: of each.
        seconds: that each takes, of which it takes no processor.
    """

    def __init__(self, count: int, nbytes: int, seconds: float = 0.0) -> None:
        self.count, self.seconds = count, seconds
        self.made = np.ones(nbytes, np.uint8)

    def __len__(self) -> int:
        """The number of samples."""
        return self.count

    def __getitem__(self, index: int) -> np.ndarray:
        """Return the same array for each index."""
        if self.seconds:
            threading.Event().wait(self.seconds)
        return self.made


class _Peer:
    """An actor that is called."""

    def pid(self) -> int:
        """Return its process."""
        return os.getpid()

    def data(self, nbytes: int) -> Any:
        """Return bytes."""
        return np.ones(nbytes, np.uint8)

    def stay(self) -> None:
        """Return never."""
        threading.Event().wait()


def measure(say: Callable[[str], None] = print) -> Measured:
    """Return the measured numbers; takes some minutes."""
    import psutil  # type: ignore[import-untyped]
    import ray

    with LocalCluster(store_nbytes=1 << 30) as cluster:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        try:
            kind = ray.remote(_Peer)
            here, others = _placed(ray, kind)
            other = others[0]
            call_s = _median(lambda: ray.get(other.pid.remote()), 300)
            began = time.perf_counter()
            ray.get([other.pid.remote() for _ in range(1000)])
            worker_s = (time.perf_counter() - began) / 1000
            same_s = _median(lambda: ray.get(here.data.remote(_LARGE)), 9)
            far_s = _median(lambda: ray.get(other.data.remote(_LARGE)), 9)
            say(f"a call {call_s * 1e6:.0f} us; {same_s * 1e3:.1f} ms, {far_s * 1e3:.1f} ms")
            for actor in (here, *others):
                ray.kill(actor)
            head = next(
                each
                for each in psutil.process_iter(["name", "ppid"])
                if each.info["name"] == "gcs_server" and each.info["ppid"] == os.getpid()
            )
            start_s = _started(ray, kind, 1)
            used = sum(head.cpu_times()[:2])
            many_s = _started(ray, kind, 8)
            head_s = (sum(head.cpu_times()[:2]) - used) / 8
            death_s = statistics.median(_death(ray, kind) for _ in range(5))
            say(f"an actor {start_s:.2f} s, eight {many_s:.2f} s; a death {death_s * 1e3:.0f} ms")
            alone = _lander_s(cluster.address, Timed(600, 20_000, 0.01), 1, 2)
            together = _lander_s(cluster.address, Timed(60_000, 1000), 1, 128)
            large = _lander_s(cluster.address, Timed(120, 8 << 20, 0.05), 1, 2)
            say(f"the lander {alone * 1e6:.0f}, {together * 1e6:.0f}, {large * 1e6:.0f} us")
        finally:
            ray.shutdown()
    line_s = _line_s()
    return Measured(
        machine=f"{platform.machine()}, {os.cpu_count()} cores, three nodes on it, Ray"
        f" {ray.__version__}, {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
        call_s=call_s,
        wake_s=alone / 4,
        line_s=line_s,
        send_s=max(1e-6, alone * 3 / 4 - together),
        batch_s=together,
        landing_rate=((8 << 20) - 20_000) / max(1e-9, large - alone),
        node_rate=_LARGE / max(1e-9, far_s - same_s),
        worker_s=worker_s,
        start_s=start_s,
        node_start_s=(many_s - start_s) / 7,
        head_start_s=max(1e-4, head_s),
        death_s=death_s,
    )


def _median(call: Callable[[], Any], count: int) -> float:
    call()
    found = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def _placed(ray: Any, kind: Any) -> tuple[Any, list[Any]]:
    """Return an actor on the node of this driver, and one on each other node."""
    own = ray.get_runtime_context().get_node_id()
    by_node = {}
    for node in ray.nodes():
        by_node[node["NodeID"]] = kind.options(
            scheduling_strategy=ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                node["NodeID"], soft=False
            )
        ).remote()
    here = by_node.pop(own)
    ray.get([actor.pid.remote() for actor in (here, *by_node.values())])
    return here, list(by_node.values())


def _started(ray: Any, kind: Any, count: int) -> float:
    began = time.perf_counter()
    actors = [kind.options(num_cpus=0.1).remote() for _ in range(count)]
    ray.get([actor.pid.remote() for actor in actors])
    seconds = time.perf_counter() - began
    for actor in actors:
        ray.kill(actor)
    return seconds


def _death(ray: Any, kind: Any) -> float:
    """Return how long it takes until the end of an actor is known."""
    actor = kind.remote()
    pid = ray.get(actor.pid.remote())
    result = actor.stay.remote()
    began = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    try:
        ray.get(result)
    except ray.exceptions.RayActorError:
        return time.perf_counter() - began
    raise RuntimeError("an actor that was killed answered")


def _lander_s(address: str, dataset: Timed, batch_size: int, factor: int) -> float:
    """Return the seconds of its processor's time that the lander takes for a batch."""
    import psutil

    with DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=_WORKERS,
        prefetch_factor=factor,
        backend=Ray(address=address),
    ) as loader:
        for _ in loader:
            pass
        lander = psutil.Process(loader.workers()[0].pid)
        before, count = _thread_s(lander), 0
        for _ in loader:
            count += 1
        return (_thread_s(lander) - before) / count


def _thread_s(process: Any) -> float:
    """Return the processor's time of the main thread of a process."""
    times = (
        each.user_time + each.system_time for each in process.threads() if each.id == process.pid
    )
    return float(sum(times))


def _line_s() -> float:
    """Return the time of a look at an idle line."""
    count = 400
    arena = Arena.create(count, 4)
    lines = [
        Line(
            LaunchRequest(n, 4, 4),
            [os.dup(arena.fd), os.eventfd(0), os.eventfd(0)],
            False,
            False,
            {},
            set(),
            {},
            print,
        )
        for n in range(count)
    ]

    def look() -> None:
        for line in lines:
            if not line.channel.is_stopped:
                line.land()
        sum(line.in_flight_nbytes for line in lines)
        for line in lines:
            if not line.is_ended and not line.is_full and line.is_started:
                line.send(line)
        sum(line.in_flight_nbytes for line in lines)

    seconds = _median(look, 50) / count
    for line in lines:
        line.close(None)
    arena.close()
    return seconds


def rate_of(batches: Any) -> float:
    """Return seconds of a batch, of all but the first tenth."""
    times = [time.perf_counter() for _ in batches]
    first = len(times) // 10
    return (times[-1] - times[first]) / (len(times) - 1 - first)


def real_batch_s(address: str, dataset: Timed, factor: int) -> float:
    """Return seconds of a batch of one sample, from remote workers; the second epoch counts."""
    with DataLoader(
        dataset,
        batch_size=1,
        num_workers=_WORKERS,
        prefetch_factor=factor,
        backend=Ray(address=address),
    ) as loader:
        rate_of(loader)
        return rate_of(loader)
