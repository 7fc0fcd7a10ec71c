"""The process that fetches: it answers what processes of a training ask for.

Imports what is fetched and kept. It ends with the last of those processes: their sockets are closed
by the kernel, whichever way they end.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import mmap
import os
import socket
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from reader.stores.fetcher.failure import Failure
from reader.stores.fetcher.future import Future
from reader.stores.fetcher.kept_bytes import KeptBytes, KeptObject, Piece
from reader.stores.fetcher.lease import Lease
from reader.stores.fetcher.object_store import ObjectStore, number_of
from reader.stores.fetcher.probe import probe
from reader.stores.fetcher.transfers import Source, Transfers, Wanted
from reader.stores.fetcher.uploads import Uploads, content_of
from reader.stores.messages import COUNTER, MOST_FDS, process_of, received, send, user_of

__all__ = ["serve"]

_T = TypeVar("_T")

_MOST_PACKET = 1 << 16
_BACKLOG = 512
_PAUSE_S = 0.01  # before somebody is written to again who does not read
_SOCKET = "socket-"
_PATIENCE_S = 120.0
_SOON_S = 2.0  # for a list that nobody needs
_COUNTS = ("bytes", "requests", "retries", "hedged", "damaged", "sent")
_MOST_GIVEN = MOST_FDS - 1  # pieces of a packet: small ones have a descriptor, too


async def serve(
    first: socket.socket, lock: str, folder: str | None, limit: int, ahead: int | None
) -> None:
    """Serve until nobody is there.

    Args:
        first: the connection of who has started this process.
        lock: the path of the file that says where it listens, which is locked as long as it runs;
            in memory the name of the socket by which it listens.
        folder: of the cache; None: bytes are kept in memory.
        limit: of the cache, in bytes.
        ahead: how many bytes are fetched ahead at most; None: as many as fit.
    """
    if folder is None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            listening.bind(f"\0{lock}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            send(first, {"is_other": True})  # another one has come first
            return
        listening.listen(_BACKLOG)
        await _serve(first, listening, _Server(None, limit, ahead))
        return
    fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        send(first, {"is_other": True})
        return
    try:
        listening, address = _listening(folder)
        said = {"address": address, "pid": os.getpid(), "limit": limit, "ahead": ahead}
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(said).encode(), 0)
        server = _Server(folder, limit, ahead)
    except OSError as error:  # of a disk that is full, or fails
        os.ftruncate(fd, 0)
        send(first, {"failure": f"{error.strerror}: {error.filename or lock}"})
        return
    try:
        await _serve(first, listening, server)
    finally:
        os.ftruncate(fd, 0)
        with contextlib.suppress(OSError):
            Path(folder, address).unlink()


async def _serve(first: socket.socket, listening: socket.socket, server: _Server) -> None:
    """Serve who comes, until nobody is there."""
    try:
        server.welcome(first)
        send(first, {"is_other": False})
        loop = asyncio.get_running_loop()
        loop.add_reader(listening, server.accept, listening)
        await server.ended.wait()
        loop.remove_reader(listening)
        await server.release_leases()
    finally:
        server.close()


def _listening(folder: str) -> tuple[socket.socket, str]:
    """Return a listening socket, and its name in the folder."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    for each in Path(folder).glob(f"{_SOCKET}*"):  # of earlier processes: this one has the lock
        each.unlink()
    found = f"{_SOCKET}{os.urandom(6).hex()}"
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listening.bind(f"/proc/self/fd/{place}/{found}")  # the folder's own path may be too long
    finally:
        os.close(place)
    listening.listen(_BACKLOG)
    return listening, found


class _Client:
    """A thread of a process that asks.

    Attributes:
        connection: to it.
        pid: of its process.
        sources: the stores that it reads, by their numbers, with the names of their roots, and the
            counts of who reads them.
        given: the counters of bytes that it has read, with the names by which they are counted.
        orders: the orders that it has told.
        reads: how often it has asked for samples.
        lease: that it has of a folder, which ends with the connection.
        writes: that it has begun, which end with the connection.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.pid = connection, process_of(connection)
        connection.setblocking(False)
        self.sources: list[tuple[str, Source, Counter[str]]] = []
        self.given: list[tuple[str, mmap.mmap]] = []
        self.orders: list[str] = []
        self.reads = 0
        self.lease: Lease | None = None
        self.writes: set[asyncio.Task[Any]] = set()

    async def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a message; one who does not read, such as a stopped process, holds nobody up."""
        while True:
            try:
                send(self.connection, message, fds)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ETOOMANYREFS):
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return


