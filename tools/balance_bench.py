"""Measure how equal the batches of a step are on all ranks, and what planning them takes.

    pip install --target LIBRARIES lhotse
    PYTHONPATH=LIBRARIES python -m tools.balance_bench [--rounds 5] [--json FILE] [--size 1000000]

`reader.BalancedBatches` beside lhotse's DynamicBucketingSampler, which is left out where it is not
installed, and beside batches of equal cost in random order, dealt to the ranks in turn. The spread
of a step is the largest cost of its ranks' batches divided by their mean: what the others wait. A
cost is the sum over a batch, or with "padded" its longest sample times its samples, which is what
lhotse bounds. All ranks of each sampler are run.
"""

from __future__ import annotations

import importlib.util
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from reader import BalancedBatches
from tools.turns import Report, command_line, grid, in_turns, medians

Costs = npt.NDArray[np.float64]
Batches = list[list[int]]

RANKS = (4, 8, 64)
SAMPLES = 40_000
_EARLY = 0.9  # where a resume is measured, of an epoch


def speech(count: int) -> Costs:
    """Return seconds of utterances: log-normal, from 0.5 to 30."""
    found: Costs = np.clip(np.random.default_rng(1).lognormal(2.2, 0.7, count), 0.5, 30.0)
    return found


def pictures_with_text(count: int) -> Costs:
    """Return tokens of texts with none to several pictures, up to 8,192."""
    rng = np.random.default_rng(2)
    text = rng.lognormal(5.5, 1.0, count)
    pictures = rng.choice([0, 256, 576, 1024, 4096], count, p=[0.3, 0.3, 0.2, 0.15, 0.05])
    tokens: Costs = np.clip(np.rint(text + pictures), 8, 8192)
    return tokens


WORKS: dict[str, tuple[Callable[[int], Costs], float]] = {
    "speech, 240 s a batch": (speech, 240.0),
    "pictures with text, 32,768 tokens a batch": (pictures_with_text, 32768.0),
}


def ours(costs: Costs, limit: float, ranks: int, padded: bool) -> list[Batches]:
    """Return the batches of each rank by BalancedBatches."""
    options: dict[str, Any] = {"world_size": ranks, "padded": padded, "seed": 1}
    return [list(BalancedBatches(costs, limit, rank=rank, **options)) for rank in range(ranks)]


