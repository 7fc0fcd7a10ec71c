"""Run the programs before and after the advice, and print a table: word, forecast, measured gain.

Run as ``python -m tools.verdict_bench [NAME ...]``. The exit code is 1 where a word is another than
expected, or a forecast is more than 25 % off; rows for which other programs took cores do not
count. With ``--peers`` the instruments of PyTorch and SPDL look at the same programs, without any
advice. Imports the programs; each runs in its own process.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reader.worker_clock import system_clock
from tools.turns import describe_machine, machine_lines, told_by
from tools.verdict_bench.peers import LEFT_OUT, SaidOfSpdl, SaidOfTorch, kind_of, said_by
from tools.verdict_bench.programs import PROGRAMS, Program
from tools.verdict_bench.works import rest

__all__ = ["Row", "advised", "main", "measure", "peer_row"]

_OFF = 0.25
_TRIES = 4
_CROWDED = 0.15  # cores
_PATIENCE_S = 20  # how long to wait for other programs that take cores


@dataclass(frozen=True)
class Row:
    """A program that ran: its verdict, and the effect of the advice.

    Attributes:
        crowd: cores that were taken by programs beside it.
    """

    name: str
    kind: str
    expected: str
    word: str
    sentence: str
    forecast: float | None
    measured: float
    crowd: float

    @property
    def is_named(self) -> bool:
        """Whether the verdict has the expected word."""
        return self.word == self.expected

    @property
    def is_forecast(self) -> bool:
        """Whether the gain came as forecast, if one was."""
        return abs(self.forecast_off) <= _OFF

    @property
    def is_right(self) -> bool:
        """Whether word and gain are as they should be."""
        return self.is_named and self.is_forecast

    @property
    def forecast_off(self) -> float:
        """The difference of forecast and measurement; 0: there is no forecast."""
        return 0.0 if self.forecast is None else self.forecast / self.measured - 1


def measure(name: str, program: Program, kind: str, tries: int = _TRIES) -> Row:
    """Run a program before and after the advice; again if others took cores meanwhile."""
    for number in range(tries):
        if number:
            _wait_for_quiet()
        before, crowd = _child(name, kind, "")
        verdict = before["verdict"]
        after, later_crowd = _child(name, kind, json.dumps(advised(verdict)))
        row = _row(name, kind, program, before, after, max(crowd, later_crowd))
        if row.is_right or row.crowd < _CROWDED:
            break
    return row


def advised(verdict: dict[str, Any]) -> dict[str, Any]:
    """Return the options that a verdict names.

    A pool is no option of a loader, and stands in the text; so do the pool's other loaders, which
    are left out where no larger one is advised.
    """
    advice: str = verdict["advice"]
    if pool := re.search(r"WorkerPool\((\d+)\)", advice):
        return {"pool": int(pool[1])}
    return {"is_alone": True} if "look at those loaders" in advice else dict(verdict["options"])


def _row(
    name: str,
    kind: str,
    program: Program,
    before: dict[str, Any],
    after: dict[str, Any],
    crowd: float,
) -> Row:
    verdict = before["verdict"]
    return Row(
        name,
        kind,
        program.expected,
        verdict["bound_by"],
        verdict["sentence"] + " " + verdict["advice"],
        verdict["gain"],
        before["seconds"] / after["seconds"],
        crowd,
    )


def _child(name: str, kind: str, named: str) -> tuple[dict[str, Any], float]:
    """Return what a child printed, and how many cores were taken by others meanwhile."""
    began, busy_s, own_s = time.monotonic(), _busy_s(), _own_s()
    with PROGRAMS[name].around():
        found: dict[str, Any] = told_by("tools.verdict_bench.child", name, kind, named)
    seconds = time.monotonic() - began
    return found, (_busy_s() - busy_s - (_own_s() - own_s)) / seconds


def peer_row(name: str, program: Program) -> str:
    """Return a row of a table in Markdown: what this package says, torch.profiler, and SPDL."""
    reason = LEFT_OUT.get(name) or program.missing()
    if reason:
        return f"| {name} | left out: {reason} | | |"
    word = _child(name, kind_of(program), "")[0]["verdict"]["bound_by"]
    torch, spdl = (said_by(library, name) for library in ("torch", "spdl"))
    by_torch = by_spdl = "not installed"
    if torch is not None:
        seen = SaidOfTorch(**torch)
        more = "; ".join([*seen.rows, *seen.warned])
        by_torch = f"{seen.share:.0%} in `__next__`" + (f"; {more}" if more else "")
    if spdl is not None:
        said = SaidOfSpdl(**spdl)
        by_spdl = f"{said.stage} (" + ", ".join(f"{x:.0%}" for x in said.occupancy.values()) + ")"
    return f"| {name} | {word} | {by_torch} | {by_spdl} |"


def _wait_for_quiet() -> None:
    for _ in range(_PATIENCE_S):
        busy_s = _busy_s()
        rest(1.0)
        if _busy_s() - busy_s < _CROWDED:
            return


def _busy_s() -> float:
    clock = system_clock()
    return 0.0 if clock is None else clock.total_s - clock.idle_s


def _own_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all programs, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m tools.verdict_bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--sentences", action="store_true", help="print what is said, too")
    parser.add_argument("--peers", action="store_true", help="what torch and SPDL say of them")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - PROGRAMS.keys()
    if unknown:
        parser.error(f"no program is called {sorted(unknown)}")
    print("\n".join([*machine_lines(describe_machine()), ""]))
    if options.peers:
        print("| program | word | torch.profiler | SPDL: stage (occupancy behind each) |")
        print("|---|---|---|---|")
        for name in options.names or PROGRAMS:
            print(peer_row(name, PROGRAMS[name]), flush=True)
        return 0
    is_right = True
    print(f"{'program':26s} {'workers':10s} {'verdict':10s} {'forecast':>8s} {'measured':>8s}")
    for name, program in PROGRAMS.items():
        if options.names and name not in options.names:
            continue
        reason = program.missing()
        if reason:
            print(f"{name:26s} left out: {reason}")
            continue
        for kind in program.kinds:
            row = measure(name, program, kind)
            wrong = "" if row.is_named else f"  not {row.expected}"
            wrong += "" if row.crowd < _CROWDED else f"  {row.crowd:.1f} cores taken by others"
            wrong += "" if row.is_forecast else f"  off by {row.forecast_off:+.0%}"
            forecast = "-" if row.forecast is None else f"{row.forecast:.2f}"
            print(
                f"{name:26s} {kind:10s} {row.word:10s} {forecast:>8s} {row.measured:8.2f}{wrong}",
                flush=True,
            )
            if options.sentences:
                print(f"    {row.sentence}")
            is_right = is_right and (row.is_right or row.crowd >= _CROWDED)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
