"""The record of peers' results: for the installed versions, whole, and never trusted over ours.

Imports the harness. Writes into a folder of the test's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tests.peers.record
from tests.peers.program import PADDLE_IO, TORCH_DATA, Peer, Story, Verdict
from tests.peers.record import HOW, Record, version_of

pytestmark = pytest.mark.peer

STORY = Story("print(1)")


def gave(*lines: str, exit_code: int = 0) -> Verdict:
    return Verdict(exit_code, list(lines), "", [], 0.0)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """An empty record."""
    monkeypatch.setattr(tests.peers.record, "FOLDER", tmp_path)
    return Record(PADDLE_IO)


@pytest.mark.parametrize("peer", [PADDLE_IO, TORCH_DATA], ids=lambda peer: peer.module)
def test_the_version_installed_is_recorded(
    peer: Peer,
    demonstrations: dict[str, Peer],
    records: Callable[[Peer], Record],
    request: pytest.FixtureRequest,
) -> None:
    if request.config.getoption("peers") == "record":
        pytest.skip("it is being recorded")
    record = records(peer)
    assert record.path.exists(), f"nothing is recorded of {version_of(peer)}: {HOW}"
    wanted = {name for name, other in demonstrations.items() if other == peer}
    assert wanted <= set(record.defects), f"not seen in {version_of(peer)}: {HOW}"


def test_recorded_equal_results_stand_for_the_peers_while_ours_stay_the_same(
    record: Record,
) -> None:
    record.add_program(STORY, gave("1"), gave("1"))
    theirs = record.theirs(STORY, gave("1"))
    assert theirs is not None
    assert theirs.result == 1


@pytest.mark.parametrize("ours", [gave("2"), gave("1", "1"), gave("1", exit_code=1)])
def test_the_peer_runs_again_if_our_result_changed(record: Record, ours: Verdict) -> None:
    record.add_program(STORY, gave("1"), gave("1"))
    assert record.theirs(STORY, ours) is None


def test_a_result_that_differed_is_recorded_whole(record: Record) -> None:
    record.add_program(STORY, gave("1", exit_code=3), gave("2"))
    theirs = record.theirs(STORY, gave("5"))
    assert theirs is not None
    assert (theirs.exit_code, theirs.lines) == (3, ["1"])


def test_the_peer_runs_a_program_that_is_not_recorded(record: Record) -> None:
    record.add_program(STORY, gave("1"), gave("1"))
    for other in (Story("print(2)"), Story(STORY.text, args=("2",))):
        assert record.theirs(other, gave("1")) is None
        assert not record.denies(other, gave("2"), gave("1"))


def test_record_is_denied_where_it_would_have_hidden_a_difference(record: Record) -> None:
    record.add_program(STORY, gave("1"), gave("1"))
    assert record.denies(STORY, gave("2"), gave("1"))
    assert not record.denies(STORY, gave("1"), gave("1"))
    assert not record.denies(STORY, gave("2"), gave("2"))
    record.add_program(STORY, gave("1"), gave("2"))
    assert record.denies(STORY, gave("3"), gave("2"))
    assert not record.denies(STORY, gave("1"), gave("2"))


def test_processes_that_share_a_run_write_into_one_record(record: Record) -> None:
    other = Record(PADDLE_IO)
    record.add_program(STORY, gave("1"), gave("1"))
    other.add_defect("test_paddle.py::test_defect")
    record.write()
    other.write()
    both = Record(PADDLE_IO)
    assert both.theirs(STORY, gave("1")) is not None
    assert both.defects == ["test_paddle.py::test_defect"]
