"""Fixtures of fault tests: wires to workers, and programs of their own.

Imports pytest and the helpers. A fixture here closes what it opened, in its own teardown, before
the ledger looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes import Program, Wire


@pytest.fixture
def make_wire(tmp_path: Path) -> Iterator[Callable[[], Wire]]:
    wires: list[Wire] = []

    def make() -> Wire:
        wires.append(Wire(tmp_path / f"wire{len(wires)}"))
        return wires[-1]

    yield make
    for wire in wires:
        wire.close()


@pytest.fixture
def says(make_wire: Callable[[], Wire]) -> Wire:
    """A FIFO on which workers report to the test."""
    return make_wire()


@pytest.fixture
def gate(make_wire: Callable[[], Wire]) -> Wire:
    """A FIFO on which workers wait for the test."""
    return make_wire()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start a program: `program(text, *arguments)`."""
    started: list[Program] = []

    def start(text: str, *args: str, wrapper: tuple[str, ...] = ()) -> Program:
        folder = tmp_path / f"program{len(started)}"
        folder.mkdir()
        started.append(Program(folder, text, *args, wrapper=wrapper))
        return started[-1]

    yield start
    for one in started:
        one.end()
