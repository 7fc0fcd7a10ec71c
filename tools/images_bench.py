"""Measure batches of JPEG files, decoded and resized to 224 x 224, beside other loaders.

    python -m tools.images_bench [--files 256] [--rounds 5] [--scale 1] [--input KIND] [--decoders]
        [--json FILE]

Makes a folder of JPEG files of about 500 x 375 pixels (`--scale` times that) from scikit-learn's
two photographs, and has each loader make batches of 64 with 2 workers or threads, all in turns, in
one run. Every sample is the same work: the file is read, decoded to red, green and blue, resized to
224 x 224, and stacked with others as uint8. Each contestant's filter is named: Pillow's,
torchvision's and ours are bilinear and take the mean where an image shrinks; SPDL's is swscale's
bilinear. The consumer reads one number of each page. Medians of the rounds are shown.

`--input training` measures what a training on pictures takes instead: RandomResizedCrop to 224 x
224, RandomHorizontalFlip, Normalize, as float32, channels first; `--input validation` Resize to
256, CenterCrop of 224 and the same numbers. Cached pictures are those of a second epoch. The peers
use torchvision's transforms, on images of Pillow and on tensors. Two rows more show where the time
is: the crop as uint8, and the whole file decoded and dropped.

`--decoders` measures the decoders and resizers by themselves instead, in CPU time of one thread.
Contestants that cannot be imported are left out, with the reason.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reader import DataLoader, cache
from reader.images import (
    CenterCrop,
    ImageFolder,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    decode,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WORKERS, BATCH, SIZE = 2, 64, (224, 224)
_FILTER = "scale=w=224:h=224:flags=bilinear,format=pix_fmts=rgb24"

Batches = Callable[[], Iterator[Any]]


def main() -> int:
    """Measure and print a table; write JSON where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.images_bench", description=__doc__)
    parser.add_argument("--files", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--input", choices=("resized", "training", "validation"), default="resized")
    parser.add_argument("--decoders", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        nbytes = make_files(root, chosen.files, chosen.scale)
        print(f"{chosen.files} files of {nbytes / chosen.files / 1024:.0f} KiB in the mean")
        if chosen.decoders:
            found = decoders(root, chosen.rounds)
            unit = "ms per image, CPU"
        else:
            found = loaders(root, chosen.rounds, chosen.input)
            unit = "ms per batch"
    first = next(iter(found.values()))
    for name, value in found.items():
        print(f"{name:58s} {value * 1e3:8.2f} {unit}, {value / first:5.2f} times the first")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1))
    return 0


def make_files(root: Path, count: int, scale: float) -> int:
    """Write JPEG files into two folders; return their bytes."""
    from PIL import Image
    from sklearn.datasets import load_sample_images  # type: ignore[import-untyped, unused-ignore]

    photographs = [Image.fromarray(each) for each in load_sample_images().images]
    rng = np.random.default_rng(0)
    nbytes = 0
    for number in range(count):
        photograph = photographs[number % 2]
        part = rng.uniform(0.75, 1)
        width, height = (int(part * side) for side in photograph.size)
        left = int(rng.integers(photograph.width - width + 1))
        top = int(rng.integers(photograph.height - height + 1))
        sides = (int(scale * rng.integers(440, 561)), int(scale * rng.integers(330, 421)))
        image = photograph.crop((left, top, left + width, top + height)).resize(sides)
        path = root / "ab"[number % 2] / f"{number:05}.jpg"
        path.parent.mkdir(exist_ok=True)
        image.save(path, quality=int(rng.integers(90, 96)))
        nbytes += path.stat().st_size
    return nbytes


# -- loaders ------------------------------------------------------------------------------------


def loaders(root: Path, rounds: int, kind: str = "resized") -> dict[str, float]:
    """Return the seconds per batch of each loader."""
    contestants = dict(_loaders(root) if kind == "resized" else _inputs(root, kind))
    for run in contestants.values():
        _seconds_per_batch(run)  # workers start, and files are read from the disk
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            times[name].append(_seconds_per_batch(run))
    return {name: statistics.median(each) for name, each in times.items()}


def _seconds_per_batch(batches: Batches) -> float:
    begun, count = time.perf_counter(), 0
    for images in batches():
        np.asarray(images).reshape(-1)[::4096].sum()
        count += 1
    return (time.perf_counter() - begun) / count


def _resized(image: Any, out: Any) -> None:
    from reader._core.pixels.render import render

    height, width = image.shape[:2]
    render(image, (0, height, 0, height), (0, width, 0, width), out)


