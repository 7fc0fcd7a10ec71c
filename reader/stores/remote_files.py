"""Files that lie in object stores, beside those of this machine.

Imports the files of this machine, and the stores. Bytes come from the process that fetches; what
is asked for together is fetched together.
"""

from __future__ import annotations

import bisect
import contextlib
import fnmatch
import hashlib
import io
import json
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from reader.errors import ConfigError, ConfigTypeError, DatasetError, got
from reader.stores.client import Ranges, RemoteObject, Store, store_options
from reader.stores.files import Files, OpenBytes, StoredBytes, StoredFile
from reader.stores.listing import keep_listing, kept_listing, place_of
from reader.stores.paths import by_number, expanded
from reader.stores.remote_readers import remote_readers
from reader.stores.shard_cache import CacheUse, ShardCache
from reader.stores.urls import is_url, split_url

__all__ = ["RemoteFiles", "files_for"]

_WILD = re.compile(r"[*?\[]")
_SUFFIX = re.compile(r"\.[A-Za-z0-9_]{1,16}(-[0-9]+-of-[0-9]+)?$")
_WHOLE = [(0, -1)]
_LISTED = 1000  # objects that one request lists


def files_for(paths: Sequence[str], cache: Any, store: Any) -> Files:
    """Return how files are found and read: in stores, if one of the paths is an address.

    Raises:
        ConfigError, ConfigTypeError: an option is invalid, or of no use.
    """
    if cache is not None and not isinstance(cache, ShardCache):
        raise ConfigTypeError(f"cache must be a reader.ShardCache, got {got(cache)}")
    urls = list(filter(is_url, paths))
    for each in urls:
        split_url(each)  # refuses those that name no bucket
    url = urls[0] if urls else None
    options = store_options(store, url)
    if url is None:
        if store is not None or cache is not None:
            name = "store" if store is not None else "cache"
            raise ConfigError(
                f"{name}= is for what lies in a store, such as s3://bucket/path, and path names"
                " files of this machine: leave it out"
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
        self._known: dict[str, StoredFile] = {}  # of what was listed
        self._trees: dict[str, _Tree] = {}  # by folder
        self._index = ""

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
        place = self.place_of(folder)
        listed = kept_listing(place, folder) if place else None
        if listed is None:
            try:
                listed = store.listed(prefix)
            except DatasetError as error:
                kind = getattr(error, "kind", None)
                if folder.startswith("http") and kind in ("lasting", "missing", "refused"):
                    raise ConfigError(
                        f"'{folder}' is a folder, and its server does not list it, as most of HTTP"
                        f" do not ({error.told}): name the files, of which braces name"  # type: ignore[attr-defined]
                        " several, or copy the folder to this machine, or to a store that lists it"
                    ) from error
                raise ConfigError(str(error)) from error
            if place:
                keep_listing(place, folder, listed)
        return self._noted(store, listed)

    def _noted(self, store: Store, listed: list[RemoteObject]) -> list[str]:
        """Return the addresses of objects that a store has listed, which are known then."""
        found = []
        for each in listed:
            url = f"{store.root}/{each.key}"
            self._known[url] = StoredFile(url, each.nbytes, each.version)
            found.append(url)
        return found

    @contextlib.contextmanager
    def listed_meanwhile(self, path: str) -> Iterator[None]:
        """See Files: some thousand objects at most; over HTTP there are no lists."""
        if not is_url(path) or path.startswith("http"):
            yield
            return
        store, folder = self.at(f"{path.rpartition('/')[0]}/")
        try:
            store.connect()  # or both threads would start a process
        except (DatasetError, ConfigError, EOFError, OSError):  # who reads the file tells of it
            yield
            return
        listed: list[RemoteObject] = []

        def take() -> None:
            with contextlib.suppress(DatasetError, ConfigError):  # of what is asked for is told
                listed.extend(store.listed(folder, most=_LISTED))

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        try:
            yield
        finally:
            thread.join()
        self._noted(store, listed)

    def keep_listings(self, folder: str) -> None:
        """See Files."""
        self._index = folder

    def place_of(self, folder: str) -> str:
        """See Files."""
        endpoint = str(self._options.get("endpoint", self._options.get("base_url", "")))
        return place_of(self._index, folder, endpoint) if self._index else ""

    def forget(self) -> None:
        """See Files."""
        self._known, self._trees = {}, {}

    def folders(self, folder: str) -> list[str]:
        """See Files."""
        if not is_url(folder):
            return super().folders(folder)
        return self._tree_of(folder.rstrip("/")).folders(folder.rstrip("/"))

    def names(self, folder: str) -> list[str]:
        """See Files."""
        if not is_url(folder):
            return super().names(folder)
        top = folder.rstrip("/")
        here = self._tree_of(top).below(top).get(top, [])
        return sorted({*here, *self.folders(top)})

    def _tree_of(self, folder: str) -> _Tree:
        """Return what lies below a folder, or below one that it lies in."""
        for top, tree in self._trees.items():
            if f"{folder}/".startswith(f"{top}/"):
                return tree
        found = self._trees[folder] = _Tree(self._below(folder))
        return found

    def tree(
        self, folder: str, above: frozenset[tuple[int, int]] | None = None
    ) -> tuple[dict[str, list[str]], list[str]]:
        """See Files."""
        if not is_url(folder):
            return super().tree(folder, above)
        return self._tree_of(folder.rstrip("/")).below(folder.rstrip("/")), []

    def stored(self, file: StoredFile, content: bytes | None = None) -> StoredBytes:
        """See Files."""
        if not is_url(file.path):
            return super().stored(file, content)
        store, key = self.at(file.path)
        return RemoteBytes(file, content, store, RemoteObject(key, *file[1:]))

    def file(self, path: str) -> StoredFile:
        """See Files: what was listed is not asked for again."""
        return self._objects([path])[path] if is_url(path) else super().file(path)

    def found(self, paths: Sequence[str]) -> list[StoredFile]:
        """See Files: what was listed is not asked for again; of a folder nothing is known."""
        urls = [path for path in paths if is_url(path)]
        unknown = [each for each in urls if each not in self._known]
        folders = {each: StoredFile(each, 0, 0) for each in unknown if self.is_folder(each)}
        objects = self._objects([each for each in urls if each not in folders])
        here = iter(super().found([path for path in paths if not is_url(path)]))
        return [
            (folders.get(path) or objects[path]) if is_url(path) else next(here) for path in paths
        ]

    def _objects(self, urls: Sequence[str]) -> dict[str, StoredFile]:
        """Return objects as they are now, by their addresses. OSError: one cannot be read."""
        asked: dict[Store, dict[str, str]] = {}  # addresses by key
        for url in urls:
            if url not in self._known:
                store, key = self.at(url)
                asked.setdefault(store, {})[key] = url
        for store, keys in asked.items():
            try:
                metas = store.metas(list(keys))
            except DatasetError as error:
                raise OSError(str(error)) from error
            for url, meta in zip(keys.values(), metas, strict=True):
                if meta is None:
                    raise OSError(f"'{url}' cannot be read: the store has no such object")
                self._known[url] = StoredFile(url, meta.nbytes, meta.version)
        return {url: self._known[url] for url in urls}

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
                whole = StoredFile(path, -1, 0)
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

    def open(self, path: str) -> BinaryIO:
        """See Files."""
        if not is_url(path):
            return super().open(path)
        found: BinaryIO = self.stored(self.file(path)).source
        return found

    def source(self, path: str) -> Any:
        """See Files."""
        return self.open(path) if is_url(path) else super().source(path)

    def fetch_ends(self, paths: Sequence[str], first: int, last: int) -> None:
        """See Files."""
        urls = self._objects([path for path in paths if is_url(path)])
        self.fetch(
            [
                (file, [(0, min(first, file.nbytes)), (max(0, file.nbytes - last), file.nbytes)])
                for file in urls.values()
            ]
        )

    def head(self, path: str, nbytes: int) -> bytes:
        """See Files."""
        if not is_url(path):
            return super().head(path, nbytes)
        store, key = self.at(path)
        try:
            file = self.file(path) if nbytes >= 0 else StoredFile(path, -1, 0)
            end = min(nbytes, file.nbytes) if nbytes >= 0 else -1
            return store.read(RemoteObject(key, *file[1:]), 0, end)
        except DatasetError as error:
            raise OSError(str(error)) from error

    def fetch(self, wanted: Iterable[tuple[StoredFile, Ranges]]) -> None:
        """See Files."""
        asked: dict[Store, list[tuple[RemoteObject, Ranges]]] = {}
        here: list[tuple[StoredFile, Ranges]] = []
        for file, ranges in wanted:
            if not is_url(file.path):
                here.append((file, ranges))
            elif ranges:
                store, key = self.at(file.path)
                asked.setdefault(store, []).append((RemoteObject(key, *file[1:]), ranges))
        super().fetch(here)
        for store, parts in asked.items():
            store.fetch(parts)

    def is_given_anew(
        self, file: StoredFile, ranges: Sequence[tuple[int, int]], error: Exception
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

    @property
    def are_read_elsewhere(self) -> bool:
        """See Files."""
        return bool(remote_readers(self.use))

    def expect(
        self, groups: list[list[StoredFile]], then: list[list[StoredFile]], begins: bool = True
    ) -> None:
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
            self.at(f"{root}/")[0].order(name, list(objects), now, later, begins)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stores": {}, "_known": {}, "_trees": {}}


class _Tree:
    """The folders that addresses of objects name, and the names of the objects in each."""

    def __init__(self, urls: Sequence[str]) -> None:
        names: dict[str, list[str]] = {}
        for url in urls:
            folder, _, name = url.rpartition("/")
            if name:  # others stand for the folder alone
                names.setdefault(folder, []).append(name)
        self._names = names
        self._folders = sorted(names)

    def below(self, folder: str) -> dict[str, list[str]]:
        """Return the names in a folder and in those below it."""
        inner = self._run(f"{folder}/")
        chosen = [folder, *inner] if folder in self._names else inner
        return {each: self._names[each] for each in chosen}

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder."""
        start = len(folder) + 1
        return sorted({each[start:].partition("/")[0] for each in self._run(f"{folder}/")})

    def _run(self, begin: str) -> list[str]:
        """Return the folders that begin so."""
        first = bisect.bisect_left(self._folders, begin)
        last = bisect.bisect_left(self._folders, f"{begin}\U0010ffff", first)
        return self._folders[first:last]


class RemoteBytes(StoredBytes):
    """The bytes of an object, or what it is decompressed to.

    Args:
        file: of it: its address, bytes, and the number of its version.
        content: what it is decompressed to; None: it is read as it lies.
        store: that has it.
        object: it.
    """

    def __init__(
        self, file: StoredFile, content: bytes | None, store: Store, of: RemoteObject
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
        return io.BufferedReader(OpenBytes(self))

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

    def parts(self, places: Sequence[int], numbers: Sequence[int]) -> Iterator[bytes]:
        """See StoredBytes."""
        if self._content is not None:
            return super().parts(places, numbers)
        return self._store.parts(self._of, self._ranges(places, numbers))

    def _ranges(self, places: Sequence[int], numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield where parts begin and end. DatasetError: the file has not all of them."""
        for number in numbers:
            begin, end = places[number], places[number + 1]
            if not 0 <= begin <= end <= self.nbytes:
                raise self._outside(begin, end - begin)
            yield begin, end


def _urls_in(*groups: list[StoredFile]) -> list[StoredFile]:
    """Return those files of some groups that lie in stores."""
    return [file for group in groups for file in group if is_url(file.path)]


def _rule(part: str) -> str:
    """Return the rule of a part of a pattern between slashes, which it does not match."""
    rule = fnmatch.translate(part).removeprefix("(?s:").removesuffix(")\\Z").removesuffix(")\\z")
    return rule.replace(".*", "[^/]*") if _WILD.search(part) else re.escape(part)


def _is_hidden(url: str) -> bool:
    return url.rpartition("/")[2].startswith(".")
