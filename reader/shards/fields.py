"""What the fields of a sample become: bytes, numbers, text, arrays, images, or other values.

Imports NumPy and the images. Nothing changes after it is made; each worker has a copy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from reader.errors import ConfigError, ConfigTypeError, DatasetError, ImageError, got
from reader.images.compose import Compose
from reader.shards.formats.shard import Options, Shard
from reader.worker.context import is_refused, loader_task, sample_rng

__all__ = ["Field", "Fields"]

_MOST_TOLD = 400  # characters of an error, in a message


class Field(NamedTuple):
    """One field of the samples.

    Attributes:
        name: in the sample.
        choices: names in the shards, of which a sample has one.
        decode: makes the value; None: it is as the format gives it.
    """

    name: str
    choices: tuple[str, ...]
    decode: Callable[[Any], Any] | Compose | None


class Fields:
    """Which fields samples have, and what becomes of each.

    Args:
        fields: by name, as `Shards` takes them.

    Raises:
        ConfigError, ConfigTypeError: one cannot be.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        if not isinstance(fields, Mapping) or not fields:
            raise ConfigTypeError(
                'fields must be a dict such as {"jpg": reader.images.Compose([...]), "cls": int},'
                f" or None, got {got(fields)}"
            )
        self.all = [_field(name, decode) for name, decode in fields.items()]
        names = [field.name for field in self.all]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(
                f"two fields are called {twice!r}, the first of their names: begin one with another"
            )
        #: names in the shards, any of which a sample may have
        self.names = frozenset(name for field in self.all for name in field.choices)
        #: those of which the bytes of a file are wanted
        self.encoded = frozenset(
            name
            for field in self.all
            if isinstance(field.decode, Compose) or field.decode is _bytes
            for name in field.choices
        )
        #: those of which an array of numbers is wanted
        self.numbers = frozenset(
            name
            for field in self.all
            if isinstance(field.decode, _Numbers)
            for name in field.choices
        )
        self.is_random = any(
            isinstance(field.decode, Compose) and field.decode.is_random for field in self.all
        )

        # name and function of each, where all functions are ours, which may be called again
        are_ours = all(_is_ours(field.decode) for field in self.all)
        self._ours: list[tuple[str, Any]] = (
            [(each.name, each.decode or _as_is) for each in self.all] if are_ours else []
        )

    def wanted(self, options: Options) -> Options:
        """Return options that have a shard give these fields alone, in the form they need."""
        return options._replace(names=self.names, encoded=self.encoded, numbers=self.numbers)

    @property
    def is_pure(self) -> bool:
        """Whether a value depends only on what the shard holds and the generator."""
        return all(
            field.decode.is_pure if isinstance(field.decode, Compose) else _is_ours(field.decode)
            for field in self.all
        )

    def sample(self, found: dict[str, Any], shard: Shard, position: int, index: int) -> Any:
        """Return a sample as a dict. See `values`."""
        if self._ours:
            try:
                return {name: decode(found[name]) for name, decode in self._ours}
            except Exception:  # it has another of the names, or an error that names the field
                return self._named(found, shard, position, index)
        return self._named(found, shard, position, index)

    def _named(self, found: dict[str, Any], shard: Shard, position: int, index: int) -> Any:
        values = self.values(found, shard, position, index)
        return {field.name: value for field, value in zip(self.all, values, strict=True)}

    def values(
        self, found: dict[str, Any], shard: Shard, position: int, index: int, rows: Any = None
    ) -> list[Any]:
        """Return the values of a sample.

        Args:
            found: what the shard has of it.
            shard: that has it.
            position: in the shard.
            index: in the set, for random transforms.
            rows: None, or an array or None for each value: where an image is written if it fits.

        Raises:
            DatasetError: it lacks a field, or one cannot be decoded.
        """
        rng = None
        if self.is_random and (loader_task() is not None or is_refused()):
            rng = sample_rng(index)
        values = []
        for number, field in enumerate(self.all):
            name = next((each for each in field.choices if each in found), None)
            if name is None:
                raise DatasetError(
                    f"{_where(shard, position)} lacks the field {' or '.join(field.choices)!r}: it"
                    f" has {', '.join(shard.names(position))}"
                )
            value = found[name]
            try:
                if isinstance(field.decode, Compose):
                    row = None if rows is None else rows[number]
                    value = _image(field.decode, value, rng, row)
                elif field.decode is not None:
                    value = field.decode(value)
            except Exception as error:
                told = f"field {field.name!r} of {_where(shard, position)} cannot be decoded: "
                if isinstance(error, ImageError):
                    raise ImageError(f"{told}{error}") from error
                raise DatasetError(f"{told}{_cut(repr(error))}, of {got(value)}") from error
            values.append(value)
        return values


