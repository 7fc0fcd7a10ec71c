"""One column of an Arrow table: what its values are as numbers, or as rows of bytes.

Imports NumPy and the source, and takes the arrays of Arrow apart by their buffers. An ArrowColumn
belongs to one reading of a table: it collects the categories that it meets.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, ConfigTypeError, got
from reader.formats.arrow_source import ArrowSource, pyarrow

__all__ = ["ArrowColumn"]

Numbers = npt.NDArray[Any]

_CATEGORY = "category"
_CODE = np.dtype(np.int32)
_BYTE = np.dtype(np.uint8)
_NAN = float("nan")
_EXACT = 2**53  # a float64 holds every whole number up to that
_EXACT_SCALE = 22  # and every power of ten up to that one


class ArrowColumn:
    """A column, and how its values come.

    Args:
        source: whose column it is.
        name: of the column.
        fill: the number that stands for a null, in lists, too; a string, bytes or a code; a list
            of numbers for a list that is null. None: NaN where values are given as floats, and
            elsewhere a null is refused.
        as_dtype: the NumPy type that values are given as, or "category"; None: as they are.

    Attributes:
        kind: "numbers", rows of fixed width; or "str", "bytes" or "list", whose rows differ.
        dtype: of numbers, or of the items of a list.
        shape: of a row of numbers.
        categories: the values that codes mean, in the order of the codes; None: there are no codes.

    Raises:
        ConfigError: it has a type, or is to have one, that arrays cannot hold.
    """

    def __init__(self, source: ArrowSource, name: str, fill: Any, as_dtype: Any) -> None:
        self.name = name
        self.kind = "numbers"
        self.shape: tuple[int, ...] = ()
        self.categories: list[Any] | None = None
        self._source = source
        self._pa = pyarrow()
        self._type = source.types[name]
        self._codes: dict[Any, int] = {}
        self._dictionary: Any = None  # the last one, and the codes of its values
        self._of_dictionary = np.empty(0, _CODE)
        makes_codes = isinstance(as_dtype, str) and as_dtype == _CATEGORY
        wanted = None if as_dtype is None or makes_codes else self._as_dtype(as_dtype)
        self._read = self._look(makes_codes, wanted)  # the type of values before a cast
        if wanted is not None and (self.kind in ("str", "bytes") or self.categories is not None):
            raise ConfigError(
                f"as_dtype of {self.name!r} is {wanted}, a type of numbers, and the column is"
                f' {self._type}: leave it out, or pass "category" for strings'
            )
        self.dtype = self._read if wanted is None else wanted
        self._fill: Any = None
        self._null_list: Numbers | None = None  # what stands for a list that is null
        if fill is not None:
            self._set_fill(fill)

    @property
    def is_plain(self) -> bool:
        """Whether its values may be used as they lie in the memory of Arrow, if none is null."""
        is_bits = self._read == np.bool_
        return (
            self.kind == "numbers"
            and self.categories is None
            and self._read == self.dtype
            and not (is_bits or "decimal" in str(self._type))
        )

    def numbers(self, array: Any) -> Numbers:
        """Return values as an array, a row for each. ConfigError: nulls, or numbers too large."""
        if self.categories is not None:
            return self._coded(array)
        return self._values(array).reshape(len(array), *self.shape)

    def pieces(self, array: Any) -> tuple[Numbers, Numbers, Numbers]:
        """Return rows that differ in length: the bytes, where each begins, how many it has."""
        if self.kind == "list":
            return self._pieces_of_lists(array)
        pa = self._pa
        if array.null_count:
            if self._fill is None:
                self._refuse_nulls()
            array = array.fill_null(self._fill)
        array = array.cast(pa.large_string() if self.kind == "str" else pa.large_binary())
        ends = _ends_of(array)
        begin, size = int(ends[0]), int(ends[-1] - ends[0])
        content = np.empty(0, _BYTE)
        if size:
            content = np.frombuffer(array.buffers()[2], _BYTE, size, begin)
        return content, ends[:-1] - begin, np.diff(ends)

    def _pieces_of_lists(self, array: Any) -> tuple[Numbers, Numbers, Numbers]:
        array = array.cast(self._pa.large_list(array.type.value_type))
        lengths = np.diff(_ends_of(array))
        empty = _nulls(array) if array.null_count else None
        if empty is not None:
            if self._null_list is None:
                self._refuse_nulls()
            lengths[empty] = 0
        items = self._values(array.flatten())  # what lies under a null list is left out
        begins = np.cumsum(lengths) - lengths
        if empty is not None and self._null_list is not None:
            begins[empty], lengths[empty] = len(items), len(self._null_list)
            items = np.concatenate([items, self._null_list])
        width = self.dtype.itemsize
        return np.ascontiguousarray(items).view(_BYTE), begins * width, lengths * width

    def _look(self, makes_codes: bool, wanted: np.dtype[Any] | None) -> np.dtype[Any]:
        """Return the type that values are read as; sets kind, shape and categories."""
        types, type_ = self._pa.types, self._stored()
        is_text = _is_text(types, type_)
        if types.is_dictionary(type_) or (is_text and makes_codes):
            value = type_.value_type if types.is_dictionary(type_) else type_
            is_known = _is_text(types, value) or _number(types, value) is not None
            if self.shape or not is_known or types.is_temporal(value):
                raise self._refused()
            self.categories = []
            return _CODE
        if makes_codes:
            raise ConfigError(
                f'as_dtype of {self.name!r} is "category", which is for strings, and the column is'
                f" {self._type}: leave it out"
            )
        if is_text or _is_bytes(types, type_):
            self.kind = "str" if is_text else "bytes"
        elif types.is_list(type_) or types.is_large_list(type_):
            self.kind, type_ = "list", type_.value_type
        if self.shape and self.kind != "numbers":
            raise self._refused()
        if self.kind in ("str", "bytes"):
            return _BYTE
        if types.is_decimal(type_):
            if wanted is None or wanted.kind != "f":
                raise ConfigError(
                    f"the column {self.name!r} of {self._source.name} is {self._type}, which NumPy"
                    f' has no type for: pass as_dtype={{{self.name!r}: "float64"}}, which rounds,'
                    " or leave the column out by columns="
                )
            return np.dtype(np.float64)
        if types.is_fixed_size_binary(type_) and self.kind == "numbers":
            self.shape += (type_.byte_width,)
            return _BYTE
        found = _number(types, type_)
        if found is None:
            raise self._refused()
        return found

    def _stored(self) -> Any:
        """Return the type within lists of one length and extensions; sets shape."""
        type_, tensor = self._type, ()
        while (is_list := self._pa.types.is_fixed_size_list(type_)) or hasattr(
            type_, "storage_type"
        ):
            if is_list:
                self.shape += (type_.list_size,)
                type_ = type_.value_type
            else:
                axes = getattr(type_, "permutation", None) or []
                if axes != sorted(axes):  # a tensor that does not lie in C order
                    raise self._refused()
                tensor = tuple(getattr(type_, "shape", ()))  # whose storage is one long list
                type_ = type_.storage_type
        self.shape = tensor or self.shape
        return type_

    def _as_dtype(self, as_dtype: Any) -> np.dtype[Any]:
        try:
            found: np.dtype[Any] = np.dtype(as_dtype)
        except (SyntaxError, TypeError, ValueError):
            found = np.dtype(object)
        if found.kind not in "biuf" or not found.isnative or found.itemsize > 8:
            raise ConfigError(
                f"as_dtype of {self.name!r} must be a type of numbers such as 'float32', or"
                f' "category", got {got(as_dtype)}'
            )
        return found

    def _set_fill(self, fill: Any) -> None:
        """Take what stands for nulls. ConfigError: it is no value of the column."""
        what = f"fill_null of {self.name!r} must be "
        if self.kind in ("str", "bytes"):
            self._fill = _checked_text(fill, str if self.kind == "str" else bytes, what)
            return
        is_list = isinstance(fill, (list, tuple)) or (isinstance(fill, np.ndarray) and fill.ndim)
        if self.categories is not None:
            what += "a code, such as -1"
        elif self.kind == "list":
            what += (
                f"a number of {self.dtype}, which stands for nulls within lists, or a list of such"
                " numbers, which stands for a list that is null"
            )
        else:
            what += f"a number of {self.dtype}"
        if self.kind == "list" and is_list:
            self._null_list = np.array([self._number_of(each, what) for each in fill], self.dtype)
            return
        self._fill = self._number_of(fill, what)
        self._null_list = np.empty(0, self.dtype)

    def _number_of(self, value: Any, what: str) -> int | float:
        """Return a number that the column's type holds; `what`: how a message begins."""
        number = value
        if isinstance(value, (np.generic, np.ndarray)) and not np.ndim(value):
            number = value.item()
        is_bool = isinstance(number, bool) and np.bool_ not in (self._read, self.dtype)
        if is_bool or not isinstance(number, (int, float, Decimal)):
            raise ConfigTypeError(f"{what}, got {got(value)}")
        try:
            plain = number if isinstance(number, int) else float(number)
            if self.dtype.kind == "f":
                with np.errstate(over="ignore"):
                    fits = bool(np.isinf(self.dtype.type(plain)) <= np.isinf(float(plain)))
            else:
                low, high = 0, 1
                if self.dtype.kind != "b":
                    limits = np.iinfo(self.dtype)
                    low, high = int(limits.min), int(limits.max)
                fits = low <= plain <= high and plain == int(plain)
        except (OverflowError, ValueError):
            fits = False
        if not fits:
            raise ConfigError(f"{what}, got {got(value)}")
        return plain

    def _values(self, array: Any) -> Numbers:
        """Return the numbers in a column one after the other, of the type that they are given as.

        Where nothing is to be done they are a view on Arrow's memory.
        """
        found, empty = self._plain(array)
        if empty is None:
            return self._cast(found)
        if self._fill is None and self.dtype.kind != "f":
            self._refuse_nulls()
        found = found.copy()
        found[empty] = 0  # anything may lie there, such as numbers that do not fit
        found = self._cast(found)
        found[empty] = np.nan if self._fill is None else self._fill
        return found

    def _plain(self, array: Any) -> tuple[Numbers, Numbers | None]:
        """Return the numbers in a column one after the other, and which are null; None: none."""
        empty, types = None, self._pa.types
        while True:
            if array.null_count:
                own = _nulls(array)
                empty = own if empty is None else empty | own
            if hasattr(array, "storage"):  # of an extension type
                array = array.storage
            elif types.is_fixed_size_list(array.type):
                size = array.type.list_size
                array = array.values.slice(array.offset * size, len(array) * size)
                empty = None if empty is None else np.repeat(empty, size)
            else:
                break
        if types.is_boolean(array.type):
            array = array.cast(self._pa.uint8())
        elif types.is_decimal(array.type):
            return self._floats(array), empty
        size = array.type.byte_width if types.is_fixed_size_binary(array.type) else 1
        if not len(array):
            return np.empty(0, self._read), None
        at = array.offset * size * self._read.itemsize
        found = np.frombuffer(array.buffers()[1], self._read, len(array) * size, at)
        return found, None if empty is None else np.repeat(empty, size)

    def _floats(self, array: Any) -> Numbers:
        """Return decimals as the nearest float64, which Arrow's own cast misses by a bit; nulls: 0.

        A whole number below 2**53, divided by a power of ten that a float holds, is rounded once.
        """
        scale, place = array.type.scale, array.offset
        if array.type.byte_width < 16 and scale >= 0:
            array = array.cast(self._pa.decimal128(38, scale))
            place = array.offset
        found = np.zeros(len(array), np.float64)
        rest = np.ones(len(array), bool)
        if array.type.byte_width == 16 and 0 <= scale <= _EXACT_SCALE:
            words = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * place)
            low, high = words[::2], words[1::2]
            rest = (high != low >> 63) | (low >= _EXACT) | (low <= -_EXACT)
            np.divide(low, float(10**scale), out=found, where=~rest)
        if array.null_count:
            found[_nulls(array)] = 0
            rest &= ~_nulls(array)
        if rest.any():
            found[rest] = [float(each) for each in array.filter(self._pa.array(rest)).to_pylist()]
        return found

    def _coded(self, array: Any) -> Numbers:
        """Return the codes of values; new values get the next codes."""
        if not self._pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        dictionary, indices = array.dictionary, array.indices
        if self._dictionary is None or not self._dictionary.equals(dictionary):
            self._dictionary = dictionary
            values = dictionary.to_pylist()
            if None in values and self._fill is None:
                self._refuse_nulls()
            self._of_dictionary = np.array([self._code(value) for value in values], _CODE)
            self.categories = list(self._codes)
        if not indices.null_count:
            codes: Numbers = self._of_dictionary[np.asarray(indices)]
            return codes
        if self._fill is None:
            self._refuse_nulls()
        found = np.full(len(array), self._fill, _CODE)
        found[~_nulls(indices)] = self._of_dictionary[np.asarray(indices.drop_null())]
        return found

    def _code(self, value: Any) -> int:
        if value is None:
            return int(self._fill)
        if value != value:
            value = _NAN  # each of Arrow's is another key
        return self._codes.setdefault(value, len(self._codes))

    def _cast(self, found: Numbers) -> Numbers:
        """Return values as the type that is wanted. ConfigError: it does not hold one of them."""
        if found.dtype == self.dtype:
            return found
        with np.errstate(all="ignore"):
            made = found.astype(self.dtype)
        fits = made == found
        if self.dtype.kind == "f":  # as near as it comes
            fits = np.isfinite(made) | ~np.isfinite(found)
        if self.dtype.kind in "iu" and found.dtype.kind in "iu":
            limits = np.iinfo(self.dtype)
            fits = (found >= limits.min) & (found <= limits.max)
        if not fits.all():
            raise ConfigError(
                f"as_dtype of {self.name!r} is {self.dtype}, which does not hold"
                f" {found[~fits][0]}, a value of the column: pass a type that does"
            )
        return made

    def _refused(self) -> ConfigError:
        return ConfigError(
            f"the column {self.name!r} of {self._source.name} is {self._type}, which cannot be rows"
            " of arrays: leave it out by columns=, or convert it first"
        )

    def _refuse_nulls(self) -> None:
        own, within = self._source.null_counts(self.name)
        fill = {"str": '""', "bytes": 'b""', "list": "[]"}.get(self.kind, "0")
        if self.categories is not None:
            fill = "-1"
        elif self.dtype == np.bool_ and self.kind == "numbers":
            fill = "False"
        elif within and self.dtype.kind != "f":
            fill = "False" if self.dtype == np.bool_ else "0"
        counts = []
        if own:
            counts.append(f"{own:,} null{'s' * (own != 1)}")
        if within:
            counts.append(f"{within:,} null{'s' * (within != 1)} within lists")
        has = " and ".join(counts) or "a null among its categories"
        raise ConfigError(
            f"the column {self.name!r} of {self._source.name} is {self._type} and has"
            f" {has}: pass fill_null={{{self.name!r}: {fill}}}, or another value, or leave the"
            " column out by columns="
        )


