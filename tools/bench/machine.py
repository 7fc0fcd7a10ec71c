"""What a report says besides its figures: the machine, the versions, the command that made it.

Reads /proc and the installed distributions; owns nothing.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

DISTRIBUTIONS = {
    "reader": "lodreader",
    "torch": "torch",
    "paddle": "paddlepaddle",
    "numpy": "numpy",
    "pillow": "pillow",
    "spdl": "spdl",
    "grain": "grain",
}


def describe_machine() -> dict[str, Any]:
    """Return the processor, its usable cores, the memory, the kernel and Python."""
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def describe_versions() -> dict[str, str]:
    """Return the version of each distribution that is installed, by short name."""
    versions = {}
    for name, distribution in DISTRIBUTIONS.items():
        try:
            versions[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    if "reader" not in versions:
        try:
            from reader import _version

            versions["reader"] = _version.__version__
        except ImportError:
            pass
    return versions


def begin_report(module: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Return a report without figures, for what `module` is about to measure."""
    return {
        "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
        "machine": describe_machine(),
        "versions": describe_versions(),
        "rounds": rounds,
        "seconds": seconds,
    }


def end_report(report: dict[str, Any]) -> None:
    """Note what the machine's load was when all was measured."""
    report["machine"]["load_after"] = os.getloadavg()[0]


def write_report(report: dict[str, Any], path: Path) -> None:
    """Write `report` as JSON to `path`, making its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
