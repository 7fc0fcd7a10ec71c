"""A contestant's process, as the bench runs it: start it, give it a turn, end it.

The process leads a session of its own, so that ending it ends its workers too, whatever they do.
Imports the standard library and the turns; a `Child` owns the process and the file its words go to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from pathlib import Path

from tools.turns import ROOT

TIMEOUT_S = 120.0


class ContestantFailed(Exception):
    """A contestant ended, or did not answer in time; the text holds its last words."""


class Child:
    """One contestant of one row. Not thread-safe.

    Args:
        table: Name of the row's table.
        row: Name of the row.
        name: Name of the contestant.
        seconds: Length of a turn to aim at.
        code: Folder whose `reader` is measured.
        timeout_s: Longest wait for an answer.
    """

    def __init__(
        self,
        table: str,
        row: str,
        name: str,
        seconds: float,
        code: Path = ROOT,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._pipe, theirs = Pipe()
        fd = theirs.fileno()
        # Its first place to import from is the folder it runs in, then this checkout.
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"{__package__}.contestant",
                table,
                row,
                name,
                f"{seconds}",
                f"{fd}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._words,
            stderr=self._words,
            pass_fds=[fd],
            start_new_session=True,
            cwd=code,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        theirs.close()

    @property
    def pid(self) -> int:
        """The process; its group has the same number."""
        return self._process.pid

    def receive(self) -> dict[str, float]:
        """Return its next answer; the first tells that it has imported what it needs.

        Raises:
            ContestantFailed: It ended, or did not answer in time.
        """
        why = "ended"
        with contextlib.suppress(EOFError, OSError):
            if self._pipe.poll(self.timeout_s):
                figures: dict[str, float] = self._pipe.recv()
                return figures
            why = f"no answer in {self.timeout_s:g} s"
            os.killpg(self.pid, signal.SIGKILL)
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        raise ContestantFailed("\n".join([f"{self.name}: {why}", *lines[-12:]]))

    def ask(self, what: str) -> dict[str, float]:
        """Send the order to "open" a loader, to take a "turn", or to measure "first" batches.

        Raises:
            ContestantFailed: As in `receive`.
        """
        with contextlib.suppress(OSError):
            self._pipe.send(what)
        return self.receive()

    def leave(self) -> None:
        """Ask it to end, without waiting; `close` comes after. May be called again."""
        self._pipe.close()

    def close(self) -> None:
        """End the process and all it started, at once if it hangs. May be called again."""
        self.leave()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=15)
        # Also its workers, if any are left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._words.close()
