"""Peers that read files of pictures: datasets for PyTorch's loader, and pipelines.

Each imports its project where it is made, and fails there with ImportError, OSError or RuntimeError
where that is not installed, or lacks a library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reader.images import RandomResizedCrop
from tools.domain_bench.image_files import BATCH, MEAN, SIZE, STD, WORKERS

Samples = list[tuple[str, int]]

# -- PyTorch, Pillow and torchvision ------------------------------------------------------------


def torch_loader(maker: Callable[..., Any], dataset: Any) -> Iterable[Any]:
    """Return the loader of whole batches by PyTorch's class, or by one with its face."""
    loader: Iterable[Any] = maker(
        dataset, BATCH, num_workers=WORKERS, persistent_workers=True, drop_last=True
    )
    return loader


class Files:
    """A dataset of files; a subclass decodes one."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)


class WithPillow(Files):
    """Images by Pillow, as torchvision's ImageFolder and Resize give them."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        path, number = self._samples[index]
        with Image.open(path) as image:
            resized = image.convert("RGB").resize(SIZE[::-1], Image.Resampling.BILINEAR)
        return np.array(resized), number


class WithTorchvision(Files):
    """Images by torchvision's own decoder and its resizing of tensors, as channels x rows."""

    def __init__(self, samples: Samples) -> None:
        import torchvision

        torchvision.io.decode_jpeg  # noqa: B018 (fails where its library does)
        super().__init__(samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from torchvision.io import ImageReadMode, decode_jpeg, read_file
        from torchvision.transforms.v2 import functional

        path, number = self._samples[index]
        image = decode_jpeg(read_file(path), ImageReadMode.RGB)
        return functional.resize(image, list(SIZE), antialias=True), number


def torchvision_inputs(root: Path, kind: str) -> dict[str, Any]:
    """Return torchvision's datasets of a network's input: on images of Pillow, and on tensors."""
    _import_torchvision()
    import torch
    from torchvision import transforms as v1
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    def views(of: Any) -> list[Any]:
        return {
            "training": [of.RandomResizedCrop(SIZE), of.RandomHorizontalFlip()],
            "validation": [of.Resize(256), of.CenterCrop(224)],
        }[kind]

    on_pillow = v1.Compose([*views(v1), v1.ToTensor(), v1.Normalize(MEAN, STD)])
    numbers = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    on_tensors = v2.Compose([*views(v2), *numbers])
    return {
        "torchvision on Pillow": ImageFolder(str(root), on_pillow),
        "torchvision v2 on tensors": ImageFolder(str(root), on_tensors, loader=_read_tensor),
    }


def _import_torchvision() -> None:
    """Import torchvision, where its compiled part is for another machine without that part.

    Its transforms need none of it.
    """
    import torch

    library: Any = torch.library
    register = library.register_fake

    def leave_out(name: str, *args: Any, **options: Any) -> Any:
        is_missing = not hasattr(getattr(torch.ops, name.split("::")[0]), name.split("::")[1])
        return (lambda function: function) if is_missing else register(name, *args, **options)

    library.register_fake = leave_out
    try:
        import torchvision  # noqa: F401
    finally:
        library.register_fake = register


def _read_tensor(path: str) -> Any:
    import torch

    try:
        from torchvision.io import ImageReadMode, decode_jpeg, read_file

        return decode_jpeg(read_file(path), ImageReadMode.RGB)
    except (RuntimeError, AttributeError):  # the same library, by another package
        import simplejpeg

        pixels = simplejpeg.decode_jpeg(Path(path).read_bytes(), "RGB")
        return torch.from_numpy(pixels).permute(2, 0, 1)


# -- SPDL ---------------------------------------------------------------------------------------

# Names FFmpeg's filters for an image of that width and height.
View = Callable[[int, int], str]


def whole(width: int, height: int) -> str:  # noqa: ARG001 (any size has the same filter)
    """Return the filter that resizes the whole image."""
    return f"scale=w={SIZE[1]}:h={SIZE[0]}:flags=bilinear"


def _random_crop(width: int, height: int, rng: np.random.Generator) -> str:
    box = RandomResizedCrop()(height, width, rng)  # drawn as torchvision does
    flip = ",hflip" if rng.random() < 0.5 else ""
    return "crop={3}:{2}:{1}:{0},".format(*box) + whole(width, height) + flip


def _center_crop(width: int, height: int) -> str:
    shorter = min(width, height)
    scaled = f"scale=w={256 * width // shorter}:h={256 * height // shorter}:flags=bilinear"
    return f"{scaled},crop={SIZE[1]}:{SIZE[0]}"


def _normalized(images: Any) -> Any:
    """Return images as float32, channels first; one by one, which stay in the cache."""
    mean, std = (np.float32(255) * np.array(each, np.float32) for each in (MEAN, STD))
    made = np.empty((len(images), 3, *SIZE), np.float32)
    for image, out in zip(images, made):
        out[...] = image.transpose(2, 0, 1)
        out -= mean[:, None, None]
        out *= 1 / std[:, None, None]
    return made


class Spdl:
    """Batches by a pipeline of SPDL's: its threads decode without the GIL, by FFmpeg.

    At the end of an epoch it waits for 0.1 s, however long the epoch was: with the 4 batches of 256
    files that is 25 ms of each.
    """

    def __init__(
        self, samples: Samples, view: View, finish: Callable[[Any], Any] | None = None
    ) -> None:
        self._paths = [path for path, _ in samples[: len(samples) // BATCH * BATCH]]
        self._view, self._finish = view, finish
        self._decoded(samples[0][0])  # where FFmpeg is missing, it fails here

    def _decoded(self, path: str) -> Any:
        import spdl.io

        packets = spdl.io.demux_image(path)
        view = self._view(packets.codec.width, packets.codec.height)
        return spdl.io.decode_packets(packets, filter_desc=f"{view},format=pix_fmts=rgb24")

    def _batched(self, frames: list[Any]) -> Any:
        import spdl.io

        images = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        return images if self._finish is None else self._finish(images)

    def __iter__(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder

        pipeline = (
            PipelineBuilder()
            .add_source(self._paths)
            .pipe(self._decoded, concurrency=WORKERS)
            .aggregate(BATCH)
            .pipe(self._batched)
            .add_sink(2)
            .build(num_threads=WORKERS)
        )
        with pipeline.auto_stop():
            for images in pipeline:
                yield (images,)


def spdl_input(samples: Samples, kind: str) -> Spdl:
    """Return SPDL's batches of a network's input."""
    views: dict[str, View] = {
        "training": functools.partial(_random_crop, rng=np.random.default_rng()),
        "validation": _center_crop,
    }
    return Spdl(samples, views[kind], _normalized)


# -- DALI ---------------------------------------------------------------------------------------


class Dali:
    """Batches of a network's input by a pipeline of NVIDIA DALI's on the CPU.

    An epoch begins with nothing made, as that of other loaders: `run`, which most programs call,
    would have made two batches of the next one in the turn of another contestant.
    """

    _AHEAD = 2

    def __init__(self, root: Path, kind: str, batches: int) -> None:
        from nvidia import dali

        self._dali, self._root, self._kind, self._batches = dali, root, kind, batches

    @functools.cached_property
    def _pipeline(self) -> Any:
        """The pipeline, whose threads start after others' workers were forked."""
        fn, types = self._dali.fn, self._dali.types
        pipeline = self._dali.Pipeline(
            batch_size=BATCH,
            num_threads=WORKERS,
            device_id=None,
            prefetch_queue_depth=self._AHEAD,
        )
        numbers: dict[str, Any] = {
            "mean": [255 * each for each in MEAN],
            "std": [255 * each for each in STD],
            "dtype": types.FLOAT,
            "output_layout": "CHW",
        }
        with pipeline:
            contents, _ = fn.readers.file(file_root=str(self._root), random_shuffle=False)
            if self._kind == "training":
                images = fn.decoders.image_random_crop(contents, output_type=types.RGB)
                images = fn.resize(
                    images,
                    resize_x=SIZE[1],
                    resize_y=SIZE[0],
                    interp_type=types.INTERP_TRIANGULAR,
                )
                numbers["mirror"] = fn.random.coin_flip()
            else:
                images = fn.decoders.image(contents, output_type=types.RGB)
                images = fn.resize(images, resize_shorter=256, interp_type=types.INTERP_TRIANGULAR)
                numbers["crop"] = SIZE
            pipeline.set_outputs(fn.crop_mirror_normalize(images, **numbers))
        pipeline.schedule_run()  # the first has all of the queue made
        while not pipeline.empty():
            pipeline.share_outputs()
            pipeline.release_outputs()
        return pipeline

    def __iter__(self) -> Iterator[Any]:
        for _ in range(min(self._AHEAD, self._batches)):
            self._pipeline.schedule_run()
        for number in range(self._batches):
            (images,) = self._pipeline.share_outputs()
            yield (np.asarray(images.as_tensor()),)
            self._pipeline.release_outputs()
            if number + self._AHEAD < self._batches:
                self._pipeline.schedule_run()
