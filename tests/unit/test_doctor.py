"""The doctor: what it finds on machines made of folders, and what it says on this one."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reader.cluster.node_facts import NodeFacts, Versions
from reader.observe import memory, packages, processes, processors
from reader.observe.cluster import cluster, nodes
from reader.observe.doctor import CHECKS, Check, examine
from reader.observe.finding import Finding, exit_code, report
from reader.observe.machine import Machine, in_bytes, number_in, text_in

ROOT = Path(__file__).parents[2]
MIB, GIB = 1 << 20, 1 << 30
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

MACHINE = {
    "proc/self/cgroup": "0::/pod/job\n",
    "proc/self/status": "Name:\tpython\nSeccomp:\t0\n",
    "proc/sys/vm/overcommit_memory": "0\n",
    "proc/sys/kernel/osrelease": "6.1.0-13-amd64\n",
    "proc/cpuinfo": "processor : 0\nflags\t\t: fpu sse2 avx2 avx512f\n",
    "proc/meminfo": (
        "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"
        "SwapTotal: 4194304 kB\nSwapFree: 4194304 kB\n"
    ),
    "sys/kernel/mm/transparent_hugepage/shmem_enabled": "always within_size [advise] never\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/node/node0/cpulist": "0-7\n",
    "dev/shm/a": "",
    "cgroup/pod/job/cpu.max": "max 100000\n",
    "cgroup/pod/job/cpu.stat": "usage_usec 5\nnr_periods 0\nnr_throttled 0\n",
    "cgroup/pod/job/pids.max": "max\n",
}
VERSION_1 = "7:cpu,cpuacct:/x\n5:pids:/x\n4:memory:/x\n0::/\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine of 8 processors on which nothing is wrong, in a group of cgroup v2."""
    write(tmp_path, MACHINE)
    names = ("AS", "FSIZE", "MEMLOCK", "NOFILE", "NPROC")
    return Machine(
        proc=tmp_path / "proc",
        sys=tmp_path / "sys",
        dev=tmp_path / "dev",
        cgroup=tmp_path / "cgroup",
        environ={"OMP_NUM_THREADS": "1"},
        processors=8,
        affinity=8,
        limits=dict.fromkeys(names, UNLIMITED),
    )


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(check: Check, machine: Machine, files: dict[str, str] | None = None) -> Finding:
    """The one finding of a check, once `files` are written."""
    write(machine.proc.parent, files or {})
    (finding,) = examine(machine, [check])
    assert bool(finding.remedy) == (finding.level in ("warning", "error"))
    return finding


def limited(machine: Machine, name: str, soft: int, hard: int = resource.RLIM_INFINITY) -> Machine:
    return replace(machine, limits={**machine.limits, name: (soft, hard)})


OF_FILES = [
    check for check in CHECKS if check.__module__.endswith(("memory", "processes", "processors"))
]


def test_a_machine_without_faults_has_no_warning(machine: Machine) -> None:
    findings = examine(machine, OF_FILES)
    assert {each.level for each in findings} <= {"ok", "note"}
    assert len(findings) == len(OF_FILES)
    assert exit_code(findings) == 0


def test_every_check_finds_something_on_an_empty_machine(machine: Machine, tmp_path: Path) -> None:
    nowhere = replace(
        machine, proc=tmp_path / "0", sys=tmp_path / "0", dev=tmp_path / "0", cgroup=tmp_path / "0"
    )
    assert {each.level for each in examine(nowhere, OF_FILES)} == {"ok", "note"}


# ---- processors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        {"cgroup/pod/job/cpu.max": "250000 100000\n"},
        {"cgroup/pod/cpu.max": "250000 100000\n", "cgroup/pod/job/cpu.max": "400000 100000\n"},
        {
            "proc/self/cgroup": VERSION_1,
            "cgroup/cpu/x/cpu.cfs_quota_us": "250000\n",
            "cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
        },
    ],
    ids=["v2", "of the group around it", "v1"],
)
def test_a_quota_below_the_processors_is_a_warning(machine: Machine, files: dict[str, str]) -> None:
    finding = found(processors.cores, machine, files)
    assert finding.level == "warning"
    assert "2.5 of 8 processors" in finding.found
    assert "at most num_workers=2 " in finding.remedy


