"""What is kept of objects, and which of it goes first; addresses, and messages."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reader import ConfigError, ConfigTypeError, ShardCache, Shards
from reader.stores.fetcher.future import UNKNOWN, Future
from reader.stores.fetcher.kept_bytes import KeptBytes, KeptObject, Piece
from reader.stores.fetcher.object_store import failure_of, number_of
from reader.stores.fetcher.transfers import Transfers
from reader.stores.messages import receive, send
from reader.stores.urls import is_url, local_path, split_url

# -- what is read next ------------------------------------------------------------------------


def test_a_distance_is_in_groups_and_goes_on_into_the_next_epoch() -> None:
    future = Future()
    assert future.distance("a") == UNKNOWN
    assert future.tell("epoch 0", [["a", "b"], ["c"], ["d"]], [["d"], ["a", "b", "c"]])
    assert not future.tell("epoch 0", [["a"]], [])  # as another rank tells it
    assert [future.distance(each) for each in "abcd"] == [0, 0, 1, 2]
    assert future.touched("c")
    assert not future.touched("c")
    # the group before counts as the one that is read: others may be slower
    assert [future.distance(each) for each in "abcd"] == [0, 0, 0, 1]
    assert list(future.ahead())[:3] == ["c", "d", "d"]
    assert not future.touched("a")
    assert future.touched("d")
    assert [future.distance(each) for each in "abcd"] == [2, 2, 0, 0]
    assert future.touched("a")  # as after a seek
    assert [future.distance(each) for each in "abcd"] == [0, 0, 1, 2]
    future.forget("epoch 0")
    assert future.distance("c") == UNKNOWN


# -- what is kept -----------------------------------------------------------------------------


@pytest.fixture
def opened() -> Iterator[Callable[..., KeptBytes]]:
    """Make the bytes that are kept, which are closed after the test."""
    made: list[KeptBytes] = []

    def make(folder: Path | None, limit: int, distance: Any = lambda _: UNKNOWN) -> KeptBytes:
        made.append(KeptBytes(None if folder is None else str(folder), limit, distance))
        return made[-1]

    yield make
    for each in made:
        each.close()


def filled(kept: KeptBytes, of: KeptObject, begin: int, end: int) -> Piece:
    piece = kept.new(of, begin, end)
    os.pwrite(piece.fd, bytes(range(256))[begin:end], 0)
    piece.here = end
    return piece


def test_what_is_read_last_goes_first(opened: Any) -> None:
    distances = {"near": 1, "far": 9, "later": 5}
    kept = opened(None, 40, lambda of: distances[of.key])
    pieces = {key: filled(kept, kept.of("s3://b", key), 0, 10) for key in distances}
    for piece in pieces.values():
        kept.use(piece)
    assert kept.nbytes == 30
    assert not kept.make_room(10, 9)  # nothing is read later than that
    assert kept.make_room(10, 6)  # a quarter is left for what somebody will wait for
    assert kept.of("s3://b", "far").pieces == []
    assert kept.make_room(20, 2)
    assert kept.of("s3://b", "later").pieces == []
    assert kept.of("s3://b", "near").pieces == [pieces["near"]]
    assert (kept.nbytes, kept.evicted) == (10, 20)
    assert not kept.make_room(30, 1)
    pieces["near"].users = 1
    assert not kept.make_room(40, -1)  # somebody waits for it


def test_of_equals_the_one_goes_of_which_all_was_handed_out(opened: Any) -> None:
    kept = opened(None, 20, lambda _: 0)
    first, second = (filled(kept, kept.of("s3://b", key), 0, 10) for key in "ab")
    kept.use(first)
    kept.use(second)
    first.given = 10
    assert kept.make_room(10, -1)
    assert not first.of.pieces
    assert second.of.pieces


def test_who_has_the_descriptor_keeps_the_bytes(opened: Any) -> None:
    kept = opened(None, 10, lambda _: 0)
    piece = filled(kept, kept.of("s3://b", "a"), 0, 10)
    mine = os.dup(piece.open())
    kept.drop(piece)
    assert os.pread(mine, 10, 0) == bytes(range(10))
    os.close(mine)


def test_pieces_do_not_lie_over_one_another(opened: Any) -> None:
    kept = opened(None, 1000, lambda _: 0)
    of = kept.of("s3://b", "a")
    for begin, end in [(10, 20), (40, 60), (0, 5)]:
        filled(kept, of, begin, end)
    assert [(piece.begin, piece.end) for piece in of.pieces] == [(0, 5), (10, 20), (40, 60)]
    assert of.gap_at(25, 0, 100) == (20, 40)
    assert of.gap_at(70, 0, 100) == (60, 100)
    assert of.gap_at(7, 6, 100) == (6, 10)
    assert of.piece_at(19) is of.pieces[1]
    assert of.piece_at(20) is None


def write_pieces(folder: Path) -> None:
    kept = KeptBytes(str(folder), 1000, lambda _: UNKNOWN)
    of = kept.of("s3://b", "a")
    of.nbytes, of.version = 100, '"v1"'
    for begin, end in [(0, 10), (20, 40)]:
        piece = filled(kept, of, begin, end)
        piece.sum = zlib.crc32(bytes(range(256))[begin:end])
        kept.keep(piece)
    kept.close()


def test_the_next_process_finds_what_a_folder_keeps(opened: Any, tmp_path: Path) -> None:
    write_pieces(tmp_path)
    kept = opened(tmp_path, 1000)
    of = kept.of("s3://b", "a")
    assert (of.nbytes, of.version, of.is_known, kept.nbytes) == (100, '"v1"', False, 30)
    assert [(piece.begin, piece.end) for piece in of.pieces] == [(0, 10), (20, 40)]
    assert all(map(kept.is_sound, of.pieces))
    assert os.pread(of.pieces[1].open(), 20, 0) == bytes(range(20, 40))


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "unlisted", "torn", "link", "forged"])
def test_what_is_damaged_in_a_folder_is_not_believed(
    damage: str, opened: Any, tmp_path: Path
) -> None:
    write_pieces(tmp_path)
    pieces = sorted(tmp_path.glob("*.piece"), key=lambda path: path.stat().st_size)
    log = tmp_path / "pieces.jsonl"
    if damage == "flip":
        pieces[1].write_bytes(b"?" * 20)
    elif damage == "cut":
        pieces[1].write_bytes(bytes(19))
    elif damage == "gone":
        pieces[1].unlink()
    elif damage == "unlisted":
        log.write_text(log.read_text().split("\n")[0] + "\n")
    elif damage == "torn":
        log.write_text(log.read_text()[:-30])
    elif damage == "link":
        pieces[1].unlink()
        pieces[1].symlink_to("/etc/passwd")
    else:
        line = log.read_text().split("\n")[1]
        log.write_text(line.replace(pieces[1].name, "../../../etc/passwd") + "\n[]\n{}\nnull\n")
    kept = opened(tmp_path, 1000)
    pieces_now = kept.of("s3://b", "a").pieces
    sound = [(piece.begin, piece.end) for piece in pieces_now if kept.is_sound(piece)]
    assert sound == ([] if damage == "forged" else [(0, 10)])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 1 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this system mounts no file system for tests")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_piece_goes_for_another_where_the_disk_is_full(small_disk: Path, opened: Any) -> None:
    kept = opened(small_disk, 1 << 30)
    objects = [kept.of("s3://b", key) for key in "abc"]
    for of in objects:
        piece = kept.new(of, 0, 400_000)
        assert piece.path
        piece.here = piece.end
        kept.use(piece)
    assert [len(of.pieces) for of in objects] == [1, 0, 1]  # what was used last goes first
    assert (kept.is_short, kept.limit, kept.evicted) == (True, 64 << 20, 400_000)
    held = os.dup(objects[0].pieces[0].open())
    for piece in (objects[0].pieces[0], objects[2].pieces[0]):
        piece.users = 1
    assert kept.new_ahead(objects[1], 0, 400_000, 3) is None  # nothing may go for it
    in_memory = kept.new(objects[1], 0, 400_000)
    assert not in_memory.path
    assert os.pwrite(in_memory.fd, b"x", 399_999) == 1
    kept.begin_epoch()
    assert kept.limit == 1 << 30
    os.close(held)


def test_a_piece_whose_disk_fills_while_it_comes_goes_on_in_memory(
    small_disk: Path, opened: Any
) -> None:
    kept = opened(small_disk, 1 << 30)
    transfers = Transfers(kept, Future())
    piece = kept.new(kept.of("s3://b", "a"), 0, 600_000)
    transfers._write(piece, b"a" * 300_000, 0)
    os.ftruncate(piece.fd, 300_000)  # as if the file system had not kept room for it
    (small_disk / "other").write_bytes(bytes(700_000))
    transfers._write(piece, b"b" * 300_000, 300_000)
    assert os.pread(piece.fd, 600_000, 0) == b"a" * 300_000 + b"b" * 300_000
    assert not piece.path
    assert kept.is_short
    kept.keep(piece)  # which no list has
    (small_disk / "other").unlink()
    assert (small_disk / "pieces.jsonl").read_text() == ""


def test_a_list_that_cannot_be_written_is_left(small_disk: Path, opened: Any) -> None:
    write_pieces(small_disk)
    before = (small_disk / "pieces.jsonl").read_text()
    with contextlib.suppress(OSError), (small_disk / "other").open("wb", 0) as file:
        while True:
            file.write(bytes(4096))
    kept = opened(small_disk, 1 << 30)
    assert kept.nbytes == 30
    kept.keep(kept.of("s3://b", "a").pieces[0])
    assert (small_disk / "pieces.jsonl").read_text() == before
    assert {path.suffix for path in small_disk.iterdir()} == {".piece", ".jsonl", ""}


def test_what_has_no_disk_takes_some_memory_alone(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reader.stores.fetcher.kept_bytes._MOST_SPARE", 25)
    folder = tmp_path / "cache"
    folder.mkdir()
    kept = opened(folder, 1 << 30)
    folder.rename(tmp_path / "gone")
    of = kept.of("s3://b", "a")
    for begin in range(0, 50, 10):
        assert not filled(kept, of, begin, begin + 10).path
    assert [piece.begin for piece in of.pieces] == [30, 40]
    assert kept.nbytes == 20


# -- addresses, messages, errors --------------------------------------------------------------


def test_addresses_name_a_store_and_a_key() -> None:
    assert split_url("s3://bucket/a/b.tar") == ("s3://bucket", "a/b.tar")
    assert split_url("S3A://bucket") == ("s3://bucket", "")
    assert split_url("https://host:80/a%20b") == ("https://host:80", "a%20b")
    assert [is_url(each) for each in ("gs://b/x", "/a://b", "file:///x", "x.tar", None)] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert local_path("file:///a/b") == "/a/b"
    for url, told in [
        ("s3:///key", "names no bucket"),
        ("https://user:pass@host/x", "has a query or a password"),
        ("https://host/x?signature=abc", "has a query or a password"),
    ]:
        with pytest.raises(ConfigError, match=told) as error:
            split_url(url)
        assert "pass@" not in str(error.value)
        assert "abc" not in str(error.value)


def test_messages_of_any_length_arrive_with_their_descriptors() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine = os.memfd_create("mine")
    os.write(mine, b"bytes")
    for content in ("", "x" * 1000, "é" * 1_000_000):
        send(one, {"content": content}, [mine])
        message, fds = receive(other)
        assert message == {"content": content}
        assert [os.pread(fd, 5, 0) for fd in fds] == [b"bytes"]
        os.close(fds[0])
    one.close()
    with other, pytest.raises(EOFError):
        receive(other)
    os.close(mine)


def test_errors_of_stores_have_no_address_in_them() -> None:
    told = (
        "Error performing GET https://a.blob/x?sig=SECRET in 4ms - Server returned non-2xx status"
        " code: 403 Forbidden: <Error><Code>AuthFailed</Code><Message>no</Message></Error>"
    )
    found = failure_of(Exception(told))
    assert (found.kind, found.told) == ("refused", "403 AuthFailed no")
    found = failure_of(Exception("HTTP error: https://a.blob/x?sig=SECRET refused"))
    assert (found.kind, "SECRET" in found.told) == ("later", False)
    kinds = {
        404: "missing",
        412: "changed",
        416: "range",
        429: "later",
        503: "later",
        400: "lasting",
    }
    assert {n: failure_of(Exception(f"status code: {n} x")).kind for n in kinds} == kinds
    assert 0 < number_of('"etag"') < 1 << 62


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (
            "HTTP error: error sending request Debug source: InvalidCertificate(\n UnknownIssuer,",
            "certificate",
            "(UnknownIssuer)",
        ),
        (
            "Error performing PUT http://169.254.169.254/latest/api/token - status code: 403",
            "no credentials",
            "no role gives them: 403",
        ),
        (
            'HTTP error: error sending request Debug source: message: "Connection refused" SECRET',
            "later",
            "error sending request (Connection refused)",
        ),
        ("status code: 400: <Error><Code>ExpiredToken</Code>", "expired", "400 ExpiredToken"),
        (
            "status code: 301: <Error><Code>PermanentRedirect</Code>",
            "region",
            "301 PermanentRedirect",
        ),
        ("status code: 404: <Error><Code>NoSuchBucket</Code>", "no bucket", "404 NoSuchBucket"),
    ],
)
def test_errors_of_stores_have_kinds(text: str, kind: str, told: str) -> None:
    found = failure_of(Exception(text))
    assert found.kind == kind
    assert found.told.endswith(told)
    assert "SECRET" not in found.told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"limit": "1MB"}, "limit must be 64 MiB or more"),
        ({"limit": "much"}, "limit must be a number of bytes"),
        ({"limit": "1GB", "ahead": "2GB"}, "ahead must be at most limit=1000000000, got '2GB'"),
        ({"ahead": "far"}, "ahead must be a number of bytes, got 'far'"),
        ({"ahead": -1}, "ahead must be"),
        ({"path": "s3://bucket"}, "path must be the path of a file or folder"),
        ({"path": ""}, "path must be the path of a folder"),
    ],
)
def test_a_cache_that_cannot_be_is_refused(options: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ShardCache(**options)


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / f"user-{os.getuid()}"
    mine.mkdir()
    mine.chmod(0o777)
    with pytest.raises(ConfigError, match="every user may write to it"):
        ShardCache(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        ShardCache(tmp_path / "file")


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"'s3://bucket/x' needs obstore.*lodreader\[remote\]"):
        Shards(["/data/x", "s3://bucket/x"])


def test_options_of_stores_are_refused_for_files_of_this_machine(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cache= is for what lies in a store"):
        Shards(tmp_path, cache=ShardCache())
    with pytest.raises(ConfigError, match="store= is for what lies in a store"):
        Shards(tmp_path, store={"region": "x"})
    with pytest.raises(ConfigTypeError, match=r"cache must be a reader.ShardCache"):
        Shards("s3://bucket/x", cache=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ConfigTypeError, match="store must be a dict of options"):
        Shards("s3://bucket/x", store="eu-west-1")  # type: ignore[arg-type]
