"""Runs the comparison: ``python -m tools.foreign_images --folder DIR``.

Makes the files that are not in the folder yet, and prints what differs from the reference.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.foreign_images.compare import differences, table
from tools.foreign_images.files import SIZES, make_files
from tools.foreign_images.kinds import KINDS

__all__ = ["main"]


def main() -> int:
    """Return 0, or 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for the files, which stay")
    parser.add_argument("--kinds", default="", help="only those whose name begins with this")
    parser.add_argument("--each", type=int, default=4, help=f"files of a kind, 1 to {len(SIZES)}")
    parser.add_argument("--jobs", type=int, default=1, help="programs at once")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if kind.name.startswith(options.kinds)]
    made = make_files(options.folder, options.each, kinds, options.jobs)
    found = [row for file in made.files for row in differences(file.path)]
    if found:
        print(table(found))
    for name, error in made.failed.items():
        print(f"not made: {name}: {error}")
    for program, names in made.missing.items():
        print(f"{program} is not installed: {len(names)} kinds are left out")
    wrong = {row.name for row in found}
    tried = {file.kind.name for file in made.files}
    print(f"{len(made.files)} files of {len(tried)} kinds; {len(wrong)} are not as the reference")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
