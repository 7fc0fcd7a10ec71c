"""The engine over a source of batches: the generator that a program gave a loader.

Imports the engine and the sources of this face. An engine belongs to the loader that asked for it.
"""

from __future__ import annotations

from typing import Any

from reader._core.wire.times_log import TimesLog
from reader.compat.paddle.source import GeneratorDataset, Source, current_place
from reader.compat.paddle.switches import pin_limit
from reader.config import LoaderConfig
from reader.engine.engine import Engine
from reader.places import parse_places
from reader.policy import DispatchPolicy, Policy

__all__ = ["make_engine"]

_POLICY = Policy(dispatch=DispatchPolicy(works_ahead=True))


def make_engine(
    source: Source,
    capacity: int,
    places: Any = None,
    use_double_buffer: bool = False,
    use_multiprocess: bool = False,
    drop_last: bool = True,
    times: TimesLog | None = None,
) -> Engine:
    """Return the engine over a source: it yields lists of paddle tensors.

    Args:
        source: where the batches come from.
        capacity: batches made ahead, over all places.
        places: as parse_places takes them.
        use_double_buffer: two more batches ahead for each place; for a thread only.
        use_multiprocess: whether the source runs in a process rather than in a thread.
        drop_last: with several places, leave out a last group that is short.
        times: the log of other engines of the same loader; None: there are none.
    """
    parsed = parse_places(places)
    config = LoaderConfig.build(
        GeneratorDataset(source, current_place()),
        is_iterable=True,
        places=list(parsed),
        pin_limit=pin_limit(),
        batch_size=None,
        num_workers=1 if use_multiprocess else 0,
        prefetch_factor=-(-capacity // len(parsed)),
        use_buffer_reader=use_double_buffer,
        framework="paddle",
        start_method="fork" if use_multiprocess else None,
        drop_last_group=drop_last,
    )
    return Engine(config, _POLICY, None, None, times=times)
