"""Have Paddle's `DataLoader` make loaders of ours, for libraries that construct their own.

Imports the loader of this face. It changes nothing of Paddle until `install` is called.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import paddle.io

from reader.compat.installation import Installation
from reader.compat.paddle.loader import DataLoader

__all__ = ["install", "uninstall"]

_installation = Installation(paddle.io.DataLoader, DataLoader)


def install() -> AbstractContextManager[None]:
    """Have `paddle.io.DataLoader` make loaders of ours from now on, in this process.

    It serves libraries that construct loaders of their own (`paddle.Model`), whether they are
    imported already or later, and subclasses of Paddle's class. Paddle's class stays the same for
    `isinstance`; existing loaders do not change. Idempotent.

    Returns a context that uninstalls on leaving, unless it was installed before::

        with reader.compat.paddle.install():
            model.fit(dataset)
    """
    return _installation.install()


def uninstall() -> None:
    """Have `paddle.io.DataLoader` make Paddle's loaders again. Idempotent.

    Loaders that were made before stay ours.
    """
    _installation.uninstall()
