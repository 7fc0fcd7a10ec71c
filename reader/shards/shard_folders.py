"""Folders that shards are written to: of this machine, or of an object store.

Imports the files of this machine and the stores. A folder has one writer at a time, which reads its
journal, writes shards, and logs those that are whole.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reader.checks import as_folder
from reader.errors import ConfigError, DatasetError, got
from reader.files import locked_folder, new_file, open_regular
from reader.stores.client import RemoteObject, Store, store_options
from reader.stores.shard_cache import CacheUse, ShardCache
from reader.stores.uploads import Uploads
from reader.stores.urls import is_url, local_path, split_url

__all__ = ["JOURNAL", "ShardFolder", "folder_for", "sum_of"]

JOURNAL = ".reader-journal.jsonl"
_PATIENCE_S = 10.0  # workers of a program that was killed hold its lock until they end
_LOGGED_AT_ONCE = 1 << 16  # bytes of a journal that is always written anew
_LOGGED_SHARE = 64  # of the bytes of shards: at most so much goes to a longer one


class ShardFolder(abc.ABC):
    """A folder that shards are written to. A line says name, bytes and sum of a file."""

    @abc.abstractmethod
    def __str__(self) -> str: ...

    def path_of(self, name: str) -> str:
        """Return the path or address of a file."""
        return f"{self}/{name}"

    @abc.abstractmethod
    def only_writer(self) -> contextlib.AbstractContextManager[Any]:
        """Make the folder, and let one process at a time write to it.

        Raises:
            ConfigError: it cannot be made, or another process writes to it.
        """

    @abc.abstractmethod
    def names(self) -> set[str]:
        """Return the names of what is there. ConfigError: it cannot be listed."""

    @abc.abstractmethod
    def content(self, name: str) -> bytes:
        """Return what a file holds. ConfigError: it cannot be read."""

    @abc.abstractmethod
    def is_whole(self, line: dict[str, Any]) -> bool:
        """Whether the file of a line is there with the bytes that it had."""

    @abc.abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Write a file in one step. ConfigError: it cannot be written."""

    @abc.abstractmethod
    def begin(self, line: dict[str, Any], content: bytes) -> list[dict[str, Any]]:
        """Write a shard, or begin to.

        Returns the lines of shards that are whole now, in the order in which they were begun.

        Raises:
            ConfigError: one cannot be written.
        """

    @abc.abstractmethod
    def rest(self) -> list[dict[str, Any]]:
        """Wait for all shards that were begun; return the lines that `begin` has not returned."""

    @abc.abstractmethod
    def log(self, lines: list[dict[str, Any]], count: int) -> None:
        """Write the journal.

        Args:
            lines: of it.
            count: how many of these, its last ones, are new; all: it is written anew.
        """


def folder_for(path: Any, store: Any) -> ShardFolder:
    """Return the folder of a path or address.

    Raises:
        ConfigError, ConfigTypeError: it is none that can be written to, or `store` is of no use.
    """
    if isinstance(path, str):
        path = local_path(path)
    if not is_url(path):
        as_folder("path", path)
        store_options(store, None)
        if store is not None:
            raise ConfigError(
                "store= is for a folder in a store, such as s3://bucket/path, and path is on this"
                f" machine: {got(path)}. Leave it out"
            )
        return LocalFolder(Path(os.path.expanduser(os.fsdecode(path))))  # noqa: PTH111
    root, key = split_url(path)
    if root.startswith("http"):
        raise ConfigError(
            f"path={path!r} cannot be written to: servers of HTTP only give files. Pass"
            " s3://bucket/path, gs://bucket/path or az://container/path, or a folder"
        )
    key = key.rstrip("/")
    if any(part in ("", ".", "..") for part in key.split("/")) and key:
        raise ConfigError(f"path={path!r} must have a name between any two slashes")
    return StoreFolder(root, key, store_options(store, path))


