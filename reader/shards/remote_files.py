"""Shards that lie in object stores, beside those of this machine.

Imports the files of shards, and the stores. Bytes come from the process that fetches; what is asked
for together is fetched together.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import json
import re
import secrets
from collections.abc import Sequence
from typing import Any

from reader.errors import ConfigError, ConfigTypeError, DatasetError, got
from reader.shards.formats.stored import Files, ShardFile, StoredBytes
from reader.shards.paths import by_number, expanded
from reader.stores.client import Ranges, RemoteObject, Store, store_options
from reader.stores.shard_cache import CacheUse, ShardCache
from reader.stores.urls import is_url, split_url

__all__ = ["RemoteFiles", "files_for"]

_WILD = re.compile(r"[*?\[]")
_SUFFIX = re.compile(r"\.[A-Za-z0-9_]{1,16}(-[0-9]+-of-[0-9]+)?$")
_WHOLE = [(0, -1)]


def files_for(paths: Sequence[str], cache: Any, store: Any) -> Files:
    """Return how files are found and read: in stores, if one of the paths is an address.

    Raises:
        ConfigError, ConfigTypeError: an option is invalid, or of no use.
    """
    if cache is not None and not isinstance(cache, ShardCache):
        raise ConfigTypeError(f"cache must be a reader.ShardCache, got {got(cache)}")
    url = next(filter(is_url, paths), None)
    options = store_options(store, url)
    if url is None:
        if store is not None or cache is not None:
            name = "store" if store is not None else "cache"
            raise ConfigError(
                f"{name}= is for shards in a store, such as s3://bucket/path, and path names files"
                " of this machine: leave it out"
            )
        return Files()
    return RemoteFiles(ShardCache() if cache is None else cache, options)


class RemoteFiles(Files):
    """Files of stores and of this machine.

    Args:
        cache: where bytes of stores are kept.
        options: of the stores' clients.
    """

    use: CacheUse

    def __init__(self, cache: ShardCache, options: dict[str, Any]) -> None:
        self.use = CacheUse(cache, secrets.token_hex(8))
        self._options = options
        self._stores: dict[str, Store] = {}
        self._known: dict[str, ShardFile] = {}  # of what was listed

    def at(self, url: str) -> tuple[Store, str]:
        """Return the store of an address, and the key in it."""
        root, key = split_url(url)
        store = self._stores.get(root)
        if store is None:
            store = self._stores[root] = Store(root, self._options, self.use)
        return store, key

    def named(self, part: str) -> list[str]:
        """See Files: braces name addresses as they are, wildcards those that a store lists."""
        if not is_url(part):
            return super().named(part)
        found: list[str] = []
        for url in expanded(part):
            found += self._matching(url) if _WILD.search(url) else [url]
        return found

    def _matching(self, pattern: str) -> list[str]:
        """Return the addresses that a pattern names."""
        folder = pattern[: _WILD.search(pattern).start()].rpartition("/")[0]  # type: ignore[union-attr]
        rule = re.compile("/".join(map(_rule, pattern.split("/"))), re.DOTALL)
        found = [each for each in self._below(folder) if rule.fullmatch(each)]
        if not found:
            raise ConfigError(f"the pattern '{pattern}' names no object of the store")
        return sorted(found, key=by_number)

    def _below(self, folder: str) -> list[str]:
        """Return the addresses of all objects below one."""
        store, prefix = self.at(f"{folder.rstrip('/')}/")
        try:
            listed = store.listed(prefix)
        except DatasetError as error:
            raise ConfigError(str(error)) from error
        found = []
        for each in listed:
            url = f"{store.root}/{each.key}"
            self._known[url] = ShardFile(url, each.nbytes, each.version)
            found.append(url)
        return found

    def stored(self, file: ShardFile, content: bytes | None = None) -> StoredBytes:
        """See Files."""
        if not is_url(file.path):
            return super().stored(file, content)
        store, key = self.at(file.path)
        return RemoteBytes(file, content, store, RemoteObject(key, *file[1:]))

    def found(self, paths: Sequence[str]) -> list[ShardFile]:
        """See Files: what was listed is not asked for again."""
        asked: dict[Store, list[str]] = {}
        for path in paths:
            if is_url(path) and path not in self._known:
                store, key = self.at(path)
                if self.is_folder(path):  # a shard of the format "files"
                    self._known[path] = ShardFile(path, 0, 0)
                    continue
                asked.setdefault(store, []).append(key)
        for store, keys in asked.items():
            try:
                metas = store.metas(keys)
            except DatasetError as error:
                raise OSError(str(error)) from error
            for key, meta in zip(keys, metas, strict=True):
                url = f"{store.root}/{key}"
                if meta is None:
                    raise OSError(f"the shard '{url}' cannot be read: the store has no such object")
                self._known[url] = ShardFile(url, meta.nbytes, meta.version)
        here = iter(super().found([path for path in paths if not is_url(path)]))
        return [self._known[path] if is_url(path) else next(here) for path in paths]

    def json(self, path: str) -> Any:
        """See Files."""
        if not is_url(path):
            return super().json(path)
        for is_last in (False, True):
            content = self._whole(path)
            if content is None:
                raise FileNotFoundError(path)
            try:
                return json.loads(content)
            except (ValueError, RecursionError) as error:
                whole = ShardFile(path, -1, 0)
                if is_last or not self.is_given_anew(whole, _WHOLE, error):
                    raise ConfigError(f"'{path}' is damaged: {error}. Write it anew") from error
        raise AssertionError("unreachable")

    def _whole(self, url: str) -> bytes | None:
        """Return all bytes of an object; None: it is not there."""
        store, key = self.at(url)
        try:
            return store.read(RemoteObject(key), 0, -1)
        except DatasetError as error:
            if getattr(error, "kind", "") == "missing":
                return None
            raise ConfigError(str(error)) from error

    def has(self, path: str) -> bool:
        """See Files."""
        if not is_url(path):
            return super().has(path)
        store, key = self.at(path)
        return path in self._known or store.metas([key])[0] is not None

    def is_here(self, path: str) -> bool:
        """See Files."""
        return not is_url(path) and super().is_here(path)

    def is_file(self, path: str) -> bool:
        """See Files: what a store lists is a file."""
        return is_url(path) or super().is_file(path)

    def is_folder(self, path: str) -> bool:
        """See Files: by the name, since a store has no folders."""
        if not is_url(path):
            return super().is_folder(path)
        return path.endswith("/") or not _SUFFIX.search(path)

    def entries(self, folder: str) -> list[str]:
        """See Files."""
        if not is_url(folder):
            return super().entries(folder)
        place = f"{folder.rstrip('/')}/"
        inner = [each for each in self._below(folder) if "/" not in each[len(place) :]]
        return sorted((each for each in inner if not _is_hidden(each)), key=by_number)

    def indexed_folders(self, folder: str) -> list[str]:
        """See Files."""
        if not is_url(folder):
            return super().indexed_folders(folder)
        ends = "/index.json"
        return [each[: -len(ends)] for each in self._below(folder) if each.endswith(ends)]

    def below(self, folder: str) -> list[str]:
        """See Files."""
        if not is_url(folder):
            return super().below(folder)
        place = f"{folder.rstrip('/')}/"
        return [each[len(place) :] for each in self._below(folder)]

    def head(self, path: str, nbytes: int) -> bytes:
        """See Files."""
        if not is_url(path):
            return super().head(path, nbytes)
        store, key = self.at(path)
        try:
            (file,) = self.found([path]) if nbytes >= 0 else (ShardFile(path, -1, 0),)
            end = min(nbytes, file.nbytes) if nbytes >= 0 else -1
            return store.read(RemoteObject(key, *file[1:]), 0, end)
        except DatasetError as error:
            raise OSError(str(error)) from error

    def fetch(self, wanted: Sequence[tuple[ShardFile, Ranges]]) -> None:
        """Have bytes of shards fetched together, which are read next."""
        asked: dict[Store, list[tuple[RemoteObject, Ranges]]] = {}
        for file, ranges in wanted:
            if is_url(file.path) and ranges:
                store, key = self.at(file.path)
                asked.setdefault(store, []).append((RemoteObject(key, *file[1:]), ranges))
        for store, parts in asked.items():
            store.fetch(parts)

    def is_given_anew(
        self, file: ShardFile, ranges: Sequence[tuple[int, int]], error: Exception
    ) -> bool:
        """See Files: it is not where the store itself has failed."""
        if not is_url(file.path) or hasattr(error, "kind"):
            return False
        store, key = self.at(file.path)
        store.forget(RemoteObject(key, *file[1:]), ranges)
        return True

    def fetch_stats(self) -> dict[str, Any]:
        """See Files."""
        return Store("", {}, self.use).stats()

    def expect(self, groups: list[list[ShardFile]], then: list[list[ShardFile]]) -> None:
        """See Files."""
        roots = dict.fromkeys(split_url(file.path)[0] for file in _urls_in(*groups, *then))
        for root in roots:
            objects: dict[RemoteObject, int] = {}
            now, later = (
                [
                    [
                        objects.setdefault(RemoteObject(key, *file[1:]), len(objects))
                        for file in _urls_in(group)
                        for place, key in (split_url(file.path),)
                        if place == root
                    ]
                    for group in order
                ]
                for order in (groups, then)
            )
            content = json.dumps([root, list(objects), now, later]).encode()
            name = hashlib.blake2b(content, digest_size=12).hexdigest()
            self.at(f"{root}/")[0].order(name, list(objects), now, later)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stores": {}, "_known": {}}


class RemoteBytes(StoredBytes):
    """The bytes of a shard in a store, or what it is decompressed to.

    Args:
        file: of it: its address, bytes, and the number of its version.
        content: what it is decompressed to; None: it is read as it lies.
        store: that has it.
        object: it.
    """

    def __init__(
        self, file: ShardFile, content: bytes | None, store: Store, of: RemoteObject
    ) -> None:
        self.path, self.nbytes = file.path, file.nbytes if content is None else len(content)
        self.unpacked_nbytes = 0 if content is None else len(content)
        self._content, self._file, self._fd = content, file, -1
        self._store, self._of = store, of

    @property
    def fd(self) -> int:
        """See StoredBytes: there is none."""
        return -1

    @property
    def source(self) -> Any:
        """See StoredBytes."""
        return io.BufferedReader(_RawObject(self))

    def check_unchanged(self) -> None:
        """See StoredBytes: what is fetched is of one version."""

    def read_ahead(self) -> None:
        """See StoredBytes: who fetches knows the order."""

    def read(self, place: int, nbytes: int) -> bytes:
        """See StoredBytes."""
        if not 0 <= place <= place + nbytes <= self.nbytes:
            raise self._outside(place, nbytes)
        if self._content is not None or not nbytes:
            return b"" if self._content is None else self._content[place : place + nbytes]
        is_near = nbytes < self.nbytes and nbytes < 1 << 16
        return self._store.read(self._of, place, place + nbytes, is_near)


class _RawObject(io.RawIOBase):
    """An object as a file, for libraries."""

    def __init__(self, stored: RemoteBytes) -> None:
        self._stored = stored
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._stored.nbytes}[whence]
        self._place = max(0, base + offset)
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), self._stored.nbytes - self._place))
        found = self._stored.read(self._place, count) if count else b""
        memoryview(buffer).cast("B")[: len(found)] = found
        self._place += len(found)
        return len(found)


def _urls_in(*groups: list[ShardFile]) -> list[ShardFile]:
    """Return those files of some groups that lie in stores."""
    return [file for group in groups for file in group if is_url(file.path)]


def _rule(part: str) -> str:
    """Return the rule of a part of a pattern between slashes, which it does not match."""
    rule = fnmatch.translate(part).removeprefix("(?s:").removesuffix(")\\Z").removesuffix(")\\z")
    return rule.replace(".*", "[^/]*") if _WILD.search(part) else re.escape(part)


def _is_hidden(url: str) -> bool:
    return url.rpartition("/")[2].startswith(".")
