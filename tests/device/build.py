"""Builds the simulated accelerator for torch and for Paddle, once, from the sources beside this.

Imports the standard library, and torch or paddle in a process of its own, for where their headers
lie. What was built is kept below `build/device/`, by a hash of its sources and of the framework.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["CannotBuild", "library"]

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / "build" / "device"
SOURCES = {"torch": "torch_backend.cpp", "paddle": "paddle_plugin.cc", "cuda": "cuda_driver.cpp"}
_ASK = {
    "torch": """
import json, torch
from torch.utils import cpp_extension as built
flags = [f"-I{path}" for path in built.include_paths()]
flags += [f"-L{path}" for path in built.library_paths()]
flags += ["-ltorch", "-ltorch_cpu", "-lc10"]
flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
print(json.dumps([torch.__version__, flags]))
""",
    "paddle": """
import json, paddle
print(json.dumps([paddle.__version__, [f"-I{paddle.sysconfig.get_include()}"]]))
""",
    "cuda": 'print(\'["", ["-ldl"]]\')',
}


class CannotBuild(Exception):
    """There is no compiler, or the framework lacks a needed part; says which."""


@functools.cache
def library(framework: str) -> Path:
    """Return the simulated accelerator for a framework, built if need be.

    Args:
        framework: "torch": to be loaded by `torch.ops.load_library`; "paddle": its folder is what
            CUSTOM_DEVICE_ROOT names; "cuda": a stand-in for the driver, whose folder is named by
            LD_LIBRARY_PATH.

    Raises:
        CannotBuild: see there.
    """
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        raise CannotBuild("there is no C++ compiler")
    asked = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _ASK[framework]],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        raise CannotBuild(f"{framework} cannot be imported: {asked.stderr.strip()[-400:]}")
    version, flags = json.loads(asked.stdout.splitlines()[-1])
    sources = [HERE / "simdev.h", HERE / SOURCES[framework]]
    key = hashlib.sha256("\0".join([version, *flags]).encode())
    for source in sources:
        key.update(source.read_bytes())
    name = "libcuda.so.1" if framework == "cuda" else "libsimdev.so"
    made = KEPT / f"{framework}-{key.hexdigest()[:16]}" / name
    made.parent.mkdir(parents=True, exist_ok=True)
    with (made.parent / "lock").open("w") as lock:  # several test processes ask at a time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _compile(compiler, sources[-1], flags, made)
    return made


def main() -> None:
    """Build all that can be built here."""
    for framework in SOURCES:
        try:
            print(library(framework).relative_to(KEPT.parent))
        except CannotBuild as error:
            print(f"left out: {error}")


def _compile(compiler: str, source: Path, flags: list[str], made: Path) -> None:
    """Compile into a separate folder first, so that the final one is always complete."""
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        target = Path(folder) / made.name
        options = ["-std=c++20", "-O0", "-g0", "-shared", "-fPIC", "-fvisibility=hidden", "-w"]
        command = [compiler, *options, str(source), "-o", str(target), *flags, "-pthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotBuild(f"{source.name} does not compile: {done.stderr.strip()[-2000:]}")
        target.replace(made)


if __name__ == "__main__":
    main()
