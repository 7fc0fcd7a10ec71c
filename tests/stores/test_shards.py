"""Shards in stores: the samples of local files, whatever the network does, and nothing left."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, DataLoader, DatasetError, ShardCache, ShardOrder, Shards
from reader import write_shards as write
from reader.stores.messages import COUNTER, receive, send
from reader.stores.shard_cache import connected
from tests.processes import Program, open_pid, wait_gone, wait_until
from tests.stores import servers
from tests.stores.proxy import Proxy, Rule
from tests.stores.servers import S3Server, s3_server

pytestmark = pytest.mark.slow

_OF_OTHERS = ("paddle_", "torch_", "psm_", "sem.", "mx_", "pym-")
FORMATS = ["tar", "mds", "mds-zstd", "tfrecord", "parquet", "jsonl", "files"]
COUNT = 300


def write_sets(folder: Path) -> None:
    """Write the same kind of samples in each format, in several shards."""
    rng = np.random.default_rng(0)
    rows = [{"x": rng.bytes(int(rng.integers(0, 3000))), "k": k} for k in range(COUNT)]
    write(
        [{"x.bin": row["x"], "k": row["k"]} for row in rows],
        folder / "tar",
        "tar",
        shard_size="90KB",
    )
    columns = {"x": "bytes", "k": "int"}
    write(rows, folder / "mds", "mds", columns=columns, shard_size="90KB")
    write(rows, folder / "mds-zstd", "mds", columns=columns, shard_size="90KB", compression="zstd")
    write(rows, folder / "tfrecord", "tfrecord", shard_size="90KB")
    write(rows, folder / "parquet", "parquet", shard_size="90KB")
    for name in ("jsonl", "files"):
        (folder / name).mkdir()
    for part in range(3):
        lines = "".join(f"{json.dumps({'k': k})}\n" for k in range(part * 100, part * 100 + 100))
        (folder / "jsonl" / f"{part}.jsonl").write_text(lines)
    for k in range(20):
        (folder / "files" / f"{k}.txt").write_text(f"file {k}")


def upload(server: servers.Server, bucket: str, folder: Path) -> None:
    server.make_bucket(bucket)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            server.put(bucket, str(path.relative_to(folder)), path.read_bytes())


def upload_rows(server: S3Server, folder: Path, rows: list[Any], shard_size: str) -> None:
    """Write samples of bytes as MDS into a folder, and upload it to the bucket of its name."""
    write(rows, folder, "mds", columns={"x": "bytes"}, shard_size=shard_size)
    upload(server, folder.name, folder)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    write_sets(folder)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, local: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        upload(server, "sets", local)
        yield server


def options(server: S3Server, endpoint: str = "", **others: Any) -> dict[str, Any]:
    return {
        "endpoint": endpoint or server.endpoint,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
        "region": server.region,
        "virtual_hosted_style_request": False,
        "timeout": 20,
        **others,
    }


def kind_of(name: str) -> dict[str, Any]:
    return {"format": "files"} if name == "files" else {}


def all_of(dataset: Any, order: Any, **loading: Any) -> list[Any]:
    loader = DataLoader(dataset, batch_size=16, sampler=order, collate_fn=list, **loading)
    with loader:
        return [sample for batch in loader for sample in batch]


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


def wait_ended(*pids: int) -> None:
    wait_gone([open_pid(pid) for pid in pids])


# -- equal samples ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_samples_are_those_of_local_files(name: str, local: Path, server: S3Server) -> None:
    here = Shards(local / name, **kind_of(name))
    there = Shards(f"s3://sets/{name}", store=options(server), **kind_of(name))
    assert len(there) == len(here)
    assert equal([there[k] for k in (0, -1, 5)], [here[k] for k in (0, -1, 5)])
    assert there.origin(7).path == str(here.origin(7).path).replace(str(local), "s3://sets")
    for window in (100, "all"):
        expected = all_of(here, ShardOrder(here, 1, window=window))
        for workers in (0, 2):
            found = all_of(there, ShardOrder(there, 1, window=window), num_workers=workers)
            assert equal(found, expected)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver", "thread"])
def test_workers_of_each_kind_read(method: str, local: Path, server: S3Server) -> None:
    here, there = Shards(local / "mds"), Shards("s3://sets/mds", store=options(server))
    how = {"worker_type": "thread"} if method == "thread" else {"start_method": method}
    found = all_of(there, ShardOrder(there, 1), num_workers=2, **how)
    assert equal(found, all_of(here, ShardOrder(here, 1)))


def test_paths_are_patterns_lists_and_single_objects(local: Path, server: S3Server) -> None:
    store = options(server)
    files = sorted((local / "tar").glob("*.tar"))
    urls = [f"s3://sets/tar/{path.name}" for path in files]
    assert len(files) > 3
    for path in ("s3://sets/tar/*.tar", urls, "s3://sets/tar/", "::".join(urls)):
        assert len(Shards(path, store=store)) == COUNT
    assert len(Shards(urls[1], store=store)) == len(Shards(files[1]))
    assert len(Shards([urls[0], files[1]], store=store)) == len(Shards(files[:2]))
    assert len(Shards(f"file://{local}/tar")) == COUNT
    pictures = Shards("s3://sets/mds", store=store, fields={"k": int})
    assert [pictures[k]["k"] for k in range(5)] == list(range(5))


@pytest.mark.parametrize("name", ["gcs", "azure", "http"])
def test_other_stores_give_the_same(name: str, local: Path, tmp_path: Path) -> None:
    with getattr(servers, f"{name}_server")(tmp_path) as server:
        upload(server, "sets", local)
        url = {"gcs": "gs://sets", "azure": "az://sets", "http": f"{server.endpoint}/sets"}[name]
        store: dict[str, Any] = {}
        if name == "gcs":
            store = {"base_url": server.endpoint, "skip_signature": True}
        if name == "azure":
            store = {"endpoint": f"{server.endpoint}/{server.account}"}
            store |= {"account_name": server.account, "account_key": server.key}
        here = Shards(local / "mds")
        there = Shards(f"{url}/mds/index.json", store=store)
        found = all_of(there, ShardOrder(there, 1), num_workers=2)
        assert equal(found, all_of(here, ShardOrder(here, 1)))
        if name != "http":  # what a store lists
            assert equal(
                all_of(Shards(f"{url}/tar", store=store), None), all_of(Shards(local / "tar"), None)
            )


def test_the_command_goes_by_the_environment(server: S3Server) -> None:
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_REGION": server.region,
    }
    for command, told in [("list", "s3://sets/mds/shard.00001.mds"), ("check", "all whole")]:
        arguments = [sys.executable, "-m", "reader", "shards", command, "s3://sets/mds"]
        done = subprocess.run(
            arguments, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert told in done.stdout


def test_a_first_batch_of_many_small_samples_is_fetched_once(
    tmp_path: Path, server: S3Server
) -> None:
    """They are more than the descriptors that a thread holds."""
    rows = [{"x": np.random.default_rng(k).bytes(2000)} for k in range(4000)]
    upload_rows(server, tmp_path / "tokens", rows, "64MB")
    there = Shards("s3://tokens", store=options(server), cache=ShardCache(ahead=0))
    wanted = np.random.default_rng(0).permutation(4000)[:900].tolist()
    before = there.fetch_stats()
    assert there.__getitems__(wanted) == [rows[k] for k in wanted]
    after = there.fetch_stats()
    assert after["requests"] - before["requests"] <= 901  # one for the places of all
    assert after["bytes"] - before["bytes"] < 900 * 2100 + 4 * 4100


def test_first_samples_come_in_the_order_of_their_workers(
    tmp_path: Path, server: S3Server, proxy: Proxy
) -> None:
    """Who is started first makes the first batch, also where others have asked before."""
    rows = [{"x": np.random.default_rng(k).bytes(2000)} for k in range(1200)]
    upload_rows(server, tmp_path / "few", rows, "64MB")
    there = Shards("s3://few", store=options(server, proxy.endpoint), cache=ShardCache(ahead=0))
    context = multiprocessing.get_context("fork")
    done = context.Queue()
    may_begin = [context.Event(), context.Event()]

    def read(number: int, samples: range) -> None:
        may_begin[number].wait(60)
        is_right = there.__getitems__(samples) == [rows[k] for k in samples]
        done.put((number, is_right))

    parts = range(256), range(256, 1200)
    workers = [context.Process(target=read, args=(k, part)) for k, part in enumerate(parts)]
    for worker in workers:
        worker.start()
    proxy.set_rules(Rule("delay", 200))
    may_begin[1].set()
    wait_until(lambda: proxy.counters().most_requests >= 60)
    may_begin[0].set()
    found = [done.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert found == [(0, True), (1, True)]


def test_versions_of_shards_come_beside_their_index(server: S3Server, proxy: Proxy) -> None:
    """A first batch needs three round trips: the index, the places in its shards, the samples."""
    there = Shards("s3://sets/mds", store=options(server, proxy.endpoint))
    assert len(there.files) > 3
    found = proxy.counters()
    assert found.requests == {"GET 206": 1, "GET 200": 1}
    assert all(file.mtime_ns for file in there.files)


def test_versions_are_asked_for_one_by_one_where_a_store_lists_nothing(
    local: Path, server: S3Server, proxy: Proxy
) -> None:
    proxy.set_rules(Rule("slow_down", path="list-type"))
    there = Shards("s3://sets/mds", store=options(server, proxy.endpoint))
    found = proxy.counters().requests
    assert found["HEAD 200"] == len(there.files)
    assert equal(there[5], Shards(local / "mds")[5])
    assert there.fetch_stats()["errors"] == {}


# -- a network that fails ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        [Rule("slow_down", first=4), Rule("too_many", 1, share=0.1)],
        [Rule("cut", first=6)],
        [Rule("wrong_range", first=3), Rule("no_range", share=0.1)],
        [Rule("stall", 8, first=2)],
        [Rule("delay", 30), Rule("bandwidth", 2e6)],
    ],
    ids=lambda rules: "-".join(rule.kind for rule in rules),
)
def test_faults_change_no_sample(
    rules: list[Rule], local: Path, server: S3Server, proxy: Proxy
) -> None:
    here = Shards(local / "mds")
    there = Shards("s3://sets/mds", store=options(server, proxy.endpoint))
    proxy.set_rules(*rules)
    found = all_of(there, ShardOrder(there, 1, window=50), num_workers=2)
    assert equal(found, all_of(here, ShardOrder(here, 1, window=50)))
    assert sum(proxy.counters().faults.values()) > 0


@pytest.mark.parametrize("name", ["tar", "mds", "mds-zstd", "tfrecord", "parquet", "jsonl"])
def test_damaged_bytes_are_fetched_once_more(
    name: str, local: Path, server: S3Server, proxy: Proxy
) -> None:
    """Objects that one request has uploaded and fetched are compared with the store's sum."""
    here = Shards(local / name)
    proxy.set_rules(Rule("damage", attempts=1))
    there = Shards(f"s3://sets/{name}", store=options(server, proxy.endpoint))
    found = all_of(there, ShardOrder(there, 1, window=50), num_workers=2)
    assert equal(found, all_of(here, ShardOrder(here, 1, window=50)))
    assert there.fetch_stats()["damaged"] > 0


