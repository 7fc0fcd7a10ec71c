"""Workers that write where they must not: no crash, no hang, no wrong batch.

Each case is a forked program with one to three workers whose dataset overwrites shared memory: at
random, or aimed at header, rings, slot records or slots.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import random
import select
import signal
import threading
from typing import Any

import hypothesis
import numpy as np

import reader
from reader.errors import ArenaFull, WorkerDied
from tests.fuzz.cases import Draws, try_cases
from tests.fuzz.scribbler import TARGETS, Scribbler

BATCHES = 40
BATCH_SIZE = 4
SLOW_S = 0.004  # a sample, so that batches are shared; see share.h
HOWS = ("once", "always", "beside")  # beside: a thread goes on while batches are made
LIMIT_S = 30.0  # after which a case counts as a hang
WRONG, CLEAN, WITH_ERRORS = 3, 0, 4
NAMES = {CLEAN: "all batches", WITH_ERRORS: "errors in their places"}


class Overwriting:
    """A dataset whose samples overwrite the arena now and then."""

    def __init__(self, draws: Draws) -> None:
        self.seed = draws.randint(0, 1 << 32)
        self.target = draws.choice(TARGETS)
        self.how = draws.choice(HOWS)
        self.words = draws.choice((1, 1, 4, 32))
        self.when = draws.randint(0, BATCHES * BATCH_SIZE // 2 - 1)
        self.done = -1  # a file with a byte for each place that was overwritten

    def __len__(self) -> int:
        return BATCHES * BATCH_SIZE

    def __getitem__(self, index: int) -> tuple[Any, str | int]:
        if index == self.when and (self.how == "always" or not os.fstat(self.done).st_size):
            faulthandler.disable()  # of the test's run: the worker may well crash
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
    """Return the texts of a batch, which are no sample bytes: they identify the batch."""
    return [f"sample {number * BATCH_SIZE + row}" for row in range(BATCH_SIZE)]


def run_case(data: Overwriting, workers: int) -> tuple[int, str]:
    """Run a case in this process; return its outcome, and a description."""
    errors: list[str] = []
    number = 0
    loader = reader.DataLoader(data, batch_size=BATCH_SIZE, num_workers=workers, prefetch_factor=2)
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


def fork_case(data: Overwriting, workers: int) -> tuple[str, str]:
    """Run a case in a forked program; return its outcome, and its output."""
    told, tell = os.pipe()
    data.done = os.memfd_create("fuzz-done")
    pid = os.fork()
    if pid == 0:
        status = WRONG
        with contextlib.suppress(BaseException):
            os.close(told)
            faulthandler.disable()
            logging.getLogger("reader").setLevel(logging.CRITICAL)
            try:
                status, text = run_case(data, workers)
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            os.write(tell, text.encode()[:4000])
        os._exit(status)
    os.close(tell)
    os.close(data.done)
    fd = os.pidfd_open(pid)
    has_ended = bool(select.select([fd], [], [], LIMIT_S)[0])
    if not has_ended:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    os.set_blocking(told, False)
    text = ""
    with contextlib.suppress(BlockingIOError):
        text = os.read(told, 4000).decode()
    os.close(told)
    if not has_ended:
        return "hang", text
    code = os.waitstatus_to_exitcode(status)
    crashed = "" if code >= 0 else f"crash: {signal.Signals(-code).name}"
    return crashed or NAMES.get(code, f"wrong, exit {code}"), text


def records_case(draws: Draws) -> str:
    """Run one case in a forked program; return its outcome."""
    data = Overwriting(draws)
    hypothesis.note(f"{data.target}, {data.how}, {data.words} words from sample {data.when} on")
    outcome, text = fork_case(data, draws.choice((1, 2, 3)))
    assert outcome in NAMES.values(), f"{outcome}: {text}"
    return outcome


def test_overwritten_arena_neither_crashes_nor_hangs_the_trainer() -> None:
    assert try_cases(records_case, 12).keys() <= set(NAMES.values())
