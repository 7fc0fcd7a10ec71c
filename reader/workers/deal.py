"""What a worker's iteration takes of items that `reader.shard` deals out, and what it goes on with.

Imports `reader.data.rest` and `reader.errors`. The state is one per thread: the fetcher of an
iterable dataset expects deals in the thread in which the dataset then begins them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from operator import itemgetter, length_hint
from typing import Any

from reader.data.rest import Cuts, Rest
from reader.errors import StateError

__all__ = ["Deal", "Deals", "begin_deal", "expect_deals"]

_MANY = 1 << 60


class Deal:
    """One call of `shard` in a worker's iteration.

    Args:
        rest: what was there to deal out.
        ranks: over how many ranks.
        contiguous: in runs; else in turn.
        positions: those of this worker, None for those of the plain rule.
    """

    def __init__(
        self, rest: Rest, ranks: int, contiguous: bool, positions: list[range] | None
    ) -> None:
        self._rest = rest
        self._ranks = ranks
        self._contiguous = contiguous
        self.positions = positions
        self._counter = iter(range(_MANY))

    def counted(self, items: Iterator[Any]) -> Iterator[Any]:
        """Yield the items, and count them."""
        return map(itemgetter(0), zip(items, self._counter))

    @property
    def taken(self) -> int:
        """How many items were taken."""
        return _MANY - length_hint(self._counter)

    def to_json(self) -> dict[str, Any]:
        """What was dealt out, and how; the same in all workers."""
        return {
            "rest": self._rest.to_json(),
            "ranks": self._ranks,
            "contiguous": self._contiguous,
        }


class Deals:
    """The deals of one iteration.

    Args:
        left: what was dealt out before and to be dealt out anew: as `Deal.to_json`, with `taken` by
            each worker; None: nothing.
        ranks: over how many ranks it has to be dealt out, with nothing `left`; None: any.
    """

    def __init__(self, left: dict[str, Any] | None, ranks: int | None = None) -> None:
        self.left = left
        self._ranks = ranks
        self.begun: list[Deal] = []

    def begin(self, cuts: Cuts, contiguous: bool, length: int | None) -> Deal:
        """Begin another one."""
        left, self.left = self.left, None
        ranks = cuts[0][0]
        if self._ranks is not None and self._ranks != ranks:
            raise StateError(
                f"the items were dealt out over {self._ranks} ranks when the state was saved, and"
                f" reader.shard has world_size={ranks} now: with as many workers as then each goes"
                f" on by itself. Pass world_size={self._ranks}, or another num_workers, with which"
                " what is left is dealt out anew"
            )
        if left is None:
            deal = Deal(Rest.whole(), ranks, contiguous, None)
        else:
            rest = Rest.from_json(left["rest"])
            rest = rest.without(left["ranks"], left["taken"], left["contiguous"], length)
            deal = Deal(rest, ranks, contiguous, rest.share(cuts, contiguous, length))
        self.begun.append(deal)
        return deal


class _State(threading.local):
    deals: Deals | None = None


_state = _State()


def expect_deals(deals: Deals | None) -> None:
    """Have what `shard` deals out from now on, in this thread, noted here."""
    _state.deals = deals


def begin_deal(cuts: Cuts, contiguous: bool, length: int | None) -> Deal | None:
    """Note a deal; None where nobody expects one."""
    return None if _state.deals is None else _state.deals.begin(cuts, contiguous, length)
