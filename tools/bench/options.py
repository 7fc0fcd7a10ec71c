"""What the bench's command lines have in common: names from a list, and how long to measure.

Imports the standard library alone and owns nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path


def names_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a type for argparse that takes names of `known`, between commas."""

    def parse(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; known: {', '.join(known)}"
            )
        return names

    return parse


def add_turns(parser: argparse.ArgumentParser, json: Path) -> None:
    """Add how often and how long to measure, and where the figures go or come from."""
    add = parser.add_argument
    add("--rounds", type=int, help="turns of each contestant on each work (7; 3 with --quick)")
    add("--seconds", type=float, help="length of a turn to aim at (0.6; 0.15 with --quick)")
    add("--quick", action="store_true", help="a first impression; draws no chart")
    add("--json", type=Path, default=json, metavar="FILE", help="where the figures go")
    add("--from-json", type=Path, metavar="FILE", help="measure nothing: show this file")


def parse_turns(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Read a command line that has the options of `add_turns`, and fill in what depends."""
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = 3 if options.quick else 7
    if options.seconds is None:
        options.seconds = 0.15 if options.quick else 0.6
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    return options
