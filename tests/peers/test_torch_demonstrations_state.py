"""Saved and loaded states: where torchdata's StatefulDataLoader 0.11 fails, and the same here.

Imports the harness and pytest; the stories run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import Verdict, demonstrated_by, proved_by
from tests.peers.test_torch_demonstrations_errors import HEAD, story

pytestmark = [pytest.mark.peer, pytest.mark.nightly, pytest.mark.timeout(150)]

STATEFUL = (
    HEAD
    + """
    import json
    from torchdata.stateful_dataloader import StatefulDataLoader
    is_theirs = StatefulDataLoader.__module__.startswith("torchdata")

    def part(loader, count):
        found = []
        for batch in loader:
            found.append(numbers(batch))
            if len(found) == count:
                break
        return found
"""
)

SAME_ORDER = story(
    STATEFUL
    + """
    found = []
    for kind in (torch.utils.data.DataLoader, StatefulDataLoader):
        for options in ({}, {"generator": torch.Generator().manual_seed(3)}):
            torch.manual_seed(3)
            found.append(all_of(kind(Rows(), 2, True, **options)))
    tell(found)
    """
)


@demonstrated_by(SAME_ORDER)
def test_torchdata_shuffles_differently_from_pytorch(verdict: Verdict) -> None:
    plain, generator, stateful, stateful_generator = verdict.result
    assert plain != stateful
    assert generator != stateful_generator


@proved_by(SAME_ORDER)
def test_loader_with_state_shuffles_as_pytorch(verdict: Verdict) -> None:
    plain, generator, stateful, stateful_generator = verdict.result
    assert plain == stateful
    assert generator == stateful_generator


AUGMENTATION = story(
    STATEFUL
    + """
    class Augmented(Rows):
        def sample(self, index):
            return torch.rand(())

    def make():
        torch.manual_seed(3)
        return StatefulDataLoader(Augmented(), 2, True, num_workers=1)

    whole = all_of(make())
    loader = make()
    first = part(loader, 2)
    state = loader.state_dict()
    again = make()
    again.load_state_dict(state)
    tell([whole, first + all_of(again)])
    """
)


@demonstrated_by(AUGMENTATION)
def test_augmentation_of_torchdata_starts_over_after_a_resume(verdict: Verdict) -> None:
    whole, resumed = verdict.result
    assert len(whole) == len(resumed) == 4
    assert resumed[2:] == whole[:2]


@proved_by(AUGMENTATION)
def test_augmentation_goes_on_after_a_resume(verdict: Verdict) -> None:
    whole, resumed = verdict.result
    assert resumed == whole


OTHER_WORKERS = {
    (before, after): story(
        STATEFUL
        + f"""
    def make(workers):
        torch.manual_seed(3)
        return StatefulDataLoader(Rows(), 2, True, num_workers=workers)

    loader = make({before})
    first = part(loader, 2)
    again = make({after})
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())) if not is_theirs
                          else loader.state_dict())
    tell([all_of(make(1)), first + part(again, 9)])
    """
    )
    for before, after in ((2, 1), (0, 2))
}


@demonstrated_by(OTHER_WORKERS[2, 1])
def test_torchdata_refuses_a_state_of_other_workers(verdict: Verdict) -> None:
    assert verdict.exit_code == 1
    assert "AssertionError" in verdict.stderr


@demonstrated_by(OTHER_WORKERS[0, 2])
def test_torchdata_refuses_a_state_without_workers(verdict: Verdict) -> None:
    assert verdict.exit_code == 1


@proved_by(OTHER_WORKERS[2, 1])
def test_state_resumes_with_other_workers(verdict: Verdict) -> None:
    whole, resumed = verdict.result
    assert resumed == whole


@proved_by(OTHER_WORKERS[0, 2])
def test_state_without_workers_resumes_with_workers(verdict: Verdict) -> None:
    whole, resumed = verdict.result
    assert resumed == whole


COST = story(
    STATEFUL
    + """
    import tracemalloc

    class Long(Rows):
        def __len__(self):
            return 1_000_000

    def make():
        torch.manual_seed(3)
        return StatefulDataLoader(Long(), 4, True, **({} if is_theirs else {"seed": 3}))

    loader = make()
    part(loader, 3)
    state = loader.state_dict()
    again = make()
    tracemalloc.start()
    again.load_state_dict(state)
    found = part(again, 1)
    tell([tracemalloc.get_traced_memory()[1] >> 20, len(json.dumps(state)) if not is_theirs else 0])
    """
)


@demonstrated_by(COST)
def test_torchdata_draws_every_index_again_for_a_resume(verdict: Verdict) -> None:
    assert verdict.result[0] >= 30  # MiB of Python ints


@proved_by(COST)
def test_resume_draws_only_needed_indices(verdict: Verdict) -> None:
    mebibytes, length = verdict.result
    assert mebibytes <= 2
    assert length < 4000


DAMAGED = story(
    STATEFUL
    + """
    loader = StatefulDataLoader(Rows(), 2)
    part(loader, 1)
    state = loader.state_dict()
    other = StatefulDataLoader(list(range(3)), 2)
    found = []
    for wrong in ({}, {"nonsense": 1}, dict(list(state.items())[:1]), 5, state):
        try:
            other.load_state_dict(wrong)
            found.append(all_of(other))
        except Exception as error:
            found.append([kind.__name__ for kind in type(error).__mro__])
            other = StatefulDataLoader(list(range(3)), 2)
    tell(found)
    """
)


@demonstrated_by(DAMAGED)
def test_torchdata_accepts_a_foreign_state_or_fails_by_assert(verdict: Verdict) -> None:
    assert not all("ValueError" in kinds for kinds in verdict.result)


@proved_by(DAMAGED)
def test_foreign_and_damaged_states_are_refused(verdict: Verdict) -> None:
    assert all("ConfigError" in kinds for kinds in verdict.result)
