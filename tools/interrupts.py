"""Interrupts at every place of the loader's own Python: each batch comes once, whatever happens.

A tracer sends the process a signal between two instructions of the loader, one in each epoch:
SIGINT, or one whose handler raises. The loop goes on with its iterator after it. Of some epochs the
state is saved then and resumed in a fresh loader; some are left early. Run as ``python -m
tools.interrupts [--kinds map-thread ...] [--count 1000] [--seed 0] [--every]``; with ``--storm
SECONDS`` another process sends the signals at any time. What failed is printed with its place, and
the exit code is 1; what hangs ends the program, with the tracebacks of all threads.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import gc
import random
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import reader
from reader import DataLoader, IterableDataset, WorkerPool, get_worker_info
from reader.errors import SamplerError
from reader.policy import BatchPolicy, Policy
from tests.faces import Face
from tests.ledger import Ledger, settle
from tools.late_device import LateDevice

OURS = str(Path(reader.__file__).parent)
COUNT = 24  # samples
HANGS_AFTER_S = 60.0
_THREADS: dict[str, Any] = {"num_workers": 2, "worker_type": "thread", "persistent_workers": True}
_PROCESSES: dict[str, Any] = {"num_workers": 2, "persistent_workers": True}
OPTIONS: dict[str, dict[str, Any]] = {
    "map": {},
    "map-collate": {"collate_fn": np.stack},
    "map-thread": _THREADS,
    "map-process": _PROCESSES,
    "map-new-processes": {"num_workers": 2},
    "map-pool": {},
    "stream-pool": {},
    "map-any": {"num_workers": 2, "worker_type": "thread", "in_order": False},
    "map-places": {"num_workers": 2, "worker_type": "thread", "places": ["cpu", "cpu"]},
    "map-device": {**_THREADS, "places": "late:0"},
    "map-devices": {"num_workers": 2, "worker_type": "thread", "places": ["late:0", "late:1"]},
    "stream-device": {**_PROCESSES, "places": "late:0"},
    "map-ahead": {**_THREADS, "prefetch_next_epoch": True},
    "map-shuffled": {**_THREADS, "shuffle": True, "seed": 3},
    "map-generator": _THREADS,
    "stream": {},
    "stream-collate": {"collate_fn": np.stack},
    "stream-thread": _THREADS,
    "stream-process": _PROCESSES,
    "torch-inline": {},
    "torch-sampler": {},
    "torch-stream": {},
    "torch-thread": _THREADS,
    "torch-state": _THREADS,
    "paddle-generator": {},
    "paddle-pyreader": {},
}


class Alarm(Exception):
    """The exception of the handler of SIGUSR2."""


class Rows:
    """A map-style dataset of numbers."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return np.int64(index)


class Stream(IterableDataset[Any]):
    """An iterable dataset whose workers divide the numbers."""

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return iter([np.int64(each) for each in range(first, COUNT, step)])


class Batches:
    """A batch sampler of a user's: a generator, which an interrupt inside of it ends."""

    def __iter__(self) -> Iterator[list[int]]:
        order = list(range(COUNT))
        random.Random(7).shuffle(order)
        for first in range(0, COUNT, 4):
            yield order[first : first + 4]


_SAMPLER = Batches.__iter__.__code__


class Tracer:
    """Sends a signal when the loader's Python has run so many instructions."""

    def __init__(self, left: int, number: int) -> None:
        self.left = left
        self.number = number
        self.place = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """See sys.settrace."""
        code = frame.f_code
        if not code.co_filename.startswith(OURS) and code is not _SAMPLER:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        # The instructions that leave an except block have no line. Python handles no signal there:
        # an exception between them would stay the handled one of the thread, with its frames.
        if event == "opcode" and frame.f_lineno is not None:
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                self.place = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"
                signal.raise_signal(self.number)
        return self


