"""Ray: the source of workers on other machines, as the argument `backend` of a loader.

Imports the checks. An object of options: it owns no resource, and only processes that use Ray
import it.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from typing import Any

from reader.checks import as_byte_count
from reader.config import BackendOption
from reader.errors import ConfigError, ConfigTypeError, got

__all__ = ["Ray"]

_LEAST_NBYTES = 256 << 20
_PART = 16  # of an object store: 8 ranks of a node then leave half of it to others


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ray(BackendOption):
    """Workers are actors on a cluster of Ray: pass it as `backend=` with `num_workers`.

    Args:
        address: of the cluster, as `ray.init` takes it: "auto", "host:port"; None: the cluster that
            this program is connected to, or that the environment names (RAY_ADDRESS); otherwise a
            local one that starts with the workers.
        resources: resources of each worker, as {"CPU": 1}; other names are the cluster's own.
        max_in_flight_bytes: the most bytes of batches that are made and not landed yet, so that a
            slow trainer does not fill the cluster's object store. None: a sixteenth of the smallest
            node's, and at least 256 MiB.
        runtime_env: of the workers, as `ray.init` takes it; None: this program's, if it is
            connected to the cluster.
        strategy: `scheduling_strategy` of the actors, such as "SPREAD"; None: Ray's default.
        start_timeout: seconds after which a warning tells of workers that the cluster has no space
            for.
        pool: a name. All programs of the cluster with the same name, such as the ranks of a
            training, share workers: worker k makes the batches of each program's worker k, in the
            order of their requests. The pool ends with the last program. None: own workers.

    Raises:
        ConfigError: Ray is not installed, or an argument is invalid.
    """

    address: str | None = None
    resources: dict[str, float] = dataclasses.field(default_factory=lambda: {"CPU": 1.0})
    max_in_flight_bytes: int | None = None
    runtime_env: dict[str, Any] | None = None
    strategy: str | None = "SPREAD"
    start_timeout: float = 10.0
    pool: str | None = None

    def __post_init__(self) -> None:
        if "ray" not in sys.modules and importlib.util.find_spec("ray") is None:
            raise ConfigError(
                "reader.Ray needs the package ray, which is not installed here. Run: pip install"
                ' "lodreader[ray]"'
            )
        if self.address is not None and not isinstance(self.address, str):
            raise ConfigTypeError(
                f'address must be a string such as "auto" or "host:6379", got {got(self.address)}'
            )
        if not isinstance(self.resources, dict):
            raise ConfigTypeError(
                f'resources must be a dict such as {{"CPU": 1}}, got {got(self.resources)}'
            )
        for name, amount in self.resources.items():
            is_number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
            if not isinstance(name, str) or not is_number or not 0 <= amount < float("inf"):
                raise ConfigError(
                    "resources has names and how much of each a worker takes, 0 or more, got"
                    f" {name!r}: {got(amount)}"
                )
        if self.pool is not None and (not isinstance(self.pool, str) or not self.pool):
            raise ConfigTypeError(
                f'pool must be a name such as "train", or None, got {got(self.pool)}'
            )
        if (size := self.max_in_flight_bytes) is not None:
            remedy = "It bounds what of the object store is taken."
            size = as_byte_count("max_in_flight_bytes", size, low=1, remedy=remedy)
            object.__setattr__(self, "max_in_flight_bytes", size)

    def here(self) -> Ray:
        """Return a copy: options that are None come from this program's connection to Ray."""
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            return self
        context = ray.get_runtime_context()
        if self.address not in (None, "auto", context.gcs_address):
            return self
        env = dict(context.runtime_env) if self.runtime_env is None else self.runtime_env
        return dataclasses.replace(self, address=context.gcs_address, runtime_env=env or None)

    def most_in_flight(self, nodes: list[dict[str, Any]]) -> int:
        """Return the most bytes of batches in flight. `nodes`: the result of `ray.nodes`."""
        if self.max_in_flight_bytes is not None:
            return self.max_in_flight_bytes
        alive = [node["Resources"] for node in nodes if node["Alive"]]
        stores = [int(has["object_store_memory"]) for has in alive if "object_store_memory" in has]
        return max(_LEAST_NBYTES, min(stores, default=0) // _PART)

    def actor_options(self) -> dict[str, Any]:
        """Return the options of an actor."""
        others = dict(self.resources)
        found: dict[str, Any] = {"num_cpus": 0}
        found.update((option, others.pop(name)) for name, option in _OWN.items() if name in others)
        if others:
            found["resources"] = others
        if self.strategy is not None:
            found["scheduling_strategy"] = self.strategy
        return {**found, "max_restarts": 0, "max_task_retries": 0}


_OWN = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
