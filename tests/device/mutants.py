"""Loaders with one thing left out that a device needs: the tests must notice each.

Imports the parts of the package that it changes.
"""

from __future__ import annotations

from typing import Any

from reader.engine.copier import Copier
from reader.engine.registrar import Registrar

__all__ = ["leave_out"]


def leave_out(what: str | None, device: Any) -> None:
    """Change the package for the rest of this program.

    Args:
        what: "hold": slots are given back before their copies are done; "wait": the consumer's
            stream does not wait for the copies; "record": the allocator is not told who uses the
            tensors; "lock": slots are not page-locked; "keep": pages of locked slots are given
            back. None: nothing.
        device: the class of devices, TorchDevice or PaddleDevice.
    """
    if what is not None:
        {"hold": _hold, "wait": _wait, "record": _record, "lock": _lock, "keep": _keep}[what](
            device
        )


def _hold(device: Any) -> None:
    issue = Copier._issue

    def without(self: Copier, batch: Any) -> Any:
        made = issue(self, batch)
        made.copy.batch = None
        return made

    Copier._issue = without  # type: ignore[method-assign]


def _wait(device: Any) -> None:
    whole = device.await_in_consumer
    device.await_in_consumer = lambda self, event, tensors: whole(self, None, tensors)


def _record(device: Any) -> None:
    whole = device.await_in_consumer
    device.await_in_consumer = lambda self, event, tensors: whole(self, event, [])


def _lock(device: Any) -> None:
    Registrar.acquire = lambda self, batch: None  # type: ignore[method-assign]


def _keep(device: Any) -> None:
    lock_slot = Registrar._lock

    def lock(self: Registrar, batch: Any, address: int, locker: Any) -> bool:
        is_locked = lock_slot(self, batch, address, locker)
        if is_locked:
            self._slots[address][0].unlock()
        return is_locked

    Registrar._lock = lock  # type: ignore[method-assign]
