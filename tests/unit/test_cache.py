"""`reader.cache`: samples made once, in memory, on disk, or in both; and what it refuses."""

from __future__ import annotations

import copy
import enum
import errno
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reader
from reader import (
    ConcatDataset,
    ConfigError,
    ConfigTypeError,
    DataLoader,
    Dataset,
    DatasetError,
    ReaderError,
    Subset,
    cache,
)
from reader.caching import cached_dataset, entry_file, free_space, sample_cache
from reader.caching.digest import digest_of
from reader.caching.sample_form import UnknownForm, decode, encode, is_alike
from reader.sharing.memory_file import padded


class Counted(Dataset[Any]):
    """Samples of several kinds; `made` counts how often each was made."""

    def __init__(self, count: int = 8, made: Counter[int] | None = None) -> None:
        self.count = count
        self.made: Counter[int] = Counter() if made is None else made

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        self.made[index] += 1
        return np.full((2, 3), index, np.float32), {"name": "x" * index, "box": [index, 0.5]}

    def __len__(self) -> int:
        return self.count

    def __getstate__(self) -> Any:
        return {"count": self.count, "made": Counter()}


def equal(one: Any, other: Any) -> bool:
    return np.array_equal(one[0], other[0]) and one[1:] == other[1:]


@pytest.fixture(params=["memory", "disk", "both"])
def where(request: Any, tmp_path: Path) -> dict[str, Any]:
    disk = tmp_path / "cache"
    given = {"memory": {"memory": "10MB"}, "disk": {"disk": disk}}
    given["both"] = {**given["memory"], **given["disk"]}
    return given[request.param]


def test_each_sample_is_made_once(where: dict[str, Any]) -> None:
    dataset = Counted()
    cached = cache(dataset, **where)
    assert len(cached) == 8
    for _ in range(3):
        for index in range(8):
            assert equal(cached[index], Counted()[index])
    assert set(dataset.made.values()) == {1}
    found = cached._cache.stats()
    assert (found["hits"], found["misses"], found["evictions"]) == (16, 8, 0)
    assert (found["bytes"] > 0) == ("memory" in where)
    assert (found["disk_bytes"] > 0) == ("disk" in where)


def test_samples_are_the_callers_own(where: dict[str, Any]) -> None:
    cached = cache(Counted(), **where)
    for _ in range(3):
        sample = cached[3]
        assert equal(sample, Counted()[3])
        sample[0][...] = -1
        sample[1]["box"].append(2)


def test_a_cache_on_disk_is_used_by_the_next_run(tmp_path: Path) -> None:
    for run in range(3):
        dataset = Counted()
        cached = cache(dataset, disk=tmp_path, memory="1MB" if run == 2 else None)
        assert [equal(cached[index], Counted()[index]) for index in range(8)] == [True] * 8
        assert sum(dataset.made.values()) == (8 if run == 0 else 0)
        assert cached._cache.stats()["hits"] == (0 if run == 0 else 8)
    assert cached._cache.stats()["bytes"] > 0  # entries found on disk are in memory now


def test_indices_outside_of_the_cache_go_to_the_dataset() -> None:
    class Odd(Counted):
        def __getitem__(self, index: Any) -> Any:
            return ("key", index)

    cached = cache(Odd(), memory="1MB")
    assert cached["a"] == ("key", "a")
    assert cached[-1] == ("key", -1)
    assert cached[8] == ("key", 8)
    assert cached[np.int64(2)] == ("key", 2)
    assert cached._cache.stats()["misses"] == 1


def test_many_samples_at_once() -> None:
    class Many(Counted):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            calls.append(list(indices))
            return [self[index] for index in indices]

    calls: list[list[int]] = []
    cached = cache(Many(), memory="1MB")
    assert not hasattr(cache(Counted(), memory="1MB"), "__getitems__")
    first = cached.__getitems__([1, 3])
    again = cached.__getitems__([3, 2, 1, 2])
    assert calls == [[1, 3], [2, 2]]
    assert equal(first[0], again[2])
    assert equal(first[1], again[0])
    assert equal(again[1], again[3])


