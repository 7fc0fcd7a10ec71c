"""An order that ranks share in lockstep; another number of ranks can divide its rest.

Imports `order_origin` and `base_sampler`. Together the ranks have consumed a prefix of the global
order: all have delivered the same number of batches, so any rank's state serves all.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from reader.config import SEED_LIMIT
from reader.errors import StateError, got
from reader.orders.base_sampler import (
    LOAD,
    TORCH_DISTRIBUTED,
    Batching,
    changes_of,
    check_changes,
    is_torch_sampler,
)
from reader.orders.order_origin import OrderKind, OrderOrigin, Position

__all__ = ["ShardedOrder"]

_KEYS = ("epoch", "seed", "shuffle", "length")  # the global order depends on these


class ShardedOrder:
    """The order of a `DistributedSampler` of this package or of torch.

    Args:
        batching: batches the sampler's indices.
        at: the position to resume at.
    """

    start: Any = None  # the mark before the first batch
    mark: Any = None  # the number of a batch is enough
    is_checked = True

    def __init__(self, batching: Batching, at: Position) -> None:
        self._batching = batching
        self._sampler = batching.sampler
        self.origin = OrderOrigin(OrderKind.SHARDED, at, batching.batch_size)

    def note_first(self, kind: int, payload: Any) -> None:
        """Do nothing: the first batch adds nothing."""

    def begin(self) -> Iterator[Any]:
        """Begin the order."""
        made = iter(self._sampler)
        self._fix(0)
        return self._batching.batches(made)

    def open_at(self, state: dict[str, Any], at: Position) -> Iterator[Any]:  # noqa: ARG002
        """Take this rank's share of the indices that no rank has consumed."""
        consumed = state["consumed"]
        if not is_torch_sampler(self._sampler):
            names = ("seed", "epoch", "consumed", "changes")
            self._sampler.load_state_dict({name: state[name] for name in names if name in state})
            made = iter(self._sampler)
        elif state["epoch"] == self._sampler.epoch:
            made = _remaining_of_torch(self._sampler, consumed)
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
        begun = {"seed": sampler.seed, "epoch": sampler.epoch}
        if not is_torch_sampler(sampler):
            begun = sampler.state_dict()  # the seed may be fresh, and the epoch counted on
        entries = {
            **_facts(sampler),
            "seed": int(begun["seed"]),
            "epoch": begun["epoch"],
            "num_replicas": ranks,
            "consumed": consumed,
            "share": max(0, share),
        }
        changes = changes_of(sampler)
        if changes is not None:
            entries["changes"] = (
                changes  # the list itself: a state has those made until it is saved
            )
        self.origin.fix(entries)

    @staticmethod
    def check(batches: Any, batching: Batching | None, state: dict[str, Any]) -> None:  # noqa: ARG004
        """Refuse a state that does not fit."""
        check_changes(None if batching is None else batching.sampler, state)
        own = {} if batching is None else _facts(batching.sampler)
        for name in dict.fromkeys((*_KEYS, *own, "consumed", "num_replicas")):
            wanted = bool if name == "shuffle" else int
            most = SEED_LIMIT - 1 if name == "seed" else sys.maxsize
            if type(state.get(name)) is not wanted or not 0 <= state[name] <= most:
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
    """Return what the order of a sampler depends on; of one without a seed any order may come."""
    facts = {"shuffle": bool(sampler.shuffle), "length": len(sampler.dataset)}
    if sampler.seed is not None:
        facts["seed"] = int(sampler.seed)
    return facts if is_torch_sampler(sampler) else {**facts, **sampler.order_facts()}


def _remaining_of_torch(sampler: Any, consumed: int) -> Iterator[Any]:
    """Return the share of torch's sampler in the positions from `consumed` on."""
    single = copy.copy(sampler)  # a world of one rank has the whole order
    single.num_replicas, single.rank = 1, 0
    single.num_samples = single.total_size = len(sampler.dataset)
    kind = next(base for base in type(sampler).__mro__ if base.__module__ == TORCH_DISTRIBUTED)
    order = list(kind.__iter__(single))  # type: ignore[attr-defined]
    remaining = order[consumed:]
    ranks = sampler.num_replicas
    if sampler.drop_last:
        del remaining[len(remaining) // ranks * ranks :]
    elif remaining:
        missing = -len(remaining) % ranks
        while missing > 0:  # pad with the beginning of the order, as torch does
            remaining += order[:missing]
            missing = -len(remaining) % ranks
    return islice(remaining, sampler.rank, None, ranks)