@dataclasses.dataclass
class Result:
    """The outcome of the interrupts of one kind of loader."""

    interrupts: int = 0
    lost: int = 0
    twice: int = 0
    dropped: int = 0  # signals whose exception was lost
    bad_states: int = 0
    left_behind: int = 0
    refused: int = 0  # epochs that ended by an error: five interrupts came at one batch
    failures: Counter[str] = dataclasses.field(default_factory=Counter)

    def count(self, found: list[int], where: str) -> None:
        """Count the samples of an epoch."""
        lost = COUNT - len(set(found))
        twice = len(found) - len(set(found))
        self.lost += lost
        self.twice += twice
        if lost or twice:
            self.failures[f"{where}: {lost} lost, {twice} twice"] += 1

    def __add__(self, other: Result) -> Result:
        names = [field.name for field in dataclasses.fields(self)]
        return Result(*(getattr(self, name) + getattr(other, name) for name in names))

    def __str__(self) -> str:
        return (
            f"{self.interrupts} interrupts: {self.lost} samples lost, {self.twice} twice, 0 hung,"
            f" {self.left_behind} left behind, {self.dropped} signals dropped,"
            f" {self.bad_states} states wrong, {self.refused} epochs refused,"
            f" {self.failures.total()} failures"
        )


def make(kind: str) -> Any:
    """Make the loader of a kind."""
    dataset: Any = Stream() if kind.startswith("stream") else Rows()
    options = OPTIONS[kind]
    if "-device" in kind:
        policy = Policy(batch=BatchPolicy(make_adapter=lambda _: LateDevice()))
        return Face(policy, dataset, batch_size=4, **options)
    if kind.startswith("torch"):
        return _torch_loader(kind, options)
    if kind.startswith("paddle"):
        return _paddle_loader(kind)
    if kind == "map-generator":
        return DataLoader(dataset, batch_sampler=Batches(), **options)
    if kind.endswith("-pool"):
        options = {"pool": WorkerPool(2)}
    return DataLoader(dataset, batch_size=4, **options)


def close(loader: Any) -> None:
    """Close a loader, if it can be closed, and its own pool.

    Python may keep a loader: it loses a reference to an exception at whose raising a signal comes.
    """
    if hasattr(loader, "close"):
        loader.close()
    pool = getattr(getattr(loader, "config", None), "pool", None)
    if pool is not None:
        pool.close()


def _torch_loader(kind: str, options: dict[str, Any]) -> Any:
    import torch

    from reader.compat import torch as face

    if kind == "torch-stream":
        stream: Any = type("TorchStream", (Stream, torch.utils.data.IterableDataset), {})()
        return face.DataLoader(stream, batch_size=4, **options)
    rows: Any = Rows()
    if kind == "torch-sampler":
        return face.DataLoader(rows, batch_sampler=Batches(), **options)
    made = face.StatefulDataLoader if kind == "torch-state" else face.DataLoader
    return made(rows, batch_size=4, **options)


def _paddle_loader(kind: str) -> Any:
    from reader.compat.paddle import PyReader
    from reader.compat.paddle.generator import from_generator

    def batches() -> Iterator[list[Any]]:
        for first in range(0, COUNT, 4):
            yield [np.arange(first, first + 4)]

    if kind == "paddle-pyreader":
        made = PyReader(capacity=2, return_list=True)
        made.decorate_batch_generator(batches, places="cpu")
        return made
    loader = from_generator(capacity=2, return_list=True)
    loader.set_batch_generator(batches, places="cpu")
    return loader


def numbers(batch: Any) -> list[int]:
    """Return the samples of a batch, or of a group."""
    parts = batch if isinstance(batch, list) else [batch]
    return [int(each) for part in parts for each in np.asarray(part).ravel()]


class Epoch:
    """An epoch with one interrupt.

    Attributes:
        found: the samples.
        error: what ended it, or "".
        caught: how often a handler's exception came.

    Args:
        loader: of a kind.
        tracer: sends the signal.
        saved: gets the state at the interrupt, with the samples before it; None: none is saved.
    """

    def __init__(
        self, loader: Any, tracer: Tracer, saved: list[tuple[Any, list[int]]] | None = None
    ) -> None:
        self.found: list[int] = []
        self.error = ""
        self.caught = 0
        batches: Any = None
        sys.settrace(tracer)
        try:
            while True:
                try:
                    if batches is None:
                        batches = iter(loader)
                    while True:  # iterating over a loader of Paddle's again begins anew
                        self.found += numbers(next(batches))
                except StopIteration:
                    return
                except (KeyboardInterrupt, Alarm):
                    self.caught += 1
                    if saved is not None:
                        saved.append((loader.state_dict(), list(self.found)))
                except Exception as error:
                    self.error = repr(error)[:300]
                    return
        finally:
            sys.settrace(None)


