"""A line to a remote worker, with a fake actor: what it sends, and which worker it blames."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import time
import weakref
from concurrent.futures import Future
from typing import Any

import pytest

from reader._core.memory.arena import Arena
from reader._core.wire.channel import encode_task
from reader._core.wire.feeder import Feeder
from reader.cluster.line import LaunchRequest, Line, NotStarted
from reader.cluster.remote_worker import CallTimes, Place
from reader.cluster.reply import Reply


class Ref:
    """The result of a call of Ray."""

    def __init__(self) -> None:
        self.result: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self.result


class Played:
    """An actor whose calls end when the test says so."""

    def __init__(self) -> None:
        self.starting = Ref()
        self.calls: list[tuple[Any, Ref]] = []

    def start(self) -> Any:
        return self.starting

    def work(self, tasks: Any) -> Any:
        self.calls.append((tasks, Ref()))
        return self.calls[-1][1]

    def beat(self) -> None:
        pass

    def kill(self) -> None:
        pass

    def leave(self) -> Any:
        return None


class Lines:
    """A trainer's feeder, and lines to its workers."""

    def __init__(self, count: int) -> None:
        self.arena = Arena.create(count, 8)
        self.feeder = Feeder(self.arena, count, 8, 8)
        self.feeder.start()
        self.suspects: set[tuple[int, int]] = set()
        self.lines, self.actors, self.pipes = [], [], []
        self.clocks: dict[str, Any] = {}
        self.fds: list[list[int]] = []
        self.failed: set[int] = set()
        for worker in range(count):
            self.feeder.attach(worker)
            read, write = os.pipe()
            fds = [os.dup(self.arena.fd), os.dup(self.feeder.bell), write]
            self.fds.append(fds)
            options: Any = (False, False, {}, self.suspects, self.clocks, lambda: None)
            line = Line(LaunchRequest(worker, 9, 4), fds, *options)
            actor = Played()
            line.start(actor)
            self.lines.append(line)
            self.actors.append(actor)
            self.pipes.append(read)
        self.feeder.begin_run(0)

    def run(self, worker: int) -> None:
        now = time.monotonic_ns()
        place = Place("node", 1000 + worker, node="n")
        self.actors[worker].starting.result.set_result((CallTimes(now, now), place, []))
        self.lines[worker].land()

    def send(self, worker: int, seq: int) -> None:
        kind, payload = encode_task([seq], True)
        assert self.feeder.dispatch(seq, kind, payload, worker)

    def close(self) -> None:
        for line, (_, bell, pipe) in zip(self.lines, self.fds):
            if not line.is_ended:
                line.close(None)
            elif line.worker in self.failed:  # it stays open
                os.close(bell)
                os.close(pipe)
        self.arena.stop()
        self.feeder.close()
        for pipe in self.pipes:
            os.close(pipe)
        self.arena.close()
        self.arena.release()
        self.lines.clear()
        self.actors.clear()  # an error that one raised holds the line that it passed


@pytest.fixture
def lines() -> Any:
    made = Lines(2)
    yield made
    made.close()


def end(line: Line, kind: type[Exception]) -> None:
    with contextlib.suppress(kind):
        line.land()
        pytest.fail(f"no {kind.__name__} was raised")
    line.close(kind("killed: the node is gone"))


def ended(lines: Lines, worker: int) -> Any:
    return pickle.loads(os.read(lines.pipes[worker], 4096))


def test_an_actor_that_never_ran_is_not_blamed_for_the_task_of_another(lines: Lines) -> None:
    lines.run(0)
    lines.send(1, 0)
    lent, own = lines.lines[1], lines.lines[0]
    assert lent.send(own)  # the actor of worker 0 does the task of worker 1, which waits for space
    assert own.load == 1
    lines.actors[1].starting.result.set_exception(RuntimeError("the node is gone"))
    end(lent, NotStarted)
    assert lines.suspects == set()
    assert own.load == 0
    assert "node is gone" in ended(lines, 1).cause
    assert lines.feeder.worker_progress(1).seq is None


def test_an_actor_that_died_with_one_task_is_assumed_to_have_died_at_it(lines: Lines) -> None:
    lines.run(0)
    lines.send(0, 3)
    line = lines.lines[0]
    assert line.send(line)
    lines.actors[0].calls[0][1].result.set_exception(RuntimeError("killed"))
    end(line, RuntimeError)
    assert {seq for _, seq in lines.suspects} == {3}
    assert line.load == 0


