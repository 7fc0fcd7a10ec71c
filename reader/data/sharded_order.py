"""An order that ranks in lockstep share: another number of ranks divides what remains.

Imports `reader.data.{order_origin,order_source}`. What the ranks consumed together is a prefix of
the global order: all have delivered equally many batches, so the state of any serves every rank.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from reader.data.order_origin import OrderOrigin, Position
from reader.data.order_source import LOAD, Batching
from reader.errors import StateError, got

__all__ = ["ShardedOrder", "is_sharding_sampler"]

_OF_TORCH = "torch.utils.data.distributed"
_OF_TORCHDATA = "torchdata.stateful_dataloader.sampler"
_KEYS = ("epoch", "seed", "shuffle", "length")  # that the global order depends on


def is_sharding_sampler(sampler: Any) -> bool:
    """Whether it deals the positions of one order out to ranks in turn."""
    return _is_of_torch(sampler) or (
        callable(getattr(type(sampler), "resume_from", None)) and hasattr(sampler, "num_replicas")
    )


def _is_of_torch(sampler: Any) -> bool:
    method = type(sampler).__iter__ if hasattr(type(sampler), "__iter__") else None
    name = (getattr(method, "__module__", ""), getattr(method, "__qualname__", ""))
    return name in (
        (_OF_TORCH, "DistributedSampler.__iter__"),
        (_OF_TORCHDATA, "StatefulDistributedSampler.__iter__"),
    )


class ShardedOrder:
    """The order of a sampler of ranks, `DistributedSampler` of this package or of torch.

    Args:
        batching: batches the sampler's indices.
        at: where the epoch was left.
    """

    start: Any = None  # the mark in front of the first batch
    mark: Any = None  # the number of a batch says all

    def __init__(self, batching: Batching, at: Position) -> None:
        self._batching = batching
        self._sampler = batching.sampler
        self.origin = OrderOrigin("world", at, batching.batch_size)

    def note_first(self, kind: int, payload: Any) -> None:
        """Nothing more is known once the first batch is drawn."""

    def begin(self) -> Iterator[Any]:
        """Begin anew."""
        made = iter(self._sampler)
        self._fix(0)
        return self._batching.batches(made)

    def enter(self, state: dict[str, Any], at: Position) -> Iterator[Any]:  # noqa: ARG002
        """Take this rank's share of what no rank has consumed."""
        consumed = state["consumed"]
        if not _is_of_torch(self._sampler):
            names = ("seed", "epoch", "consumed")
            self._sampler.load_state_dict({name: state[name] for name in names})
            made = iter(self._sampler)
        elif state["epoch"] == self._sampler.epoch:
            made = _rest_of_torch(self._sampler, consumed)
        else:
            raise StateError(
                f"the sampler is at epoch {self._sampler.epoch}, and the state was saved in its"
                f" epoch {state['epoch']}. Call its set_epoch({state['epoch']}), or load no state"
            )
        self._fix(consumed)
        return self._batching.batches(made)

    def _fix(self, consumed: int) -> None:
        sampler = self._sampler
        left = len(sampler.dataset) - consumed
        ranks = sampler.num_replicas
        share = left // ranks if sampler.drop_last else -(-left // ranks)
        self.origin.fixed = {
            **_facts(sampler),
            "epoch": sampler.epoch if _is_of_torch(sampler) else sampler.state_dict()["epoch"],
            "num_replicas": ranks,
            "consumed": consumed,
            "share": max(0, share),
        }

    @staticmethod
    def check(batches: Any, batching: Batching | None, state: dict[str, Any]) -> None:  # noqa: ARG004
        """Refuse a state that does not fit."""
        own = {} if batching is None else _facts(batching.sampler)
        for name in (*_KEYS, "consumed", "num_replicas"):
            wanted = bool if name == "shuffle" else int
            if type(state.get(name)) is not wanted or not 0 <= state[name] <= sys.maxsize:
                raise StateError(
                    f"{name} in the state's order must be of type {wanted.__name__} and not"
                    f" negative, got {got(state.get(name))}. {LOAD}"
                )
            if name in own and state[name] != own[name]:
                raise StateError(
                    f"{name} of the sampler is {own[name]} here and {state[name]} in the state."
                    f" {LOAD}"
                )


def _facts(sampler: Any) -> dict[str, Any]:
    return {
        "seed": int(sampler.seed),
        "shuffle": bool(sampler.shuffle),
        "length": len(sampler.dataset),
    }


def _rest_of_torch(sampler: Any, consumed: int) -> Iterator[Any]:
    """What torch's sampler deals to its rank of the positions from `consumed` on."""
    single = copy.copy(sampler)  # the whole order is that of a world of one
    single.num_replicas, single.rank = 1, 0
    single.num_samples = single.total_size = len(sampler.dataset)
    kind = next(base for base in type(sampler).__mro__ if base.__module__ == _OF_TORCH)
    order = list(kind.__iter__(single))  # type: ignore[attr-defined]
    rest = order[consumed:]
    ranks = sampler.num_replicas
    if sampler.drop_last:
        del rest[len(rest) // ranks * ranks :]
    elif rest:
        missing = -len(rest) % ranks
        while missing > 0:  # the padding is the beginning of the order, as torch's is
            rest += order[:missing]
            missing = -len(rest) % ranks
    return islice(rest, sampler.rank, None, ranks)
