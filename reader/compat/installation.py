"""An installation: a library's loader class makes loaders of ours wherever a program names it.

Imports the standard library alone. Each face that has one owns it; it belongs to the process, and
what it changed of the library's class is put back by `uninstall`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
import warnings
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["Installation"]

# subclass of a library's class -> the class of ours that stands for it
_known: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()


class Installation:
    """Has a library's class, and the subclasses that others made of it, make loaders of ours.

    The class stays the library's own: whoever imported it, by whatever name and however early, is
    served, and `isinstance` answers as before. A loader that is made while this is installed
    becomes one of ours when the library's `__init__` is called; loaders made before or after it
    are left alone.

    Args:
        peer: the library's class.
        own: ours, a subclass of it.
    """

    def __init__(self, peer: Any, own: Any) -> None:
        self._peer = peer
        self._own = own
        self._lock = threading.Lock()
        self._init: Any = None  # the peer's own `__init__`; None when not installed

    def install(self) -> AbstractContextManager[None]:
        """Have the library's class make loaders of ours. Idempotent.

        Returns a context that uninstalls on leaving, unless it was installed before.
        """
        with self._lock:
            if self._init is not None:
                return contextlib.nullcontext()
            self._init = self._peer.__init__
            self._peer.__init__ = self._serving(self._init)
        return self._until_left()

    @contextlib.contextmanager
    def _until_left(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.uninstall()

    def uninstall(self) -> None:
        """Put back what the library's class had. Idempotent; loaders of ours stay ours."""
        with self._lock:
            init, self._init = self._init, None
            if init is not None:
                self._peer.__init__ = init

    def _serving(self, init: Any) -> Any:
        @functools.wraps(init)
        def serve(loader: Any, *args: Any, **kwargs: Any) -> None:
            if _becomes(loader, self._peer, self._own):
                self._own.__init__(loader, *args, **kwargs)
            else:
                init(loader, *args, **kwargs)

        serve.is_of_reader = True  # type: ignore[attr-defined]
        return serve


def _becomes(loader: Any, peer: Any, own: Any) -> bool:
    """Make a loader of the library one of ours; False: it is one already, or cannot be one."""
    kind = type(loader)
    if issubclass(kind, own):
        return False
    try:
        object.__setattr__(loader, "__class__", own if kind is peer else _derived(kind, own))
    except TypeError as error:
        warnings.warn(
            f"{kind.__module__}.{kind.__qualname__} is not served by reader and keeps the engine of"
            f" its library: {error}",
            stacklevel=3,
        )
        return False
    return True


def _derived(kind: Any, own: Any) -> Any:
    """Return a class with the methods of `kind` before those of `own`. TypeError: there is none."""
    known = _known.get(kind)
    found = None if known is None else known()
    if found is not None:
        return found

    def body(names: dict[str, Any]) -> None:
        names.update(__module__=kind.__module__, __doc__=kind.__doc__)
        names["__qualname__"] = kind.__qualname__
        if kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__:
            # pickle finds `kind` by that name, and not this class
            names["__reduce_ex__"] = lambda loader, _: (
                _made_again,
                (kind, own),
                loader.__getstate__(),
            )

    made = types.new_class(kind.__name__, (kind, own), exec_body=body)
    _known[kind] = weakref.ref(made)
    return made


def _made_again(kind: Any, own: Any) -> Any:
    """Return an empty loader for what was pickled or copied, installed or not."""
    return object.__new__(_derived(kind, own))
