"""What each source of a mix has given in the current epoch of a loader.

Imports samplers; the class of mixes is found once a program has imported it. It is computed from
the loader's position when it is asked for, and nothing is counted for each batch.
"""

from __future__ import annotations

import sys
from typing import Any

from reader.data.dataset import MappedDataset
from reader.data.distributed_sampler import DistributedSampler
from reader.data.sampler import SequenceSampler
from reader.orders.base_sampler import changes_of, is_torch_sampler

__all__ = ["mix_stats"]


def mix_stats(
    dataset: Any, sampler: Any, epoch: int, taken: int | None
) -> dict[str | int, dict[str, Any]] | None:
    """Return by source the `samples`, `tokens` and `passes` of an epoch; see `Mix.given`.

    Args:
        dataset: of the loader: a mix, also mapped; None is returned for others.
        sampler: of the loader. None is returned for one that does not keep to the order of the mix.
        epoch: of the order.
        taken: how many samples all ranks have taken of the order; None: not known.
    """
    while type(dataset) is MappedDataset:
        dataset = dataset.dataset
    mixes = sys.modules.get("reader.streams.mixed_dataset")
    if mixes is None or not isinstance(dataset, mixes.Mix) or taken is None:
        return None
    taken = min(taken, len(dataset))  # ranks may take a few samples twice at the end
    found: dict[str | int, dict[str, Any]] | None = None
    if changes_of(sampler) is not None:  # a MixSampler: its plan has the changes
        found = sampler.given(epoch, taken)
    is_of_ranks = type(sampler) is DistributedSampler or is_torch_sampler(sampler)
    if type(sampler) is SequenceSampler or (is_of_ranks and not sampler.shuffle):
        found = dataset.given_by(taken, epoch)
    return found
