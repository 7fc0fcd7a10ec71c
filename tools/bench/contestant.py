"""The process of one contestant of one row: opens its loader, then takes turns when told to.

Started by `child` as ``python -m tools.bench.contestant TABLE ROW NAME SECONDS PIPE``, in the
folder whose `reader` is measured. It is blocked between what it is told over the pipe, owns the
loader it opened, and ends with the pipe.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tools.bench.loaders import Program, loader_maker, open_loader, open_stateful
from tools.bench.meter import descendants, run_epoch, time_first
from tools.bench.rows import DECODE, OURS, TABLES, Contestant, Row
from tools.bench.works import Work

SHORT = 4  # batches of the epochs that are opened for their first batch
LATER_S = 0.05  # how long to repeat such an epoch
TAKEN = 3  # batches of an epoch before it is left
LEAST_EPOCHS = 5  # of a turn of short epochs
ENDLESS = 100_000  # batches of an epoch that is never read to its end

# The measurements by the name of their order; each returns figures by name.
Turns = dict[str, Callable[[], dict[str, float]]]


def epoch_length(work: Work, us: float, seconds: float) -> int:
    """Return how many batches of `us` microseconds fill `seconds`, within the work's limits."""
    return min(max(int(seconds * 1e6 / us), work.shortest), work.longest)


def microseconds(act: Callable[[], Any]) -> float:
    """Return how long `act` takes."""
    start = time.perf_counter_ns()
    act()
    return (time.perf_counter_ns() - start) / 1e3


def epoch_turns(row: Row, contestant: Contestant, seconds: float, stack: ExitStack) -> Turns:
    """Measure epochs of a loader that persists, and first batches of new loaders."""
    work, workers = row.work, max(row.options["num_workers"], 1)
    opener = Program(row).open if row.kind == "feed" else open_loader
    dataset = work.dataset(work.shortest * row.step_size)
    short = dataset.resized(SHORT * row.step_size)

    def epoch(opened: Any, batches: int) -> dict[str, float]:
        return run_epoch(opened, batches, row.in_flight)

    def opened_on(samples: Any) -> Any:
        return opener(row, contestant, samples)

    brief = opened_on(dataset)
    # The first epoch finds everything cold.
    us = min(epoch(brief, work.shortest)["us"] for _ in range(2))
    brief.close()
    # As many batches from each worker: Grain's take their samples in turns.
    batches = epoch_length(work, us, seconds) // workers * workers
    lasting = opened_on(dataset.resized(batches * row.step_size))
    stack.callback(lasting.close)
    epoch(lasting, batches)

    def first() -> dict[str, float]:
        """Return ``fresh_us``, opening included, and ``first_us`` of later epochs."""
        start = time.perf_counter_ns()
        opened = opened_on(short)
        opening_us = (time.perf_counter_ns() - start) / 1e3
        # Some start their workers when made, others when first iterated.
        fresh_us = opening_us + time_first(opened)
        later: list[float] = []
        start = time.perf_counter_ns()
        while not later or time.perf_counter_ns() - start < LATER_S * 1e9:
            later.append(time_first(opened))
        opened.close()
        return {"fresh_us": fresh_us, "first_us": statistics.median(later)}

    return {"turn": lambda: epoch(lasting, batches), "first": first}


def fetch(dataset: Any, batch_size: int, numbers: range) -> None:
    """Fetch the samples of the batches `numbers`, and yield none of them."""
    for number in numbers:
        for index in range(number * batch_size, (number + 1) * batch_size):
            dataset[index]


def decode_turns(row: Row, seconds: float, stack: ExitStack) -> Turns:
    """Measure what remains of a loader when transport, order and collation cost nothing."""
    work, count = row.work, row.options["num_workers"]
    dataset = work.dataset(1)
    pool = stack.enter_context(get_context("fork").Pool(count))

    def us(batches: int) -> float:
        shares = [range(worker_id, batches, count) for worker_id in range(count)]
        tasks = [(dataset, work.batch_size, share) for share in shares]
        return microseconds(lambda: pool.starmap(fetch, tasks, chunksize=1)) / batches

    batches = epoch_length(work, us(work.shortest), seconds) // count * count
    return {"turn": lambda: {"us": us(batches)}}


