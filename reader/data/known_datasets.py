"""The dataset classes of reader, PyTorch, Paddle and Gluon whose way of fetching is known.

Imports the standard library alone; another library's class is found once that library has been
imported. It looks at classes, reads no sample, and keeps no state.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["ARRAYS", "CHOSEN", "JOINED", "KnownClass", "known_class"]


class KnownClass(NamedTuple):
    """Where a class is defined, its name, and the attribute that holds what it was made of."""

    module: str
    name: str
    parts: str


# arrays side by side: a sample is a row of each, in a tuple or a dict
ARRAYS = (
    KnownClass("reader.data.datasets", "TensorDataset", "tensors"),
    KnownClass("reader.formats.token_windows", "TokenWindows", "arrays"),
    KnownClass("reader.formats.table_rows", "TableRows", "arrays"),
    KnownClass("torch.utils.data.dataset", "TensorDataset", "tensors"),
    KnownClass("paddle.io.dataloader.dataset", "TensorDataset", "tensors"),
    KnownClass("paddle.fluid.dataloader.dataset", "TensorDataset", "tensors"),
    KnownClass("reader.compat.gluon.datasets", "ArrayDataset", "_arrays"),
    KnownClass("mxnet.gluon.data.dataset", "ArrayDataset", "_data"),
)
# chosen samples of a dataset, by a list in `indices`
CHOSEN = (
    KnownClass("reader.data.subset", "Subset", "dataset"),
    KnownClass("torch.utils.data.dataset", "Subset", "dataset"),
    KnownClass("paddle.io.dataloader.dataset", "Subset", "dataset"),
    KnownClass("paddle.fluid.dataloader.dataset", "Subset", "dataset"),
)
# the samples of several datasets, one after the other or field by field
JOINED = (
    KnownClass("reader.data.datasets", "ConcatDataset", "datasets"),
    KnownClass("reader.data.datasets", "ComposeDataset", "datasets"),
    KnownClass("torch.utils.data.dataset", "ConcatDataset", "datasets"),
    KnownClass("paddle.io.dataloader.dataset", "ConcatDataset", "datasets"),
    KnownClass("paddle.io.dataloader.dataset", "ComposeDataset", "datasets"),
    KnownClass("paddle.fluid.dataloader.dataset", "ConcatDataset", "datasets"),
    KnownClass("paddle.fluid.dataloader.dataset", "ComposeDataset", "datasets"),
)


def known_class(dataset: Any, known: Sequence[KnownClass]) -> KnownClass | None:
    """Return the class among `known` whose methods fetch the dataset's samples; None: none does.

    A subclass that fetches samples in a way of its own is none of these, nor is a class whose
    method a program has replaced.
    """
    kind = type(dataset)
    for entry in known:
        cls = getattr(sys.modules.get(entry.module), entry.name, None)
        if cls is not None and all(
            getattr(kind, name, None) is getattr(cls, name, None)
            for name in ("__getitem__", "__getitems__", "__getattribute__")
        ):
            return entry if _is_of_library(cls, entry.module) else None
    return None


def _is_of_library(cls: Any, module: str) -> bool:
    """Whether the fetching methods of a class come from its own library."""
    library = module.partition(".")[0]
    found = (getattr(cls, name, None) for name in ("__getitem__", "__getitems__"))
    homes = (getattr(each, "__globals__", {}).get("__name__", library) for each in found)
    return all(home.partition(".")[0] == library for home in homes)
