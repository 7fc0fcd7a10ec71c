"""Build the sdist, a wheel of it for each Python, and try each wheel in empty environments.

A wheel is built from the sdist in an environment that holds the build requirements alone, cut off
from the network where this machine allows that. auditwheel names the Linux machines it is for.
Then it is installed beside the oldest NumPy that has a wheel for that Python, and beside the
newest, with its required dependencies and nothing else; a user's first program runs there. What
passed is left in ``dist``, and the rows of the table in docs/compatibility.md are printed. Run as
``python -m tools.wheels [3.12 ... | PATH ...]``; without arguments for every Python that is found.
Installing needs a package index.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.matrix import pythons
from tools.pyproject import build_requirements
from tools.smoke.__main__ import (
    ROOT,
    copy_checkout,
    look_into_sdist,
    look_into_wheel,
    repair,
    run,
    run_program,
)

# The first NumPy with a wheel for that Python, at or above the floor in pyproject.toml.
OLDEST_NUMPY = {"3.10": "1.23.0", "3.11": "1.23.2", "3.12": "1.26.0", "3.13": "2.1.0"}
OLDEST_NUMPY |= {"3.13t": "2.1.0", "3.14": "2.3.2", "3.14t": "2.3.2"}
NEWEST = "newest"
HEAD = "| Python | machine | NumPy | wheel | outcome |\n|---|---|---|---|---|"
_PROBE = """
import json, sys, sysconfig
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
suffix = sysconfig.get_config_var("EXT_SUFFIX")
print(json.dumps(["%d.%d" % sys.version_info[:2] + free, suffix]))
"""
HELD = """
import json
from importlib import metadata
print(json.dumps({each.name.lower(): each.version for each in metadata.distributions()}))
"""


@dataclass(frozen=True)
class Python:
    """One interpreter that gets a wheel.

    Attributes:
        path: its executable.
        version: as "3.12", with a "t" where it has no GIL.
        suffix: how it ends the names of compiled modules.
    """

    path: Path
    version: str
    suffix: str

    @classmethod
    def at(cls, path: Path) -> Python:
        """Ask the interpreter at `path` for its version."""
        version, suffix = json.loads(run(path, "-c", _PROBE))
        return cls(path, version, suffix)

    def environment(self, folder: Path, *options: str) -> Path:
        """Make an environment; return its interpreter."""
        run(self.path, "-m", "venv", *options, folder)
        return folder / "bin/python"


def main(arguments: list[str]) -> int:
    """Build and try; 0 when every wheel passed."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    wanted = chosen(arguments, pythons())
    rows, is_right = [], True
    with tempfile.TemporaryDirectory(prefix="lodreader-wheels-") as name:
        work = Path(name)
        checkout = copy_checkout(work / "checkout")
        sdist = make_sdist(checkout, work / "sdist")
        keep(sdist)
        for path in wanted:
            begun = time.monotonic()
            python = Python.at(path)
            row, passed = build_and_try(python, sdist, checkout, work / python.version)
            is_right &= passed
            rows.append(row)
            print(f"wheels: {row} ({time.monotonic() - begun:.0f} s)", flush=True)
    print("\n".join([HEAD, *rows]))
    return 0 if is_right else 1


def chosen(arguments: list[str], found: dict[str, Path]) -> list[Path]:
    """Return the interpreters that the arguments name, by version or by path."""
    versions = [each for each in arguments if re.fullmatch(r"3\.\d+", each)]
    missing = [each for each in versions if each not in found]
    if missing:
        sys.exit(f"wheels: there is no Python {', '.join(missing)} here, but {', '.join(found)}")
    if not arguments:
        return list(found.values())
    return [found[each] if each in versions else Path(each).absolute() for each in arguments]


def make_sdist(checkout: Path, folder: Path) -> Path:
    """Make the sdist of a checkout and look into it; return its path."""
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", folder, checkout)
    (sdist,) = folder.glob("*.tar.gz")
    refuse(look_into_sdist(sdist, checkout))
    return sdist


def build_and_try(python: Python, sdist: Path, checkout: Path, work: Path) -> tuple[str, bool]:
    """Build one wheel and try it; return its row of the table and whether all passed."""
    told: list[str] = []
    is_right, wheel = True, None
    machine = "x86-64" if "x86_64" in python.suffix else python.suffix.split("-")[2]
    try:
        builder = make_builder(python, work / "builder")
        raw = build(builder, sdist, work / "raw")
        wheel = repair(raw, work / "repaired")
        refuse(look_into_wheel(wheel, checkout, suffix=python.suffix))
        for numpy in [*filter(None, [OLDEST_NUMPY.get(python.version)]), NEWEST]:
            empty = python.environment(work / f"numpy-{numpy}", "--without-pip")
            told += [try_beside(builder, empty, wheel, numpy)]
        keep(wheel)
    except SystemExit as ended:
        print(ended, file=sys.stderr, flush=True)
        is_right = False
    outcome = "passed" if is_right else "failed"
    tag = wheel.stem.split("-")[-1] if wheel else "none"
    return row_of(python.version, machine, " and ".join(told) or "none", tag, outcome), is_right


def row_of(*cells: str) -> str:
    """Return a row of the table in docs/compatibility.md."""
    return f"| {' | '.join(cells)} |"


def make_builder(python: Python, folder: Path) -> Path:
    """Make an environment with the build requirements and that Python's own pip."""
    builder = python.environment(folder)
    pinned = "-c", ROOT / "requirements/constraints.txt"
    install(builder, builder, *build_requirements(), *pinned)
    return builder


def build(builder: Path, sdist: Path, folder: Path, **variables: str) -> Path:
    """Build a wheel from the sdist, without a network and with variables of the environment."""
    offline = "--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir"
    setting = "env", *(f"{name}={value}" for name, value in variables.items())
    pip = builder, "-m", "pip", "wheel", *offline, "--wheel-dir", folder
    run(*without_network(), *setting, *pip, sdist)
    (wheel,) = folder.glob("*.whl")
    return wheel


def without_network() -> list[str]:
    """Return the beginning of a command that has no network; empty where that is not allowed."""
    for command in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        if (
            shutil.which("unshare")
            and run("sh", "-c", f"{' '.join(command)} true || echo no") == ""
        ):
            return command
    print("wheels: this machine lets no program be cut off from the network", flush=True)
    return []


def install(builder: Path, python: Path, *wanted: str | Path) -> None:
    """Install wheels into an environment, by the pip of another one of the same Python."""
    quiet = "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"
    run(builder, "-m", "pip", "--python", python, "install", *quiet, *wanted)


def try_beside(builder: Path, empty: Path, wheel: Path, numpy: str) -> str:
    """Run a user's first program beside one NumPy; return that NumPy's version."""
    install(builder, empty, wheel, "numpy" if numpy == NEWEST else f"numpy=={numpy}")
    held = json.loads(run(empty, "-c", HELD))
    if set(held) != {"lodreader", "numpy", "cloudpickle"}:
        sys.exit(f"wheels: installing {wheel.name} brought {sorted(held)}")
    run_program(empty.parents[1])
    return str(held["numpy"])


def refuse(problems: list[str]) -> None:
    """Exit with the faults, if any were found."""
    if problems:
        sys.exit("\n".join(f"wheels: {problem}" for problem in problems))


def keep(made: Path) -> None:
    """Leave a file in ``dist``."""
    (ROOT / "dist").mkdir(exist_ok=True)
    shutil.copy(made, ROOT / "dist")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
