"""Command line of the soak: which kinds, how long, and the table of what came of it.

Run as ``python -m tools.soak --minutes N [--seed S] [--kinds KIND ...]``. Each kind of loader runs
in a process of its own, one after the other; the exit code is 1 if any promise broke.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tools.soak.kinds import KINDS
from tools.soak.torments import TORMENTS
from tools.soak.watchdog import Result, run_trainer

MOST_FAILED = 5  # of one kind
COLUMNS = (
    "epochs",
    "batches",
    "samples",
    "kill",
    "segv",
    "stop",
    "interrupt",
    "break",
    "resume",
    "kept",
    "told",
    "lost",
    "twice",
    "wrong",
    "hung",
    "leaks",
    "growth_kib",
)


def soak(
    name: str, seed: int, seconds: float, workers: int, torments: Sequence[str]
) -> tuple[Counter[str], bool]:
    """Run one kind for its time, with another seed after each hang; print failures.

    Returns:
        The counts, and whether all promises held.
    """
    total: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    failed = 0
    while failed < MOST_FAILED and (left := deadline - time.monotonic()) > 0:
        result = run_trainer(name, seed, left, workers, KINDS[name].memory == "cgroup", torments)
        total += Counter({key: value for key, value in result.counts.items() if value > 0})
        total["hung"] += result.is_hung
        if result.failures or result.is_hung:
            failed += 1
            _describe(name, seed, seconds, workers, torments, result)
        seed += 1
    return total, not failed


def _describe(
    name: str, seed: int, seconds: float, workers: int, torments: Sequence[str], result: Result
) -> None:
    print(f"{name}: {'hung' if result.is_hung else 'failed'}; to repeat it:")
    options = f"--kinds {name} --seed {seed} --minutes {seconds / 60:.2f} --workers {workers}"
    options += f" --torments {' '.join(torments)}"
    print(f"  python -m tools.soak {options}")
    for failure in result.failures:
        for key, value in failure.items():
            print(f"    {key}: {value}")
    for line in result.words.splitlines():
        print(f"    | {line}")
    sys.stdout.flush()


def table(rows: dict[str, Counter[str]]) -> str:
    """Return the counts as text, a kind a line."""
    total: Counter[str] = Counter()
    for counts in rows.values():
        total += counts
    total["growth_kib"] = max((counts["growth_kib"] for counts in rows.values()), default=0)
    lines = [["kind", *COLUMNS]]
    for name, counts in {**rows, "all": total}.items():
        lines.append([name, *(str(counts[column]) for column in COLUMNS)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            each.ljust(width) if at == 0 else each.rjust(width)
            for at, (each, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def main(arguments: list[str] | None = None) -> int:
    """Soak each kind; 0 when every promise held."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--workers", type=int, default=2, help="the most workers of a loader")
    parser.add_argument("--torments", nargs="+", choices=TORMENTS, default=list(TORMENTS))
    options = parser.parse_args(arguments)
    share = 60 * options.minutes / len(options.kinds)
    rows: dict[str, Counter[str]] = {}
    is_good = True
    for name in options.kinds:
        rows[name], held = soak(name, options.seed, share, options.workers, options.torments)
        is_good &= held
        print(f"{name}: {'fine' if held else 'FAILED'}", flush=True)
    print(table(rows))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
