"""What becomes of the range of each mode of Pillow: the table of docs/images.md, a test per row."""

from __future__ import annotations

import io
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DatasetError, ImageError
from reader.frameworks import pillow
from reader.images import Compose, decode

Image = pytest.importorskip("PIL.Image")


def encoded(image: Any, kind: str = "TIFF", **options: Any) -> bytes:
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(
        file, kind, **options
    )
    return file.getvalue()


def tiff(numbers: Any, bits: int, photometric: int = 1, sample_format: int = 1) -> bytes:
    """An uncompressed TIFF of one row, of little-endian numbers that Pillow does not write."""
    values = [int(number) for number in numbers]
    if bits == 12:  # two numbers in three bytes
        joined = "".join(f"{value:012b}" for value in values)
        pixels = int(joined, 2).to_bytes(len(joined) // 8, "big")
    else:
        pixels = b"".join((value % 2**bits).to_bytes(bits // 8, "little") for value in values)
    tags = [(256, len(values)), (257, 1), (258, bits), (259, 1), (262, photometric), (273, 0)]
    tags += [(277, 1), (278, 1), (279, len(pixels)), (339, sample_format)]
    start = 8 + 2 + 12 * len(tags) + 4
    entries = b"".join(
        struct.pack("<HHII", tag, 4, 1, start if tag == 273 else value) for tag, value in tags
    )
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return head + entries + struct.pack("<I", 0) + pixels


def numbers(values: Any, dtype: Any) -> Any:
    return np.array([values], dtype)


def ppm(values: Any, most: int) -> bytes:
    return b"P5 %d 1 %d\n" % (len(values), most) + numbers(values, ">u2").tobytes()


COLORS = np.array([[[10, 100, 200], [255, 0, 0], [0, 255, 0], [250, 250, 251]]], np.uint8)
LIKE_PILLOW = {  # modes of 8 bits or fewer
    "1": (Image.fromarray(COLORS).convert("1"), "PNG"),
    "L": (Image.fromarray(COLORS).convert("L"), "TIFF"),
    "P": (Image.fromarray(COLORS).convert("P"), "PNG"),
    "LA": (Image.fromarray(COLORS).convert("LA"), "PNG"),
    "PA": (Image.fromarray(COLORS).convert("PA"), "TIFF"),
    "RGB": (Image.fromarray(COLORS), "BMP"),
    "RGBA": (Image.fromarray(COLORS).convert("RGBA"), "PNG"),
    "CMYK": (Image.fromarray(COLORS).convert("CMYK"), "TIFF"),
    "YCbCr": (Image.fromarray(COLORS).convert("YCbCr"), "TIFF"),
    "LAB": (Image.new("LAB", (4, 1), (50, 20, 30)), "TIFF"),
}


@pytest.mark.parametrize("mode", list(LIKE_PILLOW))
def test_a_mode_of_8_bits_has_the_numbers_of_pillow(mode: str) -> None:
    image, kind = LIKE_PILLOW[mode]
    content = encoded(image, kind)
    opened = Image.open(io.BytesIO(content))
    assert opened.mode == mode
    found = decode(content)
    assert (found == np.asarray(opened.convert("RGB"))).all()


#: content, Pillow's mode, what we make, what Pillow and torchvision make
DEEP: dict[str, tuple[bytes, str, list[int], list[int]]] = {
    "TIFF of 16 bits": (
        encoded(numbers([0, 255, 256, 65535], np.uint16)),
        *("I;16", [0, 0, 1, 255], [0, 255, 255, 255]),
    ),
    "TIFF of 16 bits, big-endian": (
        encoded(numbers([0, 255, 256, 65535], ">u2")),
        *("I;16B", [0, 0, 1, 255], [0, 255, 255, 255]),
    ),
    "TIFF of 16 bits, 0 is white": (
        tiff([0, 255, 256, 65535], 16, photometric=0),
        *("I;16", [255, 255, 254, 0], [0, 255, 255, 255]),
    ),
    "TIFF of 12 bits": (
        tiff([0, 16, 2048, 4095], 12),
        *("I;16", [0, 1, 128, 255], [0, 16, 255, 255]),
    ),
    "PPM of 16 bits": (
        ppm([0, 255, 256, 65535], 65535),
        *("I", [0, 0, 1, 255], [0, 255, 255, 255]),
    ),
    "PPM of 12 bits": (
        ppm([0, 16, 2048, 4095], 4095),
        *("I", [0, 1, 128, 255], [0, 255, 255, 255]),
    ),
    "TIFF of 32 bits": (
        encoded(numbers([0, 1, 128, 255], np.int32)),
        *("I", [0, 1, 128, 255], [0, 1, 128, 255]),
    ),
    "TIFF of 32 bits without sign": (
        tiff([0, 1, 128, 255], 32),
        *("I", [0, 1, 128, 255], [0, 1, 128, 255]),
    ),
    "TIFF of 16 bits with sign": (
        tiff([0, 1, 128, 255], 16, sample_format=2),
        *("I", [0, 1, 128, 255], [0, 1, 128, 255]),
    ),
    "TIFF of floats": (
        encoded(numbers([0, 0.5, 0.75, 1], np.float32)),
        *("F", [0, 128, 191, 255], [0, 0, 0, 1]),
    ),
}


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_the_loader_of_torchvision_makes_the_numbers_of_pillow(tmp_path: Path) -> None:
    from tools.domain_bench.image_peers import _import_torchvision

    _import_torchvision()
    from torchvision.datasets.folder import pil_loader

    path = tmp_path / "image"
    for content, _, _, theirs in DEEP.values():
        path.write_bytes(content)
        assert np.asarray(pil_loader(str(path)))[0, :, 0].tolist() == theirs
    for image, kind in LIKE_PILLOW.values():
        path.write_bytes(encoded(image, kind))
        assert (np.asarray(pil_loader(str(path))) == decode(path)).all()


@pytest.mark.parametrize("name", list(DEEP))
def test_a_mode_of_more_bits_is_brought_to_the_range_of_the_table(name: str) -> None:
    content, mode, ours, theirs = DEEP[name]
    opened = Image.open(io.BytesIO(content))
    assert opened.mode == mode
    assert np.asarray(opened.convert("RGB"))[0, :, 1].tolist() == theirs
    for channels in "RGB", "L":
        assert decode(content, mode=channels)[0, :, 0].tolist() == ours
    assert Compose().apply(content)[0, :, 2].tolist() == ours
    assert Compose().apply(opened)[0, :, 1].tolist() == ours  # an image of Pillow
    for color, shape in ((1, (1, 4, 3)), (0, (1, 4, 1)), (-1, (1, 4, 1))):  # of shards
        found = pillow.decode(content, color)
        assert found.shape == shape
        assert found[0, :, 0].tolist() == ours


def test_a_png_of_16_bits_opened_by_an_older_pillow_has_its_upper_8() -> None:
    image = Image.fromarray(numbers([0, 255, 256, 65535], np.int32))
    image.format = "PNG"  # before Pillow 11 the mode was I
    assert pillow.pixels(image, 0)[0].tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (encoded(numbers([-5, 70000], np.int32)), "whole numbers from -5 to 70,000, .* to 255, "),
        (encoded(numbers([0, 256], np.int32)), "whole numbers from 0 to 256, and whole .* 32 bits"),
        (tiff([1, 2**32 - 1], 32), "whole numbers from -1 to 1, "),
        (encoded(numbers([0, 255], np.float32)), "floats from 0.0 to 255.0, .* to 1, white"),
        (encoded(numbers([-1, 1], np.float32)), "floats from -1.0 to 1.0, and floats of 32 bits"),
        (encoded(numbers([np.nan, 1], np.float32)), "floats from nan to nan"),
        (encoded(numbers([np.inf, 1], np.float32)), "floats from 1.0 to inf"),
    ],
)
def test_numbers_of_another_range_are_refused_where_pillow_would_clip_them(
    content: bytes, text: str
) -> None:
    with pytest.raises(ImageError, match=rf"an image of .* has {text}.*leave it out"):
        decode(content)
    with pytest.raises(ImageError, match=rf"the image of Pillow has {text}"):
        Compose().apply(Image.open(io.BytesIO(content)))
    with pytest.raises(DatasetError, match=rf"an image of \d+ bytes has {text}.*Convert it"):
        pillow.decode(content, 1)


def test_floats_that_a_filter_made_a_little_greater_than_1_are_white() -> None:
    content = encoded(numbers([-1e-7, 1.0000001, 1.001], np.float32))
    assert decode(content, mode="L")[0, :, 0].tolist() == [0, 255, 255]
