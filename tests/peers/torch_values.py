"""PyTorch's own functions for samples and batches, and when two values are the same.

Imports torch. Holds no state but what `as_worker` sets for the length of a block.
"""

from __future__ import annotations

import enum
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import reduction
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import worker

from reader.compat.torch.collate import TorchRules
from reader.frameworks.torch import to_torch_as_sent
from tests.wire import Wire


@contextmanager
def as_worker() -> Iterator[None]:
    """In this block PyTorch does what it does in its worker processes."""
    told = worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=None)
    with mock.patch.object(worker, "_worker_info", told):
        yield


def collated(samples: list[Any]) -> Any:
    """The batch by PyTorch's function, as a worker makes it."""
    with as_worker():
        return default_collate(samples)


class _Fd:
    """A descriptor that stays in this process."""

    def __init__(self, fd: int) -> None:
        self.fd = os.dup(fd)

    def detach(self) -> int:
        return self.fd


def queued(batch: Any) -> Any:
    """A batch after the queue of PyTorch's workers."""
    with mock.patch.object(reduction, "DupFd", _Fd):
        return pickle.loads(reduction.ForkingPickler.dumps(batch))


class Road:
    """A Wire of the torch face."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        wire.channel.set_rules(TorchRules())

    def collate(self, samples: list[Any]) -> Any:
        """A batch as the face makes it of samples by default."""
        with as_worker():
            return to_torch_as_sent(self.wire.stack(samples))

    def draw(self, samples: list[Any]) -> Any:
        """The same of an iterable dataset."""
        with as_worker():
            return to_torch_as_sent(self.wire.stream(samples))

    def send(self, batch: Any) -> Any:
        """The result of a collate_fn, as the trainer gets it."""
        return to_torch_as_sent(self.wire.write(batch))


def check_same(ours: Any, theirs: Any, where: str = "batch") -> None:
    """Fail unless two values are the same in type, form and content, down to the strides."""
    assert type(ours) is type(theirs), f"{where}: {type(ours)} and {type(theirs)}"
    if isinstance(theirs, torch.Tensor):
        _check_same_tensor(ours, theirs, where)
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype, where
        assert ours.shape == theirs.shape, where
        assert ours.flags.f_contiguous == theirs.flags.f_contiguous, where
        assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind in "fc"), where
    elif isinstance(theirs, Mapping):
        assert list(ours) == list(theirs), where
        for key in theirs:
            check_same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, Sequence) and not isinstance(theirs, (str, bytes)):
        assert len(ours) == len(theirs), where
        for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            check_same(one, other, f"{where}[{place}]")
    elif isinstance(theirs, (type, enum.Enum)) or callable(theirs):
        assert ours is theirs, where
    elif isinstance(theirs, torch.UntypedStorage):
        assert bytes(list(ours)) == bytes(list(theirs)), where
    elif not _parts(theirs):
        assert ours == theirs or (ours != ours and theirs != theirs), where
    assert _parts(ours).keys() == _parts(theirs).keys(), where
    for name, part in _parts(theirs).items():
        check_same(_parts(ours)[name], part, f"{where}.{name}")


def _parts(value: Any) -> dict[str, Any]:
    """The attributes of an instance of a user's class."""
    if isinstance(value, (type, enum.Enum, torch.nn.Parameter)) or callable(value):
        return {}
    slots = {name: getattr(value, name) for name in getattr(type(value), "__slots__", ())}
    return {**slots, **getattr(value, "__dict__", {})}


def _check_same_tensor(ours: torch.Tensor, theirs: torch.Tensor, where: str) -> None:
    for name in ("dtype", "device", "layout", "requires_grad", "is_nested", "is_leaf"):
        assert getattr(ours, name) == getattr(theirs, name), f"{where}: {name}"
    if theirs.is_nested:
        for place, (one, other) in enumerate(zip(ours.unbind(), theirs.unbind(), strict=True)):
            check_same(one, other, f"{where} part {place}")
        return
    assert ours.shape == theirs.shape, where
    if theirs.layout is not torch.strided:
        assert torch.equal(ours.to_dense(), theirs.to_dense()), where
        return
    assert ours.stride() == theirs.stride(), f"{where}: {ours.stride()}, {theirs.stride()}"
    if theirs.is_meta:
        return
    assert ours.is_conj() == theirs.is_conj(), where
    assert bytes_of(ours) == bytes_of(theirs), f"{where}: {ours} and {theirs}"


def bytes_of(tensor: torch.Tensor) -> bytes:
    """The elements in C order."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if dense.element_size() * dense.numel() != dense.untyped_storage().nbytes():
        dense = dense.clone()
    raw = torch.empty(0, dtype=torch.uint8).set_(dense.untyped_storage())  # type: ignore[call-overload]
    return raw.numpy().tobytes()
