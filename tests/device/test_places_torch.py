"""Batches of torch on devices: order, bytes, no wait of the host, no staged copy, all given back.

The programs run on the simulated accelerator. Each mutant switches off one thing that a real device
needs, and the same program must notice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.device.accelerator import ACCELERATOR

pytestmark = pytest.mark.evidence  # the faces use the same code in make test
Facts = Callable[..., dict[str, Any]]
FOUR = [0, 1, 2, 3]

PROGRAM = """
    import gc, json, os, random
    import numpy as np, torch
    from tests.device.accelerator import accelerator

    sim = accelerator()
    from reader import DataLoader
    from reader.frameworks.torch_device import TorchDevice
    from tests.device.mutants import leave_out

    mutant, workers = os.environ.get("MUTANT"), int(os.environ["WORKERS"])
    places = json.loads(os.environ["PLACES"])
    places = [sim.name(n) for n in places] if isinstance(places, list) else sim.name(places)
    leave_out(mutant, TorchDevice)
    COUNT, SIZE = 60, 4
    noise = random.Random(5)

    class Samples:
        def __len__(self):
            return COUNT * SIZE

        def __getitem__(self, index):
            image = np.full(20000 + 3000 * (index // SIZE % 3), index % 251, np.uint8)
            return {"image": image, "label": np.int64(index), "name": f"n{index}"}

    # what lacks a wait must come before its copy, however slow the machine is
    sim.set(delay_us=50_000 if mutant == "wait" else 300, jitter_us=1500)
    if os.environ.get("TRIMS"):
        sim.set(holds_pages=1)
    wrong = waits = 0
    most_held = most_used = 0
    facts = {}
    with DataLoader(Samples(), batch_size=SIZE, num_workers=workers, places=places,
                    framework="torch", persistent_workers=workers > 0) as loader:
        for epoch in range(2):
            steps, seen, kept, begun = iter(loader), 0, [], sim.counts()
            while True:
                before = sim.counts()["host_waits"]
                group = next(steps, None)
                waits += sim.counts()["host_waits"] - before
                if group is None:
                    break
                for at, batch in enumerate(group if isinstance(group, list) else [group]):
                    image, label = batch["image"], batch["label"]
                    place = places[at] if isinstance(places, list) else places
                    assert str(image.device) == str(label.device) == place, image.device
                    assert batch["name"] == [f"n{i}" for i in range(seen, seen + SIZE)]
                    with torch.device(place):
                        torch.accelerator.set_device_index(image.device.index)
                        sim.work(place)  # the user's, late as the copies
                        read = torch.empty_like(image)
                        read.copy_(image, non_blocking=True)
                        numbers = torch.empty_like(label)
                        numbers.copy_(label, non_blocking=True)
                    kept.append((seen, read, numbers))
                    seen += SIZE
                batch = image = label = group = read = numbers = None
                if os.environ.get("TRIMS"):
                    steps.epoch.backend.feeder.trim()
                arena = loader.stats()["arena"] or {"held_slots": 0, "uncached_from_bytes": 0}
                most_held = max(most_held, arena["held_slots"])
                # no processor reads what a device copies
                assert arena["uncached_from_bytes"] == 0, arena
                if len(kept) > 20 or noise.random() < 0.1:
                    for first, read, numbers in kept:
                        wanted = list(range(first, first + SIZE))
                        right = numbers.cpu().tolist() == wanted and (
                            read.cpu().numpy().T == np.array(wanted) % 251).all()
                        wrong += not right
                    kept.clear()
            assert seen == COUNT * SIZE, seen
            kept = read = numbers = None
        facts["stats"] = loader.stats()["devices"]
    del steps, loader
    gc.collect()
    sim.synchronize()
    counts = sim.counts()
    print(json.dumps({**facts, **counts, "wrong": wrong, "waits": waits, "most_held": most_held,
                      "fault texts": sim.faults()[:5]}))
"""


def run(facts_of: Facts, kind: str, places: Any, workers: int, **more: str) -> dict[str, Any]:
    environment = {ACCELERATOR: kind, "PLACES": json.dumps(places), "WORKERS": str(workers)}
    return facts_of("torch", PROGRAM, **environment, **more)


def check_right(facts: dict[str, Any]) -> None:
    assert facts["wrong"] == facts["waits"] == facts["used"] == 0, facts
    assert facts["stats"]["copies"] == 120
    assert facts["stats"]["lock_failure"] is None
    assert facts["stats"]["unlocked_copies"] == 0
    assert facts["stats"]["locked_slots"] > 0


def check_simulated(facts: dict[str, Any]) -> None:
    assert facts["staged"] == facts["faults"] == 0, facts
    assert facts["allocs"] == facts["frees"]


@pytest.mark.parametrize(("places", "workers"), [(1, 0), (FOUR, 2)], ids=["one-0", "four-2"])
def test_batches_arrive_on_their_devices_without_a_wait_or_a_staged_copy(
    facts_of: Facts, device_kind: str, places: Any, workers: int
) -> None:
    facts = run(facts_of, device_kind, places, workers)
    check_right(facts)
    count = len(places) if isinstance(places, list) else 1
    assert facts["most_held"] <= 3 * count + 1
    if device_kind == "simdev":
        check_simulated(facts)


@pytest.mark.parametrize("mutant", ["hold", "wait", "record"])
def test_mutant_gives_wrong_bytes(facts_of: Facts, device_kind: str, mutant: str) -> None:
    facts = run(facts_of, device_kind, 1, 2, MUTANT=mutant)
    assert facts["wrong"] > 0, facts


def test_slot_that_is_not_locked_is_staged(facts_of: Facts) -> None:
    facts = run(facts_of, "simdev", 1, 2, MUTANT="lock")
    assert facts["staged"] > 0
    assert facts["wrong"] == 0


def test_slot_keeps_the_pages_that_were_locked_while_memory_is_given_back(facts_of: Facts) -> None:
    facts = run(facts_of, "simdev", 1, 2, TRIMS="1")
    check_right(facts)
    check_simulated(facts)
    facts = run(facts_of, "simdev", 1, 2, TRIMS="1", MUTANT="keep")
    assert facts["wrong"] > 0, facts
