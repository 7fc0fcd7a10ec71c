"""Where the bytes of stores are kept on this machine, and the process that fetches them.

Imports the files and the checks. A cache is an option: it has no bytes, and can be pickled. Its
process is found by a file in the cache's folder, which it has locked, or by the name of its socket.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reader.available_memory import available_bytes
from reader.checks import as_byte_size, as_folder, described
from reader.errors import ConfigError, DatasetError, got
from reader.files import PrivateFolder, holder_of
from reader.stores.messages import receive, send, user_of

__all__ = ["CacheUse", "ShardCache", "connected", "counts_at", "counts_of", "of_thread"]

_LEAST = 64 << 20  # bytes: of some extents on their way at once
_AUTO = "auto"
_SOON_S = 1.0  # for an answer that nobody needs
_MOST_IN_MEMORY = 4 << 30
_LOCK = "lock"
_PATIENCE_S = 30.0  # for a process to start
_PAUSE_S = 0.01
_MOST_TOLD = 1000  # bytes of what a process wrote that failed
_ROOT = str(Path(__file__).parents[2])
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1])['path'];"
    " from reader.stores.fetcher.main import main; main()"
)


class ShardCache:
    """The bytes of stores that are kept on this machine, for all processes that name the cache.

    One process fetches for all of them: it is started by the first, and ends with the last. Of what
    is kept that goes first which is read again last.

    Args:
        path: of a folder on a disk of this machine, where bytes are kept for later runs, too. It is
            made if it is not there, and each user has a folder of their own in it. None: bytes are
            kept in memory, for the processes of one training. Workers on other machines have such a
            folder, or memory, of their machine.
        limit: how many bytes are kept at most, such as "200GB". None: half of what is free on the
            machine's disk; or a quarter of the memory that is available, and 4 GiB at most.
        ahead: how many bytes are fetched before they are asked for, in the order in which they will
            be read: a number of bytes, such as "2GB", kept to within 8 MiB, at most `limit`; 0:
            none. "auto": as many as fit while nothing goes for them; then the group of shards that
            is read and the next one, and an eighth of `limit` beyond, or more after somebody had
            to wait. Nothing goes for them that is read sooner.

    Raises:
        ConfigError, ConfigTypeError: an argument is invalid, or the folder cannot be used.

    Who uses a cache first, of the processes of a machine, says its limit and how far it is read
    ahead, until all of them have ended.
    """

    __repr__ = described

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        limit: int | str | None = None,
        ahead: int | str = "auto",
    ) -> None:
        self.path = None if path is None else as_folder("path", path)
        given = None if limit is None else as_byte_size("limit", limit)
        if given is not None and given < _LEAST:
            raise ConfigError(
                f"limit must be {_LEAST >> 20} MiB or more, got {got(limit)}: so much is on its way"
                " at once"
            )
        self._name, self._host = f"reader-fetcher-{secrets.token_hex(8)}", socket.gethostname()
        self._threads = threading.local()
        self._folder = _folder_in(self.path)
        if self._folder is not None:
            self._check_folder()
        self.limit = given or _usual_limit(self._folder)
        self.ahead = _as_ahead(ahead, self.limit)
        self._said = {"limit": given, "ahead": None if ahead == _AUTO else self.ahead}
        self._is_told = path is None  # that another limit holds: memory is this training's own
        self._is_told_short = False
        self._counts: dict[Any, dict[str, Any]] = {}  # that were told last, by who reads

    def _check_folder(self) -> None:
        """Make the folder. ConfigError: it cannot be used, or others may write to it."""
        try:
            os.makedirs(self.path or "", mode=0o1777, exist_ok=True)  # noqa: PTH103
            PrivateFolder(self._folder or "", "path").close()
            self._lock_path()
        except OSError as error:
            raise ConfigError(self._refusal(error)) from error

    def _refusal(self, error: OSError) -> str:
        """Return what is to be done about a folder that cannot be used."""
        text = f"path='{self.path}' cannot be used{self.machine}: {error}. "
        owner, own = _owner_of(self._folder or ""), os.getuid()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"{text}Free some of its disk, or pass a folder of another one"
        if error.errno in (errno.EACCES, errno.EPERM) and owner not in ("", str(own)):
            return (
                f"{text}It belongs to user {owner}: pass a folder of your own, or have its owner"
                f" run: chmod 1777 '{self.path}', by which each user has a folder in it"
            )
        return f"{text}Pass a folder of a disk of this machine that you may write to"

    @property
    def place(self) -> str:
        """What names the cache on this machine: its folder, or a name for its memory."""
        return self._folder or self._name

    @property
    def machine(self) -> str:
        """The name of this machine, if it is another one than that of the trainer; else ""."""
        host = socket.gethostname()
        return f" on {host}" if host != self._host else ""

    # -- the process ---------------------------------------------------------------------------

    def _connected(self) -> socket.socket:
        try:
            lock = self._lock_path()
        except FileNotFoundError:  # somebody has removed it
            self._check_folder()
            lock = self._lock_path()
        except OSError as error:
            raise DatasetError(self._refusal(error)) from error
        end = time.monotonic() + _PATIENCE_S
        while True:
            running = _running_at(lock, self._folder)
            if running is not None:
                self._compare(running[1])
                return running[0]
            started = self._to_started(lock)
            if started is not None:
                return started
            if time.monotonic() > end:
                raise DatasetError(self._not_there(lock))
            threading.Event().wait(_PAUSE_S)  # another process is starting it

    def _lock_path(self) -> str:
        """Return the path of the file that the process locks; in memory the name of its socket."""
        if self._folder is None:
            return self._name
        path = os.path.join(self._folder, _LOCK)  # noqa: PTH118
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        os.close(os.open(path, flags, 0o600))
        return path

    def _compare(self, said: dict[str, Any]) -> None:
        """Warn, once, of options that differ from those of the process that runs."""
        for name, own in self._said.items():
            if own is not None and said.get(name) != own and not self._is_told:
                self._is_told = True
                theirs = "'auto'" if said.get(name) is None else said[name]
                warnings.warn(
                    f"the cache '{self.path}' is in use with {name}={theirs}, which holds until all"
                    f" who use it have ended, and not {name}={own}",
                    stacklevel=2,
                )

    def warn_short(self) -> None:
        """Warn, once, that the folder's disk does not take all that is to be kept."""
        if not self._is_told_short:
            self._is_told_short = True
            warnings.warn(
                f"the disk of the cache '{self.path}' is full, or fails: fewer bytes are kept than"
                " its limit says, and more are fetched again. Free some of it, or pass a smaller"
                " limit",
                stacklevel=2,
            )

    def _to_started(self, lock: str) -> socket.socket | None:
        """Start a process, and return a connection to it.

        None: another one has come first, or somebody has killed it.
        """
        limit = self._said["limit"] or _usual_limit(self._folder)  # of this machine
        ahead = None if self.ahead == _AUTO else min(int(self.ahead), limit)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = {
            # the last: a program that others run, such as a profile, may lack the folder of this
            "path": [*(each or os.getcwd() for each in sys.path), _ROOT],  # noqa: PTH109
            "first": theirs.fileno(),
            "lock": lock,
            "folder": self._folder,
            "limit": limit,
            "ahead": ahead,
        }
        errors = os.memfd_create("reader-errors", os.MFD_CLOEXEC)
        process = None
        try:
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-c", _PROGRAM, json.dumps(arguments)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            ours.settimeout(_PATIENCE_S)
            said, _ = receive(ours)
            ours.settimeout(None)
        except (EOFError, OSError) as error:
            ours.close()
            told = os.pread(errors, _MOST_TOLD, max(0, os.fstat(errors).st_size - _MOST_TOLD))
            if isinstance(error, EOFError) and not told:  # it was killed
                return None
            raise DatasetError(
                "the process that fetches cannot be started:"
                f" {told.decode(errors='replace').strip() or repr(error)}"
            ) from error
        finally:
            os.close(errors)
            if process is not None:  # it has ended, or does not answer: who serves is its child
                process.kill()
                process.wait()
        if said.get("failure"):
            ours.close()
            raise DatasetError(
                f"the cache '{self.path or 'in memory'}' cannot be used: {said['failure']}. Free"
                " some of its disk, or pass a folder of another one"
            )
        if said.get("is_other"):
            ours.close()
            return None
        return ours

    def _not_there(self, lock: str) -> str:
        if self._folder is None:
            return (
                "the process that fetches for a cache in memory does not answer: a process of"
                f" another user may have its name, '{lock}'. Pass ShardCache(path)"
            )
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            return (
                f"the process that fetches for the cache '{self.path}' does not answer:"
                f" {holder_of(fd)} holds its lock. Is the folder on a disk of this machine, and not"
                " of another container's network?"
            )
        finally:
            os.close(fd)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_threads"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._threads = threading.local()
        self._folder = _folder_in(self.path)  # of this machine's user


