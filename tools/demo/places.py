"""Where the demo trains: the CPU, GPUs, or accelerators that are simulated on the CPU.

Imports paddle when the places are found; the simulated accelerator comes from tests/device. The
places belong to the options of a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

__all__ = ["CPU", "KINDS", "NoPlace", "TrainingPlaces", "find_places"]

KINDS = ("cpu", "gpu", "simulated")
COPY_US = 1000  # how long a copy to a simulated device takes


class NoPlace(Exception):
    """The machine lacks what was asked for; says what, and the remedy."""


@dataclasses.dataclass(frozen=True)
class TrainingPlaces:
    """One place or several, each of which gets a batch of its own in every step.

    Attributes:
        kind: of KINDS.
        names: as `paddle.set_device` takes them.
    """

    kind: str = "cpu"
    names: tuple[str, ...] = ("cpu",)

    @property
    def is_device(self) -> bool:
        """Whether batches are copied there."""
        return self.kind != "cpu"

    @property
    def runs_programs(self) -> bool:
        """Whether static programs train there.

        A simulated device has no operators of its own, and Paddle loses what an optimizer writes in
        place.
        """
        return self.kind != "simulated"

    @property
    def first(self) -> TrainingPlaces:
        """The first of them alone."""
        return TrainingPlaces(self.kind, self.names[:1])

    def to_paddle(self) -> list[Any]:
        """Return Paddle's places."""
        import paddle

        core: Any = paddle.base.core
        if self.kind == "cpu":
            return [core.CPUPlace() for _ in self.names]
        if self.kind == "gpu":
            return [core.CUDAPlace(index) for index in range(len(self.names))]
        return [core.CustomPlace("simdev", index) for index in range(len(self.names))]

    def settle(self) -> None:
        """Wait until the batches of a step are there."""
        import paddle

        for place in self.to_paddle():
            paddle.device.current_stream(place).synchronize()  # copies ahead go on


CPU = TrainingPlaces()


def find_places(kind: str | None, count: int) -> TrainingPlaces:
    """Return the places, with Paddle imported.

    Args:
        kind: of KINDS; None: GPUs where there are any, else the CPU.
        count: how many.

    Raises:
        NoPlace: there are not so many of them.
    """
    if kind == "simulated":
        return TrainingPlaces(kind, _simulate(count))
    import paddle

    gpus = paddle.device.cuda.device_count() if paddle.device.is_compiled_with_cuda() else 0
    if kind is None:
        kind = "gpu" if gpus else "cpu"
    if kind == "gpu" and gpus < count:
        raise NoPlace(
            f"Paddle finds {gpus} GPUs here, and {count} were asked for. Pass --devices"
            f" {gpus or 1}{'' if gpus else ' --place cpu or --place simulated'}."
        )
    names: Sequence[str] = (
        [kind] * count if kind == "cpu" else [f"{kind}:{i}" for i in range(count)]
    )
    return TrainingPlaces(kind, tuple(names))


def _simulate(count: int) -> tuple[str, ...]:
    import os

    from tests.device.build import CannotBuild, library
    from tests.device.simdev import LIBRARY, locks_pages, on_paddle

    os.environ["SIMDEV_DEVICES"] = str(count)
    try:
        os.environ[LIBRARY] = str(library("paddle"))
    except CannotBuild as error:
        raise NoPlace(f"The simulated devices cannot be built: {error}.") from None
    sim = on_paddle()
    sim.set(delay_us=COPY_US)
    locks_pages(sim)
    return tuple(f"simdev:{index}" for index in range(count))
