"""What a profile reads from the system: cores, quotas, memory pressure, clocks; and decoders."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader.observe.decoder import decoder_of
from reader.observe.machine import Machine
from reader.observe.pressure import memory_pressure
from reader.observe.processors import stopped_s, usable_cores
from reader.worker_clock import (
    ProcessCounts,
    RunnableClock,
    own_bytes,
    own_clock,
    process_counts,
    system_clock,
)

VERSION_1 = "5:memory:/x\n4:cpu:/x\n0::/\n"
SOME = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 total=7\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    write(tmp_path, {"proc/self/cgroup": "0::/job\n", "cgroup/job/cpu.max": "max 100000\n"})
    cgroup = tmp_path / "cgroup"
    return Machine(proc=tmp_path / "proc", cgroup=cgroup, processors=8, affinity=4)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 4.0), ("150000 100000", 1.5), ("900000 100000", 4.0)]
)
def test_cores_are_those_of_affinity_and_quota(machine: Machine, quota: str, cores: float) -> None:
    write(machine.proc.parent, {"cgroup/job/cpu.max": quota})
    assert usable_cores(machine) == cores


def test_without_groups_the_affinity_counts(machine: Machine) -> None:
    assert usable_cores(replace(machine, cgroup=machine.cgroup / "none")) == 4.0


def test_the_time_that_a_group_was_throttled_is_counted(machine: Machine) -> None:
    assert stopped_s(machine) == 0.0
    write(machine.proc.parent, {"cgroup/job/cpu.stat": "nr_throttled 3\nthrottled_usec 2500000\n"})
    assert stopped_s(machine) == 2.5
    files = {"proc/self/cgroup": VERSION_1, "cgroup/cpu/x/cpu.stat": "throttled_time 1500000000\n"}
    write(machine.proc.parent, files)
    assert stopped_s(machine) == 1.5


def test_the_pressure_of_the_nearest_group_counts(machine: Machine) -> None:
    assert memory_pressure(machine) == (None, 0)
    write(machine.proc.parent, {"proc/pressure/memory": SOME.format(3_000_000)})
    assert memory_pressure(machine).stall_s == 3.0
    write(
        machine.proc.parent,
        {
            "cgroup/job/memory.pressure": SOME.format(500_000),
            "cgroup/memory.pressure": SOME.format(900_000),
            "cgroup/job/memory.events.local": "low 9\nhigh 2\nmax 5\noom 1\n",
        },
    )
    assert memory_pressure(machine) == (0.5, 7)


def test_the_limit_of_a_group_of_version_1_counts_its_failures(machine: Machine) -> None:
    files = {"proc/self/cgroup": VERSION_1, "cgroup/memory/x/memory.failcnt": "12\n"}
    write(machine.proc.parent, files)
    assert memory_pressure(machine) == (None, 12)


def test_limits_that_are_reached_count_beside_those_around_them(machine: Machine) -> None:
    old = {"proc/self/cgroup": VERSION_1, "cgroup/memory/memory.failcnt": "900\n"}
    new = {"proc/self/cgroup": "0::/job\n", "cgroup/memory.events.local": "high 300\nmax 600\n"}
    own = "cgroup/memory/x/memory.failcnt", "cgroup/job/memory.events.local"
    for files, name, texts in ((old, own[0], ("5", "9")), (new, own[1], ("max 5", "max 9"))):
        found = []
        for text in texts:
            write(machine.proc.parent, {**files, name: text})
            found.append(memory_pressure(machine).events)
        assert found == [905, 909]


def test_stalls_of_a_group_of_version_1_are_those_of_the_machine(machine: Machine) -> None:
    files = {
        "proc/self/cgroup": VERSION_1,
        "proc/pressure/memory": SOME.format(2_000_000),
        "cgroup/memory/x/memory.failcnt": "12\n",
        "cgroup/memory/x/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
    }
    write(machine.proc.parent, files)
    assert memory_pressure(machine) == (2.0, 12)


def test_pressure_that_cannot_be_read_is_unknown(machine: Machine) -> None:
    files = {"proc/pressure/memory": "some nonsense\n", "cgroup/job/memory.events.local": "high\n"}
    write(machine.proc.parent, files)
    assert memory_pressure(machine) == (None, 0)


def test_the_clock_of_the_chosen_cores_is_read(tmp_path: Path) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    rows = [f"cpu {9 * tick} 0 0 {9 * tick} 0 0 0 0 0 0"]
    rows += [f"cpu{core} {core * tick} 0 0 {2 * tick} {tick} 0 0 0 0 0" for core in range(3)]
    write(tmp_path, {"stat": "\n".join([*rows, "intr 5 6 7"])})
    assert system_clock(tmp_path) == (18.0, 9.0)
    assert system_clock(tmp_path, {1, 2}) == (9.0, 6.0)
    assert system_clock(tmp_path / "none") is None


def test_a_process_has_memory_and_one_that_ended_has_none() -> None:
    assert own_bytes(os.getpid()) > 1 << 20
    assert process_counts(os.getpid()).user_s > 0
    assert (own_bytes(2**22 + 1), process_counts(2**22 + 1)) == (0, ProcessCounts())


def test_counts_of_processes_are_added_and_those_of_one_that_ended_are_no_loss(
    tmp_path: Path,
) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    write(tmp_path, {"7/stat": f"7 (a) b) S {'0 ' * 8}5 0 {2 * tick} {tick} 0"})
    counts = process_counts(7, tmp_path)
    assert counts == (5, 2.0, 1.0)
    assert counts.plus(counts).since(counts) == counts
    assert ProcessCounts().since(counts) == ProcessCounts()


def test_the_own_clock_goes_on_while_the_thread_computes() -> None:
    before = own_clock()
    sum(range(3_000_000))
    after = own_clock()
    assert before is not None
    assert after is not None
    assert after.cpu_s > before.cpu_s


class OfPillow:
    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(b"")))


class Held:
    def __init__(self, transform: Any) -> None:
        self.transforms = [transform]

    def __getitem__(self, index: int) -> Any:
        return self.transforms[0](index)


def decode(index: int) -> Any:
    import cv2  # type: ignore[import-not-found, unused-ignore]

    return cv2.imdecode(index)


class Calling:
    def __getitem__(self, index: int) -> Any:
        return decode(index)


class Hostile:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError("nothing of a dataset is called")

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("dataset", "decoder"),
    [
        (OfPillow(), "PIL.Image"),
        (Held(decode), "imdecode"),
        (Held(OfPillow()), "PIL.Image"),
        (Calling(), "imdecode"),
        (Held(abs), ""),
        ([1, 2], ""),
        (None, ""),
    ],
)
def test_a_decoding_dataset_is_found_without_running_it(dataset: Any, decoder: str) -> None:
    assert decoder_of(dataset) == decoder


def test_attributes_that_a_dataset_computes_are_not_asked_for() -> None:
    assert decoder_of(Hostile()) == ""


def test_images_of_this_package_are_known(tmp_path: Path) -> None:
    from reader.images import ImageFolder

    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.jpg").write_bytes(b"")
    assert decoder_of(ImageFolder(tmp_path)) == "reader.images"


def test_the_time_without_a_core_is_known_until_its_clock_is_closed() -> None:
    clock = RunnableClock()
    before_ns = clock.read_ns()
    own = own_clock()
    assert own is not None
    assert before_ns <= round(own.runnable_s * 1e9) <= clock.read_ns()
    clock.close()
    clock.close()
    assert clock.read_ns() == 0
