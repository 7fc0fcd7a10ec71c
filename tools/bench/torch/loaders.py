"""The two DataLoaders, opened alike, and the turns of the rows that are no epochs.

Imports torch; runs in a contestant's process only. It owns nothing: what is opened is its caller's.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch.utils.data import default_convert

from tools.bench.child import ROOT
from tools.bench.loaders import CONTESTANTS, PREFETCH, WORKERS, Contestant, Opened, Through
from tools.bench.loaders import dropping as dropped
from tools.bench.torch.rows import OURS, Entry, Row
from tools.bench.works import MapDataset, Work

BATCH = 64
BANK = 256


class Tensors:
    """A dataset's samples as tensors, made once and handed out in turn."""

    def __init__(self, dataset: MapDataset) -> None:
        count = min(len(dataset), BANK)
        self.samples = [_converted(dataset[index]) for index in range(count)]
        self.length = len(dataset)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.samples[index % len(self.samples)]


def _converted(sample: Any) -> Any:
    return default_convert(sample)  # type: ignore[no-untyped-call]


class Places:
    """As many samples as one likes: the index of each."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return index


def _open(entry: Entry, is_tensors: bool, dataset: MapDataset, work: Work) -> Opened:
    loaders = [
        import_module(entry.face).DataLoader(
            Tensors(dataset) if is_tensors else dataset,
            batch_size=work.batch_size,
            num_workers=WORKERS,
            prefetch_factor=PREFETCH,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
    ]
    close = loaders[0].close if entry.face == OURS else dropped(loaders)
    return Opened(Through(loaders), close)


def contestant_of(row: Row, entry: Entry) -> Contestant:
    """Return the entry as a contestant on the row's work."""
    same = CONTESTANTS["torch"]
    opener = partial(_open, entry, row.is_tensors)
    return Contestant(entry.name, entry.title, same.needs, opener, same.view, same.clone)


class StartRun:
    """Each turn is a fresh program: its time from ``iter()`` to the first batch."""

    def __init__(self, entry: Entry) -> None:
        self.command = [sys.executable, "-m", "tools.bench.torch.start", entry.face]
        self.facts: Mapping[str, Any] = {"batches": 1}

    def turn(self, is_touching: bool) -> dict[str, float]:
        """Run the program."""
        del is_touching
        done = subprocess.run(self.command, check=True, capture_output=True, text=True, cwd=ROOT)
        return {"us": float(done.stdout)}

    def close(self) -> None:
        """Nothing is left of it."""


class ResumeRun:
    """Each turn makes a loader, loads a state at 90 % of an epoch, and takes the next batch."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        loader = self._loader()
        batches = iter(loader)
        next(batches)
        first = loader.state_dict()
        at = len(loader) * 9 // 10
        if entry.face == OURS:
            # what the loop would have saved there: reading so far would take hours
            engine = first["_snapshot"]["_main_snapshot"]["engine"]
            engine.update(batches=at, samples=at * BATCH)
            first["_snapshot"]["_snapshot_step"] = at
            self.state = first
        else:
            for _ in range(at - 1):
                next(batches)
            self.state = loader.state_dict()
        self.facts: Mapping[str, Any] = {"batches": 1, "at": at}

    def _loader(self) -> Any:
        stateful = import_module(self.entry.face).StatefulDataLoader
        dataset = Places(self.entry.samples)
        if self.entry.face == OURS:
            return stateful(dataset, batch_size=BATCH, shuffle=True, seed=1)
        generator = torch.Generator().manual_seed(1)
        return stateful(dataset, batch_size=BATCH, shuffle=True, generator=generator)

    def turn(self, is_touching: bool) -> dict[str, float]:
        """Resume."""
        del is_touching
        loader = self._loader()
        start = time.perf_counter_ns()
        loader.load_state_dict(self.state)
        next(iter(loader))
        return {"us": (time.perf_counter_ns() - start) / 1e3}

    def close(self) -> None:
        """Nothing is left of it."""
