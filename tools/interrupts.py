"""Interrupts at every place of the loader's own Python: each batch comes once, whatever happens.

A tracer sends the process a signal between two instructions of the loader, one in each epoch:
SIGINT, and one whose handler raises. The loop goes on with its iterator after it. Run as
``python -m tools.interrupts [--kinds map-thread ...] [--count 1000] [--seed 0] [--every]``; what
failed is printed with its place, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import reader
from reader import DataLoader, IterableDataset, get_worker_info

OURS = str(Path(reader.__file__).parent)
COUNT = 24  # samples
OPTIONS: dict[str, dict[str, Any]] = {
    "map": {},
    "map-collate": {"collate_fn": np.stack},
    "map-thread": {"num_workers": 2, "worker_type": "thread", "persistent_workers": True},
    "map-process": {"num_workers": 2, "persistent_workers": True},
    "map-any": {"num_workers": 2, "worker_type": "thread", "in_order": False},
    "map-places": {"num_workers": 2, "worker_type": "thread", "places": ["cpu", "cpu"]},
    "map-ahead": {
        "num_workers": 2,
        "worker_type": "thread",
        "persistent_workers": True,
        "prefetch_next_epoch": True,
    },
    "stream": {},
    "stream-collate": {"collate_fn": np.stack},
    "stream-thread": {"num_workers": 2, "worker_type": "thread", "persistent_workers": True},
    "stream-process": {"num_workers": 2, "persistent_workers": True},
    "torch-thread": {"num_workers": 2, "worker_type": "thread", "persistent_workers": True},
}


class Alarm(Exception):
    """What the handler of SIGUSR2 raises."""


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


class Tracer:
    """Sends a signal when the loader's Python has run so many instructions."""

    def __init__(self, left: int, number: int) -> None:
        self.left = left
        self.number = number
        self.place = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """See sys.settrace."""
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                name = frame.f_code.co_filename[len(OURS) + 1 :]
                self.place = f"{name}:{frame.f_lineno} {frame.f_code.co_name}"
                signal.raise_signal(self.number)
        return self


def make(kind: str) -> Any:
    """Make the loader of a kind."""
    dataset: Any = Stream() if kind.startswith("stream") else Rows()
    if kind.startswith("torch"):
        from reader.compat.torch import DataLoader as TorchLoader

        return TorchLoader(dataset, batch_size=4, **OPTIONS[kind])
    return DataLoader(dataset, batch_size=4, **OPTIONS[kind])


def numbers(batch: Any) -> list[int]:
    """Return the samples of a batch, or of a group."""
    parts = batch if isinstance(batch, list) else [batch]
    return [int(each) for part in parts for each in np.asarray(part).ravel()]


def run(loader: Any, tracer: Tracer) -> tuple[list[int], str]:
    """Iterate over an epoch with one interrupt; return the samples, and an error or ""."""
    found: list[int] = []
    batches: Any = None
    sys.settrace(tracer)
    try:
        while True:
            try:
                if batches is None:
                    batches = iter(loader)
                for batch in batches:
                    found += numbers(batch)
                return found, ""
            except (KeyboardInterrupt, Alarm):
                continue
            except Exception as error:
                return found, repr(error)[:150]
    finally:
        sys.settrace(None)


def check(kind: str, count: int, chosen: random.Random, is_every: bool) -> Counter[str]:
    """Run epochs of a kind with interrupts; return what failed, with its places."""
    failures: Counter[str] = Counter()
    with make(kind) as loader:
        list(loader)
        counter = Tracer(sys.maxsize, 0)
        run(loader, counter)
        events = sys.maxsize - counter.left
        places = range(1, events + 1) if is_every else None
        for step in range(events if is_every else count):
            at = places[step] if places is not None else chosen.randint(1, events)
            tracer = Tracer(at, signal.SIGUSR2 if step % 2 else signal.SIGINT)
            found, error = run(loader, tracer)
            lost = COUNT - len(set(found))
            twice = len(found) - len(set(found))
            if tracer.place.endswith(" draw") and "the sampler was interrupted" in error:
                continue  # the tracer's own frame is taken for one of the sampler's there
            if error or lost or twice:
                failures[f"{tracer.place}: {error or f'{lost} lost, {twice} twice'}"] += 1
    return failures


def main(arguments: list[str] | None = None) -> int:
    """Check each kind; 0 when every sample came once."""
    parser = argparse.ArgumentParser(prog="python -m tools.interrupts", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(OPTIONS), default=list(OPTIONS))
    parser.add_argument("--count", type=int, default=1000, help="interrupts of each kind")
    parser.add_argument("--every", action="store_true", help="at each place of an epoch once")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    def raise_alarm(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR2, raise_alarm)
    failed = 0
    try:
        for kind in options.kinds:
            chosen = random.Random(f"{options.seed} {kind}")
            failures = check(kind, options.count, chosen, options.every)
            failed += failures.total()
            print(f"{kind}: {failures.total()} failed", flush=True)
            for text, times in failures.most_common():
                print(f"  {times} x {text}", flush=True)
    finally:
        signal.signal(signal.SIGUSR2, before)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
