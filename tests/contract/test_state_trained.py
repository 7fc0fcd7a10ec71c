"""The position behind any of the last batches, for programs that train later than they take."""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from reader import (
    ConfigError,
    ConfigTypeError,
    DataLoader,
    StateError,
)
from reader.compat import gluon
from reader.compat.torch import StatefulDataLoader
from tests.contract.test_state import Longer, Noisy
from tests.contract.test_state_samplers import KINDS, Global, make, plain
from tests.contract.test_state_streams import Itself, Kept, Plain, WalkSet
from tests.datasets import Fails, Indices, OddError
from tests.processes import Program


def values(batch: Any) -> Any:
    """A batch as JSON has it, on one place or several."""
    if isinstance(batch, (list, tuple)):
        return [values(each) for each in batch]
    return np.asarray(batch).tolist()


def check_each(loader: DataLoader, keep: int = 64, pure: bool = False) -> tuple[list[Any], Any]:
    """Iterate to the end; ask at each step for all states before; return batches and states."""
    live: list[Any] = [loader.state_dict()]
    found: list[Any] = []
    first = None
    for batch in loader:
        found.append(values(batch))
        live.append(loader.state_dict())
        if first is None:
            first = live[0] = loader.state_dict(trained=0)
        oldest = 0 if pure else max(0, len(found) - keep)
        for trained in range(oldest, len(live)):
            assert loader.state_dict(trained=trained) == live[trained]
    for trained in range(oldest, len(found)):
        assert loader.state_dict(trained=trained) == live[trained]
    return found, live


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "options"), list(itertools.product(KINDS, ({}, {"seed": 3}))), ids=str
)
def test_06_each_kind_of_order_knows_the_position_behind_each_of_the_last_batches(
    kind: str, options: Any
) -> None:
    with make(kind, keep_states=5, **options) as loader:
        for _ in loader:
            pass
        found, states = check_each(loader, 5)
        states = [plain(kind, state) for state in states]
    for at in (0, 1, len(found) - 1):
        with make(kind, **options) as loader:
            loader.load_state_dict(states[at])
            assert [values(batch) for batch in loader] == found[at:]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("every", [1, 3, 0])
