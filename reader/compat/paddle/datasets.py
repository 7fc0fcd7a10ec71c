"""The datasets of `paddle.io`: its names, rules and texts, on the classes of `reader.data`.

Imports paddle and `reader.data`. The abstract classes are Paddle's own, so that `isinstance` holds
either way; each other class is both the engine's and Paddle's class of its name. No state here.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import paddle
import paddle.io
from paddle.base import core
from paddle.io import Dataset, IterableDataset

from reader import data
from reader.compat.paddle.errors import ArgumentError
from reader.data.subset import draw_permutation, split, split_lengths
from reader.errors import ConfigError, got
from reader.frameworks.paddle_version import is_on_cpu
from reader.random.seeds import order_rng

__all__ = [
    "ChainDataset",
    "ComposeDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StaticModeError",
    "Subset",
    "TensorDataset",
    "paddle_permutation",
    "random_split",
]

T = TypeVar("T")
if TYPE_CHECKING:

    class _ConcatDataset(paddle.io.ConcatDataset[T]):
        pass

    class _Subset(paddle.io.Subset[T]):
        pass
else:  # Paddle's as they are, which take no type in 2.6
    _ConcatDataset, _Subset = {T: paddle.io.ConcatDataset}, {T: paddle.io.Subset}

MAP_STYLE = (paddle.io.Dataset, data.Dataset)
ITERABLE = (paddle.io.IterableDataset, data.IterableDataset)


class StaticModeError(ConfigError, RuntimeError):
    """Something that works only in dynamic mode was used in static mode."""


class TensorDataset(data.TensorDataset, paddle.io.TensorDataset):  # type: ignore[misc]
    """Hold tensors of equally many rows; sample i is the tuple of their rows i.

    Args:
        tensors: a list or tuple of tensors or arrays.

    Raises:
        StaticModeError: (a RuntimeError) in static mode.
        ArgumentError: (an AssertionError) the first dimensions differ.
    """

    def __init__(self, tensors: Sequence[Any]) -> None:
        if not paddle.in_dynamic_mode():
            raise StaticModeError(
                "TensorDataset con only be used in imperative mode. Call paddle.disable_static()"
                " first, or hold NumPy arrays in a reader.TensorDataset."
            )
        tensors = tensors if isinstance(tensors, (list, tuple)) else list(tensors)
        shapes = [tuple(tensor.shape) for tensor in tensors if hasattr(tensor, "shape")]
        if len({shape[:1] for shape in shapes}) > 1:
            raise ArgumentError(
                f"tensors not have same shape of the 1st dimension: got shapes {shapes}. Cut them"
                " to the same first dimension."
            )
        super().__init__(tensors)


class ComposeDataset(data.ComposeDataset, paddle.io.ComposeDataset):  # type: ignore[type-arg]
    """Join the fields of several datasets of equal length: sample i has those of all samples i.

    Args:
        datasets: instances of `Dataset`, of Paddle's or of the engine's.

    Raises:
        ArgumentError: (an AssertionError) none, no Dataset, an iterable one, unequal lengths.
    """

    # takes any number of types, as Paddle's
    __class_getitem__: Any = classmethod(types.GenericAlias)

    def __init__(self, datasets: Iterable[Any]) -> None:
        found = _one_or_more(datasets, "input datasets should not be empty")
        for position, dataset in enumerate(found):
            where = f"got {got(dataset)} at position {position}"
            if isinstance(dataset, ITERABLE):
                raise ArgumentError(
                    f"paddle.io.IterableDataset not supported: {where}. Compose map-style datasets."
                )
            if not isinstance(dataset, MAP_STYLE):
                raise ArgumentError(
                    f"each input dataset should be paddle.io.Dataset: {where}. Derive its class"
                    " from Dataset."
                )
            if position and len(dataset) != len(found[position - 1]):
                raise ArgumentError(
                    f"lengths of datasets should be same: got {len(dataset)} at position"
                    f" {position} after {len(found[position - 1])}. Cut them to the same length."
                )
        super().__init__(found)


class ChainDataset(data.ChainDataset[Any], paddle.io.ChainDataset):
    """Yield the samples of several iterable datasets, those of the first one first.

    Args:
        datasets: instances of `IterableDataset`, of Paddle's or of the engine's.

    Raises:
        ArgumentError: (an AssertionError) none, or one that is no IterableDataset.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        found = _one_or_more(datasets, "input datasets should not be empty")
        for position, dataset in enumerate(found):
            if not isinstance(dataset, ITERABLE):
                raise ArgumentError(
                    "ChainDataset only support paddle.io.IterableDataset: got"
                    f" {got(dataset)} at position {position}. Chain map-style datasets by"
                    " ConcatDataset."
                )
        super().__init__(found)


