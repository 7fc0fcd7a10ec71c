"""An epoch by PyTorch's loader and by this one, each on a timeline: the same program, run twice.

The program crops images that lie in memory, and gives them to a step that waits as if a GPU
computed. Imports torch, the package and the tracks. Keeps no state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

import reader
from reader.compat.torch import DataLoader as OurLoader
from tools.pictures.tracks import Bar, Panel, Track

__all__ = ["both"]

_WORKERS, _KEPT, _SIDE, _CROP = 2, 256, 256, 224


class Photos(Dataset[Any]):
    """Crops of images in memory, float32.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        made = torch.Generator().manual_seed(1)
        shape = (_KEPT, 3, _SIDE, _SIDE)
        self._pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=made)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        begun_ns = time.monotonic_ns()
        top, left = index * 7 % (_SIDE - _CROP), index * 13 % (_SIDE - _CROP)
        crop = self._pixels[index % _KEPT, :, top : top + _CROP, left : left + _CROP]
        return crop.float().div_(255), begun_ns


def _timed_collate(samples: Sequence[tuple[torch.Tensor, int]]) -> list[Any]:
    """Collate as PyTorch does, and add the time and the worker."""
    begun_ns = time.monotonic_ns()
    images, fetched_ns = default_collate(list(samples))
    info = torch.utils.data.get_worker_info()
    worker_id = 0 if info is None else info.id
    return [images, fetched_ns, torch.tensor([begun_ns, time.monotonic_ns(), worker_id])]


def both(batches: int = 24, batch_size: int = 32, step_ms: float = 10) -> list[Panel]:
    """Run the epoch by each loader; return a panel for each.

    Args:
        batches: of the epoch.
        batch_size: rows of a batch.
        step_ms: how long a step waits after it has read its batch.
    """
    torch.set_num_threads(1)  # the other core is a worker's
    dataset = Photos(batches * batch_size)
    shared: dict[str, Any] = {"batch_size": batch_size, "num_workers": _WORKERS}
    theirs = DataLoader(dataset, collate_fn=_timed_collate, **shared)
    ours = OurLoader(dataset, **shared)
    return [
        _panel("from torch.utils.data import DataLoader", *_by_torch(theirs, step_ms)),
        _panel("from reader.compat.torch import DataLoader", *_by_us(ours, step_ms)),
    ]


def _loop(loader: Any, step_ms: float, seen: Callable[[Any], None]) -> tuple[int, list[int]]:
    """Train for an epoch; return when it began, and when each wait and each step ended."""
    on_gpu = threading.Event()  # which nobody sets
    begun_ns = time.monotonic_ns()
    ends = []
    for batch in loader:
        ends.append(time.monotonic_ns())
        float(batch[0].sum())
        on_gpu.wait(step_ms / 1e3)
        seen(batch)
        ends.append(time.monotonic_ns())
    return begun_ns, ends


def _by_torch(loader: Any, step_ms: float) -> tuple[int, list[int], np.ndarray[Any, Any]]:
    rows: list[tuple[int, ...]] = []

    def seen(batch: Any) -> None:
        begun_ns, ended_ns, worker = batch[2].tolist()
        rows.append((worker, int(batch[1][0]), begun_ns, ended_ns))

    begun_ns, ends = _loop(loader, step_ms, seen)
    return begun_ns, ends, np.array(rows)


def _by_us(loader: Any, step_ms: float) -> tuple[int, list[int], np.ndarray[Any, Any]]:
    with reader.profile(loader) as profile:
        begun_ns, ends = _loop(loader, step_ms, lambda _: None)
    found = profile.records
    fetched_ns = found["begun_ns"] + found["fetch_ns"]
    made = np.stack([found["worker"], found["begun_ns"], fetched_ns, found["sent_ns"]], axis=1)
    return begun_ns, ends, made


def _panel(title: str, begun_ns: int, ends: list[int], made: np.ndarray[Any, Any]) -> Panel:
    """Lay an epoch out.

    Args:
        title: the import line of the program.
        begun_ns: when the epoch began.
        ends: when each wait and each step ended, in turns.
        made: of each batch its worker, when it began to fetch and to collate, and when it was done.
    """

    def bar(kind: str, left_ns: int, right_ns: int, number: int) -> Bar:
        left_ms, right_ms = (left_ns - begun_ns) / 1e6, (right_ns - begun_ns) / 1e6
        return Bar(kind, left_ms, right_ms, str(number))

    trainer = []
    for number in range(len(ends) // 2):
        asked_ns = ends[2 * number - 1] if number else begun_ns
        given_ns, done_ns = ends[2 * number], ends[2 * number + 1]
        trainer += [bar("wait", asked_ns, given_ns, number), bar("step", given_ns, done_ns, number)]
    workers: list[list[Bar]] = [[] for _ in range(_WORKERS)]
    for number, (worker, fetch_ns, collate_ns, done_ns) in enumerate(made.tolist()):
        workers[worker].append(bar("fetch", fetch_ns, collate_ns, number))
        workers[worker].append(bar("collate", collate_ns, done_ns, number))
    waited_ms = sum(b.end_ms - b.begin_ms for b in trainer if b.kind == "wait")
    told = f"{title}: {trainer[-1].end_ms:.0f} ms, of which training waits {waited_ms:.0f} ms"
    tracks = [Track(f"worker {number}", bars) for number, bars in enumerate(workers)]
    return Panel(told, [*tracks, Track("your program", trainer)])
