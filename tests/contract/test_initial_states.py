"""The state with which a worker begins an epoch arrives before its batches, and ends with its run.

Imports the wire. Holds nothing.
"""

from __future__ import annotations

import pytest

from reader._core.epoch.handover import Handover, Made
from reader._core.wire.channel import TaskKind
from tests.wire import Wire, wire

pytestmark = pytest.mark.timeout(60)
THREAD = pytest.mark.parametrize("is_thread", [False, True])


class Steps(Handover):
    """Asks whether it is alone, within a step and outside of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def prepare(self) -> None:
        self.alone(lambda: self.calls.append("within"))  # as the handler of a signal would
        self.made = Made(1)


def test_a_step_waits_for_no_initial_state() -> None:
    steps = Steps()
    assert next(steps) == 1
    steps.alone(lambda: steps.calls.append("outside"))
    assert steps.calls == ["outside"]


def enter(made: Wire) -> None:
    assert made.feeder.dispatch(0, TaskKind.TASK_ENTER, b"", 0)
    assert made.channel.next_task() == (TaskKind.TASK_ENTER, None)


def take_states(made: Wire) -> None:
    while not made.feeder.has_initial_states:
        made.feeder.take(1)


@THREAD
def test_batch_waits_for_the_state_that_its_worker_began_with(is_thread: bool) -> None:
    with wire(is_thread) as made:
        feeder, channel = made.feeder, made.channel
        enter(made)
        assert not feeder.has_initial_states
        assert feeder.dispatch(0, TaskKind.TASK_NEXT, b"", 0)
        assert feeder.take(0) is False
        channel.send_initial_state({"at": 3})
        assert channel.next_task() == (TaskKind.TASK_NEXT, None)
        channel.write([1])
        found = None
        while found is None:  # the notice that all states have come is before it
            found = feeder.take(5)
        assert found is not False
        assert feeder.has_initial_states
        assert [feeder.initial_state(0), feeder.initial_state(0)] == [{"at": 3}, None]
        feeder.accept()
        del found


@THREAD
def test_worker_without_a_state_says_so(is_thread: bool) -> None:
    with wire(is_thread) as made:
        enter(made)
        made.channel.send_initial_state()
        take_states(made)
        assert made.feeder.initial_state(0) is None


@THREAD
def test_state_of_another_run_is_dropped(is_thread: bool) -> None:
    with wire(is_thread) as made:
        enter(made)
        made.feeder.begin_run(1)
        assert made.feeder.has_initial_states
        made.channel.send_initial_state({"at": 3})
        while made.feeder.is_busy():
            made.feeder.take(1)
        assert made.feeder.initial_state(0) is None


@THREAD
def test_state_does_not_wait_for_a_dead_worker(is_thread: bool) -> None:
    with wire(is_thread) as made:
        enter(made)
        made.feeder.detach(0)
        assert made.feeder.has_initial_states
        made.feeder.attach(0)
        enter(made)
        made.channel.send_initial_state({"at": 3})
        take_states(made)
        made.feeder.detach(0)  # its state goes with it
        assert made.feeder.initial_state(0) is None
