"""Prepare a worker as PyTorch does: its seeds and its number of threads.

Imports torch. Runs in the worker before any code of the user. In a worker process it seeds the
global random state; in a thread of the trainer it leaves that alone.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Any

import numpy as np
import torch

from reader.compat.torch import inner
from reader.worker.context import get_worker_info

__all__ = ["TorchWorker"]


@dataclasses.dataclass(frozen=True)
class TorchWorker:
    """Prepares a worker as `torch.utils.data._utils.worker._worker_loop` does.

    Args:
        base_seed: drawn by the iterator. Worker i seeds `random` and torch with base_seed + i, and
            NumPy with what PyTorch derives from the two.
        shared_seed: shuffles DataPipes; None without them.
    """

    base_seed: int
    shared_seed: int | None = None

    def __call__(self, worker_id: int, num_workers: int, dataset: Any) -> int:  # noqa: ARG002
        """Prepare this process or thread; return the seed in its `get_worker_info`."""
        seed = self.base_seed + worker_id
        own = get_worker_info()
        if own is not None and own.rng is not None:  # in the trainer
            return seed
        torch.set_num_threads(1)
        _stack_in_private_memory()
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(inner.numpy_seed(self.base_seed, worker_id))
        if self.shared_seed is not None:
            from torch.utils.data.graph_settings import apply_random_seed

            apply_random_seed(dataset, torch.Generator().manual_seed(self.shared_seed))
        return seed


def _stack_in_private_memory() -> None:
    """Make `default_collate` use no /dev/shm when code of the user calls it in this process.

    In a worker PyTorch stacks each batch into a new segment of shared memory, which it sends to the
    trainer; here the batch is copied into its slot.
    """
    functions = inner.collate
    original = functions.collate_tensor_fn
    if functions.default_collate_fn_map.get(torch.Tensor) is not original:
        return  # it was replaced already, perhaps by us in the process that forked this one

    @functools.wraps(original)
    def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        if first.is_nested or first.layout is not torch.strided:
            return original(batch, collate_fn_map=collate_fn_map)  # refuses it
        for each in batch:
            each.numel()  # as PyTorch calls in a worker: raises its error for what is no tensor
        # PyTorch stacks into a tensor like the first one in a worker: the first type decides
        out = first.new_empty((len(batch), *first.size()))
        return torch.stack(batch, 0, out=out)

    functions.collate_tensor_fn = collate_tensor_fn
    functions.default_collate_fn_map[torch.Tensor] = collate_tensor_fn
