"""Fixtures of peer tests: nurseries that run programs, stories run in parallel, and the record.

Imports pytest and the harness. Owns the nurseries and the records, one each per peer, which live as
long as the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.peers.program import PADDLE_IO, TORCH_DATA, Nursery, Peer, Story, Verdict
from tests.peers.record import HOW, Acts, Record

_demonstrations = pytest.StashKey[dict[str, Peer]]()
_records = pytest.StashKey[Callable[[Peer], Record]]()


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "demonstration: shows a defect of a peer, with that peer",
        "tells(story, limit_s): the program whose verdict the test is about",
        "paired: compares us with a peer that need not run: what it gave is recorded",
        "compares(story): the program that is run with both imports",
    ):
        config.addinivalue_line("markers", line)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that compare with the record; remember demonstrations, left out or not."""
    if _runs_acts(item) or item.get_closest_marker("compares") is not None:
        item.add_marker(pytest.mark.paired)
    if item.get_closest_marker("demonstration") is not None:
        item.config.stash.setdefault(_demonstrations, {})[_name_of(item)] = _peer_of(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Record that a demonstration has shown what it claims."""
    yield
    is_demonstration = item.get_closest_marker("demonstration") is not None
    if is_demonstration and item.config.getoption("peers") == "record":
        item.config.stash[_records](_peer_of(item)).add_defect(_name_of(item))


@pytest.fixture(scope="session")
def demonstrations(request: pytest.FixtureRequest) -> dict[str, Peer]:
    """The demonstrations that were collected, those that are not run included."""
    return request.config.stash.get(_demonstrations, {})


@pytest.fixture(scope="session", autouse=True)
def records(request: pytest.FixtureRequest) -> Iterator[Callable[[Peer], Record]]:
    made: dict[Peer, Record] = {}

    def of(peer: Peer) -> Record:
        if peer not in made:
            made[peer] = Record(peer)
        return made[peer]

    request.config.stash[_records] = of
    yield of
    if request.config.getoption("peers") == "record":
        for record in made.values():
            record.write()


@pytest.fixture(autouse=True)
def acts(request: pytest.FixtureRequest, records: Callable[[Peer], Record]) -> Iterator[None]:
    """The recorded results of PyTorch's loader for this test's acts."""
    if not _runs_acts(request.node):
        yield
        return
    from tests.peers.torch_parity import recorded

    mode, name = request.config.getoption("peers"), _name_of(request.node)
    record = records(TORCH_DATA)
    before, recorded.acts = recorded.acts, Acts(record.acts.get(name, []), mode)
    try:
        yield
        found = recorded.acts
    finally:
        recorded.acts = before
    if mode == "record" and found.told:
        record.acts[name] = found.told
    if found.is_denied:
        pytest.fail(f"{record.version} showed something else when it was recorded: {HOW}")


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
    request: pytest.FixtureRequest,
    nurseries: Callable[[Peer], Nursery],
    records: Callable[[Peer], Record],
) -> dict[tuple[Story, str], Verdict]:
    """Every story of this file's tests, told before the first of them: hangs wait side by side."""
    items = [item for item in request.session.items if item.path == request.node.path]
    told = [each for item in items for each in _told_by(item)]
    paired = {mark.args[0] for item in items for mark in item.iter_markers("compares")}
    mode = request.config.getoption("peers")
    found: dict[tuple[Story, str], Verdict] = {}

    def tell(wanted: list[tuple[Story, str, float]]) -> None:
        for peer in {story.peer for story, _, _ in wanted}:
            found.update(nurseries(peer).run_all(each for each in wanted if each[0].peer == peer))

    if mode != "recorded":
        tell(told)
        for story in paired if mode == "record" else ():
            theirs, ours = found[story, story.peer.module], found[story, story.peer.ours]
            records(story.peer).add_program(story, theirs, ours)
        return found
    tell([each for each in told if each[0] not in paired or each[1] != each[0].peer.module])
    missing = []
    for story in paired:
        recorded = records(story.peer).theirs(story, found[story, story.peer.ours])
        if recorded is None:
            missing.append((story, story.peer.module, story.limit_s))
        else:
            found[story, story.peer.module] = recorded
    tell(missing)
    return found


@pytest.fixture
def verdict(request: pytest.FixtureRequest, verdicts: dict[tuple[Story, str], Verdict]) -> Verdict:
    """The result of the story that the test is marked with."""
    (story, module, _) = _told_by(request.node)[-1]
    return verdicts[story, module]


@pytest.fixture
def both(
    request: pytest.FixtureRequest,
    verdicts: dict[tuple[Story, str], Verdict],
    records: Callable[[Peer], Record],
) -> tuple[Verdict, Verdict]:
    """The results of one program: with its peer, and with one import changed."""
    story = _told_by(request.node)[0][0]
    theirs, ours = verdicts[story, story.peer.module], verdicts[story, story.peer.ours]
    record = records(story.peer)
    if request.config.getoption("peers") == "run" and record.denies(story, theirs, ours):
        pytest.fail(f"{record.version} gave something else when it was recorded: {HOW}")
    return theirs, ours


def _runs_acts(item: pytest.Item) -> bool:
    module = getattr(item, "module", None)
    names = ("check_same", "check_same_result")
    checks = (getattr(module, name, None) for name in names)
    return any(getattr(each, "__module__", "") == "tests.peers.torch_parity" for each in checks)


def _name_of(item: pytest.Item) -> str:
    return f"{item.path.name}::{item.name}"


def _peer_of(item: pytest.Item) -> Peer:
    return TORCH_DATA if item.path.name.startswith("test_torch") else PADDLE_IO


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
