"""Epochs abandoned in the middle, and iterators dropped in odd orders (2.1, 2.3, 2.4, 2.9)."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from typing import Any

import pytest

from reader import DataLoader, ReaderError
from tests.datasets import Rows, Stuck, check_rows
from tests.ledger import Ledger, settle
from tests.processes import BOUND_S, ROOT, Wire


def make(workers: int, persistent: bool = False, count: int = 24, **options: Any) -> DataLoader:
    return DataLoader(
        Rows(count), batch_size=4, num_workers=workers, persistent_workers=persistent, **options
    )


def check_epoch(batches: Any, count: int = 24, first: int = 0) -> None:
    n = first
    for batch in batches:
        check_rows(batch, range(4 * n, min(count, 4 * n + 4)))
        n += 1
    assert n == -(-count // 4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_01_break_at_every_position_leaves_the_next_epoch_whole(
    workers: int, persistent: bool
) -> None:
    with make(workers, persistent) as loader:
        for position in range(6):
            for n, batch in enumerate(loader):
                check_rows(batch, range(4 * n, 4 * n + 4))
                if n == position:
                    break
            check_epoch(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_01_break_in_every_epoch_never_mixes_epochs(workers: int) -> None:
    with make(workers, True, count=400, seed=1, shuffle=True) as loader:
        for _ in range(100):
            epoch = loader.epoch
            again = DataLoader(Rows(400), batch_size=4, seed=1, shuffle=True).sampler
            again.set_epoch(epoch)
            wanted = list(again)
            for n, batch in enumerate(loader):
                check_rows(batch, wanted[4 * n : 4 * n + 4])
                if n == epoch % 5:
                    break


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_03_iterator_that_never_yielded_leaves_nothing(workers: int, persistent: bool) -> None:
    with make(workers, persistent) as loader:
        iter(loader)
        iter(loader)
        check_epoch(loader)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_09_two_live_iterators_of_one_loader_each_yield_everything(
    workers: int, persistent: bool
) -> None:
    with make(workers, persistent) as loader:
        first, second = iter(loader), iter(loader)
        for n in range(6):
            check_rows(next(first), range(4 * n, 4 * n + 4))
            check_rows(next(second), range(4 * n, 4 * n + 4))
        for batches in (second, first):
            with pytest.raises(StopIteration):
                next(batches)
        check_epoch(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_09_second_iterator_lives_on_when_the_first_is_dropped(workers: int) -> None:
    with make(workers, True) as loader:
        first = iter(loader)
        next(first)
        second = iter(loader)
        check_rows(next(second), range(4))
        del first
        check_rows(next(second), range(4, 8))
        third = iter(loader)
        check_epoch(third)
        check_epoch(second, first=2)


@pytest.mark.parametrize("workers", [0, 2])
def test_09_interleaved_loaders_do_not_affect_each_other(workers: int) -> None:
    with make(workers, count=24) as short, make(workers, True, count=40) as long:
        long_batches = iter(long)
        for n, batch in enumerate(short):
            check_rows(batch, range(4 * n, 4 * n + 4))
            check_rows(next(long_batches), range(4 * n, 4 * n + 4))
        check_epoch(long_batches, count=40, first=6)
        check_epoch(short)
        check_epoch(long, count=40)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_03_iterator_outlives_its_loader(workers: int, persistent: bool) -> None:
    loader = make(workers, persistent)
    batches = iter(loader)
    next(batches)
    gone = weakref.ref(loader)
    del loader
    gc.collect()
    assert gone() is None
    check_epoch(batches, first=1)


@pytest.mark.parametrize("workers", [0, 2])
def test_03_loader_and_iterator_in_a_cycle_are_garbage_collected(workers: int) -> None:
    before = Ledger.take()
    loader: Any = make(workers, True)
    batches: Any = iter(loader)
    kept = next(batches)
    loader.me = [loader, batches, kept]
    batches.me = loader.me
    del loader, batches, kept
    assert settle(before) == []


class Trainer:
    """As programs are: it has a loader, which collates by a method of it."""

    def __init__(self, **options: Any) -> None:
        self.loader = DataLoader(Rows(24), batch_size=4, collate_fn=self.collate, **options)
        self.batches = iter(())

    def collate(self, samples: list[Any]) -> list[Any]:
        return samples


# with 0 workers the thread that makes the batches of an epoch holds them until it is over
@pytest.mark.parametrize(
    ("workers", "persistent", "left"),
    [
        *((0, False, left) for left in ("unused", "after an epoch")),
        *((2, False, left) for left in ("unused", "after an epoch", "in an epoch")),
        *((2, True, left) for left in ("unused", "after an epoch", "in an epoch")),
    ],
)
def test_03_loader_that_its_functions_refer_to_is_garbage_collected(
    workers: int, persistent: bool, left: str
) -> None:
    before = Ledger.take()
    trainer = Trainer(num_workers=workers, persistent_workers=persistent)
    if left == "after an epoch":
        assert len(list(trainer.loader)) == 6
    elif left == "in an epoch":
        trainer.batches = iter(trainer.loader)
        next(trainer.batches)
    gone = weakref.ref(trainer)
    del trainer
    assert settle(before) == []
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("workers", [0, 2])
def test_02_batch_outlives_loader_and_iterator_and_workers(workers: int) -> None:
    loader = make(workers)
    batches = iter(loader)
    rows = next(batches)[0]
    row = rows[2]
    del rows, batches
    loader.close()
    del loader
    gc.collect()
    assert row.tolist() == [2.0] * 8
    row += 1
    assert row.tolist() == [3.0] * 8


@pytest.mark.parametrize("workers", [0, 2])
def test_closed_loader_says_so_to_its_iterator_and_starts_anew(workers: int) -> None:
    loader = make(workers, True)
    batches = iter(loader)
    next(batches)
    loader.close()
    loader.close()
    with pytest.raises(ReaderError, match="closed"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)
    check_epoch(loader)
    loader.close()


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_04_close_wakes_a_thread_that_waits_for_a_batch(kind: Any, says: Wire, gate: Wire) -> None:
    loader = DataLoader(
        Stuck(0, says.path, gate.path), batch_size=4, num_workers=1, worker_type=kind
    )
    batches = iter(loader)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            next(batches)
        except BaseException as error:
            raised.append(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    says.hear()
    loader.close()
    waiter.join(BOUND_S)
    hangs = waiter.is_alive()
    gate.say(2)  # a worker thread cannot be killed, and ends with its sample
    waiter.join(BOUND_S)
    assert not hangs
    assert len(raised) == 1
    assert isinstance(raised[0], ReaderError)
    assert "closed" in str(raised[0])


def test_04_close_in_many_threads_at_once_waits_in_each_of_them() -> None:
    loader = make(2, True)
    batches = iter(loader)
    next(batches)
    pids = [worker.pid for worker in loader.workers()]
    start = threading.Barrier(4)
    living: list[list[int]] = []

    def close() -> None:
        start.wait(BOUND_S)
        loader.close()
        living.append([pid for pid in pids if os.path.exists(f"/proc/{pid}")])

    threads = [threading.Thread(target=close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert living == [[]] * 4


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_09_loader_inside_a_thread(workers: int, persistent: bool) -> None:
    trouble: list[BaseException] = []

    def train() -> None:
        try:
            with make(workers, persistent) as loader:
                for _ in range(3):
                    check_epoch(loader)
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert not trouble
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("workers", [0, 2])
def test_09_workers_outlive_the_thread_that_started_them(workers: int) -> None:
    made: list[Any] = []

    def start() -> None:
        loader = make(workers, True)
        batches = iter(loader)
        made.extend([loader, batches, next(batches)])

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(BOUND_S)
    loader, batches, first = made
    made.clear()
    check_rows(first, range(4))
    check_epoch(batches, first=1)
    check_epoch(loader)
    loader.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", [0, 2])
def test_03_many_loaders_in_a_row_leave_nothing(workers: int) -> None:
    before = Ledger.take()
    for n in range(40):
        loader = make(workers, bool(n % 2), count=8)
        if n % 3:
            check_epoch(loader, count=8)
        else:
            next(iter(loader))
        if n % 4 == 0:
            loader.close()
    del loader
    assert settle(before) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_03_iterator_dropped_in_another_thread_releases_its_pool(workers: int) -> None:
    with make(workers, True) as loader:
        batches = [iter(loader)]
        next(batches[0])
        thread = threading.Thread(target=batches.clear)
        thread.start()
        thread.join(BOUND_S)
        check_epoch(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_01_finished_iterator_stays_finished(workers: int) -> None:
    with make(workers) as loader:
        batches = iter(loader)
        check_epoch(batches)
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(batches)
        assert iter(batches) is batches


@pytest.mark.parametrize("workers", [0, 2])
def test_iterator_that_was_closed_ends_its_epoch(workers: int) -> None:
    with make(workers, True) as loader:
        batches = iter(loader)
        next(batches)
        batches.close()  # type: ignore[attr-defined]
        batches.close()  # type: ignore[attr-defined]
        with pytest.raises(StopIteration):
            next(batches)
        check_epoch(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_03_garbage_collection_while_batches_are_dropped_in_threads(workers: int) -> None:
    with make(workers, True, count=400) as loader:
        stop = threading.Event()
        kept: list[Any] = []

        def drop() -> None:
            while not stop.is_set():
                gc.collect(0)
                if kept:
                    kept.pop()

        threads = [threading.Thread(target=drop) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            for n, batch in enumerate(loader):
                check_rows(batch, range(4 * n, 4 * n + 4))
                kept.append(batch)
                cycle: list[Any] = [batch]
                cycle.append(cycle)
        stop.set()
        for thread in threads:
            thread.join(BOUND_S)
        del batch, cycle
        kept.clear()


LEAVE_AT_ONCE = """
    import os, sys, time
    from reader import DataLoader
    from reader.processes import pool_registry

    class Data:
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return index

        def __del__(self):
            if os.getpid() == THIS:
                time.sleep(0.4)
                print("freed", flush=True)

    THIS = os.getpid()
    workers, kind = int(sys.argv[1]), sys.argv[2]
    steps = iter(DataLoader(Data(), num_workers=workers, worker_type=kind))
    next(steps)
    del steps  # its pool is the last to have the dataset, and the thread that ends it to have that
    while pool_registry.snapshot():
        time.sleep(0.001)
