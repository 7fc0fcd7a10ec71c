"""A sample as bytes: its form as JSON, and its content, part by part. No code is ever loaded.

Imports the errors; tensors and images of other libraries are handled if those are imported. Parsed
forms are kept, since most samples of a dataset have the same form.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from reader.errors import DatasetError, got
from reader.sharing.memory_file import Bytes, padded
from reader.sharing.shared_array import SharedArray

__all__ = ["UnknownForm", "decode", "encode", "is_alike", "spans"]

Form = list[Any]

_NUMBER = 8  # bytes of an int or a float
_LIMITS = np.iinfo(np.int64)
_KNOWN = (
    "A cache keeps arrays, numbers, strings, bytes and None, tensors of PyTorch and Paddle, images"
    " of Pillow (of a mode without a palette), and tuples, lists and dicts of those"
)


_DAMAGE = (
    *(ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, StopIteration),
    *(RuntimeError, MemoryError),  # RecursionError is one; torch raises one for shapes
)


class UnknownForm(Exception):
    """This process cannot read a form: it is damaged, or its library is not imported."""


def encode(sample: Any) -> tuple[bytes, list[Any]]:
    """Return the form of a sample, and its parts: objects of contiguous bytes.

    Raises:
        DatasetError: it holds something that no cache keeps.
    """
    numbers: list[bytes] = []
    parts: list[Any] = []
    try:
        form = json.dumps(_encode(sample, "sample", numbers, parts), separators=(",", ":"))
    except (RecursionError, ValueError) as error:  # it contains itself, or an int of 5,000 digits
        raise DatasetError(f"sample cannot be cached: {got(sample)}: {error}. {_KNOWN}") from error
    return form.encode(), [b"".join(numbers), *parts]


def spans(form: bytes, content: Bytes) -> list[Bytes]:
    """Return the parts of a sample, which lie one after the other, each at a multiple of 64.

    Raises:
        UnknownForm: the form is damaged.
    """
    try:
        return _parsed(form).parts(content)[1]
    except _DAMAGE as error:
        raise UnknownForm(f"{error!r}") from error


def decode(form: bytes, content: Bytes, out: Any = None, is_copy: bool = True) -> Any:
    """Return a sample.

    Args:
        form: from `encode`.
        content: its parts, as for `spans`.
        out: None, or the containers of the sample with arrays in them: an array is written into the
            one in its place if the forms agree, and the sample then has that array.
        is_copy: whether other arrays are copies of the caller's own; otherwise they are views of
            `content`.

    Raises:
        UnknownForm: the form is damaged, or the library of a tensor or image is not imported.
    """
    try:
        parsed = _parsed(form)
        numbers, parts = parsed.parts(content)
        return _decode(parsed.tree, iter(numbers), iter(parts[1:]), out, is_copy)
    except _DAMAGE as error:
        raise UnknownForm(f"{error!r}") from error


def is_alike(one: Any, other: Any) -> bool:
    """Whether two samples that `encode` accepts have the same types, shapes and lengths.

    Does not compare forms: encoding may lose a difference.
    """
    if isinstance(one, (tuple, list, dict)):
        if type(one) is not type(other) or len(one) != len(other):
            return False
        if isinstance(one, dict):
            return list(one) == list(other) and all(is_alike(one[key], other[key]) for key in one)
        return all(map(is_alike, one, other))
    return _look(one) == _look(other)


def _look(value: Any) -> tuple[Any, ...]:
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    if image is not None and isinstance(value, image):
        return image, value.mode, value.size
    kind = np.ndarray if isinstance(value, np.ndarray) else type(value)
    shape, dtype = getattr(value, "shape", ()), getattr(value, "dtype", None)
    return kind, tuple(shape), str(dtype), len(value) if isinstance(value, (str, bytes)) else 0


class _Parsed:
    """A parsed form.

    Attributes:
        tree: the form itself.
        numbers: how many bytes its numbers take; they come first.
        lengths: of each following part: its bytes, or -1: the number at `places` has them.
        places: of each part: the place of the number with its length.
    """

    def __init__(self, form: bytes) -> None:
        self.tree: Form = json.loads(form)
        self.lengths: list[int] = []
        self.places: list[int] = []
        count = 0
        for leaf in _leaves(self.tree):
            kind = leaf[0]
            if kind in _SIZED or kind in _FOUND_LENGTH:
                self.lengths.append(leaf[3] if kind in _SIZED else -1)
                self.places.append(count)
            count += kind in _COUNTED
        self.numbers = count * _NUMBER
        if any(length < -1 for length in self.lengths):
            raise ValueError("a part of less than no bytes")

    def parts(self, content: Bytes) -> tuple[list[int], list[Bytes]]:
        """Return the numbers and the parts; the first part is the bytes of the numbers."""
        head = content[: self.numbers]
        if len(head) != self.numbers:
            raise ValueError("the parts are cut off")
        numbers = head.view(np.int64).tolist() if self.numbers else []
        found, at = [head], padded(self.numbers)
        for nbytes, place in zip(self.lengths, self.places):
            if nbytes < 0:
                nbytes = numbers[place]
            if nbytes < 0 or at + nbytes > len(content):
                raise ValueError("the parts are cut off")
            found.append(content[at : at + nbytes])
            at += padded(nbytes)
        return numbers, found


_FOUND_LENGTH = ("text", "bytes")  # their length is one of the numbers
_COUNTED = ("int", "float", "bool", *_FOUND_LENGTH)
_SIZED = ("array", "scalar", "torch", "paddle", "pillow")

_parsed = functools.lru_cache(maxsize=1024)(_Parsed)


def _encode(value: Any, place: str, numbers: list[bytes], parts: list[Any]) -> Form:
    kind = type(value)
    write = _SCALARS.get(kind)
    if write is not None:
        return write(value, numbers, parts)
    if kind in (tuple, list):
        items = [
            _encode(item, f"{place}[{number}]", numbers, parts) for number, item in enumerate(value)
        ]
        return ["tuple" if kind is tuple else "list", items]
    if kind is dict:
        for key in value:
            if type(key) not in (str, int):
                raise _unknown(key, f"a key of {place}")
        items = [_encode(item, f"{place}[{key!r}]", numbers, parts) for key, item in value.items()]
        return ["dict", list(value), items]
    is_scalar = isinstance(value, np.generic) and kind is value.dtype.type
    if is_scalar or kind in (np.ndarray, np.memmap, SharedArray):
        return _encode_array(value, place, parts)
    form = _encode_foreign(value, parts)
    if form is None:
        raise _unknown(value, place)
    return form


def _encode_array(value: Any, place: str, parts: list[Any]) -> Form:
    is_plain = value.dtype.names is None and not value.dtype.hasobject and value.dtype.kind != "T"
    if not is_plain:
        raise _unknown(value, place)
    is_extended = value.dtype.kind == "V"  # types of ml_dtypes, such as bfloat16
    name = value.dtype.name if is_extended else value.dtype.str
    if is_extended and _extended(name) is None:
        raise _unknown(value, place)
    array = np.ascontiguousarray(value)
    parts.append(array.reshape(-1).view(np.uint8))
    kind = "array" if isinstance(value, np.ndarray) else "scalar"
    return [kind, name, list(value.shape), array.nbytes]


def _encode_foreign(value: Any, parts: list[Any]) -> Form | None:
    """Encode a tensor or an image; None: it is neither."""
    torch = sys.modules.get("torch")
    if torch is not None and type(value) is torch.Tensor:
        is_plain = value.layout is torch.strided and value.is_cpu and not value.requires_grad
        if not is_plain or value.is_quantized or value.is_conj() or value.is_neg():
            return None
        flat = value.contiguous().reshape(-1).view(torch.uint8).numpy()
        parts.append(flat)
        return ["torch", str(value.dtype).removeprefix("torch."), list(value.shape), flat.nbytes]
    paddle = sys.modules.get("paddle")
    if paddle is not None and type(value) is getattr(paddle, "Tensor", None):
        if not value.place.is_cpu_place() or not value.stop_gradient:
            return None
        if value.dtype == paddle.bfloat16:
            return None
        array = np.ascontiguousarray(value.numpy())  # it has at least one dimension
        parts.append(array.reshape(-1).view(np.uint8))
        return ["paddle", array.dtype.str, list(value.shape), array.nbytes]
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    if image is not None and isinstance(value, image):
        if value.mode not in _MODES:
            return None
        pixels = value.tobytes()
        parts.append(pixels)
        return ["pillow", value.mode, list(value.size), len(pixels)]
    return None


def _write_int(value: int, numbers: list[bytes], _: list[Any]) -> Form:
    if not _LIMITS.min <= value <= _LIMITS.max:
        return ["long", str(value)]
    numbers.append(value.to_bytes(_NUMBER, sys.byteorder, signed=True))
    return ["int"]


def _write_float(value: float, numbers: list[bytes], _: list[Any]) -> Form:
    numbers.append(np.float64(value).tobytes())
    return ["float"]


def _write_text(value: str, numbers: list[bytes], parts: list[Any]) -> Form:
    _write_bytes(value.encode("utf-8", "surrogatepass"), numbers, parts)
    return ["text"]


def _write_bytes(value: bytes, numbers: list[bytes], parts: list[Any]) -> Form:
    numbers.append(len(value).to_bytes(_NUMBER, sys.byteorder))
    parts.append(value)
    return ["bytes"]


def _write_bool(value: bool, numbers: list[bytes], parts: list[Any]) -> Form:
    _write_int(int(value), numbers, parts)
    return ["bool"]


def _write_none(*_: Any) -> Form:
    return ["none"]


_SCALARS: dict[type, Callable[[Any, list[bytes], list[Any]], Form]] = {
    bool: _write_bool,
    int: _write_int,
    float: _write_float,
    str: _write_text,
    bytes: _write_bytes,
    type(None): _write_none,
}
# modes of images, with the bytes of a pixel; "1" has a bit
_MODES = dict(zip(("1", "L", "LA", "I;16", "RGB", "YCbCr", "HSV", "LAB"), (0, 1, 2, 2, 3, 3, 3, 3)))
_MODES |= dict.fromkeys(("RGBA", "CMYK", "I", "F"), 4)
_MOST_EMPTY = 1 << 24  # limit of elements without bytes, which a form only counts


def _leaves(form: Form) -> Iterator[Form]:
    if form[0] in ("tuple", "list", "dict"):
        for each in form[-1]:
            yield from _leaves(each)
    else:
        yield form


def _decode(  # noqa: PLR0911  one for each form
    form: Form, numbers: Iterator[int], parts: Iterator[Bytes], out: Any, is_copy: bool
) -> Any:
    kind = form[0]
    if kind in ("tuple", "list", "dict"):
        keys = form[1] if kind == "dict" else range(len(form[1]))
        items = [
            _decode(each, numbers, parts, _inside(out, key), is_copy)
            for key, each in zip(keys, form[-1])
        ]
        if kind == "dict":
            return dict(zip(keys, items))
        return tuple(items) if kind == "tuple" else items
    if kind in ("array", "scalar", "torch", "paddle"):
        return _decode_array(form, next(parts), out, is_copy)
    if kind == "int":
        return next(numbers)
    if kind == "float":
        return float(np.int64(next(numbers)).view(np.float64))
    if kind == "bool":
        return bool(next(numbers))
    if kind == "none":
        return None
    if kind == "long":
        return int(form[1])
    if kind == "text":
        next(numbers)
        return next(parts).tobytes().decode("utf-8", "surrogatepass")
    if kind == "bytes":
        next(numbers)
        return next(parts).tobytes()
    if kind == "pillow":
        mode, (width, height), nbytes = form[1:]
        line = -(-width // 8) if mode == "1" else width * _MODES[mode]
        if nbytes != line * height:  # check before Pillow allocates the image
            raise ValueError(f"an image of {width} x {height} in {nbytes} bytes")
        return _library("PIL.Image").frombytes(mode, (width, height), next(parts).tobytes())
    raise ValueError(f"a form of the kind {kind!r}")


def _decode_array(form: Form, part: Bytes, out: Any, is_copy: bool) -> Any:
    kind, name, shape, _ = form
    if kind == "torch":
        torch = _library("torch")
        if _fits(out, torch, shape, name):
            out.view(-1).view(torch.uint8).numpy()[...] = part
            return out
        # without bytes another type cannot view it
        flat = torch.from_numpy(part.copy()) if part.size else torch.empty(0, dtype=torch.uint8)
        return flat.view(getattr(torch, name)).reshape(shape)
    dtype = _dtype(name)
    if not dtype.itemsize and math.prod(shape) > _MOST_EMPTY:
        raise ValueError(f"an array of {shape} without bytes")
    # an array of empty strings has no bytes
    array = part.view(dtype).reshape(shape) if dtype.itemsize else np.zeros(shape, dtype)
    if kind == "scalar":
        # NumPy drops NULs at the end of strings from an array
        if dtype.kind == "S" and dtype.itemsize:
            return np.bytes_(part.tobytes())
        if dtype.kind == "U" and dtype.itemsize:
            order = "utf-32-be" if dtype.byteorder == ">" else f"utf-32-{sys.byteorder[0]}e"
            return np.str_(part.tobytes().decode(order, "surrogatepass"))
        return array[()]
    if kind == "paddle":
        return _library("paddle").to_tensor(array.copy(), place="cpu")
    if isinstance(out, np.ndarray) and out.shape == array.shape and out.dtype == dtype:
        out[...] = array
        return out
    return array.copy() if is_copy else array


def _fits(out: Any, torch: Any, shape: Sequence[int], name: str) -> bool:
    return (
        type(out) is torch.Tensor
        and list(out.shape) == shape
        and str(out.dtype) == f"torch.{name}"
        and out.is_contiguous()
        and out.numel() > 0
    )


def _inside(out: Any, key: Any) -> Any:
    return None if out is None else out[key]


def _library(name: str) -> Any:
    found = sys.modules.get(name)
    if found is None:
        raise ValueError(f"{name} is not imported")
    return found


@functools.cache
def _dtype(name: str) -> np.dtype[Any]:
    if name[:1] in "<>|=":
        return np.dtype(name)
    found = _extended(name)
    if found is None:
        raise ValueError(f"an unknown type of numbers: {name}")
    return found


def _extended(name: str) -> np.dtype[Any] | None:
    try:
        import ml_dtypes
    except ImportError:
        return None
    found = getattr(ml_dtypes, name, None)
    return None if found is None else np.dtype(found)


def _unknown(value: Any, place: str) -> DatasetError:
    return DatasetError(f"{place} cannot be cached: {got(value)}. {_KNOWN}")