def leave_early(loader: Any, tracer: Tracer) -> int:
    """Take a batch and drop the iterator; return how often a handler's exception came."""
    try:
        sys.settrace(tracer)
        try:
            next(iter(loader))
        finally:
            sys.settrace(None)
    except (KeyboardInterrupt, Alarm):
        return 1
    return 0


class DroppedByPython:
    """Counts exceptions in functions of Python's own that it calls while it frees objects."""

    def __init__(self) -> None:
        self.count = 0
        self._hook = sys.unraisablehook

    def __enter__(self) -> DroppedByPython:
        sys.unraisablehook = self
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._hook

    def __call__(self, told: Any) -> None:
        """See sys.unraisablehook."""
        code = getattr(told.object, "__code__", None)
        is_ours = code is None or code.co_filename.startswith(OURS)
        if is_ours or not isinstance(told.exc_value, (KeyboardInterrupt, Alarm)):
            self._hook(told)
        else:
            self.count += 1


def check(kind: str, count: int, chosen: random.Random, is_every: bool) -> Result:
    """Run epochs of a kind with interrupts."""
    with DroppedByPython() as dropped:
        return _check(kind, count, chosen, is_every, dropped)


def _check(
    kind: str, count: int, chosen: random.Random, is_every: bool, dropped: DroppedByPython
) -> Result:
    result = Result()
    before = Ledger.take()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR2)]
    loader = make(kind)
    Epoch(loader, Tracer(0, 0))
    counter = Tracer(sys.maxsize, 0)
    Epoch(loader, counter)
    events = sys.maxsize - counter.left
    has_state = hasattr(loader, "state_dict")
    for step in range(events if is_every else count):
        _end_if_it_hangs()
        at = step + 1 if is_every else chosen.randint(1, events)
        tracer = Tracer(at, signal.SIGUSR2 if step % 2 else signal.SIGINT)
        saved: list[tuple[Any, list[int]]] = []
        if step % 11 == 5:
            caught, where = leave_early(loader, tracer), "left early"
        else:
            epoch = Epoch(
                loader, tracer, saved if has_state and step % 9 == 4 and step % 11 != 6 else None
            )
            caught, where = epoch.caught, tracer.place
            if epoch.error:
                result.failures[f"{where}: {epoch.error}"] += 1
            result.count(epoch.found, where)
        if tracer.place:
            result.interrupts += 1
        if caught != bool(tracer.place):
            result.dropped += 1
            if not dropped.count:
                result.failures[f"{tracer.place}: nobody got the exception"] += 1
        dropped.count = 0
        for state, found in saved:
            _check_state(kind, state, found, tracer.place, result)
    if [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR2)] != handlers:
        result.failures["the handlers of signals are not put back"] += 1
    Epoch(loader, Tracer(0, 0))  # closes the leftovers of the last epoch
    close(loader)
    del loader
    gc.collect()
    _count_left(before, result)
    faulthandler.cancel_dump_traceback_later()
    return result


def _check_state(kind: str, state: Any, found: list[int], place: str, result: Result) -> None:
    """Resume at an interrupt: exactly the rest must come."""
    fresh = make(kind)
    fresh.load_state_dict(state)
    rest = Epoch(fresh, Tracer(0, 0))
    close(fresh)
    is_over = len(found) == COUNT  # the next epoch may come
    if rest.error or sorted(found * (not is_over) + rest.found) not in (
        [[], list(range(COUNT))] if is_over else [list(range(COUNT))]
    ):
        result.bad_states += 1
        result.failures[f"{place}: after {found} a state gave {rest.error or rest.found}"] += 1


def _end_if_it_hangs() -> None:
    """End the program in a while, unless this is called again."""
    stderr: Any = sys.__stderr__  # pytest's stand-in for stderr has no descriptor
    faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True, file=stderr)


def _count_left(before: Ledger, result: Result) -> None:
    left = settle(before)
    result.left_behind += len(left)
    for line in left:
        result.failures[f"left behind: {line}"] += 1


# --- a storm ----------------------------------------------------------------------------------

# those whose workers take longer to start than signals leave time for are left out
_STORMY = [kind for kind in OPTIONS if kind != "map-new-processes"]

_SENDER = """
import os, random, sys, time
sys.stdin.readline()
chosen = random.Random(sys.argv[1])
trainer = os.getppid()
while os.getppid() == trainer:
    os.kill(trainer, int(chosen.choice(sys.argv[2:])))
    time.sleep(chosen.uniform(0.0001, 0.005))
"""


