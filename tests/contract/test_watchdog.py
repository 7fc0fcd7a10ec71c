"""Samples that take very long: reported, and their workers replaced."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import (
    ConfigError,
    ConfigTypeError,
    DataLoader,
    DatasetError,
    IterableDataset,
    LoadTimeout,
    WorkerDied,
)

WAYS: dict[str, dict[str, Any]] = {
    "processes": {"num_workers": 2},
    "spawn": {"num_workers": 2, "start_method": "spawn"},
    "collated": {"num_workers": 2, "collate_fn": list},
    "samples": {"num_workers": 2, "batch_size": None},
    "many": {"num_workers": 1, "batch_size": 32},
}


class Slow:
    """Numbers, some of which take a worker long."""

    def __init__(self, seconds: float, slow: tuple[int, ...] = (5, 20)) -> None:
        self.seconds, self.slow = seconds, slow

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> int:
        if index in self.slow:
            stay_here(self.seconds)
        return index


def stay_here(seconds: float) -> None:
    """Wait like code that nothing wakes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        threading.Event().wait(0.05)


class SlowStream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        for number in range(32):
            if number == 5:
                stay_here(1.2)
            yield number


def numbers(batches: Any) -> list[int]:
    found: list[int] = []
    for batch in batches:
        found += batch if isinstance(batch, list) else np.ravel(batch).tolist()
    return found


@pytest.mark.parametrize(
    "way", [*WAYS, pytest.param("threads", id="threads"), pytest.param("stream", id="stream")]
)
def test_a_slow_sample_is_reported_once_with_its_place(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"batch_size": 8, **WAYS.get(way, {"num_workers": 1})}
    if way == "threads":
        options["worker_type"] = "thread"
    dataset = SlowStream() if way == "stream" else Slow(1.2, (5,))
    loader = DataLoader(dataset, warn_after=0.3, **options)
    with caplog.at_level(logging.WARNING, "reader"), loader:
        assert numbers(loader) == list(range(32))
    (said,) = [each for each in caplog.messages if "has been starting" not in each]
    what = {
        "samples": r"the sample at index 5 \(row 0 of batch 5 of epoch 0\)",
        "stream": r"sample 5 of batch 0 of epoch 0",
    }.get(way, r"the sample at index 5 \(row 5 of batch 0 of epoch 0\)")
    assert re.match(rf"{what} has taken \d+\.\d s so far, by worker", said), said
    assert "stay_here" in said
    assert "reader/worker" not in said


def test_quicker_samples_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "reader"):
        for options in ({}, {"num_workers": 1}):
            assert len(list(DataLoader(Slow(0.6, (5,)), batch_size=8, **options))) == 4  # 30 s
            never = DataLoader(Slow(0.6, (5,)), batch_size=8, warn_after=None, **options)
            assert len(list(never)) == 4
    assert not caplog.messages


def init_slowly(_: int) -> None:
    time.sleep(0.7)


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_worker_that_takes_long_to_start_is_reported(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"num_workers": 2, "worker_type": kind}
    with caplog.at_level(logging.WARNING, "reader"):
        loader = DataLoader(Slow(0), worker_init_fn=init_slowly, warn_after=0.2, **options)
        assert numbers(loader) == list(range(32))
    said = [each for each in caplog.messages if "has been starting for 0." in each]
    assert len(said) == 2
    assert all("in init_slowly" in each for each in said)


def test_a_late_batch_says_which_workers_are_starting() -> None:
    loader = DataLoader(Slow(0), num_workers=1, worker_init_fn=init_slowly, timeout=0.2)
    batches = iter(loader)
    with pytest.raises(LoadTimeout, match="is starting"):
        next(batches)
    loader.close()


class Computing(Slow):
    """Each sample takes long enough to be timed."""

    def __getitem__(self, index: int) -> int:
        sum(range(5000))
        return super().__getitem__(index)


INLINE: dict[str, tuple[dict[str, Any], Any, str]] = {
    "stacked": ({"batch_size": 8}, Computing, r"index 9 \(row 1 of batch 1 of epoch 0\)"),
    "collated": (
        {"batch_size": 8, "collate_fn": list}, Computing, r"index 9 \(row 1 of batch 1 of epoch 0\)"
    ),
    "samples": ({"batch_size": None}, Computing, r"index 9 \(row 0 of batch 9 of epoch 0\)"),
    "tolerant": (
        {"batch_size": 8, "on_error": "skip"}, Computing, r"index 9 \(row 1 of batch 1 of epoch 0\)"
    ),
    "first": ({"batch_size": 16}, Slow, r"index 9 \(row 9 of batch 0 of epoch 0\)"),
}  # fmt: skip


