"""The command line: `python -m reader COMMAND`.

Imports what a command needs when it runs. To add one, write a function that takes its options and
returns the exit code, and name it in `_parser`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reader", description="Tools beside the loaders of reader."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    doctor = commands.add_parser(
        "doctor",
        help="find what makes a loader slow here, or fail",
        description=(
            "Check this machine and environment for what makes a loader slow, or fail, and say what"
            " to do. Exit code: 0 where nothing is wrong, 1 with warnings, 2 with errors."
        ),
    )
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    doctor.set_defaults(run=_doctor)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, 2 where none is named."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if "run" not in options:
        parser.print_help(sys.stderr)
        return 2
    return int(options.run(options))


def _doctor(options: argparse.Namespace) -> int:
    from reader.observe.doctor import examine
    from reader.observe.finding import exit_code, report

    findings = examine()
    if options.json:
        print(json.dumps([dataclasses.asdict(each) for each in findings], indent=2))
    else:
        print(report(findings))
    return exit_code(findings)


if __name__ == "__main__":
    sys.exit(main())
