"""Runs the rounds: every contestant in turn on a work, one active at a time, again and again.

Interleaving makes noise of the machine fall on all of them alike, and ratios are then taken round
by round. Imports the contestants' names and their processes; it owns the processes while it runs.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import Any

from tools.bench.child import Child, ContestantFailed
from tools.bench.loaders import CONTESTANTS, DECODE


def say(text: str) -> None:
    """Tell whoever waits how far it is."""
    print(text, file=sys.stderr, flush=True)


def measure_work(
    work: str, names: Sequence[str], rounds: int, seconds: float, fresh: int
) -> dict[str, dict[str, Any]]:
    """Measure the contestants `names` on one work.

    Args:
        work: Name of the work.
        names: The contestants, in the order of the first round.
        rounds: How often each takes its turn.
        seconds: Length of an epoch to aim at.
        fresh: How many fresh loaders to time to their first batch.

    Returns:
        For each contestant its facts: lists over rounds, single figures, or ``error`` alone.
    """
    results: dict[str, dict[str, Any]] = {}
    children: dict[str, Child] = {}

    def drop(name: str, error: ContestantFailed) -> None:
        say(f"  {name} fails: {error}")
        results[name] = {"error": str(error)}
        children.pop(name).close()

    try:
        for name in names:
            if name != DECODE and (missing := CONTESTANTS[name].missing()):
                results[name] = {"error": f"not installed: {', '.join(missing)}"}
                say(f"  {name}: {results[name]['error']}")
            else:
                children[name] = Child(name, work)
        for name in list(children):
            try:
                children[name].wait_ready()
            except ContestantFailed as error:
                drop(name, error)
        for name in list(children):
            try:
                facts = children[name].ask(do="open", seconds=seconds, fresh=fresh)
                results[name] = {**facts, "rounds": [], "untouched": [], "calls": None}
            except ContestantFailed as error:
                drop(name, error)
        # The last third as many again touch nothing, for the trainer's CPU beside page touching.
        for number in range(rounds + (rounds + 2) // 3):
            is_touching = number < rounds
            order = list(children)
            shift = number % max(len(order), 1)
            for name in order[shift:] + order[:shift]:
                if name == DECODE and not is_touching:
                    continue
                try:
                    epoch = children[name].ask(do="turn", touch=is_touching)
                    results[name]["rounds" if is_touching else "untouched"].append(epoch)
                except ContestantFailed as error:
                    drop(name, error)
            if is_touching:
                say(f"  round {number + 1}: {_round_line(results, number)}")
        for name in list(children):
            if name != DECODE:
                try:
                    results[name]["calls"] = children[name].count_calls()
                except ContestantFailed as error:
                    drop(name, error)
    finally:
        for child in children.values():
            child.close()
    return {name: _fold(results[name]) for name in names if name in results}


def _round_line(results: dict[str, dict[str, Any]], number: int) -> str:
    return ", ".join(
        f"{name} {result['rounds'][number]['us']:.0f} us"
        for name, result in results.items()
        if "error" not in result
    )


def _fold(result: dict[str, Any]) -> dict[str, Any]:
    """Turn epochs into one list for each figure, and medians where only those are wanted."""
    if "error" in result:
        return result
    folded = {key: result[key] for key in result if key not in ("rounds", "untouched")}
    for key in result["rounds"][0]:
        folded[key] = [epoch[key] for epoch in result["rounds"]]
    folded["batches"] = result["batches"]
    if result["untouched"]:
        for key in ("us", "cpu_us"):
            folded[f"untouched_{key}"] = statistics.median(
                epoch[key] for epoch in result["untouched"]
            )
    return folded
