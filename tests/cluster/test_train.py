"""Ranks of a training, all of which take their batches from one pool of workers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.processes import ROOT

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]

RANKS, EPOCHS, SAMPLES = 2, 2, 96


def train(config: dict[str, Any]) -> None:
    """Write what a rank read, epoch by epoch."""
    import reader
    from tests.cluster.test_ray_pool import Numbered

    dataset = Numbered(SAMPLES, 0)
    sampler = reader.DistributedSampler(dataset, seed=3)
    loader = reader.DataLoader(
        dataset,
        batch_size=4,
        sampler=sampler,
        num_workers=2,
        backend=reader.Ray(resources={"CPU": 0.5}, pool="train", runtime_env=config.get("env")),
    )
    found = []
    with loader:
        for _ in range(EPOCHS):
            epoch = [(rows.tolist(), pids.tolist()) for rows, pids in loader]
            found.append(epoch)
    path = Path(config["folder"]) / f"{sampler.rank}-of-{sampler.num_replicas}"
    path.write_text(json.dumps(found))


def fit(address: str, folder: str, path: str) -> None:
    """Train, in a program of its own: Ray keeps descriptors open as long as that lives."""
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    ray.init(address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": path}})
    DataParallelTrainer(
        train,
        train_loop_config={"folder": folder},  # workers have the env of the training
        scaling_config=ScalingConfig(num_workers=RANKS, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=f"{folder}/storage"),
    ).fit()


RAY_TRAIN = """
import sys
from tests.cluster.test_train import fit
fit(*sys.argv[1:])
"""
RANK = """
import sys
from tests.cluster.test_train import train
_, folder, path = sys.argv[1:]
train({"folder": folder, "env": {"env_vars": {"PYTHONPATH": path}}})
"""
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
LAUNCHERS: dict[str, tuple[str, list[str]]] = {
    "Ray Train": (RAY_TRAIN, []),
    "torchrun": (RANK, TORCHRUN),
    "paddle": (RANK, ["-m", "paddle.distributed.launch", f"--nproc_per_node={RANKS}"]),
}
# looked for and not imported: it is the ranks that need it
IS_THERE = {
    "Ray Train": (Path(ray.__file__).parent / "train/v2").exists(),
    "torchrun": importlib.util.find_spec("torch") is not None,
    "paddle": importlib.util.find_spec("paddle") is not None,
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_have_their_shares_from_one_pool(cluster: Any, tmp_path: Path, launcher: str) -> None:
    if not IS_THERE[launcher]:
        pytest.skip(f"what starts ranks by {launcher} is not installed, or too old")
    text, options = LAUNCHERS[launcher]
    program = tmp_path / "train.py"
    program.write_text(text)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, *options, str(program), cluster.address, str(tmp_path), path]
    environment = {**os.environ, "PYTHONPATH": path, "RAY_ADDRESS": cluster.address}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted(tmp_path.glob(f"*-of-{RANKS}"))
    assert [file.name for file in files] == [f"{n}-of-{RANKS}" for n in range(RANKS)]
    ranks = [json.loads(file.read_text()) for file in files]
    pids = {pid for epochs in ranks for epoch in epochs for _, made in epoch for pid in made}
    assert len(pids) <= 2  # the workers of all ranks
    for epoch in range(EPOCHS):
        steps = {len(epochs[epoch]) for epochs in ranks}
        assert steps == {SAMPLES // RANKS // 4}
        read = [row for epochs in ranks for rows, _ in epochs[epoch] for row in rows]
        assert sorted(read) == list(range(SAMPLES))
