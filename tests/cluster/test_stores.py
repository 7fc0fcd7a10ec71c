"""Workers of two machines read from a store, each through the process that fetches on its machine.

The second machine is simulated by namespaces: see `machine`. The store is SeaweedFS, and how many
bytes go to each machine is counted on their way.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image
from ray.cluster_utils import Cluster

from reader import DataLoader, DatasetError, Ray, ReaderError, ShardCache, ShardOrder, Shards
from reader import write_shards as write
from reader.images import ImageFolder
from tests.cluster.forward import Forward, forwarded
from tests.cluster.machine import Machine, Network, machine, network
from tests.cluster.nodes import await_nodes
from tests.processes import wait_until
from tests.stores.servers import S3Server, s3_server
from tests.stores.test_shards import leftovers, upload

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]
COUNT, SIZE = 1200, 20_000
NBYTES = COUNT * SIZE
PICTURES = 60
PICTURES_NBYTES = PICTURES * 40 * 40 * 3  # noise does not get smaller
_MACHINES = {"near": 1, "far": 2, "third": 3}  # by which they have their addresses
_FETCHER = "reader.stores.fetcher.main"


@dataclass
class Site:
    """Two machines and a store. `store`: its options; `forward`: by which both reach it."""

    folder: Path
    net: Network
    address: str
    store: dict[str, Any]
    forward: Forward

    @contextlib.contextmanager
    def machine(self, name: str) -> Iterator[Machine]:
        """Run another machine, which keeps what is in its caches until it comes again."""
        await_nodes(self.address, 0, name)
        own, log = {self.caches: self.folder / name}, self.folder / "log"
        with machine(name, self.net, _MACHINES[name], self.address, log, own) as made:
            await_nodes(self.address, 1, name)
            yield made

    @property
    def caches(self) -> Path:
        """A folder for caches, which is another one on each machine."""
        return self.folder / "caches"

    def shards(self, cache: ShardCache, **options: Any) -> Shards:
        return Shards("s3://sets", store={**self.store, **options}, cache=cache)

    def batches(self, dataset: Any, **how: Any) -> list[Any]:
        with self.loader(dataset, **how) as loader:
            return list(loader)

    def loader(self, dataset: Any, where: dict[str, float] | None = None, **how: Any) -> Any:
        """Return a loader whose workers are on the nodes that have some resource."""
        backend = Ray(
            address=self.address, resources=where or {"CPU": 1}, pool=how.pop("pool", None)
        )
        options = {"batch_size": 8, "num_workers": 4, "collate_fn": list, "worker_retries": 20}
        if isinstance(dataset, Shards):
            options["sampler"] = ShardOrder(dataset, 1, window=300)
        return DataLoader(dataset, backend=backend, **{**options, **how})

    def counted(self) -> dict[str, int]:
        """Return how many bytes of the store went to each machine since the last call."""
        found = self.forward.counted()
        return {name: found.get(self.net.address(number), 0) for name, number in _MACHINES.items()}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    write(map(sample, range(COUNT)), folder / "sets", "mds", shard_size="1MB")
    for k in range(PICTURES):
        path = folder / "pictures" / f"class-{k % 3}" / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(k).integers(0, 256, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network())
        server: S3Server = stack.enter_context(s3_server(tmp_path_factory.mktemp("s3")))
        upload(server, "sets", folder / "sets")
        upload(server, "pictures", folder / "pictures")
        port = int(server.endpoint.rpartition(":")[2])
        forward = stack.enter_context(forwarded(net.address(1), port))
        store = {
            "endpoint": forward.url,
            "region": server.region,
            "access_key_id": server.access_key,
            "secret_access_key": server.secret_key,
            "allow_http": "true",
        }
        head = {"num_cpus": 2, "node_ip_address": net.address(1), "resources": {"near": 4}}
        memory = {"include_dashboard": False, "object_store_memory": 200 << 20}
        cluster = Cluster(initialize_head=True, head_node_args={**head, **memory})
        stack.callback(cluster.shutdown)
        yield Site(folder, net, cluster.address, store, forward)


@pytest.fixture(scope="module")
def far_machine(site: Site) -> Iterator[Machine]:
    with site.machine("far") as far:
        yield far


@pytest.fixture
def far(site: Site, far_machine: Machine) -> Machine:
    site.counted()
    return far_machine


def sample(k: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(k).bytes(SIZE), "k": k}


def local_batches(site: Site) -> list[Any]:
    """The same batches from local files."""
    shards = Shards(site.folder / "sets")
    order = ShardOrder(shards, 1, window=300)
    return list(DataLoader(shards, batch_size=8, sampler=order, collate_fn=list))


def read_everywhere(site: Site, loader: Any, names: set[str]) -> None:
    """Check epochs of a loader until workers of some machines have begun, and one more."""
    assert list(loader) == local_batches(site)
    while not names <= {status.host for status in loader.workers()}:
        list(loader)
    assert sorted(each["k"] for batch in loader for each in batch) == list(range(COUNT))


def fetchers_there(far: Machine) -> int:
    return sum(_FETCHER in words for words in far.processes())


def cache_of(kind: str, site: Site, tmp_path: Path) -> ShardCache:
    return ShardCache(site.caches / tmp_path.name) if kind == "folder" else ShardCache()


@pytest.mark.parametrize(
    ("kind", "pool"), [("folder", None), ("memory", None), ("memory", "ranks")]
)
def test_each_machine_has_one_process_that_fetches_each_byte_once(
    kind: str, pool: str | None, site: Site, far: Machine, tmp_path: Path
) -> None:
    shards = site.shards(cache_of(kind, site, tmp_path))
    with site.loader(shards, pool=pool) as loader:
        read_everywhere(site, loader, {"far"})
        assert fetchers_there(far) == 1
        counts = loader.stats()["fetch"]
    sent = site.counted()
    assert NBYTES <= sent["far"] <= 1.5 * NBYTES  # the first samples come alone, and come again
    assert NBYTES / 2 < sent["near"] <= 1.5 * NBYTES
    assert counts["given"] >= 2 * NBYTES
    assert counts["bytes"] == pytest.approx(sent["near"] + sent["far"], rel=0.02)
    assert (counts["errors"], counts["is_running"]) == ({}, True)
    last = loader.stats()["fetch"]  # those that were told last
    assert (last["bytes"], last["is_running"]) == (counts["bytes"], False)
    wait_until(lambda: not fetchers_there(far))


def test_a_machine_without_workers_fetches_no_sample(
    site: Site, far: Machine, tmp_path: Path
) -> None:
    shards = site.shards(cache_of("folder", site, tmp_path))
    for _ in range(2):
        assert site.batches(shards, where={"far": 1}) == local_batches(site)
    sent = site.counted()
    assert sent["near"] < NBYTES / 100
    assert NBYTES <= sent["far"] <= 1.5 * NBYTES


def test_the_order_is_known_on_the_machine_that_reads(
    site: Site, far: Machine, tmp_path: Path
) -> None:
    shards = site.shards(cache_of("folder", site, tmp_path))
    with site.loader(shards, where={"far": 1}) as loader:
        batches = iter(loader)
        next(batches)
        wait_until(lambda: loader.stats()["fetch"]["bytes"] > NBYTES)  # nobody has asked for it
        assert loader.stats()["fetch"]["given"] < NBYTES
        assert len(list(batches)) == COUNT // 8 - 1


def test_a_lost_machine_costs_no_batch_and_leaves_nothing(site: Site, tmp_path: Path) -> None:
    before = leftovers()
    shards, found = site.shards(cache_of("folder", site, tmp_path)), []
    with site.machine("third") as third, site.loader(shards) as loader:
        for batch in loader:
            found.append(batch)
            if len(found) == 30:
                wait_until(lambda: fetchers_there(third) == 1)
                first = third.pid
                third.kill()
                assert not psutil.pid_exists(first)
        counts = loader.stats()["fetch"]
    assert found == local_batches(site)
    assert counts["given"] > NBYTES / 2
    assert leftovers() == before


def test_killed_processes_of_another_machine_cost_no_batch(
    site: Site, far: Machine, tmp_path: Path
) -> None:
    shards, found = site.shards(cache_of("folder", site, tmp_path)), []
    kills = {20: _FETCHER, 50: "ray::RemoteWorker", 90: _FETCHER}
    with site.loader(shards) as loader:
        for batch in loader:
            found.append(batch)
            if (name := kills.get(len(found))) is not None:
                wait_until(lambda name=name: any(name in words for words in far.processes()))
                far.run(_KILLS, name)
    assert found == local_batches(site)
    wait_until(lambda: not fetchers_there(far))


_KILLS = """
import os, signal, sys
for pid in filter(str.isdecimal, os.listdir("/proc")):
    words = open(f"/proc/{pid}/cmdline").read()
    if sys.argv[1] in words and int(pid) != os.getpid():
        os.kill(int(pid), signal.SIGKILL)
        break
