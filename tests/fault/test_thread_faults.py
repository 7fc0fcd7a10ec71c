"""Worker threads that are stuck, interrupted, abandoned or refused: nothing hangs or stays."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, LoadTimeout, ReaderError
from reader.errors import InternalError
from reader.worker import loop
from tests.datasets import Augmented, Calls, Rows, Stuck, check_rows, digest_of, listen, tell
from tests.processes import BOUND_S, Program, Wire, patiently, wait_until

THREADS: dict[str, Any] = {"num_workers": 2, "worker_type": "thread"}


def worker_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("reader-worker")]


def test_04_close_does_not_wait_for_a_thread_that_is_stuck(says: Wire, gate: Wire) -> None:
    loader = DataLoader(Stuck(5, says.path, gate.path), batch_size=4, **THREADS)
    batches = iter(loader)
    check_rows(next(batches), range(4))
    says.hear()
    loader.close()
    wait_until(lambda: len(worker_threads()) == 1)
    gate.say()
    wait_until(lambda: not worker_threads())  # it ends with the sample it was making


def test_03_resting_threads_close_their_pool_without_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def note(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    loader = DataLoader(Rows(16), batch_size=4, **THREADS)
    for _ in loader:
        pass
    wait_until(lambda: not worker_threads())
    loader.close()
    assert started == ["reader-worker-0", "reader-worker-1"]


def test_04_close_does_not_wait_for_a_generator_that_is_stuck_at_its_end(
    says: Wire, gate: Wire
) -> None:
    class Stream:
        def __iter__(self) -> Any:
            try:
                yield from range(1000)
            finally:
                tell(says.path, "ending")
                listen(gate.path)

    loader = DataLoader(Stream(), batch_size=4, num_workers=1, worker_type="thread")
    batches = iter(loader)
    next(batches)
    wait_until(lambda: all(each.activity.value == "idle" for each in loader.workers()))
    del batches
    says.hear()
    loader.close()
    assert worker_threads() == ["reader-worker-0"]
    gate.say()
    wait_until(lambda: not worker_threads())


@pytest.mark.parametrize("collate_fn", [None, list])
def test_03_thread_ends_after_the_sample_it_is_at(collate_fn: Any, says: Wire, gate: Wire) -> None:
    after: list[int] = []

    class Counts(Stuck):
        def __getitem__(self, index: int) -> Any:
            if index > self.at:
                after.append(index)
            return super().__getitem__(index)

    dataset = Counts(2, says.path, gate.path)
    loader = DataLoader(
        dataset, batch_size=64, num_workers=1, worker_type="thread", collate_fn=collate_fn
    )
    batches = iter(loader)
    says.hear()
    del batches
    gate.say()
    wait_until(lambda: not worker_threads())
    assert after == []


def test_07_random_state_comes_back_from_a_thread_that_is_stuck(says: Wire, gate: Wire) -> None:
    random.seed(3)
    np.random.seed(3)
    before = repr((random.getstate(), np.random.get_state(legacy=False)))
    loader = DataLoader(Stuck(1, says.path, gate.path), batch_size=4, seed=1, **THREADS)
    batches = iter(loader)
    refused: list[BaseException] = []

    def wait() -> None:
        with pytest.raises(ReaderError) as info:
            next(batches)
        refused.append(info.value)

    waiter = threading.Thread(target=wait)
    waiter.start()
    says.hear()
    loader.close()
    waiter.join(BOUND_S)
    assert "closed" in str(refused.pop())
    assert repr((random.getstate(), np.random.get_state(legacy=False))) == before
    found = []  # and another loader gets the random state while that thread is still stuck
    for options in (THREADS, {"num_workers": 1}):
        with DataLoader(Augmented(8), batch_size=4, seed=2, **options) as other:
            found.append(digest_of(other))
    assert found[0] == found[1]
    gate.say()
    wait_until(lambda: not worker_threads())
    assert repr((random.getstate(), np.random.get_state(legacy=False))) == before


def test_04_late_batch_names_the_thread_and_comes_later(
    says: Wire, gate: Wire, tmp_path: Path
) -> None:
    dataset = Stuck(5, says.path, gate.path, str(tmp_path / "once"))
    with DataLoader(dataset, batch_size=4, timeout=0.15, **THREADS) as loader:
        batches = iter(loader)
        check_rows(patiently(batches), range(4))
        says.hear()
        with pytest.raises(LoadTimeout, match=r"thread 1 has been at batch 1, sample 1 \(dat"):
            next(batches)
        gate.say()
        for n in range(1, 16):
            check_rows(patiently(batches), range(4 * n, 4 * n + 4))


def test_04_new_epoch_does_not_wait_for_a_thread_that_is_stuck(
    says: Wire, gate: Wire, tmp_path: Path
) -> None:
    dataset = Stuck(5, says.path, gate.path, str(tmp_path / "once"), count=40)
    with DataLoader(dataset, batch_size=4, persistent_workers=True, **THREADS) as loader:
        batches = iter(loader)
        check_rows(next(batches), range(4))
        says.hear()
        del batches
        again = iter(loader)
        for n in range(10):
            check_rows(next(again), range(4 * n, 4 * n + 4))
        gate.say()


def test_exception_of_worker_init_fn_is_raised_and_the_threads_end() -> None:
    def refuse(worker_id: int) -> None:
        if worker_id == 1:
            raise RuntimeError("not today")

    with (
        DataLoader(Rows(8), worker_init_fn=refuse, **THREADS) as loader,
        pytest.raises(RuntimeError, match="not today") as info,
    ):
        list(loader)
    assert "the start of worker thread 1" in "\n".join(info.value.__notes__)  # type: ignore[attr-defined]


def test_threads_that_the_system_refuses_are_an_error_and_leave_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "reader-worker-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ReaderError, match=r"cannot start the worker thread 1: can't .*ulimit -u"):
        iter(DataLoader(Rows(8), **THREADS))
    wait_until(lambda: not worker_threads())


def test_04_thread_that_ends_by_a_fault_of_ours_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise LookupError("a fault")

    monkeypatch.setattr(loop, "run", fail)
    with (
        DataLoader(Rows(8), **THREADS) as loader,
        pytest.raises(InternalError, match=r"worker thread [01] ended: LookupError"),
    ):
        list(loader)


def test_fork_with_threads_at_work_leaves_the_child_able_to_load() -> None:
    dataset = Rows(64)
    with DataLoader(dataset, batch_size=4, persistent_workers=True, seed=1, **THREADS) as loader:
        batches = iter(loader)
        check_rows(next(batches), range(4))
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            answer = b"?"
            try:
                try:
                    next(batches)
                except ReaderError as error:
                    answer = b"refused, " if "after the fork" in str(error) else b"odd, "
                answer += b"%d" % len(list(loader))
                loader.close()
            finally:
                os.write(write, answer)
                os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(read, 99) == b"refused, 16"
        os.close(read)
        os.close(write)
        for n in range(1, 16):
            check_rows(next(batches), range(4 * n, 4 * n + 4))


PROGRAM = """
import sys, threading, time
from reader import DataLoader