def test_damage_that_a_format_finds_is_fetched_once_more(
    tmp_path: Path, server: S3Server, proxy: Proxy
) -> None:
    """A shard of several extents has no sum for each, and TFRecord has one for each record."""
    rng = np.random.default_rng(0)
    write([{"x": rng.bytes(30_000)} for _ in range(900)], tmp_path / "long", "tfrecord")
    (shard,) = (tmp_path / "long").glob("*.tfrecord")
    server.put("sets", "long/a.tfrecord", shard.read_bytes())
    here = Shards(shard)
    for workers in (0, 2):
        there = Shards("s3://sets/long", store=options(server, proxy.endpoint))
        proxy.set_rules(Rule("damage", first=1, path="a.tfrecord"))
        assert equal(all_of(there, None, num_workers=workers), all_of(here, None))
        assert there.fetch_stats()["damaged"] > 0
    there = Shards("s3://sets/long", store=options(server, proxy.endpoint))
    proxy.set_rules(Rule("damage", path="a.tfrecord"))  # always: then samples fail by themselves
    with pytest.raises(DatasetError, match=r"s3://sets/long/a.tfrecord'.* is damaged"):
        all_of(there, None)


def test_a_store_that_is_away_for_a_while_is_waited_for(
    local: Path, server: S3Server, proxy: Proxy
) -> None:
    here = Shards(local / "tfrecord")
    there = Shards("s3://sets/tfrecord", store=options(server, proxy.endpoint))
    proxy.set_rules(Rule("refuse", 3, first=1))
    assert equal(all_of(there, None), all_of(here, None))


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["mds-zstd", "tfrecord"])
def test_epochs_are_whole_through_all_faults_at_once(
    name: str, tmp_path: Path, server: S3Server, proxy: Proxy
) -> None:
    """Also wrong bytes of extents, which a sum of each record, or of each shard, finds."""
    rng = np.random.default_rng(0)
    rows = [{"x": rng.bytes(100_000), "k": k} for k in range(1600)]
    whole = {"columns": {"x": "bytes", "k": "int"}, "compression": "zstd"}
    more: dict[str, Any] = whole if name.startswith("mds") else {}
    write(rows, tmp_path / "set", name.partition("-")[0], shard_size="4MB", **more)
    upload(server, f"all-{name}", tmp_path / "set")
    here = Shards(tmp_path / "set")
    store = options(server, proxy.endpoint, timeout=120)
    there = Shards(f"s3://all-{name}", store=store, cache=ShardCache(limit="64MiB"))
    proxy.set_rules(
        Rule("slow_down", share=0.05),
        Rule("cut", share=0.01),
        Rule("cut", first=2, path="00003"),  # some, whatever is drawn
        Rule("damage", share=0.005, attempts=1),
        Rule("damage", first=1, path="00007"),
        Rule("stall", 20, share=0.005),
        Rule("refuse", 30, first=1, path="00011"),  # the server begins again
    )
    how: dict[str, Any] = {"batch_size": 16, "collate_fn": list}
    local = DataLoader(here, sampler=ShardOrder(here, 1, window=400), **how)
    order = ShardOrder(there, 1, window=400)
    with local, DataLoader(there, sampler=order, num_workers=2, **how) as loader:
        for _ in range(2):
            assert equal(list(loader), list(local))
    faults = proxy.counters().faults
    assert {"slow_down", "cut", "damage", "refuse"} <= faults.keys(), faults


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("expired", r"the credentials have expired. Get new ones, and go on"),
        (
            "other_region",
            r"lies in another region: pass store=\{'region': ...\}, or set AWS_REGION",
        ),
    ],
)
def test_what_a_store_refuses_in_an_epoch_is_told_at_once(
    kind: Any, told: str, local: Path, server: S3Server, proxy: Proxy
) -> None:
    there = Shards(
        "s3://sets/mds", store=options(server, proxy.endpoint), cache=ShardCache(ahead=0)
    )
    with DataLoader(there, batch_size=16, num_workers=2, collate_fn=list) as loader:
        batches = iter(loader)
        found, state = next(batches), loader.state_dict()
        proxy.set_rules(Rule(kind))
        began = time.monotonic()
        with pytest.raises(DatasetError, match=told) as caught:
            for batch in batches:
                found += batch
                state = loader.state_dict()
        assert time.monotonic() - began < 10  # and not when its time is over
        assert server.secret_key not in str(caught.value)
        proxy.set_rules()
    with DataLoader(there, batch_size=16, num_workers=2, collate_fn=list) as loader:
        loader.load_state_dict(state)
        rest = [sample for batch in loader for sample in batch]
    assert equal(found + rest, all_of(Shards(local / "mds"), None))


