"""Workers on Ray that several programs share: exactly each one's batches, kills, fairness, ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from reader import ConfigTypeError, DataLoader, Ray, WorkerDied
from tests.datasets import Augmented, Calls, digest_of
from tests.processes import ROOT, wait_until
from tests.streams import Sharded

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


def workers() -> list[int]:
    """The processes of shared workers."""
    found = subprocess.run(
        ["pgrep", "-f", "^ray::PoolWorker"], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in found.stdout.split()]


@pytest.fixture
def backend(cluster: Any) -> Iterator[Ray]:
    yield Ray(address=cluster.address, resources={"CPU": 0.5}, pool="ranks")
    wait_until(lambda: not workers())


class Numbered:
    """Rows with the pid of the process that made them."""

    def __init__(self, count: int, first: int, pause_s: float = 0.0) -> None:
        self.count, self.first, self.pause_s = count, first, pause_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, int]:
        if self.pause_s:
            threading.Event().wait(self.pause_s)
        return self.first + index, os.getpid()


def test_programs_share_processes_and_have_their_own_batches(backend: Ray) -> None:
    with ExitStack() as stack:
        loaders = [
            stack.enter_context(
                DataLoader(Numbered(80, first), batch_size=4, num_workers=2, backend=backend)
            )
            for first in (0, 1000, 2000)
        ]
        pids: set[int] = set()
        for _ in range(2):
            for n, batches in enumerate(zip(*loaders, strict=True)):
                for first, (rows, made_by) in zip((0, 1000, 2000), batches, strict=True):
                    assert rows.tolist() == list(range(first + 4 * n, first + 4 * n + 4))
                    pids.update(made_by.tolist())
        assert len(pids) <= 2


def test_random_numbers_are_those_of_own_workers(backend: Ray) -> None:
    options: dict[str, Any] = {"batch_size": 4, "seed": 3, "shuffle": True}
    want = digest_of(DataLoader(Augmented(120), num_workers=2, **options))
    other = digest_of(DataLoader(Augmented(120), num_workers=2, **{**options, "seed": 4}))
    with (
        DataLoader(Augmented(120), num_workers=2, backend=backend, **options) as one,
        DataLoader(
            Augmented(120), num_workers=2, backend=backend, **{**options, "seed": 4}
        ) as another,
    ):
        both = list(zip(one, another, strict=True))
    assert digest_of([batch for batch, _ in both]) == want
    assert digest_of([batch for _, batch in both]) == other


def test_streams_are_each_programs_own(backend: Ray) -> None:
    want = [batch.tolist() for batch in DataLoader(Sharded(40), batch_size=4, num_workers=2)]
    with (
        DataLoader(Sharded(40), batch_size=4, num_workers=2, backend=backend) as one,
        DataLoader(Sharded(40), batch_size=4, num_workers=2, backend=backend) as another,
    ):
        both = [(a.tolist(), b.tolist()) for a, b in zip(one, another, strict=True)]
    assert both == list(zip(want, want, strict=True))


def test_killed_workers_cost_no_program_a_batch(backend: Ray) -> None:
    options: dict[str, Any] = {"batch_size": 4, "num_workers": 3, "backend": backend}
    with (
        DataLoader(Numbered(400, 0, 0.001), **options) as one,
        DataLoader(Numbered(400, 1000, 0.001), **options) as another,
    ):
        for n, ((rows, _), (others, _)) in enumerate(zip(one, another, strict=True)):
            assert rows.tolist() == list(range(4 * n, 4 * n + 4))
            assert others.tolist() == list(range(1000 + 4 * n, 1004 + 4 * n))
            if n in (20, 60):
                os.kill(workers()[0], signal.SIGKILL)


class Killer:
    """One sample kills its worker."""

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> int:
        if index == 42:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.mark.parametrize("count", [1, 3])
def test_sample_that_kills_workers_ends_only_its_own_program(backend: Ray, count: int) -> None:
    options: dict[str, Any] = {"batch_size": 4, "num_workers": count, "backend": backend}
    with (
        DataLoader(Killer(), worker_retries=1, **options) as bad,
        DataLoader(Numbered(4000, 0), worker_retries=0, **options) as good,
    ):
        found, batches = [], iter(good)
        with pytest.raises(WorkerDied, match=r"batch 10 "):
            for batch in bad:
                found += batch.tolist()
                next(batches)
        assert found == list(range(40))
        assert 4 * (10 + sum(1 for _ in batches)) == 4000


def test_sample_that_kills_workers_may_be_left_out(backend: Ray) -> None:
    options: dict[str, Any] = {"batch_size": 4, "num_workers": 1, "backend": backend}
    skip: dict[str, Any] = {"on_error": "skip", "error_budget": 2, "worker_retries": 0}
    with (
        DataLoader(Killer(), **skip, **options) as bad,
        DataLoader(Numbered(80, 0), **skip, **options) as good,
    ):
        found = [batch for pair in zip(bad, good, strict=False) for batch in pair]
        kept = sorted(int(n) for batch in found[::2] for n in batch)
        assert kept == [n for n in range(80) if n != 42]
        assert [error.index for error in bad.errors] == [42]
        assert not good.errors


class Hang:
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        if index == 10:
            threading.Event().wait(1000)
        return index


def test_hung_sample_is_replaced_and_waiting_for_others_is_no_hang(backend: Ray) -> None:
    options: dict[str, Any] = {"batch_size": 4, "num_workers": 1, "backend": backend}
    skip: dict[str, Any] = {"on_error": "skip", "error_budget": 1, "hang_after": 2}
    with (
        DataLoader(Hang(), **skip, **options) as bad,
        DataLoader(Numbered(24, 0, 0.3), **skip, **options) as good,
    ):
        other: list[Any] = []
        reader = threading.Thread(target=lambda: other.extend(good))
        reader.start()
        found = sorted(int(n) for batch in bad for n in batch)
        reader.join()
        assert found == [n for n in range(24) if n != 10]
        assert [int(n) for rows, _ in other for n in rows] == list(range(24))
        assert [error.index for error in bad.errors] == [10]
        assert not good.errors


def test_each_program_has_its_turn(backend: Ray) -> None:
    order = Calls(_place, 400)
    options: dict[str, Any] = {"batch_size": 1, "num_workers": 1, "backend": backend}
    with (
        DataLoader(order, prefetch_factor=32, **options) as many,
        DataLoader(order, prefetch_factor=2, **options) as few,
    ):
        first, second = iter(many), iter(few)
        next(first), next(second)
        places = [int(next(second)[0]) for _ in range(20)]
    # a program with only two in flight waits for a few batches of the other one, not for all 32
    assert max(np.diff(places)) < 16


_count = 0


def _place(_: int) -> int:
    global _count
    threading.Event().wait(0.006)
    _count += 1
    return _count


PROGRAM = """
    import sys
    import numpy as np
    from reader import DataLoader, Ray
    from tests.cluster.test_ray_pool import Numbered

    backend = Ray(address=sys.argv[1], resources={"CPU": 0.5}, pool="ranks")
    loader = DataLoader(Numbered(100000, 0), batch_size=4, num_workers=2, backend=backend)
    for n, (rows, _) in enumerate(loader):
        assert rows[0] == 4 * n
        if n == 5:
            print("runs", flush=True)
            sys.stdin.readline()
"""


def _program(address: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_killed_program_is_released_and_the_others_lose_nothing(cluster: Any, backend: Ray) -> None:
    options: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "backend": backend}
    with (
        _program(cluster.address) as program,
        DataLoader(Numbered(400, 0), **options) as loader,
    ):
        batches = iter(loader)
        next(batches)
        assert program.stdout is not None
        assert program.stdout.readline() == "runs\n"
        wait_until(lambda: len(workers()) == 2)
        before = set(workers())
        program.kill()
        program.wait()
        for n, (rows, _) in enumerate(batches, start=1):
            assert rows.tolist() == list(range(4 * n, 4 * n + 4))
        assert set(workers()) == before


def test_workers_end_when_all_their_programs_were_killed(cluster: Any, backend: Ray) -> None:
    with _program(cluster.address) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "runs\n"
        assert workers()
        program.kill()
        program.wait()
    wait_until(lambda: not workers())


def test_pool_needs_a_name() -> None:
    with pytest.raises(ConfigTypeError, match="pool must be a name"):
        Ray(pool="")