"""


def test_a_restart_finds_what_each_machine_has_and_compares_it(
    site: Site, far: Machine, tmp_path: Path
) -> None:
    def run() -> dict[str, int]:
        with site.machine("third"):  # which is lost then
            shards = site.shards(cache_of("folder", site, tmp_path))
            with site.loader(shards, num_workers=6) as loader:
                read_everywhere(site, loader, {"far", "third"})
            return site.counted()

    assert min(run().values()) > NBYTES / 2
    kept = (site.folder / "third" / tmp_path.name).rglob("*")
    piece = max(filter(Path.is_file, kept), key=lambda path: path.stat().st_size)
    content = bytearray(piece.read_bytes())
    content[len(content) // 2] ^= 1
    piece.write_bytes(content)
    sent = run()
    assert len(content) <= sent.pop("third") < 2 * len(content)  # that piece alone
    assert max(sent.values()) < NBYTES / 100  # the index


def test_states_move_between_local_processes_and_other_machines(
    site: Site, far: Machine, tmp_path: Path
) -> None:
    shards = site.shards(cache_of("folder", site, tmp_path))

    def local() -> DataLoader[Any]:
        order = ShardOrder(shards, 1, window=300)
        return DataLoader(shards, batch_size=8, sampler=order, num_workers=2, collate_fn=list)

    with local() as loader:
        steps = iter(loader)
        found = [next(steps) for _ in range(40)]
        state = loader.state_dict()
    with site.loader(shards, where={"far": 1}) as loader:
        loader.load_state_dict(state)
        steps = iter(loader)
        found += [next(steps) for _ in range(40)]
        state = loader.state_dict()
    with local() as loader:
        loader.load_state_dict(state)
        found += list(loader)
    assert found == local_batches(site)


def test_credentials_reach_other_machines_and_are_written_nowhere(
    site: Site, far: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = site.store["secret_access_key"]
    shards = site.shards(cache_of("folder", site, tmp_path))
    with site.loader(shards, where={"far": 1}) as loader:
        batches = iter(loader)
        next(batches)
        assert not any(secret in words for words in far.processes())
        assert secret not in str(loader.stats())
        assert secret not in str(loader.state_dict())
        assert len(list(batches)) == COUNT // 8 - 1
    wrong = "a-secret-that-is-wrong"
    other = site.shards(cache_of("memory", site, tmp_path))
    other._options.files._options["secret_access_key"] = wrong  # as if it had expired meanwhile
    with site.loader(other, where={"far": 1}) as loader, pytest.raises(DatasetError) as caught:
        list(loader)
    text = "".join(traceback.format_exception(caught.value))
    assert re.search(r"is refused by the store: set the credentials .*\) on far\n", text)
    for word in (secret, wrong):
        assert word not in text
        assert word not in caplog.text
        assert word not in (site.folder / "log").read_text(errors="replace")
        assert not far.run(_FINDS, word, "/tmp/ray", str(site.caches))
        assert not files_with(word, [Path("/tmp/ray/session_latest/logs"), site.caches])


_FINDS = """
import os, sys
for folder in sys.argv[2:]:
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            if os.path.isfile(path) and sys.argv[1].encode() in open(path, "rb").read():
                print(path)
