"""The free bytes of a cache's file: never of two entries, joined, and found again."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader._core.shared.entry_table import WORDS
from reader.caching import free_space
from reader.caching.entry_file import HEAD, SUMS, EntryFile, entries_begin
from reader.caching.free_space import END, FREE, LINE, FreeSpace

ENTRIES, LIMIT = 4, 1000 * LINE


@pytest.fixture(params=["memory", "disk"])
def file(request: Any, tmp_path: Path) -> Iterator[EntryFile]:
    is_memory = request.param == "memory"
    if is_memory:
        fd = os.memfd_create("free")
        os.ftruncate(fd, entries_begin(ENTRIES) + LIMIT)
    else:
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, entries_begin(ENTRIES))
    made = EntryFile(fd, ENTRIES, LIMIT, is_memory)
    yield made
    made.finalize()


def space_of(file: EntryFile) -> FreeSpace:
    return file._space


def test_no_byte_has_two_owners_and_all_come_back(file: EntryFile) -> None:
    space, order = space_of(file), random.Random(3)
    taken: dict[int, int] = {}
    for _ in range(4000):
        nbytes = order.randrange(1, 60) * LINE
        at = space.take(nbytes) if order.random() < 0.55 else -1
        if at >= 0:
            assert at + nbytes <= LIMIT
            assert all(at + nbytes <= begin or begin + size <= at for begin, size in taken.items())
            taken[at] = nbytes
        elif taken:
            at = order.choice(list(taken))
            space.release(at, taken.pop(at))
        assert space.used == sum(taken.values())
    for at, nbytes in taken.items():
        space.release(at, nbytes)
    assert space.used == 0
    assert space.take(LIMIT) == 0  # in one piece


def test_bytes_between_entries_are_taken_again(file: EntryFile) -> None:
    space = space_of(file)
    first, second = space.take(10 * LINE), space.take(LIMIT - 10 * LINE)
    assert not space.has_space(LINE)
    space.release(first, 10 * LINE)
    assert space.has_space(10 * LINE)
    assert space.take(11 * LINE) == -1
    assert space.take(4 * LINE) == first
    assert space.take(6 * LINE) == first + 4 * LINE
    space.release(second, LIMIT - 10 * LINE)
    assert file.table.sum(END) == 10 * LINE


def test_a_damaged_link_costs_a_list(file: EntryFile) -> None:
    space = space_of(file)
    places = [space.take(8 * LINE) for _ in range(4)]
    for at in places[:3]:
        space.release(at, 8 * LINE)
    os.pwrite(file._fd, b"\xff", entries_begin(ENTRIES) + places[2] + 8)
    assert space.take(8 * LINE) == 32 * LINE
    assert space.take(8 * LINE) == 40 * LINE


def test_ownerless_space_is_found_by_a_process_that_is_alone(file: EntryFile) -> None:
    space, table = space_of(file), file.table
    for number in range(3):
        assert file.keep(number, 0, b'["none"]', [bytes(1000)])
    size = space.used // 3
    lost = space.take(7 * LINE)  # by a process that was killed
    assert file.keep(3, 0, b'["none"]', [bytes(1000)])
    assert table.drop(1, table.word(1))  # by another one, before it released the bytes
    assert table.sum(FREE) == 0
    file.recover()
    assert space.used == 3 * size
    assert {space.take(7 * LINE), space.take(size)} == {lost, size}
    assert [file.holds(number) for number in range(4)] == [True, False, True, True]


def test_overlapping_entries_are_dropped(file: EntryFile) -> None:
    for number in range(3):
        file.keep(number, 0, b'["none"]', [bytes(1000)])
    at = HEAD // 8 + SUMS
    words = np.frombuffer(memoryview(file._table_map), np.uint64)[at : at + WORDS * ENTRIES]
    words[2], words[4] = words[0], 1 << 40  # entry 1 lies where entry 0 does, entry 2 nowhere
    file.recover()
    assert [file.holds(number) for number in range(3)] == [True, False, False]


def test_a_full_disk_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> bool:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, entries_begin(ENTRIES))
    file = EntryFile(fd, ENTRIES, LIMIT, is_memory=False)
    monkeypatch.setattr(free_space, "allocate", full)
    with pytest.raises(OSError, match="No space left"):
        space_of(file).take(LINE)
    assert file.used == 0
    monkeypatch.setattr(free_space, "allocate", lambda *_: False)  # a file system without it
    assert space_of(file).take(LINE) == 0
    file.finalize()
