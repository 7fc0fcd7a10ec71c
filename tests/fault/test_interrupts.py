"""Signals whose handlers raise: where they are held back, and how an epoch goes on afterwards."""

from __future__ import annotations

import _thread
import functools
import gc
import random
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, SamplerError
from reader._core.interpreter.signals import Finalized, SafeExit, interrupt_after
from reader._core.memory.arena import Arena
from reader._core.wire.feeder import Feeder
from reader.available_memory import available_bytes
from reader.engine.backends.pool import Pool
from reader.engine.backends.pool_cache import PoolCache
from tests.datasets import Rows

COUNT = 24


class Alarm(Exception):
    """What the handler of SIGUSR1 raises."""


@pytest.fixture
def alarms() -> Iterator[list[int]]:
    """SIGUSR1 is handled by a function that raises; the numbers of the signals that it handled."""
    came: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        came.append(number)
        raise Alarm

    before = signal.signal(signal.SIGUSR1, handle)
    yield came
    signal.signal(signal.SIGUSR1, before)


# ---- holding signals back --------------------------------------------------------------------


def step() -> None:
    """Do nothing: signals are handled where a function of Python begins."""


def raised_by(action: Callable[[], object]) -> list[type[BaseException]]:
    """Return the exceptions of signal handlers during an action, and just after it."""
    last: BaseException | None = None
    try:
        try:
            action()
            step()
        except (KeyboardInterrupt, Alarm):
            step()
            raise
    except (KeyboardInterrupt, Alarm) as error:
        last = error
    raised: list[type[BaseException]] = []
    while last is not None:
        raised.append(type(last))
        last = last.__context__
    return raised


def test_signals_within_the_block_are_handled_after_it(alarms: list[int]) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)]
    reached: list[str] = []

    def hold() -> None:
        with interrupt_after():
            with interrupt_after():
                signal.raise_signal(signal.SIGUSR1)
                signal.raise_signal(signal.SIGINT)
                reached.append("inner")
            reached.append("outer")

    assert sorted(each.__name__ for each in raised_by(hold)) == ["Alarm", "KeyboardInterrupt"]
    assert reached == ["inner", "outer"]
    assert alarms == [signal.SIGUSR1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)] == handlers
    assert raised_by(lambda: signal.raise_signal(signal.SIGUSR1)) == [Alarm]


class Ends(Finalized):
    def __init__(self, ended: list[str]) -> None:
        self.ended = ended

    def finalize(self) -> None:
        signal.raise_signal(signal.SIGUSR1)
        self.ended.append("finalized")


class Left(SafeExit):
    def __init__(self, ended: list[str]) -> None:
        self.ended = ended

    def close(self) -> None:
        signal.raise_signal(signal.SIGUSR1)
        self.ended.append("left")


def test_signal_while_an_object_is_dropped_is_raised_afterwards(alarms: list[int]) -> None:
    ended: list[str] = []
    made = [Ends(ended)]
    assert raised_by(made.clear) == [Alarm]
    assert ended == ["finalized"]
    assert alarms == [signal.SIGUSR1]


def test_signal_at_the_end_of_a_context_does_not_keep_it_from_ending(alarms: list[int]) -> None:
    ended: list[str] = []

    def leave() -> None:
        with Left(ended):
            pass

    assert raised_by(leave) == [Alarm]
    assert ended == ["left"]
    assert alarms == [signal.SIGUSR1]


def test_signal_just_before_the_end_of_a_context_does_not_keep_it_from_ending(
    alarms: list[int],
) -> None:
    ended: list[str] = []
    left: Any = Left(ended)
    kill = functools.partial(_thread.interrupt_main, signal.SIGUSR1)
    end = functools.partial(left.__exit__, None, None, None)
    # all of it is code of C: no handler runs between the two
    assert Alarm in raised_by(lambda: list(map(functools.partial.__call__, (kill, end))))
    assert ended == ["left"]
    assert alarms == [signal.SIGUSR1] * 2


