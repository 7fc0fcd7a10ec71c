"""What peer tests share: the nurseries that run programs, and stories told side by side.

Imports pytest and the harness. Owns the nurseries, one per peer, which live as long as the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.peers.program import Nursery, Peer, Story, Verdict


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "demonstration: shows a defect of a peer, with that peer",
        "tells(story, limit_s): the program whose verdict the test is about",
        "compares(story): the program that is run with both imports",
    ):
        config.addinivalue_line("markers", line)


@pytest.fixture(scope="session")
def nurseries(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Peer], Nursery]]:
    made: dict[Peer, Nursery] = {}

    def of(peer: Peer) -> Nursery:
        if peer not in made:
            made[peer] = Nursery(tmp_path_factory.mktemp("programs"), peer)
        return made[peer]

    yield of
    for nursery in made.values():
        nursery.close()


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, nurseries: Callable[[Peer], Nursery]
) -> dict[tuple[Story, str], Verdict]:
    """Every story of this file's tests, told before the first of them: hangs wait side by side."""
    items = [item for item in request.session.items if item.path == request.node.path]
    told = [each for item in items for each in _told_by(item)]
    found: dict[tuple[Story, str], Verdict] = {}
    for peer in {story.peer for story, _, _ in told}:
        found |= nurseries(peer).run_all(each for each in told if each[0].peer == peer)
    return found


@pytest.fixture
def verdict(request: pytest.FixtureRequest, verdicts: dict[tuple[Story, str], Verdict]) -> Verdict:
    """What became of the story that the test is marked with."""
    (story, module, _) = _told_by(request.node)[-1]
    return verdicts[story, module]


@pytest.fixture
def both(
    request: pytest.FixtureRequest, verdicts: dict[tuple[Story, str], Verdict]
) -> tuple[Verdict, Verdict]:
    """What became of one program: with its peer, and with one import changed."""
    story = _told_by(request.node)[0][0]
    return verdicts[story, story.peer.module], verdicts[story, story.peer.ours]


def _told_by(item: pytest.Item) -> list[tuple[Story, str, float]]:
    found: list[tuple[Story, str, float]] = []
    for mark in item.iter_markers("compares"):
        story = mark.args[0]
        found += [(story, module, story.limit_s) for module in (story.peer.module, story.peer.ours)]
    is_of_peer = item.get_closest_marker("demonstration") is not None
    for mark in item.iter_markers("tells"):
        story, limit_s = mark.args
        found.append((story, story.peer.module if is_of_peer else story.peer.ours, limit_s))
    return found
