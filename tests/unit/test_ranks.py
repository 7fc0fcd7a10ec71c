"""The rule that decides the rank of a process, and the errors when sources are unclear."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest

import reader
from reader.data import distributed_env
from reader.data.distributed_env import (
    Ranks,
    known_ranks,
    ranks_for_workers,
    set_ranks,
    world_and_rank,
)
from reader.errors import ConfigError, ConfigTypeError

NAMES = ("world_size", "rank")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("PADDLE_TRAINER", "OMPI_", "PMI_", "SLURM_")):
            monkeypatch.delenv(name)
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)


def dealt(world_size: Any = None, rank: Any = None, alone: bool = True) -> tuple[int, int]:
    return world_and_rank(world_size, rank, NAMES, may_be_alone=alone)


def say(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)


def test_program_without_launcher_is_rank_0_of_1() -> None:
    assert known_ranks() is None
    assert dealt() == (1, 0)
    assert list(reader.shard("abc")) == ["a", "b", "c"]
    assert reader.BucketBatchSampler([1, 2], 1).num_replicas == 1


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WORLD_SIZE": "3", "RANK": "2"}, (3, 2)),
        ({"PADDLE_TRAINERS_NUM": "3", "PADDLE_TRAINER_ID": "1"}, (3, 1)),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}, (4, 3)),
        ({"PMI_SIZE": "4", "PMI_RANK": "3"}, (4, 3)),
        ({"WORLD_SIZE": "1"}, (1, 0)),
        ({"WORLD_SIZE": "", "RANK": " "}, (1, 0)),
        # torchrun on each of two hosts, started there by MPI or srun: the inner launcher counts
        ({"WORLD_SIZE": "16", "RANK": "9", "PMI_SIZE": "2", "PMI_RANK": "1"}, (16, 9)),
        (
            {"WORLD_SIZE": "8", "RANK": "5", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"},
            (8, 5),
        ),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, (1, 0)),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, (1, 0)),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, (1, 0)),  # a batch script: one process
    ],
)
def test_environment_says_ranks(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: tuple[int, int]
) -> None:
    say(monkeypatch, **variables)
    assert dealt() == expected
    items = list(reader.shard(range(100)))
    assert items == list(range(100))[expected[1] :: expected[0]]
    sampler = reader.BucketBatchSampler([1] * 8, 1, seed=1)
    assert (sampler.num_replicas, sampler.rank) == expected


def test_passed_ranks_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, WORLD_SIZE="3", RANK="2")
    assert dealt(5, 4) == (5, 4)
    assert dealt(1) == dealt(1, 0) == (1, 0)
    assert dealt(3) == (3, 2)
    assert dealt(None, 0) == (3, 0)
    assert list(reader.shard(range(4), rank=0, world_size=1)) == [0, 1, 2, 3]
    assert reader.BucketBatchSampler([1] * 8, 1, num_replicas=1, rank=0).num_replicas == 1


@pytest.mark.parametrize(
    ("variables", "make", "match"),
    [
        ({}, lambda: dealt(2), r"^rank must be given, .* neither PADDLE_TRAINER_ID nor RANK\. St"),
        (
            {},
            lambda: dealt(None, 0),
            r"^world_size must be given, .* nor WORLD_SIZE\. .*rank=0 for",
        ),
        ({}, lambda: dealt(alone=False), r"^world_size must be given"),
        ({}, lambda: dealt(2, 2), r"^rank must be below world_size, got rank=2 .* from 0 to 1\.$"),
        ({}, lambda: dealt(0, 0), r"^world_size must be an int of 1 or more, got 0"),
        (
            {"WORLD_SIZE": "3", "RANK": "2"},
            lambda: dealt(2),
            r"^world_size=2 was passed without rank, and this is rank 2 of 3 \(WORLD_SIZE",
        ),
        ({"WORLD_SIZE": "2"}, dealt, r"one of WORLD_SIZE and RANK and not the other, got 2 and N"),
        ({"RANK": "0"}, dealt, r"one of WORLD_SIZE and RANK and not the other, got None and 0\. S"),
        ({"WORLD_SIZE": "two"}, dealt, r"variable WORLD_SIZE must be an int of 1 .*, got 'two'\."),
        (
            {"WORLD_SIZE": "2", "RANK": "-1"},
            dealt,
            r"variable RANK must be an int of 0 .* '-1'\. Set",
        ),
        ({"WORLD_SIZE": "2", "RANK": "2"}, dealt, r"RANK must be below WORLD_SIZE, got 2 of 2"),
        (
            {"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3", "PMI_SIZE": "8", "PMI_RANK": "3"},
            dealt,
            r"srun started 8 tasks .* whether they train together.*SLURM_PROCID.*pass 1 and 0$",
        ),
    ],
)
def test_contradictory_ranks_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], make: Any, match: str
) -> None:
    say(monkeypatch, **variables)
    with pytest.raises(ConfigError, match=match):
        make()


def test_rank_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(ConfigTypeError, match="rank must be an int of 0 or more, got '1'"):
        dealt(2, "1")


def test_half_of_the_environment_completes_what_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, RANK="1")
    assert dealt(2) == (2, 1)
    say(monkeypatch, WORLD_SIZE="1", RANK="")
    with pytest.raises(ConfigError, match="below world_size, got rank=1 with world_size=1"):
        dealt(None, 1)


def test_sources_that_contradict_each_other_are_warned_of_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    say(monkeypatch, PADDLE_TRAINERS_NUM="4", PADDLE_TRAINER_ID="3", WORLD_SIZE="2", RANK="0")
    distributed_env._warn.cache_clear()
    both = r"^this is rank 3 of 4 \(PADDLE_TRAINERS_NUM and .* also rank 0 of 2 \(WORLD_SIZE and"
    with pytest.warns(UserWarning, match=both):
        assert dealt() == (4, 3)
    assert dealt() == (4, 3)  # a second warning would be an error
    say(monkeypatch, WORLD_SIZE="4", RANK="3")
    assert dealt() == (4, 3)


def test_worker_knows_what_the_trainer_knew(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, WORLD_SIZE="3", RANK="2")
    found = pickle.loads(pickle.dumps(ranks_for_workers()))
    say(monkeypatch, RANK="")
    refused = pickle.loads(pickle.dumps(ranks_for_workers()))
    say(monkeypatch, WORLD_SIZE="")
    none = pickle.loads(pickle.dumps(ranks_for_workers()))
    say(monkeypatch, WORLD_SIZE="5", RANK="4")
    told: list[Any] = []

    def work() -> None:
        set_ranks(found)
        told.append((dealt(), ranks_for_workers()))
        set_ranks(none)
        told.append((dealt(), known_ranks()))
        set_ranks(refused)
        with pytest.raises(ConfigError, match="one of WORLD_SIZE and RANK and not the other"):
            dealt()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert told == [((3, 2), Ranks(3, 2, "WORLD_SIZE and RANK")), ((1, 0), None)]
    assert dealt() == (5, 4)  # a worker's knowledge is its own


LIBRARIES = """
import os, sys, warnings
import reader
from reader.data.distributed_env import known_ranks

