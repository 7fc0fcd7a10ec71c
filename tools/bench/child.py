"""A contestant's process seen from the bench: start it, command it, end it.

The process leads a session of its own, so that ending it ends its workers too, whatever they do.
Imports the standard library alone; a `Child` owns the process and the file its words go to.
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
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120.0


class ContestantFailed(Exception):
    """A contestant ended, or did not answer in time; the text holds its last words."""


class Child:
    """One contestant of one row. Not thread-safe.

    Args:
        table: Name of the row's table.
        row: Name of the row.
        name: Name of the contestant.
        code: Folder whose `reader` is measured.
        timeout_s: Longest wait for an answer.
    """

    def __init__(
        self, table: str, row: str, name: str, code: Path = ROOT, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self._is_stuck = False
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        # Its first place to import from is the folder it runs in, then this checkout.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.bench.contestant", table, row, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            start_new_session=True,
            cwd=code,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
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
