"""Checks of a Ray cluster: versions, object stores, and transfer rates of its nodes.

Imports node facts and findings. A check connects to the cluster for some seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reader.cluster.node_facts import NodeFacts, Versions, examine_nodes, versions_here
from reader.errors import ReaderError
from reader.observe.finding import Finding
from reader.observe.machine import Machine

__all__ = ["cluster", "nodes"]

_MIB = 1 << 20
_STORE_NBYTES = 512 * _MIB  # twice what a loader has in flight by default
_SLOW = 200e6  # bytes a second: a step of 0.1 s that takes 20 MB waits
_IMAGES = 256 * 224 * 224 * 3  # bytes of a batch


def cluster(address: str) -> Callable[[Machine], Iterator[Finding]]:
    """Return the check of a cluster; see `doctor`.

    Args:
        address: as `reader.Ray` takes it.
    """

    def cluster(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  as every check
        try:
            found = examine_nodes(address)
        except ImportError:
            remedy = 'pip install "lodreader[ray]"'
            yield Finding("error", "ray", "it is not installed", remedy)
        except Exception as error:  # whatever Ray raises
            said = " ".join(str(error).split())
            text = said if isinstance(error, ReaderError) else f"{type(error).__name__}: {said}"
            remedy = "ray status says whether it is up; pass --ray HOST:PORT of its head"
            yield Finding("error", "cluster", text, remedy)
        else:
            yield from nodes(found, versions_here())

    return cluster


def nodes(found: Sequence[NodeFacts], here: Versions) -> Iterator[Finding]:
    """Yield findings about the nodes of a cluster.

    Args:
        found: the nodes.
        here: versions of this program.
    """
    cpus = sum(node.resources.get("CPU", 0.0) for node in found)
    text = f"{len(found)} nodes with {cpus:g} CPU in all: as many workers that take 1 each"
    yield Finding("ok", "cluster", text)
    for node in found:
        subject = f"node {node.host}"
        if node.error:
            remedy = (
                "install lodreader there, in the environment that Ray runs in, or name it in"
                " reader.Ray(runtime_env=...)"
            )
            yield Finding("error", subject, f"no worker can run there: {node.error}", remedy)
            continue
        yield from _versions(node, here, subject)
        yield from _store(node, subject)
        if node.bytes_per_s is not None:
            yield _network(node.bytes_per_s, subject)


def _versions(node: NodeFacts, here: Versions, subject: str) -> Iterator[Finding]:
    pairs = zip(Versions._fields, node.versions, here)
    different = [f"{name} {there}, and here {own}" for name, there, own in pairs if there != own]
    if different:
        remedy = "install the same versions on all nodes, or name them in runtime_env"
        yield Finding("error", subject, "; ".join(different), remedy)
    else:
        yield Finding("ok", subject, "the versions of Python, Ray and lodreader are those here")


def _store(node: NodeFacts, subject: str) -> Iterator[Finding]:
    size = f"its object store has {node.store_nbytes // _MIB} MiB"
    if node.shared_nbytes < node.store_nbytes:
        yield Finding(
            "warning",
            subject,
            f"{size}, and its /dev/shm {node.shared_nbytes // _MIB} MiB: Ray puts it on a disk",
            "make /dev/shm larger (docker run --shm-size=...), or the store smaller (ray start"
            " --object-store-memory=...)",
        )
    elif node.store_nbytes < _STORE_NBYTES:
        yield Finding(
            "warning",
            subject,
            f"{size}: batches in flight of two loaders may fill it, and spill to a disk",
            "ray start --object-store-memory=..., or reader.Ray(max_in_flight_bytes=...)",
        )
    else:
        yield Finding("ok", subject, size)


def _network(bytes_per_s: float, subject: str) -> Finding:
    images = bytes_per_s / _IMAGES
    text = f"{bytes_per_s / 1e6:.0f} MB/s come from it: {images:.1f} batches of 256 images a second"
    if bytes_per_s >= _SLOW:
        return Finding("ok", subject, f"{text} (224 x 224 x 3, uint8)")
    return Finding(
        "warning",
        subject,
        f"{text} at most (224 x 224 x 3, uint8)",
        "send less (uint8, crops), or connect the nodes by a faster network",
    )
