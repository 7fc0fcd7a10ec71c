"""Images of extreme sizes: how much memory a resize needs, and the limits that refuse a file."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, ConfigTypeError, ImageError
from reader._core.pixels.render import render
from reader.images import Compose, ImageFolder, decode, image_size

Image = pytest.importorskip("PIL.Image")
ImageFile = pytest.importorskip("PIL.ImageFile")
PngImagePlugin = pytest.importorskip("PIL.PngImagePlugin")

pytest.importorskip("simplejpeg")


def encoded(image: Any, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def with_png_size(content: bytes, height: int, width: int) -> bytes:
    """A PNG whose header claims another size."""
    header = b"IHDR" + struct.pack(">II", width, height) + content[24:29]
    return content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:]


def with_jpeg_size(content: bytes, height: int, width: int) -> bytes:
    """A JPEG whose header claims another size."""
    at = content.index(b"\xff\xc0") + 5
    return content[:at] + struct.pack(">HH", height, width) + content[at + 4 :]


_RESIZE_WITH_LITTLE_MEMORY = """
import resource, sys
import numpy as np
from reader import ConfigError, ConfigTypeError, ImageError
from reader._core.pixels.render import render

height, width, out_height, out_width = map(int, sys.argv[1:])
image = np.full((height, width, 3), 7, np.uint8)
out = np.zeros((out_height, out_width, 3), np.uint8)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20),) * 2)
render(image, (0, height, 0, height), (0, width, 0, width), out)
print(out.min(), out.max())
"""


@pytest.mark.parametrize(
    "sides",
    [
        (1, 2**22, 1, 224),
        (1, 2**22, 1, 1),
        (2**22, 1, 224, 1),
        (2**22, 1, 1, 1),
        (1, 4, 1, 2**22),
        (4, 1, 2**22, 1),
    ],
)
def test_a_resize_needs_16_megabytes_beside_its_images_of_any_form(sides: Any) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _RESIZE_WITH_LITTLE_MEMORY, *map(str, sides)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (found.stdout.split(), found.stderr) == (["7", "7"], "")


@pytest.mark.parametrize(("width", "out_width"), [(70_000, 50_000), (200_000, 3), (9, 50_000)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("is_flipped", [False, True])
@pytest.mark.parametrize("channels_first", [False, True])
def test_a_row_that_is_resized_in_parts_is_as_pillows(
    width: int, out_width: int, channels: int, is_flipped: bool, channels_first: bool
) -> None:
    rng = np.random.default_rng(width)
    image = np.repeat(rng.integers(0, 256, (3, -(-width // 9), channels), np.uint8), 9, axis=1)
    image = np.ascontiguousarray(image[:, :width])
    whole = Image.fromarray(image if channels == 3 else image[:, :, 0])
    wanted = np.asarray(whole.resize((out_width, 5), Image.BILINEAR)).astype(int)
    wanted = wanted.reshape(5, out_width, channels)
    shape = (channels, 5, out_width) if channels_first else (5, out_width, channels)
    out = np.empty(shape, np.uint8)
    spans = (0, 3, 0, 3), (0, width, 0, width)
    render(image, *spans, out, None, (False, is_flipped), channels_first)
    found = out.transpose(1, 2, 0) if channels_first else out
    found = found[:, ::-1] if is_flipped else found
    assert np.abs(found.astype(int) - wanted).max() <= 2


def test_a_file_beyond_max_pixels_is_refused_by_the_name_of_the_setting(tmp_path: Path) -> None:
    image = Image.new("RGB", (30, 20))
    path = tmp_path / "cat" / "one.jpg"
    path.parent.mkdir()
    for kind in "JPEG", "PNG", "TIFF", "GIF":
        content = encoded(image, kind)
        path.write_bytes(content)
        text = (
            r"one.jpg' has 20 x 30 pixels, which are 600, and max_pixels=599 is the limit: all of"
            r" them may take 0 MiB of memory\. Pass a larger max_pixels, or leave it out"
        )
        with pytest.raises(ImageError, match=text):
            decode(path, max_pixels=599)
        with pytest.raises(ImageError, match=text):
            Compose(max_pixels=599).apply(path)
        for options in ({}, {"cache": "10MB"}):
            with pytest.raises(ImageError, match=text):
                ImageFolder(tmp_path, max_pixels=599, **options)[0]
            assert ImageFolder(tmp_path, max_pixels=600, **options)[0][0].shape == (20, 30, 3)
        assert decode(content, max_pixels=600).shape == (20, 30, 3)


def test_a_large_jpeg_is_no_damaged_file_and_a_larger_limit_admits_a_crop_of_it() -> None:
    content = with_jpeg_size(encoded(Image.new("RGB", (64, 64)), "JPEG"), 60_000, 60_000)
    assert image_size(content) == (60_000, 60_000)  # has no limit: nothing is decoded
    text = (
        "has 60000 x 60000 pixels, which are 3,600,000,000, .*=134,217,728 is the limit: .* 54,931"
    )
    with pytest.raises(ImageError, match=text):
        decode(content, crop=(0, 0, 8, 8))
    whole = encoded(Image.new("RGB", (12_000, 12_000), "red"), "JPEG")
    with pytest.raises(ImageError, match="which are 144,000,000, "):
        decode(whole, crop=(0, 0, 8, 8))
    assert decode(whole, crop=(8, 8, 8, 8), max_pixels=2**28).shape == (8, 8, 3)


def test_a_limit_of_pillow_itself_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    for kind in "TIFF", "PNG":  # one is opened by Pillow for its size
        content = encoded(Image.new("RGB", (30, 20)), kind)
        with pytest.raises(
            ImageError, match=rf"{kind}, is beyond .* itself: .*MAX_IMAGE_PIXELS in"
        ):
            decode(content)


_DECODE_WITH_LITTLE_MEMORY = """
import resource, sys
from reader import ImageError
from reader.images import decode

