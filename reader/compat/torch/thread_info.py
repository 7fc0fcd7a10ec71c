"""`torch.utils.data.get_worker_info()` in worker threads, each of which has an answer of its own.

Imports torch. PyTorch keeps one answer for the whole process; from the first worker thread on, its
function looks at the calling thread first. Every other thread gets the answer that it got before.
"""

from __future__ import annotations

import threading
from typing import Any

from reader.compat.torch.inner import worker

__all__ = ["enter_thread"]


class _Local(threading.local):
    info: Any = None


_local = _Local()
_lock = threading.Lock()
_NAME = "_reader_thread_info"  # among the globals of PyTorch's function


def enter_thread(info: Any) -> None:
    """Set what `torch.utils.data.get_worker_info` answers in this thread."""
    _local.info = info
    with _lock:
        if not hasattr(worker, _NAME):
            setattr(worker, _NAME, _local)
            # the function itself: programs may have imported it by name already
            worker.get_worker_info.__code__ = _get_worker_info.__code__


def _get_worker_info() -> Any:
    # runs with the globals of PyTorch's module
    info = _reader_thread_info.info  # type: ignore[name-defined]  # noqa: F821
    return _worker_info if info is None else info  # type: ignore[name-defined]  # noqa: F821
