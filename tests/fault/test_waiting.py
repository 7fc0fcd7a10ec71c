"""Waiting: deadlines are real, the GIL is not needed, nothing hangs (2.4, 2.5, 2.9)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reader import BlockingQueue, DataLoader, LoadTimeout
from reader.engine.backends.backend import WorkerActivity
from reader.engine.supervisor import Supervisor
from tests.datasets import PidRows, Rows, Slow, Stuck, check_rows, tell
from tests.processes import BOUND_S, Wire, kill_and_wait, patiently, wait_until
from tests.streams import Items

pytestmark = pytest.mark.alone  # the length of a wait is measured
WORKERS = pytest.mark.parametrize("workers", [0, 2])
ROUNDS = 400  # of 50 ms: 20 s for workers that the machine stalls


@pytest.mark.parametrize("workers", [1, 2])
def test_05_trainer_that_holds_the_gil_finds_its_queue_full(workers: int) -> None:
    hold = ctypes.PyDLL(None).usleep
    with DataLoader(
        Rows(400), batch_size=4, num_workers=workers, prefetch_factor=8, persistent_workers=True
    ) as loader:
        list(loader)  # the workers run, and their slots are warm
        batches = iter(loader)
        next(batches)
        for _ in range(ROUNDS):
            hold(50_000)
            if loader.stats()["queued"] == 8 * workers:
                break
        assert loader.stats()["queued"] == 8 * workers


def test_05_reader_thread_orders_batches_without_the_gil() -> None:
    hold = ctypes.PyDLL(None).usleep
    with DataLoader(
        Rows(4000), batch_size=1, num_workers=3, prefetch_factor=16, persistent_workers=True
    ) as loader:
        list(loader)
        batches = iter(loader)
        check_rows(next(batches), [0])
        for round_ in range(3):
            for _ in range(ROUNDS):
                hold(50_000)
                if loader.stats()["queued"] == 48:
                    break
            assert loader.stats()["queued"] == 48
            for n in range(48):
                check_rows(next(batches), [48 * round_ + n + 1])


@pytest.mark.parametrize("workers", [2])  # without workers it comes when the batch is made
def test_04_timeout_is_raised_and_the_batch_still_arrives_later(
    workers: int, says: Wire, gate: Wire, tmp_path: Path
) -> None:
    dataset = Stuck(9, says.path, gate.path, str(tmp_path / "once"))
    with DataLoader(dataset, batch_size=4, num_workers=workers, timeout=0.15) as loader:
        batches = iter(loader)
        for n in range(2):
            check_rows(patiently(batches), range(4 * n, 4 * n + 4))
        pid = says.hear()
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(LoadTimeout, match=r"batch 2 of epoch 0.*timeout=0\.15") as info:
                next(batches)
            assert time.monotonic() - began >= 0.14
        assert info.value.timeout_s == 0.15
        assert (info.value.batch, info.value.epoch) == (2, 0)
        if workers:
            assert pid in str(info.value)
        assert "dataset index 9" in str(info.value)
        gate.say()
        for n in range(2, 16):
            check_rows(patiently(batches), range(4 * n, 4 * n + 4))
        with pytest.raises(StopIteration):
            next(batches)


@WORKERS
def test_04_timeout_is_a_deadline_of_one_batch_and_not_of_the_epoch(workers: int) -> None:
    with DataLoader(Slow(0.02, 12), batch_size=1, num_workers=workers, timeout=BOUND_S) as loader:
        assert len(list(loader)) == 12


def test_04_new_epoch_waits_for_nothing_of_the_one_before(
    says: Wire, gate: Wire, make_wire: Callable[[], Wire], tmp_path: Path
) -> None:
    made = make_wire()
    dataset = StuckThenTells(20, says.path, gate.path, str(tmp_path / "once"), made.path)
    with DataLoader(
        dataset, batch_size=4, num_workers=2, prefetch_factor=1, persistent_workers=True
    ) as loader:
        for n, batch in enumerate(loader):
            check_rows(batch, range(4 * n, 4 * n + 4))
            if n == 4:
                says.hear()  # one worker is stuck in batch 5 of an epoch that is given up now
                made.hear()  # and the other is at batch 6, which it can make
                break
        wait_until(lambda: any(each.activity is WorkerActivity.IDLE for each in loader.workers()))
        threading.Event().wait(0.2)  # it sends its answer just after that
        batches = iter(loader)
        check_rows(next(batches), range(4))
        gate.say()
        for n in range(1, 16):
            check_rows(next(batches), range(4 * n, 4 * n + 4))


class StuckThenTells(Stuck):
    """Stuck, and reports when sample 24 is made."""

    def __init__(self, at: int, says: str, hears: str, once: str, made: str) -> None:
        super().__init__(at, says, hears, once)
        self.made = made

    def __getitem__(self, index: int) -> Any:
        if index == 24:
            tell(self.made, "made")
        return super().__getitem__(index)


def test_04_fast_worker_waits_for_a_slow_one_only_when_its_tasks_are_done(
    says: Wire, gate: Wire, tmp_path: Path
) -> None:
    dataset = Stuck(0, says.path, gate.path, str(tmp_path / "once"))
    with DataLoader(dataset, batch_size=1, num_workers=2, prefetch_factor=4) as loader:
        batches = iter(loader)
        says.hear()
        gate.say()
        for n in range(64):
            check_rows(next(batches), [n])


def test_stats_say_how_long_the_trainer_waited(says: Wire, gate: Wire, tmp_path: Path) -> None:
    dataset = Stuck(0, says.path, gate.path, str(tmp_path / "once"))
    with DataLoader(dataset, batch_size=4, num_workers=1) as loader:
        release = threading.Timer(0.2, gate.say)
        release.start()
        batches = iter(loader)
        next(batches)
        found = loader.stats()
        assert found["batches"] == 1
        assert found["wait_s"] >= 0.1
        assert found["last_wait_s"] == pytest.approx(found["wait_s"])
        release.join()
        for _ in batches:
            pass
        assert loader.stats()["batches"] == 16


def test_04_ctrl_c_while_a_worker_is_forked_comes_after_and_leaves_nothing(program: Any) -> None:
    # a handler that raises in a callback of a fork would be dropped by Python with a message
    trainer = program(
        """
        import gc, multiprocessing, os, signal
        from reader import DataLoader

        kept = []
        handler = lambda *args: (kept.append(args), signal.default_int_handler(*args))
        signal.signal(signal.SIGINT, handler)
        armed = [True]
        os.register_at_fork(
            before=lambda: armed and armed.pop() and os.kill(os.getpid(), signal.SIGINT)
        )
        loader = DataLoader(range(8), num_workers=2, start_method="fork")
        try:
            list(loader)
        except KeyboardInterrupt:
            print("caught", len(kept), signal.getsignal(signal.SIGINT) is handler)
        print([batch.tolist() for batch in loader] == [[n] for n in range(8)])
        loader.close()
        print(len(multiprocessing.active_children()))
        """
    )
    assert trainer.finish() == (0, "caught 1 True\nTrue\n0\n", "")


@pytest.mark.parametrize("kind", ["rows", "parts"])
def test_01_ctrl_c_while_a_dead_worker_is_replaced_costs_no_batch(program: Any, kind: str) -> None:
    # Ctrl-C comes while the successor is forked: the dead worker's tasks must not be lost
    trainer = program(
        """
        import os, signal, sys
        from reader import DataLoader
        from tests.processes import kill_and_wait
        from tests.datasets import Rows
        from tests.streams import Parts

        parts = [range(40), range(100, 140)]
        dataset = Rows(80) if sys.argv[1] == "rows" else Parts(parts)
        loader = DataLoader(dataset, batch_size=4, num_workers=2, start_method="fork")
        batches = iter(loader)
        for pid in [worker.pid for worker in loader.workers()]:
            os.kill(pid, signal.SIGSTOP)  # before they answer anything, mostly
            kill_and_wait(pid)
        armed = [True]
        os.register_at_fork(
            before=lambda: armed and armed.pop() and os.kill(os.getpid(), signal.SIGINT)
        )
        found, caught = 0, 0
        while True:
            try:
                next(batches)
                found += 1
            except KeyboardInterrupt:
                caught += 1
            except StopIteration:
                break
            except Exception as error:
                print(type(error).__name__)
        print(found, caught)
        """,
        kind,
    )
    status, out, err = trainer.finish()
    assert status == 0, err
    lines = out.splitlines()
    # the shard of a worker that answered before it died is lost, and reported
    assert lines == ["20 1"] or (kind == "parts" and "WorkerDied" in lines), out


@pytest.mark.parametrize("after", [False, True])
def test_01_ctrl_c_before_or_after_a_death_is_handled_loses_no_batch(
    after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DataLoader(PidRows(64), batch_size=4, num_workers=2, worker_retries=5) as loader:
        batches = iter(loader)
        found = [next(batches)]
        attend, interrupts = Supervisor._attend, [KeyboardInterrupt]

        def interrupted(supervisor: Any) -> None:
            if after:
                attend(supervisor)
            if interrupts:
                raise interrupts.pop()
            if not after:
                attend(supervisor)

        monkeypatch.setattr(Supervisor, "_attend", interrupted)
        for pid in [worker.pid for worker in loader.workers()]:
            kill_and_wait(pid)
        while len(found) < 16:
            with contextlib.suppress(KeyboardInterrupt):
                found.append(next(batches))
        assert not interrupts
    for n, batch in enumerate(found):
        check_rows(batch, range(4 * n, 4 * n + 4))


def test_07_interrupts_are_held_back_in_the_main_thread_alone() -> None:
    from reader._core.interpreter.signals import interrupt_after

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupt_after():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached
    assert signal.getsignal(signal.SIGINT) is before
    seen: list[Any] = []

    def elsewhere() -> None:
        with interrupt_after():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupt_after():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


# ---- the queue by itself ---------------------------------------------------------------------


def test_04_queue_waits_are_answered_by_ctrl_c(program: Any) -> None:
    from tests.processes import wait_asleep

    for action in ("pop", "push", "pop timeout"):
        trainer = program(
            """
            import sys
            from reader import BlockingQueue
            import numpy as np

            queue = BlockingQueue(1)
            if sys.argv[1] == "push":
                queue.push([np.ones(1)])
            try:
                print("waiting", flush=True)
                if sys.argv[1] == "push":
                    queue.push([np.ones(2)])
                else:
                    queue.pop(timeout=1000 if "timeout" in sys.argv[1] else None)
            except KeyboardInterrupt:
                print("caught", queue.size(), flush=True)
            """,
            action,
        )
        assert trainer.line() == "waiting"
        wait_asleep(trainer.process.pid)
        trainer.interrupt()
        assert trainer.line() == f"caught {1 if action == 'push' else 0}"
        assert trainer.finish() == (0, "", "")


def test_04_queue_in_a_program_that_ends_while_threads_wait_is_silent(program: Any) -> None:
    trainer = program(
        """
        import threading
        import numpy as np
        from reader import BlockingQueue

        queue = BlockingQueue(1)
        full = BlockingQueue(1)
        full.push([np.ones(1)])
        threading.Thread(target=queue.pop, daemon=True).start()
        threading.Thread(target=full.push, args=([np.ones(1)],), daemon=True).start()
        print("ends", flush=True)
        """
    )
    assert trainer.finish() == (0, "ends\n", "")


def test_queue_pop_timeout_does_not_starve_another_thread() -> None:
    queue = BlockingQueue(1)
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(queue.pop(timeout=BOUND_S)))
    thread.start()
    with pytest.raises(LoadTimeout):
        BlockingQueue(1).pop(timeout=0.01)
    queue.push([[1.0]])
    thread.join(BOUND_S)
    assert got == [[[1.0]]]


class Opened:
    """An object that is interrupted, once, when the trainer opens it."""

    trainer = 0
    left = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return rebuilt, (self.number,)


def rebuilt(number: int) -> int:
    if os.getpid() == Opened.trainer and number == 3 and Opened.left:
        Opened.left -= 1
        raise KeyboardInterrupt
    return number


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("is_stream", [False, True])
def test_04_ctrl_c_while_a_batch_is_opened_loses_nothing(places: int, is_stream: bool) -> None:
    Opened.trainer, Opened.left = os.getpid(), 2
    objects = [Opened(number) for number in range(8)]
    data: Any = Items(objects) if is_stream else objects
    with DataLoader(
        data, batch_size=None, num_workers=1, places=["cpu"] * places, start_method="fork"
    ) as loader:
        batches = iter(loader)
        found: list[int] = []
        interrupts = 0
        while True:
            try:
                step = next(batches)
                found += step if places > 1 else [step]
            except KeyboardInterrupt:
                interrupts += 1
            except StopIteration:
                break
    assert (found, interrupts) == (list(range(8)), 2)
