"""The batches of a batch sampler reach `__getitems__` as with PyTorch's loader."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from reader.compat.torch import DataLoader, StatefulDataLoader
from reader.data.batch_sampler import YieldedBatch

KINDS: dict[str, Any] = {
    "tensors": list(torch.arange(12).flip(0).split(5)),
    "arrays": list(np.arange(12).reshape(3, 4)),
    "small integers": [np.arange(200, 206, dtype=np.uint8)],
    "mask": [torch.tensor([True, False] * 120)],
    "ranges": [range(3), range(3, 12, 2)],
    "tuples": [(0, 1), (2, 3)],
    "dicts": [{3: "a", 4: "b"}],
    "text": ["12"],
    "numbers": [1, 2],
    "empty": [torch.arange(0), ()],
    "lists": [[0, 1], [2, 3]],
    "lists of tensors": [list(torch.arange(3))],
}


class Told:
    """Records the argument of `__getitems__`; one sample for each index."""

    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def __getitems__(self, keys: Any) -> list[Any]:
        return [type(keys), keys]


def as_it_is(samples: Any) -> Any:
    return samples


def told(loader: Any) -> list[Any]:
    """The argument of `__getitems__`, for comparing."""
    found = []
    for kind, keys in loader:
        values = keys.tolist() if hasattr(keys, "tolist") else keys
        found.append((kind, getattr(keys, "dtype", None), values))
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_getitems_gets_what_the_batch_sampler_yields(kind: str, workers: int) -> None:
    options: dict[str, Any] = {"batch_sampler": KINDS[kind], "collate_fn": as_it_is}
    expected = told(torch.utils.data.DataLoader(Told(), **options))  # type: ignore[type-var]
    assert told(DataLoader(Told(), num_workers=workers, **options)) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_getitems_gets_a_list_of_what_can_be_iterated_over_once(workers: int) -> None:
    batches = [iter([0, 1]), (index for index in (2, 3))]
    loader = DataLoader(Told(), batch_sampler=batches, collate_fn=as_it_is, num_workers=workers)
    assert told(loader) == [(list, None, [0, 1]), (list, None, [2, 3])]


def test_without_workers_getitems_gets_the_very_object() -> None:
    batches = list(torch.arange(6).split(3))
    loader = DataLoader(Told(), batch_sampler=batches, collate_fn=as_it_is)
    assert all(keys is batch for (_, keys), batch in zip(loader, batches, strict=True))


class Rows:
    """Rows of a tensor, indexed as a whole."""

    rows = torch.arange(40).reshape(20, 2)

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __getitems__(self, keys: torch.Tensor) -> torch.Tensor:
        return self.rows[keys]


def shuffled() -> Any:
    return torch.randperm(20, generator=torch.Generator().manual_seed(3)).split(3)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [0, 1, 4])
def test_01_an_order_of_tensors_resumes(workers: int, taken: int) -> None:
    options: dict[str, Any] = {"collate_fn": as_it_is, "num_workers": workers}
    expected = [batch.tolist() for batch in DataLoader(Rows(), batch_sampler=shuffled(), **options)]
    loader: Any = StatefulDataLoader(Rows(), batch_sampler=shuffled(), **options)
    batches = iter(loader)
    before = [next(batches).tolist() for _ in range(taken)]
    resumed: Any = StatefulDataLoader(Rows(), batch_sampler=shuffled(), **options)
    resumed.load_state_dict(pickle.loads(pickle.dumps(loader.state_dict())))
    assert before + [batch.tolist() for batch in resumed] == expected


def test_a_part_of_a_tensor_is_sent_without_the_rest() -> None:
    part = torch.arange(1_000_000).split(10)[5]
    sent = pickle.dumps(YieldedBatch(part))
    assert len(sent) < 2000
    assert torch.equal(pickle.loads(sent).yielded, part)
