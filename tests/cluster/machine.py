"""Other machines, simulated on this one: each has a network, processes and folders of its own.

Imports the standard library, and pytest to skip where the system refuses namespaces, which takes
root. A machine belongs to the context that starts it; its processes are killed with it at once, as
by a lost supply of power.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Machine", "Network", "machine", "network"]

_BEGIN = """
set -e
mount --make-rprivate /
for folder in /dev/shm /tmp/ray; do mkdir -p "$folder"; mount -t tmpfs tmpfs "$folder"; done
while [ "$#" -gt 0 ]; do mkdir -p "$1" "$2"; mount --bind "$2" "$1"; shift 2; done
"""
# the shell stays: it waits for orphans, as the first process of a machine does
_RAY = '"$PYTHON" -W ignore -m ray.scripts.scripts start --block --address="$HEAD"'
_OPTIONS = (
    ' --node-ip-address="$IP" --num-cpus=2 --object-store-memory=200000000'
    ' --resources="$RESOURCES" --disable-usage-stats & wait $!'
)


@dataclass(frozen=True)
class Network:
    """A network of this machine and others: a bridge of the kernel's."""

    name: str
    prefix: str

    def address(self, number: int) -> str:
        """Return the address of a machine; 1: of this one."""
        return f"{self.prefix}.{number}"


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Make a network; skip the test where that is refused."""
    if os.getuid() or not all(map(shutil.which, ("ip", "nsenter", "unshare"))):
        pytest.skip("other machines take root, ip(8), nsenter(1) and unshare(1)")
    number = random.SystemRandom().randrange(1 << 14)
    made = Network(f"rd{number:x}", f"10.{64 + (number >> 8)}.{number & 255}")
    try:
        _ip("link", "add", made.name, "type", "bridge")
        _ip("addr", "add", f"{made.address(1)}/24", "dev", made.name)
        _ip("link", "set", made.name, "up")
    except subprocess.CalledProcessError as error:
        _ip("link", "delete", made.name, check=False)
        pytest.skip(f"a network is refused: {error.stderr.strip()}")
    try:
        yield made
    finally:
        _ip("link", "delete", made.name, check=False)


@contextlib.contextmanager
def _joined(net: Network, number: int) -> Iterator[str]:
    """Make a namespace that is in a network; yields its name."""
    name = f"{net.name}-{number}"
    _ip("netns", "add", name)
    try:
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", name, "master", net.name, "up")
        _ip("-n", name, "addr", "add", f"{net.address(number)}/24", "dev", "eth0")
        for each in ("eth0", "lo"):
            _ip("-n", name, "link", "set", each, "up")
        yield name
    finally:
        _ip("link", "delete", name, check=False)
        _ip("netns", "delete", name, check=False)


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


@dataclass
class Machine:
    """A machine that is a node of a cluster."""

    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Its first process, as seen from here."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0])

    def run(self, code: str, *arguments: str) -> str:
        """Run a program there; returns what it prints."""
        enters = ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-i"]
        words = [*enters, sys.executable, "-W", "ignore", "-c", code, *arguments]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def processes(self) -> list[str]:
        """Return the command lines of its processes."""
        found = []
        own = os.readlink(f"/proc/{self.pid}/ns/pid")
        for each in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if each.name.isdecimal() and os.readlink(each / "ns/pid") == own:
                    words = (each / "cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(words.decode(errors="replace"))
        return found

    def kill(self) -> None:
        """End it at once, with all that runs on it."""
        with contextlib.suppress(OSError, IndexError):
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def machine(
    name: str, net: Network, number: int, head: str, log: Path, own: Mapping[Path, Path]
) -> Iterator[Machine]:
    """Run a node of a cluster of Ray on another machine.

    Args:
        name: of the machine, and of a resource that it has.
        net: that it is in.
        number: of its address there, from 2.
        head: the cluster's address.
        log: the file to which it writes what it says.
        own: folders that are its own, and the folders of this machine in which they lie: these
            outlive it, as a disk does.
    """
    folders = [str(each) for pair in own.items() for each in pair]
    env = {**os.environ, "PYTHON": sys.executable, "HEAD": head, "IP": net.address(number)}
    env["RESOURCES"] = json.dumps({name: 4})
    with _joined(net, number) as space, log.open("ab") as out:
        words = ["ip", "netns", "exec", space, "unshare", "--mount", "--pid", "--ipc", "--uts"]
        words += ["--fork", "--kill-child", "--mount-proc"]
        words += ["sh", "-c", f"{_BEGIN}hostname {name}\n{_RAY}{_OPTIONS}", "sh", *folders]
        quiet: Any = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
        made = Machine(subprocess.Popen(words, env=env, **quiet))
        try:
            yield made
        finally:
            made.kill()