def test_no_quota_is_none_in_both_versions(machine: Machine) -> None:
    assert found(processors.cores, machine).found == "8 processors, without a quota"
    files = {
        "proc/self/cgroup": VERSION_1,
        "cgroup/cpu/x/cpu.cfs_quota_us": "-1\n",
        "cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
    }
    assert found(processors.cores, machine, files).level == "ok"


def test_processors_that_may_not_be_used_are_a_note(machine: Machine) -> None:
    finding = found(processors.cores, replace(machine, affinity=2))
    assert finding.level == "note"
    assert "2 of 8 processors" in finding.found
    assert (
        "1 processor:" in found(processors.cores, replace(machine, affinity=1, processors=1)).found
    )


@pytest.mark.parametrize("group", ["cgroup/pod/job", "cgroup/cpu/x"])
@pytest.mark.parametrize(("throttled", "level"), [(0, "ok"), (3, "note"), (70, "warning")])
def test_a_group_that_was_stopped_is_found(
    machine: Machine, group: str, throttled: int, level: str
) -> None:
    files = {f"{group}/cpu.stat": f"nr_periods 700\nnr_throttled {throttled}\n"}
    if "cpu/" in group:
        files["proc/self/cgroup"] = VERSION_1
    finding = found(processors.throttling, machine, files)
    assert finding.level == level
    assert ("10%" in finding.found) == (throttled == 70)


@pytest.mark.parametrize(
    ("environ", "level", "said"),
    [
        ({}, "note", "starts 8 threads"),
        ({"OMP_NUM_THREADS": "1"}, "ok", "OMP_NUM_THREADS=1"),
        ({"OMP_NUM_THREADS": "16"}, "warning", "OMP_NUM_THREADS=16, and 8 processors"),
        ({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "64"}, "warning", "MKL_NUM_THREADS=64"),
        ({"OPENBLAS_NUM_THREADS": "9,1"}, "warning", "OPENBLAS_NUM_THREADS=9"),
    ],
)
def test_threads_beyond_the_processors_are_found(
    machine: Machine, environ: dict[str, str], level: str, said: str
) -> None:
    finding = found(processors.thread_pools, replace(machine, environ=environ))
    assert finding.level == level
    assert said in finding.found


def test_threads_are_compared_with_the_quota(machine: Machine) -> None:
    at_most_four = replace(machine, environ={"OMP_NUM_THREADS": "4"})
    assert found(processors.thread_pools, at_most_four).level == "ok"
    quota = {"cgroup/pod/job/cpu.max": "50000 100000"}
    assert "and 0.5 processors" in found(processors.thread_pools, at_most_four, quota).found
    unset = replace(machine, environ={})
    assert "starts 8 threads" in found(processors.thread_pools, unset).found


def test_slow_or_distant_processors_are_a_note(machine: Machine) -> None:
    for check, files, said in (
        (
            processors.frequency,
            {"sys/devices/system/cpu/cpu3/cpufreq/scaling_governor": "powersave\n"},
            "powersave",
        ),
        (processors.nodes, {"sys/devices/system/node/node1/cpulist": ""}, "2: numactl"),
    ):
        assert found(check, machine).level == "ok"
        finding = found(check, machine, files)
        assert (finding.level, said in finding.found) == ("note", True)


@pytest.mark.skipif("sys.platform != 'linux' or __import__('os').uname().machine != 'x86_64'")
def test_a_processor_without_avx2_is_a_note(machine: Machine) -> None:
    assert found(processors.instructions, machine).found == "avx2, avx512f"
    finding = found(processors.instructions, machine, {"proc/cpuinfo": "flags : fpu sse2\n"})
    assert (finding.level, "without AVX2" in finding.found) == ("note", True)


# ---- memory ----------------------------------------------------------------------------------


