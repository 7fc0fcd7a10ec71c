"""What processes of a training ask the one that fetches: bytes of objects, lists, what comes next.

Imports the cache and its messages. Each thread has a connection of its own, which is closed with
the thread or the cache; in a forked process it is made anew. What was handed out is kept for a
while, and read again without asking.
"""

from __future__ import annotations

import bisect
import functools
import importlib.util
import json
import mmap
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reader.errors import ConfigError, ConfigTypeError, DatasetError, got
from reader.stores.messages import COUNTER, receive, send
from reader.stores.remote_readers import remote_readers
from reader.stores.shard_cache import CacheUse, ShardCache, connected, of_thread

__all__ = ["REMEDIES", "Connection", "Ranges", "RemoteObject", "Store", "store_options"]

_MOST_HELD = 256  # descriptors of a thread
_MOST_HELD_NBYTES = 256 << 20
_ATTEMPTS = 20  # of a request whose process was killed
_AT_ONCE = 1000  # ranges, or objects, of a request
_STATS = {"do": "stats"}
_CONNECTION = "connection"  # what a thread has of a cache

_KEYS = {  # that stores take from the environment, by the scheme of addresses
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "http": "store={'default_headers': {'Authorization': ...}}",
}
_KEYS |= {"https": _KEYS["http"], "abfs": _KEYS["az"], "abfss": _KEYS["az"]}

REMEDIES = {  # of failures, by their kind
    "missing": "is not there: look at the name, and whether the store lists it",
    "no bucket": "lies in a bucket or container that is not there",
    "refused": (
        "is refused by the store: set the credentials of an account that may read it (such as"
        " {keys}), or pass store={'skip_signature': True} for what everybody may read"
    ),
    "expired": "is refused by the store: the credentials have expired. Get new ones, and go on",
    "no credentials": (
        "needs credentials, and there are none: set those of an account that may read it (such as"
        " {keys}), or pass store={'skip_signature': True} for what everybody may read"
    ),
    "certificate": (
        "has a certificate that is not trusted here: add its authority to those of the machine, or"
        " pass store={'root_certificate': ...}"
    ),
    "region": "lies in another region: pass store={'region': ...}, or set AWS_REGION",
    "changed": (
        "has changed since its index was made. Leave objects as they are while they are read, or"
        " make the dataset anew"
    ),
    "option": "cannot be used with these options of store=",
    "later": (
        "could not be fetched in time: the network or the store fails. Pass store={'timeout': ...},"
        " in seconds, to try for longer"
    ),
}


class RemoteObject(NamedTuple):
    """An object of a store.

    Attributes:
        key: of it.
        nbytes: that it has; -1: not known.
        version: a number of its version; 0: not known.
    """

    key: str
    nbytes: int = -1
    version: int = 0


Ranges = Sequence[tuple[int, int]]  # where bytes begin and end; an end of -1 is the object's


class _Held(NamedTuple):
    """A piece that was handed out: bytes of the object of a name, by a descriptor or in memory."""

    name: str
    begin: int
    end: int
    fd: int
    content: bytes = b""

    def read(self, place: int, nbytes: int) -> bytes:
        """Return bytes from a place of the object on, or those that the piece has."""
        at = place - self.begin
        if self.fd < 0:
            return self.content[at : at + nbytes]
        return os.pread(self.fd, nbytes, at)

    def close(self) -> None:
        """Close the descriptor, if it has one."""
        if self.fd >= 0:
            os.close(self.fd)


