"""Every example in a docstring of the package runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("paddle", "torch", "jax", "mxnet")
# what modules of reader.integrations import
LIBRARIES = {
    "lightning": "lightning",
    "nvtx": "nvtx",
    "prometheus": "prometheus_client",
    "pytorch_lightning": "pytorch_lightning",
    "rich": "rich",
    "tqdm": "tqdm",
    "transformers": "transformers",
}
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for suffix in ("*.py", "*.pyi")
    for path in (ROOT / "reader").rglob(suffix)
    if path.stem != "__main__"
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    needed = name.rpartition(".")[2]
    if needed in FRAMEWORKS:
        pytest.importorskip(needed)
    if name.startswith("reader.integrations.") and needed in LIBRARIES:
        pytest.importorskip(LIBRARIES[needed])
    if needed == "table_rows":
        pytest.importorskip("pyarrow")
    module = importlib.import_module(name)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(module, optionflags=flags).failed == 0
