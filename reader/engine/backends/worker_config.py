"""The config that each worker of a loader gets, made of its options and its face's policy.

Imports the worker's config and what is known of datasets. It keeps nothing.
"""

from __future__ import annotations

import dataclasses

from reader.collate import in_place
from reader.config import LoaderConfig
from reader.data.pure_samples import has_pure_samples
from reader.policy import Policy
from reader.worker.bad_sample import Tolerance
from reader.worker.loop import WorkerConfig
from reader.worker.stream import Stream

__all__ = ["make_worker_config"]


def make_worker_config(config: LoaderConfig, policy: Policy, base_seed: int) -> WorkerConfig:
    """Return what each worker of a loader is given."""
    # whether workers could make each other's samples, or fetch many at once where they may not else
    asks = config.num_workers > 1 or not policy.worker.fetches_many
    return WorkerConfig(
        dataset=config.dataset,
        collate_fn=None if config.collate_fn is None else in_place(config.collate_fn),
        worker_init_fn=config.worker_init_fn,
        num_workers=config.num_workers,
        is_for_device=not config.is_on_cpu,
        seed=config.seed,
        base_seed=base_seed,
        stream=Stream(config.batch_size, config.drop_last) if config.is_iterable else None,
        policy=policy.worker
        if policy.worker.make_prepare is None
        else dataclasses.replace(policy.worker, make_prepare=None),
        worker_type=config.worker_type,
        seed_globals=config.seed_globals,
        snapshot_every=config.snapshot_every,
        has_pure_samples=asks and not config.is_iterable and has_pure_samples(config.dataset),
        reseed=config.reseed,
        tolerance=_tolerance(config),
        makes_stale=policy.worker.makes_stale and config.persistent_workers and config.seed is None,
    )


def _tolerance(config: LoaderConfig) -> Tolerance | None:
    """Return how failed samples are tolerated; None: their exceptions are raised."""
    if not config.tolerates_failures:
        return None
    has_own = config.sampler is not None or config.batch_sampler is not None
    count = 0 if has_own or config.is_iterable else len(config.dataset)
    return Tolerance(config.on_error == "replace", count)
