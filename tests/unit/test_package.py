"""The distribution: one version, honest metadata, every package named, the checks green."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import check_docs, check_words, pyproject

ROOT = Path(__file__).parents[2]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def package_version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', text_of("reader/_version.py"), re.MULTILINE)
    assert found, "reader/_version.py has no literal __version__"
    return found[1]


def test_the_changelogs_top_entry_is_this_version() -> None:
    entries = re.findall(r"^## (\S+)", text_of("CHANGELOG.md"), re.MULTILINE)
    assert entries[0] == package_version()
    assert entries == sorted(entries, key=lambda v: [int(n) for n in v.split(".")], reverse=True)


def test_the_package_says_its_version() -> None:
    import reader

    assert reader.__version__ == package_version()


def test_setup_names_every_package() -> None:
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "reader").rglob("__init__.py")
    }
    listed = set(re.findall(r'^    "(reader[.\w]*)",$', text_of("setup.py"), re.MULTILINE))
    sources = ROOT / "cython_ext/reader/_core"
    core = {f"reader._core.{path.name}" for path in sources.iterdir() if path.is_dir()}
    assert found <= listed | core


def test_every_compiled_module_has_a_stub_and_no_stub_is_left_over() -> None:
    sources, stubs = (
        {path.relative_to(top).with_suffix("") for path in (top / "reader/_core").rglob(kind)}
        for top, kind in ((ROOT / "cython_ext", "*.pyx"), (ROOT, "*.pyi"))
    )
    assert sources == stubs


def test_nothing_but_stubs_lies_beside_the_built_core() -> None:
    names = {path.name for path in (ROOT / "reader/_core").rglob("*.py")}
    assert names == {"__init__.py"}


def test_the_requirements_agree_with_the_metadata() -> None:
    project = text_of("pyproject.toml")
    for line in text_of("requirements/build.txt").splitlines():
        if line.startswith(("numpy", "cloudpickle", "cython", "setuptools")):
            assert f'"{line}"' in project


def test_the_pins_of_the_peers_are_those_the_speed_goals_name() -> None:
    assert "torch==2.13.0\n" in text_of("requirements/test.txt")
    assert "paddlepaddle==3.3.1\n" in text_of("requirements/demo.txt")


def test_the_sources_keep_the_rules_of_words() -> None:
    assert check_words.check(ROOT, check_words.files_of(ROOT)) == []


def test_the_documents_name_only_what_exists() -> None:
    assert check_docs.check(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("reader/a.py", "x = 1  # TO" + "DO: more\n", "leaves something to do"),
        ("docs/a.md", "See /ho" + "me/me/file.\n", "names one machine"),
        ("reader/a.py", "x = 1 \n", "has a tab or blanks at its end"),
        ("cython_ext/reader/_core/wire/a.h", "usl" + "eep(10);\n", "polls"),
        ("cython_ext/reader/_core/wire/a.pyx", "x = 1\n", "has no header"),
        (
            "cython_ext/reader/_core/wire/a.pyx",
            "# Header.\ncdef f(\n    x):\n"
            + "\n    if x: pass" * 22
            + "\ncdef g():\n    if x: pass\n",
            ":2: has 23 branches, and 22 are the most",
        ),
    ],
)
def test_each_word_rule_finds_its_violation(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    found = check_words.check(tmp_path, [name])
    assert len(found) == 1
    assert message in found[0]


def test_packages_of_extras_are_known_to_the_check() -> None:
    of_developers = {"demo", "bench", "test"}
    brought = {
        floor.package
        for name, floors in pyproject.extras().items()
        if name not in of_developers
        for floor in floors
    }
    assert brought - {"rich"} == check_docs.BROUGHT  # rich alone is of use without the extra


def test_a_message_that_names_a_package_of_an_extra_is_found(tmp_path: Path) -> None:
    for name in check_docs.REQUIRED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# A heading\n")
    (tmp_path / "Makefile").write_text("demo: x\n")
    (tmp_path / "reader").mkdir()
    (tmp_path / "reader/a.py").write_text("""raise X(
    "no pillow. Run: pip"
    " install pillow"
    'or pip install "lodreader[images]"'
)
""")
    assert check_docs.check(tmp_path) == ['reader/a.py:2: write pip install "lodreader[extra]"']


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("See [the guide](docs/none.md).", "links to docs/none.md, which does not exist"),
        ("See [it](README.md#none).", "a heading that README.md lacks"),
        ("It is in `reader/none.py`.", "reader/none.py does not exist"),
        ("They are in `reader/none/*.py`.", "reader/none/*.py does not exist"),
        ("| a | b |", "a table needs |---| below its first line"),
        ("Type `make nothing`.", "the Makefile has no target nothing"),
        ('<img src="docs/none.svg">', "links to docs/none.svg"),
        ("Type `pip install .[images]`.", 'write pip install "lodreader[extra]"'),
        ("Type `pip install lodreader[images]`.", 'write pip install "lodreader[extra]"'),
        ("Type `pip install pillow`.", 'write pip install "lodreader[extra]"'),
    ],
)
def test_each_document_rule_finds_its_violation(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "docs").mkdir()
    for name in check_docs.REQUIRED:
        (tmp_path / name).write_text("# A heading here\n")
    (tmp_path / "Makefile").write_text("demo: x\n\t@true\n")
    (tmp_path / "README.md").write_text(
        "# A heading here\n[fine](CHANGELOG.md#a-heading-here) `make demo` `docs/*.md` make it so\n"
        f"```\nmake demo\n```\n{line}\n"
    )
    found = check_docs.check(tmp_path)
    assert len(found) == 1
    assert found[0].startswith("README.md:6: ")
    assert message in found[0]


def test_the_makefile_offers_each_one_verb_command() -> None:
    verbs = "demo test quick check bench docs build debug package gpu clean".split()
    run = subprocess.run(
        ["make", "--dry-run", "--always-make", *verbs],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
    )
    assert run.returncode == 0, run.stderr
