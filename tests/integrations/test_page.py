"""The programs of docs/integrations.md and docs/images.md that need more than `make test` has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import reader
import reader.compat.torch
from tests.integrations.numbers import Points
from tests.pages import programs_of, run_program

pytestmark = [pytest.mark.evidence, pytest.mark.filterwarnings("ignore")]


def program(page: str, word: str) -> str:
    """Return the code of a page's one program that has a word in it."""
    (found,) = [each.code for each in programs_of(page) if word in each.code]
    return found


def test_scalars_in_visualdl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("visualdl", reason="make integrations")
    monkeypatch.chdir(tmp_path)
    with reader.DataLoader(Points(), batch_size=4) as loader:
        names: dict[str, Any] = {"loader": loader}
        exec(program("integrations", "visualdl"), names)
        assert type(names["scalars"]).__name__ == "ScalarLogger"
    assert list((tmp_path / "runs").iterdir())


def test_a_callback_in_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lightning = pytest.importorskip("lightning", reason="make integrations")
    monkeypatch.chdir(tmp_path)
    seen = []

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def training_step(self, batch: Any, number: int) -> Any:
            seen.append(number)
            loss = torch.nn.functional.cross_entropy(self.layer(batch["rows"]), batch["labels"])
            if len(seen) == 24:
                self.trainer.should_stop = True
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    loader = reader.compat.torch.DataLoader(Points(), batch_size=4)  # type: ignore[arg-type]
    exec(program("integrations", "from lightning"), {"model": Model(), "loader": loader})
    assert seen == 2 * list(range(12))


def test_a_callback_in_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="make integrations")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, rows: Any, labels: Any) -> Any:
            return {"loss": torch.nn.functional.cross_entropy(self.layer(rows), labels)}

    arguments = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=5,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    names: dict[str, Any] = {
        "Trainer": transformers.Trainer,
        "model": Model(),
        "arguments": arguments,
        "dataset": Points(),
    }
    with reader.compat.torch.install():  # what the program installs ends with this
        exec(program("integrations", "transformers"), names)
    assert names["trainer"].state.global_step == 5


# Its own operators are in its build for CUDA alone, so they are named here; nothing calls them.
_OPERATORS = """
import torch
named = torch.library.Library("torchvision", "FRAGMENT")
named.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
named.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
named.define("roi_align(Tensor a, Tensor b, float c, int d, int e, int f, bool g) -> Tensor")
"""
_COMPARED = """
assert ours.samples == theirs.samples and ours.class_to_idx == theirs.class_to_idx
for each in loaders:
    ((images, labels),) = each
    assert (images.shape, images.dtype) == ((12, 3, 224, 224), torch.float32)
    assert sorted(labels.tolist()) == [0] * 6 + [1] * 6
# The dataset of torchvision gives the same by either loader.
from torch.utils.data import DataLoader as Theirs
from reader.compat.torch import DataLoader as Ours
batches = []
for loader_class in Theirs, Ours:
    torch.manual_seed(5)
    loader = loader_class(theirs, batch_size=5, shuffle=True, num_workers=2)
    batches.append([images for images, _ in loader])
assert len(batches[0]) == len(batches[1]) == 3
assert all(torch.equal(one, other) for one, other in zip(*batches))
"""


def test_the_program_of_torchvision_and_what_replaces_it(tmp_path: Path) -> None:
    apart = Path(sys.prefix, "apart")
    if not apart.exists():
        pytest.skip("make integrations")
    for number in range(12):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (300, 400, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    code = [
        _OPERATORS,
        program("images", "torchvision"),
        "theirs, loaders = training, [loader]",
        program("images", 'dtype="float32"'),
        "ours, loaders = training, [*loaders, loader]",
        _COMPARED,
    ]
    run = run_program("\n".join(code), tmp_path, apart)
    assert run.returncode == 0, run.stderr
