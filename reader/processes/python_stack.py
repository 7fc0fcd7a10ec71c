"""The current Python stack of a worker process, even of one that hangs in native code.

Imports the errors. On a signal a worker writes the interpreter's dump of its stacks to a memory
file. The trainer sends that signal to the worker's watch, a native thread, so that nothing else is
interrupted, and reads the file through /proc. If the worker's code handles the signal itself, none
is sent.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

from reader.errors import printable

__all__ = ["offer_stack", "stack_of_process", "stack_of_thread"]

_NAME = "lodreader-stack"
_WATCH = "reader-watch"
_SIGNAL = signal.SIGRTMIN + 9  # no library is known to use it
_PATIENCE_S = 1.0
_PAUSE_S = 0.005
_SPY_S = 10.0
_MOST_LINES = 60
_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"

_file = -1  # the worker's memory file; it stays open until the process ends


def offer_stack() -> None:
    """Write this process's stacks into a memory file whenever it gets the signal.

    If the system refuses that, there are no stacks.
    """
    global _file
    try:
        fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    except OSError:
        return
    try:
        faulthandler.register(_SIGNAL, file=fd, all_threads=True, chain=False)
    except (OSError, RuntimeError, ValueError):
        os.close(fd)
        return
    _file = fd


def stack_of_process(pid: int) -> str:
    """Return the Python stack of a worker process; "" if it cannot be had.

    With py-spy installed it has native frames, too.
    """
    return _by_spy(pid) or _by_signal(pid)


def stack_of_thread(native_id: int | None) -> str:
    """Return the Python stack of a thread of this process; "" if it has ended."""
    for thread in threading.enumerate():
        if thread.native_id == native_id and thread.ident is not None:
            frame = sys._current_frames().get(thread.ident)
            frames = [] if frame is None else traceback.extract_stack(frame)
            first = max(
                (at for at, each in enumerate(frames) if _is_ours(each.filename)), default=-1
            )
            return "".join(traceback.format_list(frames[first + 1 :])).rstrip()
    return ""


def _by_spy(pid: int) -> str:
    spy = shutil.which("py-spy")
    if spy is None:
        return ""
    try:
        found = subprocess.run(
            [spy, "dump", "--native", "--pid", str(pid)],
            capture_output=True,
            text=True,
            timeout=_SPY_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return _cut(found.stdout) if found.returncode == 0 else ""


def _by_signal(pid: int) -> str:
    try:
        path, watch = _memory_file(pid), _watch_of(pid)
        if path is None or watch is None or not _catches(pid):
            return ""
        before = path.stat().st_size
        if ctypes.CDLL(None).tgkill(pid, watch, int(_SIGNAL)):
            return ""
        deadline, size = time.monotonic() + _PATIENCE_S, before
        while time.monotonic() < deadline:
            threading.Event().wait(_PAUSE_S)
            now = path.stat().st_size
            if now == size > before:  # the dump is complete
                break
            size = now
        with path.open("rb") as file:
            file.seek(before)
            return _cut(file.read().decode(errors="replace"))
    except (OSError, AttributeError):  # the process has ended, or there is no /proc or tgkill
        return ""


def _memory_file(pid: int) -> Path | None:
    for path in Path(f"/proc/{pid}/fd").iterdir():
        if str(path.readlink()).startswith(f"/memfd:{_NAME} "):
            return path
    return None


def _watch_of(pid: int) -> int | None:
    """Return the number of the thread that watches a worker's trainer."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == _WATCH:
            return int(task.name)
    return None


def _catches(pid: int) -> bool:
    """Whether a process has a handler for the signal, which would end it otherwise."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (_SIGNAL - 1) & 1)
    return False


def _cut(text: str) -> str:
    """Return a dump without the frames of this package and of its callers."""
    lines: list[str] = []
    is_ours = False
    for line in text.strip().splitlines():
        is_frame = line.startswith("  ")  # otherwise a thread begins
        is_ours = is_frame and (is_ours or _is_ours(line))
        if not is_ours:
            lines.append(printable(line))  # it has names of files
    return "\n".join(lines[:_MOST_LINES])


def _is_ours(text: str) -> bool:
    return _PACKAGE in text
