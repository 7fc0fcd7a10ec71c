"""Files, folders and locks that somebody else may have put there, or may hold.

Imports the errors and the standard library, and keeps no state. Nothing here waits for ever: a pipe
is refused instead of opened, and a lock is waited for with a deadline that names its holder. What
is trusted, and why, is in docs/trust.md. Sources: open(2), flock(2), proc(5) on /proc/locks,
sshd(8) on StrictModes, inode(7) on the set-group-ID bit.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import io
import os
import pwd
import secrets
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reader.errors import ConfigError, printable

__all__ = [
    "PrivateFolder",
    "holder_of",
    "kind_of",
    "locked",
    "locked_folder",
    "new_file",
    "open_regular",
    "open_to_write",
    "replacing",
]

_PROC = Path("/proc")
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
}
_BY_OTHERS, _BY_GROUP = stat.S_IWOTH, stat.S_IWGRP
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05


def kind_of(mode: int) -> str:
    """Return what a mode is of, such as "a pipe"; "": a regular file."""
    return _KINDS.get(stat.S_IFMT(mode), "")


def open_regular(
    path: Any, flags: int = os.O_RDONLY, mode: int = 0o666, dir_fd: int | None = None
) -> int:
    """Open a regular file; returns its descriptor, which the caller closes. Never waits.

    It may be passed to `open` as its opener.

    Raises:
        OSError: it is a pipe, a socket, a device or a folder, or cannot be opened.
    """
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a pipe would wait for its other end
    fd = os.open(path, flags, mode, dir_fd=dir_fd)
    found = os.fstat(fd).st_mode
    if stat.S_ISREG(found):
        return fd
    os.close(fd)
    if stat.S_ISDIR(found):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, f"it is {kind_of(found)}, and no regular file", path)


def new_file(path: str | os.PathLike[str]) -> io.BufferedWriter:
    """Make a file that is not there, for bytes; what an ended process left under the name goes.

    A link that somebody put there is removed, and not followed.

    Raises:
        OSError: it cannot be made.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o666), "wb")  # noqa: PTH123


@contextlib.contextmanager
def replacing(path: str) -> Iterator[io.BufferedWriter]:
    """Write a file under another name, and give it its own where the block ends without an error.

    Raises:
        OSError: it cannot be written.
    """
    draft = f"{path}.{secrets.token_hex(6)}.draft"
    try:
        with new_file(draft) as file:
            yield file
        os.replace(draft, path)  # noqa: PTH105
    finally:
        if os.path.lexists(draft):
            os.unlink(draft)  # noqa: PTH108


def open_to_write(path: Any, flags: int) -> int:
    """Open what the user names for a report, a device or a pipe, too; an opener of `open`.

    Raises:
        OSError: it cannot be opened, or nobody reads from that pipe.
    """
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.ENXIO, "it is a pipe or socket that nobody reads from", path) from None
    os.set_blocking(fd, True)
    return fd


# -- locks ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(
    fd: int, patience_s: float, progress: Callable[[], Any] = lambda: None
) -> Iterator[bool]:
    """Hold the lock of a file, for one process at a time; the system drops it when that ends.

    Args:
        fd: of the file.
        patience_s: how long to wait for another process that holds it, and shows no progress.
        progress: returns a value that changes while the holder works.

    Yields:
        False: the file system has no locks.

    Raises:
        TimeoutError: another process holds it; the text names that one.
    """
    is_held = _lock(fd, patience_s, progress)
    try:
        yield is_held
    finally:
        if is_held:  # a process that was forked meanwhile would keep it
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)


@contextlib.contextmanager
def locked_folder(path: str | os.PathLike[str], patience_s: float) -> Iterator[int]:
    """Hold the lock of a folder, which is made where it is not there; see `locked`.

    Yields:
        A descriptor of the folder.

    Raises:
        TimeoutError: another process holds it; the text names that one.
        OSError: the folder cannot be made or opened.
    """
    os.makedirs(path, exist_ok=True)  # noqa: PTH103
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with locked(fd, patience_s):
            yield fd
    finally:
        os.close(fd)


