"""The life of slots in a run: which batch lies in which slot: written, ready, held, released.

Imports the package and the tracks. Keeps no state.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import numpy as np

import reader
from tools.pictures.tracks import Bar, Panel, Track

__all__ = ["life"]


_NOTED_MS = 1.0  # the release of a slot is noted right after it; its worker may be quicker


class Squares:
    """Samples that take a while.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        noise = np.random.default_rng(index).standard_normal((3, 96, 96))
        return np.square(noise).astype(np.float32)


def life(
    batches: int = 22, batch_size: int = 32, step_ms: float = 12, kept: int = 5, until: int = 15
) -> Panel:
    """Run an epoch in which one batch is kept; return a track for each slot.

    Args:
        batches: of the epoch.
        batch_size: rows of a batch.
        step_ms: how long a step waits.
        kept: number of the batch that the program keeps.
        until: number of the batch with which it lets go.
    """
    loader = reader.DataLoader(Squares(batches * batch_size), batch_size=batch_size, num_workers=2)
    places, kept_batch, on_gpu = [], None, threading.Event()  # which nobody sets
    with reader.profile(loader) as profile:
        begun_ns = time.monotonic_ns()
        for number, batch in enumerate(loader):
            places.append(batch.ctypes.data)
            if number == kept:
                kept_batch = batch
            if number == until:
                kept_batch = None
            on_gpu.wait(step_ms / 1e3)
        del batch, kept_batch
        ended_ns = time.monotonic_ns()
    slots: dict[int, list[Bar]] = {}
    for number, (place, record) in enumerate(zip(places, profile.records)):
        names = ("begun_ns", "sent_ns", "delivered_ns", "given_back_ns")
        times_ms = [(int(record[name] or ended_ns) - begun_ns) / 1e6 for name in names]
        kinds = ("written by a worker", "ready", "with your program")
        bars = slots.setdefault(place, [])
        if bars and times_ms[0] < bars[-1].end_ms < times_ms[1] + _NOTED_MS:
            # the worker fetched its first sample before it took the slot
            times_ms[0] = min(bars[-1].end_ms, times_ms[1])
            bars[-1] = dataclasses.replace(bars[-1], end_ms=times_ms[0])
        bars += [
            Bar(kind, left, right, str(number))
            for kind, left, right in zip(kinds, times_ms, times_ms[1:])
        ]
    held = next(bar for bar in slots[places[kept]][2::3] if bar.label == str(kept))
    said = {held.begin_ms: f"you keep batch {kept}", held.end_ms: "you let go of it"}
    tracks = [
        Track(f"slot {row}", bars, said if place == places[kept] else {})
        for row, (place, bars) in enumerate(slots.items())
    ]
    return Panel("", tracks)
