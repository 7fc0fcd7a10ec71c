"""A reverse proxy of HTTP/1.1 that makes faults by rule: `with faulty(server.endpoint, ...)`.

Imports the standard library, and the start of servers. It runs as a process of its own, which
belongs to the context; its state belongs to its one thread. It forwards requests and responses byte
for byte, the Host header too, since signatures cover it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from tests.stores.servers import free_ports, running

_PIECE_BYTES = 1 << 18
_HEAD_BYTES = 1 << 16  # a longer head ends the connection
_BURST_S = 0.05  # a rule of bandwidth lets so much time's bytes pass at once after a pause
_ROOT = Path(__file__).parents[2]

Kind = Literal[
    "delay",  # wait `amount` ms before the response's head: the time of a round trip
    "bandwidth",  # send bodies at `amount` bytes a second, all connections together
    "slow_down",  # answer 503 with S3's error SlowDown, without asking the server
    "too_many",  # answer 429 with Retry-After: `amount`, in whole s, without asking the server
    "expired",  # answer 400 with S3's error ExpiredToken, without asking the server
    "other_region",  # answer 301 with S3's error PermanentRedirect, without asking the server
    "cut",  # close the connection after a part of the body, as drawn
    "damage",  # flip the bits of one byte of the body, as drawn
    "stall",  # wait `amount` s at a place of the body, as drawn
    "refuse",  # close all connections, and refuse new ones for `amount` s: a restart
    "wrong_range",  # Content-Range begins one byte later than it should
    "no_range",  # no Content-Range
    "changed_etag",  # ETag: "changed"
    "no_conditions",  # requests lose If-Match and If-None-Match; with an `amount` they are refused
]


@dataclass(frozen=True)
class Rule:
    """One kind of fault, and the requests that it befalls."""

    kind: Kind
    amount: float = 0.0
    share: float = 1.0  # of the requests that the rest of the rule admits, drawn by the seed
    path: str = ""  # a regular expression that is searched in the path and query
    first: float = math.inf  # only the first so many requests that `path` admits
    attempts: float = math.inf  # only the first so many requests of one method, target and range

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or (self.kind == "bandwidth" and self.amount <= 0):
            raise ValueError(f"no such fault: {self}")


@dataclass
class Counters:
    """What passed since the start or the last reset."""

    requests: Counter[str] = field(default_factory=Counter)  # by method and status: "GET 206"
    paths: Counter[str] = field(default_factory=Counter)  # requests by path and query
    faults: Counter[str] = field(default_factory=Counter)  # those that happened, by kind
    bytes_sent: int = 0  # of bodies, to clients
    most_connections: int = 0  # of clients, at once
    most_requests: int = 0  # that had no full answer yet, at once


@dataclass
class Proxy:
    """A running proxy; each process and thread may call it."""

    endpoint: str
    pid: int
    _control: int

    def set_rules(self, *rules: Rule) -> None:
        """Replace the rules for requests that come from now on, and count these anew.

        A body under way ends by the rules that it began with. The counters go on.
        """
        self._call({"rules": [asdict(rule) for rule in rules]})

    def counters(self) -> Counters:
        """Return what was counted so far."""
        return self._call({})

    def reset(self) -> Counters:
        """Begin to count anew; return the counters, of which open connections stay."""
        return self._call({"reset": True})

    def _call(self, message: dict[str, Any]) -> Counters:
        with socket.create_connection(("127.0.0.1", self._control), timeout=30) as sock:
            sock.sendall(json.dumps(message).encode() + b"\n")
            with sock.makefile("rb") as answer:
                found = json.loads(answer.read())
        counted = {name: Counter(found[name]) for name in ("requests", "paths", "faults")}
        return Counters(**{**found, **counted})


@contextlib.contextmanager
def faulty(upstream: str, *rules: Rule, seed: int = 0) -> Iterator[Proxy]:
    """Run a proxy before the server whose endpoint is `upstream`, until the context ends.

    The same seed, rules and requests make the same faults, whatever the order of the requests.

    Raises:
        RuntimeError: it does not start within 30 s.
    """
    port, control = free_ports(2)
    argv = [sys.executable, "-m", "tests.stores.proxy", upstream, str(port), str(control)]
    argv += [str(seed), json.dumps([asdict(rule) for rule in rules])]
    with (
        tempfile.TemporaryDirectory() as folder,
        running(argv, Path(folder), control, cwd=_ROOT) as pid,
    ):
        yield Proxy(f"http://127.0.0.1:{port}", pid, control)


_CONDITION = re.compile(rb"(?im)^if-(?:none-)?match:.*\n")
_ERRORS: dict[Kind, tuple[str, str, str]] = {  # of S3: status, code and message
    "slow_down": ("503 Slow Down", "SlowDown", "Please reduce your rate."),
    "expired": ("400 Bad Request", "ExpiredToken", "The provided token has expired."),
    "other_region": ("301 Moved Permanently", "PermanentRedirect", "Use the right endpoint."),
}
_EDITS: dict[Kind, tuple[re.Pattern[bytes], Any]] = {
    "wrong_range": (
        re.compile(rb"(?im)^(content-range: *bytes )(\d+)"),
        lambda match: match[1] + b"%d" % (int(match[2]) + 1),
    ),
    "no_range": (re.compile(rb"(?im)^content-range:.*\n"), b""),
    "changed_etag": (re.compile(rb"(?im)^(etag:).*\r$"), rb'\1 "changed"' + b"\r"),
}


class _Wire:
    """A connected socket, and the bytes that were read beyond a head."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._rest = bytearray()
        self._piece = memoryview(bytearray(_PIECE_BYTES))
        self._loop = asyncio.get_running_loop()

    def is_stale(self) -> bool:
        """Whether the other side closed it, or sent something unasked."""
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    async def until(self, end: bytes) -> bytes:
        """Read up to `end`, inclusive; nothing where the other side closed before a first byte."""
        while (at := self._rest.find(end)) < 0:
            data = await self._loop.sock_recv(self.sock, _HEAD_BYTES)
            if not data and not self._rest:
                return b""
            if not data or len(self._rest) > _HEAD_BYTES:
                raise ConnectionError("no end of a head")
            self._rest += data
        found = bytes(self._rest[: at + len(end)])
        del self._rest[: len(found)]
        return found

    async def take(self, nbytes: int) -> AsyncIterator[memoryview]:
        """Read so many bytes in pieces, each good until the next."""
        while nbytes:
            if self._rest:
                piece = memoryview(self._rest[:nbytes])
                del self._rest[:nbytes]
            else:
                got = await self._loop.sock_recv_into(self.sock, self._piece[:nbytes])
                if not got:
                    raise ConnectionError("no end of a body")
                piece = self._piece[:got]
            nbytes -= len(piece)
            yield piece

    async def body(self, head: bytes) -> AsyncIterator[tuple[memoryview, bool]]:
        """Read the body of a head in pieces, with the lines between chunks; True: payload."""
        if (_header(head, b"transfer-encoding") or b"").lower() != b"chunked":
            async for piece in self.take(int(_header(head, b"content-length") or 0)):
                yield piece, True
            return
        size = -1
        while size:
            line = await self.until(b"\r\n")
            yield memoryview(line), False
            size = int(line.partition(b";")[0], 16)
            async for piece in self.take(size):
                yield piece, True
            if size:
                yield memoryview(await self.until(b"\r\n")), False
        while line != b"\r\n":  # trailers
            line = await self.until(b"\r\n")
            yield memoryview(line), False

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        await self._loop.sock_sendall(self.sock, data)