def test_a_sample_is_written_into_the_row_of_the_loader() -> None:
    cached = cache(Counted(), memory="1MB")
    row = np.empty((2, 3), np.float32)
    out = (row, {"name": None, "box": [None, None]})
    for _ in range(2):
        sample = cached.__getitem__(5, out=out)
        assert equal(sample, Counted()[5])
    assert sample[0] is row
    other = np.empty((2, 3), np.float64)
    assert cached.__getitem__(5, out=(other, out[1]))[0] is not other


def test_limits_hold_and_the_oldest_entries_stay(tmp_path: Path) -> None:
    entry = cache(Counted(), memory="1MB")
    entry[7]
    one = entry._cache.stats()["bytes"]
    on_disk = one * 3 + entry_file.entries_begin(8)
    for where in ({"memory": one * 3}, {"disk": tmp_path, "disk_limit": on_disk}):
        dataset = Counted()
        cached = cache(dataset, **where)
        for _ in range(2):
            for index in range(8):
                assert equal(cached[index], Counted()[index])
        found = cached._cache.stats()
        assert found["bytes"] + found["disk_bytes"] <= one * 3
        assert [dataset.made[index] for index in range(8)] == [1] * 3 + [2] * 5
        assert found["refused"] == 10


def test_memory_that_runs_short_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_space, "available_bytes", lambda: 1 << 20)
    dataset = Counted()
    cached = cache(dataset, memory="1GB")
    cached[1]
    cached[1]
    assert dataset.made[1] == 2
    assert cached._cache.stats()["refused"] == 2


def test_a_full_disk_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    dataset = Counted()
    cached = cache(dataset, disk=tmp_path)
    monkeypatch.setattr(entry_file.os, "pwritev", full)
    with pytest.warns(UserWarning, match=r"cannot be written: .*No space left on device") as told:
        samples = [cached[1], cached[2]]
    assert len(told) == 1
    assert equal(samples[0], Counted()[1])
    assert equal(samples[1], Counted()[2])
    monkeypatch.undo()
    cached[1]
    assert dataset.made[1] == 2
    cached[1]
    assert dataset.made[1] == 2  # there is space again


def test_damage_on_the_disk_is_found_and_the_sample_made_again(tmp_path: Path) -> None:
    dataset = Counted()
    cached = cache(dataset, disk=tmp_path)
    for index in range(8):
        cached[index]
    file = tmp_path / "samples.cache"
    content = bytearray(file.read_bytes())
    begin = entry_file.entries_begin(8)
    rng = np.random.default_rng(0)
    for place in rng.integers(begin, begin + cached._cache.stats()["disk_bytes"], 200):
        content[place] ^= 1 << int(rng.integers(8))
    with file.open("r+b") as opened:
        opened.write(content)
    for _ in range(2):
        assert [equal(cached[index], Counted()[index]) for index in range(8)] == [True] * 8
    assert cached._cache.stats()["damaged"] > 2
    with file.open("r+b") as opened:
        opened.truncate(begin + 100)
    assert [equal(cached[index], Counted()[index]) for index in range(8)] == [True] * 8


def test_every_bit_counts(tmp_path: Path) -> None:
    cached = cache(Counted(1), disk=tmp_path)
    cached[0]
    file = tmp_path / "samples.cache"
    whole = file.read_bytes()
    table = whole[: entry_file.entries_begin(1)]
    rng = np.random.default_rng(1)
    for place in rng.integers(len(table), len(table) + cached._cache.stats()["disk_bytes"], 300):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        with file.open("r+b") as opened:
            opened.write(changed)
        assert equal(cached[0], Counted()[0])
        with file.open("r+b") as opened:
            opened.write(whole)


