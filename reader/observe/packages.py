"""Checks of installed packages: Python, this package and its core, libraries that it works with.

Imports package metadata, findings, and within checks the core and Pillow; it imports no
deep-learning framework. Known traps between packages have a check each.
"""

from __future__ import annotations

import platform
import re
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from reader._version import __version__
from reader.observe.finding import Finding
from reader.observe.machine import Machine

__all__ = ["LEAST", "core", "images", "namesake", "opencv", "paddle", "python", "versions"]

# oldest supported versions, as in pyproject.toml; the first two are required
LEAST = {
    "numpy": (1, 23),
    "cloudpickle": (3, 0),
    "paddlepaddle": (3, 3),
    "paddlepaddle-gpu": (2, 6, 2),
    "torch": (2, 4),
    "jax": (0, 4, 31),
    "pillow": (10, 1),
    "simplejpeg": (1, 8),
    "pyarrow": (14, 0, 1),
    "ray": (2, 9),
    "cuda-bindings": (12, 8),
}
_NEEDED = ("numpy", "cloudpickle")
_OTHERS = ("mxnet",)
_OPENCV = ("opencv-python", "opencv-python-headless", "opencv-contrib-python")
_NEWEST_PYTHON = (3, 13)


def python(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  as every check
    """Compare the interpreter with the supported versions."""
    said = f"{platform.python_implementation()} {platform.python_version()}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        yield Finding("note", "Python", f"{said}, free-threaded: what was tried is little")
    elif sys.version_info[:2] > _NEWEST_PYTHON:
        yield Finding("note", "Python", f"{said}, which is newer than what reader is tested with")
    else:
        yield Finding("ok", "Python", said)


def versions(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  as every check
    """List the versions of installed packages without importing them, and report old ones."""
    found = [f"reader {__version__}"]
    for name in (*LEAST, *_OTHERS):
        version, least = _version_of(name), LEAST.get(name, ())
        wanted = ".".join(map(str, least))
        if version is not None:
            found.append(f"{name} {version}")
        if version is None and name in _NEEDED:
            yield Finding(
                "error", name, "it is not installed, and reader needs it", f"pip install {name}"
            )
        elif version is not None and _numbers(version) < least:
            text = f"{version} is older than {wanted}, the oldest that reader is made for"
            if name in _NEEDED:
                remedy = f'pip install "{name}>={wanted}"'
                yield Finding("error", name, text, remedy)
            else:
                yield Finding("note", name, text)
    yield Finding("ok", "versions", ", ".join(found))
    if _version_of("torch") is not None:
        yield Finding(
            "ok", "torch", "what a program sets in it, such as threads, cannot be seen from here"
        )


def namesake(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  as every check
    """Check for other distributions that write into this package's folder."""
    folder = Path(__file__).parents[1]
    version = _version_of("lodreader")
    if _version_of("reader") is not None:
        yield Finding(
            "warning",
            "package",
            "the distribution reader, which reads feeds, is installed, and its package has the"
            " same name: one has overwritten files of the other",
            "pip uninstall reader lodreader, then install lodreader again",
        )
    elif version is not None and version != __version__:
        yield Finding(
            "warning",
            "package",
            f"lodreader {version} is installed, and {__version__} is imported from {folder}",
            "install this version, or remove the other folder from sys.path",
        )
    else:
        yield Finding("ok", "package", f"reader {__version__} in {folder}")


def paddle(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  as every check
    """Check for both builds of Paddle, which share one folder."""
    if None not in (_version_of("paddlepaddle"), _version_of("paddlepaddle-gpu")):
        yield Finding(
            "warning",
            "Paddle",
            "paddlepaddle and paddlepaddle-gpu are installed: each overwrites the other's files",
            "pip uninstall paddlepaddle paddlepaddle-gpu, then install one of them again",
        )


def core(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  as every check
    """Load the compiled core, and report how it copies past the cache."""
    try:
        from reader._core.memory.copying import copy_way
    except ImportError as error:
        yield Finding(
            "error",
            "compiled core",
            f"it cannot be loaded: {error}",
            "install lodreader for this Python (in a checkout: make build), on a file system that"
            " is not mounted noexec",
        )
        return
    way = copy_way()
    if way == "plain":
        yield Finding("note", "compiled core", "it loads, and has no way to copy past the cache")
    else:
        yield Finding("ok", "compiled core", f"it loads, and copies past the cache by {way}")


def images(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  as every check
    """Check the decoders of image files, and whether they decode parts."""
    missing = [name for name in ("pillow", "simplejpeg") if _version_of(name) is None]
    if missing:
        said = " and ".join(missing)
        yield Finding("ok", "images", f"{said} not installed, which reader.images needs")
        return
    try:
        from reader.frameworks.pillow import has_turbo
        from reader.images.libjpeg import libjpeg

        is_turbo, decodes_parts = has_turbo(), libjpeg() is not None
    except (ImportError, ValueError) as error:  # ConfigError, too
        yield Finding(
            "warning",
            "images",
            f"image files cannot be decoded: {error}",
            'pip install --force-reinstall "lodreader[images]"',
        )
        return
    if not is_turbo:
        yield Finding(
            "warning",
            "images",
            "Pillow is built without libjpeg-turbo: JPEG files take several times as long",
            "pip install --force-reinstall --only-binary=:all: pillow",
        )
    elif not decodes_parts:
        yield Finding(
            "warning",
            "images",
            "the libjpeg of Pillow cannot decode parts: all of each JPEG is decoded for a crop",
            "pip install --force-reinstall --only-binary=:all: pillow",
        )
    else:
        yield Finding("ok", "images", "of a JPEG only what a crop takes is decoded")


def opencv(machine: Machine) -> Iterator[Finding]:
    """Check for OpenCV, which computes in its own threads."""
    name = next((name for name in _OPENCV if _version_of(name) is not None), None)
    if name is not None:
        yield Finding(
            "note",
            "OpenCV",
            f"{name} starts up to {machine.affinity} threads in each worker that uses it: call"
            " cv2.setNumThreads(0) in worker_init_fn",
        )


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
