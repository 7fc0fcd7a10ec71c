"""Command line of the measurements by domain: which work, of how much, and where figures go.

Run as ``python -m tools.domain_bench WORK``. It imports every work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.domain_bench import (
    audio,
    decoders,
    detection,
    image_inputs,
    images,
    tables,
    tokens,
    turns,
)

# What makes each work in a folder, and the work's own options with their defaults.
_OF_FILES = {"files": 256, "scale": 1.0}
WORKS: dict[str, tuple[Callable[..., turns.Work], dict[str, float]]] = {
    "resized": (images.resized, _OF_FILES),
    "training": (image_inputs.training, _OF_FILES),
    "validation": (image_inputs.validation, _OF_FILES),
    "decoders": (decoders.decoders, _OF_FILES),
    "detection": (detection.detection, {}),
    "audio": (audio.audio, {}),
    "tokens": (tokens.tokens, {"tokens": 2e8}),
    "tables": (tables.tables, {"rows": 5e6}),
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line: the work, its own options, and those of every work."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.domain_bench",
        description="Measure batches of a domain, ours beside those of its peers.",
    )
    works = parser.add_subparsers(dest="work", metavar="WORK", required=True)
    for name, (make, options) in WORKS.items():
        work = works.add_parser(name, help=make.__doc__, description=make.__doc__)
        work.add_argument("--rounds", type=int, default=5, help="turns of each contestant (5)")
        work.add_argument("--json", type=Path, metavar="FILE", help="write seconds by name there")
        for option, default in options.items():
            work.add_argument(
                f"--{option}", type=type(default), default=default, help=f"({default:g})"
            )
    return parser.parse_args(arguments)


def main() -> int:
    """Measure a work and print its table; write JSON where that is asked for."""
    chosen = parse(sys.argv[1:])
    make, options = WORKS[chosen.work]
    with tempfile.TemporaryDirectory() as folder:
        work = make(Path(folder), **{option: getattr(chosen, option) for option in options})
        found = turns.measure(work, chosen.rounds)
    print(turns.render(found, work.unit))
    if chosen.json is not None:
        turns.write(found, chosen.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
