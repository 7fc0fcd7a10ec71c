"""An extension of griffe that shows the examples of docstrings as code.

Docstrings end in lines of an interpreter, ">>> ...", without a heading, which Markdown takes for
quotations. Imports griffe, of the environment of `make site`. Keeps no state.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["DocstringExamples"]

_EXAMPLE = re.compile(r"^( *)>>> .*\n?(?:^\1\S?.*\S\n?)*", re.MULTILINE)


class DocstringExamples(griffe.Extension):  # type: ignore[misc]
    """Put a fence around each example of a docstring."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Look at the docstring of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(example: re.Match[str]) -> str:
    indent = example[1]
    return f"{indent}```pycon\n{example[0].rstrip()}\n{indent}```\n"
