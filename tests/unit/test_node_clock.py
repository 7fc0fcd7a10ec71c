"""The clock of another machine, as calls show it."""

from __future__ import annotations

import random

import pytest

from reader.cluster.node_clock import NodeClock

S = 1_000_000_000


class World:
    """A clock that is ahead of this one's, and drifts."""

    def __init__(self, seed: int, ahead_ns: int, drift: float) -> None:
        self.random = random.Random(seed)
        self.ahead_ns, self.drift = ahead_ns, drift
        self.now_ns = 7 * S

    def there(self, here_ns: int) -> int:
        return round(here_ns + self.ahead_ns + self.drift * here_ns)

    def call(self, clock: NodeClock, queue_ns: int = 0, transfer_ns: int = 0) -> None:
        sent = self.now_ns
        begun = sent + round(self.random.expovariate(1 / 4e5)) + 100_000 + queue_ns
        ended = begun + self.random.randrange(30_000_000)
        came = ended + round(self.random.expovariate(1 / 4e5)) + 100_000 + transfer_ns
        clock.note(sent, self.there(begun), self.there(ended), came)
        self.now_ns = came

    def error_ns(self, clock: NodeClock) -> int:
        return abs(clock.ahead_ns - (self.there(self.now_ns) - self.now_ns))


@pytest.mark.parametrize("ahead_ns", [0, 12345 * S, -999 * S])
@pytest.mark.parametrize("drift", [-1e-4, 0.0, 1e-4])
def test_difference_is_within_the_stated_error(ahead_ns: int, drift: float) -> None:
    for seed in range(20):
        world, clock = World(seed, ahead_ns, drift), NodeClock()
        for _ in range(500):
            world.call(clock)
            assert world.error_ns(clock) <= clock.error_ns
        assert clock.error_ns < 1_000_000


def test_a_call_that_did_not_wait_in_a_queue_improves_the_bounds_again() -> None:
    world, clock = World(1, 5 * S, 5e-5), NodeClock()
    world.call(clock)
    for _ in range(5000):
        world.call(clock, queue_ns=30_000_000, transfer_ns=80_000_000)
        assert world.error_ns(clock) <= clock.error_ns
    assert clock.error_ns > 10_000_000
    assert clock.is_due(world.now_ns)
    assert not clock.is_due(world.now_ns + S)
    assert clock.is_due(world.now_ns + 11 * S)
    world.call(clock)
    assert clock.error_ns < 3_000_000
    assert world.error_ns(clock) <= clock.error_ns


def test_a_clock_that_was_set_is_learned_anew() -> None:
    world, clock = World(2, 5 * S, 0.0), NodeClock()
    for _ in range(50):
        world.call(clock)
    world.ahead_ns -= 100 * S
    for _ in range(50):
        world.call(clock)
    assert world.error_ns(clock) <= clock.error_ns < 2_000_000


def test_contradictory_bounds_give_no_difference() -> None:
    clock = NodeClock()
    clock.note(0, 5 * S, 8 * S, S)  # 3 s of work there, within 1 s here: this machine stood still
    assert clock.error_ns == S
    clock.note(10 * S, 15 * S, 16 * S, 12 * S)
    assert (clock.ahead_ns, clock.error_ns) == (4_500_000_000, S // 2)
