"""Named ranges of a loop for NVIDIA's profilers, such as `nsys profile python train.py`.

Imports nvtx, which does nothing unless a profiler listens. PyTorch's own profiler needs none of
this: loaders of `reader.compat.torch` name their batches in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reader.integrations.counters import as_loader
from reader.integrations.libraries import missing

try:
    import nvtx
except ImportError as error:
    raise missing("nvtx", "nvtx") from error

__all__ = ["ranges"]

_END = object()


def ranges(loader: Any, domain: str = "reader") -> Iterator[Any]:
    """Yield the batches of an epoch, with a range "wait" around each wait and "step" between them.

    Args:
        loader: of this package.
        domain: of the ranges: a row in the profiler.

    Raises:
        ConfigTypeError: it is no loader of this package; at the call.
    """
    return _named(as_loader(loader, "ranges"), domain)


def _named(loader: Any, domain: str) -> Iterator[Any]:
    with nvtx.annotate("begin", domain=domain):
        batches = iter(loader)
    while True:
        with nvtx.annotate("wait", domain=domain):
            batch = next(batches, _END)
        if batch is _END:
            return
        # not on the thread's stack: a loop may be left within a step
        step = nvtx.start_range("step", domain=domain)
        try:
            yield batch
        finally:
            nvtx.end_range(step)
        del batch
