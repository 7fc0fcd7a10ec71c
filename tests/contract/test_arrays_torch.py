"""Tensors whose rows go into batches without Python code: batches are PyTorch's own."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch.utils import data

from reader import DataLoader as EngineLoader
from reader.compat.torch import DataLoader
from reader.data.columns import columns_of

COUNT = 70
FLOATS = torch.arange(COUNT * 6, dtype=torch.float32).reshape(COUNT, 2, 3)
LABELS = torch.arange(COUNT)

COLUMNS = {
    "floats": (FLOATS, LABELS),
    "one": (FLOATS,),
    "bfloat16": (FLOATS.bfloat16(), LABELS.bool()),
    "small": (LABELS.to(torch.int8), LABELS.to(torch.complex64)),
    "every-second": (FLOATS[::2], LABELS[1::2]),
    "same-row": (FLOATS[:1].expand(COUNT, 2, 3),),
    "channels-last": (torch.zeros(COUNT, 3, 4, 4).to(memory_format=torch.channels_last),),
    "transposed": (torch.arange(6 * COUNT).reshape(6, COUNT).T,),
    "conjugated": (torch.ones(COUNT, dtype=torch.complex64).conj(),),
    "negated": (torch.ones(COUNT, dtype=torch.complex64).conj().imag,),
    "no-columns": (torch.empty(COUNT, 0), LABELS),
}


def check_same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.requires_grad == theirs.requires_grad
        assert torch.equal(ours, theirs)
    else:
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs):
            check_same(mine, other)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", COLUMNS)
def test_batches_are_pytorchs(name: str, workers: int) -> None:
    whole = data.TensorDataset(*COLUMNS[name])
    for dataset in (whole, data.Subset(whole, [3, 1, 1, 20, 0]), COLUMNS[name][0]):
        assert columns_of(dataset) is not None
        options: dict[str, Any] = {"batch_size": 4, "num_workers": workers}
        ours = list(DataLoader(dataset, **options))
        theirs = list(data.DataLoader(dataset, batch_size=4))
        check_same(ours, theirs)


@pytest.mark.parametrize("workers", [0, 1])
def test_tensors_that_need_a_gradient_are_the_same_as_before(workers: int) -> None:
    weights = torch.ones(COUNT, 2, requires_grad=True)
    dataset = data.TensorDataset(weights, LABELS)
    if workers:
        with pytest.raises(RuntimeError, match="requires grad"):
            list(DataLoader(dataset, batch_size=4, num_workers=1))
    else:
        ours, theirs = (kind(dataset, batch_size=4) for kind in (DataLoader, data.DataLoader))
        check_same(list(ours), list(theirs))


def test_the_engine_gathers_tensors_as_well() -> None:
    dataset = data.TensorDataset(FLOATS, LABELS.bfloat16())
    for batch, labels in EngineLoader(dataset, batch_size=COUNT, framework="torch"):
        assert torch.equal(batch, FLOATS)
        assert torch.equal(labels, LABELS.bfloat16())


def test_sample_is_fetched_by_no_python_code() -> None:
    fetch, calls = data.TensorDataset.__getitem__.__code__, []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is fetch:
            calls.append(event)

    loader = DataLoader(data.TensorDataset(FLOATS, LABELS), batch_size=4, shuffle=True)
    sys.setprofile(note)
    try:
        assert len(list(loader)) == 18
    finally:
        sys.setprofile(None)
    assert len(calls) == 1
