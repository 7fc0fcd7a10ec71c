"""Processes killed while they write to a cache: no wrong byte is ever read back."""

from __future__ import annotations

import functools
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, Dataset, cache
from reader.caching.entry_file import Entry, entries_begin
from reader.caching.free_space import LINE
from reader.caching.identity import Identity
from reader.caching.sample_cache import MISSING, SampleCache
from reader.caching.sample_form import decode
from tests.processes import Program

SAMPLES, LARGEST = 40, 200_000


def sample_of(index: int) -> Any:
    rng = np.random.default_rng(index)
    return rng.integers(0, 256, int(rng.integers(1, LARGEST)), dtype=np.uint8), {"index": index}


class Large(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        return sample_of(index)

    def __len__(self) -> int:
        return SAMPLES


EXPECTED = [sample_of(index) for index in range(SAMPLES)]


def is_right(index: int, sample: Any) -> bool:
    array, named = EXPECTED[index]
    return np.array_equal(sample[0], array) and sample[1] == named


def kill_at_random(works: list[Callable[[], None]], seconds: float) -> None:
    """Run each work in its own process, and kill all of them by SIGKILL after a time."""
    pids = []
    for work_of_one in works:
        pid = os.fork()
        if pid == 0:
            try:
                work_of_one()
            finally:
                os._exit(2)
        pids.append(pid)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), f"a process ended by {os.waitstatus_to_exitcode(status)}"


def work(cached: Any, seed: int) -> None:
    """In a process of its own: fetch samples at random until it is killed. Exits by 1 on damage."""
    order = random.Random(seed)
    while True:
        index = order.randrange(SAMPLES)
        if order.random() < 0.3:  # else all are kept before long
            for file in cached._cache._files:
                file._drop(index, file.table.word(index))
        if not is_right(index, cached[index]):
            os._exit(1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("where", ["memory", "disk", "both"])
@pytest.mark.parametrize(
    "kills", [20, pytest.param(1000, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])]
)
def test_writers_that_are_killed_at_any_instant_leave_no_wrong_byte(
    where: str, kills: int, tmp_path: Path
) -> None:
    options: dict[str, Any] = {}
    if where != "disk":
        options["memory"] = "3GB"
    order = random.Random(kills)
    for kill in range(kills):
        if kill % 100 == 0:  # rewritten entries take space until the cache ends
            options["version"] = f"{tmp_path} {kill}"
            if where != "memory":
                options.update(disk=tmp_path / f"cache{kill}", disk_limit="20GB")
            cached = cache(Large(), **options)
        kill_at_random(
            [functools.partial(work, cached, 2 * kill + worker) for worker in range(2)],
            order.uniform(0.001, 0.02),
        )
        if kill % 10 == 0:
            if where == "disk":  # the trainer is killed, too: a new one finds the entries
                cached = cache(Large(), **options)
            check(cached)
    check(cached)
    found = cached._cache.stats()
    assert found["damaged"] == 0
    assert found["hits"] > 10


def check(cached: Any) -> None:
    for index in range(SAMPLES):
        for file in cached._cache._files:
            entry = file.read(index, 0)
            if isinstance(entry, Entry):
                assert is_right(index, decode(entry.form, entry.content))
    # space claimed by a killed process is free again: each sample can be kept
    for index in range(SAMPLES):
        assert is_right(index, cached[index])
        assert cached._cache.holds(index)


FILES, TAGS = 12, 50


def content_of(number: int, tag: int) -> Any:
    return np.full(100 + 997 * (number * tag % 23), number + 256 * tag, np.uint16)


def change(kept: SampleCache, seed: int) -> None:
    """In its own process: change files until it is killed. Exits by 1 on damage."""
    order = random.Random(seed)
    while True:
        number, first = order.randrange(FILES), order.randrange(TAGS)
        for tag in (first, order.choice((first, order.randrange(TAGS)))):
            if order.random() < 0.5:
                sample, lease = kept.look(number, tag)
                array = sample if sample is MISSING else sample.copy()
                if lease is not None and not lease.is_current:
                    continue
            else:
                array = kept.get(number, tag)
            if array is MISSING:
                kept.keep(number, content_of(number, tag), tag)
            elif not np.array_equal(array, content_of(number, tag)):
                os._exit(1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("where", ["memory", "disk", "both"])
@pytest.mark.parametrize(
    "kills", [20, pytest.param(600, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])]
)
def test_released_and_reused_bytes_are_never_mixed(where: str, kills: int, tmp_path: Path) -> None:
    table = entries_begin(FILES)
    identity = Identity("files", "samples", FILES, "", "")
    memory = 0 if where == "disk" else 150_000  # less than the largest of all files take
    folder = None if where == "memory" else str(tmp_path)
    order = random.Random(kills)
    kept = SampleCache(identity, memory, folder, table + 150_000, None)
    for kill in range(kills):
        kill_at_random(
            [functools.partial(change, kept, 3 * kill + worker) for worker in range(3)],
            order.uniform(0.005, 0.03),
        )
        if folder is not None and kill % 5 == 4:
            del kept  # a process that opens the file alone finds all space taken by killed ones
            kept = SampleCache(identity, memory, folder, table + 150_000, None)
            disk = kept._files[-1]
            lines = [disk.table.lines(number) for number in range(FILES) if disk.holds(number)]
            assert disk.used == LINE * sum(lines)
            del disk
    assert kept.stats()["damaged"] == 0
    if folder is not None:
        for number in range(FILES):
            kept.get(number, 0)
            kept.keep(number, np.zeros(5000, np.uint8), 0)
        assert all(map(kept.holds, range(FILES)))


def test_a_worker_that_is_killed_while_it_fetches_changes_nothing(tmp_path: Path) -> None:
    class Killed(Large):
        def __getitem__(self, index: int) -> Any:
            if index == 13 and not (tmp_path / "once").exists():
                (tmp_path / "once").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return np.full(1000, index)

    cached = cache(Killed(), memory="10MB", version=str(tmp_path))
    with DataLoader(cached, batch_size=4, num_workers=2, start_method="fork") as loader:
        for _ in range(2):
            rows = np.concatenate(list(loader))
            assert rows[:, 0].tolist() == list(range(SAMPLES))
        assert loader.stats()["cache"]["hits"] >= SAMPLES


TRAINER = """
    import sys
    import numpy as np
    import reader
    from tests.fault.test_cache_kills import Large, is_right

    if __name__ == "__main__":
        cached = reader.cache(Large(), disk=sys.argv[1])
        loader = reader.DataLoader(cached, batch_size=None, num_workers=2, shuffle=True)
        print("begun", flush=True)
        while True:
            for array, named in loader:
                assert is_right(named["index"], (array, named))
            print("epoch", flush=True)
"""


@pytest.mark.parametrize(
    "kills", [4, pytest.param(60, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])]
)
def test_a_disk_cache_survives_its_trainers(
    program: Callable[..., Program], kills: int, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    order = random.Random(kills)
    for _ in range(kills):
        trainer = program(TRAINER, str(folder))
        assert trainer.line() == "begun"
        end = time.monotonic() + order.uniform(0.02, 0.3)
        while time.monotonic() < end:
            pass
        trainer.process.send_signal(signal.SIGKILL)
        status, _, err = trainer.finish()
        assert (status, err) == (-signal.SIGKILL, "")
    cached = cache(Large(), disk=folder)
    check(cached)
    assert cached._cache.stats()["damaged"] == 0
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "samples.cache"]
