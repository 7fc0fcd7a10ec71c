"""Measure packed rows: how full they are, what planning takes, what a row costs beside its peers.

    pip install --target LIBRARIES grain
    PYTHONPATH=LIBRARIES python -m tools.packing_bench [--rounds 5] [--json FILE] [--documents N]

First the plan: lengths like those of chats, of code and of the web, rows of 4,096 tokens. Then the
rows of an epoch, two workers each: ours, and what is usual under PyTorch: a dataset of tokenised
documents, as lists of numbers or as tensors, and a collate function that packs those of a batch,
first fit; and Grain's best fit, which is left out where it is not installed. A row has tokens,
positions and segments, int64 and int32. Workers stay from epoch to epoch.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reader import DataLoader, Documents, PackedTokens
from tools.turns import Report, command_line, grid, in_turns, medians

LENGTH, ROWS, WORKERS = 4096, 8, 2
SAMPLES = 30_000  # documents whose rows are made
_TOGETHER = 64  # documents that the usual collate function packs
_BINS = 64  # rows that Grain packs at a time

Lengths = npt.NDArray[np.int64]


def chats(count: int) -> Lengths:
    """Return tokens of conversations: log-normal, 330 at the median."""
    return _clipped(np.random.default_rng(1).lognormal(5.8, 1.0, count))


def code(count: int) -> Lengths:
    """Return tokens of source files: log-normal with a wide spread, 665 at the median."""
    return _clipped(np.random.default_rng(2).lognormal(6.5, 1.5, count))


def web(count: int) -> Lengths:
    """Return tokens of pages: a long tail, of which the mean is much above the median."""
    return _clipped((np.random.default_rng(3).pareto(1.1, count) + 1) * 60)


def _clipped(lengths: Any) -> Lengths:
    found: Lengths = np.clip(lengths.astype(np.int64), 1, 1_000_000)
    return found


KINDS: dict[str, Callable[[int], Lengths]] = {"chats": chats, "code": code, "web": web}


class Lengthy(Documents):
    """Documents that have lengths, and no tokens that are read."""

    def __init__(self, lengths: Lengths) -> None:
        self._of_all = lengths

    @property
    def lengths(self) -> Lengths:
        """How many tokens each has."""
        return self._of_all

    @property
    def fields(self) -> dict[str, np.dtype[Any]]:
        """Tokens alone."""
        return {"tokens": np.dtype(np.uint16)}


def plan(lengths: Lengths) -> dict[str, float]:
    """Return how full rows are by window, and the seconds of a plan and of a resume."""
    documents = Lengthy(lengths)
    found = {}
    for name, options in {
        "best fit": {},
        "by 1,000": {"window": 1000},
        "wrapped": {"strategy": "wrapped"},
    }.items():
        packed = PackedTokens(documents, LENGTH, 1, **options)  # type: ignore[arg-type]
        found[name] = packed.counts["tokens"] / (len(packed) * LENGTH)
    begun = time.perf_counter()
    packed = PackedTokens(documents, LENGTH, 1)
    packed.origin(len(packed) // 2)
    found["resume, ms"] = (time.perf_counter() - begun) * 1e3
    begun = time.perf_counter()
    for first in packed.starts[:-1]:
        packed.origin(int(first))
    found["all windows, ms"] = (time.perf_counter() - begun) * 1e3
    return found


class Listed:
    """The usual dataset: a tokenised document by index.

    Args:
        documents: the tokens of each.
        as_lists: as lists of numbers, as tokenizers return them; else as tensors.
    """

    def __init__(self, documents: Sequence[Any], as_lists: bool) -> None:
        self._documents, self._as_lists = documents, as_lists

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, index: int) -> Any:
        import torch

        tokens = self._documents[index]
        if self._as_lists:
            return {"input_ids": tokens.tolist()}
        return {"input_ids": torch.from_numpy(tokens.astype(np.int64))}


def packing_collate(samples: Sequence[Any]) -> Any:
    """Pack the documents of a batch into rows, first fit, as tensors."""
    import torch

    rows: list[list[Any]] = []
    rests: list[int] = []
    for sample in samples:
        tokens = torch.as_tensor(sample["input_ids"])
        for begin in range(0, len(tokens), LENGTH):
            piece = tokens[begin : begin + LENGTH]
            fitting = (row for row, rest in enumerate(rests) if rest >= len(piece))
            number = next(fitting, len(rows))
            if number == len(rows):
                rows.append([])
                rests.append(LENGTH)
            rows[number].append(piece)
            rests[number] -= len(piece)
    found = {
        "tokens": torch.zeros(len(rows), LENGTH, dtype=torch.int64),
        "positions": torch.zeros(len(rows), LENGTH, dtype=torch.int32),
        "segments": torch.full((len(rows), LENGTH), -1, dtype=torch.int32),
    }
    for number, pieces in enumerate(rows):
        at = 0
        for segment, piece in enumerate(pieces):
            here = slice(at, at + len(piece))
            found["tokens"][number, here] = piece
            found["positions"][number, here] = torch.arange(len(piece))
            found["segments"][number, here] = segment
            at += len(piece)
    return found


def epoch(loader: Any, tokens: int) -> dict[str, float]:
    """Return the microseconds of a row's worth of tokens in an epoch, and how full its rows are."""
    begun, rows = time.perf_counter(), 0
    for batch in loader:
        rows += len(batch["tokens"])
    seconds = time.perf_counter() - begun
    return {"us": seconds / (tokens / LENGTH) * 1e6, "full": tokens / (rows * LENGTH)}


