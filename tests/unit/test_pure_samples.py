"""Which datasets are known to have pure samples, and how a dataset says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch
import torch.utils.data

import reader
from reader import ConfigTypeError, DataLoader
from reader.data.pure_samples import has_pure_samples, holds_numbers
from tests.datasets import Indices


class Pure(Indices):
    has_pure_samples = True

    def __getitem__(self, index: int) -> int:
        return index


class Inherits(Pure):
    pass


class FetchesAnew(Pure):
    def __getitem__(self, index: int) -> int:
        return -index


class FetchesMany(Pure):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return indices


class TakesBack(Pure):
    has_pure_samples = False


class AsksItself(Indices):
    def __init__(self, transform: Any = None) -> None:
        super().__init__()
        self.transform = transform

    @property
    def has_pure_samples(self) -> bool:
        return self.transform is None

    def __getitem__(self, index: int) -> int:
        return index


class Wrapper:
    """Passes on all attributes of another dataset, and fetches in its own way."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __getitem__(self, index: int) -> int:
        return int(self.inner[index]) + 1


class Slotted(Wrapper):
    __slots__ = ("inner",)


def told() -> Any:
    dataset = Indices()
    dataset.has_pure_samples = True  # type: ignore[attr-defined]
    return dataset


class Cut(torch.utils.data.Subset[int]):
    def __getitem__(self, index: Any) -> Any:
        return self.dataset[0]

    def __getitems__(self, indices: list[int]) -> Any:
        return [self.dataset[0] for _ in indices]


ROWS = np.arange(8)
PURE: dict[str, Any] = {
    "said": Pure(),
    "inherited": Inherits(),
    "of the object": told(),
    "property": AsksItself(),
    "list": [1, 2, 3],
    "range": range(4),
    "array": ROWS,
    "tensor": torch.arange(4),
    "arrays": reader.TensorDataset([ROWS, ROWS]),
    "arrays of torch": torch.utils.data.TensorDataset(torch.arange(4)),
    "chosen": reader.Subset(Pure(), [3, 1]),
    "chosen by torch": torch.utils.data.Subset(Pure(), [3, 1]),  # type: ignore[arg-type]
    "chosen by paddle": paddle.io.Subset(Pure(), [3, 1]),
    "joined": reader.ConcatDataset([Pure(), reader.Subset(Pure(), [1]), [1, 2]]),
    "joined by torch": torch.utils.data.ConcatDataset([Pure(), Pure()]),  # type: ignore[list-item]
    "joined by paddle": paddle.io.ConcatDataset([Pure(), Pure()]),
    "side by side": reader.ComposeDataset([Pure(), ROWS]),
}
NOT_PURE: dict[str, Any] = {
    "silent": Indices(),
    "fetches anew": FetchesAnew(),
    "fetches many": FetchesMany(),
    "takes it back": TakesBack(),
    "property": AsksItself(transform=abs),
    "wrapper": Wrapper(Pure()),
    "wrapper with slots": Slotted(Pure()),
    "chosen": reader.Subset(Indices(), [0]),
    "chosen in a way of its own": Cut(Pure(), [0]),  # type: ignore[arg-type]
    "joined": reader.ConcatDataset([Pure(), Indices()]),
    "rows of something else": reader.TensorDataset([ROWS, Indices()]),
    "chosen by something else": reader.Subset(Pure(), Indices()),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", PURE)
def test_samples_are_known_to_be_pure(case: str) -> None:
    assert has_pure_samples(PURE[case]) is True


@pytest.mark.parametrize("case", NOT_PURE)
def test_samples_are_not_known_to_be_pure(case: str) -> None:
    assert has_pure_samples(NOT_PURE[case]) is False


@pytest.mark.parametrize("said", [None, 1, "yes"])
def test_dataset_that_says_neither_is_refused_when_the_loader_is_made(said: Any) -> None:
    dataset = told()
    dataset.has_pure_samples = said
    with pytest.raises(ConfigTypeError, match="has_pure_samples of a dataset must be"):
        DataLoader(dataset, num_workers=2)


class LazyFields(torch.utils.data.TensorDataset):
    tensors = property(lambda self: (torch.rand(8, 2),))  # type: ignore[assignment]

    def __init__(self) -> None:
        pass


def test_arrays_of_numbers_alone_are_known_to_run_no_code() -> None:
    numbers: list[Any] = [
        range(3),
        np.zeros((3, 2)),
        torch.zeros(3, 2),
        paddle.zeros([3, 2]),
        torch.utils.data.TensorDataset(torch.zeros(3, 2), torch.zeros(3)),
        reader.TensorDataset([np.zeros((3, 2)), torch.zeros(3)]),
    ]
    assert all(map(holds_numbers, numbers))
    others: list[Any] = [
        [1, 2],
        (1, 2),
        Pure(),
        np.array([{}, {}], object),
        torch.utils.data.TensorDataset(torch.zeros(3)).__class__,
        reader.TensorDataset([np.zeros(3), np.array([{}, {}, {}], object)]),
        LazyFields(),
        torch.utils.data.Subset(np.zeros((3, 2)), [0, 1]),  # type: ignore[arg-type]
    ]
    assert not any(map(holds_numbers, others))


def test_a_class_with_a_replaced_getitem_is_not_known_to_be_pure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset = torch.utils.data.TensorDataset(torch.zeros(8, 2))
    assert has_pure_samples(dataset)
    monkeypatch.setattr(torch.utils.data.TensorDataset, "__getitem__", lambda self, at: at)
    assert not has_pure_samples(dataset)
    assert not holds_numbers(dataset)
    assert next(iter(DataLoader(dataset, batch_size=8))).tolist() == list(range(8))
