"""A callback in a real training of transformers' Trainer: `make integrations` installs that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import reader.compat.torch
from reader import ConfigTypeError

pytest.importorskip("transformers", reason="make integrations")

from transformers import Trainer, TrainingArguments
from transformers.utils import logging

from reader.integrations.transformers import LoaderCallback
from tests.integrations.numbers import Points

pytestmark = [pytest.mark.evidence, pytest.mark.filterwarnings("ignore")]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, rows: Any, labels: Any) -> Any:
        found = self.layer(rows)
        return {"loss": torch.nn.functional.cross_entropy(found, labels), "logits": found}


def trainer_of(folder: Path, workers: int = 0, **options: Any) -> Any:
    arguments = TrainingArguments(
        str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        dataloader_num_workers=workers,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **options,
    )
    return Trainer(Model(), arguments, train_dataset=Points())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_training_logs_scalars_and_says_what_bounded_it(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    logger = logging.get_logger("transformers.reader")
    monkeypatch.setattr(logger, "info", said.append)
    monkeypatch.setattr(logger, "warning", said.append)
    with reader.compat.torch.install():
        trainer = trainer_of(tmp_path, workers)
        callback = LoaderCallback(trainer, every=5)
        trainer.add_callback(callback)
        trainer.train()
    points = [each for each in trainer.state.log_history if "reader/wait_share" in each]
    assert [each["step"] for each in points] == [5, 10, 15, 20]
    for found in points:
        assert found["reader/samples_per_s"] == pytest.approx(4 * found["reader/batches_per_s"])
    assert callback.verdict is not None
    assert said == [callback.verdict.sentence]


def test_pytorchs_loader_is_refused_with_the_remedy(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path)
    trainer.add_callback(LoaderCallback(trainer))
    with pytest.raises(ConfigTypeError, match=r"call reader\.compat\.torch\.install\(\) before"):
        trainer.train()


def test_non_trainers_are_refused() -> None:
    with pytest.raises(ConfigTypeError, match=r"trainer must have log\(values\), got 5 \(int\)"):
        LoaderCallback(5)
