"""Shards written to stores: the bytes of local ones, whatever the network or the user ends."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, DataLoader, ShardCache, Shards, write_shards
from reader.stores.client import Store
from reader.stores.shard_cache import CacheUse
from reader.stores.uploads import Uploads
from tests.processes import BOUND_S, Program, open_pid, wait_gone, wait_until
from tests.stores import servers
from tests.stores.proxy import Proxy, Rule
from tests.stores.servers import ANYBODYS, GcsXmlServer, S3Server, azure_server
from tests.stores.test_shards import options as options_of_s3

pytestmark = pytest.mark.slow

JOURNAL, LOCK = ".reader-journal.jsonl", ".reader-lock.json"
FORMATS = ["mds", "mds-zstd", "tar", "tfrecord", "parquet", "jsonl"]
COUNT = 200
WritableServer = S3Server | GcsXmlServer


def rows(count: int = COUNT) -> list[dict[str, Any]]:
    return [{"n": k, "s": "é" * (k % 90)} for k in range(count)]


def how(name: str) -> dict[str, Any]:
    form, _, compression = name.partition("-")
    return {"format": form, "shard_size": 900, "compression": compression or None}


def written(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name[0] != "."}


def stores(name: str, of_s3: list[Any], of_gcs: list[Any]) -> pytest.MarkDecorator:
    """Run a test with some values of a parameter on S3, and with others on Google's store."""
    values = [*(("s3", each) for each in of_s3), *(("gcs_xml", each) for each in of_gcs)]
    return pytest.mark.parametrize(("server", name), values, indirect=["server"], scope="module")


def each_store(*of_gcs: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Mark a test that runs on each store, on Google's with some marks."""
    servers = ["s3", pytest.param("gcs_xml", marks=of_gcs)]
    return pytest.mark.parametrize("server", servers, indirect=True, scope="module")


EACH_STORE = each_store()
# Google's store takes an object once a second, for which these wait: on it they run nightly.
SLOW_STORE = each_store(pytest.mark.nightly)


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WritableServer]:
    name = getattr(request, "param", "s3")
    with getattr(servers, f"{name}_server")(tmp_path_factory.mktemp(name)) as server:
        yield server


def options(server: WritableServer, endpoint: str = "", **others: Any) -> dict[str, Any]:
    if isinstance(server, S3Server):
        return options_of_s3(server, endpoint, **others)
    store = {"base_url": endpoint or server.endpoint, "bearer_token": server.token}
    return {**store, "timeout": 20, **others}


_numbers = itertools.count()


@pytest.fixture
def bucket(server: WritableServer) -> str:
    name = f"bucket{next(_numbers)}"
    server.make_bucket(name)
    return name


def names_in(server: WritableServer, bucket: str, folder: str) -> set[str]:
    """Return what a folder of few objects has."""
    answer = server.signed("GET", f"/{bucket}")
    assert answer.status == 200
    root = ET.fromstring(answer.body)
    keys = [each.text or "" for each in root.iter() if each.tag.endswith("}Key")]
    assert not any(each.text == "true" for each in root.iter() if each.tag.endswith("IsTruncated"))
    return {key[len(folder) + 1 :] for key in keys if key.startswith(f"{folder}/")}


def stored(server: WritableServer, bucket: str, folder: str) -> dict[str, bytes]:
    names = {name for name in names_in(server, bucket, folder) if name[0] != "."}
    return {name: server.get(bucket, f"{folder}/{name}").body for name in names}


def read_back(path: Any, form: str, store: dict[str, Any]) -> list[Any]:
    fields: Any = {"n": int, "s": str} if form in ("tar", "tfrecord") else None
    shards = Shards(path, fields=fields, store=store)
    return [shards[index] for index in range(len(shards))]