"""


@pytest.mark.parametrize(("workers", "kind"), [(0, "process"), (2, "process"), (2, "thread")])
def test_06_program_that_ends_at_once_waits_until_its_dataset_is_freed(
    workers: int, kind: str
) -> None:
    # A thread that frees tensors of torch when Python ends would abort the program.
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LEAVE_AT_ONCE), str(workers), kind],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (0, "freed\n"), done.stderr


ITERATE_AT_THE_END = """
    import sys
    from reader import DataLoader, ReaderError

    class Holder:
        def __init__(self, **options):
            self.options = options
            make = lambda: DataLoader(list(range(8)), batch_size=2, **options)
            self.new, self.used = make(), make()
            list(self.used)
            self.live = iter(make())
            next(self.live)

        def __del__(self):
            for batches in (self.new, self.used, self.live):
                try:
                    list(batches)
                except ReaderError as error:
                    said = "the interpreter shuts down" in str(error), "was closed" in str(error)
                    print("ends" if said[0] else "closed" if said[1] else error, flush=True)
                except BaseException as error:
                    print(self.options, repr(error), flush=True)
                else:
                    print("whole", flush=True)

    sys.modules["kept until the end"] = [
        Holder(),
        Holder(num_workers=1),
        Holder(num_workers=1, persistent_workers=True),
        Holder(num_workers=1, worker_type="thread"),
    ]
"""


def test_04_loader_that_is_iterated_over_while_the_interpreter_ends_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ITERATE_AT_THE_END)],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout.split() == [*3 * ["ends", "ends", "closed"], "ends", "whole", "whole"]
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_04_iterator_in_a_cycle_serves_the_finalizer_of_another_object(workers: int) -> None:
    said: list[str] = []

    class Holder:
        def __init__(self) -> None:
            self.me = self
            self.batches = iter(make(workers))
            next(self.batches)

        def __del__(self) -> None:
            try:
                said.append(f"{len(list(self.batches))} batches")
            except ReaderError as error:
                said.append(str(error)[:21])

    Holder()
    gc.collect()
    # depending on who is finalized first: a batch of the iterator, or its end
    assert said in (["5 batches"], ["the loader was closed"])
