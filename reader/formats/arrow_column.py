"""One column of an Arrow table: what its values are as numbers, or as rows of bytes.

Imports NumPy and the source, and takes the arrays of Arrow apart by their buffers. An ArrowColumn
belongs to one reading of a table: it collects the categories that it meets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, ConfigTypeError, got
from reader.formats.arrow_source import ArrowSource, pyarrow
from reader.formats.arrow_types import is_binary, is_text, number_type, of_nulls

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

    The arrays of one file may have another type than those of the next, such as int32 and int64:
    each value is converted once, to the type that it is given as.

    Args:
        source: whose column it is.
        name: of the column.
        fill: the number that stands for a null, in lists, too; a string, bytes or a code; a list
            of numbers for a list that is null. None: NaN where values are given as floats, and
            elsewhere a null is refused.
        as_dtype: the NumPy type that values are given as, or "category"; None: as they are.
        categories: the values that codes mean, in the order of the codes. None: they are numbered
            as they come.
        unknown: the code of a value that is not in `categories`. None: it is refused.

    Attributes:
        kind: "numbers", rows of fixed width; or rows that differ in length: "str", "bytes", "list"
            (of numbers), or lists of these, such as "list of str" or "list of list".
        dtype: of numbers, or of those in lists.
        shape: of a row of numbers, or of an item of a list.
        categories: as the argument, or those met so far; None: there are no codes.

    Raises:
        ConfigError: it has a type, or is to have one, that arrays cannot hold.
    """

    def __init__(
        self,
        source: ArrowSource,
        name: str,
        fill: Any,
        as_dtype: Any,
        categories: Sequence[Any] | None = None,
        unknown: Any = None,
    ) -> None:
        self.name = name
        self.kind = "numbers"
        self.shape: tuple[int, ...] = ()
        self.categories: list[Any] | None = None
        self._source = source
        self._pa = pyarrow()
        self._type = source.types[name]
        self._leaf: Any = None  # the type of Arrow that numbers have, within lists, too
        self._item: Any = None  # that of a row of numbers, or of an item of a list
        self._codes: dict[Any, int] = {}
        self._is_fixed = categories is not None
        self._unknown: int | None = None
        self._dictionary: Any = None  # the last one, and the codes of its values
        self._of_dictionary = np.empty(0, _CODE)
        self._without_code = np.empty(0, bool)
        is_category = isinstance(as_dtype, str) and as_dtype == _CATEGORY
        wanted = None if as_dtype is None or is_category else self._as_dtype(as_dtype)
        if wanted is not None:
            self._type = of_nulls(self._pa, self._type, self._pa.from_numpy_dtype(wanted))
        self._is_asked = wanted is not None
        self._read = self._look(is_category or self._is_fixed, wanted)  # before a cast
        if wanted is not None and self._leaf is None:
            raise ConfigError(
                f"as_dtype of {self.name!r} is {wanted}, a type of numbers, and the column is"
                f' {self._type}: leave it out, or pass "category" for strings'
            )
        self.dtype = self._read if wanted is None else wanted
        self._fill: Any = None
        self._null_list: Numbers | None = None  # what stands for a list that is null
        if categories is not None:
            self._set_categories(categories)
        if unknown is not None:
            self._set_unknown(unknown)
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

    def pieces(self, array: Any) -> tuple[list[Numbers], Numbers, Numbers]:
        """Return rows that differ in length: their parts, where each begins, how much it has.

        The first part has the rows' bytes; of lists of what differs in length it has the int64 ends
        of their items, which point into the next part, and so on. Rows begin in bytes of the first
        part; they have so many bytes, or so many items.
        """
        kinds = self.kind.split(" of ")
        if kinds == ["list"]:
            return self._pieces_of_lists(array)
        ends, *parts = self._nested(array, kinds)
        begins, counts = ends[:-1], np.diff(ends)
        return parts, begins if len(kinds) == 1 else begins * 8, counts

    def holds(self, categories: Any) -> bool:
        """Whether a file may say that codes mean this: plain values that such a column has."""
        if self.categories is None:
            return categories is None
        if self._is_fixed:
            return bool(categories == self.categories)
        kinds = self._kinds_of_categories()
        return isinstance(categories, list) and all(type(each) in kinds for each in categories)

    def _nested(self, array: Any, kinds: list[str]) -> list[Numbers]:
        """Return the ends of rows in the part below, and the parts below."""
        pa, types = self._pa, self._pa.types
        if kinds[0] == "list":
            if types.is_null(array.type):
                array = array.cast(pa.large_list(pa.null()))
            lengths, items = self._lists(array)
            ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
            if kinds[1:]:
                inner, *parts = self._nested(items, kinds[1:])
                return [ends, inner.view(_BYTE), *parts]
            return [ends * self._width, np.ascontiguousarray(self._values(items)).view(_BYTE)]
        array = array.cast(pa.large_string() if kinds[0] == "str" else pa.large_binary())
        if array.null_count:
            if self._fill is None:
                self._refuse_nulls()
            array = array.fill_null(self._fill)
        ends = _ends_of(array)
        begin, size = int(ends[0]), int(ends[-1] - ends[0])
        content = np.empty(0, _BYTE)
        if size:
            content = np.frombuffer(array.buffers()[2], _BYTE, size, begin)
        return [ends - begin, content]

    def _lists(self, array: Any) -> tuple[Numbers, Any]:
        """Return how many items each list has, none where it is null, and all items."""
        from pyarrow import compute

        if array.null_count and self._null_list is None:
            self._refuse_nulls()
        # no cast to another kind of list: of lists of nulls Arrow's loses items
        lengths = compute.list_value_length(array).fill_null(0)
        lengths = np.array(lengths.cast(self._pa.int64()))
        return lengths, array.flatten()  # what lies under a null list is left out

    def _pieces_of_lists(self, array: Any) -> tuple[list[Numbers], Numbers, Numbers]:
        if self._pa.types.is_null(array.type):
            array = array.cast(self._pa.large_list(self._leaf))
        lengths, items = self._lists(array)
        items = self._values(items)
        begins = (np.cumsum(lengths) - lengths) * self._width
        lengths = lengths * self._width
        if array.null_count and self._null_list is not None and len(self._null_list):
            empty = _nulls(array)
            begins[empty], lengths[empty] = items.nbytes, self._null_list.nbytes
            items = np.concatenate([items, self._null_list])
        return [np.ascontiguousarray(items).view(_BYTE)], begins, lengths

    @property
    def _width(self) -> int:
        """How many bytes an item of a list of numbers has."""
        return int(self.dtype.itemsize * math.prod(self.shape))

    def _look(self, makes_codes: bool, wanted: np.dtype[Any] | None) -> np.dtype[Any]:
        """Return the type that values are read as; sets kind, shape and categories."""
        types, type_ = self._pa.types, self._type
        kinds: list[str] = []
        while True:
            self._item = type_
            self.shape, type_ = self._stored(type_)
            if is_text(types, type_) or is_binary(types, type_):
                kinds += ["list"] * len(self.shape)
                kinds.append("str" if is_text(types, type_) else "bytes")
                self.shape = ()
                break
            if not (types.is_list(type_) or types.is_large_list(type_)):
                break
            kinds += ["list"] * (len(self.shape) + 1)
            type_ = type_.value_type
        if types.is_dictionary(type_) or makes_codes:
            return self._look_at_codes(type_, bool(self.shape or kinds not in ([], ["str"])))
        self.kind = " of ".join(kinds) or "numbers"
        if kinds and kinds[-1] != "list":
            return _BYTE
        self._leaf = type_
        least = 1 if kinds else 0  # items without bytes cannot be counted
        if min(self.shape, default=least) < least:  # a file may claim anything
            raise self._refused()
        if types.is_decimal(type_):
            if wanted is None or wanted.kind != "f":
                raise ConfigError(
                    f"the column {self.name!r} of {self._source.name} is {self._type}, which NumPy"
                    f' has no type for: pass as_dtype={{{self.name!r}: "float64"}}, which rounds,'
                    " or leave the column out by columns="
                )
            return np.dtype(np.float64)
        if types.is_fixed_size_binary(type_):
            self.shape += (type_.byte_width,)
            return _BYTE
        found = number_type(types, type_)
        if found is None:
            raise self._refused()
        return found

    def _look_at_codes(self, type_: Any, is_within: bool) -> np.dtype[Any]:
        """Return the type of codes for values of a type. ConfigError: there are none for them."""
        types = self._pa.types
        is_dictionary = types.is_dictionary(type_)
        value = type_.value_type if is_dictionary else type_
        has_codes = is_text(types, value) or types.is_integer(value)
        if is_dictionary and not types.is_temporal(value):
            has_codes = has_codes or number_type(types, value) is not None
        if is_within or not has_codes:
            if is_dictionary:
                raise self._refused()
            raise ConfigError(
                f'as_dtype of {self.name!r} is "category", or categories= names it, which is for'
                f" strings and integers, and the column is {self._type}: leave it out"
            )
        self.categories = []
        return _CODE

    def _stored(self, type_: Any) -> tuple[tuple[int, ...], Any]:
        """Return the shape of lists of one length and extensions, and the type within them."""
        shape: tuple[int, ...] = ()
        tensor: tuple[int, ...] = ()
        while (is_list := self._pa.types.is_fixed_size_list(type_)) or hasattr(
            type_, "storage_type"
        ):
            if is_list:
                shape += (type_.list_size,)
                type_ = type_.value_type
            else:
                axes = getattr(type_, "permutation", None) or []
                if axes != sorted(axes):  # a tensor that does not lie in C order
                    raise self._refused()
                tensor = tuple(getattr(type_, "shape", ()))  # whose storage is one long list
                type_ = type_.storage_type
        return tensor or shape, type_

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

    def _kinds_of_categories(self) -> tuple[type, ...]:
        """Return the types of Python that categories have."""
        types, type_ = self._pa.types, self._type
        value = type_.value_type if types.is_dictionary(type_) else type_
        if is_text(types, value):
            return (str,)
        if types.is_boolean(value):
            return (bool,)
        return (int,) if types.is_integer(value) else (float,)

    def _set_categories(self, categories: Sequence[Any]) -> None:
        """Take what codes mean. ConfigError: values that the column cannot have, or one twice."""
        kinds = self._kinds_of_categories()
        for each in categories:
            value = each.item() if isinstance(each, np.generic) else each
            if type(value) not in kinds:
                nulls = ": nulls get their code by fill_null=" if value is None else ""
                raise ConfigTypeError(
                    f"categories of {self.name!r} must be values of the column, each a"
                    f" {kinds[0].__name__}, got {got(each)}{nulls}"
                )
            value = value if value == value else _NAN
            if value in self._codes:
                raise ConfigError(
                    f"categories of {self.name!r} must name each value once, got {got(each)} twice"
                )
            self._codes[value] = len(self._codes)
        self.categories = list(self._codes)

    def _set_unknown(self, unknown: Any) -> None:
        """Take the code of values that are not known. ConfigError: it is none."""
        if not self._is_fixed:
            raise ConfigError(
                f"fill_unknown names {self.name!r}, whose values all get codes as they come: say"
                " what codes mean by categories=, or leave fill_unknown out"
            )
        what = f"fill_unknown of {self.name!r} must be a code, such as -1"
        self._unknown = int(self._number_of(unknown, what))

    def _set_fill(self, fill: Any) -> None:
        """Take what stands for nulls. ConfigError: it is no value of the column."""
        what = f"fill_null of {self.name!r} must be "
        is_list = isinstance(fill, (list, tuple)) or (isinstance(fill, np.ndarray) and fill.ndim)
        outer, inner = self.kind.partition(" ")[0], self.kind.rpartition(" ")[2]
        self._null_list = np.empty(0, self.dtype)
        if is_list and outer == "list" and (outer != self.kind or self.shape):
            if len(fill):
                what += "[] for lists that are null, or what stands for nulls within them"
                raise ConfigError(f"{what}, got {got(fill)}")
            return
        if inner in ("str", "bytes"):
            self._fill = _checked_text(fill, str if inner == "str" else bytes, what)
            return
        if self.categories is not None:
            what += "a code, such as -1"
        elif outer == "list":
            what += (
                f"a number of {self.dtype}, which stands for nulls within lists, or a list of such"
                " numbers, which stands for a list that is null"
            )
        else:
            what += f"a number of {self.dtype}"
        if outer == "list" and is_list:
            self._null_list = np.array([self._number_of(each, what) for each in fill], self.dtype)
            return
        self._fill = self._number_of(fill, what)

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
        if types.is_null(array.type):
            array = self._pa.nulls(len(array), self._item)
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
        if types.is_decimal(array.type):
            return self._floats(array), empty
        if array.type != self._leaf:
            array = self._of_leaf(array)
        read = number_type(types, array.type) or _BYTE
        if types.is_boolean(array.type):
            array = array.cast(self._pa.uint8())
        size = array.type.byte_width if types.is_fixed_size_binary(array.type) else 1
        if not len(array):
            return np.empty(0, read), None
        at = array.offset * size * read.itemsize
        found = np.frombuffer(array.buffers()[1], read, len(array) * size, at)
        return found, None if empty is None else np.repeat(empty, size)

    def _of_leaf(self, array: Any) -> Any:
        """Return values of another type, in another file, such that NumPy can convert them."""
        types = self._pa.types
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if types.is_integer(array.type) or types.is_floating(array.type):
            return array
        try:
            return array.cast(self._leaf)  # times in another unit
        except self._pa.ArrowException as error:
            raise ConfigError(
                f"the column {self.name!r} of {self._source.name} is {array.type} in one file, and"
                f" cannot become {self._leaf} as in others: {error}. Write them with one schema"
            ) from error

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
        """Return the codes of values; new values get the next codes, where these are not fixed."""
        types, type_ = self._pa.types, self._type
        if types.is_null(array.type):
            array = array.cast(type_.value_type if types.is_dictionary(type_) else type_)
        if not types.is_dictionary(array.type):
            array = array.dictionary_encode()
        dictionary, indices = array.dictionary, array.indices
        if self._dictionary is None or not self._dictionary.equals(dictionary):
            self._set_dictionary(dictionary)
        places = np.asarray(indices.drop_null() if indices.null_count else indices)
        if self._without_code.any():
            refused = places[self._without_code[places]]
            if len(refused):  # a value that no row has is left alone
                self._refuse_value(dictionary[int(refused[0])].as_py())
        codes: Numbers = self._of_dictionary[places]
        if not indices.null_count:
            return codes
        if self._fill is None:
            self._refuse_nulls()
        found = np.full(len(array), self._fill, _CODE)
        found[~_nulls(indices)] = codes
        return found

    def _set_dictionary(self, dictionary: Any) -> None:
        """Find the codes of a dictionary's values."""
        codes = [self._code(value) for value in dictionary.to_pylist()]
        self._without_code = np.array([code is None for code in codes], bool)
        self._of_dictionary = np.array([code or 0 for code in codes], _CODE)
        self._dictionary = dictionary
        self.categories = list(self._codes)

    def _code(self, value: Any) -> int | None:
        """Return the code of a value; None: it has none."""
        if value is None:
            return None if self._fill is None else int(self._fill)
        if value != value:
            value = _NAN  # each of Arrow's is another key
        if self._is_fixed:
            return self._codes.get(value, self._unknown)
        return self._codes.setdefault(value, len(self._codes))

    def _refuse_value(self, value: Any) -> None:
        if value is None:
            self._refuse_nulls()
        raise ConfigError(
            f"the column {self.name!r} of {self._source.name} has {got(value)}, which is none of"
            f" its {len(self._codes):,} categories: add it to categories=, or pass fill_unknown="
            f"{{{self.name!r}: -1}} or another code"
        )

    def _cast(self, found: Numbers) -> Numbers:
        """Return values as the type that is wanted. ConfigError: it does not hold one of them."""
        if found.dtype == self.dtype:
            return found
        with np.errstate(all="ignore"):
            made = found.astype(self.dtype)
        fits = made == found
        if self.dtype.kind == "f" and (self._is_asked or found.dtype.kind == "f"):
            fits = np.isfinite(made) | ~np.isfinite(found)  # as near as it comes
        elif self.dtype.kind == "f" and found.dtype.kind in "iu":
            with np.errstate(all="ignore"):  # compared as floats, both would be rounded
                fits = made.astype(found.dtype) == found
        if self.dtype.kind in "iu" and found.dtype.kind in "iu":
            limits = np.iinfo(self.dtype)
            fits = (found >= limits.min) & (found <= limits.max)
        if not fits.all() and not self._is_asked:
            raise ConfigError(
                f"the column {self.name!r} of {self._source.name} has other types in other files,"
                f" and {self.dtype}, which is for all, does not hold {found[~fits][0]}, a value of"
                f' it: pass as_dtype={{{self.name!r}: "float64"}} or another'
            )
        if not fits.all():
            raise ConfigError(
                f"as_dtype of {self.name!r} is {self.dtype}, which does not hold"
                f" {found[~fits][0]}, a value of the column: pass a type that does"
            )
        return made

    def _refused(self) -> ConfigError:
        remedy = "leave it out by columns=, or convert it first"
        if self._pa.types.is_struct(self._type) and self._type.num_fields:
            inner = f"{self.name}.{self._type.field(0).name}"
            remedy = f"name its fields, such as {inner!r}, by columns=, or leave it out by columns="
        return ConfigError(
            f"the column {self.name!r} of {self._source.name} is {self._type}, which cannot be rows"
            f" of arrays: {remedy}"
        )

    def _refuse_nulls(self) -> None:
        own, within = self._source.null_counts(self.name)
        inner = {"str": '""', "bytes": 'b""'}.get(self.kind.rpartition(" ")[2])
        fill = "[]" if self.kind.startswith("list") else inner or "0"
        if self.categories is not None:
            fill = "-1"
        elif self.dtype == np.bool_ and self.kind == "numbers":
            fill = "False"
        elif within and inner is not None:
            fill = inner
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