class _LiveRule:
    """A rule at work: the requests that it saw, and when its bandwidth is free again."""

    def __init__(self, rule: Rule, draws: str) -> None:
        self.rule = rule
        self.draws = draws
        self.seen = 0
        self._attempts: Counter[str] = Counter()
        self._free_s = 0.0

    def draw(self, key: str, target: str) -> random.Random | None:
        """Return the numbers by which it befalls a request; None where it does not."""
        rule = self.rule
        if not re.search(rule.path, target):
            return None
        self.seen += 1
        self._attempts[key] += 1
        attempt = self._attempts[key]
        if self.seen > rule.first or attempt > rule.attempts:
            return None
        numbers = random.Random(f"{self.draws} {key} {attempt}")
        return numbers if numbers.random() < rule.share else None

    async def pace(self, nbytes: int) -> None:
        """Wait until so many bytes may be sent."""
        now = time.monotonic()
        self._free_s = max(self._free_s, now - _BURST_S) + nbytes / self.rule.amount
        if self._free_s > now:
            await asyncio.sleep(self._free_s - now)


class _Listener:
    """The port of the clients, the rules, and what is counted."""

    def __init__(self, upstream: str, port: int, seed: int) -> None:
        host, _, number = upstream.partition("//")[2].partition(":")
        self.upstream = (host, int(number))
        self.rules: list[_LiveRule] = []
        self.counters = Counters()
        self.requests = 0  # that have no full answer yet
        self._port = port
        self._seed = seed
        self._clients: set[asyncio.Task[None]] = set()
        self._listening = socket.socket()

    def set_rules(self, rules: list[dict[str, Any]]) -> None:
        self.rules = [_LiveRule(Rule(**rule), f"{self._seed} {n}") for n, rule in enumerate(rules)]

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Do what one line of JSON asks for, and answer with the counters."""
        line = await reader.readline()
        if line.startswith(b"GET "):  # `running` asks whether it is there
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        elif line:
            message = json.loads(line)
            if "rules" in message:
                self.set_rules(message["rules"])
            if "reset" in message:
                self.counters = Counters(most_connections=len(self._clients))
            writer.write(json.dumps(vars(self.counters)).encode())
        writer.close()

    def listen(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self._port), backlog=1024)
        self._listening.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def refuse(self, seconds: float) -> None:
        """Close the port for a while, and all connections but that of the running task."""
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()
        asyncio.get_running_loop().call_later(seconds, self.listen)
        for task in self._clients:
            if task is not asyncio.current_task():
                task.cancel()

    def _accept(self) -> None:
        try:
            sock, _ = self._listening.accept()
        except OSError:  # it closed already
            return
        task = asyncio.create_task(_Client(self, sock).serve())
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)
        task.add_done_callback(lambda _: sock.close())  # also of a task that never began
        self.counters.most_connections = max(self.counters.most_connections, len(self._clients))


class _Client:
    """A client's connection, the one to the server that goes with it, and its present faults."""

    def __init__(self, listener: _Listener, sock: socket.socket) -> None:
        self._listener = listener
        self._wire = _Wire(sock)
        self._upstream: _Wire | None = None
        self._faults: dict[Kind, tuple[_LiveRule, random.Random]] = {}

    async def serve(self) -> None:
        """Answer requests until a side closes or a fault does."""
        listener = self._listener
        try:
            is_open = True
            while is_open and (head := await self._wire.until(b"\r\n\r\n")):
                counters = listener.counters
                listener.requests += 1
                counters.most_requests = max(counters.most_requests, listener.requests)
                try:
                    is_open = await self._answer(head)
                finally:
                    listener.requests -= 1
        except OSError as error:
            print(f"a connection ends: {error!r}", flush=True)
        finally:
            if self._upstream is not None:
                self._upstream.sock.close()

    async def _answer(self, head: bytes) -> bool:
        """Answer one request; return whether the connection goes on."""
        method, target, _ = head.decode("latin-1").split(" ", 2)
        self._listener.counters.paths[target] += 1
        key = f"{method} {target} {_header(head, b'range')!r}"
        self._faults = {}
        for live in self._listener.rules:
            numbers = live.draw(key, target)
            if numbers is not None:
                self._faults.setdefault(live.rule.kind, (live, numbers))
        if "refuse" in self._faults:
            self._listener.refuse(self._happens("refuse"))
            return False
        if "no_conditions" in self._faults:
            head, count = _CONDITION.subn(b"", head)
            if not count:
                del self._faults["no_conditions"]
        if _header(head, b"expect"):
            await self._wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if (refusal := self._refusal()) is not None:
            async for _ in self._wire.body(head):
                pass
            await self._send_head(method, refusal[0])
            await self._send(memoryview(refusal[1] if method != "HEAD" else b""))
            return True
        upstream = await self._forward(head)
        while (response := await upstream.until(b"\r\n\r\n"))[9:10] == b"1":
            pass  # 100 Continue was said already
        if not response:
            raise ConnectionError(f"the server closed before it answered {key}")
        await self._send_head(method, self._altered(response))
        has_body = method != "HEAD" and response[9:12] not in (b"204", b"304")
        if has_body and not await self._send_body(upstream, response):
            return False
        closes = (_header(head, b"connection"), _header(response, b"connection"))
        return not any(value and value.lower() == b"close" for value in closes)

    def _happens(self, kind: Kind) -> float:
        """Count a fault, and return its amount."""
        self._listener.counters.faults[kind] += 1
        return self._faults[kind][0].rule.amount

    def _refusal(self) -> tuple[bytes, bytes] | None:
        """Return the head and body that a fault answers instead of the server."""
        errors = [kind for kind in _ERRORS if kind in self._faults]
        if errors:
            self._happens(errors[0])
            status, code, told = _ERRORS[errors[0]]
            body = f"<Error><Code>{code}</Code><Message>{told}</Message></Error>"
            lines = f"{status}\r\nContent-Type: application/xml"
        elif "too_many" in self._faults:
            body = ""
            lines = f"429 Too Many Requests\r\nRetry-After: {self._happens('too_many'):.0f}"
        elif "no_conditions" in self._faults and self._happens("no_conditions"):
            body, lines = "<Error><Code>NotImplemented</Code></Error>", "501 Not Implemented"
        else:
            return None
        head = f"HTTP/1.1 {lines}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode(), body.encode()

    async def _forward(self, head: bytes) -> _Wire:
        """Send the request to the server, over a new connection where the last one is closed."""
        upstream = self._upstream
        if upstream is None or upstream.is_stale():
            if upstream is not None:
                upstream.sock.close()
            upstream = self._upstream = _Wire(socket.socket())
            loop = asyncio.get_running_loop()
            await loop.sock_connect(upstream.sock, self._listener.upstream)
        await upstream.send(head)
        async for piece, _ in self._wire.body(head):
            await upstream.send(piece)
        return upstream

    def _altered(self, head: bytes) -> bytes:
        for kind, (pattern, replacement) in _EDITS.items():
            if kind in self._faults:
                head, count = pattern.subn(replacement, head)
                if count:
                    self._happens(kind)
        return head

    async def _send_head(self, method: str, head: bytes) -> None:
        if "delay" in self._faults:
            await asyncio.sleep(self._happens("delay") / 1000)
        self._listener.counters.requests[f"{method} {head[9:12].decode()}"] += 1
        await self._wire.send(head)

    async def _send_body(self, upstream: _Wire, head: bytes) -> bool:
        """Send the server's body on, with its faults; return whether all of it was sent."""
        length = int(_header(head, b"content-length") or 0)
        kinds: list[Kind] = ["cut", "damage", "stall"]
        drawn = [(self._faults[kind][1], kind) for kind in kinds if kind in self._faults]
        # The length of chunks is not known: faults come before their first byte.
        places = sorted((numbers.randrange(length or 1), kind) for numbers, kind in drawn)
        if "bandwidth" in self._faults:
            self._happens("bandwidth")
        seen = 0
        async for piece, is_payload in upstream.body(head):
            start = 0
            while is_payload and places and places[0][0] < seen + len(piece):
                place, kind = places.pop(0)
                amount = self._happens(kind)
                if kind == "damage":
                    piece[place - seen] ^= 0xFF
                    continue
                await self._send(piece[start : place - seen])
                start = place - seen
                if kind == "cut":
                    return False
                await asyncio.sleep(amount)
            await self._send(piece[start:])
            seen += len(piece) if is_payload else 0
        return True

    async def _send(self, piece: memoryview) -> None:
        """Send a piece of a body, as fast as the rules permit."""
        live, _ = self._faults.get("bandwidth", (None, None))
        step = len(piece) if live is None else max(1024, int(live.rule.amount / 100))
        for start in range(0, len(piece), step or 1):
            part = piece[start : start + step]
            if live is not None:
                await live.pace(len(part))
            await self._wire.send(part)
            self._listener.counters.bytes_sent += len(part)
        await asyncio.sleep(0)  # others' turn, even where no send ever waits


def _header(head: bytes, name: bytes) -> bytes | None:
    """Return the value of a header, whose name is given in lower case."""
    for line in head.split(b"\r\n")[1:]:
        found, _, value = line.partition(b":")
        if found.lower() == name:
            return value.strip()
    return None


async def _main() -> None:
    upstream, port, control, seed, rules = sys.argv[1:]
    listener = _Listener(upstream, int(port), int(seed))
    listener.set_rules(json.loads(rules))
    listener.listen()
    server = await asyncio.start_server(listener.control, "127.0.0.1", int(control))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
