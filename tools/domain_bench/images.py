"""Batches of JPEG files, decoded and resized to 224 x 224, beside other loaders.

Every sample is the same work: the file is read, decoded to red, green and blue, resized to
224 x 224, and stacked with 63 others as uint8. Each contestant's filter is named: Pillow's,
torchvision's and ours are bilinear and take the mean where an image shrinks; SPDL's is swscale's
bilinear. The consumer reads one number of each page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from reader import DataLoader
from reader.images import ImageFolder
from tools.domain_bench.image_files import BATCH, SIZE, WORKERS, make_files
from tools.domain_bench.image_peers import Spdl, WithPillow, WithTorchvision, torch_loader, whole
from tools.domain_bench.work import Work, by_epochs, left_out


def resized(folder: Path, files: int, scale: float) -> Work:
    """Files of pictures to batches of 224 x 224, as uint8."""
    return by_epochs(_loaders(make_files(folder, files, scale)))


def _loaders(root: Path) -> Iterator[tuple[str, Iterable[Any]]]:
    folder = ImageFolder(root, size=SIZE)
    samples = list(folder.samples)
    for kind in ("process", "thread"):
        yield f"reader.images, {kind} workers", our_loader(folder, kind)
    with left_out("PyTorch"):
        from torch.utils.data import DataLoader as TorchLoader

        yield "PyTorch's loader, Pillow (bilinear)", torch_loader(TorchLoader, WithPillow(samples))
        with left_out("torchvision"):
            theirs = WithTorchvision(samples)
            yield "PyTorch's loader, torchvision (bilinear)", torch_loader(TorchLoader, theirs)
            for kind in ("process", "thread"):
                name = f"reader, {kind} workers, torchvision (bilinear)"
                yield name, our_loader(theirs, kind)
    with left_out("SPDL"):
        yield "SPDL, native threads, FFmpeg (swscale's bilinear)", Spdl(samples, whole)


def our_loader(dataset: Any, kind: Any) -> Iterable[Any]:
    """Return the loader of whole batches by workers of a kind."""
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=BATCH,
        num_workers=WORKERS,
        worker_type=kind,
        persistent_workers=True,
        drop_last=True,
    )
    return loader
