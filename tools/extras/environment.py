"""An environment of its own for one extra's packages, and a checkout with a core for its Python.

Imports matrix, which installs, compiles and runs tests, and wheels, which makes environments. What
is made lies in build/extras.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

from tools import matrix
from tools.smoke.__main__ import ROOT, copy_checkout, run
from tools.wheels.__main__ import HELD, Python, make_builder

__all__ = ["FOLDER", "Environment", "checkout_for"]

FOLDER = ROOT / "build/extras"
TOOLS = (
    "cloudpickle hypothesis ml_dtypes psutil pytest pytest-timeout pytest-xdist setuptools".split()
)
TESTS = "-q -n 2 --variants sampled".split()
MARKS = "not gpu and not evidence and not nightly and not alone"
# Modules that tests import and most extras lack; a test that needs one is skipped there.
OPTIONAL = (
    "PIL albumentations cuda cv2 google_crc32c jax matplotlib mxnet nvtx obstore paddle pandas "
    "prometheus_client pyarrow ray rich simplejpeg sklearn tensorboard torch torchdata tqdm"
).split()
_ABSENT = "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if not u.find_spec(n)))"


class Environment:
    """An environment that holds only the packages installed here."""

    def __init__(self, python: Python, name: str) -> None:
        self.version = python.version
        self._folder = FOLDER / name
        self.remove()
        self._folder.mkdir(parents=True)
        self._python = python.environment(self._folder / "venv")

    def install(self, *wanted: str) -> bool:
        """Install wheels under no constraints; False when they cannot be had."""
        return matrix.install(self._python, *wanted, *TOOLS, only_wheels=True, is_pinned=False)

    def versions(self) -> dict[str, str]:
        """Return the version of each distribution that is installed, by its name in small."""
        held: dict[str, str] = json.loads(run(self._python, "-c", HELD))
        return {name.replace("_", "-"): version for name, version in held.items()}

    def absent(self) -> list[str]:
        """Return the modules that tests may ask for and that are missing."""
        return run(self._python, "-c", _ABSENT, *OPTIONAL).split()

    def run_tests(self, checkout: Path, *tests: str) -> tuple[int, int]:
        """Run tests; return pytest's exit code and how many passed."""
        told = self._folder / "tests.xml"
        report = f"--junit-xml={told}"
        code = matrix.run_tests(
            self._python, checkout, self.absent(), *TESTS, "-m", MARKS, report, *tests
        )
        return code, passed_in(told) if told.exists() else 0

    def remove(self) -> None:
        """Remove all of it: some environments are gigabytes."""
        shutil.rmtree(self._folder, ignore_errors=True)


def passed_in(report: Path) -> int:
    """Return how many tests passed, by a report in the form of JUnit."""
    (suite,) = ElementTree.parse(report).iter("testsuite")
    asked = ("tests", "failures", "errors", "skipped")
    every, *others = (int(suite.attrib[name]) for name in asked)
    return every - sum(others)


def checkout_for(python: Python) -> Path:
    """Return a checkout with a core for a Python: this one, or a copy that is compiled for it."""
    if python.version == Python.at(Path(sys.executable)).version:
        return ROOT
    checkout = FOLDER / f"checkout-{python.version}"
    shutil.rmtree(checkout, ignore_errors=True)
    copy_checkout(checkout)
    builder = FOLDER / f"builder-{python.version}"
    shutil.rmtree(builder, ignore_errors=True)
    if not matrix.build_core(make_builder(python, builder), checkout):
        sys.exit(f"extras: the core cannot be compiled for Python {python.version}")
    shutil.rmtree(builder)
    return checkout