def _lock(fd: int, patience_s: float, progress: Callable[[], Any]) -> bool:
    seen, since = None, time.monotonic()
    look_at, pause = 0.0, _FIRST_PAUSE_S
    never = threading.Event()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            if now >= look_at:
                found = progress()
                if found != seen:
                    seen, since = found, now
                look_at = now + min(1.0, patience_s / 4)
            if now - since > patience_s:
                held_s = now - since
                raise TimeoutError(
                    f"{holder_of(fd)} holds the lock for {held_s:.0f} s now"
                ) from None
            never.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        except OSError:
            return False
        else:
            return True


def holder_of(fd: int) -> str:
    """Say which process holds the lock of a file, as far as this one can see."""
    found = os.fstat(fd)
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    holders: dict[bool, str] = {}
    with contextlib.suppress(OSError):
        for line in (_PROC / "locks").read_text().splitlines():
            words = line.split()
            # some file systems show another device than stat does
            if words[1:2] == ["FLOCK"] and words[5].rpartition(":")[2] == str(found.st_ino):
                holders[words[5] == place] = words[4]
    pid = holders.get(True, holders.get(False, ""))
    if not pid or not (_PROC / pid).exists():
        return "a process that cannot be seen from here (of another machine or container, or ended)"
    user = "another user"
    with contextlib.suppress(OSError):
        user = f"user {_user((_PROC / pid).stat().st_uid)}"
    content = b""
    with contextlib.suppress(OSError):
        content = (_PROC / pid / "cmdline").read_bytes()
    command = content.replace(b"\0", b" ").decode(errors="replace").strip()
    told = f" ({printable(command[:80])})" if command else ""
    return f"process {pid}{told} of {user}"


# -- folders -------------------------------------------------------------------------------------