# ---- pools that nobody has -------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 1, "worker_type": "thread"},
        {"num_workers": 2, "persistent_workers": True},
    ],
    ids=repr,
)
@pytest.mark.parametrize("owner", [Pool, PoolCache], ids=lambda each: each.__name__)
def test_03_pool_that_is_interrupted_before_its_first_use_ends(
    owner: Any, options: dict[str, Any]
) -> None:
    code = {Pool: Pool._open, PoolCache: PoolCache.start}[owner].__code__
    pids: list[int | None] = []

    def interrupt(frame: FrameType, event: str, _: Any) -> Any:
        """Interrupt when the workers run, and the function that started them returns."""
        if frame.f_code is code and event == "return":
            sys.settrace(None)
            pool = frame.f_locals["self" if owner is Pool else "pool"]
            pids.extend(each.pid for each in pool.handles)
            signal.raise_signal(signal.SIGINT)
        return interrupt

    with DataLoader(Rows(COUNT), batch_size=4, **options) as loader:
        sys.settrace(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                iter(loader)
        finally:
            sys.settrace(None)
        assert len(pids) == max(1, options.get("num_workers", 0))
        sizes = [len(index) for _, index in loader]
        assert sizes == [4] * 6
    # the ledger finds workers, threads, descriptors or memory that are left


def test_03_running_feeder_in_a_cycle_is_collected() -> None:
    arena = Arena.create(1, 4)
    cycle: list[Any] = [Feeder(arena, 1, 4, 4, available_bytes)]
    cycle[0].start()
    cycle.append(cycle)
    del arena, cycle
    gc.collect()  # joins the reader thread, which has to be woken by the arena's bell


# ---- samplers that are interrupted inside their own frames --------------------------------------


class Interrupted:
    """A batch sampler whose generator gets a signal before it yields batch `at`, once."""

    def __init__(self, orders: Callable[[], Any], at: int, number: int) -> None:
        self.orders = orders
        self.at = at
        self.number = number
        self.is_due = True

    def __iter__(self) -> Iterator[Any]:
        order = self.orders()
        for first in range(0, COUNT, 4):
            if self.is_due and first == 4 * self.at:
                self.is_due = False
                signal.raise_signal(self.number)
            yield order[first : first + 4]


def shuffled(seed: int | None = 3) -> list[int]:
    order = list(range(COUNT))
    random.Random(seed).shuffle(order)
    return order


def globally_shuffled() -> list[int]:
    return [int(index) for index in np.random.permutation(COUNT)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 1, 5])
@pytest.mark.parametrize("orders", [shuffled, globally_shuffled])
def test_01_interrupted_sampler_is_opened_again_at_its_position(
    orders: Callable[[], Any], at: int, workers: int, alarms: list[int]
) -> None:
    np.random.seed(5)
    wanted = orders()
    np.random.seed(5)
    sampler = Interrupted(orders, at, signal.SIGUSR1 if workers else signal.SIGINT)
    options: dict[str, Any] = {"num_workers": workers, "worker_type": "thread"}
    found: list[int] = []
    interrupts = 0
    with DataLoader(Rows(COUNT), batch_sampler=sampler, **options) as loader:
        batches: Any = None
        while True:
            try:
                if batches is None:
                    batches = iter(loader)
                for _, index in batches:
                    found += index.tolist()
                break
            except (KeyboardInterrupt, Alarm):
                interrupts += 1
    assert interrupts == 1
    assert sorted(found) == list(range(COUNT))
    if at == 5 or orders is shuffled:  # else iter() was interrupted, and the next one begins anew
        assert found == wanted


def test_01_interrupted_sampler_that_cannot_repeat_ends_the_epoch_by_an_error() -> None:
    sampler = Interrupted(lambda: shuffled(None), 5, signal.SIGINT)
    with DataLoader(Rows(COUNT), batch_sampler=sampler, prefetch_factor=2) as loader:
        batches = iter(loader)
        found: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            for _, index in batches:
                found += index.tolist()
        with pytest.raises(SamplerError, match="was interrupted while it made batch 5 of epoch 0"):
            for _, index in batches:
                found += index.tolist()
        assert len(found) == len(set(found)) == 20


def test_01_interrupted_one_shot_generator_ends_the_epoch_by_an_error() -> None:
    class OneShot:
        batches = iter(Interrupted(shuffled, 5, signal.SIGINT))

        def __iter__(self) -> Iterator[Any]:
            return self.batches

    with DataLoader(Rows(COUNT), batch_sampler=OneShot()) as loader:
        batches = iter(loader)
        found: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            for _, index in batches:
                found += index.tolist()
        with pytest.raises(SamplerError, match="and cannot go on"):
            for _, index in batches:
                found += index.tolist()
        assert found == shuffled()[:20]


class Named(Rows):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(int(index))


def test_01_interrupted_order_of_keys_that_cannot_be_checked_is_not_guessed() -> None:
    sampler = Interrupted(lambda: [str(each) for each in shuffled(None)], 5, signal.SIGINT)
    with DataLoader(Named(COUNT), batch_sampler=sampler) as loader:
        batches = iter(loader)
        with pytest.raises(KeyboardInterrupt):
            list(batches)
        with pytest.raises(SamplerError, match="its keys are no integers"):
            list(batches)
