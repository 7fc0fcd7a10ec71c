"""docs/trust.md names an existing test for each claim."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/trust.md").read_text()


def test_each_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > 25
    for path, test in named:
        text = (ROOT / path).read_text()
        assert not test or f"def {test}(" in text, f"{path} has no {test}"


def test_lines_without_a_test_say_why_they_have_none() -> None:
    lines = [
        line for line in PAGE.splitlines() if line.endswith("|") and not line.startswith("|--")
    ]
    untested = [line.split("|")[1].strip() for line in lines if line.endswith("| |")]
    assert untested == [
        "your dataset, `collate_fn`, samplers, `worker_init_fn`",
        "a worker that hangs, whose stack is shown",
        "between trainer, template and workers",
        "your dataset's own exceptions, and what your code prints",
    ]


def test_the_page_is_found_where_people_look() -> None:
    assert "trust.md" in (ROOT / "tools/site/mkdocs.yml").read_text()
    for page in ("README.md", "docs/guide.md", "docs/tables.md", "docs/troubleshooting.md"):
        assert "trust.md" in (ROOT / page).read_text(), page