class Handler:
    """A handler of signals that raises, in code that the loop over an epoch calls.

    Not in the loop's own code: there a program may lose a batch that it was given.
    """

    def __init__(self) -> None:
        self.raised = 0
        self.places: dict[int, str] = {}  # of exceptions that did not come yet

    def note(self, error: BaseException | None) -> None:
        """Note that an exception came, and with it those that it replaced on their way."""
        while error is not None:
            self.places.pop(getattr(error, "number", 0), None)
            error = error.__context__

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """See signal.signal."""
        innermost: Any = frame
        while frame is not None:
            if frame.f_code in (numbers.__code__, Handler.note.__code__):
                return
            if frame.f_code is take_epoch.__code__:
                break
            frame = frame.f_back
        if frame is None or frame is innermost:
            return
        self.raised += 1
        code = innermost.f_code
        self.places[self.raised] = f"{code.co_filename}:{innermost.f_lineno} {code.co_name}"
        error: Any = KeyboardInterrupt() if number == signal.SIGINT else Alarm()
        error.number = self.raised
        raise error


def take_epoch(loader: Any, handler: Handler) -> list[int]:
    """Take an epoch through all exceptions; return its samples."""
    found: list[int] = []
    batches: Any = None
    while True:
        try:
            if batches is None:
                batches = iter(loader)
            while True:
                found += numbers(next(batches))
        except StopIteration:
            return found
        except (KeyboardInterrupt, Alarm) as error:
            handler.note(error)


def storm(kind: str, seconds: float, seed: str) -> Result:
    """Take epochs of a kind while another process sends signals."""
    result, handler = Result(), Handler()
    freeing: list[Any] = []
    # Python itself drops what is raised in functions that it calls while it frees objects
    sys.unraisablehook, hook = freeing.append, sys.unraisablehook
    before = Ledger.take()
    loader = make(kind)
    take_epoch(loader, handler)
    signals = [signal.SIGINT, signal.SIGUSR2]
    handlers = [signal.signal(number, handler) for number in signals]
    command = [sys.executable, "-c", _SENDER, seed, *(str(int(number)) for number in signals)]
    epochs = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as sender:
        if sender.stdin is not None:
            sender.stdin.write("go\n")
            sender.stdin.flush()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            _end_if_it_hangs()
            try:
                found = take_epoch(loader, handler)
            except Exception as error:
                if isinstance(error, SamplerError) and "was interrupted while" in str(error):
                    result.refused += 1
                    continue
                result.failures[traceback.format_exc()] += 1
                break
            epochs += 1
            while freeing:
                handler.note(freeing.pop().exc_value)
            result.count(found, f"epoch {epochs}")
        sender.kill()
    for number, each in zip(signals, handlers, strict=True):
        signal.signal(number, each)
    sys.unraisablehook = hook
    while freeing:
        handler.note(freeing.pop().exc_value)
    # an exception may replace another one that is on its way: that is no failure
    result.interrupts, result.dropped = handler.raised, len(handler.places)
    take_epoch(loader, handler)
    close(loader)
    del loader, sender
    gc.collect()
    _count_left(before, result)
    faulthandler.cancel_dump_traceback_later()
    return result


# --- the program ------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Check each kind; 0 if every sample came once."""
    parser = argparse.ArgumentParser(prog="python -m tools.interrupts", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(OPTIONS), default=list(OPTIONS))
    parser.add_argument("--count", type=int, default=16000, help="interrupts, over all kinds")
    parser.add_argument("--every", action="store_true", help="at each place of an epoch once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--storm", type=float, metavar="SECONDS", help="for each kind")
    options = parser.parse_args(arguments)

    def raise_alarm(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR2, raise_alarm)
    at_start = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells may ignore it
    results: list[Result] = []
    try:
        for kind in options.kinds:
            seed = f"{options.seed} {kind}"
            if options.storm is None:
                share = -(-options.count // len(options.kinds))
                result = check(kind, share, random.Random(seed), options.every)
            elif kind in _STORMY:
                result = storm(kind, options.storm, seed)
            else:
                continue
            results.append(result)
            print(f"{kind}: {result}", flush=True)
            for text, times in result.failures.most_common():
                print(f"  {times} x {text}", flush=True)
    finally:
        signal.signal(signal.SIGUSR2, before)
        signal.signal(signal.SIGINT, at_start)
    total = Result()
    for each in results:
        total += each
    print(f"all: {total}", flush=True)
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
