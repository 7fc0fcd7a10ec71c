"""The ledger: the system's resources of this process, counted before a test and compared after it.

Counts child processes, threads, descriptors, mapped memory files and the slots the compiled core
says are held. Imports nothing of the package but the core's own count, and that only once a test
has loaded it. The state is the system's; a `Ledger` is a snapshot that nobody changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing.process
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from typing import Any

GRACE_S = 5.0  # ends take a second at most; a machine that stalls gets more
STEP_S = 0.01

# Memory of ours that is mapped: the arena's anonymous file, under the name it was created with.
_OWN_MAPPING = re.compile(r"/memfd:(reader\S*)|/dev/shm/(\S+)")
_NO_SHARED_MEMORY = re.compile(r"^RssShmem:\s+0 kB$", re.MULTILINE)
_OWN_THREAD = "reader-"

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent died, so that we see them.

    Without it, a worker that outlives its killed trainer would move to init, out of our sight.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@dataclass(frozen=True)
class Ledger:
    """What one process holds: each entry maps a key that stays the same to a readable line."""

    processes: dict[int, str]
    threads: dict[int, str]
    descriptors: dict[tuple[int, str], str]
    mappings: dict[str, str]
    arenas: int
    held_slots: int

    @classmethod
    def take(cls) -> Ledger:
        """Count now, after reaping the orphans that have ended."""
        # Taken first: an object that another entry's listing creates is not to be counted.
        counted = _core_count()
        return cls(
            processes=_processes(),
            threads=_threads(),
            descriptors=_descriptors(),
            mappings=_mappings(),
            arenas=counted.get("arenas", 0),
            held_slots=counted.get("held_slots", 0),
        )

    def excess_over(self, before: Ledger) -> list[str]:
        """List the entries that `before` lacks, one line each; empty when even."""
        lines = [f"process {line}" for line in _added(self.processes, before.processes)]
        lines += [f"thread {line}" for line in _added(self.threads, before.threads)]
        lines += [f"descriptor {line}" for line in _added(self.descriptors, before.descriptors)]
        lines += [f"mapping {line}" for line in _added(self.mappings, before.mappings)]
        for noun, now, then in (
            ("arenas", self.arenas, before.arenas),
            ("held slots", self.held_slots, before.held_slots),
        ):
            if now > then:
                lines.append(f"{noun}: {now}, and {then} before")
        return lines


def settle(before: Ledger, grace_s: float = GRACE_S) -> list[str]:
    """Wait until nothing is held beyond `before`, at most `grace_s`; return the excess.

    Collects garbage where something is, for a batch in a reference cycle is not a leak. Workers
    that finish samples of loops that were left are interrupted: they have tests of their own.
    """
    if not Ledger.take().excess_over(before):
        return []
    gc.collect()
    _hurry()
    never = threading.Event()
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        if not Ledger.take().excess_over(before):
            return []
        never.wait(STEP_S)
    gc.collect()
    return Ledger.take().excess_over(before)


def _hurry() -> None:
    registry = sys.modules.get("reader.processes.pool_registry")
    for pool in registry.snapshot() if registry is not None else ():
        if pool.is_closing:
            pool.close_soon(0.0)


def _added(now: dict[Any, str], before: dict[Any, str]) -> list[str]:
    return [line for key, line in sorted(now.items()) if key not in before]


def _core_count() -> dict[str, int]:
    """Ask the core for {"arenas": n, "held_slots": n}; nothing where it is not loaded."""
    arena = sys.modules.get("reader._core.memory.arena")
    count: Callable[[], dict[str, int]] | None = getattr(arena, "ledger", None)
    return count() if count is not None else {}


def _processes() -> dict[int, str]:
    """Every process below this one, also dead ones that nobody waited for.

    The forkserver and the resource tracker of multiprocessing live as long as this process does;
    they are not counted, and what they fork is.
    """
    allowed = {
        getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None),
        getattr(getattr(resource_tracker, "_resource_tracker", None), "_pid", None),
    }
    found: dict[int, str] = {}
    here = os.getpid()
    below = [(pid, here) for pid in _children(here)]
    while below:
        pid, parent = below.pop()
        if _read(f"/proc/{pid}/comm").strip() != "raylet":  # which starts workers as it likes
            below += [(child, pid) for child in _children(pid)]
        if pid in allowed:
            continue
        # The name stands in parentheses and may hold any byte, parentheses too.
        name, _, rest = _read(f"/proc/{pid}/stat").partition("(")[2].rpartition(")")
        if not rest:
            continue  # it has ended since, and its parent waited for it
        state = rest.split()[0]
        if state == "Z" and parent == here and _reap_orphan(pid):
            continue
        command = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
        found[pid] = f"{pid} ({name}, state {state}, parent {parent}): {command[:200]}"
    return found


def _children(pid: int) -> list[int]:
    """The children of each thread of a process, without reading every process of the machine."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _reap_orphan(pid: int) -> bool:
    """Wait for an ended process that no object of Python's waits for; True when it is gone."""
    # copied in one step: a thread that ends a pool removes from it
    children = list(getattr(multiprocessing.process, "_children", ()))
    owned = {_pid_of(process) for process in children}
    if pid in owned or pid in _popen_pids():
        return False
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _pid_of(process: Any) -> int | None:
    try:
        pid: int | None = process.pid
    except ValueError:  # that thread closed it since
        return None
    return pid


