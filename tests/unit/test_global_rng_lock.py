"""Holds of the global random state: one at a time, nested, released, taken away."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import pytest

from reader.errors import ReaderError
from reader.random.seeds import CapturedState, seed_known_libraries
from reader.worker import global_rng_lock
from reader.worker.global_rng_lock import GlobalRngLock

BOUND_S = 40.0


@pytest.fixture(autouse=True)
def _own_random_state() -> Iterator[None]:
    put_back = CapturedState().put_back
    yield
    put_back()
    assert global_rng_lock._held == []


def drawn_with(seed: int) -> float:
    put_back = CapturedState().put_back
    seed_known_libraries(seed)
    drawn = random.random()
    put_back()
    return drawn


class Holder:
    """A thread that holds the state from `begun` until `leave` is set, and draws at its end."""

    def __init__(self, lock: GlobalRngLock, seed: int, inside: Callable[[], None] | None = None):
        self.begun, self.leave = threading.Event(), threading.Event()
        self.drawn: list[float] = []
        self.refused: list[BaseException] = []
        self._lock, self._seed, self._inside = lock, seed, inside
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._lock.hold(self._seed):
                self.begun.set()
                if self._inside is not None:
                    self._inside()
                assert self.leave.wait(BOUND_S)
                self.drawn.append(random.random())
        except ReaderError as error:
            self.refused.append(error)

    def end(self) -> None:
        self.leave.set()
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive()


def test_06_holds_of_two_pools_do_not_overlap_and_leave_the_state_as_it_was() -> None:
    before = random.getstate()
    first = Holder(GlobalRngLock(), 1)
    assert first.begun.wait(BOUND_S)
    second = Holder(GlobalRngLock(), 2)
    second.leave.set()
    assert not second.begun.wait(0.02)
    first.end()
    second.end()
    assert (first.drawn, second.drawn) == ([drawn_with(1)], [drawn_with(2)])
    assert random.getstate() == before


def test_06_hold_requested_within_another_is_nested() -> None:
    inner_drawn: list[float] = []

    def iterate() -> None:
        lock = GlobalRngLock()
        lock.ask()
        inner = Holder(lock, 2)
        assert inner.begun.wait(BOUND_S)
        inner.end()
        inner_drawn.extend(inner.drawn)

    outer = Holder(GlobalRngLock(), 1, iterate)
    outer.end()
    assert inner_drawn == [drawn_with(2)]
    assert outer.drawn == [drawn_with(1)]


def test_04_hold_that_waits_is_dropped_when_its_pool_ends() -> None:
    first = Holder(GlobalRngLock(), 1)
    assert first.begun.wait(BOUND_S)
    lock = GlobalRngLock()
    second = Holder(lock, 2)
    lock.stop()
    second.end()
    assert "closed before" in str(second.refused[0])
    first.end()


def test_07_hold_that_does_not_end_is_released_with_all_nested_ones() -> None:
    before = random.getstate()
    outer_lock, inner_lock = GlobalRngLock(), GlobalRngLock()
    inner: list[Holder] = []
    asked = threading.Event()

    def iterate() -> None:
        inner_lock.ask()
        inner.append(Holder(inner_lock, 2))
        asked.set()

    outer = Holder(outer_lock, 1, iterate)
    assert outer.begun.wait(BOUND_S)
    assert asked.wait(BOUND_S)
    assert inner[0].begun.wait(BOUND_S)
    outer_lock.stop()
    outer_lock.release()
    assert random.getstate() == before
    random.seed(9)
    mine = random.getstate()
    for holder in (inner[0], outer):
        holder.end()
    same = random.Random()
    same.setstate(mine)
    assert inner[0].drawn + outer.drawn == [same.random(), same.random()]
    assert random.getstate() == same.getstate()  # neither restored a state


def test_07_whoever_has_the_batch_waits_for_the_end_of_its_hold() -> None:
    lock = GlobalRngLock()
    lock.await_end()  # there is none
    before = random.getstate()
    holder = Holder(lock, 1)
    assert holder.begun.wait(BOUND_S)
    GlobalRngLock().await_end()  # those of other pools are not waited for
    found: list[bool] = []

    def wait() -> None:
        lock.await_end()
        found.append(random.getstate() == before)

    waiter = threading.Thread(target=wait)
    waiter.start()
    holder.end()
    waiter.join(BOUND_S)
    assert found == [True]
