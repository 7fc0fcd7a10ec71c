"""Documents packed into rows of one length: what language models are trained on.

Imports NumPy, the documents and the plans. A row is a dict of named fields. The rows of a batch are
written at once, into the batch's memory where a loader has it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reader._core.tokens.packing import lay_out, move_on
from reader.checks import as_int, described
from reader.data.dataset import ShardedDataset
from reader.data.fingerprint import digest_of, fingerprint_of
from reader.data.wrapped import unless_overridden
from reader.errors import ConfigError, SampleIndexError, got
from reader.streams.seeded_dataset import SeededDataset
from reader.tokens.documents import Documents
from reader.tokens.packing import POLICIES, BestFitPlan, Pieces, WrappedPlan
from reader.tokens.row_fields import RowFields

__all__ = ["PackedTokens"]

_MOST_LENGTH = 1 << 24
_TOGETHER = 16  # windows whose rows are dealt together, unless these have more rows than
_MOST_TOGETHER = 1 << 16
_NEVER = "never"

Array = npt.NDArray[Any]


class PackedTokens(SeededDataset, ShardedDataset[Any]):
    """Hold rows of `length` tokens, each packed of whole documents.

    The documents are packed by best fit, a window of them at a time: of the documents of a window
    the longest come first, and each goes to the row with the least room that holds it. The rows are
    a function of the documents' lengths, the seed and the epoch; they are computed window by window
    when they are asked for, and never stored. Each document comes once in an epoch, but for what
    `long` leaves out; `counts` says how much that is.

    A row is a dict. `tokens`, and each other field of the documents, has *shape* (length,) and is
    padded behind the last document. What may come with it:

    * `positions`, int32: the place of each token in its document or piece of one, from 0;
    * `segments`, int32: the number of the document in the row, from 0; -1 is padding;
    * `targets`: the next token of the same document, even if it lies in another row;
      `ignore_index` at the document's end and in padding;
    * `loss_mask`: with targets, whether the target of each place counts. A field of that name in
      the documents says which of their tokens are learned; with targets it is moved on by one, as
      they are;
    * `cu_seqlens`, int32, *shape* (n,): where each document begins, then where the padding does,
      and `length` for the rest: sequences for attention of variable length. n is the same for all
      rows, and sequences without tokens fill it up. Another PackedTokens may have another n: for a
      `Mix` of both append `length` until they are alike, by `map`;
    * `longest`, int32: the tokens of the longest of these sequences.

    With a seed a window has runs of documents from everywhere, and in each epoch other documents
    come together; the loader counts the epochs. `DataLoader(shuffle=True)` and
    `reader.ShardOrder` deal rows from a few windows at a time, and divide them among ranks.

    Args:
        documents: a `reader.Documents`, or what it takes: paths, or a sequence of arrays.
        length: tokens of a row.
        seed: an int in [0, 2**64); None: rows and their documents come in the documents' order, as
            far as packing allows.
        long: what becomes of a document of more than `length` tokens. "split": pieces that fill
            rows, and the rest, which is packed; "truncate": its first `length` tokens; "drop":
            nothing; "never": it is refused.
        targets: whether a row has targets.
        loss_mask: whether it has a loss mask; with targets, or where documents have one.
        cu_seqlens: whether it has `cu_seqlens` and `longest`.
        strategy: "best_fit", or "wrapped": documents lie one after the other and are cut wherever
            a row is full, so that only the last row is padded.
        window: how many documents are packed together; above 128 in whole runs of 128 neighbours.
        fields: names of all that a row has, in the place of the three before, such as ["tokens",
            "targets"]; None: the documents' fields, positions, segments, and what is asked for.
        as_dtype: of tokens and targets; or a dict by field. None: as in the documents. As in
            `TokenWindows`, of uint64 as int64 those below 2**63 alone come as they are.
        pad: the value of padding: a number for the tokens, or a dict by field. Tokens and loss
            masks have 0, labels `ignore_index`; of other fields it has to be said.
        ignore_index: the target of a place that has none.

    Raises:
        ConfigError, ConfigTypeError: an argument that cannot be; no tokens; a document that is
            longer than a row where `long` is "never"; a padding or target that its dtype does not
            hold.

    >>> documents = [np.arange(count) + 10 * count for count in (3, 2, 5, 1)]
    >>> packed = PackedTokens(documents, 6, targets=True)
    >>> len(packed), packed[0]["tokens"].tolist()
    (2, [30, 31, 32, 20, 21, 10])
    >>> packed[0]["segments"].tolist(), packed[0]["targets"].tolist()
    ([0, 0, 0, 1, 1, 2], [31, 32, -100, 21, -100, -100])
    >>> packed.counts["padding"]
    1
    """

    __repr__ = described

    def __init__(
        self,
        documents: Any,
        length: int,
        seed: int | None = None,
        long: Literal["split", "truncate", "drop", "never"] = "split",
        *,
        targets: bool = False,
        loss_mask: bool = False,
        cu_seqlens: bool = False,
        strategy: Literal["best_fit", "wrapped"] = "best_fit",
        window: int = 100_000,
        fields: Sequence[str] | None = None,
        as_dtype: Any = "int64",
        pad: Any = None,
        ignore_index: int = -100,
    ) -> None:
        self.documents = documents if isinstance(documents, Documents) else Documents(documents)
        self.length = as_int(
            "length", length, low=1, high=_MOST_LENGTH, remedy="It is the tokens of a row."
        )
        window = as_int("window", window, low=1, remedy="It is a number of documents.")
        super().__init__(seed, "packs documents in their order")
        self.long = _one_of("long", long, (*POLICIES, _NEVER))
        self.strategy = _one_of("strategy", strategy, ("best_fit", "wrapped"))
        lengths = self.documents.lengths
        self._plan: BestFitPlan | WrappedPlan
        if self.strategy == "wrapped":
            if self.long != "split":
                raise ConfigError(
                    f"long={self.long!r} is for strategy='best_fit': 'wrapped' cuts documents"
                    " wherever a row is full. Leave it out"
                )
            self._plan = WrappedPlan(lengths, self.length, window, seed)
        else:
            policy = POLICIES["split" if self.long == _NEVER else self.long]
            self._plan = BestFitPlan(lengths, self.length, window, seed, policy)
        counter = self._plan.counter
        if self.long == _NEVER and counter.long:
            longest = counter.longest
            raise ConfigError(
                f"document {longest} has {int(lengths[longest]):,} tokens, a row has"
                f" {self.length:,}, and long='never' allows no longer ones: {counter.long:,} of"
                f" {len(lengths):,} documents are. Pass a greater length, or long='split',"
                " 'truncate' or 'drop'"
            )
        self._starts = self._plan.starts
        self._count = int(self._starts[-1])
        if not self._count:
            raise ConfigError(
                f"no row can be packed: the {len(lengths):,} documents have {counter.tokens:,}"
                f" tokens, of which long={self.long!r} leaves {counter.left_out:,} out"
            )
        kept = counter.tokens - counter.left_out
        #: what was packed, in documents and tokens, and what was not
        self.counts: dict[str, int] = {
            "documents": len(lengths),
            "tokens": counter.tokens,
            "rows": self._count,
            "padding": self._count * self.length - kept,
            "empty_documents": counter.empty,
            "long_documents": counter.long,
            "dropped_documents": counter.long if self.long == "drop" else 0,
            "left_out_tokens": counter.left_out,
        }
        asked = {"targets": targets, "loss_mask": loss_mask, "cu_seqlens": cu_seqlens}
        own = self.documents.fields
        self._fields = RowFields(own, fields, asked, as_dtype, pad, ignore_index)
        ends = self._plan.most_pieces() + 2 if "cu_seqlens" in self.fields else 0
        self._forms = self._fields.forms(self.length, ends)

    def __fingerprint__(self, samples: int | None) -> dict[str, Any]:
        """Return what is packed and how; see `fingerprint_of`. More documents are other rows."""
        return {
            "kind": "PackedTokens",
            "samples": self._count,
            "length": self.length,
            "strategy": self.strategy,
            "long": self.long,
            "seed": self._seed,
            "documents": self.counts["documents"],
            "tokens": self.counts["tokens"],
            "rows": digest_of(self._starts),  # by window
            "of": fingerprint_of(self.documents),
        }

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of what a row has."""
        return self._fields.names

    @property
    def starts(self) -> Any:
        """The first row of each window, and then how many rows there are."""
        return self._starts

    @property
    def order_window(self) -> int:
        """How many rows a group of `ShardOrder` has: those of a few windows, which are planned."""
        rows = self._count * _TOGETHER // (len(self._starts) - 1)
        return max(1, min(rows, _MOST_TOGETHER))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int, /) -> dict[str, Any]:
        """Return the row at `index`; a negative one counts from the end."""
        return self._made([index])[0]

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[dict[str, Any]]]:
        """Make many rows together; exists unless a subclass has a `__getitem__` of its own."""
        return unless_overridden(self, PackedTokens, self._made)

    def _made(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        rows = np.array([self._row(index) for index in indices], np.int64)
        made = {
            name: np.empty((len(rows), *shape), dtype)
            for name, (dtype, shape) in self._forms.items()
        }
        self._write(rows, made)
        columns = [
            list(array) if array.ndim > 1 else [*map(np.int32, array)] for array in made.values()
        ]
        return [dict(zip(made, row)) for row in zip(*columns)]

    def __fill_batch__(self, indices: npt.NDArray[np.int64], out: dict[str, Array]) -> None:
        """Write rows into the arrays of a batch, each with one more axis than in a row."""
        for index in (indices.min(), indices.max()):
            self._row(int(index))
        self._write(indices % self._count, out)

    def origin(self, index: int) -> list[tuple[int, int, int]]:
        """Return what a row is packed of: by piece the document, its first token, and how many."""
        pieces = self._plan.pieces(np.array([self._row(index)], np.int64), self.epoch_now)
        return list(zip(*(each.tolist() for each in pieces[:3])))

    def _row(self, index: int) -> int:
        place = operator.index(index)
        if not -self._count <= place < self._count:
            raise SampleIndexError(
                f"index {index} is outside of {self._count:,} rows: take one in"
                f" [{-self._count}, {self._count})"
            )
        return place % self._count

    def _write(self, rows: npt.NDArray[np.int64], out: Mapping[str, Array]) -> None:
        pieces = self._plan.pieces(rows, self.epoch_now)
        places, tokens = lay_out(
            pieces.firsts,
            pieces.counts,
            self.length,
            out.get("positions"),
            out.get("segments"),
            out.get("cu_seqlens"),
            out.get("longest"),
        )
        is_full = tokens == len(rows) * self.length
        wanted = {name: out[name].reshape(-1) for name in self.documents.fields if name in out}
        has_targets = "targets" in out
        if has_targets and "tokens" not in wanted:
            wanted["tokens"] = np.empty(len(rows) * self.length, self._fields.dtypes["tokens"])
        moves_mask = has_targets and "loss_mask" in wanted
        if moves_mask:
            wanted["loss_mask"] = np.empty_like(wanted["loss_mask"])
        if not is_full:
            for name, array in wanted.items():
                array.fill(self._fields.pads.get(name, 0))
        self.documents.gather(pieces.documents, pieces.begins, pieces.counts, places, wanted)
        if not has_targets:
            return
        targets = out["targets"].reshape(-1)
        self._move_on(wanted["tokens"], targets, "tokens", self._fields.ignored, pieces, places)
        if moves_mask:
            mask = out["loss_mask"].reshape(-1)
            self._move_on(wanted["loss_mask"], mask, "loss_mask", 0, pieces, places)
        elif "loss_mask" in out:
            np.not_equal(out["targets"], self._fields.ignored, out=out["loss_mask"])

    def _move_on(
        self, values: Array, moved: Array, name: str, none: Any, pieces: Pieces, places: Any
    ) -> None:
        """Write to each place what follows in its document, or `none`."""
        moved.fill(none)
        move_on(values, moved, places, pieces.counts)
        following = pieces.begins + pieces.counts
        goes_on = following < self.documents.lengths[pieces.documents]
        if goes_on.any():  # in another row
            last = (places + pieces.counts - 1)[goes_on]
            ones = np.ones(len(last), np.int64)
            found = {name: moved}
            self.documents.gather(pieces.documents[goes_on], following[goes_on], ones, last, found)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Give the plan its lengths again, which documents have and it is pickled without."""
        vars(self).update(state)
        self._plan.with_lengths(self.documents.lengths)


def _one_of(name: str, value: Any, known: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f"{name} must be one of {', '.join(map(repr, known))}, got {got(value)}")
    return value
