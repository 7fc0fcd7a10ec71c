"""JPEG files decoded by workers, or by the GPU from batches of compressed bytes: pictures a second.

    python -m tools.device_bench.jpeg_decoding [--workers 14] [--seconds 6] [--train] [NAME ...]

Files of 500 x 375; each way crops at random, resizes to 224 x 224, flips and normalizes to float32
on the device. Of the workers': `reader.images`, with the rest of the work in the worker or on the
device. Of the device's: a loader delivers the files of a batch end to end in one slot, which is
page-locked; nvImageCodec or torchvision's nvJPEG decodes them on a side stream, and torch does the
rest there. Prints one JSON: for each contestant its pictures a second, or why it cannot run.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import io
import itertools
import json
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tools.device_bench.training import Training

SIZE = 64  # pictures of a batch
SIDE = 224
BANK = 512  # different files
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@functools.lru_cache(maxsize=1)
def files() -> list[bytes]:
    """Return the content of the files."""
    image: Any = importlib.import_module("PIL.Image")
    draws = np.random.default_rng(0)
    found = []
    for _ in range(BANK):
        rough = image.fromarray(draws.integers(0, 256, (48, 64, 3), np.uint8))
        file = io.BytesIO()
        rough.resize((500, 375), image.Resampling.BICUBIC).save(file, "jpeg", quality=90)
        found.append(file.getvalue())
    return found


def decoded_files(root: str, is_float: bool) -> Any:
    """Return pictures that a worker decodes, crops and flips; and normalizes, where `is_float`."""
    images: Any = importlib.import_module("reader.images")
    folder = Path(root, "class")
    folder.mkdir()
    for number, content in enumerate(files()):
        Path(folder, f"{number}.jpg").write_bytes(content)
    steps = [images.RandomResizedCrop(), images.RandomHorizontalFlip()]
    if is_float:
        steps.append(images.Normalize(MEAN, STD))
    dtype = "float32" if is_float else "uint8"
    return images.ImageFolder(
        root, size=(SIDE, SIDE), transforms=steps, layout="channels_first", dtype=dtype
    )


class CompressedFiles:
    """The files themselves."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._files = [np.frombuffer(each, np.uint8) for each in files()]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._files[index % BANK]


def end_to_end(samples: list[Any]) -> tuple[Any, Any]:
    """Return the bytes of a batch, one file behind the other, and where each begins and ends."""
    ends = np.cumsum([0, *(len(each) for each in samples)], dtype=np.int64)
    return np.concatenate(samples), ends


class Finisher:
    """Crops, resizes, flips and normalizes decoded pictures on the device."""

    def __init__(self) -> None:
        torch: Any = importlib.import_module("torch")
        self._torch = torch
        self._draws = np.random.default_rng(1)
        self._mean, self._std = (
            torch.tensor(each, device="cuda").view(3, 1, 1) * 255 for each in (MEAN, STD)
        )

    def normalized(self, pictures: Any) -> Any:
        """Return float32 of bytes, channels first."""
        return (pictures.float() - self._mean) / self._std

    def boxes(self, count: int) -> np.ndarray[Any, Any]:
        """Return crops as RandomResizedCrop draws them: top, left, height, width of each."""
        draws = self._draws
        area = 500 * 375 * draws.uniform(0.08, 1.0, count)
        ratio = np.exp(draws.uniform(np.log(3 / 4), np.log(4 / 3), count))
        width = np.clip(np.sqrt(area * ratio).round(), 1, 500).astype(int)
        height = np.clip(np.sqrt(area / ratio).round(), 1, 375).astype(int)
        top = (draws.uniform(size=count) * (375 - height + 1)).astype(int)
        left = (draws.uniform(size=count) * (500 - width + 1)).astype(int)
        return np.stack([top, left, height, width], 1)

    def finish(self, decoded: list[Any], boxes: Any) -> Any:
        """Return the batch of pictures that lie there as 3 x 375 x 500 bytes, all in few kernels.

        Without antialiasing, which would need a kernel for each picture.
        """
        torch = self._torch
        top, left, height, width = torch.from_numpy(boxes).T.to("cuda", non_blocking=True).float()
        flips = torch.from_numpy(self._draws.choice([-1.0, 1.0], len(decoded))).to("cuda").float()
        zero = torch.zeros_like(top)
        across = [width / 500 * flips, zero, (2 * left + width) / 500 - 1]
        down = [zero, height / 375, (2 * top + height) / 375 - 1]
        maps = torch.stack([torch.stack(across, 1), torch.stack(down, 1)], 1)
        grid = torch.nn.functional.affine_grid(
            maps, (len(decoded), 3, SIDE, SIDE), align_corners=False
        )
        pictures = torch.stack(decoded).float()
        small = torch.nn.functional.grid_sample(pictures, grid, align_corners=False)
        return self.normalized(small)


