"""Try what the extras promise: the oldest versions that they admit, and the newest that there are.

Each extra is installed twice, into an environment of its own in build/extras: exactly the floors of
pyproject.toml, and what pip finds without constraints. There the tests of its face run on the
checkout's core. Prints the rows of the table in docs/compatibility.md; ends with 1 where one did
not pass. What passed is removed, unless ``--keep`` is given; what failed stays to be looked at. Run
as ``python -m tools.extras [oldest | newest] [EXTRA ...] [--keep] [-- arguments of pytest]``.
Installing needs a package index, and for torch gigabytes.
"""

from __future__ import annotations

import datetime
import sys
import time
from pathlib import Path

from tools.extras.environment import Environment, checkout_for
from tools.extras.extra import EXTRAS, Extra
from tools.extras.row import HEAD, Row
from tools.matrix import pythons
from tools.wheels.__main__ import Python

WHICH = ("oldest", "newest")


def main(arguments: list[str]) -> int:
    """Try the requested extras; 0 when all passed."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    asked, _, more = " ".join(arguments).partition(" -- ")
    names = set(asked.split())
    is_kept = "--keep" in names
    wanted = chosen(names - {"--keep"})
    rows = []
    for extra, which in wanted:
        begun = time.monotonic()
        rows.append(try_one(extra, which, more.split(), is_kept))
        print(f"extras: {rows[-1]} ({time.monotonic() - begun:.0f} s)", flush=True)
    print("\n".join([HEAD, *map(str, rows)]))
    return 0 if all(row.outcome == "passed" for row in rows) else 1


def chosen(names: set[str]) -> list[tuple[Extra, str]]:
    """Return the trials that the names request: without names, all extras in both versions."""
    known = {extra.name for extra in EXTRAS} | {*WHICH}
    if names - known:
        sys.exit(f"extras: there is no {', '.join(sorted(names - known))}, but {sorted(known)}")
    extras = [extra for extra in EXTRAS if extra.name in names] or list(EXTRAS)
    return [
        (extra, which)
        for extra in extras
        for which in WHICH
        if which in names or not names & {*WHICH}
    ]


def try_one(extra: Extra, which: str, more: list[str], is_kept: bool) -> Row:
    """Install an extra's packages into an environment and run its tests there."""
    is_oldest = which == WHICH[0]
    python = Python.at(python_for(extra.python) if is_oldest else Path(sys.executable))
    environment = Environment(python, f"{extra.name}-{which}")
    wanted = [floor.pin if is_oldest else floor.package for floor in extra.floors]
    beside = [*extra.beside, *(extra.beside_oldest if is_oldest else extra.beside_newest)]
    print(
        f"extras: {extra.name}, {which}: {' '.join(wanted)} under Python {python.version};"
        f" up to {extra.gigabytes} GB are downloaded",
        flush=True,
    )
    told, numpy, passed, outcome = " ".join(wanted), "none", 0, "cannot be installed"
    if environment.install(*wanted, *beside):
        held = environment.versions()
        told = ", ".join(f"{each.package} {held[each.package]}" for each in extra.floors)
        numpy = held["numpy"]
        lacking = sorted({*extra.imports} & {*environment.absent()})
        if lacking:
            sys.exit(f"extras: {told} is installed, and there is no {', '.join(lacking)}")
        warnings = ("-o", "filterwarnings=ignore") if is_oldest or extra.has_warnings else ()
        code, passed = environment.run_tests(checkout_for(python), *warnings, *extra.tests, *more)
        outcome = "passed" if code == 0 else f"failed (exit code {code})"
    if outcome == "passed" and not is_kept:
        environment.remove()
    today = datetime.date.today().isoformat()
    return Row(extra.name, which, told, python.version, numpy, str(passed), today, outcome)


def python_for(version: str) -> Path:
    """Return an interpreter of a version."""
    found = pythons()
    if version not in found:
        sys.exit(f"extras: there is no Python {version} here, but {', '.join(found)}")
    return found[version]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
