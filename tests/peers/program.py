"""Small programs beside the test: run with a peer's loader, or with one import changed, in a limit.

Imports the standard library and pytest. A `Nursery` owns the process that forks programs and ends
it; a program that hangs is killed with everything it started, and nothing of it outlives `run`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 40.0  # of a program that is expected to end
HANG_S = 6.0  # of one that is expected not to
AT_ONCE = 3


@dataclass(frozen=True)
class Peer:
    """A project whose loader ours takes the place of.

    `module`: what programs import of it. `ours`: what stands there instead. `imports`: where in a
    program. `loaded`: what the process imports that forks the programs, to save its time.
    `distributions`: what is installed of it, whose versions its behaviour goes by.
    """

    module: str
    ours: str
    imports: str
    loaded: tuple[str, ...]
    distributions: tuple[str, ...]


PADDLE_IO = Peer(
    "paddle.io",
    "reader.compat.paddle",
    r"\bpaddle\.(?:io|base\.reader)\b",
    ("paddle.io",),
    ("paddlepaddle",),
)
TORCH_DATA = Peer(
    "torch.utils.data",
    "reader.compat.torch",
    r"(?<=from )(?:torch\.utils\.data|torchdata\.stateful_dataloader)(?= import)",
    ("torch.utils.data", "torchdata.stateful_dataloader"),
    ("torch", "torchdata"),
)
PADDLE = PADDLE_IO.module
OURS = PADDLE_IO.ours


@dataclass(frozen=True)
class Story:
    """A program's text, written for a peer, and how it is run.

    `acts`: what the test does to the process when the program prints a line that begins with the
    key. `attempts`: how often the peer's side of a comparison is run when it fails: Paddle's
    workers crash, or hang, now and then.
    """

    text: str
    limit_s: float = LIMIT_S
    args: tuple[str, ...] = ()
    attempts: int = 1
    acts: dict[str, Callable[[int], None]] = field(default_factory=dict, compare=False, hash=False)
    peer: Peer = PADDLE_IO


def demonstration(test: Any) -> Any:
    """Mark a test that shows a defect of a peer's, with that peer: evidence, not a test of ours."""
    return pytest.mark.evidence(pytest.mark.demonstration(test))


def demonstrated_by(story: Story, hang_s: float | None = None) -> Callable[[Any], Any]:
    """Mark a test: its fixture `verdict` is what became of the story with its peer.

    `hang_s`: to show a hang, how long to watch it.
    """
    limit_s = story.limit_s if hang_s is None else hang_s
    return lambda test: demonstration(pytest.mark.tells(story, limit_s)(test))


def proved_by(story: Story) -> Callable[[Any], Any]:
    """Mark a test: its fixture `verdict` is what became of the story with one import changed."""
    return lambda test: pytest.mark.tells(story, story.limit_s)(test)


def compares(story: Story) -> Callable[[Any], Any]:
    """Mark a test: its fixture `both` is (the peer's verdict, ours) of the same program.

    The peer's is the recorded one (tests/peers/record.py), unless `--peers run` is asked for.
    """
    return lambda test: pytest.mark.compares(story)(test)


@dataclass(frozen=True)
class Verdict:
    """The result of a program."""

    exit_code: int | None  # negative: a signal's number; None: it was killed at its limit
    lines: list[str]
    stderr: str
    left: list[int]  # processes of its own that lived a second after its end
    wall_s: float

    @property
    def is_hung(self) -> bool:
        return self.exit_code is None

    @property
    def result(self) -> Any:
        """The last line it printed, which is JSON. Fails with all it said where there is none."""
        assert self.exit_code == 0, self.story()
        assert self.lines, self.story()
        return json.loads(self.lines[-1])

    def story(self) -> str:
        """All of it, for the text of a failing assert."""
        code = "hung" if self.is_hung else f"exit {self.exit_code}"
        said = "\n".join(self.lines[-20:])
        return f"{code} after {self.wall_s:.1f} s, left {self.left}\n{said}\n{self.stderr[-4000:]}"


def switched(text: str, module: str, peer: Peer = PADDLE_IO) -> str:
    """Return the program with its import changed, and nothing else."""
    text = textwrap.dedent(text)
    return text if module == peer.module else re.sub(peer.imports, module, text)


