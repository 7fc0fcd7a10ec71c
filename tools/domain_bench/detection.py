"""The input of a detector, beside the usual program under PyTorch.

Each loader makes the same batches, of the same files, with 2 workers. The programs are those of
docs/detection.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import reader
from reader.collate import AsList, Stack, Tuple
from reader.images import Compose, Normalize, RandomHorizontalFlip, Resize, decode
from tools.domain_bench.image_files import MEAN, STD, WORKERS, make_files
from tools.domain_bench.work import Work, by_epochs, left_out

SIDE = 512


def detection(folder: Path) -> Work:
    """Pictures with boxes, resized, turned over and normalized, as float32."""
    return by_epochs(_loaders(make_files(folder, 128, 1.0)))


def _loaders(root: Path) -> Iterator[tuple[str, Iterable[Any]]]:
    rng = np.random.default_rng(0)
    annotations: list[Any] = []
    for path in sorted(root.glob("*/*.jpg")):
        corners = rng.uniform(0, 200, (int(rng.integers(1, 9)), 2))
        boxes = np.concatenate([corners, corners + rng.uniform(10, 100, corners.shape)], 1)
        annotations.append((str(path), boxes.tolist(), [1] * len(boxes)))
    options: dict[str, Any] = {"batch_size": 16, "num_workers": WORKERS, "persistent_workers": True}
    with left_out("PyTorch"):
        from torch.utils.data import DataLoader as TorchLoader

        usual: Any = _UsualPictures(annotations)
        yield "PyTorch, Pillow", TorchLoader(usual, collate_fn=_lists, **options)
    options["collate_fn"] = Tuple(Stack(), AsList(), AsList())
    pictures: Any = _Pictures(annotations)
    yield "reader", reader.DataLoader(pictures, **options)
    cached = reader.cache(_Decoded(annotations), memory="2GB").map(augment, with_index=True)
    yield "reader, decoded pictures cached", reader.DataLoader(cached, **options)


class _UsualPictures:
    def __init__(self, annotations: list[Any]) -> None:
        self._annotations = annotations

    def __len__(self) -> int:
        return len(self._annotations)

    def __getitem__(self, index: int) -> Any:
        import torch
        from PIL import Image

        path, found, labels = self._annotations[index]
        image = Image.open(path).convert("RGB")
        boxes = torch.tensor(found) * torch.tensor([SIDE / image.width, SIDE / image.height] * 2)
        image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float().div(255)
        if torch.rand(1) < 0.5:
            pixels = pixels.flip(2)
            left, top, right, bottom = boxes.unbind(1)
            boxes = torch.stack([SIDE - right, top, SIDE - left, bottom], 1)
        mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
        return pixels.sub(mean).div(std), boxes, torch.tensor(labels)


def _lists(samples: list[Any]) -> Any:
    import torch

    images, boxes, labels = zip(*samples)
    return torch.stack(images), list(boxes), list(labels)


_AUGMENT = Compose(
    [Resize((SIDE, SIDE)), RandomHorizontalFlip(), Normalize(MEAN, STD)], layout="channels_first"
)


class _Pictures(reader.Dataset[Any]):
    def __init__(self, annotations: list[Any]) -> None:
        self.annotations = reader.share(annotations)

    def __len__(self) -> int:
        return len(self.annotations)

    def __getitem__(self, index: int) -> Any:
        return augment(self.annotations[index], index)


class _Decoded(_Pictures):
    def __getitem__(self, index: int) -> Any:
        path, boxes, labels = self.annotations[index]
        return decode(path), boxes, labels


def augment(sample: Any, index: int) -> Any:
    """Return a picture and its boxes, resized and perhaps turned over, and the labels."""
    image, boxes, labels = sample
    made, found = _AUGMENT.apply(image, reader.sample_rng(index), boxes=boxes)
    return made, found["boxes"].astype(np.float32), np.array(labels)
