"""The exceptions of this face: Paddle's types beside the engine's and the user's own.

Imports `reader.errors` and `reader.exceptions.exception_codec`. `ArgumentError` stands where Paddle
has an `assert`; `also_as` makes an error that a program catches by its own type and by Paddle's.
The classes it makes are kept, one for each type of error.
"""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import Any

from reader.errors import ConfigError
from reader.exceptions.exception_codec import cause_of

__all__ = ["ArgumentError", "also_as"]


class ArgumentError(ConfigError, AssertionError):
    """An argument that cannot work, which Paddle refuses with AssertionError."""


def also_as(error: Exception, *kinds: type[Exception]) -> Exception:
    """Return `error` such that `except` finds it by its own type, and by each of `kinds`.

    Paddle raises a reader's error as another type, most often SystemError, and programs catch that.
    The error keeps type name, arguments, fields, notes, chain and traceback. It is returned as it
    is if its class does not allow this.
    """
    own, before = vars(type(error)).get("_also_as", (type(error), ()))
    kinds = (*before, *(kind for kind in kinds if not isinstance(error, kind)))
    if kinds == before:
        return error
    with suppress(Exception):  # of the user's class: a metaclass, a constructor, a layout
        made = _class_of(own, kinds)
        try:
            error.__class__ = made
        except TypeError:  # the classes of Python itself allow no other class in their place
            return _copied(error, made)
    return error


@functools.cache
def _class_of(own: type[Exception], kinds: tuple[type[Exception], ...]) -> type[Exception]:
    more = [kind for kind in kinds if not issubclass(own, kind)]
    bases = more if any(issubclass(kind, own) for kind in more) else [own, *more]

    def reduced(self: Any) -> Any:
        found = super(made, self).__reduce__()
        if not isinstance(found, tuple):
            return found
        call = [own if each is made else each for each in (found[0], *found[1])]
        return (_again, (kinds, *call), *found[2:])

    body = {"__slots__": (), "__reduce__": reduced, "_also_as": (own, kinds)}
    body |= {name: getattr(own, name) for name in ("__module__", "__qualname__", "__doc__")}
    made: Any = type(own.__name__, tuple(bases), body)
    return made  # type: ignore[no-any-return]


def _again(kinds: tuple[type[Exception], ...], make: Any, *args: Any) -> Exception:
    """Make a pickled error again."""
    return also_as(make(*args), *kinds)


def _copied(error: Exception, made: type[Exception]) -> Exception:
    found: Any = error.__reduce__()
    _, args, *state = found
    copied = made(*args)
    if state and state[0]:
        copied.__setstate__(state[0])
    cause_of.__set__(copied, cause_of.__get__(error))
    copied.__context__ = error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied.with_traceback(error.__traceback__)
