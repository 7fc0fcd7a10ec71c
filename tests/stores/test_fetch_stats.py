"""What users see of the process that fetches: its counts, how far it reads ahead, a full disk."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import (
    ConcatDataset,
    DataLoader,
    DatasetError,
    Mix,
    ReaderError,
    ShardCache,
    ShardOrder,
    Shards,
    Subset,
)
from reader import write_shards as write
from reader.observe.running import watch_loaders
from reader.observe.top import show_top, table_of
from reader.stores.shard_cache import connected
from tests.datasets import Wrapped
from tests.processes import Program, wait_until
from tests.stores.proxy import Proxy, Rule
from tests.stores.servers import S3Server, s3_server
from tests.stores.test_shards import READS, all_of, options, upload, wait_ended

pytestmark = pytest.mark.slow

COUNT, SIZE = 400, 200_000
NBYTES = COUNT * SIZE


def content_of(k: int) -> bytes:
    return np.random.default_rng(k).bytes(SIZE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("sets")
    rows = [{"x": content_of(k), "k": k} for k in range(COUNT)]
    columns = {"x": "bytes", "k": "int"}
    write(rows, folder / "large", "mds", columns=columns, shard_size="10MB")
    write(rows[:20], folder / "small" / "mds", "mds", columns=columns, shard_size="1MB")
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        upload(server, "large", folder / "large")
        upload(server, "sets", folder / "small")
        yield server


def check(samples: list[Any], expected: list[int]) -> None:
    assert [sample["k"] for sample in samples] == expected
    assert all(sample["x"] == content_of(sample["k"]) for sample in samples)


def is_large(sample: Any) -> bool:
    return len(sample["x"]) == SIZE


# -- counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_stats_of_a_loader_count_the_bytes_of_its_dataset(workers: int, server: S3Server) -> None:
    shards = Shards("s3://large", store=options(server))
    other = Shards("s3://sets/mds", store=options(server), cache=shards._use.cache)
    assert other[0]["k"] == 0
    how: dict[str, Any] = {"batch_size": 16, "collate_fn": list, "num_workers": workers}
    with DataLoader(shards, shuffle=True, seed=0, **how) as loader:
        assert sum(1 for _ in loader) == COUNT // 16
        found = loader.stats()["fetch"]
        assert NBYTES <= found["given"] <= 1.01 * NBYTES  # and the places of samples
    assert found.keys() == {
        *("bytes", "requests", "retries", "hedged", "damaged", "errors", "given", "hits"),
        *("waits", "wait_s", "transfer_s", "ahead", "kept", "limit", "evicted", "is_running"),
    }
    whole = shards.fetch_stats()
    assert found["given"] + SIZE <= whole["given"] <= 1.1 * NBYTES
    assert NBYTES <= found["bytes"] <= 1.5 * NBYTES
    assert 0 < found["hits"] < found["given"]
    assert found["waits"] > 0
    assert found["wait_s"] > 0
    assert found["requests"] >= NBYTES / (8 << 20)
    assert found["ahead"] < SIZE  # what lies between samples
    assert (found["errors"], found["is_running"]) == ({}, True)
    assert 0 < found["kept"] <= found["limit"]


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "map": lambda shards: shards.map(is_large),
    "subset": lambda shards: Subset(shards, list(range(len(shards)))),
    "concat": lambda shards: ConcatDataset([shards, [0, 1]]),
    "mix": lambda shards: Mix({"a": shards, "b": list(range(100))}, {"a": 2, "b": 1}, seed=0),
    "yours": lambda shards: Wrapped(shards.map(is_large)),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_stats_look_through_wrappers(name: str, server: S3Server) -> None:
    dataset = WRAPPERS[name](Shards("s3://sets/mds", store=options(server)))
    with DataLoader(dataset, batch_size=4, num_workers=1, collate_fn=list) as loader:
        list(loader)
        assert loader.stats()["fetch"]["bytes"] >= 10 * SIZE


def test_stats_of_several_caches_are_summed_and_those_of_one_are_not(server: S3Server) -> None:
    cache = ShardCache()
    parts = [
        Shards("s3://sets/mds", store=options(server), cache=each)
        for each in (cache, cache, ShardCache())
    ]
    with DataLoader(ConcatDataset(parts), batch_size=4, collate_fn=list) as loader:
        list(loader)
        found = loader.stats()["fetch"]
    one, same, other = (part.fetch_stats() for part in parts)
    assert one["bytes"] == same["bytes"]
    assert found["bytes"] == one["bytes"] + other["bytes"]
    assert found["given"] == one["given"] + other["given"]
    assert found["limit"] == one["limit"] + other["limit"]


def test_stats_without_a_store_have_none() -> None:
    with DataLoader([1, 2, 3]) as loader:
        list(loader)
        assert loader.stats()["fetch"] is None


def test_stats_of_a_process_that_is_gone_or_stopped_are_those_that_it_told_last(
    server: S3Server,
) -> None:
    shards = Shards("s3://sets/mds", store=options(server))
    with DataLoader(shards, batch_size=4, collate_fn=list) as loader:
        list(loader)
        last = loader.stats()["fetch"]
        assert last["is_running"]
        pid = shards.fetch_stats()["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            assert loader.stats()["fetch"] == {**last, "is_running": False}
        finally:
            os.kill(pid, signal.SIGKILL)
        wait_ended(pid)
        assert loader.stats()["fetch"] == {**last, "is_running": False}
    with DataLoader(shards, batch_size=4, num_workers=1, collate_fn=list) as loader:
        for _ in loader:  # another process is there
            assert loader.stats()["fetch"]["is_running"]


def test_failures_and_repeats_are_counted(server: S3Server, proxy: Proxy) -> None:
    shards = Shards("s3://sets/mds", store=options(server, proxy.endpoint))
    proxy.set_rules(Rule("slow_down", first=2, path="shard"))
    with DataLoader(shards, batch_size=4, collate_fn=list) as loader:
        list(loader)
        assert loader.stats()["fetch"]["retries"] >= 2
        assert loader.stats()["fetch"]["errors"] == {}
    gone = Shards("s3://sets/mds", store=options(server, proxy.endpoint, timeout=1))
    proxy.set_rules(Rule("slow_down", path="shard"))
    with DataLoader(gone, batch_size=4, collate_fn=list) as loader:
        with pytest.raises(DatasetError):
            list(loader)
        assert loader.stats()["fetch"]["errors"] == {"later": 1}


def test_requests_that_are_late_are_raced_by_second_ones(server: S3Server, proxy: Proxy) -> None:
    store = options(server, proxy.endpoint)
    shards = Shards("s3://large", store=store, cache=ShardCache(ahead=0))
    order = ShardOrder(shards, 0, window="all")
    expected = list(ShardOrder(shards, 0, window="all"))
    loader = DataLoader(shards, batch_size=16, sampler=order, collate_fn=list, num_workers=2)
    with loader:
        batches = iter(loader)
        found = next(batches)
        proxy.set_rules(Rule("stall", 60, first=3))
        found += [sample for batch in batches for sample in batch]
        check(found, expected)
        assert proxy.counters().faults["stall"] == 3
        assert loader.stats()["fetch"]["hedged"] >= 3


def test_few_requests_are_raced_where_all_are_late(server: S3Server, proxy: Proxy) -> None:
    store = options(server, proxy.endpoint, timeout=5)
    shards = Shards("s3://large", store=store, cache=ShardCache(ahead=0))
    check(shards.__getitems__(range(0, 400, 40)), list(range(0, 400, 40)))
    proxy.set_rules(Rule("stall", 60))
    with pytest.raises(DatasetError, match="nothing came for"):
        shards.__getitems__(range(1, 400, 10))
    found = shards.fetch_stats()
    assert 0 < found["hedged"] <= 4 + 0.05 * found["requests"] + 1


def test_a_profile_names_the_network(server: S3Server, proxy: Proxy) -> None:
    shards = Shards("s3://large", store=options(server, proxy.endpoint))
    proxy.set_rules(Rule("bandwidth", 20e6))
    how: dict[str, Any] = {"batch_size": 8, "collate_fn": list, "num_workers": 2}
    with DataLoader(shards, shuffle=True, seed=0, **how) as loader, loader.profile() as seen:
        for _ in loader:
            pass
    assert seen.bound_by == "network", str(seen)
    assert "bytes of the store. The network gives " in str(seen)
    assert "More workers do not help." in seen.verdict.advice
    assert seen.measured.rows["network"] > 0
    assert seen.measured.network_nbytes >= 0.9 * NBYTES
    assert seen.measured.stored_nbytes >= 0.85 * NBYTES


def test_a_profile_of_a_script_names_the_network(
    server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.set_rules(Rule("bandwidth", 20e6))
    script = tmp_path / "train.py"
    store = options(server, proxy.endpoint)
    script.write_text(
        "import reader\n"
        f"shards = reader.Shards('s3://large', store={store!r})\n"
        "loader = reader.DataLoader(\n"
        "    shards, batch_size=8, shuffle=True, seed=0, num_workers=2, collate_fn=list)\n"
        "for batch in loader:\n"
        "    pass\n"
    )
    command = [sys.executable, "-m", "reader", "profile", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "bytes of the store. The network gives " in done.stderr


@pytest.mark.parametrize("has_folder", [True, False])
def test_top_has_a_line_for_the_network(has_folder: bool, server: S3Server, tmp_path: Path) -> None:
    cache = ShardCache(tmp_path / "cache" if has_folder else None, "100MB")
    shards = Shards("s3://large", store=options(server), cache=cache)
    other = Shards("s3://sets/mds", store=options(server))  # in another cache
    how: dict[str, Any] = {"batch_size": 8, "collate_fn": list, "num_workers": 2}
    with DataLoader(shards, shuffle=True, seed=0, **how) as loader:
        next(batches := iter(loader))
        (view,) = watch_loaders([os.getpid()], 0.2)
        found = {each.pid: each for each in view.fetchers}
        own = found[shards.fetch_stats()["pid"]]
        assert other.fetch_stats()["pid"] in found
        assert own.pid != other.fetch_stats()["pid"]
        assert set(own.users) >= {os.getpid()}
        assert 0 < own.kept_bytes <= own.limit_bytes == 100_000_000
        assert f"\nnetwork: process {own.pid} fetches " in table_of([view, view])
        assert table_of([view, view]).count(f"network: process {own.pid} ") == 1
        out = io.StringIO()
        assert show_top(os.getpid(), 0.1, is_once=True, is_json=True, out=out) == 0
        (told,) = json.loads(out.getvalue())
        assert own.pid in [each["pid"] for each in told["fetchers"]]
        del batches


# -- ahead ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [0, "16MB", "auto"])
def test_it_reads_ahead_as_far_as_is_asked(ahead: Any, server: S3Server) -> None:
    shards = Shards("s3://large", store=options(server), cache=ShardCache(None, "200MB", ahead))
    order = ShardOrder(shards, 1, window=50)
    how: dict[str, Any] = {"batch_size": 4, "sampler": order, "collate_fn": list}
    with DataLoader(shards, **how) as loader:
        batches, found, most = iter(loader), [], 0
        for _ in range(4):
            found += next(batches)
        if ahead == "auto":
            wait_until(lambda: shards.fetch_stats()["kept"] >= 0.98 * NBYTES)
        for batch in batches:
            found += batch
            most = max(most, loader.stats()["fetch"]["ahead"])
    assert sorted(sample["k"] for sample in found) == list(range(COUNT))
    assert most <= {0: 0, "16MB": 16e6 + (8 << 20), "auto": NBYTES * 1.01}[ahead]


# -- a full disk, and several jobs ------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 32 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "small", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this system mounts no file system for tests")
    try:
        yield place
    finally:
        unmount = ["umount", str(place)]  # once no process has it open
        wait_until(lambda: subprocess.run(unmount, capture_output=True).returncode == 0)


@contextlib.contextmanager
def in_a_thread() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Call functions in threads, whose ends close their connections."""
    import threading

    def call(function: Callable[[], Any]) -> Any:
        found: list[Any] = []

        def run() -> None:
            try:
                found.append(function())
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    yield call


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:the disk of the cache")
def test_a_full_disk_ends_no_epoch_and_changes_no_byte(
    workers: int, server: S3Server, small_disk: Path
) -> None:
    def read() -> tuple[list[list[Any]], dict[str, Any]]:
        shards = Shards("s3://large", store=options(server), cache=ShardCache(small_disk, "1GB"))
        order = ShardOrder(shards, 1, window=100)
        found = [all_of(shards, order, num_workers=workers)]
        stats = shards.fetch_stats()
        return [*found, all_of(shards, order, num_workers=workers)], stats

    with in_a_thread() as call:
        found, stats = call(read)
    for samples in found:
        check(sorted(samples, key=lambda sample: sample["k"]), list(range(COUNT)))
    assert stats["limit"] < 1e9  # what the disk has room for
    assert stats["kept"] <= 64 << 20


