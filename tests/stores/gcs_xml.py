"""Google's XML interface to a server of S3 that takes anybody: `servers.gcs_xml_server` starts it.

Imports the standard library. Both interfaces are one but for what is translated here: tokens,
generations with the conditions on them, and how often an object may be written. Source: Google's
reference of the XML interface, and its quotas. A generation is made of the ETag: unlike Google's,
those of equal contents are equal.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_AGAIN_S = 1.0  # an object is written, or deleted, once in so many seconds
_WRITES = {("PUT", ""), ("POST", "uploadId"), ("DELETE", "")}  # the second ends one in parts
_ETAG = re.compile(r"<ETag>(?:&#34;|&quot;|\")?([^<&\"]+)")
_NOT_SENT = ("authorization", "connection", "host", "x-goog-")
_NOT_ANSWERED = ("connection", "content-length", "date", "server", "transfer-encoding", "x-amz-")


class _Interface(ThreadingHTTPServer):
    """The interface.

    Args:
        upstream: host and port of the server of S3.
        port: of 127.0.0.1, where this one answers.
        token: that a request must have.
        public: the bucket that is read without one.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, upstream: str, port: int, token: str, public: str) -> None:
        super().__init__(("127.0.0.1", port), _Request)
        self.upstream, self.token, self.public = upstream, token, public
        self.etags: dict[str, str] = {}  # by generation
        self.written_s: dict[str, float] = {}  # when, by path

    def generation_of(self, etag: str) -> str:
        """Return the number of a version, by which it is found again."""
        digest = hashlib.blake2b(etag.encode(), digest_size=8).digest()
        number = str((int.from_bytes(digest, "little") >> 1) or 1)
        self.etags[number] = etag
        return number


class _Request(BaseHTTPRequestHandler):
    """A client's connection. Each request has one of its own to the server."""

    server: _Interface
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, _, query = self.path.partition("?")
        is_written = (self.command, query.partition("=")[0]) in _WRITES
        if (refusal := self._refusal(path.split("/")[1])) is not None:
            self._send(*refusal)
        elif is_written and time.monotonic() - self.server.written_s.get(path, -9) < _AGAIN_S:
            self._send(429, *_error("SlowDown", "The object exceeded the rate limit."))
        else:
            with contextlib.closing(http.client.HTTPConnection(self.server.upstream)) as upstream:
                upstream.request(self.command, self.path, body or None, self._translated())
                response = upstream.getresponse()
                content = response.read()
            if is_written and response.status < 300 and path.count("/") > 1:
                self.server.written_s[path] = time.monotonic()
            self._send(response.status, self._headers_of(response, content), content)

    def _refusal(self, bucket: str) -> tuple[int, dict[str, str], bytes] | None:
        """Return what a request gets that may not do what it asks for."""
        said = self.headers.get("Authorization")
        if said is not None and said != f"Bearer {self.server.token}":
            return 401, *_error("AuthenticationRequired", "Authentication required.")
        is_public = self.command in ("GET", "HEAD") and bucket == self.server.public
        if said is None and not is_public:
            return 403, *_error("AccessDenied", "Anonymous caller does not have access.")
        return None

    def _translated(self) -> dict[str, str]:
        headers = {
            name: value
            for name, value in self.headers.items()
            if not name.lower().startswith(_NOT_SENT)
        }
        generation = self.headers.get("x-goog-if-generation-match")
        if generation == "0":
            headers["If-None-Match"] = "*"
        elif generation is not None:
            headers["If-Match"] = self.server.etags.get(generation, '"none"')
        return headers

    def _headers_of(self, response: http.client.HTTPResponse, content: bytes) -> dict[str, str]:
        headers = {
            name: value
            for name, value in response.getheaders()
            if not name.lower().startswith(_NOT_ANSWERED)
        }
        etag = response.getheader("ETag")
        if self.command == "POST" and (found := _ETAG.search(content.decode("latin-1"))):
            etag = f'"{found[1]}"'  # of an object in parts
        if etag is not None and response.status < 300:
            headers["x-goog-generation"] = self.server.generation_of(etag)
        if self.command == "HEAD":
            headers["Content-Length"] = response.getheader("Content-Length", "0")
        return headers

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204 and "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def _error(code: str, told: str) -> tuple[dict[str, str], bytes]:
    """Return headers and body of an answer that refuses."""
    body = f"<Error><Code>{code}</Code><Message>{told}</Message></Error>"
    return {"Content-Type": "application/xml"}, body.encode()


if __name__ == "__main__":
    upstream, port, *others = sys.argv[1:]
    _Interface(upstream, int(port), *others).serve_forever()