def test_another_version_begins_anew(tmp_path: Path) -> None:
    cache(Counted(), disk=tmp_path, version="1")[0]
    again = cache(Counted(), disk=tmp_path, version="1")
    assert again._cache.holds(0)
    with pytest.raises(ConfigError, match=r"version '1'.* which is in use, and not of"):
        cache(Counted(), disk=tmp_path, version="2")
    del again
    with pytest.warns(UserWarning, match=r"was of 8 samples, version '1'.* begun anew for 8"):
        newer = cache(Counted(), disk=tmp_path, version="2")
    assert not newer._cache.holds(0)
    del newer
    with pytest.warns(UserWarning, match="begun anew for 9 samples, version '2'"):
        cache(Counted(9), disk=tmp_path, version="2")


def test_attributes_of_the_dataset_distinguish_it() -> None:
    class Scaled(Dataset[int]):
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def __getitem__(self, index: int) -> int:
            return index * self.factor

        def __len__(self) -> int:
            return 4

    two, three = cache(Scaled(2), memory="1MB"), cache(Scaled(3), memory="1MB")
    assert [two[3], three[3], two[3], three[3]] == [6, 9, 6, 9]


def test_the_code_of_the_class_distinguishes_it() -> None:
    def made(body: str) -> Any:
        names: dict[str, Any] = {"__name__": __name__}
        exec(body, names)
        return names["Some"]()

    text = "class Some:\n def __len__(self): return 3\n def __getitem__(self, i): return i * {}\n"
    digests = [digest_of(made(text.format(n))) for n in (2, 2, 3)]
    assert digests[0] == digests[1] != digests[2]
    assert None not in digests


def test_a_dataset_uses_its_memory_again() -> None:
    dataset = Counted()
    one, other = cache(dataset, memory="1MB"), cache(dataset, memory="1MB")
    one[4]
    assert equal(other[4], Counted()[4])
    assert dataset.made[4] == 1
    cache(dataset, memory="2MB")[4]  # another limit: its own memory
    assert dataset.made[4] == 2


def test_equal_datasets_share_memory_if_their_versions_are_equal() -> None:
    first, second = Counted(), Counted()
    cache(first, memory="1MB")[4]
    cache(second, memory="1MB")[4]
    assert (first.made[4], second.made[4]) == (1, 1)
    cache(first, memory="1MB", version="same")
    one = cache(first, memory="1MB", version="same")
    one[4]
    cache(second, memory="1MB", version="same")[4]
    assert (first.made[4], second.made[4]) == (2, 1)


class Held(Dataset[Any]):
    scale = 1

    def __init__(self, values: Any) -> None:
        self.values = values

    def __getitem__(self, index: int) -> Any:
        return self.values[index] * self.scale

    def __len__(self) -> int:
        return len(self.values)


def test_more_than_a_version_distinguishes_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    train = cache(Held([1, 2]), memory="1MB", version="v1")
    other = cache(Held([10, 20]), memory="1MB", version="v1")
    assert [train[1], other[1]] == [2, 20]
    monkeypatch.setattr(Held, "scale", 50)
    scaled = cache(Held([1, 2]), memory="1MB", version="v1")
    assert scaled[1] == 100


def test_closures_defaults_and_wrapped_classes_distinguish() -> None:
    def made(number: int) -> Any:
        class Local(Dataset[int]):
            def __getitem__(self, index: int) -> int:
                return index * number

            def __len__(self) -> int:
                return 2

        return Local()

    def by_default(number: int) -> Any:
        class Local(Dataset[int]):
            def __getitem__(self, index: int, factor: int = number) -> int:
                return index * factor

            def __len__(self) -> int:
                return 2

        return Local()

    for make in (made, by_default):
        assert digest_of(make(2)) == digest_of(make(2)) != digest_of(make(3))
        assert digest_of(make(2)) is not None


DIGEST = """
import sys
sys.path.insert(0, {root!r})
import numpy as np
from tests.unit.test_cache import Held
from reader.caching.digest import digest_of
import reader

class Tagged(Held):
    def __getitem__(self, index):
        return index in {{"a", "b", "c"}}

values = [{{"a", "b", "c"}}, frozenset("xyz"), np.arange(5), reader.share(["p", "q"])]
try:
    import torch
    values.append(torch.arange(3))
except ImportError:
    pass
print(digest_of(Tagged(values)))
"""


