"""A sample of the soak, and its detection of faults; `make nightly` runs more of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from reader import WorkerDied
from tools.soak.account import Account
from tools.soak.kinds import KINDS, Life
from tools.soak.samples import Broken, Shape, digest_of, numbers_of, stack
from tools.soak.trainer import growth_of

SHAPE = Shape(count=8, nbytes=16, raising=5)
OPTIONS: dict[str, Any] = {"num_workers": 2}
LIFE = Life(SHAPE, 2, (7, 6, 5, 4, 3, 2, 1, 0), OPTIONS)


@pytest.mark.slow
def test_a_short_soak_loses_nothing() -> None:
    command = [sys.executable, "-m", "tools.soak", "--minutes", "0.06", "--seed", "1"]
    command += ["--kinds", "map-process", "stream-process", "map-thread"]
    command += ["--torments", "kill", "segv", "stop", "wake", "break", "resume"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    counts = dict(zip(rows[-5], rows[-1], strict=True))
    assert int(counts["batches"]) > 100
    assert int(counts["kill"]) + int(counts["segv"]) + int(counts["stop"]) > 0


def test_an_account_finds_lost_repeated_and_misplaced_batches() -> None:
    account = Account(KINDS["map-process"], LIFE)
    account.take([7, 6])
    account.take([1, 0])
    assert account.lost() == [2, 3, 4, 5]
    account.take([5, 4])
    assert account.strange == ["batch 1 came after batch 3"]
    account.take([7, 6])
    assert account.twice == 2
    assert account.tell(Broken(2))
    assert not account.tell(Broken(3))
    assert account.lost() == []


def test_an_account_of_a_stream_lets_a_dead_worker_end_its_share() -> None:
    account = Account(KINDS["stream-process"], Life(SHAPE, 2, None, OPTIONS))
    account.take([0, 2])
    account.take([3, 5])
    assert account.lost() == [1, 4, 6, 7]
    account.take([1, 7])
    assert account.strange == ["[1, 7] came after 5 of worker 1"]
    assert account.lost() == [4, 6]
    assert account.tell(WorkerDied(worker_id=0))
    assert account.lost() == []


def test_a_changed_byte_is_seen() -> None:
    samples = [SHAPE.sample(index) for index in (0, 3)]
    batch = stack(samples)
    assert numbers_of(batch) == ([0, 3], True)
    digest = digest_of(batch)
    batch["bytes"][1, 7] ^= 1
    assert numbers_of(batch) == ([0, 3], False)
    assert digest_of(batch) != digest


def test_growth_is_what_rises_after_the_first_third() -> None:
    early = [(float(at), at << 20) for at in range(5)]
    flat = [(float(at), 5 << 20) for at in range(5, 15)]
    assert abs(growth_of(early + flat)) < 1000
    assert abs(growth_of([(float(at), at << 20) for at in range(15)]) - (9 << 20)) < 1000
