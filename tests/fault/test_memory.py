"""Memory that runs out: an exception with need, have and knob, and a loader that goes on (2.8)."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ArenaFull, DataLoader
from tests.datasets import Calls
from tests.processes import Program, wait_until

pytestmark = pytest.mark.alone  # it fills memory and mounts file systems
WORKERS = pytest.mark.parametrize("workers", [0, 2])
MIB = 1 << 20


def sized(nbytes: int, count: int = 16) -> Calls:
    return Calls(lambda i: np.full(nbytes, i % 251, np.uint8), count)


@WORKERS
def test_08_batch_larger_than_max_bytes_is_refused_with_need_have_and_knob(workers: int) -> None:
    with DataLoader(sized(4 * MIB), batch_size=4, num_workers=workers, max_bytes=8 * MIB) as loader:
        for _ in range(2):
            batches = iter(loader)
            for n in range(4):
                with pytest.raises(ArenaFull, match=rf"batch {n} of epoch.*max_bytes") as info:
                    next(batches)
                error = info.value
                assert error.need_bytes >= 16 * MIB
                assert error.limit_bytes == 8 * MIB
                assert 0 <= error.have_bytes <= 8 * MIB
                assert error.knob == "max_bytes"
            with pytest.raises(StopIteration):
                next(batches)


@WORKERS
def test_08_large_batch_among_small_ones_fails_alone(workers: int) -> None:
    def sample(index: int) -> Any:
        return np.full(40 * MIB if index == 3 else 1000, index, np.uint8)

    with DataLoader(
        Calls(sample, 8), batch_size=1, num_workers=workers, max_bytes=24 * MIB
    ) as loader:
        for _ in range(2):
            batches = iter(loader)
            for n in range(8):
                if n == 3:
                    with pytest.raises(ArenaFull):
                        next(batches)
                else:
                    assert next(batches)[0, 0] == n


@WORKERS
def test_08_kept_batches_fill_the_arena_and_dropping_them_frees_it(workers: int) -> None:
    with DataLoader(
        sized(2 * MIB, 64),
        batch_size=1,
        num_workers=workers,
        max_bytes=32 * MIB,
        persistent_workers=True,
    ) as loader:
        kept: list[Any] = []
        with pytest.raises(ArenaFull) as info:
            for batch in loader:
                kept.append(batch)  # noqa: PERF402  they are to be there when it raises
        assert 4 <= len(kept) <= 16
        assert info.value.limit_bytes == 32 * MIB
        for n, batch in enumerate(kept):
            assert batch.shape == (1, 2 * MIB)
            assert (batch[0, ::4096] == n).all()
        del batch
        kept.clear()
        seen = 0
        for n, batch in enumerate(loader):
            assert batch[0, 0] == n
            seen += 1
        assert seen == 64


@WORKERS
def test_08_prefetching_alone_never_fills_the_arena(workers: int) -> None:
    with DataLoader(
        sized(2 * MIB, 64), batch_size=1, num_workers=workers, prefetch_factor=16,
        max_bytes=12 * MIB, persistent_workers=True,
    ) as loader:  # fmt: skip
        for _ in range(2):
            seen = 0
            for n, batch in enumerate(loader):
                assert (batch[0, ::4096] == n).all()
                seen += 1
            assert seen == 64


@WORKERS
def test_08_error_too_large_for_the_arena_still_arrives_as_an_error(workers: int) -> None:
    def fail(index: int) -> Any:
        raise ValueError("x" * (4 * MIB))

    with DataLoader(Calls(fail, 4), batch_size=2, num_workers=workers, max_bytes=1 * MIB) as loader:
        batches = iter(loader)
        for _ in range(2):
            with pytest.raises((ArenaFull, ValueError)):
                next(batches)
        with pytest.raises(StopIteration):
            next(batches)


@WORKERS
def test_08_memory_error_of_the_dataset_arrives_as_it_is(workers: int) -> None:
    def fail(index: int) -> Any:
        return np.zeros(1 << 60, np.uint8)

    with (
        DataLoader(Calls(fail, 4), batch_size=2, num_workers=workers) as loader,
        pytest.raises(MemoryError, match="allocate"),
    ):
        next(iter(loader))


# ---- /dev/shm --------------------------------------------------------------------------------

OWN_DEV = "mkdir {0}/dev && mount --bind {0}/dev /dev"
LARGE = """
    import os, sys
    import numpy as np
    from reader import DataLoader
    from tests.datasets import Rows

    class Large:
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return np.full(96 << 20, index, np.uint8)

    if __name__ == "__main__":
        print(os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize >> 20
              if os.path.isdir("/dev/shm") else -1, flush=True)
        for options in ({"num_workers": 0}, {"num_workers": 2},
                        {"num_workers": 1, "start_method": "spawn"}):
            for n, batch in enumerate(DataLoader(Large(), batch_size=1, prefetch_factor=1,
                                                 **options)):
                assert batch.shape == (1, 96 << 20) and (batch[0, ::4096] == n).all()
            print(n + 1, flush=True)