assert not {"torch", "paddle", "jax", "ray"} & sys.modules.keys()
assert known_ranks() is None
import torch.distributed

assert known_ranks() is None
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1
    )
    assert str(known_ranks()) == "rank 0 of 1 (torch.distributed)"
    os.environ.update(WORLD_SIZE="2", RANK="1")
    assert known_ranks()[:2] == (1, 0)
    list(reader.DataLoader([1, 2]))
    os.environ.update(WORLD_SIZE="nonsense")  # what is not needed is not looked at
    assert known_ranks()[:2] == (1, 0)
assert [str(each.message)[:50] for each in told] == [
    "this is rank 0 of 1 (torch.distributed), and also "
], told
os.environ.update(WORLD_SIZE="2", RANK="1")
torch.distributed.destroy_process_group()
assert known_ranks()[:2] == (2, 1)
assert not {"paddle", "jax", "ray"} & sys.modules.keys()
print("well")
"""


@pytest.mark.timeout(180)
def test_library_counts_while_it_is_initialised_and_none_is_imported(tmp_path: Any) -> None:
    command = [sys.executable, "-W", "ignore", "-c", LIBRARIES, str(tmp_path / "store")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert run.stdout == "well\n", run.stderr[-2000:]


def test_modules_that_only_look_like_a_library_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ray.train", "torch.distributed", "paddle.distributed", "jax._src.distributed"):
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    assert known_ranks() is None
    for name in ("ray.train", "torch.distributed", "paddle.distributed", "jax._src.distributed"):
        monkeypatch.setitem(sys.modules, name, warnings)  # half imported: none of the names
    assert known_ranks() is None
