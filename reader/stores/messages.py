"""Messages between the processes of a training and the one that fetches for them.

Imports the standard library. A message is a dict of JSON with descriptors beside it, in one packet
of a socket; one that is long lies in a memory file, whose descriptor comes first.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

__all__ = ["COUNTER", "MOST_FDS", "process_of", "receive", "received", "send", "user_of"]

MOST_FDS = 200  # of a packet, beside that of a long message; Linux passes 253
COUNTER = struct.Struct("=Q")  # in memory that both processes have: one writes, the other reads
_MOST_INLINE = 1 << 15  # bytes of a packet
_MOST = 1 << 31  # bytes of a message
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_IN_FILE = b"in the file, bytes: "


def send(
    connection: socket.socket, message: dict[str, Any], fds: Sequence[int] = (), flags: int = 0
) -> None:
    """Send a message with some descriptors, which stay the sender's.

    Raises:
        OSError: nobody listens; or of a flag, such as BlockingIOError where there is no room.
    """
    content = json.dumps(message, separators=(",", ":")).encode()
    if len(content) <= _MOST_INLINE:
        socket.send_fds(connection, [content], list(fds), flags)
        return
    file = os.memfd_create("reader-message", os.MFD_CLOEXEC)
    try:
        done = 0
        while done < len(content):
            done += os.write(file, memoryview(content)[done:])
        socket.send_fds(connection, [_IN_FILE + b"%d" % len(content)], [file, *fds], flags)
    finally:
        os.close(file)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the next message and its descriptors, which are the caller's; waits for it.

    Raises:
        EOFError: the other side has closed, or ended.
    """
    content, fds, _, _ = socket.recv_fds(connection, _MOST_INLINE + 1, MOST_FDS + 1)
    if not content:
        raise EOFError("the other side has ended")
    return received(content, fds)


def received(content: bytes, fds: list[int]) -> tuple[dict[str, Any], list[int]]:
    """Return the message of a packet and its descriptors."""
    if content.startswith(_IN_FILE):
        file, *fds = fds
        try:
            nbytes = int(content[len(_IN_FILE) :])
            if not 0 <= nbytes <= min(_MOST, os.fstat(file).st_size):
                raise ValueError(f"a message is said to have {nbytes:,} bytes")
            content = os.pread(file, nbytes, 0)
        finally:
            os.close(file)
    message = json.loads(content)
    if not isinstance(message, dict):
        raise TypeError("a message is no dict")
    return message, fds


def user_of(connection: socket.socket) -> int:
    """Return the number of the user whose process is at the other end."""
    return _credentials_of(connection)[1]


def process_of(connection: socket.socket) -> int:
    """Return the number of the process that has connected; 0: it cannot be seen from here."""
    return _credentials_of(connection)[0]


def _credentials_of(connection: socket.socket) -> tuple[int, int, int]:
    said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, group = _CREDENTIALS.unpack(said)
    return process, user, group
