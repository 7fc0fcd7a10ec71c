"""Training programs that others ship, fed by the torch face instead of their loader.

Accelerate's own test scripts run as they are installed; Lightning's Trainer trains a model that it
ships. Each program runs in a process of its own, where `DataLoader` is one or the other.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 100.0
TORCH, OURS = "torch.utils.data", "reader.compat.torch"

# argv: where DataLoader comes from, how many workers each loader has unless it says, the script
STAND_IN = """
    import runpy, sys
    from importlib import import_module
    from typing import TypeVar

    import torch.utils.data

    FACE, WORKERS, SCRIPT = sys.argv[1:]
    Item = TypeVar("Item")
    opened = []

    class DataLoader(import_module(FACE).DataLoader[Item]):
        def __init__(self, *arguments, **named):
            named.setdefault("num_workers", int(WORKERS))
            super().__init__(*arguments, **named)

        def __iter__(self):
            opened.append(self.num_workers)
            return super().__iter__()

    torch.utils.data.DataLoader = DataLoader
    sys.argv[:] = [SCRIPT]
    runpy.run_path(SCRIPT, run_name="__main__")
    print("epochs:", len(opened), max(opened))
"""

# argv: where DataLoader comes from, how many workers; prints all that the model saw, as JSON
LIGHTNING = """
    import json, logging, os, sys, tempfile
    from importlib import import_module

    import torch

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    from pytorch_lightning import Trainer, seed_everything
    from pytorch_lightning.callbacks import ModelCheckpoint
    from pytorch_lightning.demos.boring_classes import BoringModel, RandomDataset
    from pytorch_lightning.utilities import CombinedLoader

    DataLoader = import_module(sys.argv[1]).DataLoader
    WORKERS = int(sys.argv[2])

    class Model(BoringModel):
        def __init__(self):
            super().__init__()
            self.seen = []

        def training_step(self, batch, index):
            batches = batch if isinstance(batch, (list, tuple)) else [batch]
            self.seen.append(["train", index, [each.sum().item() for each in batches]])
            return super().training_step(batches[0], index)

        def validation_step(self, batch, index, dataloader_idx=0):
            self.seen.append(["validate", index, dataloader_idx, batch.sum().item()])
            return super().validation_step(batch, index)

        def predict_step(self, batch, index):
            return self.layer(batch).sum().item()

    def loaders():
        torch.manual_seed(0)
        stays = WORKERS > 0
        return (
            DataLoader(RandomDataset(32, 64), batch_size=4, shuffle=True, num_workers=WORKERS,
                       persistent_workers=stays),
            DataLoader(RandomDataset(32, 32), batch_size=4, num_workers=WORKERS),
        )

    def trainer(folder, **options):
        return Trainer(default_root_dir=folder, accelerator="cpu", devices=1, logger=False,
                       enable_progress_bar=False, enable_model_summary=False, **options)

    def main(folder):
        seed_everything(1, verbose=False)
        models = [Model() for _ in range(4)]
        keep = ModelCheckpoint(folder, every_n_train_steps=5, save_top_k=-1)
        trainer(folder, max_epochs=2, limit_val_batches=3, val_check_interval=0.5,
                callbacks=[keep]).fit(models[0], *loaders())
        saved = sorted(os.listdir(folder))
        # it goes on in the middle of an epoch, from the last state that was saved
        trainer(folder, max_epochs=4, limit_val_batches=3, enable_checkpointing=False).fit(
            models[1], *loaders(), ckpt_path=os.path.join(folder, saved[-1]))
        train, validate = loaders()
        trainer(folder, max_epochs=1, limit_train_batches=6, enable_checkpointing=False).fit(
            models[2], CombinedLoader([train, validate], "max_size_cycle"), [validate, validate])
        # these two make loaders of their own, of the class and the arguments of the user's
        last = trainer(folder, max_epochs=1, overfit_batches=3, enable_checkpointing=False)
        last.fit(models[3], train, validate)
        told = last.predict(models[3], validate)
        weights = [model.layer.weight.tolist() for model in models]
        print(json.dumps([saved, told, weights, [model.seen for model in models]]))

    with tempfile.TemporaryDirectory() as folder:
        main(folder)
"""


def run(folder: Path, text: str, *args: str) -> str:
    """Run a program; return its last line."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONWARNINGS": "ignore",  # those libraries warn of much that is not ours
        "ACCELERATE_USE_CPU": "true",
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        [sys.executable, str(path), *args],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()[-1]


def script_of_accelerate(name: str) -> str:
    spec = importlib.util.find_spec("accelerate")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "test_utils" / "scripts" / name)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("script", "workers"),
    [
        # with install() the first runs in make test: test_torch_install.py
        pytest.param("test_script.py", "2", marks=pytest.mark.evidence),
        pytest.param("test_sync.py", "0", marks=pytest.mark.evidence),
    ],
)
def test_script_that_accelerate_ships_passes_with_our_loader(
    tmp_path: Path, script: str, workers: str
) -> None:
    last = run(tmp_path, STAND_IN, OURS, workers, script_of_accelerate(script))
    noun, epochs, most = last.split()
    assert (noun, most) == ("epochs:", workers)
    assert int(epochs) > 3


@pytest.mark.nightly
@pytest.mark.timeout(240)
def test_lightning_trains_validates_saves_resumes_and_predicts_the_same(tmp_path: Path) -> None:
    ours = run(tmp_path, LIGHTNING, OURS, "2")
    # not as recorded: the last digits of numbers differ by processors
    assert json.loads(ours) == json.loads(run(tmp_path, LIGHTNING, TORCH, "2"))
