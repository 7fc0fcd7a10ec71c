"""Workers that write where they must not, case by case: no crash, no hang, no wrong batch.

Imports reader. Each case is a forked program with two or three workers whose dataset overwrites
shared memory: at random, or aimed at header, rings, slot records or slots. Run as
``python -m tools.fuzz_records --count N --seed S``; case K alone: ``--count 1 --seed K``.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import logging
import os
import random
import select
import signal
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import reader
from reader.errors import ArenaFull, WorkerDied

__all__ = ["Scribbler", "main", "run_case"]

BATCHES = 40
BATCH_SIZE = 4
TARGETS = ("header", "heaps", "tasks", "results", "slots", "bytes", "shares", "anywhere")
SLOW_S = 0.004  # a sample, so that batches are shared; see share.h
HOWS = ("once", "always", "beside")  # beside: a thread goes on while batches are made
PLACES = "places overwritten"
WRONG, CLEAN, WITH_ERRORS = 3, 0, 4


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
        rng: says where and what.
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


class Overwriting:
    """A dataset whose samples overwrite the arena now and then."""

    def __init__(self, seed: int, done: int) -> None:
        rng = random.Random(seed)
        self.seed = seed
        self.done = done  # a file with a byte for each place that was overwritten
        self.target = rng.choice(TARGETS)
        self.how = rng.choice(HOWS)
        self.words = rng.choice((1, 1, 4, 32))
        self.when = rng.randrange(BATCHES * BATCH_SIZE // 2)

    def __len__(self) -> int:
        return BATCHES * BATCH_SIZE

    def __getitem__(self, index: int) -> tuple[Any, str | int]:
        if index == self.when and (self.how == "always" or not os.fstat(self.done).st_size):
            scribbler = Scribbler(random.Random(self.seed), self.target)
            if self.how == "beside":
                threading.Thread(target=self._go_on, args=(scribbler,), daemon=True).start()
            for _ in range(self.words):
                self._scribble(scribbler)
        if self.target == "shares":
            threading.Event().wait(SLOW_S)
            return np.full(16, index), index  # batches with text are not shared
        return np.full(16, index), f"sample {index}"

    def _go_on(self, scribbler: Scribbler) -> None:
        pause = threading.Event()
        for _ in range(200):
            self._scribble(scribbler)
            pause.wait(0.0005)

    def _scribble(self, scribbler: Scribbler) -> None:
        os.write(self.done, b"1")  # forked processes share the file's position
        scribbler.scribble()


def expected(number: int) -> list[str]:
    """Return the texts of a batch, which are no sample bytes: they tell which batch it is."""
    return [f"sample {number * BATCH_SIZE + row}" for row in range(BATCH_SIZE)]


def run_case(seed: int, done: int) -> tuple[int, str]:
    """Run a case in this process; return what came of it, and in words. `done`: see Overwriting."""
    rng = random.Random(seed ^ 0x5EED)
    data = Overwriting(seed, done)
    errors: list[str] = []
    number = 0
    loader = reader.DataLoader(
        data, batch_size=BATCH_SIZE, num_workers=rng.choice((1, 2, 3)), prefetch_factor=2
    )
    iterator = iter(loader)
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            break
        except (WorkerDied, ArenaFull) as error:
            errors.append(f"{number}: {type(error).__name__}")
            number += 1
            continue
        except Exception as error:
            return WRONG, f"{number}: {type(error).__name__}: {error}"
        values, texts = batch
        if data.target == "shares":
            texts = expected(number)  # and numbers are sample bytes, which may be overwritten
        while errors and list(texts) != expected(number) and number < BATCHES:
            number += 1  # errors that stand for the end of an epoch have no place of their own
        if list(texts) != expected(number):
            return WRONG, f"{number}: {list(texts)}"
        if values.shape != (BATCH_SIZE, 16) or values.dtype != np.int64:
            return WRONG, f"{number}: {values.dtype}{values.shape}"
        int(values.sum())
        number += 1
    if number != BATCHES and not errors:
        return WRONG, f"the epoch ended after {number} batches"
    loader.close()
    return (WITH_ERRORS if errors else CLEAN), ", ".join(errors)


def fork_case(seed: int, limit_s: float) -> tuple[str, str, int]:
    """Run a case in a forked program.

    Returns its outcome, what it said, and how many places were overwritten.
    """
    told, tell = os.pipe()
    done = os.memfd_create("fuzz-done")
    pid = os.fork()
    if pid == 0:
        status = WRONG
        with contextlib.suppress(BaseException):
            os.close(told)
            faulthandler.disable()
            logging.getLogger("reader").setLevel(logging.CRITICAL)
            try:
                status, text = run_case(seed, done)
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            os.write(tell, text.encode()[:4000])
        os._exit(status)
    os.close(tell)
    fd = os.pidfd_open(pid)
    has_ended = bool(select.select([fd], [], [], limit_s)[0])
    if not has_ended:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    os.set_blocking(told, False)
    text = ""
    with contextlib.suppress(BlockingIOError):
        text = os.read(told, 4000).decode()
    os.close(told)
    places = os.fstat(done).st_size
    os.close(done)
    if not has_ended:
        return "hang", text, places
    code = os.waitstatus_to_exitcode(status)
    names = {CLEAN: "all batches", WITH_ERRORS: "errors in their places", WRONG: "wrong"}
    crashed = "" if code >= 0 else f"crash: {signal.Signals(-code).name}"
    return crashed or names.get(code, f"exit {code}"), text, places


def run_cases(seeds: Iterator[int] | range, limit_s: float) -> tuple[Counter[str], list[str]]:
    """Run cases; return how often each outcome came, and a line for each that may not be."""
    counts: Counter[str] = Counter()
    bad = []
    for seed in seeds:
        outcome, text, places = fork_case(seed, limit_s)
        counts[outcome] += 1
        counts[PLACES] += places
        if outcome not in ("all batches", "errors in their places"):
            data = Overwriting(seed, -1)
            bad.append(f"seed {seed} ({data.target}, {data.how}, {data.words}): {outcome}: {text}")
    return counts, bad


def main(arguments: list[str]) -> int:
    """Run the cases and print what came of them."""
    parser = argparse.ArgumentParser(description="Fuzz what crosses from workers to the trainer.")
    parser.add_argument("--count", type=int, default=100, help="how many cases")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first case; the next is one more"
    )
    parser.add_argument(
        "--limit", type=float, default=30.0, help="seconds before a case counts as a hang"
    )
    given = parser.parse_args(arguments)
    began = time.monotonic()
    counts: Counter[str] = Counter()
    failed = 0
    for seed in range(given.seed, given.seed + given.count):
        more, bad = run_cases(range(seed, seed + 1), given.limit)
        counts += more
        failed += len(bad)
        for line in bad:
            print(line, flush=True)
    places = counts.pop(PLACES, 0)
    told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(
        f"{given.count} cases from seed {given.seed} in {time.monotonic() - began:.0f} s,"
        f" {places} places overwritten: {told}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
