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
from pathlib import Path
from typing import Any

from reader.errors import printable
from reader.shards.commands import add_shards
from reader.tokens.commands import add_tokens

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
    doctor.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="look at the nodes of a cluster of Ray, too: the one that runs here, or host:port",
    )
    doctor.add_argument(
        "--store",
        metavar="URL",
        help=(
            "look whether a store is reached, such as s3://bucket/folder, by the environment's"
            " credentials, and how fast: it takes some seconds and reads 256 MiB at most"
        ),
    )
    doctor.set_defaults(run=_doctor)
    _add_profile(commands)
    _add_top(commands)
    add_shards(commands)
    add_tokens(commands)
    return parser


def _add_profile(commands: Any) -> None:
    profile = commands.add_parser(
        "profile",
        help="run a script and say why its training waits",
        description=(
            "Run a script as it is, profile each loader of reader in it, and say at its end what"
            " bounds each loop: also where it raises, or is interrupted. The exit code is that of"
            " the script; the report goes to stderr."
        ),
    )
    profile.add_argument(
        "--torch", action="store_true", help="put reader in the place of PyTorch's DataLoader"
    )
    profile.add_argument(
        "--paddle", action="store_true", help="put reader in the place of Paddle's DataLoader"
    )
    profile.add_argument("--trace", metavar="FILE", help="write a trace for ui.perfetto.dev")
    profile.add_argument("--plot", metavar="FILE", help="write a picture (needs matplotlib)")
    profile.add_argument(
        "--json",
        metavar="FILE",
        help="write verdicts and numbers as JSON. Under a launcher of several ranks each has files"
        " of its own, such as FILE-rank1",
    )
    profile.add_argument("script", help="the path of the script")
    profile.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    profile.set_defaults(run=_profile)


def _add_top(commands: Any) -> None:
    top = commands.add_parser(
        "top",
        help="watch the loaders of programs that run",
        description=(
            "Show what the loaders of a running program do: batches, how much it waits for them,"
            " how many workers are busy, memory. The program needs no change and does nothing for"
            " it. Loaders with worker processes are seen, those with threads or without workers"
            " are not. Exit code of --once: 1 where there is none."
        ),
    )
    top.add_argument("pid", nargs="?", type=int, help="of the program; else all that can be seen")
    top.add_argument("--once", action="store_true", help="print one table, and end")
    top.add_argument("--json", action="store_true", help="print a line of JSON for each table")
    top.add_argument(
        "--seconds", type=float, default=1.0, help="from one table to the next; 1 by default"
    )
    top.set_defaults(run=_top)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, 2 where none is named."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if "run" not in options:
        parser.print_help(sys.stderr)
        return 2
    return int(options.run(options))


def _doctor(options: argparse.Namespace) -> int:
    from reader.observe.cluster import cluster
    from reader.observe.doctor import CHECKS, Check, examine
    from reader.observe.finding import exit_code, report
    from reader.observe.store import store

    more: tuple[Check, ...] = () if options.ray is None else (cluster(options.ray),)
    if options.store is not None:
        more += (store(options.store),)
    findings = examine(checks=(*CHECKS, *more))
    if options.json:
        print(json.dumps([dataclasses.asdict(each) for each in findings], indent=2))
    else:
        print(report(findings))
    return exit_code(findings)


def _profile(options: argparse.Namespace) -> int:
    from reader.observe.program import (
        check_reports,
        measured_loaders,
        of_rank,
        run_script,
        text_of,
        write_reports,
    )

    named = (options.json, options.trace, options.plot)
    files = [None if each is None else of_rank(each) for each in named]
    if not Path(options.script).is_file():
        print(f"python -m reader profile: there is no file {options.script!r}", file=sys.stderr)
        return 2
    refused = check_reports(*files)  # before a script that takes hours
    for text in refused:
        print(f"python -m reader profile: {printable(text)}", file=sys.stderr)
    if refused:
        return 2
    if options.torch:
        import reader.compat.torch

        reader.compat.torch.install()
    if options.paddle:
        import reader.compat.paddle

        reader.compat.paddle.install()
    try:
        with measured_loaders() as loaders:
            run_script(options.script, options.arguments)
    finally:
        print(text_of(loaders), file=sys.stderr, flush=True)
        if files != list(named):
            own = ", ".join(each for each in files if each)
            print(f"-- files of this rank: {own}", file=sys.stderr, flush=True)
        for text in write_reports(loaders, *files):
            print(f"python -m reader profile: {printable(text)}", file=sys.stderr, flush=True)
    return 0


def _top(options: argparse.Namespace) -> int:
    from reader.observe.top import show_top

    if not 0.05 <= options.seconds <= 3600:
        text = f"--seconds must be from 0.05 to 3600, got {options.seconds:g}"
        print(f"python -m reader top: {text}", file=sys.stderr)
        return 2
    try:
        return show_top(options.pid, options.seconds, options.once, options.json, sys.stdout)
    except (ProcessLookupError, PermissionError) as error:
        print(f"python -m reader top: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
