"""Cut a stream of arrays into batches of a fixed number of rows: `rebatch` and its iterator.

Imports the structure of batches from `reader._core`, NumPy, and the stream wrapper. A
RebatchIterator belongs to one worker and holds pieces whose rows it has not yielded yet.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from reader._core.batch.structure import Structure, flatten
from reader._core.batch.tensor import LoDTensor
from reader.checks import as_bool, as_int
from reader.errors import CollateError, StateError, got, shown
from reader.streams.stream_wrapper import StreamWrapper, WrapperIterator, as_stream, read_state

__all__ = ["RebatchedStream", "rebatch"]

_Array = np.ndarray[Any, Any]


def rebatch(stream: Any, size: int, drop_last: bool = False) -> RebatchedStream:
    """Join and split the pieces of a stream so that each has exactly `size` rows.

    A piece is an array, or a dict, tuple, list or other container of arrays with the same number of
    rows: a file of 1000 rows, or one row. Rows are counted along the first dimension, and keep
    their order. Batches have the containers of the pieces, with NumPy arrays in place of tensors. A
    batch with rows of only one piece is a view of it, so a piece must not change after it was
    yielded. Pass `batch_size=None` to the loader: these are its batches.

    Each worker cuts its own share. If the stream, or its iterator, has a state, a resumed loader
    continues from the state before the last pieces and draws those again: at most the pieces of two
    batches. Otherwise it draws all pieces of the epoch again.

    Args:
        stream: an iterable dataset, or any other object with a fresh iterator for each epoch. What
            is no stream, such as a list, is divided among the workers of a loader.
        size: rows of a batch, 1 or more.
        drop_last: leave out the last batch of each worker when it is short.

    Raises:
        ConfigError: at once, for an invalid argument.
        CollateError: in the loop, for a piece that does not fit those before it; it is left out.

    >>> import numpy as np
    >>> [rows.tolist() for rows in rebatch([np.arange(5), np.arange(5, 7)], 3)]
    [[0, 1, 2], [3, 4, 5], [6]]
    """
    size = as_int("size", size, low=1, remedy="It is how many rows a batch has.")
    return RebatchedStream(as_stream("rebatch", stream), size, as_bool("drop_last", drop_last))


class RebatchedStream(StreamWrapper):
    """Yield the rows of a stream's pieces, `size` at a time; see `rebatch`."""

    def __init__(self, stream: Any, size: int, drop_last: bool) -> None:
        super().__init__([stream])
        self.size = size
        self.drop_last = drop_last

    def __iter__(self) -> RebatchIterator:
        return RebatchIterator(self)


class RebatchIterator(WrapperIterator):
    """Draws pieces until they have enough rows, and cuts a batch from them.

    Between two batches it holds at most the last piece: to resume, the pieces since the batch
    before the last are drawn again.
    """

    def __init__(self, stream: RebatchedStream) -> None:
        super().__init__(stream.datasets)
        self._size = stream.size
        self._drop_last = stream.drop_last
        self._held = _Held([], 0, 0, 0, 0, 0, [])
        self._drawn: tuple[int, list[Any]] = (0, [])  # the number of a piece, and the piece
        self._form: _Form | None = None  # of the previous piece

    def __next__(self) -> Any:
        (source,) = self.sources
        while self._held.rows < self._size:
            source.checkpoint(self._held.draws_before)
            drawn = self._next_piece()
            if not source.draw(drawn, 1):
                break
            self._hold(drawn[0])
        held = self._held
        rows = min(held.rows, self._size)
        if self._form is None or not rows or (rows < self._size and self._drop_last):
            raise StopIteration
        parts, number, used = _cut(held, rows)
        fields = [part[0] if len(part) == 1 else np.concatenate(part) for part in zip(*parts)]
        batch = self._form.structure.restore(fields)
        older = source.older_checkpoint()
        self._held = _Held(
            held.pieces[number : held.kept],
            held.kept - number,
            used,
            held.rows - rows,
            held.draws,
            draws_before=held.draws,
            unfit=[] if older is None else [each for each in held.unfit if each >= older["key"]],
        )
        return batch

    def _next_piece(self) -> list[Any]:
        """Return the list for the next piece; it has the piece if that was drawn already."""
        if self._drawn[0] != self._held.draws:
            self._drawn = (self._held.draws, [])
        return self._drawn[1]

    def _hold(self, piece: Any) -> None:
        """Hold a piece that was drawn. CollateError: it does not fit, and is left out."""
        held = self._held
        draws = held.draws + 1
        try:
            fields, form = _taken_apart(piece, held.draws, self._form)
        except CollateError:
            self._held = held._replace(draws=draws, unfit=[*held.unfit, held.draws])
            raise
        self._form = form
        del held.pieces[held.kept :]  # left by an interrupt
        held.pieces.append(fields)
        rows = held.rows + len(fields[0])
        self._held = held._replace(kept=held.kept + 1, rows=rows, draws=draws)
        self._drawn = (draws, [])

    def _save(self) -> dict[str, Any]:
        held = self._held
        return {
            "draws": held.draws,
            "draws_before": held.draws_before,
            "pieces": held.kept,
            "used": held.used,
            "unfit": list(held.unfit),
            "checkpoint": self.sources[0].older_checkpoint(),
        }

    def _load(self, state: dict[str, Any]) -> None:
        draws, before, count, used, unfit = read_state(
            state, draws=int, draws_before=int, pieces=int, used=int, unfit=list
        )
        if state.get("checkpoint") is None:
            return  # nothing was drawn
        (source,) = self.sources
        first, errors = source.go_back(state["checkpoint"])
        self._held = self._held._replace(draws=first)
        while self._held.draws < draws:
            if self._held.draws == before:
                source.checkpoint(before)
            drawn = self._next_piece()
            source.draw_again(drawn, 1, errors)
            if self._held.draws in unfit:  # already refused because of pieces before the checkpoint
                self._held = self._held._replace(draws=self._held.draws + 1)
            else:
                self._hold(drawn[0])
        source.pass_errors(self._next_piece(), errors)
        found = self._held.pieces
        pieces = found[max(0, len(found) - count) :]
        rows = sum(len(fields[0]) for fields in pieces)
        if len(pieces) != count or used > rows:
            raise StateError(
                f"the state needs {count} pieces with at least {used} rows, and the dataset yields"
                f" {len(pieces)} with {rows} rows. Load a state that was saved with the same"
                " dataset."
            )
        self._held = _Held(pieces, count, used, rows - used, draws, before, list(unfit))


