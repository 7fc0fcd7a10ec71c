"""Streams under fire: workers killed, memory short, Ctrl-C, breaks (2.1, 2.3, 2.4, 2.8)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ArenaFull, DataLoader, IterableDataset, LoadTimeout, WorkerDied
from reader.engine.supervisor import Supervisor
from reader.processes import pool_registry
from tests.datasets import listen, tell
from tests.processes import (
    BOUND_S,
    Program,
    Wire,
    kill_and_wait,
    open_pid,
    patiently,
    wait_asleep,
    wait_gone,
    wait_until,
)
from tests.streams import Act, ActParts, Endless, Parts, PidParts, order_of, values_of, worker_id

MIB = 1 << 20

PARTS = [range(22), range(100, 122), range(200, 222)]
FEW = pytest.mark.parametrize("workers", [0, 2])


def run(batches: Any, most: int = 200, read: Callable[[Any], Any] = values_of) -> list[Any]:
    """Iterate to the end through every error; returns the values of batches, and errors."""
    found: list[Any] = []
    for _ in range(most):
        try:
            found.append(read(next(batches)))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)
    raise AssertionError("the epoch does not end")


def pool_of(loader: DataLoader) -> Any:
    (pool,) = pool_registry.snapshot()
    return pool


def kill_worker(loader: DataLoader, worker: int, is_noticed: bool = True) -> int:
    """Kill a worker, and return when the reader thread has seen it end, or before."""
    pid: int = loader.workers()[worker].pid
    kill_and_wait(pid)
    if is_noticed:
        wait_until(lambda: pool_of(loader).feeder.ended_workers() == [worker])
    return pid


def wait_idle(loader: DataLoader) -> None:
    """Return when every worker has answered all its tasks."""
    wait_until(lambda: not pool_of(loader).feeder.is_busy())


# ---- workers that die --------------------------------------------------------------------------


@pytest.mark.parametrize("is_noticed", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_01_worker_killed_between_epochs_costs_no_batch(workers: int, is_noticed: bool) -> None:
    with DataLoader(
        Parts(PARTS), batch_size=4, num_workers=workers, persistent_workers=True
    ) as loader:
        for epoch in range(4):
            assert run(iter(loader)) == order_of(PARTS, workers, 4)
            kill_worker(loader, epoch % workers, is_noticed)


@pytest.mark.parametrize("is_noticed", [True, False])
def test_01_worker_killed_after_a_break_costs_the_next_epoch_no_batch(is_noticed: bool) -> None:
    with DataLoader(Parts(PARTS), batch_size=4, num_workers=2, persistent_workers=True) as loader:
        for worker in (0, 1):
            next(iter(loader))
            kill_worker(loader, worker, is_noticed)
            assert run(iter(loader)) == order_of(PARTS, 2, 4)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("bad", [0, 101])
def test_01_shard_of_a_worker_killed_before_its_first_batch_begins_anew(
    method: str, bad: int, tmp_path: Path
) -> None:
    action = Act(signum=signal.SIGKILL, once=str(tmp_path / "once"))
    with DataLoader(
        ActParts(PARTS, bad, action), batch_size=4, num_workers=2, start_method=method
    ) as loader:
        assert run(iter(loader)) == order_of(PARTS, 2, 4)
    assert os.path.exists(tmp_path / "once")


def test_01_workers_that_die_before_their_first_batch_again_are_given_up_one_by_one() -> None:
    """Each new process is killed: worker 0's shard is reported lost; the others go on."""
    with DataLoader(
        ActParts(PARTS, 2, Act(signum=signal.SIGKILL)),
        batch_size=4,
        num_workers=3,
        worker_retries=2,
        persistent_workers=True,
    ) as loader:
        for epoch in range(2):
            found = run(iter(loader))
            assert isinstance(found[0], WorkerDied)
            assert (found[0].worker_id, found[0].batch, found[0].epoch) == (0, 0, epoch)
            assert found[0].indices is None
            assert "3 workers died" in "\n".join(found[0].__notes__)
            assert found[1:] == [b for b in order_of(PARTS, 3, 4) if b[0] >= 100]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("bad", [9, 21])
