"""An epoch without workers opens with what usual steps need; the Epoch is made by need."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reader import DataLoader
from reader._core.epoch.iterator import EpochIterator
from reader.engine.epoch import Epoch
from reader.engine.epoch_by_need import EpochByNeed
from tests.datasets import Calls

COUNT, SIZE = 24, 4
BATCHES = COUNT // SIZE


def loader_of(get: Any = lambda index: index, **options: Any) -> DataLoader[Any]:
    return DataLoader(Calls(get, COUNT), batch_size=SIZE, **options)


def begun(loader: DataLoader[Any]) -> EpochIterator:
    batches: Any = iter(loader)
    assert type(batches.epoch) is EpochByNeed
    return batches  # type: ignore[no-any-return]


def is_needed(batches: EpochIterator) -> bool:
    """Whether the Epoch was made."""
    return batches.epoch._epoch is not None


def firsts(batches: Iterator[Any]) -> list[int]:
    """The number of each batch, by its first sample."""
    return [int(batch[0]) // SIZE for batch in batches]


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 60},
        {"seed": 1},
        {"places": ["cpu", "cpu"]},
        {"on_error": "skip"},
        {"num_workers": 1, "worker_type": "thread"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_an_epoch_made_by_need_has_everything_from_its_beginning(
    options: dict[str, Any],
) -> None:
    with loader_of(**options) as loader:
        batches: Any = iter(loader)
        assert type(batches.epoch) is Epoch


def test_a_whole_epoch_takes_usual_steps_alone() -> None:
    batches = begun(loader_of(shuffle=True))
    assert len(list(batches)) == BATCHES
    assert not is_needed(batches)
    assert list(batches) == []
    assert batches.epoch.progress.is_finished
    assert not is_needed(batches)


def test_the_epoch_goes_on_where_a_sample_has_failed() -> None:
    calls: list[int] = []

    def get(index: int) -> int:
        calls.append(index)
        if index == 9:
            raise LookupError(index)
        return index

    loader = loader_of(get)
    batches = begun(loader)
    assert [int(next(batches)[0]), int(next(batches)[0])] == [0, SIZE]
    with pytest.raises(LookupError) as caught:
        next(batches)
    assert "batch 2 of epoch 0" in caught.value.__notes__[0]
    assert loader.state_dict()["batches"] == 3
    assert firsts(batches) == [3, 4, 5]
    assert calls == [index for index in range(COUNT) if index not in (10, 11)]  # each once
    assert loader.stats()["batches"] == BATCHES - 1


@pytest.mark.parametrize("asked_after", [0, 1, 3, BATCHES - 1, BATCHES])
def test_the_epoch_can_be_made_by_need_at_any_position(asked_after: int) -> None:
    loader = loader_of(shuffle=True)
    batches = begun(loader)
    found = [next(batches) for _ in range(asked_after)]
    assert len(batches) == BATCHES
    assert not is_needed(batches)
    assert batches.epoch.is_usable  # as the Epoch does, unless the epoch is over
    assert is_needed(batches)
    found += list(batches)
    assert sorted(int(key) for batch in found for key in batch) == list(range(COUNT))
    assert loader.stats()["batches"] == BATCHES


@pytest.mark.parametrize("left_after", [0, 1, 3, BATCHES - 1])
def test_a_state_resumes_after_usual_steps(left_after: int) -> None:
    loader = loader_of(shuffle=True)
    batches = begun(loader)
    before = [next(batches) for _ in range(left_after)]
    state = loader.state_dict()
    after = list(batches)
    again = loader_of(shuffle=True)
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in after]
    assert len(before) + len(after) == BATCHES


class Sampler:
    """Yields lists; does the action `at` before batch 2."""

    def __init__(self, at: Any) -> None:
        self.at = at

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[Any]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[Any]:
        for number in range(position, BATCHES):
            if number == 2 and self.at is not None:
                found = self.at()
                if found is not None:
                    yield found
                    continue
            yield list(range(number * SIZE, number * SIZE + SIZE))


def of_sampler(at: Any) -> DataLoader[Any]:
    return DataLoader(Calls(lambda index: index, COUNT), batch_sampler=Sampler(at))


def test_exception_of_the_sampler_comes_after_the_batches_before_it() -> None:
    def fail() -> None:
        raise LookupError("no more")

    batches = begun(of_sampler(fail))
    assert [next(batches)[0], next(batches)[0]] == [0, SIZE]
    with pytest.raises(LookupError, match="no more"):
        next(batches)
    assert next(batches, None) is None


def test_keys_may_come_as_an_array() -> None:
    batches = begun(of_sampler(lambda: np.arange(2 * SIZE, 3 * SIZE)))
    assert firsts(batches) == list(range(BATCHES))


def test_an_index_outside_of_the_dataset_is_refused_at_its_place() -> None:
    batches = begun(of_sampler(lambda: [0, COUNT]))
    assert [next(batches)[0], next(batches)[0]] == [0, SIZE]
    with pytest.raises(IndexError, match=f"index {COUNT} in batch 2, .* has {COUNT} samples"):
        next(batches)


def test_an_interrupt_within_the_sampler_loses_no_batch() -> None:
    raised: list[bool] = []

    def interrupt() -> None:
        if not raised:
            raised.append(True)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)  # the handler runs at the latest here

    batches = begun(of_sampler(interrupt))
    found: list[int] = []
    while len(found) < BATCHES:
        try:
            found.append(int(next(batches)[0]) // SIZE)
        except KeyboardInterrupt:
            assert found == [0, 1]
    assert found == list(range(BATCHES))
    assert raised


def test_an_interrupt_within_a_sample_loses_no_batch() -> None:
    raised: list[int] = []

    def get(index: int) -> int:
        if index == 9 and not raised:
            raised.append(index)
            raise KeyboardInterrupt
        return index

    loader = loader_of(get)
    batches = begun(loader)
    found: list[int] = []
    while len(found) < BATCHES:
        try:
            found.append(int(next(batches)[0]) // SIZE)
        except KeyboardInterrupt:
            assert found == [0, 1]
    assert found == list(range(BATCHES))


def test_a_closed_iterator_ends_and_a_closed_loader_says_so() -> None:
    loader = loader_of()
    batches = begun(loader)
    next(batches)
    batches.close()
    batches.close()
    assert next(batches, None) is None
    assert loader.state_dict()["batches"] == 1
    batches = begun(loader)
    next(batches)
    loader.close()
    with pytest.raises(Exception, match="closed"):
        next(batches)


def test_threads_share_the_steps() -> None:
    batches = begun(loader_of())
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.extend(firsts(batches))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(BATCHES))


def test_a_slow_batch_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def get(index: int) -> int:
        if index == 5:
            threading.Event().wait(0.6)
        return index

    batches = begun(loader_of(get, warn_after=0.02))
    assert firsts(batches) == list(range(BATCHES))
    assert "batch 1 of epoch 0" in caplog.text
    assert len(caplog.records) == 1


def test_a_small_batch_is_made_without_asking_the_system() -> None:
    """Files under /proc and /sys are read when a batch first needs memory of some size."""
    code = (
        "import sys, numpy as np, reader\n"
        "rows = [np.ones(8, np.float32) for _ in range(64)]\n"
        "list(reader.DataLoader(rows[:8], batch_size=4))\n"
        "opened = []\n"
        "sys.addaudithook(lambda name, found: name == 'open' and opened.append(found[0]))\n"
        "list(reader.DataLoader(rows, batch_size=4, shuffle=True))\n"
        "print(opened)\n"
        "list(reader.DataLoader([np.ones(1 << 19, np.float32)] * 4, batch_size=2))\n"
        "print(any('meminfo' in str(path) for path in opened))\n"
    )
    root = pathlib.Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert found.stdout.splitlines() == ["[]", "True"]
