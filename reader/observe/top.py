"""The table of `python -m reader top`, and its loop.

Imports running loaders. It prints to the caller's file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from reader.errors import printable
from reader.observe.fetchers import FetcherView
from reader.observe.machine import in_bytes
from reader.observe.running import LoaderView, programs_with_loaders, watch_loaders

__all__ = ["show_top", "table_of"]

_CLEAR = "\x1b[H\x1b[2J"


def show_top(pid: int | None, seconds: float, is_once: bool, is_json: bool, out: TextIO) -> int:
    """Show the loaders of a program, or of all; return the exit code, 1 if there are none.

    Args:
        pid: of the program; None: all visible ones.
        seconds: from one table to the next.
        is_once: whether to show only one table.
        is_json: whether to write a line of JSON in place of each table.
        out: the output.

    Raises:
        ProcessLookupError, PermissionError: see `watch_loaders`.
    """
    while True:
        pids = programs_with_loaders() if pid is None else [pid]
        views = watch_loaders(pids, seconds)
        if is_json:
            out.write(json.dumps([asdict(view) for view in views]) + "\n")
        else:
            clear = _CLEAR if out.isatty() and not is_once else ""
            out.write(f"{clear}{table_of(views)}\n")
        out.flush()
        if is_once:
            return 0 if views else 1


def table_of(views: Sequence[LoaderView]) -> str:
    """Return a table with a line for each loader."""
    if not views:
        return (
            "no loader with worker processes was seen (of programs that this user may look into;"
            " worker threads and loaders without workers cannot be seen from outside: profile them)"
        )
    head = (
        f"{'pid':>8s} {'batches':>9s} {'per s':>8s} {'waits':>6s} {'busy':>9s} {'fetch':>6s}"
        f" {'longest':>8s} {'batches in':>10s} {'workers in':>10s}  program"
    )
    lines = [
        f"{view.pid:8d} {view.batches:9d} {view.batches_per_s:8.1f} {view.waits:6.0%}"
        f" {view.busy:4.1f} of {view.workers:<2d}{view.fetch_share:6.0%} {view.longest_s:7.2f}s"
        f" {in_bytes(view.owned_bytes):>10s} {in_bytes(view.worker_bytes):>10s}"
        f"  {printable(view.command)}"
        for view in views
    ]
    fetchers = {each.pid: each for view in views for each in view.fetchers}
    return "\n".join([head, *lines, *map(_line_of, fetchers.values())])


def _line_of(fetcher: FetcherView) -> str:
    return (
        f"network: process {fetcher.pid} fetches {fetcher.bytes_per_s / 1e6:.1f} MB/s in"
        f" {fetcher.requests_per_s:.1f} requests a second, and workers read"
        f" {fetcher.given_per_s / 1e6:.1f} MB/s; {fetcher.waiting:.1f} of them wait for it, in the"
        f" mean; {in_bytes(fetcher.kept_bytes)} of {in_bytes(fetcher.limit_bytes)} are kept"
    )
