"""Samplers and batch samplers as an order sees them: what is cut, what has a state, what draws.

Imports `reader.data.{batch_sampler,random_state}` and `reader.errors`. Pure questions but for
`put_generators`; what they are asked of is the user's.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Any

from reader.data.batch_sampler import BatchSampler, NoBatching
from reader.data.random_state import from_json, generator_state, set_generator, to_json
from reader.errors import StateError, got

__all__ = [
    "LOAD",
    "Batching",
    "batching_of",
    "check_generators",
    "generator_states",
    "has_state",
    "put_generators",
    "state_of",
]

LOAD = "Load a state that was saved with the same dataset, sampler and options."


@dataclasses.dataclass(frozen=True)
class Batching:
    """A batch sampler that does nothing but cut what a sampler yields."""

    sampler: Any
    batch_size: int
    drop_last: bool

    def batches(self, keys: Iterator[Any]) -> Iterator[list[Any]]:
        """Batching `keys` as it does."""
        made: Iterator[list[Any]] = iter(lambda: list(islice(keys, self.batch_size)), [])
        return takewhile(self._is_full, made) if self.drop_last else made

    def _is_full(self, batch: list[Any]) -> bool:
        return len(batch) == self.batch_size


def batching_of(batches: Any) -> Batching | None:
    """Return what a batch sampler cuts; None for one with ways of its own."""
    kind = type(batches)
    if kind is NoBatching:
        return Batching(batches.sampler, 1, False)
    if kind is BatchSampler or (kind.__module__, kind.__qualname__) == _OF_TORCH:
        return Batching(batches.sampler, batches.batch_size, batches.drop_last)
    return None


_OF_TORCH = ("torch.utils.data.sampler", "BatchSampler")


def has_state(value: Any) -> bool:
    """Whether a sampler, dataset or iterator says and takes where it is."""
    return callable(getattr(value, "state_dict", None)) and callable(
        getattr(value, "load_state_dict", None)
    )


def state_of(value: Any) -> Any:
    """Return the state of what has one, apart from what may go on to change."""
    return copy.deepcopy(value.state_dict())


def generator_states(batches: Any) -> list[Any]:
    """Return the states of the generators of torch that a batch sampler and those inside draw from.

    None stands for one that a sampler may make later: the sampler of a user or of another library
    whose `generator` is None just now.
    """
    found = [getattr(holder, "generator", None) for holder in _holders(batches)]
    return [None if each is None else to_json(generator_state(each)) for each in found]


def _holders(batches: Any) -> list[Any]:
    """The samplers that have a generator of their own, or room for one."""
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
        elif generator is None and _has_room(batches):
            found.append(batches)
        own = vars(batches) if hasattr(batches, "__dict__") else {}
        batches = own.get("sampler")
        batches = own.get("batch_sampler") if batches is None else batches
    return found


def _has_room(sampler: Any) -> bool:
    """Whether the sampler may make its generator later, so that it may be given one or lose it."""
    if not hasattr(sampler, "__dict__") or "generator" not in vars(sampler):
        return False
    return not type(sampler).__module__.startswith(_KNOWN)


_KNOWN = ("torch.utils.data.", "reader.")  # their generator is the one they were made with, or none


def put_generators(batches: Any, states: list[Any]) -> None:
    """Set the generators of samplers as they were."""
    for holder, state in zip(_holders(batches), states, strict=True):
        if state is None:
            holder.generator = None
            continue
        if holder.generator is None:
            holder.generator = sys.modules["torch"].Generator()
        set_generator(holder.generator, from_json(state))


def check_generators(batches: Any, state: dict[str, Any]) -> None:
    """Refuse what is no list of the states of the samplers' generators."""
    states = state.get("generators", [])
    holders = _holders(batches)
    if not isinstance(states, list) or len(states) != len(holders):
        raise StateError(
            f"generators in the state must be the states of {len(holders)} generators, got"
            f" {got(states)}. Give the samplers the generators they had. {LOAD}"
        )
    for holder, each in zip(holders, states, strict=True):
        if each is None and _has_room(holder):
            continue
        own = holder.generator
        size = len(generator_state(sys.modules["torch"].Generator() if own is None else own))
        found = from_json(each)
        if not isinstance(found, bytes) or len(found) != size:
            raise StateError(f"a generator's state must have {size} bytes, got {got(each)}. {LOAD}")
