"""The input of a network on pictures: of a training, and of its validation.

A training takes RandomResizedCrop to 224 x 224, RandomHorizontalFlip and Normalize, as float32,
channels first; a validation Resize to 256, CenterCrop of 224 and the same numbers. Cached pictures
are those of a second epoch. The peers use torchvision's transforms, on images of Pillow and on
tensors; SPDL FFmpeg's filters and NumPy; DALI its own operators. Two rows more show where the time
is: the crop as uint8, and the whole file decoded and dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from reader import cache
from reader.images import (
    CenterCrop,
    ImageFolder,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    decode,
)
from tools.domain_bench.image_files import BATCH, MEAN, SIZE, STD, make_files
from tools.domain_bench.image_peers import (
    Dali,
    Files,
    spdl_input,
    torch_loader,
    torchvision_inputs,
)
from tools.domain_bench.images import our_loader
from tools.domain_bench.work import Work, by_epochs, left_out


def training(folder: Path, files: int, scale: float) -> Work:
    """Random crops of pictures, resized, turned over and normalized, as float32."""
    return by_epochs(_loaders(make_files(folder, files, scale), "training"))


def validation(folder: Path, files: int, scale: float) -> Work:
    """Crops of the centers of resized pictures, normalized, as float32."""
    return by_epochs(_loaders(make_files(folder, files, scale), "validation"))


def _loaders(root: Path, kind: str) -> Iterator[tuple[str, Iterable[Any]]]:
    views = {
        "training": [RandomResizedCrop(), RandomHorizontalFlip()],
        "validation": [Resize(256), CenterCrop(224)],
    }[kind]
    options: dict[str, Any] = {
        "size": SIZE,
        "transforms": [*views, Normalize(MEAN, STD)],
        "layout": "channels_first",
        "dtype": "float32",
    }
    ours = ImageFolder(root, **options)
    samples = list(ours.samples)
    for workers in ("process", "thread"):
        yield f"reader.images, {workers} workers", our_loader(ours, workers)
    places: dict[str, Any] = {
        "pictures cached in memory": {"memory": "8GB"},
        "on disk": {"disk": root.parent / "cache"},
    }
    for name, where in places.items():
        yield f"reader.images, {name}", our_loader(cache(ours, **where), "process")
    smaller = ImageFolder(root, cache="8GB", cache_shorter_side=256, **options)
    yield "reader.images, cached with a shorter side of 256", our_loader(smaller, "process")
    as_uint8 = ImageFolder(root, size=SIZE, transforms=views)
    yield "reader.images, process workers, uint8", our_loader(as_uint8, "process")
    dropped = _Decoded(samples)
    yield "reader, process workers, files decoded and dropped", our_loader(dropped, "process")
    with left_out("PyTorch with torchvision"):
        from torch.utils.data import DataLoader as TorchLoader

        from reader.compat.torch import DataLoader as OurTorchLoader

        for name, dataset in torchvision_inputs(root, kind).items():
            yield f"PyTorch's loader, {name}", torch_loader(TorchLoader, dataset)
            yield f"reader.compat.torch, {name}", torch_loader(OurTorchLoader, dataset)
    with left_out("SPDL"):
        yield "SPDL, native threads, FFmpeg", spdl_input(samples, kind)
    with left_out("DALI"):
        yield "DALI, native threads", Dali(root, kind, len(samples) // BATCH)


class _Decoded(Files):
    """Files that are read and decoded whole; one row of pixels is kept."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, number = self._samples[index]
        return decode(path)[0, :224].copy(), number
