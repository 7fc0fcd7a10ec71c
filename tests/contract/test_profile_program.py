"""`python -m reader profile script.py`: the script runs as it is, and each loop is explained."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reader.observe.program import check_reports

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, signal, sys
import reader

class Numbers:
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return float(index)

if __name__ == "__main__":
    print(__file__, *sys.argv[1:])
    how, start = sys.argv[1:3]
    with reader.DataLoader(
        Numbers(), batch_size=4, num_workers=2, start_method=start
    ) as loader:
        for _ in range(2):
            print(sum(float(sum(batch)) for batch in loader))
    for batch in reader.DataLoader([1, 2, 3]):
        pass
    if how == "raise":
        raise KeyError("no such thing")
    if how == "exit":
        sys.exit(7)
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
"""


def run(folder: Path, *arguments: str, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    return subprocess.run(
        [sys.executable, "-m", "reader", "profile", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=folder,
    )


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_a_script_runs_as_it_is_and_each_loader_is_explained(tmp_path: Path, start: str) -> None:
    done = run(
        tmp_path, "--json", "all.json", "--trace", "trace.json", "train.py", "end", start, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"train.py end {start} --json", "496.0", "496.0"]
    assert "-- loader over Numbers, iterated at train.py:19" in done.stderr
    assert "-- loader over list, iterated at train.py:20" in done.stderr
    first, second = json.loads((tmp_path / "all.json").read_text())
    assert (first["place"], second["place"]) == ("train.py:19", "train.py:20")
    assert (first["measured"]["batches"], second["measured"]["batches"]) == (16, 3)
    assert first["measured"]["workers"] == 2
    for name in ("trace.json", "trace-2.json"):
        assert json.loads((tmp_path / name).read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("exit", 7, ""),
        ("raise", 1, "KeyError: 'no such thing'"),
        ("interrupt", -signal.SIGINT, "KeyboardInterrupt"),
    ],
)
def test_the_report_comes_and_the_exit_code_is_that_of_the_script(
    tmp_path: Path, how: str, code: int, said: str
) -> None:
    done = run(tmp_path, "train.py", how, "fork")
    assert done.returncode == code
    assert "16 batches in" in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("option", "library"), [("--torch", "torch.utils.data"), ("--paddle", "paddle.io")]
)
def test_loaders_of_another_library_are_replaced_by_ours(
    tmp_path: Path, option: str, library: str
) -> None:
    pytest.importorskip(library.partition(".")[0])
    script = f"""
import numpy
from {library} import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return numpy.full(2, index, numpy.float32)

if __name__ == "__main__":
    loader = DataLoader(Numbers(), batch_size=4)
    for _ in range(2):
        assert len(list(loader)) == 3
"""
    done = run(tmp_path, option, "train.py", script=script)
    assert done.returncode == 0, done.stderr
    assert "-- loader over Numbers, iterated at train.py:15" in done.stderr
    assert "6 batches in" in done.stderr


def test_time_between_epochs_does_not_count_for_the_loop(tmp_path: Path) -> None:
    script = """
import threading
import reader

loader = reader.DataLoader([1.0, 2.0, 3.0])
for _ in range(3):
    for batch in loader:
        pass
    threading.Event().wait(0.4)
"""
    done = run(tmp_path, "--json", "all.json", "train.py", script=script)
    assert done.returncode == 0, done.stderr
    (only,) = json.loads((tmp_path / "all.json").read_text())
    assert only["measured"]["batches"] == 9
    assert only["measured"]["seconds"] < 0.4


def test_workers_of_a_loader_that_only_its_loop_holds_are_seen(tmp_path: Path) -> None:
    script = """
import threading
import reader

class Photos:
    def __len__(self):
        return 60

    def __getitem__(self, index):
        threading.Event().wait(0.01)
        return float(index)

for batch in reader.DataLoader(Photos(), batch_size=2, num_workers=2):
    pass
"""
    done = run(tmp_path, "--json", "all.json", "train.py", script=script)
    assert done.returncode == 0, done.stderr
    (only,) = json.loads((tmp_path / "all.json").read_text())
    assert only["measured"]["cpu_s"] is not None
    assert only["verdict"]["bound_by"] == "storage"


def test_a_program_without_our_loader_is_reported(tmp_path: Path) -> None:
    done = run(tmp_path, "train.py", script="print('done')")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "no loader of reader was iterated over" in done.stderr


