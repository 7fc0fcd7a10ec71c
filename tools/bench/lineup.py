"""The contestants of one comparison: their processes, one active at a time, and what they said.

Interleaving makes noise of the machine fall on all of them alike, and ratios are then taken round
by round. A contestant that ends or hangs is killed, told, and left out of what follows. Imports
the contestants' processes; it owns them until it is closed.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from tools.bench.child import Child, ContestantFailed

T = TypeVar("T")


def say(text: str) -> None:
    """Tell whoever waits how far it is."""
    print(text, file=sys.stderr, flush=True)


class Lineup:
    """The contestants that are still in, by name. Not thread-safe.

    Attributes:
        children: Processes of those still in.
        results: Of each that entered or was refused: its facts and lists of turns, or ``error``.
    """

    def __init__(self) -> None:
        self.children: dict[str, Child] = {}
        self.results: dict[str, dict[str, Any]] = {}

    def enter(self, name: str, child: Child) -> None:
        """Take `child` in, under `name`; from now on it is closed here."""
        self.children[name] = child

    def refuse(self, name: str, why: str) -> None:
        """Note why `name` cannot take part."""
        self.results[name] = {"error": why}
        say(f"  {name}: {why}")

    def attempt(self, name: str, act: Callable[[], T]) -> T | None:
        """Return what `act` returns; end contestant `name` and return None when it fails."""
        try:
            return act()
        except ContestantFailed as error:
            say(f"  {name} fails: {error}")
            self.results[name] = {"error": str(error)}
            self.children.pop(name).close()
            return None

    def open(self, seconds: float, fresh: int) -> None:
        """Wait until every process is there, then let each open what it measures, in turn."""
        for name, child in list(self.children.items()):
            self.attempt(name, child.wait_ready)
        for name in list(self.children):
            facts = self.ask(name, do="open", seconds=seconds, fresh=fresh)
            if facts is not None:
                self.results[name] = {**facts, "rounds": [], "untouched": [], "calls": None}

    def ask(self, name: str, **command: Any) -> dict[str, Any] | None:
        """Send a command to `name` and return its answer; None when it failed and is out."""
        return self.attempt(name, lambda: self.children[name].ask(**command))

    def order(self, number: int) -> list[str]:
        """Name those still in, in the order of turn `number`: each begins once."""
        names = list(self.children)
        shift = number % max(len(names), 1)
        return names[shift:] + names[:shift]

    def say_round(self, number: int, figure: str = "us") -> None:
        """Tell a figure of round `number`."""
        told = (
            f"{name} {result['rounds'][number][figure]:.0f} us"
            for name, result in self.results.items()
            if "error" not in result
        )
        say(f"  round {number + 1}: {', '.join(told)}")

    def folded(self) -> dict[str, dict[str, Any]]:
        """Return the facts of each, with a list over rounds for each figure of a turn."""
        return {name: fold(result) for name, result in self.results.items()}

    def close(self) -> None:
        """End every process. May be called again."""
        for child in self.children.values():
            child.leave()
        while self.children:
            self.children.popitem()[1].close()


def fold(result: dict[str, Any]) -> dict[str, Any]:
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
