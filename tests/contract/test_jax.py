"""Batches as jax.Arrays: on the arena's memory, on devices, and divided over a mesh.

JAX starts threads and warns at each fork, so it runs in a program of its own, with four devices
that its CPU stands for.
"""

from __future__ import annotations

from typing import Any

import pytest

from reader import ConfigError, DataLoader
from tests.datasets import Rows
from tests.jax_program import facts_of_jax

PROGRAM = """
    import gc, json
    import numpy as np
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from reader import ConfigError, DataLoader

    COUNT, SIZE = 48, 8

    class Samples:
        def __len__(self):
            return COUNT

        def __getitem__(self, index):
            return {"x": np.full((16, 16), index, np.float32), "i": np.int64(index),
                    "text": f"n{index}", "name": np.array([f"{index:03}"])}

    def check(batch, first, devices):
        wanted = list(range(first, first + SIZE))
        assert isinstance(batch["x"], jax.Array) and isinstance(batch["i"], jax.Array)
        assert batch["x"].devices() == devices, batch["x"].devices()
        assert batch["i"].tolist() == wanted
        assert (np.asarray(batch["x"]).T == wanted).all()
        assert batch["text"] == [f"n{n}" for n in wanted]
        assert batch["name"][:, 0].tolist() == [f"{n:03}" for n in wanted]

    def run():
        facts = {"refused": []}
        first, *others = devices = jax.devices()
        mesh = NamedSharding(Mesh(np.array(devices), ("data",)), PartitionSpec("data"))
        for workers in 0, 2:
            for place, where in [
                (mesh, [set(devices)]), ([others[0], others[2]], [{others[0]}, {others[2]}]),
                (None, [{first}]), ("cpu", [{first}]), (others[1], [{others[1]}]),
            ][:2 if workers else 5]:
                with DataLoader(Samples(), batch_size=SIZE, num_workers=workers, framework="jax",
                                places=place, start_method="forkserver" if workers else None,
                                persistent_workers=workers > 0) as loader:
                    for _ in range(2):  # the slots are used again, below arrays that are kept
                        kept = []
                        for group in loader:
                            kept += group if isinstance(group, list) else [group]
                        for n, batch in enumerate(kept):
                            check(batch, n * SIZE, where[n % len(where)])
                        assert len(kept) == COUNT // SIZE
                    batch = kept[0]
                    del kept, group
                    gc.collect()
                    for other in loader:
                        pass
                    check(batch, 0, where[0])
                    del batch, other
                    gc.collect()
                    arena = loader.stats()["arena"]
                    facts["held"] = max(facts.get("held", 0), (arena or {}).get("held_slots", 0))
        for wrong in "gpu:0", "tpu":
            try:
                DataLoader(Samples(), framework="jax", places=wrong)
            except ConfigError as error:
                facts["refused"].append(str(error))
        try:
            DataLoader(Samples(), framework="numpy", places=mesh)
        except ConfigError as error:
            facts["refused"].append(str(error))
        facts["memories"] = [each.kind for each in first.addressable_memories()]
        try:
            loader = DataLoader(Samples(), batch_size=SIZE, framework="jax", places="gpu_pinned")
            with loader:
                for n, batch in enumerate(loader):
                    check(batch, n * SIZE, {first})
                    facts["memory"] = batch["x"].sharding.memory_kind
        except ConfigError as error:
            facts["memory"] = str(error)
        total = jax.jit(lambda x: x.sum())
        with DataLoader(Samples(), batch_size=SIZE, num_workers=1, framework="jax", places=mesh,
                        worker_type="thread") as loader:
            facts["sums"] = [float(total(batch["x"])) for batch in loader]
        print(json.dumps(facts))

    if __name__ == "__main__":
        run()
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return facts_of_jax(tmp_path_factory.mktemp("jax"), PROGRAM)


@pytest.mark.timeout(120)
def test_batches_are_jax_arrays_on_each_kind_of_place_and_stay_right_while_they_are_kept(
    facts: dict[str, Any],
) -> None:
    assert facts["held"] == 0
    if "pinned_host" in facts["memories"]:
        assert facts["memory"] == "pinned_host"
    else:  # the CPU of an older JAX
        assert "has no page-locked memory here (memories: unpinned_host)" in facts["memory"]
    assert facts["sums"] == [256.0 * sum(range(at, at + 8)) for at in range(0, 48, 8)]


@pytest.mark.timeout(120)
def test_places_that_jax_lacks_are_refused_by_name(facts: dict[str, Any]) -> None:
    gpu, tpu, mesh = facts["refused"]
    assert "finds no device for 'gpu:0' here (devices: cpu)" in gpu
    assert "finds no device for 'tpu:0'" in tpu
    assert "framework='numpy' knows no devices of JAX" in mesh


def test_jax_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reader.option_checks._is_installed", lambda name: name != "jax")
    with pytest.raises(ConfigError, match="needs the package 'jax'"):
        DataLoader(Rows(), framework="jax")
