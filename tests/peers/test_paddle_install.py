"""`install()`: programs that construct Paddle's loader, and `paddle.Model`, get ours.

Imports pytest, NumPy, paddle and the paddle face. Holds nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.io import DataLoader as Imported

import reader.compat.paddle as face

pytestmark = pytest.mark.peer
_Loader: Any = Imported


class Rows(paddle.io.Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return np.full(4, index, "float32"), np.zeros(1, "float32")


class Net(paddle.nn.Layer):
    """Records its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = paddle.nn.Linear(4, 1)
        self.seen: list[float] = []

    def forward(self, x: Any) -> Any:
        self.seen.append(float(x.sum()))
        return self.layer(x)


class Own(_Loader):  # type: ignore[misc]
    """A subclass that a library defines."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.mark = 3
        super().__init__(*arguments, **named)

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield [self.mark, *batch]


def trained() -> tuple[list[float], Any]:
    paddle.seed(0)
    np.random.seed(0)
    net = Net()
    model = paddle.Model(net)
    optimizer = paddle.optimizer.SGD(0.001, parameters=net.parameters())
    model.prepare(optimizer, paddle.nn.MSELoss())
    model.fit(Rows(), Rows(), batch_size=8, epochs=2, num_workers=2, verbose=0)
    model.evaluate(Rows(), batch_size=8, verbose=0)
    model.predict(Rows(), batch_size=8, verbose=0)
    return net.seen, net.layer.weight.numpy().tolist()


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")  # of Paddle's own loader
def test_model_of_paddle_trains_the_same_when_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[int] = []
    iterate = face.DataLoader.__iter__

    def counted(self: Any) -> Any:
        opened.append(self.num_workers)
        return iterate(self)

    monkeypatch.setattr(face.DataLoader, "__iter__", counted)
    wanted = trained()
    assert opened == []
    with face.install():
        assert trained() == wanted
    assert opened == [2, 2, 2, 2, 0, 0]


@pytest.mark.parametrize("workers", [0, 2])
def test_subclass_has_its_methods_and_our_engine(workers: int) -> None:
    with face.install():
        made = Own(Rows(), batch_size=8, num_workers=workers)
        assert type(_Loader(Rows())) is face.DataLoader
    assert isinstance(made, Own)
    assert isinstance(made, face.DataLoader)
    for each in (made, copy.copy(made)):
        found = [(mark, x[0, 0].item()) for mark, x, _ in each]
        assert found == [(3, 0.0), (3, 8.0), (3, 16.0)]


def test_uninstalling_restores_paddles_class() -> None:
    with face.install():
        face.uninstall()
        face.uninstall()
        assert type(_Loader(Rows())) is Imported
        assert type(Own(Rows())) is Own
    assert Imported.__init__.__module__ == "paddle.io.reader"