def by_workers(workers: int, seconds: float, is_float: bool, trains: bool) -> float:
    """Return pictures a second of workers that decode."""
    torch: Any = importlib.import_module("torch")
    loaders: Any = importlib.import_module("reader.compat.torch")
    finish = (lambda pictures: pictures) if is_float else Finisher().normalized
    order = [number % BANK for number in range(1_000_000)]
    options: dict[str, Any] = {"num_workers": workers, "sampler": order, "device": "cuda:0"}
    with (
        tempfile.TemporaryDirectory() as root,
        loaders.DataLoader(decoded_files(root, is_float), SIZE, **options) as loader,
    ):
        return _rate(torch, (pictures for pictures, _ in loader), finish, seconds, trains)


def by_device(workers: int, seconds: float, make_decode: Callable[[], Any], trains: bool) -> float:
    """Return pictures a second of a device that decodes on a side stream."""
    torch: Any = importlib.import_module("torch")
    loaders: Any = importlib.import_module("reader.compat.torch")
    decode, finisher, lock = make_decode(), Finisher(), _Locker()
    stream = torch.cuda.Stream()
    data = CompressedFiles(1_000_000)
    ahead: list[Any] = []
    held: list[Any] = []  # batches that the device may still read

    def finish(batch: Any) -> Any:
        """Issue this batch's work, and hand over the batch before it."""
        packed, ends = (np.asarray(each) for each in batch)
        lock(packed)
        parts = [packed[a:b] for a, b in itertools.pairwise(ends)]
        boxes = finisher.boxes(len(parts))
        with torch.cuda.stream(stream):
            made = finisher.finish(decode(parts, stream), boxes)
            event = stream.record_event()
        ahead.append((made, event, batch))
        if len(ahead) < 3:
            return None
        held.append(ahead.pop(0))
        if len(held) > 3:
            held.pop(0)[1].synchronize()  # issued six batches ago
        made, event, _ = held[-1]
        torch.cuda.current_stream().wait_event(event)
        made.record_stream(torch.cuda.current_stream())
        return made

    with loaders.DataLoader(
        data, SIZE, num_workers=workers, collate_fn=end_to_end, persistent_workers=True
    ) as loader:
        return _rate(torch, iter(loader), finish, seconds, trains)


def _rate(
    torch: Any,
    batches: Iterator[Any],
    finish: Callable[[Any], Any],
    seconds: float,
    trains: bool,
) -> float:
    """Return pictures a second, once the first 40 batches have come."""
    total = torch.zeros((), device="cuda")
    labels = torch.zeros(SIZE, dtype=torch.int64, device="cuda")
    train = Training() if trains else None
    for number, batch in enumerate(batches):
        made = finish(batch)
        if made is not None and train is None:
            total += made[:, :, ::32, ::32].sum()  # what a step would read
        elif made is not None and train is not None:
            train((made, labels))
        if number == 40:
            torch.cuda.synchronize()
            began = time.perf_counter()
        elif number > 40 and number % 8 == 0:
            torch.cuda.synchronize()
            took = time.perf_counter() - began
            if took > seconds:
                break
    if not torch.isfinite(total):
        raise RuntimeError("the pictures hold numbers that are none")
    return float((number - 40) * SIZE / took)


