"""The available memory, by the files of /proc and of both versions of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from reader.available_memory import available_bytes, tightest_limit, total_bytes

MIB = 1 << 20
HEADROOM = 16 * MIB


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A folder with proc/ and cgroup/ that replace the system's own."""
    write(tmp_path / "proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
    return tmp_path


def available(system: Path) -> int:
    return available_bytes(system / "proc", system / "cgroup")


def total(system: Path) -> int | None:
    return total_bytes(system / "proc", system / "cgroup")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def group(
    folder: Path, limit: str, used: int, cache: int = 0, high: str = "max", active: int = 0
) -> None:
    """A group of cgroup v2; bytes in MiB."""
    write(folder / "memory.max", limit if limit == "max" else f"{int(limit) * MIB}\n")
    write(folder / "memory.high", high if high == "max" else f"{int(high) * MIB}\n")
    write(folder / "memory.current", f"{used * MIB}\n")
    write(
        folder / "memory.stat", f"anon 1\ninactive_file {cache * MIB}\nactive_file {active * MIB}\n"
    )


def test_08_without_a_group_the_machine_counts(system: Path) -> None:
    assert available(system) == 4096 * MIB - HEADROOM


def test_08_the_tightest_group_from_ours_to_the_root_counts(system: Path) -> None:
    write(system / "proc/self/cgroup", "0::/pod/job\n")
    group(system / "cgroup/pod/job", "512", used=100, cache=40)
    group(system / "cgroup/pod", "300", used=150)
    group(system / "cgroup", "max", used=9999)
    assert available(system) == 150 * MIB - HEADROOM
    group(system / "cgroup/pod", "max", used=150)
    assert available(system) == (512 - 100 + 40) * MIB - HEADROOM


def test_08_memory_high_counts_as_a_limit(system: Path) -> None:
    write(system / "proc/self/cgroup", "0::/\n")
    group(system / "cgroup", "512", used=100, high="256")
    assert available(system) == 156 * MIB - HEADROOM


def test_08_a_group_of_version_1_counts(system: Path) -> None:
    write(system / "proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/\n")
    folder = system / "cgroup/memory/docker/1"
    write(folder / "memory.limit_in_bytes", f"{256 * MIB}\n")
    write(folder / "memory.usage_in_bytes", f"{200 * MIB}\n")
    write(folder / "memory.stat", f"inactive_file 5\ntotal_inactive_file {32 * MIB}\n")
    assert available(system) == (256 - 200 + 32) * MIB - HEADROOM
    in_use = f"active_file 5\ntotal_active_file {64 * MIB}\ntotal_inactive_file {32 * MIB}\n"
    write(folder / "memory.stat", in_use)
    assert available(system) == (256 - 200 + 96) * MIB - HEADROOM


def test_08_memory_of_reread_files_is_free_for_batches(
    system: Path,
) -> None:
    write(system / "proc/self/cgroup", "0::/job\n")
    group(system / "cgroup/job", "512", used=510, cache=20, active=400)
    assert available(system) == (512 - 510 + 420) * MIB - HEADROOM


def test_08_without_proc_the_group_at_the_root_counts(system: Path) -> None:
    for path in ("proc/meminfo",):
        (system / path).unlink()
    assert available(system) >= 1 << 60
    group(system / "cgroup", "256", used=56)
    assert available(system) == 200 * MIB - HEADROOM


@pytest.mark.parametrize("text", ["", "MemAvailable:\n", "MemAvailable: many kB\n"])
def test_08_an_empty_or_unreadable_file_sets_no_limit(system: Path, text: str) -> None:
    write(system / "proc/meminfo", text)
    write(system / "proc/self/cgroup", "0::/gone\n")
    write(system / "cgroup/memory.max", "garbage")
    assert available(system) >= 1 << 60
    assert total(system) is None


def test_08_the_smallest_limit_counts(system: Path) -> None:
    assert total(system) == 8192 * MIB
    write(system / "proc/self/cgroup", "0::/pod/job\n")
    group(system / "cgroup/pod/job", "512", used=100)
    group(system / "cgroup/pod", "max", used=150, high="300")
    assert total(system) == 300 * MIB


def test_08_the_first_limit_to_be_reached_is_named_with_its_file(system: Path) -> None:
    write(system / "proc/self/cgroup", "0::/pod/job\n")
    group(system / "cgroup/pod/job", "512", used=100)
    group(system / "cgroup/pod", "300", used=150)
    limit = tightest_limit(system / "proc", system / "cgroup")
    assert (limit.limit_bytes, limit.file) == (300 * MIB, system / "cgroup/pod/memory.max")
    group(system / "cgroup/pod", "max", used=150)
    group(system / "cgroup/pod/job", "512", used=100, high="120")
    limit = tightest_limit(system / "proc", system / "cgroup")
    assert (limit.limit_bytes, limit.file) == (120 * MIB, system / "cgroup/pod/job/memory.high")
    group(system / "cgroup/pod/job", "max", used=100)
    limit = tightest_limit(system / "proc", system / "cgroup")
    assert (limit.limit_bytes, limit.file) == (8192 * MIB, None)
