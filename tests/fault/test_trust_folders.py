"""Folders, files and locks that others may touch: planted links and pipes, other users, held locks.

The attacks are real: links, modes, processes of another user, and processes that hold a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader import ConfigError, RecordIO, RecordWriter, TableRows, cache
from tests.processes import Program, wait_until

NOBODY = 65534
TEAM = 54321  # a group without a name
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


class Squares(reader.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return np.full(4, index * index, np.int64)


def fill(folder: Path, **options: Any) -> Any:
    cached = cache(Squares(), disk=folder, **options)
    read_all(cached)
    return cached


def read_all(cached: Any) -> None:
    for index in range(8):
        assert cached[index].tolist() == [index * index] * 4


def as_user(user: int, function: Callable[[], Any], group: int | None = None) -> Any:
    """Call a function in a child that is another user's; return what it returns, or raise it."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                os.setgroups([])
                os.setgid(user if group is None else group)
                os.setuid(user)
                found = True, function()
            except BaseException as error:
                found = False, error
            with open(theirs, "wb") as file:
                file.write(pickle.dumps(found))
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as file:
        content = file.read()
    os.waitpid(pid, 0)
    is_fine, found = pickle.loads(content)
    if not is_fine:
        raise found
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter."""
    path = Path(tempfile.mkdtemp(prefix="trust-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- whose folder it is --------------------------------------------------------------------------


def test_a_new_folder_belongs_to_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        fill(tmp_path / "above" / "cache")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "above" / "cache") == 0o700
    assert {mode_of(path) for path in (tmp_path / "above" / "cache").iterdir()} == {0o600}


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757, 0o2777])
def test_a_folder_that_every_user_may_write_to_is_refused_with_a_remedy(
    place: Path, mode: int
) -> None:
    folder = place / "shared"
    folder.mkdir()
    folder.chmod(mode)
    said = rf"disk='{folder}' is refused: every user may write to it \(its mode is {mode:04o}\)"
    with pytest.raises(ConfigError, match=said) as caught:
        cache(Squares(), disk=folder)
    assert f"Pass a folder in it, such as '{folder}/mine'" in str(caught.value)
    assert list(folder.iterdir()) == []
    fill(folder / "mine")
    assert mode_of(folder / "mine") & 0o777 == 0o700
    fill(folder / "mine")  # it is taken again
    folder.chmod(0o755)  # the other remedy
    fill(folder)


@needs_root
def test_a_folder_of_a_group_is_used_if_its_mode_allows(place: Path) -> None:
    folder = place / "team"
    folder.mkdir()
    os.chown(folder, -1, TEAM)
    folder.chmod(0o775)
    with pytest.raises(ConfigError, match=rf"all of the group {TEAM} may write to it \(its mode"):
        cache(Squares(), disk=folder)
    folder.chmod(0o2775)  # chmod g+s
    before = os.umask(0o077)
    try:
        fill(folder)
    finally:
        os.umask(before)
    assert {mode_of(path) for path in folder.iterdir()} == {0o660}

    def use() -> int:
        return int(fill(folder)._cache.stats()["hits"])

    assert as_user(NOBODY, use, group=TEAM) == 8
    with pytest.raises(ConfigError, match=r"cannot hold a cache: .*Permission denied"):
        as_user(NOBODY, use)


@needs_root
def test_a_users_own_group_may_write_as_with_a_umask_of_002(place: Path) -> None:
    folder = place / "own"
    folder.mkdir()
    folder.chmod(0o775)
    fill(folder)  # root, of the group root
    other = place / "other"
    other.mkdir()
    os.chown(other, TEAM, TEAM)  # a user with a number alone, as in a container
    other.chmod(0o775)
    assert as_user(TEAM, lambda: len(fill(other))) == 8


@needs_root
def test_root_may_use_the_folder_of_a_user(place: Path) -> None:
    folder = place / "theirs"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    fill(folder)


@needs_root
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_folder_that_another_user_made_where_all_may_is_refused(place: Path, kind: str) -> None:
    place.chmod(0o1777)
    private = place / "private"
    private.mkdir(0o700)
    named = place / "cache"

    def squat() -> None:
        named.mkdir(0o755) if kind == "folder" else named.symlink_to(private)

    as_user(NOBODY, squat)
    with pytest.raises(
        ConfigError, match=r"refused: user .*\(?65534\)? made it, in a folder where"
    ):
        cache(Squares(), disk=named)
    assert list(private.iterdir()) == []


def test_a_file_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "samples.cache").chmod(0o666)
    with pytest.raises(ConfigError, match=r"refused: others may write .*0666\). Remove it, and it"):
        cache(Squares(), disk=tmp_path)
    (tmp_path / "samples.cache").unlink()
    fill(tmp_path)


def test_a_file_system_without_modes_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reader.files import PrivateFolder

    tmp_path.chmod(0o777)
    real = os.open

    def without_modes(path: Any, flags: int, mode: int = 0o777, **given: Any) -> int:
        fd = real(path, flags, mode, **given)
        if flags & os.O_CREAT:
            os.fchmod(fd, 0o777)
        return fd

    monkeypatch.setattr(os, "open", without_modes)
    with (
        pytest.warns(UserWarning, match="is on a file system without modes, which do not say"),
        PrivateFolder(str(tmp_path), "disk") as folder,
    ):
        os.close(folder.open("file", os.O_RDWR | os.O_CREAT))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@needs_root
def test_tables_of_a_read_only_folder_are_used(place: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    pq.write_table(pa.table({"x": list(range(100))}), place / "t.parquet")
    folder = place / "tables"
    folder.mkdir(0o755)
    TableRows(place / "t.parquet", disk=folder)
    assert as_user(NOBODY, lambda: int(TableRows(place / "t.parquet", disk=folder)[7]["x"])) == 7
    with pytest.raises(ConfigError, match=r"cannot be written: .*Permission denied.*name a folder"):
        as_user(
            NOBODY, lambda: TableRows(place / "t.parquet", as_dtype={"x": "int32"}, disk=folder)
        )


# -- what was planted ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["samples.draft", "samples.cache", "lock"])
def test_a_planted_link_harms_no_file(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious" * 1000)
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / name).symlink_to(precious)
    if name == "samples.draft":
        fill(folder)
    else:
        with pytest.raises(ConfigError, match=rf"cannot hold a cache: .*it is a link: .*{name}"):
            cache(Squares(), disk=folder)
    assert precious.read_bytes() == b"precious" * 1000


@pytest.mark.parametrize("name", ["samples.cache", "lock"])
def test_a_pipe_in_a_folder_is_not_used_as_a_file(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ConfigError, match="it is a pipe, and no regular file"):
        cache(Squares(), disk=tmp_path)


def test_records_are_written_beside_a_planted_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in ("a.rec", "a.idx"):
        (tmp_path / f"{name}.{os.getpid()}.part").symlink_to(precious)
    with RecordWriter(tmp_path / "a.rec") as file:
        file.write(b"one")
    assert list(RecordIO(tmp_path / "a.rec")) == [b"one"]
    assert precious.read_text() == "precious"


def test_a_pipe_beside_a_table_is_not_used_as_one(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    pq.write_table(pa.table({"x": list(range(100))}), tmp_path / "t.parquet")
    folder = tmp_path / "tables"
    TableRows(tmp_path / "t.parquet", disk=folder)
    for path in [*folder.glob("*.json"), *folder.glob("*.rows")]:
        path.unlink()
        os.mkfifo(path)
        assert TableRows(tmp_path / "t.parquet", disk=folder)[7]["x"] == 7


def test_the_header_of_a_table_is_not_trusted(tmp_path: Path) -> None:
    """With an object type its bytes would be used as addresses."""
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    pq.write_table(pa.table({"x": list(range(100)), "s": ["a"] * 100}), tmp_path / "t.parquet")
    program = (
        "import sys, reader\n"
        "rows = reader.TableRows(sys.argv[1], disk=sys.argv[2])\n"
        "print(rows[7]['x'], rows[7]['s'])\n"
    )
    folder = tmp_path / "tables"
    for field, value in (
        (2, '"O"'),
        (2, '"V8"'),
        (4, "8000000"),
        (4, "-8"),
        (5, str(1 << 61)),
        (3, "[1000000]"),
        (1, '"pickle"'),
    ):
        TableRows(tmp_path / "t.parquet", disk=folder)
        forge(folder, field, value)
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "t.parquet"), str(folder)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "7 a\n"), (field, value, done.stderr)


def forge(folder: Path, field: int, value: str) -> None:
    """Change the values in a table's files, in both places and with the right checksums."""
    import json

    (text,), (rows,) = folder.glob("*.json"), folder.glob("*.rows")
    told = json.loads(text.read_text())
    nbytes = told["form"][2]
    told["form"][1][0][field] = json.loads(value)
    content = json.dumps(told, indent=1).encode()
    text.write_bytes(content)
    with rows.open("r+b") as file:
        file.truncate(nbytes)
        file.seek(nbytes)
        file.write(content)
    second = told["changed_ns"]
    os.utime(rows, ns=(second, second))


