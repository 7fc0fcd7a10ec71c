"""The tools of the cluster: kills, the demonstration, and the simulation of many trainers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import ROOT
from tools.cluster_sim.clock import Clock, Program
from tools.cluster_sim.model import Measured, Setting
from tools.cluster_sim.trainers import simulate

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

SMALL = Setting(trainers=4, workers=32, seconds=20.0, work_s=0.5, epoch_batches=60)


def output_of(*arguments: str) -> str:
    """What a tool prints; in a process of its own, since Ray's client leaves threads."""
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout


def test_killed_actors_and_nodes_change_nothing_and_leave_nothing() -> None:
    said = output_of("tools.cluster_kills", "--nodes=1", "--actors=2", "--samples=400")
    rows = [line.split(" | ") for line in said.splitlines() if line.startswith("| a")]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("| an actor", "2", "0 |"),
        ("| a node", "1", "0 |"),
    ]


def test_demonstration_survives_the_loss_of_a_node() -> None:
    pytest.importorskip("sklearn")
    said = output_of("tools.demo.cluster", "--epochs=2")
    assert "a node was killed" in said
    assert said.count(": yes.") == 2


def test_clock_runs_due_calls_in_order() -> None:
    clock, said = Clock(), []

    def program(each: Program) -> None:
        each.sleep(2)
        said.append(("slept", clock.now))
        said.append((each.wait(1.5), clock.now))
        each.wait()
        said.append(("never", clock.now))

    clock.at(3, lambda: said.append(("at", clock.now)))
    clock.start(program)
    clock.run(10)
    assert said == [("slept", 2.0), ("at", 3), (False, 3.5)]
    assert clock.now == 10


def test_error_of_a_program_ends_the_simulation() -> None:
    def program(each: Program) -> None:
        each.sleep(1)
        raise ValueError("wrong")

    clock = Clock()
    clock.start(program)
    with pytest.raises(ValueError, match="wrong"):
        clock.run(10)


@pytest.mark.parametrize("values", [{}, {"is_pool": True}, {"in_order": False}])
def test_simulation_is_the_same_each_time(values: dict[str, bool]) -> None:
    setting = SMALL.changed(failure_s=0.5, of_nodes=0.1, **values)
    found = simulate(Measured.load(), setting)  # it raises where a batch comes twice or never
    assert found == simulate(Measured.load(), setting)
    assert found.failures > 30
    assert found.nodes_lost
    assert min(found.batches) > 10


def test_simulated_trainers_wait_if_workers_are_too_few() -> None:
    calm = SMALL.changed(failure_s=0.0, stragglers=0.0, epoch_batches=0)
    enough = simulate(Measured.load(), calm)
    few = simulate(Measured.load(), calm.changed(workers=8))
    assert max(enough.waiting) < 0.1
    assert min(few.waiting) > 0.3
    assert min(few.busy) > 0.8
    assert enough.made_twice == few.made_twice == 0
