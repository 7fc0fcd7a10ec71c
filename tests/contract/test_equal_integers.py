"""C's two integers of 8 bytes are equal to NumPy, and frameworks know one of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

# in a process of its own: whichever of the two comes first must not decide for the other
PROGRAM = """
import os
import sys
import torch
import numpy as np
from reader import DataLoader

def show(kinds):
    first, second = (np.array([1, 2], kind) for kind in kinds)
    for sample in (first, second):
        for framework in ("numpy", "torch"):
            (batch,) = DataLoader([sample] * 2, batch_size=2, framework=framework)
            print(type(batch).__name__, str(batch.dtype).rpartition(".")[2], batch.tolist())

for kinds in ("QL", "LQ", "ql", "lq"):
    print(kinds, flush=True)
    if (pid := os.fork()) == 0:
        try:
            show(kinds)
            sys.stdout.flush()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_equal_integers_become_tensors_whichever_comes_first() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    wanted = ""
    for kinds in ("QL", "LQ", "ql", "lq"):
        name = "uint64" if kinds.isupper() else "int64"
        rows = "[[1, 2], [1, 2]]"
        wanted += f"{kinds}\n" + f"ndarray {name} {rows}\nTensor {name} {rows}\n" * 2
    assert run.stdout == wanted