@pytest.mark.parametrize("way", INLINE)
def test_without_workers_a_slow_sample_is_reported_when_its_batch_has_come(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    options, dataset, name = INLINE[way]
    with caplog.at_level(logging.WARNING, "reader"):
        assert numbers(DataLoader(dataset(0.4, (9,)), warn_after=0.2, **options)) == list(range(32))
    (said,) = caplog.messages
    assert re.fullmatch(rf"the sample at {name} took 0\.\d s, and its batch 0\.\d s", said), said


def test_without_workers_a_slow_sample_of_a_stream_is_reported_by_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "reader"):
        assert numbers(DataLoader(SlowStream(), batch_size=8, warn_after=0.3)) == list(range(32))
    (said,) = caplog.messages
    assert re.fullmatch(
        r"sample 5 of batch 0 of epoch 0 took \d\.\d s, and its batch \d\.\d s", said
    )


def test_without_workers_a_batch_of_many_slow_samples_is_reported_by_its_indices(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "reader"):
        list(DataLoader(Slow(0.05, tuple(range(8, 16))), batch_size=8, warn_after=0.2))
    (said,) = caplog.messages
    where = r"batch 1 of epoch 0 \(dataset indices \[8, 9, 10, 11, 12, 13, 14, 15\]\)"
    assert re.fullmatch(rf"{where} took 0\.\d s", said), said


class Failing(Slow):
    def __getitem__(self, index: int) -> int:
        if super().__getitem__(index) in self.slow:
            raise ValueError(index)
        return index


def test_without_workers_a_slow_batch_that_fails_is_reported_by_its_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batches = iter(DataLoader(Failing(0.4, (9,)), batch_size=8, warn_after=0.2))
    with caplog.at_level(logging.WARNING, "reader"):
        next(batches)
        with pytest.raises(ValueError, match="9"):
            next(batches)
    (said,) = caplog.messages
    assert re.fullmatch(r"batch 1 of epoch 0 took 0\.\d s", said)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("way", WAYS)
def test_a_sample_that_hangs_counts_as_failed(way: str, on_error: str) -> None:
    options = {"batch_size": 8, "on_error": on_error, "error_budget": 2, **WAYS[way]}
    with DataLoader(Slow(1000), hang_after=0.5, **options) as loader:
        found = numbers(loader)
        errors = loader.errors
    left = [number for number in range(32) if number not in (5, 20)]
    if on_error == "skip":
        assert sorted(found) == left
    else:
        assert len(found) == 32
        assert set(found) <= set(left)
    assert [error.index for error in errors] == [5, 20]
    assert {error.error for error in errors} == {"reader.errors.LoadTimeout"}
    assert errors[0].text == "it took longer than hang_after=0.5 s"


def test_a_sample_that_hangs_raises_without_on_error() -> None:
    with DataLoader(Slow(1000, (5,)), batch_size=8, num_workers=2, hang_after=0.4) as loader:
        batches = iter(loader)
        with pytest.raises(
            DatasetError, match=r"the sample at index 5 of batch 0 of epoch 0 hung: it took"
        ) as caught:
            next(batches)
        assert "stay_here" in str(caught.value)
        assert "have such samples left out by on_error='skip' or replaced by" in str(caught.value)
        assert numbers(batches) == list(range(8, 32))


def collate_for_ever(samples: list[int]) -> list[int]:
    stay_here(1000)
    return samples


def test_a_collate_fn_that_hangs_raises_under_on_error_too() -> None:
    options: dict[str, Any] = {"batch_size": 8, "num_workers": 1, "on_error": "skip"}
    text = (
        r"batch 0 of epoch 0 hung: it took .* mend the dataset, or pass a larger hang_after=\."
        r" on_error cannot help: it hung outside of a sample"
    )
    with (
        DataLoader(Slow(0), collate_fn=collate_for_ever, hang_after=0.4, **options) as loader,
        pytest.raises(DatasetError, match=text),
    ):
        next(iter(loader))


