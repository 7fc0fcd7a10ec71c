"""Batches of Paddle on devices, dynamic and static: as `test_places_torch`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.evidence  # the faces use the same code in make test
Facts = Callable[..., dict[str, Any]]
FOUR = ["simdev:0", "simdev:1", "simdev:2", "simdev:3"]

PROGRAM = """
    import gc, json, os
    import numpy as np
    from tests.device.simdev import locks_pages, on_paddle

    sim = on_paddle()
    import paddle
    from paddle.base import core
    from reader import DataLoader
    from reader.frameworks.paddle_device import PaddleDevice
    from tests.device.mutants import leave_out

    places, workers = json.loads(os.environ["PLACES"]), int(os.environ["WORKERS"])
    leave_out(os.environ.get("MUTANT"), PaddleDevice)
    is_static = os.environ["MODE"] == "static"
    locks_pages(sim)
    COUNT, SIZE = 60, 4

    class Samples:
        def __len__(self):
            return COUNT * SIZE

        def __getitem__(self, index):
            image = np.full(20000, index % 251, np.float32)
            return {"image": image, "label": np.array([index])}

    options = {}
    if is_static:
        paddle.enable_static()
        image = paddle.static.data("image", [None, 20000], "float32")
        label = paddle.static.data("label", [None, 1], "int64")
        total = paddle.sum(image, axis=1), label * 1
        options = {"feed_list": [image, label], "return_list": False}
        runs = {}
    listed = places if isinstance(places, list) else [places]
    given = [core.CustomPlace(*[p.split(":")[0], int(p.split(":")[1])]) for p in listed]
    # what lacks a wait must come before its copy, however slow the machine is
    sim.set(delay_us=50_000 if os.environ.get("MUTANT") == "wait" else 300, jitter_us=1500)
    wrong = waits = most_held = 0
    facts = {}
    with DataLoader(Samples(), batch_size=SIZE, num_workers=workers, framework="paddle",
                    places=given if len(given) > 1 else given[0],
                    persistent_workers=workers > 0, **options) as loader:
        for epoch in range(2):
            steps, seen = iter(loader), 0
            while True:
                before = sim.counts()["host_waits"]
                group = next(steps, None)
                waits += sim.counts()["host_waits"] - before
                if group is None:
                    break
                for at, batch in enumerate(group if isinstance(group, list) else [group]):
                    wanted = np.arange(seen, seen + SIZE)
                    seen += SIZE
                    if is_static:
                        assert list(batch) == ["image", "label"]
                        assert type(batch["image"]) is core.DenseTensor
                        found = [batch["image"], batch["label"]]
                        where = [str(each._place()) for each in found]
                    else:
                        found = [batch["image"], batch["label"]]
                        where = [str(each.place) for each in found]
                    assert where == [f"Place({listed[at]})"] * 2, where
                    image, label = (np.array(each) if is_static else each.numpy() for each in found)
                    wrong += not ((image.T == wanted % 251).all() and (label[:, 0] == wanted).all())
                    if is_static and seen % 40 == 0:
                        run = runs.setdefault(at, paddle.static.Executor(given[at]))
                        sums, twice = run.run(feed=batch, fetch_list=list(total))
                        assert (sums == 20000.0 * (wanted % 251)).all()
                        assert (twice[:, 0] == wanted).all()
                batch = found = group = image = label = None
                most_held = max(most_held, (loader.stats()["arena"] or {}).get("held_slots", 0))
            assert seen == COUNT * SIZE, seen
        facts["stats"] = loader.stats()["devices"]
    del steps, loader
    gc.collect()
    sim.synchronize()
    print(json.dumps({**facts, **sim.counts(), "wrong": wrong, "waits": waits,
                      "most_held": most_held, "fault texts": sim.faults()[:5]}))
"""


def run(facts_of: Facts, places: Any, workers: int, mode: str, **more: str) -> dict[str, Any]:
    environment = {"PLACES": json.dumps(places), "WORKERS": str(workers), "MODE": mode}
    return facts_of("paddle", PROGRAM, **environment, **more)


@pytest.mark.parametrize(
    ("places", "workers", "mode"),
    [
        ("simdev:1", 0, "dynamic"),
        ("simdev:1", 0, "static"),
        (FOUR, 2, "dynamic"),
        (FOUR, 2, "static"),
    ],
    ids=["one-0-dynamic", "one-0-static", "four-2-dynamic", "four-2-static"],
)  # fmt: skip
def test_batches_arrive_on_their_devices_without_a_wait_or_a_staged_copy(
    facts_of: Facts, places: Any, workers: int, mode: str
) -> None:
    facts = run(facts_of, places, workers, mode)
    assert facts["wrong"] == facts["waits"] == facts["faults"] == 0, facts
    count = len(places) if isinstance(places, list) else 1
    assert facts["most_held"] <= 3 * count + 1
    assert facts["stats"]["copies"] == 120
    assert facts["stats"]["unlocked_copies"] == 0
    if mode == "dynamic":
        assert facts["staged"] == 0


@pytest.mark.parametrize("mutant", ["hold", "wait", "lock"])
def test_mutant_is_noticed(facts_of: Facts, mutant: str) -> None:
    facts = run(facts_of, "simdev:1", 2, "dynamic", MUTANT=mutant)
    if mutant == "lock":
        assert facts["staged"] > 0
        assert facts["wrong"] == 0
    else:
        assert facts["wrong"] > 0, facts