@pytest.mark.peer
def test_a_digest_is_the_same_in_each_run() -> None:
    root = str(Path(__file__).parents[2])
    found = set()
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", DIGEST.format(root=root)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        found.add(run.stdout.strip())
    assert len(found) == 1
    assert found != {"None"}


def test_a_mapped_file_is_identified_by_its_name_and_time(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(1000))
    first = digest_of(Held(np.memmap(path)))
    assert first == digest_of(Held(np.memmap(path)))
    os.utime(path, (1, 1))
    assert first != digest_of(Held(np.memmap(path)))


def test_a_damaged_word_or_cut_off_file_costs_one_sample(tmp_path: Path) -> None:
    cached = cache(Counted(), disk=tmp_path)
    cached[2]
    file = tmp_path / "samples.cache"
    place = entry_file.HEAD + (entry_file.SUMS + 2 * 2) * 8
    for word in (2**57, 2**62, 2**63 + 2**31, 2**63 + 2**40, 2**64 - 1):
        with file.open("r+b") as opened:
            opened.seek(place)
            opened.write(word.to_bytes(8, "little"))
        assert equal(cached[2], Counted()[2])
        assert equal(cached[2], Counted()[2])
    os.truncate(file, 0)
    for _ in range(2):
        assert equal(cached[2], Counted()[2])
    assert cached._cache.stats()["disk_bytes"] == 0


def test_a_disk_that_was_full_is_used_again_when_it_has_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = cache(Counted(), disk=tmp_path, disk_limit="9kB")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(entry_file.os, "pwritev", full)
    with pytest.warns(UserWarning, match="cannot be written"):
        samples = [cached[1] for _ in range(100)]
    assert len(samples) == 100
    monkeypatch.undo()
    assert cached._cache.stats()["disk_bytes"] == 0
    cached[1]
    assert cached._cache.holds(1)


def test_all_processes_take_turns_at_checking() -> None:
    class Random(Counted):
        def __getitem__(self, index: int) -> Any:
            return float(np.random.random())

    cached = cache(Random(40), memory="1MB", check=0.05)
    with pytest.raises(DatasetError, match="was kept by a cache"):
        for _ in range(4):
            with DataLoader(cached, batch_size=5, num_workers=8) as loader:
                list(loader)


def test_a_dataset_that_cannot_be_pickled_has_its_own_memory(tmp_path: Path) -> None:
    class Locked(Counted):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

        def __getstate__(self) -> Any:
            raise TypeError("not this one")

    first, second = Locked(), Locked()
    cache(first, memory="1MB")[1]
    cache(second, memory="1MB")[1]
    assert first.made[1] == second.made[1] == 1
    with pytest.raises(ConfigError, match=r"Locked cannot be pickled.* pass version="):
        cache(Locked(), disk=tmp_path)
    assert equal(cache(Locked(), disk=tmp_path, version="a")[1], Counted()[1])
    for _ in range(2):
        third = Locked()
        cache(third, memory="1MB", version="a")[1]
        assert third.made[1] == 1


def test_random_numbers_are_refused_while_a_sample_is_kept() -> None:
    class Noisy(Counted):
        def __getitem__(self, index: int) -> Any:
            return reader.sample_rng(index).normal(size=2)

    loader = DataLoader(cache(Noisy(), memory="1MB"), batch_size=2)
    with pytest.raises(ReaderError, match=r"sample_rng\(\) gives no numbers within a cache"):
        next(iter(loader))
    after = cache(Counted(), memory="1MB").map(noise, with_index=True)
    first = next(iter(DataLoader(after, batch_size=8, seed=1)))
    assert np.array_equal(first[:4], next(iter(DataLoader(after, batch_size=4, seed=1))))


def noise(sample: Any, index: int) -> Any:
    return sample[0] + reader.sample_rng(index).normal(size=(2, 3))


