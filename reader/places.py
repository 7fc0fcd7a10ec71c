"""Places: where a batch lands, parsed from what the user passed.

Imports `reader.errors` alone; places of Paddle and devices of PyTorch are known by their methods,
so no framework is imported. `reader.frameworks` says whether a place exists in this process, and
its devices copy batches there.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from reader.errors import ConfigError, ConfigTypeError, got

__all__ = ["CPU", "Place", "is_paddle_place", "parse_place", "parse_places"]

_WITHOUT_INDEX = ("cpu", "gpu_pinned")
_ALIASES = {"cuda": "gpu", "cuda_pinned": "gpu_pinned"}
_NAME = re.compile(r"([a-z_]+)(?::(\d{1,4}))?")
_REMEDY = (
    'Pass "cpu", "gpu", "gpu:0", "gpu_pinned", a plug-in device such as "npu:0", a place of Paddle'
    " such as paddle.CPUPlace(), a torch.device, a device or sharding of JAX, or a list of these"
)


@dataclasses.dataclass(frozen=True)
class Place:
    """One place.

    `kind`: "cpu", "gpu" (memory of a CUDA device), "gpu_pinned" (memory of the host that is locked
    for its copies), or the framework's name of a plug-in device. `index`: the number of the device,
    from 0; None for "cpu" and "gpu_pinned". `target`: a device or sharding of JAX, of kind "jax".
    """

    kind: str = "cpu"
    index: int | None = None
    target: Any = None

    def __str__(self) -> str:
        if self.target is not None:
            return str(self.target)
        return self.kind if self.index is None else f"{self.kind}:{self.index}"


CPU = Place()


def parse_places(value: Any) -> tuple[Place, ...]:
    """Return the places that the argument `places` of a loader names, one or more.

    Args:
        value: None (the CPU), a place (see `parse_place`), or a list or tuple of them. The same
            place may come several times: each gets a batch of its own in every step.

    Raises:
        ConfigTypeError: something that is no place.
        ConfigError: a name that is no place, an empty list, or one with different kinds.

    >>> [str(place) for place in parse_places(["gpu:0", "gpu:1"])]
    ['gpu:0', 'gpu:1']
    """
    if value is None:
        return (CPU,)
    if not isinstance(value, (list, tuple)):
        return (parse_place(value),)
    if not value:
        raise ConfigError(f"places must name at least one place, got {got(value)}. {_REMEDY}.")
    places = tuple(parse_place(item) for item in value)
    if len({place.kind for place in places}) > 1:
        raise ConfigError(
            f"places: {', '.join(map(str, places))} are of different kinds, and the batches of a"
            " step go to devices of one kind. Pass places of one kind"
        )
    return places


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
    if is_paddle_place(value):
        return _from_paddle(value)
    if type(value).__module__.split(".")[0] in ("jax", "jaxlib"):
        return Place("jax", None, value)
    if type(value).__module__ == "torch" and isinstance(getattr(value, "type", None), str):
        return CPU if value.type == "cpu" else _from_text(str(value))
    raise ConfigTypeError(f"places must name a device for batches, got {got(value)}. {_REMEDY}.")


def _from_text(text: str) -> Place:
    found = _NAME.fullmatch(text.strip().lower())
    kind = "" if found is None else _ALIASES.get(found[1], found[1])
    if found is None or (kind in _WITHOUT_INDEX and found[2] is not None):
        raise ConfigError(f"places: there is no place {text!r}. {_REMEDY}.")
    return Place(kind, None if kind in _WITHOUT_INDEX else int(found[2] or 0))


def is_paddle_place(value: Any) -> bool:
    """Whether a value is a place of Paddle."""
    return hasattr(value, "is_cpu_place") or _class_of_paddle(value) is not None


def _class_of_paddle(value: Any) -> str | None:
    """Return the class of a place that cannot be asked what it is, as those of Paddle 2.6."""
    kind = type(value)
    is_one = kind.__module__.split(".")[0] == "paddle" and kind.__name__.endswith("Place")
    return kind.__name__ if is_one else None


def _from_paddle(place: Any) -> Place:
    if not hasattr(place, "is_cpu_place"):
        name = _class_of_paddle(place)
        if name == "CPUPlace":
            return CPU
        if name == "CUDAPinnedPlace":
            return Place("gpu_pinned")
        if name == "CUDAPlace":
            return Place("gpu", int(place.get_device_id()))
        if name == "CustomPlace":
            return Place(place.get_device_type(), int(place.get_device_id()))
        raise ConfigError(f"places: batches cannot be copied to {place}. {_REMEDY}.")
    if place.is_cpu_place():
        return CPU
    if place.is_cuda_pinned_place():
        return Place("gpu_pinned")
    if place.is_gpu_place():
        return Place("gpu", int(place.gpu_device_id()))
    if place.is_custom_place():
        return Place(place.get_device_type(), int(place.custom_device_id()))
    raise ConfigError(f"places: batches cannot be copied to {place}. {_REMEDY}.")