class _Locker:
    """Page-locks the slots that batches lie in, each once."""

    def __init__(self) -> None:
        locking: Any = importlib.import_module("reader.frameworks.page_locking")
        self._locker = locking.page_locker("gpu")
        self._known: set[int] = set()

    def __call__(self, array: np.ndarray[Any, Any]) -> None:
        first = array.ctypes.data & ~4095
        if self._locker is None or first in self._known:
            return
        self._known.add(first)
        self._locker.lock(first, (array.nbytes + 4095) & ~4095)


def nvimgcodec_decode(*backends: str) -> Any:
    """Return a decoder by nvImageCodec, on the backends of these names; none: on any."""
    torch: Any = importlib.import_module("torch")
    codec: Any = importlib.import_module("nvidia.nvimgcodec")
    kinds = [codec.Backend(getattr(codec, name)) for name in backends]
    decoder = codec.Decoder(device_id=0, backends=kinds or None)
    params = codec.DecodeParams(
        apply_exif_orientation=False,
        color_spec=codec.ColorSpec.SRGB,
        sample_format=codec.SampleFormat.P_RGB,
    )

    def decode(parts: list[Any], stream: Any) -> list[Any]:
        sources = [codec.CodeStream(part) for part in parts]
        number = stream.cuda_stream
        images = decoder.decode(sources, params=params, cuda_stream=number)
        if any(image is None for image in images):
            raise RuntimeError(f"{sum(image is None for image in images)} files were not decoded")
        return [torch.from_dlpack(image.to_dlpack(cuda_stream=number)) for image in images]

    return decode


def torchvision_decode() -> Any:
    """Return a decoder by torchvision's nvJPEG."""
    torch: Any = importlib.import_module("torch")
    io_: Any = importlib.import_module("torchvision.io")

    def decode(parts: list[Any], stream: Any) -> list[Any]:  # noqa: ARG001  it is the current one
        tensors = [torch.from_numpy(part) for part in parts]
        return list(io_.decode_jpeg(tensors, device="cuda", mode=io_.ImageReadMode.RGB))

    return decode


Contestant = Callable[[int, float, bool], float]


def contestants() -> dict[str, Contestant]:
    """Return the measurements by name, for workers, seconds, and whether a network trains."""

    def device(make_decode: Any) -> Contestant:
        # four workers read files as fast as any device decodes them
        return lambda _, seconds, trains: by_device(4, seconds, make_decode, trains)

    return {
        "workers, float32": lambda n, s, trains: by_workers(n, s, is_float=True, trains=trains),
        "workers, bytes": lambda n, s, trains: by_workers(n, s, is_float=False, trains=trains),
        "nvimgcodec": device(nvimgcodec_decode),
        "nvimgcodec, engine": device(lambda: nvimgcodec_decode("HW_GPU_ONLY")),
        "nvimgcodec, kernels": device(lambda: nvimgcodec_decode("GPU_ONLY", "HYBRID_CPU_GPU")),
        "torchvision": device(torchvision_decode),
    }


def main() -> None:
    """Measure the named contestants, or all."""
    parser = argparse.ArgumentParser(prog="python -m tools.device_bench.jpeg_decoding")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--workers", type=int, default=max(2, (os.cpu_count() or 4) - 2))
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--train", action="store_true", help="a small network trains meanwhile")
    chosen = parser.parse_args()
    known = contestants()
    found: dict[str, Any] = {"file_kb": sum(map(len, files())) / BANK / 1e3}
    for name in chosen.names or known:
        try:
            found[name] = round(known[name](chosen.workers, chosen.seconds, chosen.train))
        except Exception:  # a contestant may be missing: the others are measured
            found[name] = traceback.format_exc(limit=3)
        print(name, found[name], flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
