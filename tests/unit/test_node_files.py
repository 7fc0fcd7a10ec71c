"""Memory files that the workers of a machine share: one makes them, the others receive them."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import threading
from multiprocessing.connection import Connection
from typing import Any

import pytest

from reader.cluster.node_files import give_files, node_files
from tests.processes import kill_and_wait, wait_asleep, wait_until

FORK = multiprocessing.get_context("fork")
COUNT = 2


def made() -> list[int]:
    fds = [os.memfd_create(f"made by {os.getpid()}") for _ in range(COUNT)]
    for fd in fds:
        os.write(fd, str(os.getpid()).encode())
    return fds


def be_worker(name: str, pipe: Connection) -> None:
    """Say who made the files, and live on."""
    found = node_files(name, COUNT, made)
    pipe.send([int(os.pread(fd, 20, 0)) for fd in found])
    pipe.recv()


class Workers:
    def __init__(self) -> None:
        self.name = secrets.token_hex(16)
        self.processes: list[Any] = []
        self.pipes: list[Connection] = []

    def start(self, target: Any = be_worker) -> Connection:
        ours, theirs = FORK.Pipe()
        self.processes.append(FORK.Process(target=target, args=(self.name, theirs)))
        self.processes[-1].start()
        theirs.close()
        self.pipes.append(ours)
        return ours

    def end(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.kill()
            process.join()
            process.close()


@pytest.fixture
def workers() -> Any:
    found = Workers()
    yield found
    found.end()


def names() -> str:
    with open("/proc/net/unix") as table:
        return table.read()


def test_one_worker_makes_the_files_and_all_have_them(workers: Workers) -> None:
    pipes = [workers.start() for _ in range(5)]
    found = [pipe.recv() for pipe in pipes]
    assert len(found[0]) == COUNT
    assert len({pid for pids in found for pid in pids}) == 1
    assert found[0][0] in [process.pid for process in workers.processes]


def test_files_outlive_their_maker_and_are_made_anew_after_it(workers: Workers) -> None:
    first = workers.start().recv()[0]
    assert workers.start().recv()[0] == first
    assert f"@lodreader-{workers.name}" in names()
    kill_and_wait(first)
    wait_until(lambda: f"@lodreader-{workers.name}" not in names())
    again = workers.start().recv()[0]
    assert again != first
    assert workers.start().recv()[0] == again


def make_for_ever(name: str, pipe: Connection) -> None:
    def make() -> list[int]:
        pipe.send("begun")
        pipe.recv()
        return []

    node_files(name, COUNT, make)


def test_whoever_waits_for_a_maker_that_dies_makes_the_files(workers: Workers) -> None:
    maker = workers.start(make_for_ever)
    assert maker.recv() == "begun"
    pipe = workers.start()
    wait_asleep(workers.processes[1].pid)
    assert not pipe.poll(0)
    kill_and_wait(workers.processes[0].pid)
    assert pipe.recv() == [workers.processes[1].pid] * COUNT


def have_a_child(name: str, pipe: Connection) -> None:
    node_files(name, COUNT, made)
    child = FORK.Process(target=threading.Event().wait)
    child.start()
    pipe.send(child.pid)
    pipe.recv()


def test_a_child_of_the_maker_does_not_keep_the_name(workers: Workers) -> None:
    child = workers.start(have_a_child).recv()
    try:
        kill_and_wait(workers.processes[0].pid)
        wait_until(lambda: f"@lodreader-{workers.name}" not in names())
        os.kill(child, 0)
        assert workers.start().recv() == [workers.processes[1].pid] * COUNT
    finally:
        kill_and_wait(child)


def give(name: str, pipe: Connection) -> None:
    give_files(name, made())
    pipe.send(os.getpid())
    pipe.recv()


def test_files_may_be_given_by_another_process(workers: Workers) -> None:
    giver = workers.start(give).recv()
    assert workers.start().recv() == [giver] * COUNT


def test_after_a_maker_fails_the_next_makes_the_files(workers: Workers) -> None:
    def fail() -> list[int]:
        raise OSError("no memory")

    with pytest.raises(OSError, match="no memory"):
        node_files(workers.name, COUNT, fail)
    assert workers.start().recv() == [workers.processes[0].pid] * COUNT
