"""Loaders of running programs, seen from outside through their memory files.

Imports the arena's pages and the clocks. It opens files of other processes for reading; the
programs notice nothing. Their values are not trusted, and their arguments are escaped when printed.
Source: proc(5), on /proc/PID/fd.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reader._core.memory.arena_view import (
    FILE_NAME,
    ArenaHeader,
    HeapView,
    header_of,
    heap_of,
    noted_place,
)
from reader.cgroups import PROC
from reader.files import open_regular
from reader.observe.fetchers import FetcherCounts, FetcherView, fetcher_counts, fetchers_of
from reader.worker_clock import own_bytes

__all__ = ["LoaderView", "programs_with_loaders", "watch_loaders"]

_LINK = f"/memfd:{FILE_NAME}"
_EVERY_S = 0.02  # interval of checks whether the consumer waits


@dataclass(frozen=True)
class LoaderView:
    """The activity of a running program's loader during a moment.

    Attributes:
        pid: of the program.
        command: its name and first arguments, without folders.
        workers: running workers.
        busy: mean number of workers that made batches.
        waits: share of the moment in which the program waited for a batch, from 0 to 1.
        batches: made so far.
        batches_per_s: made in a second.
        fetch_share: share of the dataset's code in making the last batches.
        longest_s: for how long the slowest worker has been making its batch.
        owned_bytes: memory of batches.
        worker_bytes: private memory of the workers.
        fetchers: the processes that fetch shards from stores for the program, one for each cache.
    """

    pid: int
    command: str
    workers: int
    busy: float
    waits: float
    batches: int
    batches_per_s: float
    fetch_share: float
    longest_s: float
    owned_bytes: int
    worker_bytes: int
    fetchers: tuple[FetcherView, ...] = ()


@dataclass(frozen=True)
class _Pages:
    """A copy of an arena's pages."""

    at_s: float
    header: ArenaHeader
    heaps: list[HeapView]


def programs_with_loaders(proc: Path = PROC) -> list[int]:
    """Return the pids of processes with a loader with worker processes.

    Omits those of other users, which cannot be seen without privileges.
    """
    holders: dict[int, dict[int, str]] = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            found = _arenas_of(int(folder.name), proc)
            if found:
                holders[int(folder.name)] = found
    workers = {
        heap.pid
        for found in holders.values()
        for path in found.values()
        if (pages := _read(path)) is not None
        for heap in pages.heaps
    }
    return sorted(holders.keys() - workers)


def watch_loaders(pids: Sequence[int], seconds: float, proc: Path = PROC) -> list[LoaderView]:
    """Observe the loaders of programs for some seconds; return their activity.

    Args:
        pids: of the programs.
        seconds: for how long, above 0.
        proc: where /proc is.

    Raises:
        ProcessLookupError: a program does not run.
        PermissionError: it is another user's.
    """
    with contextlib.ExitStack() as opened:
        views = []
        for pid in pids:
            for path in _arenas_of(pid, proc, must_exist=True).values():
                with contextlib.suppress(OSError):  # closed meanwhile
                    file = open_regular(path)
                    opened.callback(os.close, file)
                    views.append((pid, file, [pages] if (pages := _pages(file)) else []))
        before = fetcher_counts(proc)
        until_s = time.monotonic() + seconds
        pause = _Pause()
        while time.monotonic() < until_s:
            pause.wait(min(_EVERY_S, seconds))
            for _, file, seen in views:
                pages = _pages(file)
                if seen and pages is not None:
                    seen.append(pages)
        fetched = before, (fetcher_counts(proc) if before.by_pid else before)
        return [_view(pid, seen, fetched, proc) for pid, _, seen in views if _is_alive(seen)]


class _Pause:
    """A wait that nothing ends early."""

    def __init__(self) -> None:
        import threading

        self._never = threading.Event()

    def wait(self, seconds: float) -> None:
        self._never.wait(seconds)


def _is_alive(seen: list[_Pages]) -> bool:
    return len(seen) > 1 and not seen[-1].header.is_closing


def _view(
    pid: int, seen: list[_Pages], fetched: tuple[FetcherCounts, FetcherCounts], proc: Path
) -> LoaderView:
    first, last = seen[0], seen[-1]
    span_s = max(last.at_s - first.at_s, 1e-9)
    workers = [heap for heap in last.heaps if heap.pid]
    made = sum(heap.batches for heap in last.heaps)
    made_ns = sum(heap.made_ns for heap in last.heaps)
    at_work = [sum(bool(heap.since_ns) for heap in pages.heaps) for pages in seen]
    since = [heap.since_ns for heap in workers if heap.since_ns]
    return LoaderView(
        pid=pid,
        command=_command(pid, proc),
        workers=len(workers),
        busy=sum(at_work) / len(at_work),
        waits=sum(pages.header.is_waiting for pages in seen) / len(seen),
        batches=made,
        batches_per_s=max(0, made - sum(heap.batches for heap in first.heaps)) / span_s,
        fetch_share=sum(heap.fetch_ns for heap in last.heaps) / made_ns if made_ns else 0.0,
        longest_s=max((last.at_s - min(since) * 1e-9, 0.0)) if since else 0.0,
        owned_bytes=last.header.owned_bytes,
        # workers on other machines have one process here, the lander
        worker_bytes=sum(own_bytes(each, proc) for each in {heap.pid for heap in workers} - {pid}),
        fetchers=fetchers_of([pid, *(heap.pid for heap in workers)], *fetched),
    )


def _arenas_of(pid: int, proc: Path, must_exist: bool = False) -> dict[int, str]:
    """Return the paths of the memory files of a process, by inode."""
    folder = proc / str(pid) / "fd"
    found: dict[int, str] = {}
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except FileNotFoundError:
        if must_exist:
            raise ProcessLookupError(f"no program with the number {pid} runs") from None
        return {}
    except PermissionError:
        if must_exist:
            raise PermissionError(
                f"program {pid} is another user's: run this as that user, or as root"
            ) from None
        return {}
    except OSError:
        return {}
    for name in names:
        with contextlib.suppress(OSError):
            path = folder / name
            if os.readlink(path).startswith(_LINK):  # noqa: PTH115
                found.setdefault(path.stat().st_ino, str(path))
    return found


def _read(path: str) -> _Pages | None:
    try:
        file = open_regular(path)
    except OSError:
        return None
    try:
        return _pages(file)
    finally:
        os.close(file)


def _pages(file: int) -> _Pages | None:
    """Copy the pages of an arena; None: it is no arena."""
    try:
        header = header_of(os.pread(file, 4096, 0))
        if header is None:
            return None
        return _Pages(time.monotonic(), header, list(_heaps(file, header)))
    except OSError:
        return None


def _heaps(file: int, header: ArenaHeader) -> Iterator[HeapView]:
    """Yield the views of workers' heaps; the last heap is the trainer's."""
    for number in range(1, header.heaps):
        page = os.pread(file, 4096, number * header.page_nbytes)
        at, nbytes = noted_place(header, page, number - 1) or (0, 0)
        heap = heap_of(page, os.pread(file, nbytes, at), header.run)
        if heap is not None:
            yield heap


def _command(pid: int, proc: Path) -> str:
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    texts = [word.decode(errors="replace") for word in words if word]
    return " ".join(text.rpartition("/")[2] or text for text in texts)[:60]
