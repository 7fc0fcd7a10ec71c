"""JAX on a GPU: batches are right there, early and late, and hold no slot; names are found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.device.accelerator import ACCELERATOR

ON_JAX = """
    import gc, json
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from reader import ConfigError, DataLoader

    COUNT, SIZE = 256, 8

    class Samples:
        def __len__(self):
            return COUNT

        def __getitem__(self, index):
            return {"x": np.full((64, 64, 3), index % 251, np.uint8), "i": np.int64(index)}

    gpu = jax.devices("gpu")[0]
    mesh = NamedSharding(Mesh(np.array(jax.devices("gpu")), ("data",)), PartitionSpec("data"))
    multiply = jax.jit(lambda x: x @ x)
    busy = multiply(jax.device_put(np.ones((4096, 4096), np.float32), gpu))
    facts = {"epochs": 0, "kinds": [], "refused": []}
    for place in "gpu:0", "cuda:0", gpu, mesh, "gpu_pinned":
        for workers in 0, 2:
            with DataLoader(Samples(), batch_size=SIZE, num_workers=workers, framework="jax",
                            places=place, persistent_workers=workers > 0) as loader:
                for _ in range(2):  # slots are used again, below arrays that are kept
                    kept = []
                    for batch in loader:
                        busy = multiply(busy)  # the device has other things to do
                        kept.append(batch)
                    for n, batch in enumerate(kept):
                        wanted = np.arange(n * SIZE, (n + 1) * SIZE)
                        assert batch["x"].devices() == {gpu}, batch["x"].devices()
                        assert (np.asarray(batch["i"]) == wanted).all()
                        assert (np.asarray(batch["x"]).T == wanted % 251).all()
                    facts["epochs"] += 1
                    assert len(kept) == COUNT // SIZE
                jax.block_until_ready([each["x"] for each in kept])
                facts["kinds"].append(batch["x"].sharding.memory_kind)
                del batch, kept
                gc.collect()
                devices = loader.stats()["devices"] or {}
                facts["unlocked"] = facts.get("unlocked", 0) + devices.get("unlocked_copies", 0)
                facts["copies"] = facts.get("copies", 0) + devices.get("copies", 0)
                arena = loader.stats()["arena"] or {}
                facts["held"] = max(facts.get("held", 0), arena.get("held_slots", 0))
    for wrong in "gpu:99", "tpu":
        try:
            DataLoader(Samples(), framework="jax", places=wrong)
        except ConfigError as error:
            facts["refused"].append(str(error))
    print(json.dumps(facts))
"""


@pytest.mark.gpu
def test_batches_are_on_a_gpu_of_jax_and_hold_no_slot(facts_of: Any) -> None:
    pytest.importorskip("jax")
    settings = {ACCELERATOR: "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    facts = facts_of("jax", ON_JAX, **settings)
    assert facts["epochs"] == 20
    assert facts["kinds"] == ["device"] * 8 + ["pinned_host"] * 2
    assert facts["held"] == 0
    assert facts["copies"] == 8 * 2 * 32
    assert facts["unlocked"] == 0
    first, second = facts["refused"]
    assert "devices 'gpu' here, numbered from 0" in first
    assert "finds no device for 'tpu:0'" in second
