"""Batches in flight to a device when an epoch does not simply run to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.device.accelerator import ACCELERATOR

pytestmark = pytest.mark.nightly

Facts = Callable[..., dict[str, Any]]

PROGRAM = """
    import gc, json, logging, os, signal, sys, warnings
    import numpy as np
    from tests.device.accelerator import accelerator, refused_locks

    FRAMEWORK = os.environ["FRAMEWORK"]
    sim = accelerator(FRAMEWORK)
    from reader import DataLoader

    ONE, OTHER, THIRD = sim.name(1), sim.name(0), sim.name(2)
    sim.set(delay_us=3000, jitter_us=2000)
    SIZE, COUNT = 4, 30
    facts = {}
    lines = []
    logging.getLogger("reader").addHandler(type("Keep", (logging.Handler,), {
        "emit": lambda self, record: lines.append(record.getMessage())})())

    class Samples:
        bad = None

        def __len__(self):
            return COUNT * SIZE

        def __getitem__(self, index):
            if index == self.bad:
                raise ValueError("bad")
            return np.full(30000, index % 251, np.uint8), index

    def loader(samples=None, **more):
        options = {"batch_size": SIZE, "num_workers": 2, "places": ONE, **more}
        return DataLoader(samples or Samples(), framework=FRAMEWORK, **options)

    def number(batch):
        image, label = batch
        labels = label.cpu().numpy().tolist()
        assert (image.cpu().numpy().T == np.array(labels) % 251).all()
        assert labels == list(range(labels[0], labels[0] + SIZE))
        return labels[0] // SIZE

    ALL = list(range(COUNT))

    with loader(persistent_workers=True) as made:
        for stop in 0, 1, 5, 12:
            seen = []
            for batch in made:
                seen.append(number(batch))
                if len(seen) > stop:
                    break
            assert seen == list(range(stop + 1)), seen
            assert [number(batch) for batch in made] == ALL
        facts["break"] = True

    saved = {}
    with loader() as made:
        for k, batch in enumerate(made):
            assert number(batch) == k
            saved[k] = made.state_dict()
    for k in 0, 1, 7, 28, 29:
        with loader() as made:
            made.load_state_dict(saved[k])
            assert [number(batch) for batch in made] == list(range(k + 1, COUNT)), k
    facts["resume"] = True

    for bad in 0, 1, 7, 29:
        samples = Samples()
        samples.bad = bad * SIZE + 1
        for places in ONE, [OTHER, THIRD]:
            with loader(samples, places=places) as made:
                steps, seen = iter(made), []
                while True:
                    try:
                        group = next(steps)
                    except StopIteration:
                        break
                    except ValueError:
                        seen.append("bad")
                        continue
                    group = group if type(places) is list else [group]
                    seen += [number(batch) for batch in group]
                wanted = [n for n in ALL if n != bad]
                wanted.insert(bad if places == ONE else bad // 2 * 2, "bad")
                assert seen == wanted, (bad, places, seen)
    facts["errors"] = True

    with loader() as made:
        kept, held = [], 0
        for batch in made:
            kept.append(batch)
            held = max(held, made.stats()["arena"]["held_slots"])
        assert [number(batch) for batch in kept] == ALL
    facts["kept"] = held
    del kept, batch

    steps = iter(loader())
    next(steps), next(steps)
    del steps
    gc.collect()
    made = loader(persistent_workers=True)
    steps = iter(made)
    first = next(steps)
    del made
    gc.collect()
    assert [number(first), *(number(batch) for batch in steps)] == ALL
    del steps, first
    facts["dropped"] = True

    with loader(persistent_workers=True, worker_retries=5) as made:
        seen = []
        for batch in made:
            seen.append(number(batch))
            if len(seen) in (3, 11):
                os.kill(made.workers()[len(seen) % 2].pid, signal.SIGKILL)
        assert seen == ALL, seen
    facts["killed"] = True

    with loader() as made:
        steps = iter(made)
        seen = [number(next(steps))]
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                del steps, made
                gc.collect()
                code = 0
            finally:
                os._exit(code)
        facts["child"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert seen + [number(batch) for batch in steps] == ALL

    lines.clear()
    with refused_locks(sim, "CUDA_ERROR_OUT_OF_MEMORY"), loader() as made:
        assert [number(batch) for batch in made] == ALL
        devices = made.stats()["devices"]
        facts["refused"] = [devices["locked_slots"], devices["unlocked_copies"],
                            [line for line in lines if "page-locked" in line]]
    with loader(pin_limit=0) as made:
        assert [number(batch) for batch in made] == ALL
        facts["no limit left"] = made.stats()["devices"]["locked_slots"]
    with loader(max_bytes=8 * 131072, prefetch_factor=1) as made:
        assert [number(batch) for batch in made] == ALL
    facts["small arena"] = True

    made = loader(persistent_workers=True)
    steps = iter(made)
    batch = next(steps)
    made.close()
    facts["closed"] = made.stats()["devices"]["locked_slots"]
    assert number(batch) == 0
    del batch, steps, made, group
    gc.collect()
    sim.synchronize()
    facts.update(sim.counts())
    facts["fault texts"] = sim.faults()[:5]
    facts["allocator keeps"] = FRAMEWORK == "paddle"
    print(json.dumps(facts), flush=True)
    left = iter(loader())
    next(left)  # and the program ends, with copies under way
"""


@pytest.fixture(
    scope="module", params=["torch", pytest.param("paddle", marks=pytest.mark.evidence)]
)
def facts(facts_of: Facts, device_kind: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    if (device_kind, request.param) == ("cuda", "paddle"):
        pytest.skip("torch alone is asked of a machine with a GPU")
    environment = {ACCELERATOR: device_kind, "FRAMEWORK": request.param}
    return facts_of(request.param, PROGRAM, **environment)


def test_epochs_that_break_resume_fail_or_are_dropped_lose_nothing(
    facts: dict[str, Any],
) -> None:
    for name in ("break", "resume", "errors", "dropped", "killed", "small arena"):
        assert facts[name], name
    assert facts["child"] == 0


def test_kept_batches_hold_no_slot(facts: dict[str, Any]) -> None:
    assert facts["kept"] <= 4


def test_refused_page_locks_are_reported_once_and_copies_are_still_made(
    facts: dict[str, Any],
) -> None:
    locked, unlocked, lines = facts["refused"]
    assert locked == 0
    assert unlocked >= 30
    assert len(lines) == 1
    assert "CUDA_ERROR_OUT_OF_MEMORY" in lines[0]
    assert facts["no limit left"] == 0


def test_nothing_is_left_on_the_device_or_locked(facts: dict[str, Any]) -> None:
    assert facts["closed"] == 0
    assert facts["fault texts"] == []
    if not facts["allocator keeps"]:
        assert facts.get("allocs") == facts.get("frees")  # reported by the simulation alone
        assert facts["used"] == 0
