"""What a packed row has: its fields, their types, and what they are padded with.

Imports NumPy and the checks of tokens' types. Nothing here changes after it is made.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reader.checks import as_bool, as_int, is_flag
from reader.errors import ConfigError, ConfigTypeError, got
from reader.formats.token_file import as_integers, check_as_dtype

__all__ = ["RowFields"]

#: fields that a row makes of its own
_MADE = ("positions", "segments", "targets", "loss_mask", "cu_seqlens", "longest")


class RowFields:
    """The fields of a packed row; see `PackedTokens` for the arguments.

    Args:
        own: the type of each field of the documents.
        fields: names of all that a row has; None: the documents' fields, positions, segments, and
            what is asked for.
        asked: whether each of the others is asked for, by name.
        as_dtype: of tokens; or a dict by field.
        pad: the value of padding of tokens; or a dict by field.
        ignore_index: the target of a place that has none.

    Attributes:
        names: of the fields of a row.
        dtypes: by field of the documents, as a row has it.
        pads: what pads each field of the documents that a row has.
    """

    def __init__(
        self,
        own: Mapping[str, np.dtype[Any]],
        fields: Any,
        asked: Mapping[str, Any],
        as_dtype: Any,
        pad: Any,
        ignore_index: Any,
    ) -> None:
        self.names = _names(own, fields, [name for name in asked if as_bool(name, asked[name])])
        self.dtypes = _dtypes(own, as_dtype)
        self.ignored = as_int(
            "ignore_index", ignore_index, low=-(1 << 63), remedy="It is a target like no token."
        )
        if "targets" in self.names:
            _check_held("ignore_index", "targets", self.ignored, self.dtypes["tokens"])
        self.pads = self._pads(pad)

    def _pads(self, pad: Any) -> dict[str, Any]:
        given = dict(pad) if isinstance(pad, Mapping) else {} if pad is None else {"tokens": pad}
        _check_names("pad", given, self.dtypes)
        usual = {"tokens": 0, "loss_mask": 0, "labels": self.ignored, **given}
        pads: dict[str, Any] = {}
        for name in [name for name in self.dtypes if name in self.names]:
            if name not in usual:
                raise ConfigError(
                    f"what pads the field {name!r}? Pass pad={{{name!r}: value}}, or leave it out"
                    " by fields="
                )
            _check_held("pad", name, usual[name], self.dtypes[name])
            pads[name] = usual[name]
        return pads

    def forms(self, length: int, ends: int) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Return dtype and shape of each field of a row of `length` tokens with so many ends."""
        number = np.dtype(np.int32)
        made: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            "positions": (number, (length,)),
            "segments": (number, (length,)),
            "targets": (self.dtypes["tokens"], (length,)),
            "loss_mask": (np.dtype(bool), (length,)),
            "cu_seqlens": (number, (ends,)),
            "longest": (number, ()),
        }
        made.update((name, (dtype, (length,))) for name, dtype in self.dtypes.items())
        return {name: made[name] for name in self.names}


def _names(own: Mapping[str, Any], fields: Any, asked: list[str]) -> tuple[str, ...]:
    for name in own:
        if name in _MADE and name != "loss_mask":
            raise ConfigError(
                f"the documents have a field {name!r}, which a row makes of its own: give it"
                " another name"
            )
    if fields is None:
        fields = [*own, "positions", "segments", *asked]
        fields += ["longest"] * ("cu_seqlens" in asked)
    elif asked:
        raise ConfigError(
            f"fields names all that a row has, and {asked[0]}=True asks for more: name it in fields"
        )
    if isinstance(fields, str) or not isinstance(fields, Sequence):
        raise ConfigTypeError(f"fields must be a list of names, got {got(fields)}")
    _check_names("fields", fields, dict.fromkeys([*own, *_MADE]))
    if not fields:
        raise ConfigError("fields must name one field at least, such as 'tokens'")
    if "loss_mask" in fields and "loss_mask" not in own and "targets" not in fields:
        raise ConfigError(
            "loss_mask says which targets count: ask for 'targets' too, or give documents with a"
            " field 'loss_mask'"
        )
    return tuple(dict.fromkeys(fields))


def _dtypes(own: Mapping[str, np.dtype[Any]], as_dtype: Any) -> dict[str, np.dtype[Any]]:
    given = as_dtype if isinstance(as_dtype, Mapping) else {"tokens": as_dtype}
    _check_names("as_dtype", given, own)
    found = dict(own)
    for name, dtype in given.items():
        if dtype is None:
            continue
        found[name] = as_integers("as_dtype", dtype)
        if own[name].kind not in "iu":
            raise ConfigError(
                f"as_dtype is for integers, and the field {name!r} has {own[name]}: leave it out"
            )
        check_as_dtype(own[name], found[name])
    return found


def _check_names(argument: str, names: Any, known: Mapping[str, Any]) -> None:
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise ConfigError(f"{argument} names {name!r}, and there are {', '.join(known)}")


def _check_held(argument: str, field: str, value: Any, dtype: np.dtype[Any]) -> None:
    """Raise ConfigError where a field does not hold the value of its padding."""
    try:
        if dtype.kind == "b":
            is_held = np.ndim(value) == 0 and value in (0, 1)
        elif dtype.kind in "iu":
            limits = np.iinfo(dtype)
            is_held = limits.min <= operator.index(value) <= limits.max and not is_flag(value)
        else:
            is_held = bool(np.can_cast(np.min_scalar_type(value), dtype)) and np.ndim(value) == 0
    except (TypeError, ValueError, OverflowError):
        is_held = False
    if not is_held:
        raise ConfigError(
            f"{argument} of the field {field!r} is {got(value)}, which {dtype} does not hold: pass"
            " another one, or as_dtype='int64'"
        )
