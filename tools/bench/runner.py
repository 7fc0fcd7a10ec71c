"""Gives out the turns: every contestant of a row in turn, again and again, one active at a time.

Noise of the machine then falls on all of them alike, and ratios are taken round by round. A
contestant that ends or hangs is killed, told, and left out of what follows. Imports the rows and
their processes, which it owns while it runs; it unpacks wheels into folders of its caller's.
"""

from __future__ import annotations

import math
import os
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from tools.bench.child import Child, ContestantFailed
from tools.bench.rows import OURS, TABLES
from tools.turns import describe_machine, order

LEAST_ROUNDS = 3
AGAINST_S = 12.0  # how long a launch of two versions may last


def take_turns(
    starts: Mapping[str, Callable[[], Child]],
    rounds: int,
    launches: int = 1,
    longest_s: float = math.inf,
) -> dict[str, dict[str, Any]]:
    """Let the contestants take turns.

    Args:
        starts: What starts the process of each, in the order of the first round.
        rounds: How often each takes its turn in each launch.
        launches: How often all of them are started anew.
        longest_s: How long a launch may last, unless it has had fewer than three rounds.

    Returns:
        For each its figures, ``{"launches": [[turn, ...], ...]}``, or ``{"error": why}``.
    """
    results: dict[str, dict[str, Any]] = {name: {"launches": []} for name in starts}
    children: dict[str, Child] = {}

    def ask(name: str, what: str) -> dict[str, float]:
        try:
            return children[name].receive() if what == "import" else children[name].ask(what)
        except ContestantFailed as error:
            print(f"  {name} fails: {error}", file=sys.stderr, flush=True)
            results[name] = {"error": str(error)}
            children.pop(name).close()
            return {}

    for launch in range(launches):
        try:
            for name, start in starts.items():
                if "error" not in results[name]:
                    children[name] = start()
            for what in ("import", "open"):
                for name in list(children):
                    ask(name, what)
            turns: dict[str, list[dict[str, float]]] = {name: [] for name in children}
            begin = time.monotonic()
            for number in range(rounds):
                if number >= LEAST_ROUNDS and time.monotonic() - begin > longest_s:
                    break
                for name in turns:
                    turns[name].append({})
                # Compared contestants are measured directly after each other.
                for what in ("turn", "first"):
                    for name in order(list(children), launch + number):
                        turns[name][-1].update(ask(name, what))
            for name in children:
                results[name]["launches"].append(turns[name])
        finally:
            for child in children.values():
                child.leave()
            while children:
                children.popitem()[1].close()
    return results


def measure(
    rows: Mapping[str, Sequence[str]],
    code: Path,
    old: Path | None,
    rounds: int,
    seconds: float,
    launches: int,
) -> dict[str, Any]:
    """Measure rows, named by table, in turns of `seconds`, and return the report.

    The `reader` of folder `code` is compared with that of folder `old`, or without one with the
    peers, without the optional ones that are not installed; `rounds` and `launches` are those of
    `take_turns`.
    """
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "rounds": rounds,
        "seconds": seconds,
        "launches": launches,
        "tables": {table: {} for table in rows},
    }
    missing: set[str] = set()
    for table, names in rows.items():
        for number, name in enumerate(names, start=1):
            print(f"{table} {number}/{len(names)}: {name}", file=sys.stderr, flush=True)
            if old is None:
                contestants = TABLES[table][name].contestants
                missing.update(entry.title for entry in contestants if entry.is_left_out)
                seats = {
                    entry.name: (entry.name, code) for entry in contestants if not entry.is_left_out
                }
            else:
                seats = {"old": (OURS, old), "new": (OURS, code)}
            starts = {
                seat: partial(Child, table, name, contestant, seconds, folder)
                for seat, (contestant, folder) in seats.items()
            }
            report["tables"][table][name] = take_turns(
                starts, rounds, launches, AGAINST_S if old else math.inf
            )
    report["not_installed"] = sorted(missing)
    report["machine"]["load_after"] = os.getloadavg()[0]
    return report


def unpack(wheel: Path, folder: Path) -> Path:
    """Unpack a wheel of this package into `folder` and return the folder.

    Raises:
        ValueError: It is no wheel, none of this package, or built for another Python.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{wheel} is not a wheel: {error}") from error
    if not (folder / "reader" / "__init__.py").is_file():
        raise ValueError(f"{wheel} is not a wheel of this package: it has no reader/__init__.py")
    suffix = EXTENSION_SUFFIXES[0]
    if not any((folder / "reader" / "_core").rglob(f"*{suffix}")):
        raise ValueError(f"{wheel} is built for another Python: reader/_core has no *{suffix}")
    return folder