def _loaders(root: Path) -> Iterator[tuple[str, Batches]]:
    folder = ImageFolder(root, size=SIZE)
    count = len(folder) // BATCH * BATCH
    for kind in ("process", "thread"):
        yield f"reader.images, {kind} workers", _ours(folder, kind)
    try:
        from torch.utils.data import DataLoader as TorchLoader
    except ImportError as error:
        print(f"left out: PyTorch ({error})")
        return

    def torch_loader(dataset: Any) -> Batches:
        made: Any = TorchLoader(
            dataset, BATCH, num_workers=WORKERS, persistent_workers=True, drop_last=True
        )
        return functools.partial(_first_of_each, made)

    yield "PyTorch's loader, Pillow (bilinear)", torch_loader(_WithPillow(list(folder.samples)))
    try:
        with_torchvision = _WithTorchvision(list(folder.samples))
    except (ImportError, RuntimeError) as error:
        print(f"left out: torchvision ({error})")
    else:
        yield "PyTorch's loader, torchvision (bilinear)", torch_loader(with_torchvision)
        for kind in ("process", "thread"):
            name = f"reader, {kind} workers, torchvision (bilinear)"
            yield name, _ours(with_torchvision, kind)
    try:
        yield (
            "SPDL, native threads, FFmpeg (swscale's bilinear)",
            _spdl(list(folder.samples[:count])),
        )
    except (ImportError, RuntimeError, OSError) as error:
        print(f"left out: SPDL ({str(error).splitlines()[0][:100]})")


def _ours(dataset: Any, kind: Any) -> Batches:
    loader: Any = DataLoader(
        dataset,
        batch_size=BATCH,
        num_workers=WORKERS,
        worker_type=kind,
        persistent_workers=True,
        drop_last=True,
    )
    return functools.partial(_first_of_each, loader)


def _inputs(root: Path, kind: str) -> Iterator[tuple[str, Batches]]:
    """Yield contestants that make the input of a network."""
    views = {
        "training": [RandomResizedCrop(), RandomHorizontalFlip()],
        "validation": [Resize(256), CenterCrop(224)],
    }[kind]
    options: dict[str, Any] = {"layout": "channels_first", "dtype": "float32"}
    ours = ImageFolder(root, size=SIZE, transforms=[*views, Normalize(MEAN, STD)], **options)
    for workers in ("process", "thread"):
        yield f"reader.images, {workers} workers", _ours(ours, workers)
    whole: dict[str, Any] = {
        "pictures cached in memory": {"memory": "8GB"},
        "on disk": {"disk": root.parent / f"{root.name}-cache"},
    }
    for name, where in whole.items():
        yield f"reader.images, {name}", _ours(cache(ours, **where), "process")
    smaller = ImageFolder(
        root,
        size=SIZE,
        transforms=[*views, Normalize(MEAN, STD)],
        cache="8GB",
        cache_shorter_side=256,
        **options,
    )
    yield "reader.images, cached with a shorter side of 256", _ours(smaller, "process")
    yield (
        "reader.images, process workers, uint8",
        _ours(ImageFolder(root, size=SIZE, transforms=views), "process"),
    )
    yield (
        "reader, process workers, files decoded and dropped",
        _ours(_Decoded(list(ours.samples)), "process"),
    )
    try:
        from torch.utils.data import DataLoader as TorchLoader

        _import_torchvision()
        from torchvision import transforms as v1
        from torchvision.datasets import ImageFolder as TheirFolder
        from torchvision.transforms import v2
    except (ImportError, RuntimeError) as error:
        print(f"left out: PyTorch with torchvision ({error})")
        return
    from reader.compat.torch import DataLoader as OurTorchLoader

    theirs = {
        "training": [v1.RandomResizedCrop(SIZE), v1.RandomHorizontalFlip()],
        "validation": [v1.Resize(256), v1.CenterCrop(224)],
    }[kind]
    on_pillow = TheirFolder(
        str(root), v1.Compose([*theirs, v1.ToTensor(), v1.Normalize(MEAN, STD)])
    )
    views = {
        "training": [v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip()],
        "validation": [v2.Resize(256), v2.CenterCrop(224)],
    }[kind]
    import torch

    numbers = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    on_tensors = TheirFolder(str(root), v2.Compose([*views, *numbers]), loader=_read_tensor)
    for name, dataset in (("on Pillow", on_pillow), ("v2 on tensors", on_tensors)):
        for loader, maker in (
            ("PyTorch's loader", TorchLoader),
            ("reader.compat.torch", OurTorchLoader),
        ):
            made: Any = maker(
                dataset, BATCH, num_workers=WORKERS, persistent_workers=True, drop_last=True
            )
            yield f"{loader}, torchvision {name}", functools.partial(_first_of_each, made)


def _first_of_each(loader: Any) -> Iterator[Any]:
    return (images for images, _ in loader)


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


class _Files:
    """A dataset of files; a class says what it makes of one."""

    def __init__(self, samples: list[tuple[str, int]]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)


class _Decoded(_Files):
    """Files that are read and decoded whole; one row of pixels is kept."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, number = self._samples[index]
        return decode(path)[0, :224].copy(), number


class _WithPillow(_Files):
    """Images by Pillow, as torchvision's ImageFolder and Resize give them."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        path, number = self._samples[index]
        with Image.open(path) as image:
            resized = image.convert("RGB").resize(SIZE[::-1], Image.Resampling.BILINEAR)
        return np.array(resized), number


