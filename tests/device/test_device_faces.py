"""Devices through the faces of PyTorch and Paddle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.device.accelerator import ACCELERATOR

Facts = Callable[..., dict[str, Any]]

ON_TORCH = """
    import gc, json, pickle
    import torch
    from torch.utils.data import IterableDataset, TensorDataset, get_worker_info
    from tests.device.accelerator import accelerator

    sim = accelerator()
    from reader import ConfigError, ConfigTypeError
    from reader.compat.torch import DataLoader, StatefulDataLoader

    ONE, LAST = torch.device(sim.name(1)), torch.device(sim.name(3))
    sim.set(delay_us=1000)
    facts = {"refused": []}
    ALL = list(range(100))
    pairs = TensorDataset(torch.arange(400.0).reshape(100, 4), torch.arange(100))

    class Stream(IterableDataset):
        def __iter__(self):
            info = get_worker_info()
            first, step = (0, 1) if info is None else (info.id, info.num_workers)
            return iter([(torch.full((4,), float(n)), n) for n in range(first, 100, step)])

    def numbers(loader):
        found = []
        for rows, labels in loader:
            assert rows.device == labels.device == ONE, rows.device
            found += labels.cpu().tolist()
        return found

    for kind in DataLoader, StatefulDataLoader:
        for workers in 0, 2:
            for persistent in {False, workers > 0}:
                options = {"batch_size": 8, "num_workers": workers, "device": str(ONE),
                           "persistent_workers": persistent}
                loader = kind(pairs, **options)
                for _ in range(3):
                    assert numbers(loader) == ALL
                streams = len(loader.devices)
                assert streams == 1, streams
                assert sorted(numbers(kind(Stream(), **options))) == ALL
                again = pickle.loads(pickle.dumps(loader))
                assert numbers(again) == ALL

    options = {"batch_size": 8, "num_workers": 2, "device": ONE,
               "shuffle": True}
    loader = StatefulDataLoader(pairs, **options)
    steps = iter(loader)
    for _ in range(4):
        next(steps)
    state = loader.state_dict()
    rest = [labels.cpu().tolist() for _, labels in steps]
    other = StatefulDataLoader(pairs, **options)
    other.load_state_dict(state)
    facts["resumed"] = [labels.cpu().tolist() for _, labels in other] == rest

    wrong = ["meta", "moon", 3.5, ["cpu", ONE]]
    simdev, cuda = ["cuda:0", "simdev:4", "simdev:256"], ["cuda:99", "cuda:256", "xpu:0"]
    wrong = [*(simdev if sim.kind == "simdev" else cuda), *wrong]
    for wrong in wrong:
        try:
            DataLoader(pairs, device=wrong)
        except (ConfigError, ConfigTypeError) as error:
            facts["refused"].append(str(error))
    for workers in 0, 2:
        loader = DataLoader(pairs, 8, num_workers=workers, device="gpu_pinned")
        for n, (rows, labels) in enumerate(loader):
            assert rows.is_pinned() and labels.is_pinned() and rows.device.type == "cpu"
            assert (rows == pairs.tensors[0][8 * n:8 * n + 8]).all() and int(labels[0]) == 8 * n
    rows, labels = next(iter(DataLoader(pairs, device="cpu")))
    facts["cpu"] = str(rows.device)

    def collate(samples):
        return {"x": torch.stack([row for row, _ in samples]),
                "y": [int(label) for _, label in samples],
                "raw": torch.stack([label for _, label in samples]).numpy()}

    for workers in 0, 2:
        loader = DataLoader(pairs, 8, num_workers=workers, collate_fn=collate, device=LAST)
        batch = next(iter(loader))
        assert batch["x"].device == LAST and batch["y"] == list(range(8))
        assert type(batch["raw"]).__name__ == "ndarray" and batch["raw"].tolist() == batch["y"]
        assert (batch["x"].cpu() == pairs.tensors[0][:8]).all()
    del steps, rest, loader, other, again, batch, rows, labels
    gc.collect()
    sim.synchronize()
    print(json.dumps({**facts, **sim.counts()}))
