"""Simulate trainers and remote workers, and name what breaks first.

Run as ``python -m tools.cluster_sim``: it prints tables. ``--measure`` measures the numbers of the
model on a local cluster of Ray, and ``--validate`` compares the model with such a cluster; both in
the environment of `make cluster`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import NamedTuple

from tools.cluster_sim.model import GBIT, MEASURED, Measured, Setting
from tools.cluster_sim.trainers import Found, simulate

__all__ = ["main", "rows", "verdict"]

_WAITS = 0.05  # a share of waiting from which the trainers are slowed
_FULL = 0.9  # of a link, a lander or a worker
_CALM: dict[str, float] = {"failure_s": 0.0, "stragglers": 0.0}
_HEAD = (
    "| setting | waiting, mean (p99) | busy workers, min / mean / max"
    " | store of trainers, of workers | landed, a trainer | lander | link | made twice"
    " | failures (nodes) |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


class Named(NamedTuple):
    """A setting, and how a table names it."""

    name: str
    setting: Setting


def rows(base: Setting) -> Iterator[Named]:
    """Yield the settings: the base, and others that change one value until it breaks."""
    yield Named("base", base)
    yield Named("no failures, no stragglers (calm)", base.changed(**_CALM))
    yield Named("no stragglers", base.changed(stragglers=0.0))
    yield Named("no stragglers, all start at once", base.changed(stragglers=0.0, is_warm=False))
    yield Named("epochs of 100 batches, calm", base.changed(**_CALM, epoch_batches=100))
    yield Named("in_order=False", base.changed(in_order=False))
    yield Named("prefetch_factor 8", base.changed(prefetch_factor=8))
    yield Named("10 failures a second, no stragglers", base.changed(failure_s=0.1, stragglers=0.0))
    for factor in (2, 4):
        name = f"batches of {factor * base.nbytes / 1e6:.1f} MB, no stragglers"
        yield Named(name, base.changed(nbytes=factor * base.nbytes, stragglers=0.0))
    for factor in (16, 64):
        yield Named(
            f"steps and batches {factor} times as fast, of 20 kB, no stragglers",
            base.changed(
                step_s=base.step_s / factor,
                work_s=base.work_s / factor,
                nbytes=20_000,
                stragglers=0.0,
                seconds=base.seconds / factor**0.5,
            ),
        )


def shared(base: Setting) -> Iterator[Named]:
    """Yield the settings of a pool that all trainers share."""
    small = base.changed(is_pool=True, prefetch_factor=1, seconds=base.seconds / 2)
    yield Named("one pool, prefetch_factor 1", small)
    yield Named("one pool, no stragglers", small.changed(stragglers=0.0))
    yield Named("one pool, calm", small.changed(**_CALM))


def verdict(found: Found, setting: Setting) -> str:
    """Return the full resources when trainers wait."""
    waiting = sum(found.waiting) / len(found.waiting)
    if waiting < _WAITS:
        return "nothing"
    shares = {
        "the lander's processor": max(found.lander),
        "the link of a trainers' machine": found.home_link,
        "the link of a workers' machine": found.host_link,
        "the workers": sum(found.busy) / len(found.busy),
    }
    name, share = max(shares.items(), key=lambda each: each[1])
    if share >= _FULL:
        return name
    return "the slowest worker of each trainer" if setting.stragglers else "batches lost to deaths"


def _row(name: str, found: Found) -> str:
    waiting = sorted(found.waiting)
    busy = found.busy
    last = waiting[min(len(waiting) - 1, int(0.99 * len(waiting)))]
    link = max(found.home_link, found.host_link)
    return (
        f"| {name} | {_mean(waiting):.1%} ({last:.0%})"
        f" | {min(busy):.0%} / {_mean(busy):.0%} / {max(busy):.0%}"
        f" | {found.home_store / 1e6:.0f} MB, {found.host_store / 1e6:.0f} MB"
        f" | {max(found.landed_nbytes) / 1e6:.0f} MB | {max(found.lander):.1%} | {link:.0%}"
        f" | {found.made_twice / max(1, found.made):.2%}"
        f" | {found.failures} ({found.nodes_lost}) |"
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _print_all(measured: Measured, named: list[Named]) -> None:
    print(_HEAD)
    said = []
    for name, setting in named:
        began = time.perf_counter()
        found = simulate(measured, setting)
        print(_row(name, found), flush=True)
        said.append(
            f"{name}: {verdict(found, setting)} ({found.delivered} batches,"
            f" {found.starts} starts, the longest {found.longest_start_s:.1f} s, the head's"
            f" {found.head_s:.1f} s of processor; {time.perf_counter() - began:.0f} s)"
        )
    print("\nWhat breaks first:")
    print("\n".join(said))


def _validate(measured: Measured) -> None:
    """Compare the model with a real cluster: one trainer, three workers."""
    from tools.cluster_sim.measure import Timed, real_batch_s
    from tools.local_cluster import LocalCluster

    print("| batch | real | simulated | ratio |\n|---|---|---|---|")
    with LocalCluster(store_nbytes=1 << 30) as cluster:
        for nbytes, work_s, count, factor in (
            (20_000, 0.02, 600, 2),
            (20_000, 0.06, 200, 2),
            (4_800_000, 0.06, 200, 2),
            (38_535_168, 0.1, 60, 2),
            (38_535_168, 0.02, 60, 2),
        ):
            real = real_batch_s(cluster.address, Timed(count, nbytes, work_s), factor)
            setting = Setting(
                trainers=1,
                workers=3,
                seconds=max(20.0, 60 * real),
                step_s=0.0,
                # it stacks them: one copy
                work_s=work_s + nbytes / measured.landing_rate,
                nbytes=nbytes,
                spread=0.0,
                stragglers=0.0,
                failure_s=0.0,
                prefetch_factor=factor,
                trainers_per_node=1,
                workers_per_node=1,
                homes_work=True,
                network=100 * GBIT,
            )
            found = simulate(measured, setting)
            count_s = found.batches[0] / setting.seconds
            print(
                f"| {nbytes / 1e6:.2f} MB, {work_s * 1e3:.0f} ms | {real * 1e3:.1f} ms"
                f" | {1e3 / count_s:.1f} ms | {1 / count_s / real:.2f} |",
                flush=True,
            )


def main(arguments: list[str] | None = None) -> None:
    """Run it; see above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help=f"write {MEASURED.name} anew")
    parser.add_argument("--validate", action="store_true", help="compare with a local cluster")
    parser.add_argument("--pool", action="store_true", help="all trainers share all workers")
    base = Setting()
    parser.add_argument("--trainers", type=int, default=base.trainers)
    parser.add_argument("--workers", type=int, default=base.workers)
    parser.add_argument("--seconds", type=float, default=base.seconds)
    parser.add_argument("--only", type=int, help="the first so many rows")
    options = parser.parse_args(arguments)
    if options.measure:
        from tools.cluster_sim.measure import measure

        measure().save()
    measured = Measured.load()
    if options.validate:
        _validate(measured)
    if options.measure or options.validate:
        return
    base = base.changed(trainers=options.trainers, workers=options.workers, seconds=options.seconds)
    found = list(shared(base) if options.pool else rows(base))
    _print_all(measured, found[: options.only])


if __name__ == "__main__":
    main()
