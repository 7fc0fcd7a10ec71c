"""The network and its optimizer: the same lines make them for the dynamic and the static graph.

Imports paddle. Nothing here knows where batches come from.
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import nn

__all__ = ["make_network", "make_optimizer"]


def make_network() -> nn.Sequential:
    """Two convolutions and two dense layers, from images of shape (n, 1, 8, 8) to 10 scores."""
    return nn.Sequential(
        nn.Conv2D(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2D(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def make_optimizer(
    steps: int, rate: float, parameters: Any = None
) -> tuple[paddle.optimizer.Optimizer, paddle.optimizer.lr.LRScheduler]:
    """Adam, and the schedule that takes its rate from `rate` to 0 over `steps` in a cosine.

    `parameters`: those of a network in the dynamic graph; None: all of the static program.
    """
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(rate, steps)
    return paddle.optimizer.Adam(schedule, parameters=parameters), schedule
