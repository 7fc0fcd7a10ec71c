"""What peer tests share: the nursery that runs programs, and stories told side by side.

Imports pytest and the harness. Owns the nursery, which lives as long as the run.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.program import OURS, PADDLE, Nursery, Story, Verdict


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "demonstration: shows a defect of paddle.io 3.3.1, with paddle.io",
        "tells(story, limit_s): the program whose verdict the test is about",
        "compares(story): the program that is run with both imports",
    ):
        config.addinivalue_line("markers", line)


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("programs"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest, nursery: Nursery) -> dict[tuple[Story, str], Verdict]:
    """Every story of this file's tests, told before the first of them: hangs wait side by side."""
    items = [item for item in request.session.items if item.path == request.node.path]
    return nursery.run_all(told for item in items for told in _told_by(item))


@pytest.fixture
def verdict(request: pytest.FixtureRequest, verdicts: dict[tuple[Story, str], Verdict]) -> Verdict:
    """What became of the story that the test is marked with."""
    (story, module, _) = _told_by(request.node)[-1]
    return verdicts[story, module]


@pytest.fixture
def both(
    request: pytest.FixtureRequest, verdicts: dict[tuple[Story, str], Verdict]
) -> tuple[Verdict, Verdict]:
    """What became of one program: with paddle.io, and with one import changed."""
    story = _told_by(request.node)[0][0]
    return verdicts[story, PADDLE], verdicts[story, OURS]


def _told_by(item: pytest.Item) -> list[tuple[Story, str, float]]:
    found: list[tuple[Story, str, float]] = []
    for mark in item.iter_markers("compares"):
        found += [(mark.args[0], module, mark.args[0].limit_s) for module in (PADDLE, OURS)]
    is_paddle = item.get_closest_marker("demonstration") is not None
    for mark in item.iter_markers("tells"):
        story, limit_s = mark.args
        found.append((story, PADDLE if is_paddle else OURS, limit_s))
    return found