def test_a_disk_that_is_full_is_told_once(server: S3Server, small_disk: Path) -> None:
    def read() -> None:
        shards = Shards("s3://large", store=options(server), cache=ShardCache(small_disk, "1GB"))
        with pytest.warns(UserWarning, match="is full, or fails: fewer bytes are kept") as told:
            all_of(shards, ShardOrder(shards, 1))
        assert len(told) == 1

    with in_a_thread() as call:
        call(read)


def test_a_disk_that_is_full_from_the_beginning_is_refused_by_name(
    server: S3Server, small_disk: Path
) -> None:
    with contextlib.suppress(OSError), (small_disk / "other").open("wb", 0) as file:
        while True:
            file.write(bytes(1 << 16))

    def read() -> Any:
        return Shards("s3://sets/mds", store=options(server), cache=ShardCache(small_disk, "1GB"))

    with in_a_thread() as call:
        with pytest.raises(ReaderError, match=r"No space left on device.*Free some of its disk"):
            call(read)
        (small_disk / "other").unlink()
        assert len(call(read)) == 20


@pytest.mark.filterwarnings("ignore:the disk of the cache")
def test_a_cache_that_somebody_removes_ends_no_epoch(server: S3Server, tmp_path: Path) -> None:
    def read() -> list[Any]:
        shards = Shards("s3://large", store=options(server), cache=ShardCache(tmp_path / "cache"))
        order, found = ShardOrder(shards, 1), []
        how: dict[str, Any] = {"batch_size": 16, "sampler": order, "collate_fn": list}
        with DataLoader(shards, num_workers=2, **how) as loader:
            for number, batch in enumerate(loader):
                if number == 5:
                    (tmp_path / "cache").rename(tmp_path / "gone")
                found += batch
        with DataLoader(shards, num_workers=1, **how) as loader:  # connects anew
            assert sum(map(len, loader)) == COUNT
        return found

    with in_a_thread() as call:
        found = call(read)
    check(sorted(found, key=lambda sample: sample["k"]), list(range(COUNT)))