def break_turns(row: Row, contestant: Contestant, stack: ExitStack) -> Turns:
    """Measure from leaving an epoch early to the first batch of the next."""
    opened = open_loader(row, contestant, row.work.dataset(ENDLESS * row.work.batch_size))
    stack.callback(opened.close)
    # Only this list refers to the iterator and its latest batch: clearing it is a break.
    held: list[Any] = []

    def begin() -> None:
        held.clear()
        held.append(iter(opened))
        held.append(next(held[0]))

    begin()
    stack.callback(held.clear)
    running = [len(descendants())]

    def turn() -> dict[str, float]:
        # First count what the last turn's break left running: it had a round to end.
        running.append(len(descendants()))
        for _ in range(TAKEN):
            held[1] = next(held[0])
        return {"us": microseconds(begin), "left": running[-1] - running[-2]}

    return {"turn": turn}


def spawn_turns(row: Row, contestant: Contestant) -> Turns:
    """Measure fresh programs, in the folder of this one, from ``iter()`` to the first batch."""
    count = str(row.options["num_workers"])
    command = [sys.executable, "-m", "tools.bench.spawned", contestant.face, count]
    output = subprocess.check_output
    return {"turn": lambda: {"us": float(output(command, stdin=subprocess.DEVNULL))}}


def resume_turns(row: Row, contestant: Contestant) -> Turns:
    """Measure from loading a state at 90 % of an epoch to the next batch."""
    loader = open_stateful(row, contestant)
    at = len(loader) * 9 // 10
    is_near = row.is_public or contestant.name != OURS
    batches = iter(loader)
    for _ in range(at if is_near else 1):
        next(batches)
    state = loader.state_dict()
    if not is_near:
        # The state that this version would have saved there: reading so far would take minutes.
        state["_snapshot"]["_snapshot_step"] = at
        engine = state["_snapshot"]["_main_snapshot"]["engine"]
        engine.update(batches=at, samples=at * row.work.batch_size)

    def turn() -> dict[str, float]:
        resumed = open_stateful(row, contestant)

        def resume() -> None:
            resumed.load_state_dict(state)
            next(iter(resumed))

        return {"us": microseconds(resume)}

    return {"turn": turn}


def opening_turns(row: Row, contestant: Contestant, seconds: float, stack: ExitStack) -> Turns:
    """Measure whole short epochs, of new loaders or of a kept one, or the start of new workers."""
    make = loader_maker(row, contestant, row.work.dataset(row.batches * row.step_size))

    def epoch_of(loader: Any) -> None:
        for _ in loader:
            pass

    def timed_start() -> float:
        begin = time.perf_counter_ns()
        loader = make()
        iterator = iter(loader)
        next(iterator)
        us = (time.perf_counter_ns() - begin) / 1e3
        del iterator
        getattr(loader, "close", gc.collect)()  # without `close`, dropping it ends the workers
        return us

    if row.kind == "pool":
        act = timed_start
    elif row.kind == "new":
        act = partial(microseconds, lambda: epoch_of(make()))
    else:
        kept = make()
        stack.callback(getattr(kept, "close", gc.collect))
        act = partial(microseconds, lambda: epoch_of(kept))

    def turn() -> dict[str, float]:
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < LEAST_EPOCHS or time.perf_counter() < end:
            times.append(act())
        return {"us": statistics.median(times)}

    turn()  # the first epochs find everything cold
    return {"turn": turn}


def open_turns(row: Row, contestant: Contestant, seconds: float, stack: ExitStack) -> Turns:
    """Open the contestant's loader of the row; closing `stack` ends it."""
    if contestant == DECODE:
        return decode_turns(row, seconds, stack)
    if row.kind == "break":
        return break_turns(row, contestant, stack)
    if row.kind == "spawn":
        return spawn_turns(row, contestant)
    if row.kind == "resume":
        return resume_turns(row, contestant)
    if row.batches:
        return opening_turns(row, contestant, seconds, stack)
    return epoch_turns(row, contestant, seconds, stack)


def main() -> None:
    """Obey the orders of the pipe until it ends."""
    table, row_name, name, seconds, fd = sys.argv[1:]
    row = TABLES[table][row_name]
    contestant = row.contestant(name)
    pipe: Connection[dict[str, float], str] = Connection(int(fd))
    os.set_inheritable(int(fd), False)
    if contestant.face:
        measured = import_module(contestant.face.partition(".")[0])
        home = Path(measured.__file__ or "").resolve().parents[1]
        if name == OURS and home != Path.cwd().resolve():
            raise RuntimeError(f"{Path.cwd()} was to be measured, but reader came from {home}")
    pipe.send({})
    turns: Turns = {}
    with ExitStack() as stack:
        while True:
            try:
                what = pipe.recv()
            except (EOFError, ConnectionError):
                return
            if what == "open":
                turns = open_turns(row, contestant, float(seconds), stack)
                pipe.send({})
            else:
                pipe.send(turns[what]() if what in turns else {})


if __name__ == "__main__":
    main()