def _ends_of(array: Any) -> Numbers:
    """Return where rows that differ in length begin and end in the memory of a large array."""
    if not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)


def _checked_text(fill: Any, kind: type, what: str) -> Any:
    if not isinstance(fill, kind):
        raise ConfigTypeError(f"{what}a {kind.__name__}, got {got(fill)}")
    try:
        if isinstance(fill, str):
            fill.encode()
        return fill
    except UnicodeEncodeError as error:
        raise ConfigError(f"{what}a string that UTF-8 holds, got {got(fill)}: {error}") from error


def _nulls(array: Any) -> Numbers:
    found: Numbers = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _number(types: Any, type_: Any) -> np.dtype[Any] | None:
    """Return the type of NumPy that holds the numbers of a type of Arrow; None: none does.

    Dates, times and durations are the integers that Arrow stores, in the unit of the column.
    """
    if types.is_boolean(type_):
        return np.dtype(np.bool_)
    if types.is_integer(type_):
        return np.dtype(str(type_))
    if types.is_floating(type_):
        return np.dtype(f"float{type_.bit_width}")
    if types.is_temporal(type_) and not types.is_interval(type_):
        return np.dtype(f"int{type_.bit_width}")
    return None


def _is_text(types: Any, type_: Any) -> bool:
    is_view = str(type_) == "string_view"  # which older releases of pyarrow do not know
    return bool(types.is_string(type_) or types.is_large_string(type_) or is_view)


def _is_bytes(types: Any, type_: Any) -> bool:
    is_view = str(type_) == "binary_view"
    return bool(types.is_binary(type_) or types.is_large_binary(type_) or is_view)
