"""The space of a cache: how it is released, taken by promotion, and counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, cache
from reader.caching import disk_tier
from reader.caching.entry_file import entries_begin
from reader.caching.identity import Identity
from reader.caching.sample_cache import MISSING, SampleCache
from tests.datasets import Indices

ROOT = Path(__file__).parents[2]
COUNT = 8
IDENTITY = Identity("files", "samples", COUNT, "", "")


def sized(nbytes: int, value: int = 0) -> Any:
    return np.full(nbytes, value, np.uint8)


def opened(disk: Path | None, memory: int = 0, limit: int = 100_000) -> SampleCache:
    folder = None if disk is None else str(disk)
    return SampleCache(IDENTITY, memory, folder, limit + entries_begin(COUNT), None)


def epoch(kept: SampleCache, tag: int, nbytes: int = 10_000) -> int:
    """Ask for each sample, and keep it where it is missing; returns how many were found."""
    hits = 0
    for number in range(COUNT):
        found = kept.get(number, tag)
        if found is MISSING:
            kept.keep(number, sized(nbytes + number * 64, tag), tag)
        else:
            assert np.array_equal(found, sized(nbytes + number * 64, tag))
            hits += 1
    return hits


@pytest.mark.parametrize("tier", ["memory", "disk", "both"])
def test_the_cache_stays_useful_when_files_change_often(tier: str, tmp_path: Path) -> None:
    memory = 0 if tier == "disk" else 100_000
    kept = opened(None if tier == "memory" else tmp_path, memory)
    for change in range(20):
        assert epoch(kept, change) == 0
        assert epoch(kept, change) == COUNT
        if tier == "disk":  # each in a run of its own
            del kept
            kept = opened(tmp_path)
    found = kept.stats()
    assert found["refused"] == 0
    assert found["bytes"] <= memory
    assert found["disk_bytes"] <= 100_000


@pytest.mark.parametrize("tier", ["memory", "disk"])
def test_files_that_grow_take_the_joined_space_of_others(tier: str, tmp_path: Path) -> None:
    kept = opened(None, 100_000) if tier == "memory" else opened(tmp_path)
    for change in range(8):  # no file fits into its earlier space
        for _ in range(2):
            epoch(kept, change, 2000 + 1000 * change)
        assert epoch(kept, change, 2000 + 1000 * change) == COUNT


def test_entries_of_other_tags_are_dropped_and_counted_once(tmp_path: Path) -> None:
    kept = opened(tmp_path, 100_000)
    epoch(kept, 1)
    epoch(kept, 2)
    assert kept.stats()["evictions"] == COUNT
    small = opened(tmp_path / "small", 1000, 1000)
    small.keep(0, sized(5000))
    assert small.stats()["refused"] == 1
    other = opened(tmp_path / "other", 1000)
    other.keep(0, sized(5000))  # the disk has space
    assert other.stats()["refused"] == 0
    assert other.get(0) is not MISSING


def test_all_entries_of_a_file_are_dropped_with_it() -> None:
    kept = opened(None, 100_000)
    for number in range(4):
        kept.keep(number, sized(100), tag=1)
    kept.keep(4, sized(100), tag=1)
    assert kept.look(2, 2, range(4))[0] is MISSING
    assert [kept.holds(number) for number in range(5)] == [False] * 4 + [True]
    assert kept.stats()["evictions"] == 1


def test_a_sample_that_is_too_large_does_not_end_promotion(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.keep(0, sized(50_000))
    for number in range(1, COUNT):
        first.keep(number, sized(1000))
    del first
    kept = opened(tmp_path, 10_000)
    for number in range(COUNT):
        kept.get(number)
    assert [kept._files[0].holds(number) for number in range(COUNT)] == [False] + [True] * 7
    assert kept.stats()["refused"] == 0


def test_full_memory_is_not_tried_for_each_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tmp_path)
    epoch(first, 0)
    del first
    kept = opened(tmp_path, 20_000)
    epoch(kept, 0)
    tries: list[int] = []
    monkeypatch.setattr(kept._files[0], "keep", lambda *_: tries.append(1))
    assert epoch(kept, 0) == COUNT
    assert not tries


def test_a_lease_says_whether_it_belongs_to_its_entry() -> None:
    kept = opened(None, 100_000)
    kept.keep(0, sized(1000, 1), tag=1)
    array, lease = kept.look(0, 1)
    assert lease is not None
    assert lease.is_current
    assert not array.flags.writeable
    kept.get(0, 2)
    kept.keep(0, sized(1000, 2), tag=2)  # in the space of the other one
    assert array[0] == 2
    assert not lease.is_current


FULL = """
import os, resource, sys, warnings
import numpy as np
from reader.caching.entry_file import entries_begin
from reader.caching.identity import Identity
from reader.caching.sample_cache import SampleCache

warnings.simplefilter("ignore")
COUNT, SIZE = 200, 10_000
size = entries_begin(COUNT)
identity = Identity("files", "samples", COUNT, "", "")
kept = SampleCache(identity, 0, sys.argv[1], size + COUNT * (SIZE + 256), None)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
children = []
for child in range(3):
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50 * SIZE, most))  # the disk is full
        for _ in range(3):
            for number in range(child, COUNT, 3):
                kept.keep(number, np.zeros(SIZE, np.uint8))
        os._exit(0)
    children.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 3
file = os.path.join(sys.argv[1], "samples.cache")
found = kept.stats()["disk_bytes"]
count = sum(map(kept.holds, range(COUNT)))
assert 40 < count < 51, count
assert found <= os.stat(file).st_blocks * 512, found
for number in range(COUNT):
    kept.keep(number, np.zeros(SIZE, np.uint8))
assert all(map(kept.holds, range(COUNT)))
"""


def test_failed_writes_take_no_space_whoever_failed_first(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=True, cwd=ROOT)


def test_a_table_without_space_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(disk_tier.os, "posix_fallocate", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        cache(Indices(3), disk=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
