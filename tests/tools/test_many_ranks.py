"""The programs of docs/many-ranks.md run under their launchers, on this machine's CPUs.

The first line of each says its command. A test adds ports, and backends for CPUs.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import (
    BalancedBatches,
    BucketBatchSampler,
    DataLoader,
    DistributedBatchSampler,
    DistributedSampler,
    Mix,
    MixSampler,
    PackedTokens,
    ShardOrder,
)
from tests.contract.test_ranks import LIMIT_S, environment, free_address, run
from tests.pages import programs_of
from tests.ranks_program import Sharded

PROGRAMS = programs_of("many-ranks")
DDP, PADDLE, JAX = 0, 3, 4
LIBRARIES = {PADDLE: "paddle", JAX: "jax"}
INITIALIZE = "jax.distributed.initialize("
of_launchers = pytest.mark.timeout(LIMIT_S + 30)


def commands_of(code: str, folder: Path, options: str) -> list[list[str]]:
    """Return the commands that run a program: one, or one for each of two hosts."""
    python, address = [sys.executable, "-W", "ignore"], free_address()
    command = shlex.split(code.split("\n")[0].removeprefix("# ").partition(",")[0])
    if command[0] == "torchrun":
        given = shlex.split(options) or [f"--master-port={address.rpartition(':')[2]}"]
        return [[*python, "-m", "torch.distributed.run", *given, *command[1:]]]
    if "paddle.distributed.launch" in command:
        given = ["--backend", "gloo", "--log_dir", str(folder / "log")]
        return [[*python, *command[1:3], *given, *command[3:]]]
    assert command == ["python", "train.py"]
    return [[*python, "train.py", address, str(host)] for host in range(2)]


def launch(code: str, folder: Path, options: str = "") -> str:
    """Run a program under its launcher; return what it printed, and its launcher."""
    code = code.replace(INITIALIZE, f"import sys; {INITIALIZE}sys.argv[1], 2, int(sys.argv[2])")
    (folder / "train.py").write_text(code, encoding="utf-8")
    commands = commands_of(code, folder, options)
    # Ranks that are started again would find addresses of dead ones in the launcher's store.
    store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    env = environment(PYTHONWARNINGS="ignore", JAX_PLATFORMS="cpu", **store)
    run(commands, [env] * len(commands), folder, cwd=folder)
    return (folder / "0.log").read_text(encoding="utf-8", errors="replace")


@pytest.mark.slow
@of_launchers
@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=["ddp", "fsdp", "tp", "paddle", "jax"])
def test_a_program_prints_under_its_launcher_what_the_page_says(
    number: int, tmp_path: Path
) -> None:
    pytest.importorskip(LIBRARIES.get(number, "torch"))
    code, printed = PROGRAMS[number]
    assert printed
    assert printed in launch(code, tmp_path)


@pytest.mark.slow
@of_launchers
def test_the_loader_of_pytorchs_interface_takes_its_place(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code, printed = PROGRAMS[DDP]
    assert printed
    theirs = "from reader.compat.torch import StatefulDataLoader as DataLoader\nfrom reader import "
    code = code.replace("from reader import DataLoader, ", theirs)
    told = launch(code.replace(', "framework": "torch"', ""), tmp_path)
    assert theirs in (tmp_path / "train.py").read_text(encoding="utf-8")
    assert printed in told


@pytest.mark.slow
@of_launchers
def test_a_training_that_two_ranks_began_is_continued_by_three(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    code, printed = PROGRAMS[DDP]
    assert printed
    half = code.replace("range(loader.epoch, 2)", "range(loader.epoch, 1)")
    assert half != code
    launch(half, tmp_path)
    before = torch.load(tmp_path / "checkpoint.pt")["loader"]
    assert (before["epoch"], before["batches"]) == (0, 60)
    assert before["order"]["num_replicas"] == 2
    assert printed in launch(code.replace("per-node=2", "per-node=3"), tmp_path)
    after = torch.load(tmp_path / "checkpoint.pt")["loader"]
    assert (after["epoch"], after["batches"]) == (1, 40)
    assert after["order"]["num_replicas"] == 3


@pytest.mark.slow
@of_launchers
def test_ranks_are_started_again_where_one_was_killed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code, printed = PROGRAMS[DDP]
    assert printed
    stepped = "        optimizer.step()\n"
    kill = """        import signal
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == 1 and step == 25:
            os.kill(os.getpid(), signal.SIGKILL)
"""
    assert code.count(stepped) == 1
    told = launch(code.replace(stepped, stepped + kill), tmp_path, "--standalone --max-restarts=1")
    assert "exitcode: -9" in told
    assert printed in told


# -- what the tables say -----------------------------------------------------------------------

SAMPLES = np.arange(1003)
ROWS = PackedTokens([np.arange(1 + count % 60) for count in range(600)], 64, seed=1)
MIXED = Mix({"a": range(900), "b": range(1000, 1500)}, stop="never", length=1003, seed=0)
ORDERS: dict[str, Any] = {
    "DistributedSampler": lambda r, n: (SAMPLES, {"sampler": DistributedSampler(SAMPLES, n, r)}),
    "ShardOrder": lambda r, n: (
        ROWS,
        {"sampler": ShardOrder(ROWS, seed=1, rank=r, world_size=n)},
    ),
    "MixSampler": lambda r, n: (MIXED, {"sampler": MixSampler(MIXED, n, r)}),
    "BalancedBatches": lambda r, n: (
        SAMPLES,
        {
            "batch_sampler": BalancedBatches(
                1 + SAMPLES % 9, 40, seed=1, rank=r, world_size=n, window=200
            )
        },
    ),
    "BucketBatchSampler": lambda r, n: (
        SAMPLES,
        {"batch_sampler": BucketBatchSampler(1 + SAMPLES % 9, 8, seed=1, num_replicas=n, rank=r)},
    ),
    "DistributedBatchSampler": lambda r, n: (
        SAMPLES,
        {"batch_sampler": DistributedBatchSampler(SAMPLES, 8, n, r, shuffle=True)},
    ),
    "reader.shard": lambda r, n: (Sharded(rank=r, world_size=n), {}),
}


def loader_of(kind: str, rank: int, ranks: int, **options: Any) -> Any:
    dataset, order = ORDERS[kind](rank, ranks)
    if "batch_sampler" not in order:
        order = {**order, "batch_size": 4}
    return DataLoader(dataset, **order, **options)


@pytest.mark.parametrize("kind", ORDERS)
@pytest.mark.parametrize("workers", [0, 1])
def test_the_state_of_any_rank_is_that_of_all(kind: str, workers: int) -> None:
    states = []
    for rank in range(2):
        with loader_of(kind, rank, 2, seed=3, num_workers=workers) as loader:
            for number, _ in enumerate(loader):
                if number == 2:
                    states.append(loader.state_dict())
                    break
    assert states[0] == states[1]
