"""Memory files that the workers of a node share: one makes them, the others get them.

Imports the memory files and descriptors. The worker that has bound the socket's name has the files;
later workers ask it for their descriptors. The name ends with its process. Nothing is in the file
system, so a killed process leaves nothing: the next worker makes the files again.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable

from reader.log import log as _log
from reader.processes.template_process import recv_fds

__all__ = ["give_files", "node_files"]

_CREDENTIALS = struct.Struct("3i")  # of SO_PEERCRED: process, user, group
_PATIENCE_S = 10.0  # how long to wait for a process that has the name and does not answer
_pause = threading.Event()


def node_files(name: str, count: int, make: Callable[[], list[int]]) -> list[int]:
    """Return descriptors of files that all workers of this machine share.

    Waits while another worker makes them, as long as that one lives. If another user's process has
    the name, or its owner gives none for 10 s, this worker makes its own files.

    Args:
        name: of the files. Nobody can guess it, but users of the machine see bound names.
        count: of the files, 1 or more.
        make: makes the files if no other worker has them.
    """
    until = time.monotonic() + _PATIENCE_S
    while (held := _bound(name)) is None:
        try:
            found = _asked(name, count)
        except PermissionError as error:
            _log.warning("%s: this worker has files of its own, which take memory again", error)
            return make()
        if found is not None:
            return found
        if time.monotonic() > until:
            _log.warning(
                "files that workers of this machine share were not given within %g s: this worker"
                " has files of its own, which take memory again",
                _PATIENCE_S,
            )
            return make()
        _pause.wait(0.01)  # the other is about to listen, or has just ended
    try:
        fds = make()
    except BaseException:
        held.close()  # another worker may try
        raise
    _serve(held, [os.dup(fd) for fd in fds])
    return fds


def give_files(name: str, fds: list[int]) -> None:
    """Give descriptors to the workers of this machine until this process ends; it owns them."""
    held = _bound(name)
    if held is not None:
        _serve(held, fds)


def _bound(name: str) -> socket.socket | None:
    """Return a socket bound to the name; None: another process has it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        held.bind(_address(name))
        held.listen(socket.SOMAXCONN)
    except OSError:
        held.close()
        return None
    # a forked child has the socket too, and would keep the name without answering
    os.register_at_fork(after_in_child=held.close)
    return held


def _serve(held: socket.socket, fds: list[int]) -> None:
    threading.Thread(target=_give, args=(held, fds), name="reader-files", daemon=True).start()


def _address(name: str) -> str:
    return f"\0lodreader-{name}"


def _give(held: socket.socket, fds: list[int]) -> None:
    with held, contextlib.suppress(OSError):  # closed: the next worker makes its own files
        while True:
            asking, _ = held.accept()
            with asking, contextlib.suppress(OSError):  # the asking worker has ended
                if _user_of(asking) == os.getuid():
                    socket.send_fds(asking, [b"files"], fds)


def _asked(name: str, count: int) -> list[int] | None:
    """Ask the owner of the files; None: there is none. PermissionError: it is another user's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        try:
            asking.connect(_address(name))
            user = _user_of(asking)
            fds: list[int] = []
            if user == os.getuid():
                _, fds = recv_fds(asking, 16)  # empty when the other process ends
        except OSError:
            return None
    if user != os.getuid():
        raise PermissionError(
            f"a process of user {user} has the name of files that workers of this machine share"
        )
    if len(fds) == count:
        return fds
    for fd in fds:
        os.close(fd)
    return None


def _user_of(connection: socket.socket) -> int:
    """Return the user of the process at the other end."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(found)[1]
    return user
