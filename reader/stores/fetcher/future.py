"""What will be read next: the order in which the objects of an epoch come, and where reading is.

Imports the standard library. An epoch's order is told by groups of objects, whose samples are dealt
together. Of what nobody has told an order nothing is known, and that is said, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

__all__ = ["UNKNOWN", "Future"]

UNKNOWN = 1 << 40  # a distance, in groups: nothing is known of when it is read next

_Groups = Sequence[Sequence[Hashable]]

_MOST_ORDERS = 16  # sets of objects that are read at once


class Future:
    """The orders of the sets of objects that are read."""

    def __init__(self) -> None:
        self._orders: dict[str, _Order] = {}

    def tell(self, name: str, groups: _Groups, then: _Groups) -> bool:
        """Take the order of an epoch, and that of the next one, which may be empty.

        Returns whether it is a new one.

        Args:
            name: of the set and epoch: a process of another rank may tell the same.
            groups: the objects of each group.
            then: those of the next epoch.
        """
        is_new = name not in self._orders
        if is_new:
            self._orders[name] = _Order(groups, then)
        while len(self._orders) > _MOST_ORDERS:
            del self._orders[next(iter(self._orders))]
        return is_new

    def forget(self, name: str) -> None:
        """Forget an order that nobody reads by."""
        self._orders.pop(name, None)

    def touched(self, found: Hashable) -> bool:
        """Note that an object is being read; returns whether that changes what comes next."""
        moved = False
        for each in self._orders.values():
            moved |= each.touched(found)
        return moved

    def distance(self, found: Hashable) -> int:
        """Return in how many groups an object is read next."""
        return min((each.distance(found) for each in self._orders.values()), default=UNKNOWN)

    def ahead(self) -> Iterator[Hashable]:
        """Yield the objects that are read next, the nearest first."""
        orders = list(self._orders.values())
        for distance in range(max((each.count for each in orders), default=0)):
            for each in orders:
                yield from each.at(distance)


class _Order:
    """The order of an epoch and of the next one."""

    def __init__(self, groups: _Groups, then: _Groups) -> None:
        self._groups = [*groups, *then]
        self.count = len(self._groups)
        self._begin = 0  # the group that is being read
        self._now = {each: number for number, group in enumerate(groups) for each in group}
        self._then = {
            each: len(groups) + number for number, group in enumerate(then) for each in group
        }

    def touched(self, found: Hashable) -> bool:
        group = self._now.get(found)
        if group is None or group in (self._begin - 1, self._begin):  # see `distance`
            return False
        self._begin = group
        return True

    def distance(self, found: Hashable) -> int:
        now = self._now.get(found)
        if now is None:
            return UNKNOWN
        if now >= self._begin - 1:  # others may still read the group before
            return max(0, now - self._begin)
        then = self._then.get(found)
        return UNKNOWN - 1 if then is None else then - self._begin

    def at(self, distance: int) -> Sequence[Hashable]:
        place = self._begin + distance
        return self._groups[place] if place < self.count else ()
