"""Processes forked from a trainer: inherited objects, and their use in the child."""

from __future__ import annotations

import gc
import multiprocessing
import os
import select
import signal
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reader import BlockingQueue, DataLoader, QueueClosed, ReaderError
from tests.datasets import Raise, Rows, check_rows
from tests.ledger import Ledger, settle
from tests.processes import BOUND_S, Program, Wire

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def in_child(action: Callable[[], None]) -> None:
    """Run `action` in a forked child and check that it ended well, in time."""
    # a file and not a pipe: workers forked meanwhile would keep the other end of a pipe open
    said = os.memfd_create("said")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            action()
            status = 0
        except BaseException:
            os.write(said, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(status)
    child = os.pidfd_open(pid)
    ready, _, _ = select.select([child], [], [], BOUND_S)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    text = os.pread(said, 4000, 0).decode()
    os.close(said)
    os.close(child)
    assert ready, "the child hangs"
    assert (status, text) == (0, "")


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_inherited_iterator_says_so_and_does_not_hang(workers: int, persistent: bool) -> None:
    with DataLoader(
        Rows(64), batch_size=4, num_workers=workers, persistent_workers=persistent
    ) as loader:
        batches = iter(loader)
        check_rows(next(batches), range(4))

        def use() -> None:
            for _ in range(3):
                with pytest.raises(ReaderError, match=r"fork.*iter\(loader\)"):
                    next(batches)

        in_child(use)
        for n in range(1, 16):
            check_rows(next(batches), range(4 * n, 4 * n + 4))


@WORKERS
def test_02_inherited_batch_can_be_read_in_a_child_and_is_not_released_there(workers: int) -> None:
    with DataLoader(
        Rows(400), batch_size=4, num_workers=workers, persistent_workers=True
    ) as loader:
        batches = iter(loader)
        kept = [next(batches)]
        view = kept[0][0][1:]

        def read_and_drop() -> None:
            check_rows(kept[0], range(4))
            assert view[0, 0] == 1
            kept.clear()
            gc.collect()

        in_child(read_and_drop)
        assert loader.stats()["arena"]["held_slots"] == 1
        for n in range(1, 100):
            check_rows(next(batches), range(4 * n, 4 * n + 4))
        check_rows(kept[0], range(4))


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_loader_works_anew_in_a_forked_child(workers: int, persistent: bool) -> None:
    with DataLoader(
        Rows(64), batch_size=4, num_workers=workers, persistent_workers=persistent
    ) as loader:
        batches = iter(loader)
        next(batches)

        def use() -> None:
            before = Ledger.take()
            for _ in range(2):
                for n, batch in enumerate(loader):
                    check_rows(batch, range(4 * n, 4 * n + 4))
                assert n == 15
            with DataLoader(Rows(8), batch_size=4, num_workers=workers) as other:
                assert len(list(other)) == 2
            loader.close()
            del batch
            assert settle(before) == []

        in_child(use)
        for n in range(1, 16):
            check_rows(next(batches), range(4 * n, 4 * n + 4))
        assert len(list(loader)) == 16


@WORKERS
def test_child_that_drops_closes_and_abandons_everything_disturbs_nobody(workers: int) -> None:
    things: dict[str, Any] = {}
    with DataLoader(Rows(64), batch_size=4, num_workers=workers, persistent_workers=True) as loader:
        things["batches"] = iter(loader)
        things["batch"] = next(things["batches"])

        def drop() -> None:
            loader.stats()
            loader.close()
            things.clear()
            gc.collect()

        in_child(drop)
        check_rows(things["batch"], range(4))
        for n in range(1, 16):
            check_rows(next(things["batches"]), range(4 * n, 4 * n + 4))
        things.clear()
        assert len(list(loader)) == 16


@WORKERS
def test_child_of_multiprocessing_uses_the_loader_and_ends(workers: int) -> None:
    with DataLoader(Rows(64), batch_size=4, num_workers=workers, persistent_workers=True) as loader:
        kept = list(loader)
        process = multiprocessing.get_context("fork").Process(target=consume, args=(loader, kept))
        process.start()
        process.join(BOUND_S)
        assert process.exitcode == 0
        process.close()
        assert len(list(loader)) == 16
        check_rows(kept[15], range(60, 64))


def consume(loader: DataLoader, kept: list[Any]) -> None:
    for n, batch in enumerate(loader):
        check_rows(batch, range(4 * n, 4 * n + 4))
        check_rows(kept[n], range(4 * n, 4 * n + 4))


def test_child_that_ends_as_a_program_does_is_silent(program: Callable[..., Program]) -> None:
    trainer = program(
        """
        import os, sys
        from reader import DataLoader
        from tests.datasets import Rows

        loader = DataLoader(Rows(64), batch_size=4, num_workers=0)
        batches = iter(loader)
        next(batches)
        pid = os.fork()
        if pid:
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        print(len(list(loader)), flush=True)
        """
    )
    assert trainer.finish() == (0, "16\n0\n16\n", "")


def test_forked_while_threads_iterate_child_never_hangs() -> None:
    stop = threading.Event()
    trouble: list[BaseException] = []
    loaders = [
        DataLoader(Rows(256), batch_size=4, num_workers=n, persistent_workers=True) for n in (0, 2)
    ]

    def train(loader: DataLoader) -> None:
        try:
            while not stop.is_set():
                for n, batch in enumerate(loader):
                    check_rows(batch, range(4 * n, 4 * n + 4))
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=train, args=(loader,)) for loader in loaders]
    for thread in threads:
        thread.start()

    def use() -> None:
        gc.collect()
        with DataLoader(Rows(8), batch_size=4, num_workers=0) as other:
            assert len(list(other)) == 2

    try:
        for _ in range(10):
            in_child(use)
    finally:
        stop.set()
        for thread in threads:
            thread.join(BOUND_S)
        for loader in loaders:
            loader.close()
    assert not trouble


