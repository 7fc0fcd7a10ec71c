"""A loop replayed: with its own times it takes as long as before, with quicker ones less."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from reader._core.wire.times_log import FIELDS
from reader.observe.replay import Replay, replay_of


def loop(make_s: list[float], step_s: float, workers: int, ahead: int, **also: Any) -> Replay:
    count = len(make_s)
    zeros = np.zeros(count)
    options: dict[str, Any] = {
        "fetch_s": zeros,
        "slow_s": zeros,
        "worker": np.arange(count) % max(1, workers),
        "gap_s": np.where(np.arange(count) == 0, 1e-9, 0.0),
    }
    return Replay(
        make_s=np.array(make_s),
        step_s=np.full(count, step_s),
        workers=workers,
        ahead=ahead,
        **(options | also),
    )


def test_without_workers_all_times_add_up() -> None:
    assert loop([0.3] * 10, 0.1, 0, 1).seconds() == pytest.approx(4.0)


def test_with_workers_the_slower_side_counts() -> None:
    bound_by_workers = loop([0.4] * 100, 0.1, 2, 4)
    assert bound_by_workers.seconds() == pytest.approx(20.0, rel=0.05)
    assert bound_by_workers.seconds(workers=4, ahead=8) == pytest.approx(10.4, rel=0.05)
    assert bound_by_workers.seconds(workers=8, ahead=16) == pytest.approx(10.4, rel=0.05)
    assert bound_by_workers.seconds(make_s=np.zeros(100)) == pytest.approx(10.0, rel=0.01)


def test_without_page_faults_batches_take_the_time_of_those_without_any() -> None:
    stalled = loop([0.9, 0.1] * 50, 0.3, 2, 4)
    assert stalled.seconds_without_page_waits(0.5, False) == pytest.approx(30, rel=0.02)
    quick = loop([0.9, 0.1] * 50, 0.01, 2, 4)
    assert quick.seconds_without_page_waits(0.5, False) == pytest.approx(3.75, rel=0.05)
    assert quick.seconds_without_page_waits(0.02, False) == pytest.approx(1, rel=0.05)


def test_steps_that_waited_for_the_gil_take_the_time_of_the_quickest() -> None:
    steps = np.array([0.0, 0.01, 0.2, 0.3] * 25)
    stalled = dataclasses.replace(loop([0.1] * 100, 0.0, 2, 4), step_s=steps)
    assert stalled.seconds_without_page_waits(0.0, True) == pytest.approx(0.75)
    assert stalled.seconds_without_page_waits(0.0, False) == pytest.approx(0.51 * 25)


def test_batches_ahead_hide_a_slow_batch() -> None:
    one_slow = loop([0.1] * 50 + [3.0] + [0.1] * 49, 0.1, 2, 2)
    assert one_slow.seconds() > 12.5
    assert one_slow.seconds(ahead=80) < 11.5


def test_a_slow_sample_is_taken_out() -> None:
    slow_s = np.where(np.arange(10) == 5, 2.0, 0.01)
    replay = loop([0.1] * 5 + [2.1] + [0.1] * 4, 0.0, 1, 2, slow_s=slow_s)
    assert replay.without_slow_samples(0.01)[5] == pytest.approx(0.11)
    assert replay.without_slow_samples(0.5)[5] == pytest.approx(2.1)


def test_a_slow_worker_is_made_as_quick_as_the_others() -> None:
    replay = loop([0.1, 0.8] * 10, 0.0, 2, 4)
    assert replay.with_equal_workers() == pytest.approx([0.1] * 20)


def records_of(rows: list[tuple[int, int, int, int, int]]) -> Any:
    """Records of (epoch, begun, sent, asked, delivered)."""
    records = np.zeros(len(rows), np.dtype(list(FIELDS)))
    for name, column in zip(
        ("epoch", "begun_ns", "sent_ns", "asked_ns", "delivered_ns"), zip(*rows)
    ):
        records[name] = column
    return records


def test_a_replay_without_changes_takes_the_recorded_time() -> None:
    second = 1_000_000_000
    rows = [(0, 2, 3, 1, 3), (0, 3, 4, 5, 5), (1, 9, 10, 7, 10), (1, 10, 11, 11, 11)]
    records = records_of([(e, *(second * each for each in times)) for e, *times in rows])
    replay = replay_of(records, second, 12 * second, 1, 2)
    assert replay is not None
    assert replay.seconds() == pytest.approx(11.0)
    assert replay.gap_s.tolist() == [1.0, 0.0, 4.0, 0.0]


def test_too_few_records_give_no_loop() -> None:
    assert replay_of(records_of([(0, 1, 2, 3, 4)]), 0, 5, 1, 2) is None


def test_batches_of_other_programs_before_one_are_counted_once() -> None:
    ms, rows, dispatched, at = 1_000_000, [], [], 0
    for _ in range(20):
        dispatched.append(at + 1)
        begun, sent = at + 91 * ms, at + 101 * ms  # 90 ms of others, and 1 to begin
        rows.append((0, begun, sent, at, sent))
        at = sent
    records = records_of(rows)
    records["dispatched_ns"], records["others_ns"] = dispatched, 90 * ms
    replay = replay_of(records, 0, at, 1, 1, is_shared=True, is_remote=True)
    assert replay is not None
    assert replay.lead_s == pytest.approx(0.001, rel=0.01)
    assert replay.seconds() == pytest.approx(at * 1e-9, rel=0.05)
