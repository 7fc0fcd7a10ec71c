"""`python -m reader shards`: list, index, check and convert shards.

Imports what a command needs when it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

__all__ = ["add_shards", "can_show_bar", "run_command"]

_MOST_LISTED = 20  # shards
_IMAGE = "image"


def add_shards(commands: Any) -> None:
    """Add the command and its own commands to a parser's."""
    shards = commands.add_parser(
        "shards",
        help="list, index, check and convert shards: tar, MDS, TFRecord, Parquet, JSON lines",
        description="Tools for shards: files that hold many samples each. See reader.Shards.",
    )
    inner = shards.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = _add(inner, "list", _list, "say what shards there are, and what a sample has")
    listing.add_argument("--json", action="store_true", help="print all of it as JSON")
    index = _add(inner, "index", _index, "make the index of shards that have none")
    index.add_argument("--index", metavar="FOLDER", help="where it is kept; else beside the shards")
    check = _add(
        inner,
        "check",
        _check,
        "read every byte, and name what is damaged",
        "Read and decode every sample, and compare every sum: those of the format, and those of a"
        " manifest.json. Exit code: 0 where all is whole, 1 where something is damaged.",
    )
    convert = _add(
        inner,
        "convert",
        _convert,
        "write the samples in another format",
        "Write the samples of shards in another format, in their order. A run that was ended is"
        " started again with the same arguments: it goes on where the other stopped.",
    )
    convert.add_argument("target", help="the folder of the new shards, or its address in a store")
    convert.add_argument("--to", required=True, metavar="FORMAT", help="mds, tar, tfrecord, ...")
    convert.add_argument("--shard-size", default="64MB", metavar="SIZE", help="64MB by default")
    convert.add_argument("--compression", metavar="HOW", help="zstd or gz; else none")
    for each in (check, convert):
        each.add_argument("--num-workers", type=int, default=0, help="processes; 0 by default")
    for each, what in ((check, "also decode"), (convert, "write, decoded,")):
        each.add_argument(
            "--field",
            action="append",
            metavar="NAME=TYPE",
            help=f"{what} this field, as int, float, str, bytes, json, {_IMAGE}, or a type of"
            " NumPy's; may be given several times",
        )


