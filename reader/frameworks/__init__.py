"""The trainer's last step: from a batch in the arena to the user's framework and place.

One module per framework; only that one imports the framework, on first use. This package may import
errors, places, config, `reader._core` and `reader.data`. Adapters keep no state of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reader._core.leaves import LeafMaker
from reader._core.tensor_array import LoDTensorArray
from reader.errors import ConfigError
from reader.places import Place

__all__ = ["check_places", "make_adapters", "make_unpacked"]

Adapter = Callable[[LoDTensorArray], Any]


def make_adapters(
    framework: str, feed_list: Sequence[Any] | None, return_list: bool, places: Sequence[Place]
) -> list[Adapter]:
    """Return, for each place, the function that makes the user's batch from a LoDTensorArray.

    Args:
        framework: "numpy", "torch" or "paddle"; imported here.
        feed_list: the inputs of a static program, variables or names; for paddle.
        return_list: False: one dict per place, by those names.
        places: where the batches go; `check_places` has checked them.
    """
    if framework == "torch":
        from reader.frameworks.torch import make_torch_adapter

        return [make_torch_adapter(place) for place in places]
    if framework == "paddle":
        from reader.frameworks.paddle import make_paddle_adapter

        is_single = len(places) == 1
        return [make_paddle_adapter(feed_list, return_list, place, is_single) for place in places]
    from reader.frameworks.numpy import to_numpy

    return [to_numpy] * len(places)  # the CPU is its only place


def make_unpacked(framework: str, is_collated: bool) -> LeafMaker | None:
    """Return what makes the user's batch of arrays and tensors that lie in no arena.

    None: they are packed first, since only an adapter makes the batch of this framework.

    Args:
        framework: see `make_adapters`.
        is_collated: a `collate_fn` made them, and not the dataset.
    """
    if framework == "torch":
        from reader.frameworks.torch import leaf_maker

        return LeafMaker(leaf_maker, keeps_tensors=True, is_collated=is_collated)
    if framework == "numpy":
        from reader.frameworks.numpy import leaf_view

        return LeafMaker(leaf_view, is_collated=is_collated)
    return None


def check_places(framework: str, places: Sequence[Place]) -> None:
    """Refuse places that batches cannot be copied to in this process.

    Raises:
        ConfigError: a place that the framework as installed lacks, or that needs CUDA.
    """
    for place in places:
        if place.kind == "cpu":
            continue
        reason = "the arrays of NumPy lie on the CPU"
        if framework == "paddle":
            from reader.frameworks.paddle import missing_place

            reason = missing_place(place)
        elif framework == "torch":
            from reader.frameworks.torch import missing_device

            reason = missing_device(place)
        raise ConfigError(
            f'{reason}. places={str(place)!r} was given, and this version brings batches to "cpu":'
            " take them there and move them in the training step"
        )
