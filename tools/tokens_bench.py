"""Measure batches of windows of a file of tokens, beside PyTorch's loader over np.memmap.

    python -m tools.tokens_bench [--tokens 2e8] [--rounds 3] [--json FILE]

Makes a file of random tokens of 16 bits, and has each loader make batches of 8 windows of 2,048
with 2 workers, in turns, in one run. Medians of the rounds are shown, in microseconds for a batch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from reader import DataLoader, TokenWindows

LENGTH, BATCH, WORKERS = 2048, 8, 2
_BATCHES = 2000  # of each measurement, after a tenth as many


def main() -> int:
    """Measure and print a table; write JSON where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.tokens_bench", description=__doc__)
    parser.add_argument("--tokens", type=float, default=2e8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        make_file(path, int(chosen.tokens))
        contestants = dict(_loaders(path))
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(chosen.rounds):
            for name, loader in contestants.items():
                times[name].append(_seconds_per_batch(loader))
    found = {name: statistics.median(each) for name, each in times.items()}
    first = next(iter(found.values()))
    for name, value in found.items():
        print(f"{name:62s} {value * 1e6:8.1f} us per batch, {first / value:6.1f} times faster")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1))
    return 0


def make_file(path: Path, count: int) -> None:
    """Write random tokens."""
    block = np.random.default_rng(0).integers(0, 50_000, 10**7).astype(np.uint16)
    with path.open("wb") as file:
        while count > 0:
            file.write(block[:count].tobytes())
            count -= len(block)


def _seconds_per_batch(loader: Any) -> float:
    batches = iter(loader)
    for _ in islice(batches, _BATCHES // 10):
        pass
    begun = time.perf_counter()
    count = sum(1 for _ in islice(batches, _BATCHES))
    return (time.perf_counter() - begun) / count


def _loaders(path: Path) -> Iterator[tuple[str, Any]]:
    windows: Any = TokenWindows(path, LENGTH)
    forms = {
        "reader, int64": TokenWindows(path, LENGTH, as_dtype="int64"),
        "reader, uint16": windows,
        "reader, int64, targets, positions, segments": TokenWindows(
            path, LENGTH, as_dtype="int64", targets=True, document_end=7
        ),
    }
    try:
        from torch.utils.data import DataLoader as TorchLoader
    except ImportError as error:
        print(f"left out: PyTorch ({error})")
    else:
        from reader.compat.torch import DataLoader as OurTorchLoader

        for shuffle in (False, True):
            how = ", shuffled" if shuffle else ""
            usual: Any = _Usual(path)
            loader: Any = TorchLoader(usual, BATCH, shuffle=shuffle, num_workers=WORKERS)
            yield f"PyTorch, np.memmap, int64{how}", loader
            yield (
                f"reader.compat.torch, uint16{how}",
                OurTorchLoader(windows, BATCH, shuffle=shuffle, num_workers=WORKERS),
            )
    for shuffle in (False, True):
        for name, dataset in forms.items():
            loader = DataLoader(dataset, batch_size=BATCH, shuffle=shuffle, num_workers=WORKERS)
            yield name + (", shuffled" if shuffle else ""), loader


class _Usual:
    """What most programs have: a window of the mapped file, as a tensor of int64."""

    def __init__(self, path: Path) -> None:
        self._tokens = np.memmap(path, np.uint16, "r")

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // LENGTH

    def __getitem__(self, index: int) -> Any:
        import torch

        begin = index * LENGTH
        return torch.from_numpy(self._tokens[begin : begin + LENGTH].astype(np.int64))


if __name__ == "__main__":
    raise SystemExit(main())
