"""The tests under every Python that can be found, with the frameworks that exist for each.

Makes an environment per Python, `.venv-3.12` and the like, and works in copies of the checkout.
Without versions all Pythons that are found. Run as ``python -m tools.matrix [3.12 ...] [arguments
of pytest]``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tools.smoke.__main__ import ROOT, copy_checkout

OLDEST, NEWEST = 10, 20  # 3.x
TOOLS = (
    "hypothesis ml_dtypes psutil pytest pytest-timeout pytest-xdist scikit-learn scipy mypy ruff "
    "build matplotlib nvtx pandas pillow prometheus-client pyarrow rich simplejpeg tensorboard "
    "tensorboardX tqdm"
).split()
# Packages that are installed together, and the modules that then import.
FRAMEWORKS = {
    "paddle": ["paddlepaddle"],
    "torch": ["torch", "torchdata", "accelerate", "pytorch-lightning"],
}
TESTS = ["-q", "-n", "2", "-m", "not evidence and not gpu and not alone"]


def main(arguments: list[str]) -> int:
    """Run each; 0 when the tests pass everywhere."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    wanted = [each for each in arguments if re.fullmatch(r"3\.\d+", each)]
    more = [each for each in arguments if each not in wanted]
    found = pythons()
    missing = [each for each in wanted if each not in found]
    if missing:
        sys.exit(f"matrix: there is no Python {', '.join(missing)} here, but {', '.join(found)}")
    lines = []
    for version in wanted or found:
        begun = time.monotonic()
        code, frameworks = run_one(version, found[version], more)
        said = "passed" if code == 0 else f"FAILED (exit code {code})"
        took_s = time.monotonic() - begun
        lines.append((code, f"Python {version} with {frameworks}: {said} in {took_s:.0f} s"))
        print(f"matrix: {lines[-1][1]}", flush=True)
    print("\n".join(["matrix:", *(f"  {line}" for _, line in lines)]))
    return max((code for code, _ in lines), default=1)


def pythons() -> dict[str, Path]:
    """Every Python that runs, oldest first: on the path, and of pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = {}
    for minor in range(OLDEST, NEWEST + 1):
        version = f"3.{minor}"
        on_path = shutil.which(f"python{version}")
        candidates = sorted(root.glob(f"{version}*/bin/python{version}"), reverse=True)
        for candidate in [*candidates, *([Path(on_path)] if on_path else [])]:
            told = "import sys; print('%d.%d' % sys.version_info[:2])"
            done = subprocess.run(
                [candidate, "-c", told], capture_output=True, text=True, check=False
            )
            if done.stdout.strip() == version:
                found[version] = candidate
                break
    return found


def run_one(version: str, python: Path, more: list[str]) -> tuple[int, str]:
    """Build and test under one Python; returns (exit code, the frameworks that were there)."""
    environment = ROOT / f".venv-{version}"
    ours = environment / "bin/python"
    if not ours.exists():
        subprocess.run([python, "-m", "venv", environment], check=True)
    if not install(ours, "-r", str(ROOT / "requirements/build.txt"), *TOOLS):
        return 1, "nothing: installing failed"
    there = [
        name
        for name, wheels in FRAMEWORKS.items()
        if install(ours, *wheels, only_wheels=True, is_told=False)
    ]
    absent = [name for name in FRAMEWORKS if name not in there]
    if "torch" in absent:
        absent.append("torchdata")
    with tempfile.TemporaryDirectory(prefix=f"lodreader-{version}-") as name:
        checkout = copy_checkout(Path(name, "checkout"))
        if not build_core(ours, checkout):
            return 1, "nothing: building failed"
        code = run_tests(ours, checkout, absent, *TESTS, *more)
    return code, " and ".join(there) or "no framework"


def build_core(python: Path, checkout: Path) -> bool:
    """Compile the core in place, with an environment that has the build requirements."""
    build = [str(python), "setup.py", "--quiet", "build_ext", "--inplace"]
    return subprocess.run(build, cwd=checkout, env=_environment(), check=False).returncode == 0


def run_tests(python: Path, checkout: Path, absent: Iterable[str], *arguments: str) -> int:
    """Run pytest in a checkout with a core; what it cannot import of `absent` is skipped."""
    tests = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = {**_environment(), "READER_TEST_WITHOUT": ",".join(absent)}
    return subprocess.run(tests, cwd=checkout, env=environment, check=False).returncode


def install(
    python: Path,
    *wanted: str,
    only_wheels: bool = False,
    is_pinned: bool = True,
    is_told: bool = True,
) -> bool:
    """Install packages into an environment; False when they cannot be had.

    Args:
        python: the interpreter of the environment.
        wanted: what pip is to install.
        only_wheels: whether nothing may be compiled.
        is_pinned: under the project's constraints; else under none, the machine's own included.
        is_told: whether pip's words are shown where it fails.
    """
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--only-binary", ":all:"] if only_wheels else []
    command += ["-c", str(ROOT / "requirements/constraints.txt")] if is_pinned else []
    # pip goes on to the machine's own file where the variable is empty
    variables = {} if is_pinned else {"PIP_CONSTRAINT": os.devnull}
    done = subprocess.run(
        [*command, *wanted],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and is_told:
        print(done.stdout + done.stderr, file=sys.stderr)
    return done.returncode == 0


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
