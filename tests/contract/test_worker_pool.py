"""Several loaders on the workers of one pool: what each delivers, and what they share."""

from __future__ import annotations

import errno
import functools
import gc
import importlib
import os
import pickle
import random
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import (
    ArenaFull,
    ConfigError,
    ConfigTypeError,
    DataLoader,
    IterableDataset,
    ReaderError,
    StateError,
    WorkerDied,
    WorkerPool,
    get_worker_info,
    shard,
)
from reader.config import as_auto
from reader.errors import refusal
from tests.datasets import (
    At,
    Augmented,
    Large,
    PidRows,
    Raise,
    Rows,
    check_rows,
    digest_of,
    listen,
)
from tests.processes import Wire, open_pid, wait_gone, wait_until
from tests.streams import RangeStream

METHODS = pytest.mark.parametrize(
    "start_method",
    [
        "fork",
        pytest.param("spawn", marks=pytest.mark.nightly),
        pytest.param("forkserver", marks=pytest.mark.nightly),
    ],
)


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2) as pool:
        yield pool


def pids_of(batches: list[Any]) -> set[int]:
    return {int(pid) for batch in batches for pid in batch[2]}


@METHODS
def test_loaders_share_workers_that_start_once(start_method: Any) -> None:
    with WorkerPool(2, start_method=start_method) as pool:
        assert pool.pids == []
        train = DataLoader(PidRows(32), batch_size=4, pool=pool)
        test = DataLoader(PidRows(16), batch_size=4, pool=pool)
        found: list[Any] = []
        for _ in range(3):
            for n, batch in enumerate(train):
                check_rows(batch, range(4 * n, 4 * n + 4))
                found.append(batch)
                if n == 3:
                    rows = list(test)  # while the other is under way
                    for k, row in enumerate(rows):
                        check_rows(row, range(4 * k, 4 * k + 4))
                    found += rows
        assert pids_of(found) <= set(pool.pids)
        assert len(pool.pids) == 2
        assert train.num_workers == 2
        assert train.config.persistent_workers


def test_loaders_in_lockstep_and_one_that_stops_early(pool: WorkerPool) -> None:
    one, other = (DataLoader(Rows(n), batch_size=4, pool=pool) for n in (400, 40))
    for n, (left, right) in enumerate(zip(one, other)):
        check_rows(left, range(4 * n, 4 * n + 4))
        check_rows(right, range(4 * n, 4 * n + 4))
    assert n == 9
    for n, left in enumerate(one):  # a new epoch, after the abandoned one
        check_rows(left, range(4 * n, 4 * n + 4))


class Written(Rows):
    """Rows; whoever makes one writes a letter to a file; the first waits before that."""

    def __init__(self, letter: str, log: str, gate: str | None = None) -> None:
        super().__init__(16)
        self.letter = letter
        self.log = log
        self.gate = gate

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if index == 0 and self.gate is not None:
            listen(self.gate)
        with Path(self.log).open("a") as log:
            log.write(self.letter)
        return super().__getitem__(index)


def test_waiting_loaders_get_a_batch_each_in_turn(tmp_path: Path) -> None:
    log = tmp_path / "log"
    gate = Wire(tmp_path / "gate")
    with WorkerPool(1) as pool:
        datasets = Written("a", str(log), gate.path), Written("b", str(log))
        loaders = [DataLoader(each, pool=pool, prefetch_factor=8) for each in datasets]
        batches = [iter(loader) for loader in loaders]  # eight tasks each wait by now
        gate.say()
        for each in batches:
            assert len(list(each)) == 16
    gate.close()
    # the worker may have begun with "a" before it knew the other loader
    assert "ab" * 8 in log.read_text()[:17]


def test_two_iterators_of_one_loader(pool: WorkerPool) -> None:
    loader = DataLoader(PidRows(32), batch_size=4, pool=pool)
    one, other = iter(loader), iter(loader)
    for n in range(8):
        left, right = next(one), next(other)
        check_rows(left, range(4 * n, 4 * n + 4))
        check_rows(right, range(4 * n, 4 * n + 4))
        assert pids_of([left, right]) <= set(pool.pids)


@METHODS
def test_batches_are_those_of_workers_of_its_own(start_method: Any) -> None:
    options: dict[str, Any] = {"batch_size": 4, "seed": 3, "shuffle": True}
    own = [digest_of(DataLoader(Augmented(), num_workers=2, **options)) for _ in range(1)]
    with WorkerPool(3, start_method=start_method) as pool:
        loaders = [DataLoader(Augmented(), pool=pool, **options) for _ in range(2)]
        both = [list(pair) for pair in zip(*loaders)]
    assert [digest_of([pair[k] for pair in both]) for k in range(2)] == 2 * own