class Nursery:
    """Runs programs of one peer; `run` may be called from several threads."""

    def __init__(self, folder: Path, peer: Peer = PADDLE_IO) -> None:
        self._folder = folder
        self._socket = str(folder / "nursery")
        self._count = 0
        self._begun = time.time()
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.peers.nursery", self._socket, *peer.loaded],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def close(self) -> None:
        """End the process, and remove what paddle.io's killed programs left in /dev/shm."""
        self._process.communicate()
        for path in Path("/dev/shm").glob("paddle_*_*_*"):
            with contextlib.suppress(OSError):
                is_dead = not Path("/proc", path.name.split("_")[1]).exists()
                if is_dead and path.stat().st_mtime >= self._begun:
                    path.unlink()

    def run(self, story: Story, module: str, limit_s: float = LIMIT_S) -> Verdict:
        """Run the program with `module` in the place of the peer's."""
        for _ in range(story.attempts - 1 if module == story.peer.module else 0):
            verdict = self._run(story, module, limit_s)
            if verdict.exit_code == 0:
                return verdict
        return self._run(story, module, limit_s)

    def _run(self, story: Story, module: str, limit_s: float) -> Verdict:
        with self._lock:
            self._count += 1
            folder = self._folder / f"program{self._count}"
        folder.mkdir()
        path = folder / "program.py"
        path.write_text(switched(story.text, module, story.peer), encoding="utf-8")
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(self._socket)
            out, out_end = os.pipe()
            err, err_end = os.pipe()
            request = json.dumps({"path": str(path), "args": story.args}).encode()
            socket.send_fds(connection, [request], [out_end, err_end])
            os.close(out_end)
            os.close(err_end)
            for fd in (out, err):
                stack.callback(os.close, fd)
                os.set_blocking(fd, False)
            pid = int(_line(connection))
            return _watch(pid, connection, out, err, story.acts, limit_s)

    def run_all(
        self, wanted: Iterable[tuple[Story, str, float]], at_once: int = AT_ONCE
    ) -> dict[tuple[Story, str], Verdict]:
        """Run many side by side: (story, module, limit in seconds) each."""
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            running = {
                (story, module): pool.submit(self.run, story, module, limit_s)
                for story, module, limit_s in dict.fromkeys(wanted)
            }
            return {key: future.result() for key, future in running.items()}


def environment(**more: str) -> dict[str, str]:
    """The os.environ of programs: one thread of linear algebra each, and our checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def run_command(command: list[str], limit_s: float = LIMIT_S, **environ: str) -> Verdict:
    """Run a command in a process group of its own; for what a nursery cannot fork."""
    begun = time.monotonic()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**environ),
        start_new_session=True,
        text=True,
    )
    code: int | None
    try:
        out, err = process.communicate(timeout=limit_s)
        code = process.returncode
    except subprocess.TimeoutExpired:
        _kill_group(process.pid)
        out, err = process.communicate()
        code = None
    left = _members(process.pid)
    _kill_group(process.pid)
    return Verdict(code, out.splitlines(), err, left, time.monotonic() - begun)


def _watch(
    pid: int,
    connection: socket.socket,
    out: int,
    err: int,
    acts: dict[str, Callable[[int], None]],
    limit_s: float,
) -> Verdict:
    """Read a program's output until it ends or the limit is reached; then kill its leftovers."""
    begun = time.monotonic()
    said = {out: b"", err: b""}
    acted = 0
    code: int | None = None
    watched = [out, err, connection.fileno()]
    while connection.fileno() in watched:
        left_s = begun + limit_s - time.monotonic()
        ready, _, _ = select.select(watched, [], [], max(left_s, 0))
        if not ready:
            break
        for fd in ready:
            if fd == connection.fileno():
                code = os.waitstatus_to_exitcode(int(_line(connection)))
                watched.remove(fd)
            elif not _read(fd, said):
                watched.remove(fd)
        lines = said[out].decode(errors="replace").split("\n")[:-1]
        for line in lines[acted:]:
            for key, act in acts.items():
                if line.startswith(key):
                    act(pid)
        acted = len(lines)
    while _read(out, said) or _read(err, said):
        pass
    left = _wait_members(pid, 0.0 if code is None else 1.0)
    _kill_group(pid)
    if code is None:
        _line(connection)
    return Verdict(
        code,
        said[out].decode(errors="replace").splitlines(),
        said[err].decode(errors="replace"),
        [other for other in left if other != pid],
        time.monotonic() - begun,
    )


def _read(fd: int, said: dict[int, bytes]) -> bool:
    """Read the available output; False if there is none, or all ends are closed."""
    try:
        data = os.read(fd, 1 << 16)
    except BlockingIOError:
        return False
    said[fd] += data
    return bool(data)


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        more = connection.recv(1)
        assert more, "the nursery is gone"
        data += more
    return data


def _members(pid: int) -> list[int]:
    """The living processes of a program: those whose group it leads."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{entry}/stat").read_text(errors="replace")
                fields = stat.rpartition(")")[2].split()
                if int(fields[3]) == pid and fields[0] != "Z":
                    found.append(int(entry))
    return found


def _wait_members(pid: int, grace_s: float) -> list[int]:
    """Wait until no process of a program lives, at most `grace_s`; return those that do."""
    never = threading.Event()
    deadline = time.monotonic() + grace_s
    while (left := _members(pid)) and time.monotonic() < deadline:
        never.wait(0.02)
    return left


def _kill_group(pid: int) -> None:
    """End everything a program started, and wait until it has ended."""
    never = threading.Event()
    deadline = time.monotonic() + 10.0
    while members := _members(pid):
        assert time.monotonic() < deadline, f"{members} cannot be killed"
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        never.wait(0.01)
