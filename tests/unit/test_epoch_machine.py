"""The epoch machine under any sequence of events, against a model of what the user must see."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import reader
from reader._core.epoch.tasks import TaskState
from reader.errors import LoadTimeout, ReaderError, SamplerError, WorkerDied
from reader.log import log
from tests.epoch_model import (
    Broken,
    Interrupts,
    MapModel,
    Run,
    SampleError,
    Setting,
    StreamModel,
    World,
)

STEPS = [0]  # of all examples of this process


class EpochMachine(RuleBasedStateMachine):
    """Drives one epoch, and others that resume it."""

    run: Run | None = None

    def __init__(self) -> None:
        super().__init__()
        self.interrupts = Interrupts()

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.begin_with(data.draw(any_setting()))

    def begin_with(self, setting: Setting) -> None:
        """Open the first epoch."""
        self.setting = setting
        self.world = World(setting)
        self.model: Any = (StreamModel if setting.is_stream else MapModel)(self.world)
        self.state: dict[str, Any] | None = None
        self.saved: Any = None
        self.is_refused = False  # workers cannot be started
        self.open(None, None)

    def open(self, state: Any, backend: Any) -> None:
        self.ended: str | None = None  # why
        self.interrupted = 0
        self.run = Run(self.world, backend, state)
        self.models: dict[int, Any] = {}  # behind each step
        self.note_model()
        with contextlib.suppress(KeyboardInterrupt):
            self.run.fill()

    def note_model(self) -> None:
        """Note what the user has got, for the states behind this step."""
        assert self.run is not None
        if not self.setting.keep:
            return
        same = {id(each): each for each in (self.world, self.setting)}
        self.models[self.run.progress.steps] = copy.deepcopy(self.model, same)

    # -- what the user does ----------------------------------------------------------------------

    @rule(times=st.integers(1, 3))
    def call_next(self, times: int) -> None:
        for _ in range(times):
            if self.step() in ("batch", "error"):
                self.note_model()

    def step(self) -> str:
        """Call next() once; returns its result or exception."""
        STEPS[0] += 1
        run = self.run
        assert run is not None
        try:
            with self.interrupts:
                value = next(run.iterator)
            found = "batch"
        except KeyboardInterrupt:
            self.interrupted += 1
            return "interrupt"
        except StopIteration:
            self.check_end()
            return "end"
        except LoadTimeout:
            run.check_waits()
            return "nothing"
        except (Exception, Broken) as error:
            return self.check_error(error)
        if self.ended in ("start", "deaths", "refused", "sampler") and self.setting.places > 1:
            assert not self.setting.drops_last  # the group that lacked some comes after the error
            self.ended = f"{self.ended}, and the last group came"
        assert self.ended is None or "came" in self.ended, f"{value} came after the end"
        self.model.batch(value)
        self.world.idle_deaths = 0
        return found

    def check_error(self, error: Exception) -> str:
        run, world = self.run, self.world
        assert run is not None
        assert type(error).__name__ != "InternalError", error
        assert not isinstance(error, (AssertionError, AttributeError, KeyError, IndexError)), error
        assert self.ended is None, f"{error!r} came after the end"
        is_start = isinstance(error, SampleError) and error.args[0] == "start"
        if is_start:
            assert world.has_failed
            self.ended = "start"
        elif isinstance(error, Broken):
            left = self.model.unseen(self.model.total)
            assert len(left) < self.setting.places, f"the sampler's exception came before {left}"
            self.ended = "sampler"
        elif isinstance(error, SamplerError):
            assert "was interrupted" in str(error)
            assert self.interrupted > 1
            self.ended = "sampler"
        elif isinstance(error, WorkerDied) and error.batch is None:
            assert world.idle_deaths > 3 * self.setting.workers
            self.ended = "deaths"
        elif isinstance(error, ReaderError) and "no process can be started" in str(error):
            assert self.is_refused
            self.ended = "refused"
        else:
            self.model.error(error)
            return "error"
        self.model.is_cut = True
        return "ended"

    def check_end(self) -> None:
        run = self.run
        assert run is not None
        setting = self.setting
        if self.ended is None:
            self.model.end()
            if not setting.is_stream and setting.sampler == "generator":
                assert setting.broken_at is None or setting.broken_at >= setting.count
            run.progress.count()
            assert run.progress.is_finished
            self.ended = "end"
        if self.ended.startswith(("start", "deaths", "refused")):
            run.iterator.close()
        run.check_empty(not setting.in_order and self.ended != "end")

    @rule()
    def save(self) -> None:
        run = self.run
        assert run is not None
        if self.ended == "end" or (self.ended and not run.progress.is_known):
            return  # after close the first batch would be drawn, to describe the order
        try:
            with self.interrupts:
                state = run.save()
        except KeyboardInterrupt:
            self.interrupted += 1
            return
        self.model.check_state(state)
        self.saved = state, self.model.load(state)

    @precondition(lambda self: self.setting.keep)
    @rule(back=st.integers(0, 12))
    def save_behind(self, back: int) -> None:
        """Save a state behind an earlier step."""
        run = self.run
        assert run is not None
        steps = run.progress.steps - back
        if steps not in self.models or not run.progress.is_known:
            return
        try:
            state = run.save(steps)
        except reader.ConfigError:
            state = None
        if state is None:
            assert back > self.setting.keep
            return
        self.models[steps].check_state(state)
        self.saved = state, self.models[steps].load(state)

    @rule(keeps_workers=st.booleans(), closes=st.booleans())
    def load(self, keeps_workers: bool, closes: bool) -> None:
        """Open an epoch where the last state was saved; the old iterator is closed, or dropped."""
        if self.saved is None:
            return
        state, model = self.saved
        if self.breaks_at(state):
            with pytest.raises(Broken):  # the loader raises it where it opens the epoch
                Run(self.world, None, state)
            return
        run, self.run = self.run, None
        assert run is not None
        if closes:
            run.iterator.close()
        backend = run.backend if keeps_workers and run.backend.is_usable else None
        self.model = model
        self.saved = None
        run.loan.release()
        del run
        self.open(state, backend)

    def breaks_at(self, state: dict[str, Any]) -> bool:
        """Whether the sampler, iterated over again, raises in the place of the next batch."""
        is_drawn_again = self.setting.sampler == "generator" and state["order"] is not None
        return is_drawn_again and self.setting.broken_at == state["batches"]

    @precondition(lambda self: self.ended is None)
    @rule()
    def close(self) -> None:
        run = self.run
        assert run is not None
        run.iterator.close()
        self.ended = "close"
        run.check_empty(not self.setting.in_order)
        assert next(run.iterator, None) is None

    @rule(places=st.integers(1, 150))
    def arm(self, places: int) -> None:
        """Raise Ctrl-C within one of the next calls."""
        self.interrupts.left = places

    # -- what workers do -------------------------------------------------------------------------

    def happen(self, event: Callable[[], None], is_later: bool) -> None:
        """Cause an event now, or during the next wait of the epoch."""
        assert self.run is not None
        if is_later:
            self.run.feeder.script.append(event)
        else:
            event()

    @rule(worker=st.integers(0, 3), times=st.integers(1, 3), is_later=st.booleans())
    def answer(self, worker: int, times: int, is_later: bool) -> None:
        for _ in range(times):
            self.act("answer", worker, is_later)

    @rule(worker=st.integers(0, 3), is_later=st.booleans())
    def fail(self, worker: int, is_later: bool) -> None:
        self.act("answer", worker, is_later, fails=True)

    @rule(worker=st.integers(0, 3))
    def fail_all(self, worker: int) -> None:
        """All samples of a worker's batch fail."""
        assert self.run is not None
        feeder = self.run.feeder
        mine = [t for t in feeder.workers[worker % self.setting.workers].tasks if feeder.is_own(t)]
        if mine and not self.setting.is_stream:
            self.world.bad.update((2 * mine[0].seq, 2 * mine[0].seq + 1))
        self.act("answer", worker, False, fails=self.setting.is_stream)

    @rule(worker=st.integers(0, 3), is_later=st.booleans())
    def short(self, worker: int, is_later: bool) -> None:
        self.act("answer", worker, is_later, is_short=True)

    @rule(
        worker=st.integers(0, 3), is_busy=st.booleans(), row=st.integers(-1, 1),
        is_later=st.booleans(), hangs=st.booleans(),
    )  # fmt: skip
    def kill(self, worker: int, is_busy: bool, row: int, is_later: bool, hangs: bool) -> None:
        self.act("end", worker, is_later, is_busy=is_busy, row=row, hangs=hangs)

    @rule(worker=st.integers(0, 3), is_later=st.booleans(), ends=st.booleans())
    def fail_start(self, worker: int, is_later: bool, ends: bool) -> None:
        self.act("fail_start", worker, is_later, ends=ends)

    @precondition(lambda self: not self.setting.is_stream)
    @rule(number=st.integers(0, 20))
    def unconvertible(self, number: int) -> None:
        assert self.run is not None
        landed = [task.number for task in self.run.table.those(TaskState.LANDED)]
        if number not in self.model.seen and number not in landed:
            self.world.unconvertible.add(number)

    @rule()
    def refuse(self) -> None:
        """No worker can be started any more."""
        assert self.run is not None
        self.run.backend.starts_no_more = self.is_refused = True

    def act(self, name: str, worker: int, is_later: bool, **how: Any) -> None:
        run = self.run
        assert run is not None
        feeder, number = run.feeder, worker % self.setting.workers
        self.happen(lambda: getattr(feeder, name)(number, **how), is_later)

    # -- the end ---------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Let all workers answer until the epoch is over."""
        if self.run is None:
            return
        self.interrupts.left = 0
        found = ""
        for _ in range(1000):
            found = self.step()
            if found == "end":
                break
            for worker in range(self.setting.workers):
                self.act("answer", worker, False)
        assert found == "end", "the epoch has no end"
        told = self.run.owner.told
        assert len(told) == len(set(told)) or self.setting.is_stream, told
        self.run.iterator.close()


