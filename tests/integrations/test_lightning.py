"""A callback in real trainings of Lightning, under both names of its package.

`pytorch_lightning` is there for `make test`; `lightning` is where `make integrations` put it.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

from reader import ConfigTypeError
from reader.compat.torch import DataLoader

PACKAGES = {"pytorch_lightning": "pytorch_lightning", "lightning": "lightning.pytorch"}
pytestmark = [
    pytest.mark.evidence,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning"),
]


class Points:
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        return np.full(4, index / 48, np.float32), index % 2


def loader_of(**options: Any) -> Any:
    return DataLoader(Points(), batch_size=4, **options)  # type: ignore[arg-type]


class Lightning:
    """A package of Lightning, its callback, and the logs of a training with them."""

    def __init__(self, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip(package, reason="make integrations")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.its = importlib.import_module(PACKAGES[package])
            loggers = importlib.import_module(f"{PACKAGES[package]}.loggers")
        ours = importlib.import_module(f"reader.integrations.{package}")
        self.callback_class = ours.LoaderCallback
        self.said: list[str] = []
        monkeypatch.setattr(ours.LoaderCallback, "say", staticmethod(self.said.append))
        logging.getLogger(PACKAGES[package]).setLevel(logging.ERROR)
        points = self.points = []

        class Logger(loggers.CSVLogger):  # type: ignore[misc, name-defined]
            def log_metrics(self, metrics: Any, step: Any = None) -> None:
                points.append((step, dict(metrics)))
                super().log_metrics(metrics, step)

        self.logger_class = Logger

    def train(self, folder: Path, loaders: Any, callback: Any) -> None:
        class Model(self.its.LightningModule):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(4, 2)

            def training_step(self, batch: Any, number: int) -> Any:
                rows, labels = batch["a"] if isinstance(batch, dict) else batch
                return torch.nn.functional.cross_entropy(self.layer(rows), labels)

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

        trainer = self.its.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=2,
            logger=self.logger_class(str(folder)),
            callbacks=[callback],
            default_root_dir=folder,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=1000,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning's advice on workers
            trainer.fit(Model(), loaders)


@pytest.fixture(params=["pytorch_lightning", "lightning"])
def lightning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lightning:
    return Lightning(request.param, monkeypatch)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_training_logs_scalars_and_says_what_bounded_it(
    lightning: Lightning, workers: int, tmp_path: Path
) -> None:
    callback = lightning.callback_class(every=5)
    lightning.train(tmp_path, loader_of(num_workers=workers), callback)
    points = [(step, found) for step, found in lightning.points if "reader/wait_share" in found]
    assert [step for step, _ in points] == [5, 10, 15, 20]
    for _, found in points:
        assert found["reader/samples_per_s"] == pytest.approx(4 * found["reader/batches_per_s"])
        assert ("reader/workers_busy" in found) == (workers > 0)
        assert found["reader/worker_restarts"] == 0
    (verdict,) = callback.verdicts
    assert lightning.said == [verdict.sentence]
    written = next(tmp_path.rglob("metrics.csv")).read_text()
    assert "reader/batches_per_s" in written.split("\n")[0]


def test_several_loaders_have_numbers(lightning: Lightning, tmp_path: Path) -> None:
    callback = lightning.callback_class(every=6, prefix="loader/")
    lightning.train(tmp_path, {"a": loader_of(), "b": [loader_of()]}, callback)
    names = {name for _, found in lightning.points for name in found}
    assert {"loader/0/wait_share", "loader/1/wait_share"} <= names
    assert len(lightning.said) == len(callback.verdicts) == 2


def test_a_training_without_our_loader_is_refused(lightning: Lightning, tmp_path: Path) -> None:
    theirs: Any = torch.utils.data.DataLoader(Points(), batch_size=4)  # type: ignore[arg-type]
    callback = lightning.callback_class()
    with pytest.raises(ConfigTypeError, match=r"LoaderCallback watches loaders of this package"):
        lightning.train(tmp_path, theirs, callback)
    assert callback.verdicts == []
