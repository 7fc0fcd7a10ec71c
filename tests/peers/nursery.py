"""A process that has imported a peer and forks one process per program, to save its start.

Runs as ``python -m tests.peers.nursery SOCKET MODULE...``; imports these modules, NumPy and what
programs tell their test with, and nothing of ours. Each connection is one program: a JSON line and
two descriptors in, the program's id and its wait status out.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
import types
import warnings

_LIMIT = 1 << 20  # bytes of one request


def serve(path: str) -> tuple[str, str] | None:
    """Fork programs until the socket is gone; returns (name, text) in the process of a program."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print("ready", flush=True)
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    poller.register(0, select.POLLHUP)  # the test's end of our stdin: closed when the test ends
    children: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for fd, _ in poller.poll():
            if fd == 0:
                return None
            if fd != listener.fileno():
                pid, connection = children.pop(fd)
                poller.unregister(fd)
                os.close(fd)
                status = os.waitpid(pid, 0)[1]
                connection.send(b"%d\n" % status)
                connection.close()
                continue
            connection, _ = listener.accept()
            request, descriptors, _, _ = socket.recv_fds(connection, _LIMIT, 2)
            pid = os.fork()
            if pid == 0:
                listener.close()
                connection.close()
                for child_fd, (_, other) in children.items():
                    os.close(child_fd)
                    other.close()
                return _settle(json.loads(request), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            connection.send(b"%d\n" % pid)
            children[(pidfd := os.pidfd_open(pid))] = (pid, connection)
            poller.register(pidfd, select.POLLIN)


def _settle(request: dict[str, object], descriptors: list[int]) -> tuple[str, str]:
    """Become a process like any other: a group, streams and a folder of its own."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (descriptors[0], 1), (descriptors[1], 2)):
        os.dup2(source, target)
        os.close(source)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path = str(request["path"])
    os.chdir(os.path.dirname(path))
    sys.argv = [path, *map(str, request["args"])]  # type: ignore[call-overload]
    with open(path, encoding="utf-8") as file:
        return path, file.read()


def run(path: str, text: str) -> None:
    """Run the program as the main module; its exceptions end this process as they always do."""
    module = types.ModuleType("__main__")
    module.__file__ = path
    sys.modules["__main__"] = module
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in (*sys.argv[2:], "tests.peers.inside"):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no collection of a program looks at, and so copies, what was imported here
    found = serve(sys.argv[1])
    if found is not None:
        run(*found)