class _Server:
    """Who is there, and what is fetched for all of them."""

    def __init__(self, folder: str | None, limit: int, ahead: int | None) -> None:
        self.ended = asyncio.Event()
        self._id = os.urandom(8).hex()  # of all machines
        self._future = Future()
        self._kept = KeptBytes(folder, limit, self._future.distance)
        self._transfers = Transfers(self._kept, self._future, ahead)
        self._uploads = Uploads(self._transfers)
        self._leases: dict[str, Lease] = {}  # by the writers that have them
        self._releasing: set[asyncio.Task[None]] = set()
        self._clients: set[_Client] = set()
        self._stores: dict[str, ObjectStore] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._uses: dict[str, Counter[str]] = {}  # counts of those who read, by their names
        self._failures: Counter[str] = Counter()  # that were told, by kind

    def accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listening.accept()
            self.welcome(connection)

    def welcome(self, connection: socket.socket) -> None:
        """Take a client, if it is of this user."""
        if user_of(connection) != os.getuid():
            connection.close()
            return
        client = _Client(connection)
        self._clients.add(client)
        asyncio.get_running_loop().add_reader(connection, self._hear, client)

    def _hear(self, client: _Client) -> None:
        try:
            content, fds, _, _ = socket.recv_fds(
                client.connection, _MOST_PACKET, MOST_FDS + 1, socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return
        except OSError:
            content, fds = b"", []
        if not content:
            self._leave(client)
            return
        task = asyncio.get_running_loop().create_task(self._answer(client, content, fds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _leave(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.discard(client)
            asyncio.get_running_loop().remove_reader(client.connection)
            client.connection.close()
            told = {name for each in self._clients for name in each.orders}
            for name in set(client.orders) - told:
                self._future.forget(name)
            for use, given in client.given:
                self._uses[use]["given"] += COUNTER.unpack_from(given)[0]
                given.close()
            client.given.clear()
            for write in client.writes:
                write.cancel()
            self._release(client)
        if not self._clients:
            self.ended.set()

    def _release(self, client: _Client) -> None:
        """Give back the lease of a client, if it has one."""
        lease, client.lease = client.lease, None
        if lease is not None:
            self._leases = {name: each for name, each in self._leases.items() if each is not lease}
            task = asyncio.get_running_loop().create_task(lease.release())
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)

    async def release_leases(self) -> None:
        """Wait until the leases of who has left are given back; for a few seconds at most."""
        await asyncio.gather(*self._releasing, return_exceptions=True)

    async def _answer(self, client: _Client, content: bytes, fds: list[int]) -> None:
        try:
            message, fds = received(content, fds)
            what = message.pop("do")
            if what in ("put", "store") and len(fds) == 1:
                message["fd"] = fds.pop()
            for fd in fds:
                os.close(fd)
            answer: dict[str, Any]
            try:
                await getattr(self, f"_do_{what}")(client, **message)
                return
            except Failure as error:
                self._failures[error.kind] += 1
                answer = {"failure": error.kind, "told": error.told}
            except Exception as error:  # a fault of ours: the process goes on for the others
                answer = {"failure": "lasting", "told": f"the fetching process failed: {error!r}"}
            await client.send(answer)
        except (OSError, ValueError, TypeError):  # it has ended
            self._leave(client)

    async def _do_store(
        self, client: _Client, root: str, options: dict[str, Any], use: str, fd: int
    ) -> None:
        """Take a store that the client reads; the answer is its number.

        Args:
            client: who asks.
            root: of the store.
            options: of its client.
            use: the name by which what is read is counted.
            fd: of the memory in which the client counts the bytes that it has read.
        """
        with open(fd, "rb") as file:
            given = mmap.mmap(file.fileno(), COUNTER.size, access=mmap.ACCESS_READ)
        client.given.append((use, given))
        counts = self._uses.setdefault(use, Counter())
        options = dict(options)
        patience_s = float(options.pop("timeout", _PATIENCE_S))
        identity = json.dumps([root, options], sort_keys=True)
        store = self._stores.get(identity)
        if store is None:
            store = self._stores[identity] = ObjectStore(root, options)
        name = f"{root} {options.get('endpoint', '')} {options.get('profile', '')}".strip()
        client.sources.append((name, Source(store, patience_s), counts))
        await client.send({"store": len(client.sources) - 1})

    async def _do_read(
        self, client: _Client, store: int, objects: list[Any], parts: list[Any], is_near: bool
    ) -> None:
        """Answer with the pieces that have some bytes, and their descriptors.

        Args:
            client: who asks.
            store: that has the objects.
            objects: key, bytes or -1, and the version's number or 0, of each.
            parts: object, begin and end or -1 of each.
            is_near: whether bytes beside these will be wanted.
        """
        began, counts = time.monotonic(), Counter[str]()
        name, source, total = client.sources[store]
        known = []
        for key, nbytes, number in objects:
            with _naming(key):
                known.append(await self._transfers.known(name, key, source, nbytes, number))

        about = is_near, client.reads, client.pid
        client.reads += not is_near

        async def found_of(number: int, begin: int, end: int) -> Any:
            with _naming(known[number].key):
                wanted = Wanted(known[number], begin, end, *about)
                return await self._transfers.pieces(wanted, counts)

        found = await asyncio.gather(*(found_of(*part) for part in parts), return_exceptions=True)
        failures = [each for each in found if isinstance(each, BaseException)]
        pieces = [piece for each in found if not isinstance(each, BaseException) for piece in each]
        if failures or counts["missed"]:
            counts["waits"], counts["wait_us"] = 1, int((time.monotonic() - began) * 1e6)
        total.update(counts)
        try:
            if failures:
                raise failures[0]
            await self._give(client, known, list(dict.fromkeys(pieces)))
            if not is_near and client.reads > 1:
                self._transfers.go_ahead()
        finally:
            self._transfers.release(pieces)

    async def _give(self, client: _Client, known: list[KeptObject], pieces: list[Piece]) -> None:
        """Answer with pieces of objects and their descriptors; small ones have one for all."""
        places = {of: number for number, of in enumerate(known)}

        def places_of(some: list[Piece]) -> list[list[int]]:
            ends = (each.end if each.done is None else each.here for each in some)
            return [[places[each.of], each.begin, end] for each, end in zip(some, ends)]

        kept = [each for each in pieces if each.content is None]
        small = [each for each in pieces if each.content is not None]
        answer: dict[str, Any] = {
            "objects": [[of.nbytes, of.version] for of in known],
            "is_short": self._kept.is_short,
            "small": [],
            "is_last": False,
        }
        last = max(0, len(kept) - 1) // _MOST_GIVEN * _MOST_GIVEN
        for first in range(0, last, _MOST_GIVEN):
            part = kept[first : first + _MOST_GIVEN]
            answer["pieces"] = places_of(part)
            await client.send(answer, [piece.open() for piece in part])
        answer |= {"pieces": places_of(kept[last:]), "small": places_of(small), "is_last": True}
        with contextlib.ExitStack() as closed:
            fds = [piece.open() for piece in kept[last:]]
            if small:
                fds.append(os.memfd_create("reader-pieces", os.MFD_CLOEXEC))
                closed.callback(os.close, fds[-1])
                with open(fds[-1], "wb", closefd=False) as file:
                    file.writelines(each.content for each in small if each.content is not None)
            await client.send(answer, fds)

    async def _do_again(
        self, client: _Client, store: int, objects: list[Any], parts: list[Any]
    ) -> None:
        """Let pieces go that have some bytes, which were found to be damaged.

        Args:
            client: who found it.
            store: as for `_do_read`.
            objects: likewise.
            parts: likewise; those that are on their way are fetched anew already.
        """
        known = [self._kept.of(client.sources[store][0], key) for key, *_ in objects]
        for number, begin, end in parts:
            for piece in list(known[number].pieces):
                is_beside = piece.end <= begin or (0 <= end <= piece.begin)
                if piece.done is None and not is_beside:
                    self._kept.forget(piece)
                    self._transfers.counts["damaged"] += 1
        await client.send({})

    async def _do_meta(self, client: _Client, store: int, objects: list[str]) -> None:
        """Answer with bytes and the version's number of objects; None: of missing ones."""
        name, source, _ = client.sources[store]

        async def meta(key: str) -> Any:
            try:
                with _naming(key):
                    found = await self._transfers.meta(self._kept.of(name, key), source)
                    return [found.nbytes, number_of(found.version)]
            except Failure as error:
                if error.kind != "missing":
                    raise
                return None

        found = await asyncio.gather(*map(meta, objects))
        await client.send({"objects": found})

    async def _do_probe(self, client: _Client, store: int, place: str) -> None:
        """Answer with how soon and how fast a store answers: see `probe`."""
        await client.send(await probe(client.sources[store][1].store, place))

    async def _do_list(self, client: _Client, store: int, prefix: str, most: int = 0) -> None:
        """Answer with key, bytes and the version's number of all objects below a prefix.

        With `most`, of the first ones, if the store gives them: nobody needs them.
        """
        source = client.sources[store][1]
        found: list[Any] = []
        if most:
            self._transfers.counts["requests"] += 1
            with contextlib.suppress(Failure, asyncio.TimeoutError):
                found = await asyncio.wait_for(source.store.listed(prefix, most), _SOON_S)
        else:
            with _naming(prefix):
                found = await self._transfers.tried(source, lambda: source.store.listed(prefix))
        await client.send({"objects": found})

    async def _do_lease(
        self, client: _Client, store: int, key: str, owner: dict[str, Any], patience_s: float
    ) -> None:
        """Take the lease of a folder. See `Lease`.

        Args:
            client: who will have it, until its connection closes or it gives the lease back.
            store: of the folder.
            key: of the object that the lease is.
            owner: who it is.
            patience_s: how long to wait for another writer that may have ended.
        """
        lease = client.lease = Lease(self._transfers, client.sources[store][1], key, owner)
        try:
            with _naming(key):
                await lease.take(patience_s)
        except Failure:
            client.lease = None
            raise
        self._leases[owner["id"]] = lease
        await client.send({"is_guarded": lease.is_guarded, "taken_over": lease.taken_over})

    async def _do_release(self, client: _Client, store: int) -> None:  # noqa: ARG002
        """Give back the lease that the client has."""
        self._release(client)
        await self.release_leases()
        await client.send({})

    async def _do_put(
        self, client: _Client, store: int, key: str, nbytes: int, owner: str, fd: int
    ) -> None:
        """Write an object; answer with the number of its version.

        Args:
            client: who asks.
            store: that will have it.
            key: of it.
            nbytes: of its content.
            owner: the "id" of who has the folder's lease.
            fd: of the file with the content.
        """
        content = content_of(fd, nbytes)
        with _naming(key):
            self._check_lease(owner)
            put = self._uploads.put(client.sources[store][1], key, content)
            meta = await self._while_there(client, put)
            self._check_lease(owner)
        await client.send({"version": number_of(meta.version)})

    async def _while_there(self, client: _Client, doing: Coroutine[Any, Any, _T]) -> _T:
        """Return what a write gives, which ends with the client's connection."""
        task = asyncio.create_task(doing)
        client.writes.add(task)
        try:
            return await task
        finally:
            client.writes.discard(task)

    def _check_lease(self, owner: str) -> None:
        lease = self._leases.get(owner)
        if lease is None:  # this process has taken the place of one that was killed
            raise Failure("no lease", "its lock was taken by another process")
        if lease.is_lost:
            raise Failure("lost", "another writer has its lock")

    async def _do_order(
        self,
        client: _Client,
        store: int,
        name: str,
        objects: list[Any],
        groups: list[list[int]],
        then: list[list[int]],
        begins: bool,
    ) -> None:
        """Take the order in which objects will be read.

        Args:
            client: who tells it.
            store: as for `_do_read`.
            name: of the set, its order and epoch.
            objects: as for `_do_read`.
            groups: of this epoch, by the objects' numbers.
            then: likewise of the next one.
            begins: whether an epoch begins with it; else it takes the place of what was told.
        """
        known: list[KeptObject] = []
        root, source, _ = client.sources[store]
        for key, nbytes, number in objects:
            of = self._kept.of(root, key)
            self._transfers.expect(of, source, nbytes, number)
            known.append(of)
        for each in set(client.orders) - {name}:
            self._future.forget(each)
        client.orders = [name]
        is_new = self._future.tell(
            name,
            [[known[number] for number in group] for group in groups],
            [[known[number] for number in group] for group in then],
        )
        if is_new and begins:
            self._transfers.begin_epoch()
        elif is_new:
            self._transfers.moved()
        await client.send({})

    async def _do_stats(self, client: _Client, uses: list[str] | None = None) -> None:
        """Answer with what was fetched and kept: see `Shards.fetch_stats`.

        Args:
            client: who asks.
            uses: the names of those whose reads are counted; None: of all.
        """
        wanted = self._uses if uses is None else uses
        sums = sum((self._uses.get(name, Counter()) for name in wanted), Counter[str]())
        for each in self._clients:
            sums["given"] += sum(
                COUNTER.unpack_from(of)[0] for use, of in each.given if use in wanted
            )
        answer: dict[str, Any] = {
            **{name: self._transfers.counts[name] for name in _COUNTS},
            "transfer_s": self._transfers.running_s(),
            "given": sums["given"],
            "hits": max(0, sums["given"] - sums["missed"]),
            "waits": sums["waits"],
            "wait_s": sums["wait_us"] * 1e-6,
            "errors": dict(self._failures),
            "ahead": self._kept.ahead_nbytes,
            **{name: getattr(self._kept, name) for name in ("nbytes", "limit", "evicted")},
            "id": self._id,
            "pid": os.getpid(),
            "users": sorted({process_of(each.connection) for each in self._clients} - {0}),
        }
        answer["kept"] = answer.pop("nbytes")
        await client.send(answer)

    def close(self) -> None:
        for client in list(self._clients):
            client.connection.close()
        self._kept.close()


@contextlib.contextmanager
def _naming(key: str) -> Any:
    """Name the object that a failure is about."""
    try:
        yield
    except Failure as error:
        raise Failure(error.kind, f"'{key}': {error.told}") from None