def grain_rows(documents: Sequence[Any]) -> Any:
    """Return Grain's rows by best fit, in batches, made by two processes."""
    grain: Any = importlib.import_module("grain")
    importlib.import_module("absl.flags").FLAGS.mark_as_parsed()
    pieces = [
        tokens[begin : begin + LENGTH].astype(np.int64)
        for tokens in documents
        for begin in range(0, len(tokens), LENGTH)
    ]
    source = grain.MapDataset.source(pieces).shuffle(seed=1).map(lambda each: {"tokens": each})
    packed: Any = grain.experimental.BestFitPackIterDataset(
        source.to_iter_dataset(), length_struct={"tokens": LENGTH}, num_packing_bins=_BINS
    )
    options = grain.MultiprocessingOptions(num_workers=WORKERS)
    return packed.batch(ROWS, drop_remainder=False).mp_prefetch(options)


def contestants(documents: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield a name and the loader of an epoch."""
    from torch.utils.data import DataLoader as TorchLoader

    from reader.compat.torch import DataLoader as OurTorchLoader

    held = Documents(list(documents))
    packed: Any = PackedTokens(held, LENGTH, 1)
    usual: Any = {"shuffle": True, "num_workers": WORKERS, "persistent_workers": True}
    yield "reader", DataLoader(packed, batch_size=ROWS, seed=1, **usual)
    yield "reader.compat.torch", OurTorchLoader(packed, batch_size=ROWS, **usual)
    for as_lists in (False, True):
        loader: Any = TorchLoader(
            Listed(documents, as_lists),  # type: ignore[arg-type]
            batch_size=_TOGETHER,
            collate_fn=packing_collate,
            **usual,
        )
        yield f"PyTorch, {'lists' if as_lists else 'tensors'}, packing collate", loader
    if importlib.util.find_spec("grain") is not None:
        yield "Grain, best fit", grain_rows(documents)


def main() -> int:
    """Measure, and print two tables."""
    parser = command_line("packing_bench", __doc__)
    parser.add_argument("--documents", type=int, default=1_000_000, help="of a plan (1000000)")
    options = parser.parse_args()
    report = Report(options)
    plans = {
        kind: medians(in_turns({kind: functools.partial(plan, make(options.documents))}, 3))[kind]
        for kind, make in KINDS.items()
    }
    names = list(next(iter(plans.values())))
    shares = [name for name in names if not name.endswith("ms")]
    table = [["lengths of", *names]]
    for kind, figures in plans.items():
        cells = [f"{figures[n]:.2%}" if n in shares else f"{figures[n]:.0f}" for n in names]
        table.append([kind, *cells])
    print("\n".join([*grid(table), ""]), flush=True)
    lengths = chats(SAMPLES)
    tokens = np.random.default_rng(0).integers(1, 50_000, lengths.sum()).astype(np.uint16)
    documents = np.split(tokens, np.cumsum(lengths)[:-1])
    loaders = dict(contestants(documents))
    turns = {
        name: functools.partial(epoch, loader, len(tokens)) for name, loader in loaders.items()
    }
    found = medians(in_turns(turns, report.rounds, 1))
    first = found["reader"]["us"]
    rows = [["rows of 4,096 tokens", "us a row", "times ours", "full"]]
    for name, figures in found.items():
        ratio = f"{figures['us'] / first:.1f}"
        rows.append([name, f"{figures['us']:.1f}", ratio, f"{figures['full']:.2%}"])
    report.show("\n".join(grid(rows)), {"plans": plans, "rows": found})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
