"""Make feeds of a static program from batches: by name or position, with declared shapes and types.

Imports LoDTensorArray and the kinds of structure nodes, not paddle. A FeedPlan belongs to one
adapter; it keeps which fields of a structure go to which inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from reader._core.batch.structure import NodeKind, Ragged, Structure
from reader._core.batch.tensor import LoDTensor
from reader._core.batch.tensor_array import LoDTensorArray
from reader.errors import CollateError, ConfigError

__all__ = ["FeedPlan"]


class _Leaf(NamedTuple):
    """A field of a batch, and its key."""

    field: int
    key: Any  # of the innermost dict around it, or None
    lod: int | None  # number of the object with its row offsets


class _Input(NamedTuple):
    """A declared input of the program; a field is None if only the name is known."""

    name: str
    shape: tuple[int, ...] | None  # -1: any length
    dtype: str | None
    lod_level: int


class FeedPlan:
    """Makes feed dicts for the inputs of a static program.

    Args:
        inputs: variables of `paddle.static.data`, or names.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._inputs = [_declared(item) for item in inputs]
        self._names = [item.name for item in self._inputs]
        self._known: dict[Structure, list[_Leaf]] = {}

    def check_count(self, batch: LoDTensorArray) -> None:
        """Refuse a batch with another number of fields than the program has inputs."""
        if len(batch) != len(self._names):
            raise ConfigError(self._miscount(len(batch)))

    def feed(
        self,
        batch: LoDTensorArray,
        dense_fields: Callable[..., list[Any]],
        bits: Container[int] = (),
    ) -> dict[str, Any]:
        """Return {name: DenseTensor} in the order of the inputs, a fresh dict each time.

        Args:
            batch: its fields are matched to the inputs by key if it consists of dicts, otherwise by
                their order.
            dense_fields: makes the DenseTensors, some with another shape or read as bits.
            bits: fields in which uint16 has the bits of bfloat16, besides those of inputs declared
                as bfloat16.

        Raises:
            ConfigError: fields and inputs differ in number, name, type or shape.
            CollateError: a field is no array.
        """
        structure = batch.structure
        leaves = None if structure is None else self._known.get(structure)
        if leaves is None:
            leaves = self._match(batch)
            if structure is not None:
                self._known[structure] = leaves
        shapes = {}
        for declared, leaf in zip(self._inputs, leaves, strict=True):
            if declared.shape is not None:
                shape = self._fit(declared, batch[leaf.field])
                if shape is not None:
                    shapes[leaf.field] = shape
        if not bits:
            bits = self._bits_of(leaves)
        dense = dense_fields(batch, shapes, bits)
        feed = {}
        for declared, leaf in zip(self._inputs, leaves, strict=True):
            tensor = dense[leaf.field]
            if isinstance(tensor, np.ndarray):
                raise ConfigError(
                    f"feed_list: input {declared.name!r} gets a field of dtype {tensor.dtype},"
                    " which paddle has no tensor for; convert it in the dataset"
                )
            if leaf.lod is not None:
                tensor.set_lod(batch.objects[leaf.lod])
            feed[declared.name] = tensor
        return feed

    def _bits_of(self, leaves: list[_Leaf]) -> list[int]:
        """Return the fields of inputs that are declared as bfloat16."""
        pairs = zip(self._inputs, leaves, strict=True)
        return [leaf.field for declared, leaf in pairs if declared.dtype == "bfloat16"]

    def _match(self, batch: LoDTensorArray) -> list[_Leaf]:
        """Find the field of each input."""
        if batch.structure is None:
            leaves = [_Leaf(place, None, None) for place in range(len(batch))]
        else:
            leaves = list(_leaves(batch.structure, None, {}))
            offsets = {leaf.lod for leaf in leaves}
            texts = batch.structure.paths()[1]
            others = [text for place, text in enumerate(texts) if place not in offsets]
            if others:
                shown = ", ".join(text or "the batch itself" for text in others)
                raise CollateError(
                    f"feed_list names {self._names}, and the batch has leaves that are no arrays"
                    f" and cannot be fed: {shown}. Leave them out in the dataset or collate_fn, or"
                    " pass return_list=True"
                )
        keys = [leaf.key for leaf in leaves]
        if None in keys and any(key is not None for key in keys):
            raise ConfigError(
                f"feed_list names {self._names}, and the batch mixes fields in dicts ({keys}) with"
                " fields in order; make it one dict, or one list"
            )
        if leaves and keys[0] is not None:
            if sorted(map(str, keys)) != sorted(self._names) or len(set(keys)) != len(keys):
                raise ConfigError(
                    f"feed_list names {sorted(self._names)} and the batch has keys"
                    f" {sorted(map(str, keys))}; make them the same: dict samples are matched to"
                    " feed_list by name"
                )
            by_name = {str(leaf.key): leaf for leaf in leaves}
            return [by_name[name] for name in self._names]
        if len(leaves) != len(self._names):
            raise ConfigError(self._miscount(len(leaves)))
        return leaves

    def _miscount(self, count: int) -> str:
        return (
            "The sample number of reader's input data and the input number of feed list are not"
            f" equal: feed_list names {len(self._names)} inputs {self._names}, and the batch has"
            f" {count} fields. Make the dataset return one field for each input, in order"
        )

    def _fit(self, declared: _Input, tensor: LoDTensor) -> tuple[int, ...] | None:
        """Refuse a tensor unlike its input; return a new shape if only the rank differs."""
        types = (tensor.dtype, declared.dtype)
        if declared.dtype not in (None, tensor.dtype) and types != ("uint16", "bfloat16"):
            convert = f".astype({declared.dtype!r})"
            if declared.dtype == "bfloat16":  # NumPy itself lacks the type
                convert = '.astype(ml_dtypes.bfloat16), or its bits as "uint16"'
            raise ConfigError(
                f"feed_list: input {declared.name!r} is declared as {declared.dtype}, and the batch"
                f" has {tensor.dtype}. Convert it in the dataset ({convert}), or declare the input"
                " so"
            )
        wanted, shape = declared.shape or (), tensor.shape
        if len(wanted) == len(shape):
            if all(want in (-1, have) for want, have in zip(wanted, shape, strict=True)):
                return None
        elif wanted.count(-1) <= 1:
            known = math.prod(want for want in wanted if want != -1)
            size = math.prod(shape)
            if (-1 in wanted and known and size % known == 0) or size == known:
                return wanted
        raise ConfigError(
            f"feed_list: input {declared.name!r} is declared with shape {list(wanted)}, and the"
            f" batch has {list(shape)}. Make the dataset return that shape, or declare the input so"
        )


