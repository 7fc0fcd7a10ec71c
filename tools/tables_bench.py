"""Measure batches of rows of a table, beside PyTorch's loader over a dict of tensors.

    python -m tools.tables_bench [--rows 5e6] [--rounds 3] [--json FILE]

Makes a Parquet file with 32 columns of float32 and a label, and has each loader make batches of
4,096 rows with 2 workers, in turns, in one run. Medians of the rounds are shown, in microseconds
for a batch, and how long each dataset takes to open.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reader import DataLoader, TableRows

FEATURES, BATCH, WORKERS = [f"f{number}" for number in range(32)], 4096, 2
_BATCHES = {"usual": 20, "fast": 600}  # of each measurement, after a tenth as many


def main() -> int:
    """Measure and print a table; write JSON where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.tables_bench", description=__doc__)
    parser.add_argument("--rows", type=float, default=5e6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        make_file(path, int(chosen.rows))
        contestants = {name: (speed, loader) for name, speed, loader in _loaders(path)}
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(chosen.rounds):
            for name, (speed, loader) in contestants.items():
                times[name].append(_seconds_per_batch(loader, _BATCHES[speed]))
    found = {name: statistics.median(each) for name, each in times.items()}
    first = next(iter(found.values()))
    for name, value in found.items():
        print(f"{name:62s} {value * 1e6:10.1f} us per batch, {first / value:7.1f} times faster")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1))
    return 0


def make_file(path: Path, count: int) -> None:
    """Write random rows, a million to a row group."""
    rng, writer = np.random.default_rng(0), None
    while count > 0:
        some = min(count, 10**6)
        columns = {name: rng.random(some, np.float32) for name in FEATURES}
        table = pa.table(columns | {"label": rng.integers(0, 2, some)})
        writer = pq.ParquetWriter(path, table.schema) if writer is None else writer
        writer.write_table(table)
        count -= some
    if writer is not None:
        writer.close()


def _seconds_per_batch(loader: Any, batches: int) -> float:
    some = iter(loader)
    for _ in islice(some, batches // 10 + 2 * WORKERS):
        pass
    begun = time.perf_counter()
    count = sum(1 for _ in islice(some, batches))
    taken = time.perf_counter() - begun
    del some
    return taken / count


def _opened(what: str, make: Callable[[], Any]) -> Any:
    begun = time.perf_counter()
    made = make()
    print(f"{what} takes {time.perf_counter() - begun:.1f} s to open")
    return made


def _loaders(path: Path) -> Iterator[tuple[str, str, Any]]:
    joined = {"features": FEATURES, "label": "label"}
    rows: Any = _opened("TableRows", lambda: TableRows(path))
    matrix: Any = _opened("TableRows, one field", lambda: TableRows(path, joined))
    options: dict[str, Any] = {"batch_size": BATCH, "num_workers": WORKERS}
    try:
        import torch
        from torch.utils.data import DataLoader as TorchLoader
    except ImportError as error:
        print(f"left out: PyTorch ({error})")
    else:
        from reader.compat.torch import DataLoader as OurTorchLoader

        table = _opened("pandas", lambda: pq.read_table(path).to_pandas())
        columns = {name: torch.from_numpy(table[name].to_numpy().copy()) for name in table}
        values = torch.from_numpy(np.ascontiguousarray(table[FEATURES].to_numpy()))
        labels = columns["label"]
        del table
        forms: dict[str, Any] = {
            "a dict of 33 numbers": _Usual(columns),
            "features, label": _Usual({"features": values, "label": labels}),
        }
        for shuffle in (True, False):
            how = "shuffled" if shuffle else "in order"
            for name, usual in forms.items():
                yield (
                    f"PyTorch, {name}, {how}",
                    "usual",
                    TorchLoader(usual, shuffle=shuffle, **options),
                )
            yield (
                f"reader.compat.torch, features, label, {how}",
                "fast",
                OurTorchLoader(matrix, shuffle=shuffle, **options),
            )
    for shuffle in (True, False):
        how = "shuffled" if shuffle else "in order"
        for name, dataset in (("a dict of 33 numbers", rows), ("features, label", matrix)):
            loader = DataLoader(dataset, shuffle=shuffle, **options)
            yield f"reader, {name}, {how}", "fast", loader


class _Usual:
    """What most programs have: tensors, and a dict with a row of each."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns["label"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self._columns.items()}


if __name__ == "__main__":
    raise SystemExit(main())