class ConcatDataset(data.ConcatDataset[T], _ConcatDataset[T]):
    """Hold the samples of several datasets, those of the first one first.

    Args:
        datasets: map-style datasets, lists included; their lengths are read now, once.

    Raises:
        ArgumentError: (an AssertionError) none, or an iterable one.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        found = _one_or_more(datasets, "datasets should not be an empty iterable")
        for position, dataset in enumerate(found):
            if isinstance(dataset, ITERABLE):
                raise ArgumentError(
                    f"ConcatDataset does not support IterableDataset: got {got(dataset)} at"
                    f" position {position}. Chain iterable datasets by ChainDataset."
                )
        super().__init__(found)


class Subset(data.Subset[T], _Subset[T]):
    """Hold the samples of a dataset that a list of indices names, in its order.

    Args:
        dataset: a map-style dataset.
        indices: a sequence of its indices.
    """

    def __init__(self, dataset: Any, indices: Any) -> None:
        self.dataset, self.indices = dataset, indices  # as Paddle, which looks at neither


def random_split(
    dataset: Any, lengths: Sequence[float], generator: Any | None = None
) -> list[Subset[Any]]:
    """Split a dataset into subsets of the given lengths, each sample in exactly one of them.

    Args:
        dataset: a map-style dataset.
        lengths: how many samples each subset gets, together all there are; or fractions that sum to
            1, rounded down, where the remaining samples go one each to the first subsets.
        generator: None draws as Paddle does, from its global generator, so that `paddle.seed`
            repeats the split. A generator of Paddle (what `paddle.seed` returns) or of NumPy: the
            split draws from that one alone. An int is a seed.

    Raises:
        ConfigError: (a ValueError) the lengths do not fit the dataset.
    """
    count = len(dataset)
    sizes = split_lengths(count, lengths)
    if generator is None:
        order = paddle_permutation(count)
    elif isinstance(generator, core.Generator):
        order = _permutation_of(count, generator)
    else:
        order = draw_permutation(count, generator)
    return split(Subset, dataset, sizes, order)


def paddle_permutation(count: int) -> list[int]:
    """Return 0 .. count - 1 in the order that `paddle.randperm` draws from the global generator.

    In static mode, where Paddle would add an operator to the program instead, one number drawn from
    the same generator seeds the order.
    """
    if paddle.in_dynamic_mode():
        drawn: Any = paddle.randperm(count)
        order: list[int] = drawn.tolist()
        return order
    return _keyed(count, core.default_cpu_generator())


def _permutation_of(count: int, generator: Any) -> list[int]:
    """Draw as `paddle.randperm` does, from `generator`; the global generator does not change."""
    framework: Any = paddle.framework
    on_cpu = is_on_cpu(framework._current_expected_place())
    if not (on_cpu and paddle.in_dynamic_mode()):
        return _keyed(count, generator)
    usual = core.default_cpu_generator()
    kept = usual.get_state()
    usual.set_state(generator.get_state())
    try:
        order = paddle_permutation(count)
        drawn = usual.get_state()
    finally:
        usual.set_state(kept)
    generator.set_state(drawn)  # last: it may be the global one itself
    return order


def _keyed(count: int, generator: Any) -> list[int]:
    seed: int = generator.random()
    order: list[int] = order_rng(seed, 0).permutation(count).tolist()
    return order


def _one_or_more(datasets: Iterable[Any], text: str) -> list[Any]:
    """Return `datasets` as a list. ArgumentError with Paddle's `text` if it is empty."""
    found = list(datasets)
    if not found:
        raise ArgumentError(f"{text}: got {got(datasets)}. Pass one dataset or more.")
    return found