def _declared(item: Any) -> _Input:
    if isinstance(item, str):
        return _Input(item, None, None, 0)
    shape = getattr(item, "shape", None)
    dtype = getattr(item, "dtype", None)
    return _Input(
        item.name,
        None if shape is None else tuple(-1 if size is None else int(size) for size in shape),
        None if dtype is None else str(dtype).rpartition(".")[2].lower(),
        int(getattr(item, "lod_level", 0) or 0),
    )


def _leaves(at: Structure, key: Any, known: dict[int, Structure]) -> Iterator[_Leaf]:
    """Yield the fields of a structure in order; `known`: complete containers by their numbers."""
    children = at.children or []
    if at.kind == NodeKind.FIELD:
        yield _Leaf(at.index, key, None)
    elif at.kind == NodeKind.CUSTOM and at.cls is Ragged:
        yield _Leaf(children[0].index, key, children[1].index)
    elif at.kind == NodeKind.DICT:
        for name, child in zip(at.keys or (), children, strict=True):
            yield from _leaves(child, name, known)
    elif at.kind == NodeKind.AGAIN:
        if at.index not in known:
            raise CollateError(
                "feed_list: a list or dict in the batch contains itself, and cannot be fed; leave"
                " it out in the dataset or collate_fn, or pass return_list=True"
            )
        yield from _leaves(known[at.index], key, known)
    else:
        for child in children:
            yield from _leaves(child, key, known)
    if children and at.index >= 0:
        known[at.index] = at