"""

ON_PADDLE = """
    import gc, json
    import numpy as np
    from tests.device.simdev import locks_pages, on_paddle

    sim = on_paddle()
    import paddle
    from paddle.base import core
    import reader.compat.paddle as io
    from reader import ConfigError
    from reader.frameworks.paddle import PaddleForm
    from reader.frameworks.paddle_device import make_pinned_adapter
    from reader.policy import BatchPolicy, Policy
    from tests.faces import Face

    locks_pages(sim)
    sim.set(delay_us=1000)
    facts = {"refused": []}
    place = paddle.CustomPlace("simdev", 1)

    class Samples(io.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return np.full(5, index, np.float32), np.array([index])

    def numbers(loader):
        found = []
        for rows, labels in loader:
            assert str(rows.place) == str(labels.place) == "Place(simdev:1)", rows.place
            found += labels.numpy()[:, 0].tolist()
        return found

    for workers in 0, 2:
        for buffered in True, False:
            loader = io.DataLoader(Samples(), places=place, batch_size=4, num_workers=workers,
                                   use_buffer_reader=buffered, persistent_workers=workers > 0)
            for _ in range(2):
                assert numbers(loader) == list(range(40))
            assert loader.places[0].is_custom_place()
    loader = io.DataLoader.from_generator(capacity=4, return_list=True)
    loader.set_batch_generator(
        lambda: ((np.full((2, 3), n, np.float32), np.array([[n], [n]])) for n in range(9)),
        places=place)
    assert numbers(loader) == [n for n in range(9) for _ in range(2)]

    core.CUDAPinnedPlace = lambda: place  # a Paddle without CUDA has none
    adapter = make_pinned_adapter(PaddleForm(None, True, True))
    policy = Policy(batch=BatchPolicy(make_adapter=lambda _: adapter))
    before = sim.counts()["host_waits"]
    with Face(policy, Samples(), batch_size=4, num_workers=2, framework="paddle") as loader:
        assert numbers(loader) == list(range(40))
        assert loader.stats()["devices"] is None
    assert sim.counts()["host_waits"] - before >= 10  # each was there when it was handed over

    paddle.set_device("simdev:1")
    loader = io.DataLoader(Samples(), batch_size=4, num_workers=2)
    assert numbers(loader) == list(range(40))
    facts["locked"] = loader.stats()["devices"]["lock_limit"]
    io.use_pinned_memory(False)
    loader = io.DataLoader(Samples(), batch_size=4, num_workers=2)
    assert numbers(loader) == list(range(40))
    facts["not locked"] = loader.stats()["devices"]["lock_limit"]
    io.use_pinned_memory(True)
    paddle.set_device("cpu")

    for wrong in "gpu:0", "gpu_pinned", "simdev:4", "npu:0":
        try:
            io.DataLoader(Samples(), places=wrong)
        except ConfigError as error:
            facts["refused"].append(str(error))

    paddle.enable_static()
    image = paddle.static.data("image", [None, 5], "float32")
    label = paddle.static.data("label", [None, 1], "int64")
    total = paddle.sum(image, axis=1)
    runner = paddle.static.Executor(place)
    for workers in 0, 2:
        loader = io.DataLoader(Samples(), feed_list=[image, label], return_list=False,
                               places=[place], batch_size=4, num_workers=workers)
        sums = []
        for feeds in loader:
            (feed,) = feeds
            assert str(feed["image"]._place()) == "Place(simdev:1)"
            (found,) = runner.run(feed=feed, fetch_list=[total])
            sums += found.tolist()
        assert sums == [5.0 * n for n in range(40)], sums
    feed = feeds = loader = None
    gc.collect()
    sim.synchronize()
    print(json.dumps({**facts, **sim.counts()}))
"""


@pytest.fixture(scope="module")
def on_torch(facts_of: Facts, device_kind: str) -> dict[str, Any]:
    return facts_of("torch", ON_TORCH, **{ACCELERATOR: device_kind})


@pytest.fixture(scope="module")
def on_paddle(facts_of: Facts) -> dict[str, Any]:
    return facts_of("paddle", ON_PADDLE)


def test_face_of_pytorch_brings_batches_to_its_device(
    on_torch: dict[str, Any], device_kind: str
) -> None:
    assert on_torch["resumed"]
    assert on_torch["cpu"] == "cpu"
    assert on_torch["used"] == 0
    if device_kind == "simdev":
        assert on_torch["staged"] == on_torch["faults"] == 0
        assert on_torch["allocs"] == on_torch["frees"]


def test_face_of_pytorch_refuses_unavailable_devices(
    on_torch: dict[str, Any], device_kind: str
) -> None:
    parts = {
        "simdev": ["finds no CUDA device", *["finds 4 devices 'simdev'"] * 2],
        "cuda": [*["devices 'gpu' here, numbered from 0"] * 2, "'xpu"],
    }[device_kind]
    parts += ["knows no device 'meta:0'", "knows no device 'moon:0'", "got 3.5 (float)"]
    for text, part in zip(on_torch["refused"], [*parts, "different kinds"], strict=True):
        assert part in text


def test_face_of_paddle_brings_batches_to_its_places(on_paddle: dict[str, Any]) -> None:
    assert on_paddle["faults"] == 0
    assert on_paddle["locked"] > 0 == on_paddle["not locked"]


def test_face_of_paddle_refuses_unavailable_places(on_paddle: dict[str, Any]) -> None:
    texts = on_paddle["refused"]
    assert len(texts) == 4
    assert "gpu:0, since PaddlePaddle is not compiled with CUDA" in texts[0]
    assert "gpu_pinned, since PaddlePaddle is not compiled with CUDA" in texts[1]
    assert "finds 4 devices 'simdev' here" in texts[2]
    assert "but received npu:0. The kinds of places here: cpu, gpu, gpu_pinned, simdev" in texts[3]