def test_check_finds_samples_that_change() -> None:
    class Random(Counted):
        def __getitem__(self, index: int) -> Any:
            self.made[index] += 1
            return self.made[index] if self.made[index] > 3 else 1

    cached = cache(Random(), memory="1MB", check=0.5)
    assert [cached[1] for _ in range(5)] == [1] * 5  # made again at the third and fifth call
    with pytest.raises(DatasetError, match=r"sample 1 of Random was kept .* another one"):
        for _ in range(4):
            cached[1]
    steady = cache(Counted(), memory="1MB", check=1)
    for _ in range(3):
        steady[2]


def test_a_cache_is_found_in_wrapped_datasets() -> None:
    cached = cache(Counted(), memory="1MB", version="wrapped")
    joined = ConcatDataset([Subset(cached, [1, 2]), cached.map(len)])
    loader = DataLoader(joined, batch_sampler=[[0], [1]])
    list(loader)
    assert loader.stats()["cache"]["misses"] == 2
    assert DataLoader(Counted()).stats()["cache"] is None
    assert DataLoader([1, 2]).stats()["cache"] is None


def test_copies_use_the_same_cache(tmp_path: Path) -> None:
    for where in ({"memory": "1MB"}, {"disk": tmp_path}):
        cached = cache(Counted(), version="copied", **where)
        cached[1]
        for other in (copy.copy(cached), copy.deepcopy(cached), pickle.loads(pickle.dumps(cached))):
            assert equal(other[1], cached[1])
            assert sum(other.dataset.made.values()) <= 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, 'takes memory="8GB", disk="folder", or both: got neither'),
        ({"memory": "8 apples"}, r"memory must be a number of bytes, got '8 apples'"),
        ({"memory": 0}, "memory must be an int of 1 or more, got 0"),
        ({"memory": "1MB", "disk_limit": -1}, "disk_limit must be an int of 1 or more"),
        ({"memory": "1MB", "check": 2}, "check must be a share from 0 to 1, got 2"),
        ({"memory": "1MB", "check": 1e-320}, "check must be a share from 0 to 1"),
        ({"memory": 10**18}, "is more than the system gives"),
        ({"disk": 3}, "disk must be the path of a folder, got 3"),
        ({"disk": ""}, "disk must be the path of a folder, got ''"),
        ({"disk": "a\0b"}, "disk must be the path of a folder"),
        ({"disk": "a", "disk_limit": 10}, "disk_limit must be more than the 8,192 bytes"),
        ({"memory": "1MB", "version": "x" * 5000}, "pass a shorter version"),
        ({"memory": "1MB", "version": 2}, "version must be a string or None, got 2"),
        ({"memory": "1MB", "what": "pixels"}, 'what must be "samples" for this dataset'),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        cache(Counted(), **options)


@pytest.mark.parametrize(
    ("size", "nbytes"),
    [
        ("8GB", 8 * 10**9),
        ("1.5 TB", 15 * 10**11),
        ("512MiB", 512 << 20),
        ("3k", 3000),
        ("77", 77),
        ("2Gi", 2 << 30),
        (5e6, 5_000_000),
    ],
)
def test_sizes_are_read_from_text(size: Any, nbytes: int) -> None:
    assert reader.checks.as_byte_size("memory", size) == nbytes


def test_datasets_that_cannot_be_cached() -> None:
    with pytest.raises(ConfigTypeError, match="cache takes map-style datasets"):
        cache(iter([1]), memory="1MB")


class Strange:
    pass


class _Metres(np.float64):
    pass


@pytest.mark.parametrize(
    ("sample", "place"),
    [
        ((1, [Strange()]), r"sample\[1\]\[0\] cannot be cached: <.*Strange"),
        ({"a": {1, 2}}, r"sample\['a'\] cannot be cached: \{1, 2\}"),
        ({(1,): 2}, r"a key of sample cannot be cached: \(1,\)"),
        (np.array([Strange()], object), "sample cannot be cached"),
        (np.zeros(2, [("a", "i4")]), "sample cannot be cached"),
        (Counter("a"), "sample cannot be cached"),
        (_Metres(2), "sample cannot be cached"),
        (np.ma.array([1, 2], mask=[0, 1]), "sample cannot be cached"),
        pytest.param(10**5000, "sample cannot be cached", id="digits"),
    ],
)
def test_samples_that_cannot_be_kept(sample: Any, place: str) -> None:
    with pytest.raises(DatasetError, match=place):
        cache([sample], memory="1MB", version=place)[0]


