"""The decoded rows of a table in one file that all workers map: in memory, or in a folder.

Imports NumPy and multiprocessing's way of sending a descriptor. A TableFile owns its descriptor and
never changes what the file holds; the mapping lives as long as any array on it.
"""

from __future__ import annotations

import itertools
import math
import mmap
import os
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader.errors import DatasetError, refusal
from reader.sharing.memory_file import is_sent, seal

__all__ = ["Field", "Form", "RaggedColumn", "TableFile", "memory_file", "write_at"]


class Field(NamedTuple):
    """One field of the samples, and where its values lie.

    Of "str", "bytes" and "list" a row has two int64: where in the file its bytes begin, and how
    many they are. Of a list of these, such as "list of str", it has where the ends of its items
    begin and how many items it has, and for each "of" where the bytes begin that ends count in.
    There is one end more than items: item k lies between end k and end k + 1. Plain values, which
    JSON holds.

    Attributes:
        name: of the field.
        kind: as that of an ArrowColumn.
        dtype: of the values, by name.
        shape: of a row of numbers, or of an item of a list.
        offset: of the first row in the file, in bytes.
        step: from row to row, in bytes.
        categories: what codes mean; None: there are no codes.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    step: int
    categories: list[Any] | None


class Form(NamedTuple):
    """How many rows a file has, its fields, and how many bytes it needs at least."""

    rows: int
    fields: list[Field]
    nbytes: int


class RaggedColumn:
    """A column whose rows differ in length: row k is a str, bytes, an array, or a list of these.

    What the file says is compared with its size at each row: it may lie in a folder.

    Raises:
        DatasetError: from a row that is damaged.
    """

    def __init__(self, places: npt.NDArray[Any], memory: memoryview, field: Field) -> None:
        self._places = places
        self._memory = memory
        self._size = len(memory)
        self._field = field
        self._kind = field.kind.rpartition(" of ")[2]  # of the innermost

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, row: int) -> Any:
        begin, count, *bases = self._places[row].tolist()
        return self._items(begin, count, bases) if bases else self._item(begin, count)

    def _items(self, begin: int, count: int, bases: list[int]) -> list[Any]:
        """Return so many items of a list, whose ends begin there."""
        end = begin + 8 * (count + 1)
        if not 0 <= begin < end <= self._size:
            raise self._damaged()
        ends = np.frombuffer(self._memory[begin:end], np.int64).tolist()
        base, *deeper = bases
        pairs = itertools.pairwise(ends)
        if deeper:
            return [self._items(base + 8 * first, last - first, deeper) for first, last in pairs]
        return [self._item(base + first, last - first) for first, last in pairs]

    def _item(self, begin: int, nbytes: int) -> Any:
        end = begin + nbytes
        if not 0 <= begin <= end <= self._size:
            raise self._damaged()
        content = self._memory[begin:end]
        if self._kind == "bytes":
            return bytes(content)
        try:
            if self._kind == "str":
                return bytes(content).decode()
            found = np.frombuffer(content, self._field.dtype)
            return found.reshape(-1, *self._field.shape) if self._field.shape else found
        except ValueError as error:
            raise self._damaged() from error

    def _damaged(self) -> DatasetError:
        return DatasetError(
            f"a row of the field {self._field.name!r} is damaged: what the file of the decoded"
            " table says of it cannot be. Remove the file, so that it is made again"
        )


class TableFile:
    """A file that holds the rows of a table.

    It goes to a process that multiprocessing starts as its descriptor, which this process keeps
    open. Pickled otherwise it is made again by `remake`, or goes with all it holds where that is
    None.

    Args:
        fd: of the file, which this object owns from now on.
        form: what lies in it.
        remake: a function and its arguments, which returns such a file again.
    """

    def __init__(
        self, fd: int, form: Form, remake: tuple[Callable[..., TableFile], tuple[Any, ...]] | None
    ) -> None:
        self._fd = fd
        self.form = form
        self._remake = remake
        # what nobody writes is shared among processes
        self._memory = mmap.mmap(fd, form.nbytes, mmap.MAP_PRIVATE, mmap.PROT_READ)

    def __del__(self) -> None:
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    def columns(self) -> list[Any]:
        """Return what holds the rows of each field: an array, or a RaggedColumn."""
        return [self._column(field) for field in self.form.fields]

    def _column(self, field: Field) -> Any:
        is_ragged = field.kind != "numbers"
        dtype = np.dtype(np.int64 if is_ragged else field.dtype)
        shape = (2 + field.kind.count(" of "),) if is_ragged else field.shape
        steps = [dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        found: npt.NDArray[Any] = np.ndarray(
            (self.form.rows, *shape), dtype, self._memory, field.offset, (field.step, *steps)
        )
        return RaggedColumn(found, memoryview(self._memory), field) if is_ragged else found

    def __reduce__(self) -> tuple[Any, ...]:
        if is_sent():
            return _received, (reduction.DupFd(self._fd), self.form)
        if self._remake is not None:
            return _made_again, (self._remake, self.form)
        return _unpacked, (self._memory[:], self.form)

    def __copy__(self) -> TableFile:
        return self  # nobody changes it

    def __deepcopy__(self, memo: dict[int, Any]) -> TableFile:
        return self


def memory_file() -> int:
    """Return the descriptor of a new memory file. ReaderError: the system refuses one."""
    try:
        return os.memfd_create("reader-table", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise refusal("a memory file for a table", "cannot be made", error) from error


def write_at(fd: int, content: Any, place: int) -> None:
    """Write all bytes of a buffer at a place of a file."""
    view = memoryview(content)
    while view:
        written = os.pwrite(fd, view[: 1 << 30], place)
        view, place = view[written:], place + written


def _received(duplicate: Any, form: Form) -> TableFile:
    return TableFile(duplicate.detach(), form, None)


def _made_again(remake: tuple[Callable[..., TableFile], tuple[Any, ...]], form: Form) -> TableFile:
    make, arguments = remake
    made = make(*arguments)
    if made.form != form:
        raise DatasetError(
            f"the table has {made.form.rows:,} rows, and had {form.rows:,} when the dataset was"
            " made, or its columns have changed: leave its files as they are while they are read"
        )
    return made


def _unpacked(content: bytes, form: Form) -> TableFile:
    fd = memory_file()
    try:
        write_at(fd, content, 0)
        seal(fd)
    except OSError as error:
        os.close(fd)
        raise refusal("a pickled table", "cannot be written to memory", error) from error
    except BaseException:
        os.close(fd)
        raise
    return TableFile(fd, form, None)
