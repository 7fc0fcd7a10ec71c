"""Build the compiled core: cython_ext/reader/_core/ROOM/NAME.pyx becomes reader._core.ROOM.NAME.

The one place for compiler flags and Cython directives; everything else about the distribution
is in pyproject.toml. READER_DEBUG=1 builds with every check, READER_TRACE=1 with line tracing, and
READER_SANITIZE=address, undefined or thread with that sanitizer of the compiler; how the tests run
on it is in docs/concurrency.md.

Most of the time goes into the C++ that Cython writes around each function. Three things keep it
short: what every module would repeat is compiled once, as UTILITY; the headers of all are compiled
once; and only the modules of ROAD, and of KERNELS, whose time is in loops over bytes, are optimized
further.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
from Cython import __version__ as cython_version
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools._distutils.ccompiler import gen_preprocess_options
from setuptools.command.build_ext import build_ext

if not sys.platform.startswith("linux"):
    sys.exit(
        "lodreader needs Linux, for memfd_create, pidfd_open and futexes, and this system is"
        f" {sys.platform!r}: install it in a Linux container or virtual machine, or in WSL 2"
    )

SOURCES = Path("cython_ext/reader/_core")
ROOMS = sorted(f"reader._core.{path.name}" for path in SOURCES.iterdir() if path.is_dir())
UTILITY = "reader._core.interpreter.cython_utility"
HEADERS = (
    "Python.h numpy/arrayobject.h numpy/arrayscalars.h numpy/ufuncobject.h structmember.h"
    " frameobject.h atomic cmath complex cstdlib cstring mutex stdexcept vector"
).split()
# Loops over pixels, samples, keys and bytes. The others call Python, or do one thing a batch.
KERNELS = (
    "memory.copying",
    "pixels.",
    "plans.",
    "random.permutation",
    "shared.entry_table",
    "shared.key_table",
    "tokens.",
)
# What each batch passes through: slower by a twentieth without.
ROAD = (
    *("batch.tensor_array", "collate.rows", "collate.stack"),
    *("epoch.tasks", "epoch.dispatcher", "epoch.handover", "epoch.iterator"),
    *("wire.feeder", "wire.local_channel", "wire.results"),
)
PACKAGES = [
    "reader",
    "reader._core",
    *ROOMS,
    "reader.random",
    "reader.sharing",
    "reader.exceptions",
    "reader.data",
    "reader.formats",
    "reader.orders",
    "reader.worker",
    "reader.caching",
    "reader.streams",
    "reader.processes",
    "reader.cluster",
    "reader.engine",
    "reader.engine.backends",
    "reader.frameworks",
    "reader.images",
    "reader.stores",
    "reader.stores.fetcher",
    "reader.shards",
    "reader.shards.formats",
    "reader.tokens",
    "reader.observe",
    "reader.compat",
    "reader.compat.paddle",
    "reader.compat.gluon",
    "reader.compat.gluon.nlp",
    "reader.compat.torch",
    "reader.integrations",
]

TRACE = os.environ.get("READER_TRACE", "0") not in ("", "0")
DEBUG = os.environ.get("READER_DEBUG", "0") not in ("", "0")
SANITIZE = os.environ.get("READER_SANITIZE", "")
if SANITIZE not in ("", "address", "undefined", "thread"):
    sys.exit(f"READER_SANITIZE is {SANITIZE!r}; give address, undefined or thread")
FLAVOUR = "-".join(
    ["debug" if DEBUG else "release", *(["trace"] if TRACE else []), *([SANITIZE] * bool(SANITIZE))]
)

# Only checks differ between the builds; wraparound and cdivision change what a line means.
DIRECTIVES = {
    "language_level": 3,
    "binding": True,
    "freethreading_compatible": True,
    "wraparound": False,
    "cdivision": True,
    "boundscheck": DEBUG,
    "initializedcheck": DEBUG,
    "nonecheck": DEBUG,
    "linetrace": TRACE,
}

# NumPy 2's headers make modules that run with every NumPy from the target on: pyproject.toml says
# the same number to pip.
MACROS: list[tuple[str, str | None]] = [
    ("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION"),
    ("NPY_TARGET_VERSION", "NPY_1_23_API_VERSION"),
]
COMPILE = ["-std=c++17", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-function"]
FOLDERS = ["cython_ext", numpy.get_include()]
LINK: list[str] = []
if DEBUG:
    MACROS += [("READER_DEBUG", "1"), ("_GLIBCXX_ASSERTIONS", "1")]
IS_RELEASE = not DEBUG and not SANITIZE
COMPILE += ["-O1", *(["-g0"] if IS_RELEASE else ["-g", "-fno-omit-frame-pointer"])]
if SANITIZE:
    LINK += [f"-fsanitize={SANITIZE}"]
    COMPILE += LINK
    if SANITIZE == "undefined":
        COMPILE += ["-fno-sanitize=vptr"]  # that check alone needs the C++ runtime's own symbols
    if SANITIZE == "thread":
        COMPILE += ["-Wno-tsan"]  # it does not know fences, and says so at each
if TRACE:
    MACROS += [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")]
BETTER = [*COMPILE, "-O2"] if IS_RELEASE else COMPILE  # the last -O counts
KERNEL = [*COMPILE, "-O3"] if IS_RELEASE else COMPILE


class BuildCore(build_ext):
    """Cythonize and compile, into folders of their own for each flavour of build.

    Each module that was compiled is named with how many there are: a build takes minutes.
    """

    def finalize_options(self) -> None:
        """Give each flavour its own objects, and compile with every core there is."""
        unset = self.build_temp is None
        super().finalize_options()
        if unset:
            self.build_temp = str(Path(self.build_temp, FLAVOUR))
        if self.parallel is None:
            self.parallel = len(os.sched_getaffinity(0))

    def build_extensions(self) -> None:
        """Translate to C++ and compile what changed, or everything when the recipe did."""
        # The modules of every flavour have the same file names, and time stamps say nothing of
        # flags: what the last build was made with decides whether any of it may be kept.
        recipe = json.dumps(
            [
                FLAVOUR,
                DIRECTIVES,
                MACROS,
                [COMPILE, BETTER, KERNEL],
                [ROAD, KERNELS, HEADERS, UTILITY],
                LINK,
                cython_version,
                numpy.__version__,
                sys.version,
            ]
        )
        stamp = Path("build", "recipe")
        if not stamp.exists() or stamp.read_text() != recipe:
            self.force = True
            stamp.unlink(missing_ok=True)
        translated = cythonize(
            self.extensions,
            build_dir=str(Path("build", "cython", FLAVOUR)),
            include_path=["cython_ext"],
            compiler_directives=DIRECTIVES,
            force=bool(self.force),
            nthreads=int(self.parallel or 1),
            shared_utility_qualified_name=UTILITY,
        )
        for extension, made in zip(self.extensions, translated, strict=True):
            extension.sources = made.sources
            missing = Path(made.sources[0])
            if not missing.exists():  # UTILITY, which Cython 3.3.0 names otherwise
                missing.with_suffix(".c").rename(missing)
        self._finished = itertools.count(1)
        for name, flags in {"headers": COMPILE, "better": BETTER}.items():
            self._compile_headers(name, flags)
        super().build_extensions()
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(recipe)

    def _compile_headers(self, name: str, flags: list[str]) -> None:
        """Compile HEADERS once, for all modules with these flags, unless the compiler refuses."""
        header = Path(self.build_temp, f"{name}.h")
        compiled = header.with_suffix(".h.gch")
        if self.force or not compiled.exists():
            header.parent.mkdir(parents=True, exist_ok=True)
            names = "".join(f"#include <{name}>\n" for name in HEADERS)
            header.write_text(f"#define PY_SSIZE_T_CLEAN\n{names}")
            undefined: list[tuple[str] | tuple[str, str | None]] = [("NDEBUG",)] if DEBUG else []
            folders = [*FOLDERS, *self.include_dirs]
            command = [
                *self.compiler.compiler_so_cxx,
                *gen_preprocess_options([*MACROS, *undefined], folders),
                *["-x", "c++-header", str(header), "-o", str(compiled)],
                *flags,
            ]
            if subprocess.run(command, check=False).returncode:
                compiled.unlink(missing_ok=True)
                return
        for extension in self.extensions:
            if extension.extra_compile_args is flags:
                extension.extra_compile_args = [*flags, "-include", str(header)]

    def build_extension(self, extension: Extension) -> None:
        """Compile and link one module, and say so."""
        target = Path(self.get_ext_fullpath(extension.name))
        before = target.stat().st_mtime_ns if target.exists() else None
        super().build_extension(extension)
        number = next(self._finished)
        if target.stat().st_mtime_ns != before:
            print(f"[{number}/{len(self.extensions)}] {extension.name}", flush=True)


def extension(source: Path, **options: object) -> Extension:
    """Return the extension module of one source."""
    name = ".".join(source.relative_to("cython_ext").with_suffix("").parts)
    module = name.removeprefix("reader._core.")
    flags = KERNEL if module.startswith(KERNELS) else BETTER if module in ROAD else COMPILE
    return Extension(
        name,
        [str(source)],
        include_dirs=FOLDERS,
        define_macros=MACROS,
        undef_macros=["NDEBUG"] if DEBUG else [],
        extra_compile_args=flags,
        extra_link_args=LINK,
        **options,
    )


headers = sorted(str(path) for path in SOURCES.rglob("*.h"))
setup(
    packages=[name for name in PACKAGES if Path(*name.split("."), "__init__.py").exists()],
    package_data={"reader": ["py.typed", "*.pyi"], **{name: ["*.pyi"] for name in ROOMS}},
    include_package_data=False,
    # Cython refuses a language for the module that it writes itself; the compiler goes by its name.
    ext_modules=[
        extension(Path("cython_ext", *UTILITY.split(".")).with_suffix(".cpp")),
        *(
            extension(path, language="c++", depends=headers)
            for path in sorted(SOURCES.rglob("*.pyx"))
        ),
    ],
    cmdclass={"build_ext": BuildCore},
)
