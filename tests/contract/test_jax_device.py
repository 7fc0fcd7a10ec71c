"""The device of JAX: copies ahead, slots that are page-locked meanwhile, arrays that are donated.

JAX runs in a program of its own. A device of its CPU stands for a GPU, with copies that are real,
and a locker for CUDA's driver; the same on a GPU is tests/device/test_jax_device.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.jax_program import facts_of_jax

PROGRAM = """
    import functools, gc, inspect, json
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from reader.frameworks.jax import is_jax_gpu
    from reader.frameworks.jax_device import JaxDevice
    from reader.frameworks.page_locking import set_page_locker
    from reader.policy import BatchPolicy, Policy
    from tests.faces import Face

    put = jax.device_put
    if "may_alias" in inspect.signature(put).parameters:
        jax.device_put = functools.partial(put, may_alias=False)
    else:  # an older JAX puts arrays of the CPU nowhere: it is given copies
        jax.device_put = lambda value, target: put(jax.tree.map(np.copy, value), target)
    COUNT, SIZE = 240, 8

    class Samples:
        def __len__(self):
            return COUNT

        def __getitem__(self, index):
            return {"x": np.full(9000, index, np.float32), "i": index,
                    "name": np.array([f"{index:03}"])}

    class Locker:
        def __init__(self):
            self.locked, self.locks, self.wrong = {}, 0, 0

        def lock(self, address, nbytes):
            self.wrong += address in self.locked
            self.locked[address] = nbytes
            self.locks += 1

        def unlock(self, address):
            self.wrong += self.locked.pop(address, None) is None

    def open(target, workers, **options):
        policy = Policy(batch=BatchPolicy(make_adapter=lambda _: JaxDevice(target)))
        return Face(policy, Samples(), batch_size=SIZE, num_workers=workers, framework="jax",
                    persistent_workers=workers > 0,
                    start_method="forkserver" if workers else None, **options)

    def check(batch, n, target):
        wanted = np.arange(n * SIZE, (n + 1) * SIZE)
        assert batch["x"].devices() == getattr(target, "device_set", {target})
        assert (np.asarray(batch["x"]).T == wanted).all()
        assert (np.asarray(batch["i"]) == wanted).all()
        assert batch["name"][:, 0].tolist() == [f"{each:03}" for each in wanted]

    def run():
        locker = Locker()
        set_page_locker("gpu", locker)
        one, *others = jax.devices()
        mesh = NamedSharding(Mesh(np.array(others[:2]), ("data",)), PartitionSpec("data"))
        donate = jax.jit(lambda x: x + 1, donate_argnums=0)
        facts = {"donated": 0}
        for workers in 0, 2:
            for target in others[0], mesh:
                with open(target, workers) as loader:
                    for epoch in range(3):
                        kept, first = [], None
                        for n, batch in enumerate(loader):
                            if epoch == 1:
                                found = donate(batch["x"])
                                facts["donated"] += batch["x"].is_deleted()
                                assert float(found[0, 0]) == n * SIZE + 1
                            elif epoch == 2 and n == 7:
                                break
                            else:
                                kept.append(batch)
                        for n, batch in enumerate(kept):
                            check(batch, n, target)
                        del kept, batch
                    stats = loader.stats()
                    facts.setdefault("copies", []).append(stats["devices"]["copies"])
                    facts.setdefault("locked", []).append(stats["devices"]["locked_slots"])
                    gc.collect()
                    facts["held"] = loader.stats()["arena"]["held_slots"]
                facts.setdefault("left", []).append(len(locker.locked))
        gpu = type("Gpu", (), {"platform": "gpu"})()
        pinned = type("Pinned", (), {"memory_kind": "pinned_host", "device_set": {gpu}})()
        facts["gpus"] = [is_jax_gpu(each) for each in (gpu, one, mesh, pinned)]
        device = JaxDevice(mesh)
        event = device.make_event()
        device.record(event)
        device.wait(event)
        assert device.is_done(event)
        facts["wrong"] = locker.wrong
        print(json.dumps(facts))

    if __name__ == "__main__":
        run()
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return facts_of_jax(tmp_path_factory.mktemp("jax"), PROGRAM)


@pytest.mark.timeout(120)
def test_batches_are_right_kept_and_donated_and_hold_no_slot(facts: dict[str, Any]) -> None:
    assert facts["donated"] == 4 * 30
    assert facts["held"] == 0
    assert all(60 + 7 <= copies <= 60 + 7 + 3 for copies in facts["copies"])  # some ahead


@pytest.mark.timeout(120)
def test_slots_are_locked_once_and_unlocked_in_the_end(facts: dict[str, Any]) -> None:
    assert all(facts["locked"])
    assert facts["left"] == [0] * 4
    assert facts["wrong"] == 0


@pytest.mark.timeout(120)
def test_memory_of_gpus_alone_is_copied_to_ahead(facts: dict[str, Any]) -> None:
    assert facts["gpus"] == [True, False, False, False]
