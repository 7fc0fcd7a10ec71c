"""Texts of others that are printed, and opened paths that are no regular files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader import ConfigError, DatasetError, ImageError, RecordIO, TableRows, TokenWindows
from reader.errors import ReaderError, WorkerDied, printable
from reader.observe.finding import Finding, report
from tests.processes import ROOT, Program

ESCAPES = "\x1b]0;owned\x07\x1b[2J\n4242  9 forged \u202egnp\r\x9b1m"


def is_plain(text: str) -> bool:
    return all(each.isprintable() or each == "\n" for each in text)


# -- what is printed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py --rate 0.1", "train.py --rate 0.1"),
        ("naïve 日本語 עברית हिन्दी 🎉 €", "naïve 日本語 עברית हिन्दी 🎉 €"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("one\ntwo\rthree\x85four\u2028five", r"one\ntwo\rthree\x85four\u2028five"),
        ("a\u202eb\u2066c\u200fd", r"a\u202eb\u2066c\u200fd"),
        ("\x00\x07\x08\x7f\x9b", r"\x00\x07\x08\x7f\x9b"),
        ("name\udcff", r"name\udcff"),
        ("", ""),
    ],
)
def test_invisible_characters_are_escaped_and_letters_stay(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_every_character_is_printed_or_escaped() -> None:
    text = "".join(map(chr, range(0x110000)))
    shown = printable(text)
    assert shown.isprintable()
    shown.replace("\\", "").encode()  # no half of a surrogate


def test_an_error_keeps_its_lines_and_has_no_escapes() -> None:
    error = ConfigError(f"no file '{ESCAPES}'\n\tsee it")
    assert is_plain(str(error).replace("\t", ""))
    assert str(error).endswith("\n\tsee it")
    assert error.args == (f"no file '{ESCAPES}'\n\tsee it",)
    assert str(ReaderError("plain")) == "plain"
    assert "\x1b" not in str(WorkerDied(cause="\x1b[2J", pid=1))
    assert "\x1b" not in str(reader.ArenaFull("\x1b[2J"))
    assert "\x1b" not in str(reader.LoadTimeout("\x1b[2J"))


TRAINER = """
    import sys
    import numpy as np
    import reader

    class Numbers:
        def __len__(self):
            return 8
        def __getitem__(self, index):
            return np.zeros(2)

    if __name__ == "__main__":
        with reader.DataLoader(Numbers(), batch_size=2, num_workers=1) as loader:
            batches = iter(loader)
            next(batches)
            print("there", flush=True)
            sys.stdin = open(sys.argv[1])
            sys.stdin.read()
