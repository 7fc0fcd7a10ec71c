"""Servers of stores: they give what they got, check who asks, and end with their context."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.processes import BOUND_S, Program, open_pid, wait_gone, wait_until
from tests.stores import servers
from tests.stores.proxy import faulty
from tests.stores.servers import (
    PUBLIC,
    Server,
    azure_server,
    gcs_xml_server,
    http_server,
    s3_server,
)

pytestmark = pytest.mark.slow

EACH = pytest.mark.parametrize("name", ["s3", "gcs", "gcs_xml", "azure", "http"])
KEY = "a folder/é+~(1).bin"


def server_of(name: str) -> Callable[[Path], AbstractContextManager[Server]]:
    found: Callable[[Path], AbstractContextManager[Server]] = getattr(servers, f"{name}_server")
    return found


def port_of(server: Server) -> int:
    return int(server.endpoint.rpartition(":")[2])


def check_gone(pidfd: int | None, port: int) -> None:
    wait_gone([pidfd], BOUND_S)

    def is_closed() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) != 0

    wait_until(is_closed)


@EACH
def test_a_server_gives_back_bytes_and_ranges_and_ends_with_its_context(
    name: str, tmp_path: Path, rng_bytes: bytes
) -> None:
    with server_of(name)(tmp_path) as server:
        pidfd = open_pid(server.pid)
        server.make_bucket("bucket")
        server.put("bucket", KEY, rng_bytes)
        with faulty(server.endpoint) as proxy:  # signatures hold behind a proxy
            behind = dataclasses.replace(server, endpoint=proxy.endpoint)
            if name != "http":
                behind.put("bucket", "put", rng_bytes)
                assert server.get("bucket", "put").body == rng_bytes
            for each in (server, behind):
                whole = each.get("bucket", KEY)
                assert whole.status == 200
                assert whole.headers["etag"].startswith('"')
                assert whole.body == rng_bytes
                header = "x-ms-range" if name == "azure" else "Range"
                part = each.get("bucket", KEY, {header: "bytes=4194300-4194309"})
                assert part.status == 206
                assert part.headers["content-range"] == f"bytes 4194300-4194309/{len(rng_bytes)}"
                assert part.body == rng_bytes[4194300:4194310]
        assert server.get("bucket", "none").status == 404
    check_gone(pidfd, port_of(server))


@pytest.fixture
def rng_bytes(seed: int) -> bytes:
    return random.Random(seed).randbytes(5 << 20)  # SeaweedFS keeps it in two chunks


def test_s3_checks_signatures_but_of_the_public_bucket(tmp_path: Path) -> None:
    with s3_server(tmp_path) as server:
        check_signatures(server, dataclasses.replace(server, secret_key="other"), "")


def test_azure_checks_signatures_but_of_the_public_container(tmp_path: Path) -> None:
    with azure_server(tmp_path) as server:
        wrong = dataclasses.replace(server, key="b3RoZXI=")
        check_signatures(server, wrong, f"/{server.account}")


def test_google_s_interface_checks_tokens_but_of_the_public_bucket(tmp_path: Path) -> None:
    with gcs_xml_server(tmp_path) as server:
        check_signatures(server, dataclasses.replace(server, token="other"), "", 401)


def check_signatures(server: Server, wrong: Server, prefix: str, status: int = 403) -> None:
    for bucket in ("closed", PUBLIC):
        server.make_bucket(bucket)
        server.put(bucket, "key", b"body")
    assert wrong.get("closed", "key").status == status
    assert server.request("GET", f"{prefix}/closed/key").status in (403, 404)
    assert server.request("GET", f"{prefix}/{PUBLIC}/key").body == b"body"
    with pytest.raises(OSError, match=f"refuses it: {status}"):
        wrong.put("closed", "key", b"other")


def test_nginx_lists_a_folder_in_json(tmp_path: Path) -> None:
    with http_server(tmp_path) as server:
        server.put("bucket", "key", b"body")
        (entry,) = json.loads(server.request("GET", "/bucket/").body)
    assert (entry["name"], entry["type"], entry["size"]) == ("key", "file", 4)


@EACH
def test_a_server_ends_with_a_test_process_that_is_killed(name: str, tmp_path: Path) -> None:
    text = f"""
        import signal
        from pathlib import Path
        import pytest
        from tests.stores.proxy import faulty
        from tests.stores.servers import {name}_server
        try:
            with {name}_server(Path()) as server, faulty(server.endpoint) as proxy:
                for each in (server, proxy):
                    print(each.pid, each.endpoint.rpartition(":")[2])
                signal.pause()
        except pytest.skip.Exception as error:
            print(f"skip {{error}}")
    """
    program = Program(tmp_path, text)
    try:
        first, _, rest = program.line().partition(" ")
        if first == "skip":
            pytest.skip(rest)
        pid, _, port = program.line().partition(" ")
        ends = [(open_pid(int(first)), int(rest)), (open_pid(int(pid)), int(port))]
        options = Path(f"/proc/{first}/cmdline").read_text()
        os.kill(program.process.pid, signal.SIGKILL)
        for pidfd, number in ends:
            check_gone(pidfd, number)
        for number in re.findall(r"port\.grpc=(\d+)", options):  # SeaweedFS's sockets stay
            for path in Path("/tmp").glob(f"seaweedfs-*-grpc-{number}.sock"):
                path.unlink()
    finally:
        program.end()


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import sys; sys.exit('no such option')"]
    port = servers.free_ports(1)[0]
    said = pytest.raises(RuntimeError, match=r"(?s) ended; its log ends with:.*no such option")
    with said, servers.running(argv, tmp_path, port):
        pass


def test_a_missing_program_skips_the_test_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(servers, "_STORES", tmp_path)
    remedy = r"nginx is not installed: .*stores\.txt"
    with pytest.raises(pytest.skip.Exception, match=remedy), http_server(tmp_path):
        pass
