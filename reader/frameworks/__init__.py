"""The trainer's last step: from a batch in the arena to the user's framework, without a copy.

One module per framework; each alone imports its framework, when it is first used. This room may
import errors, config, `reader._core` and `reader.data`. Adapters keep no state of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reader._core.tensor import LoDTensorArray

__all__ = ["make_adapter"]


def make_adapter(
    framework: str, feed_names: tuple[str, ...] | None, return_list: bool
) -> Callable[[LoDTensorArray], Any]:
    """Return the function that makes the user's batch of a LoDTensorArray.

    Args:
        framework: "numpy", "torch" or "paddle"; imported here.
        feed_names: names of a static program's inputs; for paddle.
        return_list: False: one dict per place, by those names.
    """
    if framework == "torch":
        from reader.frameworks.torch import to_torch

        return to_torch
    if framework == "paddle":
        from reader.frameworks.paddle import make_paddle_adapter

        return make_paddle_adapter(feed_names, return_list)
    from reader.frameworks.numpy import to_numpy

    return to_numpy
