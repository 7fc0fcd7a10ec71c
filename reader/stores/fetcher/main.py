"""Where the fetching process begins: `python -c` calls `main` with its arguments as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys

__all__ = ["main"]


def main() -> None:
    """Serve; returns when nobody is there."""
    if os.fork():  # who has started it need not wait for its end
        os._exit(0)
    arguments = json.loads(sys.argv[1])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    from reader.stores.fetcher.server import serve

    first = socket.socket(fileno=arguments["first"])
    said = [arguments[name] for name in ("lock", "folder", "limit", "ahead")]
    asyncio.run(serve(first, *said))
    os._exit(0)  # threads of the client library are not waited for
