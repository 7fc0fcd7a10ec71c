"""`torch.utils.data`, name for name, with `DataLoader` on the engine of `reader`.

Change `from torch.utils.data import DataLoader` into `from reader.compat.torch import DataLoader`;
nothing else of a program changes. Imports torch. docs/torch.md says, line by line, what is the same
and what is better.
"""

from typing import Any

import torch.utils.data

from reader.compat.torch.installation import install, uninstall
from reader.compat.torch.loader import DataLoader
from reader.compat.torch.sampler import StatefulDistributedSampler
from reader.compat.torch.stateful import StatefulDataLoader

__all__ = [
    "DataLoader",
    "StatefulDataLoader",
    "StatefulDistributedSampler",
    "install",
    "uninstall",
]
__all__ += [name for name in torch.utils.data.__all__ if name not in __all__]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(torch.utils.data, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
