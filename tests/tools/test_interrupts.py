"""A sample of the tool of interrupts; `make nightly` runs more of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reader.worker import context
from tools import interrupts


@pytest.fixture(autouse=True)
def _own_task() -> Iterator[None]:
    """Keep this thread out of loaders' tasks: an interrupt on leaving one may keep it there."""
    before = context.entered()
    yield
    context.leave(before)


@pytest.mark.parametrize("kind", interrupts.OPTIONS)
def test_01_interrupt_at_any_place_costs_no_batch(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--kinds", kind, "--count", "6" if "process" in kind else "40", "--seed", "1"]
    assert interrupts.main(arguments) == 0, capsys.readouterr().out


def test_01_signals_at_any_time_cost_no_batch(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--kinds", "map-thread", "stream-thread", "--storm", "0.5"]
    assert interrupts.main(arguments) == 0, capsys.readouterr().out
    assert not capsys.readouterr().out.splitlines()[-1].startswith("all: 0 interrupts")
