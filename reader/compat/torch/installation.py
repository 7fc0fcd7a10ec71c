"""Have PyTorch's `DataLoader` make loaders of ours, for libraries that construct their own.

Imports the loader of this face. It changes nothing of PyTorch until `install` is called.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch.utils.data

from reader.compat.installation import Installation
from reader.compat.torch.loader import DataLoader

__all__ = ["install", "uninstall"]

_installation = Installation(torch.utils.data.DataLoader, DataLoader)


def install() -> AbstractContextManager[None]:
    """Have `torch.utils.data.DataLoader` make loaders of ours from now on, in this process.

    It serves libraries that construct loaders of their own (Accelerate, Trainer), whether they are
    imported already or later, and subclasses of PyTorch's class, except those that do not call its
    `__init__` (torchdata's). PyTorch's class stays the same for `isinstance`; existing loaders do
    not change. Idempotent.

    Returns a context that uninstalls on leaving, unless it was installed before::

        with reader.compat.torch.install():
            trainer.train()
    """
    return _installation.install()


def uninstall() -> None:
    """Have `torch.utils.data.DataLoader` make PyTorch's loaders again. Idempotent.

    Loaders that were made before stay ours.
    """
    _installation.uninstall()