class _Pieces:
    """Those of one object, of one version, by where they begin."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.begins: list[int] = []
        self.all: list[_Held] = []


class Connection:
    """A thread's connection to the process that fetches, and what it was given.

    Attributes:
        pid: of the process that made it: one that was forked needs its own.
    """

    def __init__(self, cache: ShardCache) -> None:
        self.pid = os.getpid()
        self._socket = connected(cache)
        self._held: dict[_Held, None] = {}  # the oldest first
        self._stores: dict[str, int] = {}
        self._of: dict[str, _Pieces] = {}
        self._nbytes, self._fds = 0, 0
        self._given: dict[str, mmap.mmap] = {}  # counters of bytes that were read, by their stores

    def fileno(self) -> int:
        """Return the descriptor of the socket, by which an answer is waited for."""
        return self._socket.fileno()

    def ask(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Return the answer. EOFError, OSError: the process has ended."""
        self.tell(message)
        return self.answer()

    def tell(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a message, whose answer comes later. OSError: the process has ended."""
        send(self._socket, message, fds)

    def answer(self) -> tuple[dict[str, Any], list[int]]:
        """Return the answer to the last message. EOFError, OSError: the process has ended."""
        answer, fds = receive(self._socket)
        while not answer.get("is_last", True):  # a packet has few descriptors
            more, more_fds = receive(self._socket)
            fds += more_fds
            answer = {**more, "pieces": answer["pieces"] + more["pieces"]}
        return answer, fds

    def number_of(self, store: Store) -> int:
        """Return the number by which the process knows a store."""
        number = self._stores.get(store.identity)
        if number is None:
            about = {"root": store.root, "options": store.options, "use": store.use}
            counter = os.memfd_create("reader-counter", os.MFD_CLOEXEC)
            try:
                os.ftruncate(counter, COUNTER.size)
                self.tell({"do": "store", **about}, [counter])
                number = store.checked(self.answer()[0])["store"]
                self._given[store.identity] = mmap.mmap(counter, COUNTER.size)
            finally:
                os.close(counter)
            self._stores[store.identity] = number
        return number

    def note_read(self, store: Store, nbytes: int) -> None:
        """Count bytes that were read of a store, in memory that the process sees, too."""
        given = self._given[store.identity]
        COUNTER.pack_into(given, 0, COUNTER.unpack_from(given)[0] + nbytes)

    def held(self, name: str, place: int) -> _Held | None:
        """Return the piece that has a byte of an object, if it is here."""
        pieces = self._of.get(name)
        if pieces is None:
            return None
        number = bisect.bisect_right(pieces.begins, place)
        if not number:
            return None
        piece = pieces.all[number - 1]
        return piece if place < piece.end else None

    def holds(self, name: str, begin: int, end: int) -> bool:
        """Whether all bytes of a range are here."""
        while begin < end:
            piece = self.held(name, begin)
            if piece is None:
                return False
            begin = piece.end
        return True

    def hold(self, piece: _Held, version: str) -> None:
        """Keep a piece for a while. DatasetError: the object has another version than before."""
        pieces = self._of.get(piece.name)
        if pieces is None:
            pieces = self._of[piece.name] = _Pieces(version)
        if pieces.version != version:
            piece.close()
            for old in list(pieces.all):
                self._release(old)
            raise DatasetError(f"'{piece.name.rpartition(' ')[0]}' {REMEDIES['changed']}")
        if self.holds(piece.name, piece.begin, piece.end):
            piece.close()
            return
        number = bisect.bisect_left(pieces.begins, piece.begin)
        while number < len(pieces.all) and pieces.all[number].end <= piece.end:
            self._release(pieces.all[number])  # of one that was on its way, or fetched alone
        pieces = self._of.setdefault(piece.name, pieces)
        pieces.begins.insert(number, piece.begin)
        pieces.all.insert(number, piece)
        self._held[piece] = None
        self._nbytes += piece.end - piece.begin
        self._fds += piece.fd >= 0
        while self._fds > _MOST_HELD or self._nbytes > _MOST_HELD_NBYTES:
            oldest = next(iter(self._held))
            if oldest is piece:
                break
            self._release(oldest)

    def forget(self, name: str, begin: int, end: int) -> None:
        """Let pieces go that have some bytes of an object; `end` -1: all from `begin` on."""
        pieces = self._of.get(name)
        for piece in list(pieces.all) if pieces is not None else ():
            if begin < piece.end and (end < 0 or piece.begin < end):
                self._release(piece)

    def _release(self, piece: _Held) -> None:
        del self._held[piece]
        pieces = self._of[piece.name]
        number = pieces.all.index(piece)
        del pieces.all[number], pieces.begins[number]
        if not pieces.all:
            del self._of[piece.name]
        self._nbytes -= piece.end - piece.begin
        self._fds -= piece.fd >= 0
        piece.close()

    def close(self) -> None:
        """Close the socket, and release what was given. Idempotent."""
        held, self._held = self._held, {}
        for piece in held:
            piece.close()
        for counter in self._given.values():
            counter.close()
        self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_held"):
            self.close()


class Store:
    """A bucket, container or host, read through the process that fetches for a cache.

    Args:
        root: of it, such as "s3://bucket".
        options: of its client.
        use: where bytes are kept, and the name by which reads are counted.
    """

    def __init__(self, root: str, options: dict[str, Any], use: CacheUse) -> None:
        self.root, self.options, (self.cache, self.use) = root, options, use
        self.identity = json.dumps([root, options, self.use], sort_keys=True, default=repr)

    def connect(self) -> None:
        """Have the process that fetches started, and know the store. See `checked`."""
        self._connection().number_of(self)

    def listed(self, prefix: str, most: int = 0) -> list[RemoteObject]:
        """Return all objects below a prefix, by key. DatasetError: they cannot be listed.

        With `most`, some thousand of them at most, or none where that fails or takes long.
        """
        answer, _ = self._asked({"do": "list", "prefix": prefix, "most": most})
        return sorted(RemoteObject(*each) for each in answer["objects"])

    def metas(self, keys: Sequence[str]) -> list[RemoteObject | None]:
        """Return bytes and versions of objects; None: of those that are not there."""
        found: list[RemoteObject | None] = []
        for begin in range(0, len(keys), _AT_ONCE):
            part = keys[begin : begin + _AT_ONCE]
            answer, _ = self._asked({"do": "meta", "objects": part})
            found += [
                None if said is None else RemoteObject(key, *said)
                for key, said in zip(part, answer["objects"], strict=True)
            ]
        return found

    def order(
        self,
        name: str,
        objects: Sequence[RemoteObject],
        groups: Sequence[Sequence[int]],
        then: Sequence[Sequence[int]],
        begins: bool,
    ) -> None:
        """Tell in which order objects will be read. See `Future.tell`, and `Files.expect`."""
        readers = remote_readers(CacheUse(self.cache, self.use))
        for each in readers:  # where nobody reads nothing is to be fetched
            call = functools.partial(self.order, name, objects, groups, then, begins)
            each.tell(f"order {self.identity}", call)
        if not readers:
            message = {"do": "order", "name": name, "objects": objects, "groups": groups}
            self._asked({**message, "then": then, "begins": begins})

    def stats(self) -> dict[str, Any]:
        """Return what was fetched and kept by the process, for all who use the cache."""
        return self._asked(_STATS)[0]

    def probe(self, place: str) -> dict[str, Any]:
        """Return how soon and how fast a store answers, after some seconds. See `probe`."""
        return self._asked({"do": "probe", "place": place})[0]

    def read(self, of: RemoteObject, begin: int, end: int, is_near: bool = False) -> bytes:
        """Return some bytes of an object; `end` -1: to its end.

        Raises:
            DatasetError: they cannot be had; it says why, and what to do.
        """
        if end < 0:
            end = self.fetch([(of, [(begin, end)])], is_near=True)[of]
        (found,) = self.parts(of, [(begin, end)], is_near)
        return found

    def parts(
        self, of: RemoteObject, ranges: Iterable[tuple[int, int]], is_near: bool = False
    ) -> Iterator[bytes]:
        """Yield the bytes of an object from where each range begins to where it ends. See `read`.

        Args:
            of: the object.
            ranges: best such that were fetched together.
            is_near: whether others beside them will be wanted.
        """
        name, connection, nbytes = self._name(of), self._connection(), 0
        try:
            for begin, end in ranges:
                piece = connection.held(name, begin)
                if piece is not None and end <= piece.end:
                    found = piece.read(begin, end - begin)
                else:  # several pieces have it, or none yet
                    found = b"".join(self._pieces(of, begin, end, is_near))
                    connection = self._connection()
                if len(found) != end - begin:
                    at, what = begin + len(found), f"'{self.root}/{of.key}'"
                    raise DatasetError(f"{what} was given without its bytes at {at:,}")
                nbytes += len(found)
                yield found
        finally:
            if nbytes:
                connection.note_read(self, nbytes)

    def _pieces(self, of: RemoteObject, begin: int, end: int, is_near: bool) -> Iterator[bytes]:
        """Yield bytes as the pieces have them, which are fetched where they are not here."""
        name, at = self._name(of), begin
        while at < end:
            piece = self._connection().held(name, at)
            if piece is None:
                self.fetch([(of, [(at, end)])], is_near)
                piece = self._connection().held(name, at)
                if piece is None:  # it was too much to be kept at once
                    raise DatasetError(f"'{self.root}/{of.key}' was not given from {at:,} on")
            part = piece.read(at, min(end, piece.end) - at)
            if not part:  # it has fewer bytes than it says
                return
            yield part
            at += len(part)

    def fetch(
        self, wanted: Sequence[tuple[RemoteObject, Ranges]], is_near: bool = False
    ) -> dict[RemoteObject, int]:
        """Have bytes fetched together, so that they are here when they are read.

        Args:
            wanted: objects, and the bytes of each.
            is_near: whether others beside them will be wanted.

        Returns:
            How many bytes the objects have that were asked for.
        """
        connection = self._connection()
        parts: list[tuple[RemoteObject, int, int]] = []
        for of, ranges in wanted:
            name = self._name(of)
            parts += [
                (of, begin, end)
                for begin, end in ranges
                if end < 0 or not connection.holds(name, begin, end)
            ]
        found: dict[RemoteObject, int] = {}
        for first in range(0, len(parts), _AT_ONCE):
            found |= self._fetch(parts[first : first + _AT_ONCE], is_near)
        return found

    def forget(self, of: RemoteObject, ranges: Ranges) -> None:
        """Let bytes go that were found to be damaged: they are fetched anew when they are read."""
        connection, name = self._connection(), self._name(of)
        for begin, end in ranges:
            connection.forget(name, begin, end)
        self._asked({"do": "again", "objects": [of], "parts": [[0, *each] for each in ranges]})

    def _fetch(
        self, parts: list[tuple[RemoteObject, int, int]], is_near: bool
    ) -> dict[RemoteObject, int]:
        objects = list(dict.fromkeys(of for of, _, _ in parts))
        numbers = {each: number for number, each in enumerate(objects)}
        message = {
            "do": "read",
            "objects": objects,
            "parts": [[numbers[of], begin, end] for of, begin, end in parts],
            "is_near": is_near,
        }
        answer, fds = self._asked(message)
        connection = self._connection()
        left = deque(fds)
        try:
            for number, begin, end in answer["pieces"]:
                name, version = self._name(objects[number]), answer["objects"][number][1]
                connection.hold(_Held(name, begin, end, left.popleft()), version)
            place = 0
            for number, begin, end in answer["small"]:
                name, version = self._name(objects[number]), answer["objects"][number][1]
                content = os.pread(left[0], end - begin, place)
                connection.hold(_Held(name, begin, end, -1, content), version)
                place += end - begin
        finally:
            for fd in left:  # one before has changed
                os.close(fd)
        if answer["is_short"]:
            self.cache.warn_short()
        return {of: said[0] for of, said in zip(objects, answer["objects"], strict=True)}

    def checked(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer. DatasetError, ConfigError: it tells of a failure."""
        kind = answer.get("failure")
        if kind is None:
            return answer
        error: type[ConfigError | DatasetError] = ConfigError if kind == "option" else DatasetError
        raised = error(self.failure_text(answer, REMEDIES.get(kind, "cannot be fetched")))
        told = str(answer.get("told", ""))
        raised.kind, raised.told = kind, told.partition("': ")[2] or told  # type: ignore[union-attr]
        raise raised

    def failure_text(self, answer: dict[str, Any], remedy: str) -> str:
        """Return what an answer tells of a failure, with the name of the object."""
        told = str(answer.get("told", ""))
        key, _, rest = told.partition("': ")
        name = f"'{self.root}/{key[1:]}'" if rest else f"'{self.root}'"
        keys = _KEYS.get(self.root.partition(":")[0], "its keys")  # of a cache's own there are none
        remedy = remedy.replace("{keys}", keys)
        return f"{name} {remedy} ({rest or told}){self.cache.machine}"

    def _name(self, of: RemoteObject) -> str:
        return f"{self.root}/{of.key} {of.version}"

    def _asked(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Return an answer; a process that was killed is replaced."""
        for attempt in range(_ATTEMPTS):
            connection = self._connection()
            try:
                of = {} if message is _STATS else {"store": connection.number_of(self)}
                answer, fds = connection.ask({**message, **of})
            except (EOFError, OSError) as error:
                self._drop()
                if attempt == _ATTEMPTS - 1:
                    raise DatasetError(
                        f"'{self.root}': the process that fetches ended {_ATTEMPTS} times while"
                        f" it was asked: {error!r}"
                    ) from error
                continue
            except BaseException:  # an answer is on its way
                self._drop()
                raise
            return self.checked(answer), fds
        raise AssertionError("unreachable")

    def _connection(self) -> Connection:
        """Return this thread's connection."""
        mine = of_thread(self.cache)
        found: Connection | None = mine.get(_CONNECTION)
        if found is None or found.pid != os.getpid():
            found = mine[_CONNECTION] = Connection(self.cache)
        return found

    def _drop(self) -> None:
        of_thread(self.cache).pop(_CONNECTION, None)


def store_options(store: Any, url: str | None) -> dict[str, Any]:
    """Return the options that a user gives for stores.

    Args:
        store: them, or None.
        url: an address of a store; None: nothing lies in one.

    Raises:
        ConfigError, ConfigTypeError: they are no options, or obstore is not installed.
    """
    if store is not None and not isinstance(store, Mapping):
        raise ConfigTypeError(
            f"store must be a dict of options, such as {{'region': 'eu-west-1'}}, got {got(store)}"
        )
    if (
        url is not None and importlib.util.find_spec("obstore") is None
    ):  # which is never imported here
        raise ConfigError(
            f'{url!r} needs obstore, which is not installed. Run: pip install "lodreader[remote]"'
        )
    return dict(store or {})
