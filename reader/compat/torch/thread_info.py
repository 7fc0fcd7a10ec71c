"""Make `torch.utils.data.get_worker_info()` answer for each worker thread.

Imports torch. PyTorch keeps one answer for the whole process. From the first worker thread on, its
function looks at the calling thread first; other threads still get the answer of the process.
"""

from __future__ import annotations

import threading
from typing import Any

from reader.compat.torch.inner import worker

__all__ = ["set_info"]


class _Local(threading.local):
    info: Any = None


_local = _Local()
_lock = threading.Lock()
_NAME = "_reader_thread_info"  # among the globals of PyTorch's function


def set_info(info: Any) -> None:
    """Set what `torch.utils.data.get_worker_info` returns in this thread."""
    _local.info = info
    with _lock:
        if not hasattr(worker, _NAME):
            setattr(worker, _NAME, _local)
            # change the function itself: programs may have imported it by name already
            worker.get_worker_info.__code__ = _get_worker_info.__code__


def _get_worker_info() -> Any:
    # runs with the globals of PyTorch's module
    info = _reader_thread_info.info  # type: ignore[name-defined]  # noqa: F821
    return _worker_info if info is None else info  # type: ignore[name-defined]  # noqa: F821