def test_what_cannot_be_fetched_in_time_is_told(server: S3Server, proxy: Proxy) -> None:
    there = Shards("s3://sets/mds", store=options(server, proxy.endpoint, timeout=1))
    proxy.set_rules(Rule("slow_down"))
    began = time.monotonic()
    with pytest.raises(
        DatasetError, match=r"s3://sets/mds/shard.*could not be fetched in time.*SlowDown"
    ):
        there[0]
    assert time.monotonic() - began < 10
    proxy.set_rules()
    assert there[0]["k"] == 0


def test_samples_that_are_not_there_fail_alone(
    local: Path, server: S3Server, tmp_path: Path
) -> None:
    upload(server, "holes", local / "mds")
    there = Shards("s3://holes", store=options(server))
    server.signed("DELETE", "/holes/shard.00001.mds")
    with pytest.raises(DatasetError, match=r"s3://holes/shard.00001.mds' is not there"):
        all_of(there, None)
    with DataLoader(
        there, batch_size=1, num_workers=2, on_error="skip", error_budget=0.5, collate_fn=list
    ) as loader:
        found = [batch[0]["k"] for batch in loader if batch]
    begin, end = there.starts[1:3]
    assert found == [k for k in range(COUNT) if not begin <= k < end]


def test_an_object_that_changes_is_told_and_read_by_who_begins_anew(
    local: Path, server: S3Server
) -> None:
    content = {path.name: path.read_bytes() for path in (local / "tar").glob("*.tar")}
    server.make_bucket("changing")
    for name in ("a.tar", "b.tar"):
        server.put("changing", name, content[min(content)])
    cache = ShardCache()
    old = Shards("s3://changing", store=options(server), cache=cache)
    assert len(old) == 2 * len(Shards(local / "tar" / min(content)))
    for name in ("a.tar", "b.tar"):
        server.put("changing", name, content[max(content)])
    expected = all_of(Shards(local / "tar" / max(content)), None)
    new = Shards("s3://changing", store=options(server), cache=cache)
    assert equal(all_of(new, None, num_workers=2), [*expected, *expected])
    with pytest.raises(DatasetError, match="has changed since its index was made"):
        all_of(old, None, num_workers=1)
    assert equal(all_of(new, None), [*expected, *expected])


