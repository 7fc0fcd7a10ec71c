"""Workers on other machines that read a dataset's objects, each through the process of its machine.

Imports the caches. Who has such workers says so for as long as it has them; then the order of an
epoch is told there, where it is of use, and what was fetched is asked for there, too.
"""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable
from typing import Any

from reader.stores.shard_cache import CacheUse, ShardCache

__all__ = [
    "RemoteReaders",
    "add_remote_readers",
    "remote_counts",
    "remote_readers",
    "remove_remote_readers",
]


class RemoteReaders(abc.ABC):
    """Workers on other machines. Calls to them can be pickled."""

    @abc.abstractmethod
    def tell(self, key: str, call: Callable[[], Any]) -> None:
        """Have each worker make a call, those that start later, too; it does not wait.

        Args:
            key: names it: a later one takes its place.
            call: an exception is ignored.
        """

    @abc.abstractmethod
    def ask(self, key: str, call: Callable[[], Any]) -> list[Any]:
        """Return what one worker of each machine got by a call, or by the last one of that key.

        It waits for a second at most.
        """


_Readers = dict[str, list[RemoteReaders]]  # by the names of the uses for which they read
_of_caches: weakref.WeakKeyDictionary[ShardCache, _Readers] = weakref.WeakKeyDictionary()
_Counts = dict[str, dict[str, Any]]  # by the ids of the processes that fetch
_last: weakref.WeakKeyDictionary[ShardCache, dict[str, _Counts]] = weakref.WeakKeyDictionary()


def add_remote_readers(uses: list[CacheUse], readers: RemoteReaders) -> None:
    """Note that workers on other machines read for some uses of caches."""
    for use in uses:
        _of_caches.setdefault(use.cache, {}).setdefault(use.name, []).append(readers)


def remove_remote_readers(readers: RemoteReaders) -> None:
    """Note that these workers read no more. Idempotent."""
    for names in _of_caches.values():
        for name, found in names.items():
            names[name] = [each for each in found if each is not readers]


def remote_readers(use: CacheUse) -> list[RemoteReaders]:
    """Return the workers on other machines that read for a use."""
    return _of_caches.get(use.cache, {}).get(use.name, [])


def remote_counts(uses: list[CacheUse], call: Callable[[], _Counts]) -> _Counts:
    """Return the counts of the processes that fetch on other machines, or those told last.

    Args:
        uses: whose reads are counted, of one cache or more.
        call: returns those of a machine.
    """
    readers = dict.fromkeys(each for use in uses for each in remote_readers(use))
    key = " ".join(sorted(use.name for use in uses))
    last = _last.setdefault(uses[0].cache, {})
    found: _Counts = {}
    for each in readers:
        for told in each.ask(f"counts {key}", call):
            found.update(told)
    if found:
        last[key] = {name: {**counts, "is_running": False} for name, counts in found.items()}
    return found or last.get(key, {})
