"""Scalars in VisualDL's files, read back by VisualDL itself: `make integrations` installs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.numbers import loaded

pytest.importorskip("visualdl", reason="make integrations")

from visualdl import LogReader, LogWriter

from reader.integrations.visualdl import ScalarLogger

pytestmark = [pytest.mark.evidence, pytest.mark.filterwarnings("ignore")]


def test_a_program_logs_every_nth_step(tmp_path: Path) -> None:
    with LogWriter(logdir=str(tmp_path)) as writer, loaded(2) as loader:
        logger = ScalarLogger(writer, loader, every=5)
        for step, _ in enumerate(loader):
            logger.log(step)
    (path,) = tmp_path.glob("*.log")
    found = LogReader(file_path=str(path))
    tags = found.get_tags()["scalar"]
    assert "reader/wait_share" in tags
    assert "reader/workers_busy" in tags
    for tag in tags:
        assert [point.id for point in found.get_data("scalar", tag)] == [5, 10, 15]