@st.composite
def any_setting(draw: st.DrawFn) -> Setting:
    workers = draw(st.integers(1, 4))
    is_stream, in_order = draw(st.booleans()), draw(st.booleans())
    made: dict[str, Any] = {
        "workers": workers,
        "in_order": in_order,
        "window": draw(st.integers(1, 6)),
        "flights_limit": draw(st.integers(1, 4)),
        "retries": draw(st.integers(0, 2)),
        "tolerates": draw(st.booleans()),
        "every": draw(st.integers(0, 2)),
        "starts": draw(st.integers(0, 2)),
        "drops_last": draw(st.booleans()),
        "keep": draw(st.sampled_from([0, 1, 4, 64])),
    }
    if in_order:
        made["places"] = draw(st.sampled_from([1, 1, 2, 3]))
    if is_stream:
        sizes = st.lists(st.integers(0, 6), min_size=workers, max_size=workers)
        return Setting(sizes=tuple(draw(sizes)), **made)
    kinds = ["built-in", "list", "generator", *(["shards"] if in_order else [])]
    made["sampler"] = draw(st.sampled_from(kinds))
    made["round_robin"] = draw(st.booleans())
    made["count"] = draw(st.integers(0, 20))
    if made["sampler"] == "shards":
        made["places"], made["drops_last"] = 3, False
    elif made["sampler"] == "generator":
        made["broken_at"] = draw(st.none() | st.integers(0, 20))
    return Setting(**made)


