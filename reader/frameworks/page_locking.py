"""Lock pages of the host, so that a device copies from them directly.

Imports nothing of a framework until a locker is asked for. A driver copies from registered memory
without staging; one lock serves all devices of a kind. Source: the CUDA driver's documentation of
cuMemHostRegister.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any, Protocol

from reader.errors import ConfigTypeError, got

__all__ = ["PageLocker", "page_locker", "set_page_locker"]

_PORTABLE = 1  # CU_MEMHOSTREGISTER_PORTABLE: for all contexts of the process


class PageLocker(Protocol):
    """Locks and unlocks pages of the host, by a driver."""

    def lock(self, address: int, nbytes: int) -> str | None:
        """Lock whole pages that have memory; return the error, or None.

        Clears its error in the driver, so that the next call does not report it.
        """

    def unlock(self, address: int) -> None:
        """Undo `lock`. No copy may read the pages any more."""


_lockers: dict[str, PageLocker | None] = {}


def set_page_locker(kind: str, locker: PageLocker | None) -> None:
    """Set the locker of pages for the devices of a kind, which their vendor offers.

    Args:
        kind: the name of a plug-in device, as in `places="npu:0"`.
        locker: None: copy from pages that are not locked.
    """
    if not isinstance(kind, str):
        raise ConfigTypeError(f"kind must be the name of a device, got {got(kind)}")
    _lockers[kind] = locker


def page_locker(kind: str) -> PageLocker | None:
    """Return the page locker for the devices of a kind; None: none is known."""
    if kind not in _lockers and kind == "gpu":
        _lockers[kind] = _cuda_locker()
    return _lockers.get(kind)


def _cuda_locker() -> PageLocker | None:
    driver: Any
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        driver = None
    if driver is not None:
        try:
            return DriverLocker(driver)
        except RuntimeError:
            return None
    torch = sys.modules.get("torch")
    return None if torch is None or not torch.cuda.is_available() else TorchLocker(torch)


class DriverLocker:
    """Locks pages by CUDA's driver, which does not repeat an error at a later call.

    Args:
        driver: the module cuda.bindings.driver.

    Raises:
        RuntimeError: there is no driver.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        (error,) = driver.cuInit(0)
        if int(error):
            raise RuntimeError(_named(error))
        self._context: Any = None

    def lock(self, address: int, nbytes: int) -> str | None:
        """See PageLocker."""
        return self._call(self._driver.cuMemHostRegister, address, nbytes, _PORTABLE)

    def unlock(self, address: int) -> None:
        """See PageLocker."""
        self._call(self._driver.cuMemHostUnregister, address)

    def _call(self, function: Any, *arguments: Any) -> str | None:
        driver = self._driver
        if self._context is None:
            error, self._context = driver.cuDevicePrimaryCtxRetain(0)
            if int(error):
                self._context = None
                return _named(error)
        (error,) = driver.cuCtxPushCurrent(self._context)
        if int(error):
            return _named(error)
        try:
            (error,) = function(*arguments)
            return _named(error) if int(error) else None
        finally:
            driver.cuCtxPopCurrent()


def _named(error: Any) -> str:
    """Return the name of the driver's error: older bindings print only its number."""
    return str(getattr(error, "name", error))


class TorchLocker:
    """Locks pages by the CUDA runtime of torch.

    Args:
        torch: the module.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def lock(self, address: int, nbytes: int) -> str | None:
        """See PageLocker."""
        error = self._torch.cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE)
        if not int(error):
            return None
        with contextlib.suppress(RuntimeError):  # the runtime repeats the error once: now
            self._torch.cuda.current_stream().query()
        return str(error)

    def unlock(self, address: int) -> None:
        """See PageLocker."""
        self._torch.cuda.cudart().cudaHostUnregister(address)
