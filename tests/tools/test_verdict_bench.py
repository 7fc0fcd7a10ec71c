"""A sample of programs with different bottlenecks; the tool itself runs all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reader.cgroups import ControlGroup
from reader.observe.verdict import Verdict
from tools.verdict_bench.__main__ import Row, advised, main, measure, peer_row
from tools.verdict_bench.memory_group import VARIABLE, made_group
from tools.verdict_bench.peers import LEFT_OUT, SaidOfSpdl
from tools.verdict_bench.programs import KINDS, PROGRAMS

ROOT = Path(__file__).parents[2]
# programs that wait for their bottleneck, however busy the machine is
SAMPLE = [
    ("one slow sample", "0"),
    ("a slow one of many", "0"),
    ("three slow ones", "2"),
    ("1 % are slow", "2 threads"),
    ("cold start", "2"),
    ("collate_fn that waits", "2 threads"),
    ("two loaders on a pool", "pool of 2"),
]

# enters its group, and leaves a process there
IN_A_GROUP = """
import os, subprocess, sys
from pathlib import Path
from reader.cgroups import groups_of
from tools.verdict_bench.memory_group import VARIABLE, MemoryGroup

group = MemoryGroup(Path(os.environ[VARIABLE]))
group.limit(256 << 20)
group.enter()
held = bytearray(16 << 20)
print(group.used_bytes(), group.folder in [each.folder for each in groups_of("memory")])
print(subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)
"""


@pytest.mark.parametrize(("name", "kind"), SAMPLE)
def test_the_verdict_names_the_bottleneck_of_a_program(name: str, kind: str) -> None:
    row = measure(name, PROGRAMS[name], kind, tries=1)
    assert row.is_named, row
    assert row.forecast is not None
    assert row.forecast > 1


def test_each_word_of_a_verdict_has_a_program_and_a_line_in_the_page() -> None:
    words = set(re.findall(r'"(\w+)"', (Verdict.__doc__ or "").split("sentence:")[0]))
    assert len(words) == 16
    assert {program.expected for program in PROGRAMS.values()} == words
    page = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
    page = page.partition("## The words")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (\w+) \|.*\| (`[^|]*`) \|$", page, re.MULTILINE))
    assert set(rows) == words
    named = {name for row in rows.values() for name in re.findall(r"`([^`]+)`", row)}
    assert named == set(PROGRAMS)
    assert {kind for program in PROGRAMS.values() for kind in program.kinds} == set(KINDS)


def test_a_group_holds_the_processes_started_within_it_and_is_removed() -> None:
    if PROGRAMS["memory is short"].missing():
        pytest.skip("no memory cgroup may be made here")
    with made_group() as group:
        assert os.environ[VARIABLE] == str(group.folder)
        command = [sys.executable, "-c", IN_A_GROUP]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        used, is_in_it, left = done.stdout.split()
        assert int(used) >= 16 << 20
        assert is_in_it == "True"
        assert (group.folder / "cgroup.procs").read_text().split() == [left]
    assert not group.folder.exists()
    assert VARIABLE not in os.environ


def test_a_program_is_skipped_if_no_group_may_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [ControlGroup(tmp_path / "none", 1), ControlGroup(tmp_path, 2)]
    with (
        pytest.raises(OSError, match="no memory cgroup in which one may be made"),
        made_group(groups),
    ):
        pass
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    reason = PROGRAMS["memory is short"].missing()
    assert reason == (
        f"{tmp_path} is no memory cgroup that may be limited and entered:"
        " VERDICT_BENCH_CGROUP=FOLDER names one"
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_named_group_is_used_and_stays(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = {1: "memory.limit_in_bytes", 2: "memory.max"}[version]
    used = {1: "memory.usage_in_bytes", 2: "memory.current"}[version]
    for name, text in {limit: "0", used: "4096\n", "cgroup.procs": ""}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with made_group() as group:
        assert group.used_bytes() == 4096
        group.limit(1 << 20)
        assert (tmp_path / limit).read_text() == str(1 << 20)
        group.limit(None)
        assert (tmp_path / limit).read_text() == {1: "-1", 2: "max"}[version]
        group.enter()
        assert (tmp_path / "cgroup.procs").read_text() == str(os.getpid())
    assert tmp_path.exists()


def test_torchs_verdict_of_a_program_is_shown_beside_the_word() -> None:
    row = peer_row("one slow sample", PROGRAMS["one slow sample"])
    assert re.fullmatch(r"\| one slow sample \| sample \| \d+% in `__next__`.* \| .* \|", row), row


def test_programs_that_peers_cannot_run_are_skipped_with_the_reason() -> None:
    assert set(LEFT_OUT) < set(PROGRAMS)
    for name, reason in LEFT_OUT.items():
        assert peer_row(name, PROGRAMS[name]) == f"| {name} | left out: {reason} | | |"


def test_spdl_names_the_first_stage_whose_queue_is_mostly_empty() -> None:
    assert SaidOfSpdl({"source": 0.99, "fetch": 0.02, "sink": 0.1}).stage == "fetch"
    assert SaidOfSpdl({"source": 0.99, "fetch": 0.9, "sink": 0.8}).stage == "consumer"


def test_a_row_is_right_if_word_and_gain_are_right() -> None:
    row = Row("a", "2", "step", "step", "", 1.2, 1.0, 0.0)
    assert row.is_right
    assert not Row("a", "2", "step", "start", "", 1.0, 1.0, 0.0).is_right
    assert not Row("a", "2", "step", "step", "", 1.3, 1.0, 0.0).is_right
    assert Row("a", "2", "step", "step", "", None, 9.0, 0.0).is_right


def test_an_unknown_program_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["no such"])
    assert ended.value.code == 2
    assert "no program is called ['no such']" in capsys.readouterr().err


def test_the_advice_for_a_pool_names_options_that_follow_it() -> None:
    said = {"options": {}, "advice": "WorkerPool(5), or look at those loaders."}
    assert advised(said) == {"pool": 5}
    said["advice"] = "No core is left for more workers: look at those loaders."
    assert advised(said) == {"is_alone": True}
    assert advised({"options": {"num_workers": 3}, "advice": "num_workers=3."}) == {
        "num_workers": 3
    }
