"""A device is left alone while a graph of it is captured, and no batch is lost by that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reader import ReaderError
from reader.policy import BatchPolicy, Policy
from tests.device.accelerator import ACCELERATOR
from tests.faces import Face
from tools.late_device import LateDevice


class Samples:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return np.full(3000, index), index


class Device(LateDevice):
    """Counts the calls that a capture does not survive."""

    captures = False
    calls = 0

    def is_capturing(self) -> bool:
        return self.captures

    def copy(self, batch: Any, event: Any, tensors: list[Any]) -> Any:
        self.calls += 1
        return super().copy(batch, event, tensors)

    def is_done(self, event: Any) -> bool:
        self.calls += 1
        return super().is_done(event)


@pytest.mark.parametrize("workers", [0, 2])
def test_batch_is_refused_while_a_graph_is_captured_and_comes_afterwards(workers: int) -> None:
    device = Device()
    policy = Policy(batch=BatchPolicy(make_adapter=lambda _: device))
    with Face(policy, Samples(), batch_size=4, places="late:0", num_workers=workers) as face:
        steps = iter(face)
        labels = [next(steps)[1].tolist() for _ in range(3)]
        device.captures, before = True, device.calls
        for _ in range(2):
            with pytest.raises(ReaderError, match=r"while a CUDA graph is captured.*static\.copy_"):
                next(steps)
            assert face.stats()["devices"]["copies"] >= 3
        assert device.calls == before
        device.captures = False
        labels += [label.tolist() for _, label in steps]
        assert labels == [list(range(first, first + 4)) for first in range(0, 40, 4)]
        assert face.stats()["batches"] == 10


ON_CUDA = """
    import json
    import torch
    from tests.device.accelerator import accelerator

    sim = accelerator()
    from reader import ReaderError
    from reader.compat.torch import DataLoader

    rows = torch.arange(64.0).reshape(16, 4)
    loader = DataLoader(rows, 4, num_workers=2, device=sim.name(0))
    steps = iter(loader)
    static = next(steps).clone()
    graph, total = torch.cuda.CUDAGraph(), None
    refused = ""
    with torch.cuda.graph(graph):
        try:
            next(steps)
        except ReaderError as error:
            refused = str(error)
        total = static.sum()
    sums = []
    for batch in steps:
        static.copy_(batch)
        graph.replay()
        sums.append(total.item())
    print(json.dumps([refused, sums]))
"""


@pytest.mark.gpu
def test_graph_is_captured_and_replayed_on_each_later_batch(facts_of: Any) -> None:
    refused, sums = facts_of("torch", ON_CUDA, **{ACCELERATOR: "cuda"})
    assert "while a CUDA graph is captured" in refused
    assert sums == [float(sum(range(16 * n, 16 * n + 16))) for n in (1, 2, 3)]
