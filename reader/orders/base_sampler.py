"""Find what an order must know of the user's samplers: what they batch, whether they have a state.

Imports batch samplers, `reader.data.seekable`, the random state and the core. The samplers are
the user's; only `put_generators` changes them.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from reader._core.interpreter.own_attribute import MISSING, own_attribute
from reader.data.batch_sampler import BatchSampler, NoBatching, batched
from reader.data.seekable import Seekable
from reader.errors import StateError, got
from reader.random.random_state import from_json, generator_state, set_generator, to_json

__all__ = [
    "LOAD",
    "TORCH_DISTRIBUTED",
    "Batching",
    "batching_of",
    "changes_of",
    "check_changes",
    "check_generators",
    "generator_states",
    "has_state",
    "is_seekable",
    "is_sharding_sampler",
    "is_torch_sampler",
    "put_generators",
    "state_of",
]

TORCH_DISTRIBUTED = "torch.utils.data.distributed"
_OF_TORCHDATA = ("torchdata.stateful_dataloader.sampler", "reader.compat.torch.sampler")
_OF_RANKS = (
    (TORCH_DISTRIBUTED, "DistributedSampler.__iter__"),
    *((home, "StatefulDistributedSampler.__iter__") for home in _OF_TORCHDATA),
)
LOAD = "Load a state that was saved with the same dataset, sampler and options."


class Batching(NamedTuple):
    """A batch sampler that only batches the keys of a sampler."""

    sampler: Any
    batch_size: int
    drop_last: bool

    def batches(self, keys: Iterator[Any]) -> Iterator[list[Any]]:
        """Make batches of `keys` as the batch sampler does."""
        return batched(keys, self.batch_size, self.drop_last)


def batching_of(batches: Any) -> Batching | None:
    """Return the sampler and batch size of a batch sampler; None: it makes batches otherwise."""
    kind = type(batches)
    if kind is NoBatching:
        return Batching(batches.sampler, 1, False)
    if kind is BatchSampler or (kind.__module__, kind.__qualname__) == _OF_TORCH:
        return Batching(batches.sampler, batches.batch_size, batches.drop_last)
    return None


_OF_TORCH = ("torch.utils.data.sampler", "BatchSampler")


def is_seekable(batches: Any, batching: Batching | None) -> bool:
    """Whether the order of a batch sampler can be opened at any position."""
    items = batches if batching is None else batching.sampler
    if type(items) in (list, tuple, range, np.ndarray):
        return True
    for base in type(items).__mro__:
        if "iter_from" in vars(base):
            # the base class's iter_from draws the items again and skips them
            return vars(base)["iter_from"] is not vars(Seekable)["iter_from"]
        if "__iter__" in vars(base):
            return False  # an inherited iter_from would give the order of the inherited __iter__
    return False


def is_sharding_sampler(sampler: Any) -> bool:
    """Whether a sampler gives each rank its share of one order."""
    if not hasattr(sampler, "num_replicas"):
        return False  # as most samplers
    return is_torch_sampler(sampler) or callable(getattr(type(sampler), "resume_from", None))


def is_torch_sampler(sampler: Any) -> bool:
    """Whether torch's own `__iter__`, or that of torchdata, gives the order of its ranks."""
    method = getattr(type(sampler), "__iter__", None)
    name = (getattr(method, "__module__", ""), getattr(method, "__qualname__", ""))
    return name in _OF_RANKS


def changes_of(sampler: Any) -> list[Any] | None:
    """Return the list of changes of a sampler whose order may change while it is drawn.

    None: no order of it does. It grows in place. Such a sampler has `check_changes`, which refuses
    changes of another one, and `load_changes`, which takes those of a state.
    """
    if not callable(getattr(type(sampler), "load_changes", None)):
        return None
    found: list[Any] = sampler.changes
    return found


def check_changes(sampler: Any, state: dict[str, Any]) -> None:
    """Refuse changes of another sampler's order."""
    if "changes" not in state:
        return
    if changes_of(sampler) is None:
        raise StateError(
            f"the order in the state was changed while it was drawn, and {type(sampler).__name__}"
            f" here has no changes. {LOAD}"
        )
    sampler.check_changes(state["changes"])


def has_state(value: Any) -> bool:
    """Whether a sampler, dataset or iterator has `state_dict` and `load_state_dict`."""
    its = getattr(value, "state_dict", None)
    return its is not None and callable(its) and callable(getattr(value, "load_state_dict", None))


def state_of(value: Any) -> Any:
    """Return a copy of an object's state."""
    return copy.deepcopy(value.state_dict())


def generator_states(batches: Any) -> list[Any]:
    """Return the states of the torch generators of a batch sampler and of samplers in it.

    None stands for a generator that a sampler of the user or another library may make later: its
    `generator` is None now.
    """
    found = [getattr(holder, "generator", None) for holder in _holders(batches)]
    return [None if each is None else to_json(generator_state(each)) for each in found]


def _holders(batches: Any) -> list[Any]:
    """Return the samplers that have their own generator, or may make one."""
    kind = getattr(sys.modules.get("torch"), "Generator", None)
    found: list[Any] = []
    known: list[Any] = []
    for _ in range(8):
        if kind is None or batches is None:
            break
        generator = getattr(batches, "generator", None)
        if isinstance(generator, kind) and not any(each is generator for each in known):
            known.append(generator)
            found.append(batches)
        elif generator is None and _may_get_generator(batches):
            found.append(batches)
        inner = own_attribute(batches, "sampler")
        batches = own_attribute(batches, "batch_sampler") if inner is None else inner
    return found


def _may_get_generator(sampler: Any) -> bool:
    """Whether the sampler may make its generator later."""
    if own_attribute(sampler, "generator", MISSING) is MISSING:
        return False
    return not type(sampler).__module__.startswith(_KNOWN)


_KNOWN = ("torch.utils.data.", "reader.")  # they keep the generator they were made with, or none


def put_generators(batches: Any, states: list[Any]) -> None:
    """Restore the generators of samplers."""
    for holder, state in zip(_holders(batches), states, strict=True):
        if state is None:
            holder.generator = None
            continue
        if holder.generator is None:
            holder.generator = sys.modules["torch"].Generator()
        set_generator(holder.generator, from_json(state))


def check_generators(batches: Any, state: dict[str, Any]) -> None:
    """Refuse a value that is no list of states of the samplers' generators."""
    states = state.get("generators", [])
    holders = _holders(batches)
    if not isinstance(states, list) or len(states) != len(holders):
        raise StateError(
            f"generators in the state must be the states of {len(holders)} generators, got"
            f" {got(states)}. Give the samplers the generators they had. {LOAD}"
        )
    for holder, each in zip(holders, states, strict=True):
        if each is None and _may_get_generator(holder):
            continue
        own = holder.generator
        size = len(generator_state(sys.modules["torch"].Generator() if own is None else own))
        found = from_json(each)
        if not isinstance(found, bytes) or len(found) != size:
            raise StateError(f"a generator's state must have {size} bytes, got {got(each)}. {LOAD}")
