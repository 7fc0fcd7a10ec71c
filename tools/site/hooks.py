"""Transforms the pages of docs/ while MkDocs builds the site.

Pages read well by themselves, where they lie; here lists of names become their documentation, names
in prose become links to it, and links that leave docs/ lead to pages too. Imports mkdocs, of the
environment of `make site`, and the sibling modules. The build owns what it collects: one per run.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]  # MkDocs loads this file by its path

from tools.site import built_site, commonmark, folds, names, reference, road  # noqa: E402

_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_BUTTONS = re.compile(r"<p>((?:<a [^>]*>[^<]*</a>\s*){2})</p>")
_DOCUMENT = re.compile(r"\bdocs/([a-z-]+)\.md\b")  # as docstrings name them
_LONG = re.compile(r"<code>([^<\s]{30,})</code>")
_COMMAND = re.compile(r"^( *)```\n(?= *(?:make|pip|python|ray|\.venv)\b)", re.MULTILINE)
_TOPS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_WITHOUT_INSIDE = f"""    options:
      filters: ["!^_", "!^({"|".join(reference.INSIDE)})$"]
"""
_BEHIND = ("changelog.md", "concurrency.md", "decisions/", "glossary.md")  # in what is searched
_WIDE = {
    "index.md",
    "how-it-works.md",
    "speed.md",
    "tutorial.md",
}  # pages without the list of pages beside them


class Build:
    """Facts collected before the pages are made: the names, and where the guides use them."""

    def __init__(self) -> None:
        self.sources = {each.name: each.source for each in reference.public_names(ROOT)}
        self.index = names.NameIndex(self.sources)
        missing = set(self.sources) - {each.name for _, each in reference.shown_names(ROOT)}
        if missing:
            raise PluginError(f"no page of docs/api shows {', '.join(sorted(missing))}")


build = Build()


def on_config(config: Any) -> Any:
    """Make anchors as GitHub does, so that a link serves both there and on the site."""
    config["mdx_configs"].setdefault("toc", {})["slugify"] = commonmark.slug
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie outside of docs/, and sources that pages link to."""
    for top, page in _TOPS.items():
        if page != "index.md":
            files.append(File.generated(config, page, content=(ROOT / top).read_text("utf-8")))
    pages = {each.src_uri: each.content_string for each in files.documentation_pages()}
    for uri, text in pages.items():
        build.index.read(uri, text)
        for source in _linked_sources(uri, text):
            if files.get_file_from_path(_source_page(source)) is None:
                files.append(File.generated(config, _source_page(source), content=_listing(source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show the documentation of listed names, and lead each link to a page of the site."""
    uri = page.file.src_uri
    if uri in _WIDE:
        page.meta.setdefault("hide", []).append("navigation")
    if uri.startswith("source/"):
        page.meta["search"] = {"exclude": True}
        return markdown
    if uri.startswith(_BEHIND):
        page.meta["search"] = {"boost": 0.3}
    if uri.startswith("api/"):
        markdown = reference.ITEM.sub(lambda item: _shown(item[1]), markdown)
    if uri == "api/index.md":
        markdown += _all_names()
    markdown = _LINK.sub(
        lambda link: f"{link[1]}{_target(uri, link[2])}{link[3] or ''}{link[4]}", markdown
    )
    markdown = _COMMAND.sub(r"\1```sh\n", markdown)
    return commonmark.as_python_markdown(markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Link names in prose to their documentation, and that to the sections that use them."""
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return html
    if uri.startswith("api/"):
        html = _DOCUMENT.sub(r'<a href="../\1.html">docs/\1.md</a>', html)
        html = build.index.with_uses(html, uri)
    if uri == "index.md":
        html = _BUTTONS.sub(r'<p class="buttons">\1</p>', html, count=1)
    if uri == "how-it-works.md":
        html = road.with_picture(html, (ROOT / "docs/road.svg").read_text("utf-8"))
    if uri in folds.PAGES:
        html = folds.folded(html)
    return build.index.with_links(_LONG.sub(_with_breaks, html), uri)


def on_post_build(config: Any) -> None:
    """Refuse a site with a dead link, or one that fetches anything from other sites."""
    site = Path(config["site_dir"])
    found = built_site.check(site)
    for page, each in reference.shown_names(ROOT):
        html = (site / page).with_suffix(".html").read_text("utf-8")
        if f'id="{each.name}"' not in html:
            found.append(f"{page}: does not show {each.name}")
    if found:
        raise PluginError("\n".join(found))


def _shown(name: str) -> str:
    first = build.index.first_of(name)
    if first == name:
        inside = "reader/_core/" in build.sources[name]
        return f"::: {name}\n{_WITHOUT_INSIDE if inside else ''}"
    label = name.rpartition(".")[2]
    heading = f'<h2 class="doc doc-heading" id="{name}">{label}</h2>'
    return f"{heading}\n\nThe same as [`{first}`][{first}].\n"


def _all_names() -> str:
    """Return a list of every name by its page, for the first page of the reference."""
    by_page: dict[str, list[str]] = {}
    for page, each in reference.shown_names(ROOT):
        link = f"[`{each.name.rpartition('.')[2]}`][{each.name}]"
        by_page.setdefault(page.removeprefix("api/"), []).append(link)
    titles = {
        page: (ROOT / "docs/api" / page).read_text("utf-8").split("\n")[0] for page in by_page
    }
    lines = [f"### [{titles[page][2:]}]({page})\n\n{' '.join(by_page[page])}\n" for page in by_page]
    return "\n## All names\n\n" + "\n".join(lines)


def _with_breaks(code: re.Match[str]) -> str:
    """Let a long path or name in a cell be broken where its words end."""
    path = re.sub("(::|[/_.])(?=[a-z])", r"\1<wbr>", code[1])
    return f"<code>{path}</code>"


def _linked_sources(uri: str, text: str) -> set[str]:
    """Return the files outside of docs/ that a page links to, without its lists of names."""
    text = reference.ITEM.sub("", text) if uri.startswith("api/") else text
    found = (_from_root(uri, link[2]) for link in _LINK.finditer(text))
    return {
        each
        for each in found
        if each and each not in _TOPS and not each.startswith("docs/") and (ROOT / each).is_file()
    }


def _from_root(uri: str, link: str) -> str | None:
    """Return the path from the checkout of what a page links to, or None if that is in docs/."""
    if re.match(r"[a-z]+:", link):
        return None
    base = "" if uri in _TOPS.values() and uri != "index.md" else "docs"
    path = posixpath.normpath(posixpath.join(base, posixpath.dirname(uri), link))
    return None if path.startswith("docs/") and base else path


def _target(uri: str, link: str) -> str:
    path = _from_root(uri, link)
    if path is None:
        return link
    if path.startswith("docs/"):
        page = path.removeprefix("docs/")
    elif path in _TOPS:
        page = _TOPS[path]
    else:
        page = _source_page(path)
    return posixpath.relpath(page, posixpath.dirname(uri) or ".")


def _source_page(path: str) -> str:
    return f"source/{path}.md"


def _listing(path: str) -> str:
    text = (ROOT / path).read_text("utf-8")
    return f"# {path}\n\n````python\n{text}````\n"
