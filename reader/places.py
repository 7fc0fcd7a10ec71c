"""Places: where a batch lands, parsed from what the user passed.

Imports `reader.errors` alone; places of Paddle and devices of PyTorch are known by their methods,
so no framework is imported. `reader.frameworks` says whether a place exists in this process, and
its adapters copy batches there.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from reader.errors import ConfigError, ConfigTypeError, got

__all__ = ["CPU", "Place", "parse_place", "parse_places"]

_KINDS = ("cpu", "gpu", "gpu_pinned")
_ALIASES = {"cuda": "gpu", "cuda_pinned": "gpu_pinned"}
_NAME = re.compile(r"([a-z_]+)(?::(\d+))?")
_REMEDY = (
    'Pass "cpu", "gpu", "gpu:0", "gpu_pinned", a place of Paddle such as paddle.CPUPlace(), a'
    " torch.device, or a list of these"
)


@dataclasses.dataclass(frozen=True)
class Place:
    """One place.

    `kind`: "cpu", "gpu" (memory of a CUDA device) or "gpu_pinned" (memory of the host that is
    locked for its copies). `index`: the number of the device, from 0; None for the other kinds.
    """

    kind: str = "cpu"
    index: int | None = None

    def __str__(self) -> str:
        return self.kind if self.index is None else f"{self.kind}:{self.index}"


CPU = Place()


def parse_places(value: Any) -> tuple[Place, ...]:
    """Return the places that the argument `places` of a loader names, one or more.

    Args:
        value: None (the CPU), a place (see `parse_place`), or a list or tuple of them. The same
            place may come several times: each gets a batch of its own in every step.

    Raises:
        ConfigTypeError: something that is no place.
        ConfigError: a name that is no place, or an empty list.

    >>> [str(place) for place in parse_places(["cpu", "gpu:1"])]
    ['cpu', 'gpu:1']
    """
    if value is None:
        return (CPU,)
    if not isinstance(value, (list, tuple)):
        return (parse_place(value),)
    if not value:
        raise ConfigError(f"places must name at least one place, got {got(value)}. {_REMEDY}.")
    return tuple(parse_place(item) for item in value)


def parse_place(value: Any) -> Place:
    """Return the place that `value` names: a text, a Place, a place of Paddle, a device of PyTorch.

    Raises:
        ConfigTypeError: a value of another kind.
        ConfigError: a text that names no place.
    """
    if isinstance(value, Place):
        return value
    if isinstance(value, str):
        return _from_text(value)
    if hasattr(value, "is_cpu_place"):
        return _from_paddle(value)
    if type(value).__module__ == "torch" and isinstance(getattr(value, "type", None), str):
        return CPU if value.type == "cpu" else _from_text(str(value))
    raise ConfigTypeError(f"places must name where batches land, got {got(value)}. {_REMEDY}.")


def _from_text(text: str) -> Place:
    found = _NAME.fullmatch(text.strip().lower())
    kind = "" if found is None else _ALIASES.get(found[1], found[1])
    if found is None or kind not in _KINDS or (kind != "gpu" and found[2] is not None):
        raise ConfigError(f"places: there is no place {text!r}. {_REMEDY}.")
    return Place(kind, int(found[2] or 0) if kind == "gpu" else None)


def _from_paddle(place: Any) -> Place:
    if place.is_cpu_place():
        return CPU
    if place.is_cuda_pinned_place():
        return Place("gpu_pinned")
    if place.is_gpu_place():
        return Place("gpu", int(place.gpu_device_id()))
    raise ConfigError(f"places: batches cannot land on {place} in this version. {_REMEDY}.")