def fetchers(of: int) -> set[int]:
    """Return the processes that write for a process."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = path.read_bytes()
            if b"reader.stores.fetcher.main" in text and b'"/proc/%d/fd/' % of in text:
                found.add(int(path.parent.name))
    return found


# -- the same bytes ---------------------------------------------------------------------------


@stores("name", FORMATS, ["mds-zstd", "tar"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_bytes_are_those_of_local_shards(
    name: str, workers: int, server: WritableServer, bucket: str, tmp_path: Path
) -> None:
    form = name.partition("-")[0]
    store = options(server)
    count = write_shards(
        rows(), f"{server.scheme}://{bucket}/a/b/", **how(name), num_workers=workers, store=store
    )
    assert count == write_shards(rows(), tmp_path / "here", **how(name)) > 1
    assert stored(server, bucket, "a/b") == written(tmp_path / "here")
    assert names_in(server, bucket, "a/b") - {JOURNAL} == set(written(tmp_path / "here"))
    assert read_back(f"{server.scheme}://{bucket}/a/b", form, store) == rows()


@SLOW_STORE
def test_a_training_reads_what_was_written(
    server: WritableServer, bucket: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    samples = [{"x": rng.random(5), "y": float(k)} for k in range(COUNT)]
    weights = []
    for path in (f"{server.scheme}://{bucket}/a", str(tmp_path)):
        store = options(server) if "://" in path else None
        write_shards(samples, path, "mds", shard_size=900, store=store)
        shards = Shards(path, store=store)
        found, state = np.zeros(5), None
        for _ in range(3):  # each goes on in the middle of an epoch
            with DataLoader(shards, batch_size=16, shuffle=True, seed=1, num_workers=2) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                for batch in itertools.islice(itertools.chain(loader, loader), 9):
                    found -= 0.1 * batch["x"].T @ (batch["x"] @ found - batch["y"]) / 16
                state = loader.state_dict()
        weights.append(found)
    assert np.array_equal(*weights)
    assert weights[0].any()


def test_azure_has_them_too(tmp_path: Path) -> None:
    with azure_server(tmp_path) as server:
        server.make_bucket("sets")
        store = {"endpoint": f"{server.endpoint}/{server.account}", "timeout": 20}
        store |= {"account_name": server.account, "account_key": server.key}
        for _ in range(2):  # the second one finds all of them whole
            write_shards(rows(), "az://sets/tar", **how("tar"), store=store)
        assert read_back("az://sets/tar", "tar", store) == rows()
        write_shards(rows(), tmp_path / "here", **how("tar"))
        for name, content in written(tmp_path / "here").items():
            assert server.get("sets", f"tar/{name}").body == content
        assert server.get("sets", f"tar/{LOCK}").status == 404


@EACH_STORE
def test_a_large_shard_is_sent_in_parts(server: WritableServer, proxy: Proxy, bucket: str) -> None:
    samples = [{"x": np.random.default_rng(k).bytes(9_000_000)} for k in range(9)]
    proxy.set_rules(
        Rule("slow_down", first=3, path="partNumber"),
        Rule("cut", first=1, path="uploads"),
        Rule("too_many", first=2, path=r"\?uploadId"),
    )
    store = options(server, proxy.endpoint)
    assert (
        write_shards(samples, f"{server.scheme}://{bucket}/a", shard_size="90MB", store=store) == 1
    )
    assert set(proxy.counters().faults) == {"slow_down", "cut", "too_many"}
    shards = Shards(f"{server.scheme}://{bucket}/a", store=options(server))
    assert [shards[k] for k in range(9)] == samples


def test_a_forked_process_writes_after_its_parent_did(server: S3Server, bucket: str) -> None:
    store = options(server)
    write_shards(rows(), f"{server.scheme}://{bucket}/a", **how("tar"), store=store)
    pid = os.fork()
    if pid == 0:
        try:
            write_shards(rows(), f"{server.scheme}://{bucket}/b", **how("tar"), store=store)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert stored(server, bucket, "b") == stored(server, bucket, "a")


def test_the_command_converts_by_the_environment(
    server: S3Server, bucket: str, tmp_path: Path
) -> None:
    write_shards(rows(), tmp_path / "here", **how("jsonl"))
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_REGION": server.region,
    }
    command = [sys.executable, "-m", "reader", "shards", "convert"]
    urls = [f"{server.scheme}://{bucket}/mds", f"{server.scheme}://{bucket}/jsonl"]
    for path, url, form in [(tmp_path / "here", urls[0], "mds"), (*urls, "jsonl")]:
        arguments = [*command, str(path), url, "--to", form, "--shard-size", "900"]
        done = subprocess.run(
            arguments, env=environment, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert f"shards of {form}: {url}" in done.stdout
    assert stored(server, bucket, "jsonl") == written(tmp_path / "here")


def test_of_what_is_renewed_often_the_last_is_sent(
    server: S3Server, proxy: Proxy, bucket: str
) -> None:
    store = Store(f"s3://{bucket}", options(server, proxy.endpoint), CacheUse(ShardCache(), ""))
    proxy.set_rules(Rule("delay", 200, path="/a/one"))
    with Uploads(store, "a") as uploads:
        for number in range(100):
            uploads.renew("a/one", b"%d" % number)
        uploads.settle("a/one")
        assert server.get(bucket, "a/one").body == b"99"
    assert 2 <= proxy.counters().paths[f"/{bucket}/a/one"] < 100  # each is looked at, too
    proxy.set_rules(Rule("slow_down", path="/a/two"))
    store.options["timeout"] = 3
    store = Store(store.root, store.options, CacheUse(ShardCache(), ""))
    with pytest.raises(ConfigError, match="a/two' could not be written in time"):  # noqa: SIM117
        with Uploads(store, "a") as uploads:
            uploads.renew("a/two", b"2")
            uploads.settle("a/two")


# -- a writer that ends -----------------------------------------------------------------------


class Ends(list[Any]):
    """Samples of which one is not given: the user ends the program, once it is time to."""

    def __init__(self, samples: list[Any], is_time: Callable[[], bool] = lambda: True) -> None:
        super().__init__(samples)
        self._is_time = is_time

    def __getitem__(self, index: Any) -> Any:
        if index > 140:
            if self._is_time():
                raise KeyboardInterrupt
            threading.Event().wait(0.25)  # a store may take a journal a second
        return super().__getitem__(index)


@stores("name", ["mds", "tar"], ["mds"])
def test_who_goes_on_keeps_what_is_whole_and_writes_the_rest(
    name: str, server: WritableServer, proxy: Proxy, bucket: str, tmp_path: Path
) -> None:
    url, store = f"{server.scheme}://{bucket}/a", options(server, proxy.endpoint)

    def journal() -> list[Any]:
        return [json.loads(line) for line in server.get(bucket, f"a/{JOURNAL}").body.splitlines()]

    with pytest.raises(KeyboardInterrupt):
        write_shards(Ends(rows(), lambda: len(journal()) > 3), url, **how(name), store=store)
    there = [line["name"] for line in journal()[1:]]
    assert not {"index.json", "manifest.json"} & names_in(server, bucket, "a")
    damaged, gone = there[1], there[-1]
    server.put(bucket, f"a/{damaged}", bytes(len(server.get(bucket, f"a/{damaged}").body)))
    server.signed("DELETE", f"/{bucket}/a/{gone}")
    proxy.reset()
    write_shards(rows(), url, **how(name), store=store)
    write_shards(rows(), tmp_path, **how(name))
    assert stored(server, bucket, "a") == written(tmp_path)
    assert f"/{bucket}/a/{there[0]}" not in proxy.counters().paths  # it was not read either
    proxy.reset()
    write_shards(rows(), url, **how(name), store=store)
    paths = proxy.counters().paths
    assert not [path for path in paths if "/shard" in path]
    assert stored(server, bucket, "a") == written(tmp_path)


def test_a_long_journal_is_written_seldom_and_has_all_in_the_end(
    server: WritableServer, proxy: Proxy, bucket: str, tmp_path: Path
) -> None:
    url, many = f"{server.scheme}://{bucket}/a", {"format": "jsonl", "shard_size": 10}
    store = options(server, proxy.endpoint)

    class Many:
        def __len__(self) -> int:
            return 560

        def __getitem__(self, index: Any) -> Any:
            if index == 540:
                raise KeyboardInterrupt
            return {"n": index}

    with pytest.raises(KeyboardInterrupt):
        write_shards(Many(), url, **many, store=store)
    logged = len(server.get(bucket, f"a/{JOURNAL}").body.splitlines()) - 1
    assert 300 < logged < 500
    proxy.reset()
    samples = [{"n": k} for k in range(560)]
    write_shards(samples, url, **many, store=store)
    paths = proxy.counters().paths
    written_again = {path for path in paths if "/shard" in path}
    assert len(written_again) == 560 - logged
    lines = server.get(bucket, f"a/{JOURNAL}").body.splitlines()
    sizes = np.cumsum([len(line) + 1 for line in lines])
    short = int(np.searchsorted(sizes, 1 << 16)) - logged  # written one by one, until it is long
    # it is read, and written at both ends
    assert paths[f"/{bucket}/a/{JOURNAL}"] < 10 + max(0, short)
    assert len(lines) == 561
    write_shards(samples, tmp_path, **many)
    assert stored(server, bucket, "a") == written(tmp_path)


WRITER = """
    import json, sys, time
    import reader

    class Rows:
        def __len__(self):
            return 200

        def __getitem__(self, index):
            time.sleep(0.003)
            return {"n": index, "s": "é" * (index % 90)}

    if __name__ == "__main__":
        print("begun", flush=True)
        url, how, workers = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
        reader.write_shards(Rows(), url, num_workers=workers, **how)
        print("done", flush=True)