def test_inherited_queue_says_so_and_a_new_one_works() -> None:
    queue = BlockingQueue(2)
    queue.push([np.ones(3)])

    def use() -> None:
        with pytest.raises(ReaderError, match="fork"):
            queue.pop()
        with pytest.raises(ReaderError, match="fork"):
            queue.push([np.ones(3)])
        other = BlockingQueue(1)
        other.push([np.ones(2)])
        other.close()
        assert other.pop()[0].shape == (2,)
        with pytest.raises(QueueClosed):
            other.pop()

    in_child(use)
    assert queue.pop()[0].shape == (3,)


def in_daemon(workers: int, answers: Any) -> None:
    try:
        with DataLoader(Rows(8), batch_size=4, num_workers=workers) as loader:
            answers.send(len(list(loader)))
    except BaseException as error:
        answers.send(error)


@WORKERS
def test_daemonic_process_with_workers_is_refused(workers: int) -> None:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=in_daemon, args=(workers, there), daemon=True)
    process.start()
    there.close()
    assert here.poll(BOUND_S)
    answer = here.recv()
    process.join(BOUND_S)
    assert process.exitcode == 0
    process.close()
    here.close()
    if workers == 0:
        assert answer == 2
    else:
        assert isinstance(answer, ReaderError)
        assert "num_workers=0" in str(answer)


def test_dataset_of_a_worker_may_hold_a_loader_of_its_own() -> None:
    with DataLoader(Nested(8), batch_size=4, num_workers=2) as loader:
        assert [batch.tolist() for batch in loader] == [[4, 4, 4, 4]] * 2


class Nested(Rows):
    """Runs a loader, and a forked process, inside a worker."""

    def __getitem__(self, index: int) -> Any:
        with DataLoader(Rows(16), batch_size=4, num_workers=index % 2) as loader:
            return len(list(loader))


def test_03_worker_init_fn_that_forks_leaves_the_loader_whole() -> None:
    with DataLoader(Rows(32), batch_size=4, num_workers=2, worker_init_fn=fork_once) as loader:
        for n, batch in enumerate(loader):
            check_rows(batch, range(4 * n, 4 * n + 4))
        assert n == 7


def fork_once(worker_id: int) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def test_03_sibling_loaders_do_not_keep_each_other_alive(says: Wire, gate: Wire) -> None:
    before = Ledger.take()
    first = DataLoader(Rows(64), batch_size=4, num_workers=2, persistent_workers=True)
    list(first)
    second = DataLoader(Rows(64), batch_size=4, num_workers=2, persistent_workers=True)
    list(second)  # its workers inherited every descriptor of the first
    kept = next(iter(first))
    first.close()
    assert len(list(second)) == 16
    check_rows(kept, range(4))
    del kept
    second.close()
    del first, second
    assert settle(before) == []


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_unpicklable_dataset_is_refused_by_name_where_it_must_be_sent(start_method: str) -> None:
    from tests.datasets import Unpicklable

    loader = DataLoader(Unpicklable(), batch_size=4, num_workers=1, start_method=start_method)
    with pytest.raises(ValueError, match=r"dataset.*Unpicklable.*lock"):
        iter(loader)
    loader.close()


