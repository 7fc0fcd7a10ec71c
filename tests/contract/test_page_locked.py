"""A slot whose pages are locked keeps these very pages until they are unlocked (3).

A device that copies reads the pages themselves. Here vmsplice has them as a device would: a pipe
that holds a page reads what is written into it later, unless the mapping got another page instead.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from reader._core.batch.tensor_array import LoDTensorArray
from reader._core.memory.arena import Arena, PageLock
from reader._core.wire.channel import WorkerChannel
from reader._core.wire.feeder import Feeder
from reader.errors import ReaderError
from tests.wire import Wire, wire

PAGE = mmap.PAGESIZE
NBYTES = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)


class IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("nbytes", ctypes.c_size_t)]


class PageWatch:
    """Holds the page at an address as a device's copy would: `read` returns its present bytes."""

    def __init__(self, address: int) -> None:
        self._out, self._into = os.pipe()
        vector = IoVec(address, PAGE)
        held = libc.vmsplice(self._into, ctypes.byref(vector), 1, 0)
        assert held == PAGE, os.strerror(ctypes.get_errno())

    def read(self) -> bytes:
        try:
            return os.read(self._out, PAGE)
        finally:
            os.close(self._out)
            os.close(self._into)


@contextmanager
def locked(batch: LoDTensorArray, nbytes: int = 16 * PAGE) -> Iterator[PageLock]:
    """Lock a batch's pages as a registrar does, with mlock instead of a device's driver."""
    lock = batch.lock_pages()
    del batch  # the only reference is the caller's, who releases the slot within the block
    assert lock is not None
    span = ctypes.c_void_p(lock.address), ctypes.c_size_t(min(nbytes, lock.nbytes))
    assert libc.mlock(*span) == 0, os.strerror(ctypes.get_errno())
    try:
        yield lock
    finally:
        libc.munlock(*span)
        lock.unlock()


def write(road: Wire, value: int, nbytes: int = NBYTES) -> LoDTensorArray:
    """Let the worker make a batch of one array, full of `value`."""
    return road.write(np.full(nbytes - PAGE, value, np.uint8))


def bytes_of(batch: LoDTensorArray) -> np.ndarray:
    (field,) = batch.numpy_fields()
    return field


def page_of(batch: LoDTensorArray) -> int:
    """The address of a page that holds elements alone."""
    return (bytes_of(batch).ctypes.data + PAGE) // PAGE * PAGE


def trim(road: Wire) -> None:
    """Give all free memory back to the system, from the trainer and the worker."""
    road.feeder.trim()
    write(road, 0, 2 * PAGE)  # the worker meets the request to trim here


def test_locked_slot_keeps_its_pages_over_a_trim_and_an_unlocked_one_does_not() -> None:
    with wire() as road:
        plain, pinned = write(road, 1), write(road, 2)
        at = {plain.slot_address: "plain", pinned.slot_address: "locked"}
        watches = {"plain": PageWatch(page_of(plain)), "locked": PageWatch(page_of(pinned))}
        with locked(pinned):
            full = road.arena.stats()["owned_bytes"]
            del plain, pinned
            trim(road)
            owned = road.arena.stats()["owned_bytes"]
            assert full - NBYTES <= owned < full  # one of the two was given back
            again = [write(road, 8), write(road, 9)]
            made = {at[batch.slot_address]: int(bytes_of(batch)[0]) for batch in again}
            assert made.keys() == {"plain", "locked"}  # both slots are in use again
            assert watches["locked"].read() == bytes([made["locked"]]) * PAGE
            assert watches["plain"].read() == bytes([1]) * PAGE
            assert [batch.is_page_locked for batch in again].count(True) == 1
            del again


def test_locked_slot_is_used_again_and_again_and_stays_locked() -> None:
    with wire() as road:
        batch = write(road, 0)
        address = batch.slot_address
        with locked(batch) as lock:
            assert lock.address == address
            for n in range(1, 50):
                del batch
                batch = write(road, n)
                assert batch.slot_address == address
                assert batch.is_page_locked
                assert (bytes_of(batch) == n).all()
                stats = road.arena.stats()
                assert (stats["locked_slots"], stats["locked_bytes"]) == (1, lock.nbytes)
        assert not batch.is_page_locked
        assert road.arena.stats()["locked_slots"] == 0


def test_locked_slot_owns_its_whole_size_so_that_it_never_grows() -> None:
    with wire() as road:
        batch = road.write(np.ones(17 * PAGE - 256, np.uint8))  # of a class of 20 pages
        before = road.arena.stats()["owned_bytes"]
        lock = batch.lock_pages()
        assert lock is not None
        assert lock.nbytes == 20 * PAGE
        assert road.arena.stats()["owned_bytes"] - before == 3 * PAGE
        del batch
        grown = road.write(np.ones(20 * PAGE - 256, np.uint8))
        assert grown.is_page_locked
        assert road.arena.stats()["owned_bytes"] - before == 3 * PAGE
        lock.unlock()
        del grown


