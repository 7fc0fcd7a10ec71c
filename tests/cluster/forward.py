"""Offers a port of loopback to a network, and counts the bytes that go to each address there.

Imports the standard library. It runs as a process of its own, which ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Forward", "forwarded"]

_ROOT = Path(__file__).parents[2]


@dataclass
class Forward:
    """A port that is offered. `url`: of it."""

    url: str
    process: subprocess.Popen[str]

    def counted(self) -> dict[str, int]:
        """Return how many bytes went to each address since the last call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, int] = json.loads(self.process.stdout.readline())
        return found


@contextlib.contextmanager
def forwarded(address: str, port: int) -> Iterator[Forward]:
    """Offer a port of 127.0.0.1 at another address of this machine."""
    words = [sys.executable, "-m", "tests.cluster.forward", address, str(port)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, cwd=_ROOT, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdin is not None
        assert process.stdout is not None
        yield Forward(f"http://{address}:{process.stdout.readline().strip()}", process)
        process.stdin.close()
        process.stdout.read()


async def _main(address: str, port: int) -> None:
    sent: Counter[str] = Counter()

    async def passed(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str = ""
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if peer:
                    sent[peer] += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")[0]
        theirs, to_theirs = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(passed(reader, to_theirs), passed(theirs, writer, peer))

    server = await asyncio.start_server(serve, address, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(sent), flush=True)
        sent.clear()


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
