"""Makes the files: the pictures they are made from, and the commands of each kind.

Imports the table of kinds. Writes into the folder that it is given, and starts the programs of
the kinds, each command within a time limit.
"""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tools.foreign_images.kinds import KINDS, Kind

__all__ = ["SIZES", "File", "Made", "make_files"]

#: height and width of the pictures, in pixels
SIZES = (
    (1, 1), (7, 19), (48, 64), (61, 97), (203, 301), (1, 9), (33, 31), (130, 127), (9, 1), (8, 8),
    (16, 17), (255, 40),
)  # fmt: skip
LIMIT_S = 60  # of the commands of a file
THREADS = {"OMP_NUM_THREADS": "1", "MAGICK_THREAD_LIMIT": "1", "LC_ALL": "C"}


class File(NamedTuple):
    """A file that was made.

    Attributes:
        path: of the file.
        kind: its row of the table.
    """

    path: Path
    kind: Kind


class Made(NamedTuple):
    """What came of the table.

    Attributes:
        files: those that were made, in the table's order.
        failed: what a program said where it made no file, by the file's name.
        missing: the kinds whose programs are not installed, by the missing program.
    """

    files: list[File]
    failed: dict[str, str]
    missing: dict[str, list[str]]


def make_files(folder: Path, each: int = 4, kinds: list[Kind] | None = None, jobs: int = 1) -> Made:
    """Make files of each kind, and return what came of it. A file that is there stays.

    Args:
        folder: for the files, and for the folders "sources" and "scratch".
        each: how many sizes of each kind, at most `len(SIZES)`; kind after kind begins at another.
        kinds: rows of the table; None: all.
        jobs: how many programs run at once.
    """
    missing: dict[str, list[str]] = {}
    wanted: list[tuple[Kind, tuple[int, int]]] = []
    for number, kind in enumerate(KINDS if kinds is None else kinds):
        without = [name for name in kind.programs.split() if shutil.which(name) is None]
        for program in without:
            missing.setdefault(program, []).append(kind.name)
        if not without:
            wanted += [(kind, SIZES[(number + step) % len(SIZES)]) for step in range(each)]
    for name in ("sources", "scratch"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    sources = {size: _write_sources(folder / "sources", *size) for size in SIZES}
    failed = {}
    files = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(_make_file, folder, kind, size, sources[size]) for kind, size in wanted]
        for (kind, _), run in zip(wanted, runs):
            path, error = run.result()
            if error is None:
                files.append(File(path, kind))
            else:
                failed[path.name] = error
    return Made(files, failed, missing)


def _make_file(
    folder: Path, kind: Kind, size: tuple[int, int], sources: dict[str, str]
) -> tuple[Path, str | None]:
    """Return the path of a file, and what its programs said if they made none."""
    out = folder / f"{kind.name}-{size[0]}x{size[1]}{kind.ending}"
    if out.exists():
        return out, None
    scratch = folder / "scratch" / out.name
    made = scratch.with_name(f"made-{out.name}")
    variables = {**os.environ, **THREADS, **sources, "out": str(made), "tmp": str(scratch)}
    command = ["/bin/sh", "-ec", kind.commands]
    try:
        run = subprocess.run(
            command, env=variables, capture_output=True, stdin=subprocess.DEVNULL, timeout=LIMIT_S
        )
        error = run.stderr.decode(errors="replace").strip()[-300:] or f"exit code {run.returncode}"
    except subprocess.TimeoutExpired:
        return out, f"not done within {LIMIT_S} s"
    finally:
        for path in scratch.parent.glob(f"{scratch.name}.*"):
            path.unlink()
    if run.returncode or not made.is_file() or not made.stat().st_size:
        made.unlink(missing_ok=True)
        return out, error
    made.rename(out)
    return out, None


def _write_sources(folder: Path, height: int, width: int) -> dict[str, str]:
    """Write the pictures of a size, and return the shell's variables that name them."""
    deep = (_picture(height, width, 1) * 0xFFFF).astype(">u2")
    colors = (deep >> 8).astype(np.uint8)
    other = (_picture(height, width, 2) * 0xFF).astype(np.uint8)
    opacity = np.linspace(0, 255, height * width).astype(np.uint8).reshape(height, width, 1)
    size = f"{width} {height}"
    packed = np.packbits(colors[:, :, 1] > 110, axis=1)
    rgba = f"P7\nWIDTH {width}\nHEIGHT {height}\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n"
    contents: dict[str, tuple[str, Any]] = {
        "rgb.ppm": (f"P6\n{size}\n255\n", colors),
        "other.ppm": (f"P6\n{size}\n255\n", other),
        "deep.ppm": (f"P6\n{size}\n65535\n", deep),
        "grey.pgm": (f"P5\n{size}\n255\n", colors[:, :, 1]),
        "deepgrey.pgm": (f"P5\n{size}\n65535\n", deep[:, :, 1]),
        "bits.pbm": (f"P4\n{size}\n", packed),
        "rgba.pam": (rgba, np.concatenate([colors, opacity], axis=2)),
    }
    variables = {"height": str(height), "width": str(width)}
    for name, (head, numbers) in contents.items():
        path = folder / f"{height}x{width}-{name}"
        path.write_bytes(head.encode() + numbers.tobytes())
        variables[name.partition(".")[0]] = str(path)
    profile = folder / "profile.icc"  # more than one part of a JPEG holds
    profile.write_bytes((70_000).to_bytes(4, "big") + bytes(32) + b"acsp" + bytes(70_000 - 40))
    variables["profile"] = str(profile)
    return variables


def _picture(height: int, width: int, seed: int) -> Any:
    """Return height x width x 3 numbers from 0 to 1: slopes, waves, edges and a little noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:height, 0:width]
    slopes = [rows / height, columns / width, (rows + columns) / (height + width)]
    waves = [np.sin(rows / 9 + seed) * np.cos(columns / (7 + band)) for band in range(3)]
    picture = 0.6 * np.stack(slopes, axis=2) + 0.15 * np.stack(waves, axis=2) + 0.2
    picture[height // 4 : height // 2, width // 5 : width // 2] = (1, 0, 0)
    picture[height // 2 :, : width // 6] = 0.5
    return np.clip(picture + rng.normal(0, 0.02, picture.shape), 0, 1)
