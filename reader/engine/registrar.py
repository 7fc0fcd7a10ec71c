"""The registrar has slots of the arena page-locked, so that a device reads them without staging.

Imports no framework: a PageLocker does it. It belongs to the copiers of one loader. A slot is
locked at its first copy, when it has memory, and stays locked while batches use it again: PageLock
keeps its pages meanwhile.
"""

from __future__ import annotations

import os
import resource
import threading
from collections import Counter, OrderedDict
from typing import Any

from reader._core.batch.tensor_array import LoDTensorArray
from reader._core.interpreter.signals import Finalized
from reader._core.memory.arena import PageLock
from reader.frameworks.page_locking import PageLocker
from reader.log import log as _log

__all__ = ["Registrar"]

_STALE = 4  # times the working set: a slot that so many copies did not read may be unlocked


class Registrar(Finalized):
    """Locks slots, at most so many bytes of them, and unlocks them in the end.

    Args:
        locker: of the devices; None: nothing is locked.
        working_set: how many slots copies read in turn.
        most_bytes: how much is locked at most; None: so many of the largest slot.
    """

    def __init__(
        self, locker: PageLocker | None, working_set: int, most_bytes: int | None = None
    ) -> None:
        self._locker = locker
        self._working_set = working_set
        self._most_bytes = most_bytes
        self._largest = 0
        # (PageLock, number of the last copy) by the slot's address, the longest unused first
        self._slots: OrderedDict[int, tuple[PageLock, int]] = OrderedDict()
        self._readers: Counter[int] = Counter()  # copies under way, by the slot's address
        self._count = 0  # copies so far
        self._pid = os.getpid()
        self._mutex = threading.RLock()
        self._locked_bytes = 0
        self._unlocked_copies = 0
        self._failure: str | None = None

    def acquire(self, batch: LoDTensorArray) -> int | None:
        """Lock the slot of a batch, which is copied next, unless it is locked or the limit says no.

        What is not locked is copied all the same, and staged by the driver. Returns what `release`
        takes when the copy is done; None where there is no slot.
        """
        address = batch.slot_address
        if self._locker is None or address is None:
            return None
        with self._mutex:
            self._count += 1
            self._readers[address] += 1
            found = self._slots.get(address)
            if found is not None:
                self._slots[address] = found[0], self._count
                self._slots.move_to_end(address)
            elif not self._lock(batch, address, self._locker):
                self._unlocked_copies += 1
        return address

    def release(self, address: int | None) -> None:
        """Note that a copy is done; see `acquire`."""
        if address is not None:
            with self._mutex:
                self._readers[address] -= 1
                if self._readers[address] <= 0:
                    del self._readers[address]

    def _lock(self, batch: LoDTensorArray, address: int, locker: PageLocker) -> bool:
        if self._failure is not None:
            return False
        lock = batch.lock_pages()
        if lock is None:
            return False
        if not self._has_space(lock.nbytes):
            lock.unlock()
            return False
        failure = locker.lock(lock.address, lock.nbytes)
        if failure is not None:
            lock.unlock()
            self._failure = failure
            _log.warning(
                "shared memory could not be page-locked (%s): batches are copied to the device from"
                " pageable memory, which is slower. See docs/devices.md",
                failure,
            )
            return False
        self._slots[address] = lock, self._count
        self._locked_bytes += lock.nbytes
        return True

    def _has_space(self, nbytes: int) -> bool:
        """Whether the limit has room for a slot, if those are unlocked that nobody reads."""
        self._largest = max(self._largest, nbytes)
        most = self._limit()
        before = self._count - _STALE * self._working_set
        while self._slots and self._locked_bytes + nbytes > most:
            address, (_, used) = next(iter(self._slots.items()))
            if used >= before or address in self._readers:
                return False
            self._unlock(address)
        return nbytes <= most

    def _limit(self) -> int:
        """Return how many bytes are locked at most."""
        if self._most_bytes is not None:
            return self._most_bytes
        return self._working_set * self._largest

    def unlock_closed(self) -> None:
        """Unlock slots of arenas whose workers have ended; called when an epoch begins."""
        with self._mutex:
            for address, (lock, _) in list(self._slots.items()):
                if lock.is_closed and address not in self._readers:
                    self._unlock(address)

    def close(self) -> None:
        """Unlock all. No copy is under way."""
        if os.getpid() != self._pid:
            return  # the parent's locks
        with self._mutex:
            while self._slots:
                self._unlock(next(iter(self._slots)))

    def finalize(self) -> None:
        """Unlock all, when the last copier that copies from these slots is gone."""
        if "_slots" in vars(self):
            self.close()

    def _unlock(self, address: int) -> None:
        locker: Any = self._locker
        lock, _ = self._slots.pop(address)
        locker.unlock(lock.address)
        self._locked_bytes -= lock.nbytes
        lock.unlock()

    def stats(self) -> dict[str, Any]:
        """Return counts: see `DataLoader.stats`."""
        by_node: Counter[int | None] = Counter()
        with self._mutex:
            for lock, _ in self._slots.values():
                by_node[lock.node] += lock.nbytes
            return {
                "locked_slots": len(self._slots),
                "locked_bytes": self._locked_bytes,
                "locked_bytes_by_node": dict(by_node),
                "lock_limit": self._limit(),
                "memlock_limit": _memlock_limit(),
                "unlocked_copies": self._unlocked_copies,
                "lock_failure": self._failure,
            }


def _memlock_limit() -> int | None:
    """Return how many bytes this process may lock by itself; None: any."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if limit == resource.RLIM_INFINITY else limit
