"""Ranks that end together: the choices there are, and samples that are marked as padding.

Imports the datasets and `reader.checks`. A Padded holds the whole dataset, and no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from reader._core.interpreter.own_attribute import own_attribute
from reader.checks import described, has_method, refuse_text
from reader.data.columns import reading_ahead
from reader.data.dataset import Dataset
from reader.data.wrapped import datasets_in, fetch_many, if_any_has, set_epoch_of
from reader.errors import ConfigError, ConfigTypeError, SampleIndexError, got

__all__ = ["Even", "Padded", "as_even", "check_padding", "index_limit", "share_of"]

Even = Literal["drop", "repeat", "pad"]
_EVEN = ("drop", "repeat", "pad")
_WRAPPERS = ("reader", "torch", "paddle")  # of other packages' datasets nothing is looked at


def as_even(even: Any, drop_last: bool = False, dataset: Any = None) -> Even:
    """Return the argument `even` of a sampler, checked.

    None: "drop" with `drop_last`, "pad" for a Padded, else "repeat".
    """
    if even is None:
        return "drop" if drop_last else "pad" if type(dataset) is Padded else "repeat"
    if not isinstance(even, str) or even not in _EVEN:
        kind = ConfigError if isinstance(even, str) else ConfigTypeError
        raise kind(
            f"even must be 'drop', 'repeat' or 'pad', got {got(even)}. It says how all ranks come"
            " to take equally many samples"
        )
    if drop_last and even != "drop":
        raise ConfigError(
            f"drop_last=True drops what is over, and even={even!r} does not. Pass one of them"
        )
    return even  # type: ignore[return-value]


def check_padding(dataset: Any, *samplers: Any) -> None:
    """Refuse samplers that do not fit a dataset: in what they mark as padding, or in its length.

    Args:
        dataset: of a loader.
        samplers: of it, and the one within its batch sampler; None: there is none.

    Raises:
        ConfigError: one does not fit, or a Padded is within another dataset.
    """
    marks, kind = hasattr(type(dataset), "padding_of"), type(dataset).__name__
    for each in [] if marks else datasets_in(dataset, _is_known)[1:]:
        if hasattr(type(each), "padding_of"):
            raise ConfigError(
                f"{type(each).__name__} is within {kind}, whose samples cannot say that they are"
                " padding: make it the outermost dataset, as in reader.Padded(dataset.map(f))"
            )
    for each in samplers:
        name, even = type(each).__name__, own_attribute(each, "even")
        source = own_attribute(each, "dataset", dataset)
        if even == "pad" and not marks:
            raise ConfigError(
                f"{name} with even='pad' marks samples as padding, and the samples of {kind}"
                " cannot say so: pass the loader a reader.Padded(dataset)"
            )
        count = own_attribute(each, "sample_count", len(source) if even == "pad" else None)
        if count is not None and hasattr(type(dataset), "__len__") and count != len(dataset):
            raise ConfigError(
                f"{name} was made for {count} samples, and {kind} has {len(dataset)}: its indices"
                " would name other samples, or leave some out. Make it for this dataset"
            )
        if marks and _repeats(each, even, source):
            raise ConfigError(
                f"{name} gives some ranks samples that others have too, and marks none of them:"
                f" {kind} would count these twice. Pass even='pad', or reader.DistributedSampler"
            )


def _repeats(sampler: Any, even: Any, dataset: Any) -> bool:
    """Whether a sampler gives samples twice, on ranks, and marks none of them."""
    total = own_attribute(sampler, "total_size")
    if even is None and isinstance(total, int):  # as torch's and paddle's
        return total > len(dataset)
    names = ("world_size", "num_replicas", "nranks")
    return even == "repeat" and max(int(own_attribute(sampler, name, 1)) for name in names) > 1


def _is_known(dataset: Any) -> bool:
    return type(dataset).__module__.partition(".")[0] in _WRAPPERS


def share_of(count: int, ranks: int, even: Even) -> int:
    """Return how many of `count` samples or batches each rank takes, so that all take as many."""
    return count // ranks if even == "drop" else -(-count // ranks)


class Padded(Dataset[Any]):
    """The samples of another dataset, each with a flag that says whether it counts.

    Where ranks have unequally many samples, a sampler with ``even="pad"`` gives those that lack one
    a sample that another rank has already: so all take equally many steps. Its flag is False, so
    that sums over all ranks are exact: leave such rows out of sums and counts. Pass the Padded to
    the loader and to the sampler. It is the outermost dataset: map or select before.

    The flag is the field `field` of a sample that is a dict; of any other the sample becomes the
    pair (sample, flag). A batch then has an array of bool with one value for each of its samples.

    With ``on_error="replace"`` what takes the place of a failed sample does not count, and with
    "skip" a batch of failed samples alone has one such row, so that ranks stay in step.

    ``len()`` is that of the dataset. Sample ``len(padded) + i`` is sample i as padding. A loader
    refuses samplers that mark other indices, or that repeat samples without a mark.

    Args:
        dataset: a map-style dataset with a length.
        field: the name of the flag in samples that are dicts.

    Raises:
        ConfigError, ConfigTypeError: the dataset has no length, or the name is no text. While
            fetching: a sample has a field of that name.

    >>> padded = Padded(["a", "b", "c"])
    >>> padded[2], padded[len(padded) + 0]
    (('c', True), ('a', False))
    >>> from reader import DistributedSampler
    >>> [list(DistributedSampler(padded, 2, rank, shuffle=False)) for rank in range(2)]
    [[0, 2], [1, 3]]
    """

    __repr__ = described

    def __init__(self, dataset: Any, field: str = "valid") -> None:
        refuse_text("Padded takes a dataset", dataset)
        if isinstance(dataset, type) or not (
            has_method(dataset, "__len__") and has_method(dataset, "__getitem__")
        ):
            raise ConfigTypeError(
                f"Padded takes a map-style dataset with __len__, got {got(dataset)}. The ranks of a"
                " stream end together by reader.EvenSteps(loader)"
            )
        if not isinstance(field, str) or not field:
            kind = ConfigError if isinstance(field, str) else ConfigTypeError
            raise kind(f"field must be the name of the flag in a sample, got {got(field)}")
        self.dataset = dataset
        self.field = field

    def __getitem__(self, index: int, /) -> Any:
        inner, counts = self._located(index)
        return self._flagged(self.dataset[inner], counts)

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[Any]]:
        """Fetch many samples; exists only if the dataset has the method."""
        return if_any_has("__getitems__", [self.dataset], self._fetch)

    @property
    def __read_ahead__(self) -> Callable[..., None]:
        """Read the files of a batch ahead; exists only if the dataset does."""
        return self._ahead("__read_ahead__")

    @property
    def __expect__(self) -> Callable[..., None]:
        """Take which samples come next; exists only if the dataset does."""
        return self._ahead("__expect__")

    def _ahead(self, name: str) -> Callable[..., None]:
        inner = reading_ahead(self.dataset, name)
        if inner is None:
            raise AttributeError(f"the dataset of this Padded has no {name}")
        return lambda keys, *begins: inner([self._located(key)[0] for key in keys], *begins)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the samples that count; without it Python would go on to the padding."""
        return map(self.__getitem__, range(len(self)))

    def padding_of(self, index: int) -> int:
        """Return the index of the same sample as padding."""
        return self._located(index)[0] + len(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the epoch to the dataset, if it has `set_epoch`."""
        set_epoch_of(epoch, self.dataset)

    def _fetch(self, indices: Sequence[int]) -> list[Any]:
        places = [self._located(index) for index in indices]
        samples = fetch_many(self.dataset, [inner for inner, _ in places])
        return [self._flagged(sample, place[1]) for sample, place in zip(samples, places)]

    def _located(self, index: int) -> tuple[int, bool]:
        """Return the index of a sample of the dataset, and whether it counts."""
        count = len(self.dataset)
        if not -count <= index < 2 * count:
            raise SampleIndexError(
                f"Padded has no sample {index}: it has {count}, and as many more that are padding"
            )
        return index % count, bool(index < count)

    def _flagged(self, sample: Any, counts: bool) -> Any:
        if not isinstance(sample, dict):
            return sample, counts
        if self.field in sample:
            raise ConfigError(
                f"a sample has a field {self.field!r} already: pass another name of the flag,"
                " Padded(dataset, field=)"
            )
        return {**sample, self.field: counts}


def index_limit(dataset: Any) -> int:
    """Return the number that indices of a dataset are below."""
    return 2 * len(dataset) if type(dataset) is Padded else len(dataset)
