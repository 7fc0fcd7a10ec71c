"""Measure a list of strings in a dataset, as Python's list and as `reader.share` has it.

    python -m tools.share_bench [--count 1e7] [--workers 8] [--rounds 5] [--json FILE]

Memory is what the trainer and its workers take together (Pss of /proc/PID/smaps_rollup) beyond
what they took before, after an epoch in which each worker reads its share of the list. Access is
the time of an item at a random place, the median of the turns of each kind.
"""

from __future__ import annotations

import gc
import os
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

import reader
from tools.turns import Report, command_line, in_turns, medians


def main() -> int:
    """Measure and print a table."""
    parser = command_line("share_bench", __doc__)
    parser.add_argument("--count", type=float, default=1e7)
    parser.add_argument("--workers", type=int, default=8)
    chosen = parser.parse_args()
    report = Report(chosen)
    count, workers = int(chosen.count), chosen.workers
    base = _memory(_Names([]), workers)
    names = _names(count)
    one_copy = _own() - base[0]
    begun = time.perf_counter()
    shared = reader.share(names)
    print(f"share took {time.perf_counter() - begun:.1f} s")
    print(f"one list: {one_copy / 1e6:.0f} MB; shared: {shared.nbytes / 1e6:.0f} MB")
    places = [random.randrange(count) for _ in range(min(count, 10**6))]
    turns = {"list": partial(_access, names, places), "shared": partial(_access, shared, places)}
    times = medians(in_turns(turns, chosen.rounds))
    del turns
    as_list, as_shared = times.values()
    print(f"access: {as_list * 1e9:.0f} ns, {as_shared * 1e9:.0f} ns: {as_shared / as_list:.2f}")
    with_list = sum(_memory(_Names(names), workers)) - sum(base)
    del names
    gc.collect()
    with_shared = sum(_memory(_Names(shared), workers)) - sum(base)
    print(f"trainer and {workers} workers with the list: {with_list / 1e6:.0f} MB")
    told = (
        f"with the shared one: {with_shared / 1e6:.0f} MB, {with_shared / shared.nbytes:.2f} of it,"
        f" {with_shared / one_copy:.2f} of one list"
    )
    report.show(told, {"access_s": times, "list": with_list, "shared": with_shared})
    return 0


def _names(count: int) -> list[str]:
    return [f"train/n{i % 1000:08d}/n{i % 1000:08d}_{i}.JPEG" for i in range(count)]


def _access(held: Any, places: list[int]) -> float:
    begun = time.perf_counter()
    for place in places:
        held[place]
    return (time.perf_counter() - begun) / len(places)


class _Names(reader.Dataset[int]):
    """Sample i is the number of characters of the i-th part of the names."""

    def __init__(self, names: Any) -> None:
        self.names = names

    def __getitem__(self, index: int) -> int:
        step = -(-len(self.names) // 64) or 1
        return sum(len(self.names[place]) for place in range(index * step, (index + 1) * step)
                   if place < len(self.names))  # fmt: skip

    def __len__(self) -> int:
        return 64


def _memory(dataset: _Names, workers: int) -> tuple[int, int]:
    """Return the memory of the trainer and its workers after an epoch."""
    with reader.DataLoader(
        dataset, batch_size=1, num_workers=workers, persistent_workers=True, start_method="fork"
    ) as loader:
        for _ in loader:
            pass
        pids = [status.pid for status in loader.workers()]
        return _own(), sum(_pss(pid) for pid in pids if pid is not None)


def _own() -> int:
    return _pss(os.getpid())


def _pss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


if __name__ == "__main__":
    raise SystemExit(main())