decode(sys.argv[1], crop=(0, 0, 1, 1))
for spare in range(64 << 20, 160 << 20, 4 << 20):  # pixels are missing, or a codec's state
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, resource.RLIM_INFINITY))
    try:
        decode(sys.argv[2], crop=(0, 0, 1, 1))
    except ImageError as error:
        print(error)
"""


def test_memory_that_is_missing_is_no_damage(tmp_path: Path) -> None:
    small, large = tmp_path / "small.png", tmp_path / "large.png"
    Image.new("RGB", (30, 20)).save(small)
    Image.new("1", (2**13, 2**13)).save(large)  # 8 KB in the file, 64 MiB of pixels
    found = subprocess.run(
        [sys.executable, "-c", _DECODE_WITH_LITTLE_MEMORY, str(small), str(large)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    told = found.stdout.splitlines()
    assert len(told) > 10
    text = "large.png', a file of the kind PNG with 8192 x 8192 pixels, needs more memory"
    assert [line for line in told if text not in line] == []
    assert found.stderr == ""


def test_memory_that_a_codec_of_pillow_misses_is_no_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = ImageFile._get_oserror(-9, encoder=False)  # which it raises in some 32 KiB only

    def load(image: object) -> None:
        raise missing

    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", load)
    with pytest.raises(ImageError, match="needs more memory than this process can have"):
        decode(encoded(Image.new("RGB", (30, 20)), "PNG"))


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0, ConfigError, "max_pixels must be an int of 1 or more, got 0"),
        ("many", ConfigTypeError, "max_pixels must be an int of 1 or more, got 'many'"),
        (None, ConfigTypeError, "max_pixels must be"),
    ],
)
def test_a_limit_that_is_none_is_refused(value: Any, error: Any, text: str) -> None:
    content = encoded(Image.new("RGB", (30, 20)), "PNG")
    for make in (lambda: decode(content, max_pixels=value), lambda: Compose(max_pixels=value)):
        with pytest.raises(error, match=text):
            make()