def test_the_claimed_length_of_an_entry_is_not_trusted(tmp_path: Path) -> None:
    """Nor one of a file with holes: 50 GiB are not asked for."""
    program = """
        import resource, sys
        from tests.fault.test_trust_folders import fill
        resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
        print(fill(sys.argv[1])._cache.stats()["damaged"])
    """
    folder = tmp_path / "cache"
    fill(folder)
    path = folder / "samples.cache"
    content = path.read_bytes()
    head = struct.Struct("<QQQQQQ")
    magic = struct.pack("<Q", 0x4C4F444341434845)
    at = content.index(magic)
    number, tag, form, _, total = head.unpack_from(content, at)[1:]
    with path.open("r+b") as file:
        file.seek(at)
        file.write(head.pack(head.unpack_from(content, at)[0], number, tag, form, 50 << 30, total))
        file.truncate(60 << 30)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_a_head_of_lists_within_lists_is_damage(tmp_path: Path) -> None:
    fill(tmp_path)
    path = tmp_path / "samples.cache"
    with path.open("r+b") as file:
        file.write(b"[" * 4096)
    with pytest.raises(ConfigError, match="is no cache, or damaged"):
        cache(Squares(), disk=tmp_path)


# -- locks ---------------------------------------------------------------------------------------

HOLDER = """
    import fcntl, os, sys
    fd = os.open(sys.argv[1], os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
    fcntl.flock(fd, fcntl.LOCK_UN)
"""


