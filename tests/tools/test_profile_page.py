"""The programs of docs/profile.md: each word has one, and the tool writes their output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reader.observe.verdict import Verdict
from tools.profile_page import PAGE, Run, draw_trace, main, programs_of, run, with_reports

pytestmark = pytest.mark.usefixtures("opened_fonts")

_TEXT = """# Page

```text
-- loader over A, iterated at a.py:1
old
```

### storage

```py
pass
```

```text
old
```

### memory

```py
pass
```

Words.
"""


def test_each_word_of_a_verdict_has_a_program_that_is_python() -> None:
    words = set(re.findall(r'"(\w+)"', (Verdict.__doc__ or "").split("sentence:")[0]))
    programs = programs_of(PAGE.read_text(encoding="utf-8"))
    assert set(programs) == words
    for word, code in programs.items():
        compile(code, word, "exec")
        assert "import reader\n" in code


def test_the_page_shows_new_verdicts_and_keeps_those_of_programs_that_did_not_run() -> None:
    report = "-- loader over B, iterated at b.py:2\nIt waits."
    new = with_reports(_TEXT, {"storage": Run(report, "storage", "It waits.\nDo.", {})})
    assert new == _TEXT.replace("-- loader over A, iterated at a.py:1\nold", report).replace(
        "old\n", "It waits.\nDo.\n"
    )
    assert with_reports(new, {}) == new
    again = with_reports(_TEXT, {"memory": Run(report, "memory", "It is short.", {})})
    assert "```py\npass\n```\n\n```text\nIt is short.\n```\n\nWords." in again


def test_a_program_of_the_page_runs_and_its_trace_is_drawn(tmp_path: Path) -> None:
    found = run(programs_of(PAGE.read_text(encoding="utf-8"))["sample"])
    assert found.word == "sample"
    assert found.report.startswith("-- loader over Photos, iterated at train.py:")
    assert found.said.splitlines()[0] in found.report
    draw_trace(found.trace, tmp_path / "trace.svg")
    assert "sample 151" in (tmp_path / "trace.svg").read_text(encoding="utf-8")


# Missing names of a program of the page, and their replacements.
_HERE = {'places="cuda:0"': 'places="cpu"', "1 << 30": "1 << 24", "1 << 18": "1 << 12"}


@pytest.mark.nightly
@pytest.mark.parametrize("word", programs_of(PAGE.read_text(encoding="utf-8")))
def test_each_program_of_the_page_runs(word: str) -> None:
    code = programs_of(PAGE.read_text(encoding="utf-8"))[word]
    for needed, here in _HERE.items():
        code = code.replace(needed, here)
    found = run(code)
    assert found.report.startswith("-- loader over ")
    assert found.said


def test_a_program_that_fails_is_reported() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ended with 3.*no loader of reader"):
        run("raise SystemExit(3)")


def test_an_unknown_word_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["luck"])
    assert ended.value.code == 2
    assert "no program of the page shows ['luck']" in capsys.readouterr().err
