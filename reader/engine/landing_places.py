"""Where an engine's batches land: the converter of each place, and the copiers of devices.

Imports the frameworks, the copier and the stage. It belongs to one engine, whose epochs have a
Stage each; devices are opened with the first of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from reader.config import LoaderConfig
from reader.engine.copier import Copier, copier_stats, drop_copies
from reader.engine.registrar import Registrar
from reader.engine.stage import Stage
from reader.frameworks import make_adapters
from reader.policy import BatchPolicy

__all__ = ["LandingPlaces"]


class LandingPlaces:
    """The places of an engine.

    Args:
        config: the options.
        policy: what a batch is.
    """

    def __init__(self, config: LoaderConfig, policy: BatchPolicy) -> None:
        self._config = config
        self._policy = policy
        self._converts: list[Callable[[Any], Any]] = []  # by place; made with the first epoch
        self._copiers: list[Copier] = []  # by place, if they are devices

    def stage(self, has_step_batches: bool) -> Stage:
        """Return the stage of an epoch; see Stage."""
        self._converts = self._converts or self._make_converts()
        copiers = self._copiers
        if copiers:
            copiers[0].registrar.unlock_closed()
        ahead = self._copies_ahead if copiers else 0
        drop = self._config.drop_last_group
        return Stage(self._converts, drop, copiers, ahead, has_step_batches)

    def convert(self) -> Callable[[Any], Any] | None:
        """Return the converter of the only place; None: that place is a device."""
        self._converts = self._converts or self._make_converts()
        return None if self._copiers else self._converts[0]

    def stats(self) -> dict[str, Any] | None:
        """Return counts of the copies; None: there are no devices. See `DataLoader.stats`."""
        return copier_stats(self._copiers)

    def close(self) -> None:
        """Wait for copies under way, and release what they hold."""
        drop_copies(self._copiers)

    def _make_converts(self) -> list[Callable[[Any], Any]]:
        """Return the converter of each place: it makes the user's batch of what a worker sent."""
        config, policy = self._config, self._policy
        adapters: Any
        if policy.make_adapter is not None:
            adapters = [policy.make_adapter(place) for place in config.places]
        else:
            adapters = make_adapters(
                config.framework,
                config.feed_list,
                config.return_list,
                config.places,
                policy.reads_bfloat16,
            )
        is_private = config.has_workers and not config.use_shared_memory
        plain_containers = policy.has_plain_containers
        if not callable(adapters[0]):
            self._copiers = self._make_copiers(adapters, plain_containers)
            return [copier.issue for copier in self._copiers]
        if is_private or plain_containers:
            return [
                functools.partial(_convert, each, is_private, plain_containers) for each in adapters
            ]
        found: list[Callable[[Any], Any]] = adapters
        return found

    def _make_copiers(self, devices: list[Any], plain_containers: bool) -> list[Copier]:
        config = self._config
        copies = 1 + self._copies_ahead
        # each worker keeps some free slots of each size that its batches have
        slots = 2 * (config.num_loops * (config.prefetch_factor + 3) + len(devices) * (copies + 1))
        registrar = Registrar(devices[0].locker, slots, config.pin_limit)
        return [
            Copier(device, registrar, max(2, copies), plain_containers, place)
            for place, device in enumerate(devices)
        ]

    @property
    def _copies_ahead(self) -> int:
        """How many copies to each device are issued before their batches' turn."""
        return self._config.reader_buffer_size if self._config.use_buffer_reader else 0


def _convert(
    adapter: Callable[[Any], Any], is_private: bool, plain_containers: bool, batch: Any
) -> Any:
    """Have an adapter make a batch of a copy, or of plain containers."""
    if is_private:
        batch = batch.private_copy()
    return adapter(batch.plain_containers() if plain_containers else batch)
