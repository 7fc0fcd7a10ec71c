"""A typed program of our faces' additions to their libraries; nothing runs it.

`# error` ends each line that both mypy and pyright must refuse; all others must pass.
"""

from __future__ import annotations

from typing import Any

import paddle.io
import torch.utils.data
from typing_extensions import assert_type

import reader
from reader.compat import paddle as paddle_face
from reader.compat import torch as torch_face
from reader.compat.torch import StatefulDataLoader


class Words(torch.utils.data.Dataset[str]):
    def __getitem__(self, index: int) -> str:
        return str(index)


class Numbers(paddle.io.Dataset[int]):
    def __getitem__(self, idx: int) -> int:
        return idx


class Own(reader.Dataset[bytes]):
    def __getitem__(self, index: int, /) -> bytes:
        return b""

    def __len__(self) -> int:
        return 1


class ByWords(StatefulDataLoader[str]):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "mine": 1}


threads = torch_face.DataLoader(
    Words(), seed=1, worker_type="thread", worker_retries=1, prefetch_next_epoch=True, max_bytes=9
)
assert_type(threads, torch_face.DataLoader[str])
with threads as loader:
    assert_type(loader, torch_face.DataLoader[str])
threads.set_epoch(threads.epoch + 1)
stateful = StatefulDataLoader(Words(), snapshot_every_n_steps=2, worker_type="process", seed=1)
assert_type(stateful, StatefulDataLoader[str])
stateful.load_state_dict(stateful.state_dict())
with ByWords(Words()) as words:
    assert_type(words, ByWords)
assert_type(torch_face.default_collate([1]), Any)

assert_type(paddle_face.DataLoader(Numbers()), paddle_face.DataLoader[int])
assert_type(paddle_face.DataLoader(Own()), paddle_face.DataLoader[bytes])
named: paddle_face.DataLoader = paddle_face.DataLoader(Numbers(), prefetch_next_epoch=True)
with named:
    state: dict[str, Any] = named.state_dict()
peer: paddle.io.DataLoader = named

torch_face.DataLoader(Words(), worker_type="fibre")  # error
torch_face.DataLoader(Words(), seed="1")  # error
torch_face.DataLoader(Words(), framework="torch")  # error
StatefulDataLoader(Words(), worker_type="fibre")  # error
StatefulDataLoader(Words(), snapshot_every_n_steps="1")  # error
StatefulDataLoader(5)  # error
ByWords(Numbers())  # error
torch_face.Nothing()  # error
paddle_face.DataLoader(Words())  # error
paddle_face.DataLoader(Numbers(), drop_last_group=2)  # error
other: paddle_face.DataLoader[str] = paddle_face.DataLoader(Numbers())  # error