class _WithTorchvision(_Files):
    """Images by torchvision's own decoder and its resizing of tensors, as channels x rows."""

    def __init__(self, samples: list[tuple[str, int]]) -> None:
        import torchvision

        torchvision.io.decode_jpeg  # noqa: B018 (fails where its library does)
        super().__init__(samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from torchvision.io import ImageReadMode, decode_jpeg, read_file
        from torchvision.transforms.v2 import functional

        path, number = self._samples[index]
        image = decode_jpeg(read_file(path), ImageReadMode.RGB)
        return functional.resize(image, list(SIZE), antialias=True), number


def _spdl(samples: list[tuple[str, int]]) -> Batches:
    """Return batches by a pipeline of SPDL's: its threads decode without the GIL."""
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    def decoded(path: str) -> Any:
        return spdl.io.decode_packets(spdl.io.demux_image(path), filter_desc=_FILTER)

    def batched(frames: list[Any]) -> Any:
        return spdl.io.to_numpy(spdl.io.convert_frames(frames))

    def batches() -> Iterator[Any]:
        pipeline = (
            PipelineBuilder()
            .add_source([path for path, _ in samples])
            .pipe(decoded, concurrency=WORKERS)
            .aggregate(BATCH)
            .pipe(batched)
            .add_sink(2)
            .build(num_threads=WORKERS)
        )
        with pipeline.auto_stop():
            yield from pipeline

    decoded(samples[0][0])  # where FFmpeg is missing, it fails here
    return batches


# -- decoders -----------------------------------------------------------------------------------


def decoders(root: Path, rounds: int) -> dict[str, float]:
    """Return the CPU seconds per image of each decoder and resizer, in one thread."""
    contents = [path.read_bytes() for path in sorted(root.rglob("*.jpg"))[:32]]
    contestants = dict(_decoders(contents))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, run in contestants.items():
            begun = time.process_time()
            for number in range(len(contents)):
                run(number)
            if turn:
                times[name].append((time.process_time() - begun) / len(contents))
    return {name: statistics.median(each) for name, each in times.items()}


def _decoders(contents: list[bytes]) -> Iterator[tuple[str, Callable[[int], Any]]]:
    from PIL import Image

    def by_pillow(number: int) -> Any:
        return Image.open(io.BytesIO(contents[number])).convert("RGB")

    whole = [decode(content) for content in contents]
    images = [Image.fromarray(each) for each in whole]
    bilinear = Image.Resampling.BILINEAR
    yield "decoded and resized: reader.images", lambda n: decode(contents[n], size=SIZE)
    yield (
        "decoded and resized: Pillow",
        lambda n: np.array(by_pillow(n).resize(SIZE[::-1], bilinear)),
    )
    yield "decoded: reader.images", lambda n: decode(contents[n], out=whole[n])
    yield "decoded: Pillow", lambda n: np.array(by_pillow(n))
    out = np.empty((*SIZE, 3), np.uint8)
    yield (
        "resized: reader.images",
        lambda n: _resized(whole[n], out),
    )
    yield "resized: Pillow", lambda n: np.array(images[n].resize(SIZE[::-1], bilinear))
    try:
        import cv2
    except ImportError as error:
        print(f"left out: OpenCV ({error})")
    else:
        cv2.setNumThreads(1)
        yield (
            "decoded: OpenCV",
            lambda n: cv2.imdecode(np.frombuffer(contents[n], np.uint8), cv2.IMREAD_COLOR_RGB),
        )
        yield (
            "resized: OpenCV, linear (skips pixels where it shrinks)",
            lambda n: cv2.resize(whole[n], SIZE[::-1], dst=out),
        )
        yield (
            "resized: OpenCV, area",
            lambda n: cv2.resize(whole[n], SIZE[::-1], dst=out, interpolation=cv2.INTER_AREA),
        )
    try:
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg
        from torchvision.transforms.v2 import functional
    except (ImportError, RuntimeError) as error:
        print(f"left out: torchvision ({error})")
    else:
        torch.set_num_threads(1)
        tensors = [torch.frombuffer(bytearray(each), dtype=torch.uint8) for each in contents]
        wide = [torch.from_numpy(each).permute(2, 0, 1).contiguous() for each in whole]
        yield "decoded: torchvision", lambda n: decode_jpeg(tensors[n], ImageReadMode.RGB)
        yield (
            "resized: torchvision",
            lambda n: functional.resize(wide[n], list(SIZE), antialias=True),
        )
    try:
        import imagecodecs
    except ImportError as error:
        print(f"left out: imagecodecs ({error})")
    else:
        yield "decoded: imagecodecs", lambda n: imagecodecs.jpeg8_decode(contents[n])
    try:
        from kornia_rs.io import decode_image_jpegturbo
    except ImportError as error:
        print(f"left out: kornia-rs ({error})")
    else:
        yield "decoded: kornia-rs", lambda n: decode_image_jpegturbo(contents[n], "rgb")


if __name__ == "__main__":
    raise SystemExit(main())
