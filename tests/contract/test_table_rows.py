"""Rows of tables through the loader: the same in every cell and face, gathered, resumed."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, DataLoader, Subset, TableRows
from reader.data.columns import columns_of
from reader.data.pure_samples import has_pure_samples, holds_numbers

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

Cell = dict[str, Any]
COUNT = 403

_FIELDS = {"inputs": ["a", "b", "c"], "label": "label", "kind": "kind", "pair": "pair"}


@pytest.fixture(scope="module")
def table() -> Any:
    rng = np.random.default_rng(0)
    numbers = {name: rng.random(COUNT, np.float32) for name in "abc"}
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(rng.integers(0, 9, 2 * COUNT)), 2)
    return pa.table(
        numbers
        | {
            "half": rng.random(COUNT).astype(np.float16),
            "label": rng.integers(0, 2, COUNT).astype(np.int8),
            "flag": rng.random(COUNT) < 0.5,
            "kind": pa.array(rng.choice(["x", "y", "z"], COUNT)).dictionary_encode(),
            "pair": pairs,
        }
    )


# the first pyarrow whose files of Parquet have numbers of 16 bits
PARQUET_HAS_HALF = int(pa.__version__.partition(".")[0]) >= 15
# of "arrow" the file is used as it lies
KINDS = pytest.mark.parametrize("kind", ["parquet", "arrow", "table", "disk"])


def made(kind: str, table: Any, folder: Path, columns: Any = None) -> TableRows:
    if kind == "table":
        return TableRows(table, columns)
    if kind == "arrow":
        table = table.select(["a", "label", "pair"])
        with pa.ipc.new_file(str(folder / "t.arrow"), table.schema) as file:
            file.write_table(table)
        return TableRows(folder / "t.arrow")
    kept = table if PARQUET_HAS_HALF else table.drop(["half"])
    pq.write_table(kept, folder / "t.parquet", row_group_size=100)
    disk = folder / "kept" if kind == "disk" else None
    return TableRows(folder / "t.parquet", columns, disk=disk)


def gathered(loader: Any) -> dict[str, Any]:
    """Return the batches of an epoch, joined by field."""
    batches = [{name: np.array(part) for name, part in batch.items()} for batch in loader]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def equal_rows(found: dict[str, Any], rows: TableRows) -> None:
    assert list(found) == list(rows.fields)
    for name, array in zip(rows.fields, rows.arrays, strict=True):
        assert found[name].dtype == array.dtype
        assert (found[name] == array).all()


@pytest.mark.sampled(2)
@KINDS
def test_batches_are_the_rows(table: Any, tmp_path: Path, kind: str, each_cell: Cell) -> None:
    rows = made(kind, table, tmp_path)
    with DataLoader(rows, batch_size=32, **each_cell) as loader:
        equal_rows(gathered(loader), rows)


def test_batches_are_the_values_of_the_table(table: Any, tmp_path: Path, cell: Cell) -> None:
    rows = made("parquet", table, tmp_path, _FIELDS)
    with DataLoader(rows, batch_size=32, **cell) as loader:
        found = gathered(loader)
    inputs = np.stack([table[name].to_numpy() for name in "abc"], axis=1)
    assert (found["inputs"] == inputs).all()
    assert found["label"].tolist() == table["label"].to_pylist()
    assert found["pair"].tolist() == table["pair"].to_pylist()
    kinds = [rows.categories["kind"][code] for code in found["kind"]]
    assert kinds == table["kind"].to_pylist()


@KINDS
def test_rows_are_gathered(table: Any, tmp_path: Path, kind: str) -> None:
    rows = made(kind, table, tmp_path)
    assert columns_of(rows) is not None
    assert columns_of(Subset(rows, [3, 1])) is not None
    assert has_pure_samples(rows)
    assert holds_numbers(rows)


@KINDS
def test_no_python_code_runs_for_a_sample(table: Any, tmp_path: Path, kind: str) -> None:
    rows, calls = made(kind, table, tmp_path), []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "__getitem__":
            calls.append(frame.f_code.co_filename)

    loader = DataLoader(Subset(rows, list(range(50))), batch_size=16, num_workers=0)
    sys.setprofile(note)
    try:
        assert len([len(batch) for batch in loader]) == 4
    finally:
        sys.setprofile(None)
    # the first sample decides the form of batches
    assert len([each for each in calls if each.endswith("table_rows.py")]) == 1


@pytest.mark.parametrize("columns", [None, ["text", "a"]])
def test_texts_come_as_lists(table: Any, cell: Cell, columns: Any) -> None:
    texts = [f"row {k}" for k in range(COUNT)]
    rows = TableRows(table.append_column("text", pa.array(texts)), columns)
    with DataLoader(rows, batch_size=32, **cell) as loader:
        found = gathered(loader)
    assert found["text"].tolist() == texts
    assert (found["a"] == table["a"].to_numpy()).all()


@pytest.mark.sampled(2)
@KINDS
def test_a_shuffled_run_resumes_at_any_batch(
    table: Any, tmp_path: Path, kind: str, cell: Cell
) -> None:
    rows = made(kind, table, tmp_path)
    options: dict[str, Any] = {"batch_size": 100, "shuffle": True, "seed": 1}
    with DataLoader(rows, num_workers=0, **options) as loader:
        wanted = [batch["label"].copy() for batch in loader]
    for stop in (1, 3):
        with DataLoader(rows, **options, **cell) as loader:
            batches = iter(loader)
            for _ in range(stop):
                next(batches)
            state = loader.state_dict()
        with DataLoader(rows, **options) as loader:
            loader.load_state_dict(state)
            rest = [batch["label"].copy() for batch in loader]
        assert all((a == b).all() for a, b in zip(rest, wanted[stop:], strict=True))


@pytest.mark.parametrize("method", [pytest.param("forkserver", marks=pytest.mark.nightly), "spawn"])
def test_started_workers_map_the_same_file(table: Any, tmp_path: Path, method: str) -> None:
    """Its source is deleted, and they get no copy."""
    rows = made("parquet", table, tmp_path)
    (tmp_path / "t.parquet").unlink()
    with DataLoader(rows, batch_size=32, num_workers=2, start_method=method) as loader:
        equal_rows(gathered(loader), rows)


def test_a_missing_file_cannot_be_made_again(table: Any, tmp_path: Path) -> None:
    pickled = pickle.dumps(made("parquet", table, tmp_path))
    (tmp_path / "t.parquet").unlink()
    with pytest.raises(ConfigError, match=r"'.*t.parquet' cannot be read"):
        pickle.loads(pickled)


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # of PyTorch's own
@pytest.mark.parametrize("workers", [0, 2])
@KINDS
def test_batches_for_torch_are_those_of_torch(
    table: Any, tmp_path: Path, kind: str, workers: int
) -> None:
    rows = made(kind, table, tmp_path)
    torch = pytest.importorskip("torch")
    from reader.compat.torch import DataLoader as TorchLoader

    usual = torch.utils.data.DataLoader(rows, 32)
    with TorchLoader(rows, 32, num_workers=workers) as loader:
        for batch, wanted in zip(loader, usual, strict=True):
            assert list(batch) == list(wanted)
            for name, tensor in wanted.items():
                assert batch[name].dtype == tensor.dtype
                assert (batch[name] == tensor).all()