class PrivateFolder:
    """A folder that nobody else writes to, and files in it; close it, or leave its `with` block.

    It is made where there is none, for this user alone. One that is there is taken where its owner
    alone may write to it, or a group on purpose: then it has the set-group-ID bit. Files in it are
    found by its descriptor, whatever becomes of the path; links are not followed.

    Args:
        path: of the folder.
        option: how messages name what was given, such as "disk".

    Attributes:
        fd: the folder's descriptor.
        path: as it was given.
        is_shared: a group writes to it, on purpose.

    Raises:
        ConfigError: others may write to it.
        OSError: it cannot be made or read.
    """

    def __init__(self, path: str, option: str) -> None:
        self.path, self._option = Path(path), option
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            mode = os.fstat(self.fd).st_mode
            self.is_shared = bool(mode & _BY_GROUP and mode & stat.S_ISGID)
            self._keeps_modes = True
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        """Raise ConfigError where others may write to the folder, or have made it."""
        reason = self._unsafe()
        if not reason:
            return
        if self._has_no_modes():
            self._keeps_modes = False
            warnings.warn(
                f"{self._option}='{self.path}' is on a file system without modes, which do not say"
                " who may write to it: see that its mount lets nobody else do so",
                stacklevel=5,
            )
            return
        raise ConfigError(
            f"{self._option}='{self.path}' is refused: {reason}. Who writes there decides what this"
            " program reads"
        )

    def _unsafe(self) -> str:
        found = os.fstat(self.fd)
        bits = f"its mode is {stat.S_IMODE(found.st_mode):04o}"
        if found.st_mode & _BY_OTHERS:
            return (
                f"every user may write to it ({bits}). Pass a folder in it, such as"
                f" '{self.path / 'mine'}', which is made for you alone, or run: chmod go-w"
                f" '{self.path}'"
            )
        if found.st_mode & _BY_GROUP and not self.is_shared and not _is_alone_in(found.st_gid):
            return (
                f"all of the group {_group(found.st_gid)} may write to it ({bits}). Run: chmod g-w"
                f" '{self.path}', or, for a team that shares it on purpose: chmod g+s"
                f" '{self.path}'"
            )
        who = _stranger(self.path, found.st_uid)
        if who:
            return (
                f"user {who} made it, in a folder where every user may. Pass a folder that you made"
            )
        return ""

    def _has_no_modes(self) -> bool:
        """Whether the folder's file system gives a new file other modes than it was made with."""
        name = f"probe.{secrets.token_hex(8)}"
        try:
            fd = self.create(name)
        except OSError:
            return False
        try:
            return bool(os.fstat(fd).st_mode & (_BY_GROUP | _BY_OTHERS))
        finally:
            os.close(fd)
            self.remove(name)

    def open(self, name: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
        """Open a file of the folder; returns a descriptor that is the caller's.

        Raises:
            ConfigError: others may write to the file.
            OSError: it is a link or no regular file, or cannot be opened.
        """
        try:
            fd = open_regular(name, flags | os.O_NOFOLLOW, mode, self.fd)
        except OSError as error:
            why = "it is a link" if error.errno == errno.ELOOP else error.strerror
            raise OSError(error.errno, why, str(self.path / name)) from error
        theirs = _BY_OTHERS if self.is_shared else _BY_OTHERS | _BY_GROUP
        found = os.fstat(fd)
        if self._keeps_modes and found.st_mode & theirs & ~self._own_bits(found.st_gid):
            os.close(fd)
            raise ConfigError(
                f"'{self.path / name}' is refused: others may write to it (its mode is"
                f" {stat.S_IMODE(found.st_mode):04o}). Remove it, and it is made again"
            )
        return fd

    def _own_bits(self, group: int) -> int:
        return _BY_GROUP if _is_alone_in(group) else 0

    def create(self, name: str, mode: int = 0o600) -> int:
        """Make a file that is not there; returns a descriptor that is the caller's.

        Raises:
            FileExistsError: something has the name, a link to nowhere, too.
            OSError: it cannot be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, mode, dir_fd=self.fd)

    def names(self, begin: str, end: str) -> list[str]:
        """Return the names in the folder that begin and end so."""
        found = os.listdir(self.fd)  # noqa: PTH208
        return [name for name in found if name.startswith(begin) and name.endswith(end)]

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, and drop what had that."""
        os.rename(name, to, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)

    @contextlib.contextmanager
    def exclusive(
        self, name: str, patience_s: float, progress: Callable[[], Any] = lambda: None
    ) -> Iterator[bool]:
        """Admit one process at a time to the block, by the lock of a file of the folder.

        Args: see `locked`.

        Yields:
            False: the file system has no locks.

        Raises:
            ConfigError: another process holds it for too long; the text names that one.
        """
        mode = 0o660 if self.is_shared else 0o600
        fd = self.open(name, os.O_RDWR | os.O_CREAT, mode)
        try:
            with contextlib.suppress(OSError):  # it is another user's of the group
                os.fchmod(fd, mode)  # whatever a umask, or an older version, made of it
            with contextlib.ExitStack() as stack:
                try:
                    is_held = stack.enter_context(locked(fd, patience_s, progress))
                except TimeoutError as error:
                    raise ConfigError(
                        f"{self._option}='{self.path}' cannot be used: {error}, on '{name}' there,"
                        " and writes nothing. End that process, or pass another folder"
                    ) from error
                yield is_held
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> PrivateFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_alone_in(group: int) -> bool:
    """Whether a group is this user's own: of the same name, or number, and with nobody else.

    So systems make it that give new files to the group as well (a umask of 002).
    """
    user = os.geteuid()
    if group != os.getegid():
        return False
    try:
        name = pwd.getpwuid(user).pw_name
        found = grp.getgrgid(group)
    except KeyError:  # in a container a user may have a number alone
        return group == user
    return found.gr_name == name and not set(found.gr_mem) - {name}


def _stranger(path: Path, owner: int) -> str:
    """Return the name of another user who made a folder, or a link to it, where everybody may."""
    own = (os.geteuid(), 0)
    for place, user in ((path, path.lstat().st_uid), (path.resolve(), owner)):
        if user not in own and place.parent.stat().st_mode & _BY_OTHERS:
            return _user(user)
    return ""


def _user(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return f"{grp.getgrgid(number).gr_name} ({number})"
    except KeyError:
        return str(number)