def test_many_objects_with_any_names_are_fetched_at_once(server: S3Server) -> None:
    server.make_bucket("names")
    names = [f"a b/é+~(1)%20#{k}?.txt" for k in range(250)]
    for name in names:
        server.put("names", name, name.encode())
    there = Shards("s3://names", "files", store=options(server))
    with DataLoader(there, batch_size=250, num_workers=1, collate_fn=list) as loader:
        (found,) = list(loader)
    assert {each["file"]: each["bytes"] for each in found} == {n: n.encode() for n in names}


@pytest.mark.parametrize(
    ("url", "changes", "told"),
    [
        ("s3://sets/none/index.json", {}, "cannot be read: the store has no such object"),
        ("s3://nowhere/mds", {}, "lies in a bucket or container that is not there"),
        ("s3://sets/mds", {"secret_access_key": "wrong"}, "is refused by the store: set the cred"),
        ("s3://sets/mds", {"colour": "red"}, "cannot be used with these options of store="),
        ("s3://sets/tar/*.nothing", {}, "names no object of the store"),
        ("s3:///mds", {}, "names no bucket or host"),
        ("s3://", {}, "names no bucket or host"),
    ],
)
def test_what_is_wrong_is_told_at_once(
    url: str, changes: dict[str, Any], told: str, server: S3Server
) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        Shards(url, store=options(server, **changes))
    assert server.secret_key not in str(error.value)


