"""How one epoch runs: its number, its limits, and the functions called at its start and end.

Imports the policy of errors and what workers are sent. Never changes once it is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from reader.policy import ErrorPolicy
from reader.worker.worker_state import EpochStart

__all__ = ["EpochOptions"]


@dataclasses.dataclass(frozen=True)
class EpochOptions:
    """How one epoch runs.

    Attributes:
        epoch: its number.
        timeout_s: of one batch; None: for ever.
        is_eager: False: a batch is asked for only while the consumer waits for it.
        error_policy: in whose words exceptions are raised.
        start_of: makes the EpochStart of a worker, given its number; None: no worker gets one.
        on_end: called when the last batch was delivered.
        length: how many batches there will be; None: not known.
        slow_s: seconds after which a slow sample is logged; None: never.
        hung_s: seconds after which the worker of a slow sample is replaced; None: never.
        tolerates: samples may fail.
        raises_deaths: a worker's death is raised even where it costs no batch.
    """

    epoch: int
    timeout_s: float | None
    is_eager: bool
    error_policy: ErrorPolicy = ErrorPolicy()  # noqa: RUF009
    start_of: Callable[[int], EpochStart] | None = None
    on_end: Callable[[], None] | None = None
    length: Callable[[], int] | None = None
    slow_s: float | None = None
    hung_s: float | None = None
    tolerates: bool = False
    raises_deaths: bool = False
