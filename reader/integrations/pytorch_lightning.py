"""A callback of Lightning, for the package `pytorch_lightning`.

Imports that package and LightningHooks. For `lightning` there is `reader.integrations.lightning`:
the classes of the two packages are not the same.
"""

from __future__ import annotations

from typing import Any

from reader.integrations.libraries import missing
from reader.integrations.lightning_hooks import LightningHooks

try:
    from pytorch_lightning import Callback
    from pytorch_lightning.utilities import rank_zero_info
except ImportError as error:
    raise missing("pytorch_lightning", "pytorch-lightning") from error

__all__ = ["LoaderCallback"]

_Callback: Any = Callback


class LoaderCallback(LightningHooks, _Callback):  # type: ignore[misc]
    """Log scalars of the training's loaders, and at the end what bounded the loop.

    See `LightningHooks` for its arguments: `Trainer(callbacks=[LoaderCallback()])`.
    """

    say = staticmethod(rank_zero_info)
