"""The decoders and resizers of JPEG files by themselves, in CPU time of one thread."""

from __future__ import annotations

import functools
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reader.images import decode
from tools.domain_bench.image_files import SIZE, make_files
from tools.domain_bench.work import Turn, Work, left_out


def decoders(folder: Path, files: int, scale: float) -> Work:
    """Decoders and resizers of pictures, in CPU time of one thread."""
    root = make_files(folder, files, scale)
    return Work(_turns(root), "ms per image, CPU")


def _turns(root: Path) -> Iterator[tuple[str, Turn]]:
    contents = [path.read_bytes() for path in sorted(root.rglob("*.jpg"))[:32]]
    for name, run in _decoders(contents):
        yield name, functools.partial(_seconds_per_image, run, len(contents))


def _seconds_per_image(run: Callable[[int], Any], count: int) -> float:
    begun = time.process_time()
    for number in range(count):
        run(number)
    return (time.process_time() - begun) / count


def _resized(image: Any, out: Any) -> None:
    from reader._core.pixels.render import render

    height, width = image.shape[:2]
    render(image, (0, height, 0, height), (0, width, 0, width), out)


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
    yield "resized: reader.images", lambda n: _resized(whole[n], out)
    yield "resized: Pillow", lambda n: np.array(images[n].resize(SIZE[::-1], bilinear))
    with left_out("OpenCV"):
        import cv2

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
    with left_out("torchvision"):
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg
        from torchvision.transforms.v2 import functional

        torch.set_num_threads(1)
        tensors = [torch.frombuffer(bytearray(each), dtype=torch.uint8) for each in contents]
        wide = [torch.from_numpy(each).permute(2, 0, 1).contiguous() for each in whole]
        yield "decoded: torchvision", lambda n: decode_jpeg(tensors[n], ImageReadMode.RGB)
        yield (
            "resized: torchvision",
            lambda n: functional.resize(wide[n], list(SIZE), antialias=True),
        )
    with left_out("imagecodecs"):
        import imagecodecs

        yield "decoded: imagecodecs", lambda n: imagecodecs.jpeg8_decode(contents[n])
    with left_out("kornia-rs"):
        from kornia_rs.io import decode_image_jpegturbo

        yield "decoded: kornia-rs", lambda n: decode_image_jpegturbo(contents[n], "rgb")
