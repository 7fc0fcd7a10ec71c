"""Facts of a cluster's nodes for the doctor: versions, memory, and transfer rates.

Imports Ray within calls. This process connects to the cluster for a short time and leaves nothing
there.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from reader._version import __version__
from reader.cluster.address import connect

__all__ = ["NodeFacts", "Versions", "examine_nodes", "versions_here"]

_NBYTES = 64 << 20  # moved twice for the rate
_PATIENCE_S = 30.0


class Versions(NamedTuple):
    """Versions that must be the same on all nodes."""

    python: str
    ray: str
    lodreader: str


class NodeFacts(NamedTuple):
    """The facts of a node.

    Attributes:
        host: its name.
        is_here: whether this program runs on it.
        versions: on the node.
        resources: the node's total of each, as Ray counts it.
        store_nbytes: of its object store.
        shared_nbytes: of its /dev/shm, into which the store should fit.
        bytes_per_s: from its store to the store here; None: it is this node.
        error: why it could not be examined; "": no error.
    """

    host: str
    is_here: bool
    versions: Versions
    resources: dict[str, float]
    store_nbytes: int
    shared_nbytes: int = 0
    bytes_per_s: float | None = None
    error: str = ""


def versions_here() -> Versions:
    """Return the versions in this process."""
    import ray

    return Versions(platform.python_version(), ray.__version__, __version__)


def examine_nodes(address: str) -> list[NodeFacts]:
    """Return the facts of each node that is alive.

    Args:
        address: as `reader.Ray` takes it.

    Raises:
        ReaderError: nothing answers there.
        Exception: Ray's exceptions when it cannot connect.
    """
    import ray

    with _connected(ray, address):
        here = ray.get_runtime_context().get_node_id()
        nodes = [node for node in ray.nodes() if node["Alive"]]
        options = [_options(ray, node) for node in nodes]
        asked = [ray.remote(_look).options(**each).remote() for each in options]  # in parallel
        until = time.monotonic() + _PATIENCE_S
        return [_facts_of(ray, *each, here, until) for each in zip(nodes, options, asked)]


@contextlib.contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    connect(ray, address)
    try:
        yield
    finally:
        ray.shutdown()


def _options(ray: Any, node: dict[str, Any]) -> dict[str, Any]:
    """Return the options to run a function on a node."""
    where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    return {"num_cpus": 0, "scheduling_strategy": where(node["NodeID"], soft=False)}


def _facts_of(
    ray: Any, node: dict[str, Any], options: dict[str, Any], asked: Any, here: str, until: float
) -> NodeFacts:
    """Return the facts of a node. `asked`: the reference to the result of `_look`."""
    resources = node["Resources"]
    is_here, store = node["NodeID"] == here, int(resources.get("object_store_memory", 0))
    unknown = Versions("", "", "")
    host = node["NodeManagerHostname"]
    try:
        host, versions, shared = ray.get(asked, timeout=max(0.0, until - time.monotonic()))
    except Exception as error:
        why = str(error).strip().rpartition("\n")[2] or type(error).__name__
        return NodeFacts(host, is_here, unknown, resources, store, error=why)
    rate = None
    if not is_here:
        rate = 0.0
        with contextlib.suppress(Exception):  # no answer in time
            rate = _rate(ray, options)
    return NodeFacts(host, is_here, versions, resources, store, shared, rate)


def _rate(ray: Any, options: dict[str, Any]) -> float:
    """Return the bytes per second from a node: the better of two tries."""
    best = 0.0
    for _ in range(2):
        made = ray.remote(_bytes).options(**options).remote(_NBYTES)
        ray.wait([made], timeout=_PATIENCE_S, fetch_local=False)
        began = time.monotonic()
        nbytes = len(ray.get(made, timeout=_PATIENCE_S))
        best = max(best, nbytes / max(time.monotonic() - began, 1e-9))
        del made
    return best


def _look() -> tuple[str, Versions, int]:
    """Return name, versions and bytes of /dev/shm of the node where this runs."""
    return socket.gethostname(), versions_here(), shutil.disk_usage("/dev/shm").total


def _bytes(count: int) -> Any:
    import numpy as np

    return np.zeros(count, np.uint8)
