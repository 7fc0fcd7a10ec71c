"""Runs the rounds of one of the five works: every contestant in turn, again and again.

Imports the contestants' names and their lineup; it owns the lineup while it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from tools.bench.child import Child
from tools.bench.lineup import Lineup
from tools.bench.loaders import CONTESTANTS, DECODE


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
    with closing(Lineup()) as lineup:
        for name in names:
            if name != DECODE and (missing := CONTESTANTS[name].missing()):
                lineup.refuse(name, f"not installed: {', '.join(missing)}")
            else:
                lineup.enter(name, Child(name, work))
        lineup.open(seconds, fresh)
        # The last third as many again touch nothing, for the trainer's CPU beside page touching.
        for number in range(rounds + (rounds + 2) // 3):
            is_touching = number < rounds
            for name in lineup.order(number):
                if name == DECODE and not is_touching:
                    continue
                epoch = lineup.ask(name, do="turn", touch=is_touching)
                if epoch is not None:
                    lineup.results[name]["rounds" if is_touching else "untouched"].append(epoch)
            if is_touching:
                lineup.say_round(number)
        for name, child in list(lineup.children.items()):
            if name != DECODE:
                calls = lineup.attempt(name, child.count_calls)
                if calls is not None:
                    lineup.results[name]["calls"] = calls
        results = lineup.folded()
    return {name: results[name] for name in names if name in results}
