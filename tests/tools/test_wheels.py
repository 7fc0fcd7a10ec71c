"""The tool that makes wheels: its build environment, its trials, and its refusals."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.matrix import pythons
from tools.smoke.__main__ import look_into_wheel
from tools.wheels import __main__ as wheels
from tools.wheels import aarch64

ROOT = Path(__file__).parents[2]


def test_an_interpreter_says_what_it_is() -> None:
    python = wheels.Python.at(Path(sys.executable))
    assert python.version.rstrip("t") == ".".join(map(str, sys.version_info[:2]))
    assert python.suffix.endswith(".so")


def test_an_environment_is_empty(tmp_path: Path) -> None:
    ours = wheels.Python.at(Path(sys.executable)).environment(tmp_path / "venv", "--without-pip")
    assert wheels.run(ours, "-c", wheels.HELD).strip() == "{}"


def test_pythons_are_chosen_by_version_and_by_path(tmp_path: Path) -> None:
    found = {"3.10": Path("/a/python3.10"), "3.12": Path("/a/python3.12")}
    assert wheels.chosen([], found) == list(found.values())
    assert wheels.chosen(["3.12"], found) == [found["3.12"]]
    assert wheels.chosen(["3.12", "/b/python3.14t"], found)[1] == Path("/b/python3.14t")


def test_a_missing_python_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"there is no Python 3\.19 here, but 3\.10"):
        wheels.chosen(["3.19"], {"3.10": Path("/a/python3.10")})


def test_the_oldest_numpy_is_at_the_floor_or_above_it() -> None:
    found = re.search(r'"numpy>=1\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert found
    oldest = {tuple(map(int, each.split(".")))[:2] for each in wheels.OLDEST_NUMPY.values()}
    assert min(oldest) == (1, int(found[1]))
    classifiers = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    assert set(classifiers) <= wheels.OLDEST_NUMPY.keys()


def test_forbidden_findings_are_refused() -> None:
    wheels.refuse([])
    with pytest.raises(SystemExit, match=r"wheels: a\nwheels: b"):
        wheels.refuse(["a", "b"])


def test_a_library_beside_the_package_is_found(tmp_path: Path) -> None:
    wheel = tmp_path / "lodreader-1-cp310-cp310-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("lodreader-1.dist-info/METADATA", "Name: lodreader\n")
        archive.writestr("lodreader.libs/libstdc++-1.so.6", "")
    problems = look_into_wheel(wheel, ROOT, suffix=".cpython-310-x86_64-linux-gnu.so")
    assert any("holds lodreader.libs/libstdc++-1.so.6, which is not" in each for each in problems)
    module = "reader/_core/wire/blocking_queue.cpython-310-x86_64-linux-gnu.so"
    assert f"{wheel.name} lacks {module}" in problems


def test_the_release_builds_existing_targets() -> None:
    workflow = (ROOT / ".github/workflows/release.yml").read_text()
    targets = set(re.findall(r"\bmake ([a-z-]+)", workflow))
    assert targets == {"wheels"}
    assert re.search(r"^wheels:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    # the release builds the promised wheels
    (versions,) = re.findall(r'ARGS="([\d. ]+)"', workflow)
    classifiers = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    assert versions.split() == classifiers


def test_the_pythons_of_this_machine_have_the_version_they_are_listed_by() -> None:
    for version, path in pythons().items():
        assert wheels.Python.at(path).version.rstrip("t") == version


def test_the_emulated_python_starts_itself_again_by_the_emulator(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    command = aarch64.make_python(tmp_path / "root", site, "3.11", tmp_path)
    said = command.read_text()
    assert f'qemu-aarch64 -L "{tmp_path}/root" "{tmp_path}/root/usr/bin/python3.11" "$@"' in said
    told = "import sys, sitecustomize; print(sys.executable)"
    run = subprocess.run(
        [sys.executable, "-S", "-c", told],
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == str(command)
    assert aarch64.suffix_of("3.11") == ".cpython-311-aarch64-linux-gnu.so"
