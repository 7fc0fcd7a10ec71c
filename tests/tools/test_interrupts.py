"""A sample of what the tool of interrupts does; `make nightly` does more of it."""

from __future__ import annotations

import pytest

from tools import interrupts


@pytest.mark.parametrize("kind", interrupts.OPTIONS)
def test_01_interrupt_at_any_place_costs_no_batch(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 15 if "process" in kind else 60
    assert interrupts.main(["--kinds", kind, "--count", str(count)]) == 0, capsys.readouterr().out
