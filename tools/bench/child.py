"""A contestant's process seen from the bench: start it, command it, count its calls, end it.

The process leads a session of its own, so that ending it ends its workers too, whatever they do.
Imports the standard library alone; a `Child` owns the process and the file its words go to.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 180.0
ATTACH_S = 10.0


class ContestantFailed(Exception):
    """A contestant ended, or did not answer in time; the text holds its last words."""


class Child:
    """One contestant on one work. Not thread-safe.

    Args:
        name: Of the contestant.
        work: What it is to do.
        module: What its process runs, given both names.
        timeout_s: Longest wait for an answer.
    """

    def __init__(
        self,
        name: str,
        work: str,
        module: str = "tools.bench.contestant",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self._is_stuck = False
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, name, work],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            start_new_session=True,
            cwd=ROOT,
        )
        self._pending = b""

    @property
    def pid(self) -> int:
        """The process; its group has the same number."""
        return self._process.pid

    def _last_words(self) -> str:
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-12:])

    def _receive(self) -> dict[str, Any]:
        stdout = self._process.stdout
        if stdout is None:
            raise ContestantFailed(f"{self.name}: closed")
        fd = stdout.fileno()
        deadline = time.monotonic() + self.timeout_s
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                self._is_stuck = True
                raise ContestantFailed(
                    f"{self.name}: no answer in {self.timeout_s:g} s\n{self._last_words()}"
                )
            piece = os.read(fd, 65536)
            if not piece:
                raise ContestantFailed(f"{self.name}: ended\n{self._last_words()}")
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def wait_ready(self) -> None:
        """Block until it has imported what it needs."""
        self._receive()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and return the answer.

        Raises:
            ContestantFailed: It ended, or did not answer in time.
        """
        stdin = self._process.stdin
        if stdin is None:
            raise ContestantFailed(f"{self.name}: closed")
        try:
            stdin.write((json.dumps(command) + "\n").encode())
            stdin.flush()
        except OSError as error:
            raise ContestantFailed(f"{self.name}: ended\n{self._last_words()}") from error
        return self._receive()

    def count_calls(self) -> dict[str, Any] | None:
        """Run one epoch under strace and return the trainer's system calls for each batch.

        Returns:
            ``{"calls": number, "most": {name: number}}``, or None without a working strace.
        """
        strace = shutil.which("strace")
        if strace is None:
            return None
        with tempfile.NamedTemporaryFile("r") as report:
            command = [strace, "-f", "-c", "-o", report.name, "-p", str(self.pid)]
            tracer = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
            try:
                words = tracer.stderr
                if words is None or not select.select([words], [], [], ATTACH_S)[0]:
                    return None
                if b"attached" not in words.readline():
                    return None
                turn = self.ask(do="turn", touch=True)
            finally:
                tracer.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    tracer.communicate(timeout=ATTACH_S)
                if tracer.poll() is None:
                    tracer.kill()
                    tracer.communicate()
            return calls_per_batch(report.read(), int(turn["batches"]))

    def leave(self) -> None:
        """Tell it to end, without waiting; `close` comes after. May be called again."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def close(self) -> None:
        """End the process and all it started, at once if it hangs. May be called again."""
        self.leave()
        try:
            self._process.wait(timeout=0 if self._is_stuck else 15)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Its workers too, if it left any.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._words.close()


def calls_per_batch(report: str, batches: int) -> dict[str, Any] | None:
    """Read what ``strace -c`` wrote and divide by `batches`; None when it holds no table."""
    counts: dict[str, int] = {}
    for line in report.splitlines():
        words = line.split()
        if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
            counts[words[-1]] = counts.get(words[-1], 0) + int(words[3])
    if not counts:
        return None
    most = sorted(counts, key=lambda name: -counts[name])[:5]
    return {
        "calls": sum(counts.values()) / batches,
        "most": {name: round(counts[name] / batches, 3) for name in most},
    }
