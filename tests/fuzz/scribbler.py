"""A worker that writes where it must not: it overwrites words of the shared memory.

Imports the standard library; a `Scribbler` owns nothing, and belongs into a process that may end.
"""

from __future__ import annotations

import ctypes
import random
import struct
from pathlib import Path

TARGETS = ("header", "heaps", "tasks", "results", "slots", "bytes", "shares", "anywhere")


def arena_at() -> tuple[int, int]:
    """Return where this process has mapped the arena, and its size."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "memfd:reader-arena" in line:
            start, end = line.split()[0].split("-")
            return int(start, 16), int(end, 16) - int(start, 16)
    raise RuntimeError("no arena is mapped here")


class Scribbler:
    """Overwrites words of the arena.

    Args:
        rng: chooses where and what.
        target: one of TARGETS.
    """

    def __init__(self, rng: random.Random, target: str) -> None:
        self.base, self.size = arena_at()
        self.rng = rng
        self.target = target
        self.page = 4096
        self.heaps = self._word(8) & 0xFFFFFFFF  # offsets: see layout.h
        heap = self.page
        task, results, slots = (self._word(heap + at) for at in (448, 456, 464))
        self.areas = self.page * (1 + self.heaps)
        self.task_ring = self._paged(task)
        self.result_ring = self._paged(results * 64)
        self.area = self.task_ring + self.result_ring + self._paged(slots * 64)
        self.data = self.areas + self.heaps * self.area

    def _paged(self, nbytes: int) -> int:
        return -(-nbytes // self.page) * self.page

    def _word(self, at: int) -> int:
        return int(struct.unpack("<Q", ctypes.string_at(self.base + at, 8))[0])

    def _place(self) -> int:
        """Return an offset that the target has in use."""
        rng, target = self.rng, self.target
        if target == "anywhere":
            target = rng.choice(TARGETS[:-1])
        if target == "header":
            return rng.choice((0, 8, 16, 24, 32, 64, 72, 128, 132, 192, 256, 260, 264))
        heap = rng.randrange(self.heaps)
        if target == "heaps":
            return self.page * (1 + heap) + rng.randrange(0, 496, 4)
        if target == "shares":
            return self.page * (1 + heap) + 1024 + rng.randrange(0, 160, 4)
        area = self.areas + heap * self.area
        if target == "tasks":
            return area + rng.randrange(0, 8192, 4)
        if target == "results":
            return area + self.task_ring + rng.randrange(0, 4096, 4)
        if target == "slots":
            return area + self.task_ring + self.result_ring + rng.randrange(0, 12 * 64, 4)
        return self.data + rng.randrange(0, 1 << 19)

    def scribble(self) -> None:
        """Overwrite one place."""
        rng, at = self.rng, self._place()
        kind = rng.randrange(6)
        if kind == 0:
            new = rng.randbytes(8)
        elif kind == 1:
            new = struct.pack("<Q", rng.choice((0, 1, 64, 4096, self.data, self.size - 4096)))
        elif kind == 2:  # one bit
            flipped = self._word(at) ^ 1 << rng.randrange(64)
            new = struct.pack("<Q", flipped)
        elif kind == 3:  # a little more or less
            near = self._word(at) + rng.choice((-64, -1, 1, 64, 4096))
            new = struct.pack("<Q", near % (1 << 64))
        elif kind == 4:  # a word of another place
            new = ctypes.string_at(self.base + self._place(), 8)
        else:
            new = rng.randbytes(rng.randrange(1, 200))
        ctypes.memmove(self.base + at, new, len(new))
