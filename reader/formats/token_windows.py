"""Windows of a flat file of tokens, as language models are trained on.

Imports the dataset's base class, NumPy and the shuffled orders. The file is mapped and never
copied: all workers read the same pages. A dataset that goes to another process goes as its path.
"""

from __future__ import annotations

import operator
import os
import stat
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import as_bool, as_int, described, refuse_url
from reader.data.dataset import Dataset
from reader.errors import (
    ConfigError,
    ConfigTypeError,
    DatasetError,
    SampleIndexError,
    got,
    remedy_for,
)
from reader.random.permutation import Permutation, shuffled

__all__ = ["TokenWindows"]

Tokens = npt.NDArray[Any]

_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
_NPY = b"\x93NUMPY"
# how files of other kinds begin, so many bytes that no tokens are alike by chance
_OTHERS = {
    b"\x89HDF\r\n\x1a\n": "a HDF5 file",
    b"ARROW1\0\0": "an Arrow file",
    b"MMIDIDX\0\0": "the index of a Megatron dataset, whose tokens are in the file .bin beside it",
    b"\xfd7zXZ\0": "compressed by xz",
}
_COMPRESSED = {".gz": b"\x1f\x8b\x08", ".bz2": b"BZh", ".zst": b"\x28\xb5\x2f\xfd"}


