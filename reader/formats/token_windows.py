"""Windows of a flat file of tokens, as language models are trained on.

Imports the dataset's base class, NumPy, how such files open, and the shuffled orders. The file is
mapped and never copied: all workers read the same pages. A dataset that goes to another process
goes as its path. Of a file in a store the windows of a batch are fetched together.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from reader.checks import as_bool, as_int, described
from reader.data.dataset import Dataset
from reader.data.wrapped import unless_overridden
from reader.errors import ConfigError, ConfigTypeError, DatasetError, SampleIndexError, got
from reader.formats.token_file import StoredTokens, Tokens, as_integers, check_as_dtype, open_tokens
from reader.random.permutation import Permutation, shuffled
from reader.stores.remote_files import files_for
from reader.stores.shard_cache import ShardCache
from reader.stores.urls import as_path_or_url

__all__ = ["TokenWindows"]


class TokenWindows(Dataset[Any]):
    """Hold windows of a flat file of tokens: sample k begins with token k * `stride`.

    A sample is an array of `length` tokens. With `targets` or `document_end` it is a dict with the
    array as "tokens": `targets` adds "targets", the same moved on by one token, and `document_end`
    "positions" and "segments". Positions count from the beginning of each document in the window,
    and segments count the documents, both from 0 and as int32: what attention within documents and
    position embeddings take where several documents are packed into one window. The rest of a file
    that fills no window is left out. `reader.PackedTokens` packs whole documents.

    Windows of plain tokens are gathered into the batch without Python code for each sample; others
    are made for the whole batch at once, and those of a file in a store fetched at once.

    Args:
        path: of a file of integers one after the other, in the byte order of the machine; of a
            file of NumPy's (.npy) with one axis; or of a shard of llm.c or modded-nanogpt, which
            says its dtype and how many tokens it has. Text, archives (.npz, .pt), records, tables
            and compressed files are refused. It may be an address, such as "s3://bucket/a.bin".
        length: how many tokens a window has.
        stride: how many tokens lie between the beginnings of two windows; None: `length`.
        shuffle: give the windows in a shuffled order that is always the same for a `seed`. A loader
            with `shuffle=True` shuffles each epoch in another way, and needs none of it.
        dtype: of the tokens in the file, such as "uint32"; None: what the file says, else "uint16".
        as_dtype: what tokens are given as, such as "int64"; None: as in the file. It holds all:
            of uint32 as int32 those below 2**31 alone come as they are.
        targets: whether each sample has the tokens that follow its tokens, too.
        document_end: the token that ends a document, and belongs to it; None: there are none.
        header: how many bytes lie before the first token; None: what the file says, else 0. With a
            number, 0 too, the file is taken as it is: not as a shard, nor as text.
        seed: of the shuffled order.
        fields: "dict", or "tuple": such a sample is (tokens, targets), (tokens, positions,
            segments), or with both (tokens, positions, segments, targets).
        cache: where bytes of a store are kept: see `reader.Shards`.
        store: options of the store's client: see `reader.Shards`.

    Raises:
        ConfigError, ConfigTypeError: an argument that cannot be, or a file that cannot be read, is
            no file of such tokens, or has fewer than one window.

    >>> import tempfile
    >>> file = tempfile.NamedTemporaryFile()
    >>> np.arange(10, dtype=np.uint16).tofile(file.name)
    >>> windows = TokenWindows(file.name, 4, stride=3)
    >>> len(windows), windows[1].tolist()
    (3, [3, 4, 5, 6])
    >>> window = TokenWindows(file.name, 6, document_end=2)[0]
    >>> window["positions"].tolist(), window["segments"].tolist()
    ([0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1])
    """

    has_pure_samples = True

    __repr__ = described

    def __init__(
        self,
        path: str | os.PathLike[str],
        length: int,
        stride: int | None = None,
        shuffle: bool = False,
        *,
        dtype: Any = None,
        as_dtype: Any = None,
        targets: bool = False,
        document_end: int | None = None,
        header: int | None = None,
        seed: int = 0,
        fields: Literal["dict", "tuple"] = "dict",
        cache: ShardCache | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> None:
        self.length = as_int("length", length, low=1, remedy="It is the number of tokens.")
        stride = self.length if stride is None else stride
        self.stride = as_int("stride", stride, low=1, remedy="It is the number of tokens.")
        self.path = _path(path)
        self.targets = as_bool("targets", targets)
        self._as_dtype = None if as_dtype is None else as_integers("as_dtype", as_dtype)
        self._dtype = None if dtype is None else as_integers("dtype", dtype)
        self._header: int | None = None
        if header is not None:
            self._header = as_int("header", header, low=0, remedy="It is a number of bytes.")
        self._files = files_for([self.path], cache, store)
        self._use = self._files.use  # see stores.fetch_stats
        self._tokens = self._open()
        check_as_dtype(self._tokens.dtype, self._as_dtype)
        self._expected = len(self._tokens)
        needed = self.length + self.targets
        if self._expected < needed:
            raise ConfigError(
                f"'{self.path}' has {self._expected:,} tokens of {self._tokens.dtype}, and a window"
                f" takes {needed:,}: pass a smaller length, or another dtype"
            )
        self._count = (self._expected - needed) // self.stride + 1
        self.document_end = document_end
        if document_end is not None:
            limits = np.iinfo(self._tokens.dtype)
            self.document_end = as_int(
                "document_end",
                document_end,
                low=int(limits.min),
                high=int(limits.max),
                remedy=f"It is a token of {self._tokens.dtype}, or None where no token ends a"
                " document.",
            )
        self._order: Permutation | None = None
        seed = as_int("seed", seed, low=0, remedy="It names the order.")
        if as_bool("shuffle", shuffle):
            self._order = shuffled(self._count, seed, 0)
        if fields not in ("dict", "tuple"):
            raise ConfigError(f"fields must be 'dict' or 'tuple', got {got(fields)}")
        self._is_dict = fields == "dict"
        self._set_windows()

    def _open(self) -> Tokens | StoredTokens:
        """Open the file. ConfigError: it cannot be, or holds something else."""
        return open_tokens(self.path, self._dtype, self._header, self._files)

    def _set_windows(self) -> None:
        #: the arrays whose rows samples are, where nothing has to be computed
        self.arrays: tuple[Tokens, ...] = ()
        if isinstance(self._tokens, StoredTokens):
            return
        step = self._tokens.itemsize
        stride = self.stride * step if self._count > 1 else step  # which may be beyond all limits
        ones = np.asarray(self._tokens)  # no memmap: its views look up attributes

        def windows(first: int, length: int) -> Tokens:
            return np.lib.stride_tricks.as_strided(
                ones[first:], (self._count, length), (stride, step), writeable=False
            )

        self._whole = windows(0, self.length + self.targets)
        if self.document_end is None and self._as_dtype is None and self._order is None:
            self.arrays = (windows(0, self.length),)
            if self.targets:
                self.arrays += (windows(1, self.length),)

    @property
    def given_dtype(self) -> np.dtype[Any]:
        """The type in which tokens are given."""
        return self._as_dtype or self._tokens.dtype

    def __len__(self) -> int:
        return self._count

    def __fingerprint__(self, samples: int | None) -> dict[str, Any]:
        """Return what a window is; see `fingerprint_of`."""
        facts = {
            "kind": "TokenWindows",
            "samples": self._count if samples is None else samples,
            "length": self.length,
            "stride": self.stride,
            "targets": self.targets,
        }
        # a window's number follows from how many there are
        return facts if self._order is None else {**facts, "shuffled": self._count}

    def __getitem__(self, index: int, /) -> Any:
        """Return the sample at `index`; a negative one counts from the end."""
        if self.arrays:
            return self._sample([array[self._row(index)] for array in self.arrays])
        return self._made([index])[0]

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[Any]]:
        """Fetch many samples; exists where samples are more than rows of the file."""
        if self.arrays:
            raise AttributeError("__getitems__")
        return unless_overridden(self, TokenWindows, self._made)

    def _made(self, indices: Sequence[int]) -> list[Any]:
        places = [self._row(index) for index in indices]
        if isinstance(self._tokens, StoredTokens):
            firsts = [place * self.stride for place in places]
            rows = self._tokens.windows(firsts, self.length + self.targets)
        else:
            rows = self._whole[places]
        tokens = rows[:, : self.length]
        fields = [tokens if self._as_dtype is None else tokens.astype(self._as_dtype)]
        if self.document_end is not None:
            fields += _positions_and_segments(tokens, self.document_end)
        if self.targets:
            following = rows[:, 1:]
            fields.append(following.astype(self._as_dtype or following.dtype))  # a copy
        return list(map(self._sample, zip(*fields)))

    def _sample(self, fields: Sequence[Any]) -> Any:
        """Return a sample of its fields, in the order of a tuple."""
        if len(fields) == 1:
            return fields[0]
        if not self._is_dict:
            return tuple(fields)
        names = ["tokens"]
        names += ["positions", "segments"] * (self.document_end is not None)
        names += ["targets"] * self.targets
        return dict(zip(names, fields))

    def _row(self, index: int) -> int:
        place = operator.index(index)
        if not -self._count <= place < self._count:
            raise SampleIndexError(
                f"index {index} is outside of {self._count} windows: take one in"
                f" [{-self._count}, {self._count})"
            )
        place %= self._count
        return place if self._order is None else self._order[place]

    def __getstate__(self) -> dict[str, Any]:
        """Leave a mapped file out: it is opened again. One in a store has to be as it was."""
        state = dict(vars(self))
        if not isinstance(self._tokens, StoredTokens):
            for name in ("_tokens", "_whole", "arrays"):
                del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if "_tokens" in state:
            return
        self._tokens = self._open()
        if len(self._tokens) != self._expected:
            raise DatasetError(
                f"'{self.path}' has {len(self._tokens):,} tokens, and had {self._expected:,} when"
                " the dataset was made: leave the file as it is while it is read"
            )
        self._set_windows()


def _path(path: Any) -> str:
    path = as_path_or_url("path", path)
    try:
        found = os.fsdecode(path)
    except TypeError:
        found = None
    if found and "\0" not in found:
        return found
    remedy = "pass such a path"
    if hasattr(path, "__array__"):
        remedy = (
            "write it by numpy.save('tokens.npy', array) and pass that path; or take windows of an"
            " array by TensorDataset([array[: n * length].reshape(n, length)])"
        )
    elif isinstance(path, (list, tuple)):
        remedy = "make TokenWindows of each file, and ConcatDataset of those"
    kind = ConfigTypeError if found is None else ConfigError
    raise kind(f"path must be the path of a file of tokens, got {got(path)}: {remedy}")


def _positions_and_segments(tokens: Tokens, document_end: int) -> list[Tokens]:
    """Return where each token of each window is in its document, and the document's number."""
    begins = np.zeros(tokens.shape, np.int32)
    begins[:, 1:] = tokens[:, :-1] == document_end
    places = np.arange(tokens.shape[1], dtype=np.int32)
    first = np.maximum.accumulate(begins * places, axis=1)
    return [places - first, np.cumsum(begins, axis=1, dtype=np.int32)]
