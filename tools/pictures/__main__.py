"""Run an epoch by PyTorch's loader and by this one, and another whose slots are watched; draw both.

Run as ``python -m tools.pictures [epoch] [slots]`` on a machine without other work. It writes
docs/epoch.svg and docs/slots.svg; ``--into FOLDER`` writes them elsewhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.pictures.epochs import both
from tools.pictures.slots import life
from tools.pictures.tracks import Panel, draw

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES: dict[str, Callable[[], list[Panel]]] = {"epoch": both, "slots": lambda: [life()]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the pictures that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PICTURE", help=", ".join(PICTURES))
    parser.add_argument("--into", type=Path, default=DOCS, metavar="FOLDER")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - PICTURES.keys()
    if unknown:
        parser.error(f"no picture is called {', '.join(sorted(unknown))}")
    for name in options.names or PICTURES:
        panels = PICTURES[name]()
        draw(panels, options.into / f"{name}.svg")
        for panel in panels:
            print(f"{name}: {panel.title or f'{len(panel.tracks)} tracks'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
