"""Batches of rows of a table, beside PyTorch's loader over a dict of tensors.

The Parquet file has 32 columns of float32 and a label; each loader makes batches of 4,096 rows
with 2 workers. It is said how long each dataset takes to open, too.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reader import DataLoader, TableRows
from tools.domain_bench.work import Work, left_out, part_of_epoch

FEATURES, BATCH, WORKERS = [f"f{number}" for number in range(32)], 4096, 2
_BATCHES = {"usual": 20, "fast": 600}  # of a turn


def tables(folder: Path, rows: float) -> Work:
    """Rows of a table in a Parquet file."""
    path = folder / "table.parquet"
    _make_file(path, int(rows))
    turns = (
        (name, functools.partial(part_of_epoch, loader, _BATCHES[speed], ahead=2 * WORKERS))
        for name, speed, loader in _loaders(path)
    )
    return Work(turns, "us per batch", warm_ups=0)


def _make_file(path: Path, count: int) -> None:
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
    with left_out("PyTorch"):
        import torch
        from torch.utils.data import DataLoader as TorchLoader

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
    """The usual program: tensors, and a dict with a row of each."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns["label"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self._columns.items()}