class TokenWindows(Dataset[Any]):
    """Hold windows of a flat file of tokens: sample k begins with token k * `stride`.

    A sample is an array of `length` tokens. With `targets` it is (tokens, the same moved on by one
    token); with `document_end` it is (tokens, positions, segments), and with both it is (tokens,
    positions, segments, targets). Positions count from the beginning of each document in the
    window, and segments count the documents, both from 0 and as int32: what attention within
    documents and position embeddings take where several documents are packed into one window. The
    rest of a file that fills no window is left out.

    Windows of plain tokens are gathered into the batch without Python code for each sample; others
    are made for the whole batch at once.

    Args:
        path: of a file of integers one after the other, in the byte order of the machine, or of a
            file of NumPy's (.npy) with one axis. Archives (.npz, .pt), tables and compressed files
            are refused.
        length: how many tokens a window has.
        stride: how many tokens lie between the beginnings of two windows; None: `length`.
        shuffle: give the windows in a shuffled order that is always the same for a `seed`. A loader
            with `shuffle=True` shuffles each epoch in another way, and needs none of it.
        dtype: of the tokens in the file, such as "uint32"; None: "uint16", or what .npy says.
        as_dtype: what tokens are given as, such as "int64"; None: as in the file. It holds all:
            of uint32 as int32 those below 2**31 alone come as they are.
        targets: whether each sample has the tokens that follow its tokens, too.
        document_end: the token that ends a document, and belongs to it; None: there are none.
        header: how many bytes lie before the first token.
        seed: of the shuffled order.

    Raises:
        ConfigError, ConfigTypeError: an argument that cannot be, or a file that cannot be read, is
            no file of such tokens, or has fewer than one window.

    >>> import tempfile
    >>> file = tempfile.NamedTemporaryFile()
    >>> np.arange(10, dtype=np.uint16).tofile(file.name)
    >>> windows = TokenWindows(file.name, 4, stride=3)
    >>> len(windows), windows[1].tolist()
    (3, [3, 4, 5, 6])
    >>> tokens, positions, segments = TokenWindows(file.name, 6, document_end=2)[0]
    >>> positions.tolist(), segments.tolist()
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
        header: int = 0,
        seed: int = 0,
    ) -> None:
        self.length = as_int("length", length, low=1, remedy="It is the number of tokens.")
        stride = self.length if stride is None else stride
        self.stride = as_int("stride", stride, low=1, remedy="It is the number of tokens.")
        self.path = _path(path)
        self._is_npy = self.path.endswith(".npy")
        if self._is_npy and (dtype is not None or header):
            raise ConfigError(
                f"'{self.path}' says its dtype and where its tokens begin: leave dtype and header"
                " out"
            )
        self.targets = as_bool("targets", targets)
        self._as_dtype = None if as_dtype is None else _integers("as_dtype", as_dtype)
        self._dtype = _integers("dtype", "uint16" if dtype is None else dtype)
        self._header = as_int("header", header, low=0, remedy="It is a number of bytes.")
        self._tokens = self._open()
        self._check_as_dtype()
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
        self._set_windows()

    def _open(self) -> Tokens:
        """Map the file. ConfigError: it cannot be, or holds something else."""
        try:
            self._check_kind()
            if self._is_npy:
                return self._open_npy()
            size = Path(self.path).stat().st_size
            if size < self._header:
                raise ConfigError(
                    f"'{self.path}' has {size:,} bytes, and header is {self._header:,}: pass how"
                    " many bytes lie before its first token"
                )
            size -= self._header
            if size % self._dtype.itemsize:
                raise ConfigError(
                    f"'{self.path}' has {size:,} bytes behind a header of {self._header}, which is"
                    f" no whole number of tokens of {self._dtype}: pass the file's dtype and header"
                )
            if not size:
                return np.empty(0, self._dtype)
            return np.memmap(self.path, self._dtype, "r", self._header)
        except OSError as error:
            remedy = "pass the path of a file that you may read"
            if not isinstance(error, PermissionError):  # whose usual remedy is of system calls
                remedy = remedy_for(error, remedy)
            raise ConfigError(
                f"'{self.path}' cannot be read as tokens: {error}; {remedy}"
            ) from error

    def _open_npy(self) -> Tokens:
        try:
            tokens: Tokens = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except OSError:
            raise
        except Exception as error:  # many types, of a header that is damaged
            why = str(error).rstrip(".")
            raise ConfigError(
                f"'{self.path}' holds no plain integers, or is damaged: {why}. Write tokens by"
                " numpy.save, as an array of integers"
            ) from error
        if tokens.ndim != 1 or tokens.dtype.name not in _TYPES or not tokens.dtype.isnative:
            raise ConfigError(
                f"'{self.path}' holds {tokens.shape} of {tokens.dtype.str}: tokens are one axis of"
                " integers in the byte order of the machine. Write array.ravel().astype('uint16'),"
                " or another type, by numpy.save"
            )
        return tokens

    def _check_kind(self) -> None:
        """Raise ConfigError where a file does not begin as tokens do."""
        mode = Path(self.path).stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # to open a pipe would wait
            raise ConfigError(f"'{self.path}' is no regular file: write its tokens to one")
        with Path(self.path).open("rb") as file:
            begin = file.read(16)
            kind = next((kind for each, kind in _OTHERS.items() if begin.startswith(each)), None)
            compressed = _COMPRESSED.get(Path(self.path).suffix)
            if compressed is not None and begin.startswith(compressed):
                kind = "compressed"
            elif begin.startswith(b"PAR1") and _ends_in(file, b"PAR1"):
                kind = "a Parquet file"
            elif begin.startswith(b"PK") and zipfile.is_zipfile(file):
                kind = "an archive of several arrays, as .npz and .pt files are"
        if kind is not None:
            raise ConfigError(
                f"'{self.path}' is {kind}: write the tokens alone, by numpy.save or"
                " array.tofile, and pass that file"
            )
        is_npy = begin.startswith(_NPY)
        if self._is_npy and not is_npy:
            raise ConfigError(
                f"'{self.path}' is no file of NumPy: it begins with {begin[:6]!r}, and those with"
                f" {_NPY!r}. Give a file of plain tokens another ending than .npy"
            )
        if is_npy and not self._is_npy and not self._header:
            raise ConfigError(
                f"'{self.path}' is a file of NumPy, which says its dtype and where its tokens"
                " begin: give it a name that ends in .npy"
            )

    def _set_windows(self) -> None:
        step = self._tokens.itemsize
        stride = self.stride * step if self._count > 1 else step  # which may be beyond all limits
        ones = np.asarray(self._tokens)  # no memmap: its views look up attributes

        def windows(first: int, length: int) -> Tokens:
            return np.lib.stride_tricks.as_strided(
                ones[first:], (self._count, length), (stride, step), writeable=False
            )

        self._whole = windows(0, self.length + self.targets)
        #: the arrays whose rows samples are, where nothing has to be computed
        self.arrays: tuple[Tokens, ...] = ()
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

    def __getitem__(self, index: int, /) -> Any:
        """Return the sample at `index`; a negative one counts from the end."""
        if self.arrays:
            found = tuple(array[self._row(index)] for array in self.arrays)
            return found if self.targets else found[0]
        return self._made([index])[0]

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[Any]]:
        """Fetch many samples; exists where samples are more than rows of the file."""
        # a subclass that fetches samples in a way of its own is asked for each
        if self.arrays or type(self).__getitem__ is not TokenWindows.__getitem__:
            raise AttributeError("__getitems__")
        return self._made

    def _made(self, indices: Sequence[int]) -> list[Any]:
        rows = self._whole[[self._row(index) for index in indices]]
        tokens = rows[:, : self.length]
        fields = [tokens if self._as_dtype is None else tokens.astype(self._as_dtype)]
        if self.document_end is not None:
            fields += _positions_and_segments(tokens, self.document_end)
        if self.targets:
            following = rows[:, 1:]
            fields.append(following.astype(self._as_dtype or following.dtype))  # a copy
        return list(zip(*fields)) if len(fields) > 1 else list(fields[0])

    def _row(self, index: int) -> int:
        place = operator.index(index)
        if not -self._count <= place < self._count:
            raise SampleIndexError(
                f"index {index} is outside of {self._count} windows: take one in"
                f" [{-self._count}, {self._count})"
            )
        place %= self._count
        return place if self._order is None else self._order[place]

    def _check_as_dtype(self) -> None:
        """Raise ConfigError where tokens would become other numbers."""
        found, wanted = self._tokens.dtype, self._as_dtype
        if wanted is None or np.can_cast(found, wanted):
            return
        if found.itemsize < 4 or wanted.itemsize < found.itemsize:
            raise ConfigError(
                f"as_dtype must hold every token of {found}, got {wanted}: pass a wider one"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the mapped file out: it is opened again."""
        state = dict(vars(self))
        for name in ("_tokens", "_whole", "arrays"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._tokens = self._open()
        if len(self._tokens) != self._expected:
            raise DatasetError(
                f"'{self.path}' has {len(self._tokens):,} tokens, and had {self._expected:,} when"
                " the dataset was made: leave the file as it is while it is read"
            )
        self._set_windows()


def _path(path: Any) -> str:
    refuse_url("path", path)
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


def _ends_in(file: Any, end: bytes) -> bool:
    file.seek(-len(end), os.SEEK_END)
    found: bytes = file.read()
    return found == end


def _positions_and_segments(tokens: Tokens, document_end: int) -> list[Tokens]:
    """Return where each token of each window is in its document, and the document's number."""
    begins = np.zeros(tokens.shape, np.int32)
    begins[:, 1:] = tokens[:, :-1] == document_end
    places = np.arange(tokens.shape[1], dtype=np.int32)
    first = np.maximum.accumulate(begins * places, axis=1)
    return [places - first, np.cumsum(begins, axis=1, dtype=np.int32)]


def _integers(name: str, dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (SyntaxError, TypeError, ValueError):
        found = np.dtype(object)
    if found.name not in _TYPES or not found.isnative:
        raise ConfigError(f"{name} must be one of {', '.join(_TYPES)}, got {got(dtype)}")
    return found