# -- one process that fetches -----------------------------------------------------------------


def test_it_ends_with_those_who_ask_it(server: S3Server) -> None:
    def pid() -> int:
        there = Shards("s3://sets/mds", store=options(server), cache=ShardCache())
        list(DataLoader(there, batch_size=50, num_workers=2, collate_fn=list))
        return there.fetch_stats()["pid"]

    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(pid()))
    thread.start()
    thread.join()
    wait_ended(found[0])


def test_it_is_replaced_when_it_is_killed(local: Path, server: S3Server) -> None:
    here = Shards(local / "mds")
    there = Shards("s3://sets/mds", store=options(server), cache=ShardCache())
    expected = all_of(here, ShardOrder(here, 1))
    killed, found = set(), []
    loader = DataLoader(
        there, batch_size=4, num_workers=2, sampler=ShardOrder(there, 1), collate_fn=list
    )
    with loader:
        for number, batch in enumerate(loader):
            found += batch
            if number % 7 == 3:
                pid = there.fetch_stats()["pid"]
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
    assert equal(found, expected)
    assert len(killed) > 5
    wait_ended(*killed)


READS = """
    import json, os, sys, time
    from reader import DataLoader, ShardCache, ShardOrder, Shards

    store, folder, rank, ranks = json.loads(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
    shards = Shards("s3://sets/mds", store=store, cache=ShardCache(folder or None))
    order = ShardOrder(shards, 1, rank=rank, world_size=ranks)
    print(shards.fetch_stats()["pid"], flush=True)
    while True:
        how = {"batch_size": 4, "num_workers": 2, "collate_fn": list}
        with DataLoader(shards, sampler=order, **how) as loader:
            print(json.dumps([sample["k"] for batch in loader for sample in batch]), flush=True)
        sys.stdin.readline()
        if ranks > 1:
            time.sleep(60)
"""


def leftovers() -> Counter[str]:
    found = [*Path("/dev/shm").iterdir(), *Path("/tmp").glob("reader*")]
    # other tests run beside this one, whose libraries share memory by names
    return Counter(str(path) for path in found if not path.name.startswith(_OF_OTHERS))


@pytest.mark.parametrize("has_folder", [True, False])
def test_nothing_is_left_of_a_trainer_that_is_killed(
    has_folder: bool, server: S3Server, tmp_path: Path
) -> None:
    before = leftovers()
    folder = str(tmp_path / "cache") if has_folder else ""
    program = Program(tmp_path, READS, json.dumps(options(server)), folder, "0", "1")
    pid = int(program.line())
    program.line()
    program.process.send_signal(signal.SIGKILL)
    program.finish()
    wait_ended(pid)
    assert leftovers() == before


