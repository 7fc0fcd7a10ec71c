"""Metrics of loaders for Prometheus, and an endpoint that serves them.

Imports prometheus_client and the counters of a loader. A collector owns the counters of its
loaders, which it holds weakly: a loader that is gone is no longer exported.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from reader.checks import as_int
from reader.errors import ConfigError, refusal
from reader.integrations.counters import Counters, Reading
from reader.integrations.libraries import missing

try:
    from prometheus_client import REGISTRY, start_http_server
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise missing("prometheus", "prometheus-client") from error

__all__ = ["Endpoint", "PrometheusCollector"]

_Collector: Any = Collector
_COUNTERS = {
    "reader_batches": "Batches that the loop was given.",
    "reader_samples": "Samples in those batches, where they are known.",
    "reader_wait_seconds": "Seconds in which the loop waited for batches.",
    "reader_worker_busy_seconds": "Seconds in which workers made batches, all together.",
    "reader_failed_samples": "Samples that failed and were left out or replaced (on_error=).",
    "reader_worker_restarts": "Workers that were replaced while an epoch was under way.",
    "reader_cache_hits": "Samples that were found in the cache.",
    "reader_cache_misses": "Samples that were looked up in the cache and not found.",
}
_GAUGES = {
    "reader_workers": "Workers of the loader; 0: the loop makes its batches.",
    "reader_queued_batches": "Batches that are ready for the loop.",
    "reader_arena_bytes": "Memory that holds batches.",
}


class Endpoint:
    """A server of metrics in its own thread. Close it, or leave it to the end of the program.

    A forked process has no such thread, and closes the port and requests.

    Attributes:
        port: that it listens on.
    """

    def __init__(self, server: Any, thread: threading.Thread) -> None:
        self.port = int(server.server_address[1])
        self._server, self._thread = server, thread
        self._requests: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._accept = server.get_request
        server.get_request = self._get_request
        _endpoints.add(self)

    def _get_request(self) -> Any:
        found = self._accept()
        self._requests.add(found[0])
        return found

    def _close_in_child(self) -> None:
        """Close the sockets in a forked process: clients would wait, and the port stay taken."""
        server, self._server = self._server, None
        for held in [] if server is None else [server.socket, *self._requests]:
            fd = held.detach()
            if fd >= 0:
                os.close(fd)

    def close(self) -> None:
        """Stop the server, after the request that it is answering. Idempotent."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


_endpoints: weakref.WeakSet[Endpoint] = weakref.WeakSet()


def _close_all_in_child() -> None:
    for endpoint in list(_endpoints):
        endpoint._close_in_child()


os.register_at_fork(after_in_child=_close_all_in_child)


class PrometheusCollector(_Collector):  # type: ignore[misc]
    """Exports the metrics of loaders to Prometheus, with a label `loader`. Any thread may call it.

    Args:
        registry: of prometheus_client, where it registers itself; None: the default one.
    """

    def __init__(self, registry: Any = None) -> None:
        self._registry = REGISTRY if registry is None else registry
        self._lock = threading.Lock()
        self._counters: dict[str, Counters] = {}
        self._registry.register(self)

    def add(self, name: str, loader: Any) -> None:
        """Export the metrics of a loader from now on, until it is gone.

        Args:
            name: the label; the name of a loader that is gone may be used again.
            loader: of this package; it is held weakly.

        Raises:
            ConfigError: the name is taken.
            ConfigTypeError: it is no loader of this package.
        """
        with self._lock:
            taken = self._counters.get(name)
            if taken is not None and taken.loader is not None:
                raise ConfigError(
                    f"a loader named {name!r} is told of already: give this one another name, or"
                    " drop that one first"
                )
            self._counters[name] = Counters(loader, "PrometheusCollector.add")

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of all existing loaders, for prometheus_client."""
        with self._lock:
            readings = {name: counters.read() for name, counters in self._counters.items()}
            for name, reading in readings.items():
                if reading is None:
                    del self._counters[name]
        there = {name: reading for name, reading in readings.items() if reading is not None}
        for kinds, family in ((_COUNTERS, CounterMetricFamily), (_GAUGES, GaugeMetricFamily)):
            for metric, text in kinds.items():
                told = family(metric, text, labels=["loader"])
                for name, reading in there.items():
                    value = _values(reading).get(metric)
                    if value is not None:
                        told.add_metric([name], value)
                yield told
        stages = CounterMetricFamily(
            "reader_stage_seconds", "Seconds of batches in each stage.", labels=["loader", "stage"]
        )
        for name, reading in there.items():
            for stage, seconds in reading.stages.items():
                stages.add_metric([name, stage], seconds)
        yield stages

    def serve(self, port: int, host: str = "127.0.0.1") -> Endpoint:
        """Serve all metrics of the registry at `http://HOST:PORT/metrics`, in a thread.

        Args:
            port: to listen on; 0: any free port.
            host: the address to listen on; "0.0.0.0" for a Prometheus on another machine.

        Raises:
            ConfigError: the port is invalid, taken, or reserved for the superuser.
        """
        remedy = "0 takes any that is free."
        port = as_int("port", port, low=0, high=65535, remedy=remedy)
        try:
            server, thread = start_http_server(port, host, self._registry)
        except OSError as error:
            told = refusal(
                f"port {port} of {host}", "cannot be listened at", error, "pass another port="
            )
            raise ConfigError(str(told)) from error
        return Endpoint(server, thread)

    def close(self) -> None:
        """Unregister. Idempotent."""
        with self._lock:
            registry, self._registry = self._registry, None
            self._counters.clear()
        if registry is not None:
            registry.unregister(self)


def _values(reading: Reading) -> dict[str, float | None]:
    cache = reading.cache or {}
    return {
        "reader_batches": reading.batches,
        "reader_samples": reading.samples,
        "reader_wait_seconds": reading.wait_s,
        "reader_worker_busy_seconds": reading.busy_s,
        "reader_failed_samples": reading.failed_samples,
        "reader_worker_restarts": reading.restarts,
        "reader_cache_hits": cache.get("hits"),
        "reader_cache_misses": cache.get("misses"),
        "reader_workers": reading.workers,
        "reader_queued_batches": reading.queued,
        "reader_arena_bytes": reading.arena_bytes,
    }