class Draws:
    """Numbers of the worker's global random state, which `worker_init_fn` seeds."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __len__(self) -> int:
        return 12

    def __getitem__(self, _: int) -> tuple[float, float]:
        return random.random(), float(np.random.random())

    def init(self, worker: int) -> None:
        random.seed(self.seed + worker)
        np.random.seed(self.seed + worker)


def drawn(loader: Any) -> list[list[float]]:
    return [[*map(float, batch[0]), *map(float, batch[1])] for batch in loader]


def test_no_loader_draws_from_the_random_state_of_another() -> None:
    datasets = [Draws(1), Draws(2)]
    options: dict[str, Any] = {"batch_size": 3, "persistent_workers": True}
    own = [
        [drawn(loader) for _ in range(2)]
        for each in datasets
        for loader in [DataLoader(each, num_workers=1, worker_init_fn=each.init, **options)]
    ]
    with WorkerPool(1) as pool:
        loaders = [
            DataLoader(each, worker_init_fn=each.init, batch_size=3, pool=pool) for each in datasets
        ]
        epochs = [list(zip(*loaders)) for _ in range(2)]
    found = [[drawn(step[k] for step in epoch) for epoch in epochs] for k in range(2)]
    assert found == own


class Told:
    """The worker info that a dataset sees."""

    def __init__(self, name: str, count: int = 8) -> None:
        self.name = name
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, _: int) -> list[Any]:
        info = get_worker_info()
        assert info is not None
        assert info.dataset is self
        return [self.name, info.num_workers, info.id]


def test_worker_info_is_that_of_the_loader_whose_batch_is_made(pool: WorkerPool) -> None:
    loaders = [DataLoader(Told(name), batch_size=2, pool=pool) for name in "ab"]
    for left, right in zip(*loaders):
        assert left[0] == ["a", "a"]
        assert right[0] == ["b", "b"]
        assert set(left[1].tolist()) == {2}


class Numbers(IterableDataset[int]):
    def __init__(self, start: int) -> None:
        self.start = start

    def __iter__(self) -> Iterator[int]:
        yield from shard(range(self.start, self.start + 20))


def test_streams_share_workers_too_and_resume(pool: WorkerPool) -> None:
    def loaders() -> list[Any]:
        return [DataLoader(Numbers(n), batch_size=5, pool=pool) for n in (0, 100)]

    one, other = loaders()
    whole = list(zip(one, other))
    assert sorted(n for left, _ in whole for n in left.tolist()) == list(range(20))
    assert sorted(n for _, right in whole for n in right.tolist()) == list(range(100, 120))
    one, other = loaders()
    batches, more = iter(one), iter(other)
    for _ in range(2):
        next(batches), next(more)
    states = one.state_dict(), other.state_dict()
    again, behind = loaders()
    again.load_state_dict(states[0])
    behind.load_state_dict(states[1])
    rest = list(zip(again, behind))
    assert [[a.tolist(), b.tolist()] for a, b in rest] == [
        [a.tolist(), b.tolist()] for a, b in whole[2:]
    ]


# -- loaders that are made later -------------------------------------------------------------------


def test_loader_that_is_made_later_is_sent_to_the_workers(pool: WorkerPool) -> None:
    first = DataLoader(PidRows(64), batch_size=4, pool=pool)
    batches = iter(first)
    next(batches)
    before = pool.pids
    late = DataLoader(PidRows(8), batch_size=4, pool=pool)
    assert pids_of(list(late)) <= set(before)
    assert len(list(batches)) == 15
    assert pool.pids == before


class Locked(PidRows):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.lock = threading.Lock()


def test_late_loader_that_cannot_be_pickled_waits_for_the_end_of_epochs(pool: WorkerPool) -> None:
    first = DataLoader(PidRows(64), batch_size=4, pool=pool)
    batches = iter(first)
    next(batches)
    before = pool.pids
    late = DataLoader(Locked(8), batch_size=4, pool=pool)
    with pytest.raises(ConfigError, match="make all loaders of a pool before the first") as refused:
        iter(late)
    assert "start_method='fork'" not in str(refused.value)
    assert len(list(batches)) == 15
    found = list(late)  # no loader is in an epoch: workers start anew, and inherit it
    assert pids_of(found) <= set(pool.pids)
    assert not set(before) & set(pool.pids)
    assert pids_of(list(first)) <= set(pool.pids)


def test_loaders_that_cannot_be_pickled_are_inherited_at_the_start(pool: WorkerPool) -> None:
    loaders = [DataLoader(Locked(8), batch_size=4, pool=pool) for _ in range(2)]
    assert all(pids_of(list(loader)) <= set(pool.pids) for loader in loaders)


class Tracked(Rows):
    """Reports its end, in a worker."""

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(8)
        self.path = path
        self.pid = pid

    def __del__(self) -> None:
        if os.getpid() != self.pid:
            Path(f"{self.path}-{os.getpid()}").touch()


def test_workers_release_the_dataset_of_a_freed_loader(pool: WorkerPool, tmp_path: Path) -> None:
    stays = DataLoader(Rows(8), batch_size=4, pool=pool)
    list(stays)
    dataset = Tracked(str(tmp_path / "gone"), os.getpid())
    late = DataLoader(dataset, batch_size=4, pool=pool)
    assert len(list(late)) == 2
    gone = weakref.ref(late)
    del late
    gc.collect()
    assert gone() is None
    list(stays)

    def have_ended() -> bool:
        list(DataLoader(Rows(16), batch_size=4, pool=pool))  # each worker has a task
        return len(list(tmp_path.iterdir())) == 2

    wait_until(have_ended)


# -- errors ----------------------------------------------------------------------------------------


def test_error_of_one_loader_reaches_it_alone(pool: WorkerPool) -> None:
    dataset = At(5, Raise(functools.partial(ValueError, "bad")), count=16)
    bad = DataLoader(dataset, batch_size=4, pool=pool)
    good = DataLoader(Rows(16), batch_size=4, pool=pool)
    batches, others = iter(bad), iter(good)
    check_rows(next(batches), range(4))
    check_rows(next(others), range(4))
    with pytest.raises(ValueError, match="bad"):
        next(batches)
    for n in (1, 2, 3):
        check_rows(next(others), range(4 * n, 4 * n + 4))
    for n in (2, 3):
        check_rows(next(batches), range(4 * n, 4 * n + 4))


def no_start(_: int) -> None:
    raise OSError("no licence")


def test_loader_whose_workers_cannot_start_leaves_the_others_alone(pool: WorkerPool) -> None:
    good = DataLoader(PidRows(16), batch_size=4, pool=pool)
    bad = DataLoader(Rows(16), batch_size=4, pool=pool, worker_init_fn=no_start)
    batches = iter(good)
    check_rows(next(batches), range(4))
    before = pool.pids
    for _ in range(2):
        with pytest.raises(OSError, match="no licence"):
            list(bad)
    assert len(list(batches)) == 3
    assert pool.pids == before


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: WorkerPool(0), ConfigError, "num_workers"),
        (lambda: WorkerPool("4"), ConfigTypeError, "num_workers"),  # type: ignore[arg-type]
        (lambda: WorkerPool(2, max_bytes=0), ConfigError, "max_bytes"),
        (lambda: WorkerPool(2, start_method="x"), ConfigError, "start_method"),  # type: ignore[arg-type]
        (lambda: DataLoader(Rows(4), pool=2), ConfigTypeError, r"reader\.WorkerPool\(4\)"),  # type: ignore[arg-type]
        (lambda: DataLoader(Rows(4), pool=WorkerPool), ConfigTypeError, "WorkerPool"),  # type: ignore[arg-type]
        (
            lambda: DataLoader(Rows(4), pool=WorkerPool(2), num_workers=3),
            ConfigError,
            r"num_workers=3 .* contradicts pool=WorkerPool\(2\)",
        ),
        (
            lambda: DataLoader(Rows(4), pool=WorkerPool(2), num_workers="auto"),
            ConfigError,
            'num_workers="auto" contradicts',
        ),
        (
            lambda: DataLoader(Rows(4), pool=WorkerPool(2), worker_type="thread"),
            ConfigError,
            "worker_type='thread'",
        ),
        (
            lambda: DataLoader(Rows(4), pool=WorkerPool(2), start_method="spawn"),
            ConfigError,
            "Pass start_method to WorkerPool",
        ),
    ],
    ids=range(10),
)
def test_invalid_pools_are_refused_when_made(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


# -- memory ----------------------------------------------------------------------------------------


def test_batches_of_all_loaders_stay_within_one_budget() -> None:
    limit, size = 64 << 20, 4 << 20
    with WorkerPool(2, max_bytes=limit) as pool:
        loaders = [
            DataLoader(Large(40, size), batch_size=1, pool=pool, prefetch_factor=16)
            for _ in range(2)
        ]
        batches = [iter(loader) for loader in loaders]
        counts = [0, 0]
        for _ in range(40):
            for n in (0, 1):
                assert next(batches[n]).shape == (1, size)
                counts[n] += 1
                owned = sum(loader.stats()["arena"]["owned_bytes"] for loader in loaders)
                assert owned <= limit
    assert counts == [40, 40]


def test_second_loader_finds_memory() -> None:
    size = 1 << 20
    with WorkerPool(2, max_bytes=20 * size) as pool:
        greedy = DataLoader(Large(200, size), batch_size=1, pool=pool, prefetch_factor=64)
        other = DataLoader(Large(4, size), batch_size=1, pool=pool)
        list(other)
        batches = iter(greedy)
        next(batches)
        assert len(list(other)) == 4
        assert sum(1 for _ in batches) == 199


# -- the end ---------------------------------------------------------------------------------------


def test_close_ends_the_workers_and_iterating_starts_others(pool: WorkerPool) -> None:
    loaders = [DataLoader(PidRows(32), batch_size=4, pool=pool) for _ in range(2)]
    batches = [iter(loader) for loader in loaders]
    kept = [next(each) for each in batches]
    pidfds = [open_pid(pid) for pid in pool.pids]
    pool.close()
    wait_gone(pidfds)
    assert pool.pids == []
    for each in batches:
        with pytest.raises(ReaderError, match="closed"):
            list(each)
    for batch in kept:
        check_rows(batch, range(4))
    assert pids_of(list(loaders[0])) <= set(pool.pids)


def test_closing_one_loader_leaves_the_workers_to_the_others(pool: WorkerPool) -> None:
    one, other = (DataLoader(PidRows(32), batch_size=4, pool=pool) for _ in range(2))
    batches, rest = iter(one), iter(other)
    next(batches), next(rest)
    before = pool.pids
    one.close()
    assert len(list(rest)) == 7
    assert pool.pids == before
    assert len(list(one)) == 8
    assert pool.pids == before


def test_workers_end_with_the_pool_and_its_loaders() -> None:
    pool = WorkerPool(2)
    loader = DataLoader(Rows(16), batch_size=4, pool=pool)
    pidfds = [open_pid(pid) for pid in (len(list(loader)) and pool.pids)]
    del pool
    assert len(list(loader)) == 4  # which keeps it
    del loader
    gc.collect()
    wait_gone(pidfds)


def test_pool_that_is_copied_has_workers_of_its_own(pool: WorkerPool) -> None:
    list(DataLoader(Rows(8), batch_size=4, pool=pool))
    copied = pickle.loads(pickle.dumps(pool))
    assert (copied.num_workers, copied.pids) == (2, [])
    assert repr(copied) == "WorkerPool(2)"


def test_profile_and_workers_of_each_loader_are_its_own(pool: WorkerPool) -> None:
    loaders = [DataLoader(Rows(64), batch_size=4, pool=pool) for _ in range(2)]
    for _ in zip(*loaders):
        pass
    for loader in loaders:
        assert [status.pid for status in loader.workers()] == pool.pids
        assert loader.stats()["batches"] == 16


@pytest.mark.parametrize("face", ["reader", "reader.compat.torch", "reader.compat.gluon"])
def test_auto_that_contradicts_a_pool_is_shown_as_it_was_passed(face: str) -> None:
    make = importlib.import_module(face).DataLoader
    number = make(Rows(4), 2, num_workers="auto").num_workers if face.endswith("torch") else "auto"
    for asked in ("auto", as_auto("num_workers", number)):
        with pytest.raises(ConfigError, match='num_workers="auto" contradicts pool=WorkerPool'):
            make(Rows(4), 2, pool=WorkerPool(2), num_workers=asked)


def test_advice_to_change_the_number_of_workers_names_the_pool_too() -> None:
    with WorkerPool(2, max_bytes=1 << 20) as pool:
        loader = DataLoader([np.zeros(1 << 20, np.uint8)] * 2, pool=pool)
        with pytest.raises(ArenaFull, match=r"or num_workers \(of a pool: WorkerPool\(n\)\), keep"):
            list(loader)
    killed = WorkerDied(pid=1, exitcode=-9, worker_id=0, batch=0)
    assert "a lower num_workers (of a pool: WorkerPool(n))." in str(killed)
    for code in (-11, 3):
        crashed = WorkerDied(pid=1, exitcode=code, worker_id=0, batch=0)
        assert "with num_workers=0, and without pool=, " in str(crashed)
    for number in (errno.EAGAIN, errno.ENOMEM):
        told = str(refusal("worker process 1", "cannot be started", OSError(number, "no")))
        assert told.endswith("or lower num_workers (of a pool: WorkerPool(n))")


def test_a_state_of_other_workers_says_which_pool_resumes_it() -> None:
    with WorkerPool(3) as pool, WorkerPool(2) as other:
        loader = DataLoader(RangeStream(12), batch_size=2, pool=pool)
        next(iter(loader))
        resumed = DataLoader(RangeStream(12), batch_size=2, pool=other)
        said = r"Pass num_workers=3 \(of a pool: WorkerPool\(3\)\)\."
        with pytest.raises(StateError, match=said):
            resumed.load_state_dict(loader.state_dict())
