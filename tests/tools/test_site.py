"""The documentation site, as far as it is checked without a build: `make site` does the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import fences
from tools.check_docs import _anchors
from tools.site import built_site, commonmark, folds, reference, road
from tools.site.names import NameIndex

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "tools/site/mkdocs.yml").read_text(encoding="utf-8")
NAVIGATION = re.findall(r"\b([\w/-]+\.md)$", SETTINGS.partition("\nnav:\n")[2], re.MULTILINE)
FOR_USERS = """bad-data checkpoints choosing cluster compatibility devices guide how-it-works index
integrations language-models many-ranks profile recipes troubleshooting tutorial
when-not""".split()
WIDEST = 100  # characters that the code column shows on a screen of 1280 px: site.css
MADE = ["contributing.md", "changelog.md"]  # of files above docs/, while the site is built


# -- what is on it -----------------------------------------------------------------------------


def test_each_public_name_is_shown_once_and_links_to_its_source() -> None:
    shown = [each for _, each in reference.shown_names(ROOT)]
    assert sorted(shown) == sorted(reference.public_names(ROOT))


def test_each_page_that_shows_names_is_in_the_navigation() -> None:
    assert {page for page, _ in reference.shown_names(ROOT)} <= set(NAVIGATION)


def test_each_page_of_the_documents_is_in_the_navigation_once() -> None:
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(NAVIGATION) == sorted(pages + MADE)


def test_names_are_those_that_the_package_exports() -> None:
    import reader
    import reader.collate
    import reader.images

    found = {each.name for each in reference.public_names(ROOT)}
    for module in (reader, reader.collate, reader.images):
        assert {f"{module.__name__}.{name}" for name in module.__all__} <= found
    assert "reader.compat.torch.DataLoader" in found
    assert "reader.compat.torch.RandomSampler" not in found  # which is PyTorch's
    assert "reader.compat.gluon.vision" not in found  # a module, whose names are there


def test_migrations_fit_on_a_screen() -> None:
    for page in (ROOT / "docs/migration").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 70, page.name
        assert "```python" in text


def test_tables_of_pages_for_users_have_no_blank_cell() -> None:
    for name in [*FOR_USERS, *(f"migration/{p.stem}" for p in (ROOT / "docs/migration").iterdir())]:
        text = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
        assert not re.search(r"^\|.*\| *\|", text, re.MULTILINE), name


def test_settings_fetch_nothing_from_other_sites() -> None:
    assert "  font: false\n" in SETTINGS
    assert "  - offline\n" in SETTINGS
    assert not re.search(r"https?://", SETTINGS)
    for path in (ROOT / "tools/site/theme/assets").iterdir():
        found = re.findall(r"https?://[^\s\"']+", path.read_text(encoding="utf-8"))
        assert set(found) <= {"http://www.w3.org/2000/svg"}, path.name


def test_build_of_the_site_ends_at_a_warning() -> None:
    command = re.search(r"-m mkdocs .*", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert command is not None
    assert "build --strict" in command[0]
    assert "--quiet" not in command[0]  # which hides warnings from --strict


def test_each_box_of_the_road_is_a_stop_of_the_walk() -> None:
    stops = road.stops((ROOT / "docs/road.svg").read_text(encoding="utf-8"))
    assert len(stops) == 11
    assert {commonmark.slug(stop) for stop in stops} <= _anchors(ROOT / "docs/how-it-works.md")


def test_files_that_the_picture_of_the_road_names_exist() -> None:
    picture = (ROOT / "docs/road.svg").read_text(encoding="utf-8")
    named = re.findall(r">([\w/*]+\.(?:py|pyx|h))<", picture)
    assert len(named) == 11
    tops = ROOT / "reader", ROOT / "cython_ext/reader/_core"
    assert [name for name in named if not any(any(top.glob(name)) for top in tops)] == []


# -- what is made of a page --------------------------------------------------------------------


def test_picture_of_the_road_takes_the_place_of_the_image() -> None:
    picture = (ROOT / "docs/road.svg").read_text(encoding="utf-8")
    page = road.with_picture('<p><img alt="The road" src="road.svg"></p>', picture)
    assert page.startswith('<figure class="road"><svg')
    assert page.count('class="stop"') == 11
    assert 'href="#reader-thread"' in page


def test_anchors_are_those_that_check_docs_accepts(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# With `code`, and a comma\n## A-b  c\n", encoding="utf-8")
    assert {commonmark.slug("With `code`, and a comma"), commonmark.slug("A-b  c")} == _anchors(
        page
    )


def test_items_and_what_belongs_to_them_are_indented_by_four() -> None:
    text = "Text:\n1. one\n   more\n\n   ```\n   code\n     deeper\n   ```\n   - inner\n2. two\n"
    assert commonmark.as_python_markdown(text) == (
        "Text:\n\n1. one\n    more\n\n    ```\n    code\n      deeper\n    ```\n"
        "    - inner\n2. two\n"
    )


def test_code_outside_of_lists_stays_as_it_is() -> None:
    text = "```\n- no list\n  x\n```\n\n    indented\n"
    assert commonmark.as_python_markdown(text) == text


def index() -> NameIndex:
    return NameIndex(
        {
            "reader.cache": "reader/caching/cache.py",
            "reader.WorkerPool": "reader/engine/worker_pool.py",
            "reader.ImageError": "reader/errors.py",
            "reader.images.ImageError": "reader/errors.py",
        }
    )


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("reader.cache", "reader.cache"),
        ("reader.cache(dataset, memory=1)", "reader.cache"),
        ("WorkerPool", "reader.WorkerPool"),
        ("reader.images.ImageError", "reader.ImageError"),
        ("cache", None),
        ("reader.cache.py", None),
        ("WorkerPool or not", None),
    ],
)
def test_names_in_prose_are_links(code: str, name: str | None) -> None:
    page = index().with_links(f"<p><code>{code}</code></p>", "guide.md")
    assert (f'identifier="{name}"' in page) == (name is not None)


def test_names_in_links_headings_and_listings_are_left_alone() -> None:
    page = '<h2><code>reader.cache</code></h2><a href="x"><code>reader.cache</code></a>'
    page += "<pre><code>reader.cache</code></pre>"
    assert index().with_links(page, "guide.md") == page


def test_short_names_of_a_page_about_another_library_are_that_librarys() -> None:
    assert "autoref" not in index().with_links("<p><code>WorkerPool</code></p>", "torch.md")


def test_documentation_of_a_name_says_which_sections_use_it() -> None:
    names = index()
    names.read(
        "guide.md", "# Guide\n## One `cache`\nUse `reader.cache`.\n```py\nreader.cache(x)\n```\n"
    )
    page = '<h2 id="reader.cache">cache</h2><div class="doc doc-contents first"><p>Keep.</p></div>'
    used = '<a href="../guide.html#one-cache">Guide: One cache</a>'
    assert names.with_uses(page, "api/caching.md") == page.replace(
        "<p>Keep.",
        f'<p class="uses">Used in {used}</p><p>Keep.',
    )


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ('<a href="gone.html">x</a>', "links to gone.html, which does not exist"),
        ('<a href="b.html#gone">x</a>', "links to b.html#gone, an anchor that is not there"),
        ('<a href="#gone">x</a>', "links to #gone, an anchor that is not there"),
        ('<img src="gone.svg">', "links to gone.svg, which does not exist"),
        ('<script src="https://cdn.example/x.js"></script>', "fetches https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "fetches //cdn.example/x.css"),
    ],
)
def test_broken_links_and_foreign_resources_are_refused(
    tmp_path: Path, element: str, message: str
) -> None:
    (tmp_path / "a.html").write_text(f"<p>\n{element}</p>", encoding="utf-8")
    (tmp_path / "b.html").write_text('<h1 id="here">b</h1>', encoding="utf-8")
    assert [line.partition(": ")[2] for line in built_site.check(tmp_path)][:1] == [message]


def test_links_that_lead_somewhere_pass(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.html").write_text(
        '<a href="../b.html#here">b</a> <a href="https://c.example">c</a> <a href="..">d</a>',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<h1 id="here">b</h1>', encoding="utf-8")
    (tmp_path / "index.html").write_text("", encoding="utf-8")
    assert built_site.check(tmp_path) == []


# -- what fits ---------------------------------------------------------------------------------


def test_no_line_of_code_is_wider_than_its_column() -> None:
    for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"]:
        for line, language, content in fences(page.read_text(encoding="utf-8")):
            if language != "text":  # whose lines the site breaks
                widest = max(map(len, content.split("\n")))
                assert widest <= WIDEST, f"{page.name}:{line}: {widest} characters"


def test_only_the_test_of_a_line_is_folded() -> None:
    test = "<code>test_a.py::test_b</code>"
    row = f"<tr><td><code>a.py</code></td><td>{test}</td>\n</tr>"
    shown = f'<details class="shown"><summary>test</summary>{test}</details>'
    assert folds.folded(row) == f"<tr><td><code>a.py</code></td><td>{shown}</td>\n</tr>"
    for page in folds.PAGES:
        assert ".py::test_" in (ROOT / "docs" / page).read_text(encoding="utf-8")
    other = "<tr><td>a</td><td><code>reader/a.py</code></td></tr>"
    assert folds.folded(other) == other
