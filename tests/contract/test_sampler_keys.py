"""Keys that a sampler may yield: the same answer without workers, in threads and in processes."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from reader import ConfigTypeError, DataLoader, SamplerError, Subset, SubsetRandomSampler

WORKERS: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"num_workers": 1, "worker_type": "thread"},
    {"num_workers": 1},
]


class Anything:
    """Has any key: its sample is the key's repr."""

    def __getitem__(self, key: Any) -> str:
        return f"{type(key).__name__}: {key}"

    def __len__(self) -> int:
        return 8


class Index:
    def __index__(self) -> int:
        return 2


class Broken:
    def __index__(self) -> int:
        raise ValueError("no number")


class Keys:
    """Yields keys, one after another."""

    def __init__(self, keys: list[Any]) -> None:
        self.keys = keys

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


def told(options: dict[str, Any], keys: list[Any], size: int | None) -> Any:
    """Return the batches of a loader, or how it refuses them."""
    loader = DataLoader(Anything(), sampler=Keys(keys), batch_size=size, **options)
    with loader:
        try:
            return list(loader)
        except SamplerError as error:
            return str(error)


REFUSED = [
    (True, r"yielded True \(bool\) in batch 0; a dataset index is .*np\.flatnonzero\(mask\)"),
    (np.True_, r"yielded np\.True_ \(bool\) in batch 0; .*flatnonzero"),
    (torch.tensor(True), r"yielded tensor\(True\) \(Tensor\) in batch 0; .*flatnonzero"),
    (np.array(True), r"flatnonzero"),
    (None, r"yielded None"),
    (1.0, r"yielded 1\.0 \(float\)"),
    (np.float64(1), r"yielded np\.float64\(1\.0\)"),
    (np.float32(1), r"yielded np\.float32\(1\.0\)"),
    (torch.tensor(1.0), r"yielded tensor\(1\.\)"),
    (1j, r"yielded 1j"),
    (np.complex64(1), r"yielded np\.complex64"),
    (torch.tensor([1, 2]), r"yielded tensor\(\[1, 2\]\)"),
    (np.array([1, 2]), r"yielded array\(\[1, 2\]\)"),
    ([1], r"yielded \[1\] \(list\)"),
    ({1: 2}, r"yielded \{1: 2\}"),
    (8, r"index 8 in batch 0.*has 8 samples"),
    (np.int64(-9), r"index -9 in batch 0"),
    (threading.Lock(), r"cannot be sent to a worker: .*picklable keys, with num_workers=0"),
    (lambda: 1, r"cannot be sent to a worker"),
    (Broken(), r"cannot be sent to a worker: no number"),
]


@pytest.mark.parametrize("size", [2, None])
@pytest.mark.parametrize(("key", "match"), REFUSED, ids=lambda value: str(value)[:20])
def test_a_key_is_refused_in_the_same_words_without_workers_in_threads_and_in_processes(
    key: Any, match: str, size: int | None
) -> None:
    answers = [told(options, [key, key], size) for options in WORKERS]
    assert re.search(match, answers[0]), answers[0]
    assert answers[1:] == answers[:1] * 2


TAKEN = [
    (1, "int: 1"),
    (-1, "int: -1"),
    (np.int8(1), "int: 1"),
    (np.uint64(3), "int: 3"),
    (np.array(1), "int: 1"),
    (torch.tensor(1), "int: 1"),
    (torch.tensor([1]), "int: 1"),
    (Index(), "int: 2"),
    ("a", "str: a"),
    (b"a", "bytes: b'a'"),
    (("a", 1), "tuple: ('a', 1)"),
    (np.str_("a"), "str_: a"),
    (np.datetime64("2020-01-01"), "datetime64: 2020-01-01"),
]


@pytest.mark.parametrize("size", [2, None])
@pytest.mark.parametrize(("key", "sample"), TAKEN, ids=lambda value: str(value)[:20])
def test_a_key_reaches_the_dataset_alike_without_workers_in_threads_and_in_processes(
    key: Any, sample: str, size: int | None
) -> None:
    batches: Any = [[sample, sample]] if size else [sample, sample]
    for options in WORKERS:
        assert told(options, [key, key], size) == batches


def test_a_mask_as_a_batch_of_a_batch_sampler_is_refused() -> None:
    mask = np.arange(8) > 5
    for options in WORKERS:
        loader = DataLoader(Anything(), batch_sampler=Keys([mask]), **options)
        with loader, pytest.raises(SamplerError, match="flatnonzero"):
            list(loader)


@pytest.mark.parametrize("mask", [np.arange(8) > 5, torch.arange(8) > 5, [True, False]])
def test_a_mask_instead_of_indices_is_refused(mask: Any) -> None:
    with pytest.raises(ConfigTypeError, match=r"a mask: .* np\.flatnonzero\(mask\)"):
        Subset(Anything(), mask)
    with pytest.raises(ConfigTypeError, match=r"a mask: .* np\.flatnonzero\(mask\)"):
        SubsetRandomSampler(mask)
