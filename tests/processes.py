"""Processes beside the test: wires to workers, programs of their own, and waits with a deadline.

Imports the standard library and the package. A Wire and a Program are owned, and closed, by whoever
made them: for fault tests their fixtures, in tests/fault/conftest.py.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reader import LoadTimeout

ROOT = Path(__file__).parents[1]
BOUND_S = 40.0  # how long a test waits before it reports a hang


class Wire:
    """A FIFO whose ends the test both keeps open; workers call `tell` and `listen` on `path`."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def hear(self, timeout_s: float = BOUND_S) -> str:
        """Return the next line that a worker wrote."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._fd], [], [], timeout_s)
            assert ready, "nobody said anything"
            self._rest += os.read(self._fd, 4096)
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def say(self, count: int = 1) -> None:
        """Release `count` listeners."""
        os.write(self._fd, b"!" * count)

    def close(self) -> None:
        os.close(self._fd)


class Program:
    """A program in a process group of its own; what it prints is read line by line."""

    def __init__(self, folder: Path, text: str, *args: str, wrapper: tuple[str, ...] = ()) -> None:
        path = folder / "program.py"
        path.write_text(textwrap.dedent(text))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, "-u", str(path), *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            cwd=folder,
        )
        self._rest = b""

    def line(self, timeout_s: float = BOUND_S) -> str:
        """Return the next line of its output."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        while b"\n" not in self._rest:
            ready, _, _ = select.select([fd], [], [], timeout_s)
            assert ready, "the program says nothing"
            data = os.read(fd, 4096)
            if not data:
                self.process.kill()
                raise AssertionError(f"the program ended: {self.process.communicate()[1].decode()}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def finish(self, timeout_s: float = BOUND_S) -> tuple[int, str, str]:
        """Wait for its end; return (exit status, rest of its output, stderr)."""
        try:
            out, err = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.interrupt(signal.SIGKILL)
            out, err = self.process.communicate()
            raise AssertionError(f"the program hangs; it said {out!r} and {err!r}") from None
        return self.process.returncode, (self._rest + out).decode(), err.decode()

    def interrupt(self, signum: int = signal.SIGINT) -> None:
        """Send a signal to the whole group, as a terminal does."""
        os.killpg(self.process.pid, signum)

    def end(self) -> None:
        if self.process.poll() is None:
            self.interrupt(signal.SIGKILL)
            self.process.communicate()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def patiently(batches: Iterator[Any]) -> Any:
    """Return the next batch, however often it is late."""
    while True:
        try:
            return next(batches)
        except LoadTimeout:
            continue


def open_pid(pid: int) -> int | None:
    """A pidfd, or None when the process is gone already."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def wait_gone(pidfds: list[int | None], timeout_s: float = 10.0) -> None:
    """Check that the processes end; closes the descriptors.

    A second is what is promised; a machine that stalls gets ten times that.
    """
    try:
        for fd in pidfds:
            if fd is not None:
                ready, _, _ = select.select([fd], [], [], timeout_s)
                assert ready, "a worker lives on"
    finally:
        for fd in pidfds:
            if fd is not None:
                os.close(fd)


def kill_and_wait(pid: int, signum: int = signal.SIGKILL) -> None:
    """Kill a process and return when it has ended."""
    fd = open_pid(pid)
    assert fd is not None
    os.kill(pid, signum)
    wait_gone([fd], BOUND_S)


def wait_until(is_true: Callable[[], bool], timeout_s: float = BOUND_S) -> None:
    """Wait until a condition holds; for conditions without an event."""
    never = threading.Event()
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "it never is so"
        never.wait(0.005)


def wait_asleep(pid: int, timeout_s: float = BOUND_S) -> None:
    """Return when the main thread of a process sleeps: it waits for something."""
    never = threading.Event()
    deadline = time.monotonic() + timeout_s
    while Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < deadline, "it never waits"
        never.wait(0.005)
