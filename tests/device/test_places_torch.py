"""Batches of torch on devices: order, bytes, no wait of the host, no staged copy, all given back.

The programs run on the simulated accelerator. Each mutant switches off one thing that a real device
needs, and the same program must notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.evidence  # the faces go the same roads in make test
Facts = Callable[..., dict[str, Any]]
FOUR = ["simdev:0", "simdev:1", "simdev:2", "simdev:3"]

PROGRAM = """
    import gc, json, mmap, os, random
    import numpy as np, torch
    from tests.device.simdev import locks_pages, on_torch

    sim = on_torch()
    from reader import DataLoader
    from reader.engine import copier, registrar
    from reader.frameworks import torch_device

    places, mutant = json.loads(os.environ["PLACES"]), os.environ.get("MUTANT")
    workers = int(os.environ["WORKERS"])
    locks_pages(sim)
    COUNT, SIZE = 60, 4
    noise = random.Random(5)

    class Samples:
        def __len__(self):
            return COUNT * SIZE

        def __getitem__(self, index):
            image = np.full(20000 + 3000 * (index // SIZE % 3), index % 251, np.uint8)
            return {"image": image, "label": np.int64(index), "name": f"n{index}"}

    def drop_holds(self, batch, issue=copier.Copier._issue):
        made = issue(self, batch)
        made.copy.batch = None
        return made

    if mutant == "hold":
        copier.Copier._issue = drop_holds
    elif mutant == "wait":
        torch_device.TorchDevice.await_in_consumer = lambda self, event, tensors: [
            each.record_stream(torch.accelerator.current_stream(self.device)) for each in tensors]
    elif mutant == "record":
        torch_device.TorchDevice.await_in_consumer = lambda self, event, tensors: (
            event and torch.accelerator.current_stream(self.device).wait_event(event))
    elif mutant == "lock":
        registrar.Registrar.begin = lambda self, batch: None

    sim.set(delay_us=300, jitter_us=1500)
    host = np.frombuffer(mmap.mmap(-1, 1 << 14), np.uint8)
    sim.pin(host.ctypes.data, host.nbytes)
    busy = torch.from_numpy(host)
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
                        busy.to(place, non_blocking=True)  # the user's work, late as the copies
                        read = torch.empty_like(image)
                        read.copy_(image, non_blocking=True)
                        numbers = torch.empty_like(label)
                        numbers.copy_(label, non_blocking=True)
                    kept.append((seen, read, numbers))
                    seen += SIZE
                batch = image = label = group = read = numbers = None
                most_held = max(most_held, (loader.stats()["arena"] or {}).get("held_slots", 0))
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


def run(facts_of: Facts, places: Any, workers: int, **more: str) -> dict[str, Any]:
    import json

    return facts_of("torch", PROGRAM, PLACES=json.dumps(places), WORKERS=str(workers), **more)


@pytest.mark.parametrize(
    ("places", "workers"),
    [("simdev:1", 0), (FOUR, 2)],
    ids=["one-0", "four-2"],
)
def test_batches_arrive_on_their_devices_without_a_wait_or_a_staged_copy(
    facts_of: Facts, places: Any, workers: int
) -> None:
    facts = run(facts_of, places, workers)
    assert facts["wrong"] == facts["waits"] == facts["staged"] == facts["faults"] == 0, facts
    count = len(places) if isinstance(places, list) else 1
    assert facts["most_held"] <= 3 * count + 1
    assert facts["stats"]["copies"] == 120
    assert facts["stats"]["lock_failure"] is None
    assert facts["stats"]["unlocked_copies"] == 0
    assert facts["allocs"] == facts["frees"]
    assert facts["used"] == 0


@pytest.mark.parametrize("mutant", ["hold", "wait", "record", "lock"])
def test_mutant_is_noticed(facts_of: Facts, mutant: str) -> None:
    facts = run(facts_of, "simdev:1", 2, MUTANT=mutant)
    if mutant == "lock":
        assert facts["staged"] > 0
        assert facts["wrong"] == 0
    else:
        assert facts["wrong"] > 0, facts