"""


def test_top_shows_the_arguments_of_a_program_on_its_own_line(
    program: Callable[..., Program], gate: Any
) -> None:
    trainer = program(TRAINER, gate.path, ESCAPES)
    assert trainer.line() == "there"
    pid = trainer.process.pid
    done = subprocess.run(
        [sys.executable, "-m", "reader", "top", str(pid), "--once", "--seconds", "0.1"],
        capture_output=True,
        cwd=ROOT,
        text=True,
        timeout=60,
        check=True,
    )
    assert is_plain(done.stdout)
    assert len(done.stdout.splitlines()) == 2
    assert r"\x1b]0;owned\x07\x1b[2J" in done.stdout


def test_the_doctor_shows_a_finding_on_its_own_lines() -> None:
    text = report([Finding("warning", f"node {ESCAPES}", ESCAPES, ESCAPES)])
    assert is_plain(text)
    assert len(text.splitlines()) == 4  # the finding, its remedy, an empty one and the sum


def test_the_profile_of_a_script_with_a_strange_name_is_plain(tmp_path: Path) -> None:
    script = tmp_path / f"train{ESCAPES.replace('/', '')}.py"
    script.write_text(
        "import numpy as np\n"
        "import reader\n"
        "class Strange:\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, index): return np.zeros(2)\n"
        "Strange.__name__ = 'Strange\\x1b[2J\\nforged'\n"
        "for batch in reader.DataLoader(Strange(), batch_size=2): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "reader", "profile", str(script)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        text=True,
        timeout=60,
        check=True,
    )
    assert is_plain(done.stderr)
    assert r"loader over Strange\x1b[2J\nforged, iterated at train\x1b]0;owned" in done.stderr
    assert not [line for line in done.stderr.splitlines() if line.startswith(("forged", "4242"))]


def test_names_of_files_in_warnings_are_plain(tmp_path: Path) -> None:
    pytest.importorskip("simplejpeg")
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "one.jpg").touch()
    (tmp_path / "class" / f"{ESCAPES}.gif").touch()
    with pytest.warns(UserWarning, match="1 file .gif left out") as caught:
        reader.images.ImageFolder(tmp_path)
    assert is_plain(str(caught[0].message))
    assert "\n" not in str(caught[0].message)


def test_failed_samples_are_logged_without_escapes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Fails(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            raise ValueError(ESCAPES)

        def __len__(self) -> int:
            return 2

    loader = reader.DataLoader(
        Fails(), batch_size=1, sampler=[0, 1], on_error="skip", error_budget=2
    )
    assert list(loader) == []
    assert all(is_plain(record.getMessage()) for record in caplog.records)
    assert caplog.records


# -- what is opened ------------------------------------------------------------------------------


@pytest.fixture
def in_time() -> Iterator[None]:
    """A pipe that is opened nevertheless is released after 20 s, and fails the test."""
    pipes: list[Path] = []

    def pipe(path: Path) -> Path:
        os.mkfifo(path)
        pipes.append(path)
        return path

    hung = threading.Event()

    def let_go() -> None:
        hung.set()
        for path in pipes:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))

    timer = threading.Timer(20, let_go)
    timer.start()
    yield pipe  # type: ignore[misc]
    timer.cancel()
    timer.join()
    assert not hung.is_set(), "a pipe was opened, and waited for"


class Rows(reader.Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return np.zeros(2)


def quarantine(path: Any) -> Any:
    return reader.DataLoader(Rows(), on_error="skip", quarantine=path)


OPENED: list[tuple[str, Callable[[Any], Any], type[Exception]]] = [
    ("x.jsonl", quarantine, ConfigError),
    ("x.jsonl", lambda path: reader.without(Rows(), path), ConfigError),
    ("x.rec", RecordIO, ConfigError),
    ("x.parquet", TableRows, ConfigError),
    ("x.parquet", lambda path: TableRows(Path(path).parent), ConfigError),
    ("x.bin", lambda path: TokenWindows(path, 4), ConfigError),
    ("x.cache", lambda path: reader.cache(Rows(), disk=path), ConfigError),
]


@pytest.mark.parametrize(("name", "use", "error"), OPENED)
def test_a_pipe_is_refused_without_waiting(
    tmp_path: Path, in_time: Any, name: str, use: Callable[[Any], Any], error: type[Exception]
) -> None:
    path = in_time(tmp_path / name)
    with pytest.raises(error, match=r"pipe, and no regular file|no regular file|File exists"):
        use(str(path))


def test_a_picture_that_is_a_pipe_is_an_error_of_its_sample(tmp_path: Path, in_time: Any) -> None:
    pytest.importorskip("simplejpeg")
    (tmp_path / "class").mkdir()
    for name in ("one", "two"):
        in_time(tmp_path / "class" / f"{name}.jpg")
    folder = reader.images.ImageFolder(tmp_path)
    with pytest.raises(ImageError, match=r"cannot be read: .*it is a pipe, and no regular file"):
        list(reader.DataLoader(folder, batch_size=2))


def test_an_index_that_is_a_pipe_is_refused(tmp_path: Path, in_time: Any) -> None:
    with reader.RecordWriter(tmp_path / "x.rec") as file:
        file.write(b"one")
    (tmp_path / "x.idx").unlink()
    in_time(tmp_path / "x.idx")
    with pytest.raises(ConfigError, match=r"the index .* cannot be read: .*it is a pipe"):
        RecordIO(tmp_path / "x.rec")


@pytest.mark.parametrize("path", ["/dev/full", "/dev/zero", "/dev/null", "/dev/stderr"])
def test_a_quarantine_is_a_regular_file(path: str) -> None:
    program = (
        "import sys, reader\n"
        "try:\n"
        "    reader.DataLoader([1, 2], on_error='skip', quarantine=sys.argv[1])\n"
        "except reader.ConfigError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        capture_output=True,
        cwd=ROOT,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"quarantine='{path}' cannot be written" in done.stdout
    assert "Pass a regular file in a folder" in done.stdout


def test_a_quarantine_may_be_a_link_to_a_file_and_has_lines_of_others(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"[" * 100_000 + b"\n" + b"x" * (3 << 20) + b"\nno JSON\n")
    (tmp_path / "link").symlink_to(kept)

    class Fails(Rows):
        def __getitem__(self, index: int) -> Any:
            raise ValueError(index)

    for _ in range(2):
        assert list(quarantine_of(Fails(), tmp_path / "link")) == []
    assert len(kept.read_bytes().splitlines()) == 3 + 4


def quarantine_of(dataset: Any, path: Path) -> Any:
    return reader.DataLoader(
        dataset, batch_size=2, on_error="skip", error_budget=4, quarantine=path
    )


def test_a_report_goes_only_to_a_pipe_with_a_reader(tmp_path: Path, in_time: Any) -> None:
    script = tmp_path / "train.py"
    script.write_text("import reader\nfor batch in reader.DataLoader(range(8)): pass\n")
    path = in_time(tmp_path / "report.json")

    def run() -> Any:
        return subprocess.run(
            [sys.executable, "-m", "reader", "profile", "--json", str(path), str(script)],
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            text=True,
            timeout=60,
            check=False,
        )

    refused = run()
    assert refused.returncode == 2
    assert "cannot be written: it is a pipe or socket that nobody reads from" in refused.stderr
    reads = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run().returncode == 0
        assert os.read(reads, 1 << 16).startswith(b"[\n")
    finally:
        os.close(reads)


def test_a_trace_or_picture_for_a_pipe_that_nobody_reads_is_refused(
    tmp_path: Path, in_time: Any
) -> None:
    loader = reader.DataLoader(range(8))
    with reader.profile(loader) as seen:
        list(loader)
    path = in_time(tmp_path / "trace.png")
    with pytest.raises(OSError, match="a pipe or socket that nobody reads from"):
        seen.to_trace(path)
    pytest.importorskip("matplotlib")
    with pytest.raises(OSError, match="a pipe or socket that nobody reads from"):
        seen.plot(path)


def test_a_damaged_record_claims_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    path.write_bytes(b"\x0a\x23\xd7\xce\xff\xff\xff\x1f" + bytes(8))
    with pytest.raises(DatasetError, match="has 536870911 bytes, and the file ends at 16"):
        RecordIO(path)