def _where(shard: Shard, position: int) -> str:
    """Return what names a sample, in words."""
    place, key = shard.origin(position)
    named = f" ({key})" if key else ""
    return f"sample {position:,}{named} of the shard '{shard.path}', at {place:,},"


def _cut(text: str) -> str:
    """Return a text without its middle if it is long: some errors quote all bytes of a value."""
    return (
        text
        if len(text) <= _MOST_TOLD
        else f"{text[: _MOST_TOLD // 2]}...{text[-_MOST_TOLD // 2 :]}"
    )


def _image(decode: Compose, value: Any, rng: Any, row: Any) -> Any:
    """Return the image of a file's bytes, in a row where it fits; or of what a format decoded."""
    if isinstance(value, bytes):
        return decode.render(decode.opened_file(value), rng, row)
    return decode.apply(value, rng)


def _plain(value: Any) -> Any:
    """Return a value as text where it is bytes, and the only one of a list."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value.decode() if isinstance(value, bytes) else value


def _int(value: Any) -> int:
    if type(value) is bytes and value.isdigit():  # the usual label
        return int(value)
    plain = _plain(value)
    found = int(plain)
    if isinstance(plain, (float, np.floating)) and found != plain:
        raise ValueError("it is no whole number")
    return found


def _float(value: Any) -> float:
    return float(_plain(value))


def _str(value: Any) -> str:
    plain = _plain(value)
    if plain is None or (hasattr(plain, "__len__") and not isinstance(plain, str)):
        raise TypeError("it is neither text nor one number")
    return str(plain)


def _bytes(value: Any) -> bytes:
    if isinstance(value, (str, bytes)):
        return value.encode() if isinstance(value, str) else value
    raise TypeError("it is neither bytes nor text")


def _json(value: Any) -> Any:
    plain = _plain(value)
    return json.loads(plain) if isinstance(plain, str) else plain


def _as_is(value: Any) -> Any:
    return value


_TYPES: dict[Any, Callable[[Any], Any]] = {
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    "json": _json,
}


class _Numbers:
    """Makes an array of bytes, or of numbers."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype

    def __call__(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return np.frombuffer(value, self._dtype)
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], bytes):
            return np.frombuffer(value[0], self._dtype)  # of TFRecord
        found = np.asarray(value)
        if found.dtype == self._dtype:
            return found
        if found.dtype.kind not in "biufc" or not found.size:  # None, text, or nothing at all
            return np.asarray(value, self._dtype)
        with np.errstate(all="ignore"):
            made = found.astype(self._dtype)
            # a float may become one of fewer digits, but not infinite
            is_float = made.dtype.kind in "fc"
            same = np.isfinite(made) == np.isfinite(found) if is_float else made == found
        if not same.all():
            wrong = found[~same].ravel()[0]
            raise ValueError(f"{wrong} does not fit {self._dtype}")
        return made


def _is_ours(decode: Any) -> bool:
    """Whether a value becomes what a function of this file makes of it."""
    return decode is None or decode in _TYPES.values() or isinstance(decode, _Numbers)


def _field(name: Any, decode: Any) -> Field:
    if not isinstance(name, str):
        raise ConfigTypeError(f"the name of a field must be a str, got {got(name)}")
    choices = tuple(each.strip() for each in name.split(";"))
    if isinstance(decode, Compose):
        return Field(choices[0], choices, decode)
    found = None if decode is None else _decoder(decode)
    return Field(choices[0], choices, found)


def _decoder(decode: Any) -> Callable[[Any], Any]:
    """Return the function that a type, its name, or a function means."""
    is_type = isinstance(decode, (type, str, np.dtype))
    known = _TYPES.get(decode) if is_type else None
    if known is not None:
        return known
    if callable(decode) and not (isinstance(decode, type) and issubclass(decode, np.generic)):
        function: Callable[[Any], Any] = decode
        return function
    try:
        dtype = np.dtype(decode)
    except TypeError as error:
        raise ConfigTypeError(
            "a field becomes int, float, str, bytes, 'json', a type of NumPy's numbers, a"
            f" reader.images.Compose, or what a function makes of it, got {got(decode)}"
        ) from error
    if dtype.kind in "SU":
        raise ConfigTypeError(
            f"a field becomes text or bytes by the types str and bytes, got {got(decode)}"
        )
    if dtype.hasobject:
        raise ConfigError("a field cannot become an array of objects: that would need pickle")
    return _Numbers(dtype)
