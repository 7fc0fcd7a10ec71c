"""C's two integers of 8 bytes are equal to NumPy, and frameworks know one of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

# in a program of its own: whichever of the two comes first must not decide for the other
PROGRAM = """
import numpy as np
from reader import DataLoader

first, second = (np.array([1, 2], kind) for kind in {kinds!r})
for sample in (first, second):
    for framework in ("numpy", "torch"):
        (batch,) = DataLoader([sample] * 2, batch_size=2, framework=framework)
        print(type(batch).__name__, str(batch.dtype).rpartition(".")[2], batch.tolist())
"""


@pytest.mark.parametrize("kinds", ["QL", "LQ", "ql", "lq"])
def test_integers_that_are_equal_become_tensors_whichever_comes_first(kinds: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(kinds=kinds)],
        capture_output=True,
        text=True,
        check=True,
    )
    name = "uint64" if kinds.isupper() else "int64"
    rows = "[[1, 2], [1, 2]]"
    assert run.stdout == f"ndarray {name} {rows}\nTensor {name} {rows}\n" * 2