def test_folders_that_cannot_hold_a_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot hold a cache: .* Pass a folder that can be"):
        cache(Counted(), disk=tmp_path / "file")
    with pytest.raises(ConfigError, match="cannot hold a cache"):
        cache(Counted(), disk="/proc/there is no such folder")
    folder = tmp_path / "other"
    cache(Counted(), disk=folder)

    class Others(Counted):
        pass

    with pytest.raises(
        ConfigError, match=r"holds a cache of samples of .*Counted, and not of .*Oth"
    ):
        cache(Others(), disk=folder)
    file = folder / "samples.cache"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"lodreader cache": 2', b'"lodreader cache": 9'))
    with pytest.raises(ConfigError, match="made by another version of lodreader, in format 9"):
        cache(Counted(), disk=folder)
    file.write_bytes(b"something else")
    with pytest.raises(ConfigError, match="is no cache, or damaged"):
        cache(Counted(), disk=folder)
    file.write_bytes(whole[:4096])
    with pytest.raises(ConfigError, match="is cut off: remove it, and it is made again"):
        cache(Counted(), disk=folder)


def test_no_code_is_read_from_a_disk(tmp_path: Path) -> None:
    cache(Counted(), disk=tmp_path)[1]
    content = (tmp_path / "samples.cache").read_bytes()
    assert b"pickle" not in content
    assert b"\x80\x05" not in content  # how a pickle of protocol 5 begins


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
)
SAMPLES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
)


@given(SAMPLES)
@settings(deadline=None, max_examples=200)
def test_any_nest_comes_back(sample: Any) -> None:
    assert repr(decode(*stored(sample))) == repr(sample)


def stored(sample: Any) -> tuple[bytes, Any]:
    form, parts = encode(sample)
    pieces = []
    for part in parts:
        content = bytes(memoryview(part).cast("B")) if len(part) else b""
        pieces.append(content.ljust(padded(len(content)), b"\0"))
    return form, np.frombuffer(b"".join(pieces), np.uint8)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.empty((0, 3), np.float32),
        np.array(3.5),
        np.float32(2.5),
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        np.str_(""),
        np.bytes_(b""),
        np.array(["", ""]),
        np.bytes_(b"a\0\0"),
        np.bytes_(b"\0"),
        np.str_("a\0"),
        np.str_("\ud800\0"),
        np.array(["a\0b\0"]),
        np.array([b"a\0b\0"])[0],
        np.array("a"),
        np.datetime64("2020-01-01T00:00"),
        np.int64(-3),
        np.empty((2, 0, 3), "datetime64[s]"),
        np.array([True, False]),
        np.arange(10)[::-2],
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.array([1 + 2j]),
        np.arange(4, dtype=">i4"),
        np.arange(3, dtype=np.float16),
    ],
)
def test_arrays_come_back(array: Any) -> None:
    found = decode(*stored((array, 1)))[0]
    assert type(found) is type(array)
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert np.array_equal(found, array)
    if isinstance(array, (str, bytes)):
        assert repr(found) == repr(array)


def test_a_check_notices_what_an_encoding_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = {(): (1,), (2, 3): (3, 2)}
    for one, other in shapes.items():
        assert is_alike([np.zeros(one)], [np.zeros(one)])
        assert not is_alike([np.zeros(one)], [np.zeros(other)])
    assert not is_alike({"a": np.bytes_(b"a")}, {"a": np.bytes_(b"a\0")})
    assert not is_alike((1, 2), [1, 2])
    assert not is_alike({"a": 1}, {"b": 1})
    assert not is_alike(np.float32(1), np.float64(1))
    monkeypatch.setattr(cached_dataset, "encode", lambda _: (b"", []))
    monkeypatch.setattr(sample_cache, "decode", lambda *_, **__: np.zeros(1))
    cached = cache([np.array(0.0)], memory="1MB", check=1)
    cached[0]
    with pytest.raises(DatasetError, match="another one when it is made again"):
        cached[0]