@pytest.mark.parametrize(
    "names", [("WORLD_SIZE", "RANK"), ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID")]
)
def test_each_rank_has_files_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    script = "import reader\nfor batch in reader.DataLoader([1.0] * 8): pass\n"
    monkeypatch.setenv(names[0], "2")
    for rank in range(2):
        monkeypatch.setenv(names[1], str(rank))
        done = run(
            tmp_path, "--json", "all.json", "--trace", "loop.json", "train.py", script=script
        )
        assert done.returncode == 0, done.stderr
        assert f"-- rank {rank} of 2: loader over list" in done.stderr
        assert f"-- files of this rank: all-rank{rank}.json, loop-rank{rank}.json" in done.stderr
    made = sorted(path.name for path in tmp_path.glob("*.json"))
    assert made == ["all-rank0.json", "all-rank1.json", "loop-rank0.json", "loop-rank1.json"]
    monkeypatch.setenv(names[0], "1")
    assert run(tmp_path, "--json", "all.json", "train.py", script=script).returncode == 0
    assert (tmp_path / "all.json").exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.py"], "there is no file 'none.py'"),
        (
            ["--trace", "none/t.json", "train.py"],
            "'none/t.json' cannot be written: there is no folder",
        ),
        (["--plot", ".", "train.py"], "'.' cannot be written: it is a folder"),
        (["--json", "", "train.py"], "'' cannot be written: it is a folder"),
        (
            ["--plot", "loop.none", "train.py"],
            "'loop.none' cannot be written: matplotlib writes no '.none': its endings are ",
        ),
        (
            ["--json", "a", "--trace", "./a", "train.py"],
            "'./a' cannot be written: --trace names the file of another report",
        ),
        ([], "the following arguments are required: script"),
    ],
)
def test_a_wrong_command_line_ends_with_2(tmp_path: Path, arguments: Any, said: str) -> None:
    if "matplotlib" in said:
        pytest.importorskip("matplotlib")
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""  # the script has not begun


def test_a_file_that_cannot_be_written_loses_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = "--plot", "gone/loop.png", "--json", "loop.json", "train.py", "exit", "fork"
    (tmp_path / "gone").mkdir()
    done = run(tmp_path, *arguments, script=f"import os\nos.rmdir('gone')\n{SCRIPT}")
    assert done.returncode == 7  # the script's own
    assert done.stderr.count("batches in") == 2
    assert "'gone/loop.png' cannot be written: " in done.stderr
    assert len(json.loads((tmp_path / "loop.json").read_text())) == 2


def test_a_plot_without_matplotlib_is_refused_before_the_script(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('none is here')")
    arguments = "profile", "--plot", "loop.png", "train.py"
    (tmp_path / "train.py").write_text("print('it has begun')")
    done = subprocess.run(
        [sys.executable, "-m", "reader", *arguments],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "plot needs matplotlib, which cannot be imported (ImportError: none" in done.stderr
    assert "lodreader[profile]" in done.stderr


def test_a_file_may_be_written_in_a_read_only_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there.json").touch()
    access = os.access
    forbidden = {tmp_path, tmp_path / "other.png"}
    monkeypatch.setattr(os, "access", lambda path, how: path not in forbidden and access(path, how))
    assert check_reports(str(tmp_path / "there.json")) == []
    (said,) = check_reports(str(tmp_path / "new.json"))
    assert said.endswith("new.json' cannot be written: its folder may not be written to")
    (tmp_path / "other.png").touch()
    (said,) = check_reports(plot_path=str(tmp_path / "other.png"))
    assert said.endswith("other.png' cannot be written: it is there, and may not be written to")


def test_a_script_that_is_no_python_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "train.py", script="def")
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr


def test_loaders_freed_with_their_memory_do_not_disturb_the_script(tmp_path: Path) -> None:
    script = """
import reader
for workers in (0, 2, 2):
    loader = reader.DataLoader(list(range(100)), batch_size=8, num_workers=workers)
    for batch in loader: pass
    for batch in loader: break
    loader = None
    batches = iter(reader.DataLoader(list(range(100)), batch_size=8, num_workers=workers))
    for batch in batches: pass
raise SystemExit(5)
"""
    done = run(tmp_path, "train.py", script=script)
    assert done.returncode == 5, done.stderr
    assert done.stderr.count("-- loader over list") == 6
    assert "Traceback" not in done.stderr
    for share in re.findall(r"The loop waits (\d+)%", done.stderr):
        assert int(share) <= 100