@pytest.mark.parametrize("kind", [Plain, WalkSet, Kept, Itself])
def test_06_streams_know_the_position_of_each_worker(kind: Any, every: int, workers: int) -> None:
    if workers == 3 and kind in (Kept, Itself):
        pytest.skip("threads share the dataset")
    options: Any = {"batch_size": 4, "num_workers": workers, "worker_type": "thread", "seed": 5}
    with DataLoader(kind(), snapshot_every_n_steps=every, keep_states=7, **options) as loader:
        found, states = check_each(loader, 7)
    for at in (1, len(found) - 2):
        with DataLoader(kind(), snapshot_every_n_steps=every, **options) as loader:
            loader.load_state_dict(json.loads(json.dumps(states[at])))
            assert [values(batch) for batch in loader] == found[at:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_the_count_of_failed_samples_goes_back_with_the_position(
    on_error: Any, workers: int
) -> None:
    options: Any = {"batch_size": 2, "on_error": on_error, "error_budget": 5, "shuffle": True}
    options |= {"seed": 1, "num_workers": workers, "worker_type": "thread"}
    with DataLoader(Fails(11, 200), **options) as loader:
        found, states = check_each(loader)
    assert sorted({state["failed"] for state in states[:-1]}) == [0, 1]
    for at in (3, len(found) - 1):
        with DataLoader(Fails(11, 200), **options) as loader:
            loader.load_state_dict(states[at])
            assert [values(batch) for batch in loader] == found[at:]
            assert loader.stats()["failed_samples"] == 1 - states[at]["failed"]


def test_a_batch_whose_samples_all_failed_is_none_of_those_that_were_trained() -> None:
    options: Any = {"batch_size": 1, "on_error": "skip", "error_budget": 5}
    with DataLoader(Fails(2, 8), **options) as loader:
        found, states = check_each(loader)
    assert found == [[0], [1], [3], [4], [5], [6], [7]]
    assert [state["batches"] for state in states[:-1]] == [0, 1, 2, 4, 5, 6, 7]
    with DataLoader(Fails(2, 8), **options) as loader:
        loader.load_state_dict(states[4])  # 3 is the third that was trained, also after a resume
        batches = iter(loader)
        assert [values(next(batches)) for _ in range(2)] == [[5], [6]]
        assert loader.state_dict(trained=5) == states[5]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_in_the_order_in_which_they_come_know_which_came_early(
    shuffle: bool, workers: int
) -> None:
    options: Any = {"batch_size": 3, "num_workers": workers, "in_order": False}
    options |= {"worker_type": "thread", "seed_globals": False, "seed": 4, "shuffle": shuffle}
    with DataLoader(Indices(200), **options) as loader:
        found, states = check_each(loader)
    for at in (0, 10, 40):
        with DataLoader(Indices(200), **options) as loader:
            loader.load_state_dict(states[at])
            rest = [values(batch) for batch in loader]
            assert sorted(rest) == sorted(found[at:])


def test_a_batch_that_comes_very_late_leaves_positions_of_a_replayed_order() -> None:
    """The first batch comes after 40 others; the marks of its time are still there."""
    event, calls = threading.Event(), itertools.count()

    class Late(Indices):
        def __getitem__(self, index: int) -> int:
            if next(calls) == 0:
                assert event.wait(60)
            return index

    options: Any = {"num_workers": 2, "worker_type": "thread", "in_order": False}
    with DataLoader(Late(50), sampler=Global(), keep_states=8, **options) as loader:
        batches, live, found = iter(loader), [], []
        live.append(loader.state_dict(trained=0))
        for at in range(50):
            found.append(values(next(batches)))
            live.append(loader.state_dict())
            for trained in range(max(0, at - 7), at + 2):
                assert loader.state_dict(trained=trained) == live[trained]
            if at == 40:
                event.set()
        batches.close()
    assert live[41]["batches"] < 2
    for at in (35, 41, 49):
        with DataLoader(Late(50), sampler=Global(), **options) as loader:
            loader.load_state_dict(live[at])
            assert sorted(found[:at] + [values(batch) for batch in loader]) == sorted(found)


@pytest.mark.parametrize("workers", [0, 2])
def test_steps_of_several_places_are_counted_as_steps(workers: int) -> None:
    options: Any = {"batch_size": 4, "seed": 2, "places": ["cpu"] * 3, "num_workers": workers}
    with DataLoader(Noisy(), **options) as loader:
        found, states = check_each(loader, pure=True)
    assert [state["batches"] for state in states[:-1]] == [0, 3, 6]
    with DataLoader(Noisy(), **options) as loader:
        loader.load_state_dict(states[1])
        batches = iter(loader)
        assert values(next(batches)) == found[1]
        assert loader.state_dict(trained=2) == states[2]
        assert loader.state_dict(trained=0) == states[0]


def test_an_exception_in_the_place_of_a_batch_counts() -> None:
    for places in (1, 2):
        keys = [0, 1, 2, 31, 4, 5, 6, 31, 7, 8, 9, 10, 11]
        with DataLoader(Longer(), sampler=keys, places=["cpu"] * places) as loader:
            live, batches = [loader.state_dict()], iter(loader)
            while True:
                try:
                    next(batches)
                except OddError:
                    pass
                except StopIteration:
                    break
                live.append(loader.state_dict())
                assert loader.state_dict(trained=0)["batches"] == 0
                for at in range(1, len(live)):
                    assert loader.state_dict(trained=at)["batches"] == live[at]["batches"]
            assert len(live) == (14 if places == 1 else 9)


@pytest.mark.parametrize("kind", ["list", "ranks", "torch's", "stateful", "global", "ragged"])
def test_batches_before_a_resume_count(kind: str) -> None:
    with make(kind, batch_size=2) if "ragged" not in kind else make(kind) as loader:
        found, states = check_each(loader)
    with make(kind, batch_size=2) if "ragged" not in kind else make(kind) as loader:
        loader.load_state_dict(states[5])
        assert loader.state_dict(trained=5) == states[5]
        batches, live = iter(loader), {}
        for at in range(5, 9):
            live[at] = loader.state_dict()
            assert values(next(batches)) == found[at]
        for at, state in live.items():
            assert loader.state_dict(trained=at) == state


def test_trained_that_is_not_known_is_refused_with_the_numbers_and_the_remedy() -> None:
    with DataLoader(Indices(50), sampler=Global(), keep_states=3) as loader:
        with pytest.raises(ConfigError, match=r"no batch of epoch 0 yet.*Pass trained=0"):
            loader.state_dict(trained=1)
        assert loader.state_dict(trained=0) == loader.state_dict()
        batches = iter(loader)
        for _ in range(10):
            next(batches)
            loader.state_dict()  # counts them: 64 at once are counted without
        with pytest.raises(ConfigError, match="trained=11 is beyond what was handed out: 10"):
            loader.state_dict(trained=11)
        loader.state_dict(trained=7)
        with pytest.raises(ConfigError, match=r"older than what is kept.*keep_states=8 or more"):
            loader.state_dict(trained=2)
        for wrong in (1.5, "3", True):
            with pytest.raises(ConfigTypeError, match="trained must be an int"):
                loader.state_dict(trained=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="trained must be"):
            loader.state_dict(trained=-1)
        with pytest.raises(ConfigError, match="Pass trained="):
            loader.state_dict(epoch=0)
        with pytest.raises(ConfigError, match="epoch=3 is not known"):
            loader.state_dict(trained=1, epoch=3)
        state = loader.state_dict()
        batches.close()
        loader.load_state_dict(state)
        with pytest.raises(ConfigError, match=r"begins behind batch 10. Pass trained=10"):
            loader.state_dict(trained=9)
        assert loader.state_dict(trained=10) == state
        next(iter(loader))
        with pytest.raises(ConfigError, match=r"began it behind batch 10.*Pass 10 to 11"):
            loader.state_dict(trained=9)
    with pytest.raises(ConfigError, match="keep_states must be"):
        DataLoader(Indices(5), keep_states=-1)


def test_without_kept_states_an_order_of_this_package_knows_every_position() -> None:
    with DataLoader(Indices(500), shuffle=True, seed=1, keep_states=0) as loader:
        check_each(loader, pure=True)
    with DataLoader(Indices(50), sampler=Global(), keep_states=0) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        assert loader.state_dict(trained=2) == loader.state_dict()
        with pytest.raises(ConfigError, match="keep_states=1 or more"):
            loader.state_dict(trained=1)


@pytest.mark.parametrize("ahead", [False, True])
def test_the_epoch_before_is_known_until_the_next_one_begins(ahead: bool) -> None:
    options: Any = {"batch_size": 4, "shuffle": True, "seed": 3, "num_workers": 1}
    options |= {"persistent_workers": True, "prefetch_next_epoch": ahead}
    with DataLoader(Noisy(), **options) as loader:
        epochs = []
        for epoch in range(3):
            found = []
            for batch in loader:
                found.append(values(batch))
                if epoch and len(found) == 2:
                    late = loader.state_dict(trained=5, epoch=epoch - 1)
            # after its end, and while the next one is made ahead
            assert loader.state_dict(trained=7)["epoch"] == epoch
            assert loader.state_dict(trained=8) == loader.state_dict(trained=8, epoch=epoch)
            epochs.append(found)
        with pytest.raises(ConfigError, match="epoch=0 is not known"):
            loader.state_dict(trained=1, epoch=0)
    with DataLoader(Noisy(), **options) as loader:
        loader.load_state_dict(late)
        assert loader.epoch == 1
        assert [values(batch) for batch in loader] == epochs[1][5:]
        assert [values(batch) for batch in loader] == epochs[2]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_06_any_number_of_workers_resumes_behind_any_batch(data: st.DataObject) -> None:
    kinds = ["list", "ranks", "seeded buckets", "torch's", "stateful", "weighted", "global"]
    kind = data.draw(st.sampled_from([*kinds, "batches of ranks", "ragged"]))
    seed = data.draw(st.sampled_from([None, 3]))

    def begin() -> DataLoader:
        workers = data.draw(st.sampled_from([0, 1, 2, 5]))
        return make(kind, seed=seed, num_workers=workers, worker_type="thread")

    with begin() as loader:
        found = [values(batch) for batch in loader]
        handed = data.draw(st.integers(0, len(found)))
        loader.load_state_dict(loader.state_dict(trained=0, epoch=0))
        batches = iter(loader)
        assert [values(next(batches)) for _ in range(handed)] == found[:handed]
        trained = data.draw(st.integers(0, handed))
        state = plain(kind, loader.state_dict(trained=trained))
        batches.close()
    with begin() as loader:
        loader.load_state_dict(state)
        assert [values(batch) for batch in loader] == found[trained:]


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_loader_has_it_too(workers: int) -> None:
    rows = TensorDataset(torch.arange(60))
    options: Any = {"batch_size": 2, "shuffle": True, "seed": 1, "num_workers": workers}
    loader = StatefulDataLoader(rows, **options)
    assert loader.keep_states == 64
    batches = iter(loader)
    found = [values(next(batches)) for _ in range(12)]
    state = loader.state_dict(trained=9)
    assert loader.state_dict(trained=12) == loader.state_dict()
    with pytest.raises(ConfigError, match="trained=13 is beyond"):
        loader.state_dict(trained=13)
    rest = [values(batch) for batch in batches]
    again = StatefulDataLoader(rows, **options)
    again.load_state_dict(state)
    assert again.state_dict(trained=9) == state
    with pytest.raises(ConfigError, match="behind batch 9"):
        again.state_dict(trained=8)
    assert [values(batch) for batch in again] == found[9:] + rest
    with pytest.raises(ConfigError, match="keep_states must be"):
        StatefulDataLoader(rows, keep_states=-1)


def test_gluons_loader_has_it_too() -> None:
    rows = gluon.ArrayDataset(np.arange(40))
    loader = gluon.DataLoader(rows, 4, shuffle=True)
    batches = iter(loader)
    found = [np.asarray(next(batches)).tolist() for _ in range(6)]
    again = gluon.DataLoader(rows, 4, shuffle=True)
    again.load_state_dict(loader.state_dict(trained=2))
    assert [np.asarray(batch).tolist() for batch in again][:4] == found[2:]


TRAINER = """
    import json, os, random, sys
    from collections import deque
    from reader import DataLoader, IterableDataset, shard

    class Drawn:
        # drawn again from the random state, up to the position
        def __iter__(self):
            return iter(random.sample(range(240), 240))

    class Stream(IterableDataset):
        def __iter__(self):
            yield from shard(range(240))

    def main(kind, behind, workers):
        options = {"batch_size": 2, "num_workers": workers, "seed": 1}
        if kind == "stream":
            loader = DataLoader(Stream(), **options)
        elif kind == "shuffle":
            loader = DataLoader(range(240), shuffle=True, **options)
        else:
            loader = DataLoader(range(240), sampler=Drawn(), **options)
        done = {"trained": 0, "epoch": 0, "log": [], "state": None}
        if os.path.exists("checkpoint"):
            with open("checkpoint") as file:
                done = json.load(file)
        if done["state"] is not None:
            loader.load_state_dict(done["state"])

        def train(epoch, batch):
            if epoch != done["epoch"]:
                done.update(epoch=epoch, trained=0)
            done["trained"] += 1
            done["log"].append([epoch, batch.tolist()])
            done["state"] = loader.state_dict(done["trained"], epoch=epoch)
            with open("new", "w") as file:
                json.dump(done, file)
            os.replace("new", "checkpoint")
            print("trained", flush=True)

        waiting = deque()
        for epoch in range(loader.epoch, 2):
            for batch in loader:
                waiting.append((epoch, batch.copy()))
                if len(waiting) > behind:
                    train(*waiting.popleft())
        while waiting:
            train(*waiting.popleft())
        print("done", flush=True)

    if __name__ == "__main__":
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
"""


@pytest.mark.parametrize(
    ("kind", "behind", "workers"),
    [("shuffle", 5, 2), ("shuffle", 40, 0), ("drawn", 7, 2), ("stream", 9, 2)],
)
def test_01_trainer_that_is_behind_and_is_killed_trains_each_batch_once(
    kind: str, behind: int, workers: int, tmp_path: Path
) -> None:
    kills = deque([3, 50, 100, 90])
    for _ in range(len(kills) + 1):
        program = Program(tmp_path, TRAINER, kind, str(behind), str(workers))
        try:
            left = kills.popleft() if kills else -1
            while program.line() != "done":
                left -= 1
                if left == 0:
                    program.interrupt(9)
                    break
        finally:
            program.end()
        if left != 0:
            break
    done = json.loads((tmp_path / "checkpoint").read_text())
    for epoch in (0, 1):
        seen = [index for each, batch in done["log"] if each == epoch for index in batch]
        assert sorted(seen) == list(range(240))
    assert not kills


def test_a_wrong_count_of_steps_in_a_state_is_refused() -> None:
    with DataLoader(Indices(8), batch_size=2) as loader:
        next(iter(loader))
        state = {**loader.state_dict(), "steps": -1}
        with pytest.raises(StateError, match="steps in the state must be a count"):
            loader.load_state_dict(state)
