"""Memory, sockets and processes of other users: found through /proc, and by a bound name."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader import cache
from reader.caching import memory_tier
from tests.fault.test_trust_folders import NOBODY, held, needs_root

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Twos(reader.Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return np.full(4, 2, np.int64)


def make() -> Any:
    return cache(Twos(), memory="1MB", version="of trust")


def fd_of(cached: Any) -> int:
    return int(cached._cache._memory._fd)


@pytest.fixture
def holder() -> Iterator[Callable[[int], int]]:
    """A process of this user with inherited descriptors, as a set-uid program has."""
    pids: list[int] = []

    def start(fd: int) -> int:
        pid = os.fork()
        if pid == 0:
            os.dup2(fd, 200, inheritable=False)
            os.closerange(3, 200)
            signal.pause()
        pids.append(pid)
        return pid

    yield start
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def copied(fd: int, *, user: int | None = None, seals: int = SEALS, more: int = 0) -> int:
    """Return a memory file of the same name and head as a cache's."""
    name = os.readlink(f"/proc/self/fd/{fd}").removeprefix("/memfd:").partition(" ")[0]
    if user is not None:
        os.seteuid(user)
    try:
        made = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    finally:
        if user is not None:
            os.seteuid(0)
    size = os.fstat(fd).st_size
    os.ftruncate(made, size + more)
    os.pwrite(made, os.pread(fd, 4096, 0), 0)
    if seals:
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, seals)
    return made


def taken(made: int) -> bool:
    """Whether a new cache uses a file, now that another process holds it."""
    inode = os.fstat(made).st_ino
    os.close(made)
    memory_tier._opened.clear()  # what this process opened before
    cached = make()
    return os.fstat(fd_of(cached)).st_ino == inode


def test_a_file_that_this_user_made_is_used(holder: Callable[[int], int]) -> None:
    first = make()
    made = copied(fd_of(first))
    del first
    holder(made)
    assert taken(made)


NAME = f"of-trust-{os.getpid()}"  # of files that workers share: tests may run beside each other


@needs_root
def test_a_file_that_another_user_made_is_not_used(holder: Callable[[int], int]) -> None:
    """Though a process of this user has it open."""
    first = make()
    made = copied(fd_of(first), user=NOBODY)
    del first
    holder(made)
    assert not taken(made)


@pytest.mark.parametrize("given", [{"seals": 0}, {"more": 4096}, {"more": -4096}])
def test_a_file_that_could_be_cut_off_or_has_another_length_is_not_used(
    holder: Callable[[int], int], given: dict[str, int]
) -> None:
    first = make()
    made = copied(fd_of(first), **given)
    del first
    holder(made)
    assert not taken(made)


def test_the_memory_of_a_cache_belongs_to_its_user_alone_and_is_sealed() -> None:
    cached = make()
    fd = fd_of(cached)
    assert os.fstat(fd).st_mode & 0o777 == 0o600
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)


def test_a_lock_held_by_another_costs_only_a_file_of_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_tier, "_PATIENCE_S", 0.2)
    with held(Path(memory_tier.__file__)) as pid, caplog.at_level(logging.WARNING, "reader"):
        cached = make()
        assert cached[1].tolist() == [2] * 4
    (record,) = caplog.records
    assert "a cache in memory may not be shared" in record.getMessage()
    assert f"process {pid} (" in record.getMessage()


# -- names that are bound ------------------------------------------------------------------------


def files() -> list[int]:
    return [os.memfd_create("trust")]


@needs_root
def test_a_name_bound_by_another_user_makes_a_worker_use_its_own_files(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from reader.cluster.node_files import node_files

    bound = os.eventfd(0)
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.bind(f"\0lodreader-{NAME}")
            sock.listen()
            os.eventfd_write(bound, 1)
            signal.pause()
        finally:
            os._exit(1)
    try:
        os.eventfd_read(bound)
        with caplog.at_level(logging.WARNING, "reader"):
            (fd,) = node_files(NAME, 1, files)
        os.close(fd)
    finally:
        os.close(bound)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert f"a process of user {NOBODY} has the name" in caplog.text


def test_the_wait_for_a_silent_holder_of_a_name_has_a_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from reader.cluster import node_files

    monkeypatch.setattr(node_files, "_PATIENCE_S", 0.2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(f"\0lodreader-{NAME}")  # and does not listen
        with caplog.at_level(logging.WARNING, "reader"):
            (fd,) = node_files.node_files(NAME, 1, files)
        os.close(fd)
    assert "were not given within 0.2 s: this worker has files of its own" in caplog.text


def test_a_process_with_the_reused_pid_of_a_worker_is_not_read(tmp_path: Any) -> None:
    from reader.cluster.node_watch import NodeWatch

    path = tmp_path / "file"
    path.write_bytes(b"")
    watch = NodeWatch()
    said = r"is another one now, with .*/file"
    with path.open("r+b") as file, pytest.raises(ProcessLookupError, match=said):
        watch.attach(0, os.getpid(), file.fileno())
    ours, theirs = os.pipe()
    with pytest.raises(OSError, match="it is a pipe, and no regular file"):
        watch.attach(0, os.getpid(), ours)
    os.close(ours)
    os.close(theirs)


def test_top_does_not_open_a_pipe_with_the_name_of_a_memory_file(tmp_path: Any) -> None:
    """The link of a descriptor names what another process has; it is opened without waiting."""
    from reader.observe import running

    os.mkfifo(tmp_path / "pipe")
    done = threading.Event()

    def look() -> None:
        assert running._read(str(tmp_path / "pipe")) is None
        done.set()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    was_quick = done.wait(20)
    if not was_quick:  # release it
        os.close(os.open(tmp_path / "pipe", os.O_RDWR))
    thread.join()
    assert was_quick


def test_metrics_are_served_on_this_machine_alone() -> None:
    pytest.importorskip("prometheus_client")
    from prometheus_client import CollectorRegistry

    from reader.integrations.prometheus import PrometheusCollector

    with PrometheusCollector(CollectorRegistry()).serve(0) as endpoint:
        assert endpoint._server.server_address[0] == "127.0.0.1"


def test_memory_of_batches_and_of_shared_data_has_no_name_in_any_folder() -> None:
    def memory_files() -> dict[tuple[str, int], int]:
        found = {}
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # that of the folder itself
                name = str(link.readlink()).partition(" ")[0]
                if "reader-" in name:
                    of = link.stat()
                    found[name, of.st_ino] = of.st_nlink
        return found

    before = memory_files()
    shared = reader.share(list(range(1000)))
    with reader.DataLoader(shared, batch_size=4, num_workers=1) as loader:
        batches = iter(loader)
        next(batches)
        new = {key: links for key, links in memory_files().items() if key not in before}
        found = {name: links for (name, _), links in new.items()}
        assert found == {"/memfd:reader-arena": 0, "/memfd:lodreader-shared": 0}