def test_bfloat16_comes_back() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    found = decode(*stored(array))
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_tensors_of_pytorch_come_back() -> None:
    torch = pytest.importorskip("torch")
    tensors = [
        torch.arange(6).reshape(2, 3),
        torch.tensor(1.5),
        torch.empty(0, 2),
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.arange(6).reshape(2, 3).t(),
        torch.tensor([1 + 2j]),
    ]
    found = decode(*stored(tensors))
    for one, other in zip(found, tensors):
        assert type(one) is torch.Tensor
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    out = torch.zeros(2, 3, dtype=torch.int64)
    assert decode(*stored((tensors[0],)), out=(out,))[0] is out
    assert torch.equal(out, tensors[0])
    with pytest.raises(DatasetError, match="cannot be cached"):
        encode(torch.ones(2, requires_grad=True))


def test_tensors_of_paddle_come_back() -> None:
    paddle = pytest.importorskip("paddle")
    tensor = paddle.arange(6).reshape([2, 3])
    found = decode(*stored([tensor]))[0]
    assert type(found) is type(tensor)
    assert found.numpy().tolist() == tensor.numpy().tolist()
    for shape in ([], [1], [0, 2], [2, 1]):
        assert decode(*stored(paddle.zeros(shape))).shape == shape


def test_images_of_pillow_come_back() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    for made in (
        image.fromarray(pixels),
        image.fromarray(pixels[:, :, 0]),
        image.fromarray(pixels[:, :, 0] > 127),
    ):
        found = decode(*stored(made))
        assert (found.mode, found.size) == (made.mode, made.size)
        assert np.array_equal(np.asarray(found), np.asarray(made))


@given(st.binary(max_size=80), st.binary(max_size=200))
@settings(deadline=None, max_examples=200)
def test_no_encoded_form_runs_code(form: bytes, content: bytes) -> None:
    with pytest.raises(UnknownForm):
        decode(b"\xff" + form, np.frombuffer(content, np.uint8))


@pytest.mark.parametrize(
    "form",
    [
        b"[]",
        b"{}",
        b'["array","<f4",[2],-8]',
        b'["array","<f4",[2],8]',
        b'["array","O",[1],8]',
        b'["x"]',
        b'["tuple",[["int"]]]',
        b'["text"]',
        b'["torch","nothing",[1],8]',
        b'["dict",["a"],[["int"]]]',
    ],
)
def test_forms_without_an_encoding_are_unknown(form: bytes) -> None:
    with pytest.raises(UnknownForm):
        decode(form, np.zeros(4, np.uint8))


def test_map_passes_each_sample_through_a_function() -> None:
    class Many(Counted):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [self[index] for index in indices]

    mapped = Many().map(lambda sample: sample[1]["box"][0] * 2)
    assert (mapped[3], len(mapped), mapped.__getitems__([1, 2])) == (6, 8, [2, 4])
    assert not hasattr(Counted().map(len), "__getitems__")
    with_index = Counted().map(lambda sample, index: index, with_index=True)
    assert with_index[5] == 5
    with pytest.raises(ConfigTypeError, match="map takes a function of a sample, got 3"):
        Counted().map(3)  # type: ignore[arg-type]


class _Split(enum.Enum):
    TRAIN = "train"


class _Recursive:
    pass


_Recursive.members = {"one": _Recursive()}  # type: ignore[attr-defined]


@pytest.mark.parametrize("held", [_Split.TRAIN, {_Split.TRAIN: [_Split]}, _Recursive()])
def test_a_class_that_holds_its_own_objects_is_digested(held: Any) -> None:
    assert digest_of(held) == digest_of(held)


def test_functions_of_the_main_module_are_distinguished_by_their_code() -> None:
    program = """
from reader.caching.digest import digest_of
held = [lambda i: i + 1, lambda i: i * 100, *[(lambda n: lambda i: i + n)(n) for n in (2, 5)]]
assert len({digest_of([each]) for each in held}) == 4 and digest_of(held)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
