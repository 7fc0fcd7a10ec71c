"""`device=` of the PyTorch face with compile, DDP, Lightning and Accelerate.

Each trains a small model on the simulated accelerator as it does on the CPU with PyTorch's own
loader, and must find the same losses.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.evidence
Facts = Callable[..., dict[str, Any]]
Run = Callable[..., subprocess.CompletedProcess[str]]

HEAD = """
import json, logging, os, sys
import torch
from tests.device.simdev import locks_pages, on_torch

sim = on_torch()
sim.set(delay_us=1000)
from torch.nn.functional import cross_entropy
from torch.utils.data import DistributedSampler, TensorDataset
import torch.utils.data
from reader.compat.torch import DataLoader

locks_pages(sim)
DEVICE = torch.device("simdev", 1)
torch.manual_seed(0)
pairs = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))

def model():
    torch.manual_seed(1)
    return torch.nn.Linear(8, 3)

def train(model, loader, loss_of=None, epochs=2, to=None):
    loss_of = loss_of or (lambda rows, labels: cross_entropy(model(rows), labels))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(epochs):
        for rows, labels in loader:
            if to is None:
                assert rows.device == labels.device == next(model.parameters()).device
            else:
                assert rows.device == labels.device == DEVICE
                rows, labels = rows.to(to), labels.to(to)
            loss = loss_of(rows, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    return found

def ours(**options):
    return DataLoader(pairs, 8, num_workers=2, persistent_workers=True, device=DEVICE, **options)

def theirs(**options):
    return torch.utils.data.DataLoader(pairs, 8, **options)
"""
COMPILE = (
    HEAD
    + """
wanted = train(model(), theirs())
for backend in "eager", "aot_eager":
    trained = model().to(DEVICE)
    step = torch.compile(lambda rows, labels: cross_entropy(trained(rows), labels),
                         backend=backend, fullgraph=True)
    with ours() as loader:
        assert train(trained, loader, step) == wanted
        stats = loader.stats()["devices"]
print(json.dumps(stats))
"""
)
LIGHTNING = (
    HEAD
    + """
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.accelerators import Accelerator
from pytorch_lightning.strategies import SingleDeviceStrategy

class Simulated(Accelerator):
    setup_device = teardown = lambda self, device=None: None
    parse_devices = staticmethod(lambda devices: devices)
    get_parallel_devices = staticmethod(lambda devices: [DEVICE])
    auto_device_count = staticmethod(lambda: 4)
    is_available = staticmethod(lambda: True)
    name = staticmethod(lambda: "simdev")

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.model, self.losses = model(), []

    def training_step(self, batch, index):
        rows, labels = batch
        assert rows.device == labels.device == DEVICE
        loss = cross_entropy(self.model(rows), labels)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

module = Module()
with ours() as loader:
    Trainer(strategy=SingleDeviceStrategy(device=DEVICE), accelerator=Simulated(), devices=1,
            max_epochs=2, logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=False).fit(module, loader)
    assert module.losses == train(model(), theirs())
    print(json.dumps(loader.stats()["devices"]))
"""
)
ACCELERATE = (
    HEAD
    + """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
trained = model()
trained, optimizer = accelerator.prepare(trained, torch.optim.SGD(trained.parameters(), lr=0.1))
with ours() as loader:
    found = []
    for _ in range(2):
        for rows, labels in loader:
            assert rows.device == labels.device == DEVICE
            loss = cross_entropy(trained(rows.cpu()), labels.cpu())
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            found.append(loss.item())
    assert found == train(model(), theirs())
    print(json.dumps(loader.stats()["devices"]))
"""
)
DDP = (
    HEAD
    + """
import torch.distributed as dist

rank = int(os.environ["RANK"])
DEVICE = torch.device("simdev", rank)
dist.init_process_group("gloo", init_method="file://" + os.environ["MEETING"], rank=rank,
                        world_size=2)
losses = []
for make in ours, theirs:
    trained = torch.nn.parallel.DistributedDataParallel(model())
    sampler = DistributedSampler(pairs, seed=3)
    loader = make(sampler=sampler)
    losses.append(train(trained, loader, to="cpu" if make is ours else None))
    if make is ours:
        stats = loader.stats()["devices"]
        loader.close()
assert losses[0] == losses[1], losses
dist.destroy_process_group()
print(json.dumps(stats))
"""
)


def check(stats: dict[str, Any], copies: int = 16) -> None:
    assert stats["copies"] == copies
    assert stats["unlocked_copies"] == 0


def test_compiled_step_takes_the_batches(facts_of: Facts) -> None:
    check(facts_of("torch", COMPILE))


def test_lightning_trains_on_the_batches_where_they_are(facts_of: Facts) -> None:
    pytest.importorskip("pytorch_lightning")
    check(facts_of("torch", LIGHTNING))


def test_accelerate_trains_on_batches_of_a_loader_that_it_did_not_prepare(facts_of: Facts) -> None:
    pytest.importorskip("accelerate")
    check(facts_of("torch", ACCELERATE))


def test_each_process_of_ddp_has_its_batches_on_its_device(
    run_program: Run, tmp_path: Path
) -> None:
    def rank(number: int) -> subprocess.CompletedProcess[str]:
        meeting = str(tmp_path / "meeting")
        return run_program("torch", DDP, RANK=str(number), MEETING=meeting)

    with ThreadPoolExecutor(2) as both:
        for done in both.map(rank, range(2)):
            assert done.returncode == 0, done.stderr[-4000:]
            check(json.loads(done.stdout.splitlines()[-1]), copies=8)