def group_of_memory(version: int, limit: int, used: int) -> dict[str, str]:
    if version == 2:
        folder, names = "cgroup/pod/job", ("memory.max", "memory.current", "inactive_file")
    else:
        folder = "cgroup/memory/x"
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    files = {"proc/self/cgroup": VERSION_1} if version == 1 else {}
    return files | {
        f"{folder}/{names[0]}": f"{limit}\n",
        f"{folder}/{names[1]}": f"{used}\n",
        f"{folder}/memory.stat": f"{names[2]} 0\n",
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_memory_limit_nearly_reached_is_a_warning(machine: Machine, version: int) -> None:
    finding = found(memory.memory, machine, group_of_memory(version, 4 * GIB, 1 * GIB))
    assert finding.level == "ok"
    assert finding.found.endswith("of 4 GiB that a memory cgroup allows")
    finding = found(memory.memory, machine, group_of_memory(version, 4 * GIB, 4 * GIB - 300 * MIB))
    assert finding.level == "warning"
    assert re.match(r"218\.\d MiB available of 4 GiB that a memory cgroup allows", finding.found)


def test_a_machine_whose_memory_is_exhausted_is_a_warning(machine: Machine) -> None:
    assert found(memory.memory, machine).found == "8 GiB available of 16 GiB of the machine"
    files = {"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 1048576 kB\n"}
    assert found(memory.memory, machine, files).level == "warning"


@pytest.mark.parametrize(
    ("check", "files", "level", "said"),
    [
        (
            memory.swap,
            {"proc/meminfo": "MemTotal: 1000 kB\nSwapTotal: 200 kB\nSwapFree: 100 kB\n"},
            "warning",
            "100 KiB of 200 KiB in use",
        ),
        (
            memory.swap,
            {"proc/meminfo": "MemTotal: 1000 kB\nSwapTotal: 200 kB\nSwapFree: 199 kB\n"},
            "ok",
            "1 KiB of 200 KiB in use",
        ),
        (
            memory.killed,
            {"cgroup/pod/job/memory.events": "oom 3\noom_kill 2\noom_group_kill 0\n"},
            "note",
            "has killed 2",
        ),
        (
            memory.killed,
            {
                "proc/self/cgroup": VERSION_1,
                "cgroup/memory/x/memory.oom_control": "under_oom 0\noom_kill 1\n",
            },
            "note",
            "has killed 1",
        ),
        (memory.overcommit, {"proc/sys/vm/overcommit_memory": "2\n"}, "warning", "CommitLimit"),
        (memory.overcommit, {"proc/sys/vm/overcommit_memory": "1\n"}, "ok", "when it is used"),
        (
            memory.huge_pages,
            {"sys/kernel/mm/transparent_hugepage/shmem_enabled": "[always] advise never\n"},
            "note",
            "'always' for shared memory",
        ),
    ],
)
def test_causes_of_short_memory_are_found(
    machine: Machine, check: Check, files: dict[str, str], level: str, said: str
) -> None:
    finding = found(check, machine, files)
    assert (finding.level, said in finding.found) == (level, True)


def test_dev_shm_is_not_needed(machine: Machine, tmp_path: Path) -> None:
    assert "reader" in found(memory.shared_mount, machine).found
    finding = found(memory.shared_mount, replace(machine, dev=tmp_path / "none"))
    assert (finding.level, "reader needs none" in finding.found) == ("note", True)


def test_the_limit_on_locked_memory_matters_beside_a_gpu_alone(machine: Machine) -> None:
    few = limited(machine, "MEMLOCK", 8 * MIB)
    assert found(memory.locked_memory, machine).found == "no limit"
    assert found(memory.locked_memory, few).level == "ok"
    assert found(memory.locked_memory, few, {"dev/nvidia0": ""}).level == "note"


@pytest.mark.parametrize(("name", "subject"), [("FSIZE", "file size"), ("AS", "address space")])
def test_limits_on_memory_files_are_warnings(machine: Machine, name: str, subject: str) -> None:
    finding = found(memory.file_memory, limited(machine, name, 64 * MIB))
    assert (finding.level, finding.subject) == ("warning", subject)
    assert finding.found.startswith("64 MiB at most" if name == "AS" else "files of 64 MiB")


# ---- processes -------------------------------------------------------------------------------


@pytest.mark.parametrize(("soft", "level"), [(40, "error"), (256, "warning"), (1024, "ok")])
def test_few_open_files_are_a_warning_and_very_few_an_error(
    machine: Machine, soft: int, level: str
) -> None:
    finding = found(processes.open_files, limited(machine, "NOFILE", soft, 4096))
    assert finding.level == level
    assert finding.found.startswith(f"{soft} at most")
    assert ("raised to 4096" in finding.remedy) == (level != "ok")
    assert found(processes.open_files, machine).level == "ok"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("current", "level"), [(10, "ok"), (900, "warning"), (998, "error")])