def test_a_worker_that_cannot_start_releases_its_lent_tasks(lines: Lines) -> None:
    lines.run(0)
    lines.send(1, 0)
    lent, own = lines.lines[1], lines.lines[0]
    assert lent.send(own)
    words = "... error raised in its creation task ...\nModuleNotFoundError: No module named 'x'"
    lines.actors[1].starting.result.set_exception(RuntimeError(words))
    lent.land()
    lines.failed.add(1)
    assert own.load == 0
    with pytest.raises(OSError, match="temporarily unavailable"):
        os.set_blocking(lines.pipes[1], False)
        os.read(lines.pipes[1], 10)  # it is reported as an error, not as a death


def test_a_line_that_measures_a_clock_has_no_earlier_call(lines: Lines) -> None:
    lines.run(0)
    line, actor = lines.lines[0], lines.actors[0]
    for seq in range(3):
        lines.send(0, seq)
    assert line.send(line)
    line.sound()
    assert line.is_full
    assert not line.send(line)
    now = time.monotonic_ns()
    skipped: Any = (CallTimes(now, now), [])
    actor.calls[0][1].result.set_result(skipped)
    line.land()
    assert not line.is_full
    assert line.send(line)
    assert [len(tasks) for tasks, _ in actor.calls] == [1, 0, 1]
    assert line.load == 2
    now = time.monotonic_ns()
    actor.calls[1][1].result.set_result((CallTimes(now, now), []))
    line.land()
    assert lines.clocks["n"].error_ns < 1_000_000_000


def test_a_death_after_a_call_that_measures_a_clock_is_assumed_at_the_task(lines: Lines) -> None:
    lines.run(0)
    line, actor = lines.lines[0], lines.actors[0]
    line.sound()
    lines.send(0, 3)
    assert line.send(line)
    assert [len(tasks) for tasks, _ in actor.calls] == [0, 1]
    for _, ref in actor.calls:
        ref.result.set_exception(RuntimeError("killed"))
    end(line, RuntimeError)
    assert lines.feeder.worker_progress(0).seq == 3


def test_time_of_a_lent_task_counts_for_the_worker_that_did_it(lines: Lines) -> None:
    lines.run(0)
    lines.send(1, 0)
    lent, own = lines.lines[1], lines.lines[0]
    assert lent.send(own)
    now = time.monotonic_ns()
    worked = CallTimes(now, now, computed_ns=3 * 10**9, runnable_ns=2 * 10**9, stored_ns=10**9)
    lines.actors[0].calls[0][1].result.set_result((worked, []))
    lent.land()
    found, none = lines.feeder.worker_counts(0), lines.feeder.worker_counts(1)
    assert (found.computed_s, found.runnable_s, found.stored_s) == (3.0, 2.0, 1.0)
    assert found.clock_error_s > 0
    assert (none.computed_s, none.runnable_s, none.stored_s, none.clock_error_s) == (0, 0, 0, 0)


def test_times_below_0_end_no_line(lines: Lines) -> None:
    lines.run(0)
    line = lines.lines[0]
    lines.send(0, 0)
    assert line.send(line)
    now = time.monotonic_ns()
    lines.actors[0].calls[0][1].result.set_result((CallTimes(now, now, -1, -1, -1), []))
    line.land()
    assert lines.feeder.worker_counts(0).runnable_s == 0


def test_a_result_goes_with_its_call_without_the_garbage_collector() -> None:
    class Batch:
        pass

    batch = Batch()
    known = weakref.ref(batch)
    refs = [Ref()]
    future = refs[0].result
    reply = Reply(refs.pop, lambda: None)
    future.set_result(batch)
    gc.disable()
    try:
        assert reply.result() is batch
        del batch, reply, future
        assert known() is None
    finally:
        gc.enable()


class Slow(Future[Any]):
    """A result that arrives before its callback was registered."""

    def add_done_callback(self, fn: Any) -> None:
        self.then = fn


def test_a_result_has_not_come_before_its_time_is_known() -> None:
    ref, woken = Ref(), []
    ref.result = future = Slow()
    reply = Reply(lambda: ref, lambda: woken.append(True))
    future.set_result(1)
    assert not reply.has_come
    future.then(future)
    assert reply.has_come
    assert reply.sent_ns <= reply.came_ns
    assert woken == [True]
