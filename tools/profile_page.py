"""Run the programs of docs/profile.md, and put what a profile says of them back into the page.

Run as ``python -m tools.profile_page [WORD ...]``. Below each word of a verdict the page has a
short program, which runs by ``python -m reader profile`` in a process of its own. The exit code is
1 where a profile names another word. With ``--write`` the page shows what was just said, and the
pictures are drawn again: `plot` by itself, and the trace, which Perfetto would show, by matplotlib.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.pictures.tracks import Bar, Panel, Track, draw

__all__ = ["PAGE", "Run", "draw_trace", "main", "programs_of", "with_reports"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "profile.md"
SCREEN = "storage"  # the program whose whole report is shown
PICTURES = "sample"  # the program whose pictures are shown
_PROGRAM = re.compile(r"^### (\w+)\n\n```py\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
_REPORT = re.compile(r"^```text\n-- loader over .*?^```\n", re.M | re.S)
_COLUMNS = 118
_SHOWN_MS = 300.0  # of the trace


@dataclass(frozen=True)
class Run:
    """A program that ran.

    Attributes:
        report: what was printed of its loader.
        word: of the verdict.
        said: sentence, advice and gain.
        trace: of the loop, as `Profile.to_trace` writes it.
    """

    report: str
    word: str
    said: str
    trace: dict[str, Any]


def programs_of(page: str) -> dict[str, str]:
    """Return the programs of the page, by the word that each shows."""
    return {match[1]: match[2] for match in _PROGRAM.finditer(page)}


def missing(word: str) -> str:
    """Return why the program of a word cannot show it here; "": it can."""
    if word == "memory":
        return "needs a limit on memory of its own, and a file that is larger"
    if word == "transfer":
        import torch

        return "" if torch.cuda.is_available() else "needs a CUDA device"
    return ""


def run(code: str, plot: Path | None = None) -> Run:
    """Profile a program; raise RuntimeError where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        style = Path(folder) / "matplotlibrc"
        style.write_text("svg.fonttype: none\nsvg.hashsalt: profile\nfont.size: 9\n")
        (Path(folder) / "train.py").write_text(code, encoding="utf-8")
        command = [sys.executable, "-m", "reader", "profile", "--json", "all", "--trace", "trace"]
        command += [] if plot is None else ["--plot", str(plot)]
        paths = {"PYTHONPATH": str(ROOT), "MATPLOTLIBRC": str(style), "SOURCE_DATE_EPOCH": "0"}
        done = subprocess.run(
            [*command, "train.py"],
            cwd=folder,
            env={**os.environ, **paths},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"a program ended with {done.returncode}: {done.stderr}")
        verdict = json.loads((Path(folder) / "all").read_text())[0]["verdict"]
        trace = json.loads((Path(folder) / "trace").read_text())
    report = done.stderr.partition("-- loader over")
    sentence, *rest = report[2].partition("\n\n")[0].splitlines()[1:]
    return Run("".join(report[1:]), verdict["bound_by"], "\n".join([sentence, *rest]), trace)


def with_reports(page: str, runs: dict[str, Run]) -> str:
    """Return the page with the new verdict of each program that ran."""

    def replaced(match: re.Match[str]) -> str:
        head = f"### {match[1]}\n\n```py\n{match[2]}```\n"
        found = runs.get(match[1])
        if found is not None:
            return f"{head}\n```text\n{_wrapped(found.said)}\n```\n"
        return match[0]

    page = _PROGRAM.sub(replaced, page)
    if SCREEN in runs:
        screen = f"```text\n{_wrapped(runs[SCREEN].report.strip())}\n```\n"
        page = _REPORT.sub(lambda _: screen, page)
    return page


def _wrapped(text: str) -> str:
    return "\n".join("\n".join(textwrap.wrap(line, _COLUMNS)) for line in text.splitlines())


def draw_trace(trace: dict[str, Any], path: Path) -> None:
    """Draw a part of a trace as ui.perfetto.dev lays it out: a line for each track."""
    events = trace["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    # around the slowest sample, which is what the page tells of
    slow = max((e for e in events if e["ph"] == "i"), key=lambda e: e["args"]["ms"], default=None)
    begin_ms = 0.0 if slow is None else max(0.0, slow["ts"] / 1e3 - 0.3 * _SHOWN_MS)
    end_ms = begin_ms + _SHOWN_MS
    bars: dict[int, list[Bar]] = {track: [] for track in names}
    marks: dict[int, dict[float, str]] = {track: {} for track in names}
    for event in events:
        at_ms, width_ms = event.get("ts", 0.0) / 1e3, event.get("dur", 0.0) / 1e3
        if event["ph"] not in "Xi" or not begin_ms < at_ms + width_ms or at_ms > end_ms:
            continue
        if event["ph"] == "i":
            told = f"sample {event['args']['sample']}: {event['args']['ms']:.0f} ms"
            marks[event["tid"]][at_ms] = told
            continue
        left_ms, right_ms = max(at_ms, begin_ms), min(at_ms + width_ms, end_ms)
        label = f"{event['name']} (batch {event['args']['batch']})"
        bars[event["tid"]].append(Bar(event["name"], left_ms, right_ms, label))
    tracks = [Track(name, bars[track], marks[track]) for track, name in names.items()]
    draw([Panel("", tracks)], path, begin_ms)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the programs that are named, or all."""
    page = PAGE.read_text(encoding="utf-8")
    programs = programs_of(page)
    parser = argparse.ArgumentParser(prog="python -m tools.profile_page", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help=", ".join(programs))
    parser.add_argument("--write", action="store_true", help="put what is said into the page")
    options = parser.parse_args(arguments)
    unknown = set(options.words) - programs.keys()
    if unknown:
        parser.error(f"no program of the page shows {sorted(unknown)}")
    runs: dict[str, Run] = {}
    for word in options.words or programs:
        reason = missing(word)
        if reason:
            print(f"{word:10s} left out: {reason}")
            continue
        is_drawn = options.write and word == PICTURES
        found = run(programs[word], PAGE.with_name("profile-plot.svg") if is_drawn else None)
        print(f"{word:10s} {'as it says' if found.word == word else f'not: {found.word}'}")
        if found.word == word:
            runs[word] = found
            if is_drawn:
                draw_trace(found.trace, PAGE.with_name("profile-trace.svg"))
    if options.write:
        PAGE.write_text(with_reports(page, runs), encoding="utf-8")
    named = [word for word in options.words or programs if not missing(word)]
    return 0 if len(runs) == len(named) else 1


if __name__ == "__main__":
    sys.exit(main())