def test_ranks_of_a_machine_fetch_each_byte_once(
    local: Path, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.set_rules(Rule("delay", 20))
    arguments = json.dumps(options(server, proxy.endpoint)), str(tmp_path / "cache")
    programs = []
    for rank in range(3):
        (tmp_path / f"{rank}").mkdir()
        programs.append(Program(tmp_path / f"{rank}", READS, *arguments, f"{rank}", "3"))
    pids = {program.line() for program in programs}
    found = [json.loads(program.line()) for program in programs]
    for program in programs:
        program.process.send_signal(signal.SIGKILL)
        program.finish()
    assert len(pids) == 1
    wait_ended(int(pids.pop()))
    assert sorted(k for part in found for k in part) == list(range(COUNT))
    size = sum(path.stat().st_size for path in (local / "mds").iterdir())
    assert proxy.counters().bytes_sent < 1.6 * size  # first samples come alone, and come again


def test_a_folder_serves_the_next_run_which_fetches_nothing(
    local: Path, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    def read() -> list[Any]:
        there = Shards(
            "s3://sets/tar",
            store=options(server, proxy.endpoint),
            cache=ShardCache(tmp_path / "cache"),
            index=tmp_path / "index",
        )
        return all_of(there, ShardOrder(there, 1))

    found: list[list[Any]] = []
    for _ in range(2):  # a thread's end closes its connection
        thread = threading.Thread(target=lambda: found.append(read()))
        thread.start()
        thread.join()
        wait_until(lambda: not list((tmp_path / "cache").glob("*/socket-*")))
        sent = proxy.reset().bytes_sent
    assert equal(found[0], found[1])
    assert len(found[0]) == COUNT
    assert sent < 10_000  # the list of objects


def test_another_limit_of_a_cache_in_use_is_told(server: S3Server, tmp_path: Path) -> None:
    first = ShardCache(tmp_path, "100MB")
    there = Shards("s3://sets/mds", store=options(server), cache=first)
    for limit in ("100MB", None):
        Shards("s3://sets/mds", store=options(server), cache=ShardCache(tmp_path, limit))
    with pytest.warns(UserWarning, match="is in use with limit=100000000"):
        Shards("s3://sets/mds", store=options(server), cache=ShardCache(tmp_path, "200MB"))
    assert there[0]["k"] == 0


def test_less_room_than_the_set_costs_few_bytes_more(
    server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    rows = [{"x": np.random.default_rng(k).bytes(400_000)} for k in range(500)]
    upload_rows(server, tmp_path / "large", rows, "16MB")
    there = Shards(
        "s3://large", store=options(server, proxy.endpoint), cache=ShardCache(limit="70MB")
    )
    order = ShardOrder(there, 1, window=40)
    for _ in range(2):
        assert len(all_of(there, order, num_workers=2)) == 500
    size = sum(path.stat().st_size for path in (tmp_path / "large").iterdir())
    sent = proxy.counters().bytes_sent
    assert sent < 2 * size * 1.15
    assert there.fetch_stats()["kept"] <= 70e6 + (64 << 20)


def test_a_forked_process_of_the_user_reads_too(server: S3Server) -> None:
    there = Shards("s3://sets/mds", store=options(server), cache=ShardCache())
    assert there[3]["k"] == 3
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writable, b"%d" % there[4]["k"])
        finally:
            os._exit(0)
    os.close(writable)
    assert os.read(readable, 10) == b"4"
    os.close(readable)
    os.waitpid(pid, 0)
    assert there[5]["k"] == 5


def test_one_who_does_not_read_holds_nobody_up(server: S3Server) -> None:
    cache = ShardCache()
    there = Shards("s3://sets/mds", store=options(server), cache=cache)
    idle = connected(cache)
    counter = os.memfd_create("counter", os.MFD_CLOEXEC)
    os.ftruncate(counter, COUNTER.size)
    about = {"root": "s3://sets", "options": options(server), "use": ""}
    send(idle, {"do": "store", **about}, [counter])
    os.close(counter)
    assert receive(idle)[0] == {"store": 0}
    for _ in range(100):
        send(idle, {"do": "list", "store": 0, "prefix": "mds/"})
    assert equal(all_of(there, None, num_workers=2), all_of(there, None))
    found = [receive(idle)[0]["objects"] for _ in range(100)]
    idle.close()
    assert found[0]
    assert found.count(found[0]) == 100
