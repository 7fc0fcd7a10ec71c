"""A face for tests: the arguments of `reader.DataLoader`, with any policy."""

from __future__ import annotations

from typing import Any

from reader.config import LoaderConfig
from reader.data.iterable import is_iterable_dataset
from reader.engine.engine import Engine
from reader.engine.face import EngineFace
from reader.loader import make_samplers
from reader.policy import Policy


class Face(EngineFace):
    """A loader with a policy of its own."""

    def __init__(self, policy: Policy, dataset: Any, **options: Any) -> None:
        config = LoaderConfig.build(dataset, is_iterable=is_iterable_dataset(dataset), **options)
        self._engine = Engine(config, policy, *make_samplers(config))