@contextlib.contextmanager
def held(path: Path, user: int | None = None) -> Iterator[int]:
    """Hold the lock of a file in another process."""
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=user,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder.pid
        holder.communicate("")


def make_table(folder: Path) -> TableRows:
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    path = folder.parent / "t.parquet"
    pq.write_table(pa.table({"x": list(range(100))}), path)
    return TableRows(path, disk=folder)


@pytest.mark.parametrize("kind", ["cache", "tables"])
def test_a_lock_held_too_long_is_reported_with_its_holder(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reader.caching import disk_tier
    from reader.formats import table_folder

    monkeypatch.setattr(disk_tier, "_PATIENCE_S", 0.3)
    monkeypatch.setattr(table_folder, "_PATIENCE_S", 0.3)
    make: Any = fill if kind == "cache" else make_table
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "lock").touch(0o600)
    with held(folder / "lock") as pid:
        said = rf"disk='{folder}' cannot be used: process {pid} \(.*python.*\) of user .* holds the"
        with pytest.raises(ConfigError, match=rf"{said} lock for 0 s now, on 'lock' there"):
            make(folder)
    make(folder)


@pytest.mark.parametrize("kind", ["cache", "tables"])
def test_nobody_else_can_lock_a_folder(tmp_path: Path, kind: str) -> None:
    """A folder may be locked by all that may read it; what is locked is a file in it."""
    make: Any = fill if kind == "cache" else make_table
    folder = tmp_path / "kept"
    make(folder)
    shutil.rmtree(folder)
    folder.mkdir()
    with held(folder):
        make(folder)
    assert mode_of(folder / "lock") == 0o600


def test_a_working_holder_is_waited_for(tmp_path: Path) -> None:
    """However long it takes: its file grows."""
    from reader.files import locked

    path = tmp_path / "lock"
    path.touch()
    ours, theirs = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    fcntl.flock(theirs, fcntl.LOCK_EX)
    looks = []

    def progress() -> int:
        looks.append(time.monotonic())
        if len(looks) == 6:
            fcntl.flock(theirs, fcntl.LOCK_UN)
        return len(looks)

    with locked(ours, 0.2, progress) as is_held:
        assert is_held
    assert looks[-1] - looks[0] >= 0.2  # longer than it waits for one that does nothing
    os.close(ours)
    os.close(theirs)


def test_a_holder_that_ended_is_reported_as_invisible(tmp_path: Path) -> None:
    from reader.files import locked

    path = tmp_path / "lock"
    path.touch()
    program = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "if os.fork():\n"
        "    os._exit(0)\n"
        "sys.stdin.read()\n"  # the child keeps the lock of its parent
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.wait(30) == 0
    fd = os.open(path, os.O_RDWR)
    with (
        pytest.raises(TimeoutError, match="a process that cannot be seen from here"),
        locked(fd, 0),
    ):
        pass
    holder.stdin.close()
    with locked(fd, 30):
        pass
    os.close(fd)


MAKER = """
    import os, sys
    import reader
    from tests.fault.test_trust_folders import Squares, read_all

    allocate = os.posix_fallocate

    def slow(*given):
        print("making", flush=True)
        if sys.argv[2] == "waits":
            sys.stdin.readline()
        return allocate(*given)

    def refused(fd, kind):
        raise OSError(37, "No locks available")

    os.posix_fallocate = slow
    if sys.argv[3] == "no locks":
        import fcntl
        fcntl.flock = refused
    cached = reader.cache(Squares(), disk=sys.argv[1])
    print(os.fstat(cached._cache._disk._fd).st_ino, flush=True)
    sys.stdin.readline()
    read_all(cached)
    print(cached._cache.stats()["misses"], flush=True)
    sys.stdin.readline()
"""