def test_processes_that_a_group_still_allows_are_counted(
    machine: Machine, version: int, current: int, level: str
) -> None:
    folder = "cgroup/pod/job" if version == 2 else "cgroup/pids/x"
    files = {f"{folder}/pids.max": "1000\n", f"{folder}/pids.current": f"{current}\n"}
    if version == 1:
        files["proc/self/cgroup"] = VERSION_1
    finding = found(processes.process_count, machine, files)
    assert finding.level == level
    assert finding.found.startswith(f"{1000 - current} more may be started")


def test_an_old_kernel_is_an_error(machine: Machine) -> None:
    finding = found(processes.kernel, machine, {"proc/sys/kernel/osrelease": "5.4.0-150-generic\n"})
    assert (finding.level, "needs 5.9 or later" in finding.found) == ("error", True)


def test_a_seccomp_filter_that_refuses_nothing_is_no_fault(machine: Machine) -> None:
    finding = found(processes.system_calls, machine, {"proc/self/status": "Seccomp:\t2\n"})
    assert (finding.level, "beside a seccomp filter" in finding.found) == ("ok", True)


# ---- packages --------------------------------------------------------------------------------


def test_the_oldest_versions_are_those_of_the_metadata() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name, least in packages.LEAST.items():
        assert f'"{name}>={".".join(map(str, least))}"' in text


def test_versions_are_reported_without_importing_a_framework() -> None:
    program = (
        "import sys\n"
        "from reader.observe.doctor import examine\n"
        "examine()\n"
        "heavy = {'paddle', 'torch', 'jax', 'jaxlib', 'mxnet', 'cv2'}\n"
        "assert not heavy & {name.split('.')[0] for name in sys.modules}"
    )
    assert run(program).returncode == 0


def test_an_old_distribution_is_found(tmp_path: Path) -> None:
    for name, version in (("numpy", "1.21.6"), ("torch", "1.13.1+cpu"), ("reader", "3.15")):
        write(
            tmp_path, {f"{name}-{version}.dist-info/METADATA": f"Name: {name}\nVersion: {version}"}
        )
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from reader.observe import packages\n"
        "from reader.observe.doctor import examine\n"
        "for each in examine(None, [packages.versions, packages.namesake]):\n"
        "    print(each.level, each.subject, each.found)"
    )
    lines = run(program).stdout.splitlines()
    assert lines[0] == "error numpy 1.21.6 is older than 1.23, the oldest that reader is made for"
    assert lines[1].startswith("note torch 1.13.1+cpu is older than 2.4")
    assert lines[-1].startswith("warning package the distribution reader, which reads feeds")


def test_two_builds_of_paddle_in_one_folder_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"paddlepaddle": "3.3.1"}
    monkeypatch.setattr(packages, "_version_of", there.get)
    assert list(packages.paddle(Machine())) == []
    there["paddlepaddle-gpu"] = "2.6.2"
    (finding,) = packages.paddle(Machine())
    assert finding.level == "warning"
    assert "each overwrites the other's files" in finding.found