def sum_of(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


class LocalFolder(ShardFolder):
    """A folder of this machine. The lines of its journal are added one by one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    @contextlib.contextmanager
    def only_writer(self) -> Iterator[None]:
        """See ShardFolder.

        The system drops the lock of a process that ends, so that none is left behind. Where the
        file system has no locks, nothing is told.
        """
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked_folder(self._path, _PATIENCE_S))
            except TimeoutError as error:
                raise ConfigError(
                    f"another process writes shards to '{self}': {error}. Let one process write"
                    " them, such as that of rank 0, or end that one, or pass another folder"
                ) from error
            except OSError as error:
                raise self._refused(error) from error
            yield

    def names(self) -> set[str]:
        """See ShardFolder."""
        try:
            found = {each.name for each in self._path.iterdir()}
        except OSError as error:
            raise self._refused(error) from error
        return {each for each in found if not each.endswith(".draft")}

    def content(self, name: str) -> bytes:
        """See ShardFolder."""
        try:
            return _content(self._path / name)
        except OSError as error:
            raise self._refused(error) from error

    def is_whole(self, line: dict[str, Any]) -> bool:
        """See ShardFolder."""
        place = self._path / line["name"]
        try:
            if place.stat().st_size != line["nbytes"]:
                return False
            return bool(sum_of(_content(place)) == line["sha256"])
        except OSError:
            return False

    def write(self, name: str, content: bytes) -> None:
        """See ShardFolder."""
        draft = self._path / f"{name}.draft"
        with _writing(self._path / name):
            with new_file(draft) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path / name)

    def begin(self, line: dict[str, Any], content: bytes) -> list[dict[str, Any]]:
        """See ShardFolder."""
        self.write(line["name"], content)
        return [line]

    def rest(self) -> list[dict[str, Any]]:
        """See ShardFolder."""
        return []

    def log(self, lines: list[dict[str, Any]], count: int) -> None:
        """See ShardFolder."""
        if count == len(lines):
            self.write(JOURNAL, _journal(*lines))
            return
        place = self._path / JOURNAL
        with _writing(place), open(place, "ab", opener=open_regular) as file:
            file.write(_journal(*lines[-count:]))
            file.flush()
            os.fsync(file.fileno())

    def _refused(self, error: OSError) -> ConfigError:
        return ConfigError(f"shards cannot be written to '{self}': {error}")


class StoreFolder(ShardFolder):
    """A folder of an object store. Several shards are on their way at once.

    A line has the "version" of its object, too. The journal is an object that is written anew.

    Args:
        root: of the store, such as "s3://bucket".
        key: of the folder; "": the bucket.
        options: of the store's client.
    """

    def __init__(self, root: str, key: str, options: dict[str, Any]) -> None:
        self._key = key
        self._store = Store(root, options, CacheUse(ShardCache(), ""))
        self._uploads = Uploads(self._store, key)
        self._there: dict[str, RemoteObject] = {}  # what was listed, by its path in the folder
        self._begun: list[dict[str, Any]] = []  # lines of shards on their way
        self._journal = bytearray()
        self._nbytes = 0  # of shards that the journal in the store does not have

    def __str__(self) -> str:
        return f"{self._store.root}/{self._key}".rstrip("/")

    def only_writer(self) -> contextlib.AbstractContextManager[Any]:
        """See ShardFolder."""
        return self._uploads

    def names(self) -> set[str]:
        """See ShardFolder."""
        prefix = self._key_of("")
        try:
            listed = self._store.listed(prefix)
        except DatasetError as error:
            raise ConfigError(str(error)) from error
        self._there = {each.key[len(prefix) :]: each for each in listed}
        return {name.partition("/")[0] for name in self._there}

    def content(self, name: str) -> bytes:
        """See ShardFolder."""
        try:
            return self._store.read(self._there[name], 0, self._there[name].nbytes)
        except DatasetError as error:
            raise ConfigError(str(error)) from error

    def is_whole(self, line: dict[str, Any]) -> bool:
        """See ShardFolder: by the version, which was noted when the store had all of it."""
        found = self._there.get(line["name"])
        return found is not None and found[1:] == (line["nbytes"], line.get("version"))

    def write(self, name: str, content: bytes) -> None:
        """See ShardFolder. What is there with these bytes stays, since others may read it."""
        if self._nbytes:
            self._send_journal()
        self._uploads.settle(self._key_of(JOURNAL))
        found = self._there.get(name)
        if found is None or found.nbytes != len(content) or self.content(name) != content:
            self._uploads.write(self._key_of(name), content)

    def begin(self, line: dict[str, Any], content: bytes) -> list[dict[str, Any]]:
        """See ShardFolder."""
        self._uploads.begin(self._key_of(line["name"]), content)
        self._begun.append(line)
        return self._finished(wait=False)

    def rest(self) -> list[dict[str, Any]]:
        """See ShardFolder."""
        return self._finished(wait=True)

    def log(self, lines: list[dict[str, Any]], count: int) -> None:
        """See ShardFolder: a long journal is written when it is short beside the new shards."""
        if not self._journal:  # of a writer that goes on
            count = len(lines)
        elif count == len(lines):
            self._journal.clear()
        new = lines[len(lines) - count :]
        self._journal += _journal(*new)
        self._nbytes += sum(line.get("nbytes", 0) for line in new)
        most = max(_LOGGED_AT_ONCE, self._nbytes // _LOGGED_SHARE)
        if count == len(lines) or len(self._journal) <= most:
            self._send_journal()
        if count == len(lines):  # without it a folder is not known again
            self._uploads.settle(self._key_of(JOURNAL))

    def _send_journal(self) -> None:
        self._uploads.renew(self._key_of(JOURNAL), bytes(self._journal))
        self._nbytes = 0

    def _finished(self, wait: bool) -> list[dict[str, Any]]:
        versions = self._uploads.finished(wait)
        found = [
            {**line, "version": version}
            for line, version in zip(self._begun, versions, strict=False)
        ]
        del self._begun[: len(found)]
        return found

    def _key_of(self, name: str) -> str:
        return f"{self._key}/{name}".lstrip("/")


def _journal(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def _content(path: Path) -> bytes:
    with open(path, "rb", opener=open_regular) as file:
        return file.read()


@contextlib.contextmanager
def _writing(place: Path) -> Iterator[None]:
    """Raise ConfigError, which names the file, where the system refuses to write it."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"'{place}' cannot be written: {error}. Make room on the disk, or let this user write"
            " there; then repeat the call: it keeps the shards that are whole"
        ) from error
