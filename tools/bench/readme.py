"""The blocks between the bench marks of two pages: the README's table, and docs/speed.md's tables.

The README says it in plain words; docs/speed.md has every row, the floors, and each table's
command. Pure, but for `write`. Imports the rows and the arithmetic of the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from tools.bench.report import Results, divided, duration, median, quotient
from tools.bench.rows import DECODE, FLOOR, OURS, TABLES, TAKE, Row

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
Rows = Mapping[str, Results]

FACES = {
    "inline": (
        "Without workers, `reader.DataLoader` beside `torch.utils.data`",
        "| what | reader | PyTorch takes |",
    ),
    "paddle": (
        "What Paddle's users wait for, `reader.compat.paddle` beside `paddle.io`",
        "| what | reader | Paddle takes |",
    ),
    "torch": (
        "What PyTorch's users get, `reader.compat.torch` beside `torch.utils.data`",
        "| what | reader | PyTorch takes |",
    ),
}
LIKE_PYTORCH = "`reader.compat.torch`: "
PAGE = ("engine", *FACES)  # tables of docs/speed.md


def summary(report: Mapping[str, Any]) -> str:
    """Return the README's block: one table of the engine's rows and the chart, marks included."""
    lines = ["| a batch of | reader, in microseconds | PyTorch takes | Paddle takes |"]
    lines.append("|---|---|---|---|")
    parts = []
    for name, results in report["tables"].get("engine", {}).items():
        us = median(results, OURS)
        cells = ["fails" if us is None else f"{float(f'{us:.3g}'):,.0f}"]
        cells += [_rounded(results, peer) for peer in ("torch", "paddle")]
        lines.append(f"| {' | '.join([TABLES['engine'][name].work.plain, *cells])} |")
        if DECODE.name in results:
            alone = _rounded(results, DECODE.name)
            parts.append(f"Decoding the JPEG files alone, in two processes, takes {alone}.")
    parts.append(f"{_measured(report)} Machines differ, ratios less.")
    chart = "![Time of a batch through each loader](docs/bench.svg)"
    return "\n\n".join([BEGIN, "\n".join(lines), "\n".join(parts), chart, END])


def _measured(report: Mapping[str, Any]) -> str:
    """Return how, and on which machine, the figures were measured."""
    machine = report["machine"]
    return (
        f"Medians of {report['rounds']} rounds of {report['seconds']:g} s on {machine['cores']}"
        f" cores of {machine['cpu']}, Python {machine['python']},"
        f" load before: {machine['load_before']:.1f}."
    )


def details(report: Mapping[str, Any]) -> str:
    """Return the block of docs/speed.md: every table of `report` that it has, marks included."""
    parts = [BEGIN]
    for table, rows in report["tables"].items():
        if table not in PAGE:
            continue
        if table == "engine":
            parts += _engine(rows, report)
        else:
            parts += _face(table, rows, report["rounds"])
    return "\n\n".join([*parts, END])


def write(report: Mapping[str, Any], readme: Path, speed: Path) -> None:
    """Replace the blocks of the two pages.

    Raises:
        ValueError: A row or a figure of the blocks was not measured.
    """
    for table in PAGE:
        rows = TABLES[table]
        measured = report["tables"].get(table, {})
        if missing := [name for name, row in rows.items() if row.has_peer and name not in measured]:
            raise ValueError(f"the pages show every row: {table} lacks {', '.join(missing)}")
    for page, block in ((readme, summary(report)), (speed, details(report))):
        text = page.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(before + block + after, encoding="utf-8")


def _time(results: Results, name: str, figure: str = "us") -> str:
    value = median(results, name, figure)
    return "fails" if value is None else duration(value)


def _takes(results: Results, name: str, figure: str = "us") -> str:
    ratio = quotient(results, name, OURS, figure)
    return "fails" if ratio is None else f"{divided(ratio)}x"


def _rounded(results: Results, name: str) -> str:
    ratio = quotient(results, name, OURS)
    return "fails" if ratio is None else f"{divided(ratio)} times as long"


def _engine(rows: Rows, report: Mapping[str, Any]) -> list[str]:
    floor = "a bare arena and pipes, without features"
    lines = [f"| work | batch | reader | PyTorch takes | Paddle takes | {floor} |"]
    lines.append("|---|---|---|---|---|---|")
    for name, results in rows.items():
        others = " | ".join(_takes(results, peer) for peer in ("torch", "paddle"))
        if TAKE.name in results:
            others += f" | `numpy.take` of the same rows, in the loop, {_takes(results, TAKE.name)}"
        else:
            others += f" | {_takes(results, FLOOR.name)}"
        if DECODE.name in results:
            others += f"; decoding alone, on two processes, {_takes(results, DECODE.name)}"
        title = TABLES["engine"][name].title
        lines.append(f"| {name} | {title} | {_time(results, OURS)} | {others} |")
    parts = ["`reader.DataLoader` (`python -m tools.bench --table engine`):", "\n".join(lines)]
    if tiny := rows.get("tiny"):
        cpu, first = "cpu_us", "first_us"
        parts.append(
            f"The CPU time of the training process for a tiny batch is {_time(tiny, OURS, cpu)} "
            f"(PyTorch {_time(tiny, 'torch', cpu)}, Paddle {_time(tiny, 'paddle', cpu)}), "
            f"the first batch of a later epoch\nwith persistent workers takes "
            f"{_time(tiny, OURS, first)} (Paddle {_time(tiny, 'paddle', first)}).\n"
            f"{_measured(report)}\nMachines differ, ratios less."
        )
    return parts


def _face(table: str, rows: Rows, rounds: int) -> list[str]:
    what, head = FACES[table]
    lines = [head, "|---|---|---|"]
    measured = [(TABLES[table][name], results) for name, results in rows.items()]
    alike = [pair for pair in measured if pair[0].title.startswith(LIKE_PYTORCH)]
    measured = [pair for pair in measured if pair not in alike]
    for title, group in groupby(measured, key=lambda pair: pair[0].title):
        cells = [_cells(row, results) for row, results in group]
        ours, peers = (", ".join(column) for column in zip(*cells))
        lines.append(f"| {title} | {ours} | {peers} |")
    command = f"python -m tools.bench --table {table}"
    parts = [f"{what} (`{command}`, medians of {rounds} rounds):", "\n".join(lines)]
    if alike:
        parts.append(_in_a_sentence(alike))
    return parts


def _in_a_sentence(rows: list[tuple[Row, Results]]) -> str:
    """Write rows in which the loaders do the same work and no ratio is far from 1."""
    told = []
    for row, results in rows:
        ours, theirs = _cells(row, results)
        told.append(f"{row.title.removeprefix(LIKE_PYTORCH)} {ours} ({theirs})")
    return (
        "`reader.compat.torch` without workers, where both do the same work: its time for a batch"
        f" of these forms, and in brackets what PyTorch takes: {'; '.join(told)}."
    )


def _cells(row: Row, results: Results) -> tuple[str, str]:
    peer = row.contestants[1]
    ours, theirs = _time(results, OURS, row.figure), _takes(results, peer.name, row.figure)
    if peer.note:
        theirs = f"{peer.note}: {theirs}"
    if row.kind == "break":
        ours += _left(results, OURS)
        theirs += _left(results, peer.name)
    return ours, theirs


def _left(results: Results, name: str) -> str:
    # The first turn of a launch has no break before it.
    return f", {median(results, name, 'left') or 0:.0f} processes left behind"