def test_01_worker_killed_after_some_batches_is_reported_in_its_place_and_the_others_go_on(
    workers: int, bad: int, tmp_path: Path
) -> None:
    action = Act(signum=signal.SIGKILL, once=str(tmp_path / "once"))
    wanted = order_of(PARTS, workers, 4)
    with DataLoader(
        ActParts(PARTS, bad, action), batch_size=4, num_workers=workers, persistent_workers=True
    ) as loader:
        found = run(iter(loader))
        place = wanted.index([v for v in PARTS[0] if v // 4 == bad // 4])
        assert found[:place] == wanted[:place]
        error = found[place]
        assert isinstance(error, WorkerDied)
        assert (error.worker_id, error.batch, error.epoch) == (0, place, 0)
        assert error.signal_name == "SIGKILL"
        assert "The rest of what worker 0" in str(error)
        assert found[place + 1 :] == [b for b in wanted[place:] if b[0] >= 100]
        assert run(iter(loader)) == wanted


@pytest.mark.parametrize("prefetch_factor", [1, 2, 4])
@pytest.mark.parametrize(("workers", "bad"), [(1, 9), (2, 9), (2, 110), (3, 9), (3, 209)])
def test_06_state_saved_behind_a_death_goes_on_as_the_run_does(
    workers: int, bad: int, prefetch_factor: int, tmp_path: Path
) -> None:
    options: Any = {"batch_size": 2, "num_workers": workers, "prefetch_factor": prefetch_factor}
    action = Act(signum=signal.SIGKILL, once=str(tmp_path / "once"))
    found: list[Any] = []
    states = []
    with DataLoader(ActParts(PARTS, bad, action), **options) as loader:
        batches = iter(loader)
        while True:
            try:
                found.append(values_of(next(batches)))
            except StopIteration:
                break
            except WorkerDied as error:
                found.append(error)
            states.append(loader.state_dict())
    place = [isinstance(each, WorkerDied) for each in found].index(True)
    with DataLoader(Parts(PARTS), **options) as loader:
        for at in {place, place + 1, place + 2, place + 3, len(found) - 1} & {*range(len(found))}:
            loader.load_state_dict(states[at])
            assert run(iter(loader)) == found[at + 1 :], f"behind {found[at]}"
        loader.load_state_dict(states[place - 1])
        assert run(iter(loader)) == order_of(PARTS, workers, 2)[place:]


@pytest.mark.parametrize("taken", [1, 2, 3])
@pytest.mark.parametrize("is_noticed", [True, False])
def test_01_worker_killed_while_idle_in_the_epoch_never_gives_a_sample_twice(
    taken: int, is_noticed: bool
) -> None:
    """It answered all its tasks; the items it had not yielded are reported lost."""
    wanted = order_of(PARTS, 2, 2)
    with DataLoader(Parts(PARTS), batch_size=2, num_workers=2, persistent_workers=True) as loader:
        batches = iter(loader)
        found = [values_of(next(batches)) for _ in range(taken)]
        wait_idle(loader)
        kill_worker(loader, 1, is_noticed)
        found += run(batches)
        errors = [item for item in found if isinstance(item, Exception)]
        assert [type(error) for error in errors] == [WorkerDied]
        values = [item for item in found if isinstance(item, list)]
        of_0 = [batch for batch in values if batch[0] < 100]
        of_1 = [batch for batch in values if batch[0] >= 100]
        assert of_0 == order_of(PARTS, 1, 2)
        assert of_1 == order_of(PARTS[1:], 1, 2)[: len(of_1)]
        assert taken // 2 <= len(of_1) < 11
        assert run(iter(loader)) == wanted


def test_01_worker_killed_when_its_shard_is_delivered_loses_nothing() -> None:
    """Its end was sent and seen; it has nothing left to lose."""
    parts = [range(40), range(100, 102)]
    with DataLoader(Parts(parts), batch_size=2, num_workers=2) as loader:
        batches = iter(loader)
        found = [values_of(next(batches)) for _ in range(8)]
        wait_idle(loader)
        kill_worker(loader, 1)
        found += run(batches)
    assert found == order_of(parts, 2, 2)


def test_01_worker_killed_after_its_stream_ended_loses_nothing() -> None:
    """Its end lies in the queue, and the consumer has not seen it yet."""
    parts = [range(40), range(0)]
    with DataLoader(Parts(parts), batch_size=2, num_workers=2) as loader:
        batches = iter(loader)
        wait_idle(loader)
        kill_worker(loader, 1)
        assert run(batches) == order_of(parts, 2, 2)


class Uneven(IterableDataset[int]):
    """Worker 0 yields 0 to 9 and waits before 1; any other yields 100 alone."""

    def __init__(self, says: str, gate: str) -> None:
        self.says = says
        self.gate = gate

    def __iter__(self) -> Iterator[int]:
        if worker_id():
            yield 100
            return
        for value in range(10):
            if value == 1:
                tell(self.says, "waits")
                listen(self.gate)
            yield value


def test_01_worker_killed_before_its_end_is_delivered_does_not_begin_again(
    says: Wire, gate: Wire
) -> None:
    dataset = Uneven(says.path, gate.path)
    # three in flight for two workers: the turn of worker 1 comes while its end is in the queue
    options: Any = {"num_workers": 2, "prefetch_factor": 1, "places": ["cpu"] * 3}
    with DataLoader(dataset, batch_size=1, **options) as loader:

        def kill() -> None:
            says.hear()
            feeder = pool_of(loader).feeder

            def are_those_of_worker_0() -> bool:  # worker 1 has answered two of five
                stats = feeder.stats()
                return (stats["dispatched"], stats["in_flight"]) == (5, 2)

            wait_until(are_those_of_worker_0)
            pid = kill_worker(loader, 1, is_noticed=False)
            wait_until(lambda: loader.workers()[1].pid != pid)
            gate.say()

        killer = threading.Thread(target=kill)
        killer.start()
        found = [int(batch[0]) for group in loader for batch in group]
        killer.join()
    assert found == [0, 100, *range(1, 10)]


def test_01_every_worker_killed_in_the_epoch_ends_it_with_an_error_of_each() -> None:
    with DataLoader(Parts(PARTS), batch_size=2, num_workers=3, persistent_workers=True) as loader:
        batches = iter(loader)
        next(batches)
        wait_idle(loader)
        for worker in range(3):
            kill_worker(loader, worker, is_noticed=False)
        found = run(batches)
        died = [item for item in found if isinstance(item, Exception)]
        assert {type(error) for error in died} == {WorkerDied}
        assert sorted(error.worker_id for error in died) == [0, 1, 2]
        assert run(iter(loader)) == order_of(PARTS, 3, 2)


def test_02_batches_of_a_killed_worker_stay_what_they_are() -> None:
    with DataLoader(PidParts(PARTS), batch_size=4, num_workers=1) as loader:
        batches = iter(loader)
        kept = [next(batches), next(batches)]
        kill_and_wait(int(kept[0][2][0]))
        rest = run(batches)
        assert [values_of(batch) for batch in kept] == order_of(PARTS, 1, 4)[:2]
        assert [type(e) for e in rest if isinstance(e, Exception)] == [WorkerDied]


# ---- memory ------------------------------------------------------------------------------------


class Large(IterableDataset[Any]):
    """Worker w yields `count` arrays of `nbytes`, filled with 100 w + 0, 1, 2, ..."""

    def __init__(self, nbytes: int, count: int, gate: str | None = None, at: int = 0) -> None:
        self.nbytes = nbytes
        self.count = count
        self.gate = gate  # what worker 0 waits for before its value `at`
        self.at = at

    def __iter__(self) -> Iterator[Any]:
        for value in range(self.count):
            if self.gate is not None and worker_id() == 0 and value == self.at:
                listen(self.gate)
            yield np.full(self.nbytes, (100 * worker_id() + value) % 256, np.uint8)


def filled(batch: Any) -> int:
    assert (batch[..., ::4096] == batch.flat[0]).all()
    return int(batch.flat[0])


def in_circle(workers: int, count: int) -> list[int]:
    return [(100 * w + v) % 256 for v in range(count) for w in range(max(1, workers))]


@pytest.mark.parametrize(
    ("workers", "collate"),  # without workers what a collate_fn returns needs no arena
    [(0, None), (2, None), (2, np.stack)],
    ids=["0-stack", "2-stack", "2-collate"],
)
def test_08_full_arena_loses_no_batch_of_a_stream(workers: int, collate: Any) -> None:
    """Whenever it is full the user drops the kept batches, and the very next batch comes."""
    with DataLoader(
        Large(2 * MIB, 40),
        batch_size=1,
        num_workers=workers,
        collate_fn=collate,
        max_bytes=32 * MIB,
        persistent_workers=True,
    ) as loader:
        for epoch in range(2):
            batches = iter(loader)
            kept: list[Any] = []
            found: list[int] = []
            texts: list[tuple[str, str]] = []
            while True:
                try:
                    kept.append(next(batches))
                except StopIteration:
                    break
                except ArenaFull as error:
                    place = len(found) + len(kept)
                    texts.append((f"batch {place} of epoch {epoch}", str(error)))
                    assert kept
                    found += map(filled, kept)
                    kept.clear()
            found += map(filled, kept)
            kept.clear()
            assert len(texts) >= 2
            assert all(place in text for place, text in texts)
            assert found == in_circle(workers, 40)


@FEW
def test_08_full_arena_is_reported_until_memory_is_free(workers: int) -> None:
    with DataLoader(
        Large(2 * MIB, 20), batch_size=1, num_workers=workers, max_bytes=24 * MIB
    ) as loader:
        batches = iter(loader)
        kept: list[Any] = []
        texts: list[tuple[str, str]] = []
        with pytest.raises(ArenaFull):
            for batch in batches:
                kept.append(batch)  # noqa: PERF402
        for _ in range(5):
            try:
                kept.append(next(batches))  # batches made ahead released their memory meanwhile
            except ArenaFull as error:
                texts.append((f"batch {len(kept)} of epoch 0", str(error)))
        assert len(texts) >= 2
        assert all(place in text for place, text in texts)
        found = [filled(each) for each in kept]
        kept.clear()
        del batch
        found += [filled(each) for each in batches]
        assert found == in_circle(workers, 20)


@pytest.mark.parametrize(("is_next", "count"), [(True, 20), (False, 20), (True, 6), (False, 6)])
def test_01_worker_killed_while_its_batch_waits_for_memory_is_reported(
    is_next: bool, count: int
) -> None:
    limit = 24 * MIB if count == 20 else 16 * MIB  # it has sent its end by then
    with DataLoader(Large(2 * MIB, count), batch_size=1, num_workers=2, max_bytes=limit) as loader:
        batches = iter(loader)
        kept: list[Any] = []
        with pytest.raises(ArenaFull):
            for batch in batches:
                kept.append(batch)  # noqa: PERF402
        turn = len(kept) % 2  # it waits for memory; the other one most likely does, too
        dead = turn if is_next else 1 - turn
        kill_worker(loader, dead)
        kept = [filled(each) for each in kept]
        del batch
        found = kept + run(batches, read=filled)
        errors = [each for each in found if not isinstance(each, int)]
        assert errors
        assert all(isinstance(error, WorkerDied) for error in errors)
        lost, alive = 100 * dead, 100 * (1 - dead)
        numbers = [each for each in found if isinstance(each, int)]
        assert [each for each in numbers if each // 100 != dead] == [*range(alive, alive + count)]
        first = found.index(errors[0])  # none of its batches comes after a lost one
        own = [each for each in found[:first] if each // 100 == dead]
        assert own == [*range(lost, lost + len(own))]
        assert first % 2 == dead


@FEW
def test_08_prefetching_alone_never_fills_the_arena_of_a_stream(workers: int) -> None:
    with DataLoader(
        Large(2 * MIB, 40),
        batch_size=1,
        num_workers=workers,
        prefetch_factor=16,
        max_bytes=12 * MIB,
        persistent_workers=True,
    ) as loader:
        for _ in range(2):
            assert [filled(batch) for batch in loader] == in_circle(workers, 40)


def test_08_batches_made_ahead_of_a_slow_worker_do_not_lock_it_out(gate: Wire) -> None:
    """Worker 1 fills the arena while worker 0, whose turn it is, has not begun."""
    with DataLoader(
        Large(2 * MIB, 20, gate.path),
        batch_size=1,
        num_workers=2,
        prefetch_factor=16,
        max_bytes=12 * MIB,
    ) as loader:
        batches = iter(loader)
        wait_until(lambda: pool_of(loader).feeder.worker_progress(1)[1] is None)
        gate.say()
        assert [filled(batch) for batch in batches] == in_circle(2, 20)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("at", range(1, 9))
def test_01_order_holds_when_memory_is_short_and_a_worker_is_late(at: int, gate: Wire) -> None:
    """A batch that found no memory is asked for after a late sample: nothing may overtake it."""
    with DataLoader(
        Large(2 * MIB, 12, gate.path, at),
        batch_size=1,
        num_workers=2,
        prefetch_factor=3,
        max_bytes=16 * MIB,
        timeout=0.1,
    ) as loader:
        batches = iter(loader)
        found: list[int] = []
        kept: list[Any] = []
        is_open = False
        while True:
            try:
                kept.append(next(batches))
            except StopIteration:
                break
            except LoadTimeout:
                if not is_open:
                    gate.say()
                    is_open = True
            except ArenaFull:
                assert kept
            else:
                continue
            found += map(filled, kept)
            kept.clear()
        found += map(filled, kept)
        kept.clear()
    assert is_open
    assert found == in_circle(2, 12)


def test_01_wait_interrupted_anywhere_loses_no_batch_when_memory_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each wait in turn ends as by a timeout or Ctrl-C: before a batch was taken."""
    true_wait = Supervisor.wait
    calls = iter(range(10**9))
    given_up = -1

    def wait(self: Supervisor) -> Any:
        if next(calls) == given_up:
            raise LoadTimeout("given up")
        return true_wait(self)

    monkeypatch.setattr(Supervisor, "wait", wait)
    for given_up in range(40):
        calls = iter(range(10**9))
        found: list[int] = []
        kept: list[Any] = []
        with DataLoader(
            Large(2 * MIB, 8), batch_size=1, num_workers=2, prefetch_factor=2, max_bytes=12 * MIB
        ) as loader:
            batches = iter(loader)
            for _ in range(100):
                try:
                    kept.append(next(batches))
                except StopIteration:
                    break
                except LoadTimeout:
                    continue
                except ArenaFull:
                    assert kept
                    found += map(filled, kept)
                    kept.clear()
            found += map(filled, kept)
            kept.clear()
        assert (given_up, found) == (given_up, in_circle(2, 8))


@FEW
def test_08_drop_last_and_short_batches_hold_when_memory_was_short(workers: int) -> None:
    """The batch that found no memory may be the short one: it stays the short one."""
    for drop_last in (False, True):
        for count in range(9, 15):
            with DataLoader(
                Large(1 * MIB, count),
                batch_size=2,
                num_workers=workers,
                drop_last=drop_last,
                prefetch_factor=1,
                max_bytes=12 * MIB,
                use_buffer_reader=False,
            ) as loader:
                rows: list[int] = []
                kept: list[Any] = []
                batches = iter(loader)
                while True:
                    try:
                        kept.append(next(batches))
                    except StopIteration:
                        break
                    except ArenaFull:
                        assert kept
                        rows += map(len, kept)
                        kept.clear()
                rows += map(len, kept)
                kept.clear()
            copies = max(1, workers)
            wanted = [2] * (count // 2 * copies) + [1] * (count % 2 * copies)
            assert rows == ([2] * (count // 2 * copies) if drop_last else wanted)


@FEW
def test_08_batch_of_a_stream_that_never_fits_is_reported_repeatedly(workers: int) -> None:
    """It is never skipped silently, and close() ends it."""
    with DataLoader(
        Large(8 * MIB, 3), batch_size=1, num_workers=workers, max_bytes=4 * MIB
    ) as loader:
        batches = iter(loader)
        for _ in range(3):
            with pytest.raises(ArenaFull, match="batch 0 of epoch 0"):
                next(batches)


# ---- waiting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_04_timeout_of_a_stream_is_raised_and_the_batch_still_arrives(
    workers: int, says: Wire, gate: Wire, tmp_path: Path
) -> None:
    action = Act(says.path, gate.path, once=str(tmp_path / "once"))
    with DataLoader(
        ActParts(PARTS, 9, action), batch_size=4, num_workers=workers, timeout=0.15
    ) as loader:
        batches = iter(loader)
        wanted = order_of(PARTS, workers, 4)
        place = wanted.index([8, 9, 10, 11])
        found = [values_of(patiently(batches)) for _ in range(place)]
        says.hear()
        for _ in range(2):
            with pytest.raises(LoadTimeout, match=f"batch {place} of epoch 0"):
                next(batches)
        gate.say()
        while len(found) < len(wanted):
            found.append(values_of(patiently(batches)))
        assert found == wanted
        with pytest.raises(StopIteration):
            patiently(batches)


CAUGHT = """
    import sys
    from reader import DataLoader
    from tests.streams import Act, ActParts, order_of, values_of

    WORKERS, COLLATE, SAYS, HEARS, ONCE = sys.argv[1:]
    PARTS = [range(0, 22), range(100, 122)]

    if __name__ == "__main__":
        dataset = ActParts(PARTS, 9, Act(SAYS, HEARS, once=ONCE))
        wanted = order_of(PARTS, int(WORKERS), 4)
        loader = DataLoader(dataset, batch_size=4, num_workers=int(WORKERS))
        batches = iter(loader)
        found = [next(batches), next(batches)]
        try:
            print("waiting", flush=True)
            while True:
                found.append(next(batches))
        except KeyboardInterrupt:
            print("caught", flush=True)
        found += batches
        print([values_of(batch) for batch in found] == wanted, flush=True)
        print([values_of(batch) for batch in loader] == wanted, flush=True)
"""


def test_04_ctrl_c_while_waiting_for_a_stream_loses_no_batch(
    program: Callable[..., Program], says: Wire, gate: Wire, tmp_path: Path
) -> None:
    trainer = program(CAUGHT, "2", "", says.path, gate.path, f"{tmp_path}/once")
    assert trainer.line() == "waiting"
    says.hear()
    wait_asleep(trainer.process.pid)
    trainer.interrupt(signal.SIGINT)
    assert trainer.line() == "caught"
    gate.say()
    assert trainer.line() == "True"
    assert trainer.line() == "True"
    assert trainer.finish() == (0, "", "")


@pytest.mark.parametrize("action", ["draws", "waits"])
def test_03_workers_of_a_stream_end_at_once_when_their_trainer_dies(
    program: Callable[..., Program], says: Wire, gate: Wire, action: str
) -> None:
    trainer = program(
        """
        import sys, threading
        from reader import DataLoader
        from tests.streams import Act, ActParts, Endless

        ACTION, SAYS, HEARS = sys.argv[1:]

        if __name__ == "__main__":
            dataset = (Endless() if ACTION == "draws" else
                       ActParts([range(40)] * 2, 9, Act(SAYS, HEARS)))
            size = 1 << 40 if ACTION == "draws" else 2
            collate = list if ACTION == "draws" else None
            loader = DataLoader(dataset, batch_size=size, collate_fn=collate, num_workers=2)
            batches = iter(loader)
            print(*(worker.pid for worker in loader.workers()), flush=True)
            next(batches) if ACTION == "draws" else list(batches)
        """,
        action,
        says.path,
        gate.path,
    )
    pids = [int(pid) for pid in trainer.line().split()]
    if action == "waits":
        says.hear()
    workers = [open_pid(pid) for pid in pids]
    trainer.process.kill()
    wait_gone(workers)
    assert trainer.finish() == (-signal.SIGKILL, "", "")


# ---- generators that are given up --------------------------------------------------------------


class Careful(IterableDataset[int]):
    """Says "open" and, in its finally block, "shut"."""

    def __init__(self, says: str) -> None:
        self.says = says

    def __iter__(self) -> Iterator[int]:
        tell(self.says, "open")
        try:
            yield from range(1000)
        finally:
            tell(self.says, "shut")


@pytest.mark.parametrize("way", ["break", "del", "close", "loader.close", "error"])
@pytest.mark.parametrize("workers", [0, 1])
def test_03_abandoned_generator_is_closed(workers: int, way: str, says: Wire) -> None:
    loader = DataLoader(Careful(says.path), batch_size=2, num_workers=workers)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    assert says.hear() == "open"
    if way == "close":
        batches.close()  # type: ignore[attr-defined]
    elif way == "loader.close":
        loader.close()
    elif way == "error":
        with pytest.raises(ZeroDivisionError):
            for _ in batches:
                raise ZeroDivisionError
    else:
        for _ in batches:
            break
    del batches
    assert says.hear() == "shut"


@pytest.mark.parametrize("workers", [0, 1])
def test_03_abandoned_generator_is_closed_before_the_next_one_opens(
    workers: int, says: Wire
) -> None:
    with DataLoader(
        Careful(says.path), batch_size=2, num_workers=workers, persistent_workers=True
    ) as loader:
        for _ in range(3):
            assert next(iter(loader)).tolist() == [0, 1]
    assert [says.hear() for _ in range(6)] == ["open", "shut"] * 3


def test_03_close_returns_though_a_stream_never_yields() -> None:
    for collate in (None, list):
        for workers in (1, 2):
            loader = DataLoader(
                Endless(), batch_size=1 << 40, collate_fn=collate, num_workers=workers
            )
            batches = iter(loader)
            closer = threading.Timer(0.05, loader.close)
            closer.start()
            with pytest.raises(Exception, match="closed"):
                next(batches)
            closer.join(BOUND_S)
            assert not closer.is_alive()
