"""Cross-compile a wheel for 64-bit Arm, and run the core's tests under an emulator.

Needs Debian's `gcc-aarch64-linux-gnu`, `g++-aarch64-linux-gnu` and `qemu-user`. Debian's Python for
that machine is unpacked into a folder, and nothing of this machine's packages changes. setup.py
runs here, under the same Python, and compiles by the cross compiler against the headers of that
Python and of NumPy for it. An emulator shows that the code is right, and nothing of its speed, nor
of the order in which a real Arm lets other cores see what one wrote. Run as
``python -m tools.wheels.aarch64 [arguments of pytest]``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tools.matrix import pythons
from tools.smoke.__main__ import PROGRAM, ROOT, copy_checkout, look_into_wheel, repair, run
from tools.wheels.__main__ import (
    Python,
    build,
    keep,
    make_builder,
    make_sdist,
    refuse,
    row_of,
)

CROSS = "aarch64-linux-gnu"
PACKAGES = "python3-dev", "libstdc++6"
WHEELS = "cloudpickle numpy hypothesis ml_dtypes psutil pytest pytest-timeout pytest-xdist".split()
# What computes, and what shares memory between threads.
TESTS = """tests/unit/test_permutation.py tests/unit/test_digest.py tests/unit/test_fixed_table.py
tests/unit/test_ragged.py tests/unit/test_exchange.py tests/unit/test_indices.py
tests/unit/test_images.py tests/unit/test_record_io.py tests/contract/test_blocking_queue.py
tests/contract/test_lod_tensor.py""".split()
# The emulator aborts where a process with several threads forks; one test needs torch. The first
# program forks from one thread, by every start method.
NOT_EMULATED = """tests/unit/test_exchange.py::test_tensors_are_distinguished_by_their_contents
tests/unit/test_indices.py::test_samplers_of_the_user_are_asked
tests/unit/test_indices.py::test_index_outside_of_the_dataset_is_refused
tests/unit/test_record_io.py::test_loader_reads_records_in_its_workers
tests/contract/test_lod_tensor.py::test_09_views_made_and_dropped_in_many_threads""".split()
# Python has the emulator's path for its own: what starts Python must start the emulator.
_SITE = """
import sys
sys.executable = sys._base_executable = {python!r}
"""
# The emulator lets no process adopt orphans: the tests' ledger does not see those.
_PLUGIN = """
import tests.ledger
tests.ledger.adopt_orphans = lambda: None
"""


def main(arguments: list[str]) -> int:
    """Build and try; the exit code is that of the tests."""
    with tempfile.TemporaryDirectory(prefix="lodreader-aarch64-") as name:
        work = Path(name)
        root = fetch_root(work / "root")
        (found,) = (root / "usr/include").glob("python3.*")
        version = found.name.removeprefix("python")
        if version not in pythons():
            sys.exit(f"aarch64: Debian's Python is {version}, and there is none here to build with")
        python = Python.at(pythons()[version])
        site = work / "site"
        fetch_wheels(site, version)
        checkout = copy_checkout(work / "checkout")
        sdist = make_sdist(checkout, work / "sdist")
        wheel = cross_compile(python, sdist, root, site, work)
        refuse(look_into_wheel(wheel, checkout, suffix=suffix_of(version)))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        emulated = make_python(root, site, version, work)
        numpy = run(emulated, "-c", "import numpy; print(numpy.__version__)").strip()
        print(run(emulated, PROGRAM, site), flush=True)
        code = run_tests(emulated, checkout, arguments)
        if code == 0:
            keep(wheel)
    outcome = "passed, emulated" if code == 0 else "failed"
    print(row_of(version, "aarch64", numpy, wheel.stem.split("-")[-1], outcome))
    return code


def fetch_root(folder: Path) -> Path:
    """Unpack Debian's Python for 64-bit Arm and what it needs; return the folder."""
    state, cache = folder.with_name("apt-state"), folder.with_name("apt-cache")
    for each in (folder, state / "lists/partial", cache / "archives/partial"):
        each.mkdir(parents=True)
    (state / "status").touch()
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Dir::Cache": cache,
        "Dir::Etc::sourcelist": sources if sources.exists() else "/etc/apt/sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": state,
        "Dir::State::status": state / "status",
    }
    apt = ["apt-get", *(f"-o{key}={value}" for key, value in options.items())]
    run(*apt, "update")
    run(*apt, "install", "--yes", "--download-only", *PACKAGES)
    for archive in sorted((cache / "archives").glob("*.deb")):
        run("dpkg", "-x", archive, folder)
    for name in ("lib", "bin"):
        if not (folder / name).exists():
            (folder / name).symlink_to(f"usr/{name}")
    return folder


def fetch_wheels(site: Path, version: str) -> None:
    """Install what the tests need, of wheels for that machine."""
    platforms = ("manylinux2014_aarch64", "manylinux_2_28_aarch64", "manylinux_2_34_aarch64")
    options = [part for each in platforms for part in ("--platform", each)]
    pip = sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"
    pinned = "-c", ROOT / "requirements/constraints.txt"
    for_it = "--python-version", version, "--only-binary", ":all:"
    run(*pip, "--target", site, *options, *for_it, *pinned, *WHEELS)


def suffix_of(version: str) -> str:
    """Return how that Python ends the names of compiled modules."""
    return f".cpython-{version.replace('.', '')}-{CROSS}.so"


def cross_compile(python: Python, sdist: Path, root: Path, site: Path, work: Path) -> Path:
    """Build the wheel here by the cross compiler; return what auditwheel makes of it."""
    builder = make_builder(python, work / "builder")
    headers = root / f"usr/include/python{python.version}"
    folders = [root / "usr/include", headers, *site.glob("numpy/*/include")]
    variables = {
        "CC": f"{CROSS}-gcc",
        "CXX": f"{CROSS}-g++",
        "LDSHARED": f"{CROSS}-gcc -shared",
        "LDCXXSHARED": f"{CROSS}-g++ -shared",
        "CFLAGS": " ".join(f"-I{each}" for each in folders),
        "SETUPTOOLS_EXT_SUFFIX": suffix_of(python.version),
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
    }
    return repair(build(builder, sdist, work / "raw", **variables), work / "repaired")


def make_python(root: Path, site: Path, version: str, work: Path) -> Path:
    """Write the command that is Python for that machine, with the packages in `site`."""
    command = work / "python"
    (site / "emulated.py").write_text(_PLUGIN)
    (site / "sitecustomize.py").write_text(_SITE.format(python=str(command)))
    emulator = f'qemu-aarch64 -L "{root}" "{root}/usr/bin/python{version}"'
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec {emulator} "$@"\n')
    command.chmod(0o755)
    return command


def run_tests(python: Path, checkout: Path, arguments: list[str]) -> int:
    """Run the core's tests on the installed package; return pytest's exit code."""
    (checkout / "reader").rename(checkout.with_name("sources"))  # what is installed is tried
    options = ["-q", "-p", "no:cacheprovider", "-p", "emulated", "--timeout=600"]
    options += ["-m", "not gpu and not alone and not evidence"]
    left_out = [part for each in NOT_EMULATED for part in ("--deselect", each)]
    command: list[str | Path] = [python, "-m", "pytest", *options, *left_out]
    command += arguments or TESTS
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    clean["READER_TEST_WITHOUT"] = "torch,paddle,torchdata"
    return subprocess.run(command, cwd=checkout, env=clean, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