def test_a_second_maker_waits_for_a_slow_disk(tmp_path: Path) -> None:
    """However slow: the second maker waits as long as the file grows."""
    first = start_maker(tmp_path, "waits", "locks")
    assert first.stdout.readline() == "making\n"
    second = start_maker(tmp_path, "goes on", "locks")
    wait_until(lambda: has_open(second.pid, "lock"))
    inode = go_on(first)
    assert second.stdout.readline() == inode  # it never makes one
    assert [go_on(first), go_on(second)] == ["8\n", "8\n"]
    for each in (first, second):
        each.communicate("\n", timeout=30)
        assert each.returncode == 0
    assert names_in(tmp_path / "cache") == ["lock", "samples.cache"]


def test_makers_without_locks_use_one_file(tmp_path: Path) -> None:
    first = start_maker(tmp_path, "waits", "no locks")
    assert first.stdout.readline() == "making\n"
    second = start_maker(tmp_path, "goes on", "no locks")
    assert second.stdout.readline() == "making\n"
    inode = second.stdout.readline()
    assert go_on(second) == "8\n"
    assert go_on(first) == inode
    assert go_on(first) == "0\n"  # all were made by the second
    for each in (first, second):
        each.communicate("\n", timeout=30)
        assert each.returncode == 0
    assert names_in(tmp_path / "cache") == ["lock", "samples.cache"]


def start_maker(folder: Path, *options: str) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(MAKER), str(folder / "cache"), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def go_on(maker: Any) -> Any:
    """Let a maker take its next step; return the line that it says then."""
    maker.stdin.write("go\n")
    maker.stdin.flush()
    return maker.stdout.readline()


def has_open(pid: int, name: str) -> bool:
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if path.readlink().name == name:
                return True
    return False


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_maker_that_is_killed_leaves_no_draft(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    maker = program(MAKER, str(tmp_path / "cache"), "goes on", "locks")
    maker.line()
    maker.interrupt(9)
    maker.finish()
    (tmp_path / "cache" / "samples.1.dead.draft").touch()
    fill(tmp_path / "cache")
    assert names_in(tmp_path / "cache") == ["lock", "samples.cache"]


# -- caches of shards ----------------------------------------------------------------------------


def shard_cache(path: Path) -> str | None:
    return reader.ShardCache(path, "64MiB").path


@needs_root
def test_a_cache_of_shards_in_a_folder_of_another_user_is_refused(place: Path) -> None:
    shard_cache(place)
    told = f"Permission denied.*It belongs to user 0.*chmod 1777 '{place}'"
    with pytest.raises(ConfigError, match=told):
        as_user(NOBODY, lambda: shard_cache(place))


@needs_root
def test_each_user_of_a_cache_of_shards_has_a_folder(place: Path) -> None:
    place.chmod(0o1777)
    shard_cache(place)
    as_user(NOBODY, lambda: shard_cache(place))
    assert {path.name: path.stat().st_uid for path in place.iterdir()} == {
        "user-0": 0,
        f"user-{NOBODY}": NOBODY,
    }
    assert {mode_of(path) for path in place.iterdir()} == {0o700}


@needs_root
def test_a_folder_that_another_user_has_made_for_this_one_is_refused(place: Path) -> None:
    place.chmod(0o1777)

    def plant() -> None:
        (place / "user-0").mkdir()
        (place / "user-0").chmod(0o755)

    as_user(NOBODY, plant)
    with pytest.raises(ConfigError, match=r"user nobody \(65534\) made it"):
        shard_cache(place)


@needs_root
def test_a_cache_of_shards_that_cannot_be_written_is_refused(place: Path) -> None:
    mine = place / f"user-{NOBODY}"
    mine.mkdir(mode=0o500)
    os.chown(mine, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match=r"cannot be used: .*lock.*that you may write to"):
        as_user(NOBODY, lambda: shard_cache(place))
    mine.chmod(0o700)
    as_user(NOBODY, lambda: shard_cache(place))
    (mine / "lock").unlink()
    (mine / "lock").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match=r"cannot be used: .*symbolic links"):
        as_user(NOBODY, lambda: shard_cache(place))


@needs_root
def test_a_process_that_becomes_another_user_is_told(place: Path) -> None:
    from reader.stores.shard_cache import connected

    cache = reader.ShardCache(place, "64MiB")
    with pytest.raises(reader.DatasetError, match=r"cannot be used: .*It belongs to user 0"):
        as_user(NOBODY, lambda: connected(cache))
