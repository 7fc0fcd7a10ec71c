"""Make other libraries' `get_worker_info` answer in a worker, so that streams split themselves.

Imports this package's context, and looks at libraries in `sys.modules` without importing one. A
process has one answer; each worker thread of the trainer has its own, and the trainer's other
threads get the library's own.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

from reader._core.interpreter.signals import is_interrupt
from reader.worker.context import WorkerInfo

__all__ = ["LibraryInfo", "show", "shown"]

_MODULES = ("torch.utils.data", "paddle.io")  # each has a function get_worker_info
_NAME = "_reader_info_of_thread"  # among the globals of a function that worker threads call


class LibraryInfo:
    """A worker as other libraries describe it: by their own classes of WorkerInfo.

    Args:
        worker: this package's description of it; in a face, `seed` is the library's.
    """

    def __init__(self, worker: WorkerInfo) -> None:
        self._worker = worker
        self._made: dict[Any, Any] = {}  # by class

    @property
    def is_thread(self) -> bool:
        """Whether the worker is a thread of the trainer."""
        return self._worker.rng is not None

    def made_by(self, kind: Any) -> Any:
        """Return the worker's description, an object of a library's class: always the same one."""
        if kind not in self._made:
            worker = self._worker
            facts = {
                "id": worker.id,
                "num_workers": worker.num_workers,
                "seed": worker.seed,
                "dataset": worker.dataset,
            }
            if self.is_thread:
                facts |= {"rng": worker.rng, "worker_method": "thread"}
            fields = getattr(kind, "__dataclass_fields__", facts)  # without: any
            self._made[kind] = kind(**{name: facts[name] for name in facts if name in fields})
        return self._made[kind]


class _OfThread(threading.local):
    info: LibraryInfo | None = None


_of_thread = _OfThread()
_of_process: LibraryInfo | None = None
_lock = threading.Lock()  # for threads that change a library's function
_answering: dict[str, dict[str, Any]] = {}  # by module: the globals with a process's answer
_refused: set[str] = set()  # modules whose function cannot answer; each is reported once


def shown() -> LibraryInfo | None:
    """Return the last argument of `show` in this worker."""
    return _of_thread.info or _of_process


def show(info: LibraryInfo) -> None:
    """Make the loaded libraries, and those imported later, answer with `info` in this worker.

    Warns once of a library whose internals are unknown here.
    """
    global _of_process
    if info.is_thread:
        _of_thread.info = info
    else:
        _of_thread.info = None  # not the info of a worker thread that forked this process
        _of_process = info
    for name in _MODULES:
        its = None if info.is_thread else _answering.get(name)
        if its is not None:
            its["_worker_info"] = info.made_by(its["WorkerInfo"])
        elif name in sys.modules:
            _have_answer(name, info)
        elif _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)


def _have_answer(name: str, info: LibraryInfo) -> None:
    """Make the function of a loaded module answer."""
    if name in _refused:
        return
    function = getattr(sys.modules[name], "get_worker_info", None)
    try:
        its = function.__globals__  # type: ignore[union-attr]
        made = info.made_by(its["WorkerInfo"])
        if info.is_thread:
            _ask_thread_first(function, its)
        else:
            its["_worker_info"] = made
            _answering[name] = its
        can_answer = function() is made  # type: ignore[misc]
    except Exception as error:
        if is_interrupt(error):
            raise
        can_answer = False
    if not can_answer:
        _answering.pop(name, None)
        _refused.add(name)
        warnings.warn(
            f"{name}.get_worker_info() cannot answer in the workers of this loader: this version"
            " of the library keeps its answer elsewhere. A dataset that splits itself by it yields"
            " each sample once per worker: use reader.get_worker_info() or reader.shard in it, or"
            " num_workers=0",
            RuntimeWarning,
            stacklevel=2,
        )


def _ask_thread_first(function: Any, its: dict[str, Any]) -> None:
    """Change the function itself: programs may have imported it by name already."""
    with _lock:
        if _NAME not in its:
            its["_worker_info"]  # KeyError here: threads that are no workers would get it otherwise
            its[_NAME] = _info_of_thread
            function.__code__ = _get_worker_info.__code__


def _info_of_thread(kind: Any) -> Any:
    info = _of_thread.info
    return None if info is None else info.made_by(kind)


def _get_worker_info() -> Any:
    # runs with the globals of the library's module
    info = _reader_info_of_thread(WorkerInfo)  # type: ignore[name-defined]  # noqa: F821
    return _worker_info if info is None else info  # type: ignore[name-defined]  # noqa: F821


class _Finder:
    """Makes a library answer that the worker's code imports later, as in a dataset's `__iter__`.

    In the trainer it stays in `sys.meta_path` after the first worker thread, and finds nothing.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the result of the other finders for a known library; None for other modules."""
        if name not in _MODULES:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _call_after(spec.loader, name)
                return spec
        return None


def _call_after(loader: Any, name: str) -> None:
    """Make the module's function answer when its code has run."""
    run: Callable[[Any], Any] = loader.exec_module

    def exec_module(module: Any) -> None:
        loader.exec_module = run
        run(module)
        info = shown()
        if info is not None:
            _have_answer(name, info)

    loader.exec_module = exec_module


_finder: Any = _Finder()
