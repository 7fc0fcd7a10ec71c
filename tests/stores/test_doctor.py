"""The doctor's look at a store: reached or not, why not, and what to do; and no secret."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reader.observe.finding import Finding
from reader.observe.store import credentials_of, speeds
from tests.stores.servers import S3Server, free_ports, http_server, own_certificate, s3_server

pytestmark = pytest.mark.slow

CONTENT = bytes(range(256)) * 4096


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.make_bucket("sets")
        server.make_bucket("empty")
        for number in range(3):
            server.put("sets", f"folder/{number}.bin", CONTENT)
        yield server


def environment(server: S3Server, **changes: str) -> dict[str, str]:
    kept = {name: each for name, each in os.environ.items() if not name.startswith("AWS_")}
    own = {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_REGION": server.region,
    }
    return {**kept, **own, **changes}


def examined(url: str, environ: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the findings about stores, by their subjects."""
    command = [sys.executable, "-m", "reader", "doctor", "--json", "--store", url]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert "secret-of-tests" not in done.stdout + done.stderr
    found = {each["subject"]: each for each in json.loads(done.stdout)}
    wanted = ("credentials", "store", "store latency", "store bandwidth")
    return done.returncode, {name: found[name] for name in wanted if name in found}


@pytest.mark.parametrize("url", ["s3://sets/folder", "s3://sets", "s3://sets/folder/1.bin"])
def test_a_store_that_is_reached_has_its_latency_and_bandwidth(url: str, server: S3Server) -> None:
    _, found = examined(url, environment(server))
    assert found["credentials"]["found"] == (
        "keys of the environment: AWS_ACCESS_KEY_ID, for s3://sets"
    )
    assert found["store"]["level"] == "ok"
    assert "is reached, and has 'folder/" in found["store"]["found"]
    assert "of 1 MiB" in found["store"]["found"]
    assert "a small request takes " in found["store latency"]["found"]
    assert " MB/s by 8 transfers at once" in found["store bandwidth"]["found"]


@pytest.mark.parametrize(
    ("url", "changes", "told", "remedy"),
    [
        ("s3://nowhere/x", {}, "there is no such bucket: 404", "the name of the bucket"),
        ("s3://empty", {}, "no object is there", "look at the name"),
        ("s3://sets/none", {}, "no object is there", "look at the name"),
        ("s3://sets", {"AWS_SECRET_ACCESS_KEY": "x"}, "it is refused: 403", "set the credentials"),
        (
            "s3://sets",
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
            "it is not reached: .*Connection refused",
            "the name of the host",
        ),
        ("s3:///x", {}, "names no bucket or host", "pass --store"),
        ("data/sets", {}, "is no address of a store", "pass --store"),
    ],
)
def test_a_store_that_is_not_reached_has_a_reason_and_a_remedy(
    url: str, changes: dict[str, str], told: str, remedy: str, server: S3Server
) -> None:
    code, found = examined(url, environment(server, **changes))
    assert code == 2
    assert found["store"]["level"] == "error"
    assert re.search(told, found["store"]["found"]), found["store"]["found"]
    assert remedy in found["store"]["remedy"]


def test_an_object_behind_http_is_looked_at(tmp_path: Path) -> None:
    with http_server(tmp_path) as server:
        server.make_bucket("sets")
        server.put("sets", "index.json", CONTENT)
        _, found = examined(f"{server.endpoint}/sets/index.json", dict(os.environ))
        assert found["credentials"]["found"].startswith("none: it is read by HTTP")
        assert found["store"]["level"] == "ok"
        _, found = examined(f"{server.endpoint}/sets/none.json", dict(os.environ))
        assert found["store"]["level"] == "error"


def test_a_certificate_that_is_not_trusted_is_told(tmp_path: Path) -> None:
    context, _ = own_certificate(tmp_path)
    (port,) = free_ports(1)
    handler = http.server.SimpleHTTPRequestHandler
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            code, found = examined(f"https://localhost:{port}/x", dict(os.environ))
        finally:
            server.shutdown()
            thread.join()
    assert code == 2
    assert "its certificate is not trusted" in found["store"]["found"]
    assert "root_certificate" in found["store"]["remedy"]


@pytest.mark.parametrize(
    ("scheme", "environ", "told"),
    [
        ("s3", {"AWS_ACCESS_KEY_ID": "AKIA"}, "keys of the environment: AWS_ACCESS_KEY_ID"),
        (
            "s3",
            {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SESSION_TOKEN": "x"},
            "keys of the environment: AWS_ACCESS_KEY_ID, with a session token, which expires",
        ),
        ("s3", {}, "the role of this machine, since the environment has none"),
        ("gs", {"GOOGLE_SERVICE_ACCOUNT": "/x"}, "a service account by GOOGLE_SERVICE_ACCOUNT"),
        (
            "abfss",
            {"AZURE_STORAGE_SAS_KEY": "x"},
            "a shared access signature: AZURE_STORAGE_SAS_KEY",
        ),
        ("https", {"AWS_ACCESS_KEY_ID": "AKIA"}, "none: it is read by HTTP"),
    ],
)
def test_the_kind_of_credentials_is_named(scheme: str, environ: dict[str, str], told: str) -> None:
    assert credentials_of(scheme, environ) == told


def test_a_slow_store_is_a_warning_with_a_remedy() -> None:
    ok: list[Finding] = list(speeds(0.02, 200e6))
    assert [each.level for each in ok] == ["ok", "ok"]
    far, slow = speeds(0.3, 5e6)
    assert (far.level, far.found) == ("warning", "a small request takes 300.0 ms in the median")
    assert "in the region of the store" in far.remedy
    assert slow.found == "5 MB/s by 8 transfers at once: 50 samples of 100 KB a second"
    assert "reader.ShardCache(path)" in slow.remedy