class _Held(NamedTuple):
    """The pieces that a RebatchIterator holds."""

    pieces: list[list[_Array]]  # the fields of each
    kept: int  # how many pieces are held
    used: int  # yielded rows of the first piece
    rows: int  # rows of all pieces that were not yielded
    draws: int  # pieces drawn so far, those that did not fit included
    draws_before: int  # the same before the last batch was yielded
    unfit: list[int]  # numbers of pieces that did not fit, since the older checkpoint


def _cut(held: _Held, rows: int) -> tuple[list[list[_Array]], int, int]:
    """Return the next rows, how many pieces they use up, and how many rows of the piece after."""
    parts, number, used = [], 0, held.used
    while rows:
        fields = held.pieces[number]
        stop = min(len(fields[0]), used + rows)
        if stop > used:
            parts.append([field[used:stop] for field in fields])
        rows -= stop - used
        number, used = (number + 1, 0) if stop == len(fields[0]) else (number, stop)
    return parts, number, used


class _Form(NamedTuple):
    """The form that all pieces of a stream share."""

    structure: Structure
    fields: list[tuple[np.dtype[Any], tuple[int, ...]]]  # dtype and shape of a row


def _taken_apart(piece: Any, number: int, known: _Form | None) -> tuple[list[_Array], _Form]:
    """Return the fields of a piece, and its form. CollateError: it is unlike the pieces before."""
    found, objects, structure = flatten(piece)
    paths, others = structure.paths()
    if others or not paths:
        what = f"{_named(others[0])} is {got(objects[0])}" if others else f"it is {got(piece)}"
        raise CollateError(
            f"rebatch cannot cut piece {number}: {what}, which is no array of rows. Yield arrays,"
            " or dicts, tuples or lists of them."
        )
    fields = [_as_array(field) for field in found]
    for path, field in zip(paths, fields):
        if field.ndim == 0:
            raise CollateError(
                f"rebatch cannot cut piece {number}: {_named(path)} has the shape (), without rows."
                " Give each array a first dimension."
            )
        if len(field) != len(fields[0]):
            raise CollateError(
                f"rebatch cannot cut piece {number}: {_named(path)} has {len(field)} rows, and"
                f" {_named(paths[0])} has {len(fields[0])}. Give all arrays of a piece the same"
                " number of rows."
            )
    form = _Form(structure, [(field.dtype, field.shape[1:]) for field in fields])
    if known is None:
        return fields, form
    if structure != known.structure:
        raise CollateError(
            f"rebatch cannot join piece {number}, {shown(structure)}, with those before,"
            f" {shown(known.structure)}. Yield the same containers and keys, in the same order."
        )
    for path, row, other in zip(paths, form.fields, known.fields):
        if row != other and not (row[1] == other[1] and _are_strings(row[0], other[0])):
            raise CollateError(
                f"rebatch cannot join piece {number}: {_named(path)} has rows of dtype {row[0]} and"
                f" shape {row[1]}, and those before have {other[0]} and {other[1]}. Convert or pad"
                " them in the dataset."
            )
    return fields, form


def _named(path: str) -> str:
    return f"its field {path}" if path else "it"


def _are_strings(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether both are strings, which may be of any width."""
    return one.kind == other.kind and one.kind in "SU"


def _as_array(field: Any) -> _Array:
    """Return an array or tensor as an array, without a copy where possible."""
    if type(field) is np.ndarray:
        return field
    tensor = LoDTensor(field)
    rows = tensor.storage()
    return rows.view(tensor.type.numpy_dtype()) if tensor.type.extended else rows
