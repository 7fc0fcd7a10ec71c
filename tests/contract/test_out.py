"""Samples that write themselves to their rows: `__getitem__(index, out=None)`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from reader import CollateError, DataLoader, Dataset, Subset
from reader.compat.torch import DataLoader as TorchLoader
from reader.data.columns import filler_of
from tests.datasets import digest_of

COUNT = 24


class Filled(Dataset[Any]):
    """Samples of one form, written to `out` if it is passed; `own` says how."""

    def __init__(self, make: Callable[[int], Any], write: Callable[[Any, Any], Any]) -> None:
        self.make, self.write = make, write
        self.lent = 0

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int, out: Any = None) -> Any:
        if out is None:
            return self.make(index)
        self.lent += 1
        return self.write(self.make(index), out)


def into(sample: Any, out: Any) -> Any:
    """Write each field that has a row into it, and return the sample with the rows."""
    if isinstance(sample, dict):
        return {key: into(sample[key], out[key]) for key in sample}
    if isinstance(sample, tuple):
        return tuple(map(into, sample, out))
    if isinstance(sample, np.ndarray) and out is not None:
        assert out.shape == sample.shape
        assert out.dtype == sample.dtype
        assert out.flags.writeable
        assert out.flags.c_contiguous
        out[...] = sample
        return out
    assert out is None
    return sample


def ignored(sample: Any, _: Any) -> Any:
    return sample


FORMS: dict[str, Callable[[int], Any]] = {
    "array": lambda i: np.full((3, 5), i, np.float32),
    "tuple": lambda i: (np.full(7, i, np.uint8), i, f"n{i}", np.int16(i)),
    "dict": lambda i: {"x": np.full((2, 2), i), "y": (np.full(1, i, bool), 0.5 * i)},
    "records": lambda i: np.array([(i, i / 2)] * 3, [("a", "i4"), ("b", "f8")]),
    "large": lambda i: np.full((60, 60, 60), i, np.float64),
}
KINDS = [{}, {"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"}]


def loaded(dataset: Any, **options: Any) -> list[Any]:
    with DataLoader(dataset, batch_size=5, framework="numpy", **options) as loader:
        return [digest_of(batch) for batch in loader]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("write", [into, ignored])
@pytest.mark.parametrize("form", FORMS)
def test_batches_are_those_of_samples_that_are_returned(
    form: str, write: Callable[[Any, Any], Any], kind: dict[str, Any]
) -> None:
    wanted = loaded([FORMS[form](i) for i in range(COUNT)])
    dataset = Filled(FORMS[form], write)
    assert loaded(dataset, **kind) == wanted
    assert loaded(Subset(dataset, range(COUNT)), **kind) == wanted
    if not kind:
        # all but the very first of each epoch: only then is the form unknown
        assert dataset.lent == 2 * (COUNT - 1)


def test_rows_that_samples_write_are_not_copied() -> None:
    places = []

    def write(sample: Any, out: Any) -> Any:
        out[...] = sample
        places.append(out.__array_interface__["data"][0])
        return out

    dataset = Filled(FORMS["array"], write)
    for number, batch in enumerate(DataLoader(dataset, batch_size=5, framework="numpy")):
        rows = [row.__array_interface__["data"][0] for row in batch]
        assert places == (rows if number else rows[1:])
        places.clear()


@pytest.mark.parametrize("kind", KINDS)
def test_forms_may_change_between_batches(kind: dict[str, Any]) -> None:
    def make(index: int) -> np.ndarray:
        return np.full(2 + index // 5 % 2, index)

    def write(sample: np.ndarray, out: np.ndarray) -> np.ndarray:
        if out.shape != sample.shape:
            out[...] = -1
            return sample
        out[...] = sample
        return out

    wanted = loaded([make(i) for i in range(COUNT)])
    assert loaded(Filled(make, write), **kind) == wanted


def raised(write: Callable[[Any, Any], Any], form: str = "array", **options: Any) -> str:
    with pytest.raises(CollateError) as info:
        loaded(Filled(FORMS[form], write), **options)
    return str(info.value)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_by_name(kind: dict[str, Any]) -> None:
    kept: list[Any] = []
    text = raised(lambda _, out: None, **kind)
    assert "returned None for sample 1 (dataset index 1) when it was given `out`; return" in text
    text = raised(lambda _, out: out[:2], **kind)
    assert "sample 1 (dataset index 1)" in text
    assert "has shape (2, 5) and in sample 0 it has (3, 5)" in text
    text = raised(lambda sample, out: (kept.append(out), into(sample, out))[1], **kind)
    assert "keeps a reference to `out` of sample 1 (dataset index 1)" in text
    text = raised(lambda sample, out: (kept.append(out[1:]), sample)[1], **kind)
    assert "keeps a reference to `out` of sample 1 (dataset index 1)" in text


def test_error_in_a_sample_leaves_the_next_batches_whole() -> None:
    def write(sample: Any, out: Any) -> Any:
        out[...] = -1
        if sample.flat[0] == 7:
            raise ValueError("no 7")
        return into(sample, out)

    wanted = loaded([FORMS["array"](i) for i in range(COUNT)])
    got: list[Any] = []
    with DataLoader(Filled(FORMS["array"], write), batch_size=5, framework="numpy") as loader:
        steps = iter(loader)
        while True:
            try:
                got.append(digest_of(next(steps)))
            except ValueError as error:
                got.append(str(error).partition("\n")[0])
            except StopIteration:
                break
    assert got == [wanted[0], "no 7", *wanted[2:]]


@pytest.mark.parametrize("workers", [0, 2])
def test_tensors_write_themselves_too(workers: int) -> None:
    class Tensors(Dataset[Any]):
        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, index: int, out: Any = None) -> Any:
            if out is None:
                return torch.full((4,), index), index
            assert isinstance(out[0], torch.Tensor)
            assert out[1] is None
            return out[0].fill_(index), index

    (batch, labels), *rest = TorchLoader(Tensors(), batch_size=6, num_workers=workers)
    assert torch.equal(batch, torch.arange(6).repeat_interleave(4).reshape(6, 4))
    assert torch.equal(labels, torch.arange(6))
    assert len(rest) == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_tensors_that_are_not_alike_are_collated_as_tensors(workers: int) -> None:
    torch = pytest.importorskip("torch")
    compat = pytest.importorskip("reader.compat.torch")

    class Mixed(Dataset[Any]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int, out: Any = None) -> Any:
            return torch.full((3,), float(index), dtype=(torch.float32, torch.float64)[index % 2])

    mine, its = (
        list(kind(Mixed(), batch_size=4, num_workers=workers))
        for kind in (compat.DataLoader, torch.utils.data.DataLoader)
    )
    assert len(mine) == 1
    assert mine[0].dtype == its[0].dtype
    assert mine[0].equal(its[0])


def test_only_a_parameter_of_that_name_counts() -> None:
    class Anything:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int, **more: Any) -> Any:
            assert not more
            return np.full(2, index)

    (batch,) = DataLoader(Anything(), batch_size=4, framework="numpy")
    assert batch[:, 0].tolist() == [0, 1, 2, 3]


def _decorated(function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return call


def _signed(self: Any, *args: Any, **named: Any) -> Any:
    raise AssertionError


_signed.__signature__ = inspect.signature(lambda self, index, out: None)  # type: ignore[attr-defined]


class _Called:
    def __call__(self, index: int, out: Any = None) -> Any:
        raise AssertionError


GIVEN = {
    "plain": lambda self, index, out=None: None,
    "keyword": lambda self, index, *, out=None: None,
    "decorated": _decorated(lambda self, index, out=None: None),
    "signed": _signed,
    "callable": _Called(),
    "method": functools.partialmethod(lambda self, some, index, out=None: None, 1),
}
NOT_GIVEN = {
    "positional": lambda self, index, out=None, /: None,
    "many": lambda self, index, *out: None,
    "named": lambda self, index, **out: None,
    "local": lambda self, index: [(out, out) for out in range(index)],
    "decorated": _decorated(lambda self, index: None),
    "c": list.__getitem__,
    "none": None,
}


@pytest.mark.parametrize("name", [*GIVEN, *NOT_GIVEN])
def test_parameter_is_seen_through_wrappers_of_the_function(name: str) -> None:
    for functions, is_given in ((GIVEN, True), (NOT_GIVEN, False)):
        if name in functions:
            body = {"__getitem__": functions[name], "__len__": lambda self: COUNT}
            assert (filler_of(type("Filled", (Dataset,), body)()) is not None) == is_given


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [DataLoader, TorchLoader], ids=["own", "torch"])
def test_parameter_of_a_dataset_that_was_written_for_another_library_is_left_alone(
    make: Any, workers: int
) -> None:
    class Its:
        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, index: int, out: str = "label") -> Any:
            return np.full(3, index), len(out)

    for batch, lengths in make(Its(), batch_size=6, num_workers=workers):
        assert np.asarray(batch).shape == (6, 3)
        assert np.asarray(lengths).tolist() == [5] * 6
