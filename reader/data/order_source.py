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
from reader.data.random_state import from_json, generator_state, set_generator
from reader.errors import StateError, got

__all__ = [
    "LOAD",
    "Cut",
    "check_generators",
    "cut_of",
    "has_state",
    "put_generators",
    "random_generators",
    "state_of",
]

LOAD = "Load a state that was saved with the same dataset, sampler and options."


@dataclasses.dataclass(frozen=True)
class Cut:
    """A batch sampler that does nothing but cut what a sampler yields."""

    sampler: Any
    batch_size: int
    drop_last: bool

    def batches(self, keys: Iterator[Any]) -> Iterator[list[Any]]:
        """Cut `keys` as it does."""
        made: Iterator[list[Any]] = iter(lambda: list(islice(keys, self.batch_size)), [])
        return takewhile(self._is_full, made) if self.drop_last else made

    def _is_full(self, batch: list[Any]) -> bool:
        return len(batch) == self.batch_size


def cut_of(batches: Any) -> Cut | None:
    """Return what a batch sampler cuts; None for one with ways of its own."""
    kind = type(batches)
    if kind is NoBatching:
        return Cut(batches.sampler, 1, False)
    if kind is BatchSampler or (kind.__module__, kind.__qualname__) == _OF_TORCH:
        return Cut(batches.sampler, batches.batch_size, batches.drop_last)
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


def random_generators(batches: Any) -> list[Any]:
    """Return the generators of torch that a batch sampler and those inside of it draw from."""
    kind = getattr(sys.modules.get("torch"), "Generator", None)
    found: list[Any] = []
    while kind is not None and batches is not None and len(found) < 8:
        generator = getattr(batches, "generator", None)
        if isinstance(generator, kind) and not any(each is generator for each in found):
            found.append(generator)
        batches = vars(batches).get("sampler") if hasattr(batches, "__dict__") else None
    return found


def put_generators(batches: Any, states: list[Any]) -> None:
    """Set the generators of samplers as they were."""
    for generator, state in zip(random_generators(batches), states, strict=True):
        set_generator(generator, from_json(state))


def check_generators(batches: Any, state: dict[str, Any]) -> None:
    """Refuse what is no list of the states of the samplers' generators."""
    states = state.get("generators", [])
    own = random_generators(batches)
    if not isinstance(states, list) or len(states) != len(own):
        raise StateError(
            f"generators in the state must be the states of {len(own)} generators, got"
            f" {got(states)}. Give the samplers the generators they had. {LOAD}"
        )
    for generator, each in zip(own, states, strict=True):
        found = from_json(each)
        size = len(generator_state(generator))
        if not isinstance(found, bytes) or len(found) != size:
            raise StateError(f"a generator's state must have {size} bytes, got {got(each)}. {LOAD}")
