"""An endpoint for Prometheus, asked by HTTP and read by prometheus_client's own parser."""

from __future__ import annotations

import gc
import itertools
import os
import socket
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import reader
from reader import ConfigError, ConfigTypeError
from reader.integrations.prometheus import PrometheusCollector
from tests.integrations.numbers import BATCHES, SIZE, Numbers, loaded

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def asked(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(samples: Samples, name: str, **labels: str) -> Any:
    return samples.get((name, tuple(sorted(labels.items()))))


class Broken(Numbers):
    def __getitem__(self, index: int) -> Any:
        if index in (5, 9):
            raise ValueError(index)
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_failed_samples_are_counted_and_failed_batches_are_not_delivered(workers: int) -> None:
    metrics = PrometheusCollector(CollectorRegistry())
    options: dict[str, Any] = {"batch_size": SIZE, "num_workers": workers}
    tolerant = reader.DataLoader(Broken(), on_error="skip", **options)
    strict = reader.DataLoader(Broken(), **options)
    with metrics.serve(0) as endpoint, tolerant, strict:
        metrics.add("tolerant", tolerant)
        metrics.add("strict", strict)
        for _ in range(2):
            assert len(list(tolerant)) == BATCHES
        batches, failed = iter(strict), 0
        for _ in range(BATCHES):
            try:
                next(batches)
            except ValueError:
                failed += 1
        found = asked(endpoint.port)
        assert of(found, "reader_failed_samples_total", loader="tolerant") == 4
        assert of(found, "reader_failed_samples_total", loader="strict") == 0
        assert of(found, "reader_batches_total", loader="strict") == BATCHES - failed
        del batches
    metrics.close()


def test_several_loaders_are_reported_by_label_and_a_freed_one_disappears() -> None:
    metrics = PrometheusCollector(CollectorRegistry())
    with metrics.serve(0) as endpoint, loaded(2) as train:
        test = reader.DataLoader(reader.cache(Numbers(), memory="1MB"), batch_size=SIZE)
        metrics.add("train", train)
        metrics.add("test", test)
        for number, _ in enumerate(train, 1):
            if number == 3:
                found = asked(endpoint.port)
                assert of(found, "reader_batches_total", loader="train") == 3
                assert of(found, "reader_samples_total", loader="train") == 3 * SIZE
                assert of(found, "reader_workers", loader="train") == 2
                assert of(found, "reader_arena_bytes", loader="train") > 0
                assert of(found, "reader_worker_restarts_total", loader="train") == 0
                assert of(found, "reader_batches_total", loader="test") == 0
        assert len(list(test)) == BATCHES
        found = asked(endpoint.port)
        assert of(found, "reader_batches_total", loader="train") == BATCHES
        assert of(found, "reader_batches_total", loader="test") == BATCHES
        assert of(found, "reader_cache_misses_total", loader="test") == BATCHES * SIZE
        assert of(found, "reader_cache_hits_total", loader="train") is None
        assert of(found, "reader_wait_seconds_total", loader="train") > 0
        fetch_s = of(found, "reader_stage_seconds_total", loader="train", stage="fetch")
        assert fetch_s >= BATCHES * SIZE * 0.0005
        with pytest.raises(ConfigError, match=r"a loader named 'test' is told of already"):
            metrics.add("test", train)
        del test
        gc.collect()
        found = asked(endpoint.port)
        assert of(found, "reader_batches_total", loader="train") == BATCHES
        assert of(found, "reader_batches_total", loader="test") is None
        assert list(metrics._counters) == ["train"]
        metrics.add("test", train)
        assert of(asked(endpoint.port), "reader_batches_total", loader="test") == 0
    metrics.close()
    metrics.close()


def test_concurrent_requests_count_each_batch_once() -> None:
    metrics = PrometheusCollector(CollectorRegistry())
    with metrics.serve(0) as endpoint, loaded(2) as loader, ThreadPoolExecutor(4) as threads:
        metrics.add("train", loader)
        epochs = itertools.chain(loader, loader, loader)
        asking = [threads.submit(asked, endpoint.port) for _ in epochs]
        found = [of(each.result(), "reader_batches_total", loader="train") for each in asking]
        assert max(found) <= 3 * BATCHES
        found.append(of(asked(endpoint.port), "reader_batches_total", loader="train"))
        assert found[-1] == 3 * BATCHES


def test_a_port_in_use_is_an_error_at_once() -> None:
    metrics = PrometheusCollector(CollectorRegistry())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError,
            match=rf"port {port} of 127\.0\.0\.1 cannot be listened at: .*Address already in use"
            r".*pass another port=",
        ):
            metrics.serve(port)
    with metrics.serve(port) as endpoint:  # nothing of the attempt is left
        assert endpoint.port == port
    endpoint.close()


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match=rf"port must be an int in \[0, 65535\], got {port}"):
        PrometheusCollector(CollectorRegistry()).serve(port)


def test_non_loaders_are_refused() -> None:
    with pytest.raises(ConfigTypeError, match=r"PrometheusCollector\.add takes a loader"):
        PrometheusCollector(CollectorRegistry()).add("train", [1])


def test_workers_keep_neither_the_port_of_an_endpoint_nor_its_requests() -> None:
    metrics = PrometheusCollector(CollectorRegistry())
    endpoint = metrics.serve(0)
    with socket.create_connection(("127.0.0.1", endpoint.port)) as asking:
        asking.sendall(b"GET /metrics HTTP/1.0\r\n")  # it waits for the rest
        while not len(endpoint._requests):
            threading.Event().wait(0.005)
        held = {f"socket:[{os.fstat(fd).st_ino}]" for fd in _sockets_of(endpoint)}
        with reader.DataLoader(
            Numbers(), batch_size=SIZE, num_workers=2, persistent_workers=True, start_method="fork"
        ) as loader:
            assert len(list(loader)) == BATCHES
            for status in loader.workers():
                links = [os.readlink(path) for path in Path(f"/proc/{status.pid}/fd").iterdir()]
                assert held.isdisjoint(links)
            endpoint.close()
            with metrics.serve(endpoint.port) as again:
                assert asked(again.port) is not None
    metrics.close()


def _sockets_of(endpoint: Any) -> list[int]:
    return [endpoint._server.socket.fileno(), *(each.fileno() for each in endpoint._requests)]


def test_endpoint_of_a_parent_is_closed_in_a_forked_process_without_waiting() -> None:
    metrics = PrometheusCollector(CollectorRegistry())
    with metrics.serve(0) as endpoint:
        pid = os.fork()
        if pid == 0:
            endpoint.close()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert asked(endpoint.port) is not None
    metrics.close()
