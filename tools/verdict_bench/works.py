"""The work of the programs: computing with the GIL, or without it, or waiting.

Imports the standard library and NumPy. Computing is measured by the thread's own clock: it costs
the same on a busy machine, and takes longer there.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FileSamples", "Samples", "compute", "hold_gil", "pictures", "rest", "slow_link"]

_BLOCK = bytes(1 << 16)
_never = threading.Event()


def rest(seconds: float) -> None:
    """Wait, as for a disk or a device."""
    if seconds > 0:
        _never.wait(seconds)


def compute(seconds: float) -> None:
    """Compute for so long without the GIL."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        hashlib.sha256(_BLOCK).digest()


def hold_gil(seconds: float) -> None:
    """Compute for so long in Python."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Samples:
    """A dataset whose samples take time.

    Args:
        count: of samples.
        work: called for each with `seconds`.
        seconds: for `work`.
        slow: samples that take as long, by index.
        slow_work: called for these.
        slow_worker: a worker whose samples take ten times as long.
    """

    def __init__(
        self,
        count: int,
        work: Any = rest,
        seconds: float = 0.0,
        slow: dict[int, float] | None = None,
        slow_worker: int | None = None,
        slow_work: Any = rest,
    ) -> None:
        self.count = count
        self.work = work
        self.seconds = seconds
        self.slow = slow or {}
        self.slow_worker = slow_worker
        self.slow_work = slow_work

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> npt.NDArray[np.float32]:
        seconds = self.seconds
        if self.slow_worker is not None and _worker_id() == self.slow_worker:
            seconds *= 10
        if seconds:
            self.work(seconds)
        if index in self.slow:
            self.slow_work(self.slow[index])
        return np.full(16, index, np.float32)


def _worker_id() -> int | None:
    """Return the number of the calling worker, of any library; None: not in a worker."""
    import reader

    found: Any = reader.get_worker_info()
    if found is None and "torch" in sys.modules:
        from torch.utils.data import get_worker_info

        found = get_worker_info()
    if found is not None:
        return int(found.id)
    number = threading.current_thread().name.rpartition("_")[2]  # as executors name threads
    return int(number) if number.isdecimal() else None


class _Pictures(Samples):
    """JPEGs in memory, decoded by Pillow; `kept`: decoded once, before the loop."""

    def __init__(self, count: int, kept: bool) -> None:
        super().__init__(count)
        self.encoded = _jpeg()
        self.decoded = _decode(self.encoded) if kept else None

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        if self.decoded is not None:
            return self.decoded[:8, :8]
        return _decode(self.encoded)[:8, :8]


class FileSamples(Samples):
    """Parts of a file that is mapped into memory, read in an order without locality.

    Args:
        count: of samples.
        nbytes: of the file.
    """

    def __init__(self, count: int, nbytes: int) -> None:
        super().__init__(count)
        self.nbytes = nbytes
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            file.truncate(nbytes)
            self.mapped = np.memmap(file.name, np.uint8, "r+", shape=(nbytes,))
        self.mapped[::4096] = 1
        self.mapped.flush()

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        pages = np.random.default_rng(index).integers(0, self.nbytes >> 12, 10)
        return np.asarray(self.mapped[pages << 12], np.float32)


def pictures(count: int, kept: bool = False) -> Samples:
    """Return a dataset of pictures."""
    return _Pictures(count, kept)


def _decode(encoded: bytes) -> npt.NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))


@functools.cache
def _jpeg() -> bytes:
    from PIL import Image

    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 255, (48, 48, 3), np.uint8))
    file = io.BytesIO()
    small.resize((640, 640)).save(file, "JPEG", quality=90)
    return file.getvalue()


def slow_link(folder: str) -> str:
    """Return the address at which this process gives the files of a folder, 12 MB a second.

    It ends with the process.
    """
    handler = functools.partial(_Link, Path(folder), threading.Lock())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


class _Link(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, folder: Path, turn: threading.Lock, *arguments: Any) -> None:
        self.folder, self.turn = folder, turn
        super().__init__(*arguments)

    def do_GET(self) -> None:
        content = (self.folder / self.path[1:]).read_bytes()
        said = self.headers.get("Range")
        first, last = map(int, re.findall(r"\d+", said)) if said else (0, len(content) - 1)
        part = content[first : last + 1]
        self.send_response(206 if said else 200)
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Last-Modified", "Sat, 28 Nov 2026 00:00:00 GMT")
        self.end_headers()
        for at in range(0, len(part) if self.command == "GET" else 0, 50_000):
            with self.turn:  # all requests share the link
                rest(0.004)
            self.wfile.write(part[at : at + 50_000])

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
