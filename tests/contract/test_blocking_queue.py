"""BlockingQueue by itself: threads, closing, killing, deadlines."""

from __future__ import annotations

import collections
import gc
import random
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reader import (
    BlockingQueue,
    ConfigError,
    ConfigTypeError,
    LoadTimeout,
    LoDTensor,
    LoDTensorArray,
    QueueClosed,
    QueueKilled,
)

BOUND_S = 40.0


def item(number: int) -> LoDTensorArray:
    return LoDTensorArray([np.array([number])])


def number_of(batch: LoDTensorArray) -> int:
    return int(batch[0].numpy()[0])


def test_first_in_first_out() -> None:
    queue = BlockingQueue(5)
    for n in range(5):
        queue.push(item(n))
        assert queue.size() == len(queue) == n + 1
    assert queue.capacity() == 5
    assert [number_of(queue.pop()) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert queue.size() == 0


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_04_full_and_empty_queues_time_out(timeout: float) -> None:
    queue = BlockingQueue(1)
    with pytest.raises(LoadTimeout, match="nothing arrived"):
        queue.pop(timeout=timeout)
    queue.push(item(0))
    refused = item(1)
    with pytest.raises(LoadTimeout, match="still full after"):
        queue.push(refused, timeout=timeout)
    assert number_of(refused) == 1
    assert number_of(queue.pop(timeout=timeout)) == 0


def test_04_timeout_is_a_deadline_and_not_shorter() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        BlockingQueue(1).pop(timeout=0.25)
    assert time.monotonic() - began >= 0.25


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: BlockingQueue(0), ConfigError, "capacity is 0"),
        (lambda: BlockingQueue(-1), ConfigError, "capacity is -1"),
        (lambda: BlockingQueue(1.5), ConfigTypeError, r"1\.5 \(float\)"),
        (lambda: BlockingQueue(True), ConfigTypeError, "True"),
        (lambda: BlockingQueue(1).pop(timeout=-1), ConfigError, "timeout is -1"),
        (lambda: BlockingQueue(1).pop(timeout=float("nan")), ConfigError, "nan"),
        (lambda: BlockingQueue(1).pop(timeout="x"), ConfigTypeError, "'x'"),
        (lambda: BlockingQueue(1).push(5, timeout="x"), ConfigTypeError, "'x'"),
    ],
)
def test_bad_arguments_are_refused(make: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        make()


def test_huge_capacity_and_long_timeouts_are_fine() -> None:
    queue = BlockingQueue(2**70)
    queue.push(item(1), timeout=1e300)
    assert number_of(queue.pop(timeout=float("inf"))) == 1


def test_close_delivers_what_is_queued_and_then_says_so() -> None:
    queue = BlockingQueue(3)
    queue.push(item(1))
    queue.push(item(2))
    queue.close()
    queue.close()
    assert queue.is_closed
    assert not queue.is_killed
    with pytest.raises(QueueClosed):
        queue.push(item(3))
    assert [number_of(queue.pop()) for _ in range(2)] == [1, 2]
    for _ in range(2):
        with pytest.raises(QueueClosed):
            queue.pop()


def test_kill_carries_its_reason_to_both_sides_after_what_was_queued() -> None:
    queue = BlockingQueue(3)
    queue.push(item(1))
    reason = ValueError("the disk is gone")
    queue.kill(reason)
    queue.kill("another reason")
    queue.close()
    assert queue.is_killed
    with pytest.raises(QueueKilled, match="the disk is gone") as pushed:
        queue.push(item(2))
    assert number_of(queue.pop()) == 1
    with pytest.raises(QueueKilled, match="the disk is gone") as popped:
        queue.pop()
    for info in (pushed, popped):
        assert info.value.reason is reason
        assert info.value.__cause__ is reason


def test_reopened_queue_is_empty_and_works() -> None:
    for end in (lambda q: q.close(), lambda q: q.kill("x"), lambda q: None):
        queue = BlockingQueue(2)
        queue.push(item(1))
        end(queue)
        queue.reopen()
        assert queue.size() == 0
        assert not queue.is_closed
        queue.push(item(2))
        assert number_of(queue.pop()) == 2


@pytest.mark.parametrize("end", ["close", "kill", "push"])
def test_04_threads_that_wait_in_pop_are_all_woken(end: str) -> None:
    queue = BlockingQueue(10)
    outcome: list[Any] = []

    def wait() -> None:
        try:
            outcome.append(number_of(queue.pop()))
        except (QueueClosed, QueueKilled) as error:
            outcome.append(type(error))

    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    if end == "push":
        for n in range(5):
            queue.push(item(n))
        wanted: list[Any] = [0, 1, 2, 3, 4]
    else:
        getattr(queue, end)()
        wanted = [QueueClosed if end == "close" else QueueKilled] * 5
    for thread in threads:
        thread.join(BOUND_S)
        assert not thread.is_alive()
    assert sorted(outcome, key=str) == wanted


@pytest.mark.parametrize("end", ["close", "kill", "pop", "reopen"])
def test_04_threads_that_wait_in_push_are_all_woken(end: str) -> None:
    queue = BlockingQueue(1)
    queue.push(item(9))
    outcome: list[Any] = []

    def wait() -> None:
        try:
            queue.push(item(1))
            outcome.append("pushed")
        except (QueueClosed, QueueKilled) as error:
            outcome.append(type(error))

    count = 1 if end == "reopen" else 4
    threads = [threading.Thread(target=wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    if end == "pop":
        for _ in range(5):
            queue.pop(timeout=BOUND_S)
    else:
        getattr(queue, end)()
    for thread in threads:
        thread.join(BOUND_S)
        assert not thread.is_alive()
    wanted: Any = {"close": QueueClosed, "kill": QueueKilled}.get(end, "pushed")
    assert outcome == [wanted] * count


def test_09_many_producers_and_consumers_deliver_each_item_once() -> None:
    queue = BlockingQueue(3)
    got: list[int] = []
    orders: dict[int, list[int]] = {}

    def produce(start: int) -> None:
        for n in range(start, start + 200):
            queue.push(item(n))

    def consume() -> None:
        mine = []
        try:
            while True:
                mine.append(number_of(queue.pop()))
        except QueueClosed:
            orders[threading.get_ident()] = mine
            got.extend(mine)

    producers = [threading.Thread(target=produce, args=(1000 * k,)) for k in range(4)]
    consumers = [threading.Thread(target=consume) for _ in range(4)]
    for thread in producers + consumers:
        thread.start()
    for thread in producers:
        thread.join(BOUND_S)
    queue.close()
    for thread in consumers:
        thread.join(BOUND_S)
        assert not thread.is_alive()
    assert sorted(got) == sorted(n for k in range(4) for n in range(1000 * k, 1000 * k + 200))
    for mine in orders.values():  # of one producer's items, each consumer sees a rising sequence
        for k in range(4):
            of_one = [n for n in mine if n // 1000 == k]
            assert of_one == sorted(of_one)


def test_03_items_left_in_a_queue_are_freed_with_it() -> None:
    array = np.ones(1000)
    gone = weakref.ref(array)
    queue = BlockingQueue(4)
    queue.push([array])
    queue.push([array])
    del array
    gc.collect()
    assert gone() is not None
    queue.kill("end")
    del queue
    gc.collect()
    assert gone() is None


def test_03_refused_item_is_released() -> None:
    array = np.ones(10)
    gone = weakref.ref(array)
    queue = BlockingQueue(1)
    queue.close()
    for _ in range(3):
        with pytest.raises(QueueClosed):
            queue.push([array])
    del array
    gc.collect()
    assert gone() is None


Pair = collections.namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    "batch",
    [
        {"x": np.ones(3), "names": ["a", "b"]},
        [np.arange(6.0), LoDTensor(np.ones(2))],
        np.zeros((2, 3)),
        (np.ones(1), {"deep": [np.ones(2), ("text", None)]}),
        Pair(np.ones(2), 5),
        np.ma.masked_equal([1, 2], 2),
        LoDTensorArray([np.ones(2)]),
        LoDTensorArray.from_batch({"x": np.ones(2)}),
        5,
        "text",
        None,
        [],
        object(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_pop_gives_back_what_was_pushed_whatever_it_is(batch: Any) -> None:
    queue = BlockingQueue(2)
    queue.push(batch)
    queue.push(batch)
    assert queue.pop() is batch
    queue.reopen()
    queue.push(batch)
    queue.close()
    assert queue.pop() is batch
    with pytest.raises(QueueClosed):
        queue.push(batch)


def test_popped_arrays_share_the_pushed_bytes() -> None:
    array = np.arange(6.0)
    queue = BlockingQueue(1)
    queue.push([array, LoDTensor(array)])
    first, second = queue.pop()
    assert first is array
    assert second.numpy().ctypes.data == array.ctypes.data
    assert "BlockingQueue(0 of 1, open)" in repr(queue)


class QueueModel(RuleBasedStateMachine):
    """The queue beside a list: any sequence of calls from one thread answers alike."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = BlockingQueue(3)
        self.model: list[int] = []
        self.state = "open"

    @rule(n=st.integers(0, 1000))
    def push(self, n: int) -> None:
        if self.state != "open":
            with pytest.raises(QueueClosed if self.state == "closed" else QueueKilled):
                self.queue.push(item(n), timeout=0)
        elif len(self.model) == 3:
            with pytest.raises(LoadTimeout):
                self.queue.push(item(n), timeout=0)
        else:
            self.queue.push(item(n), timeout=0)
            self.model.append(n)

    @rule()
    def pop(self) -> None:
        if self.model:
            assert number_of(self.queue.pop(timeout=0)) == self.model.pop(0)
        elif self.state == "open":
            with pytest.raises(LoadTimeout):
                self.queue.pop(timeout=0)
        else:
            with pytest.raises(QueueClosed if self.state == "closed" else QueueKilled):
                self.queue.pop(timeout=0)

    @rule()
    def close(self) -> None:
        self.queue.close()
        self.state = "closed" if self.state == "open" else self.state

    @rule()
    def kill(self) -> None:
        self.queue.kill("model")
        self.state = "killed"

    @precondition(lambda self: self.state != "open")
    @rule()
    def reopen(self) -> None:
        self.queue.reopen()
        self.model.clear()
        self.state = "open"

    @invariant()
    def size_agrees(self) -> None:
        assert self.queue.size() == len(self.model)
        assert self.queue.is_closed == (self.state != "open")


TestQueueModel = QueueModel.TestCase


@settings(max_examples=20)
@given(st.integers(1, 40), st.lists(st.booleans(), max_size=120))
def test_property_ring_grows_and_wraps(capacity: int, steps: list[bool]) -> None:
    queue = BlockingQueue(capacity)
    model: list[int] = []
    for n, is_push in enumerate(steps):
        if is_push and len(model) < capacity:
            queue.push(item(n))
            model.append(n)
        elif model:
            assert number_of(queue.pop()) == model.pop(0)
    assert [number_of(queue.pop()) for _ in model] == model


def test_09_random_ends_never_lose_an_accepted_item(rng: np.random.Generator) -> None:
    for _ in range(20):
        queue = BlockingQueue(2)
        accepted: list[int] = []
        got: list[int] = []

        def produce(queue: BlockingQueue = queue, accepted: list[int] = accepted) -> None:
            n = 0
            try:
                while True:
                    queue.push(item(n))
                    accepted.append(n)
                    n += 1
            except (QueueClosed, QueueKilled):
                return

        def consume(queue: BlockingQueue = queue, got: list[int] = got) -> None:
            try:
                while True:
                    got.append(number_of(queue.pop()))
            except (QueueClosed, QueueKilled):
                return

        threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
        for thread in threads:
            thread.start()
        while len(got) < int(rng.integers(1, 30)):
            threading.Event().wait(0.0005)
        random.choice([queue.close, queue.kill])()
        for thread in threads:
            thread.join(BOUND_S)
            assert not thread.is_alive()
        assert got == accepted