def _add(
    inner: Any, name: str, run: Callable[[Any], int], told: str, description: str | None = None
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = inner.add_parser(
        name, help=told, description=description or f"{told[0].upper()}{told[1:]}."
    )
    parser.add_argument(
        "path", nargs="+", help='folders, files, or patterns, such as "train-{000..099}.tar"'
    )
    parser.add_argument("--format", help="of the shards; else what is found")
    parser.add_argument("--allow-pickle", action="store_true", help="pickles can run any program")
    parser.set_defaults(run=lambda options: run_command("shards", run, options))
    return parser


def run_command(name: str, command: Callable[[Any], int], options: Any) -> int:
    """Run a command of that name; what it refuses is a line on stderr, and exit code 2."""
    from reader.errors import ReaderError, printable

    try:
        return command(options)
    except (ReaderError, OSError) as error:
        print(f"python -m reader {name}: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _list(options: Any) -> int:
    from reader.shards.shards import Shards

    shards = Shards(options.path, options.format, allow_pickle=options.allow_pickle)
    counts = shards._set.counts  # of each file; `starts` may have several units of one
    files: list[dict[str, Any]] = [
        {"path": file.path, "samples": count, "nbytes": file.nbytes}
        for file, count in zip(shards.files, counts, strict=True)
    ]
    sample = shards[0]
    names = sample if isinstance(sample, dict) else {"": sample}
    fields = {str(name): _told(value) for name, value in names.items()}
    if options.json:
        said = {"format": shards.format, "samples": len(shards), "nbytes": shards.nbytes}
        print(json.dumps({**said, "fields": fields, "shards": files}, indent=2))
        return 0
    print(_summary(shards))
    for name, kind in fields.items():
        print(f"  {name or 'a sample'}: {kind}")
    for file in files[:_MOST_LISTED]:
        print(f"{file['samples']:>12,} samples {file['nbytes']:>16,} bytes  {_shown(file['path'])}")
    if len(files) > _MOST_LISTED:
        print(f"... and {len(files) - _MOST_LISTED:,} more; --json prints all")
    return 0


def _index(options: Any) -> int:
    from reader.errors import ConfigError
    from reader.shards.formats import FORMATS
    from reader.shards.shards import Shards

    shards = Shards(
        options.path, options.format, index=options.index, allow_pickle=options.allow_pickle
    )
    print(_summary(shards))
    if FORMATS[shards.format].scan is None:
        print("their folder says what is in them: no other index is needed")
        return 0
    if shards.index_file is None:
        raise ConfigError(
            "the folder of the shards cannot be written to, so that their index is not kept: pass"
            " --index FOLDER, and index= to Shards"
        )
    print(f"the index is kept in {_shown(shards.index_file)}")
    return 0


def _check(options: Any) -> int:
    from reader.shards.check_shards import check_shards

    shards = samples = nbytes = faults = 0
    uncompared: Counter[str] = Counter()
    for found in check_shards(
        options.path,
        options.format,
        _fields(options.field),
        allow_pickle=options.allow_pickle,
        num_workers=options.num_workers,
    ):
        shards, samples = shards + 1, samples + found.samples
        nbytes, faults = nbytes + found.nbytes, faults + found.faults
        uncompared.update(set(found.uncompared))
        for text in found.damage:
            print(_shown(text))
        if found.faults > len(found.damage):
            more = found.faults - len(found.damage)
            print(f"... and {more:,} more samples of the shard '{_shown(found.path)}'")
        sys.stdout.flush()
    for kind, count in sorted(uncompared.items()):
        remedy = ": pip install xxhash" if kind.startswith("xxh") else ", for want of a program"
        print(f"the {kind} sums of {count:,} shards were not compared{remedy}")
    told = f"{faults:,} damaged" if faults else "all whole"
    print(f"{samples:,} samples in {shards:,} shards, {_in_bytes(nbytes)}: {told}")
    return 1 if faults else 0


def _convert(options: Any) -> int:
    from reader.shards.shards import Shards
    from reader.shards.write_shards import write_shards

    fields = _fields(options.field)
    shards = Shards(options.path, options.format, fields=fields, allow_pickle=options.allow_pickle)
    count = write_shards(
        shards,
        options.target,
        options.to,
        shard_size=options.shard_size,
        compression=options.compression,
        num_workers=options.num_workers,
        progress=can_show_bar(),
    )
    print(f"{len(shards):,} samples in {count:,} shards of {options.to}: {options.target}")
    return 0


def can_show_bar() -> bool:
    """Whether somebody sees a bar of tqdm on stderr."""
    import importlib.util

    return sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None


def _fields(given: list[str] | None) -> dict[str, Any] | None:
    """Return what `--field` means, as `Shards` takes it; None: it was not given."""
    from reader.errors import ConfigError

    found: dict[str, Any] = {}
    known = {"int": int, "float": float, "str": str, "bytes": bytes}
    for each in given or ():
        name, is_pair, kind = each.partition("=")
        if not name or not is_pair or name in found:
            raise ConfigError(
                f"--field takes NAME=TYPE, each name once, such as cls=int, got {each!r}"
            )
        if kind == _IMAGE:
            from reader.images import Compose

            found[name] = Compose([])
        else:
            found[name] = known.get(kind, kind)
    return found or None


def _summary(shards: Any) -> str:
    count = len(shards.files)
    return (
        f"{shards.format}: {len(shards):,} samples in {count:,} shards, {_in_bytes(shards.nbytes)}"
    )


def _told(value: Any) -> str:
    """Return of which type a value is, and how large."""
    kind = type(value).__name__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{kind} {value.dtype} {tuple(value.shape)}"
    return f"{kind} of {len(value):,}" if isinstance(value, (bytes, str, list, dict)) else kind


def _in_bytes(nbytes: int) -> str:
    from reader.observe.machine import in_bytes

    return in_bytes(nbytes)


def _shown(text: str) -> str:
    from reader.errors import printable

    return printable(text)
