"""The watchdog: runs a trainer in a process of its own, and notices when it hangs.

Imports the names of torments. A `Watchdog` owns the process, and a memory cgroup where the
kind wants one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.soak.torments import TORMENTS

__all__ = ["Result", "run_trainer"]

HANG_S = 40.0  # without a sign of life; a death, a stop and a slow sample take much less
STACKS_S = 3.0  # for faulthandler to write
CGROUP_BYTES = 400 << 20
ROOTS = (
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
    ("/sys/fs/cgroup", "memory.max", "memory.events"),
)


@dataclass
class Result:
    """The result of one trainer.

    Attributes:
        counts: by name; see `tools.soak.trainer`.
        failures: broken promises, each as the trainer described it.
        words: what it and its workers wrote, where something went wrong.
        is_hung: it gave no sign of life, and was ended.
        seconds: how long it ran.
    """

    counts: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    words: str = ""
    is_hung: bool = False
    seconds: float = 0.0


def run_trainer(
    name: str,
    seed: int,
    seconds: float,
    workers: int,
    in_cgroup: bool = False,
    torments: Sequence[str] = TORMENTS,
    hang_s: float = HANG_S,
) -> Result:
    """Run a trainer until its end, or until it gives no sign of life."""
    folder = _make_cgroup() if in_cgroup else None
    began = time.monotonic()
    told, tell = os.pipe()
    command = [sys.executable, "-m", "tools.soak.trainer", name, str(seed), str(seconds)]
    command += [str(workers), str(tell), ",".join(torments)]
    if folder is not None:
        command = ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh", *command]
    result = Result()
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            command,
            pass_fds=[tell],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
        os.close(tell)
        is_ended = False
        try:
            is_ended = _follow(told, result, hang_s)
            if result.is_hung:
                _ask_for_stacks(process.pid)
        finally:
            os.close(told)
            if result.is_hung or not is_ended:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        if not result.is_hung and (code or not is_ended):
            text = f"the trainer ended with exit code {code} before its time"
            result.failures.append({"what": "ended", "text": text})
        if result.failures or result.is_hung:
            words.seek(0)
            result.words = words.read().decode("utf-8", "replace")[-20_000:]
    if folder is not None:
        result.counts["oom_kills"] = _oom_kills(folder)
        if result.counts["oom_kills"]:
            result.failures.append({"what": "killed", "text": "the system ran out of memory"})
        _remove(folder)
    result.seconds = time.monotonic() - began
    return result


def _follow(told: int, result: Result, hang_s: float) -> bool:
    """Read counts until the trainer's last ones; False: it ended, or hangs, before those."""
    rest = b""
    while True:
        if not select.select([told], [], [], hang_s)[0]:
            result.is_hung = True
            return False
        more = os.read(told, 1 << 16)
        if not more:
            return False
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            found = json.loads(line)
            result.counts, result.failures = found["counts"], found["failures"]
            if found["is_end"]:
                return True


def _ask_for_stacks(pid: int) -> None:
    """Let faulthandler write the stacks of a trainer and its workers."""
    for each in [pid, *_below(pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGCONT)
            os.kill(each, signal.SIGUSR1)
    threading.Event().wait(STACKS_S)


def _below(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *_below(child)]
    return found


def _make_cgroup() -> Path | None:
    """Return a small memory cgroup; None where the system gives us none."""
    for root, limit, _ in ROOTS:
        folder = Path(root) / f"reader-soak-{uuid.uuid4().hex[:8]}"
        try:
            folder.mkdir()
        except OSError:
            continue
        with contextlib.suppress(OSError):
            if (folder / limit).exists():
                (folder / limit).write_text(str(CGROUP_BYTES))
                return folder
        folder.rmdir()
    return None


def _oom_kills(folder: Path) -> int:
    for _, _, events in ROOTS:
        with contextlib.suppress(OSError):
            for line in (folder / events).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def _remove(folder: Path) -> None:
    for _ in range(50):
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        threading.Event().wait(0.1)