reached = threading.Event()

class Slow:
    def __len__(self):
        return 64
    def __getitem__(self, index):
        if index == 9:
            print("stuck", flush=True)
            reached.set()
            {stuck}
        return index

loader = DataLoader(Slow(), batch_size=4, num_workers=2, worker_type="thread", {options})
batches = iter(loader)
try:
    for n, batch in enumerate(batches):
        {body}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

SLEEPS = "threading.Event().wait()"
TURNS = "while True: pass"
STUCK = pytest.mark.parametrize("stuck", [SLEEPS, TURNS], ids=["sleeps", "computes"])


@pytest.mark.sampled(2)
@STUCK
@pytest.mark.parametrize("options", ["", "seed=1", "persistent_workers=True"])
def test_04_ctrl_c_is_answered_while_a_thread_is_stuck_and_the_program_ends(
    program: Callable[..., Program], stuck: str, options: str
) -> None:
    started = program(PROGRAM.format(stuck=stuck, options=options, body="pass"))
    assert started.line() == "stuck"
    started.interrupt()
    assert started.finish() == (0, "interrupted\n", "")


@STUCK
def test_03_program_ends_though_a_thread_is_stuck(
    program: Callable[..., Program], stuck: str
) -> None:
    body = "reached.wait(); break"
    started = program(PROGRAM.format(stuck=stuck, options="prefetch_factor=4", body=body))
    assert started.line() == "stuck"
    assert started.finish() == (0, "", "")


def test_03_program_ends_while_threads_work(program: Callable[..., Program]) -> None:
    body = "reached.wait(); sys.exit(7)"
    options = "prefetch_factor=4, persistent_workers=True"
    started = program(PROGRAM.format(stuck="pass", options=options, body=body))
    assert started.finish() == (7, "stuck\n", "")


@pytest.mark.parametrize("worker_type", ["process", "thread"])
def test_03_program_ends_without_a_word_while_a_daemon_thread_iterates(
    program: Callable[..., Program], worker_type: str
) -> None:
    started = program(
        """
        import sys, threading
        from reader import DataLoader

        class Slow:
            def __len__(self):
                return 100_000
            def __getitem__(self, index):
                threading.Event().wait(0.001)
                return index

        begun = threading.Event()

        def train():
            for batch in DataLoader(Slow(), batch_size=4, num_workers=2, worker_type=sys.argv[1]):
                begun.set()

        threading.Thread(target=train, daemon=True).start()
        begun.wait()
        """,
        worker_type,
    )
    assert started.finish() == (0, "", "")


def test_04_ctrl_c_in_the_trainer_loses_nothing(program: Callable[..., Program]) -> None:
    started = program("""
        import time
        from reader import DataLoader

        class Slow:
            def __len__(self):
                return 40
            def __getitem__(self, index):
                time.sleep(0.02)
                return index

        found, caught = [], 0
        with DataLoader(Slow(), batch_size=2, num_workers=2, worker_type="thread") as loader:
            batches = iter(loader)
            while True:
                try:
                    found += next(batches).tolist()
                    if len(found) == 2:
                        print("going", flush=True)
                except KeyboardInterrupt:
                    caught += 1
                except StopIteration:
                    break
        print(found == list(range(40)), caught)
    """)
    assert started.line() == "going"
    started.interrupt()
    assert started.finish() == (0, "True 1\n", "")


def test_consumer_gets_batches_while_threads_compute_in_python() -> None:
    """Threads that never wait give the consumer its turns; the switch interval is not touched."""

    def compute(index: int) -> int:
        return sum(range(20_000)) and index

    with DataLoader(Calls(compute, 200), batch_size=2, **THREADS) as loader:
        assert [batch.tolist() for batch in loader] == [[n, n + 1] for n in range(0, 200, 2)]