def test_memory_goes_back_once_the_last_of_two_locks_is_taken_off() -> None:
    with wire() as road:
        batch = write(road, 1)
        first, second = batch.lock_pages(), batch.lock_pages()
        assert first is not None
        assert second is not None
        del batch
        full = road.arena.stats()["owned_bytes"]
        first.unlock()
        first.unlock()  # counts once
        assert (first.is_locked, second.is_locked) == (False, True)
        trim(road)
        assert road.arena.stats()["owned_bytes"] >= full
        del second  # dropping it unlocks as well
        assert road.arena.stats()["locked_slots"] == 0
        trim(road)
        assert road.arena.stats()["owned_bytes"] < full - NBYTES // 2


def test_reader_thread_leaves_locked_slots_beyond_the_working_set_alone() -> None:
    with wire() as road:
        road.feeder.start()
        kept = [write(road, n) for n in range(16)]  # four times the working set
        locks = [batch.lock_pages() for batch in kept]
        watches = {batch.slot_address: PageWatch(page_of(batch)) for batch in kept}
        full = road.arena.stats()["owned_bytes"]
        del kept
        assert road.arena.stats()["owned_bytes"] == full
        assert road.feeder.stats()["trimmed"] == 0
        again = [write(road, 100 + n) for n in range(16)]
        for batch in again:
            (value,) = set(watches.pop(batch.slot_address).read())
            assert (bytes_of(batch) == value).all()
        assert not watches
        for lock in locks:
            assert lock is not None
            lock.unlock()
        del again, batch


def test_locked_memory_does_not_displace_the_working_set() -> None:
    with wire() as road:  # whose reader thread does not run, so what is to be trimmed stays away
        pinned = [write(road, n) for n in range(8)]
        locks = [batch.lock_pages() for batch in pinned]
        plain = [write(road, n) for n in range(4)]
        addresses = {batch.slot_address for batch in pinned + plain}
        del pinned, plain
        again = [write(road, n) for n in range(12)]
        assert {batch.slot_address for batch in again} == addresses
        for lock in locks:
            assert lock is not None
            lock.unlock()
        del again


def test_lock_beyond_the_limit_is_refused_and_changes_nothing() -> None:
    arena = Arena.create(1, 8, limit_nbytes=18 * PAGE)
    feeder = Feeder(arena, 1, 4, 8)
    channel = WorkerChannel(arena, 0, feeder.bell, 4)
    feeder.attach(0)
    feeder.begin_run(0)
    assert feeder.dispatch(0, 0, b"")
    assert channel.next_task() is not None
    channel.write(np.ones(17 * PAGE - 256, np.uint8))
    batch = feeder.take(5)
    feeder.accept()
    assert isinstance(batch, LoDTensorArray)
    before = arena.stats()
    assert batch.lock_pages() is None
    assert arena.stats() == before
    assert not batch.is_page_locked
    del batch
    feeder.close()
    arena.close()
    arena.release()


def test_pages_outlive_pool_and_batch_until_they_are_unlocked() -> None:
    with wire() as road:
        batch = write(road, 5)
        watch, at = PageWatch(page_of(batch)), page_of(batch)
        idle = write(road, 6)
        lock, idle_lock = batch.lock_pages(), idle.lock_pages()
        del idle  # free when the pool ends; the other is held then
        assert lock is not None
        assert idle_lock is not None
        arena = road.arena
        road.feeder.close()
        arena.close()
        assert arena.stats()["owned_bytes"] == lock.nbytes + idle_lock.nbytes
        del batch
        ctypes.memset(at, 7, PAGE)
        assert watch.read() == bytes([7]) * PAGE
        idle_lock.unlock()
        lock.unlock()
        assert arena.stats()["owned_bytes"] == 0


def test_arena_stays_mapped_while_a_lock_lives() -> None:
    with wire() as road:
        batch = write(road, 3)
        at, lock = page_of(batch), batch.lock_pages()
        del batch
    assert lock is not None
    assert ctypes.string_at(at, PAGE) == bytes([3]) * PAGE
    lock.unlock()


def test_only_a_batch_in_an_arena_of_this_process_has_pages_to_lock() -> None:
    plain = LoDTensorArray([np.ones(3)])
    assert plain.slot_address is None
    assert not plain.is_page_locked
    with pytest.raises(ReaderError, match="is not in shared memory"):
        plain.lock_pages()
    with pytest.raises(TypeError, match=r"LoDTensorArray\.lock_pages"):
        PageLock()


def test_forked_child_neither_locks_nor_unlocks() -> None:
    with wire() as road:
        batch = write(road, 1)
        lock = batch.lock_pages()
        assert lock is not None
        pid = os.fork()
        if pid == 0:
            try:
                with pytest.raises(ReaderError, match="belongs to the parent process"):
                    batch.lock_pages()
                lock.unlock()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert batch.is_page_locked
        lock.unlock()
        assert not batch.is_page_locked
        del batch
