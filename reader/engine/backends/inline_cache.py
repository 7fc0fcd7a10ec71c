"""The inline backends of an engine: one for each of its iterators, with memory that they hand on.

Imports the inline backend. It has the methods of a PoolCache; it closes only the memory in which
samples are stacked.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from reader._core.memory.arena import Arena
from reader._core.wire.local_channel import LocalMemory
from reader.config import LoaderConfig
from reader.engine.backends.backend import Backend, arena_stats
from reader.engine.backends.inline import InlineBackend
from reader.engine.backends.worker_config import make_worker_config
from reader.frameworks import make_unpacked
from reader.policy import BatchPolicy, Policy

__all__ = ["InlineCache"]


class InlineCache:
    """Makes inline backends; see PoolCache for the methods.

    Args:
        config: the loader's options.
        policy: the face's promises.
        base_seed: what keys `sample_rng`.
    """

    kind = InlineBackend
    last_stages = None

    def __init__(self, config: LoaderConfig, policy: Policy, base_seed: int) -> None:
        self._config = config
        self._worker_config = make_worker_config(config, policy, base_seed)
        self._convert = self._converting(policy.batch)
        # no WeakSet: Python drops a Ctrl-C that comes in its callbacks
        self._backends: list[weakref.ref[InlineBackend]] = []
        self._newest: weakref.ref[InlineBackend] | None = None
        self._idle: list[InlineBackend] = []  # one at most, but for threads
        self._spare: list[LocalMemory] = []  # of backends that were closed

    def _converting(self, policy: BatchPolicy) -> Callable[[Any], Any] | None:
        """Return the converter of samples that are not stacked; None: they are packed first."""
        config = self._config
        if not config.is_on_cpu:
            return None
        if policy.is_as_collated:
            # what is written in place (Rows) has no arrays before it is packed
            is_written = self._worker_config.collate_fn is not config.collate_fn
            return None if is_written else _same
        if policy == BatchPolicy():
            return make_unpacked(config.framework, config.collate_fn is not None)
        return None

    def start(self) -> InlineBackend:
        """Return a backend for the caller alone."""
        while self._idle:
            backend = self._idle.pop()
            if backend.is_fresh:  # else the dataset has changed, or a fork's parent has its memory
                self._newest = weakref.ref(backend)
                return backend
            backend.close()
        made = InlineBackend(
            self._worker_config, self._config.max_bytes, self._spare, self._convert
        )
        live = [each for each in self._backends if each() is not None]
        self._newest = weakref.ref(made)
        self._backends = [*live, self._newest]
        return made

    def release(self, backend: Backend) -> None:
        """Keep a backend for the next iterator, or close it: the next one takes its memory."""
        if isinstance(backend, InlineBackend) and not self._idle and backend.is_fresh:
            backend.cancel_epoch()
            self._idle.append(backend)
        else:
            backend.close()

    @property
    def newest(self) -> InlineBackend | None:
        """The backend that an iterator got last; None: it is gone."""
        return None if self._newest is None else self._newest()

    @property
    def _arena(self) -> Arena | None:
        newest = self.newest
        found = newest.arena if newest is not None and newest.is_usable else None
        return self._spare[0].arena if found is None and self._spare else found

    def arena_stats(self) -> dict[str, Any] | None:
        """Return the counts of the memory for stacked samples; None: there is none."""
        return arena_stats(self._arena, None)

    def close(self, grace_s: float | None = None) -> None:  # noqa: ARG002
        """Close all backends; iterators that have one then raise. Idempotent."""
        for found in self._backends:
            backend = found()
            if backend is not None:
                backend.close()
        self._idle.clear()
        while self._spare:
            self._spare.pop().close()

    def drop(self) -> None:
        """Do nothing: a backend is closed with its iterator."""


def _same(batch: Any) -> Any:
    return batch
