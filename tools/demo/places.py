"""Where the demo trains: the CPU, GPUs, or accelerators that are simulated on the CPU.

Imports paddle when the places are found; the simulated accelerator comes from tests/device. The
places belong to the options of a run.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any

__all__ = ["CPU", "NoPlace", "TrainingPlaces", "find_places"]

_KINDS = {"cuda": "gpu", "simdev": "simulated"}
_NAME = re.compile(r"(cpu|gpu|cuda|simulated|simdev)(?::(\d{1,3}))?")
COPY_US = 1000  # how long a copy to a simulated device takes


class NoPlace(Exception):
    """The machine lacks a requested place; the text names it, and the remedy."""


@dataclasses.dataclass(frozen=True)
class TrainingPlaces:
    """One place or several, each of which gets a batch of its own in every step.

    Attributes:
        kind: "cpu", "gpu" or "simulated".
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
        numbers = [int(name.partition(":")[2]) for name in self.names]
        if self.kind == "gpu":
            return [core.CUDAPlace(number) for number in numbers]
        return [core.CustomPlace("simdev", number) for number in numbers]

    def settle(self) -> None:
        """Wait until the batches of a step are there."""
        import paddle

        for place in self.to_paddle():
            paddle.device.current_stream(place).synchronize()  # copies ahead go on


CPU = TrainingPlaces()


def find_places(text: str | None, count: int = 1) -> TrainingPlaces:
    """Return the places, with Paddle imported.

    Args:
        text: "cpu", "gpu" or "simulated", or names of places such as "gpu:0,gpu:1"; None: GPUs
            where there are any, else the CPU.
        count: how many, where `text` names no numbers.

    Raises:
        NoPlace: a name of none, or there are not so many of them.
    """
    kind, numbers = None, list(range(count))
    if text is not None:
        kind, numbers = _parse(text, count)
    if kind == "simulated":
        _simulate(max(numbers) + 1)
        return TrainingPlaces(kind, tuple(f"simdev:{number}" for number in numbers))
    import paddle

    gpus = paddle.device.cuda.device_count() if paddle.device.is_compiled_with_cuda() else 0
    if kind is None:
        kind = "gpu" if gpus else "cpu"
    if kind == "cpu":
        return TrainingPlaces(kind, ("cpu",) * len(numbers))
    if max(numbers) >= gpus:
        raise NoPlace(
            f"Paddle finds {gpus} GPUs here, and gpu:{max(numbers)} was asked for. Pass"
            f" {f'fewer, from gpu:0 to gpu:{gpus - 1}' if gpus else '--place cpu or simulated'}."
        )
    return TrainingPlaces(kind, tuple(f"gpu:{number}" for number in numbers))


def _parse(text: str, count: int) -> tuple[str, list[int]]:
    """Return the kind of the places that a text names, and their numbers."""
    found = [_NAME.fullmatch(each.strip().lower()) for each in text.split(",")]
    kinds = {_KINDS.get(each[1], each[1]) for each in found if each is not None}
    if None in found or len(kinds) != 1:
        raise NoPlace(
            f"--place {text} names no places of one kind. Pass cpu, gpu or simulated, with"
            " --devices N, or names such as gpu:0,gpu:1."
        )
    numbers = [int(each[2]) for each in found if each is not None and each[2] is not None]
    if not numbers and len(found) == 1:
        numbers = list(range(count))
    elif len(numbers) != len(found):  # such as cpu,cpu
        numbers = list(range(len(found)))
    return kinds.pop(), numbers


def _simulate(count: int) -> None:
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
