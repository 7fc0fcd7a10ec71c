"""GPUs of JAX: batches are copied ahead of the loop, from page-locked slots.

Imports jax and LoDTensorArray. JAX orders its own work behind its copies, and holds the source of a
copy until it is done; an event here is a list of the target arrays. Source: jax.device_put,
jax.Array.is_ready.
"""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np

from reader._core.batch.tensor_array import LoDTensorArray
from reader.frameworks.jax import jax_devices, jax_fields
from reader.frameworks.page_locking import PageLocker, page_locker

__all__ = ["JaxDevice"]


class JaxDevice:
    """One GPU, or several over which each batch is divided; see reader.frameworks.device.Device.

    Args:
        target: a jax.Device or a jax.sharding.Sharding.
    """

    frees_in_order = True  # JAX keeps memory until all of its uses are done

    def __init__(self, target: Any) -> None:
        self._target = target
        self.locker: PageLocker | None = page_locker("gpu")

    def is_capturing(self) -> bool:
        """Return False: JAX captures no graphs."""
        return False

    def make_event(self) -> Any:
        """Return an event that `copy` can record."""
        return []

    def copy(self, batch: LoDTensorArray, event: Any, tensors: list[Any]) -> Any:
        """Issue the copies of a batch; see Device."""
        fields = jax_fields(self._target, batch)
        made = [each for each in fields if isinstance(each, jax.Array)]
        event[:] = made
        tensors.extend(made)
        return batch.place_fields(fields)

    def record(self, event: Any) -> None:
        """Record an event behind all copies so far; a device does them in order."""
        nothing = np.zeros((), np.uint8)
        event[:] = [jax.device_put(nothing, each) for each in jax_devices(self._target)]

    def is_done(self, event: Any) -> bool:
        """Whether the copies of an event are done."""
        event[:] = [each for each in event if not _is_copied(each)]
        return not event

    def wait(self, event: Any) -> None:
        """Wait in this thread until the copies of an event are done."""
        for each in event:
            with contextlib.suppress(RuntimeError):  # the array is deleted
                each.block_until_ready()
        event.clear()

    def await_in_consumer(self, event: Any | None, tensors: list[Any]) -> None:
        """Do nothing: in JAX, uses of an array wait for its copy."""


def _is_copied(array: Any) -> bool:
    """Whether an array's copy is done, or it was deleted or donated."""
    try:
        return bool(array.is_ready())
    except RuntimeError:
        return True
