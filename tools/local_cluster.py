"""A cluster of Ray whose nodes are all on this machine, and its leftovers.

Imports Ray's own cluster utility. A LocalCluster belongs to the program that made it; it looks at
and ends the processes of its own nodes alone, whatever else runs on the machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["LocalCluster", "wait_until"]

_POLL_S = 0.02


class LocalCluster:
    """A head and other nodes, which end with it.

    Args:
        nodes: how many, the head included.
        num_cpus: of each, as Ray counts them.
        store_nbytes: of the object store of each.

    Attributes:
        address: for `reader.Ray(address=...)`.
        store_nbytes: as passed.
    """

    def __init__(self, nodes: int = 3, num_cpus: int = 2, store_nbytes: int = 200 << 20) -> None:
        from ray.cluster_utils import Cluster

        self.store_nbytes = store_nbytes
        self._options = {"num_cpus": num_cpus, "object_store_memory": store_nbytes}
        self._cluster: Any = Cluster(
            initialize_head=True, head_node_args={"include_dashboard": False, **self._options}
        )
        self.address: str = self._cluster.address
        for _ in range(nodes - 1):
            self.add_node()

    def add_node(self) -> Any:
        """Start one more node, and return it."""
        return self._cluster.add_node(**self._options)

    def kill_node(self, node: Any) -> None:
        """End a node at once, with all that runs on it."""
        self._cluster.remove_node(node, allow_graceful=False)

    @property
    def others(self) -> list[Any]:
        """The nodes without the head."""
        return [node for node in self._cluster.list_all_nodes() if not node.head]

    def actors(self) -> list[int]:
        """Return the processes of remote workers on these nodes."""
        return [pid for node in self._cluster.list_all_nodes() for pid in self.actors_of(node)]

    def actors_of(self, node: Any) -> list[int]:
        """Return the processes of remote workers on a node."""
        import psutil  # type: ignore[import-untyped]

        found = []
        for started in node.all_processes.get("raylet", []):
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(started.process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        name = " ".join(child.cmdline())
                        if name.startswith("ray::RemoteWorker"):
                            found.append(child.pid)
        return found

    def kill_actor(self, pid: int) -> None:
        """Kill a process of `actors`, if it has not ended by itself."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cluster.shutdown()


def wait_until(is_true: Callable[[], bool], timeout_s: float) -> bool:
    """Return whether a condition holds in time."""
    deadline, pause = time.monotonic() + timeout_s, threading.Event()
    while not is_true():
        if time.monotonic() > deadline:
            return False
        pause.wait(_POLL_S)
    return True