def test_two_jobs_of_a_user_fetch_each_byte_once(
    server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.set_rules(Rule("delay", 20))
    arguments = json.dumps(options(server, proxy.endpoint)), str(tmp_path / "cache")
    programs = []
    for number in range(2):
        (tmp_path / f"{number}").mkdir()
        text = READS.replace("s3://sets/mds", "s3://large")
        programs.append(Program(tmp_path / f"{number}", text, *arguments, "0", "1"))
    pids = {program.line() for program in programs}
    found = [json.loads(program.line()) for program in programs]
    for program in programs:
        program.process.send_signal(signal.SIGKILL)
        program.finish()
    assert len(pids) == 1
    wait_ended(int(pids.pop()))
    assert [sorted(each) for each in found] == [list(range(COUNT))] * 2
    # the first samples of each job may come alone, and come again
    assert proxy.counters().bytes_sent < 1.2 * NBYTES


def test_an_observer_starts_no_process(server: S3Server) -> None:
    shards = Shards("s3://sets/mds", store=options(server))
    loader = DataLoader(shards, batch_size=4)
    pid = shards.fetch_stats()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_ended(pid)
    assert loader.stats()["fetch"] == {**loader.stats()["fetch"], "bytes": 0, "is_running": False}
    connected(shards._use.cache).close()