"""
Start = Callable[..., Program]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Start]:
    started: list[Program] = []

    def start(*args: str) -> Program:
        folder = tmp_path / f"program{len(started)}"
        folder.mkdir()
        started.append(Program(folder, WRITER, *args))
        return started[-1]

    yield start
    for one in started:
        one.end()


def check_kills(
    start: Start,
    server: WritableServer,
    bucket: str,
    here: Path,
    name: str,
    workers: int,
    seed: int,
) -> None:
    """Kill a writer at random instants, or the process that writes for it; then let it finish."""
    rng = random.Random(seed)
    arguments = [
        f"{server.scheme}://{bucket}/a",
        json.dumps({**how(name), "store": options(server)}),
    ]
    expected = write_shards(rows(), here, **how(name))
    hits, pids = 0, set()
    for number in range(4):
        writer = start(*arguments, str(workers))
        pids.add(writer.process.pid)
        writer.line()
        try:
            writer.process.wait(rng.uniform(0, 1.5))
        except subprocess.TimeoutExpired:
            hits += 1
        if number % 2:
            for pid in fetchers(writer.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            status, _, error = writer.finish()
            assert status == 0, error  # another process takes its place
        else:
            with contextlib.suppress(ProcessLookupError):  # it has come to its end
                writer.interrupt(signal.SIGKILL)
            writer.process.wait(BOUND_S)
        names = names_in(server, bucket, "a")
        if "index.json" in names:
            assert len([each for each in names if each.startswith("shard")]) == expected
            assert read_back(f"{server.scheme}://{bucket}/a", name, options(server)) == rows()
        if number % 2:
            assert stored(server, bucket, "a") == written(here)
            for each in sorted(names)[number:]:
                server.signed("DELETE", f"/{bucket}/a/{each}")
    status, _, error = start(*arguments, str(workers)).finish()
    assert (status, error) == (0, "")
    assert stored(server, bucket, "a") == written(here)
    assert names_in(server, bucket, "a") == {*written(here), JOURNAL}
    assert hits > 0
    wait_until(lambda: not any(map(fetchers, pids)))


@SLOW_STORE
def test_the_process_that_writes_is_replaced_at_each_point(
    server: WritableServer, bucket: str
) -> None:
    store = Store(f"{server.scheme}://{bucket}", options(server), CacheUse(ShardCache(), ""))

    def kill() -> None:
        pid = store.stats()["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_gone([open_pid(pid)])

    with Uploads(store, "a") as uploads:
        kill()  # it has the lock alone
        uploads.write("a/one", b"one")
        kill()
        uploads.begin("a/two", b"two")
        kill()
        uploads.begin("a/three", bytes(50_000_000))
        kill()
        assert len(uploads.finished(wait=True)) == 2
        for content in (b"1", b"2", b"3"):
            uploads.renew("a/four", content)
            kill()
        uploads.settle("a/four")
        assert server.get(bucket, "a/four").body == b"3"
        kill()
    found = names_in(server, bucket, "a")
    assert found - {LOCK} == {
        "one",
        "two",
        "three",
        "four",
    }  # who was killed last has left its lock
    with Uploads(store, "b") as uploads:
        assert LOCK in names_in(server, bucket, "b")
    assert not names_in(server, bucket, "b")


@stores("way", [("mds", 0), ("tar", 2)], [("mds", 2)])
def test_a_writer_that_is_killed_goes_on_with_the_same_bytes(
    way: tuple[str, int], program: Start, server: WritableServer, bucket: str, tmp_path: Path
) -> None:
    check_kills(program, server, bucket, tmp_path / "here", *way, 0)


@EACH_STORE
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, 25))
def test_many_kills_leave_the_same_bytes(
    seed: int, program: Start, server: WritableServer, bucket: str, tmp_path: Path
) -> None:
    name = ("mds", "tar")[seed % 2]
    check_kills(program, server, bucket, tmp_path / "here", name, seed // 2 % 3, seed)


@SLOW_STORE
def test_a_user_who_ends_it_leaves_what_a_resume_needs(
    program: Start, server: WritableServer, bucket: str, tmp_path: Path
) -> None:
    arguments = [
        f"{server.scheme}://{bucket}/a",
        json.dumps({**how("mds"), "store": options(server)}),
        "0",
    ]
    writer = program(*arguments)
    writer.line()
    wait_until(lambda: "shard.00002.mds" in names_in(server, bucket, "a"))
    writer.interrupt(signal.SIGINT)
    status, _, error = writer.finish()
    assert status != 0
    assert "KeyboardInterrupt" in error
    wait_until(lambda: not fetchers(writer.process.pid))
    assert LOCK not in names_in(server, bucket, "a")
    assert program(*arguments).finish()[0] == 0
    write_shards(rows(), tmp_path / "here", **how("mds"))
    assert stored(server, bucket, "a") == written(tmp_path / "here")


# -- one writer -------------------------------------------------------------------------------


def endless() -> Iterator[dict[str, Any]]:
    never = threading.Event()
    for k in itertools.count():
        never.wait(0.01)
        yield {"n": k}


@EACH_STORE
def test_one_process_at_a_time_writes_to_a_folder(
    program: Start, server: WritableServer, bucket: str
) -> None:
    arguments = [
        f"{server.scheme}://{bucket}/a",
        json.dumps({**how("mds"), "store": options(server)}),
        "0",
    ]
    writer = program(*arguments)
    writer.line()
    wait_until(lambda: LOCK in names_in(server, bucket, "a"))
    os.kill(writer.process.pid, signal.SIGSTOP)  # the lock is renewed none the less
    told = rf"another process writes shards to '{server.scheme}://{bucket}/a/': process"
    told += f" {writer.process.pid} of"
    with (
        pytest.warns(UserWarning, match=r"has the lock of process \d+ of .* waiting"),
        pytest.raises(ConfigError, match=told),
    ):
        write_shards(rows(), f"{server.scheme}://{bucket}/a", **how("mds"), store=options(server))
    os.kill(writer.process.pid, signal.SIGCONT)
    assert writer.finish()[:2] == (0, "done\n")
    write_shards(rows(), f"{server.scheme}://{bucket}/a", **how("mds"), store=options(server))


@SLOW_STORE
def test_of_several_ranks_one_writes(
    program: Start, server: WritableServer, bucket: str, tmp_path: Path
) -> None:
    arguments = [
        f"{server.scheme}://{bucket}/a",
        json.dumps({**how("mds"), "store": options(server)}),
        "0",
    ]
    writers = [program(*arguments) for _ in range(3)]
    found = [writer.finish() for writer in writers]
    ended = [error for status, _, error in found if status]
    assert len(ended) < 3
    told = re.compile("has the lock of process|another process writes")  # warnings are errors there
    assert all(told.search(error) for error in ended), ended
    write_shards(rows(), tmp_path / "here", **how("mds"))
    assert stored(server, bucket, "a") == written(tmp_path / "here")


LOST = b'{"id": "other", "pid": 7, "lease_s": 4}'


@stores("said", [LOST, b'{"lease_s": 4}'], [LOST])
def test_the_lock_of_a_lost_machine_is_taken_over(
    said: bytes, server: WritableServer, bucket: str
) -> None:
    server.put(bucket, f"a/{LOCK}", said)
    with (
        pytest.warns(UserWarning, match="waiting for a minute or less"),
        pytest.warns(UserWarning, match="is taken over from process"),
    ):
        write_shards(rows(), f"{server.scheme}://{bucket}/a", **how("mds"), store=options(server))
    assert LOCK not in names_in(server, bucket, "a")


@SLOW_STORE
def test_a_writer_whose_lock_was_taken_over_stops(server: WritableServer, bucket: str) -> None:
    def samples() -> Iterator[dict[str, Any]]:
        for k, sample in enumerate(endless()):
            if k == 100:
                server.put(bucket, f"a/{LOCK}", b'{"id": "other"}')
            yield sample

    with pytest.raises(ConfigError, match="another one has taken the folder over"):
        write_shards(
            samples(), f"{server.scheme}://{bucket}/a", **how("mds"), store=options(server)
        )
    assert server.get(bucket, f"a/{LOCK}").body == b'{"id": "other"}'


@pytest.mark.parametrize("amount", [0, 501])
def test_a_store_without_conditions_is_told_once(
    amount: int, server: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    if not amount:
        server.make_bucket(ANYBODYS)
    proxy.set_rules(Rule("no_conditions", amount))
    url, store = (
        f"{server.scheme}://{ANYBODYS}/{amount}",
        options(server, proxy.endpoint, skip_signature=True),
    )
    with pytest.warns(UserWarning, match="no conditional writes: two writers that begin") as told:
        write_shards(rows(), url, **how("mds"), store=store)
    assert len(told) == 1
    write_shards(rows(), tmp_path, **how("mds"))
    assert stored(server, ANYBODYS, f"{amount}") == written(tmp_path)
    assert LOCK not in names_in(server, ANYBODYS, f"{amount}")
    server.put(ANYBODYS, f"{amount}/{LOCK}", b'{"id": "other", "lease_s": 1}')
    with (
        pytest.warns(UserWarning, match="no conditional writes"),
        pytest.warns(UserWarning, match="is taken over from process"),
    ):
        write_shards(rows(), url, **how("mds"), store=store)


# -- what is refused --------------------------------------------------------------------------


def test_a_folder_that_has_other_things_is_refused(server: WritableServer, bucket: str) -> None:
    store = options(server)
    server.put(bucket, "a/inner/thing.txt", b"x")
    with pytest.raises(
        ConfigError, match=f"the folder '{server.scheme}://{bucket}/a' has 1 files, such as 'in"
    ):
        write_shards(rows(), f"{server.scheme}://{bucket}/a", **how("mds"), store=store)
    write_shards(rows(), f"{server.scheme}://{bucket}/b", **how("mds"), store=store)
    with pytest.raises(ConfigError, match="written with other arguments"):
        write_shards(rows(), f"{server.scheme}://{bucket}/b", "mds", shard_size=800, store=store)
    with pytest.raises(ConfigError, match="shards of other samples: they were 200"):
        write_shards(rows(90), f"{server.scheme}://{bucket}/b", **how("mds"), store=store)
    with pytest.raises(ConfigError, match="finished with 200 samples, and there are more"):
        write_shards(iter(rows(900)), f"{server.scheme}://{bucket}/b", **how("mds"), store=store)
    wait_until(lambda: LOCK not in names_in(server, bucket, "b"))
    server.put(bucket, f"b/{JOURNAL}", b"{}\n")
    with pytest.raises(
        ConfigError, match=f"line 1 of '{server.scheme}://{bucket}/b/{JOURNAL}' is damaged"
    ):
        write_shards(rows(), f"{server.scheme}://{bucket}/b", **how("mds"), store=store)


@pytest.mark.parametrize(
    ("url", "changes", "told"),
    [
        ("s3://nowhere/a", {}, "lies in a bucket or container that is not there"),
        ("s3://sets/a", {"secret_access_key": "wrong"}, "refused by the store: set the credential"),
        ("s3://sets/a", {"colour": "red"}, "cannot be used with these options of store="),
        ("s3://sets/a//b", {}, "must have a name between any two slashes"),
        ("s3:///a", {}, "names no bucket or host"),
        ("https://host/a", {}, "servers of HTTP only give files"),
        ("hdfs://host/a", {}, "hdfs://"),
    ],
)
def test_what_is_wrong_is_told_at_once(
    url: str, changes: dict[str, Any], told: str, server: S3Server
) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        write_shards(rows(), url, **how("mds"), store=options(server, **changes))
    assert server.secret_key not in str(error.value)


@EACH_STORE
def test_who_may_not_write_is_told_what_to_set(server: WritableServer, bucket: str) -> None:
    is_s3 = isinstance(server, S3Server)
    wrong = {"secret_access_key": "wrong"} if is_s3 else {"bearer_token": "wrong"}
    names = "AWS_ACCESS_KEY_ID and AWS_SEC" if is_s3 else "GOOGLE_APPLICATION_CREDENTIALS;"
    told = rf"'{server.scheme}://{bucket}/a/.*' is refused by the store: set the .*such as {names}"
    with pytest.raises(ConfigError, match=told):
        write_shards(rows(), f"{server.scheme}://{bucket}/a", store=options(server, **wrong))


def test_options_of_a_store_are_for_stores(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="store= is for a folder in a store"):
        write_shards(rows(), f"file://{tmp_path}/a", store={"region": "a"})
    with pytest.raises(ConfigError, match="store must be a dict of options"):
        write_shards(rows(), "s3://sets/a", store="us-east-1")  # type: ignore[arg-type]
    write_shards(rows(), f"file://{tmp_path}/b", **how("mds"))
    assert len(Shards(tmp_path / "b")) == COUNT


# -- a network that fails ---------------------------------------------------------------------


THROTTLED = [Rule("slow_down", first=4), Rule("too_many", 1, share=0.1)]
AWAY = [Rule("refuse", 2, first=1, path="shard")]
FAULTS = [THROTTLED, [Rule("cut", first=6)], [Rule("delay", 12_000, first=1, path="shard")], AWAY]


@stores("rules", [*FAULTS, [Rule("delay", 30)]], [THROTTLED, AWAY])
def test_faults_change_no_byte(
    rules: list[Rule], server: WritableServer, proxy: Proxy, bucket: str, tmp_path: Path
) -> None:
    write_shards(rows(), tmp_path, **how("mds"))
    proxy.set_rules(*rules)
    write_shards(
        rows(), f"{server.scheme}://{bucket}/a", **how("mds"), store=options(server, proxy.endpoint)
    )
    assert stored(server, bucket, "a") == written(tmp_path)
    assert sum(proxy.counters().faults.values()) > 0


@SLOW_STORE
def test_what_cannot_be_written_in_time_is_told(
    server: WritableServer, proxy: Proxy, bucket: str, tmp_path: Path
) -> None:
    server.put(bucket, "first", b"it makes the files of the bucket, which takes SeaweedFS seconds")
    proxy.set_rules(Rule("slow_down", path=r"shard(\.|%2E)00003"))
    store = options(server, proxy.endpoint, timeout=3)
    told = r"'(s3|gs)://.*/a/shard.00003.mds' could not be written in time.*repeat the call.*503"
    with pytest.raises(ConfigError, match=told):
        write_shards(rows(), f"{server.scheme}://{bucket}/a", **how("mds"), store=store)
    proxy.set_rules()
    write_shards(rows(), f"{server.scheme}://{bucket}/a", **how("mds"), store=store)
    write_shards(rows(), tmp_path, **how("mds"))
    assert stored(server, bucket, "a") == written(tmp_path)