def _folder_in(path: str | None) -> str | None:
    """Return this user's folder in that of a cache."""
    return None if path is None else os.path.join(path, f"user-{os.getuid()}")  # noqa: PTH118


def _usual_limit(folder: str | None) -> int:
    """Return how many bytes a cache keeps on this machine that was told no limit."""
    if folder is None:
        return max(_LEAST, min(_MOST_IN_MEMORY, available_bytes() // 4))
    found = os.statvfs(folder)
    return max(_LEAST, found.f_bavail * found.f_frsize // 2)


def connected(cache: ShardCache) -> socket.socket:
    """Return a connection to the process that fetches, which is started if there is none.

    Raises:
        DatasetError: it cannot be started.
    """
    return cache._connected()


def of_thread(cache: ShardCache) -> dict[str, Any]:
    """Return what this thread has of a cache; it goes with the thread, or with the cache."""
    return cache._threads.__dict__


class CacheUse(NamedTuple):
    """A dataset's use of a cache, whose reads are counted apart from those of others."""

    cache: ShardCache
    name: str


def counts_of(cache: ShardCache, uses: Sequence[str] | None) -> dict[str, Any]:
    """Return the counts of the process that fetches, if it runs, or those that it told last.

    It waits for a second at most, and starts no process. "is_running" says which they are.

    Args:
        cache: that is used.
        uses: the names of those whose reads are counted; None: of all.
    """
    of = None if uses is None else tuple(uses)
    found = None
    with contextlib.suppress(OSError):  # of a folder that is gone
        found = counts_at(cache._lock_path(), cache._folder, uses)
    if found is None:
        return {**cache._counts.get(of, {}), "is_running": False}
    cache._counts[of] = found
    return {**found, "is_running": True}


def counts_at(
    lock: str, folder: str | None, uses: Sequence[str] | None = None
) -> dict[str, Any] | None:
    """Return the counts of the process that has a lock; None: none answers within a second.

    Args:
        lock: the path of the file; in memory the name of its socket.
        folder: of the cache; None: it is in memory.
        uses: the names of those whose reads are counted; None: of all.
    """
    found = _running_at(lock, folder, _SOON_S)
    if found is None:
        return None
    with found[0] as connection, contextlib.suppress(EOFError, OSError):  # it ends just now
        send(connection, {"do": "stats", "uses": uses})
        return receive(connection)[0]
    return None


def _running_at(
    lock: str, folder: str | None, patience_s: float | None = None
) -> tuple[socket.socket, dict[str, Any]] | None:
    """Return a connection to the process that has a lock, and what it says; None: none runs."""
    said: Any = {"address": lock}
    if folder is not None:
        try:
            said = json.loads(Path(lock).read_bytes() or b"{}")
        except (OSError, ValueError):
            return None
    if not isinstance(said, dict) or not isinstance(said.get("address"), str):
        return None
    found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    found.settimeout(patience_s)
    try:
        if folder is None:
            found.connect(b"\0" + said["address"].encode())
        else:
            place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:  # the folder's own path may be too long for a socket
                found.connect(f"/proc/self/fd/{place}/{os.path.basename(said['address'])}")  # noqa: PTH119
            finally:
                os.close(place)
        if user_of(found) != os.getuid():
            raise PermissionError("it is of another user")
    except OSError:
        found.close()
        return None
    return found, said


def _as_ahead(ahead: Any, limit: int) -> int | str:
    """Return how far is read ahead. ConfigError: that is no number of bytes within the limit."""
    if ahead == _AUTO:
        return _AUTO
    nbytes = 0 if ahead == 0 and not isinstance(ahead, bool) else as_byte_size("ahead", ahead)
    if nbytes > limit:
        raise ConfigError(
            f"ahead must be at most limit={limit}, got {got(ahead)}: what is fetched ahead is kept"
            " until it is read. Raise limit, or pass ahead='auto'"
        )
    return nbytes


def _owner_of(path: str) -> str:
    """Return the number of the user who owns a folder, or the one above it that is there."""
    place = Path(path)
    while place != place.parent:
        with contextlib.suppress(OSError):
            return str(place.stat().st_uid)
        place = place.parent
    return ""
