"""What a program asks the process that fetches to write: objects of a folder of a store.

Imports the connections and stores. An Uploads belongs to one thread of one process, which is the
folder's only writer while the block lasts.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import select
import socket
import warnings
from collections import deque
from typing import Any

from reader.errors import ConfigError
from reader.stores.client import REMEDIES, Connection, Store

__all__ = ["LOCK", "Uploads"]

LOCK = ".reader-lock.json"
_MOST_AT_ONCE = 8
_MOST_NBYTES = 256 << 20  # on their way; one that is larger goes alone
_SHORT_S, _LONG_S = 3.0, 700.0  # for a writer that is about to end; for one that may have ended
_ATTEMPTS = 20  # of a process that is killed
_REPEAT = "then repeat the call: it keeps the shards that are whole"
_REMEDIES = {
    **{kind: REMEDIES[kind] for kind in ("no bucket", "region", "option")},
    "refused": (
        "is refused by the store: set the credentials of an account that may write and delete it,"
        f" such as {{keys}}; {_REPEAT}"
    ),
    "no credentials": (
        "needs credentials, and there are none: set those of an account that may write and delete"
        f" it, such as {{keys}}; {_REPEAT}"
    ),
    "expired": f"is refused by the store: the credentials have expired. Get new ones; {_REPEAT}",
    "later": (
        "could not be written in time: the network or the store fails. Pass store={'timeout': ...},"
        f" in seconds, to try for longer; {_REPEAT}"
    ),
    "lost": (
        "is not written: while this process could not reach the store another one has taken the"
        " folder over. Let one process write"
    ),
}
_LASTING = f"cannot be written: the store does not take it; {_REPEAT}"


class _Upload:
    """An object on its way.

    Attributes:
        key: of it.
        nbytes: of its content.
        fd: of the memory that has its content; -1: the store has it.
        version: the number of its version; 0: it is not whole yet.
    """

    def __init__(self, key: str, content: bytes) -> None:
        self.key, self.nbytes, self.version = key, len(content), 0
        self.fd = os.memfd_create("reader-upload", os.MFD_CLOEXEC)
        try:
            done = 0
            while done < self.nbytes:
                done += os.write(self.fd, memoryview(content)[done:])
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise ConfigError(
                    f"there is no memory for the {self.nbytes:,} bytes of '{key}', which are on"
                    f" their way to the store: {error}. Pass a smaller shard_size"
                ) from error
            raise

    def close(self) -> None:
        """Release its memory. Idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class Uploads:
    """Objects on their way to a folder of a store, several at once, by one writer at a time.

    The lock is an object that the process that fetches renews until the block ends, or this
    program does, whichever way. The lock of a writer whose machine was lost holds for a minute.

    Args:
        store: that has the folder.
        folder: the key of it, without a slash at its end; "": the bucket.
    """

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._lock = f"{folder}/{LOCK}".lstrip("/")
        self._owner: dict[str, Any] = {"id": secrets.token_hex(12), "pid": os.getpid()}
        self._owner |= {"user": _user(), "host": socket.gethostname()}
        self._lease: Connection | None = None
        self._idle: list[Connection] = []
        self._on_way: dict[_Upload, Connection] = {}
        self._begun: deque[_Upload] = deque()  # in their order, with those that are whole
        self._next: dict[str, bytes] = {}  # contents that follow those on their way, by key

    def __enter__(self) -> Uploads:
        """Become the folder's writer.

        Raises:
            ConfigError: another process writes to it, or the store refuses to be written to.
        """
        try:
            self._take(_SHORT_S)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Give the folder back. What is on its way ends; after an error nothing is waited for."""
        try:
            if self._lease is not None and kind is None:
                with contextlib.suppress(EOFError, OSError):
                    self._lease.ask({"do": "release", "store": 0})
        finally:
            self._close()

    def begin(self, key: str, content: bytes) -> None:
        """Send an object; waits while many are on their way."""
        while self._on_way and (
            len(self._on_way) >= _MOST_AT_ONCE
            or sum(each.nbytes for each in self._on_way) + len(content) > _MOST_NBYTES
        ):
            self._settle(None)
        upload = _Upload(key, content)
        self._begun.append(upload)
        self._send(upload)

    def finished(self, wait: bool = False) -> list[int]:
        """Return the versions of objects that are whole now, in the order in which they were begun.

        Args:
            wait: whether for all that were begun.
        """
        self._settle(0)
        while wait and not all(upload.version for upload in self._begun):
            self._settle(None)
        found = []
        while self._begun and self._begun[0].version:
            found.append(self._begun.popleft().version)
        return found

    def write(self, key: str, content: bytes) -> None:
        """Write an object, and wait until it is there."""
        upload = _Upload(key, content)
        self._send(upload)
        while not upload.version:
            self._settle(None)

    def renew(self, key: str, content: bytes) -> None:
        """Send what an object holds now, which is sent often, without waiting.

        While an earlier content of it is on its way, the latest one alone is kept to follow:
        Google's store takes one of each object in a second.
        """
        self._next[key] = content
        self._settle(0)

    def settle(self, key: str) -> None:
        """Wait until an object is there as `renew` was told last."""
        while key in self._next or self._is_on_way(key):
            self._settle(None)

    # -- messages ------------------------------------------------------------------------------

    def _take(self, patience_s: float) -> None:
        """Take the lease, of which a writer that has ended may not be the owner any more."""
        for attempt in range(_ATTEMPTS):
            lease = self._lease = Connection(self._store.cache)
            try:
                message: dict[str, Any] = {"do": "lease", "key": self._lock, "owner": self._owner}
                message |= {"store": lease.number_of(self._store), "patience_s": patience_s}
                answer, _ = lease.ask(message)
            except (EOFError, OSError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise self._ended(error) from error
                continue
            break
        kind, told = answer.get("failure"), str(answer.get("told")).rpartition("': ")[2]
        folder = f"{self._store.root}/{self._lock.removesuffix(LOCK)}"
        if kind == "held" or (kind == "waiting" and patience_s > _SHORT_S):
            raise ConfigError(
                f"another process writes shards to '{folder}': {told}. Let one process write"
                " them, such as that of rank 0, or end that one, or pass another folder"
            )
        if kind == "waiting":
            warnings.warn(
                f"'{folder}' has the lock of {told}: waiting for a minute or less, to see whether"
                " it has ended",
                stacklevel=2,
            )
            self._take(_LONG_S)
            return
        self._checked(answer)
        if answer["taken_over"]:
            warnings.warn(
                f"'{folder}' is taken over from {answer['taken_over']} and has not done so since",
                stacklevel=2,
            )
        if not answer["is_guarded"]:
            warnings.warn(
                f"the store of '{folder}' has no conditional writes: two writers that begin at the"
                " same moment are not kept apart. Let one process write",
                stacklevel=2,
            )

    def _send(self, upload: _Upload) -> None:
        try:
            self._tell(upload)
        except BaseException:  # nobody else may have it
            upload.close()
            raise

    def _tell(self, upload: _Upload) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                connection = self._idle.pop() if self._idle else Connection(self._store.cache)
                message: dict[str, Any] = {"do": "put", "key": upload.key, "nbytes": upload.nbytes}
                message |= {"store": connection.number_of(self._store), "owner": self._owner["id"]}
                connection.tell(message, [upload.fd])
            except (EOFError, OSError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise self._ended(error) from error
                self._begin_again()
            else:
                self._on_way[upload] = connection
                return

    def _is_on_way(self, key: str) -> bool:
        return any(upload.key == key for upload in self._on_way)

    def _settle(self, timeout_ms: int | None) -> None:
        """Take the answers that are there, or come within some time; None: at least one.

        Before, what waited for an earlier content of the same object is sent.
        """
        for key in [each for each in self._next if not self._is_on_way(each)]:
            self._send(_Upload(key, self._next.pop(key)))
        waiting = select.poll()
        of = {connection.fileno(): upload for upload, connection in self._on_way.items()}
        for fd in of:
            waiting.register(fd, select.POLLIN)
        for fd, _ in waiting.poll(timeout_ms):
            upload = of[fd]
            connection = self._on_way[upload]
            try:
                answer, _ = connection.answer()
            except (EOFError, OSError):
                self._begin_again()
                return
            if answer.get("failure") == "no lease":
                self._begin_again()
                return
            del self._on_way[upload]
            self._idle.append(connection)
            upload.close()
            upload.version = self._checked(answer)["version"]

    def _begin_again(self) -> None:
        """Send all anew by a new process: the one before was killed."""
        uploads = list(self._on_way)
        for connection in (*self._on_way.values(), *self._idle):
            connection.close()
        self._on_way, self._idle = {}, []
        self._take(_SHORT_S)
        for upload in uploads:
            self._send(upload)

    def _ended(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"'{self._store.root}': the process that writes ended {_ATTEMPTS} times: {error!r}."
            f" Look for what kills it; {_REPEAT}"
        )

    def _checked(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer. ConfigError: it tells of a failure."""
        kind = answer.get("failure")
        if kind is not None:
            raise ConfigError(self._store.failure_text(answer, _REMEDIES.get(kind, _LASTING)))
        return answer

    def _close(self) -> None:
        for connection in (*self._on_way.values(), *self._idle):
            connection.close()
        for upload in (*self._on_way, *self._begun):
            upload.close()
        if self._lease is not None:
            self._lease.close()
        self._lease, self._idle, self._on_way = None, [], {}
        self._begun.clear()
        self._next.clear()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container a user may have a number alone
        return str(os.getuid())