"""


def files_with(word: str, folders: list[Path]) -> list[Path]:
    files = [each for folder in folders for each in folder.rglob("*") if each.is_file()]
    return [each for each in files if word.encode() in each.read_bytes()]


def test_a_folder_that_another_machine_cannot_use_is_named(
    site: Site, far: Machine, tmp_path: Path
) -> None:
    cache = cache_of("folder", site, tmp_path)
    (site.folder / "far" / tmp_path.name).write_text("no folder")
    options: dict[str, Any] = {"where": {"far": 1}}
    with site.loader(site.shards(cache), **options) as loader, pytest.raises(ReaderError) as caught:
        list(loader)
    text = "".join(traceback.format_exception(caught.value))
    assert f"path='{cache.path}' cannot be used on far: " in text


def test_pictures_are_fetched_by_the_machine_that_reads_them(
    site: Site, far: Machine, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"shuffle": True, "seed": 3, "batch_size": 8}
    want = list(DataLoader(ImageFolder(site.folder / "pictures", size=(32, 32)), **how))
    cache = cache_of("folder", site, tmp_path)
    stored = ImageFolder("s3://pictures", size=(32, 32), store=site.store, cache=cache)
    for where in ({"far": 1.0}, None):
        found = site.batches(stored, where=where, collate_fn=None, **how)
        assert len(found) == len(want)
        for batch, other in zip(found, want, strict=True):
            assert all(map(np.array_equal, batch, other))
        if where:
            sent = site.counted()
            assert sent["near"] < PICTURES_NBYTES / 2  # the list
            assert sent["far"] >= PICTURES_NBYTES