# ---- unreadable files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "name"),
    [
        (processors.cores, "cgroup/pod/job/cpu.max"),
        (processors.throttling, "cgroup/pod/job/cpu.stat"),
        (processors.frequency, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        (memory.overcommit, "proc/sys/vm/overcommit_memory"),
        (memory.huge_pages, "sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        (memory.killed, "cgroup/pod/job/memory.events"),
        (memory.memory, "proc/meminfo"),
        (memory.swap, "proc/meminfo"),
        (processes.process_count, "cgroup/pod/job/pids.max"),
        (processes.kernel, "proc/sys/kernel/osrelease"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_note(machine: Machine, check: Check, name: str) -> None:
    path = machine.proc.parent / name
    path.unlink(missing_ok=True)
    path.mkdir()
    assert found(check, machine).level == "note"


@pytest.mark.parametrize(
    ("check", "name"),
    [
        (processors.cores, "cgroup/pod/job/cpu.max"),
        (memory.overcommit, "proc/sys/vm/overcommit_memory"),
        (processes.process_count, "cgroup/pod/job/pids.max"),
    ],
)
def test_a_file_with_unexpected_text_is_a_note_that_shows_it(
    machine: Machine, check: Check, name: str
) -> None:
    finding = found(check, machine, {name: "many of them\n"})
    assert finding.level == "note"
    assert f"{name} holds 'many of them'" in finding.found


def test_files_are_read_as_numbers_and_texts(tmp_path: Path) -> None:
    write(tmp_path, {"a": " 12\n", "b": "max\n"})
    assert (number_in(tmp_path / "a"), number_in(tmp_path / "b")) == (12, None)
    assert (text_in(tmp_path / "a"), text_in(tmp_path / "none")) == ("12", None)
    assert text_in(tmp_path / "a/below") is None
    assert [in_bytes(n) for n in (5, 2048, 1536 * MIB, 1000 * GIB)] == [
        "5 bytes",
        "2 KiB",
        "1.5 GiB",
        "1000 GiB",
    ]


# ---- the command -----------------------------------------------------------------------------


def command(*arguments: str, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*wrapper, sys.executable, "-m", "reader", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )


def levels_in(text: str) -> list[str]:
    return re.findall(r"^(ok|note|warning|error) ", text, re.MULTILINE)


def test_the_doctor_exits_by_its_worst_finding() -> None:
    done = command("doctor")
    levels = levels_in(done.stdout)
    assert done.returncode == (2 if "error" in levels else 1 if "warning" in levels else 0)
    assert done.stderr == ""
    trial = r"^(ok|warning) +trial run +first batch after \d+ ms, then \d+ us for each"
    assert re.search(trial, done.stdout, re.MULTILINE)
    remedies = re.findall(r"^ +-> \w", done.stdout, re.MULTILINE)
    assert len(remedies) == levels.count("warning") + levels.count("error")
    assert done.stdout.splitlines()[-1].startswith(f"{len(levels)} findings: ")


def test_findings_as_json_are_a_list_of_dicts() -> None:
    done = command("doctor", "--json")
    findings = [Finding(**each) for each in json.loads(done.stdout)]
    assert exit_code(findings) == done.returncode
    assert {"Python", "versions", "cores", "memory", "open files", "trial run"} <= {
        each.subject for each in findings
    }


def test_a_shell_with_few_open_files_is_an_error() -> None:
    done = command("doctor", wrapper=("sh", "-c", 'ulimit -n 48; exec "$@"', "sh"))
    assert done.returncode == 2
    assert re.search(r"^error +open files +48 at most", done.stdout, re.MULTILINE)


def test_a_sandbox_without_memory_files_is_an_error_with_its_remedy() -> None:
    probe = run("from tests.sandbox import forbid; forbid(1, 'kill')")
    if probe.returncode:
        pytest.skip("this system takes no seccomp filter")
    done = run(
        "import sys\n"
        "from tests.sandbox import forbid\n"
        "from reader.__main__ import main\n"
        "forbid(1, 'memfd_create')\n"
        "sys.exit(main(['doctor']))"
    )
    assert done.returncode == 2
    assert re.search(
        r"^error +memfd_create +the system refuses it: .*\n +-> a sandbox forbids a system call",
        done.stdout,
        re.MULTILINE,
    )
    assert re.search(
        r"^error +trial run +a loader with 2 workers failed: ReaderError: ",
        done.stdout,
        re.MULTILINE,
    )


def test_a_core_that_cannot_be_loaded_is_an_error_and_no_traceback() -> None:
    done = run(
        "import sys\n"
        "sys.modules['reader._core.memory.copying'] = None\n"
        "from reader.__main__ import main\n"
        "sys.exit(main(['doctor']))"
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert re.search(r"^error +compiled core +it cannot be loaded", done.stdout, re.MULTILINE)
    assert re.search(r"^error +trial run ", done.stdout, re.MULTILINE)


def test_without_a_command_help_is_printed() -> None:
    done = command()
    assert (done.returncode, done.stdout) == (2, "")
    assert "doctor" in done.stderr
    assert "find what makes a loader slow" in done.stderr


def test_an_unknown_command_is_named_with_the_known_ones() -> None:
    done = command("docter")
    assert done.returncode == 2
    assert re.search(r"invalid choice: '?docter'? \(choose from '?doctor'?", done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("levels", "code"),
    [([], 0), (["ok", "note"], 0), (["warning", "note"], 1), (["warning", "error", "ok"], 2)],
)
def test_the_exit_code_is_that_of_the_worst(levels: list[str], code: int) -> None:
    findings = [Finding(level, "a thing", "as it is") for level in levels]  # type: ignore[arg-type]
    assert exit_code(findings) == code


def test_a_report_aligns_findings_and_puts_remedies_below() -> None:
    findings = [
        Finding("ok", "a", "good"),
        Finding("warning", "long name", "bad", "do better"),
    ]
    assert report(findings).splitlines() == [
        "ok       a          good",
        "warning  long name  bad",
        "                    -> do better",
        "",
        "2 findings: 0 errors, 1 warning, 0 notes",
    ]


def test_a_check_that_fails_keeps_its_earlier_findings(machine: Machine) -> None:
    def half(machine: Machine) -> Iterator[Finding]:
        yield Finding("ok", "first", "seen")
        raise PermissionError(13, "Permission denied", "/sys/x")

    first, second = examine(machine, [half])
    assert (first.found, second.level, second.subject) == ("seen", "note", "half")
    assert "Permission denied: '/sys/x'" in second.found


HERE = Versions("3.11.7", "2.60.0", "0.1.0")
NODE = NodeFacts("b", False, HERE, {"CPU": 8.0}, 4 * GIB, 8 * GIB, 1.1e9)


def found_of(*facts: NodeFacts) -> dict[str, str]:
    """The worst finding of each node, as `level: found`."""
    worst: dict[str, Finding] = {}
    for each in nodes(facts, HERE):
        if each.subject not in worst or exit_code([each]) > exit_code([worst[each.subject]]):
            worst[each.subject] = each
    return {name: f"{each.level}: {each.found}" for name, each in worst.items()}


def test_healthy_nodes_of_a_cluster_are_ok() -> None:
    said = list(nodes([NODE, NODE._replace(host="a", is_here=True, bytes_per_s=None)], HERE))
    assert exit_code(said) == 0
    assert "2 nodes with 16 CPU in all" in said[0].found
    assert [each.subject for each in said[1:]] == ["node b"] * 3 + ["node a"] * 2
    assert "1100 MB/s come from it: 28.5 batches of 256 images a second" in said[3].found


@pytest.mark.parametrize(
    ("changed", "level", "words"),
    [
        ({"versions": HERE._replace(ray="2.9.0")}, "error", "ray 2.9.0, and here 2.60.0"),
        ({"error": "No module named 'reader'"}, "error", "no worker can run there: No module"),
        ({"shared_nbytes": 64 * MIB}, "warning", "4096 MiB, and its /dev/shm 64 MiB"),
        ({"store_nbytes": 100 * MIB}, "warning", "100 MiB: batches in flight"),
        ({"bytes_per_s": 112e6}, "warning", "2.9 batches of 256 images a second at most"),
    ],
)
def test_faulty_nodes_of_a_cluster_are_found(
    changed: dict[str, Any], level: str, words: str
) -> None:
    said = found_of(NODE._replace(**changed))["node b"]
    assert said.startswith(f"{level}: ")
    assert words in said
    assert all(
        each.remedy for each in nodes([NODE._replace(**changed)], HERE) if each.level != "ok"
    )


def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    (said,) = examine(checks=[cluster("127.0.0.1:9")])
    assert said.level == "error"
    assert "nothing answers" in said.found or "not installed" in said.found
    assert said.remedy
