"""The trainer's last step: from a batch in the arena to the user's framework and place.

Only modules named after a framework import it, on first use. This package may import errors,
places, config, `reader._core` and `reader.data`. Adapters keep no state of a batch; a Device has a
stream on its device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from reader._core.batch.tensor_array import LoDTensorArray
from reader._core.collate.leaves import LeafMaker
from reader.errors import ConfigError
from reader.frameworks.device import Device
from reader.places import Place

__all__ = ["check_places", "make_adapters", "make_unpacked", "torch_adapter"]

Adapter = Callable[[LoDTensorArray], Any]


def make_adapters(
    framework: str,
    inputs: Sequence[Any] | None,
    as_list: bool,
    places: Sequence[Place],
    reads_bfloat16: bool = False,
) -> list[Adapter | Device]:
    """Return, for each place, the function that makes the user's batch from a LoDTensorArray.

    For a place on a device it is a Device, which copies the batch there.

    Args:
        framework: "numpy", "torch", "paddle" or "jax"; imported here.
        inputs: of a static program, variables or names; for paddle.
        as_list: False: one dict per place, by those names.
        places: where the batches go; `check_places` has checked them.
        reads_bfloat16: for paddle, see `BatchPolicy`.
    """
    if framework == "torch":
        return [torch_adapter(place) for place in places]
    if framework == "paddle":
        from reader.frameworks.paddle import PaddleForm

        form = PaddleForm(inputs, as_list, len(places) == 1, reads_bfloat16)
        return [_paddle_adapter(place, form) for place in places]
    if framework == "jax":
        return _jax_adapters(places)
    from reader.frameworks.numpy import to_numpy

    return [to_numpy] * len(places)  # the CPU is its only place


def _paddle_adapter(place: Place, form: Any) -> Adapter | Device:
    from reader.frameworks.paddle import make_paddle_adapter

    if place.kind == "cpu":
        return make_paddle_adapter(form)
    from reader.frameworks.paddle_device import PaddleDevice, make_pinned_adapter

    return make_pinned_adapter(form) if place.kind == "gpu_pinned" else PaddleDevice(place, form)


def _jax_adapters(places: Sequence[Place]) -> list[Adapter | Device]:
    """Return Devices, which copy ahead, if all places are GPUs; otherwise plain adapters."""
    from reader.frameworks.jax import is_jax_gpu, jax_target, to_jax

    targets = [jax_target(place) for place in places]
    if not all(map(is_jax_gpu, targets)):
        return [functools.partial(to_jax, target) for target in targets]
    from reader.frameworks.jax_device import JaxDevice

    return [JaxDevice(target) for target in targets]


def torch_adapter(place: Place, keeps_arrays: bool = False) -> Adapter | Device:
    """Return the adapter of a place for torch.

    Args:
        place: `check_places` has checked it.
        keeps_arrays: whether fields that a worker sent as NumPy arrays stay such.
    """
    if place.kind == "cpu":
        from reader.frameworks.torch import to_torch, to_torch_as_sent

        return to_torch_as_sent if keeps_arrays else to_torch
    if place.kind == "gpu_pinned":
        from reader.frameworks.torch import to_pinned_torch

        return functools.partial(to_pinned_torch, keeps_arrays)
    from reader.frameworks.torch_device import TorchDevice

    return TorchDevice(place, keeps_arrays)


def make_unpacked(framework: str, is_collated: bool) -> LeafMaker | None:
    """Return the LeafMaker for batches of arrays and tensors that lie in no arena.

    None: batches are packed first, since this framework needs an adapter.

    Args:
        framework: see `make_adapters`.
        is_collated: whether a `collate_fn` made them, and not the dataset.
    """
    if framework == "torch":
        from reader.frameworks.torch import leaf_maker

        return LeafMaker(leaf_maker, keeps_tensors=True, is_collated=is_collated)
    if framework == "numpy":
        from reader.frameworks.numpy import leaf_view

        return LeafMaker(leaf_view, is_collated=is_collated)
    return None


_REMEDY = (
    'places=\'{}\' was given: pass an available place; or framework="torch", "paddle" or'
    ' "jax" for devices; or places="cpu" and move the batches in the training step'
)


def check_places(framework: str, places: Sequence[Place], remedy: str = _REMEDY) -> None:
    """Refuse places that batches cannot be copied to in this process.

    Args:
        framework: see `make_adapters`.
        places: where the batches go.
        remedy: the given argument and the remedy, in the loader's words; "{}" is the place.

    Raises:
        ConfigError: the installed framework lacks a place.
    """
    for place in places:
        if place.kind == "cpu":
            continue
        reason: str | None = "the arrays of NumPy lie on the CPU"
        if framework == "jax":
            from reader.frameworks.jax import missing_jax_device

            reason = missing_jax_device(place)
        elif place.kind == "jax":
            reason = f"framework={framework!r} knows no devices of JAX"
        elif framework == "paddle":
            from reader.frameworks.paddle_device import missing_place

            reason = missing_place(place)
        elif framework == "torch":
            from reader.frameworks.torch_device import missing_device

            reason = missing_device(place)
        if reason is not None:
            raise ConfigError(f"{reason}. {remedy.format(place)}")
