"""Measure batches of JPEG files, decoded and resized to 224 x 224, beside other loaders.

    python -m tools.images_bench [--files 256] [--rounds 5] [--scale 1] [--decoders] [--json FILE]

Makes a folder of JPEG files of about 500 x 375 pixels (`--scale` times that) from scikit-learn's
two photographs, and has each loader make batches of 64 with 2 workers or threads, all in turns, in
one run. Every sample is the same work: the file is read, decoded to red, green and blue, resized to
224 x 224, and stacked with others as uint8. Each contestant's filter is named: Pillow's,
torchvision's and ours are bilinear and take the mean where an image shrinks; SPDL's is swscale's
bilinear. The consumer reads one number of each page. Medians of the rounds are shown.

`--decoders` measures the decoders and resizers by themselves instead, in CPU time of one thread.
Contestants that cannot be imported are left out, with the reason.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reader import DataLoader
from reader.images import ImageFolder

WORKERS, BATCH, SIZE = 2, 64, (224, 224)
_FILTER = "scale=w=224:h=224:flags=bilinear,format=pix_fmts=rgb24"

Batches = Callable[[], Iterator[Any]]


def main() -> int:
    """Measure and print a table; write JSON where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.images_bench", description=__doc__)
    parser.add_argument("--files", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
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
            found = loaders(root, chosen.rounds)
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


def loaders(root: Path, rounds: int) -> dict[str, float]:
    """Return the seconds per batch of each loader."""
    contestants = dict(_loaders(root))
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
        return lambda: (images for images, _ in made)

    yield "PyTorch's loader, Pillow (bilinear)", torch_loader(_WithPillow(folder.samples))
    try:
        with_torchvision = _WithTorchvision(folder.samples)
    except (ImportError, RuntimeError) as error:
        print(f"left out: torchvision ({error})")
    else:
        yield "PyTorch's loader, torchvision (bilinear)", torch_loader(with_torchvision)
        for kind in ("process", "thread"):
            name = f"reader, {kind} workers, torchvision (bilinear)"
            yield name, _ours(with_torchvision, kind)
    try:
        yield "SPDL, native threads, FFmpeg (swscale's bilinear)", _spdl(folder.samples[:count])
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
    return lambda: (images for images, _ in loader)


class _WithPillow:
    """Images by Pillow, as torchvision's ImageFolder and Resize give them."""

    def __init__(self, samples: list[tuple[str, int]]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        path, number = self._samples[index]
        with Image.open(path) as image:
            resized = image.convert("RGB").resize(SIZE[::-1], Image.Resampling.BILINEAR)
        return np.array(resized), number


class _WithTorchvision:
    """Images by torchvision's own decoder and its resizing of tensors, as channels x rows."""

    def __init__(self, samples: list[tuple[str, int]]) -> None:
        import torchvision

        torchvision.io.decode_jpeg  # noqa: B018 (fails where its library does)
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

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

    from reader.images import decode

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
    yield "decoded: reader.images (simplejpeg)", lambda n: decode(contents[n], out=whole[n])
    yield "decoded: Pillow", lambda n: np.array(by_pillow(n))
    out = np.empty((*SIZE, 3), np.uint8)
    from reader._core.collate.resample import resample

    yield (
        "resized: reader.images",
        lambda n: resample(whole[n], (0, 0, *whole[n].shape[:2]), out),
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
