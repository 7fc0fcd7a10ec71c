"""Scalars of a loader in TensorBoard, by any writer.

Imports the scalars and no library: the program made the writer. VisualDL's and tensorboardX's
writers have the same method.
"""

from __future__ import annotations

from typing import Any

from reader.errors import ConfigTypeError, got
from reader.integrations.loop_watch import every_steps
from reader.integrations.scalars import Scalars

__all__ = ["ScalarLogger"]


class ScalarLogger:
    """Write the scalars of a loader at each `every`-th step.

    Args:
        writer: has `add_scalar(tag, value, step)`: `SummaryWriter` of `torch.utils.tensorboard` or
            tensorboardX, or VisualDL's `LogWriter`. The program closes it.
        loader: of this package; it is held weakly.
        every: steps from one point to the next.
        prefix: of each tag.

    Raises:
        ConfigTypeError: the writer has no `add_scalar`, or the loader is not of this package.
        ConfigError: `every` is below 1.
    """

    def __init__(self, writer: Any, loader: Any, every: int = 50, prefix: str = "reader/") -> None:
        if not callable(getattr(writer, "add_scalar", None)):
            raise ConfigTypeError(
                f"writer must have add_scalar(tag, value, step), got {got(writer)}: pass"
                " SummaryWriter of torch.utils.tensorboard or tensorboardX, or LogWriter of"
                " visualdl"
            )
        self._writer = writer
        self._every = every_steps(every)
        self._scalars = Scalars(loader, prefix)

    def log(self, step: int) -> None:
        """Write the scalars if `step` is a multiple of `every` above 0.

        Args:
            step: of the training: the place on the axis. Call it at each step.
        """
        if step and step % self._every == 0:
            for name, value in self._scalars.read().items():
                self._writer.add_scalar(name, value, step)
