"""A trial run: a loader with two workers over a dataset that costs nothing.

Imports the public face, as a program does. The run starts two processes, and closes them before it
returns.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

from reader.observe.finding import Finding
from reader.observe.machine import Machine

__all__ = ["trial_run"]

_SAMPLES, _BATCH_SIZE = 512, 8
_TIMEOUT_S = 20.0
_SLOW_START_S = 5.0
_SLOW_BATCH_S = 0.01


def trial_run(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  as every check
    """Load an epoch with two workers, and report the times of the first batch and the others."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            first_s, batch_s = _run()
    except Exception as error:  # any exception: a program's loader would meet it too
        yield Finding(
            "error",
            "trial run",
            f"a loader with 2 workers failed: {type(error).__name__}: {error}",
            "do what the message says; errors above may be its cause",
        )
        return
    for each in caught:
        if not issubclass(each.category, DeprecationWarning):
            yield Finding(
                "warning", "trial run", f"the loader warned: {each.message}", "do what it says"
            )
    said = f"first batch after {first_s * 1e3:.0f} ms, then {batch_s * 1e6:.0f} us for each"
    if first_s > _SLOW_START_S:
        yield Finding(
            "warning",
            "trial run",
            f"{said}: workers take long to start",
            "pass persistent_workers=True, and see whether the machine is busy",
        )
    elif batch_s > _SLOW_BATCH_S:
        yield Finding(
            "warning",
            "trial run",
            f"{said}: elsewhere so small a batch takes less than a millisecond",
            "see whether the machine is busy, or a cgroup is stopped (throttling)",
        )
    else:
        yield Finding("ok", "trial run", said)


def _run() -> tuple[float, float]:
    """Return the seconds until the first batch, and of each later batch."""
    from reader import DataLoader  # needs NumPy and the core, which another check covers

    dataset = [(index, float(index)) for index in range(_SAMPLES)]
    begin = time.perf_counter()
    with DataLoader(dataset, batch_size=_BATCH_SIZE, num_workers=2, timeout=_TIMEOUT_S) as loader:
        batches = iter(loader)
        seen = [next(batches)[0]]
        first = time.perf_counter()
        seen += [numbers for numbers, _ in batches]
        end = time.perf_counter()
    loaded = [int(number) for numbers in seen for number in numbers]
    if loaded != list(range(_SAMPLES)):
        raise RuntimeError(f"batches do not hold the samples in order: {loaded}")
    return first - begin, (end - first) / (len(seen) - 1)
