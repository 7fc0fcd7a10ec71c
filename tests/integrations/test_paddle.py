"""Scalars among the metrics of `paddle.Model.fit`, as Paddle's own callbacks show them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import paddle
import pytest

from reader import ConfigError, ConfigTypeError
from reader.compat.paddle import DataLoader
from reader.integrations.paddle import LoaderCallback

# Paddle's: `fit` makes tensors of the tensors that any loader gives it
pytestmark = pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")


class Points(paddle.io.Dataset):  # type: ignore[misc, type-arg, unused-ignore]
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        return np.full(4, index / 48, np.float32), np.array([index % 2], np.int64)


def model() -> Any:
    made = paddle.Model(paddle.nn.Linear(4, 2))
    optimizer = paddle.optimizer.SGD(0.1, parameters=made.parameters())
    made.prepare(optimizer, paddle.nn.CrossEntropyLoss())
    return made


class Seen(paddle.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    """The metrics and values that a callback of Paddle's after ours finds."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        self.found.append({name: logs[name] for name in self.params["metrics"]})


@pytest.mark.parametrize("workers", [0, 2])
def test_fit_shows_scalars_beside_the_loss_and_says_what_bounded_it(
    workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = Seen()
    with DataLoader(Points(), batch_size=4, num_workers=workers) as loader:
        callback = LoaderCallback(loader, every=4)
        model().fit(loader, epochs=2, verbose=2, log_freq=1, callbacks=[callback, seen])
    names = [set(each) for each in seen.found]
    assert len(names) == 24
    assert names[:3] == [{"loss"}] * 3
    assert all({"loss", "reader/wait_share", "reader/batches_per_s"} < each for each in names[3:])
    rates = [each.get("reader/batches_per_s") for each in seen.found]
    assert len(set(rates[3:7])) == 1
    assert len(set(rates[3:])) == 6
    shown = capsys.readouterr().out
    assert re.search(r"step +6/12 - loss: \d.* - reader/wait_share: \d", shown)
    assert callback.verdict is not None
    assert shown.rstrip().endswith(callback.verdict.sentence)


def test_a_quiet_fit_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with DataLoader(Points(), batch_size=4) as loader:
        callback = LoaderCallback(loader)
        model().fit(loader, verbose=0, callbacks=[callback])
    assert capsys.readouterr().out == ""
    assert callback.verdict is not None


def test_non_loaders_are_refused() -> None:
    with pytest.raises(ConfigTypeError, match=r"LoaderCallback takes a loader of this package"):
        LoaderCallback(paddle.io.DataLoader(Points()))
    with pytest.raises(ConfigError, match=r"every must be an int of 1 or more, got 0"):
        LoaderCallback(DataLoader(Points()), every=0)
