"""The private names of PyTorch that this face uses, all of them.

Imports torch. If a version of PyTorch lacks one of them, this import fails, and not a later epoch.
Keeps no state.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
from collections import ChainMap
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeAlias

import torch
from torch.multiprocessing import reductions
from torch.utils.data import dataloader
from torch.utils.data._utils import collate, worker
from torch.utils.data._utils import pin_memory as pinning

__all__ = [
    "BaseIterator",
    "CollateFn",
    "InlineBase",
    "PeerIterator",
    "collate",
    "context_name",
    "is_in_torch_mode",
    "is_profiled",
    "numpy_seed",
    "pin_memory",
    "profile_name",
    "queue_reducers",
    "rebuild_tensor",
    "reduce_tensor",
    "shard_pipes",
    "takes_in_order",
]

_queue_pickler: Any = ForkingPickler
PeerIterator: TypeAlias = dataloader._BaseDataLoaderIter
CollateFn: TypeAlias = dataloader._collate_fn_t  # type: ignore[type-arg]
BaseIterator: Any = PeerIterator
InlineBase: Any = dataloader._SingleProcessDataLoaderIter
shard_pipes: Any = dataloader._sharding_worker_init_fn
# the attribute of a loader that `multiprocessing_context` returns
context_name = "_DataLoader__multiprocessing_context"
# from PyTorch 2.6 on
takes_in_order = "in_order" in inspect.signature(dataloader.DataLoader.__init__).parameters
numpy_seed: Any = worker._generate_state  # (base seed, worker) -> the seed of NumPy's global state
pin_memory: Any = pinning.pin_memory
is_profiled: Any = torch.autograd._profiler_enabled  # type: ignore[attr-defined]
# the reducers that the pickler of queues has beyond pickle's, also those registered later
queue_reducers: Any = ChainMap(_queue_pickler._extra_reducers, copyreg.dispatch_table)
rebuild_tensor: Any = reductions.rebuild_tensor
reduce_tensor: Any = reductions.reduce_tensor


@functools.cache
def profile_name(has_workers: bool) -> str:
    """Return PyTorch's name of a batch in a profile; tools look for the names of its iterators."""
    kind: Any = dataloader._MultiProcessingDataLoaderIter if has_workers else InlineBase
    return f"enumerate(DataLoader)#{kind.__name__}.__next__"


def is_in_torch_mode() -> bool:
    """Whether a mode of torch, such as a default device, changes what its functions do."""
    its: Any = torch._C
    return bool(its._len_torch_function_stack() or its._len_torch_dispatch_stack())