def at_random(costs: Costs, limit: float, ranks: int) -> list[Batches]:
    """Return batches that were filled in random order, dealt to the ranks in turn."""
    batches: Batches = [[]]
    total = 0.0
    for index in np.random.default_rng(3).permutation(len(costs)).tolist():
        if total + costs[index] > limit:
            batches.append([])
            total = 0.0
        batches[-1].append(index)
        total += costs[index]
    del batches[len(batches) // ranks * ranks :]
    return [batches[rank::ranks] for rank in range(ranks)]


def lhotse_sampler(costs: Costs, limit: float, **options: Any) -> Any:
    """Return a DynamicBucketingSampler over cuts of these durations. ImportError: not installed."""
    lhotse = importlib.import_module("lhotse")
    sampling = importlib.import_module("lhotse.dataset.sampling")
    cuts = [
        lhotse.MonoCut(id=str(number), start=0, duration=float(cost), channel=0, supervisions=[])
        for number, cost in enumerate(costs)
    ]
    made = lhotse.CutSet.from_cuts(cuts)
    return sampling.DynamicBucketingSampler(
        made, max_duration=limit, shuffle=True, num_buckets=30, **options
    )


def by_lhotse(costs: Costs, limit: float, ranks: int) -> list[Batches]:
    """Return the batches of each rank by lhotse."""
    return [
        [
            [int(cut.id.partition("_")[0]) for cut in cuts]
            for cuts in lhotse_sampler(costs, limit, world_size=ranks, rank=rank)
        ]
        for rank in range(ranks)
    ]


def figures_of(batches: list[Batches], costs: Costs, limit: float, padded: bool) -> dict[str, Any]:
    """Return the spread of the steps, how full batches are, and how many steps ranks take."""
    steps = min(map(len, batches))
    of_ranks = [
        [
            costs[batch].max() * len(batch) if padded else costs[batch].sum()
            for batch in each[:steps]
        ]
        for each in batches
    ]
    totals = np.array(of_ranks)
    spread = totals.max(0) / totals.mean(0)
    return {
        "spread": float(spread.mean()),
        "worst": float(np.quantile(spread, 0.99)),
        "filled": float(totals.mean() / limit),
        "steps": [steps, max(map(len, batches))],
    }


def spreads(costs: Costs, limit: float) -> dict[str, Any]:
    """Return the figures of all samplers, by sampler and number of ranks."""
    found: dict[str, Any] = {}
    contestants: dict[str, tuple[Callable[[int], list[Batches]], bool]] = {
        "reader": (lambda ranks: ours(costs, limit, ranks, False), False),
        "random": (lambda ranks: at_random(costs, limit, ranks), False),
        "reader, padded": (lambda ranks: ours(costs, limit, ranks, True), True),
        "lhotse, padded": (lambda ranks: by_lhotse(costs, limit, ranks), True),
    }
    for name, (make, padded) in contestants.items():
        try:
            found[name] = {ranks: figures_of(make(ranks), costs, limit, padded) for ranks in RANKS}
        except ImportError as error:
            print(f"  {name} is left out: {error}")
    return found


def times_of_ours(size: int) -> dict[str, float]:
    """Return seconds of one rank of 8 for so many samples."""
    costs = speech(size).astype(np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    sampler = BalancedBatches(costs, 240.0, seed=1, rank=3, world_size=8)
    made = time.perf_counter()
    next(iter(sampler))
    opened = time.perf_counter()
    count = len(sampler)
    counted = time.perf_counter()
    next(sampler.iter_from(int(_EARLY * count)))
    resumed = time.perf_counter()
    batches = sum(1 for _ in zip(range(max(1, min(count, 2000))), sampler))
    ended = time.perf_counter()
    return {
        "make, s": made - begun,
        "first batch, s": opened - made,
        "length, once, s": counted - opened,
        "resume, s": resumed - counted,
        "batch, us": (ended - resumed) / batches * 1e6,
        "memory, MB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


def times_of_lhotse(size: int) -> dict[str, float]:
    """Return the same of lhotse; its cuts are made before, and it has no length."""
    costs = speech(size)
    sampler = lhotse_sampler(costs, 240.0, world_size=8, rank=3)
    begun = time.perf_counter()
    next(iter(sampler))
    opened = time.perf_counter()
    batches = 1 + sum(1 for _ in sampler)
    ended = time.perf_counter()
    sampler = lhotse_sampler(costs, 240.0, world_size=8, rank=3)
    for _ in zip(range(int(_EARLY * batches)), sampler):
        pass
    state = sampler.state_dict()
    other = lhotse_sampler(costs, 240.0, world_size=8, rank=3)
    loading = time.perf_counter()
    other.load_state_dict(state)
    next(iter(other))
    resumed = time.perf_counter()
    return {
        "first batch, s": opened - begun,
        "resume, s": resumed - loading,
        "batch, us": (ended - opened) / batches * 1e6,
    }


def rows_of(found: dict[str, Any]) -> list[list[str]]:
    """Return the rows of a table of spreads."""
    head = [
        "spread, 99th percentile of steps, filled, steps",
        *(f"{ranks} ranks" for ranks in RANKS),
    ]
    rows = [head]
    for name, of_ranks in found.items():
        cells = []
        for ranks in RANKS:
            each = of_ranks[ranks]
            least, most = each["steps"]
            steps = f"{least}" if least == most else f"{least} to {most}"
            cells.append(
                f"{each['spread']:.4f}, {each['worst']:.4f}, {each['filled']:.1%}, {steps}"
            )
        rows.append([name, *cells])
    return rows


def main() -> int:
    """Measure and print the tables; write JSON where that is asked for."""
    parser = command_line("balance_bench", __doc__)
    parser.add_argument("--size", type=int, default=1_000_000, help="samples of the times (10^6)")
    parser.add_argument("--times", action="store_true", help="the times alone")
    options = parser.parse_args()
    report = Report(options)
    found: dict[str, Any] = {}
    for name, (make, limit) in ({} if options.times else WORKS).items():
        found[name] = spreads(make(SAMPLES), limit)
        print(
            "\n".join([f"{name}, {SAMPLES:,} samples", *grid(rows_of(found[name])), ""]), flush=True
        )
    contestants: dict[str, Callable[[], dict[str, float]]] = {
        f"reader, {options.size:,} samples": lambda: times_of_ours(options.size)
    }
    if importlib.util.find_spec("lhotse") is not None:
        contestants[f"lhotse, {SAMPLES:,} samples"] = lambda: times_of_lhotse(SAMPLES)
    found["times"] = medians(in_turns(contestants, report.rounds))
    for name, each in found["times"].items():
        print(name, {key: round(value, 4) for key, value in each.items()}, flush=True)
    report.show("", found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