def _popen_pids() -> set[int]:
    import subprocess

    living = (o for o in gc.get_objects() if issubclass(type(o), subprocess.Popen))
    return {process.pid for process in living if process.returncode is None}


def _threads() -> dict[int, str]:
    """Python's threads, and threads of the system with our names; not a framework's pool."""
    found = {}
    for thread in threading.enumerate():
        # Until 3.13 Python keeps listing a foreign thread that once called it and has ended.
        is_foreign = isinstance(thread, threading._DummyThread)
        if not is_foreign or os.path.exists(f"/proc/self/task/{thread.native_id}"):
            found[thread.native_id or 0] = f"{thread.name} (native id {thread.native_id})"
    for entry in os.listdir("/proc/self/task"):
        name = _read(f"/proc/self/task/{entry}/comm").strip()
        if name.startswith(_OWN_THREAD):
            found.setdefault(int(entry), f"{name} (native id {entry}, not Python's)")
    return found


def _descriptors() -> dict[tuple[int, str], str]:
    """Open descriptors by (number, target), without those that multiprocessing keeps."""
    kept = {
        getattr(getattr(forkserver, "_forkserver", None), "_forkserver_alive_fd", None),
        getattr(getattr(resource_tracker, "_resource_tracker", None), "_fd", None),
    }
    found: dict[tuple[int, str], str] = {}
    for entry in os.listdir("/proc/self/fd"):
        number = int(entry)
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except FileNotFoundError:
            continue  # the descriptor of this listing itself
        if number not in kept:
            found[number, target] = f"{number} -> {target}"
    return found


def _mappings() -> dict[str, str]:
    """Shared memory that is mapped: our memory files by name, and anything in /dev/shm.

    The list of mappings is long in a process with frameworks. It is read only where a page of
    shared memory is resident, as one of each arena is: its header.
    """
    found: dict[str, str] = {}
    if _NO_SHARED_MEMORY.search(_read("/proc/self/status")):
        return found
    for line in _read("/proc/self/maps").split("\n"):
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and _OWN_MAPPING.search(fields[5]):
            # Device and inode tell files of one name apart; the range would tell too many apart.
            found[f"{fields[3]}:{fields[4]}"] = f"{fields[5]} at {fields[0]}"
    return found


def _read(path: str) -> str:
    """Read a file of /proc; empty if its process has just ended."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
