"""The road of a batch as a picture that one can walk: each box is a link to its section.

Imports commonmark alone, and keeps no state.
"""

from __future__ import annotations

import re

from tools.site.commonmark import slug

__all__ = ["stops", "with_picture"]

_IMAGE = re.compile(r"<p><img [^>]*road\.svg[^>]*></p>")
_BOX = re.compile(
    r'  <rect class="(?:box|own)"[^>]*/>\n'
    r'(?:  <text class="(?:noun|what|room)"[^>]*>[^<]*</text>\n)+'
)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_NOUN = re.compile(r'class="noun"[^>]*>([^<]*)<')


def stops(picture: str) -> list[str]:
    """Return the nouns of the boxes of a picture."""
    return [noun for box in _BOX.findall(picture) for noun in _NOUN.findall(box)]


def with_picture(page: str, picture: str) -> str:
    """Return the HTML of a page with the picture itself in the place of the image."""
    picture = re.sub(r'(width|height)="\d+" ', "", picture, count=2)
    picture = _BOX.sub(_linked, _STYLE.sub(_scoped, picture))
    figure = f'<figure class="road">{picture}</figure>'
    return _IMAGE.sub(lambda _: figure, page, count=1)


def _scoped(style: re.Match[str]) -> str:
    """Return the styles for the site's own choice of colors, and for nothing else of the page."""
    light, _, dark = style[1].partition("@media (prefers-color-scheme: dark) {")
    dark = dark.rpartition("}")[0]
    slate = '[data-md-color-scheme="slate"] '
    return f"<style>{_under('.road ', light)}{_under(slate + '.road ', dark)}</style>"


def _under(scope: str, rules: str) -> str:
    found = re.findall(r"([^{}]+)({[^{}]*})", rules)
    return "".join(
        ", ".join(scope + each.strip() for each in names.split(",")) + body for names, body in found
    )


def _linked(box: re.Match[str]) -> str:
    noun = _NOUN.search(box[0])
    anchor = slug(noun[1]) if noun else ""
    return f'  <a href="#{anchor}" class="stop">\n{box[0]}  </a>\n'
