"""Files of memory that the workers of a node share: one of them makes them, the others get them.

Imports the memory files and descriptors. Whoever has bound the name, which ends with its process,
has the files; a worker that comes later asks it for their descriptors. Nothing is in the file
system, and a process that is killed leaves nothing: the next worker makes the files anew.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable

from reader.processes.template_process import recv_fds

__all__ = ["give_files", "node_files"]

_CREDENTIALS = struct.Struct("3i")  # of SO_PEERCRED: process, user, group
_pause = threading.Event()


def node_files(name: str, count: int, make: Callable[[], list[int]]) -> list[int]:
    """Return descriptors of files that all workers of this machine share.

    Waits while another worker makes them, as long as that one lives.

    Args:
        name: of the files, which nobody can guess.
        count: of the files, 1 or more.
        make: makes them, where no other worker has them.
    """
    while (held := _bound(name)) is None:
        found = _asked(name, count)
        if found is not None:
            return found
        _pause.wait(0.01)  # it is about to listen, or has just ended
    try:
        fds = make()
    except BaseException:
        held.close()  # another worker may try it
        raise
    _serve(held, [os.dup(fd) for fd in fds])
    return fds


def give_files(name: str, fds: list[int]) -> None:
    """Give descriptors to the workers of this machine, till this process ends; it owns them."""
    held = _bound(name)
    if held is not None:
        _serve(held, fds)


def _bound(name: str) -> socket.socket | None:
    """Return the socket that has the name; None: another one has."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        held.bind(_address(name))
        held.listen(socket.SOMAXCONN)
    except OSError:
        held.close()
        return None
    # a child that is forked has the socket too, and would keep the name without an answer
    os.register_at_fork(after_in_child=held.close)
    return held


def _serve(held: socket.socket, fds: list[int]) -> None:
    threading.Thread(target=_give, args=(held, fds), name="reader-files", daemon=True).start()


def _address(name: str) -> str:
    return f"\0lodreader-{name}"


def _give(held: socket.socket, fds: list[int]) -> None:
    with held, contextlib.suppress(OSError):  # it is closed, and the next worker makes its own
        while True:
            asking, _ = held.accept()
            with asking, contextlib.suppress(OSError):  # it has ended
                if _user_of(asking) == os.getuid():
                    socket.send_fds(asking, [b"files"], fds)


def _asked(name: str, count: int) -> list[int] | None:
    """Ask whoever has the files; None: nobody has."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        try:
            asking.connect(_address(name))
            if _user_of(asking) != os.getuid():
                return None
            _, fds = recv_fds(asking, 16)  # returns nothing when the other one ends
        except OSError:
            return None
    if len(fds) == count:
        return fds
    for fd in fds:
        os.close(fd)
    return None


def _user_of(connection: socket.socket) -> int:
    """Return the user whose process is at the other end."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(found)[1]
    return user
