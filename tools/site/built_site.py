"""Checks a built site: every link leads somewhere, and nothing is fetched from other sites.

Reads the files of a folder, and nothing else. Imports nothing of the checkout, and keeps no state.
"""

from __future__ import annotations

import posixpath
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["check"]

_FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "link": "href",
    "use": "href",
}


class _Page(HTMLParser):
    """The anchors of a page, its links, and what a browser fetches for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[int, str]] = []
        self.fetched: list[tuple[int, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchors, links and resources of an element."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append((self.getpos()[0], found["href"]))
        if _FETCHED.get(tag) in found:
            self.fetched.append((self.getpos()[0], found[_FETCHED[tag]]))


def check(site: Path) -> list[str]:
    """Return the faults of the pages below a folder, as ``file:line: message``."""
    pages = {
        str(path.relative_to(site)): _Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }
    found = []
    for name, page in pages.items():
        if name == "404.html":  # its links are those of the site's root
            continue
        for line, link in page.fetched:
            if urlsplit(link).netloc:
                found.append(f"{name}:{line}: fetches {link}")
        for line, link in page.links + page.fetched:
            message = _broken(site, pages, name, link)
            if message:
                found.append(f"{name}:{line}: {message}")
    return found


def _broken(site: Path, pages: dict[str, _Page], name: str, link: str) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
    target = path if parts.path else name
    if (site / target).is_dir():
        target = posixpath.normpath(posixpath.join(target, "index.html"))
    if not (site / target).is_file():
        return f"links to {link}, which does not exist"
    anchor = unquote(parts.fragment)
    if (
        anchor
        and not anchor.startswith("__")
        and target in pages
        and anchor not in pages[target].anchors
    ):
        return f"links to {link}, an anchor that is not there"
    return None
