"""The tuner against simulated work: it ends near the best setting, and leaves worse ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from reader.engine.tuner import Choice, Reading, Tuner


class Work(NamedTuple):
    """A loop: seconds of a step, of a batch in one worker, cores, and the share that needs one."""

    step_s: float
    batch_s: float
    cores: float
    computes: float = 1.0
    burst: float = 1.0  # how uneven the batches are: more in flight smooth them

    def rate(self, choice: Choice) -> float:
        """Batches per second."""
        num_workers = choice.num_workers
        slowed = max(1.0, num_workers * self.computes / self.cores)
        unevenness = 1 + (self.burst - 1) / choice.factor
        made = num_workers / (self.batch_s * slowed * unevenness)
        return min(1 / self.step_s, made)

    def busy(self, choice: Choice) -> float:
        """Workers that are busy, in the mean."""
        slowed = max(1.0, choice.num_workers * self.computes / self.cores)
        return min(float(choice.num_workers), self.rate(choice) * self.batch_s * slowed)

    def computing(self, choice: Choice) -> float:
        """Busy cores, in the mean."""
        return self.rate(choice) * self.batch_s * self.computes

    def runnable(self, choice: Choice) -> float:
        """Workers for which there is no core, in the mean."""
        return max(0.0, self.busy(choice) - self.rate(choice) * self.batch_s)


def run(
    tuner: Tuner,
    work: Callable[[int], Work],
    batches: int,
    noise: float = 0.0,
    has_clocks: bool = True,
) -> list[Choice]:
    """Return the choices of a run."""
    rng = np.random.default_rng(0)
    seconds = wait_s = busy_s = cpu_s = runnable_s = 0.0
    found = []
    for number in range(batches):
        now, choice = work(number), tuner.choice
        took_s = 1 / now.rate(choice) * (1 + noise * rng.standard_normal())
        seconds += took_s
        wait_s += max(0.0, took_s - now.step_s)
        busy_s += now.busy(choice) * took_s
        reading = Reading(seconds, number + 1, wait_s, busy_s)
        if has_clocks:
            cpu_s += now.computing(choice) * took_s
            runnable_s += now.runnable(choice) * took_s
            reading = reading._replace(cpu_s=cpu_s, runnable_s=runnable_s)
        found.append(tuner.read(reading))
    return found


def started(
    most: int = 16,
    is_free: tuple[bool, bool] = (True, True),
    cores: float = 8,
    num_workers: int = 2,
) -> Tuner:
    return Tuner(Choice(num_workers, 2), Choice(most, 8), is_free, cores)


WORKS = {
    "the step is slower": Work(0.1, 0.02, 8),
    "computing, 8 cores": Work(0.01, 0.07, 8),
    "computing, 2 cores": Work(0.01, 0.07, 2),
    "storage, 2 cores": Work(0.01, 0.1, 2, computes=0.05),
    "no step at all": Work(1e-5, 0.05, 4),
    "tiny": Work(1e-5, 1e-4, 2),
    "uneven": Work(0.02, 0.03, 4, burst=3),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("has_clocks", [True, False])
@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("name", WORKS)
def test_the_tuner_is_near_the_best_within_300_batches(
    name: str, noise: float, has_clocks: bool
) -> None:
    work = WORKS[name]
    best = max(work.rate(Choice(n, f)) for n in range(1, 17) for f in (2, 4, 8))
    batches = 60_000 if name == "tiny" else 900
    choices = run(started(cores=work.cores), lambda _: work, batches, noise, has_clocks)
    ends = choices[-50:]
    rates = [work.rate(choice) for choice in ends]
    assert np.mean(rates) > 0.9 * best
    if name != "tiny":
        assert np.mean([work.rate(choice) for choice in choices[300:]]) > 0.9 * best


def test_a_network_that_is_full_gets_no_more_workers() -> None:
    class Network(Work):
        def rate(self, choice: Choice) -> float:
            return min(50.0, super().rate(choice))  # what it has for all workers

        def busy(self, choice: Choice) -> float:
            return float(choice.num_workers)  # they wait for it

    choices = run(started(), lambda _: Network(0.001, 0.01, 8, computes=0.05), 3000)
    assert np.mean([choice.num_workers for choice in choices[300:]]) < 3
    assert choices[-1].num_workers == 2


def test_workers_that_the_loop_does_not_need_rest() -> None:
    work = Work(0.1, 0.02, 8)
    choices = run(started(8, num_workers=8), lambda _: work, 300)
    assert choices[-1].num_workers == 1
    assert all(work.rate(choice) == work.rate(choices[0]) for choice in choices)


def test_many_unneeded_workers_rest_after_a_few_readings() -> None:
    choices = run(started(64, cores=64, num_workers=64), lambda _: Work(1e-4, 2e-5, 64), 20_000)
    changes = [one for one, other in itertools.pairwise(choices) if one != other]
    assert choices[-1].num_workers == 1
    assert len(changes) <= 7  # each takes half of the way


def test_the_tuner_follows_work_that_changes() -> None:
    quick, slow = Work(0.1, 0.02, 8), Work(0.01, 0.07, 8)
    tuner = started()
    choices = run(tuner, lambda number: slow if 300 <= number < 900 else quick, 1500)
    assert choices[299].num_workers <= 2
    assert choices[899].num_workers >= 6
    assert choices[-1].num_workers <= 2


def test_a_change_that_did_not_help_is_tried_ever_more_seldom() -> None:
    work = Work(0.01, 0.07, 1)  # more workers do not help
    choices = run(started(cores=1), lambda _: work, 4000, has_clocks=False)
    changes = [at for at, (one, other) in enumerate(itertools.pairwise(choices)) if one != other]
    assert len(changes) < 40
    assert all(choice.num_workers <= 8 for choice in choices)
    assert np.mean([choice.num_workers > 2 for choice in choices[-2000:]]) < 0.1


@pytest.mark.parametrize("cores", [1, 2, 3.5, 8])
def test_workers_that_compute_all_the_time_are_no_more_than_the_cores(cores: float) -> None:
    work = Work(0.001, 0.07, cores)
    choices = run(started(64, cores=cores), lambda _: work, 3000)
    assert max(choice.num_workers for choice in choices[50:]) <= math.ceil(cores)
    assert np.mean([work.rate(choice) for choice in choices[300:]]) > 0.95 * cores / 0.07


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_workers_that_wait_go_far_beyond_the_cores_at_once(cores: float) -> None:
    work = Work(0.001, 0.1, cores, computes=0.02)
    choices = run(started(32, cores=cores), lambda _: work, 300)
    assert choices[150].num_workers == 32


def test_as_many_waiting_workers_are_chosen_as_the_step_needs() -> None:
    work = Work(0.01, 0.1, 2, computes=0.02)
    choices = run(started(64, cores=2), lambda _: work, 300)
    assert 10 <= max(choice.num_workers for choice in choices) <= 16


def test_workers_beyond_the_cores_rest_when_they_begin_to_compute() -> None:
    waiting, computing = Work(0.001, 0.1, 2, computes=0.02), Work(0.001, 0.1, 2)
    tuner = started(16, cores=2)
    choices = run(tuner, lambda number: waiting if number < 300 else computing, 900)
    assert choices[299].num_workers == 16
    assert choices[-1].num_workers == 2


def test_a_gain_caused_by_other_programs_is_measured_again() -> None:
    slow, fast = Work(0.001, 0.07, 4), Work(0.001, 0.06, 4)
    fixed = (False, True)
    tuner = started(is_free=fixed, cores=4)
    tried: list[int] = []

    def work(_: int) -> Work:  # quicker from the first trial on, with any setting
        tried.append(tuner.choice.factor)
        return fast if max(tried) > 2 else slow

    choices = run(tuner, work, 600)
    assert max(choice.factor for choice in choices) > 2
    assert choices[-1].factor == 2


@pytest.mark.parametrize(
    ("is_free", "chosen"),
    [((True, True), (8, 2)), ((True, False), (8, 2)), ((False, True), (8, 2))],
)
def test_memory_bounds_the_batches_in_flight(
    is_free: tuple[bool, bool], chosen: tuple[int, int]
) -> None:
    work = Work(0.001, 0.1, 2, computes=0.02, burst=3)
    tuner = Tuner(Choice(*chosen), Choice(32, 8), is_free, 2)
    tuner.choice = Choice(16 if is_free[0] else 8, 4 if is_free[1] else 2)
    found = tuner.fit(16)
    assert found.num_workers * found.factor <= 16
    choices = run(tuner, lambda _: work, 600)
    assert all(each.num_workers * each.factor <= 16 for each in choices)
    assert tuner.fit(1).num_workers == (1 if is_free[0] else 8)


def test_a_few_workers_beyond_the_cores_are_not_tried_repeatedly() -> None:
    work = Work(0.0001, 0.02, 2, computes=0.34)
    choices = run(started(8, num_workers=8), lambda _: work, 3000)
    changes = [at for at, (one, other) in enumerate(itertools.pairwise(choices)) if one != other]
    assert len(changes) < 20


def test_clocks_of_a_worker_that_was_replaced_begin_anew() -> None:
    before = Reading(1.0, 10, 0.5, 1.0, cpu_s=9.0)
    assert Reading(2.0, 20, 1.0, 2.0, cpu_s=1.0).since(before).share is None
    assert Reading(2.0, 20, 1.0, 2.0).since(before).share is None
    assert Reading(2.0, 20, 1.0, 2.0, cpu_s=9.5).since(before).share == 0.5


@pytest.mark.parametrize("is_free", [(True, False), (False, True), (False, False)])
def test_a_fixed_number_stays(is_free: tuple[bool, bool]) -> None:
    for work in WORKS.values():
        choices = run(started(is_free=is_free), lambda _, work=work: work, 600)  # type: ignore[misc]
        if not is_free[0]:
            assert {choice.num_workers for choice in choices} == {2}
        if not is_free[1]:
            assert {choice.factor for choice in choices} == {2}


def test_the_tuner_stays_within_its_limits() -> None:
    for work in WORKS.values():
        for choice in run(started(most=3), lambda _, work=work: work, 600):  # type: ignore[misc]
            assert 1 <= choice.num_workers <= 3
            assert 2 <= choice.factor <= 8


def test_sums_may_begin_anew() -> None:
    tuner = started()
    run(tuner, lambda _: WORKS["computing, 8 cores"], 200)
    before = tuner.choice
    tuner.begin()
    assert tuner.read(Reading(0.0, 0, 0.0, 0.0)) == before
    run(tuner, lambda _: WORKS["computing, 8 cores"], 200)
    assert tuner.choice.num_workers >= before.num_workers
