"""Batches of windows of a file of tokens, beside PyTorch's loader over np.memmap.

The file has random tokens of 16 bits; each loader makes batches of 8 windows of 2,048 with 2
workers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reader import DataLoader, TokenWindows
from tools.domain_bench.work import Work, left_out, part_of_epoch

LENGTH, BATCH, WORKERS = 2048, 8, 2
_BATCHES = 2000  # of a turn


def tokens(folder: Path, tokens: float) -> Work:
    """Windows of a file of tokens."""
    path = folder / "tokens.bin"
    _make_file(path, int(tokens))
    turns = (
        (name, functools.partial(part_of_epoch, loader, _BATCHES))
        for name, loader in _loaders(path)
    )
    return Work(turns, "us per batch", warm_ups=0)


def _make_file(path: Path, count: int) -> None:
    """Write random tokens."""
    block = np.random.default_rng(0).integers(0, 50_000, 10**7).astype(np.uint16)
    with path.open("wb") as file:
        while count > 0:
            file.write(block[:count].tobytes())
            count -= len(block)


def _loaders(path: Path) -> Iterator[tuple[str, Any]]:
    windows: Any = TokenWindows(path, LENGTH)
    forms = {
        "reader, int64": TokenWindows(path, LENGTH, as_dtype="int64"),
        "reader, uint16": windows,
        "reader, int64, targets, positions, segments": TokenWindows(
            path, LENGTH, as_dtype="int64", targets=True, document_end=7
        ),
    }
    with left_out("PyTorch"):
        from torch.utils.data import DataLoader as TorchLoader

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
    """The usual program: a window of the mapped file, as a tensor of int64."""

    def __init__(self, path: Path) -> None:
        self._tokens = np.memmap(path, np.uint16, "r")

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // LENGTH

    def __getitem__(self, index: int) -> Any:
        import torch

        begin = index * LENGTH
        return torch.from_numpy(self._tokens[begin : begin + LENGTH].astype(np.int64))