def test_dataset_that_cannot_be_unpickled_raises_its_own_exception() -> None:
    from tests.datasets import Unloadable

    with DataLoader(
        Unloadable(8), batch_size=4, num_workers=2, start_method="forkserver"
    ) as loader:
        for _ in range(2):
            with pytest.raises(LookupError, match="the file of 8 samples is not there") as info:
                list(loader)
            assert "worker" in "".join(info.value.__notes__)


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_10_worker_init_fn_that_raises_is_reported_and_the_loader_can_be_tried_again(
    start_method: str,
) -> None:
    with DataLoader(
        Rows(8),
        batch_size=4,
        num_workers=2,
        worker_init_fn=Raise(make_error),
        start_method=start_method,
    ) as loader:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="no such device") as info:
                list(loader)
            notes = "".join(info.value.__notes__)
            assert "start of worker" in notes
            assert "Traceback" in notes


def make_error() -> BaseException:
    return ZeroDivisionError("no such device")


def test_10_worker_init_fn_that_raises_in_one_worker_alone_is_reported() -> None:
    with (
        DataLoader(
            Rows(400), batch_size=4, num_workers=2, worker_init_fn=Raise(make_error, only=1)
        ) as loader,
        pytest.raises(ZeroDivisionError, match="no such device"),
    ):
        list(loader)


class LateFirst(Rows):
    """The first sample comes long after the other workers tried to start."""

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            threading.Event().wait(0.1)
        return super().__getitem__(index)


@pytest.mark.parametrize("worker_type", ["process", "thread"])
def test_01_worker_that_fails_to_start_is_told_in_the_place_of_its_first_batch(
    worker_type: str,
) -> None:
    torch_face = pytest.importorskip("reader.compat.torch")  # whose workers take turns
    loader = torch_face.DataLoader(
        LateFirst(32),
        batch_size=4,
        num_workers=2,
        worker_type=worker_type,
        worker_init_fn=Raise(make_error, only=1),
    )
    with loader:
        for _ in range(2):
            batches = iter(loader)
            check_rows(next(batches), range(4))
            with pytest.raises(ZeroDivisionError, match="no such device"):
                next(batches)
            with pytest.raises(StopIteration):
                next(batches)
            del batches


def test_local_classes_and_lambdas_reach_spawned_workers() -> None:
    class Local:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            return index

    with DataLoader(
        Local(),
        batch_size=4,
        num_workers=1,
        start_method="spawn",
        collate_fn=lambda samples: {"sum": np.array(sum(samples))},
    ) as loader:
        assert [batch["sum"].item() for batch in loader] == [6, 22]


def test_03_memory_of_kept_batches_is_freed_while_workers_of_another_loader_map_it() -> None:
    samples = [np.full(1 << 20, number, np.uint8) for number in range(16)]
    before = {fd for fd in os.listdir("/proc/self/fd") if _is_arena(f"/proc/self/fd/{fd}")}
    kept_by = DataLoader(samples, batch_size=4, num_workers=1)
    batches = iter(kept_by)
    kept = [next(batches)]
    mine = {fd for fd in os.listdir("/proc/self/fd") if _is_arena(f"/proc/self/fd/{fd}")} - before
    with DataLoader(
        Rows(8), batch_size=4, num_workers=1, persistent_workers=True, start_method="fork"
    ) as other:
        assert len(list(other)) == 2
        pid = other.workers()[0].pid
        (inherited,) = (f"/proc/{pid}/fd/{fd}" for fd in mine)
        del batches
        kept_by.close()
        held = os.stat(inherited).st_blocks
        assert held * 512 >= kept[0].nbytes
        kept.clear()
        assert os.stat(inherited).st_blocks * 512 <= held * 512 - (4 << 20)


def _is_arena(path: str) -> bool:
    try:
        return "reader-arena" in os.readlink(path)
    except FileNotFoundError:
        return False
