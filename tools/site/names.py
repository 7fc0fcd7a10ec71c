"""Links between the names in prose and their documentation, both ways.

Imports commonmark alone. A `NameIndex` is filled by one build of the site, and is of that build.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections import Counter
from collections.abc import Mapping

from tools.site.commonmark import slug

__all__ = ["NameIndex"]

_MOST = 4  # sections that are listed as uses of a name
_HEADING = re.compile(r"^(#{1,3}) +(.*)$")
_TAG = re.compile(r"(<[^>]+>)")
_CONTENTS = re.compile(r'<div class="doc doc-contents[^>]*>')
_NAMED = re.compile(r"^(?:reader\.)?[\w.]+")
# Pages that speak of another library's classes by the same names, and those that are not about use.
_OTHERS = (
    "checkpoints.md",
    "torch.md",
    "paddle.md",
    "gluon.md",
    "migration/",
    "api/torch",
    "api/paddle",
    "api/gluon",
)
_NO_USE = (
    "api/",
    "architecture.md",
    "decisions/",
    "glossary.md",
    "changelog.md",
    "contributing.md",
    "concurrency.md",
)


class NameIndex:
    """Which documented name a word in code means, and which sections of the pages use it.

    Args:
        sources: each public name, and the file that defines it.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._first: dict[tuple[str, str], str] = {}
        for name in sources:
            self._first.setdefault((sources[name], name.rpartition(".")[2]), name)
        self._names = {
            name: self._first[sources[name], name.rpartition(".")[2]] for name in sources
        }
        plain = [
            name for name in self._names if not re.match(r"reader\.(compat|integrations)", name)
        ]
        lasts = Counter(name.rpartition(".")[2] for name in plain if self.first_of(name) == name)
        self._short = {
            name.rpartition(".")[2]: name
            for name in plain
            if lasts[name.rpartition(".")[2]] == 1 and re.search(r"[a-z][A-Z]|_", name)
        }
        self._uses: dict[str, Counter[tuple[str, str, str]]] = {}

    def first_of(self, name: str) -> str:
        """Return the name under which its documentation stands: a name may be exported twice."""
        return self._names[name]

    def read(self, uri: str, text: str) -> None:
        """Note which names a page uses, by its sections."""
        if uri.startswith(_NO_USE):
            return
        title = section = ""
        anchor = ""
        fenced = False
        for line in text.split("\n"):
            if re.match(r"^\s*```", line):
                fenced = not fenced
            heading = None if fenced else _HEADING.match(line)
            if heading and len(heading[1]) == 1:
                title = "Start" if uri == "index.md" else heading[2]
            elif heading:
                section, anchor = heading[2].replace("`", ""), slug(heading[2])
            words = [line] if fenced else re.findall(r"`([^`]+)`", line)
            for word in words:
                for each in re.findall(r"\b(?:reader\.)?[A-Za-z_][\w.]*", word):
                    name = self._documented(each, uri)
                    if name:
                        self._uses.setdefault(name, Counter())[
                            uri, anchor, f"{title}: {section}" if section else title
                        ] += 1

    def with_links(self, page: str, uri: str) -> str:
        """Return the HTML of a page whose names in code are links, but for those in headings."""
        closed: list[str] = []
        pieces = _TAG.split(page)
        for number, piece in enumerate(pieces):
            opened = re.match(r"<(/?)(a|pre|h[1-6]|autoref|svg)\b", piece)
            if opened and opened[1]:
                closed = closed[:-1]
            elif opened and not piece.endswith("/>"):
                closed.append(opened[2])
            if piece == "<code>" and not closed and pieces[number + 2 : number + 3] == ["</code>"]:
                name = self._documented(_word(pieces[number + 1]), uri)
                if name:
                    pieces[number] = f'<autoref identifier="{name}" optional><code>'
                    pieces[number + 2] = "</code></autoref>"
        return "".join(pieces)

    def with_uses(self, page: str, uri: str) -> str:
        """Return a page of the reference that says below each name where the guides use it."""
        for name, sections in self._uses.items():
            ranked = sorted(sections, key=lambda each: (-sections[each], each))[:_MOST]
            links = [self._link(uri, *section) for section in ranked]
            line = f'<p class="uses">Used in {", ".join(links)}</p>'
            heading = re.search(rf'<h\d[^>]*\bid="{re.escape(name)}"', page)
            contents = heading and _CONTENTS.search(page, heading.end())
            if contents:
                page = page[: contents.end()] + line + page[contents.end() :]
        return page

    def _link(self, uri: str, target: str, anchor: str, text: str) -> str:
        path = posixpath.relpath(
            target.removesuffix(".md") + ".html", posixpath.dirname(uri) or "."
        )
        return f'<a href="{path}{"#" if anchor else ""}{anchor}">{html.escape(text)}</a>'

    def _documented(self, word: str, uri: str) -> str | None:
        if word in self._names:
            return self._names[word]
        return None if uri.startswith(_OTHERS) else self._short.get(word)


def _word(code: str) -> str:
    """Return the name that a piece of code begins with, if nothing but its arguments follows."""
    text = html.unescape(code)
    found = _NAMED.match(text)
    rest = text[found.end() :] if found else text
    return found[0] if found and (not rest or (rest[0] == "(" and rest[-1] == ")")) else ""