@pytest.fixture(autouse=True)
def _silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of workers die here."""
    monkeypatch.setattr(log, "disabled", True)


def drive(examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples, stateful_step_count=steps,
        phases=[Phase.generate, Phase.shrink],  # the explain phase uses tracing, too
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(EpochMachine, settings=chosen)


def machine(setting: Setting) -> EpochMachine:
    made = EpochMachine()
    made.begin_with(setting)
    return made


def test_01_user_sees_each_batch_once_whatever_happens() -> None:
    drive(250, 30)


@pytest.mark.nightly
@pytest.mark.timeout(560)  # a run of ten minutes counts as a hang
@pytest.mark.parametrize("part", range(8))
def test_01_user_sees_each_batch_once_whatever_happens_for_long(part: int) -> None:
    drive(2_000, 60)


# -- what it has found ---------------------------------------------------------------------------

PLACES = range(1, 200)  # at which an interrupt comes


@pytest.mark.parametrize("is_stream", [False, True])
def test_failed_start_is_reported_despite_an_interrupt(is_stream: bool) -> None:
    setting = Setting(workers=1, sizes=(1,) if is_stream else None, count=1, window=1)
    for places in PLACES:
        found = machine(setting)
        found.fail_start(0, False, False)
        found.arm(places)
        found.call_next(2)
        found.teardown()
        assert found.ended == "start", f"interrupted at {places}"


def test_exception_of_a_sample_is_raised_despite_an_interrupt() -> None:
    for places in PLACES:
        found = machine(Setting(workers=1, count=2))
        found.fail(0, False)
        found.arm(places)
        found.call_next(2)
        found.teardown()
        assert found.model.raised == {0}, f"interrupted at {places}"


def test_failed_sample_is_counted_once_despite_an_interrupt() -> None:
    for places in PLACES:
        found = machine(Setting(workers=1, count=3, tolerates=True))
        found.fail(0, False)
        found.call_next(1)
        found.arm(places)
        found.save()
        found.teardown()
        assert found.run is not None
        assert found.run.owner.told == [(0, 0)], f"interrupted at {places}"


def test_failed_start_of_an_epoch_that_was_left_is_reported_in_the_next() -> None:
    for sizes in (None, (2, 2)):
        found = machine(Setting(sizes=sizes, starts=1))
        found.fail_start(1, False, True)
        assert found.step() == "nothing"  # it waits for worker 0
        found.save()
        found.load(keeps_workers=True, closes=True)
        found.teardown()
        assert found.ended == "start"


def test_failed_start_is_reported_while_another_worker_is_asked_again() -> None:
    found = machine(Setting(sizes=(1, 0), window=4, flights_limit=1))
    found.short(0, False)
    found.answer(0, 2, True)
    found.fail_start(1, False, False)
    found.call_next(1)
    found.teardown()
    assert found.ended == "start"


def test_step_batches_before_an_error_in_their_step_are_not_delivered() -> None:
    found = machine(Setting(workers=1, sampler="shards", places=3, window=1, flights_limit=1))
    found.answer(0, 1, False)
    found.refuse()
    found.kill(0, False, 0, True, False)
    found.call_next(2)
    found.teardown()
    assert found.ended == "refused"
    assert not found.model.seen


def test_worker_that_dies_while_another_is_asked_again_gets_its_task_again() -> None:
    found = machine(Setting(sizes=(1, 0), window=2, flights_limit=1))
    found.short(0, False)
    found.call_next(1)
    found.kill(1, False, 0, False, False)
    found.teardown()
    assert found.ended == "end"


def test_state_at_an_end_that_was_interrupted_has_no_more_batches() -> None:
    for places in PLACES:
        found = machine(Setting(workers=1, count=3, places=2, drops_last=True))
        found.answer(0, 3, False)
        found.call_next(1)
        found.arm(places)
        found.call_next(1)
        found.save()
        found.load(keeps_workers=False, closes=True)
        found.teardown()
        assert found.model.seen >= {0, 1}, f"interrupted at {places}"


def test_exception_before_its_group_comes_again_after_close() -> None:
    found = machine(Setting(workers=1, places=2, window=2))
    found.answer(0, 1, False)
    found.fail(0, False)
    found.call_next(1)
    assert found.model.raised == {1}
    found.close()
    assert found.run is not None
    _, batches, _, beyond, *_ = found.run.progress.reached()
    assert (batches, beyond) == (0, [])


def test_state_before_a_batch_that_the_sampler_refuses_is_kept_by_the_old_epoch() -> None:
    setting = Setting(
        workers=1, count=2, sampler="generator", broken_at=1, in_order=False, window=1
    )
    found = machine(setting)
    found.fail(0, False)
    found.call_next(1)
    found.save()
    found.load(keeps_workers=False, closes=False)
    assert found.step() == "ended"
    assert found.ended == "sampler"


def test_state_of_a_stream_behind_a_batch_without_memory() -> None:
    setting = Setting(
        workers=1,
        sizes=(2,),
        count=6,
        in_order=False,
        window=2,
        flights_limit=2,
        retries=0,
        every=1,
    )
    found = machine(setting)
    found.short(0, False)
    found.call_next(1)
    found.answer(0, 2, False)
    found.call_next(1)
    found.save()
    found.load(keeps_workers=False, closes=False)
    found.teardown()