"""


@pytest.fixture
def own_mounts() -> tuple[str, ...]:
    """A command prefix that gives a program its own mounts; skips where the system refuses."""
    for prefix in (("unshare", "-m"), ("unshare", "-r", "-m")):
        try:
            tried = subprocess.run([*prefix, "true"], capture_output=True, timeout=20)
        except FileNotFoundError:
            break
        if tried.returncode == 0:
            return prefix
    pytest.skip("this system gives a program no mount namespace of its own")


@pytest.mark.parametrize(
    ("size", "command"),
    [
        ("64", "mount -t tmpfs -o size=64m shm /dev/shm"),
        ("-1", f"{OWN_DEV} && mknod /dev/null c 1 3 && mknod /dev/urandom c 1 9"),
    ],
)
def test_08_works_with_a_small_and_without_any_dev_shm(
    program: Callable[..., Program],
    own_mounts: tuple[str, ...],
    tmp_path: Path,
    size: str,
    command: str,
) -> None:
    shell = f'{command.format(tmp_path)} && exec "$@"'
    trainer = program(LARGE, wrapper=(*own_mounts, "sh", "-c", shell, "sh"))
    status, out, err = trainer.finish(50)
    assert (status, out.split(), err) == (0, [size, "6", "6", "6"], "")


# ---- a memory cgroup -------------------------------------------------------------------------


@pytest.fixture
def cgroup() -> Iterator[tuple[Path, str]]:
    """A memory cgroup of our own: (its folder, file of the limit); skips where there is none."""
    for root, limit in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        folder = Path(root) / f"reader-test-{uuid.uuid4().hex[:8]}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / limit).exists():
            yield folder, limit
            folder.rmdir()
            return
        folder.rmdir()
    pytest.skip("this system lets us make no memory cgroup")


@WORKERS
def test_08_full_memory_cgroup_is_an_exception_and_never_a_signal(
    program: Callable[..., Program], cgroup: tuple[Path, str], workers: int
) -> None:
    folder, limit = cgroup
    (folder / limit).write_text(str(256 * MIB))
    trainer = program(
        """
        import sys
        import numpy as np
        from reader import ArenaFull, DataLoader
        from tests.datasets import Calls

        if __name__ == "__main__":
            sample = lambda i: np.full(8 << 20, i % 251, np.uint8)
            with DataLoader(Calls(sample, 64), batch_size=1, num_workers=int(sys.argv[1]),
                            persistent_workers=True) as loader:
                kept = []
                try:
                    for batch in loader:
                        kept.append(batch)
                except ArenaFull as error:
                    assert error.need_bytes >= 8 << 20, error.need_bytes
                    assert error.have_bytes < 64 << 20, error.have_bytes
                    assert error.knob == "memory", error.knob
                    assert "this container, or control group, may have" in str(error), error
                    assert sys.argv[2] in str(error) and "raise prefetch" not in str(error), error
                    assert ("num_workers" in str(error)) == (sys.argv[1] != "0"), error
                    print("full", flush=True)
                assert 4 <= len(kept) < 32, len(kept)
                for n, batch in enumerate(kept):
                    assert (batch[0, ::4096] == n).all()
                kept.clear()
                del batch
                for n, batch in enumerate(loader):
                    assert (batch[0, ::4096] == n % 251).all()
                print(n + 1, flush=True)
        """,
        str(workers),
        str(folder / limit),
        wrapper=("sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"),
    )
    status, out, err = trainer.finish(50)
    assert (status, out.split()) == (0, ["full", "64"]), err
    # the log may report that fewer batches are fetched ahead, and nothing else
    assert all("memory is short" in line for line in err.splitlines())


@pytest.mark.parametrize(
    ("size_mib", "workers", "way", "late"),
    [
        (90, 2, "rows", 0),
        (24, 6, "rows", 0),
        (16, 8, "rows", 0),
        (24, 6, "whole", 0),
        (16, 8, "whole", 0),
        (24, 6, "whole", 3),
        (16, 8, "whole", 4),
    ],
)
def test_08_workers_that_fill_a_memory_cgroup_together_are_not_killed(
    program: Callable[..., Program],
    cgroup: tuple[Path, str],
    size_mib: int,
    workers: int,
    way: str,
    late: int,
) -> None:
    """`late` workers begin when the others have filled the memory."""
    folder, limit = cgroup
    (folder / limit).write_text(str(256 * MIB))
    trainer = program(
        """
        import sys, time
        import numpy as np
        from reader import DataLoader
        from tests.datasets import Calls

        if __name__ == "__main__":
            size, workers, way = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
            late = int(sys.argv[4])
            init = lambda worker: time.sleep(0.5 if worker >= workers - late else 0)
            rows = size if way == "rows" else 1  # one sample as large as its batch, or many
            sample = lambda i: np.full((size << 20) // rows, i // rows % 251, np.uint8)
            loader = DataLoader(Calls(sample, 32 * rows), batch_size=rows, num_workers=workers,
                                worker_init_fn=init)
            for n, batch in enumerate(loader):
                assert (batch[:, ::4096] == n).all(), n
                del batch
            print(n + 1, flush=True)
        """,
        str(size_mib),
        str(workers),
        way,
        str(late),
        wrapper=("sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"),
    )
    status, out, err = trainer.finish(50)
    assert (status, out.split()) == (0, ["32"]), err
    assert all("memory is short" in line for line in err.splitlines()), err


# ---- limits of the process -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "value"),
    [("RLIMIT_AS", 6 << 30), ("RLIMIT_FSIZE", 64 * MIB), ("RLIMIT_NOFILE", 40)],
)
@WORKERS
def test_08_limits_of_the_process_are_kept_or_named(
    program: Callable[..., Program], limit: str, value: int, workers: int
) -> None:
    trainer = program(
        """
        import os, resource, sys
        from reader import DataLoader, ReaderError
        from tests.datasets import Rows, check_rows

        if __name__ == "__main__":
            resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2)
            kept, batches = [], None
            try:
                for _ in range(20 if "NOFILE" in sys.argv[1] else 2):
                    batches = iter(DataLoader(Rows(64), batch_size=4, num_workers=int(sys.argv[3])))
                    check_rows(next(batches), range(4))
                    kept.append(batches)
                print("works")
            except (ReaderError, OSError) as error:
                print("named", error)
                if "FSIZE" in sys.argv[1]:
                    assert "ulimit -f" in str(error), error
                    sys.exit()
            for batches in kept:
                assert len(list(batches)) == 15
            kept.clear()
            del batches
            print(len(list(DataLoader(Rows(64), batch_size=4, num_workers=int(sys.argv[3])))))
        """,
        limit,
        str(value),
        str(workers),
    )
    status, out, err = trainer.finish()
    assert status == 0, err
    assert err == ""
    assert out.split()[0] in ("works", "named")
    assert out.split()[-1] == "16" or limit == "RLIMIT_FSIZE"


@pytest.mark.slow
def test_02_memory_of_many_large_kept_batches_goes_back_to_the_system() -> None:
    def shared_kib() -> int:
        text = Path("/proc/self/status").read_text()
        return int(text.split("RssShmem:")[1].split()[0])

    before = shared_kib()
    with DataLoader(
        sized(4 * MIB, 48), batch_size=1, num_workers=2, persistent_workers=True
    ) as loader:
        kept = list(loader)
        assert sum(int(batch[0, ::4096].sum()) for batch in kept) > 0
        assert shared_kib() - before >= 48 * 4 * 1024 * 0.9
        kept.clear()
        for batch in loader:
            del batch
        # the memory goes back in the background
        wait_until(lambda: loader.stats()["arena"]["owned_bytes"] < 48 * 4 * MIB / 2)
    assert shared_kib() - before < 48 * 4 * 1024 / 2
