"""Objects that only a starting process can be given reach every spawned worker."""

from __future__ import annotations

import multiprocessing
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reader import ConfigError, DataLoader
from reader.processes.pickling import pickle_config
from reader.worker.loop import WorkerConfig
from tests.datasets import PidRows, Rows, check_rows
from tests.holders import COUNT, Collates, Held, Marks, Names, Primitives, SendsToAll
from tests.processes import Program, kill_and_wait, wait_until

Start = Callable[..., Program]
METHODS = pytest.mark.parametrize("method", ["spawn", "forkserver"])
# multiprocessing's heap stays with the process: it is large enough from here on
multiprocessing.get_context("spawn").RawArray("b", 1 << 16)
# one worker is started by multiprocessing, two by the template
WORKERS = pytest.mark.parametrize("workers", [1, 2])


def config_of(dataset: Any) -> WorkerConfig:
    return WorkerConfig(dataset, None, None, 2, None, 0)


@pytest.mark.sampled(2)
@METHODS
@WORKERS
def test_primitives_of_a_dataset_are_those_of_the_trainer(method: str, workers: int) -> None:
    dataset = Primitives(multiprocessing.get_context(method))
    with DataLoader(dataset, batch_size=4, num_workers=workers, start_method=method) as loader:
        for n, batch in enumerate(loader):
            check_rows(batch, range(4 * n, 4 * n + 4))
    assert dataset.value.value == COUNT
    assert list(dataset.raw) == list(dataset.array) == [1] * COUNT
    assert dataset.event.is_set()
    assert sorted(dataset.told.recv() for _ in range(COUNT)) == list(range(COUNT))
    assert sorted(dataset.queue.get() for _ in range(COUNT)) == list(range(COUNT))
    dataset.close()


@METHODS
def test_worker_that_replaces_a_killed_one_is_given_the_same(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    begun = context.Value("i", 0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with (
        ours,
        DataLoader(
            PidRows(COUNT),
            batch_size=4,
            num_workers=2,
            start_method=method,
            collate_fn=Collates(theirs),
            worker_init_fn=Names(begun),
            persistent_workers=True,
        ) as loader,
    ):
        batches = list(loader)
        theirs.close()  # workers have their own, and so has each that comes after
        kill_and_wait(int(batches[0][2][0]))
        for n, batch in enumerate(loader):
            check_rows(batch[:2], range(4 * n, 4 * n + 4))
        assert [ours.recv(8) for _ in range(8)] == [b"4"] * 8
        wait_until(lambda: begun.value == 3)  # the others may have made all batches before


@pytest.mark.sampled(2)
@METHODS
def test_shared_tensors_stay_shared_and_others_are_copied(method: str) -> None:
    torch = pytest.importorskip("torch")
    shared, alone = torch.zeros(COUNT).share_memory_(), torch.zeros(COUNT)
    dataset = Marks([shared, shared[:], alone])
    with DataLoader(dataset, batch_size=4, num_workers=2, start_method=method) as loader:
        assert len(list(loader)) == 4
    assert shared.tolist() == [2.0] * COUNT
    assert alone.tolist() == [0.0] * COUNT
    assert not alone.is_shared()


BY_NAME = """
    import torch
    from reader import DataLoader
    from tests.holders import Marks

    if __name__ == "__main__":
        torch.multiprocessing.set_sharing_strategy("file_system")
        shared = torch.zeros(16).share_memory_()
        for _ in range(2):  # its owner counts who has it open, and removes it at zero
            with DataLoader(Marks([shared]), num_workers=2, start_method="spawn") as loader:
                assert len(list(loader)) == 16
        print(shared.tolist() == [2.0] * 16)
"""


@pytest.mark.nightly
def test_tensors_shared_by_name_outlive_their_first_workers(program: Start) -> None:
    pytest.importorskip("torch")  # whose own process for such tensors ends with the program
    assert program(BY_NAME).finish() == (0, "True\n", "")


def test_more_descriptors_than_one_message_takes_reach_each_worker() -> None:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(270)]
    loader = DataLoader(
        Rows(COUNT),
        batch_size=COUNT,
        num_workers=1,
        start_method="forkserver",  # multiprocessing's own passes no more than 256
        collate_fn=SendsToAll([theirs for _, theirs in pairs]),
    )
    assert len(list(loader)) == 1
    for n, (ours, theirs) in enumerate(pairs):
        assert ours.recv(8) == b"%d" % n
        ours.close()
        theirs.close()


def test_descriptors_are_pickled_once_and_closed_with_the_pickle(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file, socket.socket() as sock:
        pickled = pickle_config(config_of(Held([sock, sock])))
        assert len(pickled.fds) == 1
        assert sock.fileno() not in pickled.fds
        pickled.close()
        with pytest.raises(
            ConfigError, match=r"the dataset, .* cannot be sent to worker processes"
        ):
            pickle_config(config_of(Held([sock, file])))  # the ledger finds what is left open


def test_code_that_only_cloudpickle_takes_may_hold_primitives() -> None:
    with socket.socket() as sock:
        pickled = pickle_config(config_of(lambda: sock))
        assert len(pickled.fds) == 1
        pickled.close()


@pytest.mark.skipif(sys.version_info < (3, 11, 5), reason="multiprocessing took it until then")
def test_lock_of_a_fork_context_is_refused_as_by_multiprocessing() -> None:
    lock = multiprocessing.get_context("fork").Lock()
    with pytest.raises(ConfigError, match=r"the dataset, .* cannot be sent to worker processes"):
        pickle_config(config_of(Held(lock)))