class HangingStream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        yield from range(5)
        stay_here(1000)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_stream_that_hangs_again_in_its_next_worker_raises(on_error: str) -> None:
    options: dict[str, Any] = {"batch_size": 8, "num_workers": 1, "on_error": on_error}
    text = (
        r"batch 0 of epoch 0 hung: it took .* mend the dataset, or pass a larger hang_after=\."
        r" on_error cannot help: what worker 0 would have yielded after it is lost"
    )
    with (
        DataLoader(HangingStream(), hang_after=0.4, **options) as loader,
        pytest.raises(DatasetError, match=text),
    ):
        list(loader)


class Crashing(Slow):
    """Its native code crashes at some samples."""

    def __getitem__(self, index: int) -> int:
        if index in self.slow:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.mark.parametrize("way", ["processes", "collated", "samples"])
@pytest.mark.parametrize("retries", [0, 1])
def test_a_sample_whose_worker_dies_counts_as_failed(way: str, retries: int) -> None:
    options = {"batch_size": 8, "on_error": "skip", "error_budget": 2, **WAYS[way]}
    with DataLoader(Crashing(0), worker_retries=retries, **options) as loader:
        found = sorted(numbers(loader))
        assert found == [number for number in range(32) if number not in (5, 20)]
        assert [error.index for error in loader.errors] == [5, 20]
        assert all("SIGKILL" in error.text for error in loader.errors)
    loader = DataLoader(Crashing(0), batch_size=8, num_workers=2)
    with loader, pytest.raises(WorkerDied):
        list(loader)


class Many(Slow):
    """Fetches all at once."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


class ManyCrashing(Crashing):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("dataset", [Many(1000), ManyCrashing(0)])
def test_one_sample_of_many_fetched_at_once_counts_as_failed(on_error: str, dataset: Any) -> None:
    with DataLoader(
        dataset, batch_size=8, num_workers=2, hang_after=0.6, on_error=on_error, error_budget=2
    ) as loader:
        found = numbers(loader)
        assert [error.index for error in loader.errors] == [5, 20]
    assert len(found) == (30 if on_error == "skip" else 32)
    assert not {5, 20} & set(found)


def test_a_worker_that_replaces_a_hung_one_has_its_own_time() -> None:
    class AllSlow(Slow):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            stay_here(1000 if index == 0 else 0.7)
            return index

    with DataLoader(
        AllSlow(0), batch_size=4, num_workers=1, hang_after=1.2, on_error="replace", error_budget=2
    ) as loader:
        assert len(numbers(loader)) == 4
        assert [error.index for error in loader.errors] == [0]


def test_reading_the_stack_interrupts_no_call_of_the_sample() -> None:
    class Polling(Slow):
        def __getitem__(self, index: int) -> int:
            if index == 5:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.poll(None, 0, 1500) < 0:
                    raise OSError(ctypes.get_errno(), "interrupted")
            return index

    with DataLoader(Polling(0), batch_size=8, num_workers=1, warn_after=0.3) as loader:
        assert numbers(loader) == list(range(32))


class Deaf(Slow):
    """Uses the signal by which the stack of a worker is read."""

    def __getitem__(self, index: int) -> int:
        import faulthandler

        faulthandler.unregister(signal.SIGRTMIN + 9)
        return super().__getitem__(index)


def test_a_worker_that_uses_the_signal_itself_is_not_signalled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loader = DataLoader(Deaf(0.8, (5,)), batch_size=8, num_workers=1, warn_after=0.2)
    with caplog.at_level(logging.WARNING, "reader"), loader:
        assert numbers(loader) == list(range(32))
    (said,) = caplog.messages
    assert said.endswith(")")  # there is no stack


def test_workers_leave_no_file_of_their_stacks_behind(tmp_path: Path) -> None:
    with DataLoader(Slow(0), batch_size=8, num_workers=2, persistent_workers=True) as loader:
        list(loader)
        pids = [status.pid for status in loader.workers()]
        files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        assert not [name for name in files if "lodreader-stack" in name]
    assert not any(Path(f"/proc/{pid}/fd").exists() for pid in pids)


@pytest.mark.parametrize("name", ["warn_after", "hang_after"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ConfigError), (-1, ConfigError), (float("nan"), ConfigError), (float("inf"), ConfigError),
     ("1", ConfigTypeError), (True, ConfigTypeError)],
)  # fmt: skip
def test_invalid_arguments_are_refused(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"{name} must be a number of seconds above 0"):
        DataLoader(Slow(0), num_workers=1, **{name: value})


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "worker_type": "thread"}])
def test_hang_after_is_refused_for_threads(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="a thread cannot be ended: pass num_workers=1 or more"):
        DataLoader(Slow(0), hang_after=1, **options)
