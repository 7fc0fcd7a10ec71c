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
    documents,
    image_inputs,
    images,
    phones,
    tables,
    tokens,
    work,
)
from tools.turns import Report, in_turns, medians

# What makes each work in a folder, and the work's own options with their defaults.
_OF_FILES = {"files": 256, "scale": 1.0}
WORKS: dict[str, tuple[Callable[..., work.Work], dict[str, float]]] = {
    "resized": (images.resized, _OF_FILES),
    "training": (image_inputs.training, _OF_FILES),
    "validation": (image_inputs.validation, _OF_FILES),
    "decoders": (decoders.decoders, _OF_FILES),
    "phones": (phones.phones, {}),
    "detection": (detection.detection, {}),
    "audio": (audio.audio, {}),
    "tokens": (tokens.tokens, {"tokens": 2e8}),
    "megatron": (documents.megatron, {"documents": 1e5}),
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
        one = works.add_parser(name, help=make.__doc__, description=make.__doc__)
        one.add_argument("--rounds", type=int, default=5, help="turns of each contestant (5)")
        one.add_argument("--json", type=Path, metavar="FILE", help="write seconds by name there")
        for option, default in options.items():
            one.add_argument(
                f"--{option}", type=type(default), default=default, help=f"({default:g})"
            )
    return parser.parse_args(arguments)


def main() -> int:
    """Measure a work and print its table; write JSON where that is asked for."""
    chosen = parse(sys.argv[1:])
    make, options = WORKS[chosen.work]
    report = Report(chosen)
    with tempfile.TemporaryDirectory() as folder:
        made = make(Path(folder), **{option: getattr(chosen, option) for option in options})
        found = medians(in_turns(dict(made.contestants), chosen.rounds, made.warm_ups))
    report.show(work.render(found, made.unit), found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
