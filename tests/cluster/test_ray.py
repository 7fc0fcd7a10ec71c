"""Workers on a cluster of Ray: three nodes of this machine, real processes, real kills."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
from typing import Any

import numpy as np
import pytest

from reader import (
    ConfigError,
    ConfigTypeError,
    DataLoader,
    Ray,
    ReaderError,
    WorkerPool,
)
from tests.cluster.actors import actors, lander_of
from tests.cluster.nodes import await_nodes
from tests.datasets import At, Augmented, Calls, PidRows, Raise, Rows, Slow, check_rows, digest_of
from tests.processes import kill_and_wait, open_pid, wait_gone, wait_until
from tests.streams import Sharded

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


def whole(batches: list[Any], count: int, batch_size: int) -> None:
    assert len(batches) == -(-count // batch_size)
    for n, batch in enumerate(batches):
        check_rows(batch, range(n * batch_size, min(count, (n + 1) * batch_size)))


def test_batches_come_in_order_from_other_processes(backend: Ray) -> None:
    with DataLoader(PidRows(200), batch_size=4, num_workers=3, backend=backend) as loader:
        assert loader.config.persistent_workers
        for _ in range(2):
            batches = list(loader)
            whole(batches, 200, 4)
            assert os.getpid() not in {int(pid) for batch in batches for pid in batch[2]}
        found = {status.pid: status.host for status in loader.workers()}
        assert set(found) <= {*actors(), None}
        assert found.keys() & {int(pid) for batch in batches for pid in batch[2]}
        assert socket.gethostname() in found.values()
        batches[0][0][:] = 7  # they are the user's own, and writable


def test_bytes_equal_those_of_local_workers(backend: Ray) -> None:
    options: dict[str, Any] = {"batch_size": 4, "seed": 3, "shuffle": True}
    own = digest_of(DataLoader(Augmented(), num_workers=2, **options))
    with DataLoader(Augmented(), num_workers=3, backend=backend, **options) as loader:
        assert digest_of(loader) == own


def test_each_kind_of_leaf_arrives(backend: Ray) -> None:
    def sample(index: int) -> Any:
        return {
            "text": str(index),
            "none": None,
            "pair": (index, np.full((2, 3), index, np.float16)),
            "object": {index, index + 1},
            "empty": np.empty((0, 3)),
        }

    dataset = Calls(sample, 16)
    want = list(DataLoader(dataset, batch_size=4))
    with DataLoader(dataset, batch_size=4, num_workers=2, backend=backend) as loader:
        found = list(loader)
    assert digest_of(found) == digest_of(want)


@pytest.mark.parametrize("number", range(5))
def test_killed_actors_cost_no_batch(backend: Ray, number: int) -> None:
    chance = random.Random(number)
    options: dict[str, Any] = {"batch_size": 4, "seed": 5, "worker_retries": 10}
    want = digest_of(DataLoader(Augmented(400), num_workers=1, **options))
    kills = set(chance.sample(range(90), 3))
    with DataLoader(Augmented(400), num_workers=3, backend=backend, **options) as loader:
        batches = []
        for n, batch in enumerate(loader):
            batches.append(batch)
            if n in kills:
                while not (found := actors()):
                    threading.Event().wait(0.01)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(found), signal.SIGKILL)
    assert digest_of(batches) == want


def test_killed_node_costs_no_batch(cluster: Any, backend: Ray) -> None:
    node = cluster.add_node(num_cpus=2, object_store_memory=200 << 20)
    options: dict[str, Any] = {"batch_size": 4, "worker_retries": 10}
    with DataLoader(Slow(0.002, 800), num_workers=6, backend=backend, **options) as loader:
        batches = []
        for n, batch in enumerate(loader):
            batches.append(batch)
            if n == 60:
                cluster.remove_node(node, allow_graceful=False)
    whole(batches, 800, 4)
    # or Ray starts the next test's actors on the dead node
    await_nodes(cluster.address, 3)


def test_slow_worker_is_not_mistaken_for_a_damaged_one(
    backend: Ray, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"num_workers": 2, "prefetch_factor": 1, "backend": backend}
    with DataLoader(Slow(1.6, 4), **options) as loader:
        batches = iter(loader)
        lander = lander_of(loader)
        whole(list(batches), 4, 1)
        assert lander_of(loader) == lander
    assert not caplog.records


def test_killed_lander_costs_no_batch(backend: Ray) -> None:
    options: dict[str, Any] = {"batch_size": 4, "worker_retries": 10}
    with DataLoader(Slow(0.002, 400), num_workers=2, backend=backend, **options) as loader:
        batches = []
        for n, batch in enumerate(loader):
            batches.append(batch)
            if n == 20:
                kill_and_wait(lander_of(loader))
    whole(batches, 400, 4)


def test_streams_and_states_move_between_local_and_remote_workers(backend: Ray) -> None:
    for dataset in (Sharded(40), list(range(40))):
        local = DataLoader(dataset, batch_size=4, num_workers=2)
        want = [batch.tolist() for batch in local]
        batches = iter(local)
        found = [next(batches).tolist() for _ in range(3)]
        state = local.state_dict()
        with DataLoader(dataset, batch_size=4, num_workers=2, backend=backend) as remote:
            remote.load_state_dict(state)
            steps = iter(remote)
            found += [next(steps).tolist() for _ in range(3)]
            state = remote.state_dict()
        again = DataLoader(dataset, batch_size=4, num_workers=2)
        again.load_state_dict(state)
        found += [batch.tolist() for batch in again]
        assert found == want


def test_errors_come_in_their_places(backend: Ray) -> None:
    dataset = At(5, Raise(_bad), count=16)
    with DataLoader(dataset, batch_size=4, num_workers=2, backend=backend) as loader:
        batches = iter(loader)
        check_rows(next(batches), range(4))
        with pytest.raises(ValueError, match="bad") as caught:
            next(batches)
        assert "dataset index 5" in "".join(caught.value.__notes__)
        for n in (2, 3):
            check_rows(next(batches), range(4 * n, 4 * n + 4))


def _bad() -> ValueError:
    return ValueError("bad")


def test_samples_that_fail_may_be_left_out(backend: Ray) -> None:
    dataset = At(5, Raise(_bad), count=16)
    options: dict[str, Any] = {"on_error": "skip", "error_budget": 1}
    with DataLoader(dataset, batch_size=4, num_workers=2, backend=backend, **options) as loader:
        found = [int(n) for batch in loader for n in batch[1]]
        assert sorted(found) == [n for n in range(16) if n != 5]
        assert [error.index for error in loader.errors] == [5]


def no_start(_: int) -> None:
    raise OSError("no licence")


def test_the_reason_why_a_worker_cannot_start_is_reported(backend: Ray) -> None:
    options: dict[str, Any] = {"num_workers": 2, "worker_init_fn": no_start}
    with (
        DataLoader(Rows(8), backend=backend, **options) as loader,
        pytest.raises(OSError, match="no licence"),
    ):
        list(loader)


def test_short_memory_is_reported_and_batches_come(cluster: Any) -> None:
    backend = Ray(address=cluster.address, resources={"CPU": 0.5}, max_in_flight_bytes=8 << 20)
    with DataLoader(
        Calls(_large, 40), num_workers=2, backend=backend, max_bytes=8 << 20, prefetch_factor=8
    ) as loader:
        for n, batch in enumerate(loader):
            assert batch.shape == (1, 1 << 20)
            assert batch[0, 0] == n


def _large(index: int) -> np.ndarray:
    return np.full(1 << 20, index, np.uint8)


def test_nothing_is_left_behind(backend: Ray) -> None:
    loader = DataLoader(Rows(64), batch_size=4, num_workers=2, backend=backend)
    batches = iter(loader)
    next(batches)
    wait_until(lambda: len(actors()) == 2)
    pidfds = [open_pid(pid) for pid in [*actors(), lander_of(loader)]]
    assert len(pidfds) == 3
    loader.close()
    wait_gone(pidfds)
    with pytest.raises(ReaderError, match="closed"):
        list(batches)
    assert len(list(loader)) == 16
    del loader
    wait_until(lambda: not actors())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"address": "127.0.0.1:1"}, "nothing answers at address='127.0.0.1:1'"),
        ({"address": "ray://127.0.0.1:1"}, "run this program on a node"),
        ({"resources": {"CPU": 1000}}, r"no node of the cluster has resources=\{'CPU': 1000\}"),
        ({"resources": {"tpu": 1}}, "no node of the cluster has"),
    ],
)
def test_impossible_requests_to_the_cluster_are_refused_within_seconds(
    cluster: Any, options: dict[str, Any], text: str
) -> None:
    backend = Ray(**{"address": cluster.address, **options})
    loader = DataLoader(Rows(8), num_workers=2, backend=backend)
    began = time.monotonic()
    with pytest.raises(ReaderError, match=text):
        list(loader)
    assert time.monotonic() - began < 60
    loader.close()


def test_loader_goes_on_with_the_workers_that_fit(cluster: Any) -> None:
    backend = Ray(address=cluster.address, resources={"CPU": 2}, start_timeout=1)
    with DataLoader(Slow(0.002, 200), batch_size=4, num_workers=8, backend=backend) as loader:
        whole(list(loader), 200, 4)


class Locked(Rows):
    def __init__(self) -> None:
        super().__init__(8)
        self.lock = threading.Lock()


def test_bad_arguments_are_refused_early(backend: Ray) -> None:
    with pytest.raises(ConfigError, match="num_workers=0"):
        DataLoader(Rows(4), backend=backend)
    with pytest.raises(ConfigTypeError, match=r"reader\.Ray"):
        DataLoader(Rows(4), num_workers=1, backend="ray")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Leave out pool"):
        DataLoader(Rows(4), backend=backend, pool=WorkerPool(2))
    with pytest.raises(ConfigError, match="Leave out worker_type"):
        DataLoader(Rows(4), num_workers=2, worker_type="thread", backend=backend)
    with pytest.raises(ConfigError, match="resources"):
        Ray(resources={"CPU": -1})
    with pytest.raises(ConfigTypeError, match="address"):
        Ray(address=5)  # type: ignore[arg-type]
    loader = DataLoader(Locked(), num_workers=2, backend=backend)
    with pytest.raises(ConfigError, match="cannot pickle"):
        iter(loader)
