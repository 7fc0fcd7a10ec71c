"""Measure what `num_workers="auto"` and `prefetch_factor="auto"` are worth.

    python -m tools.auto_bench [NAME ...] [--seconds 1.5] [--sweeps 2] [--rounds 5]

Each work runs at fixed settings first, in turns: the best by the median is then run again, beside
the default (no workers), two workers and "auto", in turns, and the medians of their ratios within a
turn are printed. A rate is that of the batches after the first 300 of a run with "auto", whose
choice must be made by then, and after the first 40 of the others, by which workers have started;
"whole" is the rate over the whole run. Each run is a process of its own.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a step takes one core
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from reader import DataLoader
from tools.auto_bench.works import WORKS, Work
from tools.turns import Report, command_line, in_turns

__all__ = ["Rates", "main", "run"]

_CHOSEN_BY = 300  # batches
_STARTED_BY = 40
_CORES = len(os.sched_getaffinity(0))
_WORKERS, _FACTORS = sorted({1, 2, 3, 4, 8, 3 * _CORES // 4, _CORES}), (2, 4)

Setting = dict[str, Any]
DEFAULT: Setting = {"num_workers": 0}
TWO: Setting = {"num_workers": 2}
AUTO: Setting = {"num_workers": "auto", "prefetch_factor": "auto"}
FIXED: list[Setting] = [
    DEFAULT,
    *({"num_workers": n, "prefetch_factor": f} for n in _WORKERS for f in _FACTORS),
]


class Rates(NamedTuple):
    """Rates, in batches per second.

    Attributes:
        later: of the batches after those in which the choice is made.
        whole: of the whole run.
        chosen: workers and batches in flight of each, at the end.
    """

    later: float
    whole: float
    chosen: tuple[int, int]


def run(work: Work, setting: Setting, seconds: float, folder: Path) -> Rates:
    """Run a work at a setting, for some seconds after the choice is made."""
    is_auto = "auto" in setting.values()
    first = _CHOSEN_BY if is_auto else _STARTED_BY
    options = {"batch_size": work.batch_size, **work.options, **setting}
    with DataLoader(work.make(folder), **options) as loader:
        begun = time.perf_counter()
        chosen_at, number = begun, 0
        for number, batch in enumerate(loader, start=1):
            work.step(batch)
            now = time.perf_counter()
            if number == first:
                chosen_at = now
            elif number > first and now - chosen_at >= seconds:
                break
        chosen = (loader.chosen["num_workers"], loader.chosen["prefetch_factor"])
    return Rates((number - first) / (now - chosen_at), number / (now - begun), chosen)


def in_process(name: str, setting: Setting, seconds: float, folder: Path) -> Rates:
    """Run a work in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, name, setting, seconds, folder))
    child.start()
    theirs.close()
    found: Rates = ours.recv()
    child.join()
    return found


def _child(pipe: Connection, name: str, setting: Setting, seconds: float, folder: Path) -> None:
    pipe.send(run(WORKS[name], setting, seconds, folder))


def told(setting: Setting) -> str:
    """Name a setting: workers x batches in flight of each."""
    workers = setting["num_workers"]
    return "0" if not workers else f"{workers} x {setting.get('prefetch_factor', 2)}"


def measured(name: str, chosen: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure a work: the best fixed setting, then in turns the settings compared with it."""

    def turns_of(settings: Iterable[Setting]) -> dict[str, Callable[[], Rates]]:
        run_one = partial(in_process, name, seconds=chosen.seconds, folder=folder)
        return {told(setting): partial(run_one, setting) for setting in settings}

    sweeps = in_turns(turns_of(FIXED), chosen.sweeps)
    fixed = {text: statistics.median(run.later for run in runs) for text, runs in sweeps.items()}
    by_text = {told(setting): setting for setting in FIXED}
    best = by_text[max(fixed, key=fixed.__getitem__)]
    with_workers = fixed.keys() - {told(DEFAULT)}
    best_of_workers = by_text[max(with_workers, key=fixed.__getitem__)]
    compared = {
        "best": best,
        "best with workers": best_of_workers,
        "default": DEFAULT,
        "2 workers": TWO,
    }
    runs = in_turns({**turns_of([AUTO]), **turns_of(compared.values())}, chosen.rounds)
    auto = runs[told(AUTO)]
    ratios: dict[str, list[float]] = {}
    for what, setting in compared.items():
        pairs = list(zip(auto, runs[told(setting)], strict=True))
        ratios[what] = [mine.later / other.later for mine, other in pairs]
        ratios[f"whole run, {what}"] = [mine.whole / other.later for mine, other in pairs]
    return {
        "work": name,
        "fixed": fixed,
        "best": told(best),
        "best with workers": told(best_of_workers),
        "chosen": [run.chosen for run in auto],
        "auto to": {what: statistics.median(each) for what, each in ratios.items()},
        "spread": {what: [min(each), max(each)] for what, each in ratios.items()},
    }


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return the ratios of each work, and the chosen settings."""
    columns = ("best", "best with workers", "default", "2 workers", "whole run, best")
    names = f"{'best':>15} {'best of workers':>18} {'default':>8} {'2 x 2':>6} {'whole/best':>13}"
    lines = [
        "auto's batches per second after the first 300, to those of",
        f"{'':10} {names}  chosen",
    ]
    for row in rows:
        found = row["auto to"]
        values = [f"{found[column]:.2f}" for column in columns]
        chosen = " ".join(f"{workers}x{factor}" for workers, factor in row["chosen"])
        lines.append(
            f"{row['work']:10} {values[0]:>6} ({row['best']:>6})"
            f" {values[1]:>9} ({row['best with workers']:>6})"
            f" {values[2]:>8} {values[3]:>6} {values[4]:>13}  {chosen}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the works that are named, print a table, and return 0."""
    parser = command_line("auto_bench", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORKS)}")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each run that count")
    parser.add_argument("--sweeps", type=int, default=2, help="over the fixed settings")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.names) - WORKS.keys():
        parser.error(f"no work is called {', '.join(sorted(unknown))}: {', '.join(WORKS)}")
    report = Report(chosen)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.names or WORKS:
            rows.append(measured(name, chosen, Path(folder)))
            print(table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    report.show(table(rows), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
