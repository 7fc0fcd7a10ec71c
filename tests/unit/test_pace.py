"""How many tasks a remote worker should have, by the times of its calls."""

from __future__ import annotations

import pytest

from reader.cluster.pace import CALLS, FACTOR, MOST_FACTOR, Pace

ROOM = 256 << 20


def paced(
    nbytes: int, *calls: tuple[int, float, float], most: int = ROOM, is_shared: bool = False
) -> tuple[int, int, int]:
    """Return tasks of a call, calls under way, and tasks in flight, after calls of a worker."""
    pace = Pace(is_shared)
    pace.nbytes = nbytes
    for call in calls:
        pace.note(*call)
    return pace.most, pace.calls, pace.factor(most)


def test_few_are_in_flight_before_times_are_known() -> None:
    assert paced(0) == (1, CALLS, FACTOR)


def test_small_quick_batches_fill_two_calls_and_the_two_after_them() -> None:
    many, calls, in_flight = paced(1024, (1, 1e-4, 1e-3))
    assert (calls, in_flight) == (CALLS, 2 * CALLS * many)
    assert in_flight == MOST_FACTOR
    assert many > 16


def test_batches_of_a_call_take_no_more_than_its_bytes_and_its_time() -> None:
    assert paced(1 << 18, (1, 1e-4, 1e-3)) == (4, CALLS, 16)
    assert paced(1024, (1, 0.004, 1e-3)) == (40, CALLS, 160)
    assert paced(1 << 20, (1, 1e-4, 1e-4)) == (1, CALLS, CALLS)


def test_slow_batches_are_two_in_flight_however_small() -> None:
    assert paced(16, (1, 0.06, 1e-3)) == (1, CALLS, FACTOR)
    assert paced(38 << 20, (1, 0.06, 0.02)) == (1, CALLS, FACTOR)


@pytest.mark.parametrize(("lag_s", "calls"), [(0.001, 2), (0.004, 3), (0.011, 7), (1.0, 8)])
def test_as_many_large_batches_are_in_flight_as_hide_their_transfer(
    lag_s: float, calls: int
) -> None:
    assert paced(4 << 20, *[(1, 0.002, lag_s)] * 3) == (1, calls, calls)


def test_a_call_that_waited_for_a_processor_does_not_count() -> None:
    assert paced(4 << 20, (1, 0.002, 0.001), (1, 0.002, 0.5))[1] == 2
    assert paced(4 << 20, (1, 0.002, -0.001))[1] == 2  # measures two clocks


def test_a_slow_call_among_quick_ones_travels_alone_and_keeps_the_others_going() -> None:
    many, _, in_flight = paced(1024, (1, 1e-4, 1e-3), (1, 0.6, 1e-3))
    assert (many, in_flight) == (1, MOST_FACTOR)
    assert paced(1024, (1, 1e-4, 1e-3), *[(1, 0.6, 1e-3)] * 8) == (1, CALLS, FACTOR)


def test_bytes_bound_all_but_two_batches_in_flight() -> None:
    assert paced(1024, (1, 1e-4, 1e-3), most=10 << 10)[2] == 10
    assert paced(4 << 20, *[(1, 0.002, 1.0)] * 3, most=12 << 20)[2] == 3
    assert paced(4 << 20, *[(1, 0.002, 1.0)] * 3, most=1)[2] == FACTOR


def test_a_worker_of_many_programs_has_two_calls_of_each() -> None:
    assert paced(4 << 20, *[(1, 0.002, 1.0)] * 3, is_shared=True)[1] == CALLS
