"""PyTorch's default ways to make a batch of samples, as far as they are done in place.

Imports torch. Placeholder of the branch that has the rules.
"""

from __future__ import annotations

from typing import Any

from reader.compat.torch.inner import collate

__all__ = ["TorchRules"]


class TorchRules:
    """See `reader.workers.loop.CollateRules`."""

    def can_stack(self, sample: Any) -> bool:
        return False

    def collate(self, samples: list[Any]) -> Any:
        return collate.default_collate(samples)
