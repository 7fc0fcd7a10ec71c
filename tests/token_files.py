"""Files of tokens that tests make, and what tests ask of documents.

Imports the public package and NumPy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reader import Documents
from reader.tokens.megatron_index import index_bytes

__all__ = ["END", "gathered", "lists_of", "megatron", "written"]

END = 0  # the token that ends a document of a file


def written(path: Path, documents: Any, dtype: str = "uint16") -> Path:
    """Write documents to a flat file, an END behind each."""
    flat = [token for document in documents for token in (*document, END)]
    np.array(flat, dtype).tofile(path)
    return path


def lists_of(documents: Documents) -> list[list[int]]:
    return [documents[number]["tokens"].tolist() for number in range(len(documents))]


def gathered(documents: Documents, pieces: Any, dtypes: Any) -> dict[str, Any]:
    """Gather pieces (document, begin, count) one behind the other, with a gap of one between."""
    rows = np.array(pieces, np.int64).reshape(-1, 3)
    places = np.cumsum(rows[:, 2] + 1) - rows[:, 2] - 1
    out = {name: np.full(rows[:, 2].sum() + len(rows), 99, dtype) for name, dtype in dtypes.items()}
    columns = [np.ascontiguousarray(rows[:, column]) for column in range(3)]
    documents.gather(*columns, places, out)
    return out


def megatron(path: Path, lists: Any, dtype: str = "int32", modes: bool = False) -> Path:
    """Write documents as Megatron does; returns the path of the tokens."""
    flat = np.array([token for each in lists for token in each], dtype)
    flat.tofile(path.with_suffix(".bin"))
    lengths = np.array([len(each) for each in lists], np.int64)
    content = index_bytes(lengths, flat.dtype) + bytes(len(lists) * modes)
    path.with_suffix(".idx").write_bytes(content)
    return path.with_suffix(".bin")
